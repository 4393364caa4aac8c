"""Releases as Parquet: rows of every kind, parts, crashes, files of others."""

import errno
import itertools
import json
import os
import signal

import pyarrow.parquet as pq
import pytest
from support.release_kinds import released

from fcstream import Release
from fcstream.connectors import open_sink, parquet_parts, whole_files
from fcstream.connectors.parquet_parts import ParquetParts, release_schema, release_table
from fcstream.errors import SinkError
from fcstream.testing import SinkContract, sample_release


def parts(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".parquet")


def held(folder):
    """Every row of a folder, in order, each part read by itself."""
    return [row for path in parts(folder) for row in pq.ParquetFile(path).read().to_pylist()]


class TestParquetParts(SinkContract):
    def make(self, tmp_path):
        return open_sink(f"parquet:{tmp_path / 'out'}")

    def read(self, tmp_path):
        return [Release.from_bytes(row["body"].encode()) for row in held(tmp_path / "out")]


def leaves(value):
    """The numbers of nested lists, in order."""
    if isinstance(value, list):
        return [number for item in value for number in leaves(item)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


KINDS = ["mean/recentered", "count", "histogram", "quantiles", "variance", "centers/auto", "mixtures/auto", "synthetic"]
SAME = ("stream", "status", "kind", "count", "core_count", "rho", "delta", "private", "features", "transform")


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_a_row_of_the_same_columns(tmp_path, name):
    release = released(name)
    sink = ParquetParts(str(tmp_path))
    sink.write([release])
    sink.close()
    table = pq.ParquetFile(parts(tmp_path)[0]).read()
    assert table.schema.equals(release_schema())
    (row,) = table.to_pylist()
    naive = json.loads(release.to_bytes())
    assert json.loads(row["body"]) == naive
    assert row["value"] == ([] if name == "synthetic" else leaves(naive["value"]))  # of which rows are drawn
    assert len(row["names"]) == len(set(row["names"])) == len(row["value"]) == len(row["sigma"])
    if naive["sigma"] is not None:
        assert row["sigma"] == leaves(naive["sigma"])
    ends = leaves(naive.get("interval") or []) or [None] * 2 * len(row["value"])
    assert (row["low"], row["high"]) == (ends[::2], ends[1::2])
    assert int(row["window_open"].timestamp() * 1000) == naive["window_open_ms"]
    assert (row["spent_rho"], row["guarantee_delta"]) == (naive["spent"]["rho"], naive["guarantee"]["delta"])
    for field in SAME:
        assert row[field] == naive[field]


def test_a_refusal_has_no_numbers():
    from dataclasses import replace

    refused = replace(sample_release(), status="refused", reason="too_few", value=None, sigma=None)
    (row,) = release_table([refused]).to_pylist()
    assert (row["status"], row["reason"]) == ("refused", "too_few")
    assert row["value"] is row["sigma"] is row["low"] is row["high"] is row["names"] is None


@pytest.mark.parametrize(("rows", "size"), [(3, 2**30), (10**9, 1)])
def test_parts_are_complete_at_so_many_rows_or_bytes(tmp_path, monkeypatch, rows, size):
    monkeypatch.setattr(parquet_parts, "ROWS_PER_PART", rows)
    monkeypatch.setattr(parquet_parts, "BYTES_PER_PART", size)
    sent = [sample_release(i) for i in range(10)]
    for some in (sent[:2], sent[2:3], sent[3:4], sent[4:9], sent[9:]):  # a new process each time
        sink = ParquetParts(str(tmp_path))
        assert sink.missing(sent)[:1] == some[:1]
        sink.write(some)
        assert sink.last() == some[-1]
        sink.close()
    assert [pq.ParquetFile(path).metadata.num_rows for path in parts(tmp_path)] == (
        [3, 6, 1] if size > 1 else [2, 1, 1, 5, 1]
    )
    assert [row["body"].encode() for row in held(tmp_path)] == [release.to_bytes() for release in sent]


def burn(burn_at):
    """Kill this process at the n-th write (in its middle), flush or renaming of a file."""
    calls = itertools.count(1)

    def dangerous(real):
        def call(*args, **options):
            if next(calls) == burn_at:
                if real is write:
                    real(args[0], bytes(args[1])[:20])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    write = os.write
    for name in ("write", "fsync", "replace"):
        setattr(os, name, dangerous(getattr(os, name)))


@pytest.mark.slow
def test_a_kill_at_any_call_leaves_whole_files_and_each_release_once(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_parts, "ROWS_PER_PART", 4)
    sent = [sample_release(i) for i in range(7)]
    killed = 0
    for burn_at in range(1, 100):
        folder = tmp_path / str(burn_at)
        child = os.fork()
        if not child:
            burn(burn_at)
            sink = ParquetParts(str(folder))
            for i in range(len(sent)):
                sink.write(sent[i : i + 1])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        before = held(folder)  # raises if a part is torn
        sink = ParquetParts(str(folder))
        missing = sink.missing(sent)
        assert missing == sent[len(before) :]
        sink.write(missing)
        sink.close()
        assert [row["body"].encode() for row in held(folder)] == [release.to_bytes() for release in sent]
        assert [path.name for path in folder.iterdir() if path not in parts(folder)] == []
        if status == 0:
            break
        killed += 1
    assert killed >= 3 * len(sent)  # every write, flush and rename


def test_a_full_disk_keeps_the_part_and_the_same_releases_are_written_later(tmp_path, monkeypatch):
    sink = ParquetParts(str(tmp_path))
    sink.write([sample_release(0)])
    real = os.write

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SinkError, match="No space left"):
        sink.write([sample_release(1)])
    assert len(held(tmp_path)) == 1
    monkeypatch.setattr(os, "write", real)
    sync = whole_files.sync_folder
    monkeypatch.setattr(whole_files, "sync_folder", full)  # the part has its name already, but may be lost
    with pytest.raises(SinkError, match="No space left"):
        sink.write([sample_release(1)])
    monkeypatch.setattr(whole_files, "sync_folder", sync)
    sink.write([sample_release(1)])
    assert [row["body"].encode() for row in held(tmp_path)] == [sample_release(i).to_bytes() for i in range(2)]


def test_files_of_others_are_left_alone(tmp_path):
    import pyarrow as pa

    pq.write_table(pa.table({"a": [1]}), tmp_path / "mine.parquet")
    sink = ParquetParts(str(tmp_path))
    sink.write([sample_release()])
    sink.close()
    assert pq.ParquetFile(tmp_path / "mine.parquet").read().to_pylist() == [{"a": 1}]
    for content in (b"", b"torn", (tmp_path / "mine.parquet").read_bytes()):
        (tmp_path / "releases-00000007.parquet").write_bytes(content)
        with pytest.raises(SinkError, match="no file of fcstream's releases"):
            ParquetParts(str(tmp_path))
        assert (tmp_path / "releases-00000007.parquet").read_bytes() == content


def test_one_writer_of_a_folder(tmp_path):
    sink = ParquetParts(str(tmp_path))
    with pytest.raises(SinkError, match="in use"):
        ParquetParts(str(tmp_path))
    sink.close()
    sink.close()
    ParquetParts(str(tmp_path)).close()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="choose another folder"):
        open_sink(f"parquet:{tmp_path / 'file'}")
