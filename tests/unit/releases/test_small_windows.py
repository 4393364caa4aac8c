"""What means of windows that are hardly large enough say about their own error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.windows import charge_for, view_of

from fcstream.accounting.losses import PrivacyLoss
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.means.mean import RecentredMean
from fcstream.releases.means.spread_histogram import last_full, least_distance

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


def full_naive(counts, deviation):
    least, last = max(1, sum(counts)) / 10, 0
    for b in range(1, len(counts)):
        if sum(counts[b:]) > 3 * deviation * math.sqrt(len(counts) - b):
            last = b
        for end in range(b + 1, len(counts) + 1):
            if sum(counts[b:end]) > max(4 * deviation * math.sqrt(end - b), least):
                last = b
    return last


@given(st.lists(st.integers(-40, 60), min_size=1, max_size=15), st.floats(0.5, 30))
def test_the_last_full_bin_equals_the_naive_twin(counts, deviation):
    assert last_full(counts, deviation) == full_naive(counts, deviation)


def test_neighboring_bins_stand_out_where_all_above_them_together_do_not():
    assert last_full([200, 30, 25, -9, 4, -6, 3, -2, 5, -8], 8.0) == 1
    assert last_full([2000, 30, 25, -9, 4, -6, 3, -2, 5, -8], 8.0) == 0  # too few to matter


@pytest.mark.parametrize("dimension", [1, 4, 30])
@pytest.mark.parametrize("error", [0.0, 1.0, 5.0, 40.0])
def test_the_least_distance_is_seldom_above_the_real_one(dimension, error):
    rng = np.random.default_rng(5)
    real = np.full(dimension, error / math.sqrt(dimension))
    found = np.array([least_distance(real + rng.normal(0, 2.0, dimension), 2.0) for _ in range(1000)])
    assert (found <= error + 1e-9).mean() > 0.78
    if error >= 40:
        assert np.median(found) > 0.9 * error
