"""What every ledger promises.

A window's life: ``charge`` (durable before any noise is drawn) -> ``seal`` (these noisy bytes are final) ->
``acknowledge`` (the sink has them). Each call takes a group of windows and is one transaction.

==================================  ===============================================================================
found when a window is charged      verdict
==================================  ===============================================================================
nothing                             granted, if every block it covers has room; else a refusal: nothing is spent
charged, never sealed               granted once more under the SAME charge (nothing left the process); the second
                                    time interrupted: the charge stays, no noise is drawn
sealed                              done: the stored bytes are the only answer there will ever be
==================================  ===============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from ..accounting.losses import Loss, PrivacyLoss
from ..errors import BudgetExhausted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import TypeVar  # `Terms` without parameters are those of an engine: rho

    LossT = TypeVar("LossT", bound=Loss, default=PrivacyLoss)
else:
    from typing import TypeVar

    LossT = TypeVar("LossT", bound=Loss)

STREAM_BLOCK = "stream"
"""Block of the unit ``stream``."""
TOTAL_BLOCK = "total"
"""Block of the filter on the plain sum over all windows, on top of any unit."""
USER_BLOCK = "user"
"""Block of the unit ``user`` that stands for somebody with a record in every window; public."""
DEVICE_BLOCK = "device"
"""Block of the unit ``device``, in the ledger of an analyst: the most charged one."""
WRONG_CONTENT = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, StopIteration)
"""What our own code raises when a column holds what a ledger never writes."""


def is_shared(url: str) -> bool:
    """Whether a ledger's URL names a database server, so that several processes may use the ledger at once."""
    return url.partition(":")[0] in ("postgresql", "postgres")


def part_name(stream: str, key: str) -> str:
    """What one key's part of a stream is called."""
    return f"{stream}/{key}"


def root_of(stream: str) -> str:
    """Name of the whole stream, of which one may be a key's part."""
    return stream.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Terms(Generic[LossT]):
    """What one ledger is about (specification 8.3). All of it is fixed when the ledger is made.

    Attributes
    ----------
    stream : str
    unit : str
        ``event``: a filter per pane. ``stream``: one filter for everything. ``user``: a filter per user. ``device``:
        a filter per device, on losses per unit of distance; windows are then questions to devices.
    capacity : PrivacyLoss
        Cap of each filter, for ever. Of devices with pure geo-privacy it is a `DPLoss`.
    specification : str
        Everything that shapes a release, as canonical JSON: public, and readable.
    total : PrivacyLoss or None
        Cap of the plain sum over all windows, on top.
    promise : str
        What the whole stream, all its keys together, may cost, as canonical JSON in the words of the configuration.
    shared_keys : tuple of str or None
        The keys that share one budget: no part of another key may be there when a part is opened. None: every part
        has a budget of its own. It is asked of whoever opens and not kept, so keys may be added later.
    """

    stream: str
    unit: str
    capacity: LossT
    specification: str
    total: LossT | None = None
    promise: str = "{}"
    shared_keys: tuple[str, ...] | None = field(default=None, compare=False)

    @property
    def root(self) -> str:
        """Name of the whole stream, of which this may be one key's part."""
        return root_of(self.stream)

    @property
    def specification_hash(self) -> str:
        """SHA-256, in hex."""
        return hashlib.sha256(self.specification.encode()).hexdigest()

    def cap(self, block: str) -> LossT:
        """Cap of one block."""
        return self.total if block == TOTAL_BLOCK and self.total is not None else self.capacity


@dataclass(frozen=True, slots=True, order=True)
class WindowKey:
    """A window's name in the ledger."""

    open_ms: int
    close_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """A window that wants to be charged (specification 8.3).

    Attributes
    ----------
    window : WindowKey
    loss : PrivacyLoss
        On each of its blocks, on the total if the terms have one, and on every user who is admitted.
    blocks : tuple of str
        For the unit ``user`` none, or `USER_BLOCK`: the window is then refused if somebody with a record in every
        window has no room for it.
    users : bytes array (n,) of 16, or None
        For the unit ``user``: keys of those who take part, ascending, each once.
    """

    window: WindowKey
    loss: PrivacyLoss
    blocks: tuple[str, ...]
    users: NDArray[np.bytes_] | None = None


