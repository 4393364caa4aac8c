"""Protocol of sinks, where releases go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ..errors import SinkError
from ..releases.base import Release


class Sink(Protocol):
    """Accepts releases in order. When `write` returns, they have reached the other side."""

    def write(self, releases: Sequence[Release]) -> None:
        """Publish all of them, or raise `SinkError`; then they are written again later, with the same bytes."""

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Return those of `releases`, sealed before a crash, that this sink does not hold; all, if it cannot know."""

    def last(self) -> Release | None:
        """Return the last release that it holds; None if it holds none or cannot know."""

    def close(self) -> None:
        """Close the sink; may be called again."""


@runtime_checkable
class SearchedSink(Protocol):
    """A sink that several streams may share, and that finds the newest release of one of them."""

    def last_of(self, is_own: Callable[[str], bool]) -> Release | None:
        """Return the last release of the streams whose names `is_own` takes; None if it holds none."""


def read_release(body: bytes, otherwise: str) -> Release:
    """Return the release of a message; `otherwise` is the error's text if it is something else."""
    try:
        return Release.from_bytes(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SinkError(otherwise) from None
