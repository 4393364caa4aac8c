"""Releases of cluster centers, ``kind = "centers"``, and the base classes of all kinds about clusters."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, Lattice, multiples
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext, Options
from .ktuples import BallCenters
from .oracles import Incremental
from .paper import PaperCenters
from .pipeline import ALL_AGREE, ClusteringAlgorithm, chance_by_agreement
from .plan import BallPlan, ClusterJob, PaperPlan, PlanChoice
from .shards import ShardCounts, ShardView
from .tuples import TupleAverage

Made = TypeVar("Made", bound="ClusterRelease")


class ClusterOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration keys that all kinds about clusters share.

    Records count, and centers may lie, in a public ball around `center` with the radius `ball`. `center` is given in
    the features' own (transformed) units; by default it is the middle of their ranges. `ball`, `radius`, `radius_min`
    and `spread` are distances in scaled units, as is a mean's `radius`. Without `ball` the ball reaches the corners of
    the ranges.

    Privacy
    -------
    Each kind's release states its guarantee.

    Source
    ------
    Specification 6.12, 6.14; proofs 7.8, 7.9.
    """

    k: int
    """Number of clusters."""
    method: str = "auto"
    """How centers are made of the tuples that parts of the window give: from a core of tuples (``friendly``), by the
    k-tuple paper (``ktuples``), or whichever works for clusters that lie closer (``auto``)."""
    center: list[float] | None = None
    """Center of the public ball where records count and centers may lie, in the features' own (transformed) units.
    Left out: the middle of their ranges."""
    ball: float | None = None
    """Radius of that ball, in scaled units. Left out: it reaches the corners of the ranges."""
    oracle: str = "auto"
    """What finds clusters in a part of the records, without privacy: ``auto``, ``kmeans``, ``gaussians``, ``pca``,
    ``scipy``, or ``minibatch``, which learns while records come."""
    radius: float | str = "histogram"
    """How close the centers of two parts must be to match, in scaled units: found privately (``histogram``,
    ``search``), or public."""
    radius_min: float | None = None
    """Smallest distance that is looked at, in scaled units. Left out: a thousandth of ``ball``."""
    tuples: int | None = None
    """How many parts a window is dealt into. Left out: as many as the budget asks for."""
    variant: Literal["paper"] | None = None
    """With method ``ktuples``: ``paper`` takes the k-tuple paper's own radii and Laplace noise, to compare with. It
    asks for clusters hundreds of times farther apart, and is paid at once."""

    always: ClassVar[tuple[str, ...]] = ("kind", "rho", "k", "delta")

    def job(self, setting: BuildContext, size_hint: int, **more: Any) -> ClusterJob:
        """Make the job that the keys describe, for `size_hint` records that tuples are made of.

        `more` are further arguments of `ClusterJob`.
        """
        if isinstance(self.k, int) and self.k < 1:
            raise ConfigError("must be at least 1", "release.k", got=self.k)
        if isinstance(self.radius, str) and self.radius not in ("histogram", "search"):
            raise ConfigError("must be 'histogram', 'search' or a number", "release.radius", got=self.radius)
        for name, value in (("ball", self.ball), ("radius_min", self.radius_min), ("spread", more.get("spread"))):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError("must be a positive number", f"release.{name}", got=value)
        if not isinstance(self.k, int):
            raise ConfigError(f"must be a whole number for method {self.method!r}", "release.k", got=self.k)
        center, ball = place_and_reach(self.center, self.ball, setting.grid)
        return ClusterJob(
            self.k,
            center,
            ball,
            size_hint,
            self.oracle,
            self.radius,
            self.radius_min,
            self.tuples,
            method=self.method,
            variant=self.variant,
            **more,
        )


def checked(release: Made) -> Made:
    """Return the release unchanged if it can work; otherwise raise a `ConfigError` that names the key at fault.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """
    try:
        _ = release.average, release.choice
    except ConfigError as error:
        if not error.key.startswith(("release", "lattice")):
            error.key = f"release.{error.key}"
        raise
    return release


