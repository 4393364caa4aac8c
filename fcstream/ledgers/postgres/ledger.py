"""Ledger for streams in one PostgreSQL schema, which several processes may use at once.

Every charge, seal and acknowledgment is one transaction. For the units ``event`` and ``stream`` the transaction is one
statement, a function in `schema.sql`. The function locks the stream's row first, so rows are appended one after the
other and the hash chain stays linear; the lock is held for no round trip. The update's own condition contains the cap,
so parallel processes cannot exceed it. Streams of a group share filters: see `groups`.

Two processes may be granted the same window. A process that asks for a window which another process has charged and not
sealed is granted the window once more, as after a crash, because the ledger cannot distinguish a slow process from a
dead one. Both processes draw under one charge, and the ledger accepts only the first seal: the second process gets a
`LedgerError` before anything has left it. A window therefore has one sealed release, and every published release is
charged. Give each process different windows, so that no work is lost.

A connection that is lost, even while a transaction commits, is retried for a few seconds, and the call is repeated.
Each call writes a token beside its changes, so a repeated call recognizes its own work, and nothing is charged or
counted as a draw twice. The newest journal row that a process has seen must still exist at its next call. This finds an
older copy of the database that is restored while a process is running; an older copy that is restored while no process
is running is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import BudgetExhausted, LedgerDamaged, LedgerError, LedgerMismatch
from ...noise.samplers import SystemEntropy
from ...runtime.undo import on_error
from .. import hash_chain, user_budgets
from ..base import TOTAL_BLOCK, ChargeResult, EpochState, Request, Row, SealedRelease, Terms, WindowKey, grant
from ..groups import Elsewhere, blocks_to_charge, public_spent
from .connection import (
    PATIENCE,
    Connection,
    PostgresConnection,
    ServerAddress,
    SharedConnection,
    caps_lowered,
    older_copy,
    sql,
    translated_errors,
)
from .groups import GroupTables
from .states import PostgresStates
from .tables import (
    ROW,
    WINDOW,
    OpenedStream,
    PostgresTables,
    caps_of,
    check_version,
    checked_window,
    followed,
    make_schema,
    one,
    stream_names,
)

T = TypeVar("T")
_BUCKETS = 1024  # buckets of users that are written in one statement


class _ChargeRow(NamedTuple):
    """Row that the SQL function `charge` returns for one request."""

    outcome: str
    draws: int
    rho: int
    delta: int
    spent_rho: int
    spent_delta: int
    block: str | None
    block_rho: int
    block_delta: int
    seq: int
    chain: bytes


class PostgresLedger:
    """Ledger in a PostgreSQL schema; `Ledger` and `LedgerReader` describe the methods.

    Parameters
    ----------
    url : str
        ``postgresql://[user[:password]@]host[:port]/dbname``, or ``postgresql:///dbname?host=/var/run/postgresql`` for
        a socket. Parameters follow ``?`` and are joined by ``&``: ``schema=NAME`` (created if absent; ``fcstream`` by
        default), ``stream=NAME``, ``unsafe=yes`` (accepts a server with ``fsync = off``, for tests), ``lease=CLAIM``
        (nothing is written once another process holds the lease, see `leader.PostgresLease`), and all parameters of
        libpq, such as ``sslmode=verify-full``.
    terms : Terms, optional
        Terms that the ledger must have; a stream that is absent is created. None opens an existing ledger for reading.
    stream : str, optional
        Stream to open for reading; by default the stream that the URL names, or the only stream of the schema.
    beside : PostgresLedger, optional
        Open ledger whose connection is shared.

    Raises
    ------
    ConfigError, LedgerMismatch, LedgerDamaged, LedgerError
    """

    def __init__(
        self, url: str, terms: Terms | None = None, stream: str | None = None, beside: PostgresLedger | None = None
    ) -> None:
        self._address = ServerAddress.of(url)
        stream = (stream or self._address.stream) if terms is None else terms.stream
        if self._address.stream not in (None, stream):
            raise LedgerMismatch(
                f"the ledger's URL names stream {self._address.stream!r}, the configuration is about {stream!r}: "
                "leave `stream` out of `ledger.url`"
            )
        self._takes_charges = terms is not None
        line: SharedConnection | None = None if beside is None else beside._session.line
        self._session: PostgresConnection = PostgresConnection(
            self._address, self._address.location(stream), is_reader=terms is None, line=line
        )
        self._schema = sql.Identifier(self._address.schema).as_string()
        self._instance = SystemEntropy().words(2).tobytes()
        self._calls = 0
        self._seen = (0, b"")  # last row of the journal that is known to have been there, and its link
        with on_error(self.close):
            self._prepare(terms, stream)
        self._session.patience = PATIENCE

    @classmethod
    def names(cls, url: str) -> list[str]:
        """Return the name of the stream that the URL names, or the names of all streams of the schema."""
        address = ServerAddress.of(url)
        if address.stream is not None:
            return [address.stream]
        session = PostgresConnection(address, address.location(None), is_reader=True)
        try:
            return session.run(lambda db: stream_names(db, address))
        finally:
            session.close()

    @property
    def location(self) -> str:
        """Return the ledger's URL without user and password, for messages."""
        return self._session.location

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        if not requests:
            return []
        token = self._token()
        if self.terms.group is not None:
            return self._change(lambda db: self._charge_in_group(db, requests, token))
        if any(request.users is not None for request in requests):
            answered = self._change(lambda db: self._charge_each(db, requests, token))
        else:
            answered = self._change(lambda db: [(row, None) for row in self._charge(db, requests, token, None)])
        self._seen = answered[-1][0].seq, answered[-1][0].chain
        return [
            self._charge_result(request, row, admitted)
            for request, (row, admitted) in zip(requests, answered, strict=True)
        ]

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        if not answers:
            return
        token = self._token()
        if self.terms.unit == "user" and any(answer.refund != PrivacyLoss() for answer in answers):
            self._seen = self._change(lambda db: self._seal_each(db, answers, token))
        else:
            self._seen = self._change(lambda db: self._seal(db, answers, token, [""] * len(answers)))[1:]

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        if not states:
            self.seal(answers)
            return
        token = self._token()

        def work(db: Connection) -> tuple[int, int, bytes]:
            with db.transaction():
                held = self._states(db)
                held.make()  # before the stream is locked, as whoever opens the ledger does
                sealed = self._seal(db, answers, token, [""] * len(answers))
                held.put(self.terms.stream, states)
                return sealed

        self._seen = self._change(work)[1:]

    def epoch_states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        def look(db: Connection) -> list[tuple[int, bytes]]:
            self._check_seen(db)
            return self._states(db).read(self.terms.stream, answer, epoch_ms)

        return self._session.run(look)

    def forget_states(self, answer: str, before_ms: int) -> None:
        self._change(lambda db: self._states(db).forget(self.terms.stream, answer, before_ms))

    def _states(self, db: Connection) -> PostgresStates:
        return PostgresStates(db, self._schema)

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        if not windows:
            return
        query = self._sql(
            "SELECT * FROM {schema}.acknowledge(%s::text, %s::bigint, %b::bytea, %s::bigint[], %s::bigint[])"
        )
        keys = _array(key.open_ms for key in windows), _array(key.close_ms for key in windows)
        self._seen = self._change(lambda db: one(db, query, (self.terms.stream, *self._seen, *keys)))

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        return self._sealed("w.state = 'sealed' ORDER BY w.sealed_seq")

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        return next(iter(self._sealed("w.state <> 'charged' ORDER BY w.open_ms DESC LIMIT 1")), None)

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        return self._sealed(f"w.state <> 'charged' ORDER BY w.open_ms DESC LIMIT {int(count)}")[::-1]

    def _sealed(self, which: str) -> list[tuple[WindowKey, bytes]]:
        """Return sealed windows with their final bytes, checked against the journal."""
        query = (
            f"SELECT {WINDOW}, {ROW}, p.chain FROM {{schema}}.windows w "
            "LEFT JOIN {schema}.journal j ON j.stream = w.stream AND j.seq = w.sealed_seq "
            "LEFT JOIN {schema}.journal p ON p.stream = w.stream AND p.seq = w.sealed_seq - 1 "
            f"WHERE w.stream = %s AND {which}"
        )
        found = []
        with translated_errors(self.location):
            for columns in self._read_rows(query):
                window = checked_window(self.location, columns[:9])
                row = followed(self.location, columns[9:-1], columns[-1])
                if (row.kind, row.open_ms, row.close_ms) != ("seal", *window[:2]):
                    raise LedgerDamaged(
                        f"{self.location}: journal row {row.seq} ({row.kind}) is no seal of {window[0]}"
                    )
                found.append((WindowKey(*window[:2]), bytes(row.body)))
        return found

    def spent(self, block: str | None = None) -> PrivacyLoss:
        if self.terms.group is None:
            return self._spent(block)
        elsewhere = self._session.run(lambda db: self._group(db).elsewhere(self._stream))
        return elsewhere.spent(block or self.terms.unit) + self._spent(block)

    def _spent(self, block: str | None) -> PrivacyLoss:
        rows = self._read_rows(
            "SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM {schema}.blocks WHERE stream = %s AND block "
            + ("<> %s" if block is None else "= %s"),
            block or TOTAL_BLOCK,
        )
        return PrivacyLoss(*rows[0])

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        query = f"SELECT {WINDOW} FROM {{schema}}.windows w WHERE stream = %s AND open_ms = %s AND close_ms = %s"
        rows = self._read_rows(query, window.open_ms, window.close_ms)
        return tuple(filter(None, checked_window(self.location, rows[0])[6].split(","))) if rows else ()

    def setting(self, key: str) -> str | None:
        rows = self._read_rows("SELECT value, mark FROM {schema}.settings WHERE stream = %s AND key = %s", key)
        if rows and hash_chain.mark("s", key, rows[0][0]) != rows[0][1]:
            raise LedgerDamaged(f"{self.location} is damaged: setting {key} disagrees with the mark beside it")
        return str(rows[0][0]) if rows else None

    def keep_setting(self, key: str, value: str) -> str:
        query = self._sql("SELECT * FROM {schema}.keep_setting(%s::text, %s::bigint, %b::bytea, %s::text, %s::text)")
        kept, *seen = self._change(lambda db: one(db, query, (self.terms.stream, *self._seen, key, value)))
        self._seen = seen[0], seen[1]
        return str(kept)

    def close(self) -> None:
        self._session.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        rows = self._read_rows("SELECT state, count(*) FROM {schema}.windows WHERE stream = %s GROUP BY state")
        states = {str(state): int(number) for state, number in rows}
        states["blocks"] = self._read_rows("SELECT count(*) FROM {schema}.blocks WHERE stream = %s")[0][0]
        size = self._read_rows("SELECT coalesce(sum(length(body)), 0) FROM {schema}.users WHERE stream = %s")[0][0]
        states["users"] = int(size) // user_budgets.ENTRY_BYTES
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        rows = self._read_rows(
            "SELECT open_ms, close_ms, rho, delta FROM {schema}.windows "
            "WHERE stream = %s AND draws > 0 ORDER BY open_ms"
        )
        return [(WindowKey(opens, closes), PrivacyLoss(rho, delta)) for opens, closes, rho, delta in rows]

    def releases(self) -> list[bytes]:
        return [line for row in self.rows() if row.kind == "seal" for line in bytes(row.body).split(b"\n")]

    def rows(self) -> list[Row]:
        found, before = [], hash_chain.origin(self.salt)
        for columns in self._read_rows(f"SELECT {ROW} FROM {{schema}}.journal j WHERE stream = %s ORDER BY seq"):
            found.append(followed(self.location, columns, before))
            before = columns[-1]
        return found[1:]

    def verify(self) -> int:
        """Check that the stream's journal and tables agree at one moment, and return the number of journal rows.

        Raises
        ------
        LedgerDamaged
            If they disagree; the message names the first bad row.
        """
        return self._session.run(self._verify)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _prepare(self, terms: Terms | None, stream: str | None) -> None:
        if terms is not None:
            self._session.run(lambda db: self._join(db, terms))
        elif not self._session.run(lambda db: one(db, "SELECT to_regclass(%s)", (f"{self._schema}.meta",)))[0]:
            raise LedgerError(f"{self.location} does not exist: there is no ledger to look at")
        self._session.run(lambda db: check_version(db, self._address))
        if stream is None:
            stream = self._only_stream()
            self._session.location = self._address.location(stream)
        self._stream = stream
        found = self._session.run(self._check)
        if terms is not None and caps_of(found.terms) != caps_of(terms):  # between joining and looking
            raise caps_lowered(self.location)
        self.terms = replace(found.terms, stream=stream)  # a retired one has another name
        self.salt, self._seen, self.is_retired = found.salt, found.seen, found.is_retired

    def _join(self, db: Connection, terms: Terms) -> None:
        with db.transaction(), translated_errors(self.location):
            make_schema(db, self._address)
            self._tables(db).join(terms)

    def _check(self, db: Connection) -> OpenedStream:
        with db.transaction(), translated_errors(self.location):
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return self._tables(db).check(self._stream)

    def _tables(self, db: Connection) -> PostgresTables:
        return PostgresTables(db, self._schema, self.location)

    def _only_stream(self) -> str:
        names = self._session.run(lambda db: stream_names(db, self._address))
        if len(names) != 1:
            held = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise LedgerMismatch(
                f"{self.location} holds {len(names)} streams: name one with &stream=NAME: {held}"
                if names
                else f"{self.location} is not a ledger: it holds no stream"
            )
        return names[0]

    # -- changing ----------------------------------------------------------------------------------------------------

    def _charge(
        self, db: Connection, requests: Sequence[Request], token: bytes, digest: bytes | None
    ) -> list[_ChargeRow]:
        query = self._sql(
            "SELECT * FROM {schema}.charge(%s::text, %s::bigint, %b::bytea, %b::bytea, %s::bigint[], %s::bigint[], "
            "%s::bigint[], %s::bigint[], %s::text[], %b::bytea)"
        )
        values = (
            *(self.terms.stream, *self._seen, token),
            *(_array(r.window.open_ms for r in requests), _array(r.window.close_ms for r in requests)),
            *(_array(r.loss.rho_nano for r in requests), _array(r.loss.delta_femto for r in requests)),
            *(_texts(",".join(r.blocks) for r in requests), digest),
        )
        return [_ChargeRow(*row) for row in db.execute(query, values, binary=True)]

    def _charge_each(
        self, db: Connection, requests: Sequence[Request], token: bytes
    ) -> list[tuple[_ChargeRow, NDArray[np.bool_] | None]]:
        """Charge requests with users one after the other, in one transaction."""
        answered: list[tuple[_ChargeRow, NDArray[np.bool_] | None]] = []
        with db.transaction():
            for index, request in enumerate(requests):
                part_token = token + index.to_bytes(4, "big")
                if request.users is None:
                    answered.append((self._charge(db, [request], part_token, None)[0], None))
                    continue
                total = self._lock_users(db)
                held = self._buckets(db, user_budgets.buckets_of(request.users))
                opens, capacity = request.window.open_ms, self.terms.capacity
                changed, admitted = user_budgets.charge(held, request.users, request.loss, capacity, opens)
                marks = {name: user_budgets.mark(name, body) for name, body in changed.items()}
                row = self._charge(db, [request], part_token, user_budgets.redigest(total, held, marks))[0]
                if row.outcome == "charged":
                    self._store_users(db, changed, marks)
                else:
                    admitted = user_budgets.charged(held, request.users, opens)
                answered.append((row, admitted))
        return answered

    def _charge_in_group(self, db: Connection, requests: Sequence[Request], token: bytes) -> list[ChargeResult]:
        """Charge requests one after the other beside the other streams of the group, in one transaction."""
        results = []
        with db.transaction():
            self._group(db).lock()
            for index, request in enumerate(requests):
                result, seen = self._charge_shared(db, request, token + index.to_bytes(4, "big"))
                results.append(result)
        self._seen = seen
        return results

    def _charge_shared(self, db: Connection, request: Request, token: bytes) -> tuple[ChargeResult, tuple[int, bytes]]:
        """Charge one request under the group's lock; also returns the last row of the journal and its link."""
        window, loss, users = request.window, request.loss, request.users
        digest, terms = self._lock_users(db), self.terms
        names = None if users is None else user_budgets.buckets_of(users)
        held = user_budgets.CheckedBuckets() if names is None else self._buckets(db, names)
        elsewhere = self._group(db).elsewhere(terms.stream, names)
        if self._group(db).has_window(window):
            row = self._charge(db, [request], token, None if users is None else digest)[0]
            admitted = None if users is None else user_budgets.charged(held, users, window.open_ms)
            result = self._charge_result(request, row, admitted)
            return replace(result, spent=result.spent + public_spent(request, {}, elsewhere)), (row.seq, row.chain)
        own = self._group(db).blocks(terms.stream)
        blocks, refusal = blocks_to_charge(terms, request, own, elsewhere)
        if refusal is not None:
            return ChargeResult(window, public_spent(request, own, elsewhere), refusal=refusal), self._seen
        changed, marks, admitted = dict[int, bytes](), dict[int, bytes](), None
        if users is not None:
            changed, admitted = user_budgets.charge(held, users, loss, terms.capacity, window.open_ms, elsewhere.users)
            marks = {name: user_budgets.mark(name, body) for name, body in changed.items()}
        after = None if users is None else user_budgets.redigest(digest, held, marks)
        values = (terms.stream, *self._seen, token, *astuple(window), *loss.parts, _texts(blocks), after)
        seen = self._group(db).write(values)
        self._store_users(db, changed, marks)
        own |= {block: own.get(block, PrivacyLoss()) + loss for block in blocks}
        return grant(window, loss, public_spent(request, own, elsewhere), admitted), seen

    def _group(self, db: Connection) -> GroupTables:
        return GroupTables(db, self._schema, self.location, self.terms)

    def _charge_result(self, request: Request, row: _ChargeRow, admitted: NDArray[np.bool_] | None) -> ChargeResult:
        window, spent = request.window, PrivacyLoss(row.spent_rho, row.spent_delta)
        if row.outcome == "sealed":
            return ChargeResult(window, spent)
        if row.block is not None:
            capacity = self.terms.cap(row.block)
            left = capacity - PrivacyLoss(row.block_rho, row.block_delta)
            refusal = BudgetExhausted(request.loss, left, capacity, row.block, window)
            return ChargeResult(window, spent, refusal=refusal)
        loss = PrivacyLoss(row.rho, row.delta)
        if row.outcome == "interrupted":
            return ChargeResult(window, spent, interrupted=loss)
        return grant(window, loss, spent, admitted, is_redraw=row.draws > 1)

    def _seal(
        self, db: Connection, answers: Sequence[SealedRelease], token: bytes, digests: list[str]
    ) -> tuple[int, int, bytes]:
        """Seal windows, and return how many this try refunded, the last journal row and its link.

        Refunds that an earlier try of the same call has made are not counted.
        """
        query = self._sql(
            "SELECT * FROM {schema}.seal(%s::text, %s::bigint, %b::bytea, %b::bytea, %s::bigint[], %s::bigint[], "
            "%s::bigint[], %s::bigint[], %b::bytea[], %s::text[])"
        )
        values = (
            *(self.terms.stream, *self._seen, token),
            *(_array(a.window.open_ms for a in answers), _array(a.window.close_ms for a in answers)),
            *(_array(a.refund.rho_nano for a in answers), _array(a.refund.delta_femto for a in answers)),
            *([a.body for a in answers], _texts(digests)),
        )
        _, refunded, seq, chain = one(db, query, values)
        return refunded, seq, chain

    def _seal_each(self, db: Connection, answers: Sequence[SealedRelease], token: bytes) -> tuple[int, bytes]:
        """Seal releases whose refunds go to users one after the other, in one transaction."""
        with db.transaction():
            for index, answer in enumerate(answers):
                part_token, digest, changed = token + index.to_bytes(4, "big"), "", dict[int, bytes]()
                marks = dict[int, bytes]()
                if answer.refund != PrivacyLoss():
                    total, held = self._lock_users(db), self._buckets(db, None)
                    changed = user_budgets.refund(held, answer.refund, answer.window.open_ms)
                    marks = {name: user_budgets.mark(name, body) for name, body in changed.items()}
                    digest = user_budgets.redigest(total, held, marks).hex()
                refunded, seq, chain = self._seal(db, [answer], part_token, [digest])
                if refunded:
                    self._store_users(db, changed, marks)
        return seq, chain

    def _lock_users(self, db: Connection) -> bytes:
        """Lock the stream and return the digest of its users' budgets."""
        query = self._sql("SELECT users FROM {schema}.lock_stream(%s::text, %s::bigint, %b::bytea)")
        return bytes(one(db, query, (self.terms.stream, *self._seen))[0])

    def has_room(self, keys: NDArray[np.bytes_], loss: PrivacyLoss) -> NDArray[np.bool_]:
        names = user_budgets.buckets_of(keys)

        def look(db: Connection) -> tuple[user_budgets.CheckedBuckets, Elsewhere]:
            self._check_seen(db)
            return self._buckets(db, names), self._group(db).elsewhere(self._stream, names)

        held, elsewhere = self._session.run(look)
        return user_budgets.has_room(held, keys, loss, self.terms.capacity, elsewhere.users)

    def _buckets(self, db: Connection, names: list[int] | None) -> user_budgets.CheckedBuckets:
        """Return the named buckets of users' budgets, checked; None returns all buckets."""
        query = "SELECT bucket, body, mark FROM {schema}.users WHERE stream = %s"
        values: tuple[Any, ...] = (self.terms.stream,)
        if names is not None and len(names) < user_budgets.BUCKETS // 2:
            query += " AND bucket = ANY (%s::integer[])"
            values += (_array(names),)
        wanted = None if names is None else set(names)
        held = db.execute(self._sql(query), values, binary=True)
        return user_budgets.checked(self.location, (row for row in held if wanted is None or row[0] in wanted))

    def _store_users(self, db: Connection, changed: dict[int, bytes], marks: dict[int, bytes]) -> None:
        query = self._sql(
            "INSERT INTO {schema}.users SELECT %s, unnest(%s::integer[]), unnest(%b::bytea[]), unnest(%b::bytea[]) "
            "ON CONFLICT (stream, bucket) DO UPDATE SET body = excluded.body, mark = excluded.mark"
        )
        names = list(changed)
        for start in range(0, len(names), _BUCKETS):
            part = names[start : start + _BUCKETS]
            columns = [changed[name] for name in part], [marks[name] for name in part]
            db.execute(query, (self.terms.stream, _array(part), *columns))

    def _token(self) -> bytes:
        self._calls += 1
        return self._instance + self._calls.to_bytes(8, "big")

    # -- looking -----------------------------------------------------------------------------------------------------

    def _read_rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, whose first parameter is the stream."""

        def look(db: Connection) -> list[tuple[Any, ...]]:
            self._check_seen(db)
            return db.execute(self._sql(query), (self.terms.stream, *values), binary=True).fetchall()

        return self._session.run(look)

    def _check_seen(self, db: Connection) -> None:
        query = self._sql("SELECT FROM {schema}.journal WHERE stream = %s AND seq = %s AND chain = %b")
        if db.execute(query, (self._stream, *self._seen)).fetchone() is not None:
            return
        query = self._sql(
            "SELECT FROM {schema}.streams s JOIN {schema}.journal j ON j.stream = s.stream "
            "WHERE s.retired AND j.seq = %s AND j.chain = %b"
        )
        if db.execute(query, self._seen).fetchone() is not None:
            raise LedgerMismatch(f"{self.location} was retired: start with its new specification")
        raise older_copy(self.location, self._seen[0])

    def _verify(self, db: Connection) -> int:
        replay = hash_chain.JournalReplay(self.location, self.salt)
        with db.transaction(), translated_errors(self.location):
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._check_seen(db)
            for *row, chain in self._scan(db, f"SELECT {ROW} FROM {{schema}}.journal j WHERE stream = %s ORDER BY seq"):
                replay.follow(Row(*row), chain)
            found = self._tables(db).open(self._stream)
            root = None
            held = self._scan(db, "SELECT bucket, body, mark FROM {schema}.users WHERE stream = %s ORDER BY bucket")
            if self.terms.unit == "user":
                root = user_budgets.audit(self.location, held, found.terms.capacity)
            windows = self._scan(
                db, f"SELECT {WINDOW} FROM {{schema}}.windows w WHERE stream = %s ORDER BY open_ms, close_ms"
            )
            replay.compare(
                found.terms,
                ((opens, closes, tuple(state)) for opens, closes, *state, _ in windows),
                self._scan(db, "SELECT block, rho, delta FROM {schema}.blocks WHERE stream = %s ORDER BY block"),
                root,
                dict(self._scan(db, "SELECT key, value FROM {schema}.settings WHERE stream = %s")),
            )
            self._tables(db).check(self._stream)
            self._group(db).check()
        return replay.count

    def _scan(self, db: Connection, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the stream's rows of one table, fetched a thousand at a time."""
        with db.cursor(name="fcstream_scan", binary=True) as cursor:
            cursor.itersize = 1000
            yield from cursor.execute(self._sql(query), (self.terms.stream,))

    def _sql(self, text: str) -> str:
        return text.replace("{schema}", self._schema)

    def _change(self, work: Callable[[Connection], T]) -> T:
        if not self._takes_charges:
            raise LedgerError(f"{self.location} was opened to look at it: it takes no charges")
        return self._session.run(work)


def _array(values: Iterable[object]) -> str:
    """Write an array in PostgreSQL's text form, which has one type for all values and is fast to build."""
    return "{" + ",".join(map(str, values)) + "}"


def _texts(values: Iterable[str]) -> str:
    """Write an array of texts in PostgreSQL's text form."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return _array(f'"{value}"' for value in escaped)
