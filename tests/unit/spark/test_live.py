"""A live stream on Spark: checkpoints, clocks, floods, and drivers that are killed."""

import json
import os
import pickle
import secrets
import subprocess
import sys
import time
from collections import Counter

import msgspec
import numpy as np
import pytest
from support import redis_server
from support.helpers import rows, service
from support.postgres import URL as POSTGRES
from support.spark_session import SETTINGS, blocks_of, config_of, live, needs_spark, point, spent

from fcstream import Engine, Noise, SeededEntropy
from fcstream.engine.intake import read_pushed
from fcstream.errors import ConfigError, SourceError
from fcstream.ledgers import each_reader
from fcstream.stream.windows import Schedule


class Stream:
    """Records in a Redis stream, with arrivals of our choice, over some windows that are past."""

    def __init__(self, client, keys=("",), windows=4, n=400, start_s=-100):
        self.client, self.name = client, f"spark-test-{os.getpid()}-{secrets.token_hex(6)}"
        self.start_ms = (time.time_ns() // 10**6 // 1000 + start_s) * 1000
        self.windows, self.sent = windows, Counter()
        rng, entries = np.random.default_rng(2), []
        for window in range(windows):
            for i in range(0 if window == 2 else n):
                at = self.start_ms + 10_000 * window + int(rng.integers(10_000))
                a, b = point(rng, i)
                record = {"ts_ms": at, "a": float(a), "b": float(b), "site": keys[i % len(keys)]}
                late = 12_000 if i % 50 == 1 else 5
                entries.append((at + late, json.dumps(record)))
                self.sent[keys[i % len(keys)], window] += (at + late) < self.start_ms + 10_000 * window + 11_001
        entries += [(self.start_ms + 1000, "{"), (self.start_ms + 1001, json.dumps({"ts_ms": 1, "a": 1.0, "b": 1.0}))]
        entries.sort()
        pipe = client.pipeline()
        for number, (arrived, body) in enumerate(entries):
            pipe.xadd(self.name, {"data": body}, id=f"{arrived}-{number + 1}")
        pipe.execute()

    def config(self, folder, ledger=None, **sections):
        start, end = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at // 1000))
            for at in (self.start_ms, self.start_ms + 10_000 * self.windows)
        )
        folder.mkdir(exist_ok=True)
        return config_of(
            window={"clock": "broker", "start": start, "end": end, "lateness": "1s"},
            source={"url": f"redis://{redis_server.HOST}/0?stream={self.name}&group={self.name}"},
            sink={"url": f"jsonl:{folder / 'out.jsonl'}"},
            ledger={"url": ledger or f"sqlite:{folder / 'ledger.db'}"},
            dead_letter={"url": f"jsonl:{folder / 'dead.jsonl'}"},
            spark={"checkpoint": str(folder / "checkpoint"), "limit": 0, **sections.pop("spark", {})},
            **sections,
        )


@pytest.fixture
def client():
    client = redis_server.connect()
    yield client
    for key in client.scan_iter(f"spark-test-{os.getpid()}-*"):
        client.delete(key, f"fcstream:{key.decode()}:positions")
    client.close()


def run_local(config):
    from fcstream.service.build import build

    build(config).run()


def run_spark(session, config):
    from fcstream.spark.service import build

    done = build(session, config)
    done.run()
    return done


def same_noise(monkeypatch):
    import fcstream.engine.engine as engine_module

    monkeypatch.setattr(engine_module, "Noise", lambda: Noise(SeededEntropy(5)))


def letters(folder):
    found = [json.loads(line) for line in (folder / "dead.jsonl").read_text().splitlines()]
    return {(each["reason"], each["position"], each["field"]) for each in found}


def charged_once(url, again=0):
    """Every window of every stream: one charge, one seal, and as many second draws as were forced."""
    for reader in each_reader(url):
        reader.verify()
        kinds = Counter((row.kind, row.open_ms) for row in reader.rows())
        assert {number for (kind, _), number in kinds.items() if kind in ("charge", "seal")} == {1}
        assert sum(number for (kind, _), number in kinds.items() if kind == "again") <= again


