"""The chain of hashes over a ledger's rows, and the state that these rows lead to. No I/O.

Three rules detect a changed row, in whichever table it is:

- A journal row is bound to the row before it by its `link`. Row 0 holds the ledger's `Terms` and is linked to the
  ledger's salt; a later row of kind ``terms`` replaces them.
- A row of the summary tables (blocks, windows, settings) is stored with its `mark`, a hash of its columns, which is
  checked whenever the row is read.
- The head of the ledger holds the sum of all marks (modulo 2**60), kept up to date with every change. So a row that is
  missing, or an old one in place of the newest, is detected when the ledger is opened.

They detect accidents and careless edits, not an attacker: whoever can write the file can also compute hashes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..accounting.losses import PrivacyLoss
from ..errors import LedgerDamaged
from .base import EpochState, Row, Terms

State = tuple[str, int, int, int, str, int | None]
"""A window's state: its name, draws, rho and delta (less refunds), blocks, and the row of its seal."""
MASK = 2**60 - 1
TAIL = 1000
"""How many of the newest journal rows have their links checked when a ledger is opened."""
_JOINED = ["|".join(["%s"] * columns) for columns in range(16)]
_FIRST_BITS = struct.Struct(">Q").unpack_from
_OF_NOTHING = hashlib.sha256().digest()
_FEW_TERMS = 64
_TERMS: dict[tuple[bytes, bytes], Terms] = {}  # by the text before and after the stream's name


def origin(salt: bytes) -> bytes:
    """Return the hash that row 0 is linked to."""
    return hashlib.sha256(b"fcstream ledger|" + salt).digest()


def link(chain: bytes, row: Row) -> bytes:
    """Return the link of a row that follows the link `chain`."""
    head, body = (_JOINED[7] % row[:7]).encode(), row.body
    inner = hashlib.sha256(body).digest() if body else _OF_NOTHING
    return hashlib.sha256(chain + hashlib.sha256(head).digest() + inner).digest()


def mark(*columns: object) -> int:
    """Return 60 bits of the hash of a summary row, given as the table's first letter and the row's columns."""
    text = _JOINED[len(columns)] % columns
    (first,) = _FIRST_BITS(hashlib.sha256(text.encode()).digest())
    return int(first) >> 4


def state_mark(state: EpochState) -> int:
    """Return the mark beside what a window leaves for later ones."""
    return mark("e", *state[:3], hashlib.sha256(state.body).hexdigest())


def terms_body(terms: Terms) -> bytes:
    """Encode terms as canonical JSON, with specification and promise as objects where they are canonical JSON too."""
    caps = {name: None if cap is None else list(cap.parts) for name, cap in _caps(terms)}
    found = {
        "stream": terms.stream,
        "unit": terms.unit,
        "specification": _nested(terms.specification),
        "specification_hash": terms.specification_hash,
        "promise": _nested(terms.promise),
    }
    group = {} if terms.group is None else {"group": terms.group}
    return _canonical(found | caps | group).encode()


def retire_body(name: str, spent: PrivacyLoss, capacity: PrivacyLoss) -> bytes:
    """Encode the row that ends a stream: its new name, what was spent, and the capacity that is given up."""
    return _canonical({"capacity": capacity.parts, "name": name, "spent": spent.parts}).encode()


def listed_as(terms: Terms, last: Row) -> str:
    """Return the name under which a ledger lists a stream: its own name, or another one once it was retired."""
    return str(json.loads(last.body)["name"]) if last.kind == "retire" else terms.stream


