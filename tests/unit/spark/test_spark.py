"""The same engine on Spark: one local session for all of it; real brokers and databases; drivers that are killed."""

import json
import os
import pickle
import secrets
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from support import redis_server
from support.helpers import exact_counts, rows, sample, service
from support.postgres import URL as POSTGRES

from fcstream import Engine, Noise, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.connectors import open_ranges, open_sink, open_source
from fcstream.counting.exact import CrossCounts, FriendCounts
from fcstream.engine.intake import read_pushed
from fcstream.engine.keyed import open_engine
from fcstream.errors import ConfigError, SourceError
from fcstream.ledgers import each_reader
from fcstream.service.batch import run
from fcstream.spark.blocks import cut, gather
from fcstream.spark.sessions import require_pyspark
from fcstream.spark.tasks import count_window, pieces
from fcstream.stream.admission import admit
from fcstream.stream.windows import Schedule

try:
    require_pyspark()
    HAS_SPARK = True
except ConfigError:
    HAS_SPARK = False
if not HAS_SPARK and os.environ.get("FCSTREAM_REQUIRE_SPARK") == "1":
    pytest.fail("the extra 'spark' is not installed", pytrace=False)
needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="the extra 'spark' is not installed")
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": "/nonexistent",
    "spark.sql.files.maxPartitionBytes": "100000",
    "spark.ui.showConsoleProgress": "false",
    # Little data: compiling queries, and Java itself, to the last would cost more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def session():
    if not HAS_SPARK:
        pytest.skip("the extra 'spark' is not installed")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2,4]").appName("fcstream tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


# -- without Spark -------------------------------------------------------------------------------------------------

KINDS = {
    "mean": {},
    "basic": {"release": {"method": "basic", "spread": None}},
    "search": {
        "release": {"method": "friendly", "radius": "search", "radius_min": 0.1, "radius_max": 50.0, "spread": None}
    },
    "blocks": {"release": {"pairs": "blocks", "size_hint": 40_000}},
    "count": {"release": {"kind": "count", "rho": 0.5}},
    "histogram": {"release": {"kind": "histogram", "feature": "a", "edges": [19.0, 20.0, 21.0], "rho": 0.5}},
    "quantiles": {"release": {"kind": "quantiles", "feature": "a", "quantiles": [0.5], "rho": 0.5}},
    "variance": {"release": {"kind": "variance", "radius": 3.0, "rho": 1.0, "delta": 1e-9, "size_hint": 500}},
    "centers": {
        "release": {"kind": "centers", "k": 2, "rho": 1.0, "delta": 1e-9, "size_hint": 5000},
    },
    "covariance": {"release": {"kind": "covariance", "rho": 1.0, "delta": 1e-7, "shards": 400}},
    "synthetic": {"release": {"kind": "synthetic", "rho": 0.5, "edges": {"a": [20.0], "b": [50.0]}}},
    "marginals": {"release": {"kind": "marginals", "rho": 0.5, "edges": {"a": [20.0], "b": [50.0]}}},
    "points": {"release": {"kind": "points", "set": "box", "rho": 0.5}},
    "previous": {
        "release": {"kind": "synthetic", "rho": 0.5, "projection": "previous", "edges": {"a": [20.0], "b": [50.0]}}
    },
}


def config_of(**sections):
    release = sections.pop("release", {})
    mapping = sample(**sections)
    if "kind" in release:
        mapping["release"] = {name: value for name, value in release.items() if value is not None}
    else:
        mapping["release"] = {k: v for k, v in {**mapping["release"], **release}.items() if v is not None}
    return Config.from_mapping(mapping)


def blocks_of(job, batch, partition="p"):
    return cut(partition, batch, admit(job, batch, None), np.zeros(len(batch.times_ms), np.int64), [0])


