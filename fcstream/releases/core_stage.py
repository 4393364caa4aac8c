"""A core as the first stage of a release: how it is found, what it will hold, and when to stop after it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ..accounting.losses import PrivacyLoss
from ..cores.filters import Core, ZCDPFilter
from ..cores.sampled_filters import EXACT, HiddenCoinFilter, PairSampling, SparseZCDPFilter, design_pairs
from ..errors import ConfigError
from .base import Counter, Mechanism, MechanismBase, Outcome, PlanNotes, friend_counter, percent

if TYPE_CHECKING:
    from ..counting.exact import WindowView
    from ..ledgers.base import Charge
    from ..noise.samplers import Noise
    from ..stream.lattice import Grid

STOP_CHANCE = 0.01
"""Windows that would release with a smaller probability are stopped after the noisy size."""
ENOUGH_CHANCE = 0.99
"""A window whose noisy size says that it releases with this probability, and did not, has records that lie apart."""
ALIKE = " that are all friends"
CoreFilter = ZCDPFilter | SparseZCDPFilter | HiddenCoinFilter


class ChargeShare:
    """A part of an opened charge, for a mechanism that is a stage of another one; it may be opened once.

    Privacy
    -------
    What the part starts is started of the whole, and never more than its share.

    Source
    ------
    Specification 1.4; proof 2.2.
    """

    def __init__(self, charge: Charge, share: PrivacyLoss) -> None:
        self._charge, self._share = charge, share
        self._started = PrivacyLoss()
        self._used = False

    def use(self, needed: PrivacyLoss) -> None:
        self.open(needed)
        self.start(needed)

    def open(self, needed: PrivacyLoss) -> None:
        if self._used:
            raise RuntimeError("this share of a charge has served a release")
        if not needed.fits(self._share):
            raise RuntimeError(f"the stage costs {needed}, its share of the charge is {self._share}")
        self._used = True

    def start(self, stage: PrivacyLoss) -> None:
        self._started += stage
        if not self._used or not self._started.fits(self._share):
            raise RuntimeError(f"stages that cost {self._started} do not fit their share of {self._share}")
        self._charge.start(stage)


class CoreMechanism(Mechanism, Protocol):
    """A mechanism that finds a core first.

    Privacy
    -------
    Says nothing of its own.

    Source
    ------
    Specification 5.3; proof 5.4.
    """

    @property
    def radius_squared(self) -> int:
        """Of friends, in squared lattice steps."""

    @property
    def size_hint(self) -> int:
        """Public guess of points per window."""

    @property
    def sampling(self) -> str:
        """``exact``, ``blocks`` or ``hidden``: which pairs a core is found from."""

    @property
    def given_pairs(self) -> PairSampling | None:
        """The very pairs; None chooses them for this loss and size."""

    @property
    def pairs(self) -> PairSampling:
        """Which pairs of points are compared."""

    @property
    def core(self) -> CoreFilter:
        """How the core is chosen."""

    @property
    def enough_count(self) -> int | None:
        """See `enough_count`."""

    def stages(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """What `release` does under a charge that is open."""


class CoreStage(MechanismBase):
    """What releases that find a core first have in common; a mix-in, to stand first."""

    false_release: ClassVar[float] = 0.0  # an empty core has no average, whatever its noisy size is

    @cached_property
    def pairs(self: CoreMechanism) -> PairSampling:
        return self.given_pairs or choose_pairs(self.sampling, self.size_hint, core_share(self.loss))

    @cached_property
    def least_count(self: CoreMechanism) -> int:
        """See `least_count`."""
        return least_count(self, self.core, self.size_hint)

    @cached_property
    def enough_count(self: CoreMechanism) -> int | None:
        """See `enough_count`."""
        return enough_count(self, self.size_hint)

    def refusal_reason(self: CoreMechanism, count: int | None) -> str:
        """The reason of a refusal after a core was looked for.

        Privacy
        -------
        A function of the noisy size, which is released with the refusal.

        Source
        ------
        Specification 5.3, 12.2; proof 2.2; ours.
        """
        enough = self.enough_count
        return "too_few" if enough is None or count is None or count < enough else "no_core"

    def release(self: CoreMechanism, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.stages(view, charge, noise)

    def with_loss(self: CoreMechanism, loss: PrivacyLoss) -> Mechanism:
        """The same for another rho, on the pairs that this one's counter samples."""
        mechanism: Any = self
        whole = PrivacyLoss(loss.rho_nano, self.loss.delta_femto)
        changed: Mechanism = replace(mechanism, loss=whole, given_pairs=self.pairs)
        return changed

    def counter(self: CoreMechanism, dimension: int, reach: int, noise: Noise) -> Counter:
        return friend_counter(self.pairs, self.radius_squared, dimension, reach, noise)

    def notes(self: CoreMechanism, size: int | None, grid: Grid) -> PlanNotes:
        pairs = self.pairs
        line = f"friends are counted among {percent(float(pairs.rate))} of all pairs ({pairs.kind})"
        return PlanNotes(
            () if pairs.kind == "exact" else (line,),
            noise_warnings(self.forecast(size or 1000).sigma, self.radius_squared),
            {"pairs": pairs.kind, "pair_share": float(pairs.rate)},
            self.core.stages[0],
            (pairs, core_share(self.loss)),
            ALIKE,
        )


