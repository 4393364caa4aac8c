"""Connections to PostgreSQL servers: addresses, reconnecting after a loss, and translating PostgreSQL's errors."""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError, FcstreamError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch, extra_missing
from ...runtime import libpq
from ...runtime.interpolation import interpolate
from ...runtime.undo import on_error
from ...runtime.waiting import calling, is_over, note_failure, pause
from ..base import WRONG_CONTENT

try:
    import psycopg
    from psycopg import errors as faults
    from psycopg import sql
except ImportError:
    raise ConfigError(
        "needs the PostgreSQL client, which is not installed", "ledger.url", remedy=extra_missing("postgresql")
    ) from None

__all__ = ["PATIENCE", "Connection", "PostgresConnection", "ServerAddress", "SharedConnection", "older_copy", "sql"]

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
_OLDEST_SERVER = 120000
_ANSWER_S = 120.0  # longer than a lock may be waited for
PATIENCE = 8.0
"""Seconds for which a lost connection is retried."""
_CONFLICTS = 10  # times that a transaction is repeated after a deadlock or a failed serialization
_OURS = {"schema", "stream", "unsafe", "lease"}  # parameters of the URL that libpq does not get
_SETTINGS = """
SELECT current_setting('fsync'), current_setting('full_page_writes'),
    CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
        THEN set_config('synchronous_commit', 'on', false) END,
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', %s, false),
    set_config('lock_timeout', '60s', false), set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config('fcstream.lease', %s, false),
    -- A client that vanishes is noticed by the server, too, within half a minute.
    set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '30000', false)
"""
_LOST = {"57P01", "57P02", "57P03", "57P05", "25P03"}  # states of a session that its server has ended
_READ_ONLY = "25006"  # it writes no more: another host may
_OPEN: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
_DISOWNED: list[object] = []


def _disown_all() -> None:
    """Keep the parent's connections alive in a forked child, which must neither use nor close them.

    Closing such a connection in the child would end the parent's session.
    """
    _DISOWNED.extend(session.db for session in _OPEN)


os.register_at_fork(after_in_child=_disown_all)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address of a ledger on a PostgreSQL server, read from its URL.

    Attributes
    ----------
    parameters : dict of str to str
        Connection parameters that are passed to libpq; a password may be among them.
    schema : str
    stream : str or None
        The stream that the URL names, if it names one.
    is_unsafe : bool
        Whether a server is accepted that loses commits when its machine crashes; only for tests.
    lease : str
        Lease without which the ledger accepts no changes, see `leader.PostgresLease.claim`. An empty text means that no
        lease is needed.
    """

    parameters: dict[str, str] = field(repr=False)
    schema: str = "fcstream"
    stream: str | None = None
    is_unsafe: bool = False
    lease: str = ""

    @classmethod
    def of(cls, url: str) -> ServerAddress:
        """Read ``postgresql://[user[:password]@]host[:port]/dbname[?options]``.

        ``${NAME}`` and ``${file:PATH}`` in the URL are replaced by environment variables and by the content of files.

        Raises
        ------
        ConfigError
            If the URL cannot be used. The message never shows a part of the URL that could belong to a password.
        """
        scheme, _, rest = interpolate(url, "ledger.url").partition("://")
        rest, _, query = rest.partition("?")
        login, _, rest = rest.rpartition("@")
        if scheme not in ("postgresql", "postgres") or "@" in query:
            raise ConfigError(
                "must be 'postgresql://user@host:port/database?schema=NAME', with special characters percent-encoded: "
                "'@' is '%40', '?' is '%3F'",
                "ledger.url",
            )
        user, _, password = login.partition(":")
        hosts, _, database = rest.partition("/")
        host, port = _split_hosts(hosts)
        found = {"user": user, "password": password, "host": host, "port": port, "dbname": database}
        found |= {name: value for name, _, value in (entry.partition("=") for entry in query.split("&") if entry)}
        known = libpq.known(psycopg) | _OURS
        if found.keys() - known:
            # The message does not show the unknown option: after a password that holds '&', it may be part of the
            # password.
            raise ConfigError(
                "has an unknown option",
                "ledger.url",
                remedy="look for a misspelled name, or a '&' that is not written %26",
            )
        found = {name: urllib.parse.unquote(value) for name, value in found.items() if value}
        ours = {name: found.pop(name) for name in _OURS & found.keys()}
        if not re.fullmatch(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}", ours.get("schema", "fcstream")):
            raise ConfigError("`schema` must be letters, digits and underscores, at most 63", "ledger.url")
        if ours.get("unsafe", "no") not in ("yes", "no"):
            raise ConfigError("`unsafe` must be 'yes' or 'no'", "ledger.url")
        return cls(
            libpq.parameters(found, psycopg.pq.version()),
            ours.get("schema", "fcstream"),
            ours.get("stream"),
            ours.get("unsafe") == "yes",
            ours.get("lease", ""),
        )

    def location(self, stream: str | None) -> str:
        """Return the stream's URL without user and password, for messages."""
        host, port, database = (self.parameters.get(name, "") for name in ("host", "port", "dbname"))
        named = "" if stream is None else f"&stream={urllib.parse.quote(stream)}"
        socket = f"&host={host}" if "/" in host else ""
        where = "" if socket else f"{host}:{port}" if port and "," not in host else host
        return f"postgresql://{where}/{database}?schema={self.schema}{named}{socket}"


