"""Fields of nested messages: where they are found, what is rejected, and a slow twin that says the same."""

import json
import math
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from support.payloads import arrow

from fcstream.errors import ConfigError
from fcstream.formats import bounds, cells
from fcstream.formats.batch import REASONS, Rejection, Schema
from fcstream.formats.bounds import max_rows
from fcstream.formats.decoders import CsvRows
from fcstream.formats.envelopes import Envelope, EnvelopeField
from fcstream.formats.fields import RecordReader
from fcstream.formats.json_parts import is_deep
from fcstream.formats.nested import NestedObjects, objects_decoder, parse_msgpack
from fcstream.formats.paths import ABSENT, FieldPath, parse_path
from fcstream.formats.payloads import decoder_for

SECRET = "s3cretValue"


def schema_of(time="ts", features=("a",), unit="ms", records=None, paths=(), **options):
    """A schema whose names are paths, or names with paths of their own."""
    named = dict(paths)
    for name in (time, options.get("user"), options.get("key")):
        if name is not None:
            named.setdefault(name, name)
    found = {name: parse_path(text, "key") for name, text in named.items()}
    return Schema(
        *(time, unit, tuple(features)),
        paths={name: path for name, path in found.items() if path != FieldPath.named(name)},
        records=None if records is None else parse_path(records, "key"),
        **options,
    )


def rows_of(batch, schema):
    """Records as tuples."""
    columns = [batch.times_ms.tolist(), batch.values.tolist(), batch.positions.tolist()]
    columns += [list(column) for column in (batch.users, batch.keys) if column is not None]
    return list(zip(*columns, *map(list, batch.texts.values()), strict=True))


def read(schema, messages, envelopes=(), **options):
    batch = RecordReader(schema).read(messages, range(len(messages)), envelopes, **options)
    rejected = [(each.reason, each.position, each.field) for each in batch.rejections for _ in range(each.count)]
    assert all(reason in REASONS for reason, *_ in rejected)
    return rows_of(batch, schema), rejected


def test_nested_fields_and_lists():
    schema = schema_of("at.s", ("t", "x"), "s", paths={"t": "object.readings.temp", "x": "acc[1]"}, user="who.id")
    message = {"at": {"s": 5}, "object": {"readings": {"temp": 1.5}}, "acc": [0, 2], "who": {"id": 7}}
    assert read(schema, [message]) == ([(5000, [1.5, 2.0], 0, "7")], [])
    odd = [
        {**message, "at": 3},
        {**message, "object": {"readings": [1]}},
        {**message, "acc": [0]},
        {**message, "acc": "01"},
        {**message, "acc": {1: 5}},
        {**message, "who": {"id": 1.5}},
        {**message, "who": {"id": "\ud800"}},
        {**message, "object": {"readings": {"temp": True}}},
        {**message, "object": {"readings": {"temp": SECRET}}},
        {**message, "at": {"s": "5"}},
        [message],
        3,
        None,
    ]
    assert read(schema, odd)[1] == [
        ("missing", 0, "at.s"),
        ("missing", 1, "t"),
        ("missing", 2, "x"),
        ("missing", 3, "x"),
        ("missing", 4, "x"),
        ("bad_user", 5, "who.id"),
        ("bad_user", 6, "who.id"),
        ("not_a_number", 7, "t"),
        ("not_a_number", 8, "t"),
        ("bad_time", 9, "at.s"),
        ("broken_record", 10, None),
        ("broken_record", 11, None),
        ("broken_record", 12, None),
    ]


