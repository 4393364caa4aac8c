"""Equal rejections of one message are one entry, whatever decoder finds them; no entry holds what a sender wrote."""

import random
import time
import tracemalloc
from collections import Counter

import cbor2
import msgspec
import numpy as np
import pytest
from line_protocol_parser import parse_line
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support.payloads import arrow

from fcstream.connectors.http.bodies import Bodies
from fcstream.formats import cells, influx_lines
from fcstream.formats.batch import Rejection, Schema
from fcstream.formats.decoders import CsvRows
from fcstream.formats.nested import objects_decoder
from fcstream.formats.paths import parse_path
from fcstream.formats.payloads import decoder_for, read_messages
from fcstream.formats.rejections import moved, rejected_at, tallied, total

NOW = 1_760_000_000_000
ROWS = 3000
PLAIN = Schema("ts", "ms", ("a",))


def test_equal_ones_are_counted_together():
    rng = random.Random(1)
    each = [
        Rejection(rng.choice("ab"), rng.randrange(4), rng.choice([None, "x"]), rng.randrange(1, 4)) for _ in range(99)
    ]
    wanted = Counter()
    for one in each:
        wanted[one.position, one.reason, one.field] += one.count
    found = tallied(each)
    assert {(one.position, one.reason, one.field): one.count for one in found} == wanted
    assert [one.position for one in found] == sorted(one.position for one in found)
    assert total(found) == total(each)
    assert moved(each, np.array([7, 7, 7, 7]))[0].position == 7
    assert total(moved(each, np.array([7, 7, 8, 8]))) == total(each)
    assert rejected_at("late", np.array([3, 1, 3]), "x") == [Rejection("late", 1, "x", 1), Rejection("late", 3, "x", 2)]


def metrics(points, name, kind="histogram"):
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    for _ in range(points):
        getattr(metric, kind).data_points.add()
    return request.SerializeToString()


def bodies(format, schema=PLAIN):
    decoder = Bodies(format, schema, {})
    return lambda lines: decoder.decode(lines, 0)


def decode(format, schema=PLAIN):
    decoder = decoder_for(format, schema)
    return lambda lines: decoder.decode(lines, 0)


RECORDS = Schema("ts", "ms", ("a",), records=parse_path("r", "source.records"))
MANY = {
    "array": (bodies("json"), b"A[" + b",".join([b"1"] * ROWS) + b"]", 1),
    "array of objects": (bodies("json"), b"A[" + b",".join([b"{}"] * ROWS) + b"]", 1),
    "lines": (bodies("json"), b"N" + b"1\n" * ROWS, 1),
    "msgpack": (bodies("msgpack"), b"B" + msgspec.msgpack.encode([0] * ROWS), 1),
    "elements": (decode("json", RECORDS), msgspec.json.encode({"r": [1] * ROWS}), 1),
    "objects": (decode("json", RECORDS), msgspec.json.encode({"r": [{}] * ROWS}), 1),
    "mixed": (decode("json", RECORDS), msgspec.json.encode({"ts": 1, "r": [{}, {"a": "x"}, 2] * (ROWS // 3)}), 3),
    "influx": (decode("influx", Schema("time", "ns", ("a",))), b"m\n" * ROWS, 1),
    "influx without the field": (decode("influx", Schema("time", "ns", ("a",))), b"m b=1\n" * ROWS, 1),
    "senml": (decode("senml", Schema("t", "s", ("v",))), msgspec.json.encode([{"v": "x"}] * ROWS), 1),
    "senml-cbor": (decode("senml-cbor", Schema("t", "s", ("v",))), cbor2.dumps([{2: "x"}] * ROWS), 1),
    "floats": (decode("floats"), np.array([(2**60, 1.0)] * ROWS, "<i8,<f8").tobytes(), 1),
    "arrow": (decode("arrow"), arrow(ts=[NOW] * ROWS, a=[float("nan")] * ROWS), 1),
    "otlp-metrics": (decode("otlp-metrics", Schema("time_unix_nano", "ns", ("a",))), metrics(ROWS, "a"), 1),
    "otlp points": (decode("otlp-metrics", Schema("time_unix_nano", "ns", ("a",))), metrics(ROWS, "a", "gauge"), 1),
}


@pytest.mark.parametrize("kind", MANY)
def test_a_message_full_of_what_cannot_be_used(kind):
    decoder, message, entries = MANY[kind]
    batch = decoder([message, message])
    assert len(batch.rejections) == 2 * entries
    assert batch.seen == total(batch.rejections) == 2 * ROWS
    assert sorted(each.position for each in batch.rejections) == [0] * entries + [1] * entries
    assert all(each.count == ROWS // entries for each in batch.rejections)


class Decoder:
    def __init__(self, call):
        self.decode = lambda lines, first, envelopes=(): call(lines)


@pytest.mark.parametrize("kind", MANY)
def test_their_offsets_and_counts_reach_the_stream(kind):
    decoder, message, _entries = MANY[kind]
    batch, _, _ = read_messages(Decoder(decoder), np.array([40, 50]), np.array([1, 2]), [message] * 2)
    assert batch.seen == 2 * ROWS
    assert {each.position for each in batch.rejections} == {40, 50}


@pytest.mark.parametrize("kind", ["json", "user", "nested", "csv", "influx"])
def test_only_what_is_wrong_is_looked_at_a_second_time(kind, monkeypatch):
    good, careful = b'{"ts":%d,"a":1.5,"u":"anna"}' % NOW, []
    schema = {"user": Schema("ts", "ms", ("a",), "u"), "nested": Schema("ts", "ms", ("a",), quoted=frozenset("a"))}
    decoder = objects_decoder(schema.get(kind, PLAIN))
    odd = [b"", b'{"ts":', b'{"ts":1,"a":null,"u":"x"}', b"[]"]
    if kind == "csv":
        decoder, good, odd = CsvRows(PLAIN, b"ts,a,u"), b"%d,1.5,anna" % NOW, [b"", b"1,2", b"1,,x", b"1,2,3,4"]
    if kind == "influx":
        decoder = decoder_for("influx", Schema("time", "ns", ("a",)))
        good, odd = b"m a=1.5 %d" % NOW, [b" ", b"m", b"m b=1 1", b"#"]
    lines = [good] * 1000
    for i, line in enumerate(odd):
        lines[100 * i + 50] = line
    read_cell = cells.read_cell
    monkeypatch.setattr(cells, "read_cell", lambda *asked: careful.append(1) or read_cell(*asked))
    parses = []
    monkeypatch.setattr(influx_lines, "parse_line", lambda line: parses.append(line) or parse_line(line))
    batch = decoder.decode([b"\n".join(lines)] if kind == "influx" else lines, 0)
    assert len(batch.times_ms) == 996
    assert total(batch.rejections) == (2 if kind == "influx" else 3)
    assert len(careful) <= 8 * len(odd)  # cells of three columns; a good line has three
    assert len(parses) <= 1000


def test_a_name_that_a_sender_chose_stands_nowhere():
    for features in ((), ("a",)):
        schema = Schema("time_unix_nano", "ns", features)
        decoder = decoder_for("otlp-metrics", schema)
        body = metrics(10**5, "n" * 10**6)
        tracemalloc.start()
        start = time.process_time()
        batch = decoder.decode([body], 0)
        assert time.process_time() < start + 5
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()
        wanted = Rejection("missing", 0, "a") if features else Rejection("histogram", 0, None, 10**5)
        assert batch.rejections == [wanted]
        assert all(len(metric) < 100 for _, metric in decoder.unread(body))