class CentersOptions(ClusterOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "centers"``: k centers of well separated clusters; see `ClusterOptions`.

    Released
    --------
    value
        k centers, clipped to the public ranges.
    sigma
        One number for each coordinate of each center; null where a coordinate was not measured.
    parts.counts
        Noisy number of records of each center.
    parts.clipped
        For each center whether it or its number was clipped.
    parts.tuples
        Number of tuples that were compared.

    Cost
    ----
    rho and delta; a refusal about 5% of rho and no delta, unless nearly enough of the tuples agree.

    Privacy
    -------
    `CentersRelease` states the guarantee.

    Source
    ------
    Specification 6.12, 12.1; proof 7.8.
    """

    kind: str = "centers"
    spread: float | None = None
    """Public radius of a cluster, in scaled units, which records are clipped to in the last step."""
    fallback: str | None = None
    """``tree``: where parts do not agree, method ``tree`` answers with what is left of ``rho``."""
    fallback_share: float = 0.1
    """Part of ``rho`` that the fallback has."""
    delta: float = 0.0
    """What one window costs at most, as a δ."""

    def build(self, setting: BuildContext) -> CentersRelease:
        loss = self.approximate_loss(self.delta)
        more = {"spread": self.spread, "fallback": self.fallback, "fallback_share": self.fallback_share}
        job = self.job(setting, self.checked_size_hint(), **more)
        return checked(CentersRelease(loss, job, setting.grid.lattice))


def place_and_reach(center: list[float] | None, ball: float | None, grid: Grid) -> tuple[tuple[float, ...], float]:
    """Return center and radius, in scaled units, of the public ball that a configuration gives; see `ClusterOptions`.

    Privacy
    -------
    A function of the configuration alone.

    Source
    ------
    Specification 6.11; ours.
    """
    (low, high), middle = _corners(grid), _middle(center, grid)
    step = grid.lattice.step
    low = np.minimum(low, multiples(grid.lowest, step)).tolist()  # whose lattice points may lie beyond the ranges
    high = np.maximum(high, multiples(grid.highest, step)).tolist()
    reach = math.dist([max(c - a, b - c) for a, b, c in zip(low, high, middle, strict=True)], [0.0] * len(low))
    return middle, reach if ball is None else ball


def _corners(grid: Grid) -> tuple[list[float], list[float]]:
    """Return the lower and the upper corner of the public ranges, in scaled units."""
    ends = [feature.scaled_range for feature in grid.features]
    return [low for low, _ in ends], [high for _, high in ends]


def _middle(center: list[float] | None, grid: Grid) -> tuple[float, ...]:
    """Convert a public center in the features' own (transformed) units to scaled units.

    None takes the middle of the features' ranges.
    """
    low, high = _corners(grid)
    if center is None:
        return tuple((a + b) / 2 for a, b in zip(low, high, strict=True))
    if len(center) != grid.dimension or not all(map(math.isfinite, center)):
        raise ConfigError(f"must list {grid.dimension} finite numbers", "release.center")
    scaled = tuple((x - f.origin) / f.scale for x, f in zip(center, grid.features, strict=True))
    at = grid.lattice.coordinates(scaled)
    for feature, is_inside in zip(grid.features, (grid.lowest <= at) & (at <= grid.highest), strict=True):
        if not is_inside:
            raise ConfigError(f"must lie in the range of {feature.name!r}", "release.center")
    return scaled


@functools.lru_cache(maxsize=64)
def _built(job: ClusterJob, loss: PrivacyLoss, lattice: Lattice) -> ClusteringAlgorithm:
    """Make the algorithm of a job, and cache it: planning is slow, and savings and forecasts need it repeatedly."""
    return job.mechanism(loss, lattice)


@functools.lru_cache(maxsize=64)
def _chosen(job: ClusterJob, loss: PrivacyLoss, lattice: Lattice) -> PlanChoice:
    return job.choose(loss - PrivacyLoss(job.fallback_rho(loss)), lattice)


@dataclass(frozen=True)
class ClusterRelease(Mechanism):
    """Base class of releases about clusters; value and sigma are k lists with one number per feature.

    Noise may move a center out of the public ranges, and a count below 0. Both are then clipped, and ``clipped`` in
    ``parts`` says for which centers.

    Parameters
    ----------
    loss : PrivacyLoss
    job : ClusterJob
    lattice : Lattice

    Privacy
    -------
    Each subclass states its own guarantee.

    Source
    ------
    Specification 6.12, 6.14; proofs 7.8, 7.9.
    """

    loss: PrivacyLoss
    job: ClusterJob
    lattice: Lattice

    @property
    def average(self) -> TupleAverage | BallCenters | PaperCenters:
        """Method that turns tuples into one tuple of centers."""
        raise NotImplementedError

    @property
    def choice(self) -> PlanChoice:
        """Division of loss and records, and the reason for it."""
        return _chosen(self.job, self.loss, self.lattice)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return centers_in_user_units(outcome, grid)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        steps, step = self.forecast(size).sigma, grid.lattice.step
        return {feature.name: feature.scale * step * steps for feature in grid.features}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        plan = self.choice.plan
        disagreement = (
            f"shards that do not agree are a refusal, which costs about {self.average.refusal}, and up to "
            f"{self.average.loss - self.average.last} where nearly enough of them agree; "
            "`release.method` = 'tree' has none"
        )
        if self.job.fallback is not None:
            disagreement = f"where shards do not agree, {self.job.fallback!r} answers with what is left"
        line = f"{plan.tuples} shards of about {self.job.size_hint // plan.tuples} records, by {self.choice.why}"
        warnings: tuple[str, ...] = ()
        if plan.separation > 50:
            warnings = (
                f"centers must lie {plan.separation:.3g} deviations of a cluster apart for this: raise `release.rho`, "
                "or use longer windows",
            )
        chance, agreement = chance_by_agreement(self.average, self.job.k)
        facts = {
            "agreement": agreement,
            "tuples": plan.tuples,
            "separation": plan.separation,
            "form": {BallPlan: "balls", PaperPlan: "paper"}.get(type(plan), "core"),
        }
        return PlanNotes((line, disagreement), warnings, facts, case=ALL_AGREE, chance=chance)

    def with_loss(self: Any, loss: PrivacyLoss) -> Any:
        """Return the same release for another rho.

        rho that no plan can use stays among the savings; a G form's tests, for instance, use a rho of 4 at most.
        """
        changed = replace(self, loss=PrivacyLoss(loss.rho_nano, self.loss.delta_femto))
        try:
            _ = changed.average
        except ConfigError:
            if loss.rho_nano < self.loss.rho_nano:
                raise
            return self
        return changed

    def with_size_hint(self: Any, size_hint: int) -> Any:
        changed = replace(self, job=replace(self.job, size_hint=size_hint))
        _ = changed.average
        return changed


CLUSTERS = "clusters"
"""Why centers and components have no interval, see `fcstream.releases.reasons.NO_INTERVAL`."""


def centers_in_user_units(outcome: Outcome, grid: Grid) -> ReleaseValues:
    """Convert centers to the user's units, clipped to the public ranges, and say in ``clipped`` which were.

    Privacy
    -------
    Post-processing of an outcome, which is released.

    Source
    ------
    Specification 6.12; ours.
    """
    features, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
    if outcome.value is None or outcome.sigma is None:
        return ReleaseValues(None, None, features, transforms)
    values, inside = grid.in_units(outcome.value).tolist(), grid.values(outcome.value)
    widths = grid.widths(outcome.sigma)
    parts = dict(outcome.parts or {})
    counts = parts.get("counts", [0] * len(values))
    if "counts" in parts:
        parts["counts"] = [max(0, count) for count in counts]
    rows = zip(values, inside, counts, strict=True)
    parts["clipped"] = [center != kept or count < 0 for center, kept, count in rows]
    # A value that was not measured has no deviation. It gets None, because a stored release holds null there.
    known = [[x if math.isfinite(x) else None for x in width] for width in widths]
    words = {"value": CLUSTERS} if any(each is not None for row in known for each in row) else None
    return ReleaseValues(inside, known, features, transforms, parts, no_interval=words)


@dataclass(frozen=True)
class CentersRelease(ClusterRelease):
    """Release of the centers of a window's clusters.

    ``parts`` holds ``counts``, the noisy number of records of each center, and ``tuples``, the noisy number of shards
    that agreed (null if that number is not known, as for a fallback). Parameters are those of `ClusterRelease`.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP by `ClusteringAlgorithm`. A window whose shards do not
    agree is refused (``no_match``, or ``no_radius`` if not even their scale is clear), which refunds the stages that
    were not started. Shard coins are drawn once per record: when the window closes, or when the record comes for an
    oracle that learns meanwhile (``minibatch``, tumbling windows).

    Source
    ------
    Specification 6.12; proof 7.8; erratum 1.2; Tsfadia et al. 2022, FC_Clustering; Cohen et al. 2021, PrivatekMeans.
    """

    kind: str = "centers"

    @property
    def inner(self) -> ClusteringAlgorithm:
        return _built(self.job, self.loss, self.lattice)

    @property
    def average(self) -> Any:
        return self.inner.average

    @property
    def false_release(self) -> float:
        return self.inner.false_release

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        shards = self.inner.shards
        if reach == 1 and isinstance(shards.oracle, Incremental):
            return ShardCounts(shards, noise)
        return super().counter(dimension, reach, noise)

    def release(self, view: WindowView | ShardView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.inner.find(view, noise, charge.start).outcome()

    def forecast(self, size: int) -> Forecast:
        return self.inner.forecast(size)