class SealedRelease(NamedTuple):
    """The final bytes of a window, and what its release did not use of the charge."""

    window: WindowKey
    body: bytes
    refund: PrivacyLoss = PrivacyLoss()


class _LedgerKey:
    """Only ledgers hold it: a `Charge` without it cannot be made."""


_LEDGER_KEY = _LedgerKey()


class Charge:
    """Proof that a loss was durably charged for one window (specification 1.4).

    Only a ledger makes one, and it serves one release.

    A release of one stage calls `use`. A release of several calls `open`, and `start` before each stage: what was never
    started is `unused`, and goes back with the seal. A stage that was started is paid for, delta and all.

    Attributes
    ----------
    window : WindowKey
    loss : PrivacyLoss
    spent : PrivacyLoss
        What the window's most charged block has spent, this charge included.
    is_redraw : bool
        The second draw under one charge, after a crash: what the first one started is not known, so all is spent.
    """

    __slots__ = ("_started", "_used", "is_redraw", "loss", "spent", "window")

    def __init__(
        self, ledger_key: _LedgerKey, window: WindowKey, loss: PrivacyLoss, spent: PrivacyLoss, is_redraw: bool = False
    ) -> None:
        if ledger_key is not _LEDGER_KEY:
            raise TypeError("a Charge is made by a ledger only")
        self.window = window
        self.loss = loss
        self.spent = spent
        self.is_redraw = is_redraw
        self._used = False
        self._started = PrivacyLoss()

    def use(self, needed: PrivacyLoss) -> None:
        """Called by a release of one stage before its first draw.

        Raises
        ------
        RuntimeError
            The charge served a release before, or is smaller than what the release costs.
        """
        self.open(needed)
        self._started = self.loss

    def open(self, needed: PrivacyLoss) -> None:
        """Called by a release of several stages that cost at most `needed` together; see `use` for what it raises."""
        if self._used:
            raise RuntimeError("this charge has served a release: a second answer needs a charge of its own")
        if not needed.fits(self.loss):
            raise RuntimeError(f"the release costs {needed}, the charge holds {self.loss}")
        self._used = True

    def start(self, stage: PrivacyLoss) -> None:
        """Called before the first draw of a stage; the stages together must fit the charge.

        Raises
        ------
        RuntimeError
        """
        started = self._started + stage
        if not self._used or not started.fits(self.loss):
            raise RuntimeError(f"stages that cost {started} do not fit the charge of {self.loss}, or it was not opened")
        self._started = started

    @property
    def unused(self) -> PrivacyLoss:
        """What no stage was started for. A function of released values: stages stop on nothing else."""
        return PrivacyLoss() if self.is_redraw else self.loss - self._started


@dataclass(frozen=True, slots=True)
class ChargeResult:
    """What a ledger says to a request (specification 8.4).

    Attributes
    ----------
    window : WindowKey
    charge : Charge or None
        The grant.
    refusal : BudgetExhausted or None
        No room; nothing was spent.
    interrupted : PrivacyLoss or None
        Charged earlier, drawn twice, never sealed: what stays charged.
    spent : PrivacyLoss
        Of the window's most charged block, after this verdict.
    admitted : bool (n,) or None
        Which of the request's users take part; private. Who is not among them has no budget left.

    Charge, refusal and interrupted all None: the window was sealed before.
    """

    window: WindowKey
    spent: PrivacyLoss
    charge: Charge | None = None
    refusal: BudgetExhausted | None = None
    interrupted: PrivacyLoss | None = None
    admitted: NDArray[np.bool_] | None = None


def grant(
    window: WindowKey,
    loss: PrivacyLoss,
    spent: PrivacyLoss,
    admitted: NDArray[np.bool_] | None = None,
    is_redraw: bool = False,
) -> ChargeResult:
    """For ledgers: a verdict with a fresh charge."""
    return ChargeResult(window, spent, charge=Charge(_LEDGER_KEY, window, loss, spent, is_redraw), admitted=admitted)


