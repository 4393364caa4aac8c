"""Means in approximate DP, (epsilon, delta): FriendlyCore's BasicFilter, and the generator of its first version."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

from ...accounting.losses import (
    DELTA_UNIT,
    EPSILON_UNIT,
    RHO_UNIT,
    DPLoss,
    PrivacyLoss,
    largest,
    rho_for_epsilon,
    zcdp_of_dp,
)
from ...cores.filters import BasicFilter
from ...cores.generator import FriendlyGenerator, Generated
from ...counting.exact import FriendCounts
from ...counting.views import Selection, WindowView
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, sqrt_up
from ..averages import Estimate, _noisy_average, check_average, exact_sums
from ..base import Counter, Forecast, Outcome, PlanNotes, PointMechanism
from ..core_stage import noise_warnings
from ..options import BuildContext, Options
from ..reasons import LEFT_OUT

_GROWTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_BIT_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class LowerCount:
    """A released number of items that is hardly ever above the true one: the first stage of friendly algorithms.

    Parameters
    ----------
    epsilon_nano : int
        Loss of the number.
    delta : float
        n-hat exceeds n with a probability of at most half of this.

    Privacy
    -------
    Protects one item, added or removed, with epsilon-DP, by discrete Laplace noise for sensitivity 1.

    Source
    ------
    Specification 5.7; proof 5.2; erratum 1.9; Tsfadia et al. 2022, FriendlyAvg, DP form.
    """

    epsilon_nano: int
    delta: float

    @cached_property
    def offset(self) -> int:
        """How far the mean of n-hat lies below the number: 1 + ln(1/delta) / epsilon, rounded up."""
        return math.ceil((1 + math.log(1 / self.delta) * EPSILON_UNIT / self.epsilon_nano) * (1 + 1e-9))

    @property
    def scale(self) -> Fraction:
        """Scale of the noise."""
        return Fraction(EPSILON_UNIT, self.epsilon_nano)

    def draw(self, n: int, noise: Noise) -> int:
        """Draw n-hat."""
        return n - self.offset + noise.one_laplace(self.scale)

    def chance(self, n: float, needed: float = 0.0) -> float:
        """Return, approximately, the chance that n-hat is above the needed number."""
        short = (needed + self.offset - n) / float(self.scale)
        return 0.5 * math.exp(-short) if short > 0 else 1 - 0.5 * math.exp(short)


@dataclass(frozen=True)
class FriendlyAverageDP:
    """`FriendlyAverage` in the (epsilon, delta) paradigm, for `BasicFilter` and `FriendlyGenerator`.

    Parameters
    ----------
    loss : DPLoss
    radius_squared : int
        Of the friendship predicate, in squared lattice steps.
    size_hint : int or None
        Public guess of the number of points, to split the budget; None uses one tenth for the size.

    Privacy
    -------
    Protects one point, added, removed or replaced, with (epsilon, delta)-DP for every pair of neighbors in which any
    two points share a friend, so it must run on a core only. A share of epsilon is for the size (discrete Laplace,
    sensitivity 1), the rest for the average, of sensitivity 2 r_eff / n-hat plus rounding. Half of delta covers an
    n-hat above n, the other half is the Gaussian's. An empty core and an n-hat of 0 or less give the same refusal.

    Source
    ------
    Specification 5.7; proof 5.2; erratum 1.9; Tsfadia et al. 2022, FriendlyAvg (section 3), DP form; for n-hat see
    `LowerCount`. Where the paper has the classical bound of the Gaussian mechanism (epsilon up to 1), sigma here comes
    from the tight conversion of zCDP (Canonne, Kamath, Steinke 2020), which holds for the discrete Gaussian in any
    dimension and every epsilon and is smaller: 5.9 against 6.6 sensitivities at (1, 1e-9).
    """

    loss: DPLoss
    radius_squared: int
    size_hint: int | None = None

    def __post_init__(self) -> None:
        if self._first_nano < 1 or self.loss.delta_femto < 2 or self.loss.delta_femto >= DELTA_UNIT:
            raise ConfigError("must have epsilon >= 1e-8 and delta in [2e-15, 1)", "release", got=self.loss)
        if self._rho_nano < 1:
            raise ConfigError("must have a larger epsilon", "release", got=self.loss)
        check_average(2 * sqrt_up(self.radius_squared, 40), self._rho_nano)

    @cached_property
    def _first_nano(self) -> int:
        percent = 10 if self.size_hint is None else printed_noise(self.loss, self.size_hint)[1]
        return self.loss.epsilon_nano * percent // 100

    @cached_property
    def _rho_nano(self) -> int:
        """rho whose discrete Gaussian costs the rest of epsilon and half of delta, rounded down."""
        return gaussian_rho(self.loss.epsilon_nano - self._first_nano, self.loss.delta_femto // 2)

    @cached_property
    def size(self) -> LowerCount:
        """The first stage."""
        return LowerCount(self._first_nano, self.loss.delta)

    @property
    def offset(self) -> int:
        """How far the mean of n-hat lies below the size."""
        return self.size.offset

    def chance(self, size: float) -> float:
        """Return, approximately, the chance that a core of this size gets a value."""
        return 0.0 if size < 1 else self.size.chance(size)

    def sigma(self, n_hat: float) -> float:
        """Return the noise deviation per coordinate at a size, in lattice steps (without the rounding term)."""
        return 2 * math.sqrt(self.radius_squared) / n_hat / math.sqrt(2 * self._rho_nano / RHO_UNIT)

    def release(self, points: Selection, noise: Noise) -> Estimate | None:
        """Average the points with noise; None if they are too few."""
        size = points.size
        n_hat = self.size.draw(size, noise)
        if size == 0 or n_hat <= 0:
            return None
        width = 2 * sqrt_up(self.radius_squared, 40) / n_hat
        return _noisy_average(exact_sums(points), size, width, self._rho_nano, n_hat, noise)


def printed_noise(loss: DPLoss, size: int) -> tuple[float, int]:
    """Return the noise of an average of `size` points at sensitivity 1, and the percentage of epsilon for its size.

    Privacy
    -------
    Computed from public numbers alone, by the paper's formula, to compare divisions of a budget.

    Source
    ------
    Specification 5.7; erratum 1.9; Tsfadia et al. 2022, FriendlyAvg (section 3), DP form.
    """
    tail = math.sqrt(2 * math.log(2.5 / loss.delta))
    best = math.inf, 10
    for percent in (5, 10, 15, 20, 25, 30, 40, 50):
        first = percent / 100 * loss.epsilon
        n_hat = size - 1 - math.log(1 / loss.delta) / first
        if n_hat > 0:
            best = min(best, (tail / (loss.epsilon - first) / n_hat, percent))
    return best


@lru_cache(maxsize=256)
def gaussian_rho(epsilon_nano: int, delta_femto: int) -> int:
    """Return the largest rho (nano) whose tight conversion at a delta stays within an epsilon, rounded down.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.2, 5.7; proof 1.8; Canonne, Kamath, Steinke 2020.
    """
    return math.floor(rho_for_epsilon(epsilon_nano / EPSILON_UNIT, delta_femto / DELTA_UNIT) * RHO_UNIT)


class BasicOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "mean"``, ``method = "basic"``: a mean whose core is friendly with certainty.

    Released
    --------
    value, sigma, core_count
        As of other means; `count` is null, and so is `interval`: how many records were left out is not measured.
    parts.epsilon, parts.delta
        The (epsilon, delta) that a window costs.

    Cost
    ----
    rho and delta, at once: nothing is given back.

    Privacy
    -------
    `BasicMean` states the guarantee.

    Source
    ------
    Specification 5.7, 12.1; proofs 4.2, 5.2.
    """

    method: str = "basic"
    """``basic``: FriendlyCore in (ε, δ), for budgets that are kept so. It has more noise."""
    radius: float
    """Distance within which nearly all pairs of normal records of a window lie, in scaled units."""
    delta: float
    """What one window costs at most, as a δ."""
    alpha: float = 0.0
    """Records that are friends of all but this share of the others are always kept."""

    def build(self, setting: BuildContext) -> BasicMean:
        loss = self.approximate_loss(self.delta)
        radius_squared = setting.grid.lattice.radius_squared(self.radius, "release.radius")
        try:
            return BasicMean(loss, radius_squared, self.checked_size_hint(), self.alpha)
        except ConfigError as error:
            if error.key == "alpha":
                error.key = "release.alpha"
            raise


