"""The embedded ledger: one SQLite file, one connection, write-ahead log, synchronous=FULL.

The journal is append-only and chained by hashes; the tables `windows`, `blocks`, `users` and `settings` summarize it
and are written in the same transactions. Every row is checked when it is read, and all tables when the ledger is
opened: see `journal` and `tables`. One process at a time may open the file: it is in exclusive locking mode, which also
avoids the WAL-reset fault of SQLite before 3.51.3 (it needs two connections).

A file may hold several streams. Each has tables of its own, those of the second one with names that end in ``_2``, and
so on. The streams share only the file and its lock; ledgers of one process share the connection.

While a ledger is open, its newest charges are in PATH-wal. A mark in the main file says so: if the ledger is opened
after a crash without its PATH-wal, charges are missing, and opening is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from ...runtime.undo import on_error
from .. import hash_chain, user_budgets
from ..base import (
    TOTAL_BLOCK,
    USER_BLOCK,
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
from ..files import APPLICATION_ID, LedgerFile, translated_errors
from ..groups import (
    NOWHERE,
    SHARED_BLOCKS,
    Elsewhere,
    Standing,
    blocks_to_charge,
    check_group,
    check_sums,
    check_users,
    has_caps,
    public_spent,
    sum_of,
    tightened_in_group,
)
from ..rollback_guard import RollbackGuard
from ..terms_check import (
    check_caps,
    check_keys_named,
    check_terms,
    folded_name,
    log_tightened,
    some,
    tell_of_a_new_stream,
    tightened,
)
from .tables import StreamTables, WindowRow, check_listed, ending, rows_of, stream_numbers

SCHEMA_VERSION = 1
_STREAMS = (
    "CREATE TABLE streams (number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE, retired INTEGER NOT NULL)",
    "CREATE TABLE file (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


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

    def __init__(self, path: str, terms: Terms | None = None, stream: str | None = None) -> None:
        self.path = path
        self._pid = os.getpid()
        self._stream = ""  # once it is ours
        self._rollback_guard: RollbackGuard | None = None
        self._file = LedgerFile.share(path, create=terms is not None)
        self._closed = False
        with on_error(self.close), self._file.lock, translated_errors(path):
            self._prepare(terms, stream)

    @property
    def streams(self) -> list[str]:
        """List the names of all streams in the file."""
        with self._locked():
            return [name for _, name, _ in stream_numbers(self._file)]

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        with self._transaction() as tables:
            return [self._charge(tables, request) for request in requests]

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        self.seal_with_states(answers, ())

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        with self._transaction() as tables:
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

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        with self._transaction() as tables:
            for key in windows:
                found = tables.window(key)
                if found is not None and found.state == "sealed":
                    tables.put_window(found, found._replace(state="acknowledged"))
                    tables.append("acknowledge", key, PrivacyLoss(), "", b"")

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        with self._locked() as tables:
            found = tables.windows("WHERE state = 'sealed' ORDER BY sealed_seq")
            return [(WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) for row in list(found)]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        with self._locked() as tables:
            row = next(tables.windows("WHERE state != 'charged' ORDER BY open_ms DESC LIMIT 1"), None)
            return (WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) if row else None

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        with self._locked() as tables:
            rows = [*tables.windows("WHERE state != 'charged' ORDER BY open_ms DESC LIMIT ?", (count,))]
            return [(WindowKey(row.open_ms, row.close_ms), tables.body(row.sealed_seq or 0)) for row in rows[::-1]]

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
        with self._transaction() as tables:
            kept = tables.settings().get(key)
            if kept is None:
                others = (self._tables_of(number).settings().get(key) for number, _ in self._sibling_tables())
                kept = next((other for other in others if other is not None), value)
                tables.put_setting(key, kept)
            return kept

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._rollback_guard is not None:
            self._rollback_guard.close()
        self._file.leave(self._stream)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        """See `LedgerReader`."""
        with self._locked() as tables:
            states = dict(tables.do("SELECT state, count(*) FROM windows{n} GROUP BY state").fetchall())
            states["blocks"] = tables.do("SELECT count(*) FROM blocks{n}").fetchone()[0]
            states["users"] = sum(user_budgets.count(body) for (body,) in tables.do("SELECT body FROM users{n}"))
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        """See `LedgerReader`."""
        with self._locked() as tables:
            found = tables.windows("WHERE draws > 0 ORDER BY open_ms")
            return [(WindowKey(row.open_ms, row.close_ms), row.loss) for row in found]

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
            for (message,) in tables.do("PRAGMA integrity_check"):
                if message != "ok":
                    raise LedgerDamaged(f"{self.path} is damaged: {message}")
            replay = hash_chain.JournalReplay(self.path, self.salt)
            for row, chain in tables.plain_journal():
                replay.follow(row, chain)
            root = None
            if self.terms.unit == "user":
                held = tables.do("SELECT bucket, body, mark FROM users{n} ORDER BY bucket")
                root = user_budgets.audit(self.path, held, self.terms.capacity)
            windows = ((row.open_ms, row.close_ms, row.state_of) for row in tables.windows())
            replay.compare(tables.terms, windows, tables.blocks(), root, tables.settings())
            tables.check()
            self._check_group()
            return replay.count

    # -- opening -----------------------------------------------------------------------------------------------------

    def _prepare(self, terms: Terms | None, stream: str | None) -> None:
        file = self._file
        if file.is_empty and terms is None:
            self._guard_of(1).check_absence()
            raise LedgerMismatch(f"{self.path} is not a ledger: it is empty")
        with file.changing("EXCLUSIVE", file.members.clear):
            if file.is_empty:
                for statement in _STREAMS:
                    file.db.execute(statement)
                file.db.execute("INSERT INTO file VALUES ('schema', ?), ('log', 'closed')", (str(SCHEMA_VERSION),))
                file.db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                file.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._check_version()
            number, name, is_retired = self._choose(terms, stream)
            self._tables = tables = self._tables_of(number)
        self.terms = tables.terms if not is_retired else replace(tables.terms, stream=name)
        self.salt, self.is_retired = tables.salt, bool(is_retired)
        file.enter(name, self.path)
        self._stream = name
        tables.check()
        self._rollback_guard = tables.rollback_guard()
        file.mark("open")
        file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _check_version(self) -> None:
        found = dict(self._file.db.execute("SELECT key, value FROM file").fetchall())
        version = str(self._file.db.execute("PRAGMA user_version").fetchone()[0])
        if found.keys() != {"schema", "log"} or found["log"] not in ("open", "closed") or found["schema"] != version:
            raise LedgerDamaged(f"{self.path} is damaged: what its schema is, and its log, cannot be read")
        if version != str(SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self.path} has schema version {version}, this version reads {SCHEMA_VERSION}: use the version that "
                "made it"
            )

    def _choose(self, terms: Terms | None, stream: str | None) -> tuple[int, str, int]:
        """Find this ledger's stream, or add it if that is allowed: its number, name, and whether it was retired."""
        check_listed(self._file, self.path)
        listed = {name: (number, name, retired) for number, name, retired in stream_numbers(self._file)}
        if terms is not None:
            return self._join(terms, listed)
        if not listed:
            raise LedgerDamaged(f"{self.path} is damaged: it lists no stream")
        if stream is None and len(listed) > 1:
            raise LedgerMismatch(f"{self.path} holds {len(listed)} streams: name one of {some(listed)}")
        name = stream or next(iter(listed))
        if name not in listed:
            raise LedgerMismatch(f"{self.path} has no stream {name!r}, only {some(listed)}")
        return listed[name]

    def _join(self, terms: Terms, listed: dict[str, tuple[int, str, int]]) -> tuple[int, str, int]:
        """Check that this stream and all its siblings agree with the terms; the stream is added if it is absent."""
        if terms.stream in listed and listed[terms.stream][2]:
            raise LedgerMismatch(f"{self.path}: stream {terms.stream!r} was retired: choose another `stream.name`")
        sibling_streams = {
            n: name
            for n, name, retired in listed.values()
            if not retired and folded_name(name) == folded_name(terms.root)
        }
        about = replace(terms, stream=terms.root)
        unchecked = (
            []
            if self._file.agreed.get(folded_name(terms.root)) == about
            else list(map(self._tables_of, sibling_streams))
        )
        for tables in unchecked:
            check_terms(self.path, tables.terms, terms)
        check_keys_named(self.path, sibling_streams.values(), terms)
        self._tighten(unchecked, terms)
        self._file.agreed[folded_name(terms.root)] = about
        salt = self._join_group(terms)
        if terms.stream in listed:
            return listed[terms.stream]
        number = len(listed) + 1
        self._guard_of(number).check_absence()
        self._file.db.execute("INSERT INTO streams VALUES (?, ?, 0)", (number, terms.stream))
        StreamTables(self._file, self.path, number).create(terms, salt)
        if terms.group is not None:
            self._file.members[terms.group][number] = self._tables_of(number)  # spends from now on
        if not sibling_streams:
            others = [Standing(self._tables_of(n).terms, is_retired=bool(gone)) for n, _, gone in listed.values()]
            tell_of_a_new_stream(self.path, terms, others)
        return number, terms.stream, 0

    def _join_group(self, terms: Terms) -> bytes | None:
        """Check that the streams of a group agree, and give all of them the stricter caps; returns the group's salt."""
        if terms.group is None:
            return None
        known = self._file.members.setdefault(terms.group, {})
        held = {name: (n, retired) for n, name, retired in stream_numbers(self._file)}
        for number, _ in held.values():
            if number not in known:
                tables = self._tables_of(number)
                if tables.terms.group is not None:
                    check_group(self.path, tables.terms, terms)
                if tables.terms.group == terms.group:
                    tables.check()
                    known[number] = tables
        live = [known[n] for n, retired in held.values() if n in known and not retired]
        for tables in live:
            tables.open()
            check_group(self.path, tables.terms, terms)
        looser = [tables for tables in live if not has_caps(tables.terms, terms)]
        if looser:
            total = sum_of(tables.block(TOTAL_BLOCK) for tables in known.values())
            check_caps(self.path, terms, sum_of(tables.most_spent() for tables in known.values()), total)
        for tables in looser:
            if self._file.holds(tables.terms.stream):
                raise LedgerInUse(f"{self.path}: stream {tables.terms.stream!r} is in use with a larger cap: close it")
            log_tightened(self.path, tables.terms, terms)
            tables.adopt(tightened_in_group(tables.terms, terms))
        return next((tables.salt for tables in known.values()), None)

    def _tighten(self, parts: Iterable[StreamTables], terms: Terms) -> None:
        """Give this stream and its siblings stricter caps, together."""
        looser = [tables for tables in parts if tables.terms != tightened(tables.terms, terms)]
        for tables in looser:
            if self._file.holds(tables.terms.stream):
                raise LedgerInUse(f"{self.path}: stream {tables.terms.stream!r} is in use with a larger cap: close it")
        if looser:
            log_tightened(self.path, looser[0].terms, terms)
        for tables in looser:
            tables.tighten(terms)

    def _tables_of(self, number: int) -> StreamTables:
        tables = StreamTables(self._file, self.path, number)
        tables.open()
        return tables

    def _guard_of(self, number: int) -> RollbackGuard:
        return RollbackGuard(f"{self._file.path}-witness{ending(number)}")

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
            return self._charge_again(tables, request, found)
        elsewhere, held = self._elsewhere(request.users), self._own_blocks(tables, request)
        names, refusal = blocks_to_charge(self.terms, request, held, elsewhere)
        if refusal is not None:
            return ChargeResult(request.window, public_spent(request, held, elsewhere), refusal=refusal)
        admitted = None
        if request.users is not None:
            admitted = self._charge_users(tables, request, request.users, elsewhere)
        after = held | {block: held.get(block, PrivacyLoss()) + request.loss for block in names}
        for block in names:
            tables.put_block(block, held.get(block), after[block])
        self._note(tables, request, ",".join(names), b"" if admitted is None else tables.head.users)
        return grant(request.window, request.loss, public_spent(request, after, elsewhere), admitted)

    def _public_spent(self, tables: StreamTables, request: Request) -> PrivacyLoss:
        return public_spent(request, self._own_blocks(tables, request), self._elsewhere())

    def _own_blocks(self, tables: StreamTables, request: Request) -> dict[str, PrivacyLoss]:
        """Read what this stream has spent of the blocks that a request may be charged to."""
        held = {block: tables.block_if_any(block) for block in (*request.blocks, USER_BLOCK, TOTAL_BLOCK)}
        return {block: spent for block, spent in held.items() if spent is not None}

    def _note(self, tables: StreamTables, request: Request, names: str, body: bytes) -> None:
        """Write the charge to the journal and to the table of windows."""
        key, loss = request.window, request.loss
        row = WindowRow(key.open_ms, key.close_ms, "charged", 1, loss.rho_nano, loss.delta_femto, names, None)
        tables.put_window(None, row)
        tables.append("charge", key, loss, names, body)

    def _charge_again(self, tables: StreamTables, request: Request, found: WindowRow) -> ChargeResult:
        """Answer for a window that was charged before a crash: one more draw under the same charge, and no third."""
        window, spent = request.window, self._public_spent(tables, request)
        if found.draws >= 2:
            return ChargeResult(window, spent, interrupted=found.loss)
        tables.put_window(found, found._replace(draws=found.draws + 1))
        tables.append("again", window, PrivacyLoss(), found.blocks, b"")
        admitted = None
        if request.users is not None:
            admitted = user_budgets.charged(
                tables.buckets(user_budgets.buckets_of(request.users)), request.users, request.window.open_ms
            )
        return grant(window, found.loss, spent, admitted, is_redraw=True)

    def _charge_users(
        self, tables: StreamTables, request: Request, keys: NDArray[np.bytes_], elsewhere: Elsewhere
    ) -> NDArray[np.bool_]:
        held, opens = tables.buckets(user_budgets.buckets_of(keys)), request.window.open_ms
        changed, admitted = user_budgets.charge(held, keys, request.loss, self.terms.capacity, opens, elsewhere.users)
        tables.put_buckets(held, changed)
        return admitted

    def has_room(self, keys: NDArray[np.bytes_], loss: PrivacyLoss) -> NDArray[np.bool_]:
        with self._locked() as tables:
            held, elsewhere = tables.buckets(user_budgets.buckets_of(keys)), self._elsewhere(keys)
        return user_budgets.has_room(held, keys, loss, self.terms.capacity, elsewhere.users)

    # -- groups ------------------------------------------------------------------------------------------------------

    def _members(self) -> dict[int, StreamTables]:
        """Return the tables of all streams of this stream's group by number, this stream's own included."""
        group = self.terms.group
        if group is None:
            return {}
        if group not in self._file.members:  # it was opened to look at it
            held = {number: self._tables_of(number) for number, _, _ in stream_numbers(self._file)}
            self._file.members[group] = {n: tables for n, tables in held.items() if tables.terms.group == group}
        return self._file.members[group]

    def _elsewhere(self, keys: NDArray[np.bytes_] | None = None) -> Elsewhere:
        """Read what the other streams of the group have spent, also of the filters of some users."""
        if self.terms.group is None:
            return NOWHERE
        others = [tables for number, tables in self._members().items() if number != self._tables.number]
        names = [] if keys is None else user_budgets.buckets_of(keys)
        last = [tables.last_blocks() for tables in (self._tables, *others)] if self.terms.unit == "user" else []
        return Elsewhere(
            {block: sum_of(tables.block(block) for tables in others) for block in SHARED_BLOCKS},
            [tables.buckets(names) for tables in others if names],
            any(blocks is not None and USER_BLOCK not in blocks for blocks in last),
        )

    def _check_group(self) -> None:
        """Check the sums over the streams of the group against its caps."""
        members = self._members().values()
        if members:
            check_sums(self.path, self.terms, [{b: t.block(b) for b in SHARED_BLOCKS} for t in members])
            check_users(self.path, self.terms, [tables.buckets(None) for tables in members])

    def _seal(self, tables: StreamTables, answer: SealedRelease) -> None:
        window, refund = answer.window, answer.refund
        found = tables.window(window)
        if found is not None and found.state != "charged":
            raise LedgerError(f"window {window.open_ms} is sealed in {self.path}: its release is final")
        charged = PrivacyLoss() if found is None else found.loss
        if not refund.fits(charged):
            raise LedgerError(f"window {window.open_ms} was charged {charged}: {refund} cannot be refunded")
        # No refund after a second draw, since nobody knows what the first one used; and for users only of the last
        # window, since a user's entry remembers only the last window that was charged to it.
        if found is not None and (found.draws > 1 or (self.terms.unit == "user" and tables.last_charged() != window)):
            refund = PrivacyLoss()
        root = self._refund(tables, window, refund, found.blocks) if found and refund != PrivacyLoss() else ""
        seq = tables.append("seal", window, refund, root, answer.body)
        if found is None:  # a refusal: nothing was charged
            sealed = WindowRow(window.open_ms, window.close_ms, "sealed", 0, 0, 0, "", seq)
        else:
            left = charged - refund
            sealed = found._replace(state="sealed", sealed_seq=seq, rho=left.rho_nano, delta=left.delta_femto)
        tables.put_window(found, sealed)

    def _refund(self, tables: StreamTables, window: WindowKey, refund: PrivacyLoss, names: str) -> str:
        """Refund every block and user that was charged; returns the users' new digest, in hex, if any changed."""
        for block in filter(None, names.split(",")):
            spent = tables.block(block)
            tables.put_block(block, spent, spent - refund)
        if self.terms.unit != "user":
            return ""
        held = tables.buckets(None)
        tables.put_buckets(held, user_budgets.refund(held, refund, window.open_ms))
        return tables.head.users.hex()

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[StreamTables]:
        """Hold the connection's lock."""
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened before a fork: open the engine in the process that uses it")
        with self._file.lock, translated_errors(self.path):
            if self._closed:  # other ledgers may still have the file open, and even this stream
                raise LedgerError(f"{self.path} is closed: open it again to go on")
            self._file.finish()
            yield self._tables

    @contextmanager
    def _transaction(self) -> Iterator[StreamTables]:
        with self._locked() as tables:
            with self._file.changing("IMMEDIATE", tables.read_head):
                yield tables
                tables.save()
            assert self._rollback_guard is not None
            self._rollback_guard.note(tables.head.seq, tables.head.chain)
