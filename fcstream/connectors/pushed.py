"""Sources into which others push: each sender waits for an answer, so a thread of its own puts what comes on disk.

What comes at the same time is stored together, with one fsync. The thread does not wait for the engine: senders get
their answers while a window is closed, or while the ledger or the sink is away.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FcstreamError
from ..formats.envelopes import NO_FIELDS, AskedFields
from .base import PushQueue, ReceivedMessage
from .retry import close_quietly
from .spool import MEMORY, Spool, SpooledRecords
from .spooled import SpooledSource

_STEP, _WAIT_S = 4096, 0.25
_MAX_REMEMBERED = 1 << 16
_BYTES_EACH = 1024  # of the spool for each identity, so that these take a sixty-fourth of it at most


def remembered(spool_bytes: int) -> int:
    """Return how many messages are known again by their identity, with a spool of this size."""
    return min(_MAX_REMEMBERED, max(MEMORY, spool_bytes // _BYTES_EACH))


class SharedSpool(Spool):
    """A `Spool` that one thread fills and another one reads.

    Attributes
    ----------
    lock : threading.RLock
        Whoever holds it sees the spool between two changes.
    """

    def __init__(self, folder: Path, max_bytes: int, **clocks: Any) -> None:
        self.lock = threading.RLock()
        super().__init__(folder, max_bytes, memory=remembered(max_bytes), **clocks)

    @property
    def remembers(self) -> int:
        """Return how many messages are known again by their identity."""
        return self._memory

    @property
    def stored_bytes(self) -> int:
        with self.lock:
            return super().stored_bytes

    def append(
        self,
        bodies: Sequence[bytes],
        ids: Sequence[bytes] = (),
        sync: Callable[[int], object] | None = None,
        timestamps: Sequence[int | None] = (),
        envelopes: Sequence[bytes] = (),
    ) -> int:
        with self.lock:
            return super().append(bodies, ids, sync, timestamps, envelopes)

    def read(self, number: int) -> SpooledRecords:
        with self.lock:
            return super().read(number)

    def commit(self, number: int) -> None:
        with self.lock:
            super().commit(number)

    def close(self) -> None:
        with self.lock:
            super().close()


class PushedSource(SpooledSource):
    """A `SpooledSource` whose queue is emptied by a thread of its own.

    Parameters
    ----------
    queue : PushQueue
        It is started here.
    spool : SharedSpool
    downtime_ms : int
        See `SpooledSource`: after a start windows wait so long at most for what senders kept meanwhile.
    asked : AskedFields
        See `SpooledSource`.

    Notes
    -----
    A message for which the spool has no room is refused at once, and so is everything after a failure of the disk,
    which `poll` raises. `ends` covers every message that was received up to then: its sender may have the answer.
    """

    def __init__(
        self, queue: PushQueue, spool: SharedSpool, downtime_ms: int = 0, asked: AskedFields = NO_FIELDS
    ) -> None:
        super().__init__(queue, spool, downtime_ms, asked)
        self._pushed, self._shared = queue, spool
        self._news = threading.Condition()
        self._failure: FcstreamError | None = None
        self._is_closing = False
        self._reported: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._store, name="fcstream-receiver", daemon=True)
        self._thread.start()
        queue.start()

    def take_refused(self) -> Mapping[str, int]:
        refused = Counter(self._pushed.refused)
        fresh, self._reported = refused - self._reported, refused
        return fresh

    def ends(self) -> dict[str, int]:
        self._check()
        with self._shared.lock:
            return {"spool": self._shared.end}

    def behind(self, ends: Mapping[str, int]) -> bool:
        return self._next < ends.get("spool", 0)

    def prefetch(self, timeout_s: float) -> bool:
        with self._news:
            self._news.wait_for(lambda: self._failure is not None, timeout_s)
        self._check()
        return True

    def close(self) -> None:
        close_quietly(self._queue.close)  # the thread goes on until the requests that are complete have their answers
        self._is_closing = True
        self._thread.join()
        super().close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _pull(self, max_messages: int, timeout_s: float) -> None:
        """Wait for messages that the thread has stored."""
        with self._news:
            self._news.wait_for(lambda: self._failure is not None or self._shared.end > self._next, timeout_s)
        self._check()

    def _store(self) -> None:
        while not self._is_closing or self._ahead or self._queue.pending():
            try:
                self._take(_STEP, _WAIT_S)
            except FcstreamError as error:
                self._refuse("failed")
                with self._news:
                    self._failure = error
                    self._news.notify_all()
                self._refuse_all()
                return
            self._refuse("full")
            with self._news:
                self._news.notify_all()

    def _put(self) -> None:
        most = self._shared.max_bytes // 2
        large = [received for received in self._held if len(received.body) > most]
        if large:
            self._held = [received for received in self._held if len(received.body) <= most]
            self._pushed.refuse(large, "too_large")
        super()._put()

    def _refuse(self, reason: str) -> None:
        held, self._held = self._held, []
        if held:
            self._pushed.refuse(held, reason)

    def _refuse_all(self) -> None:
        """Refuse whatever comes until the source is closed."""
        self._held, self._ahead = self._ahead, []
        self._refuse("failed")
        while not self._is_closing or self._queue.pending():
            try:
                received: list[ReceivedMessage] = self._queue.receive(_STEP, _WAIT_S)
            except FcstreamError:
                return  # the queue itself has failed
            if received:
                self._pushed.refuse(received, "failed")