def public_blocks(request: Request) -> tuple[str, ...]:
    """Blocks that a verdict's `spent` is about: nobody's in particular for the unit ``user``."""
    return request.blocks if request.users is None else (USER_BLOCK,)


def max_loss(losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
    """The larger of each part."""
    return PrivacyLoss(
        max((loss.rho_nano for loss in losses), default=0), max((loss.delta_femto for loss in losses), default=0)
    )


class Ledger(Protocol):
    """One stream's durable journal (specification 8.4). A call takes effect whole, or raises and changes nothing."""

    terms: Terms
    salt: bytes
    """Secret of this ledger that users' keys are made with."""

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        """Charge a group, in order, in one transaction; durable when it returns."""

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        """Store the final bytes of windows (a refusal's too) and take refunds back, in one transaction."""

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        """Note that the sink has them."""

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        """Sealed, but not known to have reached the sink, in order of sealing."""

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        """The sealed window that opened last, and its bytes."""

    def spent(self, block: str | None = None) -> PrivacyLoss:
        """Of one block; None: of the unit's most charged one."""

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        """Blocks that a window was charged to; none if it was not charged."""

    def has_room(self, keys: NDArray[np.bytes_], loss: PrivacyLoss) -> NDArray[np.bool_]:
        """Which of some users (ascending, distinct) have room for a loss on top of what they have spent; private."""

    def setting(self, key: str) -> str | None:
        """A public fact about the stream that was kept by `keep_setting`; None if there is none."""

    def keep_setting(self, key: str, value: str) -> str:
        """Keep a public fact for ever, once: returns what is kept now, which is the value of whoever came first, for
        this stream or another part of it. One transaction, durable when it returns, and in the chain of hashes.

        Parameters
        ----------
        key, value : str
            Texts without control characters. Nothing about records.
        """

    def close(self) -> None:
        """Let go of the storage. Idempotent."""


class LedgerReader(Protocol):
    """What a durable ledger shows to those who look; of devices with pure geo-privacy losses are `DPLoss`."""

    @property
    def terms(self) -> Terms[Any]: ...

    @property
    def is_retired(self) -> bool:
        """Whether the stream was ended for ever, so that its name may belong to a new one."""

    def spent(self, block: str | None = None) -> Any: ...

    def summary(self) -> dict[str, int]:
        """How many windows stand in each state (``charged``, ``sealed``, ``acknowledged``), how many ``blocks`` were
        ever charged, and how many ``users``."""

    def charges(self) -> list[tuple[WindowKey, Any]]:
        """What every charged window cost, refunds taken off, by opening."""

    def releases(self) -> list[bytes]:
        """All sealed releases, in order of sealing: the exact bytes that were published."""

    def rows(self) -> list[Row]:
        """The journal."""

    def verify(self) -> int:
        """Check everything against the journal; returns how many rows it has. LedgerDamaged names the first bad row."""

    def close(self) -> None: ...


class Row(NamedTuple):
    """One row of a journal.

    Attributes
    ----------
    kind : str
        ``charge``, ``again`` (the second draw), ``seal`` or ``acknowledge``; ``setting``: of no window, its key stands
        in `blocks` and its value in `body`; ``terms``: what the ledger is about from then on; ``retire``: the last one.
        Of a device also ``folded``: what the answers cost that its journal has
        dropped.
    rho, delta : int
        Of a charge: its loss. Of a seal: the refund. In nano and 1e-15 units. Of devices with pure geo-privacy
        `rho` is an epsilon.
    blocks : str
        Of a charge: which were charged, joined by commas. Of a seal that refunded users: the new state of the users,
        in hex.
    body : bytes
        Of a seal: the release. Of a charge of users: the new state of the users.
    name : str
        Of an answer of a device: its query and round. Windows have none.
    """

    seq: int
    kind: str
    open_ms: int
    close_ms: int
    rho: int
    delta: int
    blocks: str
    body: bytes
    name: str = ""
