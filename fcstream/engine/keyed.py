"""Engine of a stream with keys: one engine for each declared key, all with the same configuration and ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Config, Job
from ..errors import ConfigError
from ..formats.batch import Batch, Rejection, SeenPositions
from ..formats.rejections import rejected_at
from ..formats.rows import read_moment
from ..formats.texts import composed
from ..ledgers import JointLedger, Ledger, joint_ledger, open_ledgers
from ..ledgers.base import max_loss
from ..noise.samplers import Noise
from ..releases.base import Release
from ..runtime.garbage import paused_garbage_collection
from ..runtime.undo import on_error
from ..runtime.wall_clock import WallClock
from ..stream.admission import part_codes
from .engine import MAX_WINDOWS_AT_ONCE, Engine
from .exhaustion import Exhaustion
from .first_records import FirstRecords
from .intake import FloatTypes, OnRejection, Rejections, clock_of, closing_moment, closing_time, compared, read_pushed
from .records import CounterFactory, default_counters
from .routing import RoutedRecords, distribute, route
from .shared_users import UserAccount, account_of
from .together import MAX_WINDOWS, KeysInOrder, acknowledge_together, close_together, locked, raise_first


def _close_all(ledgers: Sequence[Ledger]) -> None:
    for ledger in ledgers:
        ledger.close()


class _KeyPart(Engine):
    """The engine of one key, which begins with those of all others."""

    _begins_with_others = True

    def close(self) -> list[Release]:
        self.first_records.ignore()  # those of all keys are looked at together
        return super().close()


class KeyedEngine:
    """Private releases per window and key: every declared key has windows, releases, blocks and users of its own.

    Parameters
    ----------
    config : Config or mapping
        With ``stream.key`` and ``stream.keys``.
    keys : collection of str, optional
        The declared keys whose streams this engine releases; by default all. Others belong to other processes.
    ledgers : mapping of str to Ledger, optional
        Open ledgers by key; by default streams of the one ledger of ``[ledger] url``, called ``stream/key``.
    noise, on_rejection, stores, clock
        See `Engine`.

    Raises
    ------
    ConfigError, LedgerError

    Notes
    -----
    Works like `Engine`, but `push` takes a key for each record. A record whose key is not declared is rejected as
    ``unknown_key``. A part that fails closes all.

    Privacy
    -------
    A record belongs to one key's stream, so with unit ``event`` each costs what it costs without keys. With the units
    ``user`` and ``stream`` each key's stream has privacy filters of its own, and a user may have records under several
    keys. So every one gets ``[budget]`` divided by ``stream.keys_per_user``, by default the number of keys, and the
    budget bounds what all of them together reveal; by default, then, no key may replace another. A smaller
    ``keys_per_user`` is a promise of whoever runs the stream that no user has records under more keys than that, former
    keys among them; it is not checked. `total_rho` is divided with every unit. With ``key_budgets = "shared"`` nothing
    is divided or promised: see `fcstream.engine.shared_users.UserAccount`.

    Source
    ------
    Specification 8.3; proof 2.10; ours.
    """

    _joint: JointLedger | None = None  # of all keys, if one transaction can take them all
    _mine: frozenset[str] = frozenset()
    _has_begun = False

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        keys: Collection[str] | None = None,
        ledgers: Mapping[str, Ledger] | None = None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
        stores: CounterFactory = default_counters,
        clock: WallClock | None = None,
    ) -> None:
        job = self._prepare(config, on_rejection, clock)
        if job.finder is not None:
            raise ConfigError("must be declared: `DiscoveringEngine` answers streams that find theirs", "stream.keys")
        if not job.keys:
            raise ConfigError("is required: `Engine` answers streams without keys", "stream.key")
        wanted = frozenset(job.keys if keys is None else map(composed, keys))
        mine = tuple(key for key in job.keys if key in wanted)
        if not mine or len(mine) != len(wanted):
            raise ConfigError("must be some of `stream.keys`", "keys")
        is_shared = job.keys_chosen is not None
        if is_shared and (mine != job.keys or ledgers is not None or stores is not default_counters):
            raise ConfigError(
                "must be 'divided' here: with 'shared' one process sees all keys of a user, and opens their ledger",
                "stream.key_budgets",
            )
        account: UserAccount | None = None
        if ledgers is None:
            ledgers, account = self._open(mine, noise)
        else:
            ledgers = {composed(key): ledger for key, ledger in ledgers.items()}
        self._closes_together, self._mine = is_shared, wanted
        self._index |= {key: i for i, key in enumerate(job.keys)}
        with ExitStack() as undo:
            for ledger in ledgers.values():
                undo.callback(ledger.close)
            for key in mine:
                self._engines[self._index[key]] = _KeyPart(
                    self.config, key=key, ledger=ledgers[key], noise=noise, on_rejection=on_rejection, stores=stores,
                    clock=self.clock,
                )  # fmt: skip
            for part in self.parts:
                part.exhaustion.report_to(self.exhaustion)
            if account is not None:
                account.attach(self.parts)
            self._joint = None if is_shared else joint_ledger([engine.ledger for engine in self.parts])
            if self.clock is not None:
                self.begin(compared(self.clock, job, self.parts))
            undo.pop_all()

    def _open(self, keys: Sequence[str], noise: Noise | None) -> tuple[dict[str, Ledger], UserAccount | None]:
        """Open the ledgers of some keys, and of all keys together where they share a filter."""
        job = self.job
        if self.config.ledger is None:
            raise ConfigError("is required: it keeps the guarantee across runs", "ledger.url")
        terms = [job.part(key).terms for key in keys]
        if job.keys_chosen is None:
            return dict(zip(keys, open_ledgers(self.config.ledger.url, terms), strict=True)), None
        shared, *own = opened = open_ledgers(self.config.ledger.url, [job.terms, *terms])
        with on_error(_close_all, opened):
            account = account_of(self.config, shared, noise)
        return {key: account.part(key, ledger) for key, ledger in zip(keys, own, strict=True)}, account

    def _prepare(
        self, config: Config | Mapping[str, Any], on_rejection: OnRejection | None, clock: WallClock | None
    ) -> Job:
        """Make what no key's engine holds."""
        self.config = config if isinstance(config, Config) else Config.from_mapping(config)
        self.job = self.config.job
        self.clock = clock_of(self.job, clock)
        self.rejections = Rejections(self.job.terms.stream, on_rejection)
        self._types: FloatTypes = {}
        self.first_records = FirstRecords(self.job)
        self.exhaustion = Exhaustion(self.job)
        self._closes_together = False
        self._index: dict[str, int] = {}
        self._engines: dict[int, Engine] = {}
        self._lock = threading.RLock()
        self._seen = SeenPositions()
        return self.job

    @classmethod
    def from_config(cls, path: str | Path, **options: Any) -> KeyedEngine:
        """Make an engine for a configuration file; options as in the class."""
        return cls(Config.load(path), **options)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys whose streams this engine releases."""
        return tuple(self.job.keys[i] for i in self._engines)

    @property
    def parts(self) -> tuple[Engine, ...]:
        """The engine of each key."""
        return tuple(self._engines.values())

    @property
    def _everyone(self) -> tuple[Engine, ...]:
        """All engines that may hold a release, in the order in which these are returned."""
        return self.parts

    @property
    def guarantee(self) -> PrivacyLoss:
        """See `Engine`."""
        return self.job.terms.guarantee

    @property
    def spent(self) -> PrivacyLoss:
        """What the most charged block of any key's stream has spent."""
        return max_loss([engine.spent for engine in self.parts])

    @property
    def answered(self) -> int:
        """Number of windows, of all keys' streams together, that had a release before this engine started."""
        return sum(engine.answered for engine in self.parts)

    @property
    def replayed(self) -> int:
        """See `Engine`."""
        return sum(engine.replayed for engine in self._everyone)

    @property
    def rejected(self) -> dict[str, int]:
        """See `Engine`."""
        total = dict(self.rejections.counts)
        for engine in self._everyone:
            for reason, count in engine.rejected.items():
                total[reason] = total.get(reason, 0) + count
        return total

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window that lacks the release of some key."""
        return min(engine.next_open_ms for engine in self.parts)

    @property
    def replay_from(self) -> int:
        """See `Engine`; the earliest of all keys."""
        return self.next_open_ms

    def knows(self, release: Release) -> bool:
        """See `Engine.knows`."""
        return all(engine.knows(release) for engine in self.parts)

    def windows_due(self, now_ms: int) -> int:
        """See `Engine.windows_due`; the sum over all keys."""
        return sum(engine.windows_due(now_ms) for engine in self.parts)

    def push(
        self,
        times_ms: Any,
        points: Any = None,
        keys: Sequence[Any] | None = None,
        ids: ArrayLike | None = None,
        arrival_ms: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> list[Release]:
        """Take records; see `Engine.push`. `keys` holds the key of each record, as text or a whole number."""
        with self._lock:
            given = times_ms, points, arrival_ms, positions, ids, keys
            batch, arrivals = read_pushed(self.job, *given, self._types, self.clock)
            self.take(batch, arrivals, identified=positions is not None)
            self.rejections.warn()
            for part in self.parts:
                if part.rejections.counts:
                    part.rejections.warn()
            return self._close_due(closing_time(self.clock))

    def take(
        self,
        batch: Batch,
        arrivals: NDArray[np.int64] | None = None,
        *,
        identified: bool = False,
        assigned_keys: Collection[str] | None = None,
    ) -> None:
        """Add one batch of decoded records, see `Engine.take`.

        Parameters
        ----------
        assigned_keys : collection of str, optional
            The keys that may come this way; a record of another one is rejected.
        """
        with self._lock:
            if batch.keys is None:
                raise ConfigError("must have keys", "batch")
            here: Collection[str] = self._mine if assigned_keys is None else self._mine.intersection(assigned_keys)
            self.first_records.see(batch)
            rejections = list(batch.rejections)
            index = self._index if len(here) == len(self._index) else {key: self._index[key] for key in here}
            codes = part_codes(batch, index, self.job.schema.key, rejections)
            if identified:
                is_duplicate = ~self._seen.fresh(batch.positions) & (codes >= 0)
                rejections += rejected_at("duplicate", batch.positions[is_duplicate])
                codes[is_duplicate] = -1
            routed = self._route(batch, arrivals, codes, rejections)
            try:
                if identified:
                    self._seen.add(batch.positions)
                distribute(self.job, self._engines, routed)
            except BaseException as error:  # the engines of some keys may have counted their records
                raise_first([error, *self._try_each_part(Engine.abort)])

    def begin(self, now_ms: int) -> None:
        """See `Engine.begin`; a key that was added later begins at its own first run."""
        with self._lock:
            if self._joint is None:
                for engine in self.parts:
                    engine.begin(now_ms)
                return
            now = read_moment(now_ms, "now_ms")
            if not self._has_begun or any(engine.is_closed for engine in self.parts):
                self._begin(self._joint, now)

    def _begin(self, joint: JointLedger, now: int) -> None:
        """Fix the first windows of all keys' streams that lack one, in one transaction."""
        with locked(self.parts):
            proposed = [(engine, engine.propose(now)) for engine in self.parts]
            new = [(engine, *setting) for engine, setting in proposed if setting is not None]
            if new:
                kept = joint.keep_together([(engine.ledger, name, value) for engine, name, value in new])
                for (engine, _, _), value in zip(new, kept, strict=True):
                    engine.fix(value)
        self._has_begun = True

    def advance(self, now_ms: int | None = None) -> list[Release]:
        """See `Engine.advance`."""
        with self._lock:
            now = closing_moment(self.job, self.clock, now_ms)
            if now is not None:
                self.begin(now)
            return self._close_due(now)

    def closing(self, now_ms: int | None = None) -> Iterator[list[Release]]:
        """See `Engine.closing`; key by key, or window by window where users have one filter for all keys."""
        if now_ms is not None:
            self.begin(now_ms)
        self.first_records.check()
        steps = self._steps(now_ms)
        while True:
            with self._lock:
                errors = next(steps, None)
                group = self._collect()
            if group:
                yield group
            if errors is None:
                return
            raise_first(errors)

    def unpublished(self) -> list[Release]:
        """See `Engine.unpublished`."""
        with self._lock:
            return self._gather(Engine.unpublished, acknowledging=False)

    def acknowledge(self) -> None:
        """See `Engine.acknowledge`."""
        with self._lock:
            if self._joint is not None:
                acknowledge_together(self._joint, self._everyone)
                return
            for engine in self._everyone:
                engine.acknowledge()

    def drain_rejected(self) -> dict[str, int]:
        """Return `rejected`, and set it back to nothing."""
        with self._lock:
            total = self.rejected
            self.rejections.drain()
            for engine in self._everyone:
                engine.drain_rejected()
            return total

    def close(self) -> list[Release]:
        """See `Engine.close`."""
        with self._lock:
            self.acknowledge()
            if self.job.clock == "eof":
                self.first_records.check(self.abort)
                for errors in self._steps(None):
                    raise_first(errors)
            return self._gather(Engine.close, acknowledging=False)

    def abort(self) -> None:
        """See `Engine.abort`."""
        with self._lock:
            raise_first(self._try_each_part(Engine.abort))

    def __enter__(self) -> KeyedEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        errors = self._try_each_part(lambda engine: engine.__exit__(kind, error, trace))
        if errors:
            raise_first(errors if error is None else [error, *errors])

    def _close_due(self, now_ms: int | None) -> list[Release]:
        """Close the windows that are due at a time, if one is given; returns the releases of all keys."""
        rides = self._joint is not None and now_ms is not None
        if not rides:
            self.acknowledge()
        for errors in () if now_ms is None else self._steps(now_ms, MAX_WINDOWS_AT_ONCE, acknowledging=rides):
            raise_first(errors)
        return self._collect()

    def _steps(
        self, now_ms: int | None, limit: int | None = None, *, acknowledging: bool = False
    ) -> Iterator[list[BaseException]]:
        """Close what is due at a time (None: all), as many windows of each key as `limit`, in steps; yields after each
        the errors of keys that could not be drawn. With `acknowledging` the first step acknowledges what was returned.
        """
        if self._closes_together:
            closed = 0
            while (limit is None or closed < limit) and self._close_window(now_ms):
                closed += 1
                yield []
        elif self._joint is not None:
            due, is_over = KeysInOrder(self.parts, now_ms, limit), False
            while not is_over:
                with locked(self.parts), paused_garbage_collection():
                    asked = due.ask()
                    errors = close_together(self._joint, asked, self.parts if acknowledging else ()) if asked else []
                if acknowledging and not asked:
                    self.acknowledge()
                is_over, acknowledging = not asked, False
                yield errors
        else:
            for engine in self.parts:
                first = engine.next_index
                while (limit is None or engine.next_index - first < limit) and engine.close_next(now_ms):
                    yield []

    def _close_window(self, now_ms: int | None) -> bool:
        """Close the next window of all keys, if it is due."""
        with self._lock:
            return self._close_first(self.parts, now_ms)

    def _close_first(self, engines: Sequence[Engine], now_ms: int | None, until: int | None = None) -> bool:
        """Close the next windows of those engines that have the fewest behind them; see `Engine.close_next`."""
        first = min(engine.next_index for engine in engines)
        those = [engine for engine in engines if engine.next_index == first]
        joint = joint_ledger([engine.ledger for engine in those])
        if joint is None:
            closed = [engine.close_next(now_ms, until) for engine in those]
            return any(closed)
        most = max(1, MAX_WINDOWS // len(those))
        with locked(those), paused_garbage_collection():
            asked = [(engine, mine) for engine in those if (mine := engine.ask(now_ms, until, most)) is not None]
            if asked:
                raise_first(close_together(joint, asked))
        return bool(asked)

    def _collect(self) -> list[Release]:
        """Return what the engines of all keys closed and did not return yet."""
        if all(engine.is_settled for engine in self._everyone):
            return []
        return self._gather(Engine.collect, acknowledging=False)

    def _route(
        self,
        batch: Batch,
        arrivals: NDArray[np.int64] | None,
        codes: NDArray[np.int64],
        rejections: list[Rejection],
    ) -> RoutedRecords:
        """Decide about records whose keys have these numbers, and report rejections."""
        routed = route(self.job, self._engines, batch, arrivals, codes, rejections)
        self.rejections.add(rejections)
        return routed

    def _gather(self, action: Callable[[Engine], list[Release]], *, acknowledging: bool = True) -> list[Release]:
        """Collect what the engines of all keys return; if one fails, those before it return theirs again with the next
        call.
        """
        if acknowledging:
            self.acknowledge()  # first, so that what is returned and not acknowledged comes from this call
        releases: list[Release] = []
        try:
            for engine in self._everyone:
                releases += action(engine)
            return releases
        except BaseException:
            for engine in self._everyone:
                engine.requeue_returned()
            raise

    def _try_each_part(self, action: Callable[[Engine], object]) -> list[BaseException]:
        """Do it to the engine of every key, also if it fails for some; returns the errors."""
        errors: list[BaseException] = []
        for engine in self._everyone:
            try:
                action(engine)
            except BaseException as error:
                errors.append(error)
        return errors
