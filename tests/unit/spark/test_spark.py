"""The same engine on Spark, over files: one local session for all of it."""

import json
import pickle
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import exact_counts, rows
from support.spark_session import blocks_of, config_of, live, needs_spark, point

from fcstream import Engine, Noise, SeededEntropy
from fcstream.cli import main
from fcstream.connectors import open_ranges, open_sink, open_source
from fcstream.counting.exact import CrossCounts, FriendCounts
from fcstream.engine.intake import read_pushed
from fcstream.engine.opening import open_engine
from fcstream.errors import ConfigError
from fcstream.service.batch import run
from fcstream.spark.blocks import gather
from fcstream.spark.tasks import MessageReader, count_window, pieces

KINDS = {
    "mean": {},
    "basic": {"release": {"method": "basic", "spread": None, "outliers": None}},
    "search": {
        "release": {"method": "friendly", "radius": "search", "radius_min": 0.1, "radius_max": 50.0, "spread": None}
    },
    "blocks": {"release": {"pairs": "blocks", "size_hint": 40_000}},
    "count": {"release": {"kind": "count", "rho": 0.5}},
    "histogram": {"release": {"kind": "histogram", "feature": "a", "edges": [19.0, 20.0, 21.0], "rho": 0.5}},
    "total": {"release": {"kind": "total", "of": "histogram", "feature": "a", "edges": [20.0], "epoch": 2, "rho": 0.5}},
    "quantiles": {"release": {"kind": "quantiles", "feature": "a", "quantiles": [0.5], "rho": 0.5}},
    "variance": {"release": {"kind": "variance", "radius": 3.0, "rho": 1.0, "delta": 1e-9, "size_hint": 500}},
    "centers": {
        "release": {"kind": "centers", "k": 2, "rho": 1.0, "delta": 1e-9, "size_hint": 5000},
    },
    "covariance": {"release": {"kind": "covariance", "method": "friendly", "rho": 1.0, "delta": 1e-7, "shards": 400}},
    "synthetic": {"release": {"kind": "synthetic", "rho": 0.5, "edges": {"a": [20.0], "b": [50.0]}}},
    "marginals": {"release": {"kind": "marginals", "rho": 0.5, "edges": {"a": [20.0], "b": [50.0]}}},
    "points": {"release": {"kind": "points", "set": "box", "rho": 0.5}},
    "previous": {
        "release": {"kind": "synthetic", "rho": 0.5, "projection": "previous", "edges": {"a": [20.0], "b": [50.0]}}
    },
}


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


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"url": "mqtt://127.0.0.1/t"}, "bridge it"),
        ({"spark": {}}, "spark.checkpoint"),
        (
            {"stream": {"key": "@topic:1", "keys": ["a"]}},
            "stream.key: must be a field of the message, or '@broker', with",
        ),
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


def test_messages_have_their_elements_and_their_arrival_in_tasks():
    whole = live(stream={"time": "@broker"})
    job = msgspec.structs.replace(whole, source=msgspec.structs.replace(whole.source, records="r")).job
    read = MessageReader("json")(job)
    bodies = [b'{"r": [{"a": 20, "b": 49}, {"a": 21, "b": 49}]}', b'{"r": [{"a": 20, "b": 49}, {"a": "x", "b": 1}]}']
    batch, arrivals, count = read("p", np.array([5, 6]), np.array([7000, 8000]), bodies)
    assert batch.times_ms.tolist() == arrivals.tolist() == [7000, 7000, 8000]
    assert (batch.positions.tolist(), count) == ([5, 5, 6], 2)
    assert [(each.reason, each.position) for each in batch.rejections] == [("not_a_number", 6)]


def test_without_pyspark_the_extra_is_named(monkeypatch):
    from fcstream.spark import sessions

    monkeypatch.setattr(sessions.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"\[spark\]"):
        sessions.require_pyspark()


