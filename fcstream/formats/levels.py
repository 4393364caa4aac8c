"""Numbers of arrays and typed columns: of floats as doubles, of Booleans and categories as codes of their levels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Schema, UnusableRecord, parse_feature, parse_number
from .texts import is_whole

_FEW = 64  # cells that are looked up one by one sooner than together


def doubles_of(schema: Schema, name: str, cells: NDArray[Any], kind: Any = None) -> NDArray[np.float64]:
    """Convert a feature's column of numbers (n,), NaN for an empty cell, to double precision.

    In a column of float32 or float16 it recognizes the ends of the range and declared "no values" as that type holds
    them, see `fcstream.stream.lattice.Grid.doubles`. `kind` is the column's type, if not that of the array: the one
    that a schema states, or that the first frame of a run had. It must not depend on the cells.
    """
    if schema.converts is None:
        return np.asarray(cells, np.float64)
    return schema.converts(schema.features.index(name), cells, kind)


def read_as_texts(schema: Schema) -> frozenset[str]:
    """Return the features whose whole numbers are the levels with that text, since a level is a whole number's text.

    In plain rows the numbers of all others are places of levels, counted from 0.
    """
    return frozenset(name for name, codes in schema.levels.items() if any(type(level) is int for level in codes))


def code_of(value: Any, name: str, schema: Schema, as_texts: bool) -> float:
    """Return the code of one cell; NaN says that an optional value is missing.

    Raises
    ------
    UnusableRecord
    """
    if not (is_whole(value) or isinstance(value, (float, np.floating))):
        return parse_feature(value, name, schema)
    number = math.nan if name in schema.optional and value != value else parse_number(value)
    if as_texts and number == number:
        return parse_feature(int(value) if number == math.floor(number) else number, name, schema)
    return _place(number)


def codes_of(
    column: NDArray[np.float64], name: str, schema: Schema, as_texts: bool
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Read a column of numbers as codes; also tells which rows are unusable, and why.

    NaN, and places beyond the last level, are left to the range check.
    """
    odd: dict[int, str] = {}
    if not as_texts:
        with np.errstate(invalid="ignore"):
            return column, dict.fromkeys(np.flatnonzero(np.floor(column) < column).tolist(), "unknown_level")
    found, rows = np.array(column, np.float64), np.flatnonzero(~np.isnan(column))
    if len(column) > _FEW:
        whole = {level: code for level, code in schema.levels[name].items() if type(level) is int}
        levels = np.array(sorted(whole), np.float64)
        places = np.array([whole[level] for level in sorted(whole)], np.float64)
        at = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
        known = levels[at] == column
        found[known] = places[at[known]]
        rows = rows[~known[rows]]
    for i in rows.tolist():
        try:
            found[i] = parse_feature(float(column[i]), name, schema)
        except UnusableRecord as refused:
            odd[i] = refused.reason
    return found, odd


def read_codes(
    values: NDArray[np.float64], schema: Schema, as_texts: Iterable[str]
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Read rows of numbers, in which those of a Boolean or a category become codes; see `codes_of`."""
    odd: dict[int, str] = {}
    for k, name in enumerate(schema.features if schema.levels else ()):
        if name in schema.levels:
            values[:, k], wrong = codes_of(values[:, k], name, schema, name in as_texts)
            odd = wrong | odd
    return values, odd


def _place(number: float) -> float:
    if math.isfinite(number) and number != math.floor(number):
        raise UnusableRecord("unknown_level")
    return number
