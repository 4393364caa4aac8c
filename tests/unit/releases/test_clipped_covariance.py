"""Covariances by clipped moments: the slow twin, what a stage costs, what follows from a matrix, and refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive_moments
from support.helpers import Paid, sample

import fcstream
from fcstream import ConfigError, Engine, Noise, SeededEntropy
from fcstream._kernels import moments
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.counting.exact import FriendCounts
from fcstream.counting.rows import RowsView
from fcstream.errors import UnusablePlan
from fcstream.planning.plan import plan
from fcstream.releases.options import BuildContext
from fcstream.releases.statistics.clipped import ClippedCovariance, ClippedCovarianceOptions
from fcstream.releases.statistics.clipped_sums import ClippedSums
from fcstream.releases.statistics.columns import Column
from fcstream.releases.statistics.correlations import MatrixNoise, correlations, principal_components, regression
from fcstream.releases.statistics.quantiles import intervals, missing_ranks
from fcstream.releases.statistics.scales import (
    MedianLearner,
    SpreadLearner,
    ascending,
    drawn_quantile,
    sampled_rows,
    spread_rungs,
)
from fcstream.releases.statistics.shapes import LEVEL, RUNGS, Coordinates
from fcstream.stream.lattice import Feature, Grid, Lattice

BARE = dict.fromkeys(("method", "radius", "spread", "delta"))
RELEASE = {**BARE, "kind": "covariance", "rho": 4.0, "size_hint": 300}
LOWER, HIGHER = (lambda column, v: int((column < v).sum())), (lambda column, v: int((column > v).sum()))
TRUTH = np.array([[4.0, 3.0], [3.0, 9.0]])


def job_of(**release):
    end = {"end": "1970-01-01T00:00:10Z"}
    return Config.from_mapping(sample(release=RELEASE | release, window=end, budget={"rho": 900.0, "delta": 1e-4})).job


def mechanism_of(**release):
    return job_of(**release).answers[0].mechanism


def view_of(rows):
    counter = FriendCounts(rows.shape[1], None)
    counter.add(0, rows)
    return counter.view([0])


def lattice_rows(n, seed=0, wild=0):
    random = np.random.default_rng(seed)
    rows = np.rint(random.multivariate_normal([500, -300], TRUTH * 1e4, n))
    rows[:wild] = [60_000.0, 25_000.0]
    return rows


# -- the mechanism --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["learned", "declared"])
@pytest.mark.parametrize("rho", [4.0, 400.0])
def test_a_release_equals_the_slow_twin_with_the_same_draws(scale, rho):
    mechanism = mechanism_of(scale=scale, rho=rho, size_hint=1000)
    rows = lattice_rows(700, wild=9 if rho < 9 else 1)
    points = view_of(rows).points()  # in the order in which the mechanism reads them
    outcome = mechanism.release(view_of(rows), Paid(), Noise(SeededEntropy(5)))
    size, coordinates, squared, shift, outside, sums, products = naive_moments.release(
        points.astype(int).tolist(), mechanism, Noise(SeededEntropy(5))
    )
    assert (coordinates.turn is not None) == (scale == "learned")
    assert (outcome.count, outcome.core_count) == (size, size - outside)
    means, units = [x / size for x in sums], 2**shift / coordinates.factors
    limit = squared >> (2 * shift)
    mean_variance = limit * 1e9 / (2 * mechanism.shares["sums"].rho_nano) / size**2
    expected = [
        [p / size - a * b for p, b in zip(row, means, strict=True)] for row, a in zip(products, means, strict=True)
    ]
    for i in range(2):
        expected[i][i] += mean_variance
    assert np.linalg.eigvalsh(expected)[0] > 0  # else the nearest matrix is released
    back = units[:, None] * coordinates.back
    assert outcome.value == pytest.approx(back @ np.array(expected) @ back.T, rel=1e-9)
    assert outcome.parts["mean"] == pytest.approx(coordinates.middles + back @ means)
    assert outcome.parts["mean_sigma"] == pytest.approx(np.sqrt(mean_variance * np.diag(back @ back.T)), rel=1e-3)
    assert outcome.parts["tail_share"] == max(0, outside / size)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31), min_size=3, max_size=3), min_size=1, max_size=6),
    st.integers(0, 60),
    st.integers(0, 12),
)
def test_clipped_rows_are_integers_in_the_ball(rows, power, shift):
    squared = max(2**power + 3, 4**shift)
    limit = squared >> (2 * shift)
    tiles, norms = np.full((1, 3, 32), np.inf), np.empty((1, 32))
    tiles[0, :, : len(rows)] = np.transpose(rows)
    moments.scaled_norms(tiles, np.zeros(3), np.ones(3), norms)
    assert norms[0, len(rows) :].tolist() == [math.inf] * (32 - len(rows))
    assert norms[0, : len(rows)] == pytest.approx([sum(x * x for x in row) for row in rows], rel=1e-15)
    norms[0, : len(rows)] = [float(sum(x * x for x in row)) for row in rows]
    for kind in (np.float64, np.int16) if limit < 2**29 else (np.float64,):
        codes = np.ones((4, 32), kind)
        ball = float(squared), float(2**shift), float(limit)
        outside = moments.clip_tiles(tiles, np.zeros(3), np.ones(3), norms, *ball, codes)
        assert outside == sum(sum(x * x for x in row) > squared for row in rows)
        assert not codes[:3, len(rows) :].any()
    for before, after in zip(rows, codes[:3].T.astype(int).tolist(), strict=False):
        assert sum(x * x for x in after) <= limit
        assert after == naive_moments.clipped(before, squared, shift)
        assert all(abs(x) <= abs(y) / 2**shift and x * y >= 0 for x, y in zip(after, before, strict=True))


def test_rungs_are_counted_as_a_search_of_each_value_would_count_them():
    rng = np.random.default_rng(2)
    for _ in range(60):
        rungs = np.unique(np.floor(2.0 ** np.sort(rng.uniform(0, rng.uniform(1, 90), rng.integers(1, 700)))))
        values = np.floor(2.0 ** rng.uniform(-2, rng.uniform(1, 95), 500))
        values[:100] = rng.choice(rungs, 100)

        class Counted(Noise):
            def exponential_choice(self, sizes, costs, rate):
                self.costs = costs
                return 0

        mechanism, noise = mechanism_of(), Counted()
        _ = mechanism.radius_level
        mechanism.__dict__["ladder"] = tuple(map(int, rungs))
        mechanism._radius(values, noise)
        at = np.minimum(np.searchsorted(rungs, values), len(rungs) - 1)
        counts = np.bincount(at, minlength=len(rungs))
        below = np.cumsum(counts) - counts
        above = len(values) - below - counts
        assert noise.costs.tolist() == missing_ranks(below, above, len(values), mechanism.radius_level).tolist()


@pytest.mark.parametrize("limit", [2**34 // 512 - 1, 2**29 - 1, 2**29, 2**38 - 1])
@pytest.mark.parametrize("shape", ["alike", "opposed", "mixed"])
def test_sums_of_products_are_exact_at_the_ends_of_what_is_proven(limit, shape):
    """Records as long as may be, with all products as large as may be, in more than one block of each kind."""
    random, root = np.random.default_rng(3), math.isqrt(limit)
    rows = np.zeros((2100 if limit >= 2**29 else 1100, 5))
    if shape == "mixed":
        rows[:] = np.rint(random.normal(size=rows.shape) * root)
    else:  # all of the squared norm in one coordinate, or in two of opposite signs
        rows[:, :1] = root if shape == "alike" else math.isqrt(limit // 2)
        rows[:, 3:4] = 0 if shape == "alike" else -math.isqrt(limit // 2)
    clipped = ClippedSums(view_of(rows), Coordinates.plain([0] * 5, None))
    sums, products, beyond = clipped.within(limit, 0)
    expected = [naive_moments.clipped(row, limit, 0) for row in rows.astype(int).tolist()]
    assert (sums.tolist(), products.tolist()) == naive_moments.moments(expected)
    assert beyond == sum(sum(x * x for x in row) > limit for row in rows.astype(int).tolist())
    assert (beyond > 0) == (shape == "mixed")


def test_arrays_and_windows_tell_the_same_however_they_are_divided():
    """Rows of an array, a window that got them in three parts, and one whose tiles are not filled."""
    random = np.random.default_rng(0)
    rows = np.rint(random.normal(size=(1300, 6)) * [1, 10, 100, 1000, 3, 5])
    grid = Grid(Lattice(0.5), tuple(Feature(f"x{k}", -4000.0, 4000.0, scale=2.0) for k in range(6)))
    mechanism = ClippedCovarianceOptions(rho=4.0, size_hint=1300).build(BuildContext(grid))
    whole, parts = view_of(rows), FriendCounts(6, None)
    for part in np.array_split(rows, 3):
        parts.add(0, part)
    loose = FriendCounts(6, None, reach=3)
    for pane, part in enumerate(np.array_split(rows, 3)):
        loose.add(pane, part)
    found = []
    for view in (RowsView(rows, grid), whole, parts.view([0]), loose.view([0, 1, 2])):
        outcome = mechanism.release(view, Paid(), Noise(SeededEntropy(4)))
        found.append(
            (outcome.value.tolist(), outcome.sigma.tolist(), outcome.parts["mean"].tolist(), outcome.core_count)
        )
        some = np.flatnonzero(random.random(1300) < 0.1)
        assert view.points_at(some).tolist() == rows[some].tolist()
    assert found == found[:1] * 4


def test_near_candidates_of_a_quantile_are_those_of_the_whole_range():
    """The draw is that among all candidates, most of which are never looked at."""
    random, sure = np.random.default_rng(5), 0

    class Counted(Noise):
        def exponential_answer(self, quick, *rest):
            nonlocal sure

            def counted(drawn, bits):
                nonlocal sure
                answer = quick(drawn, bits)
                sure += answer is not None
                return answer

            return super().exponential_answer(counted, *rest)

    for seed in range(400):
        span, n = int(random.choice([1, 3, 40, 10**6, 2**40])), int(random.integers(1, 60))
        values = np.sort(random.integers(0, min(span, int(random.choice([1, 5, 10**6]))), n)).astype(
            random.choice(["i4", "i8"])
        )
        level = Fraction(int(random.integers(1, 10)), 10) if seed % 3 else Fraction(1, 2)
        rate = Fraction(int(random.integers(1, 10**6)), 10 ** int(random.integers(5, 9)))
        starts, sizes, below, above = intervals(values.astype(np.int64), 0, span - 1)
        index = Noise(SeededEntropy(seed)).exponential_choice(sizes, missing_ranks(below, above, n, level), rate)
        found = drawn_quantile(values, span, level, rate, Counted(SeededEntropy(seed)))
        assert found == (starts[index], sizes[index]), seed
    assert sure >= 399, sure


@pytest.mark.parametrize("span", [1000, 2**20, 2**35])
def test_coordinates_are_sorted_within_the_public_ranges(span):
    random = np.random.default_rng(1)
    rows = np.rint(random.normal(size=(2500, 2)) * span)
    columns = [Column(k, Feature("a", -1e6, 1e6), low, low + span) for k, low in enumerate((-span // 3, 5))]
    chosen = np.flatnonzero(random.random(2500) < 0.9)
    found = ascending(chosen, rows.__getitem__, columns)
    for own, column in zip(found.tolist(), columns, strict=True):
        kept = [min(max(x, column.lowest), column.highest) for x in rows[chosen, column.index].astype(int).tolist()]
        assert own == sorted(x - column.lowest for x in kept)


def test_a_scale_is_found_where_many_records_share_a_value():
    """A third of the records at the lower end of a feature, whose range is a billion values wide."""
    random = np.random.default_rng(0)
    rows = np.rint(random.exponential(100, (3000, 1)))
    rows[:1000] = 2.0
    column = Column(0, Feature("a", -1e6, 1e6), -(2**30), 2**30)
    medians = MedianLearner(PrivacyLoss.charge(0.01), (column,))
    spreads = SpreadLearner(PrivacyLoss.charge(0.01), (column,), LEVEL, RUNGS)
    assert max(medians.needed, spreads.needed) < 3000
    values = ascending(np.arange(3000), rows.__getitem__, [column])
    for seed in range(30):
        middles = medians.learn_sorted(values, noise := Noise(SeededEntropy(seed)))
        (found,) = spreads.learn_sorted(values, middles, noise)
        assert 50 < found < 500


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.integers(0, 9),
    st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(49, 50)]),
)
def test_one_record_moves_a_cost_by_what_is_paid_for(values, extra, level):
    def costs(values):
        column = np.array(values)
        below, above = (np.array([count(column, v) for v in range(10)]) for count in (LOWER, HIGHER))
        return missing_ranks(below, above, len(values), level)

    most = max(level.numerator, level.denominator - level.numerator)
    assert np.abs(costs(values) - costs([*values, extra])).max() <= most


@pytest.mark.parametrize("scale", ["learned", "declared"])
def test_stages_pay_for_their_noise_and_add_up(scale):
    """Each stage's noise is that of its sensitivity, for every radius; quantiles have the range they pay for."""
    drawn, paid, mechanism = [], Paid(), mechanism_of(scale=scale, rho=2.0)

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append(("gaussian", variance, size, paid.stages[-1]))
            return super().discrete_gaussian(variance, size)

        def exponential_answer(self, quick, everything, of_index, rate):
            drawn.append(("choice", rate, None, paid.stages[-1]))
            return super().exponential_answer(quick, everything, of_index, rate)

    outcome = mechanism.release(view_of(lattice_rows(400)), paid, Recording(SeededEntropy(1)))
    assert outcome.reason is None
    assert sum(stage.rho_nano for stage in paid.stages) == mechanism.loss.rho_nano
    assert [stage.delta_femto for stage in paid.stages] == [0] * (8 if scale == "learned" else 6)
    gaussians = [(variance, size, loss) for kind, variance, size, loss in drawn if kind == "gaussian"]
    shift = 0  # units of this radius need none
    radius = outcome.parts["radius"] * (400 if scale == "learned" else 1)
    count, *first, sums, diagonal, below, outside = gaussians
    for (variance, _, loss), squared in zip((count, outside, sums), [1, 1, radius**2 / 4**shift], strict=True):
        assert squared * 10**9 / (2 * variance) <= loss.rho_nano * (1 + 1e-12)
    if first:  # its ball is public, and its sums and products share a stage
        ball, loss = 4 * 2 * 400**2, mechanism.shares["first"].rho
        shares = [ball / (2 * first[0][0]), ball**2 / (2 * first[1][0])]
        assert {each[2].rho for each in first} == {loss}
        assert 0.999 * loss <= sum(shares) <= loss * (1 + 1e-9)
        assert first[2][0] * 2 == first[1][0]
    assert (diagonal[1], below[1]) == (2, 1)
    assert below[0] * 2 == diagonal[0]
    # the worst record on the sphere costs all of the share: any direction the same
    for angle in (0.0, 0.3, math.pi / 4):
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        cost = (x**4 + y**4) / (2 * diagonal[0]) + (x * y) ** 2 / (2 * below[0])
        assert 0.999 * diagonal[2].rho <= cost <= diagonal[2].rho * (1 + 1e-9)
    choices = [(rate, loss) for kind, rate, _, loss in drawn if kind == "choice"]
    levels = [Fraction(1, 2)] * 2 + [Fraction(4, 5)] * (2 if first else 0) + [mechanism.radius_level]
    spent = {}
    for (rate, loss), level in zip(choices, levels, strict=True):
        epsilon = rate * 2 * max(level.numerator, level.denominator - level.numerator)
        spent[level] = spent.get(level, 0) + epsilon**2 / 8 * 10**9
        assert spent[level] <= loss.rho_nano


