"""The durable journal of what was charged, sealed and acknowledged; found by URL scheme."""

from __future__ import annotations

from ..errors import ConfigError
from .base import Answer, Charge, Ledger, Request, Terms, Verdict, WindowKey

__all__ = ["Answer", "Charge", "Ledger", "Request", "Terms", "Verdict", "WindowKey", "open_ledger"]


def open_ledger(url: str, terms: Terms) -> Ledger:
    """Open or create the ledger of one stream.

    Parameters
    ----------
    url : str
        ``memory:`` (forgotten at exit: for tests and single arrays) or ``sqlite:PATH``.
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
    raise ConfigError(f"must be 'sqlite:PATH' or 'memory:', got {url!r}", "ledger.url")
