"""Where records come from: the protocols of sources."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..formats.batch import Batch


class Source(Protocol):
    """A stream of records, read once from front to back."""

    def poll(self, max_records: int) -> Batch | None:
        """The next records, at most about `max_records`; an empty batch if none is there yet, None at the end."""

    def close(self) -> None:
        """Let go of what is held. Idempotent."""


@runtime_checkable
class MeasuredSource(Source, Protocol):
    """A source that knows how far it has been read."""

    def part_read(self) -> float | None:
        """Between 0 and 1; None if its size is not known."""
