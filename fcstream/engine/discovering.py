"""Engine of a stream that finds its keys: those that many records have in one period are answered in the next."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Config
from ..config.job import FINDER
from ..config.key_discovery import LONGEST_KEY, is_key
from ..errors import ConfigError, EngineClosed
from ..formats.batch import Batch, Rejection
from ..formats.cells import Role, read
from ..formats.rejections import rejected_at
from ..formats.rows import read_moment
from ..ledgers import Ledger, Terms, open_ledger, open_ledgers
from ..ledgers.base import max_loss, part_name
from ..ledgers.history import utc
from ..noise.samplers import Noise
from ..releases.base import Release, from_lines
from ..runtime.wall_clock import WallClock
from ..runtime.words import many
from ..stream.admission import admit, part_codes, reject
from .engine import Engine
from .first_window import FirstWindow
from .intake import OnRejection
from .keyed import KeyedEngine
from .progress import warn_of_loss
from .routing import distribute
from .shared_users import UserAccount, account_of
from .together import raise_first

LOG = logging.getLogger("fcstream.engine")


class _Rows(NamedTuple):
    """Records with fine times and keys, the window and the period of each, and when they arrived."""

    batch: Batch
    arrivals: NDArray[np.int64] | None
    windows: NDArray[np.int64]

    def pick(self, rows: NDArray[Any]) -> _Rows:
        arrivals = None if self.arrivals is None else self.arrivals[rows]
        return _Rows(self.batch.pick(rows), arrivals, self.windows[rows])


class DiscoveringEngine(KeyedEngine):
    """Private releases per window and key, with keys that are found: nobody declares them.

    Parameters
    ----------
    config : Config or mapping
        With ``stream.key`` and ``stream.keys = { discover = "frequent", ... }``.
    ledgers : mutable mapping of str to Ledger, optional
        Ledgers in memory by key, in which new ones are put; the empty key stands for the search. By default streams of
        the one ledger of ``[ledger] url``.
    noise, on_rejection, clock
        See `Engine`.

    Raises
    ------
    ConfigError, LedgerError

    Notes
    -----
    Works like `KeyedEngine`. `keys` are those of the present period; after its last window the stream ``name/`` has a
    release of the kind ``frequent``, whose ``levels`` are the keys of the next period. If that is refused, the keys
    stay as they were. A record with another key is rejected as ``undiscovered_key``, but counts in the search. Records
    of a period whose keys are not known yet are kept until they are: with files that is the whole file, else as much as
    comes within ``window.lateness`` and ``window.ahead``. The ledger keeps the keys of each period before the first
    window of that period is charged, so another process, or the same after a crash, answers the same ones.

    Privacy
    -------
    Unit ``event``: a record pays for the search of its period and for its window under its key, which `[budget]` holds
    together. Unit ``user``: one filter pays for the searches and for all keys, see
    `fcstream.engine.shared_users.UserAccount`. Whether a record counts under a key is a function of that record and of
    what was released before. Not covered: run time, memory, and counters of rejected records.

    Source
    ------
    Specification 8.9; proof 2.14; ours.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        ledgers: MutableMapping[str, Ledger] | None = None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
        clock: WallClock | None = None,
    ) -> None:
        job = self._prepare(config, on_rejection, clock)
        if job.finder is None:
            raise ConfigError("must say how keys are found: `KeyedEngine` answers declared ones", "stream.keys")
        self._found, self._closes_together = job.finder, True
        self._noise, self._on_rejection, self._given = noise, on_rejection, ledgers
        self._leaving: dict[str, Engine] = {}
        self._unasked: set[str] = set()  # keys of earlier runs whose releases `unpublished` has not returned yet
        self._held: dict[int, list[_Rows]] = {}
        self._period: int | None = None
        self._first_period = 0
        self._replayed = 0
        self._is_over = False
        with ExitStack() as undo:
            self._account: UserAccount | None = None
            if job.keys_chosen is not None:
                ledger = self._open_ledgers([""], [job.terms], None)[0]
                undo.callback(ledger.close)
                self._account = account_of(self.config, ledger, noise)
                self._account.enter()
                undo.callback(self._account.leave)
            beside = None if self._account is None else self._account.ledger
            ledger = self._ledger = self._open_ledgers([FINDER], [self._found.job.terms], beside)[0]
            undo.callback(ledger.close)
            self._start = FirstWindow(job, ledger, ledger.last_sealed() is not None)
            if self.clock is not None:
                last, period_ms = ledger.last_sealed(), self._found.job.schedule.length_ms
                first = None if self._start.index is None else job.schedule.window(self._start.index).open_ms
                known = first if last is None else last[0].close_ms
                self.clock.compare(known, job.backlog_ms + period_ms)  # its keys may be a period further
                self._start.begin(self.clock.now_ms())
            self._finder = Engine(self.config, key=FINDER, ledger=ledger, noise=noise, clock=self.clock)
            self._finder.exhaustion.report_to(self.exhaustion)
            undo.callback(lambda: self._try_each_part(Engine.abort))
            if self._start.index is not None:
                self._enter()
                self._open_unpublished()
            undo.pop_all()

    @property
    def parts(self) -> tuple[Engine, ...]:
        """The engine of the search, and that of each key of the present period."""
        return (self._finder, *self._engines.values())

    @property
    def _everyone(self) -> tuple[Engine, ...]:
        return (*self._leaving.values(), *self._engines.values(), self._finder)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the present period, in order."""
        return tuple(self._index)

    @property
    def known_keys(self) -> tuple[str, ...]:
        """All keys that any period has had so far, in order."""
        first, last = self._first_window(0) // self._found.period_windows, -1 if self._period is None else self._period
        found = (self._keys_kept(period) or () for period in range(first, last + 1))
        return tuple(sorted({key for keys in found for key in keys}))

    @property
    def spent(self) -> PrivacyLoss:
        """What the most charged block has spent: of a search and of any key's stream together."""
        with self._lock:
            keys = max_loss([engine.spent for engine in self._engines.values()])
            return keys + self._finder.spent if self._account is None else max_loss([keys, self._finder.spent])

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window that lacks the release of some key, or, if none does, of the last window of the
        present period, which lasts until its search is over.
        """
        return self.job.schedule.window(self._next_window).open_ms

    @property
    def replay_from(self) -> int:
        """See `Engine`: the opening of the present period, whose search needs all of its records."""
        is_searched = self._period is None or self._is_searched(self._period)
        return self._finder.next_open_ms if is_searched else self.next_open_ms

    @property
    def replayed(self) -> int:
        """See `Engine`."""
        return super().replayed + self._replayed

    def knows(self, release: Release) -> bool:
        """See `Engine.knows`; of a key that is answered no more, whether its period had it."""
        key = release.key
        if key is None or key in self._index or release.stream != part_name(self.job.terms.stream, key):
            return super().knows(release)
        period = self._found.job.schedule.index_after(release.window_open_ms) - 1
        return key in (self._keys_kept(period) or ())

    def windows_due(self, now_ms: int) -> int:
        """See `Engine.windows_due`; of the key that lacks most."""
        return max(0, self.job.schedule.due(now_ms) - self._next_window)

    def take(
        self,
        batch: Batch,
        arrivals: NDArray[np.int64] | None = None,
        *,
        identified: bool = False,
        assigned_keys: Collection[str] | None = None,
    ) -> None:
        """Add one batch of decoded records, see `Engine.take`. Every partition may carry any key."""
        with self._lock:
            self._check_open()
            self.first_records.see(batch)
            rejections = list(batch.rejections)
            rows = self._fine_rows(batch, arrivals, rejections, identified)
            periods = rows.windows // self._found.period_windows
            present = -1 if self._period is None else self._period
            self._reject_closed(rows.pick(periods < present), rejections)
            here = rows.pick(periods == present)
            codes = part_codes(here.batch, self._index, self.job.schema.key, rejections, "undiscovered_key")
            routed = self._route(here.batch, here.arrivals, codes, rejections)
            try:
                if identified:
                    self._seen.add(batch.positions)
                self._search(rows.pick(periods >= present))
                distribute(self.job, self._engines, routed)
                for period in np.unique(periods[periods > present]).tolist():
                    self._held.setdefault(period, []).append(rows.pick(periods == period))
            except BaseException as error:  # some engines may have counted their records
                self._give_up(error)

    def begin(self, now_ms: int) -> None:
        """See `Engine.begin`."""
        with self._lock:
            self._check_open()
            if self._period is None:
                now = read_moment(now_ms, "now_ms")
                self._start.begin(now)
                self._finder.begin(now)
                self._enter()

    def unpublished(self) -> list[Release]:
        """See `Engine.unpublished`."""
        with self._lock:
            found = super().unpublished()
            self._unasked.clear()
            return found

    def acknowledge(self) -> None:
        """See `Engine.acknowledge`. A search is acknowledged after all releases of its period, since by it a later
        process finds them.
        """
        with self._lock:
            parts = [*self._leaving.values(), *self._engines.values()]
            for engine in parts:
                engine.acknowledge()
            if all(engine.is_settled for engine in parts):
                self._finder.acknowledge()
            self._dismiss()

    def close(self) -> list[Release]:
        """See `Engine.close`."""
        with self._lock:
            if not self._is_over:
                self.acknowledge()
                if self.job.clock == "eof":
                    self.first_records.check(self.abort)
                    while self._close_window(None):
                        pass
                elif self._held or any(engine.has_records for engine in self._everyone):
                    warn_of_loss(self.job.terms.stream, self.replay_from)
            found: list[Release] = self._end(lambda: self._gather(Engine.leave, acknowledging=False))
            return found

    def abort(self) -> None:
        """See `Engine.abort`."""
        with self._lock:
            self._end(super().abort)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(lambda: super(DiscoveringEngine, self).__exit__(kind, error, trace))

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _next_window(self) -> int:
        if self._period is None:
            return self._start.index or 0
        bound = self._bound(self._period)
        least = min((engine.next_index for engine in self._engines.values()), default=bound)
        return bound - 1 if least >= bound and self._is_searched(self._period) else least

    def _is_searched(self, period: int) -> bool:
        """Return whether keys are looked for in a period; they are not in the last one."""
        count = self._found.job.schedule.count
        return count is None or period < count

    def _bound(self, period: int) -> int:
        """Return the index after the last window of a period."""
        bound, count = (period + 1) * self._found.period_windows, self.job.schedule.count
        return bound if count is None else min(bound, count)

    def _first_window(self, period: int) -> int:
        return max(period * self._found.period_windows, self._start.index or 0)

    def _check_open(self) -> None:
        if self._is_over:
            raise EngineClosed("the engine is closed", remedy="make a new one to go on")

    def _end(self, action: Any) -> Any:
        """Do what ends all engines, and let go of what they shared."""
        is_first, self._is_over = not self._is_over, True
        self._held.clear()
        try:
            return action()
        finally:
            if is_first and self._account is not None:
                self._account.leave()

    def _give_up(self, error: BaseException) -> None:
        """Close all engines after an error that may have left one behind the others."""
        self._is_over = True
        errors = self._try_each_part(Engine.abort)
        if self._account is not None:
            self._account.leave()
        raise_first([error, *errors])

    def _fine_rows(
        self,
        batch: Batch,
        arrivals: NDArray[np.int64] | None,
        rejections: list[Rejection],
        identified: bool,
    ) -> _Rows:
        """Return the records that are in time for their window and have a possible key; the others are rejected."""
        if batch.keys is None:
            raise ConfigError("must have keys", "batch")
        keys, odd = read(batch.keys, Role("label", max_bytes=4 * LONGEST_KEY))
        fine = np.array([i not in odd and is_key(key) for i, key in enumerate(keys.tolist())], np.bool_)
        rejections += rejected_at("unknown_key", batch.positions[~fine], self.job.schema.key)
        if identified:
            is_duplicate = ~self._seen.fresh(batch.positions) & fine
            reject(rejections, is_duplicate, batch, "duplicate")
            fine &= ~is_duplicate
        rows = _Rows(replace(batch, keys=keys), arrivals, np.zeros(len(keys), np.int64)).pick(fine)
        # Only times are looked at here: whether a value is in its range, the key's engine decides.
        times = replace(rows.batch, values=np.empty((len(rows.windows), 0)))
        found = admit(replace(self.job, grid=self._found.job.grid), times, rows.arrivals)
        rejections += found.rejections
        return rows._replace(windows=found.panes).pick(found.fine)

    def _reject_closed(self, rows: _Rows, rejections: list[Rejection]) -> None:
        """Reject records of periods that are over, unless they were read before this process started."""
        is_before = rows.windows < (self._start.index or 0)
        is_replayed = ~is_before & (rows.windows // self._found.period_windows < self._first_period)
        reject(rejections, is_before, rows.batch, "time_out_of_range")
        reject(rejections, ~is_before & ~is_replayed, rows.batch, "window_closed")
        self._replayed += int(np.count_nonzero(is_replayed))

    def _search(self, rows: _Rows) -> None:
        """Count the keys of records in the search of their period."""
        count = self._found.job.schedule.count
        if count is not None:
            rows = rows.pick(rows.windows < count * self._found.period_windows)
        batch = rows.batch
        assert batch.keys is not None
        keys = {self.job.schema.key or "": batch.keys}
        plain = replace(batch, values=np.empty((len(batch.times_ms), 0)), keys=None, texts=keys)
        self._finder.take(plain, rows.arrivals)

    def _close_window(self, now_ms: int | None) -> bool:
        """Close the next window of the keys that lack it, or, after the last of a period, the search of the period."""
        with self._lock:
            self._check_open()
            if self._period is None:
                return False
            bound = self._bound(self._period)
            behind = [engine for engine in self._engines.values() if engine.next_index < bound]
            if behind:
                return self._close_first(behind, now_ms, bound)
            if self._finder.next_index <= self._period and not self._finder.close_next(now_ms, self._period + 1):
                return False
            self._enter()
            return True

    def _enter(self) -> None:
        """Begin the period after the newest search, with the keys that it found."""
        try:
            sealed = self._ledger.last_sealed()
            if sealed is not None:
                self._finder.skip_to(self._found.job.schedule.index_after(sealed[0].open_ms))
            period = self._finder.next_index
            keys = self._keys_of(period, None if sealed is None else from_lines(sealed[1])[0])
            if self._period is None:
                self._first_period = period
            self._answer_keys(period, keys)
            self._period = period
            for held in sorted(self._held):
                if held <= period:
                    self._take_held(self._held.pop(held), is_over=held < period)
        except BaseException as error:
            self._give_up(error)

    def _take_held(self, held: Sequence[_Rows], is_over: bool) -> None:
        for rows in held:
            rejections: list[Rejection] = []
            if is_over:
                self._reject_closed(rows, rejections)
                self.rejections.add(rejections)
                continue
            codes = part_codes(rows.batch, self._index, self.job.schema.key, rejections, "undiscovered_key")
            distribute(self.job, self._engines, self._route(rows.batch, rows.arrivals, codes, rejections))

    def _answer_keys(self, period: int, keys: Sequence[str]) -> None:
        """Open an engine for every key of a period, and let go of those of other keys."""
        first, opens = self._first_window(period), self._found.job.schedule.window(period).open_ms
        former = {key: self._engines[i] for key, i in self._index.items()}
        fresh = [key for key in keys if key not in former]
        self._leaving |= self._open_parts([key for key in fresh if key not in self._leaving], first)
        engines = [former.pop(key) if key in former else self._leaving.pop(key) for key in keys]
        for engine in engines:
            engine.skip_to(first)
        self._leaving |= former
        self._index = {key: i for i, key in enumerate(keys)}
        self._engines = dict(enumerate(engines))
        if self._account is not None:
            self._account.attach(engines)
        LOG.info(
            "stream %r: %s from %s on: %d came, %d went",
            self.job.terms.stream,
            many(len(keys), "key"),
            utc(opens),
            len(fresh),
            len(former),
        )

    def _keys_of(self, period: int, search: Release | None) -> tuple[str, ...]:
        """Return the keys of a period: what the ledger says, or else what the search before it has found."""
        kept = self._keys_kept(period)
        if kept is not None:
            return kept
        if search is None:
            found = self._found.first
        elif search.status == "released":
            found = tuple((search.parts or {})["levels"])
        else:
            found = self._keys_kept(period - 1) or ()
            LOG.warning(
                "stream %r: the search for keys that ended at %s was refused (%s): the keys stay as they were",
                self.job.terms.stream,
                utc(search.window_close_ms),
                search.reason,
            )
        self._ledger.keep_setting(self._setting(period), json.dumps(sorted(found)))
        kept = self._keys_kept(period)
        assert kept is not None
        return kept

    def _keys_kept(self, period: int) -> tuple[str, ...] | None:
        kept = self._ledger.setting(self._setting(period))
        return None if kept is None else tuple(json.loads(kept))

    def _setting(self, period: int) -> str:
        return f"keys from {self._found.job.schedule.window(period).open_ms}"

    def _open_parts(self, keys: Sequence[str], first: int) -> dict[str, Engine]:
        """Open the engines of some keys, all or none; their first window is that of the present period."""
        parts = {}
        with ExitStack() as undo:
            ledgers = self._open_ledgers(keys, [self.job.part(key).terms for key in keys], self._ledger)
            for ledger in ledgers:
                undo.callback(ledger.close)
            for key, own in zip(keys, ledgers, strict=True):
                ledger = own if self._account is None else self._account.part(key, own)
                undo.callback(ledger.close)
                parts[key] = Engine(
                    self.config,
                    key=key,
                    ledger=ledger,
                    noise=self._noise,
                    on_rejection=self._on_rejection,
                    first_window=first,
                    clock=self.clock,
                )
                parts[key].exhaustion.report_to(self.exhaustion)
            undo.pop_all()
        return parts

    def _open_ledgers(self, keys: Sequence[str], terms: Sequence[Terms], beside: Ledger | None) -> list[Ledger]:
        if self._given is not None:
            for key, each in zip(keys, terms, strict=True):
                if key not in self._given:
                    self._given[key] = open_ledger("memory:", each)
            return [self._given[key] for key in keys]
        if self.config.ledger is None:
            raise ConfigError("is required: it keeps the guarantee across runs", "ledger.url")
        return open_ledgers(self.config.ledger.url, terms, beside)

    def _open_unpublished(self) -> None:
        """Open the keys of earlier periods whose releases may not have reached the sink."""
        schedule, present = self._found.job.schedule, self._finder.next_index
        waiting = [schedule.index_after(window.open_ms) - 1 for window, _ in self._ledger.unacknowledged()]
        for period in range(min(waiting, default=present), present):
            here = self._index.keys() | self._leaving.keys()
            former = [key for key in self._keys_kept(period) or () if key not in here]
            for key, engine in self._open_parts(former, self._first_window(period)).items():
                if engine.has_unpublished:
                    self._leaving[key] = engine
                    self._unasked.add(key)
                else:
                    engine.abort()

    def _dismiss(self) -> None:
        """Close the engines of keys that are answered no more, once all of their releases are published."""
        for key, engine in list(self._leaving.items()):
            if engine.is_settled and key not in self._unasked:
                for reason, count in engine.drain_rejected().items():
                    self.rejections.counts[reason] = self.rejections.counts.get(reason, 0) + count
                self._replayed += engine.replayed
                self.exhaustion.forget(engine.job.terms.stream)
                del self._leaving[key]
                engine.abort()
