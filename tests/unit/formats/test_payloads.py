"""Bodies of messages: what they hold, and hostile ones."""

import gzip
import io
import json
import math
import random
import struct
import zlib
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from support.fuzz import shaken, told
from support.payloads import arrow, packed

from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.formats.arrow import ArrowBlocks
from fcstream.formats.batch import Schema
from fcstream.formats.bounds import ARROW_BATCHES, LONGEST_MESSAGE, READ_AT_ONCE, max_rows
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for, read_messages
from fcstream.planning.plan import plan

SCHEMA = Schema("ts", "ms", ("a", "b"))
USERS = Schema("ts", "ms", ("a", "b"), "id")


def reasons(batch):
    return [(r.position, r.reason, r.field) for r in batch.rejections for _ in range(r.count)]


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
    assert batch.times_ms.tolist() == [1, 2, 3, 1, 2, 4]
    assert batch.positions.tolist() == [5, 5, 5, 7, 7, 8]
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
        (1, "missing", "a"),
        (2, "broken_record", None),
        (3, "not_a_number", "a"),
        (4, "missing", "b"),
    ]
    users = decoder_for("arrow", USERS).decode([arrow(ts=[1, 2], a=[1, 1], b=[1, 1], id=["x", None])], 0)
    assert users.users.tolist() == ["x"]
    assert decoder_for("arrow", SCHEMA).decode([], 0).times_ms.tolist() == []


@pytest.mark.slow
def test_arrow_messages_of_one_schema_are_read_together_as_each_alone(monkeypatch):
    pa, draw = pytest.importorskip("pyarrow"), random.Random(5)
    decoder = ArrowBlocks(USERS, 5)
    alone = []
    monkeypatch.setattr(decoder, "_message", lambda *given: (alone.append(1), ArrowBlocks._message(decoder, *given))[1])

    def body(rows):
        ids = pa.array([draw.choice(["x", "é", "", None]) for _ in range(rows)], pa.string())
        a, b = np.array([draw.choice([1.5, math.nan]) for _ in range(rows)]), np.ones(rows)
        return arrow(ts=np.arange(rows), a=a, b=b, id=ids)

    for part in (0.0, 0.1, 0.5):
        for _ in range(40):
            group = [body(draw.choice([0, 1, 3, 5])) for _ in range(8)]
            group = [shaken(draw, one) if draw.random() < part else one for one in group]
            alone.clear()
            found = decoder.decode(group, 3)
            assert part or not alone
            for i, one in enumerate(group):
                if decoder._refusal(one) is None:
                    assert told(found, 3 + i) == told(ArrowBlocks._message(decoder, one, 3 + i), 3 + i)
    assert found.positions.tolist() == sorted(found.positions.tolist())


def test_what_one_arrow_message_has_too_much_is_not_what_the_next_one_lacks():
    bodies = [arrow(ts=[1, 2, 3], a=[1.0, 2.0, 3.0], b=[4.0, 5.0, 6.0]) for _ in range(3)]
    node = struct.pack("<qq", 3, 0)  # rows of a column, nulls
    at = bodies[0].find(node)
    while at >= 0:
        first, last = (bodies[0][:at] + struct.pack("<q", n) + bodies[0][at + 8 :] for n in (2, 4))
        batch = decoder_for("arrow", SCHEMA).decode([first, bodies[1], last, first], 0)
        mine = batch.positions == 1
        assert batch.times_ms[mine].tolist() == [1, 2, 3]
        assert batch.values[mine].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
        assert {0, 2, 3} & {each.position for each in batch.rejections}
        at = bodies[0].find(node, at + 8)


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


def block(codec, times, values):
    if codec == "floats":
        return packed(times, values)
    values = np.asarray(values)
    return arrow(ts=np.asarray(times), a=values[:, 0], b=values[:, 1])


