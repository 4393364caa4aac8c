"""What a closing window asks of the ledger, and how its outcome becomes a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..ledgers import Request, WindowKey
from ..ledgers.base import STREAM_BLOCK, USER_BLOCK
from ..releases.base import Outcome, Release

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..accounting.losses import PrivacyLoss
    from ..config import Job
    from ..stream.windows import Window


class Cost(NamedTuple):
    """What an answer cost, and what the window's most charged block has spent with it."""

    loss: PrivacyLoss
    spent: PrivacyLoss


def request(job: Job, window: Window, loss: PrivacyLoss, users: NDArray[np.bytes_] | None) -> Request:
    """A window that wants to be charged; `users` are the keys of those who have records in it, of the unit ``user``."""
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
    """An outcome in the user's units, with what it cost."""
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
