import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcstream.connectors import open_dead_letter, open_sink, open_source
from fcstream.connectors.files import LONGEST_LINE, JsonlSink
from fcstream.errors import ConfigError, SinkError, SourceError
from fcstream.formats.batch import Rejection, Schema, SeenPositions, parse_iso8601, parse_time
from fcstream.formats.decoders import CsvRows, Objects
from fcstream.stream.lattice import Feature, Grid, Lattice
from fcstream.testing import SinkContract, sample_release

SCHEMA = Schema("t", "ms", ("a", "b"))

JSON_CASES = [
    (b'{"t": 5, "a": 1, "b": 2.5}', None),
    (b'{"t": 5.7, "a": -1e3, "b": 2, "c": "x"}', None),
    (b'{"b": 2, "a": 1, "t": 5}  ', None),
    (b'{"t": 5, "a": 1, "b": 2', ("broken_record", None)),
    (b'{"t": 5, "a": 1, "b": 2} {"t": 6, "a": 1, "b": 2}', ("broken_record", None)),
    (b"[5, 1, 2]", ("broken_record", None)),
    (b"hello", ("broken_record", None)),
    (b"\xff\xfe", ("broken_record", None)),
    (b"{" * 5000, ("broken_record", None)),
    (b'{"t": 5, "a": 1}', ("missing", "b")),
    (b'{"t": 5, "a": null, "b": 2}', ("missing", "a")),
    (b'{"a": 1, "b": 2}', ("missing", "t")),
    (b'{"t": 5, "a": "1", "b": 2}', ("not_a_number", "a")),
    (b'{"t": 5, "a": true, "b": 2}', ("not_a_number", "a")),
    (b'{"t": 5, "a": [1], "b": 2}', ("not_a_number", "a")),
    (b'{"t": 5, "a": NaN, "b": 2}', ("not_finite", "a")),
    (b'{"t": 5, "a": 1e999, "b": 2}', ("not_finite", "a")),
    (b'{"t": 5, "a": 1, "b": -Infinity}', ("not_finite", "b")),
    (b'{"t": "5", "a": 1, "b": 2}', ("bad_time", "t")),
    (b'{"t": {}, "a": 1, "b": 2}', ("bad_time", "t")),
    (b'{"t": 1e300, "a": 1, "b": 2}', ("bad_time", "t")),
    (b'{"t": "soon", "a": 1, "b": 2}', ("bad_time", "t")),
]
CSV_CASES = [
    (b"5,1,2.5,x", None),
    (b'5," 1 ",2,"x,y"', None),
    (b"5,1,2,x\r", None),
    (b"5,1,2", ("broken_record", None)),
    (b"5,1,2,x,y", ("broken_record", None)),
    (b'5,1,2,"x', ("broken_record", None)),
    (b"5,,2,x", ("missing", "a")),
    (b"5,  ,2,x", ("missing", "a")),
    (b",1,2,x", ("missing", "t")),
    (b"5,one,2,x", ("not_a_number", "a")),
    (b"5,1_0,2,x", ("not_a_number", "a")),
    (b"5,nan,2,x", ("not_finite", "a")),
    (b"5,1,inf,x", ("not_finite", "b")),
    (b"5,1,1e999,x", ("not_finite", "b")),
    (b"soon,1,2,x", ("bad_time", "t")),
    (b"inf,1,2,x", ("bad_time", "t")),
    (b"5,\xff,2,x", ("not_a_number", "a")),
]


def decoder(kind):
    return Objects(SCHEMA) if kind == "json" else CsvRows(SCHEMA, b"\xef\xbb\xbft,a,b,c")


@pytest.mark.parametrize(
    ("kind", "line", "reason"), [("json", *c) for c in JSON_CASES] + [("csv", *c) for c in CSV_CASES]
)
def test_each_odd_record_gets_its_own_reason(kind, line, reason):
    batch = decoder(kind).decode([line], 7)
    if reason is None:
        assert batch.rejections == []
        assert batch.times_ms.tolist() == [5]
        assert batch.positions.tolist() == [7]
    else:
        assert len(batch.times_ms) == 0
        assert batch.rejections == [Rejection(reason[0], 7, reason[1])]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.sampled_from(["json", "csv"]), st.lists(st.integers(0, 100), max_size=30))