@pytest.mark.parametrize("codec", ["floats", "arrow"])
def test_a_row_too_many_rejects_itself_and_not_its_message(codec):
    """Neighbors differ in one record: whether a thousand others count must not depend on it."""
    most = max_rows(2)
    bodies = [block(codec, np.arange(n), np.zeros((n, 2))) for n in (most, most + 1)]
    full, over = (decoder_for(codec, SCHEMA).decode([body], 3) for body in bodies)
    assert len(bodies[0]) <= LONGEST_MESSAGE + 1000 < LONGEST_MESSAGE * 1.1
    assert (len(full.times_ms), full.rejections) == (most, [])
    assert np.array_equal(over.times_ms, full.times_ms)
    assert reasons(over) == [(3, "too_long", None)]


@pytest.mark.parametrize("size", [0, 1])
def test_batches_without_end_take_no_memory_and_reject_what_follows_alone(size):
    pa = pytest.importorskip("pyarrow")
    one = pa.RecordBatch.from_pydict({"ts": np.arange(1), "a": np.zeros(1), "b": np.zeros(1)})
    schema, first, other = (part.serialize().to_pybytes() for part in (one.schema, one, one.slice(0, size)))
    for more in (0, 1, 3):
        body = schema + first + other * (ARROW_BATCHES - 1 + more) + b"\xff\xff\xff\xff\0\0\0\0"
        batch = decoder_for("arrow", SCHEMA).decode([body], 7)
        assert len(batch.times_ms) == (ARROW_BATCHES if size else 1)
        assert reasons(batch) == [(7, "too_long", None)] * bool(more)


def test_half_a_row_at_the_end_rejects_itself():
    whole = packed([1, 2], [[1, 2], [3, 4]])
    for cut in range(1, 24):
        batch = decoder_for("floats", SCHEMA).decode([whole + whole[:cut]], 0)
        assert batch.values.tolist() == [[1, 2], [3, 4]]
        assert reasons(batch) == [(0, "broken_record", None)]


def text_column(pa, raw, large=False):
    """A text column of any bytes, UTF-8 or not."""
    return pa.array(raw, pa.large_binary() if large else pa.binary()).view(pa.large_string() if large else pa.string())


@pytest.mark.parametrize("large", [False, True])
def test_one_id_that_is_not_utf8_rejects_its_row_and_not_its_message(large):
    pa = pytest.importorskip("pyarrow")
    ids = text_column(pa, [b"x", b"\xff\xfe", None, b"\xc3\xbc", b""], large)
    batch = decoder_for("arrow", USERS).decode([arrow(ts=[1, 2, 3, 4, 5], a=[1] * 5, b=[1] * 5, id=ids)], 0)
    assert (batch.times_ms.tolist(), batch.users.tolist()) == ([1, 4], ["x", "ü"])
    assert reasons(batch) == [(0, "bad_user", "id"), (0, "missing", "id"), (0, "missing", "id")]
    times = text_column(pa, [b"2020-01-01", b"\xff", b"soon"], large)
    iso = decoder_for("arrow", Schema("ts", "iso8601", ("a",))).decode([arrow(ts=times, a=[1.0, 2.0, 3.0])], 0)
    assert (iso.values.tolist(), reasons(iso)) == ([[1.0]], [(0, "bad_time", "ts"), (0, "bad_time", "ts")])
    levels = Schema("ts", "ms", ("a",), levels={"a": {"on": 1, "off": 0}})
    states = decoder_for("arrow", levels).decode([arrow(ts=[1, 2], a=text_column(pa, [b"on", b"\xff"], large))], 0)
    assert (states.values.tolist(), reasons(states)) == ([[1.0]], [(0, "unknown_level", "a")])


def test_a_column_of_nulls_alone_has_no_type_and_rejects_rows_alone():
    """What is left of a column when the one record that has a value is not there."""
    pa = pytest.importorskip("pyarrow")
    batch = decoder_for("arrow", SCHEMA).decode([arrow(ts=[1, 2], a=pa.nulls(2), b=[1, 1])], 0)
    assert reasons(batch) == [(0, "missing", "a")] * 2


