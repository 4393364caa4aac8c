"""A stream with keys, whose windows share transactions, killed at any call that writes: no charge, release or draw is
lost or made twice."""

import json
import os
import signal

import pytest
from support.crashes import in_child, run_job
from support.helpers import sample

from fcstream import Release
from fcstream.config import Config
from fcstream.ledgers import open_reader

KEYS = ["oslo", "paris", "rome"]
WINDOWS = 2
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None, "rho": 1e6}


def configured(folder):
    """Each key has as many records in each window as its name has letters; their noise is 0."""
    lines = [
        {"ts_ms": 10_000 * window + i, "a": 20.0, "b": 50.0, "site": key}
        for window in range(WINDOWS)
        for key in KEYS
        for i in range(len(key))
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Config.from_mapping(
        sample(
            stream={"key": "site", "keys": KEYS, "unit": "stream"},
            window={"end": "1970-01-01T00:00:20Z"},
            release=COUNT,
            budget={"rho": 6e6},
            source={"url": f"jsonl:{folder / 'in.jsonl'}"},
            sink={"url": f"jsonl:{folder / 'out.jsonl'}"},
            ledger={"url": f"sqlite:{folder / 'l.db'}"},
        )
    )


def published(folder):
    path = folder / "out.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [Release.from_bytes(line) for line in lines if line.endswith(b"\n")]


def check(config, folder, early):
    found = published(folder)
    assert all(release in found for release in early)
    assert len(found) == len(KEYS) * WINDOWS
    assert {(release.key, release.window_open_ms, release.value[0]) for release in found} == {
        (key, 10_000 * window, len(key)) for window in range(WINDOWS) for key in KEYS
    }
    for key in KEYS:
        reader = open_reader(config.ledger.url, f"t/{key}")
        assert reader.verify() >= 3 * WINDOWS
        assert reader.spent().rho == 1e6 * WINDOWS
        assert reader.summary()["acknowledged"] == WINDOWS
        kinds = [(row.kind, row.open_ms) for row in reader.rows()]
        assert all(kinds.count(("charge", 10_000 * window)) == 1 for window in range(WINDOWS))
        reader.close()


def wipe(folder):
    for path in folder.iterdir():
        if path.name != "in.jsonl":
            path.unlink()


@pytest.mark.timeout(1800)
def test_kill_at_every_call_and_restart(tmp_path):
    config = configured(tmp_path)
    run_job(config)  # kernels are loaded here; forked processes then start with them
    check(config, tmp_path, [])
    wipe(tmp_path)
    status, counted = in_child(config, None, torn=False)
    assert status == 0
    calls = int(counted)
    step = 7  # 1 kills at every call, in a minute
    for burn_at in range(1 + step // 2, calls + 1, step):
        wipe(tmp_path)
        status, _ = in_child(config, burn_at, torn=False)
        assert os.WIFSIGNALED(status), burn_at
        assert os.WTERMSIG(status) == signal.SIGKILL
        early = published(tmp_path)
        run_job(config)
        check(config, tmp_path, early)
