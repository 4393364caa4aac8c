"""Arithmetic of approximate zero-concentrated differential privacy: a loss is a value, never a state.

A loss is a pair of integers, rho (or epsilon) in nano units and delta in units of 1e-15. So sums are exact, storage is
trivial, and eleven shares of one eleventh fit into the whole. Losses of different kinds cannot be added: convert them
first (`zcdp_of_dp`, `zcdp_of_laplace`, `zcdp_of_geo`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from ..errors import ConfigError, Shown
from .arguments import chance, left_of, nonnegative, whole

RHO_UNIT = 10**9
EPSILON_UNIT = 10**9
DELTA_UNIT = 10**15
Number = float | int | str | Decimal | Fraction

_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation, Overflow])
_FINE = Context(prec=60)
_UP = Decimal("1e-40")  # relative; far above the rounding error of a few operations with 60 digits


def to_units(value: Number, unit: int, *, up: bool, name: str) -> int:
    """Convert a decimal `value` to a whole number of parts of size 1/`unit`, rounded up or down (specification 1.1).

    A float is read as the shortest decimal that prints it, so 0.1 is one tenth. With `up`, a positive value becomes at
    least one part.
    """
    try:
        exact = value * unit if isinstance(value, Fraction) else _EXACT.multiply(Decimal(str(value)), Decimal(unit))
        whole = math.ceil(exact) if up else math.floor(exact)
    except (DecimalException, ValueError, OverflowError):
        raise ConfigError("must be a finite number", name, got=value) from None
    if exact < 0:
        raise ConfigError("must not be negative", name, got=value)
    return int(whole)


class Loss:
    """Base of all kinds of losses: two exact integers, at least 0, which are added part by part.

    Privacy
    -------
    Unit and relation: those of the kind. Losses of different kinds mean different things, so adding them is refused.

    Source
    ------
    Specification 1.1; proof 2.1; ours.
    """

    __slots__ = ()

    def __init__(self, first: int, delta_femto: int) -> None:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[int, int]:
        """Both integers: the bound on the divergence (rho or epsilon) in nano units, and delta in units of 1e-15."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, float]:
        """Return both parts as plain numbers, by name."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        for name, part in zip(type(self).__dataclass_fields__, self.parts, strict=True):  # type: ignore[attr-defined]
            object.__setattr__(self, name, whole(part, name))

    def _parts_of(self, other: Loss) -> tuple[int, int]:
        if other.__class__ is not self.__class__:
            kinds = f"{type(self).__name__} and {type(other).__name__}"
            raise ConfigError(f"losses must be of one kind, got {kinds}: epsilon and rho do not add up, convert first")
        return other.parts

    def __add__(self, other: Self) -> Self:
        (first, delta), (more, more_delta) = self.parts, self._parts_of(other)
        return type(self)(first + more, delta + more_delta)

    def __sub__(self, other: Self) -> Self:
        (first, delta), (less, less_delta) = self.parts, self._parts_of(other)
        return type(self)(first - less, delta - less_delta)

    def __mul__(self, times: int) -> Self:
        first, delta = self.parts
        return type(self)(first * times, delta * times)

    def fits(self, capacity: Self) -> bool:
        """Return whether both parts are within `capacity`."""
        (first, delta), (most, max_delta) = self.parts, self._parts_of(capacity)
        return first <= most and delta <= max_delta

    def missing(self, available: Self) -> Self:
        """Return by how much this loss exceeds `available`, in each part; 0 where it does not."""
        (first, delta), (there, there_delta) = self.parts, self._parts_of(available)
        return type(self)(max(0, first - there), max(0, delta - there_delta))

    def split(self, parts: int) -> list[Self]:
        """Split the loss into `parts` shares that sum to it exactly and differ by at most one unit."""
        parts = whole(parts, "parts", least=1)
        (first, more), (delta, more_delta) = (divmod(part, parts) for part in self.parts)
        return [type(self)(first + (i < more), delta + (i < more_delta)) for i in range(parts)]


@dataclass(frozen=True, slots=True, order=False, init=False)
class PrivacyLoss(Loss):
    """A (rho, delta)-zCDP loss in exact integer units.

    Parameters
    ----------
    rho_nano : int
        rho in units of 1e-9.
    delta_femto : int
        delta in units of 1e-15.

    Privacy
    -------
    Protects one unit, added or removed: whatever the privacy filter that takes the loss protects. The loss is
    delta-approximate rho-zCDP in mixture form: P >= (1-delta)P', Q >= (1-delta)Q', D_alpha(P'||Q') <= rho*alpha both
    ways.

    Source
    ------
    Specification 1.1; proofs 1.1, 2.1; Bun and Steinke 2016 (definition), Whitehouse et al. 2023 (fully adaptive sums).
    """

    rho_nano: int = 0
    delta_femto: int = 0

    @classmethod
    def charge(cls, rho: Number, delta: Number = 0) -> PrivacyLoss:
        """Make a loss to charge: both parts are rounded up."""
        return cls(to_units(rho, RHO_UNIT, up=True, name="rho"), to_units(delta, DELTA_UNIT, up=True, name="delta"))

    @classmethod
    def cap(cls, rho: Number, delta: Number = 0) -> PrivacyLoss:
        """Make a capacity: both parts are rounded down."""
        return cls(to_units(rho, RHO_UNIT, up=False, name="rho"), to_units(delta, DELTA_UNIT, up=False, name="delta"))

    @property
    def parts(self) -> tuple[int, int]:
        return self.rho_nano, self.delta_femto

    # Every stage of every answer of every window is added and compared, so these are written out.

    def __init__(self, rho_nano: int = 0, delta_femto: int = 0) -> None:
        if rho_nano.__class__ is not int or delta_femto.__class__ is not int or rho_nano < 0 or delta_femto < 0:
            rho_nano, delta_femto = whole(rho_nano, "rho_nano"), whole(delta_femto, "delta_femto")
        _set_rho(self, rho_nano)  # the assignment that a frozen class refuses
        _set_delta(self, delta_femto)

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        if other.__class__ is not PrivacyLoss:
            self._parts_of(other)
        if not (other.rho_nano or other.delta_femto):
            return self
        if not (self.rho_nano or self.delta_femto):
            return other
        return PrivacyLoss(self.rho_nano + other.rho_nano, self.delta_femto + other.delta_femto)

    def __sub__(self, other: PrivacyLoss) -> PrivacyLoss:
        if other.__class__ is not PrivacyLoss:
            self._parts_of(other)
        if not (other.rho_nano or other.delta_femto):
            return self
        return PrivacyLoss(self.rho_nano - other.rho_nano, self.delta_femto - other.delta_femto)

    def fits(self, capacity: PrivacyLoss) -> bool:
        if capacity.__class__ is not PrivacyLoss:
            self._parts_of(capacity)
        return self.rho_nano <= capacity.rho_nano and self.delta_femto <= capacity.delta_femto

    @property
    def rho(self) -> float:
        return self.rho_nano / RHO_UNIT

    @property
    def delta(self) -> float:
        return self.delta_femto / DELTA_UNIT

    def epsilon(self, delta: float) -> float:
        """Return the smallest known epsilon for which this loss is (epsilon, `delta`)-DP: see `epsilon_tight`.

        `delta` is in (0, 1). The result is infinite where the loss's own delta is that large.
        """
        return epsilon_tight(self.rho, chance(delta, "delta") - self.delta)

    def as_dict(self) -> dict[str, float]:
        return {"rho": self.rho, "delta": self.delta}

    def __str__(self) -> str:
        return f"(rho={self.rho:.15g}, delta={self.delta:.15g})"  # every unit shows, so that unequal losses look it


_set_rho, _set_delta = (vars(PrivacyLoss)[name].__set__ for name in ("rho_nano", "delta_femto"))

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a filter, or `Terms`, without parameters is one on rho

    LossT = TypeVar("LossT", bound=Loss, default=PrivacyLoss)
else:
    from typing import TypeVar

    LossT = TypeVar("LossT", bound=Loss)


@dataclass(frozen=True, slots=True, order=False)
class DPLoss(Loss):
    """An (epsilon, delta)-DP loss in exact integer units.

    Parameters
    ----------
    epsilon_nano : int
        epsilon in units of 1e-9.
    delta_femto : int
        delta in units of 1e-15.

    Privacy
    -------
    Protects whatever the privacy filter that takes the loss protects, under the relation of the mechanisms charged.
    Sums are basic composition. Many more small losses fit if `zcdp_of_dp` converts them for a filter on `PrivacyLoss`.

    Source
    ------
    Specification 1.1; proof 2.1; Dwork, McSherry, Nissim, Smith 2006; Rogers, Roth, Ullman, Vadhan 2016 (fully adaptive
    sums).

    Examples
    --------
    A core of `BasicFilter` and a friendly (0.1, 1e-9)-DP average of it, charged as one:

    >>> from fcstream import BasicFilter, PrivacyFilter
    >>> budget = PrivacyFilter(DPLoss.cap(1, 1e-6))
    >>> budget.spend(DPLoss.charge(*BasicFilter().total(epsilon=0.1, delta=1e-9)))
    >>> budget.spent
    DPLoss(epsilon_nano=210341837, delta_femto=2727783)
    """

    epsilon_nano: int = 0
    delta_femto: int = 0

    @classmethod
    def charge(cls, epsilon: Number, delta: Number = 0) -> DPLoss:
        """Make a loss to charge: both parts are rounded up."""
        return cls(_epsilon(epsilon, up=True), to_units(delta, DELTA_UNIT, up=True, name="delta"))

    @classmethod
    def cap(cls, epsilon: Number, delta: Number = 0) -> DPLoss:
        """Make a capacity: both parts are rounded down."""
        return cls(_epsilon(epsilon, up=False), to_units(delta, DELTA_UNIT, up=False, name="delta"))

    @property
    def parts(self) -> tuple[int, int]:
        return self.epsilon_nano, self.delta_femto

    @property
    def epsilon(self) -> float:
        return self.epsilon_nano / EPSILON_UNIT

    @property
    def delta(self) -> float:
        return self.delta_femto / DELTA_UNIT

    def as_dict(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta}

    def __str__(self) -> str:
        return f"(epsilon={self.epsilon:.15g}, delta={self.delta:.15g})"


def _epsilon(value: Number, *, up: bool) -> int:
    return to_units(value, EPSILON_UNIT, up=up, name="epsilon")


def zcdp_of_dp(loss: DPLoss) -> PrivacyLoss:
    """Convert an (epsilon, delta)-DP loss to zCDP: rho = epsilon tanh(epsilon / 2) <= epsilon**2 / 2, rounded up.

    Privacy
    -------
    Unit and relation: those of the loss. delta stays the same. With delta > 0 the result is zCDP in mixture form, since
    an (epsilon, delta)-DP pair is a mixture of an epsilon-DP pair, with weight 1 - delta, and an arbitrary pair. Do not
    use it for losses per unit of distance: see `zcdp_of_geo`.

    Source
    ------
    Specification 1.2; proof 1.6; Bun and Steinke 2016, Proposition 1.4 (epsilon**2 / 2) and its optimal form epsilon
    (e**epsilon - 1) / (e**epsilon + 1), that of randomized response; Kairouz, Oh, Viswanath 2015 (the mixture).
    """
    if not isinstance(loss, DPLoss):
        raise ConfigError("must be a DPLoss", "loss", got=Shown(f"a {type(loss).__name__}"))
    epsilon = _decimal(loss.epsilon_nano)
    falling = _FINE.exp(-epsilon)
    tanh = _FINE.divide(_FINE.subtract(Decimal(1), falling), _FINE.add(Decimal(1), falling))
    return PrivacyLoss(_rho_up(_FINE.multiply(epsilon, tanh)), loss.delta_femto)


def zcdp_of_laplace(epsilon: Number) -> PrivacyLoss:
    """Compute the zCDP loss of continuous Laplace noise of this epsilon: epsilon + exp(-epsilon) - 1, rounded up.

    Privacy
    -------
    Unit and relation: those of the mechanism; epsilon is its l1 sensitivity divided by its scale. The bound is convex
    in epsilon and 0 at 0, so it covers vectors. Do not use it for discrete Laplace noise: between neighbors one grid
    step apart that noise is randomized response, so use `zcdp_of_dp`.

    Source
    ------
    Specification 1.2; proof 1.6; Harrison and Manurangsi 2026, Exact zCDP characterizations.
    """
    value = _decimal(_epsilon(epsilon, up=True))
    return PrivacyLoss(_rho_up(_FINE.subtract(_FINE.add(value, _FINE.exp(-value)), Decimal(1))))


def zcdp_of_geo(epsilon: Number) -> PrivacyLoss:
    """Convert epsilon per unit of distance to rho per squared unit of distance: epsilon**2 / 2, rounded up.

    Privacy
    -------
    Protects one location against any other within the public largest distance. Charge this rho, and never the epsilon
    itself, to a filter on rho. The bound epsilon tanh(epsilon / 2) of plain DP does not hold here: for distances near 0
    no rho below epsilon**2 / 2 is valid.

    Source
    ------
    Specification 1.2; proofs 1.6, 10.1; Liang and Yi 2025, Lemma 3.1.
    """
    nano = _epsilon(epsilon, up=True)
    return PrivacyLoss(-(-nano * nano * RHO_UNIT // (2 * EPSILON_UNIT**2)))


def _decimal(epsilon_nano: int) -> Decimal:
    return _FINE.divide(Decimal(epsilon_nano), Decimal(EPSILON_UNIT))


def _rho_up(rho: Decimal) -> int:
    """Convert rho to nano units, rounded up by more than the rounding error of 60 digits."""
    return math.ceil(_FINE.multiply(_FINE.multiply(rho, 1 + _UP), Decimal(RHO_UNIT)))


def group_rho(rho_nano: int, size: int) -> int:
    """Compute rho for a group of `size` units under PURE zCDP (delta = 0): size squared times rho.

    Privacy
    -------
    There is no such rule for delta > 0, so every mechanism here has its own analysis for replaced records.

    Source
    ------
    Specification 1.2; Bun and Steinke 2016, Proposition 1.9.
    """
    return whole(rho_nano, "rho_nano") * whole(size, "size", least=1) ** 2


def epsilon_simple(rho: float, delta: float) -> float:
    """Convert rho-zCDP to an epsilon at `delta` by the textbook bound rho + 2 sqrt(rho ln(1/delta)).

    Privacy
    -------
    Valid for every rho >= 0 and delta < 1, where a delta of 0 or less gives infinity; never below `epsilon_tight`.

    Source
    ------
    Specification 1.2; Bun and Steinke 2016, Proposition 1.3.
    """
    rho, delta = nonnegative(rho, "rho"), left_of(delta)
    if rho == 0:
        return 0.0
    if delta <= 0:
        return math.inf
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def delta_tight(rho: float, epsilon: float) -> float:
    """Convert rho-zCDP to the smallest delta at `epsilon` (every order alpha is valid; the best one found is used).

    Privacy
    -------
    rho-zCDP implies (epsilon, delta)-DP with delta = min over alpha > 1 of
    exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1 - 1/alpha)**alpha.

    Source
    ------
    Specification 1.2; proof 1.8; Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    rho, epsilon = nonnegative(rho, "rho"), nonnegative(epsilon, "epsilon")
    if rho == 0:
        return 0.0

    def log_delta(t: float) -> float:
        gap = math.exp(t)
        alpha = 1 + gap
        return gap * (alpha * rho - epsilon) - t + alpha * (t - math.log1p(gap))

    return min(1.0, math.exp(_minimum(log_delta, -30.0, 40.0)) * (1 + 1e-9))


