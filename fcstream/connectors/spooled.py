"""Sources that read a queue through a spool, and the arrival times of messages that the queue held during a pause."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import chain, repeat

import numpy as np

from ..errors import SourceError
from ..formats.envelopes import NO_FIELDS, NOTHING, AskedFields, Envelope
from .base import Chunk, Gap, Queue, ReceivedMessage, Source
from .retry import close_quietly
from .spool import ID_BYTES, NO_ID, Spool, SpooledRecords

LOG = logging.getLogger("fcstream.connectors.spool")
POLL_BYTES = 1 << 26
"""Size at which a poll stops reading; it exceeds this by one frame at most."""
_ENDS_S, _STEP, _SERVE_S = 5.0, 4096, 5.0
_DRAIN_S, _LAST_S = 600.0, 2.0
_MIN_PAUSE_MS = 5000
_MUCH = 1 << 20  # bytes; below it, a thread for the disk does not pay


class CatchUp:
    """Decides when messages that a queue held during a pause count as arrived, and how long windows wait for them.

    Both depend on clocks alone.

    Parameters
    ----------
    allowance_ms : int
        The longest wait.
    clock : callable
        Returns Unix milliseconds.
    """

    def __init__(self, allowance_ms: int, clock: Callable[[], int]) -> None:
        self._allowance_ms, self._clock = allowance_ms, clock
        self._begun_ms = self._until_ms = self._arrival_ms = 0

    def begin(self, alive_ms: int | None) -> None:
        """Note that a pause ended during which nobody read the queue, since `alive_ms` (None: it was never read).

        Windows wait as long as the pause was, but at least 5 seconds and at most the allowance.
        """
        now = self._begun_ms = self._clock()
        self._arrival_ms = now - self._allowance_ms if alive_ms is None else min(alive_ms, now)
        pause_ms = _MIN_PAUSE_MS if alive_ms is None else max(_MIN_PAUSE_MS, now - alive_ms)
        self._until_ms = now + min(self._allowance_ms, pause_ms)

    @property
    def arrival_ms(self) -> int | None:
        """Return the time before which nothing came that is received now: the pause's begin; None if it comes now."""
        return self._arrival_ms if self.is_on else None

    @property
    def is_on(self) -> bool:
        return self._begun_ms <= self._clock() < self._until_ms  # a clock that was set back does not prolong it


