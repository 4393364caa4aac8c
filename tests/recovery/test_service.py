"""``fcstream run`` beside a real Redis, as a service: it is stopped, killed and watched."""

import json
import signal
import time
from dataclasses import replace

import pytest
from support.running import CONFIG, LENGTH_MS

from fcstream import ConfigError, LedgerMismatch, Release
from fcstream.config import Config
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.service.build import build


def test_a_day_in_the_life_of_a_service(running_service):
    """Started, fed, watched, stopped by SIGTERM, started again after a pause: nothing lost, nothing twice."""
    running_service.start()
    running_service.send(100)
    running_service.redis.xadd(running_service.key, {"data": b"\xff no record"})
    running_service.redis.xadd(running_service.key, {"other": b"no body"})
    last = max(running_service.sent)
    running_service.wait_for(last)
    assert running_service.get("/live")[0] == 200
    assert running_service.get("/ready") == (200, "ready\n")
    status, text = running_service.get("/metrics")
    assert status == 200
    assert 'fcstream_ready{stream="live"} 1.0' in text
    assert 'fcstream_messages_total{stream="live"} 102.0' in text
    assert 'fcstream_rejected_total{reason="broken_record",stream="live"} 2.0' in text
    assert 'fcstream_budget_spent_rho{block="event",stream="live"} 50.0' in text
    assert running_service.get("/nothing")[0] == 404
    code, errors = running_service.end(signal.SIGTERM)
    assert code == 0, errors
    assert "stopped; " in errors
    assert "no record" not in errors
    running_service.send(150)  # while it is down
    time.sleep(1.5)
    running_service.start()
    running_service.send(50)
    running_service.wait_for(max(running_service.sent))
    code, errors = running_service.end(signal.SIGINT)
    assert code == 0, errors
    running_service.check()
    assert len((running_service.folder / "dead.jsonl").read_text().splitlines()) >= 2


def test_killed_again_and_again(running_service):
    for _ in range(4):
        running_service.start()
        running_service.send(60)
        time.sleep(0.9)
        assert running_service.end(signal.SIGKILL)[0] == -9
        running_service.send(20)
    running_service.start()
    running_service.send(20)
    running_service.wait_for(max(running_service.sent))
    assert running_service.end(signal.SIGTERM)[0] == 0
    running_service.check()


def test_a_connection_that_is_cut_is_made_again(running_service):
    running_service.start()
    for _ in range(5):
        running_service.send(30)
        time.sleep(0.3)
        for client in running_service.redis.client_list():
            if client.get("cmd", "").startswith("xread"):
                running_service.redis.client_kill(client["addr"])
    running_service.wait_for(max(running_service.sent))
    assert running_service.end(signal.SIGTERM)[0] == 0
    running_service.check()


def test_a_source_that_nobody_knows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CONFIG.format(start="2026-01-01T00:00:00Z", key="k", port=1)
    (tmp_path / "c.toml").write_text(text.replace("redis://127.0.0.1:6379/0?stream=k&patience=2", "file:x"))
    with pytest.raises(ConfigError, match="must begin with one of"):
        build(Config.load(tmp_path / "c.toml")).run()


def test_several_streams_in_one_process_and_one_ledger(running_service):
    """Two streams of one process; a third whose ledger is about something else ends alone."""
    text = (running_service.folder / "c.toml").read_text()
    other = f"{running_service.key}-other"
    second = text.replace('name = "live"', 'name = "second"').replace(running_service.key, other)
    second = second.replace("out.jsonl", "second.jsonl").replace("dead.jsonl", "dead2.jsonl")
    (running_service.folder / "d.toml").write_text(second.partition("[service]")[0])
    third = second.replace('name = "second"', 'name = "third"').replace("second.jsonl", "third.jsonl")
    third = third.replace("dead2.jsonl", "dead3.jsonl").partition("[service]")[0]
    (running_service.folder / "e.toml").write_text(third)
    terms = Config.load(running_service.folder / "e.toml").job.terms
    SQLiteLedger(str(running_service.folder / "ledger.db"), replace(terms, specification="another")).close()
    running_service.start("c.toml", "d.toml", "e.toml")
    for _ in range(6):
        running_service.send(20)
        for _ in range(20):
            running_service.redis.xadd(other, {"data": json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0})})
        time.sleep(0.3)
    last_ms = time.time_ns() // 10**6
    running_service.wait_for(max(running_service.sent))
    running_service.wait_for(last_ms // LENGTH_MS * LENGTH_MS, "second.jsonl")
    code, ready = running_service.get("/ready")
    assert code == 503
    assert ready.startswith("third: ended: ")
    metrics = running_service.get("/metrics")[1]
    assert 'fcstream_ready{stream="live"} 1' in metrics
    assert 'fcstream_ready{stream="second"} 1' in metrics
    code, errors = running_service.end(signal.SIGTERM)
    assert code == LedgerMismatch.exit_code, errors
    running_service.check(stream="live")
    found = [Release.from_bytes(line) for line in (running_service.folder / "second.jsonl").read_bytes().splitlines()]
    assert {release.stream for release in found} == {"second"}
    assert abs(sum(release.count for release in found) - 120) <= 3
    ledger = SQLiteLedger(str(running_service.folder / "ledger.db"), stream="second")
    assert ledger.verify() == 1 + 3 * len(found)  # which window was the first is a row, too
    ledger.close()
    running_service.redis.delete(other)


def test_streams_of_one_process_have_names_of_their_own(running_service):
    running_service.start("c.toml", "c.toml")
    _, errors = running_service.process.communicate(timeout=120)
    assert running_service.process.returncode == 2
    assert "stream.name: must be another one for each configuration, 'live' comes twice" in errors


def test_a_stream_that_would_never_release_is_refused(running_service):
    path = running_service.folder / "c.toml"
    mean = "radius = 1.0\nrho = 0.1\ndelta = 1e-9\nsize_hint = 20"
    path.write_text(path.read_text().replace('kind = "count"\nrho = 50.0', mean).replace("delta = 0.0", "delta = 1e-6"))
    running_service.start("c.toml")
    _, errors = running_service.process.communicate(timeout=120)
    assert running_service.process.returncode == 2
    assert "would release with probability 0%" in errors
    assert not (running_service.folder / "ledger.db").exists()


@pytest.mark.parametrize("start", ["now", "2020-01-01T00:00:00Z"])
def test_a_service_begins_with_its_first_run_and_misses_nothing_after_it(running_service, start):
    """A start years ago was 200 million refusals before the first answer; records from before are nobody's."""
    config = running_service.folder / "c.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(("start =", "backlog ="))]
    at = lines.index("[window]") + 1
    config.write_text("\n".join([*lines[:at], f'start = "{start}"', *lines[at:]]))
    running_service.send(5)
    time.sleep(2.2)
    began_ms = time.time_ns() // 10**6
    running_service.start()
    running_service.wait_for(began_ms // LENGTH_MS * LENGTH_MS)
    first = running_service.released()[0].window_open_ms
    assert began_ms // LENGTH_MS * LENGTH_MS - LENGTH_MS <= first
    running_service.send(30)
    running_service.wait_for(max(running_service.sent))
    assert running_service.end(signal.SIGTERM)[0] == 0
    time.sleep(2.5)  # what is missed from now on is answered
    running_service.start()
    running_service.send(30)
    running_service.wait_for(max(running_service.sent))
    assert running_service.end(signal.SIGTERM)[0] == 0
    running_service.start_ms = first
    running_service.check()
