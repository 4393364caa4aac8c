"""The shared ledger: streams of one PostgreSQL schema, used by several processes at once.

Every charge, seal and acknowledgment is one transaction, for the units ``event`` and ``stream`` one statement: a
function in `postgres.sql`. It locks the stream's row first, so appends come one after the other and the chain of hashes
stays linear; the lock is held for no round trip. The cap stands in the condition of the update itself, so parallel
processes cannot pass it.

Two processes may be given the same window: one that asks for a window which another has charged and not sealed is
granted it once more, as after a crash, because nothing tells a slow process from a dead one. Both draw under one
charge, and only the first seal is taken: the other raises `LedgerError` before anything left its process. So a window
has one answer, and whatever is published is paid for; give processes windows of their own to lose no work.

A connection that is lost, even while a transaction commits, is made again for a few seconds, and the call is repeated.
Each call has a token that stands beside what it did, so a repeated call recognizes its own work: nothing is charged or
counted as a draw twice. The newest journal row that a process has seen must be there in its next call: an older copy of
the database, restored under a running process, is found out. One that is restored while nobody looks is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import BudgetExhausted, ConfigError, LedgerDamaged, LedgerError, LedgerMismatch
from ..noise import SystemEntropy
from ..zcdp import PrivacyLoss
from . import journal, users
from .base import TOTAL_BLOCK, Answer, Request, Row, Terms, Verdict, WindowKey, grant, must_agree
from .sessions import PATIENCE, Address, Connection, Line, Session, older_copy, sql

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
SCHEMA_VERSION = 1
_MIGRATIONS: dict[str, tuple[str, str]] = {}
"""From each older schema version: the next one, and what it takes."""
_BUCKETS = 1024  # buckets of users that are written in one statement
_HEAD = """
SELECT s.seq, s.chain, s.windows, s.sealed, s.charged, s.spent,
    coalesce(j.seq, 0), j.chain, w.windows, w.sealed, w.charged, b.spent
FROM {schema}.streams s
LEFT JOIN LATERAL (
    SELECT seq, chain FROM {schema}.journal WHERE stream = s.stream ORDER BY seq DESC LIMIT 1) j ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS windows, count(*) FILTER (WHERE state IN ('sealed', 'acknowledged')) AS sealed,
        coalesce(sum(rho), 0) AS charged
    FROM {schema}.windows WHERE stream = s.stream) w
