"""Reads published releases back as the series of one answer of one stream, in order of time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, Shown, SourceError
from ..ledgers.base import root_of
from ..releases.base import Release, shape_of
from ..releases.shape import ResultShape
from .documents import check_drawable, nesting
from .released import once, parsed_lines

_WORDS = {"--stream": "streams", "--key": "keys", "--answer": "names"}


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
    def last(self) -> Release | None:
        """The newest window that has a value."""
        return self.released[-1] if self.released else None

    @property
    def key(self) -> str:
        """Key of the sibling stream; empty for a stream without keys."""
        return self.first.stream.partition("/")[2]

    @property
    def released(self) -> list[Release]:
        return [release for release in self.releases if release.value is not None]

    @property
    def shape(self) -> ResultShape:
        """What the numbers are; of windows with a value, since a refused one may not tell."""
        return shape_of(next(iter(self.released), self.first))

    @property
    def reasons(self) -> dict[str, int]:
        """Count the refused windows by reason, the most frequent reason first."""
        found: dict[str, int] = {}
        for release in self.releases:
            if release.reason is not None:
                found[release.reason] = found.get(release.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def read_series(lines: Iterable[bytes], stream: str | None = None, answer: str | None = None) -> ReleaseSeries:
    """Read the releases of one answer of one stream, as `read_all` does.

    Raises
    ------
    SourceError
        See `read_all`.
    ConfigError
        See `read_all`; or there are several streams, keys or answers, and the caller chose none.
    """
    found = _by_window(lines)
    stream = _chosen({each.stream for each in found}, stream, "--stream")
    found = [each for each in found if each.stream == stream]
    answer = _chosen({each.name or "" for each in found}, answer, "--answer")
    return _checked([each for each in found if (each.name or "") == answer])


def read_all(
    lines: Iterable[bytes], stream: str | None = None, key: str | None = None, answer: str | None = None
) -> list[ReleaseSeries]:
    """Read releases from lines of JSON, as sinks and ``fcstream budget releases`` write them; blank lines are skipped.

    A window that was published twice (after a crash, byte for byte) counts once.

    Parameters
    ----------
    lines : iterable of bytes
    stream : str, optional
        A stream with all its keys (``visits``), or that of one key (``visits/rome``); may be left out if there is one.
    key : str, optional
        By default all keys. The search for keys (``visits/``) is none of them.
    answer : str, optional
        By default all answers.

    Returns
    -------
    list of ReleaseSeries
        One for each key and answer: by key, and the answers of a key in the order of the configuration.

    Raises
    ------
    SourceError
        A line is not a release; the message gives the number of the line.
    ConfigError
        There are no releases, there are several streams and the caller chose none, or what was chosen is not there.
    """
    found = _by_window(lines)
    names = {each.stream for each in found}
    roots = {root_of(name) for name in names}
    if stream is None or stream not in names - roots:
        stream = _chosen(roots if stream is None else roots | names, stream, "--stream")
        found = [each for each in found if root_of(each.stream) == stream]
        keys = {_key_of(each) for each in found}
        if keys - {""}:
            found = [each for each in found if _key_of(each)]  # without the search for keys
        if key is not None:
            key = _chosen(keys if keys == {""} else keys - {""}, key, "--key")
            found = [each for each in found if _key_of(each) == key]
    else:
        found = [each for each in found if each.stream == stream]
        if key is not None:
            raise ConfigError("must be left out: --stream names one key already", "--key")
    if answer is not None:
        answer = _chosen({each.name or "" for each in found}, answer, "--answer")
        found = [each for each in found if (each.name or "") == answer]
    series: dict[tuple[str, int, str], list[Release]] = {}
    for each in found:
        series.setdefault((each.stream, each.place or 0, each.name or ""), []).append(each)
    return [_checked(series[name]) for name in sorted(series)] or [_checked([])]


def _by_window(lines: Iterable[bytes]) -> list[Release]:
    """Read releases, each window of each answer once, in order of stream, time and answer."""
    return once(parsed_lines(lines, ""))


def _checked(chosen: list[Release]) -> ReleaseSeries:
    if not chosen:
        raise ConfigError("must hold at least one release", "RELEASES", got=Shown("none"))
    shapes = {(release.kind, tuple(release.features or ())) for release in chosen}
    if len(shapes) > 1:
        raise ConfigError("must be releases of one kind and of the same features", "RELEASES")
    check_drawable(chosen)
    return ReleaseSeries(chosen, {})


def _key_of(release: Release) -> str:
    """Return the key of a sibling stream; empty for a stream without keys, and for the search for keys."""
    return release.stream.partition("/")[2]


def _chosen(names: set[str], wanted: str | None, option: str) -> str | None:
    """Return the name that is wanted, or the only one."""
    known = ", ".join(map(repr, sorted(names)))
    if wanted is not None and names == {""}:
        raise ConfigError(f"must be left out: these releases have no {_WORDS[option]}", option)
    if wanted is not None and wanted not in names:
        raise ConfigError(f"must be one of {known or 'none'}", option, got=wanted)
    if wanted is None and len(names) > 1:
        raise ConfigError(f"is required: there are releases of {known}", option)
    return next(iter(names), None) if wanted is None else wanted


def read_truth(lines: Iterable[bytes], series: ReleaseSeries) -> ReleaseSeries:
    """Add true values to a series, from lines of JSON with ``window_open_ms`` and a ``value`` of the same shape.

    Those of other windows are only checked, and not added; so are all if no window of the series has a value, since its
    shape is unknown then.

    Raises
    ------
    SourceError
        A line lacks one of these keys, or its value has another shape. The message gives the number of the line and
        never quotes it.
    ConfigError
        The releases are of made-up rows.
    """
    if series.shape.value.hidden:
        raise ConfigError(
            "has no place beside made-up rows", "--truth", remedy="`fcstream score` compares them with real ones"
        )
    shapes = {nesting(release.value) for release in series.released}
    shown = {release.window_open_ms for release in series.releases}
    truth: dict[int, list[Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            opening, value = record["window_open_ms"], record["value"]
            is_like = _is_numbers(value) and (not shapes or nesting(value) in shapes)
            is_good = isinstance(opening, int) and (value is None or is_like)
        except (ValueError, KeyError, TypeError, RecursionError):
            is_good = False
        if not is_good:
            raise SourceError(f"line {number} of the truth has no `window_open_ms` with a `value` like those released")
        if value is not None and shapes and opening in shown:
            truth[opening] = value
    return ReleaseSeries(series.releases, truth)


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_numbers(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