def test_the_command_does_not_load_pyspark():
    code = "import sys, fcstream.cli, fcstream.spark, fcstream.service; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def write_lines(path, seed=0, keys=("",), windows=5):
    """Records of some windows, faulty ones among them, and an empty window."""
    rng = np.random.default_rng(seed)
    lines = []
    for window in range(windows):
        for i in range(0 if window == 3 else 420):
            a, b = point(rng, i)
            record = {"ts_ms": int(10_000 * window + rng.integers(10_000)), "a": float(a), "b": float(b)}
            record |= {"id": f"u{rng.integers(300)}", "site": keys[i % len(keys)], "app": APPS[i % len(APPS)]}
            lines.append(json.dumps(record))
    lines[7] = lines[7][:20]
    lines[9] = json.dumps({"ts_ms": 5, "a": 1e9, "b": 50.0, "id": "x", "site": keys[0]})
    lines[11] = json.dumps({"ts_ms": 10**9, "a": 20.0, "b": 50.0, "id": "x", "site": keys[0]})
    lines[13] = ""
    lines[15] = json.dumps({"ts_ms": 5, "a": 20.0, "b": 50.0, "id": "x", "site": "elsewhere"})
    path.write_text("\n".join(lines) + "\n")


APPS = ["maps", "maps", "Zu\u0308rich", "Z\u00fcrich", "mail", 7]
ANSWERS = [
    {"name": "n", "kind": "count", "rho": 0.5},
    {"name": "warm", "kind": "sum", "rho": 0.5, "features": ["a"], "where": {"a": {"min": 20.5}}},
    {
        "name": "middle",
        "kind": "mean",
        "rho": 0.5,
        "delta": 1e-9,
        "radius": 3.0,
        "size_hint": 400,
    },
]
TEXTS = [
    {"name": "apps", "kind": "frequent", "rho": 0.5, "delta": 1e-6},
    {"name": "mails", "kind": "sum", "rho": 0.5, "features": ["a"], "where": {"app": ["mail", "Zu\u0308rich"]}},
    {"name": "warm apps", "kind": "frequent", "rho": 0.5, "delta": 1e-6, "where": {"a": {"min": 20.5}}},
]
FEATURES = [{"name": "a", "min": -40.0, "max": 80.0}, {"name": "app", "type": "text"}]
FILES = {
    "texts": {"release": TEXTS, "features": FEATURES, "budget": {"rho": 2.0, "delta": 1e-3}},
    "sliding texts": {
        "release": TEXTS,
        "features": FEATURES,
        "budget": {"rho": 4.0, "delta": 1e-3},
        "window": {"slide": "5s"},
    },
    "texts of users": {
        "release": [{**TEXTS[0], "values_per_user": 2}, TEXTS[1]],
        "features": FEATURES,
        "stream": {"unit": "user", "user": "id"},
        "budget": {"rho": 8.0, "delta": 1e-3},
    },
    "mean": {},
    "answers": {"release": ANSWERS, "budget": {"rho": 2.0}},
    "answers of users": {
        "release": [*ANSWERS, {**ANSWERS[1], "name": "usual", "per_user": "mean"}],
        "stream": {"unit": "user", "user": "id"},
        "budget": {"rho": 12.0},
    },
    "sliding": {"window": {"slide": "5s"}},
    "search": KINDS["search"],
    "users": {"stream": {"unit": "user", "user": "id", "per_user": "mean"}, "budget": {"rho": 6.0}},
    "sliding users": {
        "stream": {"unit": "user", "user": "id"},
        "budget": {"rho": 16.0},
        "window": {"slide": "5s"},
    },
    "keys": {"stream": {"key": "site", "keys": ["b", "a"]}},
    "tracking": {"release": {"method": "tracking"}},
}


@needs_spark
@pytest.mark.parametrize("name", FILES)
def test_files_give_the_bytes_of_the_local_runner(name, session, tmp_path):
    from fcstream.spark.files import run_files

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
    assert again.already_answered * len(config.releases) == found[1].count(b"\n")
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
