"""SenML (RFC 8428) in JSON and CBOR: packs of measurements whose names, times and values continue base values.

No library of the package index that resolves packs is kept up, so this is our own; JSON is read by msgspec, CBOR by
cbor2.

Every entry of a pack is a record with the labels of a resolved one: ``n`` (base name and name), ``t``, ``u``, ``v``
(base value and value), ``vs``, ``vb``, ``vd`` and ``s`` (base sum and sum), besides ``bn``. An entry that only sets
base values is none. With ``joined``, entries with one base name and one time are one record: ``bn``, ``bt`` (their
time), and every measurement under its own name, or as ``v`` if it has none but the base name.

Times are absolute, in seconds. A time below 2**28, or none at all, is relative to when the pack is read, so such a
record has no ``t``: ``time = "@broker"`` reads the time of arrival instead.

A base value shapes what follows it in its pack. So a pack that cannot be resolved is rejected whole: one with a base
value of a wrong type or of more than 1024 characters, a version above 10, or a label that must be understood (it ends
in ``_``) and is not. Any other fault rejects its own record alone, two values for instance.

Source
------
RFC 8428, sections 4 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from .batch import LONGEST_LABEL, Batch, Rejection, Schema, concatenated, merge
from .bounds import SENML_BYTES, max_rows
from .envelopes import Envelope
from .fields import RecordReader
from .rejections import tallied
from .senml_entries import RELATIVE_BELOW, VALUES, VERSION, UsualJsonPacks, UsualPacks
from .typed import Untyped

_TOGETHER, _BYTES_TOGETHER = 512, 2**18
_PLAIN = frozenset({*VALUES, "n", "u", "s", "t", "ut"})
_BASES = {"bn": str, "bt": float, "bu": str, "bv": float, "bs": float, "bver": float}


class BrokenPack(ValueError):
    """A pack that cannot be resolved."""


def senml_messages(schema: Schema, *, joined: bool = False) -> SenmlPacks:
    """Make the decoder of packs in JSON."""
    usual = None
    with suppress(Untyped):
        usual = None if joined else UsualJsonPacks(schema, max_rows(len(schema.features)))
    return SenmlPacks(schema, json_pack, joined=joined, usual=usual)


class SenmlPacks:
    """Decoder of messages that hold one SenML pack each; of a pack at most `max_rows` entries are read.

    Parameters
    ----------
    schema : Schema
    parse : callable
        Reads a message; raises ValueError, RecursionError or a msgspec.DecodeError.
    joined : bool
        Whether entries with one base name and one time are one record.
    longest : int
        Most bytes of a message.
    usual : UsualPacks, optional
        Reads packs that are as usual, with the same result.
    """

    def __init__(
        self,
        schema: Schema,
        parse: Callable[[bytes], Any],
        *,
        joined: bool = False,
        longest: int = SENML_BYTES,
        usual: UsualPacks | None = None,
    ) -> None:
        schema.refuse_elements("packs of SenML")
        self._reader = RecordReader(schema)
        self._parse = parse
        self._labels = self._reader.plain_fields
        self._joined = joined
        self._longest = longest
        self._most = max_rows(len(schema.features))
        self._usual = usual

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Decode messages, the first of which has `first_position`; all records of a message share its position."""
        if self._usual is None:
            return self._resolved(lines, range(len(lines)), first_position, envelopes)
        batches = []
        for some in _groups(lines):
            batch, others = self._usual.read(lines[some], first_position + some.start, envelopes[some])
            if others:
                numbers = [some.start + i for i in others]
                batch = merge(batch, self._resolved(lines, numbers, first_position, envelopes))
            batches.append(batch)
        return concatenated(batches or [self._resolved([], [], first_position, ())])

    def _resolved(
        self, lines: Sequence[bytes], numbers: Iterable[int], first_position: int, envelopes: Sequence[Envelope]
    ) -> Batch:
        """Decode some of the messages, one after the other."""
        batches: list[Batch] = []
        records: list[dict[str, Any]] = []
        owners: list[int] = []
        rejections: list[Rejection] = []
        for i in numbers:
            body = lines[i]
            found = self._records(body, first_position + i, rejections)
            records += found
            owners += [i] * len(found)
            if len(records) >= _TOGETHER:
                batches.append(self._read(records, owners, first_position, envelopes))
                records, owners = [], []
        batch = concatenated([*batches, self._read(records, owners, first_position, envelopes)])
        if rejections:
            batch.rejections = tallied(batch.rejections + rejections)
        return batch

    def _read(
        self, records: list[dict[str, Any]], owners: list[int], first_position: int, envelopes: Sequence[Envelope]
    ) -> Batch:
        positions = first_position + np.array(owners, np.int64)
        if self._labels is not None:
            cells = {name: [record.get(label) for record in records] for name, label in self._labels.items()}
            return self._reader.read_cells(cells, positions)
        return self._reader.read(records, positions, [envelopes[owner] for owner in owners] if envelopes else ())

    def _records(self, body: bytes, position: int, rejections: list[Rejection]) -> list[dict[str, Any]]:
        """Return the records of a message; append a rejection if it is no pack, or too long."""
        if len(body) > self._longest:
            rejections.append(Rejection("too_long", position))
            return []
        try:
            pack = self._parse(body)
            if type(pack) is list and len(pack) > self._most:
                rejections.append(Rejection("too_long", position))
                pack = pack[: self._most]
            found = resolved(pack)
        except (ValueError, RecursionError, msgspec.DecodeError):
            rejections.append(Rejection("broken_record", position))
            return []
        if two := sum(map(_has_two_values, found)):
            rejections.append(Rejection("two_values", position, None, two))
            found = [record for record in found if not _has_two_values(record)]
        return join_measurements(found) if self._joined else found


