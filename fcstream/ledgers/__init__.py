"""The durable journal of what was charged, sealed and acknowledged; found by URL scheme."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from ..errors import ConfigError
from ..placeholders import is_url
from .base import Answer, Books, Charge, Ledger, Request, Terms, Verdict, WindowKey

__all__ = [
    "Answer",
    "Books",
    "Charge",
    "Ledger",
    "Request",
    "Terms",
    "Verdict",
    "WindowKey",
    "check_scheme",
    "each_book",
    "open_books",
    "open_ledger",
    "open_ledgers",
]


def open_ledger(url: str, terms: Terms) -> Ledger:
    """Open or create the ledger of one stream.

    Parameters
    ----------
    url : str
        ``memory:`` (forgotten at exit: for tests and single arrays), ``sqlite:PATH``, or
        ``postgresql://host/database`` (see `postgres.PostgresLedger`).
    terms : Terms
        What the ledger must be about.

    Raises
    ------
    ConfigError, LedgerError
        Unknown scheme; a ledger that cannot be used (see `fcstream.errors`).
    """
    scheme, place = check_scheme(url)
    if scheme == "memory":
        from .memory import MemoryLedger

        return MemoryLedger(terms)
    if scheme == "sqlite":
        from .sqlite import SQLiteLedger

        return SQLiteLedger(place, terms)
    from .postgres import PostgresLedger

    return PostgresLedger(url, terms)


def check_scheme(url: str) -> tuple[str, str]:
    """The kind of a ledger, and its place; nothing is opened.

    Raises
    ------
    ConfigError
        Unknown scheme, or a file whose path is a URL.
    """
    scheme, _, place = url.partition(":")
    is_known = scheme in ("memory", "postgresql", "postgres") or (scheme == "sqlite" and place and not is_url(place))
    if is_known:
        return scheme, place
    # The rest of the URL could hold a password.
    raise ConfigError(
        f"must be 'sqlite:PATH', 'postgresql://host/database' or 'memory:', got "
        f"scheme {scheme if scheme.isalnum() else ''!r}",
        "ledger.url",
    )


def open_ledgers(url: str, streams: Sequence[Terms]) -> list[Ledger]:
    """Open or create several streams of one ledger, with one connection for all; see `open_ledger`."""
    ledgers: list[Ledger] = []
    try:
        for terms in streams:
            if ledgers and url.startswith(("postgresql:", "postgres:")):
                from .postgres import PostgresLedger

                first = ledgers[0]
                assert isinstance(first, PostgresLedger)
                ledgers.append(PostgresLedger(url, terms, beside=first))
            else:
                ledgers.append(open_ledger(url, terms))
    except BaseException:
        for ledger in ledgers:
            ledger.close()
        raise
    return ledgers


def open_books(url: str, stream: str | None = None) -> Books:
    """Open a stream's ledger to look at it, whoever else holds it; nothing is changed.

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
    if _is_shared(url):
        from .postgres import PostgresLedger

        return PostgresLedger(url, stream=stream)
    from .snapshot import Snapshot

    return Snapshot(url.removeprefix("sqlite:"), stream)


def each_book(url: str) -> Generator[Books]:
    """All streams of a ledger, one after the other, each closed when the next is asked for; see `open_books`."""
    if _is_shared(url):
        from .postgres import PostgresLedger

        for name in PostgresLedger.names(url):
            with closing(PostgresLedger(url, stream=name)) as ledger:
                yield ledger
        return
    from .snapshot import Snapshot

    yield from Snapshot.each(url.removeprefix("sqlite:"))


def _is_shared(url: str) -> bool:
    if url.partition(":")[0] == "memory":
        raise ConfigError("must name a durable ledger: one in memory is seen by its own process only", "ledger.url")
    return url.startswith(("postgresql:", "postgres:"))
