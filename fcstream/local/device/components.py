"""What a device knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..spaces import Space


@dataclass(frozen=True)
class Component:
    """One of a device's values, with its space.

    A value that changes with time is a new component each time, under a new name: after ``place@9:00`` comes
    ``place@10:00``. All components with the same name before the ``@`` have the same metric.
    """

    space: Space
    value: Any

    @functools.cached_property
    def point(self) -> tuple[int, ...]:
        """The lattice point; computed once, so later changes of a mutable value have no effect."""
        return self.space.encode(self.value)


Components = Callable[[str], Component | None]
"""Finds a component by its name."""
