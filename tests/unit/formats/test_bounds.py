"""What one message can make a decoder do: for every bound a message one below and one above, and the time of both."""

import io
import itertools
import json
import time
from pathlib import Path

import cbor2
import fastavro
import msgspec
import pytest
from support.arrow_bombs import shared_schema
from support.costly import DESCRIPTORS, PROTO_RECORD, colliding, gauge, memory
from support.payloads import arrow

from fcstream.connectors.http.bodies import Bodies
from fcstream.errors import ConfigError
from fcstream.formats import bounds
from fcstream.formats.avro import AvroMessages
from fcstream.formats.batch import Rejection, Schema
from fcstream.formats.decoders import CsvRows
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for
from fcstream.formats.protobuf import ProtobufMessages, message_type

NOW = 1_760_000_000_000
PLAIN = Schema("ts", "ms", ("a",))
NESTED = Schema("ts", "ms", ("a",), paths={"a": FieldPath(("in", "a"))})


def verdict(decoder, body):
    """Return the values or the reasons of one message, read within a second."""
    start = time.perf_counter()
    batch = decoder.decode([body], 0)
    assert time.perf_counter() < start + 1
    return [each.reason for each in batch.rejections] or batch.values.tolist()


def item(tag, value):
    return cbor2.dumps({"ts": NOW, "a": cbor2.CBORTag(tag, value)})


def big(size):
    return cbor2.CBORTag(2, b"\x01".ljust(size, b"\0"))


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (item(2, b"\x01".ljust(bounds.NUMBER_BYTES, b"\0")), item(2, b"\x01".ljust(bounds.NUMBER_BYTES + 1, b"\0"))),
        (item(3, b"\x01".ljust(bounds.NUMBER_BYTES, b"\0")), item(3, b"\x01".ljust(bounds.NUMBER_BYTES + 1, b"\0"))),
        (item(4, [0, big(bounds.NUMBER_BYTES)]), item(4, [0, big(2**17)])),
        (item(4, [-bounds.EXPONENT, 1]), item(4, [-bounds.EXPONENT - 1, 1])),
        (item(5, [-bounds.EXPONENT, 1]), item(5, [-(2**31), 1])),
        (item(55799, 1.5), item(35, "(a+)+$")),
        (cbor2.dumps({"ts": cbor2.CBORTag(1, NOW // 1000), "a": 1.5}), item(28, 1.5)),
    ],
)
def test_tags_of_cbor_and_their_numbers(below, above):
    decoder = decoder_for("cbor", PLAIN)
    assert verdict(decoder, below) != ["broken_record"]
    assert verdict(decoder, above) == ["broken_record"]
    assert verdict(decoder_for("senml-cbor", Schema("t", "s", ("v",))), cbor2.dumps([{6: 1e9, 2: cbor2.loads(b"\0")}]))


def test_no_tag_of_cbor_but_those_that_are_named_is_read():
    decoder = decoder_for("cbor", PLAIN)
    read = [tag for tag in range(1100) if verdict(decoder, item(tag, 0)) != ["broken_record"]]
    assert read == [1]  # of a number; 0 is of a text, 2 and 3 of bytes, 4 and 5 of pairs


def chain(depth, leaf):
    """Return a type of records that each hold the next one twice."""
    kind = {"type": "record", "name": f"A{depth}", "fields": leaf}
    for i in reversed(range(depth)):
        fields = [{"name": "x", "type": kind}, {"name": "y", "type": f"A{i + 1}"}]
        kind = {"type": "record", "name": f"A{i}", "fields": fields}
    return kind


def reading(kind):
    fields = [{"name": "ts", "type": "long"}, {"name": "a", "type": "double"}, {"name": "z", "type": kind}]
    return json.dumps({"type": "record", "name": "Reading", "fields": fields})


def wide(nulls):
    fields = [{"name": f"n{i}", "type": "null"} for i in range(nulls)]
    return {"type": "record", "name": "Wide", "fields": [*fields, {"name": "v", "type": "int"}]}


def nested_lists(depth):
    return {"type": "array", "items": nested_lists(depth - 1)} if depth else "int"


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (chain(9, []), chain(10, [])),
        (chain(11, [{"name": "v", "type": "int"}]), chain(12, [{"name": "v", "type": "int"}])),
        (chain(1, []), chain(22, [])),
        ({"type": "map", "values": "null"}, {"type": "array", "items": "null"}),
        ({"type": "array", "items": ["null"]}, {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
        ({"type": "array", "items": wide(bounds.VALUES_PER_BYTE - 2)}, {"type": "array", "items": chain(0, [])}),
        (
            {"type": "array", "items": wide(bounds.VALUES_PER_BYTE - 2)},
            {"type": "array", "items": wide(bounds.VALUES_PER_BYTE - 1)},
        ),
        (nested_lists(bounds.SCHEMA_DEPTH - 1), nested_lists(bounds.SCHEMA_DEPTH)),
        (chain(0, []), {"type": "record", "name": "Self", "fields": [{"name": "x", "type": ["null", "Self"]}]}),
    ],
)
def test_types_of_avro_that_are_much_for_few_bytes(below, above):
    AvroMessages(PLAIN, reading(below))
    start = time.perf_counter()
    with pytest.raises(ConfigError, match="schema_file"):
        AvroMessages(PLAIN, reading(above))
    assert time.perf_counter() < start + 1


def test_decimals_of_avro():
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
    stored = {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "ts", "type": "long"}, {"name": "a", "type": kind}],
    }
    decoder = AvroMessages(PLAIN, json.dumps(stored))

    def message(number, size):
        file = io.BytesIO()
        plain = {**stored, "fields": [stored["fields"][0], {"name": "a", "type": "bytes"}]}
        fastavro.schemaless_writer(file, plain, {"ts": NOW, "a": number.to_bytes(size, signed=True)})
        return file.getvalue()

    assert verdict(decoder, message(1250, 2)) == verdict(decoder, message(1250, bounds.NUMBER_BYTES)) == [[12.5]]
    assert verdict(decoder, message(-1250, bounds.NUMBER_BYTES)) == [[-12.5]]
    for size in (bounds.NUMBER_BYTES + 1, 2**20):
        assert verdict(decoder, message(1250, size)) == ["broken_record"]