@dataclass(frozen=True)
class BasicMean(PointMechanism):
    """The mean of a `BasicFilter` core in the (epsilon, delta) paradigm.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss that is charged; `total` is the (epsilon, delta) that this pays for.
    radius_squared : int
        Known diameter of the data, squared, in lattice steps.
    size_hint : int
        Public guess of the number of records in a window.
    alpha : float
        Of `BasicFilter`: points with (1 - alpha) n friends are always kept.

    Privacy
    -------
    Protects one record, added or removed, with (epsilon, delta)-DP, where `total` is `BasicFilter.total` of
    `FriendlyAverageDP`. It is charged as zCDP with epsilon tanh(epsilon / 2) (see `zcdp_of_dp`), in one stage: the
    arithmetic of groups covers the whole only, so nothing is refunded.

    Source
    ------
    Specification 5.7; proofs 4.2, 5.2; erratum 1.4; Tsfadia et al. 2022, section 4.1 and Theorem 4.2.
    """

    loss: PrivacyLoss
    radius_squared: int
    size_hint: int
    alpha: float = 0.0
    kind: str = "mean"
    false_release: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 0.5:
            raise ConfigError("must be in [0, 1/2)", "alpha", got=self.alpha)
        _ = self.average  # refuses budgets that are too small, before any release

    @cached_property
    def core(self) -> BasicFilter:
        return BasicFilter(Fraction(str(self.alpha)))

    @cached_property
    def total(self) -> DPLoss:
        """The largest epsilon that the loss pays for, and its delta."""
        return paid_by(self.loss)

    @cached_property
    def average(self) -> FriendlyAverageDP:
        return FriendlyAverageDP(self.core.within(self.total), self.radius_squared, self.size_hint)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return FriendCounts(dimension, self.radius_squared, reach)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        core = self.core.select_core(view.in_order(), noise)
        assert core.mask is not None
        arrival_order = view.arrival_order()
        assert arrival_order is not None
        estimate = self.average.release(view.select(core.mask[arrival_order]), noise)
        parts = self.total.as_dict()
        if estimate is None:
            return Outcome("too_few", parts=parts)
        return Outcome(
            None,
            estimate.value,
            estimate.sigma,
            core_count=estimate.count + self.average.offset,
            parts=parts,
            no_interval=LEFT_OUT,
        )

    def forecast(self, size: int) -> Forecast:
        return Forecast(self.average.chance(size), self.average.sigma(max(1.0, size - self.average.offset)))

    def hint(self, reason: str) -> str:
        if reason == "too_few":
            return (
                "too few records lie within `release.radius` of each other (this method does not measure how many "
                "there are): use longer windows, raise `radius`, or raise `release.rho`"
            )
        return super().hint(reason)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        total = self.total
        line = (
            f"a window is ({total.epsilon:.4g}, {total.delta:.3g})-DP; what follows on its core is {self.average.loss}"
        )
        warnings = noise_warnings(self.forecast(size or self.size_hint).sigma, self.radius_squared)
        return PlanNotes((line,), warnings, {"epsilon_of_window": total.epsilon})


