"""Parquet files and Arrow's files and streams as sources, beside what the same rows are as lines of JSON."""

import decimal
import json
import random
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fcstream.connectors import open_source
from fcstream.errors import ConfigError, SourceError
from fcstream.formats.batch import Schema
from fcstream.formats.decoders import Objects

SCHEMA = Schema("ts", "ms", ("a", "b"))
LABELED = Schema(
    *("ts", "ms", ("a", "on"), "id", "k", {"on": {"off": 0, "on": 1, False: 0, True: 1}}),
    optional=frozenset({"a"}),
    texts={"word": 12},
    order=("a", "on", "word"),
)


def write(path, table, kind, rows=100):
    """Write a file of a kind, in batches of so many rows."""
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=rows)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "compressed" else None)
        make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with make(str(path), table.schema, options=options) as writer:
            writer.write_table(table, rows)
    return f"{'parquet' if kind == 'parquet' else 'arrow'}:{path}"


def read_all(url, schema, size=10_000):
    with closing(open_source(url, schema)) as source:
        return list(iter(lambda: source.poll(size), None))


def cells(batch, column):
    found = getattr(batch, column)
    return [] if found is None else found


def plain(value):
    return tuple(map(str, value)) if isinstance(value, np.ndarray) else str(value)


def told(batches):
    """Records and rejections of some batches, as plain values."""
    found = {
        column: [value for batch in batches for value in map(plain, cells(batch, column))]
        for column in ("times_ms", "values", "positions", "users", "keys")
    }
    found["words"] = [x for b in batches for x in b.texts.get("word", [])]
    found["rejections"] = [(r.reason, r.position, r.field) for b in batches for r in b.rejections]
    return found


KINDS = ["parquet", "file", "stream", "compressed"]


