"""Data that hold nothing, for every kind of release there is: an answer or a refusal, at the price that is told."""

import json
import math

import numpy as np
import pytest
from support.helpers import sample
from support.release_kinds import ALSO, OF_TEXTS, RELEASES, N

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.errors import ConfigError
from fcstream.releases.reasons import REASONS
from fcstream.releases.registry import KINDS

pytestmark = pytest.mark.usefixtures("one_start")

DATA = {
    "empty": np.empty((0, 2)),
    "one point": np.array([[20.0, 50.0]]),
    "all equal": np.tile([20.0, 50.0], (N, 1)),
    "fewer distinct than centers": np.tile([[20.0, 50.0], [21.0, 51.0]], (N // 2, 1)),
    "collinear": np.column_stack([20.0 + np.arange(N) / N, 50.0 + 2 * np.arange(N) / N]),
    "ends of the range": np.tile([[-40.0, 0.0], [80.0, 100.0]], (N // 2, 1)),
    "everywhere": np.random.default_rng(0).uniform([-40, 0], [80, 100], size=(N, 2)),
}


def test_every_kind_is_here():
    assert {*RELEASES, *OF_TEXTS} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", [*RELEASES, *ALSO])
def test_degenerate_data(name, data):
    release, gives_back = (RELEASES | ALSO)[name]
    config = sample(release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"delta": 1e-4})
    engine = Engine(config, noise=Noise(SeededEntropy(5)))
    engine.push(np.zeros(len(DATA[data]), np.int64), DATA[data])
    found, most = engine.close()[0], engine.job.answers[0].mechanism.loss
    assert engine.rejected == {}
    paid = engine._ledger.spent("0")
    assert (found.rho, found.delta) == (paid.rho, paid.delta) == (found.spent["rho"], found.spent["delta"])
    assert paid.fits(most)
    line = found.to_bytes()
    json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert Release.from_bytes(line) == found
    if found.reason is None:
        assert np.isfinite(np.array(found.value, float)).all()
    else:
        assert found.reason in REASONS
        assert found.value is found.sigma is None
        assert not gives_back or paid.rho < 0.9 * most.rho
    if len(DATA[data]) < 2:
        counted = name in ("count", "sum", "total", "histogram", "marginals")
        assert (found.reason is None) == counted
    if name in ("count", "histogram"):
        assert abs(found.count - len(DATA[data])) < 10
    if name.startswith("mean/") and data == "all equal":
        assert math.dist(found.value, [20.0, 50.0]) < 0.5


CHEAP = ["mean/recentered", "mean/friendly", "mean/ball", "mean/basic", "variance", "quantiles", "histogram", "count"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_budget_that_is_accepted_answers_every_window(seed):
    """What cannot work is refused before anything is charged: never when a window closes."""
    rng, answered = np.random.default_rng(seed), 0
    while answered < 8:
        release = dict(RELEASES[str(rng.choice(CHEAP))][0])
        release["rho"] = float(10 ** rng.uniform(-9, 1.2))
        if release.get("delta", 1) is not None:
            release["delta"] = float(10 ** rng.uniform(-14, -0.5))
        if release.get("size_hint"):
            release["size_hint"] = int(10 ** rng.uniform(0, 5))
        if "radius" not in release:
            release["radius"] = float(10 ** rng.uniform(-1, 1.9))
        config = sample(
            release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 100.0, "delta": 0.5},
            lattice={"step": float(10 ** rng.uniform(-6, 0))},
        )  # fmt: skip
        try:
            engine = Engine(config, noise=Noise(SeededEntropy(seed)))
        except ConfigError:
            continue
        raw = DATA[str(rng.choice(list(DATA)))]
        engine.push(np.zeros(len(raw), np.int64), raw)
        assert engine.close()[0].status in ("released", "refused")
        answered += 1