def test_no_record_changes_how_another_is_read(kind, picks):
    """A block gives exactly what its lines give one by one: else one record could displace others."""
    cases = [line for line, _ in (JSON_CASES if kind == "json" else CSV_CASES)] + [b"", b"   "]
    lines = [cases[i % len(cases)] for i in picks]
    whole = decoder(kind).decode(list(lines), 100)
    single = [decoder(kind).decode([line], 100 + i) for i, line in enumerate(lines)]
    assert whole.positions.tolist() == [p for b in single for p in b.positions.tolist()]
    assert whole.values.tolist() == [v for b in single for v in b.values.tolist()]
    assert whole.times_ms.tolist() == [t for b in single for t in b.times_ms.tolist()]
    assert whole.rejections == [r for b in single for r in b.rejections]


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01t00:00:00.5z", 500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T00:00:00.0019", 1),
        ("2016-03-15", 1_458_000_000_000),
    ],
)
def test_iso8601(text, millis):
    assert parse_iso8601(text) == millis


def test_seconds_are_rounded_down_to_milliseconds_but_not_by_accident():
    assert parse_time(1.001, "s") == 1001
    assert parse_time("1373760015", "s") == 1_373_760_015_000
    assert parse_time(-0.0005, "s") == -1
    fast = Objects(Schema("t", "s", ("a",))).decode([b'{"t": 1.001, "a": 0}', b'{"t": -0.0005, "a": 0}'], 0)
    assert fast.times_ms.tolist() == [1001, -1]


def test_iso_times_in_json_and_csv():
    schema = Schema("t", "iso8601", ("a",))
    batch = Objects(schema).decode(
        [b'{"t": "1970-01-01 00:00:01", "a": 3}', b'{"t": 5, "a": 3}', b'{"t": "x", "a": 3}'], 0
    )
    assert batch.times_ms.tolist() == [1000]
    assert [(r.reason, r.field) for r in batch.rejections] == [("bad_time", "t")] * 2
    batch = CsvRows(schema, b"t,a").decode([b"1970-01-01T00:00:01,3", b",3", b"x,3"], 0)
    assert batch.times_ms.tolist() == [1000]
    assert [r.reason for r in batch.rejections] == ["missing", "bad_time"]


def test_header_without_the_column():
    with pytest.raises(ConfigError, match="must name the column 'b'") as error:
        CsvRows(SCHEMA, b"t,a,31415")
    assert "31415" not in str(error.value)  # it may be a record


def test_a_header_without_columns_names_all_of_them_and_what_is_near():
    schema = Schema("time", "iso8601", ("speed", "room"))
    with pytest.raises(ConfigError, match="must name the columns 'time', 'speed'") as error:
        CsvRows(schema, b"Time,sped,room")
    assert "'Time' for 'time', 'sped' for 'speed'?" in str(error.value)
    with pytest.raises(ConfigError, match="it has 1 cell; cells are separated by commas"):
        CsvRows(schema, b"time;speed;room")


@pytest.mark.parametrize(
    "record",
    [
        b"2016-03-15,sped,rooms",
        b"12,sped,rooms",
        b"sped,-4,rooms",
        b"sped,.5,rooms",
        b",sped,rooms",
        b"Tue Mar 15,sped,rooms",
    ],
)
def test_a_record_where_a_header_belongs_is_not_quoted(record):
    with pytest.raises(ConfigError, match="it has 3 cells") as error:
        CsvRows(Schema("time", "iso8601", ("speed", "room")), record)
    assert "did you mean" not in str(error.value)
    assert "sped" not in str(error.value)


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-20, 60), max_size=30), max_size=12))
def test_seen_positions_equal_a_set(calls):
    seen, known = SeenPositions(), set()
    for positions in calls:
        array = np.array(positions, np.int64)
        expected = [p not in known and p not in positions[:i] for i, p in enumerate(positions)]
        assert seen.fresh(array).tolist() == expected
        assert seen.fresh(array).tolist() == expected  # asking changes nothing
        seen.add(array)
        known |= set(positions)
    assert len(seen._starts) <= len(known)


def test_consecutive_positions_take_no_memory():
    seen = SeenPositions()
    for start in range(0, 100_000, 1000):
        assert seen.fresh(np.arange(start, start + 1000)).all()
        seen.add(np.arange(start, start + 1000))
    assert len(seen._starts) == 1
    assert not seen.fresh(np.arange(500, 600)).any()