def _split_hosts(text: str) -> tuple[str, str]:
    """Split ``host:port,host:port`` into the two lists that libpq takes, hosts and ports."""
    hosts, ports = [], []
    for part in text.split(","):
        found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::(\d*))?", part)
        if found is None:
            raise ConfigError("must have a number as its port, and special characters percent-encoded", "ledger.url")
        hosts.append(found[1].strip("[]"))
        ports.append(found[2] or "")
    return ",".join(hosts).strip(","), ",".join(ports) if any(ports) else ""


class _BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Connection that waits for the server's response for a bounded time, so that a silent server blocks nothing."""

    answer_s = _ANSWER_S

    def wait(self, gen: Any, *options: Any, **more: Any) -> Any:
        try:
            return super().wait(_until(gen, time.monotonic() + self.answer_s), *options, **more)
        except TimeoutError:
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from None


def _until(gen: Any, deadline: float) -> Any:
    """Run one of psycopg's generators until it ends, and raise `TimeoutError` after the deadline.

    psycopg resumes the generator with the state of its socket, several times a second even if nothing is ready.
    """
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                gen.close()
                raise TimeoutError
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


class SharedConnection:
    """Connection that the ledger sessions of one process share; one session uses it at a time."""

    def __init__(self) -> None:
        self.db: Connection | None = None
        self.lock = threading.RLock()
        self.sessions = 0

    def drop(self) -> None:
        db, self.db = self.db, None
        if db is not None:
            with suppress(psycopg.Error):
                db.close()


