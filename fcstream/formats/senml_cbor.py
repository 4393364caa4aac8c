"""SenML packs in CBOR (RFC 8428, section 6), in which integers stand for labels."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

import cbor2

from .batch import Schema
from .bounds import CBOR_TAGS, PACK_BYTES, max_rows
from .senml import BrokenPack, SenmlPacks
from .senml_entries import CODES, UsualCborPacks
from .typed import Untyped

_LABELS = {code: label for label, code in CODES.items()}
# A pack is read as the first of two items, of which the second one is this: so bytes that are left over are found.
_PAIR, _END = b"\x82", b"fcstream"
_TAIL = cbor2.dumps(_END)


def senml_cbor_messages(schema: Schema, *, joined: bool = False) -> SenmlPacks:
    """Make the decoder of packs in CBOR."""
    usual = None
    with suppress(Untyped):
        usual = None if joined else UsualCborPacks(schema, max_rows(len(schema.features)), _one_item, PACK_BYTES)
    return SenmlPacks(schema, cbor_pack, joined=joined, longest=PACK_BYTES, usual=usual)


def cbor_pack(body: bytes) -> Any:
    """Read a pack in CBOR, with labels as in JSON.

    Raises
    ------
    BrokenPack
    """
    pack = _one_item(body)
    if type(pack) is not list:
        raise BrokenPack
    return [_labeled(entry) for entry in pack]


def _one_item(body: bytes) -> Any:
    """Read the one data item of a message."""
    try:
        item, end = cbor2.loads(_PAIR + body + _TAIL, semantic_decoders=CBOR_TAGS)
        whole = type(end) is bytes and end == _END
    except Exception:  # what tags stand for is made by many libraries, whose errors are of many types
        raise BrokenPack from None
    if not whole:
        raise BrokenPack
    return item


def _labeled(entry: Any) -> dict[Any, Any]:
    if type(entry) is not dict:
        raise BrokenPack
    found = {}
    for label, value in entry.items():
        name = _LABELS.get(label, label) if type(label) is int else label
        if name in found:
            raise BrokenPack
        found[name] = float(value) if type(value) is Decimal and value.is_finite() else value
    return found
