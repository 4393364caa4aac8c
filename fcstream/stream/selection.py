"""Selection: which records, and which of their features, an answer is about."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_CELLS = 4096
"""Combinations of intervals and levels that are looked at to find which selections may share a record."""


class TextUse(NamedTuple):
    """What an answer reads of texts: the feature, and with the unit ``user`` for how many texts a user counts."""

    feature: str
    per_user: int


@dataclass(frozen=True, slots=True)
class TextCodes:
    """A coordinate that stands for a text where conditions ask for it: the place of the text among those, else -1.

    Attributes
    ----------
    feature : str
    texts : tuple of str
    """

    feature: str
    texts: tuple[str, ...]

    def read(self, texts: NDArray[np.object_]) -> NDArray[np.float64]:
        """Return the coordinate of each text (n,); a function of that text alone."""
        codes = {text: float(code) for code, text in enumerate(self.texts)}
        return np.array([codes.get(text, -1.0) for text in texts.tolist()], np.float64)


def with_codes(
    points: NDArray[np.float64], codes: Sequence[TextCodes], texts: Mapping[str, NDArray[np.object_]]
) -> NDArray[np.float64]:
    """Return lattice points (n, d) with a further coordinate for each text that conditions ask for."""
    if not codes:
        return points
    return np.column_stack([points, *(each.read(texts[each.feature]) for each in codes)])


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one coordinate: it lies in one of some intervals.

    Attributes
    ----------
    column : int
        Index of the feature.
    spans : tuple of (float, float)
        Lowest and highest lattice coordinate of each interval, both included. The level of a category is an interval
        of one coordinate.
    """

    column: int
    spans: tuple[tuple[float, float], ...]

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mark the lattice points (n, d) whose coordinate fulfills it."""
        values = points[:, self.column]
        if len(self.spans) > 1 and all(low == high for low, high in self.spans):
            return np.isin(values, [low for low, _ in self.spans])
        found = np.zeros(len(values), np.bool_)
        for low, high in self.spans:
            found |= (values >= low) & (values <= high)
        return found

    def includes(self, coordinate: float) -> bool:
        """Return whether one coordinate fulfills it."""
        return any(low <= coordinate <= high for low, high in self.spans)


@dataclass(frozen=True, slots=True)
class Rows:
    """Which records an answer is about, and what stands for a user's records.

    Attributes
    ----------
    where : tuple of Condition
        All of them hold for a record that belongs to the answer.
    per_user : str
        With the unit ``user``, what a user's one point is made of: see `fcstream.stream.contributions.UserPoints`.
    text : TextUse or None
        The texts that the answer reads in place of lattice points.
    """

    where: tuple[Condition, ...] = ()
    per_user: str = "first"
    text: TextUse | None = None

    def mark(self, points: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Mark the lattice points (n, d) of the records that belong to it; None for all of them.

        Privacy
        -------
        A function of each record alone and of public conditions.

        Source
        ------
        Specification 8.8; proof 2.13.
        """
        found = None
        for condition in self.where:
            holds = condition.holds(points)
            found = holds if found is None else found & holds
        return found


_ALL_ROWS = Rows()


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """Rows and features of one answer.

    Attributes
    ----------
    rows : Rows
    columns : tuple of int, or None
        Indices of the features, in the answer's order; None for all of the stream.
    bounds : (float, float) or None
        Lattice coordinates to which a user's sum is clipped.
    """

    rows: Rows = _ALL_ROWS
    columns: tuple[int, ...] | None = None
    bounds: tuple[float, float] | None = None

    def points(self, points: NDArray[Any]) -> NDArray[Any]:
        """Return the answer's coordinates of lattice points (n, d), or texts (n,), whose rows were chosen already."""
        if self.columns is not None:
            points = points.take(self.columns, axis=1)
        return points if self.bounds is None else np.clip(points, *self.bounds)


EVERYTHING = RecordSelection()
"""All features of all records."""


def overlaps(rows: Sequence[Rows]) -> tuple[tuple[int, ...], ...]:
    """Find which of some choices of rows can hold one and the same record.

    Parameters
    ----------
    rows : sequence of Rows
        By their conditions alone.

    Returns
    -------
    tuple of tuple of int
        Sets of indices, none within another: the choices to which any one record belongs lie within one of them. If
        there are more than `MAX_CELLS` combinations to look at, the one set of all.

    Privacy
    -------
    A record's coordinate is an integer, so it fulfills the same conditions as the largest interval bound (a lowest
    coordinate, or one above a highest) that is not above it. All combinations of such bounds are looked at.

    Source
    ------
    Specification 8.8; proof 2.13.
    """
    everything = tuple(range(len(rows)))
    columns = sorted({condition.column for each in rows for condition in each.where})
    bounds = [
        sorted(
            {-math.inf}
            | {
                bound
                for each in rows
                for condition in each.where
                if condition.column == column
                for low, high in condition.spans
                for bound in (low, high + 1)
            }
        )
        for column in columns
    ]
    if math.prod(map(len, bounds)) > MAX_CELLS:
        return (everything,)
    found: set[frozenset[int]] = set()
    for cell in itertools.product(*bounds):
        at = dict(zip(columns, cell, strict=True))
        found.add(
            frozenset(i for i, each in enumerate(rows) if all(wish.includes(at[wish.column]) for wish in each.where))
        )
    largest = [each for each in found if not any(each < other for other in found)]
    return tuple(sorted(tuple(sorted(each)) for each in largest))
