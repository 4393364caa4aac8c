"""Leases: where several processes could release a stream's windows, only the one that holds the lease does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..config import Config
from ..connectors.sinks import Sink
from ..ledgers import is_shared
from ..releases.base import Release

if TYPE_CHECKING:
    from ..ledgers.postgres.leader import PostgresLease


class Lease(Protocol):
    """The right of one process to release a stream's windows."""

    def acquire(self) -> bool:
        """Try to acquire the lease, and return whether this process holds it now."""

    def check(self) -> None:
        """Raise `LedgerError` if this process no longer holds the lease.

        It is called often, so it may use an earlier result for some seconds.
        """

    def close(self) -> None:
        """Give the lease up; may be called again."""


class LeaderSink(Sink):
    """Writes to a sink only while this process holds the lease.

    So a process that was suspended and replaced publishes nothing.
    """

    def __init__(self, sink: Sink, lease: Lease) -> None:
        self._sink, self._lease, self.finds_streams = sink, lease, sink.finds_streams

    def write(self, releases: Sequence[Release]) -> None:
        self._lease.check()
        self._sink.write(releases)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return self._sink.missing(releases)

    def last(self) -> Release | None:
        return self._sink.last()

    def last_of(self, is_own: Callable[[str], bool]) -> Release | None:
        return self._sink.last_of(is_own)

    def close(self) -> None:
        self._sink.close()


class SessionLeases:
    """Makes the leases of one service, one for each session; only ledgers that several processes can share have leases.

    Parameters
    ----------
    url : str
        URL of the ledger.
    stream : str
    """

    def __init__(self, url: str, stream: str) -> None:
        self.is_shared = is_shared(url)
        self._url, self._stream = url, stream
        self._held_lease: PostgresLease | None = None

    def open(self) -> PostgresLease:
        """Make the lease of a new session; it is not acquired yet."""
        from ..ledgers.postgres.leader import PostgresLease

        self._held_lease = PostgresLease(self._url, self._stream)
        return self._held_lease

    def bind(self, config: Config) -> Config:
        """Return the configuration with a ledger that writes nothing once another process holds the lease."""
        if self._held_lease is None or config.ledger is None:
            return config
        return replace(config, ledger=replace(config.ledger, url=self._held_lease.bind(config.ledger.url)))