def test_text_whose_buffers_are_broken_rejects_the_message():
    pa = pytest.importorskip("pyarrow")
    offsets, data = pa.py_buffer(np.array([0, 10**6, 5], np.int32)), pa.py_buffer(b"abcdefgh")
    ids = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    bodies = [arrow(ts=[1, 2], a=[1, 1], b=[1, 1], id=ids), arrow(ts=[3], a=[1], b=[1], id=["x"])]
    batch = decoder_for("arrow", USERS).decode(bodies, 0)
    assert (batch.times_ms.tolist(), reasons(batch)) == ([3], [(0, "broken_record", None)])


MIN, MAX = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("kind", "timestamps", "good"),
    [
        ("int64", [5, MIN, MIN + 1, MAX, -(2**53), 2**53, 1 - 2**53, 2**53 - 1], [5, 1 - 2**53, 2**53 - 1]),
        ("uint64", [5, 2**64 - 1, 2**63, 2**53 + 1], [5]),
        ("int8", [5, -128], [5, -128]),
        ("uint8", [5, 255], [5, 255]),
        ("float64", [5.9, float("nan"), float("inf"), -float("inf"), 1e300, -0.5], [5, -1]),
        ("timestamp[s]", [5, MAX, MIN, 2**62, -(2**55), 10**13], [5000]),
        ("timestamp[ms]", [5, MAX, MIN, 2**53 + 1, -5], [5, -5]),
        ("timestamp[us]", [5999, -1, MAX, MIN], [5, -1]),
        ("timestamp[ns]", [5_999_999, -1], [5, -1]),
    ],
)
def test_times_of_arrow_never_wrap_around(kind, timestamps, good):
    """-2**63 passed as near 0, for its absolute value is negative; 2**64 - 1 was taken as -1; seconds overflowed."""
    pa = pytest.importorskip("pyarrow")
    column = pa.array(timestamps, pa.int64()).view(kind) if kind.startswith("time") else pa.array(timestamps, kind)
    batch = decoder_for("arrow", SCHEMA).decode(
        [arrow(ts=column, a=[1.0] * len(timestamps), b=[1.0] * len(timestamps))], 0
    )
    assert batch.times_ms.tolist() == good
    assert {reason for _, reason, _ in reasons(batch)} <= {"bad_time", *["missing"] * (kind == "float64")}
    assert batch.seen == len(timestamps)
    assert len(batch.times_ms) == len(good)


@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
def test_timestamps_of_arrow_say_their_unit_themselves(unit):
    pa = pytest.importorskip("pyarrow")
    moments = [datetime(2020, 1, 1, tzinfo=UTC), None]
    for kind in (pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "Nowhere/Atall")):
        body = arrow(ts=pa.array(moments, kind), a=[1, 1])
        batch = decoder_for("arrow", Schema("ts", unit, ("a",))).decode([body], 0)
        assert batch.times_ms.tolist() == [1_577_836_800_000]
        assert reasons(batch) == [(0, "missing", "ts")]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_times_of_objects_never_wrap_around(codec):
    encode = getattr(msgspec, codec).encode
    timestamps = [MIN, 2**64 - 1, MAX, 2**53 + 2, 1e300, -1e300, 2**53 - 1, True, None, "5", [5]]
    for unit, good in (("ms", [2**53 - 1]), ("s", [])):
        decoder = decoder_for(codec, Schema("ts", unit, ("a",)))
        batch = decoder.decode([encode({"ts": timestamp, "a": 1}) for timestamp in timestamps], 0)
        assert batch.times_ms.tolist() == good
        assert {reason for _, reason, _ in reasons(batch)} == {"bad_time", "missing"}


