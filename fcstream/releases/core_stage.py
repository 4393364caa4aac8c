"""The first stage of a release that needs a core: finds the core, forecasts its size, and decides when to stop."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..accounting.losses import PrivacyLoss
from ..cores.filters import Core, ZCDPFilter
from ..cores.sampled_filters import EXACT, HiddenCoinFilter, PairSampling, SparseZCDPFilter, design_pairs
from ..counting.views import WindowView
from ..errors import ConfigError
from ..ledgers.base import Charge
from ..noise.samplers import Noise
from ..stream.lattice import Grid
from .base import Counter, Mechanism, Outcome, PlanNotes, friend_counter, percent

STOP_CHANCE = 0.01
"""A window is stopped after the noisy size if it would release with a smaller probability."""
ENOUGH_CHANCE = 0.99
"""If a window's noisy size promises a value with this probability and there is none, the records must lie apart."""
_NOTHING = PrivacyLoss()
ALIKE = " that are all friends"
CoreFilter = ZCDPFilter | SparseZCDPFilter | HiddenCoinFilter


class ChargeShare:
    """A share of an opened charge, for a mechanism that is a stage of another mechanism; it can be opened once.

    Privacy
    -------
    Every stage that is started on the share is started on the whole charge too, and all together never exceed the
    share.

    Source
    ------
    Specification 1.4; proof 2.2.
    """

    def __init__(self, charge: Charge, share: PrivacyLoss) -> None:
        self._charge, self._share = charge, share
        self._started = _NOTHING
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

    @property
    def started(self) -> PrivacyLoss:
        """The loss of all stages so far."""
        return self._started

    def start(self, stage: PrivacyLoss) -> None:
        self._started += stage
        if not self._used or not self._started.fits(self._share):
            raise RuntimeError(f"stages that cost {self._started} do not fit their share of {self._share}")
        self._charge.start(stage)


