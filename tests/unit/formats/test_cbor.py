"""CBOR against a slow twin, and bytes that nobody should send."""

import math
import random
from datetime import UTC, datetime
from decimal import Decimal

import cbor2
import pytest
from support.fuzz import shaken, told
from support.slow_path import batch_from_rows

from fcstream.formats.batch import REASONS, Rejection, Schema
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for

NOW = 1_760_000_000_000
SCHEMAS = {
    "plain": Schema("at", "ms", ("a",)),
    "user": Schema("at", "ms", ("a", "b"), "who", levels={"b": {"off": 0, "on": 1, True: 1}}),
    "nested": Schema("at", "ms", ("a",), paths={"a": FieldPath(("data", 0, "x"))}),
}
ODD = [None, True, 0, -1, 2**70, 1.5, math.nan, math.inf, "", "on", "text", b"bytes", [], [{"x": 2.5}], {}, {"x": 1}]


def drawn(rng):
    row = {"at": NOW, "a": 1.5, "b": "on", "who": "anna", "data": [{"x": 1.5}]}
    for _ in range(rng.choice([0, 1, 2])):
        row[rng.choice(list(row))] = rng.choice(ODD)
    if rng.random() < 0.2:
        del row[rng.choice(list(row))]
    return row


@pytest.mark.parametrize("kind", SCHEMAS)
def test_messages_are_read_as_the_slow_twin_reads_them(kind):
    rng, schema = random.Random(kind), SCHEMAS[kind]
    rows = [drawn(rng) for _ in range(1000)]
    batch = decoder_for("cbor", schema).decode(list(map(cbor2.dumps, rows)), 3)
    names = (schema.time, *schema.features, *schema.labels)
    for i, row in enumerate(rows):
        found = {name: schema.place(name).find(row) for name in names}
        assert told(batch, 3 + i) == told(batch_from_rows([found], [3 + i], schema), 3 + i), row


@pytest.mark.parametrize("kind", SCHEMAS)
def test_whatever_comes_nothing_is_raised(kind):
    rng, decoder = random.Random(kind), decoder_for("cbor", SCHEMAS[kind])
    for _ in range(10_000 // 40 // len(SCHEMAS)):
        group = [shaken(rng, cbor2.dumps(drawn(rng))) for _ in range(39)] + [rng.randbytes(rng.randrange(40))]
        batch = decoder.decode(group, 100)
        assert {each.reason for each in batch.rejections} <= set(REASONS)
        for i in rng.sample(range(40), 3):
            assert told(decoder.decode([group[i]], 5), 5) == told(batch, 100 + i)


def test_tagged_times_and_numbers():
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    bodies = [cbor2.dumps({"at": at, "a": Decimal("21.5")}) for at in (moment, cbor2.CBORTag(1, 1767268800), None)]
    batch = decoder_for("cbor", SCHEMAS["plain"]).decode(bodies, 0)
    assert batch.times_ms.tolist() == [1_767_268_800_000] * 2
    assert batch.values.tolist() == [[21.5]] * 2
    assert batch.rejections == [Rejection("missing", 2, "at")]


def test_exactly_one_item_is_a_message():
    whole = cbor2.dumps({"at": NOW, "a": 1.5})
    hostile = [
        *(whole + whole, whole + b"\0", whole[:-1], b"", b"\x81" * 10**5, b"\xc1" * 10**5, b"\x82" + whole),
        *(b"\x9b" + b"\xff" * 8, b"\x5b\x7f" + b"\xff" * 7, b"\xd8\x23\x61(", b"\xc4\x82\x1a\x00\xff\xff\xff\x01"),
        *(b"\xff", cbor2.dumps({"at": NOW, "a": 1.5, 7: 1}), whole + cbor2.dumps(b"fcstrean"), b"\xd8\x1d\x00"),
    ]
    batch = decoder_for("cbor", SCHEMAS["plain"]).decode([whole, *hostile], 0)
    assert batch.positions.tolist() == [0]
    assert batch.rejections == [Rejection("broken_record", i + 1) for i in range(len(hostile))]
