"""The interface of all ledgers, and the types it uses.
A window's life: ``charge`` (durable before any noise is drawn) -> ``seal`` (these noisy bytes are final) ->
``acknowledge`` (the sink has them). Each call takes a group of windows and is one transaction.

==================================  ===============================================================================
state before the charge             charge result
==================================  ===============================================================================
not charged                         granted if every block that the window covers has room; otherwise refused, and
                                    nothing is spent
charged, not sealed                 granted once more under the SAME charge, since no release left the process; a third
                                    the request is "interrupted": the charge stays and no noise is drawn
sealed                              done: the stored bytes are final
==================================  ===============================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, runtime_checkable

from ..accounting.losses import LossT, PrivacyLoss
from ..errors import BudgetExhausted

_NOTHING = PrivacyLoss()
STREAM_BLOCK = "stream"
"""Block of the unit ``stream``."""
TOTAL_BLOCK = "total"
"""Block of the privacy filter on the sum over all windows, in addition to those of the unit."""
USER_BLOCK = "user"
"""Block of the unit ``user``: what a user with a record in every window would have spent; public."""
DEVICE_BLOCK = "device"
"""Block of the unit ``device`` in an analyst's ledger: what the most charged device has spent."""
WRONG_CONTENT = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, StopIteration)
"""Exceptions that our own code raises if a column holds a value that a ledger never writes."""


def is_shared(url: str) -> bool:
    """Whether a ledger's URL names a database server, so that several processes may use the ledger at once."""
    return url.partition(":")[0] in ("postgresql", "postgres")


def part_name(stream: str, key: str) -> str:
    """Return the name of the sibling stream of one key."""
    return f"{stream}/{key}"


def root_of(stream: str) -> str:
    """Return the part of a stream's name before the slash, which all sibling streams share."""
    return stream.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Terms(Generic[LossT]):
    """The stream, unit, specification and caps of one ledger (specification 8.3), fixed when the ledger is made.

    Caps may be lowered later, never raised.

    Attributes
    ----------
    stream : str
    unit : str
        ``event``: a privacy filter per pane. ``stream`` and ``user``: one privacy filter for everything.
        ``device``: one per device, on losses per unit of distance; a window is then a question to devices.
    capacity : PrivacyLoss
        Cap of each privacy filter, for ever. For devices with pure geo-privacy it is a `DPLoss`.
    specification : str
        Everything that shapes a release, as canonical JSON; public.
    total : PrivacyLoss or None
        Cap of the sum over all windows, in addition to `capacity`.
    promise : str
        What the whole stream, all its keys together, may cost, as canonical JSON with the configuration's names.
    group : str or None
        The streams of a ledger with one group share their filters: `capacity` and `total` hold for the sum over them.
    shared_keys : tuple of str or None
        The keys that share one budget: a sibling stream is opened only if the ledger has none of any other key. None:
        each sibling stream has a budget of its own. Checked at each opening and not stored, so that keys can be added
        later.
    """

    stream: str
    unit: str
    capacity: LossT
    specification: str
    total: LossT | None = None
    promise: str = "{}"
    group: str | None = None
    shared_keys: tuple[str, ...] | None = field(default=None, compare=False)

    @property
    def root(self) -> str:
        """The stream's name without its key."""
        return root_of(self.stream)

    @property
    def specification_hash(self) -> str:
        """SHA-256, in hex."""
        return hashlib.sha256(self.specification.encode()).hexdigest()

    def cap(self, block: str) -> LossT:
        """Cap of one block."""
        return self.total if block == TOTAL_BLOCK and self.total is not None else self.capacity

    def promised(self, block: str) -> LossT:
        """What one unit can lose under all keys together: the cap of a block before keys divided it.

        It differs from `cap`, the share of one key, where keys divide a budget.
        """
        stated = _stated(self.promise, "total_" if block == TOTAL_BLOCK else "")
        return self.cap(block) if stated is None else stated  # type: ignore[return-value]

    @property
    def guarantee(self) -> LossT:
        """What one unit can lose for ever, under all keys together."""
        return self.promised(self.unit)

    @property
    def key_share(self) -> LossT | None:
        """The part of the guarantee that one key may spend; None where keys do not divide it."""
        return None if self.guarantee == self.capacity else self.capacity


@lru_cache(maxsize=256)
def _stated(promise: str, part: str) -> PrivacyLoss | None:
    """Return the budget that a promise states, or with `part` its total."""
    budget = json.loads(promise).get("budget", {})
    return PrivacyLoss.cap(budget[f"{part}rho"], budget.get(f"{part}delta", 0.0)) if f"{part}rho" in budget else None


class WindowKey(NamedTuple):
    """The opening and the close of a window, which identify it in the ledger."""

    open_ms: int
    close_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """Asks a ledger to charge one window (specification 8.3).

    Attributes
    ----------
    window : WindowKey
    loss : PrivacyLoss
        Charged to each of the window's blocks, and to the total if the terms have one.
    blocks : tuple of str
        For the unit ``user`` `USER_BLOCK`, for all who are in the window.
    """

    window: WindowKey
    loss: PrivacyLoss
    blocks: tuple[str, ...]