def test_the_rate_of_a_sample_is_that_of_the_released_number():
    """By the true number of records one more would move the coins of all others."""
    mechanism = mechanism_of(size_hint=20_000)
    for size in (10_000, 20_000):
        rates, rows = [], lattice_rows(size)

        class Recording(Noise):
            def failures(self, rate, size, rates=rates):
                rates.append(rate)
                return super().failures(rate, size)

        outcome = mechanism.release(view_of(rows), Paid(), Recording(SeededEntropy(5)))
        assert outcome.count != size
        assert set(rates) == {Fraction(mechanism.sample, outcome.count)}


def test_a_sample_is_made_of_independent_coins():
    noise = Noise(SeededEntropy(3))
    found = [sampled_rows(1000, Fraction(1, 5), noise) for _ in range(300)]
    assert all((np.diff(rows) > 0).all() and (rows.size == 0 or rows[-1] < 1000) for rows in found)
    sizes = np.array([len(rows) for rows in found])
    assert abs(sizes.mean() - 200) < 4
    assert 9 < sizes.std() < 17  # 12.6
    assert sampled_rows(0, Fraction(1, 5), noise).size == 0


# -- what is released ----------------------------------------------------------------------------------------------


def test_covariances_of_five_thousand_records_and_what_follows_from_them():
    random = np.random.default_rng(1)
    rows = random.multivariate_normal([20, 50], TRUTH, 5000)
    rows = np.column_stack([rows, 3 + 2 * rows[:, 0] - rows[:, 1] + random.normal(0, 0.5, 5000)])
    answer = fcstream.private_covariance(
        rows,
        rho=2,
        size_hint=5000,
        step=1e-3,
        bounds=(-1e4, 1e4),
        components=2,
        target=2,
        noise=Noise(SeededEntropy(0)),
    )
    truth = np.cov(rows.T)
    value, sigma, parts = np.array(answer.value), np.array(answer.sigma), answer.parts
    assert (np.abs(value - truth) < 5 * sigma + 0.06 * np.sqrt(np.outer(np.diag(truth), np.diag(truth)))).all()
    assert np.abs(np.array(parts["correlations"]) - np.corrcoef(rows.T)).max() < 0.02
    assert np.abs(np.array(parts["mean"]) - rows.mean(axis=0)).max() < 0.3
    assert 0 <= parts["tail_share"] < 0.02
    assert parts["explained"][0] > parts["explained"][1] > 0
    slopes, deviations = parts["coefficients"], parts["coefficient_sigma"]
    assert abs(slopes["x0"] - 2) < 5 * deviations["x0"] + 0.1
    assert abs(slopes["x1"] + 1) < 5 * deviations["x1"] + 0.1
    assert max(deviations.values()) < 0.2
    assert abs(parts["intercept"] + slopes["x0"] * 20 + slopes["x1"] * 50 - rows[:, 2].mean()) < 0.5
    assert (answer.rho, answer.delta) == (2, 0)


