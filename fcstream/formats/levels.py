"""Numbers of arrays and typed columns: of floats as doubles, of Booleans and categories as codes of their levels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Schema, UnusableRecord
from .cells import parse_number, plain, read, read_cell
from .texts import is_whole


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
    value = plain(value)
    is_number = is_whole(value) or (isinstance(value, float) and value == value)
    if as_texts or not is_number:
        return float(read_cell(value, schema.role(name)))
    return _place(parse_number(value))


def codes_of(
    column: NDArray[np.float64], name: str, schema: Schema, as_texts: bool
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Read a column of numbers as codes; also tells which rows are unusable, and why.

    Places beyond the last level are left to the range check, and so is NaN among them.
    """
    if as_texts:
        codes, odd = read(column, schema.role(name))
        codes[np.isnan(column)] = math.nan
        return codes, {i: reason for i, reason in odd.items() if column[i] == column[i]}
    with np.errstate(invalid="ignore"):
        return column, dict.fromkeys(np.flatnonzero(np.floor(column) < column).tolist(), "unknown_level")


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