def noise_warnings(sigma: float, radius_squared: int | None) -> tuple[str, ...]:
    """What a noise deviation in lattice steps should make one think of."""
    warnings = []
    if sigma < 1:
        warnings.append("`lattice.step` is coarser than the noise: a finer step costs nothing")
    if radius_squared is not None and sigma**2 > radius_squared:
        warnings.append("the noise is larger than `release.radius`: such a release says nothing; raise `release.rho`")
    return tuple(warnings)


def core_share(loss: PrivacyLoss) -> PrivacyLoss:
    """The papers' share of the core."""
    return PrivacyLoss(loss.rho_nano // 10, loss.delta_femto // 2)


def choose_pairs(sampling: str, size_hint: int, loss: PrivacyLoss) -> PairSampling:
    """How pairs are compared, from public numbers."""
    if sampling == "exact":
        return EXACT
    if sampling not in ("blocks", "hidden"):
        raise ConfigError(f"must be 'exact', 'blocks' or 'hidden', got {sampling!r}", "release.pairs")
    found = design_pairs("hidden" if sampling == "hidden" else "blocks", size_hint, loss)
    if found is None:
        raise ConfigError(
            f"must be 'exact' here: no sample of pairs finds a core among {size_hint} records at {loss}",
            "release.pairs",
        )
    return found


def find_core(core: CoreFilter, least: int, view: WindowView, charge: Charge, noise: Noise) -> Core:
    """A core, or one without a mask: the noisy size is too small for anything to come of it (specification 5.3).

    The stages after it are not started then, and not paid for. The gate is a public number, and what it is compared
    with is released.
    """
    counts = core.read(view)
    size, bits = core.stages
    charge.start(size)
    n_hat = core.size.draw(len(counts), noise)
    if n_hat - core.offset < least:
        return Core(None, n_hat - core.offset)
    charge.start(bits)
    arrival_order = view.arrival_order()
    if arrival_order is None:
        return core.keep(counts, n_hat, noise)
    # The i-th bits decide the point that came i-th, wherever it is held: what is released depends on the records and
    # the noise alone, not on batches, threads or the process that counted.
    ordered = np.empty_like(counts)
    ordered[arrival_order] = counts
    kept = core.keep(ordered, n_hat, noise)
    return replace(kept, mask=None if kept.mask is None else kept.mask[arrival_order])


def least_count(mechanism: Mechanism, core: CoreFilter, size_hint: int) -> int:
    """Noisy sizes below it stop a release: three deviations below the smallest size that releases in 1% of windows.

    A window that could release is thus hardly ever stopped by the noise of its size.
    """
    low, high = 0, size_hint
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if mechanism.forecast(middle).probability >= STOP_CHANCE else (middle, high)
    return math.floor(low - 3 * math.sqrt(core.size_variance))


def enough_count(mechanism: Mechanism, size_hint: int) -> int | None:
    """Records from which 99% of windows release if all are friends; None if no number up to 2**40 does."""

    def is_enough(n: int) -> bool:
        return mechanism.forecast(n).probability >= ENOUGH_CHANCE

    high = max(1, size_hint)
    while not is_enough(high):
        high *= 2
        if high > 2**40:
            return None
    low = 0
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


# -- what public numbers say ---------------------------------------------------------------------------------------


def normal_above(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def core_law(core: CoreFilter, size: int, outliers: float = 0.0) -> list[tuple[float, float, float]]:
    """Core sizes of `size` points, all friends but for some outliers: (weight, mean, variance) over n-hat's noise."""
    deviation = math.sqrt(core.size_variance)
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    law = []
    for node, weight in zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True):
        n_hat = size + core.offset + node * deviation
        if n_hat < 1:  # it is a whole number
            law.append((weight, 0.0, 0.0))
            continue
        threshold, sigma = core.bar(n_hat)
        mean, variance = core.friend_of_all(size)
        keep = normal_above((threshold + outliers * size - mean) / math.sqrt(sigma**2 + variance))
        friends = (1 - outliers) * size
        law.append((weight, friends * keep, friends * keep * (1 - keep)))
    return law


def mean_size(law: list[tuple[float, float, float]]) -> float:
    return sum(weight * mean for weight, mean, _ in law)


def release_probability(law: list[tuple[float, float, float]], needs: list[tuple[float, float]]) -> float:
    """Chance that the core size plus each need's noise passes the need; noises independent given the core."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    inner = list(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))
    total = 0.0
    for weight, mean, variance in law:
        for node, node_weight in inner:
            size = max(0.0, mean + node * math.sqrt(variance))
            chance = 1.0
            for threshold, noise_variance in needs:
                chance *= normal_above((threshold - size) / math.sqrt(noise_variance))
            if size < 0.5:
                chance = 0.0
            total += weight * node_weight * chance
    return min(1.0, total)
