"""Streams of a ledger that share filters, and what all streams of a ledger can cost somebody together. No I/O.

A group keeps no account of its own. Each of its streams writes down what it was charged, as any stream does, and a
charge is taken only if it fits beside what all streams of the group have spent, retired ones included. So a refund
of one stream is room for the others, and a journal of one stream can be checked by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..accounting.losses import PrivacyLoss
from ..errors import BudgetExhausted, LedgerDamaged, LedgerMismatch
from .base import TOTAL_BLOCK, USER_BLOCK, Request, Terms, max_loss, part_name

_NOTHING = PrivacyLoss()
SHARED_BLOCKS = ("stream", USER_BLOCK, TOTAL_BLOCK)
"""Blocks whose cap holds for the sum over the streams of a group."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the other streams of a group have spent; of a stream without a group: nothing.

    Attributes
    ----------
    blocks : mapping of str to PrivacyLoss

    Source
    ------
    Specification 8.6; proof 2.11; ours.
    """

    blocks: Mapping[str, PrivacyLoss] = field(default_factory=dict)

    def spent(self, block: str) -> PrivacyLoss:
        """Return what the other streams have spent of a block."""
        return self.blocks.get(block, _NOTHING)

    def takes(self, block: str, spent: PrivacyLoss, loss: PrivacyLoss, capacity: PrivacyLoss) -> bool:
        """Tell whether a block of which this stream has `spent` has room for a loss."""
        return (spent + self.spent(block) + loss).fits(capacity)


NOWHERE = Elsewhere()


def blocks_to_charge(
    terms: Terms[Any], request: Request, own: Mapping[str, PrivacyLoss], elsewhere: Elsewhere
) -> tuple[tuple[str, ...], BudgetExhausted | None]:
    """Decide which blocks a request is charged to, or which of them refuses it.

    Parameters
    ----------
    own : mapping of str to PrivacyLoss
        What this stream has spent of its blocks; one that is missing has spent nothing.

    Source
    ------
    Specification 8.6; proof 2.11; ours.
    """
    names = request.blocks if terms.total is None else (*request.blocks, TOTAL_BLOCK)
    for block in names:
        capacity, spent = terms.cap(block), own.get(block, _NOTHING)
        if not elsewhere.takes(block, spent, request.loss, capacity):
            left = capacity.missing(spent + elsewhere.spent(block))
            return names, BudgetExhausted(request.loss, left, capacity, block, request.window, terms.group)
    return names, None


def public_spent(request: Request, own: Mapping[str, PrivacyLoss], elsewhere: Elsewhere) -> PrivacyLoss:
    """Return what the most charged public block of a request has spent, in all streams of the group."""
    return max_loss([own.get(block, _NOTHING) + elsewhere.spent(block) for block in request.blocks])


def sum_of(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """Add up losses."""
    return sum(losses, _NOTHING)


def has_caps(found: Terms[Any], wanted: Terms[Any]) -> bool:
    """Tell whether a stream has the caps that another one states."""
    return (found.capacity, found.total) == (wanted.capacity, wanted.total)


def check_group(location: str, found: Terms[Any], wanted: Terms[Any]) -> None:
    """Refuse a stream whose terms differ from those of another stream of its group; caps may be lowered for all.

    Raises
    ------
    LedgerMismatch
    """
    same = found.group == wanted.group
    if not same and str(found.group).casefold() != str(wanted.group).casefold():
        return
    if not same:
        raise LedgerMismatch(
            f"group {wanted.group!r} is too like {found.group!r} of stream {found.stream!r}",
            remedy="write `budget.group` as there, or choose another name",
            where=location,
        )
    caps = [(terms.capacity, terms.total) for terms in (found, wanted)]
    is_raised = not wanted.capacity.fits(found.capacity) or (found.total is None) != (wanted.total is None)
    if found.total is not None and wanted.total is not None:
        is_raised = is_raised or not wanted.total.fits(found.total)
    if found.unit != wanted.unit or is_raised:
        what = [
            f"unit {unit!r} and {capacity}" + ("" if total is None else f" with a total of {total}")
            for unit, (capacity, total) in zip((found.unit, wanted.unit), caps, strict=True)
        ]
        raise LedgerMismatch(
            f"stream {found.stream!r} of group {wanted.group!r} has {what[0]}, the configuration of "
            f"{wanted.stream!r} says {what[1]}: streams of a group share filters, so state the same "
            "`stream.unit` and the same caps in `budget`",
            where=location,
        )


def tightened_in_group(found: Terms[Any], wanted: Terms[Any]) -> Terms[Any]:
    """Return the terms of a stream after another stream of its group has stated stricter caps."""
    promised, stated = json.loads(found.promise), json.loads(wanted.promise)
    if "budget" in stated:
        promised["budget"] = stated["budget"]
    text = json.dumps(promised, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return replace(found, capacity=wanted.capacity, total=wanted.total, promise=text)


def check_sums(location: str, terms: Terms[Any], blocks: Iterable[Mapping[str, PrivacyLoss]]) -> None:
    """Check the blocks of all streams of a group against the caps of the group.

    Raises
    ------
    LedgerDamaged
    """
    held = list(blocks)
    for block in SHARED_BLOCKS:
        spent = sum_of(each[block] for each in held if block in each)
        if not spent.fits(terms.cap(block)):
            raise LedgerDamaged(
                f"the streams of group {terms.group!r} have spent {spent} of block {block} together, "
                f"which is past the cap {terms.cap(block)}",
                where=location,
            )


@dataclass(frozen=True, slots=True)
class Standing:
    """One stream of a ledger, as far as sums over streams need it.

    Attributes
    ----------
    terms : Terms
    spent : PrivacyLoss
        What its most charged block has spent, other streams of its group left out.
    """

    terms: Terms[Any]
    spent: PrivacyLoss = _NOTHING
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """What somebody with records in all streams of a ledger can lose.

    Attributes
    ----------
    parts : dict of str to (PrivacyLoss, PrivacyLoss)
        Of each stream (all its keys) and of each group: the guarantee, and what was spent.
    groups : dict of str to list of str
        The streams of each group.

    Source
    ------
    Specification 8.6; proof 2.11; ours.
    """

    parts: dict[str, tuple[PrivacyLoss, PrivacyLoss]]
    groups: dict[str, list[str]]

    @classmethod
    def of(cls, streams: Iterable[Standing]) -> Together:
        """Add up streams; those of devices are left out, whose losses are per unit of distance."""
        shelves: dict[str, list[Standing]] = {}
        groups: dict[str, list[str]] = {}
        held = list(streams)
        accounts = {each.terms.root for each in held if each.terms.group is not None}
        for each in held:
            terms = each.terms
            if terms.unit == "device":
                continue
            name = f"group {terms.group!r}"
            if terms.group is None and terms.root in accounts and not each.is_retired:
                continue  # a key's stream, whose filter is in the group
            if terms.group is None:
                name = f"{terms.root!r} (retired)" if each.is_retired else repr(terms.root)
            else:
                groups.setdefault(name, []).append(terms.stream)
            shelves.setdefault(name, []).append(each)
        return cls({name: _part(held) for name, held in shelves.items()}, groups)

    @property
    def guarantee(self) -> PrivacyLoss:
        """The sum of the guarantees."""
        return sum_of(guarantee for guarantee, _ in self.parts.values())

    @property
    def spent(self) -> PrivacyLoss:
        """The sum of what was spent."""
        return sum_of(spent for _, spent in self.parts.values())


def _part(streams: Sequence[Standing]) -> tuple[PrivacyLoss, PrivacyLoss]:
    """Return the guarantee and the spent loss of one stream with all its keys, or of one group."""
    capacity = _largest(each.terms.capacity for each in streams)
    spent = sum_of(each.spent for each in streams)
    if streams[0].terms.group is not None:
        return capacity, spent
    if streams[0].terms.unit == "event":  # a record is under one key, and in the search for keys
        finder = part_name(streams[0].terms.root, "")
        keys = [each.spent for each in streams if each.terms.stream != finder]
        searches = sum_of(each.spent for each in streams if each.terms.stream == finder)
        return capacity, _largest(keys or [PrivacyLoss()]) + searches
    terms = streams[0].terms
    return (terms.guarantee if terms.promise != "{}" else sum_of(each.terms.capacity for each in streams)), spent


def _largest(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    held = [loss.parts for loss in losses]
    return PrivacyLoss(max(rho for rho, _ in held), max(delta for _, delta in held))