class SpooledSource(Source):
    """Reads a queue through a spool, which is its one partition, ``spool``.

    Parameters
    ----------
    queue : Queue
    spool : Spool
    downtime_ms : int
        How long windows wait at most, after a start or a lost connection, for messages that the broker held meanwhile.
        These count as arrived when the pause began.
    asked : AskedFields
        What chunks are to tell of messages besides their bodies. The queue gives it, the spool keeps it; messages that
        were received when nothing was asked for have empty envelopes.

    Attributes
    ----------
    duplicates : int
        Number of messages that were recognized by their identity and dropped.

    Notes
    -----
    The source owns the queue and the spool, and closes them. While the spool is full nothing is received, so messages
    stay with the broker. `ends` does not wait for messages that are sent later, and waits at most 5 seconds: what the
    broker still holds then is received later, with later receipt times. Where messages hold their arrival times, `ends`
    covers all that the broker had at that moment, for at most 10 minutes.
    """

    receipt_is_durable = True

    def __init__(self, queue: Queue, spool: Spool, downtime_ms: int = 0, asked: AskedFields = NO_FIELDS) -> None:
        self._queue, self._spool = queue, spool
        self._is_asked = asked.from_source
        self._received = 0
        self._wanted: int | None = None  # number of messages that must have been received to be at an end
        self._drain_until: float | None = None
        self._connections = queue.connections
        self._alive_ms = spool.clock()
        self._mark_at = 0.0
        self._catch_up = CatchUp(downtime_ms, spool.clock)
        self._catch_up.begin(spool.alive_ms)
        self._next = spool.position
        self._pulled = time.monotonic()
        self.duplicates = 0
        self._held: list[ReceivedMessage] = []  # received, but not in the spool yet because it is full
        self._ahead: list[ReceivedMessage] = []  # received while those before them were put on disk
        self._disk = ThreadPoolExecutor(1, "fcstream-spool")

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        if self._next == self._spool.end:
            self._pull(max_messages, timeout_s)
        # much is left to read, and the queue's connection must stay alive meanwhile
        elif time.monotonic() > self._pulled + _SERVE_S:
            self._pull(max_messages, 0.0)
        pieces: list[SpooledRecords] = []
        room, size, start = max_messages, 0, self._next
        while room > 0 and size < POLL_BYTES and self._next < self._spool.end:
            rows = self._spool.read(self._next)
            pieces.append(rows.part(0, room))
            count = len(pieces[-1].bodies)
            self._next, room, size = self._next + count, room - count, size + sum(map(len, pieces[-1].bodies))
        if not pieces:
            return []
        timestamps = np.concatenate([np.array(rows.arrivals_ms, np.int64) for rows in pieces])
        bodies = [body for rows in pieces for body in rows.bodies]
        receipts = None
        if any(rows.timestamps for rows in pieces):
            receipts = np.repeat(np.array([rows.receipt_ms for rows in pieces]), [len(rows.bodies) for rows in pieces])
        envelopes = None
        if self._is_asked:  # what was received before it was asked for has none
            packed = chain.from_iterable(rows.envelopes or repeat(b"", len(rows.bodies)) for rows in pieces)
            envelopes = list(map(Envelope.unpacked, packed))
        return [Chunk("spool", np.arange(start, self._next), timestamps, bodies, receipts, envelopes)]

    def gaps(self) -> list[Gap]:
        return super().gaps() + self._queue.gaps()

    @property
    def torn(self) -> str | None:
        return self._spool.torn

    @property
    def stored_bytes(self) -> int:
        return self._spool.stored_bytes

    @property
    def is_catching_up(self) -> bool:
        return self._catch_up.is_on

    @property
    def has_ended(self) -> bool:
        return self._queue.has_ended and not self._held and not self._ahead

    def ends(self) -> dict[str, int]:
        if self._queue.gives_arrivals:
            self._wanted, self._drain_until = None, time.monotonic() + _DRAIN_S
            return {"spool": self._spool.end}
        until, self._wanted = time.monotonic() + _ENDS_S, None
        while not self._spool.is_full and time.monotonic() < until and self._has_more():
            self._pull(_STEP, 0.1)
        return {"spool": self._spool.end}

    def _has_more(self) -> bool:
        """Return whether the broker has messages that are not in the spool yet.

        Where it can count them these are the ones that it had at the first look, so that a steady trickle of later ones
        does not hold up a window's close.
        """
        self._count_wanted()
        if self._wanted is None:
            return bool(self._ahead) or self._queue.pending()
        return self._received - len(self._ahead) - len(self._held) < self._wanted

    def behind(self, ends: Mapping[str, int]) -> bool:
        if self._next < ends.get("spool", 0):
            return True
        if self._drain_until is None:
            return False
        if self._spool.is_full or time.monotonic() > self._drain_until or self._has_all():
            self._drain_until = None
        return self._drain_until is not None

    def _has_all(self) -> bool:
        """Return whether everything was polled that the broker had at the last `ends`."""
        self._count_wanted()
        is_received = self._wanted is not None and self._received >= self._wanted
        return is_received and not self._held and not self._ahead and self._next == self._spool.end

    def _count_wanted(self) -> None:
        if self._wanted is None:
            waiting = self._queue.waiting()
            self._wanted = None if waiting is None else self._received + waiting

    def commit(self, positions: Mapping[str, int]) -> None:
        if "spool" in positions:
            self._spool.commit(positions["spool"])

    def prefetch(self, timeout_s: float) -> bool:
        self._pull(_STEP, timeout_s)
        return True

    def rewind(self) -> bool:
        self._next = self._spool.position
        return True

    def close(self) -> None:
        if self._queue.comes_once:
            self._save_rest()
        close_quietly(self._queue.close, self._disk.shutdown, self._spool.close)

    def _save_rest(self) -> None:
        """Put into the spool what has come and would never come again, for at most 2 seconds."""
        until = time.monotonic() + _LAST_S
        try:
            while self._is_unsaved() and not self._spool.is_full and time.monotonic() < until:
                self._pull(_STEP, 0.0)
            is_unsaved = self._is_unsaved()
        except SourceError:
            is_unsaved = True
        if is_unsaved:
            LOG.warning("what is left in the pipe, or has no room in the spool, is lost when this process ends")

    def _is_unsaved(self) -> bool:
        return self._spool.is_open and (bool(self._held or self._ahead) or self._queue.pending())

    def _pull(self, max_messages: int, timeout_s: float) -> None:
        """Receive messages, put them on disk, and acknowledge them."""
        self._take(max_messages, timeout_s)
        if self._held:
            self._queue.pending()  # keeps the connection alive
            time.sleep(timeout_s)

    def _take(self, max_messages: int, timeout_s: float) -> None:
        """Do what `_pull` does; messages for which the spool has no room stay in `_held`."""
        self._pulled = time.monotonic()
        self._held = [received for received in self._held if self._queue.is_current(received)]
        if not self._held:
            ahead, self._ahead = self._ahead, []
            self._held = [received for received in ahead if self._queue.is_current(received)]
        if not self._held:
            self._held = self._queue.receive(max_messages, timeout_s)
            self._received += len(self._held)
        self._mind_connection()
        self._put()

    def _mind_connection(self) -> None:
        """Note whether another connection was made; messages may have waited since the last one was lost."""
        if self._queue.connections != self._connections:
            self._connections, self._wanted = self._queue.connections, None
            self._catch_up.begin(self._alive_ms)
        self._alive_ms = self._spool.clock()
        if time.monotonic() >= self._mark_at:
            self._mark_at = time.monotonic() + 1.0
            self._spool.mark()

    def _put(self) -> None:
        """Put held messages into the spool, as far as there is room, and acknowledge them."""
        held, fresh, ids = self._held, list(range(len(self._held))), []
        names = [self._queue.delivery_id(received) for received in held]
        if any(name is not None for name in names):
            ids = [NO_ID if name is None else hashlib.blake2b(name, digest_size=ID_BYTES).digest() for name in names]
            first = {identity: i for i, identity in reversed(list(enumerate(ids)))}
            fresh = [i for i in fresh if ids[i] == NO_ID or (first[ids[i]] == i and not self._spool.knows(ids[i]))]
        bodies, ids = [held[i].body for i in fresh], [ids[i] for i in fresh] if ids else []
        much = not self._ahead and sum(map(len, bodies)) > _MUCH
        floor = self._catch_up.arrival_ms
        given = [held[i].arrival_ms for i in fresh] if self._queue.gives_arrivals or floor is not None else []
        timestamps = [floor if arrival is None else arrival for arrival in given]
        sync = self._sync if much else None
        envelopes = [(held[i].envelope or NOTHING).packed() for i in fresh] if self._is_asked else []
        count = self._spool.append(bodies, ids, sync, timestamps, envelopes)
        done = len(held) if count == len(fresh) else fresh[count]
        self.duplicates += done - count
        self._held = held[done:]
        self._queue.acknowledge(held[:done])

    def _sync(self, file: int) -> None:
        """Call fsync in a thread, while the next messages are received."""
        syncing = self._disk.submit(os.fsync, file)
        try:
            with suppress(SourceError):  # raised again once no write is in progress
                self._ahead = self._queue.receive(_STEP, 0.0)
                self._received += len(self._ahead)
        finally:
            wait([syncing])
        syncing.result()
