"""Standard input as a live source, and releases on standard output, as programs use them that start others."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import line_protocol_parser
import pytest
from support.helpers import counting_job
from support.piped import LENGTH_MS, piped
from support.sources import until

from fcstream import Release
from fcstream.connectors import check_sink, is_live, is_queue, open_live, open_sink
from fcstream.connectors.base import check_queue
from fcstream.connectors.files import LONGEST_LINE
from fcstream.connectors.line_protocol import LineProtocol
from fcstream.connectors.pipes import source as pipe_source
from fcstream.connectors.pipes.source import StandardInput
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import mask, parse
from fcstream.errors import ConfigError
from fcstream.testing import sample_release


@pytest.fixture
def pipe():
    """Make the two ends of a pipe: what opens its end to read, and the end to write."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as writer:
        yield lambda: StandardInput(parse("stdin:", "source.url"), "", reading), writer
    pipe_source._opened.pop(reading).reader = None
    os.close(reading)


def bodies(received):
    return [one.body for one in received]


def test_the_address_is_the_scheme_alone():
    assert is_live("stdin:")
    assert is_queue("stdin:")
    assert mask("stdin:") == "stdin:"
    for wrong in ("stdin", "stdin:-", "stdin://host"):
        with pytest.raises(ConfigError, match=r"source\.url"):
            open_live(wrong, "name")


def test_lines_are_messages_and_empty_ones_are_none(pipe):
    opened, writer = pipe
    source = opened()
    check_queue(source)
    writer.write(b'{"a": 1}\r\n\n{"a": 2}\n{"a"')
    assert bodies(source.receive(10, 5.0)) == [b'{"a": 1}\r', b'{"a": 2}']
    assert source.receive(10, 0.0) == []
    writer.write(b": 3}\n")
    assert source.waiting() == 1
    assert source.pending()
    assert bodies(source.receive(10, 5.0)) == [b'{"a": 3}']
    assert not source.pending()
    assert not source.has_ended


def test_what_was_not_acknowledged_comes_again_to_the_next_source_of_the_process(pipe):
    opened, writer = pipe
    writer.write(b"1\n2\n3\n4\nto")
    first = opened()
    with pytest.raises(ConfigError, match="a stream of this process reads standard input"):
        opened()
    received = first.receive(3, 5.0)
    first.acknowledge(received[:1])
    first.close()
    second = opened()
    writer.write(b"rn\n")
    assert bodies(second.receive(10, 5.0)) == [b"2", b"3", b"4", b"torn"]


def test_an_end_is_told_when_all_was_received(pipe):
    opened, writer = pipe
    source = opened()
    writer.write(b"1\n2\nsensor temp=2")
    writer.close()
    assert source.waiting() == 2
    assert bodies(source.receive(2, 5.0)) == [b"1", b"2"]
    assert not source.has_ended
    assert bodies(source.receive(2, 5.0)) == [b"\0"], "part of a number is a number too"
    assert source.has_ended
    assert not source.pending()
    assert source.receive(2, 0.0) == []


def test_a_line_without_an_end_stays_bounded(pipe):
    opened, writer = pipe
    source = opened()
    found, sent = [], 0
    while sent < 3 * LONGEST_LINE:
        sent += os.write(writer.fileno(), b"x" * 60_000)
        found += source.receive(10, 0.0)
    assert found == []
    writer.write(b"\n{}\n")
    assert bodies(source.receive(10, 5.0)) == [b"\0", b"{}"]


def test_a_spool_takes_what_is_left_of_a_pipe_when_it_is_closed(pipe, tmp_path):
    opened, writer = pipe
    source = SpooledSource(opened(), Spool(tmp_path / "spool", 1 << 20))
    writer.write(b"1\n2\n")
    assert not source.has_ended
    source.close()
    source = SpooledSource(opened(), Spool(tmp_path / "spool", 1 << 20))
    writer.write(b"3\n")
    writer.close()
    found = []
    while not source.has_ended:
        found += [body for chunk in source.poll(10, 0.1) for body in chunk.bodies]
    found += [body for chunk in source.poll(10, 0.1) for body in chunk.bodies]
    assert found == [b"1", b"2", b"3"]
    source.close()


def test_a_full_spool_holds_up_the_writer_and_loses_nothing_while_the_process_lives(pipe, tmp_path, caplog):
    opened, writer = pipe
    lines = [b"%07d" % i + b"x" * 50_000 for i in range(30)]
    source = SpooledSource(opened(), Spool(tmp_path / "spool", 1 << 20))
    os.set_blocking(writer.fileno(), False)
    waiting, found, polls = b"".join(line + b"\n" for line in lines), [], 0
    while len(found) < len(lines):
        with contextlib.suppress(BlockingIOError):
            waiting = waiting[os.write(writer.fileno(), waiting[:65536]) :] if waiting else b""
        for chunk in source.poll(100, 0.0):
            found += chunk.bodies
            polls += 1
        if polls > 3:  # windows close now and then, so that there is room again
            polls = 0
            source.commit({"spool": len(found)})
            source.close()
            source = SpooledSource(opened(), Spool(tmp_path / "spool", 1 << 20))
    assert found == lines
    source.close()


