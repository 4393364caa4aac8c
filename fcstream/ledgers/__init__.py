"""The durable journal of what was charged, sealed and acknowledged; found by URL scheme."""

from __future__ import annotations

from ..errors import ConfigError
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
    "open_books",
    "open_ledger",
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
    scheme, _, place = url.partition(":")
    if scheme == "memory":
        from .memory import MemoryLedger

        return MemoryLedger(terms)
    if scheme == "sqlite" and place:
        from .sqlite import SQLiteLedger

        return SQLiteLedger(place, terms)
    if scheme in ("postgresql", "postgres"):
        from .postgres import PostgresLedger

        return PostgresLedger(url, terms)
    # The rest of the URL could hold a password.
    raise ConfigError(
        f"must be 'sqlite:PATH', 'postgresql://host/database' or 'memory:', got scheme {scheme!r}", "ledger.url"
    )


def open_books(url: str) -> Books:
    """Open a ledger to look at it, whoever else holds it; nothing is changed.

    Parameters
    ----------
    url : str
        ``sqlite:PATH``, a bare path, or ``postgresql:...``.

    Raises
    ------
    ConfigError, LedgerError
    """
    if url.partition(":")[0] == "memory":
        raise ConfigError("must name a durable ledger: one in memory is seen by its own process only", "ledger.url")
    if url.startswith(("postgresql:", "postgres:")):
        from .postgres import PostgresLedger

        return PostgresLedger(url)
    from .snapshot import Snapshot

    return Snapshot(url.removeprefix("sqlite:"))
