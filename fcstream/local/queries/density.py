"""A Gaussian kernel density at one point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT
from ...errors import ConfigError
from ..functions import FINENESS, Distance, Function
from ..spaces import Euclidean
from .base import Plan, Query, _step_width
from .elimination import Judge, Rounds, Transcript, Triple, non_interactive

KERNELS = ("auto", "plain", "unbiased")
REACH = 6.0
"""How many bandwidths away a device adds less than exp(-18)."""


@dataclass(frozen=True)
class KernelDensity(Query):
    """The mean over devices of exp(-|x - p|**2 / (2 b**2)).

    Parameters
    ----------
    component : str
    space : Space
    to : tuple of int
        p, in lattice steps; `at` takes coordinates.
    bandwidth : float
        b, in the space's coordinates.
    kernel : str
        ``plain``: of the noisy values, as printed, so blurred by the noise. ``unbiased``: a narrower kernel whose mean
        over the noise is the true one (only where the noise is below b and not pure; else plain). ``auto``: by
        predicted error.
    parts : int
        See `Distance`.

    Privacy
    -------
    Costs what the devices are charged; everything else is post-processing.

    Source
    ------
    Specification 11.6; proof 10.3; errata 3.9, 3.11; Liang and Yi 2025, Algorithm 7; the unbiased kernel is ours.
    """

    to: tuple[int, ...]
    bandwidth: float
    kernel: str = "auto"
    parts: int = FINENESS

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ConfigError(f"must be one of {list(KERNELS)}", "kernel", got=self.kernel)
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise ConfigError("must be a positive number", "bandwidth", got=self.bandwidth)
        self.space.check(self.phi)

    @classmethod
    def at(cls, component: str, space: Euclidean, place: Any, bandwidth: float, kernel: str = "auto") -> KernelDensity:
        """The density at a point in the space's coordinates."""
        return cls(component, space, space.steps(place), bandwidth, kernel)

    @property
    def phi(self) -> Function:
        return Distance(self.to, self.parts)

    @property
    def _b(self) -> float:
        return self.bandwidth / _step_width(self.space)

    @property
    def judge(self) -> Judge:
        return non_interactive(-math.inf, REACH * self._b)

    def exact(self, points: NDArray[np.int64]) -> float:
        """The true density of lattice points (not private)."""
        away = self.phi.estimate(points.astype(np.float64))
        return float(np.exp(-(away**2) / (2 * self._b**2)).mean()) if len(points) else 0.0

    @staticmethod
    def error(value: float, truth: float) -> float:
        """The absolute error."""
        return abs(value - truth)

    def finish(self, found: Transcript, triple: Triple, rounds: Rounds) -> tuple[Any, float | None]:
        """The density; an eliminated device would add at most exp(-18) / n."""
        n = len(found.who) - len(found.rows(Transcript.SILENT))
        if n == 0:
            return 0.0, None
        left = found.heard()
        away = found.estimates(triple, left)
        sigma = triple.sigma(found.known[left])
        if triple.pure:  # the narrower kernel is for Gaussian noise
            total = float(np.exp(-(away**2) / (2 * self._b**2)).sum())
        else:
            total = float(self._kernel(away, sigma, triple.dimension, n).sum()) if len(left) else 0.0
        return (total + len(found.rows(Transcript.OUTSIDE)) * math.exp(-(REACH**2) / 2)) / n, None

    def _kernel(self, away: NDArray[np.float64], sigma: NDArray[np.float64], k: int, n: int) -> NDArray[np.float64]:
        b = self._b
        narrow = np.maximum(b * b - sigma * sigma, 0.0)
        plain = np.exp(-(away**2) / (2 * b * b))
        is_unbiased = narrow > 0
        if self.kernel == "plain" or not is_unbiased.any():
            return plain
        if self.kernel == "auto":
            blurred, true = predicted_errors(float(np.median(sigma)), b, k, n)
            if blurred <= true:
                return plain
        safe = np.where(is_unbiased, narrow, 1.0)
        sharp = (b * b / safe) ** (k / 2) * np.exp(-(away**2) / (2 * safe))
        return np.where(is_unbiased, sharp, plain)

    def plan(self, n: int, rho: float, method: str = "PM1", rounds: Rounds | None = None) -> Plan:
        """What to expect from n devices with a budget of rho each."""
        found = self.forecast(n, rho, method, rounds or Rounds())
        triple = self.triple(method)
        sigma = float(triple.sigma(np.array([int(rho * RHO_UNIT)]))[0])
        blurred, true = predicted_errors(sigma, self._b, triple.dimension, n)
        found.notes.append(f"root mean squared error, plain {math.sqrt(blurred):.3g}, unbiased {math.sqrt(true):.3g}")
        chosen = {"plain": blurred, "unbiased": true}.get(self.kernel, min(blurred, true))
        return Plan(found.sigma, found.widths, found.half_saved_at, math.sqrt(chosen), found.notes)


def predicted_errors(sigma: float, b: float, k: int, n: int) -> tuple[float, float]:
    """Mean squared errors of the plain and the unbiased kernel, averaged over where n devices may be.

    Parameters
    ----------
    sigma : float
        Of the noise in every coordinate.
    b : float
        Bandwidth.
    k : int
        Coordinates of the noise: the dimension for points, 1 for distances.
    n : int

    Source
    ------
    Specification 11.6; erratum 3.11; ours: Gaussian integrals. A blurred kernel has mean (1 + s)**(-k/2) exp(-t**2 / (2
    b**2 (1 + s))) at distance t, s = sigma**2 / b**2; squares are kernels again. t is even in [0, 3 b].
    """
    t = np.linspace(0.0, 3 * b, 61)

    def mean(width2: float) -> NDArray[np.float64]:
        """E exp(-|noisy|**2 / (2 width2))."""
        return np.asarray((1 + sigma**2 / width2) ** (-k / 2) * np.exp(-(t**2) / (2 * (width2 + sigma**2))))

    true = np.exp(-(t**2) / (2 * b * b))
    plain = mean(b * b)
    spread = np.maximum(mean(b * b / 2) - plain**2, 0.0)
    blurred = float(((plain - true) ** 2 + spread / n).mean())
    narrow = b * b - sigma * sigma
    if narrow <= 0:
        return blurred, math.inf
    with np.errstate(over="ignore"):
        factor = np.float64(b * b / narrow) ** k
        sharp = float((np.maximum(factor * mean(narrow / 2) - true**2, 0.0) / n).mean())
    return blurred, sharp