@pytest.mark.parametrize(("d", "rho"), [(1, 0.5), (2, 5.0), (2, 0.2)])
def test_clipping_takes_of_normal_records_what_is_predicted_and_no_more_than_a_few_sigmas(d, rho):
    """Every entry of every window was below the truth, by 1 to 6 sigmas."""
    mechanism = mechanism_of(rho=rho, size_hint=2000, features=["a", "b"][:d])
    missing, sigmas = [], []
    for seed in range(25):
        rows = np.rint(np.random.default_rng(seed).normal(size=(2000, d)) * 300)
        found = mechanism.release(view_of(rows), Paid(), Noise(SeededEntropy(seed)))
        missing.append(1 - np.diag(found.value) / rows.var(axis=0))
        sigmas.append(np.diag(found.sigma) / rows.var(axis=0))
    part, sigma, told = np.mean(missing), np.mean(sigmas), mechanism.clipped_away
    assert part < 1.5 * sigma
    assert abs(part - told) < 0.4 * told + 4 * sigma / len(missing) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["learned", "declared"])
def test_sigmas_are_the_deviations_of_the_noise(scale):
    """Of a window whose records lie far inside of the ball's border, so that only noise moves the answer."""
    mechanism = mechanism_of(scale=scale, rho=1.0, size_hint=1000)
    view, noise = view_of(lattice_rows(1000)), Noise(SeededEntropy(2))
    fixed = 2000**2 if scale == "declared" else (6 * 400) ** 2  # one radius: the noise is the same in all runs

    class Fixed(ClippedCovariance):
        def _radius(self, norms, noise):
            return fixed

    mechanism = Fixed(**{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__})
    found = [mechanism.release(view, Paid(), noise) for _ in range(400)]
    values = np.array([each.value for each in found])
    middle = np.mean([each.sigma for each in found], axis=0)
    assert values.std(axis=0) / middle == pytest.approx(np.ones((2, 2)), abs=0.15)
    assert np.abs(values.mean(axis=0) - np.cov(lattice_rows(1000).T)).max() < 4 * middle.max() / 20 + 100
    made = [correlations(each.parts["matrix"], each.parts["noise"]) for each in found]
    assert np.std([c[0, 1] for c, _ in made]) == pytest.approx(np.mean([s[0, 1] for _, s in made]), rel=0.15)


