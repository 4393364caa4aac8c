"""`Stream`: the configuration of a file in Python, and releases of data frames as data frames."""

import json
import logging
import re
import subprocess
import sys
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from support.helpers import SAMPLE, sample
from support.release_kinds import RELEASES

from fcstream import ConfigError, Engine, Noise, SeededEntropy, Stream, sections, synthetic_rows
from fcstream.config import Config
from fcstream.connectors import open_sink, open_source
from fcstream.engine.opening import open_engine
from fcstream.errors import BudgetExhausted, LedgerMismatch
from fcstream.releases import registry
from fcstream.releases.options import Options
from fcstream.sections import Budget, Count, Feature, Lattice, Mean, Records, Window
from fcstream.service.batch import run

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

MAKERS = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pyarrow.table,
    "arrow batch": pyarrow.RecordBatch.from_pydict,
}
COLUMNS = ["window_open", "window_close", "stream", "key", "answer", "kind", "name", "value", "sigma", "low", "high"]
COLUMNS += ["status", "reason"]
TIMES = COLUMNS[:2]


def typed(ledger=None, noise=None, on_rejection=len, **changes):
    """The sample configuration, typed."""
    sections = {
        "stream": Records(name="t"),
        "lattice": Lattice(step=0.001),
        "features": [
            Feature(name="a", min=-40.0, max=80.0, origin=20.0),
            Feature(name="b", min=0.0, max=100.0, origin=50.0, scale=2.0),
        ],
        "window": Window(length="10s", start="1970-01-01T00:00:00Z", end="1970-01-01T00:01:00Z"),
        "release": Mean(radius=3.0, rho=1.0, delta=1e-9, size_hint=300, outliers="leave_out"),
        "budget": Budget(rho=4.0, delta=1e-6),
    }
    stream, rest = (sections | changes).pop("stream"), sections | changes
    del rest["stream"]
    return Stream(stream, ledger=ledger, noise=noise or Noise(SeededEntropy(1)), on_rejection=on_rejection, **rest)


def records(n=2000, seed=0):
    """Columns of a minute's records; the last window has too few."""
    random = np.random.default_rng(seed)
    return {
        "ts_ms": np.sort(random.integers(0, 50_500, n)).tolist(),
        "a": random.normal(20.5, 0.3, n).tolist(),
        "b": random.normal(49.0, 0.6, n).tolist(),
        "site": [("x", "y")[i % 2] for i in range(n)],
        "who": [f"u{i % 700}" for i in range(n)],
    }


def rows_of(frame):
    """Rows as Python's values, from each library by its own ways."""
    if isinstance(frame, pandas.DataFrame):
        frame = frame.astype(dict.fromkeys(TIMES, "int64"))
        return [tuple(None if cell != cell else cell for cell in row) for row in frame.itertuples(index=False)]
    if isinstance(frame, polars.DataFrame):
        return frame.with_columns(polars.col(TIMES).dt.timestamp("ms")).rows()
    return list(zip(*(frame.column(name).cast("int64").to_pylist() if name in TIMES else
                      frame.column(name).to_pylist() for name in COLUMNS), strict=True))  # fmt: skip


