"""`read_releases`: every place that holds releases gives the same rows, each once."""

import gzip
import importlib.util
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.helpers import sample
from support.postgres import URL, ReleaseTable, postgres_url  # noqa: F401

from fcstream import ConfigError, Engine, Noise, SeededEntropy, Stream, read_releases
from fcstream.connectors import open_sink
from fcstream.errors import LedgerError, LedgerInUse, SinkError, SourceError
from fcstream.ledgers.retired_streams import retire
from fcstream.releases.long_form import HOLDS, long_form
from fcstream.testing import sample_release

polars = pytest.importorskip("polars")
pandas = pytest.importorskip("pandas")

ANSWERS = [
    {"kind": "count", "name": "number", "rho": 0.5},
    {"kind": "quantiles", "name": "middle", "quantiles": [0.25, 0.5], "features": ["a"], "rho": 0.5},
    {"kind": "histogram", "name": "bins", "feature": "a", "edges": [0.0, 20.0], "rho": 0.5},
    {"kind": "sum", "name": "all", "rho": 0.5},
]


def several(ledger):
    """Four answers of two keys in six windows, of which the last is refused for the quantiles."""
    stream = {"key": "site", "keys": ["x", "y"]}
    return sample(stream=stream, ledger={"url": ledger}, budget={"rho": 2.0}) | {"release": ANSWERS}


def frame():
    n = 600
    cells = {"ts_ms": [80 * i for i in range(n)], "a": [20.0] * n, "b": [50.0] * n}
    return polars.DataFrame(cells | {"site": [("x", "y")[i % 2] for i in range(n)]})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A ledger, its releases, and the long frame of the run."""
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.db"
    stream = Stream.from_config(several(f"sqlite:{ledger}"), noise=Noise(SeededEntropy(1)), on_rejection=len)
    found = stream.run(frame())
    return ledger, stream.releases, found


def rows(found):
    return sorted(found.rows(), key=str)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv-tables", "jsonl-tables", "parquet-tables"])
def test_every_sink_of_files_gives_the_frame_of_the_run(kind, run, tmp_path):
    """Four answers of a window have one row or more each: none is taken for another's copy."""
    _, releases, expected = run
    path = tmp_path / ("out.jsonl" if kind == "jsonl" else "out")
    for group in (releases[:30], releases[20:]):  # as after a kill
        sink = open_sink(f"{kind}:{path}")
        sink.write(group)
        sink.close()
    for source in (path, str(path), f"{kind}:{path}"):
        found = read_releases(source, library="polars")
        assert found.columns == list(HOLDS)
        assert rows(found) == rows(expected)
    assert set(found["answer"]) == {"number", "middle", "bins", "all"}
    refused = found.filter(status="refused")
    assert refused.select("answer", "reason", "name", "value").unique().rows() == [("middle", "too_few", None, None)]


def test_a_ledger_gives_the_frame_of_the_run(run, tmp_path):
    ledger, _, expected = run
    shutil.copy(ledger, tmp_path / "copy")
    for source in (f"sqlite:{ledger}", ledger, str(tmp_path / "copy")):
        assert rows(read_releases(source, library="polars")) == rows(expected)


def test_rows_are_in_the_order_of_key_window_and_answer(run):
    found = read_releases(run[0], library="polars").select("key", "window_open", "answer").unique(maintain_order=True)
    keys = list(dict.fromkeys(found["key"]))
    assert keys == ["x", "y"]
    assert found.rows() == [
        (key, datetime.fromtimestamp(10 * k, UTC), one["name"]) for key in keys for k in range(6) for one in ANSWERS
    ]


def test_tables_and_ledgers_of_postgresql(run, postgres_url):  # noqa: F811
    _, releases, expected = run
    table = ReleaseTable(postgres_url)
    ledger = f"{table.url.partition('?')[0]}?schema={table.schema}_ledger"
    try:
        with pytest.raises(SinkError, match="has no table"):
            read_releases(table.url)
        assert table.db.execute("SELECT to_regclass(%s)", (f"{table.schema}.{table.name}",)).fetchone() == (None,)
        with pytest.raises(LedgerError, match=r"no ledger to look at; the table of a sink is read with `table=NAME`"):
            read_releases(ledger)
        sink = open_sink(table.url)
        sink.write(releases)
        sink.close()
        assert rows(read_releases(table.url, library="polars")) == rows(expected)
        stream = Stream.from_config(several(ledger), noise=Noise(SeededEntropy(1)), on_rejection=len)
        assert rows(stream.run(frame())) == rows(read_releases(ledger, library="polars"))
    finally:
        table.db.execute(f"DROP SCHEMA IF EXISTS {table.schema} CASCADE")
        table.db.execute(f"DROP SCHEMA IF EXISTS {table.schema}_ledger CASCADE")
        table.db.close()


def write(path, *lines, opener=open):
    with opener(path, "wb") as file:
        file.writelines(lines)
    return path


