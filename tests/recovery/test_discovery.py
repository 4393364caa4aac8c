"""A stream that finds its keys, killed at any call that writes: the next run has the same keys and loses no release."""

import json
import os
import signal

import pytest
from support.crashes import in_child, run_job
from support.naive_discovery import Arrival, discovered

from fcstream.config import Config
from fcstream.ledgers import each_reader

WINDOW_MS, WINDOWS = 10_000, 3
RECORDS = [Arrival(ms, key) for ms in (1, 2, 3) for key in "ab"]  # a and b are found for the second window,
RECORDS += [Arrival(WINDOW_MS + ms, key) for ms in (1, 2) for key in "bc"]  # b and c for the third
FIRST = ["a"]
USERS = {"unit": "user", "user": "who", "key_budgets": "shared", "keys_per_user": 3}


def configured(folder, unit):
    """A stream with a window in each period, whose noise is never drawn to be anything but 0."""
    lines = [{"ts_ms": one.time_ms, "site": one.key, "who": f"u{i}"} for i, one in enumerate(RECORDS)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    keys = {"discover": "frequent", "every": "10s", "rho": 1e6, "delta": 1e-9, "first": FIRST}
    stream = {"name": "t", "key": "site", "keys": keys}
    return Config.from_mapping(
        {
            "stream": stream | (USERS if unit == "user" else {}),
            "window": {"length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:30Z"},
            "release": {"kind": "count", "rho": 1e6},
            "budget": {"rho": 2e6 if unit == "event" else 2e7, "delta": 1e-6},
            "source": {"url": f"jsonl:{folder / 'in.jsonl'}"},
            "sink": {"url": f"jsonl:{folder / 'out.jsonl'}"},
            "ledger": {"url": f"sqlite:{folder / 'l.db'}"},
        }
    )


def published(folder):
    path = folder / "out.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def check(folder, unit, early):
    """Every window of every key is answered once, with what the twin counts; early lines are still there."""
    lines = published(folder)
    expected = discovered(RECORDS, length_ms=WINDOW_MS, every_ms=WINDOW_MS, windows=WINDOWS, first=FIRST)
    assert all(line in lines for line in early)
    found = {(line.get("key"), line["window_open_ms"]): line for line in lines}
    assert len(found) == len(lines)
    searches = [(None, open_ms) for open_ms in expected.searches]
    assert set(found) == {*expected.counts, *searches}
    for (key, open_ms), line in found.items():
        if line["reason"] == "interrupted":  # keys of users are not chosen a second time
            assert unit == "user"
            assert key is not None
        elif key is None:
            told = dict(zip(line["parts"]["levels"], line["value"], strict=True))
            assert told == expected.searches[open_ms]
        else:
            assert line["value"] == [expected.counts[key, open_ms]]
    for reader in each_reader(f"sqlite:{folder / 'l.db'}"):
        assert reader.terms.stream == "t" or not reader.unacknowledged()  # users' account has no releases


def wipe(folder):
    for path in folder.iterdir():
        if path.name != "in.jsonl":
            path.unlink()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("unit", "step"), [("event", 5), ("user", 17)])  # 1 kills at every call, in minutes
def test_killed_at_any_call_it_has_the_same_keys(tmp_path, unit, step):
    config = configured(tmp_path, unit)
    status, counted = in_child(config, None, torn=False)
    assert status == 0
    check(tmp_path, unit, [])
    calls = int(counted)
    assert calls > 100
    for burn_at in range(1 + step // 2, calls + 1, step):
        wipe(tmp_path)
        status, _ = in_child(config, burn_at, torn=False)
        assert os.WIFSIGNALED(status), burn_at
        assert os.WTERMSIG(status) == signal.SIGKILL
        early = published(tmp_path)
        run_job(config)
        check(tmp_path, unit, early)