class CoreStage(Mechanism):
    """Base class of mechanisms that find a core first, to be named first among the base classes.

    Attributes
    ----------
    radius_squared : int
        Radius of friends, squared, in lattice steps.
    size_hint : int
        Public guess of points per window.
    sampling : str
        ``exact``, ``blocks`` or ``hidden``: which pairs a core is found from.
    given_pairs : PairSampling or None
        The pairs that are fixed already; None chooses them for this loss and size.

    Privacy
    -------
    Each subclass states its own guarantee.

    Source
    ------
    Specification 5.3; proof 5.4.
    """

    false_release: ClassVar[float] = 0.0  # an empty core has no average, whatever its noisy size is
    if TYPE_CHECKING:  # fields of each subclass

        @property
        def radius_squared(self) -> int: ...

        @property
        def size_hint(self) -> int: ...

        @property
        def sampling(self) -> str: ...

        @property
        def given_pairs(self) -> PairSampling | None: ...

    @property
    @abstractmethod
    def core(self) -> CoreFilter:
        """How the core is chosen."""

    @abstractmethod
    def stages(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """Run the stages of `release` under a charge that is open."""

    @cached_property
    def pairs(self) -> PairSampling:
        """Which pairs of points are compared."""
        return self.given_pairs or choose_pairs(self.sampling, self.size_hint, core_share(self.loss))

    @cached_property
    def stop(self) -> StopSearch:
        """The least noisy size that is not stopped, searched for as far as it is asked for."""
        return StopSearch(self, self.core, self.size_hint)

    @property
    def min_count(self) -> int:
        """See `StopSearch.least`."""
        return self.stop.least

    @cached_property
    def enough_count(self) -> int | None:
        """See the function `enough_count`."""
        return enough_count(self, self.size_hint)

    def refusal_reason(self, count: int | None) -> str:
        """Tell why a window that was searched for a core is refused.

        Privacy
        -------
        Depends on the noisy size alone, which is released with the refusal.

        Source
        ------
        Specification 5.3, 12.2; proof 2.2; ours.
        """
        enough = self.enough_count
        return "too_few" if enough is None or count is None or count < enough else "no_core"

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.stages(view, charge, noise)

    def with_loss(self, loss: PrivacyLoss) -> Mechanism:
        """Return the same mechanism for another rho, with the pairs that this mechanism's counter samples."""
        return self._with(loss=PrivacyLoss(loss.rho_nano, self.loss.delta_femto), given_pairs=self.pairs)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return friend_counter(self.pairs, self.radius_squared, dimension, reach, noise)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
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
    """Warn about a noise deviation that does not suit the lattice or the radius."""
    warnings = []
    if sigma < 1:
        warnings.append("`lattice.step` is coarser than the noise: a finer step costs nothing")
    if radius_squared is not None and sigma**2 > radius_squared:
        warnings.append("the noise is larger than `release.radius`: such a release says nothing; raise `release.rho`")
    return tuple(warnings)


def core_share(loss: PrivacyLoss) -> PrivacyLoss:
    """Return the share of a loss that is spent on the core, as in the papers."""
    return PrivacyLoss(loss.rho_nano // 10, loss.delta_femto // 2)


def choose_pairs(sampling: str, size_hint: int, loss: PrivacyLoss) -> PairSampling:
    """Choose which pairs of points are compared, from public numbers."""
    if sampling == "exact":
        return EXACT
    if sampling not in ("blocks", "hidden"):
        raise ConfigError("must be 'exact', 'blocks' or 'hidden'", "release.pairs", got=sampling)
    found = design_pairs("hidden" if sampling == "hidden" else "blocks", size_hint, loss)
    if found is None:
        raise ConfigError(
            f"must be 'exact' here: no sample of pairs finds a core among {size_hint} records at {loss}",
            "release.pairs",
        )
    return found


def find_core(core: CoreFilter, stop: StopSearch, view: WindowView, charge: Charge, noise: Noise) -> Core:
    """Find a core; it has no mask if the noisy size is too small for a release.

    The later stages are then neither started nor paid for. That depends on the public number `stop.least` and on the
    noisy size, which is released.

    Privacy
    -------
    The filter's: `core.stages` are started one by one in `charge`.

    Source
    ------
    Specification 5.3.
    """
    counts = core.read(view)
    size, bits = core.stages
    charge.start(size)
    n_hat = core.size.draw(len(counts), noise)
    if stop.stops(n_hat - core.offset):
        return Core(None, n_hat - core.offset)
    charge.start(bits)
    arrival_order = None if view.is_in_order else view.arrival_order()
    if arrival_order is None:
        return core.keep(counts, n_hat, noise)
    # The i-th random bits decide about the point that arrived i-th, wherever it is stored: so a release depends on the
    # records and the noise alone, not on batches, threads or the process that counted.
    ordered = np.empty_like(counts)
    ordered[arrival_order] = counts
    kept = core.keep(ordered, n_hat, noise)
    return replace(kept, mask=None if kept.mask is None else kept.mask[arrival_order])


class StopSearch:
    """Bisection for the noisy size below which a release is stopped.

    It is three deviations below the smallest size at which 1% of windows release a value, so that the noise of the
    size hardly ever stops a window that could release. A forecast takes half a millisecond, and one or two of them tell
    for most windows: so a question narrows the search no further than its answer needs, and what was found is kept.

    Privacy
    -------
    Computed from public numbers and released sizes alone, so it costs nothing.

    Source
    ------
    Specification 5.3; ours.
    """

    def __init__(self, mechanism: Mechanism, core: CoreFilter, size_hint: int) -> None:
        self._mechanism, self._room = mechanism, 3 * math.sqrt(core.size_variance)
        self._ends = 0, size_hint  # the search ends at the lower one; written at once, as threads may share it

    def _narrow(self) -> bool:
        """Halve what is left to search; returns False if nothing is."""
        low, high = self._ends
        if high - low <= max(1, low // 100):
            return False
        middle = (low + high) // 2
        releases = self._mechanism.forecast(middle).probability >= STOP_CHANCE
        self._ends = (low, middle) if releases else (middle, high)
        return True

    @property
    def least(self) -> int:
        """The least noisy size that is not stopped."""
        while self._narrow():
            pass
        return math.floor(self._ends[0] - self._room)

    def stops(self, size: int) -> bool:
        """Return whether a released noisy size is below `least`."""
        while True:
            low, high = (math.floor(end - self._room) for end in self._ends)
            if size < low:
                return True
            if size >= high or not self._narrow():
                return False


def enough_count(mechanism: Mechanism, size_hint: int) -> int | None:
    """Return how many records make 99% of windows release if all are friends; None if 2**40 records do not."""

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


# -- forecasts from public numbers ---------------------------------------------------------------------------------


def normal_above(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def core_law(core: CoreFilter, size: int, outliers: float = 0.0) -> list[tuple[float, float, float]]:
    """Predict the core size of `size` points that are all friends except for a share of outliers.

    Returns (weight, mean, variance) for several values of the noise in n-hat.
    """
    deviation = math.sqrt(core.size_variance)
    law = []
    for node, weight in _normal_nodes():
        n_hat = size + core.offset + node * deviation
        if n_hat < 1:  # a drawn n-hat is a whole number, so such a one is 0 or less
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


def coin_noise(law: list[tuple[float, float, float]]) -> float:
    """Return how far the core's coins move the mean of its points, in deviations of the points: the standard deviation.

    Each point is left out by a coin of its own; of m points that are kept with chance k, the mean of those that are
    kept has the variance (1 - k) / (k m) around that of all.
    """
    kept = [(weight, variance / mean**2) for weight, mean, variance in law if mean >= 1]
    total = sum(weight for weight, _ in kept)
    return math.sqrt(sum(weight * part for weight, part in kept) / total) if total > 0 else math.inf


def release_probability(law: list[tuple[float, float, float]], needs: list[tuple[float, float]]) -> float:
    """Return the chance that the core size plus noise passes the threshold of every need (threshold, variance).

    The noises are independent, given the core.
    """
    weights, means, variances = np.array(law).T[:, :, np.newaxis]
    nodes, node_weights = np.array(_normal_nodes()).T
    sizes = means + nodes * np.sqrt(variances)
    chances = weights * node_weights * (sizes >= 0.5)
    for threshold, noise_variance in needs:
        above = (threshold - sizes) / math.sqrt(noise_variance)
        passes = np.where(above < 0.0, 1.0, 0.0)
        open_ones = ~((above < -8.5) | (above > 39.0))  # beyond these the chance is 1 or 0 in float64
        passes[open_ones] = [normal_above(x) for x in above[open_ones].tolist()]  # importing scipy takes longer
        chances *= passes
    return min(1.0, float(chances.sum()))


@cache
def _normal_nodes() -> tuple[tuple[float, float], ...]:
    """Return places and weights, which add up to 1, to average over a standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    return tuple(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))
