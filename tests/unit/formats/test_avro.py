"""Avro against a slow twin that reads every field: framings, resolution, ids that nobody knows, hostile bytes."""

import io
import json
import random
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pytest
from support.fuzz import shaken, told
from support.slow_path import batch_from_rows

from fcstream.errors import ConfigError, SchemasUnreachable
from fcstream.formats.avro import AvroMessages
from fcstream.formats.batch import REASONS, Rejection, Schema
from fcstream.formats.envelopes import Envelope
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for, read_messages
from fcstream.formats.schemas import HEADER, FoundSchema

NOW = 1_760_000_000_000
NARROW = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "at", "type": "long"},
        {"name": "who", "type": "string"},
        {"name": "temp", "type": ["null", "double"], "default": None},
    ],
}
STATE = {"type": "enum", "name": "State", "symbols": ["off", "on"]}
BOX = {"type": "record", "name": "Box", "fields": [{"name": "state", "type": STATE}, {"name": "no", "type": "int"}]}
WIDE = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "first", "type": BOX},
        *({"name": f"x{i}", "type": ["null", "string"]} for i in range(8)),
        {"name": "who", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "temp", "type": "float"},
        {"name": "second", "type": ["null", "Box"]},
        {"name": "list", "type": {"type": "array", "items": "double"}},
        {"name": "map", "type": {"type": "map", "values": "State"}},
    ],
}
SCHEMAS = {
    "plain": Schema("at", "ms", ("temp",)),
    "user": Schema("at", "ms", ("temp",), "who"),
    "nested": Schema(
        *("at", "ms", ("state", "no"), "who"),
        levels={"state": {"off": 0, "on": 1}},
        paths={"state": FieldPath(("second", "state")), "no": FieldPath(("list", 1))},
    ),
}
WRITERS = {1: NARROW, 2: WIDE}


class Book:
    """A lookup in memory, which counts what it was asked for."""

    def __init__(self, **found):
        self.found = {f"ids/{number}": FoundSchema(json.dumps(each), "AVRO") for number, each in WRITERS.items()}
        self.found |= found
        self.asked = []

    def find(self, names):
        self.asked += names
        return {name: self.found.get(name) for name in names}


def packed(schema, record):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def framed(number, record):
    return b"\0" + number.to_bytes(4) + packed(WRITERS[number], record)


def drawn(rng):
    number = rng.choice([1, 2])
    box = {"state": rng.choice(["off", "on"]), "no": rng.randrange(9)}
    record = {
        "at": rng.choice([NOW, NOW + 1, -(2**62)]),
        "who": rng.choice(["anna", "bert", ""]),
        "temp": rng.choice([1.5, -0.25, float("nan"), *([None] if number == 1 else [])]),
        "first": box,
        **{f"x{i}": rng.choice([None, "text"]) for i in range(8)},
        "second": rng.choice([None, box]),
        "list": [0.5] * rng.randrange(3),
        "map": {"a": "on"} if rng.random() < 0.5 else {},
    }
    return number, record


