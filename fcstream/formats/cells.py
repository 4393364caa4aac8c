"""One reader of a cell: what becomes of it, whatever its type is and whichever way it comes.

`read_cell` reads one cell, `read` a whole plain column with the same result, sooner.

Source
------
Specification 13.5, a table of what each type of cell is in each role.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .plain_columns import as_objects, cells_of
from .texts import MAX_JOINED, UnusableRecord, are_overloaded, composed, is_overloaded, is_text, is_whole, parse_text

TIME_UNITS = ("ms", "s", "us", "ns", "iso8601")
PER_MILLISECOND = {"us": 10**3, "ns": 10**6}
"""Ticks in a millisecond of the units whose integers are divided before they could become floats."""
EXACT = 2**53
"""Every whole number below it in size is a double of its own; larger ones may have been rounded to it."""
MAX_TIME_MS = EXACT - 1
LONGEST_LABEL = 1024
"""Most characters of an id (bytes, if it comes as bytes), since ids are kept until their window closes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_LONGEST_DATE = 10
"""Characters of a date in ISO 8601; with an hour it has more."""
_FAR = 2.0**62
_FEW = 64  # different numbers of a column whose cells are looked up in a table
_MAX_DIGITS = 1000  # of a decimal number that is written out
TRUTH = ("false", "true")
BOOLEAN = {"false": 0, "true": 1, "False": 0, "True": 1, "FALSE": 0, "TRUE": 1, "0": 0, "1": 1, 0: 0, 1: 1}
"""The codes of a Boolean."""
_HALF = "\ud800"
"""Stands for texts that are too many to be looked at together."""
_EXACT_SECONDS = 2.0**38
"""Whole numbers of seconds below it are the same milliseconds as floats."""
_HASHED = frozenset((str, bytes, int, float, bool, type(None)))
_DATES = frozenset("YMWD")
"""Units of numpy's moments that are dates."""


class Role(NamedTuple):
    """What a cell stands for.

    Attributes
    ----------
    kind : str
        ``time``, ``number``, ``code`` (of a Boolean or a category) or ``label`` (a user's id, a key or a text).
    unit : str
        Of a time, one of `TIME_UNITS`.
    dates : bool
        Whether a date without a time is an event time, its midnight.
    codes : mapping
        The code of each level, by its text.
    missing : set of str
        Texts that stand for no value.
    optional : bool
        Whether there need not be a value.
    as_text : bool
        Whether numbers and times in numbers may come as text, and ids as bytes that are no Unicode.
    max_bytes : int or None
        Most bytes of a text; None: it is an id or a key.
    reason : str
        Why a label cannot be used that is none.
    nan : str
        Why NaN cannot be used as a number or a time; ``missing``: it stands for no value.
    doubles : callable or None
        Makes doubles of a column of floats, whose type it is told: see `fcstream.stream.lattice.Grid.doubles`.
    """

    kind: Literal["time", "number", "code", "label"]
    unit: str = "ms"
    dates: bool = True
    codes: Mapping[Any, int] = {}
    missing: Collection[str] = frozenset()
    optional: bool = False
    as_text: bool = False
    max_bytes: int | None = None
    reason: str = "bad_user"
    nan: str = "missing"
    doubles: Callable[[NDArray[Any], Any], NDArray[np.float64]] | None = None

    @property
    def wrong(self) -> str:
        """Why a cell cannot be used whose type is none of this role."""
        return {"time": "bad_time", "number": "not_a_number", "code": "unknown_level"}.get(self.kind, self.reason)


class Milliseconds(int):
    """A time whose unit is milliseconds, whatever the unit of a schema is."""


def read_cell(cell: Any, role: Role) -> Any:
    """Read one cell: milliseconds, a number, a code or a text; NaN or None if an optional one is missing.

    Raises
    ------
    UnusableRecord
        With a reason of `fcstream.formats.batch.MEANINGS`.

    Source
    ------
    Specification 13.5.
    """
    value = plain(cell)
    if role.kind == "time":
        return _time(value, role)
    try:
        if role.kind == "label":
            return _label(value, role)
        return _number(value, role) if role.kind == "number" else _code(value, role)
    except UnusableRecord as refused:
        if refused.reason != "missing" and not says_missing(value, role.missing):
            raise
        if role.optional:
            return None if role.kind == "label" else math.nan
        raise UnusableRecord("missing") from None


