"""Arithmetic of approximate zero-concentrated differential privacy: a loss is a value, never a state.

A loss is a pair of integers, rho in nano units and delta in units of 1e-15, so that sums are exact, storage is
trivial and eleven shares of one eleventh fit into the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from .errors import ConfigError

RHO_UNIT = 10**9
DELTA_UNIT = 10**15
Number = float | int | str | Decimal | Fraction


def to_units(value: Number, unit: int, *, up: bool, name: str) -> int:
    """Number of 1/`unit` parts in a decimal `value`, rounded up or down.

    A float counts as the shortest decimal that prints it: 0.1 is one tenth. A positive value never rounds up to
    less than one part.
    """
    try:
        exact = value * unit if isinstance(value, Fraction) else Decimal(str(value)) * unit
        whole = math.ceil(exact) if up else math.floor(exact)
    except (InvalidOperation, ValueError, OverflowError):
        raise ConfigError(f"must be a finite number, got {value!r}", name) from None
    if exact < 0:
        raise ConfigError(f"must not be negative, got {value!r}", name)
    return int(whole)


@dataclass(frozen=True, slots=True, order=False)
class PrivacyLoss:
    """A (rho, delta)-zCDP loss in exact integer units.

    Parameters
    ----------
    rho_nano : int
        rho in units of 1e-9.
    delta_femto : int
        delta in units of 1e-15.

    Privacy
    -------
    Unit: whatever the surrounding filter protects. Relation: add or remove one unit. The loss is delta-approximate
    rho-zCDP in mixture form: P >= (1-delta)P', Q >= (1-delta)Q', D_alpha(P'||Q') <= rho*alpha both ways.

    Source
    ------
    Bun and Steinke 2016 (definition), Whitehouse et al. 2023 (fully adaptive sums).
    """

    rho_nano: int = 0
    delta_femto: int = 0

    def __post_init__(self) -> None:
        if self.rho_nano < 0 or self.delta_femto < 0:
            raise ConfigError("a privacy loss must not be negative")

    @classmethod
    def charge(cls, rho: Number, delta: Number = 0) -> PrivacyLoss:
        """A cost: rounded up."""
        return cls(to_units(rho, RHO_UNIT, up=True, name="rho"), to_units(delta, DELTA_UNIT, up=True, name="delta"))

    @classmethod
    def cap(cls, rho: Number, delta: Number = 0) -> PrivacyLoss:
        """A limit: rounded down."""
        return cls(to_units(rho, RHO_UNIT, up=False, name="rho"), to_units(delta, DELTA_UNIT, up=False, name="delta"))

    @property
    def rho(self) -> float:
        return self.rho_nano / RHO_UNIT

    @property
    def delta(self) -> float:
        return self.delta_femto / DELTA_UNIT

    @property
    def rho_fraction(self) -> Fraction:
        return Fraction(self.rho_nano, RHO_UNIT)

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        return PrivacyLoss(self.rho_nano + other.rho_nano, self.delta_femto + other.delta_femto)

    def __sub__(self, other: PrivacyLoss) -> PrivacyLoss:
        return PrivacyLoss(self.rho_nano - other.rho_nano, self.delta_femto - other.delta_femto)

    def __mul__(self, times: int) -> PrivacyLoss:
        return PrivacyLoss(self.rho_nano * times, self.delta_femto * times)

    def fits(self, capacity: PrivacyLoss) -> bool:
        """True if both parts are within `capacity`."""
        return self.rho_nano <= capacity.rho_nano and self.delta_femto <= capacity.delta_femto

    def missing(self, available: PrivacyLoss) -> PrivacyLoss:
        """How much more than `available` it would take, in each part."""
        return PrivacyLoss(max(0, self.rho_nano - available.rho_nano), max(0, self.delta_femto - available.delta_femto))

    def split(self, parts: int) -> list[PrivacyLoss]:
        """`parts` shares that sum to this loss exactly; they differ by at most one unit."""
        if parts < 1:
            raise ConfigError(f"must be at least 1, got {parts}", "parts")
        rho, more_rho = divmod(self.rho_nano, parts)
        delta, more_delta = divmod(self.delta_femto, parts)
        return [PrivacyLoss(rho + (i < more_rho), delta + (i < more_delta)) for i in range(parts)]

    def epsilon(self, delta: float) -> float:
        """Smallest known epsilon so that this loss is (epsilon, `delta`)-DP: see `epsilon_tight`."""
        return epsilon_tight(self.rho, delta - self.delta)

    def as_dict(self) -> dict[str, float]:
        return {"rho": self.rho, "delta": self.delta}

    def __str__(self) -> str:
        return f"(rho={self.rho:.9g}, delta={self.delta:.3g})"


def group_rho(rho_nano: int, size: int) -> int:
    """rho of a group of `size` units under PURE zCDP (delta = 0): size squared times rho.

    Privacy
    -------
    There is no such rule for delta > 0: replacement has an analysis of its own in every mechanism here.

    Source
    ------
    Bun and Steinke 2016, Proposition 1.9.
    """
    return rho_nano * size * size


def epsilon_simple(rho: float, delta: float) -> float:
    """epsilon of rho-zCDP at `delta` by the textbook bound rho + 2 sqrt(rho ln(1/delta)).

    Privacy
    -------
    Valid for every rho >= 0 and 0 < delta < 1; never below `epsilon_tight`.

    Source
    ------
    Bun and Steinke 2016, Proposition 1.3.
    """
    if rho <= 0:
        return 0.0
    if not 0 < delta < 1:
        return math.inf
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def delta_tight(rho: float, epsilon: float) -> float:
    """Smallest delta of the tight conversion at `epsilon` (any order alpha is valid, so is the best one found).

    Privacy
    -------
    rho-zCDP implies (epsilon, delta)-DP with delta = min over alpha > 1 of
    exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1 - 1/alpha)**alpha.

    Source
    ------
    Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    if rho <= 0:
        return 0.0

    def log_delta(t: float) -> float:
        gap = math.exp(t)
        alpha = 1 + gap
        return gap * (alpha * rho - epsilon) - t + alpha * (t - math.log1p(gap))

    return min(1.0, math.exp(_minimum(log_delta, -30.0, 40.0)) * (1 + 1e-9))


