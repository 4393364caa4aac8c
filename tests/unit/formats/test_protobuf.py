"""Protobuf against the library's own dictionaries: presence, nested fields, framing, files that cannot work."""

import random

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.json_format import MessageToDict
from support.fuzz import shaken, told
from support.slow_path import batch_from_rows

from fcstream.errors import ConfigError
from fcstream.formats.batch import REASONS, Rejection, Schema
from fcstream.formats.envelopes import Envelope
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for
from fcstream.formats.schemas import HEADER

NOW = 1_760_000_000_000
DOUBLE, INT64, INT32, BOOL, STRING, MESSAGE, BYTES, ENUM = 1, 3, 5, 8, 9, 11, 12, 14
ONE, MANY = 1, 3


def files():
    """A set of descriptors, as protoc writes it."""
    found = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="plant.proto", package="plant", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="ON", number=1)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=INT32, label=ONE)
    reading = file.message_type.add(name="Reading")
    box = reading.nested_type.add(name="Box")
    box.field.add(name="no", number=1, type=INT32, label=ONE)
    box.field.add(name="inner", number=2, type=MESSAGE, label=ONE, type_name=".plant.Reading.Box")
    counts = reading.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, type=STRING, label=ONE)
    counts.field.add(name="value", number=2, type=INT64, label=ONE)
    kinds = [
        *(("at", INT64, ONE, ""), ("who", STRING, ONE, ""), ("temp", DOUBLE, ONE, ""), ("on", BOOL, ONE, "")),
        *(("state", ENUM, ONE, ".plant.State"), ("box", MESSAGE, ONE, ".plant.Reading.Box")),
        *(("list", DOUBLE, MANY, ""), ("boxes", MESSAGE, MANY, ".plant.Reading.Box"), ("maybe", DOUBLE, ONE, "")),
        ("moment", MESSAGE, ONE, ".google.protobuf.Timestamp"),
        ("wrapped", MESSAGE, ONE, ".google.protobuf.DoubleValue"),
        ("counts", MESSAGE, MANY, ".plant.Reading.CountsEntry"),
    ]
    for number, (name, kind, label, type_name) in enumerate(kinds, 1):
        field = reading.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            field.type_name = type_name
        if name == "maybe":
            field.proto3_optional, field.oneof_index = True, 0
    reading.oneof_decl.add(name="_maybe")
    return found


FILES = files()
POOL = descriptor_pool.DescriptorPool()
for each in FILES.file:
    POOL.Add(each)
Reading = message_factory.GetMessageClass(POOL.FindMessageTypeByName("plant.Reading"))
LEVELS = {"OFF": 0, "ON": 1}
SCHEMAS = {
    "plain": Schema("at", "ms", ("temp",)),
    "user": Schema("at", "ms", ("temp", "maybe"), "who", optional=frozenset({"maybe"})),
    "levels": Schema("at", "ms", ("state", "on"), levels={"state": LEVELS, "on": {False: 0, True: 1}}),
    "nested": Schema(
        *("at", "ms", ("a", "b", "c", "wrapped")),
        paths={"a": FieldPath(("box", "inner", "no")), "b": FieldPath(("list", 1)), "c": FieldPath(("counts", "k"))},
        optional=frozenset({"a", "wrapped"}),
    ),
    "moment": Schema("moment", "ms", ("temp",)),
    "records": Schema("at", "ms", ("no",), "who", records=FieldPath(("boxes",))),
}


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    path = tmp_path_factory.mktemp("proto") / "plant.desc"
    path.write_bytes(FILES.SerializeToString())
    return {"schema_file": str(path), "message": "plant.Reading"}


def drawn(rng):
    reading = Reading(at=NOW + rng.randrange(9), who=rng.choice(["anna", "bert", ""]), temp=rng.choice([0, 1.5, -2]))
    reading.on, reading.state = rng.random() < 0.5, rng.choice([0, 1, 7])
    if rng.random() < 0.5:
        reading.maybe = rng.choice([0.0, 2.5])
    if rng.random() < 0.7:
        reading.box.inner.no = rng.randrange(3)
    if rng.random() < 0.7:
        reading.moment.FromMilliseconds(NOW)
        reading.wrapped.value = 4.5
    reading.list.extend([1.0, 2.0][: rng.randrange(3)])
    for _ in range(rng.randrange(3)):
        reading.boxes.add(no=rng.randrange(5))
    if rng.random() < 0.7:
        reading.counts["k"] = 9
    return reading