class SealedRelease(NamedTuple):
    """The final bytes of a window's release, and the part of the charge that the release did not use."""

    window: WindowKey
    body: bytes
    refund: PrivacyLoss = _NOTHING


class EpochState(NamedTuple):
    """What a window leaves for the later windows of its epoch. Exact and private; part of no journal and no report.

    Attributes
    ----------
    answer : str
        Name of the answer that it is about; empty where a window has one answer without a name.
    epoch_ms : int
        When the epoch opened, Unix milliseconds.
    open_ms : int
        When the window opened.
    body : bytes
        What the kind of release stores. Empty for the last window of an epoch: nothing is left, and what the windows
        before it left is deleted.
    """

    answer: str
    epoch_ms: int
    open_ms: int
    body: bytes

    @property
    def forgets_before_ms(self) -> int:
        """When the first epoch opened whose states are kept."""
        return self.epoch_ms + (not self.body)

    def __repr__(self) -> str:
        return f"<EpochState of the window at {self.open_ms}>"  # without its private content


class _LedgerKey:
    """A token that only ledgers hold, and that `Charge` demands, so that nobody else makes one."""


_LEDGER_KEY = _LedgerKey()


class Charge:
    """Proof that a loss was durably charged for one window (specification 1.4).

    Only a ledger makes one, and it serves one release.

    A release of one stage calls `use`. A release of several stages calls `open` first, and `start` before each stage:
    the loss of stages that were never started is `unused`, and is refunded when the window is sealed. A stage that was
    started is paid for in full, its delta included.

    Attributes
    ----------
    window : WindowKey
    loss : PrivacyLoss
    is_redraw : bool
        Whether this is the second draw under one charge, after a crash: which stages the first draw started is not
        known, so nothing is refunded.
    """

    __slots__ = ("_started", "_used", "is_redraw", "loss", "window")

    def __init__(self, ledger_key: _LedgerKey, window: WindowKey, loss: PrivacyLoss, is_redraw: bool = False) -> None:
        if ledger_key is not _LEDGER_KEY:
            raise TypeError("a Charge is made by a ledger only")
        self.window = window
        self.loss = loss
        self.is_redraw = is_redraw
        self._used = False
        self._started = _NOTHING

    def use(self, needed: PrivacyLoss) -> None:
        """Use up the whole charge; a release of one stage calls this before its first draw.

        Raises
        ------
        RuntimeError
            The charge has served a release already, or is smaller than the release's loss.
        """
        self.open(needed)
        self._started = self.loss

    def open(self, needed: PrivacyLoss) -> None:
        """Open the charge for a release of several stages that cost at most `needed` together; raises as `use`."""
        if self._used:
            raise RuntimeError("this charge has served a release: a second release needs a charge of its own")
        if not needed.fits(self.loss):
            raise RuntimeError(f"the release costs {needed}, the charge holds {self.loss}")
        self._used = True

    def start(self, stage: PrivacyLoss) -> None:
        """Pay for a stage; called before the first draw of that stage. All stages together must fit the charge.

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
        """The loss of the stages that were not started; public, since only released values decide which stages run."""
        return PrivacyLoss() if self.is_redraw else self.loss - self._started


@dataclass(frozen=True, slots=True)
class ChargeResult:
    """What a ledger says to a request for a charge (specification 8.4).

    Attributes
    ----------
    window : WindowKey
    charge : Charge or None
        The grant.
    refusal : BudgetExhausted or None
        The charge does not fit; nothing was spent.
    interrupted : PrivacyLoss or None
        What stays charged for a window that was drawn twice and never sealed.
    spent : PrivacyLoss
        What the window's most charged block has spent, including this charge.
    is_joint : bool
        The charge is part of a joint one for several releases, and `spent` falls when all of them are sealed.

    If `charge`, `refusal` and `interrupted` are all None, the window was sealed before.
    """

    window: WindowKey
    spent: PrivacyLoss
    charge: Charge | None = None
    refusal: BudgetExhausted | None = None
    interrupted: PrivacyLoss | None = None
    is_joint: bool = False


def grant(window: WindowKey, loss: PrivacyLoss, spent: PrivacyLoss, is_redraw: bool = False) -> ChargeResult:
    """Make a charge result with a fresh charge; only ledgers call this."""
    return ChargeResult(window, spent, charge=Charge(_LEDGER_KEY, window, loss, is_redraw))


def max_loss(losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
    """Return the largest rho and the largest delta of some losses."""
    if len(losses) == 1:
        return losses[0]
    return PrivacyLoss(
        max((loss.rho_nano for loss in losses), default=0), max((loss.delta_femto for loss in losses), default=0)
    )


class Ledger(Protocol):
    """One stream's durable journal (specification 8.4). Each call is atomic: if it raises, nothing has changed."""

    terms: Terms

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        """Charge a group of windows, in order, in one transaction; durable when it returns."""

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        """Store the final bytes of windows, refusals too, and book their refunds, in one transaction."""

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        """Note that the sink has the releases of these windows."""

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        """Return the sealed windows whose releases may not have reached the sink, in order of sealing."""

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        """Return the sealed window with the latest opening, and its bytes."""

    def spent(self, block: str | None = None) -> PrivacyLoss:
        """Return what one block has spent; with None, what the unit's most charged block has spent."""

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        """Return the blocks that a window was charged to; none if it was not charged."""

    def setting(self, key: str) -> str | None:
        """Return a public fact about the stream that `keep_setting` stored; None if there is none."""

    def keep_setting(self, key: str, value: str) -> str:
        """Store a public fact for ever, unless the key is taken; returns the value that the ledger holds now.

        The first value counts, for this stream and its siblings. One transaction, durable when it returns, and part of
        the chain of hashes.

        Parameters
        ----------
        key, value : str
            Texts without control characters, and without anything about records.
        """

    def close(self) -> None:
        """Close the storage. May be called more than once."""