def epsilon_tight(rho: float, delta: float) -> float:
    """epsilon of rho-zCDP at `delta` by the tight conversion.

    Parameters
    ----------
    rho : float
    delta : float
        What is left for the conversion: the delta wanted less the delta already spent; 0 or less gives infinity.

    Privacy
    -------
    The inverse of `delta_tight` in epsilon; every order alpha is valid, so rounding in the search costs tightness only.

    Source
    ------
    Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    if rho <= 0:
        return 0.0
    if delta <= 0:
        return math.inf
    if delta >= 1:
        return 0.0

    def epsilon(t: float) -> float:
        gap = math.exp(t)
        alpha = 1 + gap
        return alpha * rho + (-math.log(delta) - t + alpha * (t - math.log1p(gap))) / gap

    return max(0.0, min(_minimum(epsilon, -30.0, 40.0) * (1 + 1e-9), epsilon_simple(rho, delta)))


def rho_for_epsilon(epsilon: float, delta: float) -> float:
    """Largest rho whose tight epsilon at `delta` is at most `epsilon`: to plan a budget.

    Privacy
    -------
    Post-processing of public numbers; costs nothing.

    Source
    ------
    Inverse of `epsilon_tight` by bisection, rounded down.
    """
    low, high = 0.0, max(epsilon, 1.0) * 4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_tight(middle, delta) <= epsilon else (low, middle)
    return low


def _minimum(function, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """Smallest value found by golden-section search of a function with one valley."""
    ratio = (math.sqrt(5) - 1) / 2

    def safe(x: float) -> float:
        try:
            return float(function(x))
        except OverflowError:
            return math.inf

    # A coarse scan first: the golden section then runs inside one valley.
    grid = [low + (high - low) * i / 140 for i in range(141)]
    best = min(range(len(grid)), key=lambda i: safe(grid[i]))
    a, b = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(80):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if safe(c) < safe(d) else (c, b)
    return min(safe((a + b) / 2), safe(grid[best]))


__all__ = [
    "DELTA_UNIT",
    "RHO_UNIT",
    "PrivacyLoss",
    "delta_tight",
    "epsilon_simple",
    "epsilon_tight",
    "group_rho",
    "rho_for_epsilon",
    "to_units",
]
