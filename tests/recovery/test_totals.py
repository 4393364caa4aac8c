"""Running totals: kill -9 at every statement of the ledger and every write of the sink; the next process goes on."""

import json
import os
import signal

from support.crashes import in_child, run_job

from fcstream import Release
from fcstream.config import Config
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

WINDOWS, EPOCH = 4, 3
FILES = ("out.jsonl", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-witness")


def size(window):
    return 1000 * (window + 1)


def config_in(folder, source):
    return Config.from_mapping(
        {
            "stream": {"name": "visits"},
            "window": {"length": "1s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:04Z"},
            "release": {"kind": "total", "epoch": EPOCH, "rho": 50.0},
            "budget": {"rho": 50.0, "delta": 0.0},
            "source": {"url": f"jsonl:{source}"},
            "sink": {"url": f"jsonl:{folder / 'out.jsonl'}"},
            "ledger": {"url": f"sqlite:{folder / 'ledger.db'}"},
        }
    )


def published(folder):
    path = folder / "out.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [Release.from_bytes(line) for line in lines if line.endswith(b"\n")]


def check_end(folder, early, config):
    """Every window is answered once, and what its total holds is all of its epoch, whoever drew it."""
    final = published(folder)
    assert final[: len(early)] == early
    assert [release.window_open_ms for release in final] == [1000 * k for k in range(WINDOWS)]
    for k, release in enumerate(final):
        first = k - k % EPOCH
        assert (release.status, release.parts["windows"], release.parts["skipped"]) == ("released", k - first + 1, [])
        assert abs(release.value[0] - sum(size(j) for j in range(first, k + 1))) < 10 * release.sigma[0]
        assert abs(release.parts["window"]["value"][0] - size(k)) < 10 * release.parts["window"]["sigma"][0]
    ledger = SQLiteLedger(str(folder / "ledger.db"), config.job.terms)
    ledger.verify()
    assert ledger.spent().rho == 50.0
    assert ledger.epoch_states("", 0) == []
    assert [open_ms for open_ms, _ in ledger.epoch_states("", 3000)] == [3000]
    ledger.close()


def test_kill_at_every_other_call_and_restart(tmp_path):
    source = tmp_path / "in.jsonl"
    lines = (json.dumps({"ts_ms": 1000 * k + i % 1000}) for k in range(WINDOWS) for i in range(size(k)))
    source.write_text("\n".join(lines) + "\n")
    (tmp_path / "warm").mkdir()
    run_job(config_in(tmp_path / "warm", source))  # forked processes then start with the kernels
    config = config_in(tmp_path, source)
    status, counted = in_child(config, None)
    assert status == 0
    check_end(tmp_path, [], config)
    assert int(counted) > 60
    for burn_at in range(1, int(counted) + 1, 2):
        for name in FILES:
            (tmp_path / name).unlink(missing_ok=True)
        status, _ = in_child(config, burn_at)
        assert os.WIFSIGNALED(status), burn_at
        assert os.WTERMSIG(status) == signal.SIGKILL
        early = published(tmp_path)
        assert in_child(config, None)[0] == 0, burn_at
        check_end(tmp_path, early, config)
