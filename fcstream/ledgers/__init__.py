"""Ledgers: the durable record of what was charged and released, window by window, found by URL scheme.

Here belong the rules that every ledger keeps (charge before data are read, one sealed release for each window, refunds
of what was not used, a hash chain), its forms in memory, SQLite and PostgreSQL, and the guard against an old copy.
Arithmetic of losses and capacities is in `fcstream.accounting`; reports for people are in `fcstream.reporting`.

Files: `base` (what every ledger promises: charge, seal, refund), `terms_check` (whether a ledger is about this
configuration), `groups` (streams that share filters, and sums over streams), `hash_chain`,
`retired_streams`, `rollback_guard`, `fence` (one process at a time), `user_key` (under which users' names are hashed,
outside of the ledger), `history` (what was spent, read back), `memory`, and a folder each for SQLite and PostgreSQL.

A ledger of another package is found by the same scheme through the entry points ``fcstream.ledgers``: a class that is
made with two arguments, what follows the scheme's colon and the `Terms`. It satisfies `Ledger`;
`fcstream.testing.LedgerContract` tests that. The ``budget`` commands read the ledgers of this package only.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import entry_points
from typing import Any

from ..errors import ConfigError, Shown
from ..runtime.interpolation import is_url
from .base import (
    Charge,
    ChargeResult,
    EpochState,
    JointLedger,
    Ledger,
    LedgerReader,
    RecentLedger,
    Request,
    SealedRelease,
    StateLedger,
    Terms,
    WindowKey,
    is_shared,
    joint_ledger,
)

_OWN = ("memory", "sqlite", "postgresql", "postgres")
__all__ = [
    "Charge",
    "ChargeResult",
    "EpochState",
    "JointLedger",
    "Ledger",
    "LedgerReader",
    "RecentLedger",
    "Request",
    "SealedRelease",
    "StateLedger",
    "Terms",
    "WindowKey",
    "check_scheme",
    "each_reader",
    "is_foreign",
    "is_shared",
    "joint_ledger",
    "open_ledger",
    "open_ledgers",
    "open_reader",
]


def open_ledger(url: str, terms: Terms) -> Ledger:
    """Open or create the ledger of one stream.

    Parameters
    ----------
    url : str
        ``memory:`` (forgotten at exit: for tests and single arrays), ``sqlite:PATH``,
        ``postgresql://host/database`` (see `postgres.PostgresLedger`), or that of another package.
    terms : Terms
        What the ledger must be about.

    Raises
    ------
    ConfigError, LedgerError
        Unknown scheme; a ledger that cannot be used (see `fcstream.errors`).
    """
    scheme, location = check_scheme(url)
    if scheme == "memory":
        from .memory import MemoryLedger

        return MemoryLedger(terms)
    if scheme == "sqlite":
        from .sqlite.ledger import SQLiteLedger

        return SQLiteLedger(location, terms)
    if is_foreign(url):
        if terms.group is not None:
            raise ConfigError(
                "needs a ledger in SQLite or PostgreSQL", "budget.group", got=Shown("one of another package")
            )
        return _foreign(scheme).load()(location, terms)  # type: ignore[no-any-return]
    from .postgres.ledger import PostgresLedger

    return PostgresLedger(url, terms)


def is_foreign(url: str) -> bool:
    """Return whether a URL names a ledger of another package."""
    scheme = url.partition(":")[0]
    return scheme not in _OWN and _foreign(scheme) is not None


def _foreign(scheme: str) -> Any:
    """Return the entry point of another package's ledger, None if there is none."""
    return next(iter(entry_points(group="fcstream.ledgers", name=scheme)), None)


def check_scheme(url: str) -> tuple[str, str]:
    """Return the kind of a ledger and its location; nothing is opened.

    Raises
    ------
    ConfigError
        Unknown scheme, or a file whose path is a URL.
    """
    scheme, _, location = url.partition(":")
    is_known = scheme in _OWN if scheme != "sqlite" else location and not is_url(location)
    if is_known or is_foreign(url):
        return scheme, location
    # The rest of the URL could hold a password.
    raise ConfigError(
        "must be 'sqlite:PATH', 'postgresql://host/database' or 'memory:'",
        "ledger.url",
        got=Shown(f"scheme {scheme if scheme.isalnum() else ''!r}"),
    )


def open_ledgers(url: str, streams: Sequence[Terms], beside: Ledger | None = None) -> list[Ledger]:
    """Open or create several streams of one ledger, with one connection for all, which may be that of an open ledger
    `beside` them; see `open_ledger`.
    """
    scheme, location = check_scheme(url)
    if scheme == "sqlite":
        from .sqlite.ledger import SQLiteLedger

        return list(SQLiteLedger.open_all(location, streams))
    ledgers: list[Ledger] = []
    with ExitStack() as opened:
        for terms in streams:
            if is_shared(url):
                from .postgres.ledger import PostgresLedger

                first = beside or next(iter(ledgers), None)
                assert first is None or isinstance(first, PostgresLedger)
                ledgers.append(PostgresLedger(url, terms, beside=first, joins=() if ledgers else streams))
            else:
                ledgers.append(open_ledger(url, terms))
            opened.callback(ledgers[-1].close)
        opened.pop_all()
    return ledgers


def open_reader(url: str, stream: str | None = None) -> LedgerReader:
    """Open a stream's ledger for reading, whoever else holds it; nothing is changed.

    Parameters
    ----------
    url : str
        ``sqlite:PATH``, a bare path, or ``postgresql:...``.
    stream : str, optional
        By default the only one.

    Raises
    ------
    ConfigError, LedgerError
    """
    if _is_on_server(url):
        from .postgres.ledger import PostgresLedger

        return PostgresLedger(url, stream=stream)
    from .sqlite.snapshot import Snapshot

    return Snapshot(url.removeprefix("sqlite:"), stream)


def each_reader(url: str) -> Generator[LedgerReader]:
    """All streams of a ledger, one after the other, each closed when the next is asked for; see `open_reader`."""
    if _is_on_server(url):
        from .postgres.ledger import PostgresLedger

        for name in PostgresLedger.names(url):
            with closing(PostgresLedger(url, stream=name)) as ledger:
                yield ledger
        return
    from .sqlite.snapshot import Snapshot

    yield from Snapshot.each(url.removeprefix("sqlite:"))


def _is_on_server(url: str) -> bool:
    """Return whether a readable ledger is on a database server."""
    if url.partition(":")[0] == "memory":
        raise ConfigError("must name a durable ledger: one in memory is seen by its own process only", "ledger.url")
    if is_foreign(url):
        raise ConfigError("must be SQLite or PostgreSQL: other ledgers are read by their own package", "ledger.url")
    return is_shared(url)
