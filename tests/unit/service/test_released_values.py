"""What a live stream tells of its releases besides the releases: gauges for Prometheus, and times as texts."""

import datetime
import json
import subprocess
import sys
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from support.helpers import counting_job, sample
from support.status import watched

from fcstream import Engine, Release
from fcstream.config import Config
from fcstream.config.specification import specification
from fcstream.service.metrics import exposition
from fcstream.testing import sample_release


def series(each):
    families = text_string_to_metric_families(exposition([each])[0].decode())
    return {
        (one.name, *(one.labels[name] for name in ("stream", "key", "answer", "kind", "name"))): one.value
        for family in families
        if family.name in ("fcstream_value", "fcstream_sigma")
        for one in family.samples
    }


def test_released_numbers_are_gauges_if_asked_for():
    each = watched(values=True)
    release = replace(
        sample_release(0), stream="s/north", key="north", features=["a", "b"], value=[1.5, 2], sigma=[1, 3]
    )
    named = replace(sample_release(0), stream="s", name="busy", kind="count", features=None, value=[7.0], sigma=[0.5])
    each.service.counters.add([release, named])
    about = ("s", "north", release.kind, release.kind)
    assert series(each) == {
        ("fcstream_value", *about, "a"): 1.5,
        ("fcstream_value", *about, "b"): 2.0,
        ("fcstream_sigma", *about, "a"): 1.0,
        ("fcstream_sigma", *about, "b"): 3.0,
        ("fcstream_value", "s", "", "busy", "count", "count"): 7.0,
        ("fcstream_sigma", "s", "", "busy", "count", "count"): 0.5,
    }
    refused = replace(release, status="refused", reason="too_few", value=None, sigma=None)
    each.service.counters.add([refused, replace(named, value=[8.0], sigma=None)])
    assert series(each) == {("fcstream_value", "s", "", "busy", "count", "count"): 8.0}, "no number of an older window"
    silent = watched()
    silent.service.counters.add([release])
    assert series(silent) == {}


def test_counters_are_told_as_json(tmp_path):
    (tmp_path / "c.toml").write_text(
        counting_job(
            0, source={"url": "stdin:", "spool": "spool"}, window={"clock": "wall", "start": "now", "backlog": None}
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "fcstream", "run", "--json", "c.toml"],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["stream"] == "live"
    assert (told["messages"], told["released"], told["refused"]) == (0, told["released"], {})


def test_times_as_texts_on_request():
    plain = Config.from_mapping(sample())
    texts = Config.from_mapping(sample(stream={"iso_times": True}))
    assert specification(plain) == specification(texts), "a ledger goes on with either"
    with Engine(plain) as engine:
        before = engine.close()
    with Engine(texts) as engine:
        found = engine.close()
    assert found
    for one, other in zip(found, before, strict=True):
        assert one.window_open.endswith("Z")
        assert len(one.window_open) == len(one.window_close) == len("2026-01-01T00:00:00.000Z")
        line = one.to_bytes()
        assert Release.from_bytes(line) == one
        assert json.loads(line).keys() - json.loads(other.to_bytes()).keys() == {"window_open", "window_close"}
        for text, time_ms in ((one.window_open, one.window_open_ms), (one.window_close, one.window_close_ms)):
            assert datetime.datetime.fromisoformat(text).timestamp() * 1000 == time_ms