def noise_of(entry, d):
    return MatrixNoise(np.eye(d) * entry, np.zeros(d), np.zeros((d, d)), 0.0)


def test_correlations_are_null_where_noise_hides_a_variance():
    matrix = np.array([[4.0, 1.0], [1.0, 0.3]])
    found, deviations = correlations(matrix, noise_of(0.1, 2))
    assert np.isnan(found[1]).all()
    assert np.isnan(deviations[0, 1])
    assert found[0, 0] == 1.0


def test_deviations_are_those_of_noise_that_was_turned():
    """Of a matrix, and of its correlations: noise of the products in turned coordinates, of the mean, of the number."""
    random = np.random.default_rng(4)
    d, back = 3, np.array([[1.0, 0.4, 0.0], [0.7, 1.0, -0.2], [0.0, 0.3, 2.0]])
    matrix, mean = back @ back.T + np.eye(d) / 2, np.array([0.5, -1.0, 2.0])
    entry, of_mean, of_size = 0.004, 1e-5, 1e-5
    noise = MatrixNoise(entry * back @ back.T, mean, of_mean * back @ back.T, of_size)
    values, found = [], []
    for _ in range(4000):
        blur = np.tril(random.normal(size=(d, d)), -1)
        blur = back @ (blur + blur.T + np.diag(random.normal(size=d)) * 2**0.5) @ back.T * entry
        moved, size = mean + back @ random.normal(size=d) * of_mean**0.5, 1 + random.normal() * of_size**0.5
        told = (matrix + np.outer(mean, mean) + blur) / size - np.outer(moved, moved) / size**2
        told += np.outer(moved - mean, moved - mean)  # of second order
        values.append(told)
        found.append(told / np.sqrt(np.outer(np.diag(told), np.diag(told))))
    assert np.std(values, axis=0) == pytest.approx(noise.sigma(matrix), rel=0.06)
    told = np.std(found, axis=0) + np.eye(d)
    assert told == pytest.approx(correlations(matrix, noise)[1] + np.eye(d), rel=0.06)


