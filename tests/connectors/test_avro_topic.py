"""The example of an Avro topic, from an empty folder: Kafka's messages in both framings, schemas from a registry that
is away at first, and private releases."""

import contextlib
import io
import json
import subprocess
import sys
import time
import uuid

import fastavro
import pytest
from support import REPOSITORY
from support.helpers import free_port
from support.kafka import kafka_broker, make_topic, quiet  # noqa: F401
from support.schema_registry import schema_registry
from support.sources import until

from fcstream import Release
from fcstream.formats.schemas import HEADER

EXAMPLE = REPOSITORY / "examples" / "avro" / "fcstream.toml"
SENSORS = 200
SENSOR = {"type": "record", "name": "Sensor", "fields": [{"name": "id", "type": "string"}]}
SCHEMA = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "measured_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sensor", "type": SENSOR},
        {"name": "temperature", "type": ["null", "double"]},
        {"name": "battery", "type": "int"},
    ],
}


def packed(sensor, temperature):
    out = io.BytesIO()
    record = {
        "measured_at": time.time_ns() // 10**6,
        "sensor": {"id": sensor},
        "temperature": temperature,
        "battery": 90,
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    return out.getvalue()


def releases(folder):
    with contextlib.suppress(FileNotFoundError):
        return [Release.from_bytes(line) for line in (folder / "releases.jsonl").read_bytes().splitlines()]
    return []


def test_it_is_short_and_a_plan_can_be_made():
    assert len(EXAMPLE.read_text().splitlines()) < 30
    done = subprocess.run([sys.executable, "-m", "fcstream", "plan", str(EXAMPLE)], capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_a_topic_has_private_releases(tmp_path, kafka_broker):  # noqa: F811
    from confluent_kafka import Producer

    topic, port = make_topic(kafka_broker), free_port()
    text = EXAMPLE.read_text()
    for old, new in {
        "localhost:9092/readings": f"{kafka_broker}/{topic}?group={topic}&session_s=6",
        "http://localhost:8081": f"http://127.0.0.1:{port}?patience=1",
        '"15m"': '"2s"',
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    (tmp_path / "c.toml").write_text(text)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "fcstream", "run", "c.toml"], cwd=tmp_path, stderr=log)
    try:
        until(lambda: releases(tmp_path))  # it runs
        producer = Producer(quiet(kafka_broker))
        guid = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(SCHEMA))
        for i in range(SENSORS):
            body = packed(f"s{i}", 20.5 + i % 2 / 10)
            if i % 2:
                producer.produce(topic, b"\0" + (7).to_bytes(4) + body, partition=i % 4)
            else:
                producer.produce(topic, body, partition=i % 4, headers=[(HEADER, b"\1" + guid.bytes)])
        producer.produce(topic, b"\0" + (9).to_bytes(4) + packed("other", 1.0), partition=0)
        assert producer.flush(60) == 0
        sent_ms = time.time_ns() // 10**6
        until(lambda: "schema registry" in (tmp_path / "log").read_text())  # it waits for the registry
        assert not (tmp_path / "rejected.jsonl").exists() or not (tmp_path / "rejected.jsonl").read_text()
        with schema_registry(port) as (_, registry):
            assert registry.add(7, SCHEMA) == str(guid)
            until(lambda: any(each.window_open_ms > sent_ms for each in releases(tmp_path)), 120)
    finally:
        process.terminate()
        process.wait(120)
    assert process.returncode == 0, (tmp_path / "log").read_text()
    letters = [json.loads(line) for line in (tmp_path / "rejected.jsonl").read_text().splitlines()]
    assert [(each["reason"], each.get("field")) for each in letters] == [("unknown_schema", None)]
    counts = {}
    for each in releases(tmp_path):
        for name, value in enumerate(each.value or ()):
            counts[name] = counts.get(name, 0.0) + value
    assert abs(counts.pop(3) - SENSORS) < 90, counts  # from 20 to 22 degrees
    assert all(abs(value) < 90 for value in counts.values()), counts
