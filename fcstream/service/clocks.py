"""Clock of a stream: its broker's where that can be asked, else this machine's.

Windows close by these clocks alone. What timestamps reveal of a clock that cannot be asked goes through a noisy alarm
first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..connectors.base import Chunk, Source
from ..runtime.waiting import calling
from .alarms import USUAL, Alarm
from .health import Health

SLACK_MS = 1000
"""Largest difference of clocks, in milliseconds, that is always ignored."""
_ASK_S = 5.0


class StreamClock:
    """The public clock of one session.

    Parameters
    ----------
    source : Source
    own : callable
        This machine's clock, Unix milliseconds.
    lateness_ms : int
        If the clocks differ by more than this (and `SLACK_MS`), no window may close.
    health : Health
        Gets warnings of differences.

    Attributes
    ----------
    is_asked : bool
        Whether the time is the broker's.
    """

    def __init__(self, source: Source, own: Callable[[], int], lateness_ms: int, health: Health) -> None:
        self._source, self._own, self._health = source, own, health
        self._limit_ms = max(lateness_ms, SLACK_MS)
        self._tell_ms = min(SLACK_MS, lateness_ms / 4) if lateness_ms else SLACK_MS
        self._ask_at = 0.0
        self._theirs: tuple[int, float] | None = None  # the broker's time, and when it was asked
        self._timestamps = TimestampWatch(self._limit_ms, health)
        health.clock_gap_ms = None
        health.keep_closed(None)

    @property
    def is_asked(self) -> bool:
        return self._theirs is not None

    def now_ms(self) -> int:
        """Return the present time, as far as it is known without asking; asks every few seconds."""
        if time.monotonic() >= self._ask_at:
            return self.ask()
        if self._theirs is None:
            return self._own()
        theirs_ms, at = self._theirs
        return theirs_ms + int(1000 * (time.monotonic() - at))

    def ask(self) -> int:
        """Ask the broker for the time, or this machine if the broker has no clock that can be asked.

        Raises
        ------
        SourceError
            The broker cannot be reached.
        """
        before = self._own()
        with calling("source"):
            reply = self._source.clock()
        after = self._own()
        self._ask_at = time.monotonic() + _ASK_S
        if reply is None:
            self._theirs = None
            if self._source.timestamps_are_brokers:
                with calling("source"):
                    ends = self._source.ends()
                self._timestamps.asked(ends, before)
            return self._own()
        self._theirs = reply.now_ms, time.monotonic()
        self._compare((before + after) / 2 - reply.now_ms, abs(after - before) / 2)
        self._look_ahead(reply.newest_ms - reply.now_ms)
        return reply.now_ms

    def observe(self, chunks: Sequence[Chunk]) -> None:
        """Compare timestamps with this machine's clock, if the broker's clock cannot be asked."""
        if self._theirs is None and self._source.timestamps_are_brokers:
            self._timestamps.observe(chunks, self._own())

    def _compare(self, gap_ms: float, doubt_ms: float) -> None:
        """Warn if this machine's clock is ahead of the broker's, or behind it, by too much."""
        self._health.clock_gap_ms = round(gap_ms)
        words = (
            f"this machine's clock is {abs(gap_ms) / 1000:.1f} s (± {doubt_ms / 1000:.3f}) "
            f"{'ahead of' if gap_ms > 0 else 'behind'} the broker's"
        )
        sure_ms = abs(gap_ms) - doubt_ms
        is_over = sure_ms > self._limit_ms
        self._health.keep_closed(f"{words}, more than window.lateness allows: set both by NTP" if is_over else None)
        is_told = sure_ms > self._tell_ms and not is_over
        self._health.warn("clock", f"{words}: set both by NTP" if is_told else None)

    def _look_ahead(self, ahead_ms: int) -> None:
        text = None
        if ahead_ms > SLACK_MS:
            text = (
                f"the broker's timestamps run {ahead_ms / 1000:.0f} s ahead of its clock, because "
                "a publisher chose them: "
                "a message that is stamped ahead counts as in time while its window is open; let the broker stamp "
                "messages, and make the stream anew"
            )
        self._health.warn("stamps", text)


class TimestampWatch:
    r"""Notices a difference between clocks from the timestamps that a broker gives, where its clock cannot be asked.

    A message behind a partition's end has arrived after that end was asked for. If its timestamp is nevertheless older,
    the broker's clock is behind this machine's.

    A message behind an end that was asked for at some time has arrived after that time. If its timestamp is older all
    the same, the broker's clock is behind ours.

    Parameters
    ----------
    limit_ms : int
        Differences up to this are tolerated.
    health : Health

    Privacy
    -------
    What is done depends on two `Alarm`\ s only, one for messages that show a gap and one for those that show none; a
    record is in one message, which is counted in one of them.

    Source
    ------
    Specification 13.1; proof 11.1.
    """

    def __init__(self, limit_ms: int, health: Health) -> None:
        self._limit_ms, self._health = limit_ms, health
        self._odd, self._fine = Alarm(), Alarm()
        self._ends: Mapping[str, int] = {}
        self._asked_ms = 0

    def asked(self, ends: Mapping[str, int], now_ms: int) -> None:
        """Note the ends of the partitions, and when they were asked for; also asks the alarms."""
        self._ends, self._asked_ms = ends, now_ms
        if self._odd.rings():
            self._fine.reset()
            self._health.keep_closed(
                f"about {USUAL} messages have timestamps that are further from this machine's clock than "
                "window.lateness allows: set its clock and the broker's by NTP"
            )
        elif self._fine.rings():
            self._odd.reset()
            self._health.keep_closed(None)

    def observe(self, chunks: Sequence[Chunk], now_ms: int) -> None:
        """Count the messages that show a difference and those that show none."""
        odd = seen = 0
        for chunk in chunks:
            timestamps: Any = chunk.timestamps_ms[
                chunk.offsets >= self._ends.get(chunk.partition, np.iinfo(np.int64).max)
            ]
            seen += len(timestamps)
            late, early = timestamps < self._asked_ms - self._limit_ms, timestamps > now_ms + self._limit_ms
            odd += int(np.count_nonzero(late | early))
        self._odd.add(odd)
        self._fine.add(seen - odd)
