"""kill -9 at every statement of the ledger and every write of the sink, restart, compare."""

import io
import json
import os
import signal
import sys
from itertools import groupby

import numpy as np
import pytest
from support.crashes import Fuse, in_child, run_job
from support.helpers import rows, sample

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.config import Config
from fcstream.errors import FcstreamError, LedgerMismatch
from fcstream.ledgers.base import TOTAL_BLOCK, USER_BLOCK
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.runtime.wall_clock import WallClock

N = 200
FILES = ("out.jsonl", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-witness")
STREAM = {"stream": {"unit": "stream"}, "window": {"end": "1970-01-01T00:00:30Z"}}
STREAM["budget"] = {"rho": 2.0, "exhausted": "refuse"}
USERS = {
    "stream": {"unit": "user", "user": "id"},
    "window": {"end": "1970-01-01T00:00:40Z"},
    "budget": {"rho": 4.0, "savings": "even", "total_rho": 3.0, "total_delta": 1e-6, "exhausted": "refuse"},
}
SPENT_USERS = {
    "stream": {"unit": "user", "user": "id", "per_user": "mean"},
    "window": {"end": "1970-01-01T00:00:30Z"},
    "budget": {"rho": 1.5, "exhausted": "refuse"},
}
JOBS = {  # the sections, whose records each window holds, and what becomes of the windows
    # One window with data, one empty, one that the stream's budget refuses.
    "stream": (STREAM, ["a", "", ""], [None, "too_few", "budget_exhausted"]),
    # What the empty window gives back is offered to the next one; then the total has no room.
    "users": (USERS, ["a", "", "ab", "b"], [None, "too_few", None, "budget_exhausted"]),
    # Whoever was in the first window has nothing left, so the others are refused, with newcomers too.
    "spent users": (SPENT_USERS, ["a", "ab", "b"], [None, "budget_exhausted", "budget_exhausted"]),
}


class Work:
    """A job in a folder of its own, and what must come out of it."""

    def __init__(self, folder, name, sink="file"):
        self.folder = folder
        self.sections, self.groups, self.reasons = JOBS[name]
        self.to_file = sink == "file"
        lines = []
        for k, groups in enumerate(self.groups):
            for g, group in enumerate(groups):
                for i, (a, b) in enumerate(rows(N, g)):
                    record = {"ts_ms": 10_000 * k + 40 * i, "a": float(a), "b": float(b), "id": f"{group}{i}"}
                    lines.append(json.dumps(record))
        (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
        self.config = self.at(folder)

    def at(self, folder):
        """The configuration with its ledger and sink in a folder."""
        place = {
            "source": {"url": f"jsonl:{self.folder / 'in.jsonl'}"},
            "sink": {"url": f"jsonl:{folder / 'out.jsonl'}" if self.to_file else "jsonl:-"},
            "ledger": {"url": f"sqlite:{folder / 'ledger.db'}"},
        }
        return Config.from_mapping(sample(release={"size_hint": N}, **self.sections, **place))

    def in_child(self, burn_at, **options):
        return in_child(self.config, burn_at, None if self.to_file else self.folder, **options)

    def restart(self):
        """Start the job again, to its end; a terminal belongs to a process of its own."""
        if self.to_file:
            run_job(self.config)
        else:
            assert self.in_child(None)[0] == 0


def warm_up(work):
    """Load kernels and plan the job here: forked processes then start with them."""
    run_job(work.config, sys.stdout if work.to_file else io.TextIOWrapper(io.BytesIO()))
    wipe(work.folder)


@pytest.fixture
def job(tmp_path):
    work = Work(tmp_path, "stream")
    warm_up(work)
    return work.config


def published(tmp_path):
    path = tmp_path / "out.jsonl"
    if not path.exists():
        return []
    data = path.read_bytes()
    return [Release.from_bytes(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def printed(tmp_path):
    """What readers of standard output saw, each window once: the same line may come again, another one may not."""
    seen = {}
    for path in sorted(tmp_path.glob("out.[0-9]")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                release = Release.from_bytes(line)
                assert seen.setdefault(release.window_open_ms, release) == release
    return [seen[opens] for opens in sorted(seen)]


def wipe(tmp_path):
    for name in FILES:
        (tmp_path / name).unlink(missing_ok=True)
    for path in tmp_path.glob("out.[0-9]"):
        path.unlink()


def nano(releases):
    return sum(round(r.rho * 1e9) for r in releases)


def check_ledger(path, final, groups):
    """The ledger that a finished job leaves holds exactly what its releases cost, for everybody."""
    ledger = SQLiteLedger(str(path))
    ledger.verify()
    assert ledger.unacknowledged() == []
    assert ledger.releases() == [r.to_bytes() for r in final]
    paid = [round(r.rho * 1e9) for r in final]
    assert [loss.rho_nano for _, loss in ledger.charges()] == [cost for cost in paid if cost]
    capacity = ledger.terms.capacity
    assert ledger.spent().fits(capacity)
    if ledger.terms.total is not None:
        assert ledger.spent(TOTAL_BLOCK).rho_nano == sum(paid)
        assert ledger.spent(TOTAL_BLOCK).fits(ledger.terms.total)
    assert ledger.spent().rho_nano == sum(paid)
    ledger.close()


def check_end(work, early, folder=None):
    """What must hold after the restart, whenever the first process died."""
    folder = folder or work.folder
    final = published(folder) if work.to_file else printed(folder)
    if work.to_file:
        assert (folder / "out.jsonl").read_bytes().endswith(b"\n")
    assert [r.window_open_ms for r in final] == [10_000 * k for k in range(len(work.groups))]  # none lost, none twice
    assert final[: len(early)] == early  # nothing published was changed
    reasons = [r.reason for r in final]
    assert reasons == work.reasons
    assert all(r.rho <= 1.6 for r in final)
    check_ledger(folder / "ledger.db", final, work.groups)


@pytest.mark.parametrize(
    ("name", "sink", "step"),
    [("stream", "file", 1), ("users", "file", 2), ("users", "terminal", 4), ("spent users", "file", 4)],
)
def test_kill_at_every_call_and_restart(tmp_path, name, sink, step):
    """At every one; at every second or fourth where the calls are mostly those of another case."""
    work = Work(tmp_path, name, sink)
    warm_up(work)
    status, counted = work.in_child(None)
    assert status == 0
    calls = int(counted)
    assert calls > 60
    check_end(work, [])
    for burn_at in range(1, calls + 1, step):
        wipe(tmp_path)
        status, _ = work.in_child(burn_at)
        assert os.WIFSIGNALED(status), burn_at
        assert os.WTERMSIG(status) == signal.SIGKILL
        early = published(tmp_path) if work.to_file else printed(tmp_path)
        work.restart()
        check_end(work, early)


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
        draws = ledger._file.db.execute("SELECT max(draws) FROM windows").fetchone()[0]
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


class Camera(Fuse):
    """Copies the job's files before every dangerous call: as they are, and as a power loss there could leave them.

    What a power loss cannot take is what was synced: the ledger at the end of its last transaction that was flushed,
    the sink at its last fsync. It may leave half of what was written since. The witness is never synced: it may be an
    older one.
    """

    def __init__(self, folder):
        super().__init__(None)
        self.folder = folder
        self.copies = folder / "copies"
        self.copies.mkdir()
        self.seen = set()
        self.safe = self.read()
        self.older_witness = None
        self.flushes = True

    def read(self):
        places = {name: self.folder / name for name in FILES}
        return {name: place.read_bytes() if place.exists() else None for name, place in places.items()}

    def keep(self, files):
        found = tuple(files.values())
        if found in self.seen:
            return
        self.seen.add(found)
        place = self.copies / f"{len(self.seen):04}"
        place.mkdir()
        for name, body in files.items():
            if body is not None:
                (place / name).write_bytes(body)

    def __call__(self):
        super().__call__()
        self.keep(self.read())
        self.keep({**self.safe, "ledger.db-witness": self.older_witness})

    def done(self, call, *args):
        now = self.read()
        if call == "fsync":
            self.safe["out.jsonl"] = now["out.jsonl"]
            return
        connection, statement = args
        if statement.startswith("PRAGMA synchronous = "):
            self.flushes = statement.endswith("FULL")
        if connection.in_transaction:
            return
        before = self.safe["ledger.db-wal"] or b""
        after = now["ledger.db-wal"] or b""
        differs = [at for at in range(0, len(after), 512) if after[at : at + 512] != before[at : at + 512]]
        if statement == "COMMIT" and differs:
            torn = differs[len(differs) // 2] + 100
            self.keep({**self.safe, "ledger.db-wal": after[:torn] + before[torn:]})
            self.older_witness = self.safe["ledger.db-witness"]
        if self.flushes:
            self.safe.update({name: now[name] for name in FILES if name != "out.jsonl"})


def test_power_loss_at_every_call(tmp_path):
    """At every instant the ledger opens and is in order, it holds all that left, and the job can be ended well."""
    work = Work(tmp_path, "users")
    warm_up(work)
    assert work.in_child(None, fuse=Camera(tmp_path))[0] == 0
    check_end(work, [])
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) > 40
    states = set()
    for copy in copies:
        early = published(copy)
        path = copy / "ledger.db"
        if path.exists() and path.stat().st_size:
            try:
                ledger = SQLiteLedger(str(path))
            except LedgerMismatch:  # its tables were not written yet
                held = []
            else:
                ledger.verify()
                held = ledger.releases()
                states.add(tuple(sorted(ledger.summary().items())))
                capacity = ledger.terms.capacity
                assert ledger.spent(USER_BLOCK).fits(capacity)
                ledger.close()
            assert [r.to_bytes() for r in early] == held[: len(early)], copy
        else:
            assert early == []
        run_job(work.at(copy))
        check_end(work, early, copy)
    assert len(states) == 12  # nothing, and every step of four windows, one of which was not charged


# -- a clock that is set back ------------------------------------------------------------------------------------------

WALL = {"clock": "wall", "end": None, "lateness": "2s", "ahead": "20s"}


@pytest.fixture
def clock():
    """A clock whose jumps nobody notices."""
    now = [0]

    def set_to(now_ms):
        now[0] = now_ms
        return now_ms

    set_to.wall = lambda: WallClock("s", 10**12, wall=lambda: now[0])
    return set_to


def counting(tmp_path, seed, clock):
    rejected = []
    shape = sample(
        window=WALL,
        release={"kind": "count", "rho": 500.0},
        budget={"rho": 500.0},
        ledger={"url": f"sqlite:{tmp_path / 'ledger.db'}"},
    )
    return Engine(shape, noise=Noise(SeededEntropy(seed)), on_rejection=rejected.extend, clock=clock.wall()), rejected


def test_a_clock_that_is_set_back(tmp_path, clock):
    """Windows that were answered stay so, and open ones keep what they hold and wait for the time to come round."""
    engine, rejected = counting(tmp_path, 1, clock)
    clock(9_000)
    assert engine.push([5_000] * 3 + [15_000] * 4 + [25_000] * 5, rows(12)) == []  # at most 20 s ahead
    first = engine.advance(clock(15_001))
    assert [(r.window_open_ms, r.count) for r in first] == [(0, 3)]
    clock(6_000)  # nine seconds back: the first window is not over yet by this clock
    assert engine.advance(6_000) == []
    assert engine.push([5_500], rows(1)) == []
    assert engine.push([16_000], rows(1)) == []  # open, and in time
    assert [r.reason for r in rejected] == ["window_closed"]
    assert engine.advance(12_001) == []
    assert engine._ledger.unacknowledged() == []
    second = engine.advance(clock(22_001))
    assert [(r.window_open_ms, r.count) for r in second] == [(10_000, 5)]
    engine._ledger.close()  # dies before the second window is acknowledged
    # Restarted with a clock that is further back still.
    clock(1_000)
    engine, rejected = counting(tmp_path, 2, clock)
    assert engine.unpublished() == second
    assert engine.next_open_ms == 20_000
    assert engine.push([5_000, 15_000, 20_500], rows(3)) == []
    assert rejected == []
    assert engine.replayed == 2
    assert engine.advance(31_000) == []  # a clock that jumps about answers nothing early or again
    third = engine.advance(clock(32_001))
    assert [(r.window_open_ms, r.count) for r in third] == [(20_000, 1)]
    assert engine.advance(clock(0)) == engine.advance(32_001) == []
    engine.acknowledge()
    ledger = engine._ledger
    ledger.verify()
    assert ledger.releases() == [r.to_bytes() for r in first + second + third]
    assert [key.open_ms for key, _ in ledger.charges()] == [0, 10_000, 20_000]
    engine.abort()


def test_time_that_goes_to_and_fro_answers_every_window_once(tmp_path, clock):
    rng = np.random.default_rng(0)
    answered, now = [], 0
    for life in range(6):
        engine, _ = counting(tmp_path, life, clock)
        answered += engine.unpublished()
        for _ in range(8):
            now = max(0, now + int(rng.integers(-25_000, 35_000)))
            answered += engine.push([now], rows(1)) if rng.random() < 0.5 else engine.advance(clock(now))
        if life % 2:
            engine.acknowledge()
            engine.abort()
        else:
            engine._ledger.close()
    engine, _ = counting(tmp_path, 99, clock)
    answered += engine.unpublished()
    answered += engine.advance(clock(now + 100_000))
    order = [(opens, {r.to_bytes() for r in group}) for opens, group in groupby(answered, lambda r: r.window_open_ms)]
    assert [opens for opens, _ in order] == [10_000 * k for k in range(len(order))]
    assert len(order) > 8
    assert {len(lines) for _, lines in order} == {1}  # what came again came unchanged
    engine.acknowledge()
    engine._ledger.verify()
    engine.abort()