@pytest.mark.parametrize("name", KINDS)
def test_what_tasks_count_is_what_an_engine_counts(name):
    """A window cut into blocks, delivered in another order and partly twice, makes the release of the local engine."""
    config = config_of(**KINDS[name])
    job, n = config.job, 500
    times, points = np.arange(n) * 19, rows(n)
    releases = []
    for counted in (False, True):
        engine = Engine(config, noise=Noise(SeededEntropy(1)))
        batch, _ = read_pushed(engine.job, times, points, None, np.arange(n), None)
        if counted:
            found = []
            for start in range(0, n, 90):
                some = batch.pick(np.arange(start, min(n, start + 90)))
                found += [packed for *_, packed in blocks_of(job, some)]
            body = count_window(job, [*found[::-1], found[2]], 0)
            assert b"".join(piece for *_, piece in pieces(body)) == body
            view = pickle.loads(body)[1]
            engine._records.counter.view = lambda panes, own=engine._records.counter.view, view=view: (
                view if 0 in panes else own(panes)
            )
        else:
            engine.take(batch)
        releases.append(next(engine.closing())[0])
        engine.abort()
    local, spark = releases
    assert (local.status, local.reason) == (spark.status, spark.reason)
    if name not in ("blocks", "centers", "covariance"):  # their coins and shards are drawn where records are counted
        assert local.to_bytes() == spark.to_bytes()


def test_a_message_of_many_records_counts_whole_and_once():
    job = config_of().job
    engine = Engine(config_of())
    batch, _ = read_pushed(engine.job, [0, 1, 2, 3], rows(4), None, np.array([5, 5, 5, 6]), None)
    blocks, other = ([packed for *_, packed in blocks_of(job, batch, name)] for name in "pq")
    assert len(gather(blocks * 2, 2).points) == 4
    assert len(gather(blocks + other, 2).points) == 8
    engine.abort()


def test_cross_counts_are_the_rest_of_a_whole():
    from fcstream.spark.pairs import pair_counts, with_counts

    points = np.rint(np.random.default_rng(3).normal(size=(900, 3)) * 1000)
    edges = [0, 100, 500, 900]
    totals = np.zeros(900, np.int64)
    for pair in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]:
        for start, counts in pair_counts(points, edges, pair, 1500**2):
            totals[start : start + len(counts)] += counts
    assert (totals == exact_counts(points, 1500**2)).all()
    assert (with_counts(points, totals).in_order() == totals).all()
    whole = FriendCounts(3, 1500**2)
    whole.add(0, points)
    assert (whole.view([0]).in_order() == totals).all()
    assert CrossCounts(3, 1500**2, 2).view([0, 1]).size == 0


def test_queues_that_forget_are_refused_with_the_remedy():
    for url in ("mqtt://127.0.0.1/t", "amqp://127.0.0.1/q"):
        with pytest.raises(ConfigError, match="bridge it into one of those"):
            open_ranges(url, "x")


def live(url="redis://127.0.0.1/0?stream=x", **sections):
    return config_of(
        window={"clock": "broker", "end": None, "lateness": "1s"},
        source={"url": url},
        sink={"url": "jsonl:-"},
        **{"spark": {"checkpoint": "/nonexistent"}, **sections},
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"url": "mqtt://127.0.0.1/t"}, "bridge it"),
        ({"spark": {}}, "spark.checkpoint"),
        ({"sink": None}, "sink.url"),
    ],
)
def test_what_cannot_run_is_refused_before_spark_starts(changes, what):
    from fcstream.spark.service import _check

    config = live(**{k: v for k, v in changes.items() if v is not None})
    if changes.get("sink", 0) is None:
        config = msgspec.structs.replace(config, sink=None)
    with pytest.raises(ConfigError, match=what):
        _check(config)


def test_without_pyspark_the_extra_is_named(monkeypatch):
    from fcstream.spark import sessions

    monkeypatch.setattr(sessions.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"\[spark\]"):
        sessions.require_pyspark()


def test_the_command_does_not_load_pyspark():
    code = "import sys, fcstream.cli, fcstream.spark, fcstream.service; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- files ---------------------------------------------------------------------------------------------------------


def point(rng, i):
    """Most lie together; some have as many friends as the bar asks for, so that coins decide about them."""
    a, b = rng.normal(size=2) * [0.3, 0.6] + [20.5, 49.0]
    return (a + rng.uniform(2.4, 3.6), b) if i % 9 == 0 else (a, b)


