"""A stream that never ends: open a `Session`, step it, and start over when something breaks."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .collector import set_aside
from .connectors.base import KeepingSource
from .connectors.retry import close_quietly, pauses
from .errors import (
    BudgetExhausted,
    ConfigError,
    EngineClosed,
    FcstreamError,
    LedgerDamaged,
    LedgerMismatch,
    SourceError,
)
from .session import LONGEST_WAIT_S, POLL_MESSAGES, Rebalanced, Session, Setting, wait

if TYPE_CHECKING:
    from .connectors.base import LiveSource, Share
    from .engine import Engine
    from .keyed import KeyedEngine
    from .sinks import Sink

LOG = logging.getLogger("fcstream.live")
_STAND_BY_S = 0.5
FATAL = (BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch)
"""Errors that trying again does not mend."""


OpenEngine = Callable[["Collection[str] | None"], "Engine | KeyedEngine"]
"""Opens what answers the stream, or some keys of it."""


class Lead(Protocol):
    """One process at a time answers a stream."""

    def take(self) -> bool:
        """Whether it is this one from now on."""

    def check(self) -> None:
        """Raise `LedgerError` if it is not any more; asked often, so it may answer from memory for some seconds."""

    def close(self) -> None:
        """Let another one take it. Idempotent."""


class Service:
    """Keeps a live stream going, for months: opens a `Session`, steps it, and opens another when one breaks.

    Parameters
    ----------
    open_engine, open_source, open_sink : callable
        Make each anew; see `OpenEngine` for the first. Nothing is read that could not be charged.
    setting : Setting
    keys : sequence of str, optional
        Of a stream whose parts several processes share (``setting.place``).
    open_lead : callable, optional
        For a stream that several processes could answer, but must not at once.

    Notes
    -----
    `stop` may be called from a signal handler or another thread: the step under way is finished and committed.

    A source whose group gives other partitions stays open; what counts and charges is made anew for the keys that come
    by them. A stream without such keys is answered only by a process that has all partitions.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch
        What trying again does not mend; every other error is waited out, with jittered pauses.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        open_source: Callable[[], LiveSource],
        open_sink: Callable[[], Sink],
        setting: Setting,
        keys: Sequence[str] = (),
        open_lead: Callable[[], Lead] | None = None,
    ) -> None:
        self._opens = (open_engine, open_source, open_sink)
        self._open_lead = open_lead
        self._setting = setting
        self._keys = keys
        self._kept: Any = None  # a source that stays open while the ledger or the sink is away, and goes on spooling
        self.counters = setting.counters
        self.stopping = setting.stopping
        self._ending = setting.ending
        self._health = setting.health

    @property
    def trouble(self) -> str | None:
        """Why the service is not ready now; None if it is."""
        return self._health.trouble

    @property
    def beat(self) -> float:
        """When it last went round; a service that hangs falls behind."""
        return self._health.beat

    def stop(self) -> None:
        """Finish the step under way, commit, and return from `run`."""
        self.stopping.set()
        self._setting.ending.set()

    def give_up(self, error: BaseException) -> None:
        """Say why it ended by itself, for those who watch."""
        self._health.bad(f"ended: {_what(error)}")
        LOG.error("ended: %s", _what(error))

    def renew(self) -> None:
        """Finish the step under way, commit, and go on in a new session: with what `open_...` make then."""
        self._setting.ending.set()

    @set_aside()
    def run(self, on_step: Callable[[Service], object] | None = None) -> None:
        """Serve until `stop`, or until a schedule with an end is answered whole."""
        try:
            self._serve(on_step)
        finally:
            self._drop_kept()

    def _serve(self, on_step: Callable[[Service], object] | None) -> None:
        waits: Iterator[float] | None = None
        while not self.stopping.is_set():
            if self.counters.restarts:
                gc.collect()  # clients and their callbacks hold each other, with threads and sockets
            try:
                for session in self._sessions():
                    if session is None:
                        self._health.beat = time.monotonic()
                    else:
                        waits = None
                        self._health.good()
                    if on_step is not None:
                        on_step(self)
                    if session is not None and session.is_over:
                        return
            except FATAL:
                raise
            except (FcstreamError, OSError) as error:
                if self.stopping.is_set():
                    return
                self.counters.restarts += 1
                self._health.bad(_what(error))
                LOG.warning("starting over: %s", self.trouble)
                waits = waits or pauses()
                wait(self._kept, next(waits), self._ending)

    def _begin(self) -> None:
        """What was to end has ended. One who stops sets `stopping` first, so nothing is forgotten between the lines."""
        self._setting.ending.clear()
        if self.stopping.is_set():
            self._setting.ending.set()

    def _sessions(self) -> Iterator[Session | None]:
        """The session, again after each of its steps, or None while there is nothing to do."""
        open_engine, open_source, open_sink = self._opens
        self._begin()
        with ExitStack() as stack:
            lead = None if self._open_lead is None else self._open_lead()
            if lead is not None:
                stack.callback(close_quietly, lead.close)
                while not lead.take():
                    self._drop_kept()
                    self._stand_by("another process answers this stream; standing by")
                    yield None
                    if self._ending.is_set():
                        return
            # What charges before what reads, unless the group must say first what there is to charge for.
            engine = open_engine(None) if self._setting.place is None else None
            stack.callback(lambda: close_quietly(*([] if engine is None else [engine.abort])))
            sink = open_sink()
            stack.callback(close_quietly, sink.close)
            source, self._kept = self._kept or open_source(), None
            stack.push(partial(self._let_go, source))
            while True:
                share = yield from self._await_share(source)
                if self._ending.is_set():
                    return
                places = None if share is None or self._setting.place is None else self._places(share)
                if engine is None:
                    engine = open_engine(None if places is None else [key for keys in places.values() for key in keys])
                try:
                    yield from self._steps(Session(engine, source, sink, self._setting, places), lead)
                except Rebalanced:
                    LOG.info("partitions were reassigned: reading them again")
                    self.counters.restarts += 1
                    engine.abort()
                    engine = None
                else:
                    return

    def _let_go(self, source: LiveSource, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close a source, unless it is of use while something else is away."""
        is_fine = isinstance(error, FcstreamError) and not isinstance(error, (*FATAL, SourceError))
        if is_fine and isinstance(source, KeepingSource) and not self.stopping.is_set():
            source.rewind()
            self._kept = source
        else:
            close_quietly(source.close)

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            close_quietly(kept.close)

    def _steps(self, session: Session, lead: Lead | None) -> Iterator[Session]:
        """One session until the end, which it commits."""
        session.start()
        while not self._ending.is_set():
            if lead is not None:
                lead.check()
            session.step(LONGEST_WAIT_S)
            self.counters.rejected = _sum(self.counters.rejected, session.engine.drain_rejected())
            yield session
        session.commit()
        session.engine.acknowledge()

    def _await_share(self, source: Any) -> Generator[None, None, Share | None]:
        """Until the group has given us what we can work with, if the source has a group; what is polled meanwhile comes
        again with the next assignment."""
        while not self._ending.is_set():
            if not hasattr(source, "share"):
                return None
            share: Share | None = source.share
            if share is None:
                self._ending.wait(0.02)
                yield None
            elif self._setting.place is None:
                if len(share.mine) == share.total:
                    return share
                self._stand_by(
                    "other members of the group have partitions of this stream; standing by (to share it, give "
                    "`stream.keys` and `source.partitioner`)"
                )
                yield None
            else:
                if any(self._places(share).values()):
                    return share
                self._stand_by("no key comes by the partitions that the group gave; standing by")
                yield None
            source.poll(POLL_MESSAGES, 0)  # one call: it never returns messages of an assignment it has just learned of
        return None

    def _places(self, share: Share) -> dict[str, list[str]]:
        place = self._setting.place
        assert place is not None
        if share.topics > 1:
            raise ConfigError("must be left out with several topics: a key has a place in one", "source.partitioner")
        found: dict[str, list[str]] = {name: [] for name in share.mine.values()}
        for key in self._keys:
            name = share.mine.get(place(key, share.total))
            if name is not None:
                found[name].append(key)
        return found

    def _stand_by(self, why: str) -> None:
        if self.trouble != why:
            LOG.info("%s", why)
        self._health.bad(why)
        self._ending.wait(_STAND_BY_S)


def now_ms() -> int:
    """Unix milliseconds by the system's clock."""
    return time.time_ns() // 1_000_000


def _what(error: BaseException) -> str:
    """An error for a log: ours say no record's content; of others only the kind is told."""
    if isinstance(error, EngineClosed):
        return "the engine was closed by an earlier error"
    return (
        str(error) if isinstance(error, FcstreamError) else f"{type(error).__name__}: {getattr(error, 'strerror', '')}"
    )


def _sum(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + two.get(name, 0) for name in one.keys() | two.keys()}
