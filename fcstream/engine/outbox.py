"""Outbox: sealed releases that were not returned yet, or were returned and not acknowledged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence

from ..accounting.losses import PrivacyLoss
from ..ledgers import Ledger, SealedRelease, WindowKey
from ..releases.base import Release


class Outbox:
    """The releases of one engine that its ledger does not know to be published.

    Each thread acknowledges what was returned to it, since none knows what another has published. The engine's lock
    guards all methods. An interrupt by Ctrl-C inside one of them loses no release; one that comes after `take` has
    returned, and before the caller has what it returned, does: the next call counts that as published.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sealing: dict[WindowKey, Release] = {}
        self._waiting: dict[WindowKey, Release] = {}
        self._returned: dict[int, dict[WindowKey, Release]] = {}  # by thread

    @property
    def is_settled(self) -> bool:
        """Return whether everything was returned and is acknowledged."""
        return not self._returned and not self._waiting

    def seal(self, releases: Sequence[tuple[Release, PrivacyLoss]]) -> None:
        """Seal the releases of the next windows, each with its refund, and keep them for the caller.

        After an interrupt or an error the next call, which may have no releases, keeps what was sealed all the same.
        """
        if self._sealing:
            self._keep_sealed()
        self._sealing = {window_key(release): release for release, _ in releases}
        self._ledger.seal(
            [
                SealedRelease(window, release.to_bytes(), refund)
                for window, (release, refund) in zip(self._sealing, releases, strict=True)
            ]
        )
        self._waiting |= self._sealing
        self._sealing = {}

    def take(self) -> list[Release]:
        """Return the waiting releases to this thread, which acknowledges them later."""
        releases = list(self._waiting.values())
        if releases:
            self._returned.setdefault(threading.get_ident(), {}).update(self._waiting)
            self._waiting = {}
        return releases

    def requeue(self, releases: Iterable[Release]) -> None:
        """Keep what this thread was just returned, to return it once more."""
        self._waiting = {window_key(release): release for release in releases} | self._waiting
        self._returned.pop(threading.get_ident(), None)

    def requeue_returned(self) -> None:
        """Keep all that was returned to this thread and is not acknowledged, to return it once more."""
        self.requeue(self._returned.get(threading.get_ident(), {}).values())

    def unpublished(self) -> list[Release]:
        """Return to this thread all that the ledger holds unacknowledged."""
        sealed = self._ledger.unacknowledged()
        self._waiting, self._sealing = {}, {}  # they are among them
        releases = {window: Release.from_bytes(body) for window, body in sealed}
        self._returned = {threading.get_ident(): releases}
        return list(releases.values())

    def acknowledge(self) -> None:
        """Note that this thread has published what was returned to it."""
        self._acknowledge(threading.get_ident())

    def acknowledge_all(self) -> None:
        """Note that every thread has published what was returned to it."""
        for thread in list(self._returned):
            self._acknowledge(thread)

    def forget(self) -> None:
        """Forget what was returned, without acknowledging it."""
        self._returned.clear()

    def _acknowledge(self, thread: int) -> None:
        windows = [window for window in self._returned.pop(thread, ()) if window not in self._waiting]
        if windows:
            self._ledger.acknowledge(windows)

    def _keep_sealed(self) -> None:
        """Keep what the interrupted call of `seal` has sealed, unless that call has kept it."""
        kept = self._waiting.keys() | itertools.chain.from_iterable(self._returned.values())
        for window, body in self._ledger.unacknowledged():
            mine = self._sealing.get(window)
            # Another process may have sealed a draw of its own under the same charge: then only that one is published.
            if mine is not None and window not in kept and body == mine.to_bytes():
                self._waiting[window] = mine


def window_key(release: Release) -> WindowKey:
    """Return the name in the ledger of a release's window."""
    return WindowKey(release.window_open_ms, release.window_close_ms)
