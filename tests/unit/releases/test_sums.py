"""Sums: exact arithmetic, the sensitivity that is paid for, and the better of two ways."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import rows, sample

import fcstream
from fcstream import ConfigError, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.releases.statistics.sum import LARGEST_VARIANCE, NoisySum, Range, SumCounter, WindowSums
from fcstream.stream.lattice import Feature, Grid, Lattice

SUM = {"kind": "sum", **dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))}


class Silent(Noise):
    """Draws of nothing: what is left is the arithmetic."""

    def discrete_gaussian(self, variance, size):
        return np.zeros(size, np.int64)


class Free:
    """A charge that pays for everything."""

    def use(self, needed):
        pass


def grid_of(*features, step=0.5):
    return Grid(Lattice(step), tuple(Feature(f"x{k}", **facts) for k, facts in enumerate(features)))


def mechanism_of(*features, rho=0.5, step=0.5):
    return NoisySum.of(PrivacyLoss.charge(rho), grid_of(*features, step=step))


def released(mechanism, points):
    """What is released of some lattice points without noise, as exact fractions of a step."""
    view = WindowSums(len(points), [sum(column) for column in zip(*points, strict=True)] or [0] * len(mechanism.ranges))
    return mechanism.release(view, Free(), Silent(SeededEntropy(0)))


FEATURE = st.builds(
    lambda low, width, origin, scale: {"minimum": low, "maximum": low + width, "origin": origin, "scale": scale},
    st.integers(-40, 40),
    st.integers(2, 60),  # of at least two lattice points
    st.sampled_from([0.0, 3.0, -17.5, 0.3, 100.0]),
    st.sampled_from([1.0, 2.0, 0.25]),
)


@given(st.lists(FEATURE, min_size=1, max_size=4))
def test_one_record_moves_what_is_released_by_what_is_paid_for(features):
    """Over all corners of the ranges, the longest move is as long as the sensitivity, not longer."""
    mechanism = mechanism_of(*features)
    longest = 0
    for corner in itertools.product(*((each.lowest, each.middle, each.highest) for each in mechanism.ranges)):
        if mechanism.weight:
            move = sum((x - each.middle) ** 2 for x, each in zip(corner, mechanism.ranges, strict=True))
            move += mechanism.weight**2
        else:
            move = sum((x - each.zero) ** 2 for x, each in zip(corner, mechanism.ranges, strict=True))
        longest = max(longest, move)
    assert longest == mechanism.sensitivity_squared
    assert mechanism.variance == Fraction(mechanism.sensitivity_squared) / (2 * Fraction(1, 2))


@given(st.lists(FEATURE, min_size=1, max_size=3), st.randoms(use_true_random=False), st.integers(0, 30))
def test_a_sum_without_noise_is_the_sum(features, random, n):
    mechanism = mechanism_of(*features)
    points = [[random.randint(each.lowest, each.highest) for each in mechanism.ranges] for _ in range(n)]
    twin = [
        sum((Fraction(point[k]) - each.zero for point in points), Fraction(0))
        for k, each in enumerate(mechanism.ranges)
    ]
    found = released(mechanism, points)
    assert found.value.tolist() == [float(x) for x in twin]
    assert found.count == (n if mechanism.weight else None)


@given(st.lists(FEATURE, min_size=1, max_size=4))
def test_the_better_way_is_taken(features):
    """By the formulas of the proof, with a weight that is a whole number."""
    mechanism = mechanism_of(*features)
    ranges, d = mechanism.ranges, len(features)
    direct = d * sum(each.largest**2 for each in ranges)
    wide, far = sum(each.half_width**2 for each in ranges), sum(float(each.middle - each.zero) ** 2 for each in ranges)
    best = min(
        (wide + w * w) * (d + far / (w * w)) for w in range(1, 3 + 2 * math.isqrt(math.isqrt(int(wide * far)) + 1))
    )
    if all(each.zero.denominator == 1 for each in ranges):
        best = min(best, direct)
    assert mechanism._total_variance() <= best * 1.02
    assert (mechanism._total_variance() <= direct * 1.0001) or any(each.zero.denominator > 1 for each in ranges)


def test_ten_features_far_from_zero_gain_what_the_proof_says():
    feature = {"minimum": 100_000.0, "maximum": 102_000.0}
    gains = []
    for d, ratio in ((10, 10), (100, 10)):
        offset = 1000.0 * ratio * math.sqrt(d) / math.sqrt(d)
        wide = {"minimum": offset - 1000.0, "maximum": offset + 1000.0}
        mechanism = mechanism_of(*[wide] * d)
        direct = d * sum(each.largest**2 for each in mechanism.ranges)
        gains.append(direct / mechanism._total_variance())
        assert mechanism.weight > 0
    assert mechanism_of(feature).weight == 0
    assert gains[0] > 2.5
    assert gains[1] > 5.3


def test_the_counter_is_exact_where_an_int64_is_not():
    counter = SumCounter(2)
    large = np.full((3, 2), 2.0**40) * [1, -1]
    for _ in range(3):
        counter.add(7, large)
    counter._held[7][1]._held = counter._held[7][1].max_rows  # as after very many records
    counter.add(7, large)
    counter.add(8, np.array([[1.0, 2.0]]))
    assert counter.panes == [7, 8]
    assert counter.view([6, 7, 8]) == WindowSums(13, [12 * 2**40 + 1, 2 - 12 * 2**40])
    counter.drop(7)
    counter.drop(7)
    assert counter.view([7, 8]) == WindowSums(1, [1, 2])
    assert counter.view([]) == WindowSums(0, [0, 0])


def test_sums_with_more_noise_than_can_be_drawn_are_made_coarser():
    wide = {"minimum": -1e9, "maximum": 1e9}
    mechanism = mechanism_of(wide, wide, rho=1e-9, step=0.002)
    assert mechanism.shift > 0
    assert mechanism.variance <= LARGEST_VARIANCE
    unit = 2**mechanism.shift
    assert mechanism.sensitivity_squared == sum((-(-each.largest // unit)) ** 2 for each in mechanism.ranges)
    rng = np.random.default_rng(5)
    for _ in range(200):  # flooring both sums moves each by no more than the rounded-up width
        before = [int(rng.integers(-(2**50), 2**50)) for _ in range(2)]
        record = [int(rng.integers(each.lowest, each.highest + 1)) for each in mechanism.ranges]
        for x, more, each in zip(before, record, mechanism.ranges, strict=True):
            assert abs(((x + more) >> mechanism.shift) - (x >> mechanism.shift)) <= -(-each.largest // unit)
    assert released(mechanism, [[0, 0]]).value.tolist() == [0.0, 0.0]


def test_a_range_says_how_much_a_record_adds():
    assert Range(-3, 4, Fraction(0)).largest == 4
    assert Range(-3, 4, Fraction(13, 2)).largest == 10  # rounded up
    assert (Range(-3, 4, Fraction(0)).middle, Range(-3, 4, Fraction(0)).half_width) == (0, 4)


def test_a_stream_releases_sums_in_the_features_own_units():
    raw = rows(900, seed=4)
    window = {"end": "1970-01-01T00:00:10Z"}
    engine = fcstream.Engine(sample(release=SUM, window=window), noise=Silent(SeededEntropy(3)))
    engine.push(np.zeros(len(raw), np.int64), raw)
    found = engine.close()[0]
    np.testing.assert_allclose(found.value, raw.sum(axis=0), atol=900 * 0.002)
    assert found.count == 900
    assert found.features == ["a", "b"]
    predicted = Config.from_mapping(sample(release=SUM, window=window)).job
    sigmas = predicted.answers[0].mechanism.predicted_sigmas(900, predicted.grid)
    assert sigmas == dict(zip(("sum of a", "sum of b"), found.sigma, strict=True))


@pytest.mark.slow
def test_noise_is_as_wide_as_sigma_says():
    rng = np.random.default_rng(2)
    points = rng.uniform(90.0, 110.0, size=(50, 3))
    noise = Noise(SeededEntropy(9))
    drawn = np.array(
        [fcstream.private_sum(points, rho=0.5, step=0.01, bounds=(90, 110), noise=noise).value for _ in range(800)]
    )
    sigma = fcstream.private_sum(points, rho=0.5, step=0.01, bounds=(90, 110), noise=noise).sigma
    # Five deviations of a sample variance of 800 draws: a false alarm in a million runs.
    ratio = drawn.std(axis=0) / np.array(sigma)
    assert np.all(np.abs(ratio - 1) < 5 / math.sqrt(2 * 800))
    assert np.all(np.abs(drawn.mean(axis=0) - points.sum(axis=0)) < 5 * np.array(sigma) / math.sqrt(800) + 50 * 0.005)


@pytest.mark.parametrize("bounds", [(0, 0), (5, 1), ("a", 2)])
def test_wrong_ranges_are_refused(bounds):
    with pytest.raises(fcstream.ConfigError):
        fcstream.private_sum([[1.0]], rho=1, step=0.1, bounds=bounds)


@pytest.mark.parametrize(
    ("features", "step", "rho"),
    [
        ([{"minimum": 0.0, "maximum": 1e9}] * 2, 0.01, 0.001),
        ([{"minimum": 0.0, "maximum": 1e12, "origin": 0.5}], 1.0, 0.01),
    ],
)
def test_a_weight_is_made_coarser_with_its_sums(features, step, rho):
    """Where the weight alone would ask for more noise than can be drawn."""
    mechanism = mechanism_of(*features, step=step, rho=rho)
    assert mechanism.variance <= LARGEST_VARIANCE
    unit = 2**mechanism.shift
    widths = [each.half_width if mechanism.weight else each.largest for each in mechanism.ranges]
    assert mechanism.sensitivity_squared == sum((-(-w // unit)) ** 2 for w in widths) + mechanism.weight**2
    finest = NoisySum(mechanism.loss, mechanism.ranges, mechanism.weight << mechanism.shift)
    assert mechanism._total_variance() <= 1.01 * finest._total_variance()


def test_a_plan_warns_of_rounding_that_is_larger_than_the_noise():
    coarse = grid_of({"minimum": 0.0, "maximum": 2.0}, step=1.0)
    mechanism = NoisySum.of(PrivacyLoss.charge(1.0), coarse)
    assert "50000 steps" in mechanism.notes(100_000, coarse).warnings[0]
    assert mechanism.notes(2, coarse).warnings == ()


def test_a_range_narrower_than_a_step_is_refused_when_the_configuration_is_read():
    """It was charged, and its release failed; beside another feature its sum was 0 and noise."""
    wide, narrow = ({"name": name, "min": 0.0, "max": most} for name, most in (("wide", 100.0), ("narrow", 1.0)))
    for features in ([narrow], [wide, narrow]):
        for kind in (SUM, SUM | {"kind": "total", "of": "sum", "epoch": "1m"}):
            config = sample(release=kind, lattice={"step": 10.0}) | {"features": features}
            with pytest.raises(ConfigError, match=r"^lattice.step: must be smaller: the range \[0, 1\] of 'narrow'"):
                _ = Config.from_mapping(config).job
    with pytest.raises(ConfigError, match=r"^step: must be smaller: the range \[-1000, 1000\] of .x0. is narrower"):
        fcstream.private_sum([[1.0]], rho=1, step=1e4, bounds=(-1000, 1000))