def test_principal_components_have_fixed_signs():
    directions, shares = principal_components(np.array([[2.0, -1.0], [-1.0, 2.0]]), 2)
    assert directions == pytest.approx(np.array([[1, -1], [1, 1]]) / math.sqrt(2))
    assert shares == pytest.approx([0.75, 0.25])
    assert principal_components(np.zeros((2, 2)), 1)[1].tolist() == [0.0]


@pytest.mark.parametrize("back", [np.eye(3), np.array([[1.0, 0.5, 0], [0.2, 1, 0], [0.5, 0.3, 2]])])
def test_a_regression_knows_its_noise_and_is_null_where_that_hides_a_direction(back):
    random = np.random.default_rng(0)
    truth = np.array([[4.0, 1.0, 7.0], [1.0, 2.0, 1.0], [7.0, 1.0, 15.0]])
    noise, found, spread = 0.01, [], 0.01 * back @ back.T
    for _ in range(2000):
        blur = np.tril(random.normal(0, noise, (3, 3)), -1)
        blur = back @ (blur + blur.T + np.diag(random.normal(0, noise * 2**0.5, 3))) @ back.T
        found.append(regression(truth + blur, spread, 1e12, 2))
    slopes, sigma = np.array([each[0] for each in found]), np.mean([each[1] for each in found], axis=0)
    assert slopes.mean(axis=0) == pytest.approx(np.linalg.solve(truth[:2, :2], truth[:2, 2]), abs=2e-3)
    assert slopes.std(axis=0) == pytest.approx(sigma, rel=0.1)
    assert regression(np.array([[1.0, 1.0, 0], [1.0, 1.01, 0], [0, 0, 1]]), spread, 100, 2) is None


