"""Sources of brokers that drop what nobody receives soon: a thread puts on disk what comes, and acknowledges.

It waits for nothing else: not for a window that closes, not for the ledger or the sink.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..errors import ConfigError
from ..formats.envelopes import NO_FIELDS, AskedFields
from ..runtime.waiting import calling
from .base import ImpatientQueue
from .pushed import SharedSpool
from .retry import close_quietly
from .spooled import SpooledSource

_STEP, _WAIT_S, _FULL_S, _END_S = 4096, 0.05, 0.5, 15.0


class ReceivedSource(SpooledSource):
    """A `SpooledSource` whose queue is emptied by a thread of its own.

    Parameters
    ----------
    queue : ImpatientQueue
    spool : SharedSpool
    downtime_ms, asked
        See `SpooledSource`.

    Raises
    ------
    ConfigError
        The spool remembers fewer messages than may be delivered again.

    Notes
    -----
    The thread begins with the first call. What it raises, the next call raises, and then it tries again. `ends` and
    `behind` ask the broker, so the thread pauses for them.
    """

    def __init__(
        self, queue: ImpatientQueue, spool: SharedSpool, downtime_ms: int = 0, asked: AskedFields = NO_FIELDS
    ) -> None:
        if queue.redelivers > spool.remembers:
            raise ConfigError(
                f"must be larger with a `delivery_id`: of {spool.max_bytes} bytes the spool "
                f"remembers the last {spool.remembers} messages, and {queue.redelivers} may come "
                "again",
                "source.spool_bytes",
                remedy="raise it, or lower `inflight`",
            )
        super().__init__(queue, spool, downtime_ms, asked)
        if spool.alive_ms is not None and not queue.was_known:
            self.note_gap("the broker had kept nothing while this process was away", spool.alive_ms)
        self._turn = threading.Lock()  # of the queue, and of what came from it
        self._news = threading.Condition()
        self._failure: Exception | None = None
        self._claims = 0  # callers that want the queue, or have it
        self._has_queue = self._is_closing = False
        self._thread: threading.Thread | None = None

    def ends(self) -> dict[str, int]:
        with self._queue_alone():
            return super().ends()

    def behind(self, ends: Mapping[str, int]) -> bool:
        if self._drain_until is None or self._next < ends.get("spool", 0):
            return super().behind(ends)
        with self._queue_alone():
            return super().behind(ends)

    def prefetch(self, timeout_s: float) -> bool:
        self._begin()
        with self._news:
            self._news.wait_for(lambda: self._failure is not None, timeout_s)
        self._check()
        return True

    def close(self) -> None:
        with self._news:
            self._is_closing = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(_END_S)  # longer only if it is waiting for a broker, and nobody ends the stream
        super().close()

    def _check(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            with self._news:
                self._news.notify_all()
            raise failure

    def _pull(self, max_messages: int, timeout_s: float) -> None:
        """Wait for messages that the thread has stored, or be the one who receives."""
        if self._has_queue:
            super()._pull(max_messages, timeout_s)
            return
        self._begin()
        with self._news:
            self._news.wait_for(lambda: self._failure is not None or self._spool.end > self._next, timeout_s)
        self._check()

    def _put(self) -> None:
        if not self._is_closing:
            super()._put()

    @contextmanager
    def _queue_alone(self) -> Iterator[None]:
        """Let the thread pause while the caller uses the queue."""
        self._check()
        with self._news:
            self._claims += 1
        try:
            with self._turn:
                self._has_queue = True
                try:
                    yield
                finally:
                    self._has_queue = False
        finally:
            with self._news:
                self._claims -= 1
                self._news.notify_all()

    def _begin(self) -> None:
        if self._thread is None and not self._is_closing:
            # In the caller's context, so that a broker that does not answer is told as the stream's source.
            run, about = self._receive, contextvars.copy_context()
            self._thread = threading.Thread(target=about.run, args=(run,), name="fcstream-receiver", daemon=True)
            self._thread.start()

    def _receive(self) -> None:
        while not self._is_closing:
            failure: Exception | None = None
            with self._turn:
                try:
                    with calling("source"):
                        self._take(_STEP, _WAIT_S)
                    is_full = bool(self._held)
                    if is_full:
                        self._queue.pending()  # keeps the connection alive
                except Exception as error:
                    failure, is_full = error, False
            with self._news:
                self._failure = failure
                self._news.notify_all()
                self._news.wait_for(lambda: self._is_closing or (self._failure is None and not self._claims))
                if is_full:
                    self._news.wait_for(lambda: self._is_closing, _FULL_S)
        if not self._spool.is_open:
            close_quietly(self._queue.close)  # it was connected again after everything else was closed
