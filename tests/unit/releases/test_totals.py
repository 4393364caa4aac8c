"""Running totals: integers and noise against twins in rationals, for every window of an epoch."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import naive_totals as naive

from fcstream import SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.noise.samplers import Noise
from fcstream.releases.statistics.columns import Column
from fcstream.releases.statistics.sum import LARGEST_VARIANCE, WindowSums
from fcstream.releases.totals.factor import MAX_WINDOWS, UNIT, Factor, factor
from fcstream.releases.totals.memory import EpochMemory, WindowState
from fcstream.releases.totals.sums import FeatureSums
from fcstream.stream.lattice import Feature, Grid, Lattice

THETA = Fraction(4, 5)
THETAS = st.sampled_from([Fraction(1), THETA, Fraction(3, 5), Fraction(1, 3)])
HALF = 500_000_000


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), THETAS, st.integers(1, 10**9), st.integers(1, 10**12))
def test_the_integers_are_those_of_the_rationals(windows, theta, sensitivity, rho_nano):
    found = factor(windows, theta)
    assert found.coefficients.tolist() == naive.coefficients(windows, theta)
    assert found.weights.tolist() == naive.weights(windows, theta)
    assert found.variance(sensitivity, rho_nano) == naive.variance(
        windows, theta, sensitivity, Fraction(rho_nano, 10**9)
    )


def test_coefficients_of_a_long_epoch_are_rounded_right():
    found = factor(3000, THETA).coefficients
    value = Fraction(1)
    for j in range(1, 3000):
        value = value * (2 * j - 1) / (2 * j)
        if j % 500 < 3:
            assert found[j] == math.floor(THETA * UNIT * value + Fraction(1, 2))


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 12),
    THETAS,
    st.sampled_from([1, 40, HALF, 10**9, 10**14]),
    st.sampled_from([1, 7, 10**9]),
    st.integers(0, 2**32),
    st.sampled_from([1, 1000, 2**60, 2**90]),
)
def test_what_is_released_is_what_the_rationals_say(windows, theta, rho_nano, sensitivity, seed, largest):
    """The memory never sees y; what it returns is a function of y alone, the same one."""
    found, random = factor(windows, theta), np.random.default_rng(seed)
    variance = min(found.variance(sensitivity, rho_nano), Fraction(LARGEST_VARIANCE))
    noise = Noise(SeededEntropy(seed))
    memory = EpochMemory(found, 3, variance)
    xs = [[int(random.integers(-(2**31), 2**31)) * largest >> 31 for _ in range(3)] for _ in range(windows)]
    zs = [noise.discrete_gaussian(variance, 3) for _ in range(windows)]
    rows, released = [], []
    for t in range(windows):
        if t == windows // 2:  # what is stored is all that is needed
            memory = EpochMemory.recall(found, 3, variance, rows)
        estimates, body = memory.next(xs[t], zs[t])
        rows.append((60 * t, body))
        memory.add(*rows[-1])
        released.append(estimates)
    ys = naive.noisy(windows, theta, xs, [z.tolist() for z in zs])
    expected = naive.estimates(windows, theta, ys, memory.bits)
    assert [each.window for each in released] == expected
    for t in range(windows):
        assert released[t].total == [sum(row[k] for row in expected[: t + 1]) for k in range(3)]
        for k in range(3):  # and rounding moves next to nothing
            free = sum(row[k] for row in naive.estimates(windows, theta, ys, None)[: t + 1])
            assert abs(released[t].total[k] - free) < released[t].total_noise / 50
    assert memory.opens == [60 * t for t in range(windows)]


@pytest.mark.slow
@pytest.mark.parametrize("theta", [Fraction(1), THETA, Fraction(3, 5)])
def test_deviations_are_those_of_the_triangular_system(theta):
    windows = 24
    found = Factor(windows, theta)
    memory = EpochMemory(found, 1, Fraction(1))
    for t in range(windows):
        total = naive.noise_of(windows, theta, 0, t + 1)
        assert found.noise_of_total(t + 1) == pytest.approx(total, rel=1e-9)
        assert found.noise_of_window(t + 1) == pytest.approx(naive.noise_of(windows, theta, t, t + 1), rel=1e-9)
        estimates, body = memory.next([0], np.zeros(1, np.int64))
        assert estimates.total_noise == pytest.approx(total, rel=1e-9)
        memory.add(t, body)
    for first, last in ((0, 5), (3, 4), (7, 24), (20, 24)):
        wanted = naive.noise_of(windows, theta, first, last)
        assert found.noise_of_range(first, last) == pytest.approx(wanted, rel=1e-9)
    assert found.largest_noise_of_total == pytest.approx(
        max(naive.noise_of(windows, theta, 0, t + 1) for t in range(24))
    )
    assert found.largest_noise_of_window == pytest.approx(
        max(naive.noise_of(windows, theta, t, t + 1) for t in range(24))
    )
    c, w = naive.coefficients(windows, theta), naive.weights(windows, theta)
    everyone = sum(sum(c[t - s] * w[s] for s in range(t + 1)) ** 2 for t in range(windows))
    assert found.repeated == pytest.approx(everyone / naive.variance(windows, theta, 1, Fraction(1, 2)))


@pytest.mark.parametrize(
    ("windows", "end", "worst", "single"),
    [(100, 2.27, 2.42, 1.54), (1440, 2.93, 3.28, 1.73), (4000, 3.18, 3.61, 1.80)],
)
def test_the_errors_that_the_specification_names(windows, end, worst, single):
    found = factor(windows, THETA)
    sigma = math.sqrt(found.variance(1, HALF))
    assert sigma * found.noise_of_total(windows) == pytest.approx(end, abs=0.006)
    assert sigma * found.largest_noise_of_total == pytest.approx(worst, abs=0.006)
    assert sigma * found.largest_noise_of_window == pytest.approx(single, abs=0.006)


@pytest.mark.parametrize("largest", [4000, 2**32])
def test_a_long_epoch_across_blocks_is_exact(largest):
    """More windows than one array holds, with noise of 32 bits and of more."""
    windows, theta = 9000, Fraction(1)
    found, random = factor(windows, theta), np.random.default_rng(3)
    memory = EpochMemory(found, 2, found.variance(1, HALF))
    noise = [random.integers(-largest if t % 5000 == 4999 else -50, 50, 2) for t in range(8500)]
    for t, drawn in enumerate(noise):
        memory._keep(t, drawn)
    c, w = found.coefficients.tolist(), found.weights.tolist()
    past = [sum(c[8500 - u] * w[u] * int(noise[u][k]) for u in range(8500)) for k in range(2)]
    assert memory._past().tolist() == past


def _state(drawn):
    return WindowState.of([0] * len(drawn), drawn)


def test_a_damaged_state_is_noticed():
    found = factor(4, THETA)
    memory = EpochMemory(found, 2, Fraction(2**40))
    _, body = memory.next([1, 2], np.array([5, -7]))
    for rows in ([(0, b"")], [(0, body[:-1])], [(0, body)] * 5, [(0, body.replace(b"1", b"x"))]):
        with pytest.raises(ValueError, match="no memory of an epoch"):
            EpochMemory.recall(found, 2, Fraction(2**40), rows)
    with pytest.raises(ValueError, match="no memory of an epoch"):
        EpochMemory.recall(found, 3, Fraction(2**40), [(0, body)])


def test_nothing_private_is_shown():
    memory = EpochMemory(factor(4, THETA), 1, Fraction(2**40))
    _, body = memory.next([123456789], np.array([5]))
    memory.add(0, body)
    assert "123456789" not in f"{memory!r} {_state(np.array([123456789]))!r}"


FEATURE = st.builds(
    lambda low, width, origin, scale: {"minimum": low, "maximum": low + width, "origin": origin, "scale": scale},
    st.integers(-40, 40),
    st.integers(1, 60),
    st.sampled_from([0.0, 3.0, -17.5, 0.3, 100.0]),
    st.sampled_from([1.0, 2.0, 0.25]),
)


@settings(deadline=None)
@given(st.lists(FEATURE, min_size=1, max_size=3), st.integers(0, 12), st.data())
def test_one_record_moves_sums_by_what_is_paid_for(features, shift, data):
    """Rounding to the nearest multiple included, whatever the others add up to."""
    grid = Grid(Lattice(0.5), tuple(Feature(f"x{k}", **facts) for k, facts in enumerate(features)))
    columns = [Column.of(grid, feature.name) for feature in grid.features]
    assume(all(column.lowest < column.highest for column in columns))  # else the configuration is refused
    loss = PrivacyLoss.charge(0.5)
    for way in FeatureSums.of(loss, grid, lambda squared: Fraction(squared)).inner.ways(loss, grid):
        sums = FeatureSums(way.coarser(shift))
        others = [data.draw(st.integers(-(10**6), 10**6)) for _ in features]
        record = [data.draw(st.sampled_from([each.lowest, each.highest, each.middle])) for each in way.ranges]
        before = sums.integers(WindowSums(7, others))
        after = sums.integers(WindowSums(8, [a + b for a, b in zip(others, record, strict=True)]))
        assert len(before) == sums.size
        assert sum((a - b) ** 2 for a, b in zip(after, before, strict=True)) <= sums.sensitivity_squared


def test_sums_of_wide_ranges_are_made_coarse_enough_to_draw_their_noise():
    loss = PrivacyLoss.charge(1e-6)
    grid = Grid(Lattice(1e-6), (Feature("power", 0.0, 1e6),))
    found = factor(1000, THETA)
    sums = FeatureSums.of(loss, grid, lambda squared: found.variance(squared, loss.rho_nano))
    assert sums.inner.shift > 0
    assert found.variance(sums.sensitivity_squared, loss.rho_nano) <= LARGEST_VARIANCE
    finer = FeatureSums(sums.inner.coarser(sums.inner.shift - 1))
    assert found.variance(finer.sensitivity_squared, loss.rho_nano) > LARGEST_VARIANCE


def test_the_longest_epoch_fits_the_integers():
    found = factor(MAX_WINDOWS, Fraction(1))
    assert found.mass * 2**28 < 2**63  # a thousand deviations of the widest noise that is drawn
    assert int(found.weights[-1]) < 256
    assert found.energy < 2**53
    assert found.weights[0] == 64
