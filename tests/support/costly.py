"""Messages that may cost more than their length: a grammar of each format, parts of which a search repeats.

A message is a head, parts that are repeated up to a length, and a tail. Parts are drawn from the atoms of a format:
empty and nested containers, chosen keys, numbers of many digits, long and odd texts, and records that are almost usual.
"""

import ctypes
import gc
import io
import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cbor2
import fastavro
import msgspec
import numpy as np
from google.protobuf import descriptor_pb2
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fcstream.connectors.http.bodies import Bodies
from fcstream.formats.avro import AvroMessages
from fcstream.formats.batch import Schema
from fcstream.formats.bounds import LONGEST_MESSAGE, SENML_BYTES
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for
from fcstream.formats.protobuf import ProtobufMessages, message_type
from support.payloads import arrow

NOW = 1_760_000_000_000
PLAIN = Schema("ts", "ms", ("a", "b"), "u")
INSIDE = Schema("ts", "ms", ("a", "b"), "u", records=FieldPath(("r",)))


class Grammar(NamedTuple):
    """A format: its decoder, a usual record, and frames and atoms of messages.

    Attributes
    ----------
    decoder : LineDecoder
    usual : callable
        Makes a usual message of about so many bytes.
    frames : list of (bytes or callable, bytes, bytes)
        Head, what stands between parts, and tail; a head may depend on the number of parts.
    atoms : callable
        Draws a part.
    size : int
        Most bytes of a message.
    """

    decoder: object
    usual: Callable[[int], bytes]
    frames: list
    atoms: Callable[[random.Random], bytes]
    size: int = LONGEST_MESSAGE - 1