def file_run(tmp_path, columns, answers=None, **sections):
    """What the job of a file releases, as the lines of its sink."""
    names = list(columns)
    text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True))
    (tmp_path / "in.jsonl").write_text(text)
    config = Config.from_mapping(sample(**sections) | ({} if answers is None else {"release": answers}))
    source = open_source(f"jsonl:{tmp_path / 'in.jsonl'}", config.job.schema)
    sink = open_sink(f"jsonl:{tmp_path / 'out.jsonl'}")
    run(open_engine(config, noise=Noise(SeededEntropy(1)), on_rejection=len), source, sink)
    source.close()
    sink.close()
    return (tmp_path / "out.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("maker", MAKERS)
def test_a_data_frame_gives_one_of_its_library(maker):
    frame = typed().run(MAKERS[maker](records()))
    assert type(frame) is type(MAKERS[maker](records()))
    rows = rows_of(frame)
    assert rows == rows_of(typed().run(MAKERS["polars"](records())))
    assert [row[:7] for row in rows[:2]] == [(0, 10_000, "t", None, "mean", "mean", name) for name in ("a", "b")]
    assert rows[0][7] == pytest.approx(20.5, abs=0.1)
    assert rows[1][7] == pytest.approx(49.0, abs=0.2)
    assert all(0 < row[8] < 1 for row in rows[:10])
    assert {row[9:11] for row in rows[:10]} == {(None, None)}  # records were left out
    assert rows[-1] == (50_000, 60_000, "t", None, "mean", "mean", *[None] * 5, "refused", "too_few")
    assert len(rows) == 5 * 2 + 1


def test_the_columns_have_types():
    like = records()
    types = typed().run(pandas.DataFrame(like)).dtypes
    assert list(types.index) == COLUMNS
    assert types.window_open == types.window_close == "datetime64[ms, UTC]"
    assert types.value == types.sigma == "float64"
    schema = typed().run(polars.DataFrame(like)).schema
    assert list(schema) == COLUMNS
    assert schema["window_close"] == polars.Datetime("ms", "UTC")
    assert schema["key"] == polars.String  # though all are null
    assert schema["value"] == schema["sigma"] == polars.Float64
    arrow = typed().run(pyarrow.table(like)).schema
    assert arrow.names == COLUMNS
    assert arrow.field("window_close").type == pyarrow.timestamp("ms", "UTC")
    assert arrow.field("name").type == pyarrow.string()
    assert arrow.field("sigma").type == pyarrow.float64()


CASES = {
    "mean": ({}, {}),
    "keys": (
        {"stream": {"key": "site", "keys": ["x", "y"]}},
        {"stream": Records(name="t", key="site", keys=["x", "y"])},
    ),
    "users": (
        {"stream": {"unit": "user", "user": "who"}, "budget": {"rho": 6.0}},
        {"stream": Records(name="t", unit="user", user="who"), "budget": Budget(rho=6.0, delta=1e-6)},
    ),
    "sliding": (
        {"window": {"slide": "5s"}},
        {"window": Window(length="10s", slide="5s", start="1970-01-01T00:00:00Z", end="1970-01-01T00:01:00Z")},
    ),
    "hidden": (
        {"release": {"pairs": "hidden", "rho": 4.0}},
        {"release": Mean(radius=3.0, rho=4.0, delta=1e-9, size_hint=300, pairs="hidden", outliers="leave_out")},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", [[2000], [1, 7, 300, 692, 1000]])
def test_batches_give_the_releases_of_the_file(case, sizes, tmp_path):
    sections, changes = CASES[case]
    columns = records()
    lines = file_run(tmp_path, columns, **sections)
    frame = polars.DataFrame(columns)
    ends = np.cumsum([0, *sizes])
    stream = typed(**changes)
    found = stream.run(frame[start:end] for start, end in pairwise(ends.tolist()))
    assert [release.to_bytes() for release in stream.releases] == lines
    assert len(found) >= len(lines) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASES)
def test_every_kind_is_what_the_file_says(name):
    """The configuration, and so what a ledger is bound to; every class that a user may write it with."""
    mapping = sample(release=RELEASES[name][0], budget={"rho": 400.0, "delta": 1e-4})
    config = Config.from_mapping(mapping)
    keys, (kind, _, method) = mapping["release"], name.partition("/")
    options = registry.find(kind, method or None)
    release = options(**{key: value for key, value in keys.items() if key != "kind"})  # each class knows its kind
    stream = typed(release=release, budget=Budget(rho=400.0, delta=1e-4))
    assert stream.config == config
    assert stream.config.job.terms == config.job.terms


def test_a_list_of_one_answer_is_that_answer():
    count = Count(rho=0.5)
    assert typed(release=[count]).config == typed(release=count).config


def test_several_answers_have_names_of_their_own(tmp_path):
    count = Count(name="number", rho=0.5)
    mean = Mean(name="middle", radius=3.0, rho=1.0, delta=1e-9, size_hint=300, outliers="leave_out")
    answers = [
        {"kind": "count", "name": "number", "rho": 0.5},
        {"name": "middle", "radius": 3.0, "rho": 1.0, "delta": 1e-9, "size_hint": 300, "outliers": "leave_out"},
    ]
    lines = file_run(tmp_path, records(), answers, ledger={"url": f"sqlite:{tmp_path / 'other.db'}"})
    stream = typed(release=[count, mean], ledger=tmp_path / "ledger.db")
    found = stream.run(polars.DataFrame(records()))
    assert [release.to_bytes() for release in stream.releases] == lines
    assert found["answer"].to_list() == [*["number", "middle", "middle"] * 5, "number", "middle"]
    assert found["name"].to_list() == [*["count", "a", "b"] * 5, "count", None]
    again = typed(release=(count, mean), ledger=tmp_path / "ledger.db", noise=Noise(SeededEntropy(2)))
    assert again.run(polars.DataFrame(records())).equals(found)
    assert again.releases == stream.releases
    with pytest.raises(ConfigError, match=r"^release\[middle\]\.radius: is required"):
        typed(release=[count, Mean(name="middle", rho=1.0, delta=1e-9, size_hint=300)])


WRONG = {
    "lattice": (Lattice(step=-1.0), {"step": -1.0}),
    "window": (Window(length="10", start="1970", end="x"), {"length": "10", "start": "1970", "end": "x"}),
    "budget": (Budget(rho="much", delta=0.0), {"rho": "much", "delta": 0.0}),
    "release": (Mean(radius=3.0, rho=1.0, delta=1e-9), {"size_hint": None}),
    "stream": (Records(name="t", unit="group"), {"name": "t", "unit": "group"}),
}


@pytest.mark.parametrize("section", WRONG)
def test_what_is_wrong_is_said_in_the_words_of_the_file(section):
    value, keys = WRONG[section]
    with pytest.raises(ConfigError) as told:
        typed(**{section: value})
    with pytest.raises(ConfigError) as file:
        Config.from_mapping(sample(**{section: keys}))
    assert str(told.value) == str(file.value)


def test_options_that_are_not_those_of_their_kind_are_refused():
    with pytest.raises(
        ConfigError, match=r"release: must be `fcstream\.sections\.Sum` for the kind 'sum', got `Count`: give Sum"
    ):
        typed(release=Count(kind="sum", rho=1.0))
    with pytest.raises(ConfigError, match=r"release\.kind: must be 'mean', .* got 'hot'"):
        typed(release=Count(kind="hot", rho=1.0))
    with pytest.raises(
        ConfigError,
        match=r"must be `fcstream\.sections\.BasicMean` for the kind 'mean' with the method 'basic', got `Mean`",
    ):
        typed(release=Mean(method="basic", radius=3.0, rho=1.0, delta=1e-9))


@pytest.mark.parametrize("name", registry.KINDS)
def test_every_kind_and_method_has_a_section_that_errors_name(name):
    """They named classes that no user imports: `TreeCentersOptions` for `Centers(method="tree")`."""
    kind, _, method = name.partition("/")
    options = registry.find(kind, method or None)
    assert issubclass(getattr(sections, registry.section_name(options)), options)


def test_a_section_of_another_method_is_told_by_its_name():
    text = "must be `fcstream.sections.TreeCenters` for the kind 'centers' with the method 'tree', got `Centers`"
    with pytest.raises(ConfigError, match=re.escape(text)):
        typed(release=sections.Centers(method="tree", rho=1.0, k=3))


def test_a_second_run_returns_what_the_first_has_released(tmp_path, caplog):
    path = tmp_path / "ledger.db"
    first = typed(ledger=path)
    found = first.run(pandas.DataFrame(records()))
    other = pandas.DataFrame(records(seed=5))
    for again in (first, typed(ledger=str(path)), typed(ledger=f"sqlite:{path}")):
        pandas.testing.assert_frame_equal(again.run(other), found)
        assert again.releases == first.releases
    longer = Window(length="10s", start="1970-01-01T00:00:00Z", end="1970-01-01T00:01:20Z")
    more = typed(ledger=path, window=longer).run(other)
    pandas.testing.assert_frame_equal(more.iloc[: len(found)], found)
    assert len(more) == len(found) + 2
    assert caplog.records == []
    with pytest.raises(LedgerMismatch):
        typed(ledger=path, release=Count(rho=1.0)).run(other)


def test_a_ledger_on_a_server_is_read_again_key_by_key(postgres):
    sections = {"ledger": postgres.url, "stream": Records(name="t", key="site", keys=["x", "y"])}
    found = typed(**sections).run(polars.DataFrame(records()))
    assert found["key"].unique(maintain_order=True).to_list() == ["x", "y"]
    assert typed(**sections).run(polars.DataFrame(records(seed=5))).equals(found)


def test_without_a_ledger_a_stream_spends_once_and_warns(caplog):
    stream = typed()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("stream 't' has no ledger")
    found = stream.run(polars.DataFrame(records()))
    assert stream.run(polars.DataFrame(records(seed=4))).equals(found)
    keyed = typed(stream=Records(name="t", key="site", keys=["x", "y"]))
    found = keyed.run(polars.DataFrame(records()))
    assert keyed.run(polars.DataFrame(records(seed=4))).equals(found)
    assert found["key"].unique(maintain_order=True).to_list() == ["x", "y"]
    assert found["stream"].unique().to_list() == ["t"]


def test_a_ledger_must_be_named():
    with pytest.raises(TypeError, match="ledger"):
        Stream("t", release=Count(rho=1.0), window=Window(length="1s", start="x"), budget=Budget(rho=1.0, delta=0.0))
    with pytest.raises(ConfigError, match=r"^ledger\.url: is required"):
        Stream.from_config({key: value for key, value in SAMPLE.items() if key != "ledger"}).run(
            polars.DataFrame(records())
        )


def test_a_file_is_a_stream_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mapping = sample(ledger={"url": "sqlite:a.db"})
    stream = Stream.from_config(mapping, noise=Noise(SeededEntropy(1)), on_rejection=len)
    assert stream.run(polars.DataFrame(records())).equals(typed().run(polars.DataFrame(records())))
    (tmp_path / "a.toml").write_text(
        '[stream]\nname = "n"\n[window]\nlength = "1m"\nstart = "1970-01-01"\nend = "1970-01-01T00:01:00"\n'
        '[release]\nkind = "count"\nrho = 1e4\n[budget]\nrho = 1e4\ndelta = 0.0\n[ledger]\nurl = "memory:"\n'
    )
    frame = Stream.from_config("a.toml").run(polars.DataFrame(records()))
    assert frame["value"].round().to_list() == [2000.0]
    assert frame["name"].to_list() == ["count"]


def test_rejections_are_counted():
    rejected = []
    stream = typed(on_rejection=rejected.extend)
    stream.run(polars.DataFrame(records() | {"a": [99.0] * 1000 + [20.5] * 1000}))
    assert stream.rejected == {"out_of_range": 1000}
    assert len(rejected) == 1000


def test_a_budget_that_stops_leaves_the_releases_before():
    stream = typed(stream=Records(name="t", unit="stream"), budget=Budget(rho=2.0, delta=1e-6, exhausted="stop"))
    with pytest.raises(BudgetExhausted):
        stream.run(polars.DataFrame(records()))
    assert [release.window_open_ms for release in stream.releases] == [0, 10_000]


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "must hold at least one data frame"),
        (records(), "must be data frames of pandas or polars, or tables of Arrow, got str"),
        (np.zeros((3, 3)), "got ndarray"),
        (None, "got NoneType"),
        (polars.DataFrame(records()).lazy(), "must be collected first"),
    ],
    ids=["none", "mapping", "array", "None", "lazy"],
)
def test_what_is_no_data_frame_is_refused(frames, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        typed(ledger=tmp_path / "ledger.db").run(frames)
    assert list(tmp_path.iterdir()) == []


def test_batches_that_fail_release_nothing(tmp_path):
    stream = typed(ledger=tmp_path / "ledger.db")
    with pytest.raises(ConfigError, match="got int"):
        stream.run([polars.DataFrame(records()), 5])
    with pytest.raises(ConfigError, match="must have a column 'a'"):
        stream.run([polars.DataFrame(records()), polars.DataFrame({"ts_ms": [1]})])
    assert stream.releases == []
    assert stream.run(polars.DataFrame(records())).equals(typed().run(polars.DataFrame(records())))


def test_live_records_are_pushed_to_an_engine():
    window = Window(length="10s", clock="broker", start="1970-01-01T00:00:00Z", backlog="40000d")
    stream = typed(window=window)
    frame = polars.DataFrame(records()).filter(polars.col("ts_ms") < 10_000)
    with pytest.raises(ConfigError, match=r"^window\.clock: must be 'eof'"):
        stream.run(frame)
    with stream.engine() as engine:
        assert isinstance(engine, Engine)
        engine.advance(0)
        engine.push(frame, arrival_ms=10_000)
        found = stream.frame(engine.advance(10_001), like=frame)
    assert found["name"].to_list() == ["a", "b"]


@pytest.mark.slow
def test_the_libraries_are_not_imported_unless_a_table_is_theirs():
    code = (
        "import sys; import polars, fcstream; from fcstream.sections import Budget, Count, Window\n"
        "s = fcstream.Stream('t', window=Window(length='1m', start='1970-01-01', end='1970-01-01T00:01:00'),"
        " release=Count(rho=1.0), budget=Budget(rho=1.0, delta=0.0), ledger='memory:')\n"
        "s.run(polars.DataFrame({'ts_ms': [1]}))\n"
        "print([name for name in ('pandas', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_kind_has_a_class_among_the_sections_that_knows_its_name():
    known = {each for each in vars(sections).values() if isinstance(each, type) and issubclass(each, Options)}
    for name in registry.KINDS:
        kind, _, method = name.partition("/")
        options = registry.find(kind, method or None)
        assert any(issubclass(each, options) for each in known), name
        assert {own.name: own.default for own in msgspec.structs.fields(options)}["kind"] == kind, name


@pytest.mark.parametrize("maker", MAKERS)
def test_made_up_rows_come_as_rows(maker, tmp_path):
    """What a user asked for, and not the thousands of numbers that they are drawn from."""
    n = 4000
    columns = {
        "ts_ms": [10 * i for i in range(n)],
        "status": [i % 3 > 0 for i in range(n)],
        "color": ["red" if i % 4 else "blue" for i in range(n)],
        "a": [(i % 4) * 10.0 for i in range(n)],
    }
    features = [
        Feature(name="status", type="boolean"),
        Feature(name="color", type="category", levels=["red", "blue"]),
        Feature(name="a", min=0.0, max=40.0),
    ]
    made = sections.Synthetic(rho=2.0, edges={"a": [20.0]}, rows=500)
    window = Window(length="40s", start="1970-01-01T00:00:00Z", end="1970-01-01T00:01:20Z")
    more = {"features": features, "window": window, "budget": Budget(rho=4.0, delta=0.0)}
    stream = typed(release=made, **more)
    frame = stream.run(MAKERS[maker](columns))
    assert type(frame) is type(MAKERS[maker](columns))
    found = {name: frame[name].tolist() if maker == "pandas" else frame[name].to_pylist() if maker[:5] == "arrow"
             else frame[name].to_list() for name in columns if name != "ts_ms"}  # fmt: skip
    names = list(frame.columns) if maker in ("pandas", "polars") else frame.schema.names
    assert names == [*TIMES, "stream", "key", "answer", "kind", "status", "reason", "status_", "color", "a"]
    first, second = stream.releases
    assert (second.status, second.reason) == ("refused", "too_few")
    assert found["status"] == ["released"] * 500 + ["refused"]
    drawn = synthetic_rows(first)
    assert found["a"][:500] == drawn["a"]
    assert found["color"] == [*drawn["color"], None]
    assert found["a"][:500].count(10.0) + found["a"][:500].count(30.0) == 500
    flags = frame["status_"]
    assert (flags.tolist() if maker == "pandas" else list(map(bool, flags.to_numpy(zero_copy_only=False)))
            if maker[:5] == "arrow" else flags.to_list())[:500] == drawn["status"]  # fmt: skip


def test_made_up_rows_beside_other_answers_have_one_row(tmp_path):
    answers = [sections.Synthetic(name="rows", rho=1.0, edges={"a": [20.0], "b": [50.0]}), Count(name="n", rho=0.5)]
    found = typed(release=answers).run(polars.DataFrame(records()))
    one = found.filter(answer="rows")
    assert len(one) == one["window_open"].n_unique() == 6
    assert one["value"].is_null().all()
    assert set(one["status"]) == {"released", "refused"}