@pytest.mark.parametrize("n", [0, 1, 40])
def test_few_records_are_refused_for_three_percent(n):
    paid = Paid()
    mechanism = mechanism_of(rho=1.0, size_hint=2000)
    outcome = mechanism.release(view_of(lattice_rows(n)), paid, Noise(SeededEntropy(0)))
    assert outcome.reason == "too_few"
    assert [stage.rho for stage in paid.stages] == [0.03]
    assert mechanism.false_release <= 1e-4


@pytest.mark.parametrize("rows", [np.full((900, 2), 7.0), np.column_stack([np.arange(900.0)] * 2), np.zeros((900, 2))])
def test_degenerate_records_have_an_answer(rows):
    mechanism = mechanism_of(rho=4.0, components=1, target="a", size_hint=900)
    outcome = mechanism.release(view_of(rows), Paid(), Noise(SeededEntropy(0)))
    values = mechanism.to_user_units(outcome, job_of().grid)
    assert np.linalg.eigvalsh(np.array(values.value))[0] >= -1e-9
    assert values.parts["coefficients"] is None or set(values.parts["coefficients"]) == {"b"}


def test_windows_and_plans():
    random = np.random.default_rng(2)
    rows = random.multivariate_normal([20, 50], TRUTH, 6000)
    release = {name: value for name, value in RELEASE.items() if value is not None}
    release |= {"rho": 1.0, "size_hint": 3000, "components": 1, "target": "b"}
    config = sample(
        release=BARE | release,
        window={"end": "1970-01-01T00:00:20Z", "slide": "5s", "start": "1970-01-01T00:00:00Z"},
        budget={"rho": 9.0, "delta": 0.0},
    )
    engine = Engine(config, noise=Noise(SeededEntropy(4)))
    engine.push(np.arange(6000) * 20_000 // 6000, rows)
    released = engine.close()
    assert [each.status for each in released] == ["released"] * 3
    for each in released:
        assert each.parts["correlations"][0][1] == pytest.approx(0.5, abs=0.05)
        assert each.features == ["a", "b"]
        assert each.parts["coefficients"]["a"] == pytest.approx(0.75, abs=0.1)
    told = plan(Config.from_mapping(config))
    assert any("10% of rho finds how features vary together" in note for note in told.notes)
    few = mechanism_of(rho=0.1).notes(40, job_of().grid)
    assert any("noise hides" in warning for warning in few.warnings)
    with pytest.raises(UnusablePlan, match="longer windows"):
        plan(Config.from_mapping(config | {"release": {**release, "size_hint": 300, "rho": 0.02}}))


def test_a_step_beyond_the_ranges_is_refused():
    """It ended in a "math domain error", since the range of every feature was one point of the lattice."""
    with pytest.raises(ConfigError, match=r"lattice\.step: must be smaller: the range .* of 'a' is"):
        Config.from_mapping(sample(lattice={"step": 1e18}, release=RELEASE))


def test_what_cannot_be_is_refused():
    for wrong, key in (
        ({"components": 3}, "components"),
        ({"target": "c"}, "target"),
        ({"rho": 1e-6}, "rho"),
        ({"size_hint": None}, "size_hint"),
    ):
        with pytest.raises(ConfigError, match=key):
            job_of(**wrong)
    options = {"step": 1e-3, "bounds": (-10, 10)}
    rows = np.zeros((5, 2))
    for wrong, key in (
        ({"rho": 1.0}, "size_hint"),
        ({"size_hint": 5}, "rho"),
        ({"rho": 1.0, "size_hint": 5, "scale": "own"}, "scale"),
        ({"rho": 1.0, "size_hint": 5, "shards": 9}, "shards"),
        ({"rho": 1.0, "size_hint": 5, "delta": 1e-9}, "delta"),
        ({"rho": 1.0, "size_hint": 5, "method": "other"}, "method"),
        ({"epsilon": 1.0, "method": "friendly"}, "shards"),
        ({"epsilon": 1.0, "shards": 900, "delta": 1e-6, "rho": 1.0, "method": "friendly"}, "rho"),
    ):
        with pytest.raises(ConfigError, match=key):
            fcstream.private_covariance(rows, **options, **wrong)


def test_shares_are_those_of_the_records():
    """More of rho for medians and spreads where there are few records; a first release unless noise would hide it."""
    found = [mechanism_of(rho=0.1, size_hint=size) for size in (100_000, 1500, 400, 30)]
    least = [each.shares["medians"].rho + each.shares["spreads"].rho for each in found]
    assert least[0] == pytest.approx(0.001)
    assert least == sorted(least)
    assert least[-1] == pytest.approx(0.2 / 7)
    assert ["first" in each.shares for each in found] == [True, True, True, False]
    assert all(sum(loss.rho_nano for loss in each.shares.values()) == each.loss.rho_nano for each in found)
    assert "spreads" not in mechanism_of(scale="declared").shares
    assert [mechanism_of(size_hint=size).turns for size in (2**22, 2**22 + 1)] == [True, False]


@given(
    st.lists(st.integers(-60, 60), min_size=1, max_size=30),
    st.integers(-60, 60),
    st.sampled_from([40, 119, 2**33]),
    st.sampled_from([(Fraction(4, 5), 2), (Fraction(1, 2), 64)]),
)
@settings(max_examples=50)
def test_spreads_have_the_costs_of_a_count(values, middle, span, kind):
    level, rungs = kind

    class Counted(Noise):
        def exponential_choice(self, sizes, costs, rate):
            self.costs = costs
            return len(costs) - 1

    noise, column = Counted(), Column(0, Feature("a", -1e6, 1e6), -span // 2, -span // 2 + span)
    middle = min(max(middle, column.lowest), column.highest)
    sorted_values = ascending(np.arange(len(values)), np.array(values, float)[:, None].__getitem__, [column])
    found = SpreadLearner(PrivacyLoss.charge(0.1), (column,), level, rungs).learn_sorted(sorted_values, [middle], noise)
    ladder = spread_rungs(column, rungs).tolist()
    assert ladder[-1] == span
    assert found == [span]
    far = [abs(min(max(v, column.lowest), column.highest) - middle) for v in values]
    at = [next(k for k, rung in enumerate(ladder) if x <= rung) for x in far]
    assert noise.costs.tolist() == [
        naive_moments.missing(sum(x < k for x in at), sum(x > k for x in at), len(at), level)
        for k in range(len(ladder))
    ]


def test_coordinates_turn_correlated_records_into_a_ball_and_back():
    random = np.random.default_rng(0)
    plain = Coordinates.plain([10, -20, 5], [152, 1522, 15])
    truth = 400**2 * np.array([[1.2, 1.0, 0.1], [1.0, 1.1, 0.0], [0.1, 0.0, 3.0]])
    rows = random.multivariate_normal(np.zeros(3), truth, 4000) / plain.factors + plain.middles
    mean = np.array([40.0, 0.0, -80.0])
    for turns in (True, False):
        found = plain.moved(mean, truth, 0.0, turns=turns)
        units = (rows - found.middles) * found.factors
        assert found.middles == pytest.approx(plain.middles + mean / plain.factors)
        assert units.std(axis=0) == pytest.approx(np.full(3, 400), rel=0.05)
        turned = units if found.turn is None else units @ found.turn.T
        assert turned @ found.back.T == pytest.approx(units)
        uneven = [np.ptp(np.log(np.linalg.eigvalsh(np.cov(each.T)))) for each in (turned, units)]
        assert uneven[0] == pytest.approx(uneven[1] * (0.4 if turns else 1), rel=0.05)
    # where noise hides everything, nothing is turned, and variances are taken for those of the spreads
    lost = plain.moved(mean, truth, 400.0**2 * 100, turns=True)
    assert lost.turn == pytest.approx(np.eye(3), abs=1e-9)
    assert lost.factors == pytest.approx(plain.factors, rel=0.001)


@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_turned_tiles_depend_on_each_lane_alone(d):
    random = np.random.default_rng(d)
    tiles, matrix, middles = np.full((2, d, 32), np.inf), random.normal(size=(d, d)), random.normal(size=d)
    tiles[0] = random.normal(size=(d, 32)) * 1e6
    tiles[1, :, :5] = tiles[0, :, 7:12]  # the same points elsewhere
    out = np.empty_like(tiles)
    moments.turn_tiles(tiles, middles, matrix, out)
    assert out[0] == pytest.approx(matrix @ (tiles[0] - middles[:, None]))
    assert (out[1, :, :5] == out[0, :, 7:12]).all()
    assert (out[1, :, 5:] == np.inf).all()
