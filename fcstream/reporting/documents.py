"""Checks that published documents, which anybody may have written, hold what a picture of their kind needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import ConfigError
from ..releases.base import Release

_MAX = 1e100  # of a number; beyond it a picture's arithmetic would overflow
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999
_PLACES = ("centers", "mixtures", "points")
_VARYING = (*_PLACES, "frequent", "synthetic", "tree")  # each window has as many numbers as it needs
_RANKS = dict.fromkeys((*_PLACES, "covariance", "marginals", "synthetic"), 2)
_RANKS |= dict.fromkeys(("mean", "variance", "count", "sum", "total", "histogram", "frequent", "quantiles", "tree"), 1)
"""How deeply the values of a kind are nested; others have no picture."""


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
    is_empty = release.kind == "frequent" and release.value == []
    if release.kind in _RANKS and not is_empty and not _has_rank(release.value, _RANKS[release.kind]):
        return f"must hold a value of the shape of the kind {release.kind!r}"
    if release.sigma is not None and not _is_like(release.sigma, release.value):
        return "must hold a sigma for each number of its value"
    if release.interval is not None and not _has_pairs(release.interval, release.value):
        return "must hold an interval for each number of its value"
    return _misfit(release) or _parts_fault(release)


def _misfit(release: Release) -> str | None:
    """Find whether the values do not match the named features; None if they do."""
    assert release.value is not None
    width = len(release.features or ())
    if release.kind in (*_PLACES, "covariance"):
        fits = all(len(row) == width for row in release.value)
        fits = fits and (release.kind != "covariance" or len(release.value) == width)
    else:
        fits = release.kind not in ("mean", "variance") or not width or len(release.value) == width
    return None if fits else "must have as many numbers as features"


def _parts_fault(release: Release) -> str | None:
    try:
        parts = msgspec.convert(release.parts or {}, _PictureParts, strict=False)
    except msgspec.ValidationError:
        return "has `parts` of another kind"
    assert release.value is not None
    sizes = len(release.value)
    if release.kind == "quantiles" and len(parts.quantiles) != sizes:
        return "must state which quantiles they are"
    if release.kind == "tree":
        boxes = shape([[0.0] * len(release.features or ())] * sizes)
        return None if shape(parts.low) == shape(parts.high) == boxes else "must have both ends of each box"
    if release.kind == "frequent" and len(parts.levels) != sizes:
        return "must have one text for each number"
    if release.kind == "total" and (fault := _total_fault(release, parts, sizes)):
        return fault
    if release.kind == "synthetic" and (parts.unit < 1 or len(parts.weights or ()) != sizes or not parts.columns):
        return "must have its columns, and a weight for each point"
    if release.kind in _PLACES and any(
        found is not None and len(found) != sizes
        for found in (parts.weights, parts.weights or parts.counts, parts.covariances)
    ):
        return "must have one weight, count and covariance for each center"
    if release.kind == "mixtures" and parts.covariances is not None:
        width = len(release.features or ())
        if any(shape(matrix) != shape([[0.0] * width] * width) for matrix in parts.covariances):
            return "must have covariances of its own features"
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
    if first.value is None or other.value is None or first.kind in _VARYING:
        return None
    return None if shape(first.value) == shape(other.value) else "has a value of another shape than the first one"


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


def shape(value: Any) -> tuple[Any, ...] | None:
    """Describe how lists are nested, including tables of different sizes."""
    return tuple(map(shape, value)) if isinstance(value, list) else None
