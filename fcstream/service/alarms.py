"""Alarms that warn an operator of what happens to many records, and reveal next to nothing about any one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from ..noise.samplers import Noise
from ..runtime.compile_cache import compiled

_SCALE = 4
_ASK_S = 1.0
_REPORTED_S = 900.0  # seconds that a warning stays after the alarm went off
_FEW = 40  # a noisy count up to this is taken for 0; it covers the noise of all periods of a year
_OF_CONTENT = ("broken", "too_large", "slow")  # reasons of refusals that depend on what is sent
_TOO_LATE = ("late", "window_closed")
USUAL = 100
"""Number of records at which an alarm goes off, about."""


class Alarm:
    """Goes off when about `USUAL` records were counted since it last did.

    Parameters
    ----------
    noise : Noise, optional
        Exact noise from the operating system by default.

    Privacy
    -------
    Protects one record, present or absent (of a user with many records, each of them). Everything that an alarm ever
    reports costs 0.5-DP with delta = 0 (rho = 0.125 as zCDP), however often it is asked, if a record is counted once.
    This is the sparse vector technique, with a fresh noisy threshold after every time that the alarm goes off. It is
    not charged to the ledger, because it is for those who run the service. A record that is read again after a restart
    is counted again.

    Source
    ------
    Specification 13.1; proof 11.1; Lyu, Su, Li 2017, Algorithm 1 for monotonic counts of sensitivity 1, with eps_1 =
    eps_2 = 1/4 and discrete Laplace noise; a fresh run after each positive answer, over records that no earlier run has
    counted.
    """

    def __init__(self, noise: Noise | None = None) -> None:
        self._noise = noise or Noise()
        self.reset()

    def reset(self) -> None:
        """Start again with a count of 0 and a new threshold."""
        self._count = 0
        self._threshold: int | None = None  # drawn when it is needed first, since noise may have to be compiled

    def add(self, count: int) -> None:
        """Count records."""
        self._count += count

    def rings(self) -> bool:
        """Return whether the alarm goes off, and if so reset it. Must be called at moments that do not depend on
        records. While noise is compiled it does not.
        """
        if not compiled.is_set():
            return False
        if self._threshold is None:
            self._threshold = USUAL + self._draw()
        is_over = self._count + self._draw() >= self._threshold
        if is_over:
            self.reset()
        return is_over

    def _draw(self) -> int:
        return self._noise.one_laplace(_SCALE)


class LateWatch:
    """Warns when many records come too late for their windows.

    Parameters
    ----------
    warn : callable
        Called with the kind of warning, and its text or None when the warning is over.
    noise : Noise, optional
        See `Alarm`.

    Attributes
    ----------
    alarms : int
        Number of times the alarm went off.

    Privacy
    -------
    The guarantee is that of one `Alarm`: every record that came too late is counted in it once.

    Source
    ------
    Specification 13.1; proof 11.1.
    """

    def __init__(self, warn: Callable[[str, str | None], object], noise: Noise | None = None) -> None:
        self._warn, self._alarm = warn, Alarm(noise)
        self._ask_at = self._over_at = time.monotonic()
        self.alarms = 0

    def note(self, rejected: Mapping[str, int]) -> None:
        """Count the records that were rejected since the last call, by reason; asks the alarm once a second."""
        self._alarm.add(rejected.get("late", 0) + rejected.get("window_closed", 0))
        now = time.monotonic()
        if now < self._ask_at:
            return
        self._ask_at = now + _ASK_S
        if self._alarm.rings():
            self.alarms += 1
            self._over_at = now + _REPORTED_S
            self._warn(
                "late",
                f"about {USUAL} records or more came too late for their windows: raise window.lateness, compare the "
                "clocks (`fcstream doctor`), or say when queued messages arrived (`source.downtime`, or `arrival=` in "
                "the URL of a queue)",
            )
        elif now > self._over_at:
            self._warn("late", None)


class RefusalWatch:
    """Warns when bodies that others push are refused.

    Parameters
    ----------
    warn : callable
        See `LateWatch`.
    noise : Noise, optional
        See `Alarm`.

    Privacy
    -------
    That a request was refused by its head, by who sent it, or because there is no room says nothing about a record,
    and is told at once, without a number. Bodies that are broken, too large or not sent to their end are counted in an
    `Alarm`, whose guarantee this is.

    Source
    ------
    Specification 13.1; proof 11.1.
    """

    def __init__(self, warn: Callable[[str, str | None], object], noise: Noise | None = None) -> None:
        self._warn, self._alarm = warn, Alarm(noise)
        self._ask_at = self._over_at = time.monotonic()
        self._until: dict[str, float] = {}

    def note(self, refused: Mapping[str, int]) -> None:
        """Count the bodies that were refused since the last call, by reason; asks the alarm once a second."""
        self._alarm.add(sum(refused.get(reason, 0) for reason in _OF_CONTENT))
        now = time.monotonic()
        self._until |= {name: now + _REPORTED_S for name in refused if name not in _OF_CONTENT}
        if now < self._ask_at:
            return
        self._ask_at = now + _ASK_S
        found = sorted(name for name, until in self._until.items() if now < until)
        text = f"senders are refused ({', '.join(found)}): each gets the reason as its answer"
        self._warn("refused", text if found else None)
        if self._alarm.rings():
            self._over_at = now + _REPORTED_S
            self._warn(
                "refused_bodies",
                f"about {USUAL} bodies or more were refused as broken, too large or not sent to their end: look at "
                "what the senders got as an answer, and at `max_bytes` and `body_s` in the source's URL",
            )
        elif now > self._over_at:
            self._warn("refused_bodies", None)


class UnusableWatch:
    """Warns when hardly any record that came within a period could be used, or was in time.

    Parameters
    ----------
    warn : callable
        See `LateWatch`.
    period_s : float
        Length of a period; streams with few records need long ones.
    kind : str
        Kind of the warning.
    noise : Noise, optional
    fault : callable, optional
        Called as `warn` when hardly any record came in time, with which a stream is not ready. That is over when
        records come in time, or after a quarter of an hour (two periods if that is more) in which it was not found.

    Privacy
    -------
    Protects one record, present or absent. Everything that it ever reports costs 0.25-DP with delta = 0 (rho = 0.03125
    as zCDP): each period has a histogram of three bins, used, not used and too late, with discrete Laplace noise of
    scale 4; a record is in one bin of one period, and periods end by a clock. It is not charged to the ledger, see
    `Alarm`; a record that comes too late is counted in a `LateWatch` besides.

    Source
    ------
    Specification 13.2; proof 11.2; discrete Laplace on a histogram, in parallel over periods.
    """

    def __init__(
        self,
        warn: Callable[[str, str | None], object],
        period_s: float = 60.0,
        kind: str = "unusable",
        noise: Noise | None = None,
        fault: Callable[[str, str | None], object] = lambda _, __: None,
    ) -> None:
        self._warn, self._period_s, self._kind, self._fault = warn, period_s, kind, fault
        self._noise = noise or Noise()
        self._over_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self._used = self._unusable = self._late = 0
        self._ask_at = time.monotonic() + self._period_s

    def note(self, records: int, rejected: Mapping[str, int]) -> None:
        """Count the records that came since the last call, unreadable ones too, and the rejected ones by reason.

        Asks whether to warn when a period is over.
        """
        # first, so that records which came after the period's end do not count in it
        if time.monotonic() >= self._ask_at and compiled.is_set():
            self._ask()
        late = sum(rejected.get(reason, 0) for reason in _TOO_LATE)
        unusable = sum(rejected.values()) - late - rejected.get("duplicate", 0)
        self._unusable += unusable
        self._late += late
        self._used += max(0, records - late - unusable)

    def _ask(self) -> None:
        bins = np.array([self._used, self._unusable, self._late])
        used, unusable, late = (bins + self._noise.discrete_laplace(_SCALE, 3)).tolist()
        name = self._kind.replace("unusable", "too_late")
        if late >= USUAL and used <= _FEW:
            self._over_at = time.monotonic() + max(_REPORTED_S, 2 * self._period_s)
            self._fault(
                name,
                f"hardly any record of the last {self._period_s:g} s came before its window was released, and all "
                "later ones are lost: compare the senders' clocks and this machine's (`fcstream doctor`); if a wrong "
                "clock has released windows ahead of time, start a new stream, or wait until it is their time",
            )
        elif used > _FEW or time.monotonic() > self._over_at:
            self._fault(name, None)
        if unusable >= USUAL and used <= _FEW:
            self._warn(
                self._kind,
                f"hardly any of the records of the last {self._period_s:g} s could be used: check the names, ranges "
                "and units of [[features]], `stream.time_unit` and `source.format`; [dead_letter] reports each reason",
            )
        elif used > _FEW:
            self._warn(self._kind, None)
        self._begin()
