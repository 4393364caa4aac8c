"""Protocols of sources, where records come from."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..formats.batch import Batch


class Source(Protocol):
    """Records that are read once, from front to back."""

    def poll(self, max_records: int) -> Batch | None:
        """Return about `max_records` records at most; an empty batch if there are none yet, None at the end."""

    def close(self) -> None:
        """Close the source; may be called again."""


@runtime_checkable
class MeasuredSource(Source, Protocol):
    """A source that knows how far it has been read."""

    def part_read(self) -> float | None:
        """Return the share that was read, between 0 and 1; None if the size is not known."""