@pytest.mark.parametrize("part", ["tags", "fields"])
def test_cells_of_a_line(part):
    decoder = decoder_for("influx", PLAIN)

    def line(cells):
        some = ",".join(f"n{i:04d}=1" for i in range(cells - 1))
        return (f"m,{some} a=1.5 {NOW}" if part == "tags" else f"m a=1.5,{some} {NOW}").encode()

    decoder = decoder_for("influx", Schema("time", "ms", ("a",)))
    assert verdict(decoder, line(bounds.LINE_CELLS)) == [[1.5]]
    assert verdict(decoder, line(bounds.LINE_CELLS + 1)) == ["too_long"]
    batch = decoder.decode([b"\n".join([line(2), line(10_000), line(3), line(10_000)])], 0)
    assert batch.values.tolist() == [[1.5], [1.5]]
    assert batch.rejections == [Rejection("too_long", 0, None, 2)]


def test_lists_as_keys_of_msgpack():
    keys = colliding(20_000)
    assert len(set(map(hash, keys[:100]))) == 1, "this Python hashes tuples in another way"
    pairs = b"".join(msgspec.msgpack.encode(key) + b"\0" for key in keys)
    whole = msgspec.msgpack.encode({"ts": NOW, "in": {"a": 1.5}, "x": 0})[:-1]
    few = whole + b"\x82" + pairs[: len(msgspec.msgpack.encode(keys[0])) + 1] * 2
    assert len(few) <= bounds.MIXED_KEYS_BYTES
    for schema in (NESTED, Schema("ts", "ms", ("in",), levels={"in": {"on": 1}})):
        decoder = decoder_for("msgpack", schema)
        many = whole + b"\xdf" + len(keys).to_bytes(4) + pairs
        assert verdict(decoder, few)
        assert verdict(decoder, many)
        odd = {"ts": NOW, "in": {"a": "text"}, "x": 0}  # is looked at a second time
        assert verdict(decoder, msgspec.msgpack.encode(odd)[:-1] + b"\xdf" + len(keys).to_bytes(4) + pairs)


