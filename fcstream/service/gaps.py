"""Windows that may lack messages because a broker dropped these before they were read."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..connectors.base import Gap, Source
from ..stream.windows import Schedule

LOG = logging.getLogger("fcstream.service")


class IncompleteWindows:
    """The windows that may be incomplete; outlives sessions.

    Attributes
    ----------
    text : str or None
        What to report. It stays for ever, because lost messages do not come back.
    found : int
        Number of gaps.
    answered : int
        Number of releases that were published of windows that may be incomplete.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self._spans: list[tuple[int, int]] = []  # first and last opening of runs of windows
        self.found = self.answered = 0

    def update(self, source: Source, schedule: Schedule, next_window: int, now_ms: int) -> int:
        """Note a source's gaps, and return the last window that they may concern (-1 for none)."""
        return max((self._note(gap, schedule, next_window, now_ms) for gap in source.gaps()), default=-1)

    def includes(self, open_ms: int) -> bool:
        """Return whether a window may be incomplete."""
        return any(first <= open_ms <= last for first, last in self._spans)

    def forget_answered(self, opens_ms: Sequence[int]) -> None:
        """Note that windows have a release; earlier ones are not asked for again."""
        for open_ms in opens_ms:
            if self.includes(open_ms):
                self.answered += 1
                LOG.warning(
                    "window %d was released without some messages: the broker had dropped messages unread", open_ms
                )

    def _note(self, gap: Gap, schedule: Schedule, next_window: int, now_ms: int) -> int:
        self.found += 1
        first, last = next_window, (now_ms - schedule.start_ms) // schedule.slide_ms
        if gap.since_ms is not None:
            first = max(first, schedule.due(gap.since_ms))
        if schedule.count is not None:
            last = min(last, schedule.count - 1)
        if first > last:
            return -1
        span = schedule.window(first).open_ms, schedule.window(last).open_ms
        self._spans = [each for each in self._spans if not span[0] <= each[0] <= each[1] <= span[1]] + [span]
        since, until = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(open_ms // 1000)) for open_ms in span)
        self.text = f"{gap.what}: windows that open from {since} to {until} may be incomplete"
        LOG.warning("%s", self.text)
        return last