def terms_of(location: str, body: bytes) -> Terms:
    """Decode a row of kind ``terms``; of many streams that differ in their names alone, all but the first quickly.

    Raises
    ------
    LedgerDamaged
    """
    head, sep, rest = body.rpartition(b',"stream":')
    name, _, tail = rest.partition(b',"total":')
    known = _TERMS.get((head, tail)) if sep else None
    if known is not None:  # of another stream with the same terms: all but the name has been read and checked
        try:
            stream = json.loads(name)
            if isinstance(stream, str) and _canonical(stream).encode() == name:
                return replace(known, stream=stream)
        except ValueError:
            pass
    terms = _read_terms(location, body)
    if len(_TERMS) >= _FEW_TERMS:
        _TERMS.clear()
    _TERMS[head, tail] = terms
    return terms


def _read_terms(location: str, body: bytes) -> Terms:
    try:
        found = json.loads(body)
        texts = [
            value if isinstance(value, str) else _canonical(value)
            for value in (found["specification"], found["promise"])
        ]
        total = None if found["total"] is None else PrivacyLoss(*found["total"])
        capacity, group = PrivacyLoss(*found["capacity"]), found.get("group")
        terms = Terms(found["stream"], found["unit"], capacity, texts[0], total, texts[1], group)
        if terms_body(terms) != body:
            raise LedgerDamaged(f"{location} is damaged: its terms disagree with their hash")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise LedgerDamaged(f"{location} is damaged: its terms cannot be read") from None
    return terms


class JournalReplay:
    """Follows a journal row by row, and then compares the tables with the state that its rows lead to.

    Parameters
    ----------
    location : str
        Path or URL of the ledger, for messages.
    salt : bytes
        What makes chains of equal streams differ; it lies in the ledger.

    Attributes
    ----------
    count : int
        Number of rows after row 0.
    """

    def __init__(self, location: str, salt: bytes) -> None:
        self.location = location
        self.count = -1
        self._chain = origin(salt)
        self._terms: Terms | None = None
        self._is_retired = False
        self._windows: dict[tuple[int, int], State] = {}
        self._blocks: dict[str, PrivacyLoss] = {}
        self._settings: dict[str, str] = {}

    def follow(self, row: Row, chain: bytes) -> None:
        """Check the next row against the link that was stored with it, and apply the row.

        Raises
        ------
        LedgerDamaged
            The row does not follow from the rows before it.
        """
        self.count += 1
        self._chain = link(self._chain, row)
        if row.seq != self.count or self._chain != chain:
            raise LedgerDamaged(f"journal row {row.seq} does not follow from the rows before it", where=self.location)
        if self._is_retired or (row.seq == 0) != (self._terms is None) or (row.seq == 0 and row.kind != "terms"):
            raise LedgerDamaged(f"journal row {row.seq} ({row.kind}) is out of order", where=self.location)
        try:
            self._follow(row)
        except LedgerDamaged:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LedgerDamaged(f"journal row {row.seq} ({row.kind}) cannot be read", where=self.location) from None

    def _follow(self, row: Row) -> None:
        if row.kind == "terms":
            self._agree(row)
        elif row.kind == "setting":
            self._keep(row)
        elif row.kind == "retire":
            self._is_retired = True
        else:
            self._step(row)

    def _step(self, row: Row) -> None:
        key = (row.open_ms, row.close_ms)
        after = _step(self._windows.get(key), row)
        if after is None:
            raise LedgerDamaged(
                f"journal row {row.seq} ({row.kind}) is out of order for window {row.open_ms}", where=self.location
            )
        self._windows[key] = after
        if row.kind == "charge":
            self._charge(row)
        elif row.kind == "seal" and (row.rho or row.delta):
            self._refund(row, after[4])

    def _agree(self, row: Row) -> None:
        """Apply new terms, which may only lower caps, and not below what was charged."""
        old, new = self._terms, terms_of(self.location, row.body)
        self._terms = new
        if old is None:
            return
        fixed = [(each.stream, each.unit, each.specification, each.group) for each in (old, new)]
        caps = zip(_caps(old), _caps(new), strict=True)
        if fixed[0] != fixed[1] or not all(_is_within(after, before) for (_, before), (_, after) in caps):
            raise LedgerDamaged(f"journal row {row.seq} raises a cap or changes a specification", where=self.location)
        for block, spent in self._blocks.items():
            if not spent.fits(new.cap(block)):
                raise LedgerDamaged(
                    f"journal row {row.seq} takes the cap below what block {block} spent", where=self.location
                )

    def _keep(self, row: Row) -> None:
        if row.blocks in self._settings:
            raise LedgerDamaged(
                f"journal row {row.seq} keeps setting {row.blocks!r} a second time", where=self.location
            )
        self._settings[row.blocks] = row.body.decode()

    def _charge(self, row: Row) -> None:
        assert self._terms is not None
        loss = PrivacyLoss(row.rho, row.delta)
        for block in filter(None, row.blocks.split(",")):
            total = self._blocks.get(block, PrivacyLoss()) + loss
            if not total.fits(self._terms.cap(block)):
                raise LedgerDamaged(f"journal row {row.seq} takes block {block} past its capacity", where=self.location)
            self._blocks[block] = total

    def _refund(self, row: Row, blocks: str) -> None:
        refund = PrivacyLoss(row.rho, row.delta)
        for block in filter(None, blocks.split(",")):
            if not refund.fits(self._blocks[block]):
                raise LedgerDamaged(
                    f"journal row {row.seq} refunds more than block {block} has spent", where=self.location
                )
            self._blocks[block] = self._blocks[block] - refund

    def compare(
        self,
        terms: Terms,
        windows: Iterable[tuple[int, int, State]],
        blocks: Iterable[tuple[str, int, int]],
        settings: Mapping[str, str],
    ) -> None:
        """Check the tables: windows (opening, close, state), blocks (name, rho, delta), settings.

        Raises
        ------
        LedgerDamaged
            The message names the first part that disagrees.
        """
        if terms != self._terms:
            raise LedgerDamaged("its terms disagree with the journal", where=self.location)
        for block, rho, delta in blocks:
            spent = self._blocks.pop(block, None)
            if spent is None or (rho, delta) != spent.parts:
                raise LedgerDamaged(f"block {block} disagrees with the journal", where=self.location)
        for opens, closes, state in windows:
            if state != self._windows.pop((opens, closes), None):
                raise LedgerDamaged(f"window {opens} disagrees with the journal", where=self.location)
        if self._blocks or self._windows:
            raise LedgerDamaged("blocks or windows of the journal are missing from their tables", where=self.location)
        if settings != self._settings:
            raise LedgerDamaged("the settings disagree with the journal", where=self.location)