def read(column: Any, role: Role) -> tuple[NDArray[Any], dict[int, str]]:
    """Read a plain column (see `fcstream.formats.plain_columns`) or a list, cell by cell only what is not as usual.

    Returns
    -------
    values : int64, float64 or object array (n,)
        Meaningless in rows that have none.
    odd : dict of int to str
        These rows, and why.

    Source
    ------
    Specification 13.5.
    """
    if not isinstance(column, np.ndarray):
        return _listed(column, role)
    if type(column) is np.ndarray and (settled := _settled(column, role)) is not None:
        return settled, {}
    way = {"time": _times, "number": _numbers, "code": _codes, "label": _labels}[role.kind]
    found = way(column, np.ma.getdata(column), np.ma.getmaskarray(column), role)
    return _listed(cells_of(column), role) if found is None else found


def _times(
    column: Any, cells: NDArray[Any], nulls: NDArray[np.bool_], role: Role
) -> tuple[NDArray[Any], dict[int, str]] | None:
    kind = cells.dtype.kind
    if kind == "O":
        return None
    if kind in "mM":
        nulls = nulls | np.isnat(cells)
    if kind == "f" and role.nan == "missing":
        nulls = nulls | np.isnan(cells)
    is_read = (role.dates or not is_date(cells.dtype)) if kind == "M" else role.unit != "iso8601"
    if is_read and kind == "M":
        values, good = datetimes_to_ms(cells)
    elif is_read and kind in "iu":
        values, good = ticks_to_ms(cells, 1000 if role.unit == "s" else 1, PER_MILLISECOND.get(role.unit, 1))
    elif is_read and kind == "f":
        values, good = _float_times(cells.astype(np.float64), role.unit)
    else:
        values = np.zeros(len(cells), np.int64)
        good = np.zeros(len(cells), np.bool_)
    return values, _odd(good, nulls, "bad_time")


def _numbers(
    column: Any, cells: NDArray[Any], nulls: NDArray[np.bool_], role: Role
) -> tuple[NDArray[Any], dict[int, str]] | None:
    kind = cells.dtype.kind
    if kind not in "iuf":
        return None
    values = np.ma.filled(column.astype(np.float64), math.nan) if nulls.any() else cells.astype(np.float64)
    absent = nulls | np.isnan(values) if role.nan == "missing" else nulls
    good = np.isfinite(values) | absent
    if role.doubles is not None and kind == "f":
        values = role.doubles(values, cells.dtype)
    return values, _odd(good, np.zeros(len(cells), np.bool_) if role.optional else absent, "not_finite")


def _codes(
    column: Any, cells: NDArray[Any], nulls: NDArray[np.bool_], role: Role
) -> tuple[NDArray[Any], dict[int, str]] | None:
    if cells.dtype.kind not in "iufb" or len(cells) <= _FEW:
        return None
    some, places = _different(cells)
    codes, wrong = _listed(some.tolist(), role)
    odd = {int(i): wrong[code] for i, code in enumerate(places.tolist()) if code in wrong} if wrong else {}
    return _with_nulls(codes.astype(np.float64)[places.reshape(-1)], odd, nulls, role)


