"""What means of windows that are hardly large enough say about their own error."""

import math

import numpy as np
import pytest
from support.helpers import sample
from support.release_kinds import ALSO, RELEASES
from support.windows import charge_for, view_of

from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.means.mean import RecentredMean
from fcstream.releases.means.spread_histogram import best_reach, min_distance

WINDOWS = 60


def errors(dimension, size, rho, radius=6.0):
    """Errors of seeded windows in units of the sigma published with them, (windows, dimension)."""
    mechanism = RecentredMean(PrivacyLoss.charge(rho, 1e-9), int(100 * radius) ** 2, dimension, size)
    found = []
    for seed in range(WINDOWS):
        points = np.rint(np.random.default_rng(seed).normal(0, 100, (size, dimension)))
        view = view_of(points, mechanism.radius_squared)
        outcome = mechanism.release(view, charge_for(mechanism.loss), Noise(SeededEntropy(seed)))
        if outcome.value is not None:
            found.append(np.abs(outcome.value - points.mean(axis=0)) / outcome.sigma)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "size", "rho", "radius"),
    [(1, 350, 0.2, 6.0), (1, 400, 0.2, 6.0), (1, 500, 0.2, 6.0), (1, 1350, 0.05, 6.0), (2, 400, 0.2, 6.6)],
)
def test_three_sigma_hold_the_mean_of_a_small_window(dimension, size, rho, radius):
    """1.1 to 1.6 times the smallest usable size. A ball too small for the data held 60 to 88 of 100."""
    found = errors(dimension, size, rho, radius)
    assert len(found) == WINDOWS
    assert (found <= 3).mean() >= 0.93
    assert found.max() < 8


@pytest.mark.parametrize(("dimension", "radius"), [(4, 7.3), (10, 9.5)])
def test_sigma_of_many_features_is_right_too(dimension, radius):
    found = errors(dimension, 400, 0.2, radius)
    assert (found <= 3).mean() >= 0.98
    assert 0.7 < np.sqrt(np.mean(found**2)) < 1.25  # and no larger than need be


def test_neighboring_bins_stand_out_where_all_above_them_together_do_not():
    edges = 10.0 * 1.08 ** np.arange(11)
    bins = np.array([200, 36, 33, 30, -9, 4, -6, 3, -2, 5, -8, -12])
    assert best_reach(bins, edges, 64.0, 1e-6, clips=False)[1] == 2
    assert best_reach(bins // np.array([1, 2, 2, 2, *[1] * 8]), edges, 64.0, 1e-6, clips=False)[1] == 0


@pytest.mark.parametrize("dimension", [1, 4, 30])
@pytest.mark.parametrize("error", [0.0, 1.0, 5.0, 40.0])
def test_the_least_distance_is_seldom_above_the_real_one(dimension, error):
    rng = np.random.default_rng(5)
    real = np.full(dimension, error / math.sqrt(dimension))
    found = np.array([min_distance(real + rng.normal(0, 2.0, dimension), 2.0) for _ in range(1000)])
    assert (found <= error + 1e-9).mean() > 0.78
    if error >= 40:
        assert np.median(found) > 0.9 * error


STOPS = {  # kind -> the least noisy number of records that it answers
    "mean/recentered, clip": lambda mechanism: mechanism.smallest,
    "mean/ball": lambda mechanism: mechanism.average.smallest,
    "quantiles": lambda mechanism: mechanism.min_count,
    "covariance/clipped": lambda mechanism: mechanism.min_count,
    "points/cells": lambda mechanism: mechanism.min_count,
}


@pytest.mark.parametrize("kind", STOPS)
def test_a_window_is_refused_by_its_noisy_number_alone(kind):
    """Records that are just too few are answered in nearly half of the windows, and just enough are not in as many."""
    release = (RELEASES | ALSO)[kind][0] | {"rho": 1.0}
    windows = {"end": "1970-01-01T00:10:00Z"}
    config = Config.from_mapping(sample(release=release, window=windows, budget={"rho": 9.0, "delta": 1e-5}))
    made = config.job.answers[0].mechanism
    least = STOPS[kind](getattr(made, "inner", made))
    for size in (least - 1, least):
        engine = Engine(config, noise=Noise(SeededEntropy(size)))
        times = np.repeat(10_000 * np.arange(60), size)
        engine.push(times, np.random.default_rng(1).normal([20.0, 50.0], 0.1, (len(times), 2)))
        found = engine.close()
        refused = [each.reason == "too_few" for each in found]
        assert refused == [each.count < least for each in found]
        assert 10 < sum(refused) < 50
