"""The embedded ledger: one SQLite file, one connection, write-ahead log, synchronous=FULL.

The journal is append-only and chained by hashes; the tables `windows`, `blocks` and `settings` summarize it
and are written in the same transactions. Every row is checked when it is read, and all tables when the ledger is
opened: see `journal` and `tables`. One process at a time may open the file: it is in exclusive locking mode, which also
avoids the WAL-reset fault of SQLite before 3.51.3 (it needs two connections).

A file may hold several streams, whose rows lie in the same tables under the stream's number. Each has a journal, a head
and budgets of its own; ledgers of one process share the connection. What streams do together is written together.

While a ledger is open, its newest charges are in PATH-wal. A mark in the main file says so: if the ledger is opened
after a crash without its PATH-wal, charges are missing, and opening is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged, LedgerError, LedgerMismatch
from .. import hash_chain
from ..base import (
    TOTAL_BLOCK,
    ChargeResult,
    EpochState,
    Request,
    Row,
    SealedRelease,
    Terms,
    WindowKey,
    grant,
    root_of,
)
from ..files import LedgerFile, translated_errors
from ..groups import (
    NOWHERE,
    SHARED_BLOCKS,
    Elsewhere,
    blocks_to_charge,
    check_sums,
    public_spent,
    sum_of,
)
from ..rollback_guard import RollbackGuard
from .listing import settings_of, stream_numbers
from .opening import FoundStream, Opening
from .sums import WindowRow, sums_of
from .tables import StreamTables, rows_of

_FEW = 8  # streams, of which each reads its own rows when it is opened
_MANY = 125  # streams, of which each changes some eight pages from charge to acknowledgment
_LOG_PAGES = 8
_NOTHING = PrivacyLoss()


class SQLiteLedger:
    """A `Ledger` in a SQLite file.

    Parameters
    ----------
    path : str
        Path of the file, which is made with mode 0600 if it does not exist.
    terms : Terms, optional
        The terms that the ledger must agree with; a stream that is absent is added. None opens an existing stream for
        reading.
    stream : str, optional
        Without `terms`: the stream to read. By default the only one of the file; if empty, the first one.

    Raises
    ------
    LedgerInUse, LedgerMismatch, LedgerDamaged, LedgerError
    """

    _closed = True  # while there is nothing to let go of: `__del__` is called in any case

    def __init__(self, path: str, terms: Terms | None = None, stream: str | None = None, *, name: str = "") -> None:
        self._attach(path, create=terms is not None, name=name)
        try:
            _prepare([self], None if terms is None else [terms], stream)
        except BaseException:  # not `on_error`, since an interrupt can hit that after all went well
            self.close()
            raise

    @classmethod
    def open_all(cls, path: str, streams: Sequence[Terms]) -> list[SQLiteLedger]:
        """Open several streams of one file, and add those that are absent, in one transaction: all or none."""
        ledgers: list[SQLiteLedger] = []
        try:
            for _ in streams:
                ledger = cls.__new__(cls)
                ledger._attach(path, create=True, beside=ledgers[0] if ledgers else None)
                ledgers.append(ledger)
            if ledgers:
                _prepare(ledgers, streams, None)
            return ledgers
        except BaseException:
            for ledger in ledgers:
                ledger.close()
            raise

    def _attach(self, path: str, *, create: bool, beside: SQLiteLedger | None = None, name: str = "") -> None:
        self.path = name or path
        self._pid = os.getpid()
        if beside is None:
            self._file = LedgerFile.share(path, self, create=create, name=name)
        else:
            self._file = beside._file
            self._file.add_guest(self)
        self._closed = False

    @property
    def streams(self) -> list[str]:
        """List the names of all streams in the file."""
        with self._locked():
            return [name for _, name, _ in stream_numbers(self._file)]

    @property
    def place(self) -> object:
        """See `JointLedger`."""
        return self._file

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        return self.charge_together([(self, requests)])[0]

    @staticmethod
    def charge_together(
        calls: Sequence[tuple[SQLiteLedger, Sequence[Request]]],
        acknowledged: Sequence[tuple[SQLiteLedger, Sequence[WindowKey]]] = (),
    ) -> list[list[ChargeResult]]:
        """See `JointLedger`."""
        with _transaction_of(list(dict.fromkeys(ledger for ledger, _ in (*calls, *acknowledged)))):
            for ledger, windows in acknowledged:
                ledger._acknowledge(ledger._tables, windows)
            return [[ledger._charge(ledger._tables, request) for request in requests] for ledger, requests in calls]

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        self.seal_with_states(answers, ())

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        self.seal_together([(self, answers, states)])

    @staticmethod
    def seal_together(
        calls: Sequence[tuple[SQLiteLedger, Sequence[SealedRelease], Sequence[EpochState]]],
    ) -> None:
        """Seal windows of several streams of one file, with what they leave, in one transaction."""
        first, *_ = [ledger for ledger, _, _ in calls]
        with _transaction_of([ledger for ledger, _, _ in calls]):
            for ledger, answers, states in calls:
                ledger._seal_all(ledger._tables, answers, states)
        if any(not state.body for _, _, states in calls for state in states):
            first.merge_log()

    def merge_log(self) -> None:
        """Move the log into the file and empty it: it still holds the pages of what was deleted."""
        with self._locked():
            self._file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _seal_all(self, tables: StreamTables, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        for answer in answers:
            self._seal(tables, answer)
        for state in states:
            tables.put_state(state)

    def epoch_states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        with self._locked() as tables:
            return tables.states(answer, epoch_ms)

    def forget_states(self, answer: str, before_ms: int) -> None:
        with self._transaction() as tables:
            tables.forget_states(answer, before_ms)
        self.merge_log()

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        self.acknowledge_together([(self, windows)])

    @staticmethod
    def acknowledge_together(calls: Sequence[tuple[SQLiteLedger, Sequence[WindowKey]]]) -> None:
        """Note that the sink has the releases of some windows of several streams of one file, in one transaction.

        The next charge or seal flushes it. A power loss before that makes releases be published twice, if the sink
        does not know them again.
        """
        with _transaction_of([ledger for ledger, _ in calls], flush=False):
            for ledger, windows in calls:
                ledger._acknowledge(ledger._tables, windows)

    def _acknowledge(self, tables: StreamTables, windows: Sequence[WindowKey]) -> None:
        for key in windows:
            found = tables.window(key)
            if found is not None and found.state == "sealed":
                tables.put_window(found, found.after("acknowledged", found.loss, found.sealed_seq))
                tables.append("acknowledge", key, _NOTHING, "", b"")

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        with self._locked() as tables:
            found = tables.windows("AND state = 'sealed' ORDER BY sealed_seq")
            return [(WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) for row in list(found)]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        with self._locked() as tables:
            row = tables.last_sealed()
            return (WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) if row else None

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        with self._locked() as tables:
            rows = tables.latest_sealed(count)[::-1]
            return [(WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) for row in rows]

    def spent(self, block: str | None = None) -> PrivacyLoss:
        with self._locked() as tables:
            own = tables.max_spent_of_all() if block is None else tables.block(block)
            return own + self._elsewhere().spent(block or self.terms.unit)

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        with self._locked() as tables:
            found = tables.window(window)
        return tuple(filter(None, found.blocks.split(","))) if found else ()

    def setting(self, key: str) -> str | None:
        with self._locked() as tables:
            return tables.settings().get(key)

    def keep_setting(self, key: str, value: str) -> str:
        return self.keep_together([(self, key, value)])[0]

    @staticmethod
    def keep_together(calls: Sequence[tuple[SQLiteLedger, str, str]]) -> list[str]:
        """Store public facts of several streams of one file, each unless the key is taken, in one transaction."""
        with _transaction_of(list(dict.fromkeys(ledger for ledger, _, _ in calls))):
            elsewhere: dict[str, dict[str, str]] = {}
            return [ledger._keep(key, value, elsewhere) for ledger, key, value in calls]

    def _keep(self, key: str, value: str, elsewhere: dict[str, dict[str, str]]) -> str:
        """Store a public fact; `elsewhere` holds those of sibling streams."""
        kept = self._tables.settings().get(key)
        if kept is None:
            if self.terms.root not in elsewhere:
                numbers = [number for number, _ in self._sibling_tables()]
                elsewhere[self.terms.root] = settings_of(self._file, self.path, numbers)
            kept = elsewhere[self.terms.root].setdefault(key, value)
            self._tables.put_setting(key, kept)
        return kept

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._file.leave(self)
        self._closed = True

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        """See `LedgerReader`."""
        with self._locked() as tables:
            states = dict(tables.do("SELECT state, count(*) FROM windows WHERE stream = ? GROUP BY state").fetchall())
            states["blocks"] = tables.do("SELECT count(*) FROM blocks WHERE stream = ?").fetchone()[0]
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        """See `LedgerReader`."""
        with self._locked() as tables:
            found = tables.windows("AND draws > 0 ORDER BY open_ms")
            return [(WindowKey(row.open_ms, row.close_ms), row.loss) for row in found]

    @property
    def warning(self) -> str:
        """What was found wrong with the rollback guard since the file was opened; empty if nothing was."""
        return self._file.guards.warning

    def guard_damage(self, guard: str) -> str | None:
        """Return why a rollback guard, beside the ledger that this may be a copy of, would find no older copy."""
        with self._locked() as tables:
            return RollbackGuard(guard, tables.number).damage(tables.lag)

    def releases(self) -> list[bytes]:
        """See `LedgerReader`."""
        return [line for row in self.rows() if row.kind == "seal" for line in bytes(row.body).split(b"\n")]

    def rows(self) -> list[Row]:
        """See `LedgerReader`."""
        with self._locked() as tables:
            return rows_of(tables.journal())

    def verify(self) -> int:
        """Check the whole ledger against itself; returns how many journal rows it has.

        Raises
        ------
        LedgerDamaged
            Naming the first bad row.
        """
        with self._locked() as tables:
            for (message,) in self._file.db.execute("PRAGMA integrity_check"):
                if message != "ok":
                    raise LedgerDamaged(f"{self.path} is damaged: {message}")
            replay = hash_chain.JournalReplay(self.path, self.salt)
            for row, chain in tables.plain_journal():
                replay.follow(row, chain)
            windows = ((row.open_ms, row.close_ms, row.state_of) for row in tables.windows())
            replay.compare(tables.terms, windows, tables.blocks(), tables.settings())
            tables.check()
            tables.check_count()
            self._check_group()
            return replay.count

    # -- opening -----------------------------------------------------------------------------------------------------

    def _take(self, found: FoundStream) -> None:
        """Make a stream this ledger's, and check it."""
        tables, name = found.tables, found.name
        self._tables, self.is_retired = tables, found.is_retired
        self.terms = tables.terms if not found.is_retired else replace(tables.terms, stream=name)
        self.salt = tables.salt
        self._file.enter(name, self, self.path)
        if not found.is_new:
            tables.check()

    def _tables_of(self, number: int) -> StreamTables:
        tables = StreamTables(self._file, self.path, number)
        tables.open()
        return tables

    def _sibling_tables(self) -> list[tuple[int, str]]:
        """List the sibling streams in the file, this stream included."""
        root = self.terms.root
        return [(n, name) for n, name, retired in stream_numbers(self._file) if not retired and root_of(name) == root]

    # -- charging ----------------------------------------------------------------------------------------------------

    def _charge(self, tables: StreamTables, request: Request) -> ChargeResult:
        found = tables.window(request.window)
        if found is not None and found.state != "charged":
            return ChargeResult(request.window, self._public_spent(tables, request))
        if found is not None:
            return self._charge_redraw(tables, request, found)
        elsewhere, held = self._elsewhere(), self._own_blocks(tables, request)
        names, refusal = blocks_to_charge(self.terms, request, held, elsewhere)
        if refusal is not None:
            return ChargeResult(request.window, public_spent(request, held, elsewhere), refusal=refusal)
        after = held | {block: held.get(block, _NOTHING) + request.loss for block in names}
        for block in names:
            tables.put_block(block, held.get(block), after[block])
        self._note(tables, request, ",".join(names))
        return grant(request.window, request.loss, public_spent(request, after, elsewhere))

    def _public_spent(self, tables: StreamTables, request: Request) -> PrivacyLoss:
        return public_spent(request, self._own_blocks(tables, request), self._elsewhere())

    def _own_blocks(self, tables: StreamTables, request: Request) -> dict[str, PrivacyLoss]:
        """Read what this stream has spent of the blocks that a request may be charged to."""
        total = () if self.terms.total is None else (TOTAL_BLOCK,)
        read, blocks = tables.block_if_any, (*request.blocks, *total)
        return {block: spent for block in blocks if (spent := read(block)) is not None}

    def _note(self, tables: StreamTables, request: Request, names: str) -> None:
        """Write the charge to the journal and to the table of windows."""
        key, loss = request.window, request.loss
        row = WindowRow(key.open_ms, key.close_ms, "charged", 1, loss.rho_nano, loss.delta_femto, names, None)
        tables.put_window(None, row)
        tables.append("charge", key, loss, names, b"")

    def _charge_redraw(self, tables: StreamTables, request: Request, found: WindowRow) -> ChargeResult:
        """Answer for a window that was charged before a crash: one more draw under the same charge, and no third."""
        window, spent = request.window, self._public_spent(tables, request)
        if found.draws >= 2:
            return ChargeResult(window, spent, interrupted=found.loss)
        tables.put_window(found, found._replace(draws=found.draws + 1))
        tables.append("again", window, PrivacyLoss(), found.blocks, b"")
        return grant(window, found.loss, spent, is_redraw=True)

    # -- groups ------------------------------------------------------------------------------------------------------

    def _members(self) -> dict[int, StreamTables]:
        """Return the tables of all streams of this stream's group by number, this stream's own included."""
        group = self.terms.group
        if group is None:
            return {}
        if group not in self._file.members:  # it was opened to look at it
            held = {number: self._tables_of(number) for number, _, _ in stream_numbers(self._file)}
            members = {n: tables for n, tables in held.items() if tables.terms.group == group}
            for tables in members.values():
                tables.check()
            self._file.members[group] = members
        return self._file.members[group]

    def _elsewhere(self) -> Elsewhere:
        """Read what the other streams of the group have spent."""
        if self.terms.group is None:
            return NOWHERE
        others = [tables for number, tables in self._members().items() if number != self._tables.number]
        return Elsewhere({block: sum_of(tables.block(block) for tables in others) for block in SHARED_BLOCKS})

    def _check_group(self) -> None:
        """Check the sums over the streams of the group against its caps."""
        members = self._members().values()
        if members:
            check_sums(self.path, self.terms, [{b: t.block(b) for b in SHARED_BLOCKS} for t in members])

    def _seal(self, tables: StreamTables, answer: SealedRelease) -> None:
        window, refund = answer.window, answer.refund
        found = tables.window(window)
        if found is not None and found.state != "charged":
            raise LedgerError(f"window {window.open_ms} is sealed in {self.path}: its release is final")
        charged = _NOTHING if found is None else found.loss
        if not refund.fits(charged):
            raise LedgerError(f"window {window.open_ms} was charged {charged}: {refund} cannot be refunded")
        if found is not None and found.draws > 1:  # nobody knows what the first draw used
            refund = _NOTHING
        if found is not None and refund != _NOTHING:
            for block in filter(None, found.blocks.split(",")):
                spent = tables.block(block)
                tables.put_block(block, spent, spent - refund)
        seq = tables.append("seal", window, refund, "", answer.body)
        if found is None:  # a refusal: nothing was charged
            sealed = WindowRow(window.open_ms, window.close_ms, "sealed", 0, 0, 0, "", seq)
        else:
            sealed = found.after("sealed", charged - refund, seq)
        tables.put_window(found, sealed)

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[StreamTables]:
        """Hold the connection's lock."""
        if os.getpid() != self._pid:
            raise LedgerError(
                f"{self.path} was opened before a fork", remedy="open the engine in the process that uses it"
            )
        with self._file.lock, translated_errors(self.path):
            self._check_open()
            self._file.finish()
            yield self._tables

    def _check_open(self) -> None:
        if self._closed:  # other ledgers may still have the file open, and even this stream
            raise LedgerError(f"{self.path} is closed", remedy="open it again to go on")

    def _check_change(self) -> None:
        """Refuse changes of a ledger that was opened to look at it."""

    @contextmanager
    def _transaction(self) -> Iterator[StreamTables]:
        with _transaction_of([self]):
            yield self._tables


