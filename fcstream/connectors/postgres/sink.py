"""Releases as rows of a PostgreSQL table: exactly once, and never two releases for one window.

Options that are not among `PostgresSink.url_options` are libpq's, such as ``sslmode=verify-full``, ``sslrootcert`` or
``host=/var/run/postgresql``. A table of your own must have the columns below, the key, and a body of type ``json`` or
``text``: ``jsonb`` would write the numbers anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from ...errors import ConfigError, SinkError, needs_package
from ...releases.base import Release
from ...releases.long_form import HOLDS
from ...runtime import libpq
from ...runtime.undo import on_error
from ..broker_connection import BrokerConnection
from ..retry import BrokerLost, close_quietly, deadline
from ..sinks import Sink
from ..urls import PATIENCE, Address, UrlOption
from .long_table import LongTable

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_AT_ONCE = 1000  # rows of one statement
_LATE_S = 5.0  # a server that is silent so long after its own limit has failed
_KEY = "stream, window_open_ms, window_close_ms, name"
_CREATE = f"""
CREATE TABLE {{table}} (
    stream text NOT NULL,
    window_open_ms bigint NOT NULL,
    window_close_ms bigint NOT NULL,
    name text NOT NULL,
    status text NOT NULL,
    body json NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY ({_KEY})
)
"""
_GIVEN = """
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
WITH ORDINALITY AS given (stream, window_open_ms, window_close_ms, name, status, body, place)
"""
_INSERT = f"""
INSERT INTO {{table}} ({_KEY}, status, body, written_at)
SELECT {_KEY}, status, body::{{type}}, clock_timestamp() FROM ({_GIVEN}) AS given ORDER BY place
ON CONFLICT ({_KEY}) DO NOTHING
RETURNING {_KEY}
"""
_HELD = f"""
SELECT given.place, held.body::text = given.body, given.window_open_ms
FROM ({_GIVEN}) AS given JOIN {{table}} AS held USING ({_KEY}) ORDER BY place
"""
_WAITING = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "not yet accepting")
_TABLE = UrlOption("table", "Table of the releases, made if it is absent.", "releases")
_SCHEMA = UrlOption("schema", "Its schema, made if it is absent.", otherwise="the login's first")
_NUMBERS = UrlOption(
    "numbers",
    "A second table with a row for each published number ("
    + ", ".join(f"`{name}`" for name in HOLDS)
    + "), made if it "
    "is absent, with the numbers of the releases that are there.",
    "",
)
_LIBPQ = UrlOption("...", "Others are libpq's, such as `sslmode`, `sslrootcert` or `host`.", otherwise="libpq's")


class PostgresSink(BrokerConnection, Sink):
    """Writes releases as rows, one transaction for each `write`. A row is never changed: other bytes for its window are
    refused.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`.
    patience_s : float
        Seconds that the server may be unreachable.

    Raises
    ------
    ConfigError, SinkError
    """

    url: ClassVar = "postgresql://[user[:password]@]host[:port][,host...]/database"
    url_options: ClassVar = (_TABLE, _SCHEMA, _NUMBERS, PATIENCE, _LIBPQ)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        with needs_package("psycopg", "postgresql", address.key):
            import psycopg
        self._client = psycopg
        super().__init__(address, patience_s, SinkError)
        self._schema = address.take(_SCHEMA, "")
        self._name = address.take(_TABLE)
        numbers = address.take(_NUMBERS)
        if numbers == self._name:
            raise ConfigError("must have another table as `numbers` than as `table`", self._key)
        for name in filter(None, (self._schema, self._name, numbers)):
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", name):
                raise ConfigError("must name a table of letters, digits and underscores", self._key, got=name)
        self._table, self._numbers_table = self._in_schema(self._name), self._in_schema(numbers)
        self._numbers = LongTable(self._numbers_table) if numbers else None
        self._type = "json"
        self._parameters = self._parse(address)
        self._password = self._parameters.get("password")
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None
        with on_error(self.close):
            self._run(self._prepare)

    def write(self, releases: Sequence[Release]) -> None:
        if releases:
            self._run(lambda db: self._insert(db, releases))

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Return those without a row, and those whose row has other bytes, which `write` then refuses."""
        if not releases:
            return []
        held = self._run(lambda db: self._held(db, releases))
        same = {index for index, is_same, _ in held if is_same}
        return [release for index, release in enumerate(releases) if index not in same]

    def last(self, stream: str | None = None) -> Release | None:
        """Return the release of a stream's last window; without a stream, the release that was written last."""
        query = f"SELECT body::text FROM {self._table}"
        if stream is None:
            query += " ORDER BY written_at DESC, window_open_ms DESC LIMIT 1"
        else:
            query += " WHERE stream = %s ORDER BY window_open_ms DESC LIMIT 1"
        try:
            row = self._run(lambda db: db.execute(query.encode(), None if stream is None else (stream,)).fetchone())
            return None if row is None else Release.from_bytes((row[0] or "").encode())
        except (msgspec.DecodeError, UnicodeDecodeError):  # the second for a database without an encoding
            raise SinkError(
                f"{self.location} holds something else than releases", remedy=f"choose another table in `{self._key}`"
            ) from None

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            close_quietly(db.close)

    def reconnect(self) -> None:
        self.close()

    def _in_schema(self, name: str) -> str:
        return ".".join(f'"{part}"' for part in (self._schema, name) if part)

    def _insert(self, db: psycopg.Connection[tuple[Any, ...]], releases: Sequence[Release]) -> None:
        query = _INSERT.format(table=self._table, type=self._type).encode()
        with db.transaction():
            for first in range(0, len(releases), _AT_ONCE):
                some = releases[first : first + _AT_ONCE]
                fresh = set(db.execute(query, _columns(some)).fetchall())
                if self._numbers is not None:
                    self._numbers.insert(db, [release for release in some if _identity(release) in fresh])
            held = self._held(db, releases)
            for _, is_same, window in held:
                if not is_same:
                    raise SinkError(
                        f"{self.location} holds another release for window {window}: a window has "
                        "one; the ledger was lost or exchanged",
                        remedy="restore it, or start a stream under a new name",
                    )
            if len(held) != len(releases):
                raise SinkError(
                    f"{self.location} did not keep {len(releases) - len(held)} of {len(releases)} "
                    "releases that were inserted",
                    remedy="look for a trigger or a rule of the table that leaves rows out",
                )

    def _held(
        self, db: psycopg.Connection[tuple[Any, ...]], releases: Sequence[Release]
    ) -> list[tuple[int, bool, int]]:
        """Find the releases that have a row: (index, whether its bytes are the same, its window)."""
        query = _HELD.format(table=self._table).encode()
        found: list[tuple[int, bool, int]] = []
        for first in range(0, len(releases), _AT_ONCE):
            rows = db.execute(query, _columns(releases[first : first + _AT_ONCE])).fetchall()
            found += [(first + index - 1, is_same, window) for index, is_same, window in rows]
        return found

    def _prepare(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Make the table if it is absent; several processes may do so at once."""
        if not self._exists(db):
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"fcstream {self._table}",))
                if self._schema:
                    db.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"'.encode())
                if not self._exists(db):
                    db.execute(_CREATE.format(table=self._table).encode())
        wanted = f"SELECT {_KEY}, status, body, written_at FROM {self._table} LIMIT 0"
        types = db.execute(wanted.encode()).description or []
        names = {db.adapters.types["json"].oid: "json", db.adapters.types["text"].oid: "text"}
        if types[5].type_code not in names:
            raise SinkError(
                f"{self.location} must have a `body` of type json or text, which keep the bytes", remedy="alter it"
            )
        self._type = names[types[5].type_code]
        if self._numbers is not None and not self._exists(db, self._numbers_table):
            self._make_numbers(db, self._numbers)

    def _make_numbers(self, db: psycopg.Connection[tuple[Any, ...]], numbers: LongTable) -> None:
        """Make the table of the long form, which then tells of every release that is there."""
        with db.transaction():
            # Nobody may insert a release between the reading of those that are there and the end of this.
            db.execute(f"LOCK TABLE {self._table} IN SHARE ROW EXCLUSIVE MODE".encode())
            if not self._exists(db, self._numbers_table):
                numbers.make(db, self._table)

    def _exists(self, db: psycopg.Connection[tuple[Any, ...]], table: str | None = None) -> bool:
        row = db.execute("SELECT to_regclass(%s) IS NOT NULL", (table or self._table,)).fetchone()
        return row is not None and bool(row[0])

    # -- the connection ----------------------------------------------------------------------------------------------

    def _parse(self, address: Address) -> dict[str, Any]:
        """Split an address into libpq's parameters."""
        known = libpq.known(self._client)
        options = {name: address.take(name) for name in list(address.options) if name in known}
        address.finish()
        given = {
            "host": ",".join(name for name, _ in address.hosts),
            "port": ",".join(str(port or 5432) for _, port in address.hosts),
            "dbname": address.path,
            "user": address.user,
            "password": address.password,
        }
        found = {name: value for name, value in given.items() if value} | {
            "target_session_attrs": "read-write",
            **options,
        }
        return dict(libpq.parameters(found, self._client.pq.version()))

    def _run(self, work: Callable[[psycopg.Connection[tuple[Any, ...]]], T]) -> T:
        """Do what is safe to repeat; repeats it on a new connection if one is lost, even in the middle of a commit."""

        def act() -> T:
            try:
                db = self._connected()
                with deadline(db.fileno(), self.patience_s + _LATE_S):
                    return work(db)
            except self._client.Error as error:
                raise self._classify(error) from None
            except OSError as error:  # no response, or no descriptor left
                raise BrokerLost(error.strerror or str(error)) from None

        return self.repeat(act)

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._db is None or self._db.closed:
            # A pooler may give the next statement to a server that did not prepare it.
            db = self._client.connect(**self._parameters, autocommit=True, prepare_threshold=None)
            with on_error(close_quietly, db.close), deadline(db.fileno(), self.patience_s + _LATE_S):
                self._set_up(db)
            self._db = db
        return self._db

    def _set_up(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        limit = f"{int(1000 * self.patience_s)}ms"
        db.execute("SELECT set_config('statement_timeout', %s, false)", (limit,))
        # A confirmed write must be on disk, whatever the server's default.
        db.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
        )

    def _classify(self, error: psycopg.Error) -> Exception:
        """Return a client's error as one to be waited out, or raise one that does not go away by waiting."""
        text = self._error_text(error)
        is_lost = isinstance(error, (self._client.OperationalError, self._client.InterfaceError))
        remedy = libpq.trust_remedy(str(error)) if is_lost and error.sqlstate is None else None
        if remedy is not None:
            return SinkError(f"{self.location} cannot be used: {text}", remedy=remedy)
        if is_lost and error.sqlstate is None and "FATAL" in text and not any(word in text for word in _WAITING):
            return SinkError(f"{self.location} refuses the login: {text}", remedy=f"correct `{self._key}`")
        # 25006 is a server that became read-only: another host may be the primary now.
        if is_lost or (error.sqlstate or "").startswith(("08", "25006", "40", "53", "55P03", "57", "58")):
            return BrokerLost(text)
        if error.sqlstate == "42P10":
            return SinkError(f"{self.location} must have the primary key ({_KEY})", remedy="alter the table")
        return SinkError(
            f"{self.location} cannot be used: {text}; what was sealed is in the ledger and is written again"
        )

    def _error_text(self, error: psycopg.Error) -> str:
        """Return the first line of a server's message, because further lines may quote rows."""
        text = " ".join((error.diag.message_primary or str(error).partition("\n")[0]).split())[:300]
        return text.replace(self._password, "***") if self._password else text

    def unreachable(self, last: BaseException) -> SinkError:
        return SinkError(
            f"{self.location} did not answer for {self.patience_s:g} s: {last}",
            remedy="check that the server runs and can be reached: what was sealed is in the "
            "ledger and is written again",
        )


def _identity(release: Release) -> tuple[str, int, int, str]:
    return release.stream, release.window_open_ms, release.window_close_ms, release.name or ""


def _columns(releases: Sequence[Release]) -> tuple[list[Any], ...]:
    """Return the columns of rows, as lists for `unnest`."""
    return (
        [release.stream for release in releases],
        [release.window_open_ms for release in releases],
        [release.window_close_ms for release in releases],
        [release.name or "" for release in releases],
        [release.status for release in releases],
        [release.to_bytes().decode() for release in releases],
    )
