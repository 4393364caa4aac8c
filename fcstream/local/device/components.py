"""What a device knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..spaces import Space


@dataclass(frozen=True)
class Component:
    """One thing a device knows: where it lives, and its value.

    A value that changes with time is a new component at every time, under a new name: after ``place@9:00`` comes
    ``place@10:00``. What stands before the ``@`` has one metric for ever.
    """

    space: Space
    value: Any

    @functools.cached_property
    def point(self) -> tuple[int, ...]:
        """The lattice point; looked up once, so a value that is changed in place does not count."""
        return self.space.encode(self.value)


Components = Callable[[str], Component | None]
"""Finds a component by its name."""
