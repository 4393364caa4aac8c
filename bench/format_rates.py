"""Rates of decoders beside the bare library over the same bytes into arrays, one processor.

    python bench/format_rates.py [FORMAT ...]

For each format: records per second of processor time of the decoder and of the library alone, the least of several
rounds each, in turn; and the ratio of the two. The library alone reads the same fields into arrays of numpy and checks
nothing. Collection of garbage is off, as it is in a run.
"""

from __future__ import annotations

import gc
import io
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fcstream.formats.batch import Schema
from fcstream.formats.payloads import decoder_for

N, ROUNDS = 4_000, 40
START_NS = 1_767_225_600_123_456_789
Case = tuple[Callable[[], Any], Callable[[], Any]]


def weather() -> list[tuple[int, str, float, float]]:
    draw = random.Random(1)
    return [
        (START_NS + i * 10**6, f"dev{draw.randrange(100)}", round(draw.gauss(20, 3), 3), round(100 * draw.random(), 2))
        for i in range(N)
    ]


def influx(lines_each: int) -> Case:
    """Lines as Telegraf writes them, so many in a message."""
    from line_protocol_parser import parse_line

    lines = [f"weather,site=roof,dev={d} temp={t},hum={h},online=true {at}".encode() for at, d, t, h in weather()]
    bodies = [b"\n".join(lines[i : i + lines_each]) for i in range(0, N, lines_each)]
    decoder = decoder_for("influx", Schema("time", "ns", ("temp", "hum"), "dev"))

    def bare() -> Any:
        times, temps, hums, devices = [], [], [], []
        for body in bodies:
            for line in body.split(b"\n"):
                point = parse_line(line)
                fields = point["fields"]
                times.append(point["time"])
                temps.append(fields["temp"])
                hums.append(fields["hum"])
                devices.append(point["tags"]["dev"])
        return np.array(times) // 10**6, np.array(temps), np.array(hums), np.array(devices, object)

    return lambda: decoder.decode(bodies, 0), bare


SENML_LABELS = {"bn": -2, "bt": -3, "n": 0, "u": 1, "v": 2, "t": 6}


def senml(entries: int, encoding: str = "json") -> Case:
    """Packs with a base name, a base time and so many values."""
    import cbor2
    import msgspec

    rows = weather()
    labels = dict(zip(SENML_LABELS, SENML_LABELS if encoding == "json" else SENML_LABELS.values(), strict=True))
    packs = []
    for i in range(0, N, entries):
        pack: list[dict[str, Any]] = [{"n": "temp", "u": "Cel", "t": j, "v": rows[i + j][2]} for j in range(entries)]
        pack[0] = {"bn": f"urn:{rows[i][1]}:", "bt": rows[i][0] / 1e9} | pack[0]
        named = [{labels[label]: value for label, value in entry.items()} for entry in pack]
        packs.append(json.dumps(named).encode() if encoding == "json" else cbor2.dumps(named))
    decoder = decoder_for("senml" if encoding == "json" else "senml-cbor", Schema("t", "s", ("v",), "n"))
    parse = msgspec.json.Decoder().decode if encoding == "json" else cbor2.loads
    bn, bt, n, v, t = (labels[label] for label in ("bn", "bt", "n", "v", "t"))

    def bare() -> Any:
        times, values, names = [], [], []
        for body in packs:
            name, start = "", 0.0
            for entry in parse(body):
                name, start = entry.get(bn, name), entry.get(bt, start)
                times.append(start + entry[t])
                values.append(entry[v])
                names.append(name + entry[n])
        return np.floor(np.array(times) * 1000), np.array(values), np.array(names, object)

    return lambda: decoder.decode(packs, 0), bare