class PostgresConnection:
    """Connection to a PostgreSQL server that opens on first use and reconnects after it was lost.

    Parameters
    ----------
    address : ServerAddress
    location : str
        Location of the ledger that messages show.
    is_reader : bool
        Whether the session only reads; a standby server is then enough.
    line : SharedConnection, optional
        Connection of another session with the same address, to share it.

    Attributes
    ----------
    patience : float
        Seconds for which a server that cannot be reached is retried.
    answer_s : float
        Seconds to wait for the server's response. A session that only reads waits without a limit.
    """

    def __init__(
        self, address: ServerAddress, location: str, *, is_reader: bool, line: SharedConnection | None = None
    ) -> None:
        self.location = location
        self.patience = 0.0
        self.answer_s = _ANSWER_S
        self.line = line or SharedConnection()
        self.line.sessions += 1
        self._address = address
        self._is_reader = is_reader
        self._pid = os.getpid()
        self._is_closed = False
        _OPEN.add(self)

    def close(self) -> None:
        """Close the session; a second call does nothing, nor does a call in a child of the process that opened it."""
        if self._pid == os.getpid() and not self._is_closed:
            self._is_closed = True
            _OPEN.discard(self)
            self.line.sessions -= 1
            if self.line.sessions == 0:
                self.line.drop()

    @property
    def db(self) -> Connection | None:
        return self.line.db

    def __del__(self) -> None:
        self.close()

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on the connection, and repeat it after a conflict or on a new connection after a loss.

        Repeating `work` must therefore have no further effect.
        """
        self.check_open()
        with calling("ledger"), self.line.lock:
            return self._run(work)

    def check_open(self) -> None:
        """Refuse a session that was closed, or that another process opened."""
        if os.getpid() != self._pid:
            raise LedgerError(
                f"{self.location} was opened before a fork", remedy="open the engine in the process that uses it"
            )
        if self._is_closed:
            raise LedgerError(f"{self.location} is closed", remedy="open it again to go on")

    def _run(self, work: Callable[[Connection], T]) -> T:
        conflicts, deadline, seconds = 0, 0.0, 0.005
        while True:
            try:
                return work(self._connected())
            except (faults.SerializationFailure, faults.DeadlockDetected) as error:
                conflicts += 1
                if conflicts > _CONFLICTS:
                    raise self._translate_error(error) from None
            except psycopg.Error as error:
                if not self._is_lost(error):
                    raise self._translate_error(error) from None
                self.line.drop()
                note_failure(_first_line(error))
                now = time.monotonic()
                deadline = deadline or now + self.patience
                if now >= deadline or is_over():
                    raise LedgerError(
                        f"{self.location} cannot be reached: {_first_line(error)}",
                        remedy="check `ledger.url`, and that the server runs and takes this login: "
                        "whatever was charged stays charged",
                    ) from None
            except FcstreamError:
                raise
            except BaseException:  # an interrupt, for instance: what became of the statement is not known
                self.line.drop()
                raise
            pause(seconds)
            seconds = min(2 * seconds, 0.5)

    def _connected(self) -> Connection:
        if self.line.db is None:
            target = {"target_session_attrs": "any" if self._is_reader else "read-write"}
            parameters: dict[str, Any] = target | self._address.parameters
            try:
                kind = psycopg.Connection if self._is_reader else _BoundedConnection  # what reads may look at very much
                db = kind.connect(**parameters, autocommit=True, prepare_threshold=1)
            except psycopg.ProgrammingError as error:
                raise ConfigError(f"cannot be used: {_first_line(error)}", "ledger.url") from None
            except psycopg.OperationalError as error:
                remedy = libpq.trust_remedy(str(error))
                if remedy is None:
                    raise
                raise ConfigError(f"cannot be used: {_first_line(error)}", "ledger.url", remedy=remedy) from None
            if isinstance(db, _BoundedConnection):
                db.answer_s = self.answer_s
            with on_error(db.close):
                self._check_server(db)
            self.line.db = db
        return self.line.db

    def _check_server(self, db: Connection) -> None:
        """Refuse a server that can lose commits, and make every commit of this session wait for the disk."""
        version = db.info.server_version
        if version < _OLDEST_SERVER:
            raise LedgerError(
                f"{self.location} must be PostgreSQL 12 or newer", got=version // 10000, remedy="update the server"
            )
        values = ("on" if self._is_reader else "off", self._address.lease)
        found = db.execute(_SETTINGS, values).fetchone() or ()
        for name, setting in zip(("fsync", "full_page_writes"), found, strict=False):
            if setting != "on" and not self._address.is_unsafe:
                raise LedgerError(
                    f"{self.location} must keep what it commits, but its server has {name} = off",
                    remedy="switch it on, or say &unsafe=yes for a test",
                )

    def _is_lost(self, error: psycopg.Error) -> bool:
        state = error.sqlstate or ""
        if state == _READ_ONLY and not self._is_reader:
            return True
        if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return False
        return self.db is None or self.db.closed or state in _LOST or state.startswith("08")

    def _translate_error(self, error: psycopg.Error) -> LedgerError:
        """Return the ledger's error for an error of PostgreSQL."""
        state, detail = error.sqlstate or "", (error.diag.message_detail or "").split()
        stream = error.diag.message_hint if state.startswith("ZF") else None  # of those that one statement is about
        location = self.location if stream is None else self._address.location(stream)
        if state == "ZF001":
            return older_copy(location, int(detail[0]))
        if state == "ZF003":
            return LedgerError(f"window {detail[0]} is sealed in {location}: its release is final")
        if state == "ZF004":
            charged = PrivacyLoss(int(detail[1]), int(detail[2]))
            return LedgerError(f"window {detail[0]} was charged {charged}: that much cannot be refunded")
        if state == "ZF005":
            return LedgerMismatch(
                f"{location} was retired by `fcstream budget retire`", remedy="start with its new specification"
            )
        if state == "ZF007":
            return caps_lowered(location)
        if state == "ZF006":
            return LedgerError("another process serves this stream since this one's lease ran out", where=location)
        text = _first_line(error)
        if state == "55P03":
            return LedgerInUse(f"{location} is in use: another process has kept the stream locked for a minute")
        if state in ("42P05", "26000"):
            return LedgerError(
                f"{location} must be reached by sessions that stay whole",
                remedy="let the pooler pool sessions, not transactions",
            )
        if state.startswith("53"):
            return LedgerError(f"{location} cannot grow: {text}; nothing was released under an unwritten charge")
        if state == "42501":
            return LedgerError(
                f"{location} may not be used by this login: {text}", remedy="grant it the schema and its tables"
            )
        if state.startswith(("ZF", "23", "42", "3F", "XX001", "XX002")):
            return LedgerDamaged(f"{location} is damaged: {text}")
        return LedgerError(f"{location} cannot be used: {text}")


@contextmanager
def translated_errors(location: str) -> Iterator[None]:
    """Raise `LedgerDamaged` for content that cannot be read."""
    try:
        yield
    except (LedgerError, psycopg.Error):
        raise
    except WRONG_CONTENT:
        raise LedgerDamaged(
            f"{location} is damaged: it holds a value that this version does not write", remedy="restore a copy"
        ) from None


def caps_lowered(location: str) -> LedgerMismatch:
    """Return the error for caps that another process has made stricter than the caller's."""
    return LedgerMismatch(
        "another process has lowered the caps for ever", remedy="start with its `budget`", where=location
    )


def older_copy(location: str, seq: int) -> LedgerDamaged:
    """Return the error for a journal row that was seen earlier and is now missing."""
    return LedgerDamaged(
        f"{location} has lost journal row {seq}, which this process has seen: an older copy was put "
        "in its place and charges are forgotten",
        remedy="restore the newest one, or end this stream and start one under a new name and budget",
    )


def _first_line(error: psycopg.Error) -> str:
    """Return an error's message on one line, without the SQL statement that caused it."""
    return " ".join((error.diag.message_primary or str(error)).split())[:300]