def _step(state: State | None, row: Row) -> State | None:
    """Apply one row to a window's state; None if no such row may follow that state."""
    if row.kind == "charge" and state is None:
        return "charged", 1, row.rho, row.delta, row.blocks, None
    if row.kind == "seal" and state is None and row.rho == row.delta == 0:
        return "sealed", 0, 0, 0, "", row.seq
    if state is None:
        return None
    name, draws, rho, delta, blocks, sealed = state
    if row.kind == "again" and name == "charged":
        return name, draws + 1, rho, delta, blocks, sealed
    refundable = (row.rho <= rho and row.delta <= delta) if draws == 1 else row.rho == row.delta == 0
    if row.kind == "seal" and name == "charged" and refundable:
        return "sealed", draws, rho - row.rho, delta - row.delta, blocks, row.seq
    if row.kind == "acknowledge" and name == "sealed":
        return "acknowledged", draws, rho, delta, blocks, sealed
    return None


def _caps(terms: Terms) -> list[tuple[str, PrivacyLoss | None]]:
    return [("capacity", terms.capacity), ("total", terms.total)]


def _is_within(cap: PrivacyLoss | None, other: PrivacyLoss | None) -> bool:
    return cap == other or (cap is not None and other is not None and cap.fits(other))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _nested(text: str) -> object:
    """Decode a text that is the canonical JSON of an object; return any other text as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and _canonical(value) == text else text