@pytest.mark.parametrize("format", ["json", "floats", "arrow"])
def test_plan_says_what_is_protected_in_long_messages(format):
    config = Config.from_mapping(
        {
            "stream": {"name": "t"},
            "lattice": {"step": 0.001},
            "features": [{"name": name, "min": 0.0, "max": 40.0} for name in "abc"],
            "window": {"length": "1s", "start": "2020-01-01", "clock": "broker"},
            "release": {"kind": "count", "rho": 1.0},
            "budget": {"rho": 1.0, "delta": 0.0},
            "source": {"url": "redis://host:6379/0?stream=k", "format": format},
        }
    )
    told = [line for line in plan(config).lines() if "message" in line]
    assert bool(told) == (format != "json")
    assert all("524288 rows" in line and "protected there is the message" in line for line in told)


def one_of_each(at):
    """A record at a time, a whole number of milliseconds, in every format that has such."""
    cbor2, fastavro = pytest.importorskip("cbor2"), pytest.importorskip("fastavro")
    record, file = {"time": at, "a": 1.0}, io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), record)
    return {
        "json": json.dumps(record).encode(),
        "msgpack": msgspec.msgpack.encode(record),
        "cbor": cbor2.dumps(record),
        "influx": b"m a=1.0 %d" % at,
        "floats": struct.pack("<qd", at, 1.0),
        "arrow": arrow(time=[at], a=[1.0]),
        "avro": file.getvalue(),
    }


AVRO = {"type": "record", "name": "R", "fields": [{"name": "time", "type": "long"}, {"name": "a", "type": "double"}]}
TIMED = Schema("time", "ms", ("a",))


@pytest.fixture
def each_format(tmp_path):
    pytest.importorskip("fastavro")
    path = tmp_path / "record.avsc"
    path.write_text(json.dumps(AVRO))

    def decoder(format):
        return decoder_for(format, TIMED, {"schema_file": str(path)} if format == "avro" else {})

    return decoder


@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_beyond_what_doubles_hold_is_rejected_and_never_rounded(each_format, sign):
    """-2**53 - 1 became -2**53 where columns are doubles, and was taken."""
    for size in (2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**63 - 1):
        for format, body in one_of_each(sign * size).items():
            batch = each_format(format).decode([body], 0)
            assert batch.times_ms.tolist() == [], (format, size)
            assert reasons(batch)[0][1] in ("bad_time", "broken_record" if format == "influx" else ""), (format, size)
    for format, body in one_of_each(sign * (2**53 - 1)).items():
        assert each_format(format).decode([body], 0).times_ms.tolist() == [sign * (2**53 - 1)], format


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda body: b"\x28\xb5\x2f\xfd\x04\x00" + body])
def test_a_compressed_message_is_named(each_format, pack):
    for format, body in one_of_each(1_700_000_000_000).items():
        found, _, _ = read_messages(each_format(format), np.arange(5, 7), np.zeros(2, np.int64), [pack(2 * body), body])
        assert found.positions.tolist()[-1:] == [6], format
        if format != "floats":  # any sixteen bytes are a row of it
            assert [tuple(each[:2]) for each in reasons(found)] == [(5, "compressed")], format


@pytest.mark.parametrize("depth", [2_000, 10**6])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\0\0\0\1", b"\xdf\0\0\0\1\xa1a"])
def test_deep_messagepack_is_rejected_and_ends_no_process(depth, opening):
    """Alone, and as a part of a record that nobody asks for, which is read all the same."""
    deep = opening * depth + b"\x01"
    whole = msgspec.msgpack.encode({"time": 1, "a": 1.0})
    inside = b"\x83" + whole[1:] + b"\xa1b" + deep
    for schema in (TIMED, Schema("time", "ms", ("a",), paths={"a": FieldPath(("b", "a"))})):
        batch = decoder_for("msgpack", schema).decode([deep, inside], 0)
        reason = "broken_record" if len(inside) <= READ_AT_ONCE else "too_long"
        assert reasons(batch) == [(0, reason, None), (1, reason, None)]