def filled(frame, parts, size):
    """Return a message of at most `size` bytes: parts in turn between a frame's head and tail."""
    head, between, tail = frame
    each = sum(map(len, parts)) + len(between) * len(parts)
    turns = max(1, (size - 200 - len(tail)) // max(1, each))
    body = between.join(parts * turns)
    start = head(len(parts) * turns) if callable(head) else head
    return (start + body + tail)[:size]


RECORD = {"ts": NOW, "a": 1.5, "b": 2.25, "u": "anna"}


def json_atoms(draw):
    number = "1" * draw.choice([1, 20, 400, 4299, 4301, 200_000])
    return draw.choice(
        [
            *(
                "1",
                "{}",
                "[]",
                '""',
                "null",
                "[[]]",
                '{"ts":1}',
                '{"":{}}',
                "-0",
                "1e999",
                "1e-999",
                number,
                f"0.{number}",
            ),
            *(f"1e{number}", "[" * 400 + "]" * 400, '{"x":' * 300 + "1" + "}" * 300, '"' + "\\u0041" * 99 + '"'),
            *('"' + "\\ud800" * 50 + '"', '"' + "é" * 300 + '"', json.dumps(RECORD), json.dumps({**RECORD, "a": "x"})),
            *(json.dumps({**RECORD, "u": "x" * 1025}), json.dumps({**RECORD, "b": None}), f'{{"ts":{number}}}'),
            *(json.dumps({**RECORD, f"k{draw.random()}": 1}), "tru", "{", "}", "]", '"', "\\", "NaN", "\n", " " * 50),
        ]
    ).encode()


def of_json(schema, kinds, frames):
    usual = {"J": (b'{"r":[', b"]}"), "A": (b"[", b"]"), "N": (b"", b"")}[kinds]

    def make(size):
        between = b"\n" if kinds == "N" else b","
        return usual[0] + between.join([json.dumps(RECORD).encode()] * max(1, (size - 20) // 58)) + usual[1]

    return Grammar(Bodies("json", schema, {}), lambda size: kinds.encode() + make(size - 20), frames, json_atoms)


PACK = msgspec.msgpack.encode


def colliding(count):
    """Return lists of two numbers with one hash, which CPython's tuples have whatever the seed of hashes is."""
    first, second, start, whole = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64
    inverse, found, number = pow(second, -1, whole), [], 0

    def lane(total, value):
        total = (total + value * second) % whole
        return ((total << 31 | total >> 33) % whole) * first % whole

    wanted = (lane(start, 1) + 2 * second) % whole
    while len(found) < count:
        number += 1
        other = (wanted - lane(start, number)) * inverse % whole
        if other < 2**61 - 1:
            found.append((number, other))
    return found


COLLIDING = b"\xdf" + (12_000).to_bytes(4) + b"".join(PACK(pair) + b"\0" for pair in colliding(12_000))


def msgpack_atoms(draw):
    deep = draw.choice([3, 31, 200, 500])
    return draw.choice(
        [
            *(
                b"\x00",
                b"\x80",
                b"\x90",
                b"\xa0",
                b"\xc0",
                b"\xc1",
                b"\xc4\x00",
                b"\x91\x90",
                b"\x81\xa0\x80",
                b"\xd4\x00\x00",
            ),
            *(
                b"\x91" * deep + b"\x00",
                b"\x81\xa1x" * deep + b"\x00",
                PACK(RECORD),
                PACK({**RECORD, "a": "x"}),
                PACK("é" * 99),
            ),
            COLLIDING,
            *(b"\x81\x92\x01\x02\x00", b"\x81\xcb" + draw.randbytes(8) + b"\x00", b"\x81\xc0\x00", b"\xa1\xff"),
            *(b"\xd7\xff" + draw.randbytes(8), b"\xdf\x00\x00\x00\x01\xa1x\x00", PACK(2**63), PACK({"x": [{}] * 9})),
        ]
    )


def msgpack_head(tag, wrap, kind):
    return lambda count: tag + wrap + bytes([kind]) + (count // (2 if kind == 0xDF else 1)).to_bytes(4)


def cbor_atoms(draw):
    bytes_ = draw.choice([1, 8, 120, 128, 129, 2000, 60_000])
    big = b"\xc2\x59" + bytes_.to_bytes(2) + b"\xff" * bytes_
    deep = draw.choice([3, 100, 390, 500])
    return draw.choice(
        [
            *(
                b"\x00",
                b"\x80",
                b"\xa0",
                b"\x60",
                b"\x40",
                b"\xf6",
                b"\xf7",
                b"\xe0",
                b"\x9f\xff",
                b"\xbf\xff",
                b"\x7f\xff",
            ),
            *(
                b"\x5f\x41a\xff",
                b"\x81" * deep + b"\x00",
                b"\xa1\x61x" * deep + b"\x00",
                b"\xd9\xd9\xf7" * deep + b"\x00",
            ),
            *(
                big,
                b"\xc4\x82\x00" + big,
                b"\xc4\x82\x19\x07\xff" + big,
                b"\xc5\x82\x39\x07\xff" + big,
                b"\xc5\x82\x19\x07\xff\x01",
            ),
            *(
                b"\xc0\x741970-01-01T00:00:00Z",
                b"\xc1\x00",
                b"\xc1\xfb" + b"\x7f" * 8,
                b"\xd8\x23\x61a",
                b"\xd8\x1c\x80",
            ),
            *(
                cbor2.dumps(RECORD),
                cbor2.dumps({**RECORD, "a": "x"}),
                b"\xa1\x00\x00",
                b"\xa1\x82\x01\x02\x00",
                b"\xa1" + big + b"\x00",
            ),
            *(b"\x61\xff", cbor2.dumps("é" * 99), b"\xd9\x01\x02\x82\x01\x01"),
        ]
    )


def cbor_head(start, major):
    return lambda count: start + bytes([major | 26]) + (count // (2 if major == 0xA0 else 1)).to_bytes(4)


def influx_atoms(draw):
    many = draw.choice([2, 50, 900, 999, 12_000])
    return draw.choice(
        [
            *(
                "m",
                "m a=1",
                "#",
                " ",
                ",",
                "m,=",
                "m,u=x a=1,b=2 1",
                f"m,u=anna a=1.5,b=2.25 {NOW}",
                "m,u=x a=1i,b=t 1",
            ),
            *(
                "m" + ",t=x" * many + " a=1 1",
                "m" + "".join(f",t{i}=x" for i in range(many)) + " a=1 1",
                "m a=" + "1" * many,
            ),
            *(
                "m " + ",".join(f"t{i}=1" for i in range(many)) + " 1",
                'm a="' + ",=" * many + '" 1',
                "m\\ " * many + " a=1",
            ),
            *(
                'm a="' + '\\"' * many + '" 1',
                "é" * many,
                "m,u=" + "x" * 1025 + " a=1,b=1 1",
                "m,u=x a=1,b=2 " + "9" * many,
            ),
        ]
    ).encode()


def senml_atoms(draw):
    return draw.choice(
        [
            *(
                "{}",
                "1",
                '{"v":1}',
                '{"v":"x"}',
                '{"bn":"a"}',
                '{"bn":"' + "n" * draw.choice([1, 1024, 1025]) + '","v":1}',
            ),
            *(
                '{"bt":1e9,"v":1,"n":"x"}',
                '{"bv":1}',
                '{"bs":1,"s":1}',
                '{"x_":1}',
                '{"n":"' + "é" * 300 + '","v":1,"t":1e9}',
            ),
            '{"n":"anna","v":21.5,"t":1760000000}',
        ]
    ).encode()


def otlp(metrics, points, attributes=0, name="a", kind="gauge"):
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for _ in range(metrics):
        metric = scope.metrics.add(name=name)
        for i in range(points):
            point = getattr(metric, kind).data_points.add(time_unix_nano=NOW * 10**6)
            if kind == "gauge":
                point.as_double = 1.5
            for k in range(attributes):
                point.attributes.add(key=f"k{k}").value.string_value = str(i)
    return request.SerializeToString()


def otlp_atoms(draw):
    many = draw.choice([1, 10, 300])
    return draw.choice(
        [
            *(
                b"\x0a\x00",
                b"\x0a\x02\x12\x00",
                b"\x0a\x04\x12\x02\x12\x00",
                b"\x10\x00",
                b"\x0a\x02\x0a\x00",
                otlp(many, 0, 0),
            ),
            *(
                otlp(1, many),
                otlp(1, many, 5),
                otlp(many, 1),
                otlp(1, many, 0, "x"),
                otlp(1, many, 0, "a", "histogram"),
            ),
            *(otlp(1, many, 0, "n" * 5000, "histogram"), otlp(1, 3, many)),
        ]
    )


def gauge(points):
    """Return a request with one gauge of points, which are written already."""

    def inside(tag, body):
        size, found = len(body), b""
        while size > 127:
            found, size = found + bytes([size & 127 | 128]), size >> 7
        return bytes([tag]) + found + bytes([size]) + body

    return inside(0x0A, inside(0x12, inside(0x12, b"\x0a\x01a" + inside(0x2A, points))))


def gauge_head(count):
    """Begin a gauge whose points are what follows, of which it is not known how long it is."""
    return b"\x0a\xf0\x7f\x12\xe0\x7f\x12\xd0\x7f\x0a\x01a\x2a\xc0\x7f"


POINT = b'{"asDouble":1.5,"timeUnixNano":"1760000000000000000","attributes":[]}'
_METRIC = b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a","'
OTLP_JSON = [
    (b'{"resourceMetrics":[', b",", b"]}"),
    (_METRIC + b'gauge":{"dataPoints":[', b",", b"]}}]}]}]}"),
    (_METRIC + b'histogram":{"dataPoints":[', b",", b"]}}]}]}]}"),
    (_METRIC + b'gauge":{"dataPoints":[{"attributes":[', b",", b"]}]}}]}]}]}"),
]


def otlp_json_atoms(draw):
    many = draw.choice([1, 5, 500])
    return draw.choice(
        [
            *(POINT, b"{}", b"1", b"[]", b"null", b'{"scopeMetrics":[' + b",".join([b"{}"] * many) + b"]}"),
            *(
                b'{"key":"k","value":{"stringValue":"x"}}',
                b'{"value":{"arrayValue":{"values":[{}]}}}',
                b'{"attributes":[{}]}',
            ),
            *(b'{"asInt":"' + b"1" * many + b'"}', b'{"x":' + b"[" * many + b"]" * many + b"}", '"é"'.encode() * many),
        ]
    )


def _descriptors():
    """Describe messages of records (1), each with numbers, texts, lists and records in it, and of a note (2)."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="t.proto", package="t", syntax="proto3")
    record = file.message_type.add(name="R")
    kinds = (("ts", 3, 1, ""), ("a", 1, 1, ""), ("b", 1, 1, ""), ("u", 9, 1, ""), ("r", 11, 3, ".t.R"), ("s", 9, 3, ""))
    for i, (name, kind, label, other) in enumerate((*kinds, ("d", 3, 3, "")), 1):
        record.field.add(name=name, number=i, type=kind, label=label, type_name=other or None)
    whole = file.message_type.add(name="M")
    whole.field.add(name="r", number=1, type=11, label=3, type_name=".t.R")
    whole.field.add(name="note", number=2, type=11, label=1, type_name=".t.R")
    return found


DESCRIPTORS = _descriptors()
_RECORD = b"\x08\x80\xc0\xb2\xc1\x9c3" + struct.pack("<BdBd", 0x11, 1.5, 0x19, 2.25) + b"\x22\x04anna"
PROTO_RECORD = b"\x0a" + bytes([len(_RECORD)]) + _RECORD


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        *(
            {"name": name, "type": kind}
            for name, kind in (("ts", "long"), ("a", "double"), ("b", "double"), ("u", "string"))
        ),
        {"name": "n", "type": {"type": "array", "items": ["null", "int", {"type": "array", "items": "boolean"}]}},
        {"name": "m", "type": {"type": "map", "values": "null"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 300, "scale": 2}},
    ],
}


def avro_message(extra, maps=b"\0", decimal=b"\x02\x01"):
    file = io.BytesIO()
    fields = AVRO["fields"][:4]
    fastavro.schemaless_writer(file, {**AVRO, "fields": fields}, RECORD)
    return file.getvalue() + extra + maps + decimal


def varint(number):
    number = number << 1
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


LIST = {"type": "array", "items": {"type": "record", "name": "Each", "fields": AVRO["fields"][:4]}}
AVRO_RECORD = avro_message(b"", b"", b"")


def avro_usual(size):
    count = max(1, size - 60) // 2
    return avro_message(varint(count) + b"\x02\x02" * count + b"\0")


def avro_head(count):
    return avro_message(b"", b"", b"") + varint(count)


def csv_atoms(draw):
    return draw.choice(
        [b"1", b",", b'""', b'"', f"{NOW},1,2,anna".encode(), f"{NOW},x,2,anna".encode(), b",,,", b"," * 5000, b"\xff"]
    )


def arrow_atoms(draw):
    rows = draw.choice([1, 1000, 10_000])
    columns = {name: draw.choice([[None] * rows, np.full(rows, np.nan), np.ones(rows), ["1"] * rows]) for name in "ab"}
    times = draw.choice([np.full(rows, NOW), np.full(rows, 2**60), [None] * rows, ["x"] * rows])
    others = {f"x{i}": [True] * rows for i in range(draw.choice([0, 3, 300 if rows < 100 else 0]))}
    return arrow(ts=times, **columns, **others)


def lines_of(text):
    return lambda size: b"\n".join([text] * max(1, size // (len(text) + 1)))


FRAMES = [
    (b"A[", b",", b"]"),
    (b"J[", b",", b"]"),
    (b'J{"r":[', b",", b"]}"),
    (b"N", b"\n", b""),
    (b'J{"x":[', b",", b"]}"),
]
TIMED = Schema("time", "ms", ("a", "b"), "u")
GRAMMARS = {
    "json": lambda: of_json(PLAIN, "N", FRAMES),
    "json records": lambda: of_json(INSIDE, "J", FRAMES),
    "msgpack": lambda: Grammar(
        Bodies("msgpack", PLAIN, {}),
        lambda size: b"B\xdd" + (size // 64).to_bytes(4) + PACK(RECORD) * (size // 64),
        [(msgpack_head(b"B", b"", 0xDD), b"", b""), (msgpack_head(b"M", b"", 0xDF), b"", b"")],
        msgpack_atoms,
    ),
    "msgpack records": lambda: Grammar(
        decoder_for("msgpack", INSIDE),
        lambda size: PACK({"r": [RECORD] * max(1, size // 64)}),
        [
            (msgpack_head(b"", b"\x81\xa1r", 0xDD), b"", b""),
            (msgpack_head(b"", b"", 0xDF), b"", b""),
            (msgpack_head(b"", b"\x82\xa1r\x91\x01\xa1x", 0xDF), b"", b""),
        ],
        msgpack_atoms,
    ),
    "cbor": lambda: Grammar(
        decoder_for("cbor", INSIDE),
        lambda size: cbor2.dumps({"r": [RECORD] * max(1, size // 64)}),
        [
            (cbor_head(b"\xa1\x61r", 0x80), b"", b""),
            (cbor_head(b"", 0xA0), b"", b""),
            (cbor_head(b"\xa2\x61r\x81\x01\x61x", 0xA0), b"", b""),
            (b"\x9f", b"", b"\xff"),
        ],
        cbor_atoms,
    ),
    "influx": lambda: Grammar(
        decoder_for("influx", TIMED), lines_of(b"m,u=anna a=1.5,b=2.25 %d" % NOW), [(b"", b"\n", b"")], influx_atoms
    ),
    "senml": lambda: Grammar(
        decoder_for("senml", Schema("t", "s", ("v",), "n")),
        lambda size: b"[" + b",".join([b'{"n":"anna","v":21.5,"t":1760000000}'] * max(1, size // 37)) + b"]",
        [(b"[", b",", b"]"), (b'[{"bn":"x","bt":1e9},', b",", b"]")],
        senml_atoms,
        SENML_BYTES,
    ),
    "senml-cbor": lambda: Grammar(
        decoder_for("senml-cbor", Schema("t", "s", ("v",), "n")),
        lambda size: cbor2.dumps([{0: "anna", 2: 21.5, 6: 1.76e9}] * max(1, min(size, 2**15 - 9) // 27)),
        [(cbor_head(b"", 0x80), b"", b""), (cbor_head(b"\x81", 0xA0), b"", b"")],
        cbor_atoms,
        2**15,
    ),
    "otlp-metrics": lambda: Grammar(
        decoder_for("otlp-metrics", Schema("time_unix_nano", "ns", ("a",))),
        lambda size: otlp(1, max(1, min(size // 24, 100_000))),
        [(b"", b"", b""), (b"", b"", b""), (gauge_head, b"", b"")],
        otlp_atoms,
    ),
    "otlp json": lambda: Grammar(
        decoder_for("otlp-metrics", Schema("time_unix_nano", "ns", ("a",))),
        lambda size: OTLP_JSON[1][0] + b",".join([POINT] * max(1, (size - 200) // 70)) + OTLP_JSON[1][2],
        OTLP_JSON,
        otlp_json_atoms,
    ),
    "protobuf": lambda: Grammar(
        ProtobufMessages(INSIDE, message_type(DESCRIPTORS, "t.M"), False),
        lambda size: PROTO_RECORD * max(1, size // len(PROTO_RECORD)),
        [(b"", b"", b""), (b"\x12\x05\x0a\x03x{}", b"", b"")],
        lambda draw: draw.choice(
            [
                *(
                    PROTO_RECORD,
                    b"\x0a\x00",
                    b"\x0a\x02\x2a\x00",
                    b"\x0a\x04\x2a\x02\x2a\x00",
                    b"\x12\x00",
                    b"\x7a\x00",
                ),
                *(
                    b"\x78\x00",
                    b"\x0b\x0c",
                    b"\x0a\x03\x22\x01x",
                    b"\x0a\x02\x32\x00",
                    b"\x0a\x0a\x3a\x08" + b"\0" * 8,
                    b"\xff",
                ),
                *(b"\x0a\x82\x01\x3a\x80\x01" + b"\x01" * 128, b"\x8a\x80\x00\x00", b"\x1a\x02\x0a\x00"),
            ]
        ),
    ),
    "avro": lambda: Grammar(
        AvroMessages(PLAIN, json.dumps(AVRO)),
        avro_usual,
        [(avro_head, b"", b"\0\0\x02\x01")],
        lambda draw: draw.choice(
            [b"\0", b"\x02\x02", b"\x04\0", b"\x04\x02\x01\0", b"\x04\xc8\x01" + b"\0" * 100 + b"\0"]
        ),
    ),
    "avro records": lambda: Grammar(
        AvroMessages(INSIDE, json.dumps({"type": "record", "name": "Some", "fields": [{"name": "r", "type": LIST}]})),
        lambda size: varint(min(size // 25, 80_000)) + AVRO_RECORD * min(size // 25, 80_000) + b"\0",
        [(varint, b"", b"\0")],
        lambda draw: draw.choice([AVRO_RECORD, b"\0", b"\0" * 18, AVRO_RECORD[:-5] + b"\0", b"\0" + AVRO_RECORD[6:]]),
        2_200_000,
    ),
    "floats": lambda: Grammar(
        decoder_for("floats", Schema("ts", "ms", ("a", "b"))),
        lambda size: struct.pack("<qdd", NOW, 1.5, 2.5) * max(1, size // 24),
        [(b"", b"", b"")],
        lambda draw: struct.pack("<qdd", draw.choice([NOW, 2**60, -1]), draw.choice([1.0, float("nan"), 1e308]), 1.0),
    ),
    "arrow": lambda: Grammar(
        decoder_for("arrow", Schema("ts", "ms", ("a", "b"))),
        lambda size: arrow(ts=np.full(size // 24, NOW), a=np.ones(size // 24), b=np.ones(size // 24)),
        [(b"", b"", b"")],
        arrow_atoms,
    ),
}


def cost(decoder, message):
    """Return how many seconds of the processor a message takes, the best of two tries."""
    found = []
    for _ in range(2):
        start = time.thread_time()
        decoder.decode([message], 0)
        found.append(time.thread_time() - start)
        if found[-1] > 0.2:
            break
    return min(found)


def memory(decoder, message):
    """Return how many bytes a message takes at most while it is decoded, besides itself, and its usable records."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    found = len(decoder.decode([message], 0).times_ms)
    return _resident("VmHWM") - before, found


def _resident(which):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


class Drawn(NamedTuple):
    """A message by what it is made of."""

    size: int
    frame: tuple
    parts: list

    def message(self):
        return filled(self.frame, self.parts, self.size)

    def __str__(self):
        return f"{self.size} bytes, {self.frame[0]}, {[part[:40] for part in self.parts]}"


def drawn(grammar, draw, worst):
    """Draw what a message is made of, one time in two like one of the worst so far."""
    size = min(grammar.size, 2 ** draw.choice([12, 16, 18, 20, 21, 22, 23, 24]) + draw.choice([-1, 0, 1, 500]))
    frame = draw.choice(grammar.frames)
    parts = [grammar.atoms(draw) for _ in range(draw.choice([1, 1, 2, 3]))]
    if not worst or draw.random() < 0.5:
        return Drawn(size, frame, parts)
    like = draw.choice(worst)
    kept = [part for part in like.parts if draw.random() < 0.8] or like.parts
    mixed = kept + parts[: draw.choice([0, 1])]
    draw.shuffle(mixed)
    return Drawn(draw.choice([size, like.size]), draw.choice([frame, like.frame]), mixed)