def test_the_levels_of_json():
    decoder = decoder_for("json", NESTED)

    def nested(depth):
        return b'{"ts":%d,"in":{"a":1.5},"x":%s%s}' % (NOW, b"[" * (depth - 1), b"]" * (depth - 1))

    assert verdict(decoder, nested(bounds.JSON_DEPTH)) == [[1.5]]
    assert verdict(decoder, nested(bounds.JSON_DEPTH + 1)) == ["broken_record"]


ENCODE = {"json": lambda value: json.dumps(value).encode(), "msgpack": msgspec.msgpack.encode, "cbor": cbor2.dumps}
INSIDE = Schema("ts", "ms", ("a",), "u", records=FieldPath(("r",)))


def of_length(encode, value, size):
    """Write a value with a text that makes it so long."""
    body = encode({**value, "note": "x" * size})
    return encode({**value, "note": "x" * (2 * size - len(body))})


@pytest.mark.parametrize("schema", [PLAIN, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("name", ENCODE)
def test_bytes_of_a_record(name, schema):
    decoder, value = decoder_for(name, schema), {"ts": NOW, "a": 1.5, "in": {"a": 1.5}}
    below, above = (of_length(ENCODE[name], value, bounds.READ_AT_ONCE + more) for more in (0, 1))
    assert len(above) == len(below) + 1 == bounds.READ_AT_ONCE + 1
    assert (verdict(decoder, below), verdict(decoder, above)) == ([[1.5]], ["too_long"])


def long_lists():
    """Yield decoders, and what writes a message of records for them."""
    for name, encode in ENCODE.items():
        yield pytest.param(
            decoder_for(name, INSIDE), lambda rows, encode=encode, **more: encode({"r": rows, **more}), id=name
        )
    kind = message_type(DESCRIPTORS, "t.M")

    def written(rows, note=""):
        note = note.encode()
        around = b"\x22" + length(note) + note
        return PROTO_RECORD * len(rows) + (b"\x12" + length(around) + around if note else b"")

    yield pytest.param(ProtobufMessages(INSIDE, kind, False), written, id="protobuf")


def length(data):
    size, found = len(data), b""
    while size > 127:
        found, size = found + bytes([size & 127 | 128]), size >> 7
    return found + bytes([size])


@pytest.mark.parametrize(("decoder", "encode"), list(long_lists()))
def test_long_lists_of_records_are_read_in_parts(decoder, encode):
    """A hundred thousand records come out as they went in, and what is around them has a length."""
    rows = [{"ts": NOW, "a": 1.5, "b": 2.25, "u": "anna"}] * 100_000
    batch = decoder.decode([encode(rows[:1]), encode(rows), encode(rows[:2])], 7)
    assert batch.positions.tolist() == [7] + [8] * 100_000 + [9, 9]
    assert batch.rejections == []
    assert set(batch.values[:, 0]) == {1.5}
    assert set(batch.users) == {"anna"}
    for size, reasons in ((bounds.READ_AT_ONCE // 40, set()), (3 * bounds.READ_AT_ONCE, {"too_long"})):
        batch = decoder.decode([encode(rows[:30_000], note="x" * size)], 0)
        assert {each.reason for each in batch.rejections} == reasons
        assert len(batch.times_ms) == (0 if reasons else 30_000)


NAMES = {
    "json": [b'"r":', b'"\\u0072" :'],
    "msgpack": [b"\xa1r", b"\xd9\x01r", b"\xda\x00\x01r"],
    "cbor": [b"\x61r", b"\x78\x01r", b"\x7f\x60\x61r\xff", b"\xd9\xd9\xf7\x61r"],
}


def twice(name, first, second, lists, depth):
    """Write a map with two lists, each under a key that is written in a way of its own, inside of so many maps."""
    here, there = (key + ENCODE[name](some) for key, some in zip((first, second), lists, strict=True))
    body = {"json": b"{%b,%b}", "msgpack": b"\x82%b%b", "cbor": b"\xa2%b%b"}[name] % (here, there)
    for _ in range(depth):
        body = {"json": b'{"in":' + body + b"}", "msgpack": b"\x81\xa2in" + body, "cbor": b"\xa1\x62in" + body}[name]
    return body


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("name", ENCODE)
def test_no_list_that_is_there_twice_is_read_twice(name, depth):
    """A short list beside the long one would be read again with each slice if the two were mistaken."""
    schema = Schema("ts", "ms", ("a",), "u", records=FieldPath(("in",) * depth + ("r",)))
    decoder, record = decoder_for(name, schema), {"ts": NOW, "a": 1.5, "u": "anna"}
    lists = [[record] * 12_000, [{**record, "a": 2.5}] * 50]
    for first, second in itertools.product(NAMES[name], repeat=2):
        for former, latter in (lists, lists[::-1]):
            batch = decoder.decode([twice(name, first, second, (former, latter), depth)], 0)
            values, reasons = batch.values[:, 0].tolist(), {each.reason for each in batch.rejections}
            assert values == ([] if reasons else [each["a"] for each in latter]), (first, second)
            assert reasons <= {"broken_record", "too_long"}


def test_records_of_protobuf_are_told_apart_as_the_library_does():
    """A record with a tag that is written in another way is one, or its part is broken: it is in no two slices."""
    decoder = ProtobufMessages(INSIDE, message_type(DESCRIPTORS, "t.M"), False)
    many = PROTO_RECORD * 20_000
    for tag in (b"\x8a\x00", b"\x8a\x80\x80\x80\x00", b"\x8a\x80\x80\x80\x80\x00", b"\x8a\x80\x80\x80\x10"):
        batch = decoder.decode([many + tag + PROTO_RECORD[1:]], 0)
        assert len(batch.times_ms) <= 20_001 - len(batch.rejections), tag
        assert len(batch.rejections) == (len(tag) == 6 or tag[-1] > 0)


def test_wrong_records_of_a_long_list_are_rejected_alone():
    good = json.dumps({"ts": NOW, "a": 1.5, "u": "anna"})
    some = [good, "", "[", '{"ts":1}', '"]"', good]
    for wrong, count in ((",".join([good, "", "tru", '"]"', good]), 3), (good + ",", 1)):
        text = '{"r":[' + ",".join([wrong] * 12_000) + "]}"
        assert len(text) > 2 * bounds.READ_AT_ONCE
        whole = decoder_for("json", INSIDE).decode([text.encode()], 0)
        assert sum(each.count for each in whole.rejections) == 12_000 * count - (wrong[-1] == ",")
        assert len(whole.times_ms) == 12_000 * wrong.count("anna")
    batch = decoder_for("json", INSIDE).decode([('{"r":[' + ",".join(some * 9000) + "]}").encode()], 0)
    assert [(each.reason, each.count) for each in batch.rejections] == [
        ("broken_record", 1)
    ]  # its brackets do not match


def test_elements_of_lists():
    count = bounds.PACKED_ELEMENTS
    for name, head in (("msgpack", b"\x81\xa1r\xdd"), ("cbor", b"\xa1\x61r\x9a")):
        decoder = decoder_for(name, INSIDE)
        for size, reason in ((count, "broken_record"), (count + 1, "too_long")):
            found = decoder.decode([head + size.to_bytes(4) + b"\0" * size], 0).rejections
            assert {each.reason for each in found} == {reason}
    decoder = ProtobufMessages(INSIDE, message_type(DESCRIPTORS, "t.M"), False)
    for size, reason in ((2**17, "missing"), (count + 1, "too_long")):
        assert {each.reason for each in decoder.decode([b"\x0a\0" * size], 0).rejections} == {reason}
    marks = bounds.LIST_ELEMENTS
    for size, reason in ((marks - 4, "broken_record"), (marks + 1, "too_long")):
        batch = decoder_for("json", INSIDE).decode([b'{"r":[' + b"0," * size + b"0]}"], 0)
        assert {each.reason for each in batch.rejections} >= {reason}
    array = Bodies("json", PLAIN, {}).decode([b"A[" + b"0," * marks + b"0]"], 0)
    assert [each.reason for each in array.rejections] == ["too_long"]


def test_memory_that_a_type_says():
    decoder = decoder_for("otlp-metrics", Schema("time_unix_nano", "ns", ("a",)))
    points = bounds.OBJECT_BYTES // 320
    for size, reason in ((points - 9, "missing"), (points + 1, "too_long")):
        assert {each.reason for each in decoder.decode([gauge(b"\x0a\0" * size)], 0).rejections} == {reason}
    wanted = {"type": "array", "items": "int"}
    avro = AvroMessages(PLAIN, reading(wanted))
    most = bounds.OBJECT_BYTES // 40
    for size, reason in ((most - 30, None), (most + 1, "too_long")):
        file = io.BytesIO()
        fastavro.schemaless_writer(file, json.loads(reading(wanted)), {"ts": NOW, "a": 1.5, "z": [1] * size})
        found = avro.decode([file.getvalue()], 0).rejections
        assert [each.reason for each in found] == ([reason] if reason else [])


def test_packs_and_lines_have_a_length():
    def pack(size):
        return b'[{"n":"a","v":1.5,"t":1760000000}' + b" " * (size - 34) + b"]"

    for name, size in (("senml", bounds.SENML_BYTES),):
        decoder = decoder_for(name, Schema("t", "s", ("v",), "n"))
        assert (verdict(decoder, pack(size)), verdict(decoder, pack(size + 1))) == ([[1.5]], ["too_long"])

    def line(size):
        return b'm a=1.5,b="' + b"x" * (size - 26) + b'" ' + str(NOW).encode()

    decoder = decoder_for("influx", Schema("time", "ms", ("a",)))
    assert len(line(bounds.READ_AT_ONCE)) == bounds.READ_AT_ONCE
    assert verdict(decoder, line(bounds.READ_AT_ONCE)) == [[1.5]]
    assert verdict(decoder, b"m a=1.5 1\n" + line(bounds.READ_AT_ONCE + 1)) == ["too_long"]


def test_columns_of_arrow():
    decoder = decoder_for("arrow", PLAIN)
    columns = {f"x{i}": [1] for i in range(bounds.ARROW_FIELDS - 2)}
    assert verdict(decoder, arrow(ts=[NOW], a=[1.5], **columns)) == [[1.5]]
    assert verdict(decoder, arrow(ts=[NOW], a=[1.5], x=[1], **columns)) == ["too_long"]


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ({"columns": 9}, {"columns": 200_000}),
        ({"depth": 3}, {"depth": 20, "name": b"x" * 500_000}),
        ({"columns": 9, "name": b"x" * 100_000}, {"columns": 99, "name": b"x" * 100_000}),
        ({"pairs": 2, "text": b"x" * 250_000}, {"pairs": 1000, "text": b"x" * 1_000_000}),
        ({"pairs": 1000}, {"pairs": 100_000}),
    ],
)
def test_metadata_of_arrow_that_are_used_many_times(few, many):
    """Half a megabyte of them ended the process: it stood for a million columns with a long name each."""
    decoder = decoder_for("arrow", PLAIN)
    assert verdict(decoder, shared_schema(**few)) == ["missing"]
    assert verdict(decoder, shared_schema(**many)) == ["too_long"]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured as Linux tells it")
def test_lines_of_nothing_but_commas():
    decoder = CsvRows(PLAIN, b"ts,a")
    commas = [b"," * 2**20] * 16

    class Together:
        def decode(self, _lines, _first):
            return decoder.decode(commas, 0)

    used, records = memory(Together(), b"")
    assert (used < 50e6, records) == (True, 0)  # it was 142 MB
    assert [each.reason for each in decoder.decode(commas, 0).rejections] == ["broken_record"] * 16
