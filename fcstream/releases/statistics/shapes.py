"""How a window's features vary together, roughly: the coordinates in which records are clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .scales import UNITS

DEVIATION = 400
"""About one deviation of a feature is so many units, to which offsets are rounded."""
LEVEL = Fraction(4, 5)
"""The spread of a feature: so many records lie within it of the median."""
RUNGS = 2
"""Spreads for each factor of two that a feature may have."""
TURN = 0.6
"""Coordinates are divided by their directions' deviations to this power; one half if only noise mattered."""
_TO_SCALE = 1024 * 2 / 2 ** (1 / 4)  # between the deciles there are about two spreads; the middle of a rung
_PRIOR = 0.5  # deviation of a variance about the one that the spread tells, relative to it
_MIN_VARIANCE = 0.25
_MIN_DIRECTION = 0.02
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coordinates:
    """What makes integers of a record: the rounded products of a matrix with its offset from the middles.

    Attributes
    ----------
    middles : float64 (d,)
        Lattice coordinates.
    factors : float64 (d,)
        Units of one lattice step, of each feature.
    turn : float64 (d, d) or None
        Applied to offsets in these units. None: they are rounded as they are.
    back : float64 (d, d)
        From units after the turn to units before it.

    Privacy
    -------
    Made of released numbers, so everything computed from it is free.

    Source
    ------
    Specification 7.4; proof 8.3; ours.
    """

    middles: NDArray[np.float64]
    factors: NDArray[np.float64]
    turn: Matrix | None
    back: Matrix

    @classmethod
    def plain(cls, middles: list[int], spreads: list[int] | None) -> Coordinates:
        """Return coordinates without a turn: 2**10 units lie between a feature's deciles. None: units are steps."""
        factors = np.ones(len(middles))
        if spreads is not None:
            factors = float(UNITS**2) / np.array([round(spread * _TO_SCALE) for spread in spreads], np.float64)
        return cls(np.array(middles, np.float64), factors, None, np.eye(len(middles)))

    def moved(self, mean: NDArray[np.float64], matrix: Matrix, entry: float, *, turns: bool) -> Coordinates:
        """Return coordinates about a mean in which the records' covariance is nearer to that of a ball.

        Parameters
        ----------
        mean : float64 (d,)
        matrix : float64 (d, d)
            The covariances of a first release, in units.
        entry : float
            Deviation of the noise of its entries off the diagonal.
        turns : bool
            Whether features are mixed; else each is divided by its deviation alone.

        Privacy
        -------
        Post-processing of released numbers.

        Source
        ------
        Specification 7.4; ours; shrinkage: James and Stein 1961.
        """
        d, noise = len(mean), entry / DEVIATION**2
        trust = _PRIOR**2 / (_PRIOR**2 + 2 * noise**2)
        variances = np.maximum(1 + (np.diag(matrix) / DEVIATION**2 - 1) * trust, _MIN_VARIANCE)
        middles, factors = self.middles + mean / self.factors, self.factors / np.sqrt(variances)
        if not turns:
            return Coordinates(middles, factors, None, np.eye(d))
        both = DEVIATION**2 * np.sqrt(np.outer(variances, variances))
        beside = matrix / both - np.diag(np.diag(matrix) / (DEVIATION**2 * variances))
        own = noise / float(np.mean(variances))
        kept = max(0.0, 1 - d * (d - 1) * own**2 / max(float((beside**2).sum()), 1e-300))
        values, vectors = np.linalg.eigh(kept * beside + np.eye(d))
        values = np.maximum(values, max(_MIN_DIRECTION, kept * own * math.sqrt(d)))
        turn, back = ((vectors * values ** (sign * TURN / 2)) @ vectors.T for sign in (-1, 1))
        return Coordinates(middles, factors, np.ascontiguousarray(turn), back)