def twin(reading, schema, position):
    """Records through the library's dictionaries, with its own rules for fields that were not set."""
    row = MessageToDict(reading, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    row["at"], row["counts"] = int(row["at"]), {key: int(value) for key, value in row["counts"].items()}
    if "moment" in row:
        row["moment"] = NOW
    names = (schema.time, *schema.features, *schema.labels)
    rows = [row] if schema.records is None else [row | box for box in row["boxes"]]
    found = [{name: schema.place(name).find(one) for name in names} for one in rows]
    return told(batch_from_rows(found, [position] * len(found), schema), position)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_messages_are_read_as_the_slow_twin_reads_them(kind, options):
    rng = random.Random(kind)
    readings = [drawn(rng) for _ in range(300)]
    batch = decoder_for("protobuf", SCHEMAS[kind], options).decode([one.SerializeToString() for one in readings], 3)
    for i, one in enumerate(readings):
        assert told(batch, 3 + i) == twin(one, SCHEMAS[kind], 3 + i), one


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_whatever_comes_nothing_is_raised(kind, options):
    rng = random.Random(kind)
    for framing in ({}, {"framing": "confluent"}):
        decoder = decoder_for("protobuf", SCHEMAS[kind], options | framing)
        head = b"\0\0\0\0\7\2\2" if framing else b""
        for _ in range(10_000 // 40 // len(SCHEMAS) // 2):
            group = [shaken(rng, head + drawn(rng).SerializeToString()) for _ in range(40)]
            batch = decoder.decode(group, 100)
            assert {each.reason for each in batch.rejections} <= set(REASONS)
            for i in rng.sample(range(40), 3):
                assert told(decoder.decode([group[i]], 5), 5) == told(batch, 100 + i)


def test_an_empty_message_and_other_bytes_are_rejected(options):
    whole = Reading(at=NOW, temp=1.5).SerializeToString()
    batch = decoder_for("protobuf", SCHEMAS["plain"], options).decode([whole, b"", whole[:-1], b"\xff\xff"], 0)
    assert batch.positions.tolist() == [0]
    assert batch.rejections == [Rejection("broken_record", i) for i in (1, 2, 3)]


def test_confluent_s_bytes_before_the_message_and_in_a_header(options):
    decoder = decoder_for("protobuf", SCHEMAS["plain"], options | {"framing": "confluent"})
    whole = Reading(at=NOW, temp=1.5).SerializeToString()
    second = b"\2\2"  # one index, the second message of the file
    bodies = [b"\0\0\0\0\7" + second + whole, b"\0\0\0\0\7\0" + whole, whole, b"\0\0\0\0\7", whole, whole]
    headers = [None, None, None, None, b"\1" + bytes(16) + second, b"\1" + bytes(16) + second + b"x"]
    envelopes = [Envelope(headers={} if header is None else {HEADER: header}) for header in headers]
    batch = decoder.decode(bodies, 0, envelopes)
    assert batch.positions.tolist() == [0, 4]
    assert [(each.position, each.reason) for each in batch.rejections] == [
        *((1, "unknown_schema"), (2, "broken_record"), (3, "broken_record"), (5, "broken_record"))
    ]


def test_configurations_that_cannot_work_are_refused(tmp_path, options):
    (tmp_path / "text.desc").write_text("syntax = 'proto3';")
    alone = descriptor_pb2.FileDescriptorSet(file=[FILES.file[2]])
    alone.file[0].dependency.append("site/other.proto")
    (tmp_path / "alone.desc").write_bytes(alone.SerializeToString())
    for changed, message in (
        ({"schema_file": str(tmp_path / "none")}, r"^source\.schema_file: cannot be read: No such file"),
        ({"schema_file": str(tmp_path / "text.desc")}, r"^source\.schema_file: must be a set of descriptors"),
        ({"schema_file": str(tmp_path / "alone.desc")}, r"^source\.schema_file: must hold all that its files import"),
        ({"message": "Reading"}, r"^source\.message: must be a message of .*, got 'Reading': it has google\.protobuf"),
        ({"message": "plant.Other"}, r"^source\.message: must have the field 'at': plant\.Other has x$"),
    ):
        with pytest.raises(ConfigError, match=message):
            decoder_for("protobuf", SCHEMAS["plain"], options | changed)
    with pytest.raises(ConfigError, match=r"^source\.message: is required"):
        decoder_for("protobuf", SCHEMAS["plain"], {"schema_file": options["schema_file"]})
