"""Base class of sources that end: files and pipes, where records come from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..formats.batch import Batch


class FileSource(ABC):
    """Records that are read once, from front to back."""

    @abstractmethod
    def poll(self, max_records: int) -> Batch | None:
        """Return about `max_records` records at most; an empty batch if there are none yet, None at the end."""

    @abstractmethod
    def close(self) -> None:
        """Close the source; may be called again."""

    def part_read(self) -> float | None:
        """Return the share that was read, between 0 and 1; None if the size is not known."""
        return None
