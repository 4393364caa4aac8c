"""Running totals, attacked over a whole epoch: two streams that differ in one record, and all that is told of both.

The attacker undoes the estimates, so that the noisy numbers behind them lie open, and weighs these by how much the
record would move each: the best there is against normal noise. What is told in other ways counts, too.
"""

import math

import numpy as np
import pytest
from support.audits import rho_lower_bound
from support.helpers import Paid, sample

from fcstream import Noise, SeededEntropy
from fcstream.config import Config
from fcstream.releases.base import EpochWindow

T, RUNS, RHO = 5, 2000, 0.5
BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
CENTER, CORNER = [20.0, 50.0], [80.0, 100.0]
TOTAL = {**BARE, "kind": "total", "epoch": T, "rho": RHO}
BINS = {**TOTAL, "of": "histogram", "feature": "a", "edges": [0.0, 40.0]}
# What is configured, the window of the record, the record, and which number it moves; None: both sums.
CASES = {
    "count, first window": (TOTAL, 0, CENTER, 0),
    "count, a later window": (TOTAL, 3, CENTER, 0),
    "count, theta 1": ({**TOTAL, "theta": 1.0}, 0, CENTER, 0),
    "histogram": (BINS, 0, CENTER, 1),
    "sum": ({**TOTAL, "of": "sum"}, 0, CORNER, None),
}


def mechanism_of(name):
    mapping = sample(release=CASES[name][0], window={"end": "1970-01-01T00:01:40Z"}, budget={"rho": 50.0})
    job = Config.from_mapping(mapping).job
    return job, job.answers[0].mechanism


def views(name, more):
    """What the mechanism reads of every window of an epoch: a few records each, and one more in one of them."""
    _, at, record, _ = CASES[name]
    job, mechanism = mechanism_of(name)
    counter = mechanism.counter(2, 1, Noise(SeededEntropy(0)))
    for window in range(T):
        rows = [CENTER] * (window + 2) + ([record] if more and window == at else [])
        counter.add(window, job.grid.points(np.array(rows)))
    return [counter.view([window]) for window in range(T)]


def told(name, more, seed):
    """One row for each epoch (runs, columns): the attacker's sum for every window, every total, every window."""
    _, _at, _, number = CASES[name]
    _job, mechanism = mechanism_of(name)
    c, w = mechanism.factor.coefficients.astype(float), mechanism.factor.weights.astype(float)
    mixing = np.array([[c[t - s] * w[s] if t >= s else 0.0 for s in range(T)] for t in range(T)])
    shown, noise, rows = views(name, more), Noise(SeededEntropy(seed)), []
    for _ in range(RUNS):
        memory, totals, windows = mechanism.recall([]), [], []
        for window in range(T):
            place = EpochWindow(0, 10_000 * window, 10_000 * (window + 1))
            outcome = mechanism.within(memory, window, place).release(shown[window], Paid(), noise)
            memory.add(place.open_ms, outcome.state)
            totals.append(_number(outcome.value, number))
            windows.append(_number(outcome.parts["window"].value, number))
        rows.append([*(mixing.T @ (mixing @ np.array(windows))), *totals, *windows])
    return np.array(rows)


def _number(value, number):
    """The number that the record moves; of a sum of two features, what both show of it together."""
    if number is not None:
        return value[number]
    return float(np.dot(value, SPANS) / np.dot(SPANS, SPANS))


SPANS = np.array([60_000.0, 25_000.0])  # by how many steps the corner of the public range moves each sum


@pytest.fixture(scope="module", params=CASES)
def both(request):
    return request.param, told(request.param, False, 1), told(request.param, True, 2)


def test_an_epoch_of_totals_stays_below_its_claim_and_is_not_far_from_it(both):
    name, one, two = both
    assert rho_lower_bound(one, two) <= RHO
    at = CASES[name][1]
    factor = mechanism_of(name)[1].factor
    paid = factor.weights[at] ** 2 * (factor.coefficients[: T - at] ** 2).sum() / factor.energy
    gap = (two[:, at].mean() - one[:, at].mean()) / math.hypot(one[:, at].std(), two[:, at].std()) * math.sqrt(2)
    assert abs(gap) == pytest.approx(math.sqrt(2 * RHO * paid), abs=0.1)


def test_the_audit_sees_a_loss_not_much_larger_than_the_claim(both):
    _, one, two = both
    assert rho_lower_bound(one, two) > RHO / 2.2