def epsilon_tight(rho: float, delta: float) -> float:
    """Convert rho-zCDP to an epsilon at `delta` by the tight conversion.

    Parameters
    ----------
    rho : float
    delta : float
        The delta left for the conversion, below 1: the delta wanted less the delta already spent; 0 or less gives
        infinity.

    Raises
    ------
    ConfigError
        An argument is nan, infinite, no number, or outside of its range.

    Privacy
    -------
    This is the inverse of `delta_tight` in epsilon. Every order alpha is valid, so rounding in the search for the best
    one costs tightness only.

    Source
    ------
    Specification 1.2; proof 1.8; Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    rho, delta = nonnegative(rho, "rho"), left_of(delta)
    if rho == 0:
        return 0.0
    if delta <= 0:
        return math.inf

    def epsilon(t: float) -> float:
        gap = math.exp(t)
        alpha = 1 + gap
        return alpha * rho + (-math.log(delta) - t + alpha * (t - math.log1p(gap))) / gap

    return max(0.0, min(_minimum(epsilon, -30.0, 40.0) * (1 + 1e-9), epsilon_simple(rho, delta)))


def rho_for_epsilon(epsilon: float, delta: float) -> float:
    """Find the largest rho whose tight epsilon at `delta` is at most `epsilon`, to plan a budget.

    Privacy
    -------
    Post-processing of public numbers; costs nothing.

    Source
    ------
    Specification 1.2; proof 1.8; inverse of `epsilon_tight` by bisection, rounded down.
    """
    epsilon, delta = nonnegative(epsilon, "epsilon"), chance(delta, "delta")
    low, high = 0.0, max(epsilon, 1.0) * 4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_tight(middle, delta) <= epsilon else (low, middle)
    return low


def geo_epsilon(rho: float, delta: float, distance: float) -> float:
    """Convert (rho, distance)-CGP to an epsilon per unit of distance at `delta`.

    This is the tight conversion at the largest distance.

    Parameters
    ----------
    rho : float
        Sum of the worst cases, per squared unit of distance.
    delta : float
    distance : float
        The public largest distance Lambda between two locations that shall be indistinguishable; positive, in the same
        unit.

    Privacy
    -------
    Protects one location against any other within `distance`. The result is (epsilon, delta, distance)-geo privacy: at
    distance D the outputs are (epsilon D, delta)-indistinguishable. The conversion is tight at the largest distance,
    which is the worst case: with rho D**2 and epsilon D, delta grows with D.

    Source
    ------
    Specification 1.2; proof 10.5; erratum 3.1; ours, in place of Lemma 3.2 of Liang and Yi 2025: Canonne, Kamath,
    Steinke 2020, Corollary 13 at rho * distance**2.
    """
    distance, delta = nonnegative(distance, "distance"), chance(delta, "delta")
    if distance == 0:
        raise ConfigError("must be positive, got 0: there is no bound without one", "distance")
    return epsilon_tight(nonnegative(rho, "rho") * distance * distance, delta) / distance


def geo_rho_cap(epsilon: float, delta: float, distance: float) -> PrivacyLoss:
    """Find the largest sum of rho that is (epsilon, delta, distance)-geo privacy: a filter's capacity, rounded down.

    Parameters
    ----------
    epsilon : float
        Per unit of distance.
    delta : float
    distance : float
        As for `geo_epsilon`.

    Privacy
    -------
    Protects one location against any other within `distance`. A filter with this capacity, charged each mechanism's
    worst case over all pairs (rho per squared unit of distance, and `zcdp_of_geo` of an epsilon), guarantees (epsilon,
    delta, distance)-geo privacy whatever is asked. The capacity is a public number and costs nothing.

    Source
    ------
    Specification 1.2; proof 10.5; erratum 3.1; Liang and Yi 2025, eq. 10 and Theorem 4.5, with the tight conversion.
    """
    epsilon, delta = nonnegative(epsilon, "epsilon"), chance(delta, "delta")
    return PrivacyLoss(largest(lambda nano: geo_epsilon(nano / RHO_UNIT, delta, distance) <= epsilon))


def largest(fits: Callable[[int], bool]) -> int:
    """Find the largest integer for which `fits` holds, which must hold from 0 up to some integer and not beyond.

    Privacy
    -------
    `fits` must be a public rule; the search then costs nothing.

    Source
    ------
    Specification 1.2; bisection.
    """
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _minimum(function, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """Find the smallest value of a function with one valley by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2

    def safe(x: float) -> float:
        try:
            return float(function(x))
        except OverflowError:
            return math.inf

    # A coarse scan comes first, so that the golden-section search starts inside the valley.

    grid = [low + (high - low) * i / 140 for i in range(141)]
    best = min(range(len(grid)), key=lambda i: safe(grid[i]))
    a, b = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(80):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if safe(c) < safe(d) else (c, b)
    return min(safe((a + b) / 2), safe(grid[best]))


__all__ = [
    "DELTA_UNIT",
    "EPSILON_UNIT",
    "RHO_UNIT",
    "DPLoss",
    "Loss",
    "PrivacyLoss",
    "delta_tight",
    "epsilon_simple",
    "epsilon_tight",
    "geo_epsilon",
    "geo_rho_cap",
    "group_rho",
    "largest",
    "rho_for_epsilon",
    "to_units",
    "zcdp_of_dp",
    "zcdp_of_geo",
    "zcdp_of_laplace",
]
