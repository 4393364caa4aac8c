"""kill -9 at every statement of the ledger and every write of the sink, restart, compare."""

import json
import os
import signal

import numpy as np
import pytest
from helpers import rows, sample

from fcstream import Engine, Release
from fcstream.config import Config, Job
from fcstream.connectors import open_sink, open_source
from fcstream.errors import FcstreamError
from fcstream.ledgers import sqlite as sqlite_ledger
from fcstream.ledgers.sqlite import SQLiteLedger
from fcstream.runner import run

N = 200


@pytest.fixture
def job(tmp_path):
    """Three windows: one with data, one empty, one that the stream's budget refuses."""
    raw = rows(N)
    lines = [json.dumps({"ts_ms": int(i * 40), "a": float(a), "b": float(b)}) for i, (a, b) in enumerate(raw)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    return Config.from_mapping(
        sample(
            stream={"unit": "stream"},
            window={"end": "1970-01-01T00:00:30Z"},
            release={"size_hint": N},
            budget={"rho": 2.0},
            source={"url": f"jsonl:{tmp_path / 'in.jsonl'}"},
            sink={"url": f"jsonl:{tmp_path / 'out.jsonl'}"},
            ledger={"url": f"sqlite:{tmp_path / 'ledger.db'}"},
        )
    )


def run_job(config):
    engine = Engine(config)
    source = open_source(config.source.url, Job.of(config).schema)
    sink = open_sink(config.sink.url)
    try:
        return run(engine, source, sink)
    finally:
        source.close()
        sink.close()


class Fuse:
    """Kills this process at the n-th dangerous call; with n = None only counts."""

    def __init__(self, burn_at):
        self.burn_at = burn_at
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls == self.burn_at:
            os.kill(os.getpid(), signal.SIGKILL)


def rig(fuse, torn):
    """Put the fuse before every SQL statement, before and in the middle of every write, before every fsync."""
    import sqlite3

    class Connection(sqlite3.Connection):
        def execute(self, *args):
            fuse()
            return super().execute(*args)

    real_connect, real_pwrite, real_fsync = sqlite3.connect, os.pwrite, os.fsync
    sqlite_ledger.sqlite3.connect = lambda *a, **k: real_connect(*a, factory=Connection, **k)

    def pwrite(fd, data, offset):
        fuse()
        if torn:
            real_pwrite(fd, data[: len(data) // 2], offset)
            fuse()
        return real_pwrite(fd, data, offset)

    def fsync(fd):
        fuse()
        return real_fsync(fd)

    os.pwrite, os.fsync = pwrite, fsync


def in_child(config, burn_at, torn=True):
    """Run the job in a forked process that kills itself; returns (exit status, calls counted)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            fuse = Fuse(burn_at)
            rig(fuse, torn)
            run_job(config)
            os.write(writer, str(fuse.calls).encode())
            code = 0
        except FcstreamError:
            code = 2
        finally:
            os._exit(code)
    os.close(writer)
    status = os.waitpid(pid, 0)[1]
    with os.fdopen(reader, "rb") as file:
        return status, file.read()


def published(tmp_path):
    path = tmp_path / "out.jsonl"
    if not path.exists():
        return []
    data = path.read_bytes()
    return [Release.from_bytes(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def wipe(tmp_path):
    for name in ("out.jsonl", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-witness"):
        (tmp_path / name).unlink(missing_ok=True)


def check_end(tmp_path, early):
    """What must hold after the restart, whenever the first process died."""
    final = published(tmp_path)
    assert (tmp_path / "out.jsonl").read_bytes().endswith(b"\n")
    assert [r.window_open_ms for r in final] == [0, 10_000, 20_000]  # none lost, none twice
    assert final[: len(early)] == early  # nothing published was changed
    assert [r.reason for r in final][1:] == ["too_few", "budget_exhausted"]
    assert final[0].reason is None
    ledger = SQLiteLedger(str(tmp_path / "ledger.db"))
    ledger.verify()
    # Every window charged once; the empty one gives back what it did not start, unless it was drawn twice.
    assert ledger.spent().rho_nano == sum(round(r.rho * 1e9) for r in final)
    assert 10**9 < ledger.spent().rho_nano <= 2 * 10**9
    assert ledger.unacknowledged() == []
    ledger.close()


def test_kill_at_every_call_and_restart(tmp_path, job):
    status, counted = in_child(job, None)
    assert status == 0
    calls = int(counted)
    assert calls > 60
    check_end(tmp_path, [])
    for burn_at in range(1, calls + 1):
        wipe(tmp_path)
        status, _ = in_child(job, burn_at)
        assert os.WIFSIGNALED(status), burn_at
        assert os.WTERMSIG(status) == signal.SIGKILL
        early = published(tmp_path)
        assert in_child(job, None)[0] == 0, burn_at
        check_end(tmp_path, early)


def test_kill_twice_while_drawing_gives_the_window_up(tmp_path, job):
    """Charged, killed before the seal, drawn once more, killed again: refused, and the charge stays."""
    _, counted = in_child(job, None)
    wipe(tmp_path)
    # Find the call after which the first charge is durable and nothing is sealed.
    for burn_at in range(1, int(counted)):
        wipe(tmp_path)
        in_child(job, burn_at)
        if not (tmp_path / "ledger.db").exists():
            continue
        try:
            ledger = SQLiteLedger(str(tmp_path / "ledger.db"))
        except FcstreamError:
            continue
        state = ledger.summary()
        ledger.close()
        if state.get("charged", 0) == 1 and not state.get("acknowledged", 0):
            break
    else:
        pytest.fail("no moment between charge and seal")
    # A second kill at the same moment of the restarted run.
    for again in range(1, int(counted)):
        snapshot = (tmp_path / "ledger.db").read_bytes()
        in_child(job, again)
        ledger = SQLiteLedger(str(tmp_path / "ledger.db"))
        draws = ledger._db.execute("SELECT max(draws) FROM windows").fetchone()[0]
        sealed = ledger.summary().get("sealed", 0) + ledger.summary().get("acknowledged", 0)
        ledger.close()
        if draws == 2 and sealed == 0:
            break
        (tmp_path / "ledger.db").write_bytes(snapshot)
        (tmp_path / "ledger.db-wal").unlink(missing_ok=True)
        (tmp_path / "ledger.db-witness").unlink(missing_ok=True)
        (tmp_path / "out.jsonl").unlink(missing_ok=True)
    else:
        pytest.fail("no moment between the redraw and its seal")
    assert in_child(job, None)[0] == 0
    final = published(tmp_path)
    assert [r.reason for r in final] == ["interrupted", "too_few", "budget_exhausted"]
    assert final[0].rho == 1.0  # nothing of it comes back
    ledger = SQLiteLedger(str(tmp_path / "ledger.db"))
    ledger.verify()
    assert ledger.spent().rho_nano == sum(round(r.rho * 1e9) for r in final)
    ledger.close()


def test_a_second_run_changes_nothing(tmp_path, job):
    run_job(job)
    before = (tmp_path / "out.jsonl").read_bytes()
    summary = run_job(job)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert summary.already_answered == 3
    assert summary.released == 0
    assert np.all([r.private for r in published(tmp_path)])


def test_failing_sink_keeps_the_sealed_releases(tmp_path, job, monkeypatch):
    def full(fd, data, offset):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FcstreamError, match="No space left"):
        run_job(job)
    monkeypatch.undo()
    assert published(tmp_path) == []
    ledger = SQLiteLedger(str(tmp_path / "ledger.db"))
    sealed = [Release.from_bytes(body) for _, body in ledger.unacknowledged()]
    ledger.close()
    summary = run_job(job)
    assert summary.republished == len(sealed) == 1
    assert published(tmp_path)[:1] == sealed
    assert len(published(tmp_path)) == 3
