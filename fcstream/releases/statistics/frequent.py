"""Frequent values: the texts that many records have, with their noisy numbers, although nobody declared them."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...accounting.losses import DELTA_UNIT, RHO_UNIT, PrivacyLoss
from ...counting.views import MAX_POINTS
from ...errors import ConfigError, Shown
from ...stream.panes import PaneStore
from ...stream.selection import TextUse
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..floors import min_gaussian
from ..intervals import LEVEL
from ..options import BuildContext, Options
from ..record_gate import RecordGate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...ledgers.base import Charge
    from ...noise.samplers import Noise
    from ...stream.lattice import Grid

MAX_VALUES = 100_000
"""How many different texts a window may hold, unless the configuration says otherwise."""
RECORD_GATE_RHO, RECORD_GATE_DELTA = 50, 10
"""The gate on the number of different texts costs one part in so many of rho and of delta."""
MAX_PER_USER = 1000


class FrequentOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "frequent"``: the texts that many records have, with noisy numbers.

    Nobody declares the texts. One that few records have is never told but for a chance that ``delta`` pays for: a text
    is told if its noisy number is at least ``parts.threshold``, which depends on rho and delta alone.

    Released
    --------
    value
        The noisy numbers of records (with the unit ``user``: of users) of the texts that are told, largest first; empty
        if no text is told.
    sigma
        The standard deviation of the noise in each. A text near the threshold is told when its noise is positive, so
        there the numbers are too large on average.
    parts.feature
        Name of the feature.
    parts.levels
        The texts, in the order of `value`.
    parts.threshold
        The least noisy number that is told.

    Cost
    ----
    rho and delta for all texts together, however many. With the units ``event`` and ``stream`` a fiftieth of rho and a
    tenth of delta pay for the gate on the number of different texts; a window that it refuses (``too_many_values``)
    costs only that. With the unit ``user`` the gate on the number of users takes a hundredth and a tenth instead.

    Privacy
    -------
    `FrequentValues` states the guarantee.

    Source
    ------
    Specification 5.12, 12.1; proof 6.6.
    """

    kind: str = "frequent"
    feature: str | None = None
    """Feature with ``type = "text"`` that the answer is about; may be left out if there is one only."""
    delta: float
    """What one window costs at most besides, as a δ of zCDP: it pays for telling texts that nobody declared."""
    max_values: int | None = None
    """How many different texts a window may hold; windows of more are refused (``too_many_values``), which bounds
    memory. Left out: 100000. With the unit ``user``, ``window.max_records`` bounds users instead."""
    values_per_user: int | None = None
    """With the unit ``user``: for how many different texts of a window a user counts at most. They are chosen by a
    secret hash. Left out: 1."""

    needs_features: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True

    @property
    def holds_records(self) -> bool:
        return False

    def needs_record_gate(self, unit: str) -> bool:
        return unit == "user"

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.feature is None else (self.feature,)

    def build(self, setting: BuildContext) -> FrequentValues:
        name = self.text_use(setting.texts).feature
        whole = self.approximate_loss(self.delta)
        if setting.unit == "user":
            return FrequentValues(whole, name, self._per_user(setting.unit))
        self._per_user(setting.unit)
        if whole.rho_nano < 2:
            raise ConfigError(
                "must be at least 2e-09 for a release of kind 'frequent', whose gate takes a part",
                "release.rho",
                got=Shown(f"{whole.rho:g}"),
                remedy="raise it",
            )
        loss = PrivacyLoss(max(1, whole.rho_nano // RECORD_GATE_RHO), max(1, whole.delta_femto // RECORD_GATE_DELTA))
        most = MAX_VALUES if self.max_values is None else self.max_values
        if not 1 <= most <= MAX_POINTS // 2:
            raise ConfigError(f"must be in [1, {MAX_POINTS // 2}]", "release.max_values", got=most)
        return FrequentValues(whole - loss, name, 1, RecordGate(loss, most))

    def _per_user(self, unit: str) -> int:
        """Check the keys that depend on the unit; return for how many texts a unit of privacy counts."""
        if unit == "user" and self.max_values is not None:
            raise ConfigError(
                "must be left out with unit = 'user': users are bounded, by {bound}",
                "release.max_values",
                bound="window.max_records",
            )
        if unit != "user" and self.values_per_user is not None:
            raise ConfigError(f"belongs to unit = 'user', the unit is {unit!r}", "release.values_per_user")
        most = 1 if self.values_per_user is None else self.values_per_user
        if not 1 <= most <= MAX_PER_USER:
            raise ConfigError(f"must be in [1, {MAX_PER_USER}]", "release.values_per_user", got=most)
        return most

    def text_use(self, texts: Sequence[str]) -> TextUse:
        listed = ", ".join(map(repr, texts))
        if not texts:
            raise ConfigError("must name a feature with type = 'text' for a release of kind 'frequent'", "features")
        if self.feature is None and len(texts) > 1:
            raise ConfigError(f"must name one of {listed}", "release.feature")
        if self.feature is not None and self.feature not in texts:
            raise ConfigError(f"must be a feature with type = 'text' ({listed})", "release.feature", got=self.feature)
        return TextUse(texts[0] if self.feature is None else self.feature, self.values_per_user or 1)


class WindowValues(NamedTuple):
    """How many records of a window have each text; None if there are too many different texts.

    Privacy
    -------
    NOT private: only mechanisms may read it.

    Source
    ------
    Specification 5.12; ours.
    """

    different: int
    counts: dict[str, int] | None

    def __repr__(self) -> str:
        return "<WindowValues of a window>"  # without its private content


class ValueCounter(PaneStore["Tally[str] | None"]):
    """Counts the texts of each pane; no record is kept.

    Parameters
    ----------
    most : int or None
        Once a pane holds more different texts than this, none of them is kept.
    per_user : bool
        Whether texts come as a tuple for each user.

    Privacy
    -------
    NOT private: a mechanism adds noise to these numbers. The texts that it drops belong only to windows that are
    refused in any case. None is dropped to make room for another one.

    Source
    ------
    Specification 5.12; proof 6.6; ours.
    """

    def __init__(self, most: int | None = None, *, per_user: bool = False) -> None:
        super().__init__()
        self._most, self._is_per_user = most, per_user

    def add(self, pane: int, points: NDArray[np.object_]) -> None:
        """Add texts (m,), or a tuple of different texts for each user (m,)."""
        held = self._held.setdefault(pane, Tally()) if len(points) else None
        if held is None:
            return
        texts: list[Any] = points.tolist()
        held.update(chain.from_iterable(texts) if self._is_per_user else texts)
        if self._most is not None and len(held) > self._most:
            self._held[pane] = None

    def view(self, panes: Iterable[int]) -> WindowValues:
        """Return the view of the window that these panes make up."""
        held, counts = self.held(panes), Tally[str]()
        for each in held:
            if each is not None:
                counts.update(each)
        if self._most is not None and (None in held or len(counts) > self._most):
            return WindowValues(self._most + 1, None)
        return WindowValues(len(counts), counts)


@dataclass(frozen=True)
class FrequentValues(Mechanism):
    """The texts whose noisy number is at least a threshold, with these numbers.

    Parameters
    ----------
    share : PrivacyLoss
        rho' and delta' of the answer without its gate.
    feature : str
    per_user : int
        k: how many different texts one unit of privacy has at most; 1 for the units ``event`` and ``stream``.
    gate : RecordGate or None
        Refuses windows of too many different texts, by their noisy number; None with the unit ``user``.

    Privacy
    -------
    Unit: one record with one text, or one user with at most k different texts. Relation: add or remove.
    (rho', delta')-zCDP, and the gate's loss besides. Noise has the variance k / (2 rho'). The threshold is the least
    integer that 1 plus this noise reaches with a chance of at most delta' / k: a text that nobody else has is told no
    more often. With many values of one user the gate on values would depend on the order of reading, so users are
    counted instead (`GatedMechanism`). Not covered: run time.

    Source
    ------
    Specification 5.12; proof 6.6; Korolova, Kenthapadi, Mishra, Ntoulas 2009; with Gaussian noise: DP-SQLP
    (Rogers et al. 2020) and Desfontaines, Voss, Gipson, Mandayam 2022; in zCDP and in integers: ours.
    """

    share: PrivacyLoss
    feature: str
    per_user: int = 1
    gate: RecordGate | None = None
    kind: str = "frequent"

    @property
    def loss(self) -> PrivacyLoss:
        return self.share if self.gate is None else self.gate.loss + self.share

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(self.per_user * RHO_UNIT, 2 * self.share.rho_nano)

    @property
    def threshold(self) -> int:
        """The least noisy number that is told."""
        return 1 + min_gaussian(self.variance, Fraction(self.share.delta_femto, DELTA_UNIT * self.per_user))

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return ValueCounter(None if self.gate is None else self.gate.max_held, per_user=self.gate is None)

    def release(self, view: WindowValues, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        if self.gate is not None:
            charge.start(self.gate.loss)
            if self.gate.refuses(view.different, noise):
                return Outcome("too_many_values")
        charge.start(self.share)
        assert view.counts is not None
        texts = sorted(view.counts)  # so that seeded noise does not depend on the order of reading
        counts = np.fromiter(map(view.counts.__getitem__, texts), np.int64, len(texts))
        counts += noise.discrete_gaussian(self.variance, len(texts))
        told = np.flatnonzero(counts >= self.threshold)
        told = told[np.argsort(-counts[told], kind="stable")]
        sigma = np.full(len(told), math.sqrt(self.variance))
        return Outcome(
            value=counts[told].astype(np.float64),
            sigma=sigma,
            interval=interval_of_reported(counts[told], self.threshold, math.sqrt(self.variance)),
            parts={"levels": [str(texts[i]) for i in told.tolist()]},
        )

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, math.sqrt(self.variance))

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        plain = super().to_user_units(outcome, grid)
        if outcome.parts is None:
            return plain
        parts = {"feature": self.feature, "levels": outcome.parts["levels"], "threshold": self.threshold}
        return replace(plain, parts=parts)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {f"{self._points} of a text": math.sqrt(self.variance)}

    @property
    def _points(self) -> str:
        return "records" if self.gate is not None else "users"

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        least, nearly = self.threshold, math.ceil(self.threshold + 2.33 * math.sqrt(self.variance))
        lines = [
            f"texts of {self.feature!r} are told from a noisy number of {least} {self._points} on; one that {nearly} "
            "have is told with probability 99%"
        ]
        facts: dict[str, Any] = {"threshold": least}
        stopped = None
        if self.gate is not None:
            lines.append(
                f"windows of more than {self.gate.max_records} different texts are refused (too_many_values), by a "
                f"noisy number that costs {self.gate.loss}; at most {self.gate.max_held} are held"
            )
            facts |= {"max_values": self.gate.max_records, "most_values_held": self.gate.max_held}
            stopped = self.gate.loss
        warnings: tuple[str, ...] = ()
        if size is not None and size < nearly:
            warnings = (
                f"no text of a window of {size} {self._points} has the {nearly} that it takes to be told nearly "
                "always: raise `release.rho` or `release.delta`, or use longer windows",
            )
        return PlanNotes(tuple(lines), warnings, facts, stopped)

    def with_loss(self, loss: PrivacyLoss) -> FrequentValues:
        """Return the same mechanism for another rho; the gate's loss stays, since H may not depend on an offer."""
        used = 0 if self.gate is None else self.gate.loss.rho_nano
        return replace(self, share=PrivacyLoss(loss.rho_nano - used, self.share.delta_femto))


def interval_of_reported(counts: NDArray[np.int64], threshold: int, sigma: float) -> NDArray[np.float64]:
    """Return intervals (m, 2) of numbers that are told because their noisy `counts` (m,) reach the threshold.

    They hold the exact numbers with a probability of 95% among those that are told, and are at least 1: noise that
    lifts a small number over the threshold is told, and noise that lowers it is not.

    Parameters
    ----------
    counts : int64 (m,)
        Each at least `threshold`.
    threshold : int
    sigma : float
        Of the noise.

    Privacy
    -------
    A function of public and released numbers, so it costs nothing.

    Source
    ------
    Specification 5.12; the ends are the exact numbers for which what is told, or more, or less, has a chance of 2.5%
    given that it is told.
    """
    reach = math.ceil(12 * sigma) + 2  # beyond so many nothing is left that matters
    near = np.minimum(counts - threshold, reach)  # farther above, the threshold does not matter
    steps = np.arange(-2 * reach, threshold + 2 * reach + 1, dtype=np.float64)
    tail = np.cumsum(np.exp(-((steps / sigma) ** 2) / 2)[::-1])[::-1]  # of noise that is at least so large

    def above(least: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.float64]:
        """Chance that a number with its noise is at least so large, given that it reaches the threshold."""
        own, all_told = (np.clip(x - number + 2 * reach, 0, len(tail) - 1) for x in (least, threshold))
        # Where no double is so small as the chance to be told, that of one more record is nothing beside it.
        one = (own <= all_told).astype(np.float64)
        found: NDArray[np.float64] = np.divide(tail[own], tail[all_told], out=one, where=tail[all_told] > 0)
        return found

    told = threshold + near
    low = _first(np.maximum(1, told - reach), told, lambda number: above(told, number) >= (1 - LEVEL) / 2)
    high = _first(told, told + reach, lambda number: 1 - above(told + 1, number) < (1 - LEVEL) / 2) - 1
    found: NDArray[np.float64] = np.stack([low, np.maximum(high, told)], axis=1) + (counts - told)[:, None] * 1.0
    return found


def _first(
    low: NDArray[np.int64], high: NDArray[np.int64], holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """Return the first number in each range from which on something holds; the end if it holds for none before."""
    while (low < high).any():
        middle = (low + high) // 2
        found = holds(middle)
        low, high = np.where(found | (low >= high), low, middle + 1), np.where(found & (low < high), middle, high)
    return low
