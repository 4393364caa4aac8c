"""Where releases go: the protocol, and how they are read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..errors import SinkError
from ..releases.base import Release


class Sink(Protocol):
    """Takes releases in order. What `write` took has reached the other side when it returns."""

    def write(self, releases: Sequence[Release]) -> None:
        """Publish them all, or raise `SinkError`; then they are written again later, with the same bytes."""

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Those of `releases`, sealed before a crash, that this sink does not hold yet (all, if it cannot tell)."""

    def last(self) -> Release | None:
        """The last release that it holds, None if it holds none or cannot tell."""

    def close(self) -> None:
        """Let go of what is held. Idempotent."""


def read_release(body: bytes, otherwise: str) -> Release:
    """Return the release of a message; `otherwise` is the error's text if it is something else."""
    try:
        return Release.from_bytes(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SinkError(otherwise) from None