@lru_cache(maxsize=256)
def paid_by(loss: PrivacyLoss) -> DPLoss:
    """Return the largest (epsilon, delta)-DP loss that a zCDP loss pays for.

    Privacy
    -------
    Computed from public numbers alone: the inverse of `zcdp_of_dp`, rounded down.

    Source
    ------
    Specification 1.2, 5.7; proof 1.6.
    """
    epsilon = largest(lambda nano: zcdp_of_dp(DPLoss(nano)).rho_nano <= loss.rho_nano)
    return DPLoss(epsilon, loss.delta_femto)


Regime = Literal["best", "high", "moderate"]


@dataclass(frozen=True)
class EstimatedAverage:
    """EstAvg: `FriendlyGenerator` and `FriendlyAverageDP` for a public number of points of which one may be replaced.

    Parameters
    ----------
    total : DPLoss
        Largest loss of the whole.
    size : int
        n, public.
    radius_squared : int
        Known diameter of the data, squared, in lattice steps.
    beta : float
        Chance of no success on data with at most `outliers` outliers (of the regime ``high``).
    outliers : int
        Expected number, below (n - 1)/2 - 1.
    regime : str
        ``high`` stability has a success bit and suits few outliers; ``moderate`` always succeeds, costs (1 + n/m) times
        as much epsilon for the average and stands many; ``best`` takes the smaller predicted noise.

    Privacy
    -------
    Protects one point that is REPLACED by another, while n is public, with (epsilon, delta)-DP:
    `FriendlyGenerator.total` is at most `total`. So it is for arrays, not for windows, whose number of records is
    private. Shares come from public numbers.

    Source
    ------
    Specification 5.7; proofs 4.4, 5.2; erratum 2.1; Tsfadia et al. 2022, first version, EstAvg, with the average's DP
    form of the second.
    """

    total: DPLoss
    size: int
    radius_squared: int
    beta: float = 0.05
    outliers: int = 0
    regime: Regime = "best"

    def __post_init__(self) -> None:
        if self.regime not in ("best", "high", "moderate"):
            raise ConfigError("must be 'best', 'high' or 'moderate'", "regime", got=self.regime)
        if not 1e-15 <= self.beta < 0.5:
            raise ConfigError("must be in [1e-15, 1/2)", "beta", got=self.beta)
        if self.size < 3 or not 0 <= self.outliers <= (self.size - 3) / 2:
            raise ConfigError(
                "must be in [0, (n - 3)/2] with n >= 3", "outliers", got=Shown(f"{self.outliers} of n = {self.size}")
            )
        _ = self._design

    @property
    def generator(self) -> FriendlyGenerator:
        return self._design[0]

    @property
    def average(self) -> FriendlyAverageDP:
        return FriendlyAverageDP(self._design[1], self.radius_squared, self.size - self.outliers)

    @property
    def cost(self) -> DPLoss:
        """Actual loss of the whole: `FriendlyGenerator.total`, rounded up."""
        inner = self._design[1]
        return DPLoss.charge(*self.generator.total(inner.epsilon, inner.delta))

    @property
    def _design(self) -> tuple[FriendlyGenerator, DPLoss]:
        return _best_design(self)

    def candidates(self) -> list[FriendlyGenerator]:
        """List the generators to choose from, which depend on public numbers only."""
        epsilon, delta = self.total.epsilon, min(self.total.delta, 0.49)
        ramp = (self.size - 1) / 2 - self.outliers
        found = []
        if self.regime != "high":
            found.append(FriendlyGenerator(self.size, 0, 0, self.beta, ramp, growth=0))
        if self.regime != "moderate":
            found += [
                FriendlyGenerator(self.size, share * epsilon, delta, self.beta, ramp, self.outliers, growth)
                for growth in _GROWTHS
                for share in _BIT_SHARES
            ]
        return found

    def release(self, view: WindowView, noise: Noise) -> tuple[Generated, Outcome]:
        """Run generator and average; returns the generator's result (its mask is private) and the outcome.

        Without success the outcome is the same as with too few points.
        """
        generated = self.generator.draw(view.counts, noise)
        parts: dict[str, Any] = {
            "success": generated.success,
            "stability": self.generator.stability,
            "regime": "high" if self.generator.growth else "moderate",
            **self.cost.as_dict(),
        }
        estimate = self.average.release(view.select(generated.mask), noise) if generated.success else None
        if estimate is None:
            return generated, Outcome("too_few", parts=parts)
        core_count = estimate.count + self.average.offset
        return generated, Outcome(
            None, estimate.value, estimate.sigma, core_count=core_count, parts=parts, no_interval=LEFT_OUT
        )


