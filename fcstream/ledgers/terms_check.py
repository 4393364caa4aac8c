"""Checks that a configuration agrees with the terms in its ledger; a refusal names every setting that changed."""

from __future__ import annotations

import json
import logging
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..accounting.losses import PrivacyLoss
from ..errors import LedgerMismatch
from .base import Terms, part_name, root_of
from .groups import Standing, Together

LOG = logging.getLogger("fcstream.ledgers")
_LONGEST = 120  # characters of a value in a message
_ABSENT = object()


class SettingChange(NamedTuple):
    """One setting whose value differs between two texts; a value is None if the text lacks the key.

    With `is_item` it is a section that has a name, such as one of several answers, and only one text has it.
    """

    key: str
    old: Any
    new: Any
    is_item: bool = False

    def __str__(self) -> str:
        if self.is_item:
            return f"`{self.key}` was {'added' if self.old is None else 'dropped'}"
        old, new = _value_text(self.old), _value_text(self.new)
        start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        if max(len(old), len(new)) > _LONGEST and start > _LONGEST // 2:  # they would be cut where they are the same
            old, new = (f"...{text[start - _LONGEST // 4 :]}" for text in (old, new))
        return f"`{self.key}` changed from {_cut(old)} to {_cut(new)}"


def changes(old: str, new: str) -> list[SettingChange]:
    """List the settings in which two canonical texts differ, by dotted key; items of a list are matched by `name`."""
    if old == new:
        return []
    before, after = _read(old), _read(new)
    if before is None or after is None:
        return [SettingChange("specification", old, new)]
    return list(_compared(before, after, ""))


def check_terms(location: str, found: Terms, wanted: Terms) -> None:
    """Refuse a configuration under which records that were charged would get a fresh budget, or a larger one.

    `location` is the path of the ledger's file, or the URL of a server without a login. `found` holds the terms that
    the ledger has for this stream or for one of its sibling streams: siblings share one unit, one specification and
    one budget, whatever their keys. Stricter caps are accepted: see `tightened`.

    Raises
    ------
    LedgerMismatch
        The terms disagree; the message names each changed setting with its old and its new value.
    """
    subject = f"{location}, stream {found.stream!r}," if found.stream != wanted.stream else location
    if found.root != wanted.root:
        raise LedgerMismatch(
            f"{subject} is too like stream {wanted.stream!r}: names that differ only in the case or "
            "width of letters would give one stream two budgets",
            remedy="write `stream.name` as before",
        )
    different = changes(found.specification, wanted.specification)
    if found.unit != wanted.unit and not any(change.key == "stream.unit" for change in different):
        different.append(SettingChange("stream.unit", found.unit, wanted.unit))
    if different:
        ledger = "LEDGER" if "://" in location else shlex.quote(location)  # a server's location has no login
        raise LedgerMismatch(
            f"{subject} was made with another specification: {listed(different)}; the same records "
            "would get a fresh budget",
            remedy=f"restore it, or give up the old one with `fcstream budget retire {ledger} "
            f"{shlex.quote(found.root)}`",
        )
    raised = _raised(found, wanted)
    if raised:
        raise LedgerMismatch(
            f"{subject} guarantees {_cap(found)} for ever, but the configuration says "
            f"{_cap(wanted)}: {listed(raised)}; a cap that was promised cannot grow",
            remedy="restore `budget`",
        )


def check_keys_named(location: str, sibling_streams: Iterable[str], wanted: Terms) -> None:
    """Refuse keys that replace earlier ones: if all keys share one budget, earlier keys hold their shares of it.

    A sibling stream counts even if nothing was charged to it yet: the process that opened it may charge it next.

    Parameters
    ----------
    sibling_streams : iterable of str
        Names of all sibling streams in the ledger, except retired ones.

    Raises
    ------
    LedgerMismatch
    """
    if wanted.shared_keys is None:
        return
    ours = {part_name(wanted.root, key) for key in wanted.shared_keys}
    former = sorted(name for name in sibling_streams if name not in ours)
    if former:
        raise LedgerMismatch(
            f"{location} holds {len(former)} keys that `stream.keys` does not name any more, such as "
            f"{former[0]!r}, and they hold a share of the budget",
            remedy="name them again, or promise by `stream.keys_per_user` how many keys, earlier "
            "ones included, the records of one user can have",
        )


def tightened(found: Terms, wanted: Terms) -> Terms:
    """Return the terms of a ledger after it has accepted the stricter caps of a configuration that agrees with it."""
    return replace(found, capacity=wanted.capacity, total=wanted.total, promise=wanted.promise)


def log_tightened(location: str, found: Terms, wanted: Terms) -> None:
    """Log that a cap was lowered, since nothing but retiring the stream undoes that."""
    if (found.capacity, found.total) == (wanted.capacity, wanted.total):
        return
    LOG.warning(
        "%s: the budget of stream %r, all its keys, is from now on and for ever %s for each part (it was %s)",
        location,
        found.root,
        _cap(wanted),
        _cap(found),
    )