@runtime_checkable
class StateLedger(Ledger, Protocol):
    """A ledger that keeps what the windows of an epoch leave for later ones (specification 5.13)."""

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        """Seal, and store what these windows leave, in one transaction.

        States of the same answer that belong to an earlier epoch are deleted; those of this epoch too by a state
        without a body, which is not stored.
        """

    def epoch_states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        """Return the opening and the state of each window of an epoch, in order of opening; damaged ones are left out.

        They are private.
        """

    def forget_states(self, answer: str, before_ms: int) -> None:
        """Delete the states of all epochs that opened before a time."""


@runtime_checkable
class RecentLedger(Protocol):
    """A ledger that gives its latest windows without reading its whole journal."""

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        """Return the sealed windows with the latest openings, at most `count`, in order of opening, and their bytes."""


@runtime_checkable
class JointLedger(Protocol):
    """A ledger that takes calls for several streams of one `place` in one transaction (specification 8.4).

    Each call takes effect whole or not at all, and is as durable when it returns as the call for one stream.
    """

    @property
    def place(self) -> object:
        """What streams must have in common."""

    def charge_together(
        self,
        calls: Sequence[tuple[Any, Sequence[Request]]],
        acknowledged: Sequence[tuple[Any, Sequence[WindowKey]]] = (),
        /,
    ) -> list[list[ChargeResult]]:
        """Charge windows of several ledgers, each at most once among the calls, after others were acknowledged.

        See `Ledger.charge` and `Ledger.acknowledge`.
        """

    def seal_together(self, calls: Sequence[tuple[Any, Sequence[SealedRelease], Sequence[EpochState]]], /) -> None:
        """Seal windows of several ledgers, and store what they leave; see `StateLedger.seal_with_states`."""

    def acknowledge_together(self, calls: Sequence[tuple[Any, Sequence[WindowKey]]], /) -> None:
        """Note that the sink has the releases of windows of several ledgers; see `Ledger.acknowledge`."""

    def keep_together(self, calls: Sequence[tuple[Any, str, str]], /) -> list[str]:
        """Store public facts, key and value, of several ledgers; see `Ledger.keep_setting`."""


def joint_ledger(ledgers: Sequence[Ledger]) -> JointLedger | None:
    """Return one of some ledgers if it can take calls for all of them together, else None."""
    first = next(iter(ledgers), None)
    if not isinstance(first, JointLedger):
        return None
    are_there = all(type(each) is type(first) and each.place is first.place for each in ledgers)
    return first if are_there else None


class LedgerReader(Protocol):
    """Reads a durable ledger without changing it. For devices with pure geo-privacy, losses are of type `DPLoss`."""

    @property
    def terms(self) -> Terms[Any]: ...

    @property
    def is_retired(self) -> bool:
        """Whether the stream was ended for ever, so that its name may belong to a new one."""

    def spent(self, block: str | None = None) -> Any: ...

    def summary(self) -> dict[str, int]:
        """Count the windows in each state (``charged``, ``sealed``, ``acknowledged``), and the ``blocks`` that were
        ever charged."""

    def charges(self) -> list[tuple[WindowKey, Any]]:
        """List what each charged window cost, less refunds, in order of opening."""

    def releases(self) -> list[bytes]:
        """List all sealed releases, in order of sealing, as the exact bytes of each line that was published."""

    def rows(self) -> list[Row]:
        """List the rows of the journal."""

    def verify(self) -> int:
        """Check all tables against the journal and count its rows. Raises LedgerDamaged, naming the first bad row."""

    def close(self) -> None: ...


class Row(NamedTuple):
    """One row of a journal.

    Attributes
    ----------
    kind : str
        ``charge``, ``again`` (a second draw under the same charge), ``seal`` or ``acknowledge``: about a window.
        ``setting``: about no window, with its key in `blocks` and its value in `body`. ``terms``: the ledger's terms
        from this row on. ``retire``: the last row. In a device's journal also ``folded``: the cost of answers whose
        rows the journal has dropped.
    rho, delta : int
        The loss of a charge, or the refund of a seal, in nano and 1e-15 units. For devices with pure geo-privacy `rho`
        is an epsilon.
    blocks : str
        In a charge: the charged blocks, joined by commas.
    body : bytes
        In a seal: the release.
    name : str
        In an answer of a device: its query and round. Empty for windows.
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
