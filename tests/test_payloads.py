"""Bodies of messages: what they hold, and hostile ones."""

import json

import msgspec
import numpy as np
import pytest

from fcstream.errors import ConfigError
from fcstream.payloads import LONGEST_MESSAGE, decoder_for
from fcstream.records import Schema

SCHEMA = Schema("ts", "ms", ("a", "b"))
USERS = Schema("ts", "ms", ("a", "b"), "id")


def packed(times, values):
    rows = np.zeros(len(times), [("t", "<i8"), ("v", "<f8", (2,))])
    rows["t"], rows["v"] = times, values
    return rows.tobytes()


def arrow(**columns):
    pa = pytest.importorskip("pyarrow")
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def reasons(batch):
    return [(r.position, r.reason, r.field) for r in batch.rejections]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_objects(codec):
    encode = msgspec.json.encode if codec == "json" else msgspec.msgpack.encode
    rows = [
        {"ts": 1, "a": 1.5, "b": 2, "id": "x"},
        {"ts": 2, "a": 1.5, "b": "2", "id": "x"},
        {"ts": 3, "a": None, "b": 2, "id": "x"},
        {"ts": 4, "a": 1, "b": 2, "id": 7, "more": [1, 2]},
        [1, 2],
    ]
    batch = decoder_for(codec, USERS).decode([encode(row) for row in rows] + [b"", b"\xff\xfe", b"x" * 50], 10)
    assert batch.times_ms.tolist() == [1, 4]
    assert batch.values.tolist() == [[1.5, 2.0], [1.0, 2.0]]
    assert batch.positions.tolist() == [10, 13]
    assert batch.users.tolist() == ["x", "7"]
    assert reasons(batch)[:3] == [(11, "not_a_number", "b"), (12, "missing", "a"), (14, "broken_record", None)]
    assert {position for position, *_ in reasons(batch)} == {11, 12, 14, 15, 16, 17}


def test_packed_floats():
    one, two = packed([1, 2, 3], [[1, 2], [3, 4], [5, np.nan]]), packed([4], [[7, 8]])
    batch = decoder_for("floats", SCHEMA).decode([one, b"", one[:-1], two, packed([2**60], [[0, 0]])], 5)
    assert batch.times_ms.tolist() == [1, 2, 3, 4]
    assert batch.positions.tolist() == [5, 5, 5, 8]
    assert batch.values[:2].tolist() == [[1, 2], [3, 4]]
    assert np.isnan(batch.values[2, 1])  # the engine's range check refuses it
    assert reasons(batch) == [(6, "broken_record", None), (7, "broken_record", None), (9, "bad_time", None)]


def test_arrow_blocks():
    good = arrow(b=[2.0, 4.0], ts=[1, 2], a=[1, 3], extra=["p", "q"])
    odd = arrow(ts=[3, None, 5, 6], a=[1.0, 1.0, None, float("nan")], b=[1, 1, 1, 1])
    batch = decoder_for("arrow", SCHEMA).decode(
        [good, odd, b"junk", arrow(ts=[1], a=["x"], b=[1]), arrow(ts=[1], a=[1])], 0
    )
    assert batch.times_ms.tolist() == [1, 2, 3]
    assert batch.values.tolist() == [[1, 2], [3, 4], [1, 1]]
    assert batch.positions.tolist() == [0, 0, 1]
    assert reasons(batch) == [
        (1, "missing", "ts"),
        (1, "missing", "a"),
        (1, "not_finite", "a"),
        (2, "broken_record", None),
        (3, "not_a_number", "a"),
        (4, "missing", "b"),
    ]
    users = decoder_for("arrow", USERS).decode([arrow(ts=[1, 2], a=[1, 1], b=[1, 1], id=["x", None])], 0)
    assert users.users.tolist() == ["x"]
    assert decoder_for("arrow", SCHEMA).decode([], 0).times_ms.tolist() == []


@pytest.mark.parametrize("codec", ["json", "msgpack", "floats", "arrow"])
def test_hostile_messages_are_one_rejection_each(codec):
    """Huge, deeply nested, random or truncated: none raises, none touches its neighbors."""
    rng = np.random.default_rng(0)
    whole = {
        "json": json.dumps({"ts": 1, "a": 1, "b": 2}).encode(),
        "msgpack": msgspec.msgpack.encode({"ts": 1, "a": 1, "b": 2}),
        "floats": packed([1], [[1, 2]]),
        "arrow": arrow(ts=[1], a=[1], b=[2]) if codec == "arrow" else b"",
    }[codec]
    hostile = [b"[" * 200_000, b"\x91" * 200_000, b"\x00" * (LONGEST_MESSAGE + 1), b"", whole[: len(whole) // 2]]
    hostile += [rng.bytes(int(n)) for n in rng.integers(1, 300, 200) if codec != "floats" or n % 24]
    bodies = [body for pair in zip(hostile, [whole] * len(hostile), strict=True) for body in pair]
    batch = decoder_for(codec, SCHEMA).decode(bodies, 0)
    assert set(range(1, len(bodies), 2)) <= set(batch.positions.tolist())
    refused = {position for position, *_ in reasons(batch)}
    assert {0, 2, 4, 6, 8} - refused <= ({0, 2} if codec == "floats" else set())


def test_formats_that_cannot_be():
    with pytest.raises(ConfigError, match="must be one of"):
        decoder_for("xml", SCHEMA)
    with pytest.raises(ConfigError, match="no users"):
        decoder_for("floats", USERS)