def test_binary_formats_are_refused(tmp_path):
    (tmp_path / "c.toml").write_text(
        counting_job(
            0, {"source": {"url": "stdin:", "format": "msgpack", "spool": "spool"}, "window": {"clock": "wall"}}
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "fcstream", "run", "c.toml"], cwd=tmp_path, capture_output=True, text=True, input=""
    )
    assert done.returncode == 2
    assert "source.format: must be one of 'json'" in done.stderr


@pytest.mark.beside
def test_each_release_comes_at_once_and_open_windows_outlast_an_end_of_input(folder):
    with piped(folder) as it:
        it.start()
        it.send(200)
        found = it.releases(max(it.sent))
        assert abs(found[-1].count - 200) <= 1, "read while the process still runs: it was flushed"
        it.send(300)
        code, rest = it.end()
        assert code == 0
        assert "the input has ended" in (it.folder / "log").read_text()
        assert all(release.window_close_ms <= max(it.sent) for release in rest), "the window of the 300 is still open"
        it.start()
        it.send(100)
        found += rest + it.releases(max(it.sent))
        assert it.end()[0] == 0
        counts = {release.window_open_ms: release.count for release in found}
        assert {ms: round(counts[ms], -1) for ms in it.sent} == dict(it.sent)


@pytest.mark.beside
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_windows_outlast_signals(folder, number):
    """What the process had put on disk before it was killed; at SIGTERM also what was still in the pipe."""
    with piped(folder) as it:
        process = it.start()
        it.send(500)
        if number == signal.SIGKILL:
            body = len(json.dumps({"ts_ms": it.start_ms, "a": 20.0}))
            spool = it.folder / "spool"
            until(lambda: sum(path.stat().st_size for path in spool.glob("*.rows")) > 500 * body)
        process.send_signal(number)
        found = [Release.from_bytes(line) for line in process.stdout.read().splitlines()]
        assert process.wait(60) == (0 if number == signal.SIGTERM else -number)
        it.kill()
        it.start()
        it.send(70)
        found += it.releases(max(it.sent))
        counts = {release.window_open_ms: release.count for release in found}
        assert {ms: round(counts[ms], -1) for ms in it.sent} == dict(it.sent)
        assert it.end()[0] == 0


@pytest.mark.beside
def test_a_reader_that_goes_away_ends_the_process_and_has_the_rest_next_time(folder):
    with piped(folder) as it:
        process = it.start()
        first = Release.from_bytes(process.stdout.readline())
        process.stdout.close()
        assert process.wait(300) == 1
        assert (it.folder / "log").read_text().count("standard output was closed by its reader") == 1
        it.kill()
        it.start()
        last = it.releases(first.window_open_ms + 4 * LENGTH_MS)[-1]
        it.end()
        told = subprocess.run(
            [sys.executable, "-m", "fcstream", "budget", "releases", "ledger.db"], cwd=folder, capture_output=True
        )
        opens = [Release.from_bytes(line).window_open_ms for line in told.stdout.splitlines()]
        assert opens[0] <= first.window_open_ms < last.window_open_ms <= opens[-1]
        assert opens == list(range(opens[0], opens[-1] + 1, LENGTH_MS)), "what the pipe lost is in the ledger"


@pytest.mark.beside
def test_line_protocol_on_standard_output(folder):
    with piped(folder, "influx:-", stream={"name": "a stream, a=b"}) as it:
        process = it.start()
        it.send(200)
        point = {"time": 0}
        while point["time"] < max(it.sent) * 10**6:
            point = line_protocol_parser.parse_line(process.stdout.readline())
        assert point["measurement"] == "fcstream"
        assert point["tags"] == {
            "answer": "count",
            "kind": "count",
            "name": "count",
            "stream": "a stream, a=b",
        }
        assert abs(point["fields"]["value"] - 200) <= 1
        assert isinstance(point["fields"]["value"], float)
        assert abs(point["fields"]["count"] - 200) <= 1
        assert isinstance(point["fields"]["count"], int)
        assert point["fields"]["sigma"] > 0
        assert point["fields"]["status"] == "released"


def test_refusals_and_numbers_in_line_protocol():
    encode = LineProtocol().encode
    release = replace(sample_release(0), features=["a b", "c"], value=[1e-300, float("inf")], sigma=[2, 3.5], key="k")
    (line,) = encode(release).splitlines()  # infinity has no spelling
    point = line_protocol_parser.parse_line(line)
    assert point["tags"]["name"] == "a b"
    assert point["fields"]["value"] == 1e-300
    assert (point["tags"]["key"], point["fields"]["sigma"]) == ("k", 2.0)
    assert point["time"] == release.window_open_ms * 10**6
    refused = replace(release, status="refused", reason="too_few", value=None, sigma=None, count=None)
    point = line_protocol_parser.parse_line(encode(refused).strip())
    assert point["fields"] == {"status": "refused", "reason": "too_few"}
    assert "name" not in point["tags"]


def test_standard_output_sinks_are_known():
    assert check_sink("influx:-") is None
    assert check_sink("jsonl:-") is None
    with pytest.raises(ConfigError, match=r"sink\.url"):
        open_sink("influx:file")
