"""Centers of k clusters, found from shards, from tuples that agree, and by one noisy Lloyd step over all records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...counting.views import Selection, WindowView
from ...errors import ConfigError
from ...noise.samplers import Noise
from ..averages import BallAverage, Estimate, FriendlyAverage, Start, in_parts, to_center
from ..base import Forecast, percent
from ..floors import FALSE_RELEASE
from .found import ClusterCenters
from .ktuples import BallCenters
from .paper import PaperCenters
from .shards import Shards, ShardView
from .tree_centers import PublicBall, TreeClustering
from .tuples import TupleAverage, TwoCores

TupleMethod = TupleAverage | TwoCores | BallCenters | PaperCenters
"""What becomes of tuples."""
MIN_PER_CENTER = 4
"""Records of a cluster in a shard below which no oracle is worth asking."""


def nearest_labels(
    view: WindowView, centers: NDArray[np.float64], origin: tuple[int, ...], ball_squared: int
) -> NDArray[np.int64]:
    """Find the nearest center of each record, in the order of the view's points; -1 outside the public ball.

    Privacy
    -------
    NOT private: only for parts that are averaged with noise. A label is a function of its record and of released
    centers.

    Source
    ------
    Specification 6.11; proof 7.8; Tsfadia et al. 2022, NoisyLloydStep.
    """
    from ..._kernels import clusters

    everyone = view.select(np.ones(view.size, np.bool_))
    found, rounded = [], np.ascontiguousarray(to_center(centers))
    for tiles, inside in everyone.parts:
        labels = np.full(len(inside), -1, np.int64)
        around = np.array(origin, np.float64)
        clusters.label(tiles, len(inside), inside, around, float(ball_squared), rounded, labels)
        found.append(labels[inside])
    return np.concatenate(found) if found else np.empty(0, np.int64)


@dataclass(frozen=True)
class LloydStep:
    """Mechanism of one noisy Lloyd step: it puts every record to its nearest released center and averages each part.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss of the step; only ``friendly`` uses its delta.
    origin : tuple of int
        Center of the public ball, a lattice point.
    ball_squared : int
        Squared radius of the public ball in lattice steps; records outside are dropped.
    spread_squared : int or None
        Public squared radius of a cluster: each part is then clipped to that ball around its released center.
    parts : int
        Number of parts, public.
    method : str
        ``ball`` (`BallAverage`) or ``friendly`` (`FriendlyAverage` with twice the ball's radius, as printed).

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP, or (rho, delta)-zCDP for ``friendly``. A record is in one part
    only, so every part may use all of rho. The sensitivity of a part is R in its sum and 1 in its count. Replacing a
    record would cost max(4 rho_sum, 2 rho_sum + 2 rho_count), because within one part a sum moves by up to 2 R. The
    nearest center is a function of the record and the released centers alone. A part with too few records keeps its
    center, by a rule on its released count.

    Complexity
    ----------
    O(n k d).

    Source
    ------
    Specification 6.11; proof 7.8; Tsfadia et al. 2022, NoisyLloydStep, which averages with FriendlyAvg at r = 2 Lambda;
    parts lie in a known ball, so `BallAverage` has the same guarantee with a quarter of the noise (0.47 of the
    deviation at d = 1, 0.29 at d = 20). Around the released centers: PrivatekMeans of Cohen et al. 2021.
    """

    loss: PrivacyLoss
    origin: tuple[int, ...]
    ball_squared: int
    spread_squared: int | None = None
    method: str = "ball"
    parts: int = 1

    def __post_init__(self) -> None:
        if self.method not in ("ball", "friendly"):
            raise ConfigError("must be 'ball' or 'friendly'", "lloyd", got=self.method)
        _ = self.ball if self.method == "ball" else self.friendly

    @cached_property
    def ball(self) -> BallAverage:
        return BallAverage.split(self.loss.rho_nano, len(self.origin), self.parts)

    @cached_property
    def friendly(self) -> FriendlyAverage:
        return FriendlyAverage(self.loss, 4 * self.ball_squared)

    def release(
        self, view: WindowView, centers: NDArray[np.float64], noise: Noise, start: Start
    ) -> tuple[Estimate, NDArray[np.int64]]:
        """Return new centers with value and sigma (k, d), and the parts' noisy counts (k,).

        A part with too few records keeps its center, and its sigma is nan. `start` is called for the counts, and for
        the sums if any part has enough records for a sum.
        """
        begin = in_parts(start)
        labels = nearest_labels(view, centers, self.origin, self.ball_squared)
        value, sigma = centers.copy(), np.full_like(centers, np.nan)
        counts = np.zeros(len(centers), np.int64)
        for j in range(len(centers)):
            found, counts[j] = self._part(view.select(labels == j), to_center(centers[j]), noise, begin())
            if found is not None:
                value[j], sigma[j] = found.value, found.sigma
        return Estimate(value, sigma, int(counts.sum())), counts

    def _part(
        self, part: Selection, center: NDArray[np.float64], noise: Noise, start: Start
    ) -> tuple[Estimate | None, int]:
        if self.method == "friendly":
            found = self.friendly.release(part, noise, start)
            return found, 0 if found is None else found.count + self.friendly.offset
        if self.spread_squared is not None:
            return self.ball.release(part, center, self.spread_squared, noise, start)
        return self.ball.release(part, np.array(self.origin, np.float64), self.ball_squared, noise, start)


@dataclass(frozen=True)
class ClusteringAlgorithm:
    """Algorithm FC_Clustering, which finds k centers of a window's records.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of one release.
    shards : Shards
    average : TupleAverage, TwoCores, BallCenters or PaperCenters
        Method that turns the tuples into one tuple of centers. The rho that its loss and `fallback_nano` leave goes to
        the Lloyd step.
    lloyd : LloydStep
    fallback_nano : int
        rho (nano) kept for `TreeClustering` in case the tuples do not match, which then also gets the rho of the stages
        of the Lloyd step and the average that were not started. With 0 the window is then refused.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP by composition: with all coins given, a record
    REPLACES one of t tuples (`Shards`, `TupleAverage`), and it is in one part of the Lloyd step (`LloydStep`). What is
    started after the tuples depends on whether their average was released, which is a released fact. Centers are a set:
    they are sorted after the noise.

    Source
    ------
    Specification 6.12; proof 7.8; erratum 1.2; Tsfadia et al. 2022, FC_Clustering, with one core (`TupleAverage`);
    Cohen et al. 2021, PrivatekMeans.
    """

    loss: PrivacyLoss
    shards: Shards
    average: TupleMethod
    lloyd: LloydStep
    fallback_nano: int = 0

    def __post_init__(self) -> None:
        needed = self.average.loss + self.lloyd.loss + PrivacyLoss(self.fallback_nano)
        if not needed.fits(self.loss):
            raise ConfigError(f"must hold its parts: {needed} of {self.loss}", "shares")
        if (self.average.tuples, self.average.k) != (self.shards.tuples, self.shards.k):
            raise ConfigError("must be of the same tuples as the shards", "average")
        if self.fallback_nano:  # it gets as much at least
            _ = self._tree(self.fallback_nano)

    @property
    def k(self) -> int:
        return self.shards.k

    @property
    def false_release(self) -> float:
        """Bound of the probability that a window without records gets centers.

        Some part must seem to have enough records for that, or all records together for a fallback.
        """
        step = self.lloyd.ball.false_release if self.lloyd.method == "ball" else 0.0
        return max(step, float(FALSE_RELEASE)) if self.fallback_nano else step

    def _tree(self, rho_nano: int) -> TreeClustering:
        """Make the fallback, in the box around the public ball."""
        return TreeClustering(rho_nano, self.k, self._ball.box())

    @property
    def _ball(self) -> PublicBall:
        return PublicBall(self.lloyd.origin, self.lloyd.ball_squared)

    def find(self, view: WindowView | ShardView, noise: Noise, start: Start) -> ClusterCenters:
        """Find the centers of one window, or refuse; `start` is called before every stage."""
        if isinstance(view, ShardView):
            if len(view.tuples) == self.shards.tuples:
                return self.from_tuples(view.tuples, view.view, noise, start)
            view = view.view  # learners were made for another rho, and so for another number of shards
        return self.from_tuples(self.shards.tuples_of(view.points(), noise), view, noise, start)

    def from_tuples(self, tuples: NDArray[np.float64], view: WindowView, noise: Noise, start: Start) -> ClusterCenters:
        """Find the centers from the oracles' tuples, or refuse; `start` is called before every stage."""
        spent = [PrivacyLoss()]

        def counted(stage: PrivacyLoss) -> None:
            spent[0] = spent[0] + stage
            start(stage)

        reason, rough = self.average.release(tuples, noise, counted)
        if rough is not None:
            found, counts = self.lloyd.release(view, rough.value, noise, counted)
            # A center that its part could not improve has the noise of the tuples' average.
            sigma = np.where(np.isnan(found.sigma), rough.sigma, found.sigma)
            return ClusterCenters.of(found, sigma, counts, rough.count or None)
        if self.fallback_nano == 0:
            return ClusterCenters(reason)
        return self._tree((self.loss - spent[0]).rho_nano).find(self._ball.inside(view.points()), noise, counted)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of `size` records in k clusters of equal size whose tuples all match."""
        radius = self.lloyd.spread_squared or self.lloyd.ball_squared
        return Forecast(chance_of(self.average, size), self.lloyd.ball.sigma(radius, max(1.0, size / self.k)))


def chance_of(average: TupleMethod, size: int) -> float:
    """Return the probability that tuples of `size` records in k equal clusters are released if they all match.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """
    if isinstance(average, TwoCores):
        return math.nan  # for reference: it has no forecast
    if size < MIN_PER_CENTER * average.k * average.tuples:
        return 0.0
    return average.forecast(0.0, average.min_count)[0] if isinstance(average, TupleAverage) else 1 - average.test.beta


ALL_AGREE = " in k equal clusters that all shards find"


def chance_by_agreement(average: TupleMethod, k: int) -> tuple[str, list[dict[str, float]]]:
    """Describe, in words and as numbers, how often tuples are released, by the share of shards that find other centers.

    That share depends on the data; no public number determines it.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """
    if isinstance(average, TupleAverage):
        shares = [0.0, *(_share_at(average, chance) for chance in (0.95, 0.05))]
        chances = [average.forecast(share, average.min_count)[0] for share in shares]
    elif isinstance(average, TwoCores):
        return "", []  # for reference: it has no forecast
    else:
        shares, chances = [0.0], [1 - average.test.beta]
    table = [{"shards_that_differ": s, "probability": p} for s, p in zip(shares, chances, strict=True)]
    cases = [f"{percent(p)} if {s:.0%} of them do not" for s, p in zip(shares[1:], chances[1:], strict=True)]
    text = (
        f"with probability {percent(chances[0])} if all {average.tuples} shards find the same {k} centers"
        f"{''.join(f', {case}' for case in cases)}; whether they do, only the data tell"
    )
    return text, table


def _share_at(average: TupleAverage, chance: float) -> float:
    """Find the share of shards that may differ from the rest while tuples are still released with this probability."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if average.forecast(middle, average.min_count)[0] >= chance else (low, middle)
    return low
