"""Outbox: sealed releases that were not returned yet, or were returned and not acknowledged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence

from ..accounting.losses import PrivacyLoss
from ..ledgers import (
    ChargeResult,
    EpochState,
    Ledger,
    Request,
    SealedRelease,
    StateLedger,
    WindowKey,
    joint_ledger,
)
from ..releases.base import Release, from_lines, to_lines


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
        self._joint = joint_ledger([ledger])
        self._sealing: dict[WindowKey, list[Release]] = {}
        self._waiting: dict[WindowKey, list[Release]] = {}
        self._returned: dict[int, dict[WindowKey, list[Release]]] = {}  # by thread

    @property
    def is_settled(self) -> bool:
        """Return whether everything was returned and is acknowledged."""
        return not self._returned and not self._waiting

    def charge(self, requests: Sequence[Request], *, acknowledging: bool) -> list[ChargeResult]:
        """Charge windows. With `acknowledging` the ledger notes too that this thread has published what was returned to
        it, in the same transaction if it can.
        """
        windows = self.published() if acknowledging else []
        if not windows or self._joint is None:
            if acknowledging:
                self.acknowledge()
            return self._ledger.charge(requests)
        found = self._joint.charge_together([(self._ledger, requests)], [(self._ledger, windows)])
        self.forget_published()
        return found[0]

    def seal(self, windows: Sequence[tuple[list[Release], PrivacyLoss]], states: Sequence[EpochState] = ()) -> None:
        """Seal the releases of the next windows, with the refund of each window, and keep them for the caller.

        `states` is what these windows leave for later ones; only a `StateLedger` takes any.

        After an interrupt or an error the next call, which may have no releases, keeps what was sealed all the same.
        """
        sealed = self.prepare(windows)
        if states:
            assert isinstance(self._ledger, StateLedger)
            self._ledger.seal_with_states(sealed, states)
        else:
            self._ledger.seal(sealed)
        self.keep()

    def prepare(self, windows: Sequence[tuple[list[Release], PrivacyLoss]]) -> list[SealedRelease]:
        """Return what to seal; call `keep` once it is sealed."""
        if self._sealing:
            self._keep_sealed()
        sealed = [SealedRelease(window_key(found[0]), to_lines(found), refund) for found, refund in windows]
        self._sealing = {each.window: found for each, (found, _) in zip(sealed, windows, strict=True)}
        return sealed

    def keep(self) -> None:
        """Keep for the caller what was prepared and is sealed."""
        if self._waiting:
            self._waiting |= self._sealing
        else:
            self._waiting = self._sealing
        self._sealing = {}

    def take(self) -> list[Release]:
        """Return the waiting releases to this thread, which acknowledges them later."""
        if not self._waiting:
            return []
        releases = [release for answers in self._waiting.values() for release in answers]
        self._returned.setdefault(threading.get_ident(), {}).update(self._waiting)
        self._waiting = {}
        return releases

    def requeue(self, releases: Iterable[Release]) -> None:
        """Keep what this thread was just returned, to return it once more."""
        self._waiting = _by_window(releases) | self._waiting
        self._returned.pop(threading.get_ident(), None)

    def requeue_returned(self) -> None:
        """Keep all that was returned to this thread and is not acknowledged, to return it once more."""
        returned = self._returned.get(threading.get_ident(), {})
        self.requeue(release for answers in returned.values() for release in answers)

    def unpublished(self) -> list[Release]:
        """Return to this thread all that the ledger holds unacknowledged."""
        sealed = self._ledger.unacknowledged()
        self._waiting, self._sealing = {}, {}  # they are among them
        releases = [release for _, body in sealed for release in from_lines(body)]
        self._returned = {threading.get_ident(): _by_window(releases)}
        return releases

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

    def published(self) -> list[WindowKey]:
        """Return the windows that this thread has published, for the caller to acknowledge and to forget."""
        return self._published(threading.get_ident())

    def forget_published(self) -> None:
        """Forget what this thread has published."""
        self._returned.pop(threading.get_ident(), None)

    def _acknowledge(self, thread: int) -> None:
        windows = self._published(thread)
        self._returned.pop(thread, None)
        if windows:
            self._ledger.acknowledge(windows)

    def _published(self, thread: int) -> list[WindowKey]:
        returned = self._returned.get(thread)
        if not returned:
            return []
        return [window for window in returned if window not in self._waiting] if self._waiting else list(returned)

    def _keep_sealed(self) -> None:
        """Keep what the interrupted call of `seal` has sealed, unless that call has kept it."""
        kept = self._waiting.keys() | itertools.chain.from_iterable(self._returned.values())
        for window, body in self._ledger.unacknowledged():
            mine = self._sealing.get(window)
            # Another process may have sealed a draw of its own under the same charge: then only that one is published.
            if mine is not None and window not in kept and body == to_lines(mine):
                self._waiting[window] = mine


def _by_window(releases: Iterable[Release]) -> dict[WindowKey, list[Release]]:
    found: dict[WindowKey, list[Release]] = {}
    for release in releases:
        found.setdefault(window_key(release), []).append(release)
    return found


def window_key(release: Release) -> WindowKey:
    """Return the name in the ledger of a release's window."""
    return WindowKey(release.window_open_ms, release.window_close_ms)
