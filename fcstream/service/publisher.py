"""Publisher: brings sealed releases to the sink."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from ..connectors.base import Source
from ..connectors.retry import pauses
from ..connectors.sinks import Sink
from ..engine.engine import Engine
from ..engine.exhaustion import REASON
from ..engine.keyed import KeyedEngine
from ..errors import OutputClosed, SinkError, SourceError
from ..releases.base import Release
from ..runtime.waiting import calling
from .batch import check_sink_matches_ledger
from .context import SessionContext

LOG = logging.getLogger("fcstream.service")
WINDOWS = logging.getLogger("fcstream.windows")
LONGEST_WAIT_S = 0.25
"""Longest time in seconds that a source may wait for messages in one call."""
_TELL_EVERY_S = 5.0


class Publisher:
    """Brings releases to the sink: first those that an earlier session left over, then one group after the other.

    Parameters
    ----------
    engine : Engine or KeyedEngine
    sink : Sink
    context : SessionContext
    source : Source, optional
        While the sink refuses, the source may receive messages that its broker might not keep for long.
    """

    def __init__(
        self, engine: Engine | KeyedEngine, sink: Sink, context: SessionContext, source: Source | None = None
    ) -> None:
        self._engine, self._sink, self._context, self._source = engine, sink, context, source

    def left_over(self) -> None:
        """Publish what was sealed and may not have been published."""
        with calling("sink"):
            check_sink_matches_ledger(self._engine, self._sink)
        sealed = self._engine.unpublished()
        with calling("sink"):
            missing = self._sink.missing(sealed)
        self._write(missing)
        self._written(sealed)
        self._note_progress()

    def close_due(self, now_ms: int) -> None:
        """Release and publish every window that is due; stops between two groups when the session is to end."""
        tell_at = time.monotonic() + _TELL_EVERY_S
        for group in self._engine.closing(now_ms):
            self._write(group)
            self._written(group)
            self._note_progress()
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + _TELL_EVERY_S
                left = self._engine.windows_due(now_ms)
                LOG.info("releasing the windows that were missed: %d windows are still due", left)
            self._context.health.beat = time.monotonic()
            if self._context.ending.is_set():
                return

    def _note_progress(self) -> None:
        """Note for those who watch which windows have a release, and what is wrong with the budget or the ledger."""
        self._context.counters.update_from(self._engine)
        self._context.health.note("budget", self._engine.exhaustion.text)
        for part in self._engine.parts[:1]:  # all have one ledger's file
            self._context.health.note("guard", getattr(part.ledger, "warning", None))

    def _written(self, releases: list[Release]) -> None:
        """Note that the sink has these releases."""
        self._engine.acknowledge()
        known = set(self._context.counters.refused)
        self._context.counters.add(releases)
        for reason in sorted(set(self._context.counters.refused) - known - {REASON}):  # which the engine logs
            LOG.warning("windows are refused (%s): %s", reason, self._engine.job.answers.hint(reason))
        for release in releases:
            about = {"window": release.window_open_ms, "status": release.status, "reason": release.reason}
            about |= {} if release.name is None else {"answer": release.name}
            if self._context.gaps.includes(release.window_open_ms):
                about["incomplete"] = True
            WINDOWS.info("window answered", extra=about)
        self._context.gaps.forget_answered(list(dict.fromkeys(release.window_open_ms for release in releases)))

    def _write(self, releases: list[Release]) -> None:
        """Write until the sink has the releases; nothing is read meanwhile, so memory stays bounded."""
        if not releases:
            return
        waits, is_logged = pauses(), False
        while True:
            try:
                with calling("sink"):
                    self._sink.write(releases)
                return
            except OutputClosed:
                raise
            except SinkError as error:
                if not is_logged:
                    LOG.warning("the sink refuses: %s", error, extra={"window": releases[0].window_open_ms})
                    is_logged = True
                self._context.health.bad(f"sink: {error}")
                if wait(self._source, next(waits), self._context.ending):
                    raise


def wait(source: Source | None, seconds: float, ending: threading.Event) -> bool:
    """Wait for an event, at most so many seconds, and return whether it was set.

    A source that can receive messages that its broker might not keep for long does so meanwhile.
    """
    until = time.monotonic() + seconds
    with suppress(SourceError):  # the next poll raises it again
        while source is not None and not ending.is_set() and (left := until - time.monotonic()) > 0:
            with calling("source"):
                if not source.prefetch(min(left, LONGEST_WAIT_S)):
                    break
    return ending.wait(max(0.0, until - time.monotonic()))