def _different(cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the numbers of a column (n,), perhaps others too, and which of them each cell is."""
    if cells.dtype.kind == "b":
        return np.array([False, True]), cells.astype(np.int64)
    low, high = cells.min().item(), cells.max().item()
    if high - low < _FEW:  # False for NaN
        whole = cells.astype(np.int64)
        if np.array_equal(whole, cells):
            return np.arange(int(low), int(high) + 1), whole - int(low)
    return np.unique(cells, return_inverse=True)


def _labels(
    column: Any, cells: NDArray[Any], nulls: NDArray[np.bool_], role: Role
) -> tuple[NDArray[Any], dict[int, str]] | None:
    if cells.dtype.kind not in "iu" or role.missing:
        return None
    return _with_nulls(as_objects(list(map(str, cells.tolist()))), {}, nulls, role)


def composed_labels(labels: NDArray[np.object_]) -> NDArray[np.object_]:
    """Bring users' ids or keys (n,) to normal form C, so that one person has one budget however a name is written.

    Source
    ------
    Specification 13.5.
    """
    cells = labels.tolist()
    return labels if all(map(str.isascii, cells)) else as_objects(list(map(composed, cells)))


def _settled(cells: NDArray[Any], role: Role) -> NDArray[Any] | None:
    """Return the values of a column without nulls whose cells are all as usual; None for any other."""
    kind = cells.dtype.kind
    if role.kind == "number" and kind in "iuf":
        values = cells.astype(np.float64, copy=False)
        if kind == "f" and not np.isfinite(values).all():
            return None
        return role.doubles(values, cells.dtype) if role.doubles is not None and kind == "f" else values
    if role.kind == "time" and kind == "f" and role.unit in ("ms", "s"):
        times, good = _float_times(cells.astype(np.float64, copy=False), role.unit)
        return times if good.all() else None
    if role.kind == "time" and kind in "iuM":
        unit = np.datetime_data(cells.dtype) if kind == "M" else (role.unit, 1)
        if unit not in _SCALES or (kind == "M" and np.isnat(cells).any()):
            return None
        times, good = ticks_to_ms(cells.view(np.int64) if kind == "M" else cells, *_SCALES[unit])
        return times if good.all() else None
    return None


def _listed(cells: Sequence[Any], role: Role) -> tuple[NDArray[Any], dict[int, str]]:
    """Read Python objects: those that are as usual at once, of the others equal ones once."""
    way = {"time": _usual_times, "number": _usual_numbers, "code": _usual_codes, "label": _usual_labels}[role.kind]
    values, good = way(cells, role)
    odd: dict[int, str] = {}
    if good.all():
        return values, odd
    known: dict[Any, tuple[Any, str]] = {}
    nothing = "" if role.kind == "label" else 0
    for i in np.flatnonzero(~good).tolist():
        cell = cells[i]
        key = (type(cell), cell) if type(cell) in _HASHED else None
        found = None if key is None else known.get(key)
        if found is None:
            try:
                found = read_cell(cell, role), ""
            except UnusableRecord as refused:
                found = None, refused.reason
            if key is not None:
                known[key] = found
        if found[1]:
            odd[i] = found[1]
        values[i] = nothing if found[1] else found[0]
    return values, odd


Usual = tuple[NDArray[Any], NDArray[np.bool_]]
"""Values, and which of them are right; the other cells need a look of their own."""


def _usual_times(cells: Sequence[Any], role: Role) -> Usual:
    n, unit = len(cells), role.unit
    if unit == "iso8601":
        found = np.fromiter((_iso_or_nan(cell, role.dates) for cell in cells), np.float64, n)
        return np.nan_to_num(found).astype(np.int64), ~np.isnan(found)
    if role.as_text:
        numbers = _all_numbers(cells, int)
        if numbers is None and unit not in PER_MILLISECOND:
            numbers = _all_numbers(cells, float)
        if numbers is not None:
            return _usual_ticks(numbers, unit)
        cells = list(map(_number_or_none, cells))
    kinds = set(map(type, cells))
    if kinds == {Milliseconds}:
        unit, kinds = "ms", {int}
    if kinds == {int}:
        with suppress(OverflowError):
            return _usual_ticks(np.array(cells, np.int64), unit)
    if unit not in PER_MILLISECOND:
        return _usual_ticks(floats_of(cells), unit)
    is_whole = np.fromiter((type(cell) is int and abs(cell) < _FAR for cell in cells), np.bool_, n)
    ticks = [cell if good else 0 for cell, good in zip(cells, is_whole.tolist(), strict=True)]
    times, good = _usual_ticks(np.array(ticks, np.int64), unit)
    return times, good & is_whole


def _usual_ticks(ticks: NDArray[Any], unit: str) -> Usual:
    if ticks.dtype.kind == "i":
        return ticks_to_ms(ticks, *_SCALES[unit, 1])
    times, good = _float_times(ticks, unit)
    if unit == "s":
        good &= np.abs(np.nan_to_num(ticks)) < _EXACT_SECONDS
    return times, good


def _iso_or_nan(text: Any, dates: bool) -> float:
    if type(text) is not str or not 0 < len(text) <= LONGEST_LABEL:
        return math.nan
    try:
        return float(parse_iso8601(text, dates=dates))
    except (ValueError, OverflowError):
        return math.nan


def _usual_numbers(cells: Sequence[Any], role: Role) -> Usual:
    values = _all_numbers(cells, float) if role.as_text else None
    if values is None:
        values = floats_of(list(map(_number_or_none, cells)) if role.as_text else cells)
    return values, np.isfinite(values)


def _all_numbers(cells: Sequence[Any], make: type) -> NDArray[Any] | None:
    """Convert cells that are all texts of numbers of a type; None if some are none."""
    try:
        longest = max(map(len, cells), default=0)
        if longest > LONGEST_LABEL or longest * len(cells) > MAX_JOINED or "_" in "".join(cells):
            return None
        return np.fromiter(map(make, cells), np.int64 if make is int else np.float64, len(cells))
    except (ValueError, TypeError, OverflowError):
        return None


def _number_or_none(cell: Any) -> Any:
    if type(cell) is not str or len(cell) > LONGEST_LABEL:
        return None if type(cell) is str else cell
    try:
        return int(cell.strip()) if _WHOLE.fullmatch(cell.strip()) else parse_number(cell)
    except UnusableRecord:
        return None


def floats_of(cells: Sequence[Any]) -> NDArray[np.float64]:
    """Convert ints and floats; NaN for anything else."""
    if set(map(type, cells)) <= {int, float}:
        with suppress(OverflowError):
            return np.fromiter(cells, np.float64, len(cells))
    return np.fromiter(map(_float_or_nan, cells), np.float64, len(cells))


def _float_or_nan(value: Any) -> float:
    try:
        return float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        return math.nan


def _usual_codes(cells: Sequence[Any], role: Role) -> Usual:
    if set(map(type, cells)) != {str}:
        return np.zeros(len(cells)), np.zeros(len(cells), np.bool_)
    values = np.fromiter(map(role.codes.get, cells, repeat(math.nan)), np.float64, len(cells))
    return values, ~np.isnan(values)


def _usual_labels(cells: Sequence[Any], role: Role) -> Usual:
    kinds, most = set(map(type, cells)), role.max_bytes or LONGEST_LABEL
    if kinds == {int} and not role.missing and max(map(abs, cells)) < EXACT:
        cells, kinds = list(map(str, cells)), {str}
    if kinds == {str} and not role.missing and (longest := max(map(len, cells))) <= most and all(cells):
        joined = "".join(cells) if longest * len(cells) <= MAX_JOINED else _HALF
        if joined.isascii():
            return as_objects(cells), np.ones(len(cells), np.bool_)
        if role.max_bytes is None and is_text(joined, role.as_text) and not are_overloaded(cells):
            return as_objects(list(map(composed, cells))), np.ones(len(cells), np.bool_)
    usual = (
        type(cell) is str and 0 < len(cell) <= most and cell.isascii() and not says_missing(cell, role.missing)
        for cell in cells
    )
    return as_objects(cells), np.fromiter(usual, np.bool_, len(cells))


def _with_nulls(
    values: NDArray[Any], odd: dict[int, str], nulls: NDArray[np.bool_], role: Role
) -> tuple[NDArray[Any], dict[int, str]]:
    """Give the rows of nulls what a null is in a role."""
    if nulls.any():
        rows = np.flatnonzero(nulls)
        (value,), wrong = _listed([None], role)
        values[rows] = value
        odd = {i: reason for i, reason in odd.items() if not nulls[i]}
        odd |= dict.fromkeys(rows.tolist(), wrong[0]) if wrong else {}
    return values, odd


def _odd(good: NDArray[np.bool_], nulls: NDArray[np.bool_], reason: str) -> dict[int, str]:
    if good.all() and not nulls.any():
        return {}
    found = dict.fromkeys(np.flatnonzero(~good & ~nulls).tolist(), reason)
    return found | dict.fromkeys(np.flatnonzero(nulls).tolist(), "missing")


# -- one cell ------------------------------------------------------------------------------------------------------


def plain(cell: Any) -> Any:
    """Return a cell as a value of Python, or as a moment or a time span of numpy; None for every null."""
    if cell is None or type(cell) in (str, int, float, bool):
        return cell
    if isinstance(cell, (np.datetime64, np.timedelta64)):  # as Python's own they may be integers
        return None if np.isnat(cell) else cell
    if isinstance(cell, np.generic):
        return plain(cell.item()) if isinstance(cell, np.flexible | np.void) else _native(cell)
    if isinstance(cell, (datetime, timedelta)):
        return cell if cell == cell else None  # NaT of pandas is unequal to itself
    if cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):
        return None
    return plain(cell.as_py()) if hasattr(cell, "as_py") else cell


def _native(cell: np.generic) -> Any:
    value = cell.item()
    return float(cell) if isinstance(value, np.generic) else value  # a long double has no type of Python


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and value != value


def _time(value: Any, role: Role) -> int:
    if isinstance(value, (str, bytes)) and len(value) > LONGEST_LABEL:
        raise UnusableRecord("bad_time")  # unread, since all records of a message may share it
    if isinstance(value, bytes):
        value = _decoded(value, "bad_time")
    if value is None or (isinstance(value, str) and not value.strip()):
        raise UnusableRecord("missing")
    if _is_nan(value):
        raise UnusableRecord(role.nan)
    try:
        return _checked(_milliseconds(value, role))
    except (ValueError, TypeError, AttributeError, ArithmeticError, UnusableRecord):
        raise UnusableRecord("bad_time") from None


def _milliseconds(value: Any, role: Role) -> int:
    """Return a time in milliseconds, rounded down; anything that is none raises an error of Python's."""
    if type(value) is Milliseconds:
        return int(value)
    if isinstance(value, datetime):
        return datetime_to_ms(value)
    if isinstance(value, (date, np.datetime64)):
        is_day = not isinstance(value, np.datetime64) or is_date(value.dtype)
        if is_day and not role.dates:
            raise ValueError
        (timestamp,), (is_good,) = datetimes_to_ms(np.array([value], "datetime64[D]" if is_day else None))
        return int(timestamp) if is_good else MAX_TIME_MS + 1
    if role.unit == "iso8601":
        return parse_iso8601(value, dates=role.dates)
    value = _ticks(value, role)
    if role.unit in PER_MILLISECOND:
        return int(math.floor(value) // PER_MILLISECOND[role.unit])
    if role.unit == "ms":
        found: int = math.floor(value)
        return found
    # Microseconds are rounded first, so that 1.001 s is 1001 ms.
    millis: float | Fraction = round(value * 1e6) / 1e3 if isinstance(value, float) else value * 1000
    return math.floor(millis)


def _ticks(value: Any, role: Role) -> Any:
    """Return the number of units that a cell states."""
    if isinstance(value, str):
        if not role.as_text:
            raise ValueError
        value = int(value.strip()) if _WHOLE.fullmatch(value.strip()) else parse_number(value)
    if isinstance(value, Decimal):
        if value.adjusted() > 40:
            raise ValueError
        return Fraction(value) if value.as_tuple().exponent > -_MAX_DIGITS else float(value)  # type: ignore[operator]
    return value if is_whole(value) else parse_number(value)


def _number(value: Any, role: Role) -> float:
    if isinstance(value, (str, bytes)) and len(value) > LONGEST_LABEL:
        raise UnusableRecord("not_a_number")
    if isinstance(value, bytes):
        value = _decoded(value, "not_a_number")
    if isinstance(value, str) and not role.as_text:
        raise UnusableRecord("not_a_number")
    if _is_nan(value):
        raise UnusableRecord(role.nan)
    return parse_number(value)


def _code(value: Any, role: Role) -> float:
    text = _written(value)
    if text is None:
        text = ""  # which may be a level
    code = role.codes.get(text) if isinstance(text, str) else None
    if code is None and isinstance(text, str) and len(text) <= LONGEST_LABEL and not is_overloaded(text):
        code = role.codes.get(composed(text))
    if code is None and isinstance(text, str) and not isinstance(value, (str, bytes)):
        own = value if isinstance(value, bool) else int(text) if _WHOLE.fullmatch(text) else None
        code = next((code for level, code in role.codes.items() if type(level) is type(own) and level == own), None)
    if code is None:
        raise UnusableRecord("missing" if isinstance(text, str) and not text else "unknown_level")
    return float(code)


def _label(value: Any, role: Role) -> str:
    text = _written(value, whole_below=EXACT)
    if says_missing(value, role.missing):
        raise UnusableRecord("missing")
    if role.max_bytes is not None:
        return parse_text(value if is_whole(value) else text, role.max_bytes)
    if text is None or (isinstance(text, str) and not text):
        raise UnusableRecord("missing")
    if isinstance(text, bytes) and len(text) <= LONGEST_LABEL:  # as good an id as any
        text = text.decode("utf-8", "surrogateescape")
    or_bytes = role.as_text or isinstance(value, bytes)
    if not isinstance(text, str) or len(text) > LONGEST_LABEL or is_overloaded(text) or not is_text(text, or_bytes):
        raise UnusableRecord(role.reason)
    return str(composed(text))


def _written(value: Any, whole_below: float = math.inf) -> Any:
    """Return the text that a cell stands for where texts are read; None for a null, and what is no text as it is."""
    if value is None or isinstance(value, str) or _is_nan(value):
        return None if _is_nan(value) else value
    if isinstance(value, bool):
        return TRUTH[value]
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode() if len(value) <= LONGEST_LABEL else value
        return value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < whole_below else value
    if isinstance(value, Decimal):
        is_short = value.is_finite() and abs(value.adjusted()) < _MAX_DIGITS and value == value.to_integral_value()
        return str(int(value)) if is_short else value
    if is_whole(value):
        return str(int(value)) if abs(int(value)) < 10**_MAX_DIGITS else _NO_TEXT
    if isinstance(value, np.datetime64):
        return _iso_of_numpy(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
    return value.isoformat() if isinstance(value, (date, time)) else value


_NO_TEXT = object()
"""Stands for whole numbers of more digits than are written."""


def _iso_of_numpy(moment: np.datetime64) -> str:
    """Write a moment of numpy as Python writes it, or pandas if it has nanoseconds."""
    if is_date(moment.dtype):
        return str(moment.astype("datetime64[D]"))
    nanoseconds = int((moment - moment.astype("datetime64[us]")) // np.timedelta64(1, "ns"))
    text = str(moment.astype("datetime64[us]"))
    whole, _, fraction = text.partition(".")
    digits = fraction + (f"{nanoseconds:03d}" if nanoseconds else "")
    return f"{whole}.{digits}" if digits.strip("0") else whole


def _decoded(value: bytes, reason: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnusableRecord(reason) from None


def says_missing(value: Any, texts: Collection[str]) -> bool:
    """Tell whether a value that is no number and no level is a declared text for "no value"; a whole number is
    compared as text."""
    if not texts:
        return False
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if is_whole(value):
        return abs(int(value)) < EXACT and str(int(value)) in texts
    return isinstance(value, str) and value.strip() in texts


def parse_number(value: Any) -> float:
    """Return an int, a float, a Decimal or the text of a number as the nearest double.

    Raises
    ------
    UnusableRecord
        ``missing``, ``not_a_number`` or ``not_finite``.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise UnusableRecord("missing")
    if isinstance(value, str):
        if "_" in value:
            raise UnusableRecord("not_a_number")
    elif not (isinstance(value, (float, np.floating, Decimal)) or is_whole(value)):
        raise UnusableRecord("not_a_number")
    try:
        number = float(value)
    except ValueError:
        raise UnusableRecord("not_a_number" if isinstance(value, str) else "not_finite") from None
    except OverflowError:
        raise UnusableRecord("not_finite") from None
    if not math.isfinite(number):
        raise UnusableRecord("not_finite")
    return number


def parse_iso8601(text: str, *, dates: bool = True) -> int:
    """Convert ISO 8601 text to Unix milliseconds, rounded down; without a zone it is UTC, and a blank may replace T.

    As in RFC 3339, letters may be small. `dates`: a date without a time is its midnight.

    Raises
    ------
    ValueError, OverflowError
    """
    text = text.strip()
    if not dates and len(text) <= _LONGEST_DATE:
        raise ValueError
    return datetime_to_ms(datetime.fromisoformat(text.upper()))


def parse_time(value: Any, unit: str, *, dates: bool = True) -> int:
    """Convert one event time in `unit`, also in text, to Unix milliseconds, rounded down.

    Raises
    ------
    UnusableRecord
        ``missing`` or ``bad_time``.
    """
    return int(read_cell(value, Role("time", unit, dates, as_text=True)))


def _checked(millis: int) -> int:
    if abs(millis) > MAX_TIME_MS:
        raise UnusableRecord("bad_time")
    return millis


# -- columns -------------------------------------------------------------------------------------------------------


def ticks_to_ms(ticks: NDArray[Any], numerator: int, denominator: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert ticks of `numerator` / `denominator` milliseconds (one of the two is 1) to milliseconds, rounded down.

    Parameters
    ----------
    ticks : integer array (n,)
        Of any integer type; its range is checked before it is converted, so that nothing wraps around.

    Returns
    -------
    times_ms : int64 (n,)
        0 where the time is out of range.
    good : bool (n,)
        Which times are in range: at most `MAX_TIME_MS` in absolute value.
    """
    most, kind = MAX_TIME_MS * denominator // numerator, np.iinfo(ticks.dtype)
    low, high = int(kind.min), int(kind.max)
    if low < -most or high > most:
        low, high = int(ticks.min(initial=0)), int(ticks.max(initial=0))
    good = np.ones(len(ticks), np.bool_)
    if low < -most or high > most:
        good = ticks <= min(most, int(kind.max))
        if ticks.dtype.kind == "i":
            good &= ticks >= max(-most, int(kind.min))
        ticks = np.where(good, ticks, ticks.dtype.type(0))
    wide = ticks.astype(np.int64 if ticks.dtype.kind == "i" else np.uint64, copy=False)
    # Divided before the type is changed: unsigned nanoseconds go beyond what a signed number holds.
    times = (wide // wide.dtype.type(denominator)).astype(np.int64, copy=False)
    return times if numerator == 1 else times * numerator, good


def _float_times(times: NDArray[np.float64], unit: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert floats in some unit to milliseconds, rounded down; also tells which are in range."""
    with np.errstate(over="ignore", invalid="ignore"):
        if unit in PER_MILLISECOND:
            ticks, per = np.floor(times), PER_MILLISECOND[unit]
            millis = np.where(np.abs(ticks) < _FAR, ticks, 0).astype(np.int64) // per  # exactly, as of whole numbers
            for i in np.flatnonzero((np.abs(ticks) >= _FAR) & (np.abs(ticks) <= MAX_TIME_MS * per)).tolist():
                millis[i] = int(ticks[i]) // per
            return millis, np.abs(ticks) < (MAX_TIME_MS + 1) * per
        millis = np.floor(np.round(times * 1e6) / 1e3) if unit == "s" else np.floor(times)
        good = np.abs(millis) <= MAX_TIME_MS
    if good.all():
        return millis.astype(np.int64), good
    return np.where(good, millis, 0).astype(np.int64), good


_SCALES = {("s", 1): (1000, 1), ("ms", 1): (1, 1), ("us", 1): (1, 10**3), ("ns", 1): (1, 10**6)}
"""Milliseconds of one tick of times in whole numbers and of usual moments, as fractions."""
_TICKS = {
    "W": (604_800_000, 1),
    "D": (86_400_000, 1),
    "h": (3_600_000, 1),
    "m": (60_000, 1),
    "s": (1000, 1),
    "ms": (1, 1),
    "us": (1, 10**3),
    "ns": (1, 10**6),
    "ps": (1, 10**9),
    "fs": (1, 10**12),
    "as": (1, 10**15),
}
"""Milliseconds of one tick of numpy's units, as fractions."""


def is_date(kind: np.dtype[Any]) -> bool:
    """Tell whether moments of a type of numpy are dates without a time."""
    return np.datetime_data(kind)[0] in _DATES


def datetimes_to_ms(moments: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert datetime64 of any unit to Unix milliseconds, rounded down; also tells which rows are in range."""
    unit, count = np.datetime_data(moments.dtype)
    if unit in ("Y", "M"):  # years and months have no fixed length
        far = moments.astype(np.int64)
        moments = np.where((far > -(10**6)) & (far < 10**6), moments, np.datetime64("NaT")).astype("datetime64[D]")
        unit, count = "D", 1
    ticks, good = moments.astype(np.int64), ~np.isnat(moments)
    numerator, denominator = _TICKS.get(unit, (1, 1))
    if count > 1 and denominator > 1:
        good &= (ticks >= -(2**62) // count) & (ticks <= 2**62 // count)
        ticks, count = np.where(good, ticks, 0) * count, 1
    times, held = ticks_to_ms(ticks, numerator * count, denominator)
    return np.where(good, times, 0), good & held


def datetime_to_ms(moment: datetime) -> int:
    """Convert a date-time to Unix milliseconds, rounded down; without a zone it is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
