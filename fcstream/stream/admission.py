"""Decides which windows a record may enter: a function of that record and public facts alone.

An engine and the tasks of a run on Spark both use this code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..formats.batch import Batch, Rejection
from ..formats.rejections import rejected_at
from .lattice import Feature, Grid
from .windows import Schedule


class AdmissionRules(Protocol):
    """Public facts that decide about the records of a stream; a `fcstream.config.Job` has them."""

    @property
    def grid(self) -> Grid: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def ahead_ms(self) -> int:
        """How far a record's event time may be ahead of its arrival, in ms."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision about each row of a batch.

    Attributes
    ----------
    points : float64 (n, d)
        Lattice points; those of rejected rows are meaningless.
    panes, covering, first, last : int64 (n,)
        For each row: its pane, the first window that covers it, and the first and the last window that it may enter.
    fine : bool (n,)
        Which rows may enter a window at all.
    rejections : list of Rejection
        The rejections of the batch, and one for each row that may enter no window.
    """

    points: NDArray[np.float64]
    panes: NDArray[np.int64]
    covering: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    fine: NDArray[np.bool_]
    rejections: list[Rejection]


def admit(
    rules: AdmissionRules,
    batch: Batch,
    arrivals: NDArray[np.int64] | None,
    is_duplicate: NDArray[np.bool_] | None = None,
) -> Admitted:
    """Check values, schedule and lateness.

    Parameters
    ----------
    rules : AdmissionRules
    batch : Batch
    arrivals : int64 (n,) or None
        When each row arrived; None with the clock ``eof``, with which nothing is late.
    is_duplicate : bool (n,), optional
        Rows that were taken before.
    """
    rejections = list(batch.rejections)
    points, bad = _check_values(rules.grid, batch, rejections)
    if is_duplicate is not None:
        reject(rejections, is_duplicate & ~bad, batch, "duplicate")
        bad = bad | is_duplicate
    panes, covering, last = rules.schedule.locate(batch.times_ms)
    outside = covering > last
    if arrivals is not None:
        outside |= batch.times_ms > arrivals + rules.ahead_ms
    outside &= ~bad
    reject(rejections, outside, batch, "time_out_of_range")
    fine = ~(bad | outside)
    first = covering
    if arrivals is not None:
        first = np.maximum(covering, rules.schedule.first_not_late(arrivals))
    late = fine & (first > last)
    reject(rejections, late, batch, "late")
    return Admitted(points, panes, covering, first, last, fine & ~late, rejections)


def reject(rejections: list[Rejection], rows: NDArray[np.bool_], batch: Batch, reason: str) -> None:
    """Note some rows of a batch as rejected."""
    if rows.any():
        rejections += rejected_at(reason, batch.positions[rows])


def part_codes(
    batch: Batch, index: dict[str, int], field: str | None, rejections: list[Rejection], reason: str = "unknown_key"
) -> NDArray[np.int64]:
    """Return the number of each row's key (n,); a row with an unknown key gets -1 and a rejection."""
    assert batch.keys is not None
    codes = np.fromiter(map(index.get, batch.keys.tolist(), repeat(-1)), np.int64, len(batch.keys))
    rejections += rejected_at(reason, batch.positions[codes < 0], field)
    return codes


def _check_values(
    grid: Grid, batch: Batch, rejections: list[Rejection]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return lattice points of the batch, and which rows are unusable (their points are meaningless)."""
    features = grid.features
    points, inside = grid.located(batch.values)
    absent = _absent(batch.values, features)
    if absent is not None:
        inside = np.where(absent, [f.optional for f in features], inside)
        points = np.where(absent, grid.lowest, points)  # any number in range, since no release reads it
    bad: NDArray[np.bool_] = np.logical_not(np.all(inside, axis=1))
    if bad.any():
        rows = np.flatnonzero(bad)
        firsts = np.argmin(inside[rows], axis=1)  # the first feature that is wrong
        odd = batch.values[rows, firsts]
        reasons = np.where(np.isfinite(odd), "out_of_range", np.where(np.isnan(odd), "missing", "not_finite"))
        if absent is not None:
            reasons = np.where(absent[rows, firsts], "missing", reasons)
        for k, reason in sorted(set(zip(firsts.tolist(), reasons.tolist(), strict=True))):
            here = rows[(firsts == k) & (reasons == reason)]
            rejections += rejected_at(reason, batch.positions[here], features[k].name)
        points = np.where(bad[:, None], grid.lowest, points)
    return points, bad


def _absent(values: NDArray[np.float64], features: tuple[Feature, ...]) -> NDArray[np.bool_] | None:
    """Tell which values mean "no value": declared numbers, and NaN of optional features. None if no feature has any.

    Declared numbers are the field's own. A format without types of columns may hold numbers in single precision, so a
    fraction is recognized in single precision too; what columns of such a type hold tells `Grid.doubles`.
    """
    if not any(feature.missing or feature.optional for feature in features):
        return None
    found = np.zeros(values.shape, np.bool_)
    for k, feature in enumerate(features):
        if feature.optional:
            found[:, k] = np.isnan(values[:, k])
        with np.errstate(over="ignore"):
            single = [float(np.float32(number)) for number in feature.missing]
        for number in (*feature.missing, *(each for each in single if each % 1 > 0)):
            found[:, k] |= values[:, k] == number
    return found