def test_elements_inherit_time_user_and_key_where_they_lack_them():
    """A null took the number of the message around it."""
    schema = schema_of("ts", ("a",), records="readings", user="id")
    message = {
        "ts": 1,
        "id": "outer",
        "a": 9,
        "readings": [{"a": 1}, {"a": 2, "ts": 5}, {"id": "inner", "a": None}, {}, 7, {"a": "x"}, {"ts": "x", "a": 3}],
    }
    assert read(schema, [message]) == (
        [(1, [1.0], 0, "outer"), (5, [2.0], 0, "outer")],
        [
            *[("missing", 0, "a"), ("missing", 0, "a"), ("not_a_number", 0, "a"), ("bad_time", 0, "ts")],
            ("broken_record", 0, None),
        ],
    )
    assert read(schema, [{"readings": []}]) == ([], [])
    assert read(schema, [{}, {"readings": {"a": 1}}, 5, Rejection("broken_record", 3)])[1] == [
        ("missing", 0, "readings"),
        ("broken_record", 1, "readings"),
        ("missing", 2, "readings"),
        ("broken_record", 3, None),
    ]


def test_a_message_that_is_a_list_and_records_that_are_values():
    assert read(schema_of(records="."), [[{"ts": 1, "a": 2}], [{"ts": 2, "a": 3}, {"ts": 3, "a": 4}]])[0] == [
        (1, [2.0], 0),
        (2, [3.0], 1),
        (3, [4.0], 1),
    ]
    points = schema_of("[0]", ("a",), "s", records="points", paths={"a": "[1]"})
    assert read(points, [{"points": [[1, 2.5], [2], (3, 4)]}]) == (
        [(1000, [2.5], 0), (3000, [4.0], 0)],
        [("missing", 0, "a")],
    )
    bare = schema_of("@broker", ("a",), "s", paths={"a": "."})
    envelopes = [Envelope(arrived_ms=i) for i in (7, 8, 9)]
    assert read(bare, [21.5, True, {"a": 1}], envelopes) == (
        [(7, [21.5], 0)],
        [("not_a_number", 1, "a"), ("not_a_number", 2, "a")],
    )


def test_fields_that_come_with_a_message():
    schema = schema_of(
        *("@header:at", ("a", "level"), "ns", "readings"),
        paths={"level": "@header:level"},
        user="@topic:1",
        key="@key",
        quoted=frozenset({"level"}),
    )
    whole = Envelope("rooms/r1/temp", b"north", {"at": b"1700000000000999999", "level": b"2.5"}, 1)
    odd = [
        whole._replace(topic="rooms"),
        whole._replace(key=b"\xff"),
        whole._replace(headers={"at": b"x", "level": b"1"}),
        whole._replace(headers={"at": b"1", "level": b"\xff"}),
        Envelope(),
    ]
    message = {"readings": [{"a": 1}, {"a": 2}]}
    rows, rejected = read(schema, [message] * 6, [whole, *odd])
    assert rows[:2] == [(1700000000000, [a, 2.5], 0, "r1", "north") for a in (1.0, 2.0)]
    assert [row[4] for row in rows[2:]] == ["\udcff"] * 2  # as bytes of MessagePack are read
    assert rejected == [
        *[("missing", 1, "@topic:1")] * 2,
        *[("bad_time", 3, "@header:at")] * 2,
        *[("not_a_number", 4, "level")] * 2,
        *[("missing", 5, "@header:at")] * 2,
    ]
    rows, rejected = read(schema, [message])  # nobody gave envelopes
    assert rejected == [("missing", 0, "@header:at")] * 2


