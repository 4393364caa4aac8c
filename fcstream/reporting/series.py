"""Reads published releases back as the series of one answer of one stream, in order of time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import ConfigError, SourceError
from ..releases.base import Release
from .documents import check_drawable, shape


@dataclass(frozen=True, slots=True)
class ReleaseSeries:
    """The releases of one stream, ascending by window, one per window.

    Attributes
    ----------
    releases : list of Release
    truth : dict
        Values to compare with, by opening of their window; empty for none. Not private.
    """

    releases: list[Release]
    truth: dict[int, list[Any]]

    @property
    def first(self) -> Release:
        return self.releases[0]

    @property
    def released(self) -> list[Release]:
        return [release for release in self.releases if release.value is not None]

    @property
    def reasons(self) -> dict[str, int]:
        """Count the refused windows by reason, the most frequent reason first."""
        found: dict[str, int] = {}
        for release in self.releases:
            if release.reason is not None:
                found[release.reason] = found.get(release.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def read_series(lines: Iterable[bytes], stream: str | None = None, answer: str | None = None) -> ReleaseSeries:
    """Read releases from lines of JSON, as sinks and ``fcstream budget releases`` write them; blank lines are skipped.

    A window that was published twice (after a crash, byte for byte) counts once.

    Raises
    ------
    SourceError
        A line is not a release; the message gives the number of the line.
    ConfigError
        There are no releases, or there are several streams, answers or kinds and the caller chose none.
    """
    found: dict[tuple[str, str, int, int], Release] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                release = Release.from_bytes(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise SourceError(f"line {number} is not a release of fcstream") from None
            found[release.stream, release.name or "", release.window_open_ms, release.window_close_ms] = release
    stream = _chosen({key[0] for key in found}, stream, "--stream")
    answer = _chosen({key[1] for key in found if key[0] == stream}, answer, "--answer")
    chosen = [found[key] for key in sorted(found) if key[:2] == (stream, answer)]
    if not chosen:
        raise ConfigError("must hold at least one release, got none", "RELEASES")
    shapes = {(release.kind, tuple(release.features or ())) for release in chosen}
    if len(shapes) > 1:
        raise ConfigError("must be releases of one kind and of the same features", "RELEASES")
    check_drawable(chosen)
    return ReleaseSeries(chosen, {})


def _chosen(names: set[str], wanted: str | None, option: str) -> str | None:
    """Return the name that is wanted, or the only one."""
    known = ", ".join(map(repr, sorted(names)))
    if wanted is not None and names == {""}:
        raise ConfigError("must be left out: these releases have no names", option)
    if wanted is not None and wanted not in names:
        raise ConfigError(f"must be one of {known or 'none'}, got {wanted!r}", option)
    if wanted is None and len(names) > 1:
        raise ConfigError(f"is required: there are releases of {known}", option)
    return next(iter(names), None) if wanted is None else wanted


def read_truth(lines: Iterable[bytes], series: ReleaseSeries) -> ReleaseSeries:
    """Add true values to a series, from lines of JSON with ``window_open_ms`` and a ``value`` of the same shape.

    If no window of the series has a value, its shape is unknown: then the lines are only checked, and not added.

    Raises
    ------
    SourceError
        A line lacks one of these keys, or its value has another shape. The message gives the number of the line and
        never quotes it.
    """
    shapes = {shape(release.value) for release in series.released}
    truth: dict[int, list[Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            opening, value = record["window_open_ms"], record["value"]
            is_like = _is_numbers(value) and (not shapes or shape(value) in shapes)
            is_good = isinstance(opening, int) and (value is None or is_like)
        except (ValueError, KeyError, TypeError, RecursionError):
            is_good = False
        if not is_good:
            raise SourceError(f"line {number} of the truth has no `window_open_ms` with a `value` like those released")
        if value is not None and shapes:
            truth[opening] = value
    return ReleaseSeries(series.releases, truth)


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_numbers(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