CROSS JOIN LATERAL (SELECT coalesce(sum(rho), 0) AS spent FROM {schema}.blocks WHERE stream = s.stream) b
WHERE s.stream = %s
"""


class _Answered(NamedTuple):
    """A row of the function `charge`."""

    verdict: str
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
    """See `Ledger` and `Books` for the contracts.

    Parameters
    ----------
    url : str
        ``postgresql://[user[:password]@]host[:port]/dbname``, or ``postgresql:///dbname?host=/var/run/postgresql`` for
        a socket. Parameters after ``?``, joined by ``&``: ``schema=NAME`` (made if absent; ``fcstream`` by default),
        ``stream=NAME``, ``unsafe=yes`` (a server with ``fsync = off``, for tests), and all that libpq knows, such as
        ``sslmode=verify-full``.
    terms : Terms, optional
        What the ledger must be about; a stream that is absent is made. None opens what is there, to look at it.
    stream : str, optional
        To look at: by default the one that the URL names, or the only one.
    beside : PostgresLedger, optional
        Share this one's connection.

    Raises
    ------
    ConfigError, LedgerMismatch, LedgerDamaged, LedgerError
    """

    def __init__(
        self, url: str, terms: Terms | None = None, stream: str | None = None, beside: PostgresLedger | None = None
    ) -> None:
        self._address = Address.of(url)
        stream = (stream or self._address.stream) if terms is None else terms.stream
        if self._address.stream not in (None, stream):
            raise LedgerMismatch(
                f"the ledger's URL names stream {self._address.stream!r}, the configuration is about {stream!r}: "
                "leave `stream` out of `ledger.url`"
            )
        self._takes_charges = terms is not None
        line: Line | None = None if beside is None else beside._session.line
        self._session: Session = Session(self._address, self._address.place(stream), is_reader=terms is None, line=line)
        self._schema = sql.Identifier(self._address.schema).as_string()
        self._instance = SystemEntropy().words(2).tobytes()
        self._calls = 0
        self._seen = (0, b"")  # last row of the journal that is known to have been there, and its link
        try:
            self._prepare(terms, stream)
        except BaseException:
            self.close()
            raise
        self._session.patience = PATIENCE

    @classmethod
    def names(cls, url: str) -> list[str]:
        """The stream that the URL names, or all streams of the schema."""
        address = Address.of(url)
        if address.stream is not None:
            return [address.stream]
        session = Session(address, address.place(None), is_reader=True)
        try:
            return session.run(lambda db: _names(db, address))
        finally:
            session.close()

    @property
    def place(self) -> str:
        """Its URL without user and password, for messages."""
        return self._session.place

    def kin(self) -> list[str]:
        """See `Ledger`."""
        query = "SELECT stream FROM {schema}.streams WHERE specification = %s AND seq > 0 ORDER BY stream"
        rows = self._session.run(lambda db: db.execute(self._sql(query), (self.terms.specification,)).fetchall())
        return [str(name) for (name,) in rows]

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        if not requests:
            return []
        token = self._token()
        if any(request.users is not None for request in requests):
            answered = self._change(lambda db: self._charge_each(db, requests, token))
        else:
            answered = self._change(lambda db: [(row, None) for row in self._charge(db, requests, token, None)])
        self._seen = answered[-1][0].seq, answered[-1][0].chain
        return [
            self._verdict(request, row, admitted) for request, (row, admitted) in zip(requests, answered, strict=True)
        ]

    def seal(self, answers: Sequence[Answer]) -> None:
        if not answers:
            return
        token = self._token()
        if self.terms.unit == "user" and any(answer.refund != PrivacyLoss() for answer in answers):
            self._seen = self._change(lambda db: self._seal_each(db, answers, token))
        else:
            self._seen = self._change(lambda db: self._seal(db, answers, token, [""] * len(answers)))[1:]

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        if not windows:
            return
        query = self._sql(
            "SELECT * FROM {schema}.acknowledge(%s::text, %s::bigint, %b::bytea, %s::bigint[], %s::bigint[])"
        )
        keys = _array(key.open_ms for key in windows), _array(key.close_ms for key in windows)
        self._seen = self._change(lambda db: _one(db, query, (self.terms.stream, *self._seen, *keys)))

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        rows = self._look(
            "SELECT w.open_ms, w.close_ms, j.body FROM {schema}.windows w "
            "JOIN {schema}.journal j ON j.stream = w.stream AND j.seq = w.sealed_seq "
            "WHERE w.stream = %s AND w.state = 'sealed' ORDER BY w.sealed_seq"
        )
        return [(WindowKey(opens, closes), body) for opens, closes, body in rows]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        rows = self._look(
            "SELECT w.open_ms, w.close_ms, j.body FROM {schema}.windows w "
            "JOIN {schema}.journal j ON j.stream = w.stream AND j.seq = w.sealed_seq "
            "WHERE w.stream = %s AND w.state <> 'charged' ORDER BY w.open_ms DESC LIMIT 1"
        )
        return (WindowKey(rows[0][0], rows[0][1]), rows[0][2]) if rows else None

    def spent(self, block: str | None = None) -> PrivacyLoss:
        rows = self._look(
            "SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM {schema}.blocks WHERE stream = %s AND block "
            + ("<> %s" if block is None else "= %s"),
            block or TOTAL_BLOCK,
        )
        return PrivacyLoss(*rows[0])

    def close(self) -> None:
        self._session.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        """See `Books`."""
        rows = self._look("SELECT state, count(*) FROM {schema}.windows WHERE stream = %s GROUP BY state")
        states = {str(state): int(number) for state, number in rows}
        states["blocks"] = self._look("SELECT count(*) FROM {schema}.blocks WHERE stream = %s")[0][0]
        size = self._look("SELECT coalesce(sum(length(body)), 0) FROM {schema}.users WHERE stream = %s")[0][0]
        states["users"] = int(size) // users.ENTRY_BYTES
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        """See `Books`."""
        rows = self._look(
            "SELECT open_ms, close_ms, rho, delta FROM {schema}.windows "
            "WHERE stream = %s AND draws > 0 ORDER BY open_ms"
        )
        return [(WindowKey(opens, closes), PrivacyLoss(rho, delta)) for opens, closes, rho, delta in rows]

    def releases(self) -> list[bytes]:
        """See `Books`."""
        rows = self._look("SELECT body FROM {schema}.journal WHERE stream = %s AND kind = 'seal' ORDER BY seq")
        return [body for (body,) in rows]

    def rows(self) -> list[Row]:
        """See `Books`."""
        rows = self._look(
            "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body FROM {schema}.journal "
            "WHERE stream = %s ORDER BY seq"
        )
        return [Row(*row) for row in rows]

    def verify(self) -> int:
        """Check the whole stream against itself, as of one moment; returns how many journal rows it has.

        Raises
        ------
        LedgerDamaged
            Naming the first bad row.
        """
        return self._session.run(self._verify)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _prepare(self, terms: Terms | None, stream: str | None) -> None:
        if terms is not None:
            self._session.run(lambda db: self._create(db, terms))
        elif not self._session.run(lambda db: _one(db, "SELECT to_regclass(%s)", (f"{self._schema}.meta",)))[0]:
            raise LedgerError(f"{self.place} does not exist: there is no ledger to look at")
        self._check_version(self._session.run(self._version))
        if stream is None:
            stream = self._only_stream()
            self._session.place = self._address.place(stream)
        self.terms, self.salt = self._session.run(lambda db: self._read_terms(db, stream))
        if terms is not None:
            must_agree(self.place, self.terms, terms)
        self._seen = self._session.run(self._check_head)

    def _create(self, db: Connection, terms: Terms) -> None:
        """Make what is absent, and bring an older schema up to date; several processes may do so at once."""
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"fcstream {self._address.schema}",))
            if not _one(db, "SELECT to_regclass(%s)", (f"{self._schema}.meta",))[0]:
                self._create_tables(db)
            version = self._version(db)
            while version in _MIGRATIONS:
                version, statements = _MIGRATIONS[version]
                db.execute(self._sql(statements))
                db.execute(self._sql("UPDATE {schema}.meta SET value = %s WHERE key = 'schema'"), (version,))
            self._check_version(version)
            total = (None, None) if terms.total is None else _units(terms.total)
            db.execute(
                self._sql(
                    "INSERT INTO {schema}.streams SELECT %s::text, %s, %s, %s, %s, %s, %s, %s, 0, %s, 0, 0, 0, 0, %s "
                    "WHERE NOT EXISTS (SELECT FROM {schema}.journal WHERE stream = %s) ON CONFLICT DO NOTHING"
                ),
                (
                    *(terms.stream, terms.unit, *_units(terms.capacity), *total, terms.specification),
                    *(SystemEntropy().words(4).tobytes(), journal.start(terms), users.NO_USERS, terms.stream),
                ),
            )

    def _create_tables(self, db: Connection) -> None:
        name = self._address.schema
        count = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
        if not _one(db, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (name,))[0]:
            db.execute(self._sql("CREATE SCHEMA {schema}"))
        elif _one(db, count, (name,))[0]:
            raise LedgerMismatch(
                f"{self.place}: schema {name} holds tables of another program: choose another with ?schema=NAME"
            )
        db.execute(self._sql(files(__package__).joinpath("postgres.sql").read_text()))
        db.execute(self._sql("INSERT INTO {schema}.meta VALUES ('schema', %s)"), (str(SCHEMA_VERSION),))

    def _version(self, db: Connection) -> str:
        found = db.execute(self._sql("SELECT value FROM {schema}.meta WHERE key = 'schema'")).fetchone()
        if found is None:
            raise LedgerDamaged(f"{self.place} is damaged: meta row 'schema' is missing")
        return str(found[0])

    def _check_version(self, version: str) -> None:
        if version in _MIGRATIONS:
            raise LedgerMismatch(
                f"{self.place} has schema version {version}, this version reads {SCHEMA_VERSION}: an engine that opens "
                "it brings it up to date"
            )
        if version != str(SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self.place} has schema version {version}, this version reads up to {SCHEMA_VERSION}: "
                "use the version that made it"
            )

    def _only_stream(self) -> str:
        names = self._session.run(lambda db: _names(db, self._address))
        if len(names) != 1:
            held = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise LedgerMismatch(
                f"{self.place} holds {len(names)} streams: name one with &stream=NAME: {held}"
                if names
                else f"{self.place} is not a ledger: it holds no stream"
            )
        return names[0]

    def _read_terms(self, db: Connection, stream: str) -> tuple[Terms, bytes]:
        row = db.execute(
            self._sql(
                "SELECT unit, capacity_rho, capacity_delta, total_rho, total_delta, specification, salt "
                "FROM {schema}.streams WHERE stream = %s"
            ),
            (stream,),
        ).fetchone()
        if row is None and self._takes_charges:
            raise LedgerDamaged(f"{self.place} is damaged: there is a journal, its row of `streams` is missing")
        if row is None:
            raise LedgerMismatch(f"{self.place} does not exist: there is no such stream to look at")
        unit, rho, delta, total_rho, total_delta, specification, salt = row
        try:
            total = None if total_rho is None else PrivacyLoss(total_rho, total_delta)
            return Terms(stream, unit, PrivacyLoss(rho, delta), specification, total), salt
        except (ConfigError, TypeError):
            raise LedgerDamaged(f"{self.place} is damaged: its capacity is not one") from None

    def _check_head(self, db: Connection) -> tuple[int, bytes]:
        """The journal's last row and its link, which the summary tables must agree with."""
        row = _one(db, self._sql(_HEAD), (self.terms.stream,))
        last = row[6], row[7] or journal.start(self.terms)
        if row[:6] != (*last, *row[8:]):
            raise LedgerDamaged(f"{self.place} is damaged: its tables disagree with the journal's head at row {row[6]}")
        return last

    # -- changing ----------------------------------------------------------------------------------------------------

    def _charge(
        self, db: Connection, requests: Sequence[Request], token: bytes, digest: bytes | None
    ) -> list[_Answered]:
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
        return [_Answered(*row) for row in db.execute(query, values, binary=True)]

    def _charge_each(
        self, db: Connection, requests: Sequence[Request], token: bytes
    ) -> list[tuple[_Answered, NDArray[np.bool_] | None]]:
        """Requests with users, one after the other in one transaction."""
        answered: list[tuple[_Answered, NDArray[np.bool_] | None]] = []
        with db.transaction():
            for place, request in enumerate(requests):
                own = token + place.to_bytes(4, "big")
                if request.users is None:
                    answered.append((self._charge(db, [request], own, None)[0], None))
                    continue
                total = self._lock_users(db)
                held = self._buckets(db, users.buckets_of(request.users))
                opens, capacity = request.window.open_ms, self.terms.capacity
                changed, admitted = users.charge(held, request.users, request.loss, capacity, opens)
                row = self._charge(db, [request], own, users.redigest(total, held, changed))[0]
                if row.verdict == "charged":
                    self._store_users(db, changed)
                else:
                    admitted = users.charged(held, request.users, opens)
                answered.append((row, admitted))
        return answered

    def _verdict(self, request: Request, row: _Answered, admitted: NDArray[np.bool_] | None) -> Verdict:
        window, spent = request.window, PrivacyLoss(row.spent_rho, row.spent_delta)
        if row.verdict == "sealed":
            return Verdict(window, spent)
        if row.block is not None:
            capacity = self.terms.cap(row.block)
            left = capacity - PrivacyLoss(row.block_rho, row.block_delta)
            refusal = BudgetExhausted(request.loss, left, capacity, row.block, window)
            return Verdict(window, spent, refusal=refusal)
        loss = PrivacyLoss(row.rho, row.delta)
        if row.verdict == "interrupted":
            return Verdict(window, spent, interrupted=loss)
        return grant(window, loss, spent, admitted, again=row.draws > 1)

    def _seal(
        self, db: Connection, answers: Sequence[Answer], token: bytes, digests: list[str]
    ) -> tuple[int, int, bytes]:
        """How many were sealed now, not by an earlier try of this call; the last row and its link."""
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
        fresh, seq, chain = _one(db, query, values)
        return fresh, seq, chain

    def _seal_each(self, db: Connection, answers: Sequence[Answer], token: bytes) -> tuple[int, bytes]:
        """Answers that give back to users, one after the other in one transaction."""
        with db.transaction():
            for place, answer in enumerate(answers):
                own, digest, changed = token + place.to_bytes(4, "big"), "", dict[int, bytes]()
                if answer.refund != PrivacyLoss():
                    total, held = self._lock_users(db), self._buckets(db, None)
                    changed = users.refund(held, answer.refund, answer.window.open_ms)
                    digest = users.redigest(total, held, changed).hex()
                fresh, seq, chain = self._seal(db, [answer], own, [digest])
                if fresh:
                    self._store_users(db, changed)
        return seq, chain

    def _lock_users(self, db: Connection) -> bytes:
        """Digest of the users' budgets, the stream locked."""
        query = self._sql("SELECT users FROM {schema}.streams WHERE stream = %s FOR UPDATE")
        row = db.execute(query, (self.terms.stream,), binary=True).fetchone()
        return bytes(row[0]) if row else users.NO_USERS

    def _buckets(self, db: Connection, names: list[int] | None) -> dict[int, bytes]:
        """Buckets of users by name; None: all."""
        query = "SELECT bucket, body FROM {schema}.users WHERE stream = %s"
        values: tuple[Any, ...] = (self.terms.stream,)
        if names is not None and len(names) < users.BUCKETS // 2:
            query += " AND bucket = ANY (%s::integer[])"
            values += (_array(names),)
        wanted = None if names is None else set(names)
        held = db.execute(self._sql(query), values, binary=True)
        return {name: body for name, body in held if wanted is None or name in wanted}

    def _store_users(self, db: Connection, changed: dict[int, bytes]) -> None:
        query = self._sql(
            "INSERT INTO {schema}.users SELECT %s, unnest(%s::integer[]), unnest(%b::bytea[]) "
            "ON CONFLICT (stream, bucket) DO UPDATE SET body = excluded.body"
        )
        names = list(changed)
        for start in range(0, len(names), _BUCKETS):
            part = names[start : start + _BUCKETS]
            db.execute(query, (self.terms.stream, _array(part), [changed[name] for name in part]))

    def _token(self) -> bytes:
        self._calls += 1
        return self._instance + self._calls.to_bytes(8, "big")

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of one statement, whose first parameter is the stream."""

        def look(db: Connection) -> list[tuple[Any, ...]]:
            self._check_seen(db)
            return db.execute(self._sql(query), (self.terms.stream, *values), binary=True).fetchall()

        return self._session.run(look)

    def _check_seen(self, db: Connection) -> None:
        query = self._sql("SELECT FROM {schema}.journal WHERE stream = %s AND seq = %s AND chain = %b")
        if self._seen[0] and db.execute(query, (self.terms.stream, *self._seen)).fetchone() is None:
            raise older_copy(self.place, self._seen[0])

    def _verify(self, db: Connection) -> int:
        replay = journal.Replay(self.place, self.terms)
        stream = (self.terms.stream,)
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._check_seen(db)
            for *row, chain in self._scan(
                db,
                "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM {schema}.journal "
                "WHERE stream = %s ORDER BY seq",
            ):
                replay.follow(Row(*row), chain)
            root = None
            held = self._scan(db, "SELECT bucket, body FROM {schema}.users WHERE stream = %s ORDER BY bucket")
            if self.terms.unit == "user":
                root = users.audit(self.place, held, self.terms.capacity)
            replay.compare(
                (
                    (opens, closes, tuple(state))
                    for opens, closes, *state in self._scan(
                        db,
                        "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq FROM {schema}.windows "
                        "WHERE stream = %s ORDER BY open_ms, close_ms",
                    )
                ),
                self._scan(db, "SELECT block, rho, delta FROM {schema}.blocks WHERE stream = %s ORDER BY block"),
                root,
            )
            self._check_head(db)
            digest = _one(db, self._sql("SELECT users FROM {schema}.streams WHERE stream = %s"), stream)[0]
            if root not in (None, digest):
                raise LedgerDamaged(f"{self.place}: the users' budgets disagree with the digest in `streams`")
        return replay.count

    def _scan(self, db: Connection, query: str) -> Iterator[tuple[Any, ...]]:
        """A stream's rows of one table, a thousand at a time."""
        with db.cursor(name="fcstream_scan", binary=True) as cursor:
            cursor.itersize = 1000
            yield from cursor.execute(self._sql(query), (self.terms.stream,))

    def _sql(self, text: str) -> str:
        return text.replace("{schema}", self._schema)

    def _change(self, work: Callable[[Connection], T]) -> T:
        if not self._takes_charges:
            raise LedgerError(f"{self.place} was opened to look at it: it takes no charges")
        return self._session.run(work)


def _names(db: Connection, address: Address) -> list[str]:
    schema = sql.Identifier(address.schema).as_string()
    if not _one(db, "SELECT to_regclass(%s)", (f"{schema}.meta",))[0]:
        raise LedgerError(f"{address.place(None)} does not exist: there is no ledger to look at")
    found = db.execute(f"SELECT stream FROM {schema}.streams ORDER BY stream".encode()).fetchall()
    return [str(name) for (name,) in found]


def _one(db: Connection, query: str, values: Sequence[object] = ()) -> tuple[Any, ...]:
    """The row of a query that always has one."""
    row = db.execute(query, values, binary=True).fetchone()
    assert row is not None
    return row


def _array(values: Iterable[object]) -> str:
    """An array as PostgreSQL writes it: as text it has one type whatever its values, and is made in no time."""
    return "{" + ",".join(map(str, values)) + "}"


def _texts(values: Iterable[str]) -> str:
    """An array of texts as PostgreSQL writes it."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return _array(f'"{value}"' for value in escaped)


def _units(loss: PrivacyLoss) -> tuple[int, int]:
    return loss.rho_nano, loss.delta_femto
