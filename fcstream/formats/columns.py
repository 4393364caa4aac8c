"""Whole columns of cells become numbers, NaN where a cell needs a second look at its record alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Schema, UnusableRecord
from .cells import PER_MILLISECOND, TRUTH, parse_iso8601, parse_number

_LARGEST = 2**62
_PLAIN = frozenset((str, int, float))


def timestamps_of(times: Iterable[Any], count: int, schema: Schema) -> NDArray[np.float64]:
    """Convert event times to milliseconds as float64, NaN for rows that need the slow path."""
    if schema.time_unit == "iso8601":
        return np.fromiter((_iso_or_nan(text, schema.dates) for text in times), np.float64, count)
    if schema.time_unit in PER_MILLISECOND:
        return _whole_milliseconds(times, count, PER_MILLISECOND[schema.time_unit])
    timestamps = times if isinstance(times, np.ndarray) else np.fromiter(times, np.float64, count)
    if schema.time_unit == "ms":
        return timestamps
    with np.errstate(over="ignore", invalid="ignore"):
        return np.floor(np.round(timestamps * 1e6) / 1e3)


def _whole_milliseconds(times: Iterable[Any], count: int, ticks: int) -> NDArray[np.float64]:
    """Divide whole numbers of ticks before they become floats; NaN for anything else."""
    if isinstance(times, np.ndarray) and times.dtype.kind in "iu":
        wide = np.int64 if times.dtype.kind == "i" else np.uint64
        return np.asarray(times.astype(wide) // wide(ticks), np.float64)
    values = times if isinstance(times, list) else list(times)
    if set(map(type, values)) == {int}:
        try:
            whole = np.array(values, np.int64)
        except OverflowError:
            pass
        else:
            return np.where((whole > -_LARGEST) & (whole < _LARGEST), np.asarray(whole // ticks, np.float64), math.nan)
    return np.fromiter(
        (value // ticks if type(value) is int and -_LARGEST < value < _LARGEST else math.nan for value in values),
        np.float64,
        count,
    )


def _iso_or_nan(text: str | None, dates: bool) -> float:
    try:
        return float(parse_iso8601(text, dates=dates)) if text else math.nan
    except (ValueError, OverflowError):
        return math.nan


def coded(
    values: Iterable[Any], count: int, codes: Mapping[Any, int] | None, *, has_texts: bool = False
) -> NDArray[np.float64]:
    """Convert a column of levels to codes, NaN for unknown levels; numbers stay, and texts among them become NaN."""
    if codes is None and has_texts:
        return np.fromiter((math.nan if type(value) is str else value for value in values), np.float64, count)
    if codes is None:
        return np.fromiter(values, np.float64, count)
    return np.fromiter((code_or_nan(codes, value) for value in values), np.float64, count)


def code_or_nan(codes: Mapping[Any, int], value: Any) -> float:
    """Return the code of a text, a number or a truth value that is a level; NaN for what needs a second look."""
    if type(value) is bool:
        value = TRUTH[value]
    return codes.get(value, math.nan) if type(value) in _PLAIN else math.nan


def numbers_of(texts: Sequence[str]) -> NDArray[np.float64]:
    """Convert a column of texts to numbers; NaN for rows that need the slow path."""
    if "_" not in "".join(texts):
        try:
            return np.array(list(map(float, texts)), np.float64)
        except ValueError:
            pass
    return np.fromiter(map(_number_or_nan, texts), np.float64, len(texts))


def _number_or_nan(text: str) -> float:
    try:
        return parse_number(text)
    except UnusableRecord:
        return math.nan