def test_what_was_written_twice_is_there_once(tmp_path):
    lines = [sample_release(i).to_bytes() + b"\n" for i in range(3)]
    expected = [
        (datetime.fromtimestamp(row.window_open / 1000, UTC), row.name, row.value)
        for row in long_form(map(sample_release, range(3)))
    ]
    torn = lines[2][:100]
    for name, opener in (("a.jsonl", open), ("a.jsonl.gz", gzip.open), ("a.txt", open)):
        path = write(tmp_path / name, *lines, *lines[1:], torn, opener=opener)
        assert read_releases(path, library="polars").select("window_open", "name", "value").rows() == expected
    spaced = json.dumps(json.loads(lines[0])).encode()  # as another program writes it, without a last end of line
    assert len(read_releases(write(tmp_path / "b.jsonl", *lines, spaced), library="polars")) == 6
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "1.jsonl", *lines[:2])
    write(folder / "2.jsonl", *lines[1:])
    write(folder / "log.txt", b"something else\n")
    assert len(read_releases(folder, library="polars")) == 6


def test_windows_that_overlap_and_answers_of_one_window_are_not_copies(tmp_path):
    first = sample_release()
    others = [
        replace(first, window_close_ms=first.window_close_ms + 1),
        replace(first, name="b"),
        replace(first, stream="other"),
        replace(first, stream="sample/k", key="k"),
    ]
    path = write(tmp_path / "a.jsonl", *(one.to_bytes() + b"\n" for one in (first, *others, *others)))
    assert len(read_releases(path, library="polars")) == 2 * 5


def test_two_different_releases_of_one_window_are_told(tmp_path):
    first = sample_release()
    other = replace(first, value=[1.5, 2.5])
    path = write(tmp_path / "a.jsonl", first.to_bytes() + b"\n", other.to_bytes() + b"\n")
    with pytest.raises(SourceError, match="two different releases of 'sample' for the window from") as caught:
        read_releases(path)
    assert "1.5" not in str(caught.value)


def test_a_ledger_leaves_out_streams_that_were_retired(tmp_path):
    url = f"sqlite:{tmp_path / 'ledger.db'}"
    count = sample(ledger={"url": url}, release={"kind": "count", "rho": 1.0, "method": None, "radius": None,
                   "spread": None, "delta": None, "size_hint": None})  # fmt: skip
    for seed in (1, 2):
        stream = Stream.from_config(count, noise=Noise(SeededEntropy(seed)), on_rejection=len)
        expected = stream.run(frame())
        if seed == 1:
            retire(url, "t")
            with pytest.raises(ConfigError, match="stream that is not retired, all are"):
                read_releases(url)
    assert rows(read_releases(url, library="polars")) == rows(expected)


def test_a_ledger_that_this_process_has_open_keeps_its_lock(tmp_path):
    path = tmp_path / "ledger.db"
    with Engine(sample(ledger={"url": f"sqlite:{path}"})):
        for source in (path, f"sqlite:{path}"):
            with pytest.raises(LedgerInUse):
                read_releases(source)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_the_frame_is_of_the_library_that_is_asked_for(library, tmp_path):
    pytest.importorskip(library)
    path = write(tmp_path / "a.jsonl", sample_release().to_bytes() + b"\n")
    assert type(read_releases(path, library=library)).__module__.partition(".")[0] == library


def test_the_first_library_that_is_installed_is_taken(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", sample_release().to_bytes() + b"\n")
    real, missing = importlib.util.find_spec, set()
    monkeypatch.setattr("fcstream.reporting.released.find_spec", lambda name: None if name in missing else real(name))
    found = []
    for library in ("pandas", "polars", "pyarrow"):
        found.append(type(read_releases(path)).__module__.partition(".")[0])
        missing.add(library)
    columns = read_releases(path)
    assert found == ["pandas", "polars", "pyarrow"]
    assert list(columns) == list(HOLDS)
    assert columns["window_open"] == [datetime.fromtimestamp(sample_release().window_open_ms / 1000, UTC)] * 2
    assert columns["value"] == sample_release().value


WRONG = {
    "kafka://host/topic": (ConfigError, "got 'kafka://host/topic', from which nothing is read back: give `ledger.url`"),
    "mqtt://user:secret@host/t": (ConfigError, "whose ledger holds every release"),
    "https://host/hook": (ConfigError, "whose ledger holds every release"),
    "jsonl:-": (ConfigError, "whose ledger holds every release"),
    "influx:-": (ConfigError, "whose ledger holds every release"),
    "s3://bucket/a.jsonl": (ConfigError, "must be a file or a folder"),
    "memory:": (ConfigError, "one in memory is seen by its own process only"),
    "missing.jsonl": (SourceError, "missing.jsonl cannot be read: No such file"),
    "sqlite:missing.db": (LedgerError, "does not exist"),
    "empty": (SourceError, r"must hold files of releases .* it holds none"),
    "rows.csv": (SourceError, "line 1 of rows.csv is not a release of fcstream: give what a sink wrote"),
    "broken.jsonl": (SourceError, "line 2 of broken.jsonl is not a release"),
    "other.parquet": (SourceError, "must have the column `body`"),
    "torn.parquet": (SourceError, "is damaged, or no Parquet file"),
}


@pytest.mark.parametrize("source", WRONG)
def test_what_cannot_be_read_is_told(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    line = sample_release().to_bytes() + b"\n"
    write("rows.csv", b"x0,x1\n", b"1,2\n")
    write("broken.jsonl", line, line[:50] + line)
    polars.DataFrame({"value": [1.0]}).write_parquet("other.parquet")
    write("torn.parquet", b"PAR1 and nothing else")
    error, text = WRONG[source]
    with pytest.raises(error, match=text) as caught:
        read_releases(source)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="library: must be 'pandas', 'polars' or 'pyarrow', got 'dask'"):
        read_releases(write("good.jsonl", line), library="dask")
