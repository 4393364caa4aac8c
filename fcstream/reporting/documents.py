"""Checks that published documents, which anybody may have written, hold what a picture of their kind needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import ConfigError
from ..releases.base import Release, shape_of
from ..releases.shape import ResultShape

_MAX = 1e100  # of a number; beyond it a picture's arithmetic would overflow
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999
_AS_NAMED = "must have a number for each name along its axes"


class _PictureColumn(msgspec.Struct, frozen=True):
    name: str
    levels: list[str | float] = []  # texts, or the middles of bins
    edges: list[float] | None = None


class _PictureWindow(msgspec.Struct, frozen=True):
    value: list[float] | None = None
    sigma: list[float | None] | None = None


class _PictureParts(msgspec.Struct, frozen=True):
    """The fields of `Release.parts` that pictures read."""

    quantiles: list[float] = []
    edges: list[float] = []
    categories: list[float] = []
    columns: list[_PictureColumn] = []
    tables: list[list[str]] = []
    counts: list[float] | None = None
    weights: list[float] | None = None
    covariances: list[list[list[float]]] | None = None
    low: list[list[float]] = []
    high: list[list[float]] = []
    feature: str | None = None
    eta: float | None = None
    cell_sigma: float | None = None
    levels: list[str] = []
    threshold: float | None = None
    unit: int = 1
    window: _PictureWindow | None = None
    epoch_open_ms: int | None = None
    windows: int | None = None
    rank_sigma: list[float] | None = None


def check_drawable(releases: Sequence[Release]) -> None:
    """Refuse documents that are not releases of one stream, one kind and one shape.

    Raises
    ------
    ConfigError
        The message names the rule and the window, and quotes nothing from the document.
    """
    first = releases[0]
    for release in releases:
        fault = _fault(release) or _difference(first, release)
        if fault is not None:
            where = f"of the window that opens at {release.window_open_ms}"
            raise ConfigError(f"must be releases of fcstream, unchanged: that {where} {fault}", "RELEASES")


def _fault(release: Release) -> str | None:
    """Find what is wrong with one document by itself; None if nothing is."""
    if not -_LATEST_MS <= release.window_open_ms < release.window_close_ms <= _LATEST_MS:
        return "must close after it opens, between the years 1 and 9999"
    if not release.guarantee.keys() >= {"rho", "delta"}:
        return "must state its guarantee"
    if release.key_share is not None and not release.key_share.keys() >= {"rho", "delta"}:
        return "must state rho and delta of its key's share"
    if (release.reason is None) != (release.value is not None):
        return "must hold either a value or the reason of a refusal"
    if not all(map(_is_small, _numbers_of(release))):
        return "holds a number that is not finite"
    features = release.features
    if features is not None and (not features or len(release.transform or features) != len(features)):
        return "must have a transform for each feature"
    if release.value is None:
        return None if release.sigma is release.interval is None else "must hold no sigma without a value"
    shape = shape_of(release)
    is_empty = shape.form == "bars" and shape.is_found and release.value == []
    if not is_empty and not _has_rank(release.value, len(shape.value.axes)):
        return f"must hold a value of the shape of the kind {release.kind!r}"
    if release.sigma is not None and not _is_like(release.sigma, release.value):
        return "must hold a sigma for each number of its value"
    if release.interval is not None and not _has_pairs(release.interval, release.value):
        return "must hold an interval for each number of its value"
    return _parts_fault(release, shape) or _misfit(release, shape)


def _misfit(release: Release, shape: ResultShape) -> str | None:
    """Find whether numbers do not lie along the axes of their shape; None if they do."""
    value, parts = release.value, release.parts or {}
    assert value is not None
    sizes: dict[int, int | None] = {}
    for at, axis in enumerate(shape.axes):
        told = axis.told(release.features, parts)
        if told is not None and not isinstance(told[1], list):
            return "has `parts` of another kind"
        is_plain = axis.name in ("feature", "bin") and shape.value.axes == (at,)
        if told is None and axis.labels and not is_plain:
            return f"must name each {axis.name}"
        is_outer = shape.value.axes[:1] == (at,)
        sizes[at] = axis.size(release.features, parts) if axis.labels else len(value) if is_outer else None
    if not _lies(value, [sizes[at] for at in shape.value.axes]):
        return "must have as many numbers as features" if shape.last.labels == ("features",) else _AS_NAMED
    for numbers in shape.numbers[1:]:
        held = parts.get(numbers.name)
        if held is None and numbers.needed:
            return f"must have its {numbers.name}"
        if isinstance(held, list) and not _lies(held, [sizes[at] for at in numbers.axes]):
            return f"must have {numbers.name} for each {shape.axes[numbers.axes[0]].name}"
    return None


def _lies(held: Any, sizes: Sequence[int | None]) -> bool:
    """Check that lists are nested along axes of these sizes; null stands in the place of a number that is not known."""
    if not sizes:
        return not isinstance(held, (list, dict))
    is_long = isinstance(held, list) and (sizes[0] is None or len(held) == sizes[0])
    return is_long and all(_lies(each, sizes[1:]) for each in held)


def _parts_fault(release: Release, shape: ResultShape) -> str | None:
    try:
        parts = msgspec.convert(release.parts or {}, _PictureParts, strict=False)
    except msgspec.ValidationError:
        return "has `parts` of another kind"
    assert release.value is not None
    if shape.form == "steps" and (fault := _total_fault(release, parts, len(release.value))):
        return fault
    if parts.unit < 1 or (shape.form == "rows" and not parts.columns):
        return "must have its columns"
    names = {column.name for column in parts.columns if column.levels or column.edges}
    if any(name not in names for table in parts.tables for name in table):
        return "must name the levels of every column"
    return None


def _total_fault(release: Release, parts: _PictureParts, size: int) -> str | None:
    window = parts.window
    if window is None:
        return None
    if any(found is not None and len(found) != size for found in (window.value, window.sigma)):
        return "must have as many numbers of its window as of its total"
    if parts.epoch_open_ms is None or not -_LATEST_MS <= parts.epoch_open_ms <= release.window_open_ms:
        return "must lie in its epoch"
    return None


def _difference(first: Release, other: Release) -> str | None:
    if len(first.features or ()) != len(other.features or ()):
        return "has other features than the first one"
    if first.value is None or other.value is None or shape_of(first).is_found:
        return None
    return None if nesting(first.value) == nesting(other.value) else "has a value of another shape than the first one"


def _numbers_of(release: Release) -> list[Any]:
    numbers: list[Any] = [release.count or 0, release.core_count or 0, release.rho, release.delta]
    numbers += [*release.guarantee.values(), *(release.key_share or {}).values()]
    waiting: list[Any] = [release.value, release.sigma, release.interval, release.parts]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            waiting += found.values()
        elif found is not None and not isinstance(found, str):
            numbers.append(found)
    return numbers


def _is_small(number: Any) -> bool:
    return isinstance(number, (int, float)) and math.isfinite(number) and abs(number) <= _MAX


def _has_rank(value: Any, rank: int) -> bool:
    """Check that a value is a list, nested `rank` deep, of numbers, and that no list is empty."""
    if rank == 0:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, list) and bool(value) and all(_has_rank(item, rank - 1) for item in value)


def _is_like(sigma: Any, value: Any) -> bool:
    """Check that one value is nested like the other, with a number or null for each number."""
    if isinstance(value, list):
        return isinstance(sigma, list) and len(sigma) == len(value) and all(map(_is_like, sigma, value))
    return sigma is None or (isinstance(sigma, (int, float)) and not isinstance(sigma, bool))


def _has_pairs(interval: Any, value: Any) -> bool:
    """Check that a pair of numbers, or null, stands in the place of each number of a value."""
    if interval is None:
        return True
    if isinstance(value, list):
        return isinstance(interval, list) and len(interval) == len(value) and all(map(_has_pairs, interval, value))
    return isinstance(interval, list) and len(interval) == 2 and _is_like(interval, [0, 0])


def nesting(value: Any) -> tuple[Any, ...] | None:
    """Describe how lists are nested, including tables of different sizes."""
    return tuple(map(nesting, value)) if isinstance(value, list) else None