def write_lines(path, seed=0, keys=("",), windows=5):
    """Records of some windows, faulty ones among them, and an empty window."""
    rng = np.random.default_rng(seed)
    lines = []
    for window in range(windows):
        for i in range(0 if window == 3 else 420):
            a, b = point(rng, i)
            record = {"ts_ms": int(10_000 * window + rng.integers(10_000)), "a": float(a), "b": float(b)}
            record |= {"id": f"u{rng.integers(300)}", "site": keys[i % len(keys)]}
            lines.append(json.dumps(record))
    lines[7] = lines[7][:20]
    lines[9] = json.dumps({"ts_ms": 5, "a": 1e9, "b": 50.0, "id": "x", "site": keys[0]})
    lines[11] = json.dumps({"ts_ms": 10**9, "a": 20.0, "b": 50.0, "id": "x", "site": keys[0]})
    lines[13] = ""
    lines[15] = json.dumps({"ts_ms": 5, "a": 20.0, "b": 50.0, "id": "x", "site": "elsewhere"})
    path.write_text("\n".join(lines) + "\n")


FILES = {
    "mean": {},
    "sliding": {"window": {"slide": "5s"}},
    "search": KINDS["search"],
    "users": {"stream": {"unit": "user", "user": "id", "per_user": "mean"}, "budget": {"rho": 6.0}},
    "keys": {"stream": {"key": "site", "keys": ["b", "a"]}},
    "tracking": {"release": {"method": "tracking"}},
}


@needs_spark
@pytest.mark.parametrize("name", FILES)
def test_files_give_the_bytes_of_the_local_runner(name, session, tmp_path, monkeypatch):
    from fcstream.ledgers.sqlite import tables
    from fcstream.spark.files import run_files

    monkeypatch.setattr(tables, "SystemEntropy", lambda: SeededEntropy(3))  # users stand in salted order

    write_lines(tmp_path / "in.jsonl", keys=("a", "b"))
    found, dead_letters, summaries = [], [], []
    for runner in ("local", "spark"):
        place = {
            "source": {"url": f"jsonl:{tmp_path / 'in.jsonl'}"},
            "sink": {"url": f"jsonl:{tmp_path / runner}.jsonl"},
            "ledger": {"url": f"sqlite:{tmp_path / runner}.db"},
            "dead_letter": {"url": f"jsonl:{tmp_path / runner}-dead.jsonl"},
        }
        config = config_of(**FILES[name], **place)
        noise = Noise(SeededEntropy(5))
        if runner == "local":
            rejections = []
            engine = open_engine(config, noise=noise, on_rejection=rejections.extend)
            with closing(open_source(config.source.url, engine.job.schema)) as source:
                sink = open_sink(config.sink.url)
                summaries.append(run(engine, source, sink))
                sink.close()
            dead_letters.append(Counter(each.reason for each in rejections))
        else:
            summaries.append(run_files(config, noise=noise))
            dead = (tmp_path / "spark-dead.jsonl").read_text().splitlines()
            dead_letters.append(Counter(json.loads(line)["reason"] for line in dead))
        found.append((tmp_path / f"{runner}.jsonl").read_bytes())
    assert found[0] == found[1]
    assert found[0].count(b'"released"') >= 2
    assert dead_letters[0] == dead_letters[1]
    assert sum(dead_letters[0].values()) >= 3
    for field in ("records", "released", "refused", "rejected", "spent"):
        assert getattr(summaries[0], field) == getattr(summaries[1], field), field
    again = run_files(config)
    assert again.released == 0
    assert again.already_answered == sum(part.count(b"\n") for part in found[1:])
    assert (tmp_path / "spark.jsonl").read_bytes() == found[1]


COUNT = """
[stream]
name = "t"
[lattice]
step = 0.001
[[features]]
name = "a"
min = -40.0
max = 80.0
[window]
length = "10s"
start = "1970-01-01T00:00:00Z"
end = "1970-01-01T00:00:20Z"
[release]
kind = "count"
rho = 50.0
[budget]
rho = 50.0
delta = 0.0
[source]
url = "csv:in*.csv"
[sink]
url = "jsonl:-"
[ledger]
url = "sqlite:ledger.db"
"""


