"""``fcstream run`` beside a real Redis, as a service: it is stopped, killed and watched."""

import json
import signal
import time
from contextlib import closing
from dataclasses import replace

import pytest
from support.helpers import counting_job
from support.proxy import Proxy
from support.running import LENGTH_MS, running
from support.sources import until

from fcstream import ConfigError, LedgerMismatch, Release
from fcstream.config import Config
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.service.build import build


@pytest.mark.beside
def test_a_day_in_the_life_of_a_service(folder):
    """Started, fed, watched, stopped by SIGTERM, started again after a pause: nothing lost, nothing twice."""
    with running(folder) as it:
        it.start()
        it.send(100)
        it.redis.xadd(it.key, {"data": b"\xff no record"})
        it.redis.xadd(it.key, {"other": b"no body"})
        last = max(it.sent)
        it.wait_for(last)
        assert it.get("/live")[0] == 200
        until(lambda: it.get("/ready") == (200, "ready\n"))  # once the step that has published it is over
        status, text = it.get("/metrics")
        assert status == 200
        assert 'fcstream_ready{stream="live"} 1.0' in text
        assert 'fcstream_messages_total{stream="live"} 102.0' in text
        assert 'fcstream_rejected_total{reason="broken_record",stream="live"} 2.0' in text
        assert 'fcstream_budget_spent_rho{block="event",stream="live"} 50.0' in text
        assert it.get("/nothing")[0] == 404
        code, errors = it.end(signal.SIGTERM)
        assert code == 0, errors
        assert "stopped; " in errors
        assert "no record" not in errors
        it.send(150)  # while it is down
        time.sleep(1.5)
        it.start()
        it.send(50)
        it.wait_for(max(it.sent))
        code, errors = it.end(signal.SIGINT)
        assert code == 0, errors
        it.check()
        assert len((it.folder / "dead.jsonl").read_text().splitlines()) >= 2


@pytest.mark.beside
def test_killed_again_and_again(folder):
    with running(folder) as it:
        for _ in range(4):
            it.start()
            it.send(60)
            time.sleep(0.9)
            assert it.end(signal.SIGKILL)[0] == -9
            it.send(20)
        it.start()
        it.send(20)
        it.wait_for(max(it.sent))
        assert it.end(signal.SIGTERM)[0] == 0
        it.check()


@pytest.mark.beside
def test_a_connection_that_is_cut_is_made_again(folder):
    with running(folder) as it, closing(Proxy(6379)) as proxy:
        it.configure(source={"url": f"redis://{proxy.host}/0?stream={it.key}&patience=2"})
        it.start()
        for _ in range(5):
            it.send(30)
            time.sleep(0.3)
            proxy.cut()
        it.wait_for(max(it.sent))
        assert it.end(signal.SIGTERM)[0] == 0
        it.check()


def test_a_source_that_nobody_knows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(counting_job(0, source={"url": "file:x"}))
    with pytest.raises(ConfigError, match="must begin with one of"):
        build(Config.load(tmp_path / "c.toml")).run()


@pytest.mark.beside
def test_several_streams_in_one_process_and_one_ledger(folder):
    """Two streams of one process; a third whose ledger is about something else ends alone."""
    with running(folder) as it:
        other = f"{it.key}-other"
        for name, file in (("second", "d.toml"), ("third", "e.toml")):
            it.configure(
                file,
                stream={"name": name},
                source={"url": f"redis://127.0.0.1:6379/0?stream={other}&patience=2", "name": other},
                sink={"url": f"jsonl:{name}.jsonl"},
                dead_letter={"url": f"jsonl:dead-{name}.jsonl"},
                service=None,
            )
        terms = Config.load(it.folder / "e.toml").job.terms
        SQLiteLedger(str(it.folder / "ledger.db"), replace(terms, specification="another")).close()
        it.start("c.toml", "d.toml", "e.toml")
        for _ in range(6):
            it.send(20)
            for _ in range(20):
                it.redis.xadd(other, {"data": json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0})})
            time.sleep(0.3)
        last_ms = time.time_ns() // 10**6
        it.wait_for(max(it.sent))
        it.wait_for(last_ms // LENGTH_MS * LENGTH_MS, "second.jsonl")
        until(lambda: "starting" not in it.get("/ready")[1])
        code, ready = it.get("/ready")
        assert code == 503
        assert any(line.startswith("third: ended: ") for line in ready.splitlines()), ready
        metrics = it.get("/metrics")[1]
        assert 'fcstream_ready{stream="live"} 1' in metrics
        assert 'fcstream_ready{stream="second"} 1' in metrics
        code, errors = it.end(signal.SIGTERM)
        assert code == LedgerMismatch.exit_code, errors
        it.check(stream="live")
        found = [Release.from_bytes(line) for line in (it.folder / "second.jsonl").read_bytes().splitlines()]
        assert {release.stream for release in found} == {"second"}
        assert abs(sum(release.count for release in found) - 120) <= 3
        ledger = SQLiteLedger(str(it.folder / "ledger.db"), stream="second")
        assert ledger.verify() == 1 + 3 * len(found)  # which window was the first is a row, too
        ledger.close()
        it.redis.delete(other)


@pytest.mark.beside
def test_streams_of_one_process_have_names_of_their_own(folder):
    with running(folder) as it:
        it.start("c.toml", "c.toml")
        _, errors = it.process.communicate(timeout=120)
        assert it.process.returncode == 2
        assert "stream.name: must be another one for each configuration, 'live' comes twice" in errors


@pytest.mark.beside
def test_a_stream_that_would_never_release_is_refused(folder):
    with running(folder) as it:
        mean = {"kind": None, "radius": 1.0, "rho": 0.1, "delta": 1e-9, "size_hint": 20, "outliers": "leave_out"}
        it.configure(release=mean, budget={"delta": 1e-6})
        it.start("c.toml")
        _, errors = it.process.communicate(timeout=120)
        assert it.process.returncode == 2
        assert "would release with probability 0%" in errors
        assert not (it.folder / "ledger.db").exists()


@pytest.mark.beside
@pytest.mark.parametrize("start", ["now", "2020-01-01T00:00:00Z"])
def test_a_service_begins_with_its_first_run_and_misses_nothing_after_it(folder, start):
    """A start years ago was 200 million refusals before the first answer; records from before are nobody's."""
    with running(folder) as it:
        it.configure(window={"start": start, "backlog": None})
        it.send(5)
        time.sleep(2.2)
        began_ms = time.time_ns() // 10**6
        it.start()
        it.wait_for(began_ms // LENGTH_MS * LENGTH_MS)
        first = it.released()[0].window_open_ms
        assert began_ms // LENGTH_MS * LENGTH_MS - LENGTH_MS <= first
        it.send(30)
        it.wait_for(max(it.sent))
        assert it.end(signal.SIGTERM)[0] == 0
        time.sleep(2.5)  # what is missed from now on is answered
        it.start()
        it.send(30)
        it.wait_for(max(it.sent))
        assert it.end(signal.SIGTERM)[0] == 0
        it.start_ms = first
        it.check()