@needs_spark
def test_a_live_stream_gives_the_bytes_of_the_local_runner(session, client, tmp_path, monkeypatch):
    """Also when a micro-batch comes again after all of it was published, and with a read limit."""
    from fcstream.spark import service as spark_service

    same_noise(monkeypatch)
    stream = Stream(client)
    run_local(stream.config(tmp_path / "local"))
    expected = (tmp_path / "local" / "out.jsonl").read_bytes()
    failures, again, honest = [], [], spark_service.MicroBatches._nothing_is_left
    is_over = spark_service.MicroBatches.is_over.fget

    def fail_once(batches):
        honest(batches)
        if failures:
            again.append(1)
        elif batches._feed.windows:
            failures.append(1)
            raise OSError("the disk of the checkpoint is full")

    monkeypatch.setattr(spark_service.MicroBatches, "_nothing_is_left", fail_once)
    # A stream whose windows are all published may end before anybody looks at the error of their micro-batch.
    monkeypatch.setattr(
        spark_service.MicroBatches, "is_over", property(lambda batches: bool(again) and is_over(batches))
    )
    config = stream.config(tmp_path / "spark", spark={"limit": 1000})
    done = run_spark(session, config)
    assert failures
    assert done.counters.restarts == 1
    assert (tmp_path / "spark" / "out.jsonl").read_bytes() == expected
    assert expected.count(b'"released"') == 3
    assert letters(tmp_path / "spark") == letters(tmp_path / "local")
    charged_once(config.ledger.url)


CHANGES = {
    "specification": {"release": {"kind": "count", "rho": 25.0}},
    "source": {"source": {"url": f"redis://{redis_server.HOST}/1?stream=other"}},
    "stream": {"stream": {"name": "other"}},
    "ledger": {"ledger": {"url": "sqlite:/nonexistent/other.db"}},
    "partitions": {"spark": {"checkpoint": "/nonexistent", "partitions": 3}},
}


@needs_spark
def test_a_checkpoint_serves_one_specification_stream_source_ledger_and_number_of_partitions(session, tmp_path):
    """Issue: a checkpoint of another specification released 0.499 for 5.0; other `partitions` were ignored."""
    from fcstream.spark.checkpoint import bind
    from fcstream.spark.sessions import prepare

    folder = str(tmp_path / "checkpoint")
    base = {
        "release": {"kind": "count", "rho": 50.0},
        "budget": {"rho": 50.0, "delta": 0.0},
        "ledger": {"url": f"sqlite:{tmp_path / 'ledger.db'}"},
        "spark": {"checkpoint": folder, "partitions": 2},
    }
    try:
        for changes in ({}, {}, {"budget": {"rho": 60.0, "delta": 0.0}}):
            config = live(**{**base, **changes})
            prepare(session, config.spark)
            bind(session, config, folder)
        for name, changes in CHANGES.items():
            config = live(**{k: v for k, v in {**base, **changes}.items() if k != "source"})
            if "source" in changes:
                config = msgspec.structs.replace(config, source=type(config.source)(**changes["source"]))
            prepare(session, config.spark)
            setting = "partitions" if name == "partitions" else "checkpoint"
            with pytest.raises(ConfigError, match=rf"spark\.{setting}: .*was made for another {name}"):
                bind(session, config, folder)
        bind(session, config, str(tmp_path / "new"))
    finally:
        session.conf.set("spark.sql.shuffle.partitions", "2")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "metadata").write_text('{"id":"1"}')
    with pytest.raises(ConfigError, match="nothing that says of which stream"):
        bind(session, config, str(tmp_path / "foreign"))