def _prepare(ledgers: Sequence[SQLiteLedger], wanted: Sequence[Terms] | None, stream: str | None) -> None:
    """Find or add the streams of ledgers of one file; with `wanted` None the one that is called `stream`."""
    path, file = ledgers[0].path, ledgers[0]._file
    with file.lock, translated_errors(path):
        if file.is_empty and wanted is None:
            RollbackGuard(f"{file.path}-witness").check_absence()
            raise LedgerMismatch(f"{path} is not a ledger: it is empty")
        with file.changing("EXCLUSIVE", file.forget):
            opening = Opening(file, path)
            found = [opening.find(stream)] if wanted is None else [opening.join(terms) for terms in wanted]
        if len(ledgers) > _FEW:
            sums_of(file, path)  # in one pass
        for ledger, place in zip(ledgers, found, strict=True):
            ledger._take(place)
        file.mark("open")
        file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if len(ledgers) > _MANY:  # whose changes to one window are more pages than a log holds by default
            file.db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES * len(ledgers)}")
        if wanted is not None:
            tables = [ledger._tables for ledger in ledgers]
            RollbackGuard.renew(
                file.guards, [(each.guard, each.head.seq, each.head.chain, each.lag) for each in tables]
            )


@contextmanager
def _transaction_of(ledgers: Sequence[SQLiteLedger], *, flush: bool = True) -> Iterator[None]:
    """Make one transaction of all changes to some streams of one file; after an error none of them is made.

    What is not flushed is not noted by the rollback guards, which would be ahead of the file after a power loss.
    """
    first, *others = ledgers
    first._check_change()
    with first._locked():
        for ledger in others:
            ledger._check_change()
            ledger._check_open()
        changed = [ledger._tables for ledger in ledgers]  # the file must not keep ledgers alive

        def reread() -> None:
            for tables in changed:
                tables.reread()

        with first._file.changing("IMMEDIATE", reread, flush=flush):
            yield
            for tables in changed:
                tables.save()
            if not RollbackGuard.are_ours([tables.guard for tables in changed]):
                raise first._file.fence.lose(f"was changed by another process, as {first._file.guards.path} shows")
        if flush:
            RollbackGuard.note_together([(tables.guard, tables.head.seq, tables.head.chain) for tables in changed])
