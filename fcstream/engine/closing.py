"""Closing of windows: charge the ledger, draw, seal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Job
from ..ledgers import ChargeResult, Ledger, Request, WindowKey
from ..ledgers.base import STREAM_BLOCK, USER_BLOCK
from ..noise.samplers import Noise
from ..releases.base import Mechanism, Outcome, Release, Track
from ..stream.windows import Window
from .exhaustion import Participation
from .outbox import Outbox
from .records import ChargedUsers, OpenRecords

_NOTHING = PrivacyLoss()


class Cost(NamedTuple):
    """What a release cost, and what the window's most charged block has spent including that."""

    loss: PrivacyLoss
    spent: PrivacyLoss


def request(job: Job, window: Window, loss: PrivacyLoss, users: NDArray[np.bytes_] | None) -> Request:
    """Make the request to charge a window; `users` are the keys of the users with records in it (unit ``user``)."""
    schedule = job.schedule
    blocks: tuple[str, ...] = ()
    if job.terms.unit == "event":
        blocks = tuple(str(schedule.pane_open_ms(pane)) for pane in schedule.panes(window))
    elif users is None:
        blocks = (STREAM_BLOCK,)
    elif not job.spending.omits:
        blocks = (USER_BLOCK,)
    return Request(WindowKey(window.open_ms, window.close_ms), loss, blocks, users)


def as_release(
    job: Job, window: Window, outcome: Outcome, cost: Cost, *, private: bool, participation: str | None
) -> Release:
    """Convert an outcome to the user's units, and add what it cost."""
    answer = job.mechanism.to_user_units(outcome, job.grid)
    return Release(
        stream=job.terms.stream,
        window_open_ms=window.open_ms,
        window_close_ms=window.close_ms,
        status="refused" if outcome.reason else "released",
        reason=outcome.reason,
        kind=job.mechanism.kind,
        value=answer.value,
        sigma=answer.sigma,
        count=outcome.count,
        core_count=outcome.core_count,
        rho=cost.loss.rho,
        delta=cost.loss.delta,
        guarantee=job.terms.capacity.as_dict(),
        spent=cost.spent.as_dict(),
        private=private,
        features=answer.features,
        transform=answer.transform,
        track=outcome.track,
        parts=answer.parts,
        key=job.key,
        participation=participation,
    )


class WindowCloser:
    """Charges windows durably, then draws, then seals, in the order on which the guarantee rests.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    noise : Noise
    last : Release or None
        The newest release that the ledger has sealed.
    outbox : Outbox
        Seals the releases and keeps them for the caller.

    Attributes
    ----------
    group : int
        How many windows may be closed together.
    """

    def __init__(self, job: Job, ledger: Ledger, noise: Noise, last: Release | None, outbox: Outbox) -> None:
        self._job, self._ledger, self._noise, self._outbox = job, ledger, noise, outbox
        self._participation = Participation(job, ledger, last)
        self._track = self._track_after(last)
        # Where late records wait for a window, windows close one by one, because a group's end must not depend on them.
        self.group = job.spending.group if job.clock == "eof" or job.schedule.reach == 1 else 1

    @property
    def next_mechanism(self) -> Mechanism:
        """Return the mechanism of the next window for the case that it is offered no savings."""
        spending = self._job.spending
        return spending.mechanism_at(spending.mechanism.loss.rho_nano, self._track)

    def close(self, windows: Sequence[Window], records: OpenRecords) -> None:
        """Seal and return the releases of the next windows.

        After an error the windows stay open: another try is not charged again and may draw once more.
        """
        mechanism = self._offer(windows[0].index)
        users = [records.users(window.index) for window in windows]
        requests = [
            request(self._job, window, mechanism.loss, None if who is None else who[0])
            for window, who in zip(windows, users, strict=True)
        ]
        results = self._ledger.charge(requests)
        if self._job.spending.stops and results[0].refusal:
            raise results[0].refusal
        closed = [
            self._release(window, result, mechanism, records, who)
            for window, result, who in zip(windows, results, users, strict=True)
            if result.charge or result.refusal or result.interrupted
        ]
        self._outbox.seal(closed)
        if closed:
            self._track = closed[-1][0].track
        elif sealed := self._ledger.last_sealed():  # by another process, or by a call that was interrupted
            self._track = self._track_after(Release.from_bytes(sealed[1]))

    def _track_after(self, last: Release | None) -> Track | None:
        """Where the window after a release starts."""
        return last.track if last is not None and self._job.spending.tracks else None

    def _offer(self, index: int) -> Mechanism:
        """Return the mechanism of a window, at the loss to charge."""
        spent, spending = _NOTHING, self._job.spending
        if self._job.terms.unit == "user" or spending.savings:
            spent = self._ledger.spent(USER_BLOCK if self._job.terms.unit == "user" else STREAM_BLOCK)
        return spending.offer(index, spent, self._track)

    def _release(
        self,
        window: Window,
        result: ChargeResult,
        mechanism: Mechanism,
        records: OpenRecords,
        users: ChargedUsers | None,
    ) -> tuple[Release, PrivacyLoss]:
        """Make the release of one window; also returns what it did not use of its charge."""
        charge, is_paid_by_all = result.charge, self._participation.note(result)
        if charge is None:
            if result.interrupted is None:
                return self._as_release(window, Outcome("budget_exhausted"), _NOTHING, result.spent), _NOTHING
            return self._as_release(window, Outcome("interrupted"), result.interrupted, result.spent), _NOTHING
        if charge.is_redraw and users is not None and self._job.gate is not None:
            # Whether there are too many users was decided before the draw. Users who came since are not charged, and
            # must not change that decision, because there is no second draw.
            return self._as_release(window, Outcome("interrupted"), charge.loss, result.spent), _NOTHING
        view = records.view(self._job.schedule.panes(window), users, result.admitted)
        if charge.loss != mechanism.loss:  # charged before a crash, when another loss was offered
            mechanism = self._job.spending.mechanism_at(charge.loss.rho_nano, self._track)
        outcome = mechanism.release(view, charge, self._noise)
        refund = charge.unused
        spent = result.spent - refund if is_paid_by_all and not result.is_joint else result.spent
        return self._as_release(window, outcome, charge.loss - refund, spent), refund

    def _as_release(self, window: Window, outcome: Outcome, loss: PrivacyLoss, spent: PrivacyLoss) -> Release:
        is_private, participation = self._noise.private, self._participation.state
        return as_release(
            self._job, window, outcome, Cost(loss, spent), private=is_private, participation=participation
        )