def read_all(source, size=1000):
    batches = []
    while (batch := source.poll(size)) is not None:
        batches.append(batch)
    source.close()
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_jsonl_files(tmp_path, name, size):
    lines = [json.dumps({"t": i, "a": i / 2, "b": 0}).encode() for i in range(3000)]
    lines[10] = b"broken"
    lines[11] = b""
    data = b"\n".join(lines)  # no line end at the end
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    batches = read_all(open_source(f"jsonl:{tmp_path / name}", SCHEMA), size)
    assert [p for b in batches for p in b.positions.tolist()] == [i for i in range(3000) if i not in (10, 11)]
    assert [r for b in batches for r in b.rejections] == [Rejection("broken_record", 10)]
    assert all(len(b.positions) <= size for b in batches)


def test_csv_file_positions_are_line_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("a,t,b\n1,2,3\n\n4,5,6\n")
    batch = read_all(open_source(f"csv:{tmp_path / 'x.csv'}", SCHEMA))[0]
    assert batch.positions.tolist() == [1, 3]
    assert batch.values.tolist() == [[1, 3], [4, 6]]


def test_hostile_lines_are_bounded(tmp_path):
    long = b'{"t": 1, "a": 1, "b": 2, "x": "' + b"y" * (3 * LONGEST_LINE) + b'"}'
    (tmp_path / "x.jsonl").write_bytes(long + b'\n{"t": 1, "a": 1, "b": 2}\n')
    batches = read_all(open_source(f"jsonl:{tmp_path / 'x.jsonl'}", SCHEMA))
    assert sum(len(b.positions) for b in batches) == 1
    assert [r.reason for b in batches for r in b.rejections] == ["broken_record"]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda p: p.mkdir(), "directory"),
        (lambda p: None, "cannot be opened"),
        (lambda p: p.write_bytes(b""), "empty"),
        (lambda p: p.write_bytes(gzip.compress(b'{"t":1}\n' * 10000)[:-20]), "truncated"),
        (lambda p: p.write_bytes(b"not gzip at all"), "gzip"),
        (
            lambda p: p.write_bytes(gzip.compress(b'{"t":1}\n' * 10000)[:60] + b"garbage" * 30),
            "cannot be read|truncated",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, make, what):
    path = tmp_path / "x.jsonl.gz"
    make(path)
    with pytest.raises(SourceError, match=what):
        read_all(open_source(f"jsonl:{path}", SCHEMA))


def test_no_permission(tmp_path):
    import os

    path = tmp_path / "x.jsonl"
    path.write_text("{}")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(SourceError, match="Permission denied"):
        open_source(f"jsonl:{path}", SCHEMA)


@pytest.mark.parametrize("url", ["", "jsonl:", "ftp:x", "x.jsonl"])
def test_urls_that_name_nothing(url):
    with pytest.raises(ConfigError, match=r"source\.url"):
        open_source(url, SCHEMA)
    with pytest.raises(ConfigError, match=r"sink\.url"):
        open_sink(url)
    with pytest.raises(ConfigError, match=r"dead_letter\.url"):
        open_dead_letter(url)


class TestJsonlSink(SinkContract):
    def make(self, tmp_path):
        return JsonlSink(str(tmp_path / "out.jsonl"))

    def read(self, tmp_path):
        from fcstream import Release

        return [Release.from_bytes(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]


def test_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "out.jsonl"
    sink = JsonlSink(str(path))
    sink.write([sample_release(0), sample_release(1)])
    sink.close()
    whole = path.read_bytes()
    for cut in (1, 5, len(whole) // 2 - 3):
        path.write_bytes(whole[:-cut])
        sink = JsonlSink(str(path))
        kept = path.read_bytes()
        assert kept == b"" or kept.endswith(b"\n")
        assert whole.startswith(kept)
        # A whole line that lacks only its end is kept, a torn one is not.
        lost = [] if cut == 1 else [sample_release(1)]
        assert sink.missing([sample_release(0), sample_release(1)]) == lost
        sink.close()
    path.write_bytes(b'{"stream":' + b"x" * 200_000)  # one endless torn line
    JsonlSink(str(path)).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b'{"all": "my data"}', b"[stream]\nname = 1\n", b'{"stream":"a"}\nmine', b"x"])
