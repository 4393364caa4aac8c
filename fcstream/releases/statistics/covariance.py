"""Covariance matrices without any bound on the data: FriendlyCore on the matrices of shards, with (epsilon, delta)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import DELTA_UNIT, EPSILON_UNIT, DPLoss, PrivacyLoss
from ...cores.filters import ReplacementFilter
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...predicates.base import PredicateCounts
from ...predicates.matrices import MatrixDistance
from ...stream.lattice import Grid
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..means.approximate_dp import LowerCount, paid_by
from ..options import BuildContext, Options
from .moments import MomentsView, ShardMoments

LIMIT = 0.1
"""Distance of friendly matrices, the paper's."""
_FINE = 2**30  # a standard normal is a discrete Gaussian in multiples of 2**-30
_LARGEST_ETA = 1.0
_AGREE = 0.8  # part of the shards that the core should hold; a tenth of strangers leaves so many
_MAX_TOTAL = math.floor(3 * math.expm1(1) * EPSILON_UNIT)  # what an epsilon of 1 after the core costs
_UP = 1 + 1e-9


def allowed_distance(eta: float, loss: tuple[float, float], dimension: int) -> float:
    """Return gamma, the distance up to which `blur` is (epsilon, delta)-DP on two matrices, rounded down.

    Parameters
    ----------
    eta : float
        Noise of `blur`.
    loss : (float, float)
        epsilon and delta, in (0, 1].
    dimension : int

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 7.2; proof 8.1; Tsfadia et al. 2022, Appendix A, from Lemma 9.1 of Ashtiani and Liaw 2021.
    """
    epsilon, delta = loss
    d, log = dimension, math.log(2 / delta)
    return (
        min(
            math.sqrt(epsilon / (2 * d * (d + eta**-2))),
            epsilon / (8 * d * math.sqrt(math.log(1 / delta))),
            epsilon / (8 * log),
            epsilon * eta / (12 * math.sqrt(d * log)),
        )
        / _UP
    )


def blur(matrix: NDArray[np.float64], eta: float, noise: Noise) -> NDArray[np.float64]:
    """Add noise to a positive definite matrix: S (I + eta G) (I + eta G)^T S, S its root and G standard normal.

    The mean of the result is (1 + eta**2 d) times the matrix.

    Privacy
    -------
    (epsilon, delta)-DP for two matrices within `allowed_distance`. Known limit: roots and products are floating point,
    and G is normal up to multiples of 2**-30.

    Source
    ------
    Specification 7.2; proof 8.1; Tsfadia et al. 2022, Appendix A, from Ashtiani and Liaw 2021.
    """
    d = len(matrix)
    values, vectors = np.linalg.eigh(matrix)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    normal = noise.discrete_gaussian(_FINE**2, d * d).reshape(d, d) / _FINE
    factor = root + eta * (root @ normal)
    blurred: NDArray[np.float64] = factor @ factor.T
    return (blurred + blurred.T) / 2


@dataclass(frozen=True)
class FriendlyCovariance:
    """Mechanism for the mean of matrices of which any two share a friend within `limit`.

    Parameters
    ----------
    loss : DPLoss
        epsilon and delta, at most 1.
    dimension : int
    eta : float
        Noise of `blur`.
    limit : float
        Distance within which the predicate `MatrixDistance` calls two matrices friends.
    percent : int
        Percentage of epsilon that is spent on the number of matrices.

    Privacy
    -------
    Protects one matrix, added or removed, with (epsilon, delta)-DP for neighbors in which any two matrices share a
    friend, so it must run on a core only. It draws a noisy number of matrices (discrete Laplace, sensitivity 1),
    refuses if that is at most c1 / gamma, and then calls `blur`. Leaving out one of n such matrices moves their mean by
    at most c1 / n, with c1 = (1 + limit)**2 - 1. Known limit: floating point (see `blur` and `MatrixDistance`).

    Source
    ------
    Specification 7.2; proof 8.1; errata 1.9, 1.11; Tsfadia et al. 2022, FriendlyCovariance (appendix A). The paper's
    share for the number is 10%.
    """

    loss: DPLoss
    dimension: int
    eta: float
    limit: float = LIMIT
    percent: int = 10

    def __post_init__(self) -> None:
        if not 1e-100 <= self.eta <= 1e6:
            raise ConfigError("must be in [1e-100, 1e6]", "release.eta", got=self.eta)
        if self.loss.epsilon_nano > EPSILON_UNIT or not 2 <= self.loss.delta_femto < DELTA_UNIT:
            raise ConfigError("must have epsilon at most 1 and delta in [2e-15, 1)", "release", got=self.loss)
        if not 1 <= self.percent <= 90 or self._first_nano < 1:
            raise ConfigError(f"must leave something of {self.loss} for the number of matrices", "release")

    @property
    def _first_nano(self) -> int:
        return self.loss.epsilon_nano * self.percent // 100

    @property
    def gamma(self) -> float:
        """Distance that `blur` may hide, at the rest of epsilon and at delta less the cost of conditioning."""
        first = self._first_nano / EPSILON_UNIT
        second = (self.loss.epsilon_nano - self._first_nano) / EPSILON_UNIT
        return allowed_distance(self.eta, (second, self.loss.delta * math.exp(-first)), self.dimension)

    @property
    def needed(self) -> float:
        """Bound c1 / gamma that n-hat must exceed for a release."""
        return ((1 + self.limit) ** 2 - 1) / self.gamma * _UP

    @cached_property
    def number(self) -> LowerCount:
        """Mechanism of the first stage, which draws a noisy lower bound of the number of matrices."""
        return LowerCount(self._first_nano, self.loss.delta)

    @property
    def offset(self) -> int:
        """Public offset by which n-hat lies below the number of matrices, but for noise."""
        return self.number.offset

    def chance(self, count: float) -> float:
        """Return the probability that this many matrices get a release."""
        return self.number.chance(count, self.needed)

    def release(self, matrices: NDArray[np.float64], noise: Noise) -> tuple[NDArray[np.float64] | None, int]:
        """Return the blurred mean of the matrices (n, d, d) and n-hat; the mean is None if there are too few."""
        n_hat = self.number.draw(len(matrices), noise)
        if len(matrices) == 0 or n_hat <= self.needed:
            return None, n_hat
        return blur(matrices.mean(axis=0), self.eta, noise), n_hat


class CovarianceOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of ``kind = "covariance"`` with ``method = "friendly"``: a matrix without any range or scale.

    Released
    --------
    value, sigma
        The covariance matrix of the features, whatever its scale; it takes millions of records, where ``clipped`` takes
        thousands. There is no `interval`, since shards that do not agree are left out.
    parts.eta, parts.shards
        Noise relative to the matrix, and the noisy number of shards that agree.
    parts.epsilon, parts.delta
        The (epsilon, delta) that a window costs.

    Cost
    ----
    rho and delta, also for a refusal.

    Privacy
    -------
    `ShardCovariance` states the guarantee.

    Source
    ------
    Specification 7.3, 12.1; proof 8.2.
    """

    kind: str = "covariance"
    method: str = "friendly"
    """How: ``clipped`` moments, from thousands of records, or ``friendly`` shards, from millions."""
    delta: float
    """What one window costs at most, as a δ."""
    shards: int
    """Into how many shards a window is dealt; some hundred at least."""
    centered: bool = True
    """Whether the mean is taken off; without, second moments are released."""
    limit: float = LIMIT
    """How closely shards must agree."""
    eta: float | None = None
    """Noise of the matrix, relative to itself. Left out: the smallest with which this many shards release."""

    holds_records = False

    def build(self, setting: BuildContext) -> ShardCovariance:
        loss = self.approximate_loss(self.delta)
        return ShardCovariance(loss, setting.dimension, self.shards, self.centered, self.limit, self.eta)


def true_covariances(points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
    """Return the covariances (d, d) of all records, and their correlations; private."""
    if len(points) < 2:
        return None
    units = np.array([feature.scale * grid.lattice.step for feature in grid.features])
    matrix = np.atleast_2d(np.cov(points.T, bias=True)) * np.outer(units, units)
    deviations = np.sqrt(np.diag(matrix))
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"value": matrix.tolist(), "correlations": (matrix / np.outer(deviations, deviations)).tolist()}


@dataclass(frozen=True)
class ShardCovariance(Mechanism):
    """Mechanism FC_Covariance: it finds a core of shards whose matrices agree, and blurs the mean of that core.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss of a release; `total` is the (epsilon, delta) that this loss pays for.
    dimension : int
    shards : int
        t, public. Records fall into shards by independent coins.
    centered : bool
        Whether covariances are about each shard's own mean; otherwise they are about the features' origins.
    limit : float
        Distance within which two matrices are friends, relative to the matrices. Shards must hold enough records to
        agree so closely: about (4 (1 + sqrt(d)) / limit)**2. A wider limit needs far fewer records and more noise.
    eta : float or None
        Noise of `blur`. None takes the smallest noise with which this many shards release if a tenth of them are no
        friends of the others.

    Privacy
    -------
    Protects one record, added or removed, which replaces one shard's matrix, with (epsilon, delta)-DP. `total` is
    `ReplacementFilter.total` of `FriendlyCovariance`: (3 (e^epsilon - 1), 3 delta e^(epsilon + 3 (e^epsilon - 1))). It
    is charged as zCDP (see `zcdp_of_dp`), in one stage. Known limit: floating point.

    Source
    ------
    Specification 7.3; proof 8.2; errata 1.2, 1.3; Tsfadia et al. 2022, FC_Covariance (appendix A). Ours: the answer is
    divided by 1 + eta**2 d, the mean of what the noise multiplies it by.
    """

    loss: PrivacyLoss
    dimension: int
    shards: int
    centered: bool = True
    limit: float = LIMIT
    eta: float | None = None
    kind: str = "covariance"
    false_release: ClassVar[float] = 0.0  # shards without records are nobody's friends

    def __post_init__(self) -> None:
        if self.shards < 2:
            raise ConfigError("must be at least 2", "release.shards", got=self.shards)
        try:
            _ = self.predicate
        except ConfigError as error:
            error.key = "release.limit"
            raise
        _ = self.average  # refuses what cannot release, now

    @cached_property
    def predicate(self) -> MatrixDistance:
        return MatrixDistance(self.dimension, self.limit)

    @cached_property
    def total(self) -> DPLoss:
        """Largest epsilon that the loss pays for, at most 3 (e - 1), and its delta."""
        paid = paid_by(self.loss)
        return DPLoss(min(paid.epsilon_nano, _MAX_TOTAL), paid.delta_femto)

    @cached_property
    def average(self) -> FriendlyCovariance:
        """Mechanism of the blurred mean, with the eta and the share for the number of matrices that add least noise."""
        inner = ReplacementFilter().within(self.total)
        found = [self._design(inner, percent) for percent in (10, 20, 30, 40, 50, 60)]
        usable = [one for one in found if one.chance(_AGREE * self.shards) > 0.5]
        if not usable:
            needed = min(one.needed + one.offset for one in found) / _AGREE
            raise ConfigError(
                f"must be at least {math.ceil(needed)} for {self.dimension} features at {self.total}, got "
                f"{self.shards}: fewer never release",
                "release.shards",
            )
        return min(usable, key=lambda one: (one.eta, one.needed + one.offset))

    def _design(self, inner: DPLoss, percent: int) -> FriendlyCovariance:
        if self.eta is not None:
            return FriendlyCovariance(inner, self.dimension, self.eta, self.limit, percent)
        low, high = 1e-6, _LARGEST_ETA
        for _ in range(60):
            middle = math.sqrt(low * high)
            one = FriendlyCovariance(inner, self.dimension, middle, self.limit, percent)
            low, high = (low, middle) if one.chance(_AGREE * self.shards) >= 0.99 else (middle, high)
        return FriendlyCovariance(inner, self.dimension, high, self.limit, percent)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return ShardMoments(dimension, self.shards, noise)

    def release(self, view: MomentsView, charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        matrices = view.covariances(centered=self.centered)
        friends = PredicateCounts(self.predicate)
        friends.add(0, matrices)
        core = ReplacementFilter().select_core(friends.counts([0]), noise)
        assert core.mask is not None
        value, n_hat = self.average.release(matrices[core.mask], noise)
        parts = {"eta": self.average.eta, "shards": n_hat + self.average.offset, **self.total.as_dict()}
        if value is None:
            return Outcome("too_few", parts=parts)
        value = value / (1 + self.dimension * self.average.eta**2)  # what the noise adds on average, a public factor
        variances = np.diag(value)
        sigma = self.average.eta * np.sqrt(2 * (np.outer(variances, variances) + value**2))
        return Outcome(None, value, sigma, parts=parts, no_interval={"value": "left_out"})

    def hint(self, reason: str) -> str:
        if reason == "too_few":
            return (
                "too few shards agree: use longer windows, or raise `release.rho` or `release.limit` (this kind does "
                "not measure how many records there are)"
            )
        return super().hint(reason)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        """Convert matrices to products of the features' units."""
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None:
            return ReleaseValues(None, None, names, transforms, outcome.parts)
        units = np.array([feature.scale * grid.lattice.step for feature in grid.features])
        both = np.outer(units, units)
        return ReleaseValues(
            (outcome.value * both).tolist(),
            (outcome.sigma * both).tolist(),
            names,
            transforms,
            outcome.parts,
            no_interval=outcome.no_interval,
        )

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of normal records in which a tenth of the shards are no friends of the others.

        No sigma is forecast, because the noise depends on the data.
        """
        agree = 2 * size >= self.records_needed
        return Forecast(self.average.chance(_AGREE * self.shards) if agree else 0.0, math.nan)

    @property
    def records_needed(self) -> int:
        """Number of normal records with which nearly all shards agree; with half as many, nine shards of ten agree."""
        return self.shards * math.ceil((4 * (1 + math.sqrt(self.dimension)) / self.limit) ** 2)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        return true_covariances(points, grid)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Return the noise deviation of a variance, relative to that variance."""
        return {"relative": 2 * self.average.eta}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        total, needed = self.total, self.records_needed
        lines = (
            f"a window is ({total.epsilon:.4g}, {total.delta:.3g})-DP; eta is {self.average.eta:.3g}: a variance is "
            f"off by about {200 * self.average.eta:.3g}% of itself",
            f"shards agree from about {needed // self.shards} normal records each, {needed} a window",
        )
        warnings = []
        if size is not None and size < needed:
            warnings.append(f"`release.size_hint` = {size} is few: shards may not agree; widen `release.limit`")
        return PlanNotes(lines, tuple(warnings), {"eta": self.average.eta, "records_needed": needed})
