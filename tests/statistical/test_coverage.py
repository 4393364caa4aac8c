"""Intervals hold the number of all records in range in 90 of 100 releases at least, whatever the records are.

`bench/coverage.py` asks the same of every numeric column of the real data.
"""

import itertools
import math

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy

pytestmark = pytest.mark.slow

RUNS = 40
N = 4000
MIN = 0.9
_draw = np.random.default_rng(7)
COLUMNS = {  # records, and the range that a user would declare
    "t(5)": (np.clip(_draw.standard_t(5, N), -20, 20), (-20, 20)),
    "exponential": (np.minimum(_draw.exponential(1.0, N), 20), (0, 20)),
    "Pareto": (np.minimum(_draw.pareto(2.5, N), 50), (0, 50)),
    "Boolean": ((_draw.random(N) < 0.1) * 1.0, (0, 1)),
}


def noise(seed):
    return Noise(SeededEntropy(seed))


def flat(nested):
    return list(itertools.chain.from_iterable(nested))


def share(found, truth):
    """Part of the intervals (runs, m, 2) that hold the truth (m,); nulls do not count."""
    held = [
        low <= true <= high
        for row in found
        for (low, high), true in ((pair, true) for pair, true in zip(row, truth, strict=True) if pair is not None)
    ]
    assert len(held) > 0.2 * len(found) * len(truth), "nearly all are null"
    return np.mean(held)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_variances(name, rho):
    values, (low, high) = COLUMNS[name]
    told = {"rho": rho, "delta": 1e-8, "size_hint": N, "step": 1e-3, "bounds": (low, high), "radius": high - low}
    answers = [fcstream.private_variance(values[:, None], noise=noise(seed), **told) for seed in range(RUNS)]
    assert share([each.interval for each in answers], [values.var()]) >= MIN
    assert share([each.parts["mean_interval"] for each in answers], [values.mean()]) >= MIN


@pytest.mark.parametrize("names", [("t(5)", "exponential"), ("exponential", "Pareto"), ("t(5)", "Boolean")], ids=str)
def test_covariances_and_what_follows_from_them(names):
    x, y = (COLUMNS[name][0] for name in names)
    y = y + 0.5 * x
    rows = np.stack((x, y), axis=1)
    bounds = (math.floor(rows.min()), math.ceil(rows.max()))
    told = {"rho": 1.0, "size_hint": N, "step": 1e-3, "bounds": bounds, "target": 1}
    answers = [fcstream.private_covariance(rows, noise=noise(seed), **told) for seed in range(RUNS)]
    matrix = np.cov(rows.T, bias=True)
    assert share([flat(each.interval) for each in answers], matrix.ravel()) >= MIN
    parts = [each.parts for each in answers]
    assert share([each["mean_interval"] for each in parts], rows.mean(axis=0)) >= MIN
    r, slope = np.corrcoef(rows.T)[0, 1], matrix[0, 1] / matrix[0, 0]
    assert share([[each["correlation_interval"][0][1]] for each in parts], [r]) >= MIN
    assert share([[each["coefficient_interval"]["x0"]] for each in parts], [slope]) >= MIN


@pytest.mark.parametrize("rho", [0.02, 0.5, 1.0, 2.0])
def test_sums_of_few_steps(rho):
    """Noise of half a step: 1.96 of its deviations held 79 of 100 at rho 2."""
    values, bounds = COLUMNS["Boolean"]
    answers = [
        fcstream.private_sum(values[:, None], rho=rho, step=1, bounds=bounds, noise=noise(seed)) for seed in range(200)
    ]
    assert share([each.interval for each in answers], [values.sum()]) >= 0.92


@pytest.mark.parametrize("rho", [0.1, 2.0])
def test_totals_and_their_windows(rho):
    release = {"method": None, "radius": None, "spread": None, "delta": None, "size_hint": None}
    release |= {"kind": "total", "epoch": "1m", "rho": rho}
    totals, windows = [], []
    for seed in range(RUNS):
        engine = Engine(sample(release=release, budget={"rho": 1e9, "delta": 0.0}), noise=noise(seed))
        for k in range(6):
            engine.push(np.full(50, 10_000 * k), np.tile([20.0, 50.0], (50, 1)))
        for k, each in enumerate(engine.close()):
            totals.append((each.interval[0], 50.0 * (k + 1)))
            windows.append((each.parts["window"]["interval"][0], 50.0))
    for found in (totals, windows):
        assert np.mean([low <= true <= high for (low, high), true in found]) >= MIN


@pytest.mark.parametrize("rho", [0.1, 20.0])
def test_marginals(rho):
    codes = _draw.integers(0, (2, 3, 4), (N, 3))
    found, truth = [], None
    for seed in range(RUNS):
        answer = fcstream.private_marginals(codes, rho=rho, levels=[2, 3, 4], noise=noise(seed))
        if truth is None:
            tables = [[int(name[1:]) for name in table] for table in answer.parts["tables"]]
            counts = [np.zeros([(2, 3, 4)[a] for a in table], int) for table in tables]
            for table, cells in zip(tables, counts, strict=True):
                np.add.at(cells, tuple(codes[:, a] for a in table), 1)
            truth = np.concatenate([cells.ravel() for cells in counts])
        found.append(flat(answer.interval))
    assert share(found, truth) >= 0.93


def test_texts_that_are_told_because_noise_lifted_them():
    """Most of these are told by noise alone: their plain intervals would hold far less often."""
    texts = [f"rare {i}" for i in range(400) for _ in range(3)] + ["common"] * 300
    held, plain = [], []
    for seed in range(RUNS):
        answer = fcstream.private_frequent(texts, rho=0.1, delta=1e-3, noise=noise(seed))
        for text, value, (low, high), sigma in zip(
            answer.parts["levels"], answer.value, answer.interval, answer.sigma, strict=True
        ):
            true = 300 if text == "common" else 3
            held.append(low <= true <= high)
            plain.append(abs(value - true) <= math.ceil(1.96 * sigma))
    assert np.mean(held) >= 0.92
    assert np.mean(plain) < 0.8
