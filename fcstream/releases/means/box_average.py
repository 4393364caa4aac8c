"""The mean of points that are clamped to the public ranges, with noise in proportion to these."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...noise.samplers import Noise
from ...stream.totals import column_totals
from ..averages import gaussian_variance
from ..trees.growing import PublicBox

OFFSET_BITS = 26
"""Offsets from the middle of a public range are cut to so many bits, so that noise for them can be drawn."""


def box_middle(box: PublicBox) -> NDArray[np.int64]:
    """Return the lattice point in the middle of the public ranges, rounded down.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.18; ours.
    """
    return (np.array(box.low, np.int64) + np.array(box.high, np.int64)) // 2


def box_sides(box: PublicBox) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the largest offset of each feature, cut to `OFFSET_BITS`, and by how many bits it was cut.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.18; ours.
    """
    reach = np.array(box.high, np.int64) - box_middle(box)
    bits = np.array([max(0, side.bit_length() - OFFSET_BITS) for side in reach.tolist()], np.int64)
    return reach >> bits, bits


def box_variances(box: PublicBox, rho_nano: int) -> list[Fraction]:
    """Return the variance of the noise of each feature's sum of cut offsets; 0 where the range is one value.

    Each of the other features has the same part of rho, as if it were released alone.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.18; proof 5.11; ours.
    """
    sides = box_sides(box)[0].tolist()
    wide = sum(side > 0 for side in sides)
    return [gaussian_variance(side * side * wide, rho_nano) if side else Fraction(0) for side in sides]


def box_sigmas(box: PublicBox, rho_nano: int, count: float) -> NDArray[np.float64]:
    """Return the deviation (d,) of the noise of a mean of so many points, in lattice steps.

    Privacy
    -------
    Computed from public or released numbers, so it costs nothing.

    Source
    ------
    Specification 5.18; ours.
    """
    deviations = np.sqrt([float(own) for own in box_variances(box, rho_nano)])
    found: NDArray[np.float64] = deviations * 2.0 ** box_sides(box)[1] / count
    return found


def box_offsets(
    points: NDArray[np.float64], box: PublicBox, count: int, rho_nano: int, noise: Noise
) -> NDArray[np.float64]:
    """Return the noisy mean (d,) of the points' offsets from `box_middle`, in lattice steps.

    `count` is a noisy number of points that was released before, above 0.

    Privacy
    -------
    Protects one point, added or removed, with rho-zCDP and delta = 0, whatever the points are: each is clamped to the
    public ranges, so that its offset in a feature is at most that of the range's end.

    Source
    ------
    Specification 5.18; proof 5.11; ours.
    """
    sides, bits = box_sides(box)
    offsets = np.clip(points.astype(np.int64), box.low, box.high) - box_middle(box)
    total = column_totals(np.sign(offsets) * (np.abs(offsets) >> bits), max(1, int(sides.max())))
    drawn = [noise.one_gaussian(own) if own else 0 for own in box_variances(box, rho_nano)]
    noisy = [exact + more for exact, more in zip(total, drawn, strict=True)]
    found: NDArray[np.float64] = np.array(noisy, np.float64) * 2.0**bits / count
    return found
