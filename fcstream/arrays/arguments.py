"""Arguments that several functions about arrays take: each is checked once, and errors name it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import wraps
from itertools import chain
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError, Shown
from ..formats.cells import BOOLEAN, Role, plain, read
from ..formats.frames import columns_of
from ..formats.plain_columns import as_array, as_column, as_objects, cells_of
from ..noise.samplers import Noise
from ..stream.lattice import Feature, Grid, Lattice

P = ParamSpec("P")
R = TypeVar("R")
Bounds = tuple[float | Sequence[float], float | Sequence[float]]
"""A public box: its lower and its upper end, a number for all columns or a sequence with one for each."""
_NUMBER = Role("number")
_CAN_BE_NUMBERS = (int, float, Decimal, np.integer, np.floating)


class GivenRows(NamedTuple):
    """Rows that a caller gave, as numbers.

    Attributes
    ----------
    cells : float64 (n, d)
        NaN in place of what is no number.
    kinds : tuple of dtype (d,)
        The types of the columns.
    odd : dict of int to str
        Rows that cannot be used, and why, by the first of their cells that has no value.
    """

    cells: NDArray[np.float64]
    kinds: tuple[np.dtype[Any], ...]
    odd: dict[int, str]

    @property
    def width(self) -> int:
        return len(self.kinds)

    def doubles(self, grid: Grid) -> NDArray[np.float64]:
        """Return the cells (n, d) of a grid's fields; see `Grid.doubles`."""
        return grid.all_doubles(self.cells, self.kinds)


def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function name its arguments, not keys of a configuration, in errors: the key, and those of its facts."""
    known = list(inspect.signature(function).parameters)

    def argument(key: str, loss: str) -> str:
        section, _, name = key.partition(".")
        if section not in ("release", "features", "lattice", "budget"):
            return key
        if section in ("budget", "release"):
            name = name or loss
        if section == "features":  # of one, the range or another key; of all, the rows
            name = name.partition(".")[2] if "." in name or not name else "bounds"
            name = "bounds" if name in ("min", "max") else name
        elif section == "release":
            name = {"rows": "size"}.get(name, name) if "size" in known else name
        return name if name in known else known[0]

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            if "origin" in error.facts:  # which only a configuration can set
                error.remedy = "use a coarser {step}"
            loss = "rho" if kwargs.get("epsilon") is None else "epsilon"
            error.rename(lambda key: argument(key, loss))
            raise

    return asked


def number_of(value: Any, name: str) -> float:
    """Return a number as a float.

    Raises
    ------
    ConfigError
        It is a text, a truth value, or anything else.
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, (bool, np.timedelta64)) or value != value:
        raise ConfigError("must be a number", name, got=Shown(_reported(value)))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _reported(value: Any) -> str:
    """Return what an error says about a value: of anything but one cell its type, since it may hold records."""
    is_plain = value is None or isinstance(value, (str, bool, int, float, np.generic))
    return repr(value) if is_plain else f"a {type(value).__name__}"


def check_delta(delta: float) -> None:
    """Refuse a number that is no delta.

    Raises
    ------
    ConfigError
    """
    if not 0 <= delta < 1:
        raise ConfigError("must be in [0, 1)", "delta", got=Shown(f"{delta:g}"))


def whole_of(value: Any, name: str) -> int:
    """Return a whole number as an int.

    Raises
    ------
    ConfigError
        It is a float, a text, a truth value, or anything else.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, (bool, np.timedelta64)):
        raise ConfigError("must be a whole number", name, got=Shown(_reported(value)))
    return int(value)


def whole_or_none(value: Any, name: str) -> int | None:
    """Return a whole number as an int, or None for None; see `whole_of`."""
    return None if value is None else whole_of(value, name)


def noise_of(noise: Any) -> Noise:
    """Return the noise that was given, or exact noise from the operating system for None.

    Raises
    ------
    ConfigError
        It is no `Noise`.
    """
    if noise is not None and not isinstance(noise, Noise):
        raise ConfigError(
            "must be a `Noise`, such as Noise(SeededEntropy(1))", "noise", got=Shown(f"a {type(noise).__name__}")
        )
    return noise or Noise()


def ends_of(bounds: Any, dimension: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper ends (d,) of a public box, see `Bounds`.

    Raises
    ------
    ConfigError
    """
    wanted = f"(low, high) of two numbers, or of two lists of {dimension}, all lower ends before all upper ones"
    ends = [_public_numbers(end, "bounds", wanted) for end in _pair(bounds, wanted)]
    if any(end.shape not in ((), (dimension,)) for end in ends):
        raise ConfigError(f"must be {wanted}", "bounds")
    low, high = (np.broadcast_to(end, (dimension,)).astype(np.float64) for end in ends)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ConfigError(f"must be {wanted}: finite, the lower ends below the upper ones", "bounds")
    return low, high


