"""Sealed releases on their way to the caller: not returned yet, or returned and not acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..ledgers import WindowKey
from ..releases.base import Release

if TYPE_CHECKING:
    from ..ledgers import Ledger


class Outbox:
    """The releases of one engine that its ledger does not know to be published.

    Each thread acknowledges what was returned to it, since none knows what another has published. The engine's lock
    guards all methods.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[Release] = []
        self._returned: dict[int, list[WindowKey]] = {}  # by thread

    @property
    def is_settled(self) -> bool:
        """Whether everything that was returned is acknowledged."""
        return not self._returned

    def add(self, releases: Iterable[Release]) -> None:
        """Releases that were sealed just now."""
        self._waiting += releases

    def take(self) -> list[Release]:
        """Return what waits to this thread, which acknowledges it later."""
        releases, self._waiting = self._waiting, []
        if releases:
            self._returned.setdefault(threading.get_ident(), []).extend(map(window_key, releases))
        return releases

    def requeue(self, releases: list[Release]) -> None:
        """Keep what this thread was just returned, to return it once more."""
        self._waiting[:0] = releases
        self._returned.pop(threading.get_ident(), None)

    def unpublished(self) -> list[Release]:
        """Return to this thread all that the ledger holds unacknowledged."""
        sealed = self._ledger.unacknowledged()
        self._waiting = []  # it is among them
        self._returned = {threading.get_ident(): [window for window, _ in sealed]}
        return [Release.from_bytes(body) for _, body in sealed]

    def acknowledge(self) -> None:
        """This thread has published what it was returned."""
        self._acknowledge(threading.get_ident())

    def acknowledge_all(self) -> None:
        """Every thread has published what it was returned."""
        for thread in list(self._returned):
            self._acknowledge(thread)

    def forget(self) -> None:
        """Acknowledge nothing of what was returned."""
        self._returned.clear()

    def _acknowledge(self, thread: int) -> None:
        returned = self._returned.pop(thread, None)
        if returned:
            self._ledger.acknowledge(returned)


def window_key(release: Release) -> WindowKey:
    """The name in the ledger of a release's window."""
    return WindowKey(release.window_open_ms, release.window_close_ms)
