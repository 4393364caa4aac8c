"""Mixtures of clusters: weights, means and covariances, found from two halves of the records."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, Lattice
from ...stream.totals import gram_totals
from ..averages import (
    BallAverage,
    Start,
    _no_stages,
    check_noise,
    gaussian_variance,
    in_parts,
    noisy_products,
    product_deviations,
    to_center,
)
from ..base import Forecast, Outcome, ReleaseValues
from ..options import BuildContext
from .centers import CLUSTERS, ClusterOptions, ClusterRelease, centers_in_user_units, checked
from .ktuples import BallCenters
from .paper import PaperCenters
from .pipeline import chance_of, nearest_labels
from .plan import ClusterJob
from .shards import Shards
from .tuples import TupleAverage

_PRODUCT_BITS = 32  # of a clipped offset's squared length: a sum of 2**30 products fits an int64


@dataclass(frozen=True, slots=True)
class ClusterMixture:
    """Mixture found for a window, or a refusal, in lattice steps; all of it counts as released.

    Attributes
    ----------
    reason : str or None
        None if a mixture was released; ``no_radius`` or ``no_match`` if the tuples do not agree, ``too_few`` if no part
        has enough records.
    counts : int64 (k,) or None
        Noisy number of the learning half's records in each part.
    means, sigma : float64 (k, d) or None
        Means in ascending order, and their noise per coordinate. A part with too few records keeps its center.
    covariances : float64 (k, d, d) or None
        Noisy, positive semidefinite covariances of the records within the spread of their center; 0 for a part with too
        few records.
    covariance_sigma : float64 (k, d, d) or None
        Noise deviations of their entries.
    tuples : int or None
        Noisy number of tuples that agreed; None if that number is not known.
    shares : float64 (k,) or None
        Weights that were fitted, if they were.

    Privacy
    -------
    Holds released values only.

    Source
    ------
    Specification 6.14; ours.
    """

    reason: str | None
    counts: NDArray[np.int64] | None = None
    means: NDArray[np.float64] | None = None
    sigma: NDArray[np.float64] | None = None
    covariances: NDArray[np.float64] | None = None
    covariance_sigma: NDArray[np.float64] | None = None
    tuples: int | None = None
    shares: NDArray[np.float64] | None = None

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """Weights of the clusters, float64 (k,): `shares`, or else the positive parts of the counts, normalized."""
        if self.shares is not None or self.counts is None:
            return self.shares
        positive = np.maximum(self.counts, 0).astype(np.float64)
        weights: NDArray[np.float64] = positive / positive.sum()
        return weights

    def ascending(self) -> ClusterMixture:
        """Return the mixture with its clusters in the order of their means."""
        assert self.means is not None
        order = np.lexsort(self.means.T[::-1])
        every = {own.name: getattr(self, own.name) for own in fields(self)}
        changed: Any = {name: own[order] for name, own in every.items() if isinstance(own, np.ndarray)}
        return replace(self, **changed)

    def outcome(self) -> Outcome:
        """Return the outcome for the engine; its covariances are still in lattice steps."""
        if self.counts is None or self.weights is None or self.means is None or self.covariance_sigma is None:
            return Outcome(self.reason)
        total, parts = int(self.counts.sum()), {
            "weights": self.weights.tolist(),
            "covariances": self.covariances,
            "covariance_sigma": self.covariance_sigma,
            "counts": self.counts.tolist(),
            "tuples": self.tuples,
        }  # fmt: skip
        return Outcome(None, self.means, self.sigma, core_count=total, parts=parts)


@dataclass(frozen=True, slots=True)
class ComponentEstimate:
    """Estimate of one part of a mixture; all of it is released. sigma is None for too few records, see
    `ClusterMixture`.

    Privacy
    -------
    Holds released values only.

    Source
    ------
    Specification 6.14; ours.
    """

    count: int
    mean: NDArray[np.float64]
    sigma: NDArray[np.float64] | None
    covariance: NDArray[np.float64]
    covariance_sigma: NDArray[np.float64]


@dataclass(frozen=True)
class ComponentLearner:
    """Mechanism for the count, mean and second moments of one part, around a released center.

    Parameters
    ----------
    rho_nano : int
    dimension : int
    spread_squared : int
        Squared radius of the ball to which records are clipped, public.
    parts : int
        Number of parts, public.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP: a third for count and mean (`BallAverage`), the rest for the
    second moments (`noisy_products`).

    Source
    ------
    Specification 6.14; proofs 7.9, 8.3; Gaussian mechanism; Cohen et al. 2021 take any learner of one Gaussian.
    """

    rho_nano: int
    dimension: int
    spread_squared: int
    parts: int = 1

    def __post_init__(self) -> None:
        check_noise(self._ball**2, self._rest)

    @cached_property
    def average(self) -> BallAverage:
        """Mechanism for the count and the mean."""
        return BallAverage.split(self.rho_nano // 3, self.dimension, self.parts)

    @property
    def _rest(self) -> int:
        """Return the rho (nano) of the second moments."""
        return self.rho_nano - self.rho_nano // 3

    @property
    def _shift(self) -> int:
        """Return the number of binary digits that a coordinate drops before it is multiplied."""
        return max(0, math.ceil((self.spread_squared.bit_length() - _PRODUCT_BITS) / 2))

    @property
    def _ball(self) -> int:
        """Return the squared length of a clipped offset after these digits are dropped."""
        return -(-self.spread_squared >> 2 * self._shift)

    def release(
        self, view: WindowView, part: NDArray[np.bool_], points: NDArray[np.float64], center: NDArray[np.float64],
        noise: Noise, start: Start = _no_stages,
    ) -> ComponentEstimate:  # fmt: skip
        """Estimate one part from its records in a view.

        `start` is called for three stages: count, sum, second moments.
        """
        from ..._kernels import clusters

        d = self.dimension
        found, count = self.average.release(view.select(part), center, self.spread_squared, noise, start)
        if found is None:
            return ComponentEstimate(count, center, None, np.zeros((d, d)), np.zeros((d, d)))
        rest, shift, ball = self._rest, self._shift, self._ball
        start(PrivacyLoss(rest))
        clipped = np.empty((int(np.count_nonzero(part)), d), np.int64)
        clusters.clip(np.ascontiguousarray(points[part] - center), float(self.spread_squared), shift, clipped)
        variance = gaussian_variance(ball * ball, rest)
        unit = 4.0**shift / count
        second = noisy_products(gram_totals(clipped, ball), variance, noise) * unit
        offset = found.value - center
        values, vectors = np.linalg.eigh(second - np.outer(offset, offset))
        covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return ComponentEstimate(count, found.value, found.sigma, covariance, product_deviations(variance, d) * unit)


def mixture_of(
    parts: Sequence[ComponentEstimate], sigma: Sequence[NDArray[np.float64]], tuples: int | None = None
) -> ClusterMixture:
    """Return the mixture of these parts; sigma is the noise of each mean.

    Privacy
    -------
    Post-processing of released values.

    Source
    ------
    Specification 6.14; ours.
    """
    return ClusterMixture(
        None,
        np.array([part.count for part in parts], np.int64),
        np.stack([part.mean for part in parts]),
        np.stack(sigma),
        np.stack([part.covariance for part in parts]),
        np.stack([part.covariance_sigma for part in parts]),
        tuples,
    )


@dataclass(frozen=True)
class MixtureAlgorithm:
    """Algorithm PrivatekGMM: one half of the records makes the tuples, and the mixture is learned from the other half.

    Parameters
    ----------
    shards : Shards
    average : TupleAverage, BallCenters or PaperCenters
        Method that turns the first half's tuples into one tuple of centers.
    learner_nano : int
        rho (nano) of one part's learner.
    spread_squared : int
        Public squared radius of a component around its center.

    Privacy
    -------
    Protects one record, added or removed. Every record flips a coin for its half, so it is in one only, and the cost is
    the larger of the tuples' (`average.loss`) and of ONE part's learner, in rho and in delta each. If the tuples do not
    agree, the answer is a refusal that costs what they started; a record of the other half has then lost nothing.
    Replacing a record would cost two parts' learners, or one part's own cost under replacement, up to 4 rho.

    Source
    ------
    Specification 6.14; proof 7.9; erratum 4.5; Cohen et al. 2021, PrivatekGMM (section 6). Ours: halves by coins (the
    paper cuts by position, which breaks when a record is added), and the cost of one part under add or remove.
    """

    shards: Shards
    average: TupleAverage | BallCenters | PaperCenters
    learner_nano: int
    spread_squared: int

    def __post_init__(self) -> None:
        if self.learner_nano < 9:
            raise ConfigError("must be at least 9e-9 for a count, a mean and second moments", "rho")
        if not 1 <= self.spread_squared < 2**53:
            raise ConfigError("must be in [1, 2**53) squared lattice steps", "spread", got=self.spread_squared)
        _ = self.learner.average  # refuses a budget that is too small to split, now

    @classmethod
    def of(cls, job: ClusterJob, loss: PrivacyLoss, lattice: Lattice) -> MixtureAlgorithm:
        """Make the algorithm, in which both halves use all of rho; `job` describes the first half."""
        if job.spread is None:
            raise ConfigError("is required: records are clipped to that distance from their center", "spread")
        shards, average = replace(job, lloyd=False).parts(loss, lattice)
        return cls(shards, average, loss.rho_nano, lattice.radius_squared(job.spread, "spread"))

    @property
    def loss(self) -> PrivacyLoss:
        """Loss of one release."""
        tuples = self.average.loss
        return PrivacyLoss(max(tuples.rho_nano, self.learner_nano), tuples.delta_femto)

    @cached_property
    def learner(self) -> ComponentLearner:
        return ComponentLearner(self.learner_nano, len(self.shards.origin), self.spread_squared, self.shards.k)

    def release(self, view: WindowView, noise: Noise, start: Start) -> ClusterMixture:
        """Find the mixture of one window, or refuse; `start` is called before every stage."""
        points = view.points()
        half = noise.uniform_integers(2, len(points)) == 1
        return self.from_tuples(self.shards.tuples_of(points[half], noise), half, view, noise, start)

    def from_tuples(
        self, tuples: NDArray[np.float64], half: NDArray[np.bool_], view: WindowView, noise: Noise, start: Start
    ) -> ClusterMixture:
        """Find the mixture from the oracles' tuples; `half` (n,) marks the records that made the tuples."""
        points = view.points()
        paid = learned = 0

        def counted(stage: PrivacyLoss) -> None:
            nonlocal paid
            paid += stage.rho_nano
            start(stage)

        def topped_up(stage: PrivacyLoss) -> None:
            nonlocal paid, learned
            learned += stage.rho_nano
            if learned > paid:  # a record pays for one of the halves
                start(PrivacyLoss(learned - paid))
                paid = learned

        reason, rough = self.average.release(tuples, noise, counted)
        if rough is None:
            return ClusterMixture(reason)
        begin = in_parts(topped_up)
        labels = nearest_labels(view, rough.value, self.shards.origin, self.shards.ball_squared)
        labels[half] = -1
        parts = [
            self.learner.release(view, labels == j, points, to_center(center), noise, begin())
            for j, center in enumerate(rough.value)
        ]
        if all(part.sigma is None for part in parts):
            return ClusterMixture("too_few")
        # A center that its part could not improve has the noise of the tuples' average.
        sigma = [rough.sigma[j] if part.sigma is None else part.sigma for j, part in enumerate(parts)]
        return mixture_of(parts, sigma, rough.count or None).ascending()

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of `size` records in k equal clusters whose tuples all match; sigma is that of a mean."""
        records = max(1.0, size / 2 / self.shards.k)
        return Forecast(chance_of(self.average, size // 2), self.learner.average.sigma(self.spread_squared, records))


class MixturesOptions(ClusterOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "mixtures"``, a mixture of k well separated clusters; see
    `ClusterOptions`.

    Released
    --------
    value, sigma
        The means of k clusters.
    parts.weights, parts.counts
        Share and noisy number of records of each cluster.
    parts.covariances, parts.covariance_sigma, parts.covariance_interval
        A covariance matrix for each cluster, and the deviation of its noise.
    parts.clipped, parts.tuples
        As of `centers`.

    Cost
    ----
    rho and delta. A record is in the half that finds clusters or in the half that they are learned from, so both
    together cost no more.

    Privacy
    -------
    `MixturesRelease` states the guarantee.

    Source
    ------
    Specification 6.14, 12.1; proof 7.9.
    """

    kind: str = "mixtures"
    spread: float
    """Public radius of a cluster, in scaled units, which records are clipped to."""
    delta: float = 0.0
    """What one window costs at most, as a δ."""

    def build(self, setting: BuildContext) -> MixturesRelease:
        loss = self.approximate_loss(self.delta)
        job = self.job(setting, self.checked_size_hint() // 2, spread=self.spread)
        return checked(MixturesRelease(loss, replace(job, lloyd=False), setting.grid.lattice))


def mixture_in_user_units(outcome: Outcome, grid: Grid) -> ReleaseValues:
    """Convert a mixture to the user's units, its means as `centers_in_user_units` does.

    Privacy
    -------
    Post-processing of an outcome, which is released.

    Source
    ------
    Specification 6.14; ours.
    """
    plain = centers_in_user_units(outcome, grid)
    if plain.parts is None:
        return plain
    units = np.array([feature.scale * grid.lattice.step for feature in grid.features])
    both = np.outer(units, units)
    own = {
        "covariances": (plain.parts["covariances"] * both).tolist(),
        "covariance_sigma": [
            (sigma * both).tolist() if np.isfinite(sigma).all() else None for sigma in plain.parts["covariance_sigma"]
        ],
    }
    words = {**(plain.no_interval or {}), **({"covariances": CLUSTERS} if any(own["covariance_sigma"]) else {})}
    return replace(plain, parts={**plain.parts, **own}, no_interval=words)


@functools.lru_cache(maxsize=64)
def _built(job: ClusterJob, loss: PrivacyLoss, lattice: Lattice) -> MixtureAlgorithm:
    """Make the algorithm of a job, and cache it: planning is slow, and savings and forecasts need it repeatedly."""
    return MixtureAlgorithm.of(job, loss, lattice)


@dataclass(frozen=True)
class MixturesRelease(ClusterRelease):
    """Release of a mixture; value and sigma are the means of k clusters and their noise.

    ``parts`` holds ``weights``; ``covariances``, k matrices in products of the features' units, with
    ``covariance_sigma``, the noise deviation of every entry; ``counts``, the noisy numbers of records they were learned
    from (half of all); ``tuples``, the noisy number of shards that agreed. Parameters are those of `ClusterRelease`;
    `job` describes the half of the records that makes the tuples.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP by `MixtureAlgorithm`. A window whose shards do not
    agree is refused as by `CentersRelease`, which refunds the stages that were not started. The coins for halves and
    shards are drawn when the window closes.

    Source
    ------
    Specification 6.14; proof 7.9; erratum 4.5; Cohen et al. 2021, PrivatekGMM.
    """

    kind: str = "mixtures"

    @property
    def inner(self) -> MixtureAlgorithm:
        return _built(self.job, self.loss, self.lattice)

    @property
    def average(self) -> TupleAverage | BallCenters | PaperCenters:
        return self.inner.average

    @property
    def false_release(self) -> float:
        return self.inner.learner.average.false_release

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.inner.release(view, noise, charge.start).outcome()

    def forecast(self, size: int) -> Forecast:
        return self.inner.forecast(size)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return mixture_in_user_units(outcome, grid)

    def with_size_hint(self, size_hint: int) -> MixturesRelease:
        changed: MixturesRelease = super().with_size_hint(size_hint // 2)
        return changed