def twin(number, record, schema, position):
    """Read the whole record with the writer's schema alone."""
    without = json.loads(json.dumps(WRITERS[number]).replace('"logicalType": "timestamp-millis"', '"doc": ""'))
    row = fastavro.schemaless_reader(io.BytesIO(packed(without, record)), fastavro.parse_schema(without), None)
    names = (schema.time, *schema.features, *schema.labels)
    found = {name: schema.place(name).find(row) for name in names}
    return told(batch_from_rows([found], [position], schema), position)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_messages_are_read_as_the_slow_twin_reads_them(kind):
    rng = random.Random(kind)
    decoder = AvroMessages(SCHEMAS[kind], Book())
    drawn_ones = [drawn(rng) for _ in range(1000)]
    batch = decoder.decode([framed(*each) for each in drawn_ones], 3)
    for i, each in enumerate(drawn_ones):
        assert told(batch, 3 + i) == twin(*each, SCHEMAS[kind], 3 + i), each


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_whatever_comes_nothing_is_raised(kind):
    rng = random.Random(kind)
    decoder = AvroMessages(SCHEMAS[kind], Book())
    for _ in range(10_000 // 40 // len(SCHEMAS)):
        group = [shaken(rng, framed(*drawn(rng))) for _ in range(40)]
        batch = decoder.decode(group, 100)
        assert {each.reason for each in batch.rejections} <= set(REASONS)
        for i in rng.sample(range(40), 3):
            assert told(decoder.decode([group[i]], 5), 5) == told(batch, 100 + i)


def test_only_what_is_read_is_resolved_where_that_is_faster():
    wide, narrow = (AvroMessages(SCHEMAS["user"], Book())._schemas({b"\0" + number.to_bytes(4)}) for number in (2, 1))
    ((_, found),) = wide.items()
    assert [each["name"] for each in found.reader["fields"]] == ["who", "at", "temp", "list", "map"]
    ((_, found),) = narrow.items()
    assert found.reader is None
    whole = AvroMessages(Schema("at", "ms", (), paths={"at": FieldPath(())}), Book())
    ((_, found),) = whole._schemas({b"\0\0\0\0\2"}).items()
    assert found.reader is None


def test_each_schema_is_asked_for_once():
    book = Book()
    decoder = AvroMessages(SCHEMAS["user"], book)
    for _ in range(3):
        decoder.decode([framed(1, {"at": 1, "who": "a", "temp": 1.0})] * 5, 0)
    assert book.asked == ["ids/1"]


def test_ids_in_headers_of_both_kinds_go_before_the_body():
    guid = uuid.uuid4()
    book = Book(**{f"guids/{guid}": FoundSchema(json.dumps(NARROW), "AVRO")})
    decoder = AvroMessages(SCHEMAS["user"], book)
    body = packed(NARROW, {"at": NOW, "who": "anna", "temp": 1.5})
    headers = [b"\1" + guid.bytes, b"\0\0\0\0\1", b"\1" + guid.bytes + b"x", b"\1", b"", "text", b"\2" + guid.bytes]
    envelopes = [Envelope(headers={HEADER: header}) for header in headers] + [Envelope()]
    batch = decoder.decode([body] * len(headers) + [b"\0\0\0\0\1" + body], 0, envelopes)
    assert batch.positions.tolist() == [0, 1, 7]
    assert batch.values.tolist() == [[1.5]] * 3
    assert batch.rejections == [Rejection("broken_record", i) for i in (2, 3, 4, 5, 6)]


def test_unknown_and_foreign_schemas_are_rejected_with_the_reason():
    recursive = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    empty = {"type": "record", "name": "N", "fields": [{"name": "all", "type": {"type": "array", "items": "null"}}]}
    book = Book(
        **{
            "ids/10": FoundSchema("{}", "JSON"),
            "ids/11": FoundSchema("{", "AVRO"),
            "ids/12": FoundSchema('{"type": "recrod"}', "AVRO"),
            "ids/13": FoundSchema(json.dumps(recursive), "AVRO"),
            "ids/14": FoundSchema(json.dumps(empty), "AVRO"),
            "ids/15": FoundSchema("[" * 10**5, "AVRO"),
        }
    )
    bodies = [b"\0" + number.to_bytes(4) + b"\2" * 10**5 for number in (9, 10, 11, 12, 13, 14, 15)]
    bodies += [b"\0\xff\xff\xff\xff\0", b"\1", b"", b"{}"]
    batch = AvroMessages(SCHEMAS["user"], book).decode(bodies, 0)
    assert [each.reason for each in batch.rejections] == ["unknown_schema"] * 7 + ["broken_record"] * 4


def test_schemas_that_refer_to_others_are_put_together():
    reading = {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "at", "type": "long"}, {"name": "box", "type": "plant.Box"}],
    }
    book = Book(**{"ids/7": FoundSchema(json.dumps(reading), "AVRO", (json.dumps(BOX | {"namespace": "plant"}),))})
    whole = reading | {
        "fields": [{"name": "at", "type": "long"}, {"name": "box", "type": BOX | {"namespace": "plant"}}]
    }
    schema = Schema("at", "ms", ("no",), paths={"no": FieldPath(("box", "no"))})
    body = b"\0\0\0\0\7" + packed(whole, {"at": NOW, "box": {"state": "on", "no": 5}})
    assert AvroMessages(schema, book).decode([body], 0).values.tolist() == [[5.0]]


def test_times_may_be_stored_in_another_unit_and_decimals_are_numbers():
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ]
    writer = {"type": "record", "name": "R", "fields": fields}
    record = {"at": datetime(2026, 1, 1, tzinfo=UTC), "cost": Decimal("12.34"), "day": 5}
    book = Book(**{"ids/7": FoundSchema(json.dumps(writer), "AVRO")})
    for unit in ("ms", "s", "us", "ns", "iso8601"):
        batch = AvroMessages(Schema("at", unit, ("cost", "day")), book).decode(
            [b"\0\0\0\0\7" + packed(writer, record)], 0
        )
        assert batch.times_ms.tolist() == [1_767_225_600_000], unit
        assert batch.values.tolist() == [[12.34, 5.0]]


def test_without_a_registry_a_file_has_the_schema_of_all_messages(tmp_path):
    (tmp_path / "reading.avsc").write_text(json.dumps(NARROW))
    decoder = decoder_for("avro", SCHEMAS["user"], {"schema_file": str(tmp_path / "reading.avsc")})
    body = packed(NARROW, {"at": NOW, "who": "anna", "temp": 1.5})
    batch = decoder.decode([body, body + b"\0", body[:-1], b""], 0)
    assert (batch.users.tolist(), batch.values.tolist()) == (["anna"], [[1.5]])
    assert batch.rejections == [Rejection("broken_record", i) for i in (1, 2, 3)]


def test_configurations_that_cannot_work_are_refused(tmp_path):
    (tmp_path / "broken.avsc").write_text('{"type": "record"')
    for options, message in (
        ({}, r"^source\.registry: or else `source\.schema_file` must be given with format = 'avro'"),
        ({"schema_file": str(tmp_path / "none.avsc")}, r"^source\.schema_file: cannot be read: No such file"),
        ({"schema_file": str(tmp_path / "broken.avsc")}, r"^source\.schema_file: must be a file with an Avro schema"),
        ({"registry": Book(), "schema_file": "x"}, r"^source\.registry: or else"),
        ({"message": "x"}, r"^source\.message: belongs to format = 'protobuf', the format is 'avro'"),
    ):
        with pytest.raises(ConfigError, match=message):
            decoder_for("avro", SCHEMAS["user"], options)


def test_a_registry_that_does_not_answer_rejects_nothing():
    import numpy as np

    class Away:
        def find(self, names):
            raise SchemasUnreachable("away")

    decoder = decoder_for("avro", SCHEMAS["user"], {"registry": Away()})
    with pytest.raises(SchemasUnreachable):
        read_messages(decoder, np.array([1]), np.array([NOW]), [framed(1, {"at": 1, "who": "a", "temp": 1.0})])
