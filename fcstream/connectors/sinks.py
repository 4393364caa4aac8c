"""Base class of sinks, where releases go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from ..errors import SinkError
from ..releases.base import Release


class Sink(ABC):
    """Accepts releases in order. When `write` returns, they have reached the other side.

    Attributes
    ----------
    finds_streams : bool
        Whether several streams may share it and `last_of` finds theirs, so that None means that it holds none.
    """

    finds_streams: bool = False

    @abstractmethod
    def write(self, releases: Sequence[Release]) -> None:
        """Publish all of them, or raise `SinkError`; then they are written again later, with the same bytes."""

    @abstractmethod
    def close(self) -> None:
        """Close the sink; may be called again."""

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Return those of `releases`, sealed before a crash, that this sink does not hold; all, if it cannot know."""
        return list(releases)

    def last(self) -> Release | None:
        """Return the last release that it holds; None if it holds none or cannot know."""
        return None

    def last_of(self, is_own: Callable[[str], bool]) -> Release | None:
        """Return the last release of the streams whose names `is_own` takes; see `finds_streams`.

        By default it is `last`, and None if that is of another stream.
        """
        last = self.last()
        return last if last is not None and is_own(last.stream) else None

    @classmethod
    def sends_messages(cls) -> bool:
        """Return whether it can send messages which are not releases: whether the class has a `send` of its own."""
        return cls.send is not Sink.send

    def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages; when this returns, the broker has them all, in order.

        If it raises `SinkError`, some of them may arrive twice when they are sent again.
        """
        raise NotImplementedError


def read_release(body: bytes, otherwise: str) -> Release:
    """Return the release of a message; `otherwise` is the error's text if it is something else."""
    try:
        return Release.from_bytes(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SinkError(otherwise) from None