@needs_spark
def test_the_command_counts_files_of_a_pattern_with_spark(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(COUNT)
    for part in range(2):
        lines = [f"{10_000 * (i % 2)},{i % 50}.5" for i in range(100)]
        Path(f"in{part}.csv").write_text("\n".join(["ts_ms,a", *lines]) + "\n")
    done = CliRunner().invoke(main, ["run", "c.toml", "--runner", "spark"])
    assert done.exit_code == 0, done.output
    counts = [json.loads(line)["count"] for line in done.stdout.splitlines()]
    assert len(counts) == 2
    assert all(abs(count - 100) <= 1 for count in counts)
    assert "200 records read, 0 rejected" in done.stderr
    Path("in1.csv").write_text("a,ts_ms\n1,2\n")
    done = CliRunner().invoke(main, ["run", "c.toml", "--runner", "spark", "--ledger", "sqlite:other.db"])
    assert done.exit_code == 2
    assert "source.url: must name files that all start with the same header line, got another one in" in done.stderr
    assert ".csv: name them apart" in done.stderr
    done = CliRunner().invoke(main, ["run", "c.toml", "--master", "local[2]"])
    assert done.exit_code == 2
    assert "--runner spark" in done.stderr


@needs_spark
def test_failing_tasks_tell_nothing_of_records(session, tmp_path):
    """What a task trips over stays in it: Spark logs the text of every error, many times."""
    from fcstream.spark.tasks import BLOCKS, MESSAGES, Admission

    def decode(job):
        def read(*args):
            raise ValueError(f"cannot read {args!r}")

        return read

    frame = session.createDataFrame([("p", 1, 2, b"SENTINEL-1374", None)], MESSAGES)
    with pytest.raises(Exception) as caught:
        frame.mapInArrow(Admission(config_of().job, {"": 0}, decode), BLOCKS).collect()
    assert "a task failed (ValueError)" in str(caught.value)
    assert "SENTINEL-1374" not in str(caught.value)


@needs_spark
def test_a_run_that_its_budget_stops_reports_what_it_did(session, tmp_path):
    from fcstream.spark.files import run_files

    write_lines(tmp_path / "in.jsonl")
    config = config_of(
        stream={"unit": "stream"},
        release={"kind": "count", "rho": 1.0},
        budget={"rho": 2.0, "exhausted": "stop"},
        source={"url": f"jsonl:{tmp_path / 'in.jsonl'}"},
        sink={"url": f"jsonl:{tmp_path / 'out.jsonl'}"},
    )
    summary = run_files(config)
    assert summary.stopped is not None
    assert (summary.released, summary.spent.rho) == (2, 2.0)
    assert summary.records > 0
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 2


@needs_spark
def test_pairs_of_a_huge_window_are_dealt_to_tasks(session, tmp_path):
    from fcstream.spark.files import run_files
    from fcstream.spark.pairs import count_pairs

    points = np.rint(np.random.default_rng(3).normal(size=(1500, 3)) * 1000)
    assert (count_pairs(session, points, 1500**2, 4) == exact_counts(points, 1500**2)).all()
    write_lines(tmp_path / "in.jsonl", windows=2)
    found = []
    for split in ("never", "always"):
        place = {
            "source": {"url": f"jsonl:{tmp_path / 'in.jsonl'}"},
            "sink": {"url": f"jsonl:{tmp_path / split}.jsonl"},
            "spark": {"split": split},
        }
        run_files(config_of(window={"end": "1970-01-01T00:00:20Z"}, **place), noise=Noise(SeededEntropy(5)))
        found.append((tmp_path / f"{split}.jsonl").read_bytes())
    assert found[0] == found[1]
    assert found[0].count(b'"released"') == 2


# -- live ----------------------------------------------------------------------------------------------------------


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
    failures, honest = [], spark_service.MicroBatches._nothing_is_left

    def fail_once(batches):
        honest(batches)
        if batches._feed.windows and not failures:
            failures.append(1)
            raise OSError("the disk of the checkpoint is full")

    monkeypatch.setattr(spark_service.MicroBatches, "_nothing_is_left", fail_once)
    config = stream.config(tmp_path / "spark", spark={"limit": 1000})
    done = run_spark(session, config)
    assert failures
    assert done.counters.restarts == 1
    assert (tmp_path / "spark" / "out.jsonl").read_bytes() == expected
    assert expected.count(b'"released"') == 3
    assert letters(tmp_path / "spark") == letters(tmp_path / "local")
    charged_once(config.ledger.url)


def spent(ledger):
    return sum(row.kind == "charge" for reader in each_reader(ledger) for row in reader.rows())


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

def fuse(self, answers):
    os.killpg(0, signal.SIGKILL)  # this process and its JVM

if sys.argv[2] == "kill":
    PostgresLedger.seal = fuse
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