def arrow_messages(rows_each: int) -> Case:
    """IPC streams of so many rows."""
    import pyarrow as pa

    rows, bodies = weather(), []
    for i in range(0, N, rows_each):
        table = pa.table(
            dict(zip(("at", "dev", "temp", "hum"), zip(*rows[i : i + rows_each], strict=True), strict=True))
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        bodies.append(sink.getvalue().to_pybytes())
    decoder = decoder_for("arrow", Schema("at", "ns", ("temp", "hum"), "dev"))

    def bare() -> Any:
        tables = [pa.ipc.open_stream(body).read_all() for body in bodies]
        found = [[table.column(name).to_numpy() for table in tables] for name in ("at", "temp", "hum", "dev")]
        at, temp, hum, dev = map(np.concatenate, found)
        return at // 10**6, np.array([temp, hum]), dev

    return lambda: decoder.decode(bodies, 0), bare


def table_file(kind: str, user: str | None = None) -> Case:
    """A file of columns in memory's cache, against pyarrow's own reader."""
    import tempfile

    import pyarrow as pa
    import pyarrow.parquet as pq

    from fcstream.connectors import open_source

    many = 100 * N
    rows = weather()
    columns = [np.tile(np.array(column), 100) for column in zip(*rows, strict=True)]
    table = pa.table({"at": columns[0], "dev": columns[1], "temp": columns[2], "hum": columns[3]})
    path = f"{tempfile.mkdtemp()}/x.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, 2**16)
    schema = Schema("at", "ns", ("temp", "hum"), user)

    def ours() -> Any:
        source = open_source(f"{kind}:{path}", schema)
        rows = 0
        while (batch := source.poll(8192)) is not None:
            rows += len(batch.positions)
        source.close()
        assert rows == many

    def bare() -> Any:
        names = ["at", "temp", "hum", *([user] if user else [])]
        if kind == "parquet":
            found = pq.read_table(path, columns=names, use_threads=False)
        else:
            found = pa.ipc.open_file(pa.memory_map(path)).read_all().select(names)
        values = np.stack([found.column(k).to_numpy() for k in (1, 2)], axis=1)
        return [
            found.column(0).to_numpy() // 10**6,
            values,
            *(found.column(k).to_numpy() for k in range(3, len(names))),
        ]

    return ours, bare


def csv_file() -> Case:
    """A file with semicolons and decimal commas, against the csv module and `float`."""
    import csv

    from fcstream.formats.csv_dialect import CsvDialect
    from fcstream.formats.decoders import CsvRows

    lines = [f"{at // 10**6};{d};{t};{h}".replace(".", ",").encode() for at, d, t, h in weather()]
    decoder = CsvRows(Schema("at", "ms", ("temp", "hum"), "dev"), b"at;dev;temp;hum", CsvDialect(";", ","))
    text = b"\n".join(lines).decode()

    def bare() -> Any:
        times, devices, temps, hums = zip(*csv.reader(io.StringIO(text), delimiter=";"), strict=True)
        found = [[float(cell.replace(",", ".")) for cell in column] for column in (temps, hums)]
        return np.array(list(map(int, times))), np.array(found), np.array(devices, object)

    return lambda: decoder.decode(lines, 0), bare


def avro(unread: int) -> Case:
    """Records behind Confluent's five bytes, with so many further fields that nobody reads."""
    import fastavro

    from fcstream.formats.schemas import FoundSchema

    kinds = {"at": "long", "dev": "string", "temp": "double", "hum": ["null", "double"]}
    kinds |= {f"x{i}": ["null", "string"] for i in range(unread)}
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    parsed = fastavro.parse_schema(schema)
    bodies = []
    for at, dev, temp, hum in weather():
        out = io.BytesIO()
        record = {"at": at, "dev": dev, "temp": temp, "hum": hum} | {f"x{i}": "something" for i in range(unread)}
        fastavro.schemaless_writer(out, parsed, record)
        bodies.append(b"\0\0\0\0\7" + out.getvalue())

    class Found:
        def find(self, names: Any) -> Any:
            return dict.fromkeys(names, FoundSchema(json.dumps(schema), "AVRO"))

    decoder = decoder_for("avro", Schema("at", "ns", ("temp", "hum"), "dev"), {"registry": Found()})

    def bare() -> Any:
        times, temps, hums, devices = [], [], [], []
        for body in bodies:
            file = io.BytesIO(body)
            file.seek(5)
            record: Any = fastavro.schemaless_reader(file, parsed, None)
            times.append(record["at"])
            temps.append(record["temp"])
            hums.append(record["hum"])
            devices.append(record["dev"])
        return np.array(times) // 10**6, np.array(temps), np.array(hums), np.array(devices, object)

    return lambda: decoder.decode(bodies, 0), bare


def cbor() -> Case:
    """One map a message."""
    import cbor2

    bodies = [cbor2.dumps({"at": at, "dev": d, "temp": t, "hum": h}) for at, d, t, h in weather()]
    decoder = decoder_for("cbor", Schema("at", "ns", ("temp", "hum"), "dev"))

    def bare() -> Any:
        rows = list(map(cbor2.loads, bodies))
        columns = [[row[name] for row in rows] for name in ("at", "temp", "hum", "dev")]
        return np.array(columns[0]) // 10**6, np.array(columns[1:3]), np.array(columns[3], object)

    return lambda: decoder.decode(bodies, 0), bare


def protobuf() -> Case:
    """One flat message each."""
    import tempfile

    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="weather.proto", package="w", syntax="proto3")
    kind = file.message_type.add(name="Reading")
    for number, (name, of) in enumerate({"at": 3, "dev": 9, "temp": 1, "hum": 1}.items(), 1):
        kind.field.add(name=name, number=number, type=of, label=1)  # type: ignore[arg-type]
    path = f"{tempfile.mkdtemp()}/weather.desc"
    with open(path, "wb") as out:
        out.write(found.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    reading: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("w.Reading"))
    bodies = [reading(at=at, dev=d, temp=t, hum=h).SerializeToString() for at, d, t, h in weather()]
    options = {"schema_file": path, "message": "w.Reading"}
    decoder = decoder_for("protobuf", Schema("at", "ns", ("temp", "hum"), "dev"), options)

    def bare() -> Any:
        rows = list(map(reading.FromString, bodies))
        columns = [[row.at for row in rows], [row.temp for row in rows], [row.hum for row in rows]]
        return np.array(columns[0]) // 10**6, np.array(columns[1:]), np.array([row.dev for row in rows], object)

    return lambda: decoder.decode(bodies, 0), bare


