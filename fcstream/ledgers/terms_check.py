"""Whether a ledger is about what a configuration says, and if not, which setting changed from what to what."""

from __future__ import annotations

import json
import logging
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..accounting.losses import PrivacyLoss
from ..errors import LedgerMismatch
from .base import Terms, part_name, root_of

LOG = logging.getLogger("fcstream.ledgers")
_LONGEST = 120  # characters of a value in a message
_ABSENT = object()


class SettingChange(NamedTuple):
    """One setting that is not what it was; a value is None where the key is left out."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"`{self.key}` changed from {_value_text(self.old)} to {_value_text(self.new)}"


def changes(old: str, new: str) -> list[SettingChange]:
    """Settings in which two canonical texts differ, by dotted key; items of lists by their `name`."""
    if old == new:
        return []
    before, after = _read(old), _read(new)
    if before is None or after is None:
        return [SettingChange("specification", old, new)]
    return list(_compared(before, after, ""))


def check_terms(location: str, found: Terms, wanted: Terms) -> None:
    """Refuse a configuration under which records that were charged would get a fresh budget, or a larger one.

    `location` is the path of the ledger's file, or the URL of a server without a login. `found` is what the ledger
    holds of the stream, or of another part of it: all parts of a stream have one unit, one specification and one
    budget, whatever their keys. Stricter caps pass: see `tightened`.

    Raises
    ------
    LedgerMismatch
        Says which setting changed from what to what.
    """
    subject = f"{location}, stream {found.stream!r}," if found.stream != wanted.stream else location
    if found.root != wanted.root:
        raise LedgerMismatch(
            f"{subject} is too like stream {wanted.stream!r}: names that differ in their letters' case only would be "
            "two budgets for one stream; write `stream.name` as it was"
        )
    different = changes(found.specification, wanted.specification)
    if found.unit != wanted.unit and not any(change.key == "stream.unit" for change in different):
        different.append(SettingChange("stream.unit", found.unit, wanted.unit))
    if different:
        ledger = "LEDGER" if "://" in location else shlex.quote(location)  # a server's location has no login
        raise LedgerMismatch(
            f"{subject} was made with another specification: {listed(different)}; the same records would get a fresh "
            f"budget: restore it, or give up the old one with "
            f"`fcstream budget retire {ledger} {shlex.quote(found.root)}`"
        )
    raised = _raised(found, wanted)
    if raised:
        raise LedgerMismatch(
            f"{subject} guarantees {_cap(found)}, for ever, the configuration says {_cap(wanted)}: {listed(raised)}; a "
            "cap that was promised cannot grow: restore `budget`"
        )


def check_keys_named(location: str, sibling_streams: Iterable[str], wanted: Terms) -> None:
    """Refuse keys that replace others: a budget that is divided among all keys is also held by former ones.

    A part that nothing was charged to counts too: whoever opened it may charge it next.

    Parameters
    ----------
    sibling_streams : iterable of str
        All parts of the stream, those of retired ones left out.

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
            f"{location} holds {len(former)} keys that `stream.keys` does not name any more, such as {former[0]!r}, "
            "and the budget was divided among all: name them again, or promise by `stream.keys_per_user` under how "
            "many keys, former ones too, one user's records lie"
        )


def tightened(found: Terms, wanted: Terms) -> Terms:
    """What a ledger is about once it has taken the stricter caps of a configuration that agrees with it."""
    return replace(found, capacity=wanted.capacity, total=wanted.total, promise=wanted.promise)


def log_tightened(location: str, found: Terms, wanted: Terms) -> None:
    """Log that a cap has shrunk: nothing but a retirement of the stream undoes that."""
    LOG.warning(
        "%s: the budget of stream %r, all its keys, is from now on and for ever %s for each part (it was %s)",
        location,
        found.root,
        _cap(wanted),
        _cap(found),
    )


def check_caps(location: str, wanted: Terms, spent: PrivacyLoss, total: PrivacyLoss) -> None:
    """Refuse caps below what was spent: that much is gone, and a smaller guarantee would be a lie.

    Parameters
    ----------
    spent : PrivacyLoss
        By the most charged block; with users, all that windows cost together, which nobody can have passed.
    total : PrivacyLoss
        By the plain sum.

    Raises
    ------
    LedgerMismatch
    """
    if not spent.fits(wanted.capacity) or (wanted.total is not None and not total.fits(wanted.total)):
        raise LedgerMismatch(
            f"{location}, stream {wanted.stream!r}, has spent {spent} already, the configuration says {_cap(wanted)}: "
            "a cap can be lowered to what is spent and no further; raise `budget`, or declare fewer keys"
        )


def folded_name(stream: str) -> str:
    """What names of streams have in common that must not stand for two streams of one ledger."""
    return unicodedata.normalize("NFKC", root_of(stream)).casefold().strip()


def _raised(found: Terms, wanted: Terms) -> list[SettingChange]:
    """Settings of the budget that are not what was promised or less."""
    fixed = found.unit == "device"  # its losses are no sums
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
    """The first few, for a message."""
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return ", ".join(map(str, different[:3])) + more


def _compared(old: Any, new: Any, key: str) -> list[SettingChange]:
    if old == new:
        return []
    if isinstance(old, list) and isinstance(new, list) and _names(old) == _names(new) is not None:
        old, new = ({item["name"]: item for item in items} for items in (old, new))
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [SettingChange(key, *(None if value is _ABSENT else value for value in (old, new)))]
    return [
        change
        for name in sorted({*old, *new})
        for change in _compared(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else name)
    ]


def _names(items: list[Any]) -> list[Any] | None:
    """Of sections that have names, if all have one of their own."""
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
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