@needs_spark
@pytest.mark.timeout(150)
def test_a_checkpoint_that_belongs_to_another_charges_nothing_and_one_ahead_of_its_ledger_neither(
    session, client, tmp_path
):
    stream = Stream(client, windows=3, n=50)
    one = {"release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 500.0, "delta": 0.0}}
    config = stream.config(tmp_path / "one", **one)
    run_spark(session, config)
    assert spent(config.ledger.url) == 3
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-witness", "out.jsonl"):
        (tmp_path / "one" / name).unlink(missing_ok=True)
    stream.windows = 60  # a later end; the next of them is over soon
    longer = stream.config(tmp_path / "one", **one)
    with pytest.raises(ConfigError, match="a later state of this stream than the ledger"):
        run_spark(session, msgspec.structs.replace(longer, dead_letter=None))
    assert spent(config.ledger.url) == 0
    other = stream.config(tmp_path / "two", **{**one, "release": {"kind": "count", "rho": 25.0}})
    other = msgspec.structs.replace(other, spark=config.spark)
    with pytest.raises(ConfigError, match="was made for another"):
        run_spark(session, other)
    assert spent(other.ledger.url) == 0


@needs_spark
@pytest.mark.timeout(120)
def test_a_worker_of_python_that_is_killed_at_the_start_is_waited_out(session, client, tmp_path, monkeypatch):
    """Issue: the service ended, with a stack of Java's."""
    from fcstream.spark import service as spark_service
    from fcstream.spark.source import BrokerDataSource

    marker, honest = str(tmp_path / "killed"), spark_service._source

    class Dying(BrokerDataSource):
        def schema(self):
            if not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), 9)
            return super().schema()

    monkeypatch.setattr(spark_service, "_source", lambda session, config, _, url: honest(session, config, Dying, url))
    stream = Stream(client, windows=2, n=50)
    one = {"release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 500.0, "delta": 0.0}}
    done = run_spark(session, stream.config(tmp_path / "one", **one))
    assert os.path.exists(marker)
    assert done.counters.restarts == 1
    all_is_there(stream, tmp_path / "one", ("",))


@needs_spark
def test_sources_of_spark_itself_close_windows_by_a_clock_beside_them(session, tmp_path, monkeypatch, client):
    from pyspark.sql import functions as f

    from fcstream.spark import service as spark_service

    same_noise(monkeypatch)
    stream = Stream(client)
    run_local(stream.config(tmp_path / "local"))
    (tmp_path / "landing").mkdir()
    with open(tmp_path / "landing" / "0.jsonl", "w") as file:
        for number, (entry, fields) in enumerate(client.xrange(stream.name)):
            timestamp = int(entry.partition(b"-")[0])
            file.write(json.dumps({"n": number, "stamp": timestamp, "body": fields[b"data"].decode()}) + "\n")

    def frame(_, config):
        lines = session.readStream.text(str(tmp_path / "landing"))
        each = [f.get_json_object("value", f"$.{name}") for name in ("n", "stamp", "body")]
        return lines.select(
            f.lit("landing").alias("partition"),
            each[0].cast("long").alias("position"),
            each[1].cast("long").alias("stamp"),
            each[2].cast("binary").alias("body"),
        )

    monkeypatch.setattr(spark_service, "kafka_frame", frame)
    run_spark(session, stream.config(tmp_path / "spark", spark={"reader": "spark"}))
    assert (tmp_path / "spark" / "out.jsonl").read_bytes() == (tmp_path / "local" / "out.jsonl").read_bytes()


@needs_spark
def test_only_a_micro_batch_that_reaches_all_ends_advances_the_clock(client):
    """The clock was read before the ends were asked; a batch that the limit cuts short closes nothing."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    from fcstream.spark.source import BrokerReader, ClockReader, SourceSettings

    name, now = f"spark-test-{os.getpid()}-{secrets.token_hex(6)}", [50_000]
    schedule = Schedule(0, 10_000, 10_000, 1000)
    reading = SourceSettings.of(f"redis://{redis_server.HOST}/0?stream={name}", name, schedule, 3)
    reader = BrokerReader(reading, lambda: now[0])
    first = reader.initialOffset()
    assert (first, reader.getDefaultReadLimit()) == ({"ends": {name: 0}, "clock": 0}, ReadMaxRows(3))
    for i in range(5):
        client.xadd(name, {"data": b"%d" % i})
    cut = reader.latestOffset(first, ReadMaxRows(3))
    assert cut["clock"] == 0
    whole = reader.latestOffset(cut, ReadMaxRows(3))
    assert whole["clock"] == 50_000
    assert whole["ends"] == reader.latestOffset(first, ReadAllAvailable())["ends"]
    now[0] = 51_000  # no window is over since
    assert reader.latestOffset(whole, ReadMaxRows(3)) == whole
    now[0] = 51_001
    later = reader.latestOffset(whole, ReadMaxRows(3))
    assert later == {"ends": whole["ends"], "clock": 51_001}
    batches = [list(reader.read(part)) for part in reader.partitions(cut, whole)]
    read = [
        [(row["partition"], row["body"], row["clock"].timestamp()) for batch in some for row in batch.to_pylist()]
        for some in batches
    ]
    assert read == [[(name, b"3", 51.0), (name, b"4", 51.0)], [("", b"", 51.0)]]
    assert [part.partition for part in reader.partitions(whole, later)] == [""]
    now[0] = 0  # a clock that goes back
    client.xadd(name, {"data": b"5"})
    assert reader.latestOffset(later, ReadMaxRows(3))["clock"] == 51_001
    client.delete(name)
    client.xadd(name, {"data": b"x"}, id="1-1")
    with pytest.raises(SourceError, match="made anew"):
        reader.latestOffset(later, ReadMaxRows(3))
    reader.stop()
    clock = ClockReader(reading, lambda: now[0])
    now[0] = 50_000
    assert clock.latestOffset(clock.initialOffset(), ReadAllAvailable())["clock"] == 0  # nothing was noted before
    now[0] = 70_000
    told = clock.latestOffset(clock.initialOffset(), ReadAllAvailable())
    assert told == {"ends": {}, "clock": 50_000}
    assert clock.latestOffset(told, ReadAllAvailable())["clock"] == 70_000


@needs_spark
def test_windows_are_handed_over_when_the_public_time_says_so_and_never_again():
    from dataclasses import replace

    from pyspark.sql import Row
    from pyspark.sql.streaming.tws_tester import TwsTester

    from fcstream.spark.processor import WindowProcessor
    from fcstream.spark.tasks import CLOCK, NOTES, TaskReport

    class ByOneKey(WindowProcessor):  # the tester wraps a key in a tuple
        def handleInputRows(self, key, rows, timerValues):
            return super().handleInputRows(key[0], rows, timerValues)

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)

    job = replace(config_of().job, schedule=Schedule(0, 10_000, 10_000, 1000, 40_000))
    engine = Engine(config_of())
    batch, _ = read_pushed(engine.job, [10, 20], rows(2), None, np.array([7, 8]), None)
    engine.abort()
    block = Row(block=next(packed for *_, packed in blocks_of(job, batch)))
    tester = TwsTester(ByOneKey(job), timeMode="EventTime", eventTimeExtractor=lambda row: 2**60)
    assert tester.test(("", CLOCK), [Row(block=b"")]) == []
    assert tester.test(("", 0), [block, block]) == []
    assert tester.setWatermark(11_000) == []
    found = {row.window: bytes(row.body) for row in tester.setWatermark(11_001)}
    assert found[CLOCK] == b"11001 1000 0"
    assert pickle.loads(found[0])[1].size == 2  # what came twice counts once
    late = tester.test(("", 0), [block])
    assert [row.window for row in late] == [NOTES]
    note = msgspec.msgpack.decode(late[0].body, type=TaskReport)
    assert [(each.reason, each.position) for each in note.rejected()] == [("window_closed", at) for at in (7, 8)]
    assert tester.peekListState("blocks", ("", 0)) == []
    # Windows without records are told of by the clock alone; a lateness that was changed is told by what stood first.
    tester.processor.job = replace(job, schedule=Schedule(0, 10_000, 10_000, 2000, 40_000))
    assert [bytes(row.body) for row in tester.setWatermark(35_000)] == [b"35000 1000 1"]
    # The last window of a schedule, and then a later end.
    assert [bytes(row.body) for row in tester.setWatermark(45_000)] == [b"45000 1000 3"]
    assert tester.setWatermark(95_000) == []
    tester.processor.job = replace(job, schedule=Schedule(0, 10_000, 10_000, 1000, 200_000))
    assert tester.test(("", CLOCK), [Row(block=b"")]) == []
    assert [bytes(row.body) for row in tester.setWatermark(111_001)] == [b"111001 1000 4"]


@needs_spark
def test_the_state_of_a_flooded_window_is_emptied_and_the_window_is_refused():
    from dataclasses import replace

    from pyspark.sql import Row
    from pyspark.sql.streaming.tws_tester import TwsTester

    from fcstream.spark.processor import WindowProcessor

    class ByOneKey(WindowProcessor):  # the tester wraps a key in a tuple
        def handleInputRows(self, key, rows, timerValues):
            return super().handleInputRows(key[0], rows, timerValues)

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)

    config = config_of(window={"max_records": 50})
    job = replace(config.job, schedule=Schedule(0, 10_000, 10_000, 1000, 40_000))
    most = job.gate.max_held
    engine = Engine(config)

    def block(window, first, size):
        batch, _ = read_pushed(
            engine.job, [window * 10_000] * size, rows(size), None, np.arange(first, first + size), None
        )
        return Row(block=next(packed for *_, packed in blocks_of(job, batch)))

    tester = TwsTester(ByOneKey(job), timeMode="EventTime", eventTimeExtractor=lambda row: 2**60)
    for first in range(0, most, 20):
        size = min(20, most - first)
        tester.test(("", 0), [block(0, first, size)] * 3)  # what comes again does not count
        tester.test(("", 1), [block(1, first, size)])
    assert len(tester.peekListState("blocks", ("", 0))) > 0
    tester.test(("", 1), [block(1, most, 1)])  # one more than is held
    assert tester.peekListState("blocks", ("", 1)) == []
    tester.test(("", 1), [block(1, most + 1, 500)])
    assert tester.peekListState("blocks", ("", 1)) == []
    found = {row.window: pickle.loads(bytes(row.body)) for row in tester.setWatermark(30_000) if row.window >= 0}
    engine.abort()
    (kind, held), (_, flooded) = found[0], found[1]
    assert (kind, held.size) == ("view", most)
    assert held.view is not None
    assert flooded.size > most
    assert flooded.view is None


DRIVER = """
import os, pickle, signal, sys
from fcstream.ledgers.postgres.ledger import PostgresLedger
from fcstream.service.app import StreamSpec
from fcstream.spark.service import serve_on_spark

def fuse(*asked):
    os.killpg(0, signal.SIGKILL)  # this process and its JVM

if sys.argv[2] == "kill":
    PostgresLedger.seal = PostgresLedger.seal_together = fuse
config = pickle.loads(open(sys.argv[1], "rb").read())
serve_on_spark([StreamSpec(config)])
"""


@pytest.fixture
def postgres():
    psycopg = pytest.importorskip("psycopg")
    db = service("PostgreSQL", lambda: psycopg.connect(POSTGRES, autocommit=True))
    schema = f"fcstream_test_{secrets.token_hex(6)}"
    yield f"{POSTGRES}?schema={schema}"
    db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    db.close()


@needs_spark
def test_a_driver_and_its_jvm_killed_between_charge_and_seal(client, postgres, tmp_path):
    """The micro-batch comes again: every window is charged once and answered once, with all its records."""
    stream = Stream(client, keys=("a", "b"), n=300)
    config = stream.config(
        tmp_path / "spark",
        postgres,
        stream={"key": "site", "keys": ["a", "b"]},
        release={"kind": "count", "rho": 50.0},
        budget={"rho": 50.0, "delta": 0.0},
        spark={"master": "local[2,4]", "settings": SETTINGS},
    )
    (tmp_path / "config").write_bytes(pickle.dumps(config))
    (tmp_path / "driver.py").write_text(DRIVER)
    for how in ("kill", "live"):
        command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "config"), how]
        with open(tmp_path / f"{how}.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                code = process.wait(280)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
        assert code == (-9 if how == "kill" else 0), (tmp_path / f"{how}.log").read_text()[-3000:]
        if how == "kill":
            assert not (tmp_path / "spark" / "out.jsonl").read_bytes()
    charged_once(postgres, again=stream.windows)
    all_is_there(stream, tmp_path / "spark", ("a", "b"))


def all_is_there(stream, folder, keys):
    """One answer for every window of every key, with all of its records (the noise is hardly ever 2)."""
    releases = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len(releases) == len(keys) * stream.windows
    for each in releases:
        window = (each["window_open_ms"] - stream.start_ms) // 10_000
        assert abs((each["count"] or 0) - stream.sent[each.get("key", ""), window]) <= 1, each


@needs_spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.environ.get("FCSTREAM_LONG") != "1", reason="FCSTREAM_LONG=1 starts a cluster of processes")
def test_an_executor_killed_in_mid_window(client, tmp_path):
    """Open windows go on from the checkpoint on the other executor, or on the one that takes its place."""
    stream = Stream(client, windows=12, start_s=5)
    config = stream.config(
        tmp_path / "spark",
        release={"kind": "count", "rho": 50.0},
        budget={"rho": 50.0, "delta": 0.0},
        spark={"master": "local-cluster[2,1,1024]", "settings": SETTINGS},
    )
    (tmp_path / "config").write_bytes(pickle.dumps(config))
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "config"), "live"]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        commits = tmp_path / "spark" / "checkpoint" / "commits"
        until = time.monotonic() + 200
        while not (commits / "0").exists():
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < until
            time.sleep(0.5)
        listed = subprocess.run(["pgrep", "-g", str(process.pid), "-f", "Executor"], capture_output=True, text=True)
        executors = listed.stdout.split()
        assert len(executors) == 2
        os.kill(int(executors[0]), 9)
        assert process.wait(380) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
    charged_once(config.ledger.url)
    all_is_there(stream, tmp_path / "spark", ("",))