@pytest.mark.parametrize(("unit", "ticks"), [("us", 10**3), ("ns", 10**6)])
def test_whole_ticks_are_divided_before_they_are_floats(unit, ticks):
    rng = random.Random(5)
    schema = schema_of(unit=unit)
    for kind in (int, str, Decimal):
        times = [
            rng.randrange(-(2**62), 2**62) // rng.choice([1, ticks]) * rng.choice([1, 1, ticks]) for _ in range(500)
        ]
        times = [time for time in times if abs(time) < 2**62]
        times += [ticks * 5 - 1, ticks * 5, -1, 0, -ticks]
        messages = [{"ts": kind(time), "a": 1} for time in times]
        rows, rejected = read(schema, messages, texts=kind is str)
        assert not rejected
        assert [row[0] for row in rows] == [time // ticks for time in times]
    rows, rejected = read(schema, [{"ts": t, "a": 1} for t in (1.5 * ticks, 2**80, -0.5, math.nan, True)])
    assert [row[0] for row in rows] == [1, -1]
    assert [reason for reason, *_ in rejected] == ["bad_time"] * 3


def test_numbers_in_text():
    schema = schema_of(features=("a", "b"), quoted=frozenset({"a"}), missing={"a": frozenset({"n/a"})})
    messages = [{"ts": 1, "a": a, "b": 2} for a in ("21.5", 3, " 4 ", "1e3", "n/a", "", "x", "1_0", "nan", True, [])]
    rows, rejected = read(schema, messages)
    assert [row[1][0] for row in rows] == [21.5, 3, 4, 1000]
    assert [reason for reason, *_ in rejected] == [
        *["missing"] * 2,
        *["not_a_number"] * 2,
        "not_finite",
        *["not_a_number"] * 2,
    ]
    assert read(schema, [{"ts": 1, "a": 1, "b": "2"}])[1] == [("not_a_number", 0, "b")]
    assert read(schema, [{"ts": "1", "a": 1, "b": "2"}], texts=True)[0] == [(1, [1.0, 2.0], 0)]


def test_what_libraries_decode_to():
    """Decimals and moments, as Avro, CBOR and Protobuf have them."""
    at = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    for unit in ("ms", "s", "ns", "iso8601"):
        schema = schema_of(unit=unit, features=("a",))
        messages = [{"ts": moment, "a": Decimal("1.5")} for moment in (at, at.astimezone(UTC).replace(tzinfo=None))]
        assert [row[:2] for row in read(schema, messages)[0]] == [(1767225600000, [1.5])] * 2
    assert read(
        schema_of(), [{"ts": datetime.min, "a": Decimal("NaN")}, {"ts": Decimal("1.5"), "a": Decimal(10) ** 999}]
    )[1] == [("not_finite", 0, "a"), ("not_finite", 1, "a")]


def test_a_message_holds_so_many_records_only(monkeypatch):
    monkeypatch.setattr(bounds, "LONGEST_MESSAGE", 2**20)
    schema = schema_of(features=tuple(f"f{i}" for i in range(4000)), optional=frozenset(f"f{i}" for i in range(4000)))
    schema = schema_of(features=schema.features, optional=schema.optional, records="r")
    most = max_rows(4000)
    rows, rejected = read(schema, [{"ts": 1, "r": [{}] * (most + 2)}])
    assert (len(rows), rejected) == (most, [("too_long", 0, "r")])


def naive(schema, messages, envelopes):
    """Every record by itself, one field after the other."""
    rows, rejected = [], []
    for i, (message, envelope) in enumerate(zip(messages, envelopes, strict=True)):
        elements = [message]
        if schema.records is not None:
            elements = schema.records.find(message)
            if not isinstance(elements, list):
                rejected.append(("missing" if elements is None else "broken_record", i, schema.records.column))
                continue
        for element in elements:
            if not isinstance(element, dict):
                rejected.append(("broken_record", i, None))
                continue
            cells = {}
            for name in (schema.time, *schema.features, *schema.labels):
                place = schema.place(name)
                if isinstance(place, EnvelopeField):
                    (cells[name],) = place.column([envelope], "/")
                else:
                    cells[name] = place.find(element)
                    is_shared = name in (schema.time, schema.user, schema.key)
                    if is_shared and schema.records is not None and place.find(element, ABSENT) is ABSENT:
                        cells[name] = place.find(message)
            found = naive_record(schema, cells)
            if isinstance(found, tuple):
                rejected.append((found[0], i, found[1]))
            else:
                rows.append((found[0], found[1:3], i, *found[3:]))
    return rows, rejected


def naive_record(schema, cells):
    """A record of two numbers and perhaps a user and a key as a list, or a reason and a field."""
    out = []
    for name in (schema.time, *schema.features):
        value, in_text = cells[name], name in schema.quoted
        blank = isinstance(value, str) and not value.strip()
        if value is None or (blank and (in_text or name == schema.time)):
            return "missing", name
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if in_text and isinstance(value, str):
            try:
                value, good = float(value), "_" not in value
            except ValueError:
                good = False
        if not good:
            return "bad_time" if name == schema.time else "not_a_number", name
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            return "bad_time" if name == schema.time else "not_finite", name
        if name == schema.time and abs(value) > 2**53:
            return "bad_time", name
        out.append(math.floor(value) if name == schema.time else value)
    for name in schema.labels:
        value = cells[name]
        if value is None or value == "":
            return "missing", name
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if not isinstance(value, (int, str)) or (isinstance(value, str) and len(value) > 1024):
            return "bad_user" if name == schema.user else "unknown_key", name
        out.append(str(value))
    return out


SCHEMAS = {
    "nested": schema_of("at.t", ("a", "b"), paths={"a": "o.p.a", "b": "l[1]"}),
    "records": schema_of("ts", ("a", "b"), records="o.rs", paths={"b": "p.b"}, user="id", key="@topic:1"),
    "text": schema_of("ts", ("a", "b"), records="rs", paths={"b": "l[0]"}, user="o.id", quoted=frozenset("ab")),
}
VALUES = [None, True, 0, 1, -2.5, 7.0, "", " ", "x", "3.5", "1_0", [], [1, 2], {}, {"a": 1}, 1e308, 2**60, 10**400]
NAMES = ["ts", "a", "b", "id", "o", "p", "l", "at", "t", "rs", "k"]


def drawn(rng, depth=0):
    """A message, mostly usual."""
    found = {"ts": rng.randrange(100), "at": {"t": rng.randrange(100)}, "a": 1.5, "b": 2, "id": rng.choice(["x", 5])}
    found |= {"l": [3, 4], "p": {"b": 5}, "o": {"p": {"a": 6}, "id": "y"}}
    if depth < 1:
        inner = [drawn(rng, 1) if rng.random() < 0.9 else rng.choice(VALUES) for _ in range(rng.randrange(4))]
        found["rs"], found["o"]["rs"] = inner, inner
    for name in list(found):
        if depth and rng.random() < 0.4:
            del found[name]
        elif rng.random() < 0.06:
            found[name] = rng.choice(VALUES)
    return found


@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_the_slow_twin_says_the_same(kind):
    rng, schema = random.Random(11), SCHEMAS[kind]
    for _ in range(300):
        messages = [drawn(rng) for _ in range(rng.randrange(8))]
        envelopes = [Envelope(rng.choice(["a/b", "a", None])) for _ in messages]
        rows, rejected = read(schema, messages, envelopes)
        expected, reasons = naive(schema, messages, envelopes)
        assert rows == expected
        assert sorted(rejected, key=str) == sorted(reasons, key=str)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_decoders_say_what_the_reader_says(kind, codec):
    rng, schema = random.Random(12), SCHEMAS[kind]
    encode = (lambda value: json.dumps(value).encode()) if codec == "json" else msgspec.msgpack.encode
    decoder = objects_decoder(schema, codec, are_messages=True)
    for _ in range(300):
        messages = [drawn(rng) for _ in range(rng.randrange(8))]
        if codec == "msgpack":
            messages = [message for message in messages if "100000000" not in str(message)]  # no ints of any size there
        envelopes = [Envelope(rng.choice(["a/b", "a", None])) for _ in messages]
        batch = decoder.decode(list(map(encode, messages)), 0, envelopes)
        rejected = [(each.reason, each.position, each.field) for each in batch.rejections for _ in range(each.count)]
        assert (rows_of(batch, schema), sorted(rejected, key=str)) == (
            read(schema, messages, envelopes)[0],
            sorted(read(schema, messages, envelopes)[1], key=str),
        )


def test_an_element_that_cannot_be_read_takes_no_other_with_it():
    schema = schema_of(records="r", user="id")
    elements = [b'{"a": 1}', b'{"a": 1e999}', b'{"a": 2, "x": "\\ud800"}', b'{"a": 3, "id": "\xff"}', b'{"a": NaN}']
    message = b'{"ts": 5, "id": "u", "r": [' + b",".join(elements) + b"]}"
    batch = objects_decoder(schema).decode([message], 0)
    assert rows_of(batch, schema) == [(5, [1.0], 0, "u"), (5, [2.0], 0, "u")]
    assert {(each.reason, each.field) for each in batch.rejections} == {("not_finite", "a"), ("bad_user", "id")}
    packed = [msgspec.msgpack.encode({"a": i}) for i in range(3)]
    packed[1] = b"\x82\xa1a\x01\xa1x\xa1\xff"  # text that is no UTF-8
    body = b"\x82\xa2ts\x05\xa1r\x93" + b"".join(packed)
    batch = objects_decoder(schema_of(records="r"), "msgpack", are_messages=True).decode([body], 0)
    assert [row[1] for row in rows_of(batch, schema)] == [[0.0], [1.0], [2.0]]
    with pytest.raises((msgspec.DecodeError, ValueError)):
        parse_msgpack(body[:-1])


DEEP = b"[" * 600 + b"]" * 600
ODD = [b"nan", b"", b" ", b"\xff", b"'a'", b"{a: 1}", b'"]"', b'{"x": "\\"],[", "a": nan}', b'{"a": 1]', DEEP]


@pytest.mark.parametrize("where", [".", "r", "o.r", "o[1]"])
def test_an_element_that_is_no_json_takes_no_other_with_it(where):
    """It took the whole message."""
    schema = schema_of("@broker", records=where)
    around = {".": b"%s", "r": b'{"r": [1], "r" : %s, "x": "[,"}', "o.r": b'{"o": {"x": [[1]], "r":%s}}'}
    around["o[1]"] = b'{"o":[{}, %s]}'
    decoder = objects_decoder(schema, are_messages=True)
    for odd in ODD:
        body = around[where] % (b'[{"a": 1},' + odd + b', {"a": 2}]')
        batch = decoder.decode([body], 0, [Envelope(arrived_ms=3)])
        assert batch.values.tolist() == [[1.0], [2.0]], odd
        assert [each.reason for each in batch.rejections] == ["broken_record"], odd
    batch = decoder.decode([around[where] % b'[{"a": 1}, {"a": 2},]'], 0, [Envelope(arrived_ms=3)])
    assert (batch.values.tolist(), batch.rejections) == ([[1.0], [2.0]], [])
    for odd in (b" ,", b'{"a": 1}, {', b'{"a": 1}, }', b'{"a": 1}, "', b'{"a": 1}, ]'):
        batch = decoder.decode([around[where] % (b"[" + odd + b"]")], 0, [Envelope(arrived_ms=3)])
        assert {each.reason for each in batch.rejections} == {"broken_record"}


def test_a_gateway_has_no_reading_of_its_sensors():
    """Its own temperature counted for a sensor that had none."""
    schema = schema_of("@broker", ("temp",), records="readings", user="id")
    readings = b'[{"id": "a", "temp": null}, {"id": "b", "temp": 21}, {"temp": 22}, {"id": null, "temp": 23}]'
    body = b'{"temp": 55, "id": "gw7", "readings": ' + readings + b"}"
    batch = objects_decoder(schema, are_messages=True).decode([body], 0, [Envelope(arrived_ms=3)])
    assert rows_of(batch, schema) == [(3, [21.0], 0, "b"), (3, [22.0], 0, "gw7")]
    assert [(each.reason, each.field) for each in batch.rejections] == [("missing", "temp"), ("missing", "id")]


def test_names_that_no_type_can_have_are_read_all_the_same():
    for name in ('a"b', "a\\b", "a\nb", "class", "é", ""):
        schema = Schema("ts", "ms", ("a",), paths={"a": FieldPath(("o", name))})
        batch = objects_decoder(schema).decode([json.dumps({"ts": 1, "o": {name: 2}}).encode()], 0)
        assert batch.values.tolist() == [[2.0]], name


def test_messages_of_another_shape_are_read_all_the_same():
    """Types follow the messages; what is read does not depend on them."""
    rng, kinds = random.Random(4), ["ts", "id", "key"]
    schema = schema_of("ts", ("a", "b"), records="r", user="id", key="key")
    decoder = NestedObjects(schema, are_messages=True)
    for _ in range(40):
        inner = set(rng.sample(kinds, rng.randrange(4)))
        is_null = rng.random() < 0.3
        element = {"a": 1, "b": 2, **dict.fromkeys(inner, 5)}
        around = {name: 7 for name in kinds if name not in inner}
        one = {"r": [element, element | (dict.fromkeys(around) if is_null else {})], **around}
        batch = decoder.decode([json.dumps(one).encode()] * 3, 0)
        count = 3 if is_null and around else 6
        assert (batch.values.tolist(), len(batch.rejections)) == ([[1.0, 2.0]] * count, 6 - count)
        assert set(batch.times_ms.tolist()) == {5 if "ts" in inner else 7}
        assert set(batch.users.tolist()) == {"5" if "id" in inner else "7"}


def test_how_deep_a_message_may_be():
    rng, found = random.Random(2), []
    for depth in (1, 499, 500, 501, 2000, 100_000):
        assert is_deep(b"[" * depth + b"]" * depth) == (depth > 500)
        inner = rng.choice([b'"[[]"', b'"\\"[["', b'{"}": 1}', b'"\\\\"'])
        line = b'{"ts": 1, "o": {"a": 2}, "x": ' + (b"[" + inner + b",") * depth + b"1" + b"]" * depth + b"}"
        batch = objects_decoder(schema_of(paths={"a": "o.a"})).decode([line], 0)
        found.append(len(batch.times_ms))
        assert len(batch.times_ms) + len(batch.rejections) == 1
    assert found == [1, 1, 0, 0, 0, 0]  # the message itself is a level
    flat = b"[" + b",".join([b'{"a": ["]", "[", "\\""]}'] * 2000) + b"]"
    assert json.loads(flat)
    assert not is_deep(flat)


def test_two_features_may_be_one_field():
    schema = schema_of(features=("a", "b"), paths={"a": "o.x", "b": "o.x"})
    decoder = NestedObjects(schema)
    batch = decoder.decode([b'{"ts": 1, "o": {"x": 2}}'] * 2, 0)
    assert batch.values.tolist() == [[2.0, 2.0]] * 2
    assert decoder._type() is not None


@pytest.mark.parametrize(("unit", "ticks"), [("us", 10**3), ("ns", 10**6)])
def test_columns_of_ticks(unit, ticks):
    pyarrow = pytest.importorskip("pyarrow")
    times = [1_700_000_000_000 * ticks + ticks - 1, -1, 0, ticks]
    schema = schema_of("at.s", unit=unit)
    lines = [f"{time},1".encode() for time in times] + [b" 5 ,1", b"1.5,1", b"x,1"]
    batch = CsvRows(schema, b"at.s,a").decode(lines, 0)
    assert batch.times_ms.tolist() == [time // ticks for time in times] + [0, 0]
    assert [each.reason for each in batch.rejections] == ["bad_time"]
    whole = [2**62 - 1, 1 - 2**62, 2**62, -(2**62)]
    for more in ([], [2**63], [10**30, True, 1.5, None]):
        found, odd = cells.read(whole + more, schema.role("at.s"))
        for i, tick in enumerate(whole + more):
            is_time = type(tick) in (int, float) and abs(tick) // ticks < 2**53
            assert (i not in odd) == is_time
            assert not is_time or found[i] == tick // ticks
    body = arrow(**{"at.s": pyarrow.array(times, pyarrow.int64()), "a": [1.0] * 4})
    assert decoder_for("arrow", schema).decode([body], 0).times_ms.tolist() == [time // ticks for time in times]
    texts = arrow(**{"at.s": pyarrow.array(times, pyarrow.int64()), "a": ["1", "x", "2.5", None]})
    batch = decoder_for("arrow", schema_of("at.s", unit=unit, quoted=frozenset("a"))).decode([texts], 0)
    assert batch.values.tolist() == [[1.0], [2.5]]
    assert [each.reason for each in batch.rejections] == ["not_a_number", "missing"]


def test_blank_lines_are_skipped_and_messages_are_not():
    schema = schema_of(paths={"a": "x.a"})
    line = b'{"ts": 1, "x": {"a": 2}}'
    batch = NestedObjects(schema).decode([b"", line, b"  ", b"x"], 10)
    assert (batch.positions.tolist(), [each.position for each in batch.rejections]) == ([11], [13])
    batch = NestedObjects(schema, are_messages=True).decode([b"", line], 10)
    assert (batch.positions.tolist(), [each.position for each in batch.rejections]) == ([11], [10])


def test_what_has_columns_takes_names_only():
    schema = schema_of(user="@topic:1")
    with pytest.raises(
        ConfigError, match=r"^stream\.user: must name a field of the records, since files have no topics"
    ):
        schema.refuse_envelopes("files")
    with pytest.raises(ConfigError, match=r"^source\.records: must be left out for tables"):
        schema_of(records="x").refuse_elements("tables")
    assert schema_of("at.s").column("at.s") == "at.s"


def test_positions_may_repeat():
    batch = RecordReader(schema_of()).read([{"ts": 1, "a": 1}, {"ts": 2, "a": 2}], np.array([4, 4]))
    assert batch.positions.tolist() == [4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("field", ["id", "key", "text", "a", "b", "ts"])
def test_a_long_text_that_all_elements_share_is_not_read_for_each(field):
    """Joined it would be 100 GB, out of a message of 10 MB that comes again if it ends the process."""
    options = {"user": "id", "key": "key", "texts": {"text": 256}, "missing": {"b": frozenset({"none"})}}
    schema = schema_of(*("ts", ("a", "b"), "iso8601", "rs"), quoted=frozenset("a"), **options)
    usual = {"ts": "2026-01-01T00:00:00Z", "a": "1", "b": 1, "id": "u", "key": "k", "text": "x"}
    own, long = {"a": "1", "b": 1, "text": "x"}, "1" * 10**7
    mine = own | ({field: long} if field in own else {})
    rows, rejected = read(schema, [usual | {field: long, "rs": [mine] * 10**4}, usual | {"rs": [own]}])
    reasons = {"id": "bad_user", "key": "unknown_key", "text": "too_long", "ts": "bad_time"}
    assert len(rows) == 1
    assert set(rejected) == {(reasons.get(field, "not_a_number"), 0, field)}
    assert len(rejected) == 10**4


def test_unsigned_nanoseconds_beyond_signed_ones_stay_what_they_are():
    pyarrow = pytest.importorskip("pyarrow")
    times = [2**64 - 1, 2**63, 1_500_000]
    body = arrow(ts=pyarrow.array(times, pyarrow.uint64()), a=[1.0] * 3)
    batch = decoder_for("arrow", schema_of(unit="ns")).decode([body], 0)
    assert batch.times_ms.tolist() == [time // 10**6 for time in times]
