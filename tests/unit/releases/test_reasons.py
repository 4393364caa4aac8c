"""A refusal names what is wrong: too few records, or enough of them and too far apart; by released values alone."""

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.releases.reasons import HINTS, NO_INTERVAL, REASONS

SPREAD = {"method": None, "spread": None}


def answer(points, seed=0, **release):
    config = sample(release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 20.0})
    engine = Engine(config, noise=Noise(SeededEntropy(seed)))
    engine.push(np.zeros(len(points)), points)
    return engine.close()[0], engine.job.answers[0].mechanism


def scattered(n, seed=0):
    """Within the ranges, and far from each other."""
    return np.random.default_rng(seed).uniform([-39, 1], [79, 99], (n, 2))


KINDS = [
    {"method": "recentered"},
    {"method": "friendly"},
    {"method": "tracking"},
    {"method": "recentered", "outliers": 0.2},
    {"method": "recentered", "pairs": "blocks", "size_hint": 4000},
    {"kind": "variance", **SPREAD},
]


@pytest.mark.slow
@pytest.mark.parametrize("release", KINDS, ids=str)
def test_enough_records_that_lie_apart_are_no_core(release):
    """It said `too_few` of 2,000 records where 300 were asked for."""
    many = 2000 if "size_hint" not in release else 6000
    for seed in range(3):
        found, mechanism = answer(scattered(many), seed, **release)
        assert found.reason == "no_core"
        assert found.value is None
        assert "`release.radius`" in mechanism.hint("no_core")


@pytest.mark.slow
@pytest.mark.parametrize("release", KINDS, ids=str)
def test_few_records_are_too_few_however_they_lie(release):
    for n in (0, 1, 12):
        for points in (np.full((n, 2), 20.0), scattered(n)):
            assert answer(points, **release)[0].reason == "too_few"


def test_windows_far_below_the_size_hint_are_told_to_lower_it():
    """600 records suffice; where ten times as many are hinted at they do not."""
    near = np.random.default_rng(0).normal(20, 0.1, (600, 2))
    assert answer(near, size_hint=600)[0].reason is None
    found, mechanism = answer(near, size_hint=6000)
    assert found.reason == "too_few"
    assert "lower `release.size_hint`" in mechanism.hint("too_few")


def test_a_search_names_the_end_of_its_radii():
    release = {"radius": "search", "radius_min": 0.01, "radius_max": 0.02, "spread": None}
    found, mechanism = answer(scattered(2000), **release)
    assert found.reason == "no_core"
    assert "`release.radius_max`" in mechanism.hint("no_core")


@pytest.mark.slow
def test_the_reason_is_a_function_of_what_is_released():
    """From the noisy count in the refusal anybody can tell the reason: nothing else went into it."""
    mechanism = Config.from_mapping(sample()).job.answers[0].mechanism.inner
    seen = set()
    for n in (60, 140, mechanism.enough_count - 4, mechanism.enough_count, mechanism.enough_count + 4, 400):
        for seed in range(10):
            found, _ = answer(scattered(n, seed), seed)
            wanted = "too_few" if found.count < mechanism.enough_count else "no_core"
            assert found.reason == wanted
            seen.add(wanted)
    assert seen == {"too_few", "no_core"}


def test_windows_that_would_release_are_enough():
    mechanism = Config.from_mapping(sample()).job.answers[0].mechanism.inner
    assert mechanism.forecast(mechanism.enough_count).probability >= 0.99
    assert mechanism.forecast(int(0.97 * mechanism.enough_count)).probability < 0.99


def test_a_call_on_an_array_distinguishes_them():
    known = {"radius": 1, "rho": 1, "delta": 1e-8, "size_hint": 500, "step": 1e-3, "bounds": (-100, 100)}
    known["outliers"] = "leave_out"
    noise = Noise(SeededEntropy(0))
    assert fcstream.private_mean(scattered(3000), **known, noise=noise).reason == "no_core"
    assert fcstream.private_mean(scattered(10), **known, noise=noise).reason == "too_few"


def test_every_reason_has_a_hint():
    assert set(REASONS) == {
        "too_few", "no_core", "no_match", "no_radius", "too_many", "too_many_values",
        "budget_exhausted", "state_lost", "interrupted",
    }  # fmt: skip
    assert all(len(hint) > 20 for hint in [*HINTS.values(), *NO_INTERVAL.values()])


def test_the_summary_of_a_run_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"ts_ms": {i}, "a": {a:.3f}, "b": {b:.3f}}}\n' for i, (a, b) in enumerate(scattered(2000))]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    (tmp_path / "c.toml").write_text(
        """
stream.name = "t"
lattice.step = 0.001
features = [{name = "a", min = -40.0, max = 80.0}, {name = "b", min = 0.0, max = 100.0}]
window = {length = "10s", start = "1970-01-01T00:00:00Z", end = "1970-01-01T00:00:20Z"}
release = {kind = "mean", radius = 3.0, rho = 1.0, delta = 1e-9, size_hint = 300, outliers = "leave_out"}
budget = {rho = 2.0, delta = 1e-6}
source.url = "jsonl:in.jsonl"
sink.url = "jsonl:out.jsonl"
ledger.url = "sqlite:l.db"
"""
    )
    done = CliRunner().invoke(main, ["run", "c.toml"])
    assert done.exit_code == 0, done.stderr
    assert "0 released, 2 refused (no_core 1, too_few 1)" in done.stderr
    assert f"\nno_core: {HINTS['no_core']}; for a new stream" in done.stderr
    assert f"\ntoo_few: {HINTS['too_few']}; for a new stream" in done.stderr
