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
"""Offsets from the middle of the public ranges are cut to so many bits, so that noise for them can be drawn."""


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


def box_variances(box: PublicBox, rho_nano: int) -> tuple[list[Fraction], int]:
    """Return the variance of the noise of each feature's sum, and by how many bits offsets are cut.

    Feature j, whose offsets are at most h_j, has h_j sum(h) / (2 rho), in units of the cut offsets squared: the squared
    sensitivities by these variances add up to 2 rho.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.16, 5.18; proofs 5.10, 5.11; ours.
    """
    reach = (np.array(box.high, np.int64) - box_middle(box)).tolist()
    shift = max(0, max(reach).bit_length() - OFFSET_BITS)
    units = [side >> shift for side in reach]
    return [gaussian_variance(side * sum(units), rho_nano) if side else Fraction(0) for side in units], shift


def box_offsets(
    points: NDArray[np.float64], box: PublicBox, count: int, rho_nano: int, noise: Noise
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the noisy mean of the points' offsets from `box_middle`, and the deviation of its noise.

    `count` is a noisy number of points that was released before, above 0. Both in lattice steps, (d,).

    Privacy
    -------
    Protects one point, added or removed, with rho-zCDP and delta = 0, whatever the points are: each is clamped to the
    public ranges, so that its offset in feature j is at most h_j.

    Source
    ------
    Specification 5.16, 5.18; proofs 5.10, 5.11; ours.
    """
    variances, shift = box_variances(box, rho_nano)
    low, high, middle = np.array(box.low, np.int64), np.array(box.high, np.int64), box_middle(box)
    offsets = np.clip(points.astype(np.int64), low, high) - middle
    most = max([1, *((high - middle) >> shift).tolist()])
    total = column_totals(np.sign(offsets) * (np.abs(offsets) >> shift), most)
    drawn = [int(noise.discrete_gaussian(own, 1)[0]) if own else 0 for own in variances]
    unit = 2.0**shift / count
    found = np.array([(exact + more) * unit for exact, more in zip(total, drawn, strict=True)])
    return found, np.sqrt([float(own) for own in variances]) * unit
