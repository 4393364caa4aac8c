"""What counters that keep something per pane share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class PaneStore(Generic[T]):
    """Something of each pane, until the pane is dropped."""

    def __init__(self) -> None:
        self._held: dict[int, T] = {}

    @property
    def panes(self) -> list[int]:
        """Numbers of the panes that hold something."""
        return sorted(self._held)

    def drop(self, pane: int) -> None:
        """Forget a pane."""
        self._held.pop(pane, None)

    def held(self, panes: Iterable[int]) -> list[T]:
        """What is kept of those panes that hold something."""
        return [self._held[pane] for pane in panes if pane in self._held]
