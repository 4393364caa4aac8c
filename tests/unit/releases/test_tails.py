"""Bounds of what moved and left out records change hold for any records in the public ranges, without any noise."""

import math
from decimal import Decimal

import numpy as np
import pytest

from fcstream.releases.statistics.correlations import MatrixNoise, regression
from fcstream.releases.statistics.frequent import interval_of_reported
from fcstream.releases.statistics.moved import MovedRecords
from fcstream.releases.statistics.tails import Tail, useful
from fcstream.releases.tables.marginals import agree, deviations_of_agreed
from fcstream.synthetic.counts import ContingencyTables


def moved(rows, ball, low, high, unit=0.0):
    """Records about the middles, as a release sees them without noise: moved to the border of a ball, and rounded."""
    lengths = np.sqrt((rows**2).sum(axis=1))
    seen = rows * np.minimum(1, ball / np.maximum(lengths, 1e-300))[:, None]
    if unit:
        seen = np.rint(seen / unit) * unit
    d = rows.shape[1]
    matrix, nothing = np.cov(seen.T, bias=True), np.zeros((d, d))
    noise = MatrixNoise(nothing, seen.mean(axis=0), nothing, 0.0)
    tail = Tail(float(np.mean(lengths > ball)), 0.0)
    return MovedRecords(tail, matrix, matrix, noise, low, high, np.full(d, unit / 2))


def holds(interval, truth):
    slack = 1e-9 * np.abs(interval).max()
    return (interval[..., 0] - slack <= truth).all() and (truth <= interval[..., 1] + slack).all()


@pytest.mark.parametrize("seed", range(40))
def test_rounding_that_does_not_average_out_is_in_the_bounds(seed):
    draw = np.random.default_rng(seed)
    rows = np.where(draw.random((500, 2)) < draw.random(2), *draw.uniform(-1, 1, (2, 2)))
    rows[:, 1] += (rows[:, 0] > 0) * 0.3
    found = moved(rows, 100.0, np.full(2, -9.0), np.full(2, 9.0), 0.1)
    truth = np.cov(rows.T, bias=True)
    assert holds(found.covariances(), truth)
    assert holds(found.means(), rows.mean(axis=0))
    deviations = np.sqrt(np.diag(found.matrix))
    if deviations.min() > 0.3:  # several units
        seen = found.matrix / np.outer(deviations, deviations)
        assert holds(found.correlations(seen, np.zeros((2, 2))), np.corrcoef(rows.T))
        slope, sigma = regression(found.matrix, 1e-12 * np.eye(2), math.inf, 1)
        assert holds(found.coefficients(slope, sigma, 1), truth[0, 1:] / truth[0, 0])


@pytest.mark.parametrize("seed", range(200))
def test_moments_of_all_records_are_in_the_bounds(seed):
    draw = np.random.default_rng(seed)
    d, n = int(draw.integers(2, 5)), 500
    rows = draw.normal(size=(n, d)) @ draw.normal(size=(d, d)) + draw.normal(size=d)
    far = draw.random(n) < draw.choice([0.002, 0.02, 0.1])
    low, high = -draw.uniform(1, 30, d), draw.uniform(1, 30, d)
    corners = np.where(draw.random((n, d)) < 0.5, low, high) if seed % 2 else draw.uniform(low, high, (n, d))
    rows = np.clip(np.where(far[:, None], corners, rows), low, high)
    found = moved(rows, draw.uniform(1.5, 5), low, high)
    truth = np.cov(rows.T, bias=True)
    assert holds(found.covariances(), truth)
    assert holds(found.means(), rows.mean(axis=0))
    deviations = np.sqrt(np.diag(found.matrix))
    seen = found.matrix / np.outer(deviations, deviations)
    assert holds(found.correlations(seen, np.zeros((d, d))), np.corrcoef(rows.T))
    made = regression(found.matrix, 1e-12 * np.eye(d), math.inf, d - 1)
    assert made is not None
    slopes = np.linalg.solve(truth[:-1, :-1], truth[:-1, -1])
    assert holds(found.coefficients(*made, d - 1), slopes)


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("place", [-2.0, 0.0, 2.0])
def test_windows_as_bad_as_can_be_are_in_the_bounds_too(side, share, place):
    """All records lie in one place, but for some that are moved from an end of the range: bounds are nearly met."""
    rows = np.full((1000, 2), [place, -place]) + np.random.default_rng(1).normal(0, 1e-3, (1000, 2))
    rows[: int(1000 * share)] = [side * 30.0, side * 40.0]
    low, high = np.array([-30.0, -40.0]), np.array([30.0, 40.0])
    found, truth = moved(rows, 3.0, low, high), np.cov(rows.T, bias=True)
    assert holds(found.covariances(), truth)
    assert holds(found.means(), rows.mean(axis=0))
    if place == 0:
        assert np.diag(found.covariances()[..., 1]) == pytest.approx(np.diag(truth), rel=0.7)


