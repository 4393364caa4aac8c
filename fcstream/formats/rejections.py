"""Why records cannot be used: equal reasons of one message are one entry with a count, however many they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why records at one position of a source cannot be used; never their content.

    Attributes
    ----------
    reason : str
        One of `fcstream.formats.batch.REASONS`.
    position : int
        Where they stand in the source: records of one message share its position.
    field : str or None
        The name that the configuration has for the field; never one that a sender has chosen.
    count : int
        How many records.
    """

    reason: str
    position: int
    field: str | None = None
    count: int = 1


def tallied(rejections: Iterable[Rejection]) -> list[Rejection]:
    """Return rejections in the order of their positions, equal ones as one."""
    found: dict[tuple[int, str, str | None], int] = {}
    for each in rejections:
        key = each.position, each.reason, each.field
        found[key] = found.get(key, 0) + each.count
    entries = [Rejection(reason, position, field, n) for (position, reason, field), n in found.items()]
    return sorted(entries, key=lambda each: each.position)


def rejected_at(reason: str, positions: NDArray[np.int64], field: str | None = None) -> list[Rejection]:
    """Reject a record at each of these positions, which need not differ, for one reason."""
    at, counts = np.unique(positions, return_counts=True)
    return [Rejection(reason, each, field, n) for each, n in zip(at.tolist(), counts.tolist(), strict=True)]


def moved(rejections: Iterable[Rejection], positions: NDArray[np.int64]) -> list[Rejection]:
    """Return rejections of records that were numbered from 0 with the positions of their messages."""
    return tallied(Rejection(each.reason, int(positions[each.position]), each.field, each.count) for each in rejections)


def total(rejections: Sequence[Rejection]) -> int:
    """Return how many records are rejected."""
    return sum(each.count for each in rejections)
