"""Columns of pandas, polars and Arrow as plain ones, without importing these libraries.

A plain column is an array of numbers, truth values or moments of numpy, or of Python's objects; what is null in it is
masked, NaN, NaT or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Make a column of Python objects of any types."""
    return np.fromiter(values, np.object_, len(values))


def cells_of(column: NDArray[Any]) -> list[Any]:
    """Return the cells of a plain column, None where they are masked."""
    if column.dtype.kind not in "mM":  # in lists of Python moments may be integers
        column = column.astype(np.object_)
    return [None if cell is np.ma.masked else cell for cell in column] if np.ma.isMaskedArray(column) else list(column)


def as_column(values: Any) -> NDArray[Any]:
    """Return what a caller gave as one column, or as its only cell, as a plain one."""
    column = as_array(values)
    if isinstance(column, np.ndarray):
        return np.atleast_1d(column) if column.ndim < 2 else as_objects(list(column))
    is_one = isinstance(column, (str, bytes)) or not isinstance(column, Iterable)
    return as_objects([column] if is_one else list(column))


def as_array(values: Any) -> Any:
    """Convert a column of pandas, polars or Arrow to an array, with NaN, NaT or None for nulls.

    Integers with nulls become a masked array of integers: as floats, one null would round all other rows. Any other
    object is returned unchanged.
    """
    if isinstance(values, (np.ndarray, datetime, timedelta)) or not hasattr(values, "to_numpy"):
        return values  # pandas' own moments have that method too
    array = _filled(values)
    if getattr(values, "null_count", None) == 0 and hasattr(values, "to_pylist"):  # of Arrow, which counts them
        return array
    absent = _nulls(values)
    if not absent.any():
        return array
    if array.dtype.kind in "fO":
        present = _filled(_without_nulls(values))
        if present.dtype.kind in "iuf":
            filled = np.zeros(len(absent), present.dtype)
            filled[~absent] = present
            return np.ma.MaskedArray(filled, absent)
    array = array.copy() if array.dtype.kind in "MO" else array.astype(np.object_)
    array[absent] = "NaT" if array.dtype.kind == "M" else None
    return array


def _filled(values: Any) -> NDArray[Any]:
    """Convert a column to an array by its own library."""
    plain_kind = getattr(getattr(values, "dtype", None), "numpy_dtype", None)
    if isinstance(plain_kind, np.dtype) and plain_kind.kind in "iufb" and not _nulls(values).any():
        return np.asarray(values.to_numpy(dtype=plain_kind))  # which else makes objects of some
    kind = getattr(values, "dtype", None)
    if getattr(kind, "tz", None) is not None:  # of pandas, which else makes objects of moments with a zone
        return np.asarray(values.to_numpy(dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]"))
    return np.asarray(values.to_numpy(zero_copy_only=False) if hasattr(values, "to_pylist") else values.to_numpy())


def _without_nulls(values: Any) -> Any:
    """Select the cells of a column of pandas, polars or Arrow that are not null."""
    names = ("dropna", "drop_nulls", "drop_null")
    return next(getattr(values, name) for name in names if hasattr(values, name))()


def _nulls(values: Any) -> NDArray[np.bool_]:
    """Tell where a column of pandas (`isna`), polars or Arrow (`is_null`) is null."""
    ask = getattr(values, "isna", None) or getattr(values, "is_null", None)
    return np.zeros(len(values), np.bool_) if ask is None else np.asarray(ask(), np.bool_)