def test_without_moved_records_nothing_is_added():
    rows = np.random.default_rng(1).normal(size=(500, 3))
    found = moved(rows, 100.0, np.full(3, -50.0), np.full(3, 50.0))
    assert found.covariances()[..., 0] == pytest.approx(found.matrix)
    assert found.covariances()[..., 1] == pytest.approx(found.matrix)
    assert found.means()[:, 0] == pytest.approx(rows.mean(axis=0))


def test_a_variance_that_noise_took_to_zero_overflows_nothing():
    zero = np.zeros((2, 2))
    matrix, far = np.array([[0.0, 0.0], [0.0, 4.0]]), np.full(2, 2.0**41)
    own = MatrixNoise(np.eye(2), np.ones(2), np.eye(2), 0.0)
    found = MovedRecords(Tail(0.1, 0.1), matrix, matrix, own, -far, far, np.ones(2))
    seen = np.array([[np.nan, np.nan], [np.nan, 1.0]])
    assert np.isnan(found.correlations(seen, zero)[0]).all()
    assert found.correlations(seen, zero)[1, 1].tolist() == [1.0, 1.0]
    assert np.isfinite(found.covariances()).all()


def test_noise_of_the_number_of_moved_records_counts_in_proportion_to_the_range():
    tail = Tail.of(-3.0, 25.0, 100)
    assert (tail.share, tail.noise, tail.most) == (0.0, 0.05, pytest.approx(0.098))
    low, high = tail.ends(10.0, 3.0, 0.0, 80.0)
    assert low == pytest.approx(10 - 1.96 * 3)
    assert high == pytest.approx(10 + 1.96 * 5)


def test_only_what_says_nothing_is_null():
    found, is_wide = useful(
        np.array([[[0.0, 1.0], [0.0, 3.0]], [[np.nan, np.nan], [1.0, 2.0]]]), np.array([[2.0, 2.0], [np.nan, 2]]), 10.0
    )
    assert found == [[[0.0, 10.0], None], [None, [10.0, 20.0]]]
    assert is_wide
    assert not useful(np.array([[np.nan, np.nan]]), np.array([np.nan]))[1]  # a number that is not told needs no word


@pytest.mark.parametrize(("sigma", "threshold"), [(5.0, 31), (1.3, 9), (0.4, 3), (2.236, 14), (0.02, 2), (0.05, 4)])
def test_intervals_of_told_texts_are_those_of_the_slow_twin(sigma, threshold):
    reach = int(30 * sigma) + threshold + 5
    law = {k: Decimal(-k * k / (2 * sigma * sigma)).exp() for k in range(-reach, reach + 1)}

    def above(least, number):
        return sum(p for k, p in law.items() if number + k >= least)

    counts = np.array([threshold, threshold + 1, threshold + 2, threshold + 5, threshold + 20])
    for count, (low, high) in zip(
        counts.tolist(), interval_of_reported(counts, threshold, sigma).tolist(), strict=True
    ):
        lows = [t for t in range(1, count + 1) if above(count, t) >= above(threshold, t) / 40]
        within = range(count, count + int(6 * sigma) + 3)
        highs = [t for t in within if above(threshold, t) - above(count + 1, t) >= above(threshold, t) / 40]
        assert (low, high) == (lows[0], max(highs, default=count))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (3, 2, 2), (2, 2, 7, 2, 3)])
def test_noise_of_tables_that_agree_is_that_of_the_fit(sizes, order):
    tables = ContingencyTables(sizes, order)
    fits = np.array([agree(row, tables) for row in np.eye(tables.cells)])
    cells = [math.prod(sizes[a] for a in one) for one in tables.sets]
    assert np.repeat(deviations_of_agreed(tables), cells) == pytest.approx(np.sqrt((fits**2).sum(axis=0)))