def tell_of_a_new_stream(location: str, terms: Terms, others: Sequence[Standing]) -> None:
    """Warn that a stream is new in a ledger that holds others: what it spends is not part of their budgets."""
    live = [each for each in others if not each.is_retired]
    if not live or terms.unit == "device":
        return
    after = Together.of([*others, Standing(terms)])
    if terms.group is not None and f"group {terms.group!r}" in Together.of(others).parts:
        own = f"and shares the filters of group {terms.group!r}"
    else:
        own = (
            "with a budget of its own: if it was renamed, what it has spent counts under its old name only; "
            "`budget.group` lets streams share one"
        )
    LOG.warning(
        "%s holds %s; stream %r is new there, %s; somebody with records in all of them can lose %s together",
        location,
        some(repr(each.terms.stream) for each in live),
        terms.stream,
        own,
        after.guarantee,
    )


def some(names: Iterable[str]) -> str:
    """List the first names, in order."""
    held = sorted(names)
    return ", ".join(held[:20]) + (", ..." if len(held) > 20 else "")


def check_caps(location: str, wanted: Terms, spent: PrivacyLoss, total: PrivacyLoss) -> None:
    """Refuse caps below what was spent already, since a smaller guarantee would be false.

    Parameters
    ----------
    spent : PrivacyLoss
        What the most charged block has spent.
    total : PrivacyLoss
        What all windows cost together.

    Raises
    ------
    LedgerMismatch
    """
    if not spent.fits(wanted.capacity) or (wanted.total is not None and not total.fits(wanted.total)):
        raise LedgerMismatch(
            f"{location}, stream {wanted.stream!r}: it has spent {spent} already, but the "
            f"configuration says {_cap(wanted)}: a cap cannot be lowered below what is spent",
            remedy="raise `budget`, or declare fewer keys",
        )


def folded_name(stream: str) -> str:
    """Normalize a stream's name; two streams of one ledger must not have the same normalized name."""
    return unicodedata.normalize("NFKC", root_of(stream)).casefold().strip()


def _raised(found: Terms, wanted: Terms) -> list[SettingChange]:
    """List the settings of the budget that are larger than was promised, or that may not change at all."""
    fixed = found.unit == "device"  # losses of devices are not plain sums, so that caps cannot be compared
    raised = []
    old, new = ((_read(terms.promise) or {}).get("budget", {}) for terms in (found, wanted))
    for name in ("rho", "delta", "total_rho", "total_delta"):
        before, after = old.get(name), new.get(name)
        if before != after and (fixed or before is None or after is None or after > before):
            raised.append(SettingChange(f"budget.{name}", before, after))
    for name, before, after in (
        ("capacity", found.capacity, wanted.capacity),
        ("total", found.total, wanted.total),
    ):
        if before != after and (fixed or before is None or after is None or not after.fits(before)) and not raised:
            raised.append(SettingChange(f"{name} of each part", _of(before), _of(after)))
    return raised


def _cap(terms: Terms) -> str:
    return f"{terms.capacity}" if terms.total is None else f"{terms.capacity} with a total of {terms.total}"


def _of(cap: PrivacyLoss | None) -> str | None:
    return None if cap is None else str(cap)


def listed(different: list[SettingChange]) -> str:
    """Format the first few changes for a message."""
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return ", ".join(map(str, different[:3])) + more


def _compared(old: Any, new: Any, key: str) -> list[SettingChange]:
    if old == new:
        return []
    if isinstance(old, list) or isinstance(new, list):
        items = [value if isinstance(value, list) else [value] for value in (old, new)]
        before, after = map(_names, items)
        if before is not None and after is not None:
            return list(_compared_items(items[0], items[1], key))
        if key == "release":  # one answer needs no name
            old, new = (names or "one answer without a name" for names in (before, after))
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [SettingChange(key, None if old is _ABSENT else old, None if new is _ABSENT else new)]
    return [
        change
        for name in sorted({*old, *new})
        for change in _compared(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else name)
    ]


def _compared_items(old: list[Any], new: list[Any], key: str) -> Iterator[SettingChange]:
    """Compare two lists of sections that have names: those of one name, those that only one list has, their order."""
    before, after = ({item["name"]: item for item in items} for items in (old, new))
    for name in dict.fromkeys([*before, *after]):
        named = f"{key}[{name}]" if key == "release" else f"{key}.{name}"
        if name in before and name in after:
            yield from _compared(before[name], after[name], named)
        else:
            yield SettingChange(named, before.get(name), after.get(name), is_item=True)
    orders = [[name for name in one if name in other] for one, other in ((before, after), (after, before))]
    if orders[0] != orders[1]:
        yield SettingChange(f"order of {key}", orders[0], orders[1])


def _names(items: list[Any]) -> list[Any] | None:
    """Return the names of the list's items, or None unless each item has a name that no other one has."""
    names = [item.get("name") for item in items if isinstance(item, Mapping)]
    return names if len(names) == len(items) == len(set(names)) and None not in names else None


def _read(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None


def _value_text(value: Any) -> str:
    if value is None:
        return "its default"
    return repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