def columns(n, seed=0):
    draw = random.Random(seed)

    def some(*values):
        return [draw.choice(values) for _ in range(n)]

    return {
        "more": some("x", None),
        "word": pa.array(some("a", "b" * 20, "", None, "é"), pa.string()),
        "on": pa.array(some("on", "off", "?", None), pa.string()),
        "a": pa.array(some(1.5, -2.0, None, 1e300), pa.float64()),
        "ts": pa.array(some(1, 2**52, -5, None, 2**60), pa.int64()),
        "k": pa.array(some("x", "y", None, ""), pa.string()),
        "id": pa.array(some(1, 7, None), pa.int64()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_rows_are_what_their_lines_of_json_are(tmp_path, kind, size):
    table = pa.table(columns(300))
    naive = Objects(LABELED).decode([json.dumps(row).encode() for row in table.to_pylist()], 0)
    batches = read_all(write(tmp_path / "x", table, kind, 70), LABELED, size)
    assert told(batches) == told([naive])
    assert all(len(b.positions) + len(b.rejections) <= size for b in batches)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_no_rows(tmp_path, kind):
    table = pa.table({"ts": pa.array([], pa.int64()), "a": pa.array([], pa.int32()), "b": pa.array([], pa.float32())})
    assert sum(len(batch.positions) for batch in read_all(write(tmp_path / "x", table, kind), SCHEMA)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_types_of_columns(tmp_path, kind):
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=1500 * i) for i in range(4)]
    table = pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("ns", "UTC")),
            "a": pa.array(["1.5", "2.5", None, "4.5"]).cast(pa.string()).cast(pa.decimal128(5, 2)),
            "b": pa.array([1, 2, 3, 4], pa.int8()),
            "id": pa.array(["x", "y", "x", "z"]).dictionary_encode(),
        }
    )
    assert table["a"][0].as_py() == decimal.Decimal("1.50")
    (batch,) = read_all(write(tmp_path / "x", table, kind), Schema("ts", "ms", ("a", "b"), "id"))
    assert batch.times_ms.tolist() == [1767225600000, 1767225600001, 1767225600004]  # rounded down
    assert batch.values.tolist() == [[1.5, 1.0], [2.5, 2.0], [4.5, 4.0]]
    assert batch.users.tolist() == ["x", "y", "z"]
    assert [(r.reason, r.position, r.field) for r in batch.rejections] == [("missing", 2, "a")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"a": None}, "column 'a': it is missing"),
        ({"a": ["secret"]}, "column 'a', it has the type string: it holds no numbers"),
        ({"a": [[1.0]]}, "column 'a', it has the type list.*: it holds no numbers"),
        ({"ts": [True]}, "column 'ts', it has the type bool: it holds no times"),
        ({"id": [[1.5]]}, "column 'id', it has the type list.*: it holds neither texts nor whole numbers"),
    ],
)
def test_columns_that_could_never_be_read_are_told_before_anything_is(tmp_path, kind, changed, what):
    held = {"ts": [1], "a": [1.0], "b": [1.0], "id": ["x"]} | changed
    url = write(tmp_path / "x", pa.table({name: value for name, value in held.items() if value is not None}), kind)
    with pytest.raises(ConfigError, match=what) as caught:
        open_source(url, Schema("ts", "ms", ("a", "b"), "id"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["parquet", "arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1", b"ts,a,b\n1,2,3\n", bytes(1000)])
def test_other_files_are_no_tables(tmp_path, scheme, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SourceError, match="cannot be read as one"):
        open_source(f"{scheme}:{tmp_path / 'x'}", SCHEMA)
    with pytest.raises(SourceError, match="directory"):
        open_source(f"{scheme}:{tmp_path}", SCHEMA)
    with pytest.raises(SourceError, match="cannot be opened"):
        open_source(f"{scheme}:{tmp_path / 'absent'}", SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_an_error_and_never_silent(tmp_path, kind):
    """A file that was cut off or changed is read whole, or refused with an error of this package."""
    table = pa.table({"ts": range(500), "a": np.arange(500.0), "b": np.arange(500.0)})
    url = write(tmp_path / "x", table, kind)
    whole, draw = (tmp_path / "x").read_bytes(), random.Random(1)
    refused = 0
    for i in range(150):
        damaged = bytearray(whole)
        if i % 3:
            at = draw.randrange(len(whole))
            damaged[at : at + 4] = draw.randbytes(4)
        else:
            del damaged[draw.randrange(1, len(whole) - 20) :]
        (tmp_path / "x").write_bytes(damaged)
        try:
            rows = sum(len(batch.positions) + len(batch.rejections) for batch in read_all(url, SCHEMA))
        except (SourceError, ConfigError):
            refused += 1
        else:
            assert i % 3 or kind == "stream", i
            assert rows == 500 or kind == "stream"
    assert refused > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "file"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """One row group of 50 MB (Parquet), and 50 batches (Arrow), through a few MB of pyarrow's."""
    n = 2_000_000
    table = pa.table({"ts": np.arange(n), "a": np.random.default_rng(0).random(n), "b": np.arange(n) / 7})
    url = write(tmp_path / "x", table, kind, n if kind == "parquet" else n // 50)
    del table
    program = f"""
import pyarrow, sys
from fcstream.connectors import open_source
from fcstream.formats.batch import Schema
source, rows = open_source({url!r}, Schema("ts", "ms", ("a", "b"))), 0
while (batch := source.poll(8192)) is not None:
    rows += len(batch.positions)
    assert abs(source.part_read() - rows / {n}) < 0.05
print(rows, pyarrow.default_memory_pool().max_memory())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rows, most = map(int, done.stdout.split())
    assert rows == n
    assert most < 2**24


@pytest.mark.slow
def test_a_stream_on_standard_input(tmp_path):
    table = pa.table({"more": range(500), "ts": range(500), "a": np.arange(500.0), "b": np.arange(500.0)})
    write(tmp_path / "x", table, "stream")
    program = """
from fcstream.connectors import open_source
from fcstream.formats.batch import Schema
source = open_source("arrow:-", Schema("ts", "ms", ("a", "b")))
print(source.part_read(), sum(len(batch.positions) for batch in iter(lambda: source.poll(64), None)))
"""
    with open(tmp_path / "x", "rb") as file:
        done = subprocess.run([sys.executable, "-c", program], stdin=file, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "500"]
    with pytest.raises(ConfigError, match="use 'arrow:-'"):
        open_source("parquet:-", SCHEMA)