@pytest.mark.parametrize("opener", [open_sink, open_dead_letter])
def test_files_of_others_are_not_touched(tmp_path, opener, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(SinkError, match="something else"):
        opener(f"jsonl:{path}")
    assert path.read_bytes() == content


def test_one_writer_at_a_time(tmp_path):
    sink = JsonlSink(str(tmp_path / "out.jsonl"))
    with pytest.raises(SinkError, match="in use"):
        JsonlSink(str(tmp_path / "out.jsonl"))
    sink.close()
    JsonlSink(str(tmp_path / "out.jsonl")).close()


def test_last_release_of_a_sink(tmp_path):
    sink = JsonlSink(str(tmp_path / "out.jsonl"))
    assert sink.last() is None
    sink.write([sample_release(i) for i in range(50)])
    assert sink.last() == sample_release(49)
    sink.close()


def test_sink_on_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    import os

    path = tmp_path / "out.jsonl"
    sink = JsonlSink(str(path))
    sink.write([sample_release(0)])
    real = os.pwrite
    calls = []

    def full(fd, data, offset):
        if calls:
            raise OSError(28, "No space left on device")
        calls.append(1)
        return real(fd, data[:30], offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SinkError, match="No space left"):
        sink.write([sample_release(1)])
    monkeypatch.undo()
    assert path.read_bytes() == sample_release(0).to_bytes() + b"\n"
    sink.write([sample_release(1)])
    sink.close()
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("opener", [open_sink, open_dead_letter])
def test_sinks_that_cannot_be_opened(tmp_path, opener):
    with pytest.raises(SinkError, match="must be a file"):
        opener(f"jsonl:{tmp_path}")
    with pytest.raises(SinkError, match="cannot be opened"):
        opener(f"jsonl:{tmp_path / 'no' / 'such'}")


def test_release_bytes_are_stable():
    release = sample_release(3)
    line = release.to_bytes()
    again = type(release).from_bytes(line)
    assert again == release
    assert again.to_bytes() == line
    assert json.loads(line)["value"][1] == -1.0 / 3.0


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["none", "log1p", "asinh"]))
def test_lattice_point_is_a_function_of_the_record_alone(seed, transform):
    """Whole batches and single rows give the same bits, whatever vector unit computes them."""
    rng = np.random.default_rng(seed)
    grid = Grid(Lattice(1e-4), (Feature("a", 0, 1e6, 3.0, 1.0, transform), Feature("b", 0, 1e6)))
    raw = rng.uniform(0, 1e6, size=(67, 2)) ** rng.choice([0.1, 1.0])
    whole = grid.points(raw)
    assert all((grid.points(raw[i : i + 1])[0] == whole[i]).all() for i in range(67))
    assert (whole == np.floor(whole)).all()


def test_values_and_widths_undo_the_scaling():
    grid = Grid(Lattice(0.01), (Feature("a", 0, 100, 2.0, 50.0), Feature("b", 0, 1e6, 1.0, 0.0, "log1p")))
    point = grid.points(np.array([[60.0, math.e - 1]]))[0]
    assert grid.values(point) == pytest.approx([60.0, 1.0], abs=0.02)
    assert grid.widths(np.array([100.0, 100.0])) == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize(
    ("feature", "what"),
    [
        (lambda: Feature("a", 1, 0), "min < max"),
        (lambda: Feature("a", 0, math.inf), "finite"),
        (lambda: Feature("a", 0, 1, 0), "scale"),
        (lambda: Feature("a", 0, 1, 1, math.nan), "origin"),
        (lambda: Feature("a", -1, 1, transform="log1p"), "above -1"),
        (lambda: Feature("a", 0, 1, transform="sqrt"), "transform"),
        (lambda: Grid(Lattice(1.0), (Feature("a", 0, 1), Feature("a", 0, 1))), "distinct"),
        (lambda: Grid(Lattice(1e-9), (Feature("a", 0, 1e9),)), "2\\*\\*40"),
    ],
)
def test_features_that_make_no_sense(feature, what):
    with pytest.raises(ConfigError, match=what):
        feature()


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd\x04", b"x\x9c\xab\x56"])
def test_a_compressed_file_with_another_name_is_refused(tmp_path, start):
    """Each of its lines was a broken record."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(start + b"more")
    with pytest.raises(SourceError, match=r"records.jsonl is compressed: with gzip its name must end in \.gz"):
        open_source(f"jsonl:{path}", Schema("t", "ms", ()))
    path.write_text("x^2,t\n1,1\n")
    open_source(f"csv:{path}", Schema("t", "ms", ("x^2",))).close()