def _has_two_values(record: dict[str, Any]) -> bool:
    return sum(label in record for label in VALUES) > 1


def _groups(lines: Sequence[bytes]) -> Iterator[slice]:
    """Yield groups of messages that are short together."""
    start = size = 0
    for i, line in enumerate(lines):
        size += len(line)
        if size >= _BYTES_TOGETHER:
            yield slice(start, i + 1)
            start, size = i + 1, 0
    if start < len(lines):
        yield slice(start, len(lines))


def json_pack(body: bytes) -> Any:
    """Read a pack in JSON."""
    return _JSON(body)


_JSON = msgspec.json.Decoder().decode


def resolved(pack: Any) -> list[dict[str, Any]]:
    """Return the resolved records of a pack.

    Raises
    ------
    BrokenPack
    """
    if type(pack) is not list or not pack:
        raise BrokenPack
    base: dict[str, Any] = {}
    bn: str = ""
    bt = 0.0
    bu = bv = bs = None
    records: list[dict[str, Any]] = []
    for entry in pack:
        if type(entry) is not dict:
            raise BrokenPack
        record = entry
        if not _PLAIN.issuperset(entry):
            record = _split(entry, base)
            bn, bt, bu = base.get("bn", ""), base.get("bt", 0.0), base.get("bu")
            bv, bs = base.get("bv"), base.get("bs")
            if not record:
                continue
        name, time = record.get("n", ""), record.get("t", 0.0)
        record["n"] = bn + name if type(name) is str else name
        record["bn"] = bn
        time = bt + time if type(time) is float else _sum(bt, time)
        record["t"] = None if type(time) is float and time < RELATIVE_BELOW else time
        if bu is not None and "u" not in record:
            record["u"] = bu
        if bv is not None and not ("vs" in record or "vb" in record or "vd" in record):
            record["v"] = _sum(bv, record.get("v", 0))
        if bs is not None:
            record["s"] = _sum(bs, record.get("s", 0))
        records.append(record)
    return records


def _split(entry: dict[Any, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Note the base values of an entry; return its other labels, which are none of a record that only sets them."""
    record: dict[str, Any] = {}
    for label, value in entry.items():
        if label in _PLAIN:
            record[label] = value
        elif label in _BASES:
            kind = _BASES[label]
            if type(value) is not kind and (kind is str or not _is_number(value)):
                raise BrokenPack
            if kind is str and len(value) > LONGEST_LABEL:
                raise BrokenPack  # each entry would hold a copy of it
            if label == "bver" and value > VERSION:
                raise BrokenPack
            base[label] = value if kind is str else _sum(0.0, value)
        elif type(label) is str and label.endswith("_"):
            raise BrokenPack
    if not record and ("bv" in entry or "bs" in entry or not any(label in _BASES for label in entry)):
        record["n"] = ""
    return record


def _sum(base: Any, value: Any) -> Any:
    """Add a base value; what is no number is returned as it is, and rejected where it is asked for."""
    if not _is_number(value):
        return value
    try:
        return float(base) + float(value)
    except OverflowError:
        return float("inf")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def join_measurements(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one record for the measurements of each base name and time; a name that comes again begins another."""
    found: list[dict[str, Any]] = []
    open_records: dict[tuple[str, Any], dict[str, Any]] = {}
    for record in records:
        at = (record["bn"], record["t"] if type(record["t"]) is float else None)
        name = record["n"]
        own = (name.removeprefix(record["bn"]) if type(name) is str else "") or "v"
        value = next((record[label] for label in VALUES if label in record), None)
        current = open_records.get(at)
        if current is None or own in current:
            current = open_records[at] = {"bn": record["bn"], "bt": record["t"]}
            found.append(current)
        current[own] = value
    return found
