"""What a search for centers found in a window: centers or a refusal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..averages import Estimate
from ..base import Outcome


@dataclass(frozen=True, slots=True)
class ClusterCenters:
    """Centers found for a window's clusters, or a refusal, in lattice steps; all of it counts as released.

    Attributes
    ----------
    reason : str or None
        None if centers were released; ``no_radius`` or ``no_match`` if the tuples do not agree, ``too_few`` if no part
        has enough records.
    centers, sigma : float64 (k, d) or None
        Centers in ascending order, and their noise per coordinate.
    counts : int64 (k,) or None
        Noisy number of records of each center.
    tuples : int or None
        Noisy number of tuples that agreed; None for a fallback.

    Privacy
    -------
    Holds released values only.

    Source
    ------
    Specification 6.12; ours.
    """

    reason: str | None
    centers: NDArray[np.float64] | None = None
    sigma: NDArray[np.float64] | None = None
    counts: NDArray[np.int64] | None = None
    tuples: int | None = None

    @classmethod
    def of(
        cls, found: Estimate, sigma: NDArray[np.float64], counts: NDArray[np.int64], tuples: int | None
    ) -> ClusterCenters:
        """Make the release of centers as a set, or a refusal if no part has enough records."""
        if np.isnan(found.sigma).all():
            return cls("too_few")
        order = np.lexsort(found.value.T[::-1])
        return cls(None, found.value[order], sigma[order], counts[order], tuples)

    def outcome(self) -> Outcome:
        """Return the outcome for the engine."""
        if self.centers is None or self.sigma is None or self.counts is None:
            return Outcome(self.reason)
        total, parts = int(self.counts.sum()), {"counts": self.counts.tolist(), "tuples": self.tuples}
        return Outcome(None, self.centers, self.sigma, total, total, parts=parts)