def otlp(encoding: str, has_user: bool) -> Case:
    """Requests of a hundred points of one gauge with two attributes, one of which may be read."""
    import msgspec
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    rows, bodies = weather(), []
    for i in range(0, N, 100):
        request = ExportMetricsServiceRequest()
        metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="temp")
        for at, dev, temp, _ in rows[i : i + 100]:
            point = metric.gauge.data_points.add(time_unix_nano=at, as_double=temp)
            for key, value in (("site", "roof"), ("dev", dev)):
                pair = point.attributes.add(key=key)
                pair.value.string_value = value
        body = request.SerializeToString() if encoding == "protobuf" else MessageToJson(request).encode()
        bodies.append(body)
    decoder = decoder_for("otlp-metrics", Schema("time_unix_nano", "ns", ("temp",), "dev" if has_user else None))
    read = msgspec.json.Decoder().decode

    def bare_protobuf() -> Any:
        times, temps, devices = [], [], []
        for body in bodies:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.gauge.data_points:
                            times.append(point.time_unix_nano)
                            temps.append(point.as_double)
                            if has_user:
                                pairs = {pair.key: pair.value.string_value for pair in point.attributes}
                                devices.append(pairs["dev"])
        return np.array(times) // 10**6, np.array(temps), np.array(devices, object)

    def bare_json() -> Any:
        times, temps, devices = [], [], []
        for body in bodies:
            for resource in read(body)["resourceMetrics"]:
                for scope in resource["scopeMetrics"]:
                    for metric in scope["metrics"]:
                        for point in metric["gauge"]["dataPoints"]:
                            times.append(int(point["timeUnixNano"]))
                            temps.append(point["asDouble"])
                            pairs = {pair["key"]: pair["value"]["stringValue"] for pair in point["attributes"]}
                            devices.append(pairs["dev"])
        return np.array(times) // 10**6, np.array(temps), np.array(devices, object)

    return lambda: decoder.decode(bodies, 0), bare_protobuf if encoding == "protobuf" else bare_json


def otlp_logs() -> Case:
    """Requests of a hundred log records, each with a body that is a map and one attribute."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    from fcstream.formats.paths import FieldPath

    rows, bodies = weather(), []
    for i in range(0, N, 100):
        request = ExportLogsServiceRequest()
        scope = request.resource_logs.add().scope_logs.add()
        for at, dev, temp, _ in rows[i : i + 100]:
            record = scope.log_records.add(time_unix_nano=at)
            pair = record.body.kvlist_value.values.add(key="temp")
            pair.value.double_value = temp
            record.attributes.add(key="dev").value.string_value = dev
        bodies.append(request.SerializeToString())
    paths = {"temp": FieldPath(("body", "temp"))}
    decoder = decoder_for("otlp-logs", Schema("time_unix_nano", "ns", ("temp",), "dev", paths=paths))

    def bare() -> Any:
        times, temps, devices = [], [], []
        for body in bodies:
            for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                for scope in resource.scope_logs:
                    for record in scope.log_records:
                        times.append(record.time_unix_nano)
                        found = {pair.key: pair.value.double_value for pair in record.body.kvlist_value.values}
                        temps.append(found["temp"])
                        devices.append({pair.key: pair.value.string_value for pair in record.attributes}["dev"])
        return np.array(times) // 10**6, np.array(temps), np.array(devices, object)

    return lambda: decoder.decode(bodies, 0), bare


CASES: dict[str, Callable[[], Case]] = {
    "avro, 4 fields": lambda: avro(0),
    "avro, 14 fields": lambda: avro(10),
    "protobuf": protobuf,
    "cbor": cbor,
    "otlp, values": lambda: otlp("protobuf", False),
    "otlp, users": lambda: otlp("protobuf", True),
    "otlp in json": lambda: otlp("json", True),
    "logs of otlp": otlp_logs,
    "influx, 1 line": lambda: influx(1),
    "influx, 100 lines": lambda: influx(100),
    "senml, 10 entries": lambda: senml(10),
    "senml, 1 entry": lambda: senml(1),
    "senml-cbor, 10 entries": lambda: senml(10, "cbor"),
    "arrow, 100 rows": lambda: arrow_messages(100),
    "csv, ; and ,": csv_file,
    "parquet file": lambda: table_file("parquet"),
    "arrow file": lambda: table_file("arrow"),
    "arrow file, users": lambda: table_file("arrow", "dev"),
}


def least(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def main(names: list[str]) -> None:
    gc.disable()
    print("| format | records a second | the library alone | ratio |\n| --- | --- | --- | --- |")
    for name, make in CASES.items():
        if names and not any(each in name for each in names):
            continue
        ours, bare = make()
        count = 100 * N if "file" in name else N
        found = [(least(ours), least(bare)) for _ in range(ROUNDS)]
        mine, theirs = (min(column) for column in zip(*found, strict=True))
        print(f"| {name} | {count / mine:,.0f} | {count / theirs:,.0f} | {theirs / mine:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