@lru_cache(maxsize=64)
def _best_design(wanted: EstimatedAverage) -> tuple[FriendlyGenerator, DPLoss]:
    """Choose the generator with the smallest predicted noise; returns it and the loss that is left for the average."""
    best: tuple[float, FriendlyGenerator, DPLoss] | None = None
    for generator in wanted.candidates():
        inner = _inner(generator, wanted.total)
        if inner is None:
            continue
        noise = printed_noise(inner, wanted.size - wanted.outliers)[0]
        if best is None or noise < best[0]:
            best = noise, generator, inner
    if best is None or not math.isfinite(best[0]):
        raise ConfigError(
            f"must be larger: no division of {wanted.total} leaves an average of {wanted.size} points", "epsilon"
        )
    return best[1], best[2]


def _inner(generator: FriendlyGenerator, total: DPLoss) -> DPLoss | None:
    """Return the largest loss of an average after a generator; None if the generator leaves too little."""
    if generator.growth and (generator.epsilon >= total.epsilon or generator.stability > 1e6):
        return None

    def fits(nano: int) -> bool:
        # Above the total epsilon nothing fits, and exponentials could overflow.
        return nano <= total.epsilon_nano and DPLoss.charge(generator.total(nano / 1e9, 0)[0]).fits(total)

    epsilon = largest(fits) if fits(0) else 0
    if epsilon < 1000:
        return None
    delta = math.floor(total.delta_femto / generator.delta_factor(epsilon / 1e9) * (1 - 1e-9))
    return DPLoss(epsilon, delta) if delta >= 2 else None
