"""Ledger for streams in one PostgreSQL schema, which several processes may use at once.

Every charge, seal and acknowledgment is one transaction, also of several streams that are closed together. For the
units ``event`` and ``stream`` it is one statement, a function in `schema.sql`. The function locks the stream's row
first, so rows are appended one after the other and the hash chain stays linear; the lock is held for no round trip. The
update's own condition contains the cap, so parallel processes cannot exceed it. Streams of a group: see `groups`.

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

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from ...accounting.losses import PrivacyLoss
from ...errors import BudgetExhausted, LedgerDamaged, LedgerError, LedgerMismatch
from ...noise.samplers import SystemEntropy
from ...runtime.undo import on_error
from .. import hash_chain
from ..base import TOTAL_BLOCK, ChargeResult, EpochState, Request, Row, SealedRelease, Terms, WindowKey, grant
from ..groups import blocks_to_charge, public_spent
from . import statements
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
from .statements import ChargeRow, SeenStream, texts
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
    joins : sequence of Terms, optional
        The streams that are made or bound to their terms in one transaction; by default this one. Empty for a stream
        that another opening of this process has just joined.

    Raises
    ------
    ConfigError, LedgerMismatch, LedgerDamaged, LedgerError
    """

    def __init__(
        self,
        url: str,
        terms: Terms | None = None,
        stream: str | None = None,
        beside: PostgresLedger | None = None,
        joins: Sequence[Terms] | None = None,
    ) -> None:
        self._address = ServerAddress.of(url)
        stream = (stream or self._address.stream) if terms is None else terms.stream
        if self._address.stream not in (None, stream):
            raise LedgerMismatch(
                f"the ledger's URL names stream {self._address.stream!r}, the configuration is about {stream!r}",
                remedy="leave `stream` out of `ledger.url`",
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
            self._prepare(terms, stream, [terms] if joins is None and terms is not None else joins or ())
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

    @property
    def place(self) -> object:
        """See `JointLedger`; streams of a group share none, since what the others have spent is read first."""
        return self if self.terms.group is not None else self._session.line

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        return self.charge_together([(self, requests)])[0]

    @staticmethod
    def charge_together(
        calls: Sequence[tuple[PostgresLedger, Sequence[Request]]],
        acknowledged: Sequence[tuple[PostgresLedger, Sequence[WindowKey]]] = (),
    ) -> list[list[ChargeResult]]:
        """See `JointLedger`; one statement, unless a group is charged."""
        asked = {ledger: each for ledger, each in calls if each}
        told = {ledger: each for ledger, each in acknowledged if each}
        ledgers = [*asked, *(ledger for ledger in told if ledger not in asked)]
        if not ledgers:
            return [[] for _ in calls]
        first, token = ledgers[0], ledgers[0]._token()
        if first.terms.group is not None and asked:  # of one stream
            first.acknowledge_together(acknowledged)
            found, first._seen = first._change(lambda db: first._charge_in_group(db, asked[first], token))
            return [found]

        def work(db: Connection) -> list[list[ChargeRow]]:
            requests, windows = [asked.get(each, ()) for each in ledgers], [told.get(each, ()) for each in ledgers]
            return statements.charge(db, first._schema, token, [each._last_row for each in ledgers], requests, windows)

        rows = dict(zip(ledgers, _change_together(ledgers, work), strict=True))
        for ledger, mine in rows.items():
            if mine:
                ledger._seen = mine[-1].seq, mine[-1].chain
        return [
            [ledger._charge_result(request, row) for request, row in zip(each, rows.get(ledger, ()), strict=True)]
            for ledger, each in calls
        ]

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        self.seal_with_states(answers, ())

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        self.seal_together([(self, answers, states)])

    @staticmethod
    def seal_together(
        calls: Sequence[tuple[PostgresLedger, Sequence[SealedRelease], Sequence[EpochState]]],
    ) -> None:
        """See `JointLedger`; one statement, unless states are left."""
        calls = [call for call in calls if call[1]]
        if not calls:
            return
        ledgers, answers = [call[0] for call in calls], [call[1] for call in calls]
        first, token, has_states = ledgers[0], ledgers[0]._token(), any(states for _, _, states in calls)

        def work(db: Connection) -> list[tuple[int, int, bytes]]:
            held = first._states(db)
            with db.transaction() if has_states else nullcontext():
                if has_states:
                    held.make()  # before streams are locked, as whoever opens the ledger does
                sealed = statements.seal(db, first._schema, token, [ledger._last_row for ledger in ledgers], answers)
                for ledger, _, states in calls:
                    held.put(ledger.terms.stream, states)
            return sealed

        for ledger, (_, seq, chain) in zip(ledgers, _change_together(ledgers, work), strict=True):
            ledger._seen = seq, chain

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
        self.acknowledge_together([(self, windows)])

    @staticmethod
    def acknowledge_together(calls: Sequence[tuple[PostgresLedger, Sequence[WindowKey]]]) -> None:
        """See `JointLedger`; durable with the next charge or seal."""
        calls = [call for call in calls if call[1]]
        if not calls:
            return
        ledgers, windows = [ledger for ledger, _ in calls], [each for _, each in calls]

        def work(db: Connection) -> None:
            statements.acknowledge(db, ledgers[0]._schema, [ledger._last_row for ledger in ledgers], windows)

        _change_together(ledgers, work)

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
                        f"journal row {row.seq} ({row.kind}) is no seal of {window[0]}", where=self.location
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
        return self.keep_together([(self, key, value)])[0]

    @staticmethod
    def keep_together(calls: Sequence[tuple[PostgresLedger, str, str]]) -> list[str]:
        """See `JointLedger`."""
        ledgers, facts = [call[0] for call in calls], [call[1:] for call in calls]

        def work(db: Connection) -> list[tuple[str, int, bytes]]:
            return statements.keep_settings(db, ledgers[0]._schema, [each._last_row for each in ledgers], facts)

        kept = _change_together(ledgers, work)
        for ledger, (_, seq, chain) in zip(ledgers, kept, strict=True):
            ledger._seen = seq, chain
        return [value for value, *_ in kept]

    def close(self) -> None:
        self._session.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        rows = self._read_rows("SELECT state, count(*) FROM {schema}.windows WHERE stream = %s GROUP BY state")
        states = {str(state): int(number) for state, number in rows}
        states["blocks"] = self._read_rows("SELECT count(*) FROM {schema}.blocks WHERE stream = %s")[0][0]
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

    def _prepare(self, terms: Terms | None, stream: str | None, joins: Sequence[Terms]) -> None:
        if joins:
            self._session.run(lambda db: self._join(db, joins))
        elif (
            terms is None
            and not self._session.run(lambda db: one(db, "SELECT to_regclass(%s)", (f"{self._schema}.meta",)))[0]
        ):
            raise LedgerError(f"{self.location} does not exist: there is no ledger to look at")
        if terms is None:
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

    def _join(self, db: Connection, joins: Sequence[Terms]) -> None:
        with db.transaction(), translated_errors(self.location):
            make_schema(db, self._address)
            self._tables(db).join(joins)

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

    @property
    def _last_row(self) -> SeenStream:
        return SeenStream(self.terms.stream, *self._seen)

    def _charge_in_group(
        self, db: Connection, requests: Sequence[Request], token: bytes
    ) -> tuple[list[ChargeResult], tuple[int, bytes]]:
        """Charge requests one after the other beside the other streams of the group, in one transaction."""
        results = []
        with db.transaction():
            self._group(db).lock()
            for index, request in enumerate(requests):
                result, seen = self._charge_shared(db, request, token + index.to_bytes(4, "big"))
                results.append(result)
        return results, seen

    def _charge_shared(self, db: Connection, request: Request, token: bytes) -> tuple[ChargeResult, tuple[int, bytes]]:
        """Charge one request under the group's lock; also returns the last row of the journal and its link."""
        window, loss, terms = request.window, request.loss, self.terms
        self._lock(db)
        elsewhere = self._group(db).elsewhere(terms.stream)
        if self._group(db).has_window(window):
            row = statements.charge(db, self._schema, token, [self._last_row], [[request]])[0][0]
            result = self._charge_result(request, row)
            return replace(result, spent=result.spent + public_spent(request, {}, elsewhere)), (row.seq, row.chain)
        own = self._group(db).blocks(terms.stream)
        blocks, refusal = blocks_to_charge(terms, request, own, elsewhere)
        if refusal is not None:
            return ChargeResult(window, public_spent(request, own, elsewhere), refusal=refusal), self._seen
        seen = self._group(db).write((terms.stream, *self._seen, token, *window, *loss.parts, texts(blocks)))
        own |= {block: own.get(block, PrivacyLoss()) + loss for block in blocks}
        return grant(window, loss, public_spent(request, own, elsewhere)), seen

    def _group(self, db: Connection) -> GroupTables:
        return GroupTables(db, self._schema, self.location, self.terms)

    def _charge_result(self, request: Request, row: ChargeRow) -> ChargeResult:
        window, spent = request.window, PrivacyLoss(row.spent_rho, row.spent_delta)
        if row.outcome == "sealed":
            return ChargeResult(window, spent)
        if row.block is not None:
            capacity = self.terms.cap(row.block)
            left = capacity - PrivacyLoss(row.block_rho, row.block_delta)
            refusal = BudgetExhausted(request.loss, left, capacity, row.block, window, self.terms.group)
            return ChargeResult(window, spent, refusal=refusal)
        loss = PrivacyLoss(row.rho, row.delta)
        if row.outcome == "interrupted":
            return ChargeResult(window, spent, interrupted=loss)
        return grant(window, loss, spent, is_redraw=row.draws > 1)

    def _lock(self, db: Connection) -> None:
        """Lock the stream, whose journal must be as it was last seen."""
        one(db, self._sql("SELECT seq FROM {schema}.lock_stream(%s::text, %s::bigint, %b::bytea)"), self._last_row)

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
            raise LedgerMismatch(f"{self.location} was retired", remedy="start with its new specification")
        raise older_copy(self.location, self._seen[0])

    def _verify(self, db: Connection) -> int:
        replay = hash_chain.JournalReplay(self.location, self.salt)
        with db.transaction(), translated_errors(self.location):
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._check_seen(db)
            for *row, chain in self._scan(db, f"SELECT {ROW} FROM {{schema}}.journal j WHERE stream = %s ORDER BY seq"):
                replay.follow(Row(*row), chain)
            found = self._tables(db).open(self._stream)
            windows = self._scan(
                db, f"SELECT {WINDOW} FROM {{schema}}.windows w WHERE stream = %s ORDER BY open_ms, close_ms"
            )
            replay.compare(
                found.terms,
                ((opens, closes, tuple(state)) for opens, closes, *state, _ in windows),
                self._scan(db, "SELECT block, rho, delta FROM {schema}.blocks WHERE stream = %s ORDER BY block"),
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
        return _change_together([self], work)


def _change_together(ledgers: Sequence[PostgresLedger], work: Callable[[Connection], T]) -> T:
    """Run work on the connection that some ledgers share."""
    for ledger in ledgers:
        if not ledger._takes_charges:
            raise LedgerError(f"{ledger.location} was opened to look at it: it takes no charges")
        ledger._session.check_open()
    return ledgers[0]._session.run(work)