def _pair(bounds: Any, wanted: str) -> Sequence[Any]:
    try:
        ends = [] if isinstance(bounds, (str, bytes)) else list(bounds)
    except TypeError:
        ends = []
    if len(ends) != 2:
        raise ConfigError(f"must be {wanted}", "bounds")
    return ends


def numbers_of(values: Any, name: str) -> list[float]:
    """Return a list of numbers as floats.

    Raises
    ------
    ConfigError
        It is anything else.
    """
    found = _public_numbers(values, name, "a list of numbers")
    if found.ndim != 1:
        raise ConfigError("must be a list of numbers", name)
    return list(map(float, found))


def texts_of(values: Any, name: str) -> list[str]:
    """Return a list of texts.

    Raises
    ------
    ConfigError
        It is anything else.
    """
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else [None]
    if not all(isinstance(value, str) for value in found):
        raise ConfigError("must be a list of texts", name)
    return list(map(str, found))


def rows_of(
    values: Any,
    name: str,
    what: str = "a rectangular array of numbers",
    *,
    is_column: bool = False,
    role_of: Callable[[int], Role] | None = None,
) -> GivenRows:
    """Read an array, a list of rows or a data frame cell by cell, as records are read.

    A data frame's columns have a type each. `is_column`: the values (n,) of one column. `role_of` makes a role of codes
    from the number of columns; then numbers are read as numbers, and Booleans and texts are codes.

    Raises
    ------
    ConfigError
        A column has a type that is none of numbers, or the shape is wrong.
    """
    if isinstance(values, GivenRows):
        return values
    given: list[NDArray[Any]] = []
    if columns_of(values) is not None:
        given = [as_column(column) for column in _columns(values)]
        shape = (len(given[0]) if given else 0, len(given))
    else:
        array = _array(values, name, what)
        shape = array.shape
    if is_column and len(shape) != 1:
        raise ConfigError("must have shape (n,)", name, got=shape, remedy="give one column")
    if not is_column and (len(shape) != 2 or shape[1] < 1):
        remedy = ": give one column as (n, 1)" if len(shape) == 1 else ""
        raise ConfigError("must have shape (n, d) with d >= 1", name, got=Shown(f"{shape}{remedy}"))
    n, width = shape[0], 1 if is_column else shape[1]
    coded = None if role_of is None else role_of(width)
    odd: dict[int, str] = {}
    if not given:  # all cells at once, row by row
        cells, wrong = _read(array.reshape(-1), coded, name, what)
        odd = {i // width: wrong[i] for i in sorted(wrong, reverse=True)}
        return GivenRows(cells.reshape(n, width), (array.dtype,) * width, odd)
    cells = np.empty((n, width))
    for k in reversed(range(width)):
        cells[:, k], wrong = _read(given[k], coded, name, what)
        odd |= wrong
    return GivenRows(cells, tuple(column.dtype for column in given), odd)


def _read(column: NDArray[Any], coded: Role | None, name: str, what: str) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Read cells (n,), NaN for those without a value; also tells which these are, and why."""
    kind = column.dtype.kind
    if coded is not None and kind == "b" and not np.ma.is_masked(column):
        return np.ma.getdata(column).astype(np.float64), {}
    by_code = coded is not None and kind not in "iufcmMV"
    if kind not in "iuf" and not by_code and not (kind == "O" and _may_hold_numbers(column)):
        raise ConfigError(
            f"must be {what}: truth values, texts, moments, time spans and complex numbers are none, convert them", name
        )
    values, odd = read(column, coded if coded is not None and by_code else _NUMBER)
    if odd and kind not in "iuf":
        values[list(odd)] = math.nan
    return values, odd


def _may_hold_numbers(column: NDArray[Any]) -> bool:
    """Tell whether some cell of a column of objects has a type of numbers, or none has any type."""
    kinds = set(map(type, cells_of(column)))
    if any(hasattr(kind, "as_py") for kind in kinds):  # cells of Arrow
        kinds = set(map(type, map(plain, cells_of(column))))
    empty = ("NoneType", "NAType", "NaTType", "MaskedConstant")
    kinds = {kind for kind in kinds if kind.__name__ not in empty}
    numbers = (kind for kind in kinds if issubclass(kind, _CAN_BE_NUMBERS))
    return not kinds or any(not issubclass(kind, (bool, np.timedelta64)) for kind in numbers)


def _array(values: Any, name: str, what: str) -> NDArray[Any]:
    """Return what a caller gave as an array: one of objects, unless all cells are numbers."""
    array = as_array(values)
    if isinstance(array, np.ndarray):
        return array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
    try:
        if not isinstance(array, (list, tuple)):
            return np.asarray(array)
        array = [as_objects(cells_of(row)) if isinstance(row, np.ma.MaskedArray) else row for row in array]
        with suppress(TypeError, ValueError, OverflowError):  # of types that numpy cannot join
            typed = np.asarray(array)
            cells = set(map(type, array if typed.ndim == 1 else chain.from_iterable(array)))
            if typed.dtype.kind in "iuf" and not any(issubclass(cell, (bool, np.bool_)) for cell in cells):
                return typed.astype(np.float64)  # its rows' own types would decide what other rows are taken for
        objects = np.array(array, np.object_)
        if set(map(type, objects.ravel().tolist())) & {list, tuple, np.ndarray}:
            raise ConfigError(f"must be {what}", name)
        return objects
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"must be {what}", name) from None


def _columns(table: Any) -> list[Any]:
    """Return the columns of a data frame of pandas or polars, or of a table of Arrow, by their places."""
    if hasattr(table, "iloc"):
        return [table.iloc[:, k] for k in range(table.shape[1])]
    return list(table.get_columns() if hasattr(table, "get_columns") else table.columns)


def _public_numbers(values: Any, name: str, what: str) -> NDArray[np.float64]:
    """Read public numbers of any shape, all of which must be numbers.

    Raises
    ------
    ConfigError
    """
    is_cell = not isinstance(values, Sequence) and not hasattr(values, "__array__")
    array = as_objects([values]).reshape(()) if is_cell else _array(values, name, what)
    found, odd = _read(array.reshape(-1), None, name, what)
    if odd and array.dtype.kind == "O":
        raise ConfigError(f"must be {what}", name)
    return found.reshape(array.shape)


def coded_rows(rows: ArrayLike, levels: Sequence[int] | None) -> tuple[GivenRows, Grid]:
    """Check a table of codes and make its grid; a code that is not a whole number becomes -1, which is no level."""
    table = rows_of(
        rows, "rows", "a rectangular array of codes", role_of=lambda width: _role(max(_sizes(levels, width)))
    )
    sizes = _sizes(levels, table.width)
    with np.errstate(invalid="ignore"):
        cells = np.where((table.cells == np.floor(table.cells)) | ~np.isfinite(table.cells), table.cells, -1.0)
    features = [
        Feature(f"x{k}", 0.0, size - 1.0, levels=("false", "true") if size == 2 else tuple(map(str, range(size))))
        for k, size in enumerate(sizes)
    ]
    return table._replace(cells=cells), Grid(Lattice(1.0), tuple(features))


def _sizes(levels: Sequence[int] | None, width: int) -> list[int]:
    """Return the numbers of levels of all columns."""
    if not (levels is None or isinstance(levels, (Sequence, np.ndarray))) or isinstance(levels, str):
        raise ConfigError(f"must hold {width} numbers of at least 2", "levels")
    sizes = [2] * width if levels is None else [whole_of(size, "levels") for size in levels]
    if len(sizes) != width or min(sizes) < 2:
        raise ConfigError(f"must hold {width} numbers of at least 2", "levels")
    return sizes


def _role(size: int) -> Role:
    """Return what cells stand for that are no numbers: Booleans, and texts of codes."""
    return Role("code", codes=BOOLEAN | {str(code): code for code in range(size)})
