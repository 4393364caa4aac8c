"""Covariances by clipped moments: the slow twin, what a stage costs, what follows from a matrix, and refusals."""

import math
from dataclasses import replace
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
from fcstream.errors import UnusablePlan
from fcstream.planning.plan import plan
from fcstream.releases.statistics.clipped import ClippedCovariance, clipped_moments
from fcstream.releases.statistics.columns import Column
from fcstream.releases.statistics.correlations import correlations, principal_components, regression
from fcstream.releases.statistics.scales import ScaleLearner, missing_ranks, next_size, sampled_rows
from fcstream.stream.lattice import Feature

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
    rows = lattice_rows(700, wild=9)
    points = view_of(rows).points()  # in the order in which the mechanism reads them
    outcome = mechanism.release(view_of(rows), Paid(), Noise(SeededEntropy(5)))
    size, middles, sizes, squared, shift, outside, sums, products = naive_moments.release(
        points.astype(int).tolist(), mechanism, Noise(SeededEntropy(5))
    )
    assert (outcome.count, outcome.core_count) == (size, size - outside)
    units = [2**shift * (s / 2**20 if scale == "learned" else 1) for s in sizes]
    means = [x / size for x in sums]
    limit = squared >> (2 * shift)
    mean_variance = limit * 1e9 / (2 * mechanism.shares["sums"].rho_nano) / size**2
    expected = [
        [p / size - a * b for p, b in zip(row, means, strict=True)] for row, a in zip(products, means, strict=True)
    ]
    for i in range(2):
        expected[i][i] += mean_variance
    expected = np.array(expected) * np.outer(units, units)
    assert np.linalg.eigvalsh(expected)[0] > 0  # else the nearest matrix is released
    assert outcome.value == pytest.approx(expected, rel=1e-9)
    assert outcome.parts["mean"] == pytest.approx([m + u * x for m, u, x in zip(middles, units, means, strict=True)])
    entry = math.sqrt(limit**2 * 1e9 / (4 * mechanism.shares["moments"].rho_nano)) / size
    assert outcome.parts["entry"] == pytest.approx(entry, rel=1e-3)
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
    points, norms = np.array(rows, float), np.array([float(sum(x * x for x in row)) for row in rows])
    outside = moments.clip_rows(points, norms, float(squared), float(2**shift), float(limit))
    assert outside == sum(norm > squared for norm in norms)
    for before, after in zip(rows, points.astype(int).tolist(), strict=True):
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


def test_sums_of_products_are_exact_beyond_one_block():
    random = np.random.default_rng(0)
    rows = np.rint(random.uniform(-(2**17), 2**17, (2**15 + 100, 2)))
    sums, products = clipped_moments(rows, 2**36)
    whole = rows.astype(np.int64)
    assert sums.tolist() == whole.sum(axis=0).tolist()
    assert products.tolist() == (whole.T @ whole).tolist()


def test_a_scale_is_found_where_many_records_share_a_value():
    """A third of the records at the lower end of a feature, whose range is a billion values wide."""
    random = np.random.default_rng(0)
    rows = np.rint(random.exponential(100, (3000, 1)))
    rows[:1000] = 2.0
    column = Column(0, Feature("a", -1e6, 1e6), -(2**30), 2**30)
    learner = ScaleLearner(PrivacyLoss.charge(0.02), (column,), Fraction(1, 10))
    assert learner.needed < 3000
    for seed in range(30):
        found = learner.learn(rows, 3000, Noise(SeededEntropy(seed)))
        assert found.sizes[0] / 1024 < 1000


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


@given(st.integers(1, 2**41))
def test_sizes_are_those_of_the_ladder(difference):
    found = next_size(difference)
    assert found >= 1024 * difference
    assert difference == 1 or found <= 1024 * difference * 2**0.25 * 1.001
    if difference < 2**30:
        assert found == naive_moments.next_size(difference)


@pytest.mark.parametrize("scale", ["learned", "declared"])
def test_stages_pay_for_their_noise_and_add_up(scale):
    """Each stage's noise is that of its sensitivity, for every radius; quantiles have the range they pay for."""
    drawn, paid, mechanism = [], Paid(), mechanism_of(scale=scale, rho=2.0)

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append(("gaussian", variance, size, paid.stages[-1]))
            return super().discrete_gaussian(variance, size)

        def exponential_choice(self, sizes, costs, rate):
            drawn.append(("choice", rate, len(sizes), paid.stages[-1]))
            return super().exponential_choice(sizes, costs, rate)

    outcome = mechanism.release(view_of(lattice_rows(400)), paid, Recording(SeededEntropy(1)))
    assert outcome.reason is None
    assert sum(stage.rho_nano for stage in paid.stages) == mechanism.loss.rho_nano
    assert [stage.delta_femto for stage in paid.stages] == [0] * 6
    gaussians = [(variance, size, loss) for kind, variance, size, loss in drawn if kind == "gaussian"]
    shift = 0  # units of this radius need none
    radius = outcome.parts["radius"] * (1024 if scale == "learned" else 1)
    squares = [1, 1, radius**2 / 4**shift, radius**4, radius**4]
    count, sums, diagonal, below, outside = gaussians
    for (variance, _, loss), squared in zip((count, outside, sums), squares, strict=False):
        assert squared * 10**9 / (2 * variance) <= loss.rho_nano * (1 + 1e-12)
    assert (diagonal[1], below[1]) == (2, 1)
    assert below[0] * 2 == diagonal[0]
    # the worst record on the sphere costs all of the share: any direction the same
    for angle in (0.0, 0.3, math.pi / 4):
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        cost = (x**4 + y**4) / (2 * diagonal[0]) + (x * y) ** 2 / (2 * below[0])
        assert 0.999 * diagonal[2].rho <= cost <= diagonal[2].rho * (1 + 1e-9)
    choices = [(rate, loss) for kind, rate, _, loss in drawn if kind == "choice"]
    levels = [*mechanism.learner.levels] * 2 + [mechanism.radius_level]
    spent = {}
    for (rate, loss), level in zip(choices, levels, strict=True):
        epsilon = rate * 2 * max(level.numerator, level.denominator - level.numerator)
        spent[loss.rho_nano] = spent.get(loss.rho_nano, 0) + epsilon**2 / 8 * 10**9
    assert all(cost <= share for share, cost in spent.items())
    assert len(spent) == 2


def test_a_sample_is_made_of_independent_coins():
    noise = Noise(SeededEntropy(3))
    found = [sampled_rows(1000, Fraction(1, 5), noise) for _ in range(300)]
    assert all((np.diff(rows) > 0).all() and (rows.size == 0 or rows[-1] < 1000) for rows in found)
    sizes = np.array([len(rows) for rows in found])
    assert abs(sizes.mean() - 200) < 4
    assert 9 < sizes.std() < 17  # 12.6
    assert sampled_rows(0, Fraction(1, 5), noise).size == 0


def test_scales_of_a_sample_are_near_those_of_all():
    """Of records that drift: the first of them lie elsewhere."""
    mechanism = mechanism_of(rho=40.0)
    learner = ScaleLearner(mechanism.shares["scales"], mechanism.columns, Fraction(1, 10))
    rows = lattice_rows(40_000)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    few = learner.learn(rows, len(rows), Noise(SeededEntropy(0)))
    assert few.middles == pytest.approx([500, -300], abs=60)
    assert [size / 1024 for size in few.sizes] == pytest.approx([200 * 2.56, 300 * 2.56], rel=0.25)


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
    assert 0 < parts["tail_share"] < 0.06
    assert parts["explained"][0] > parts["explained"][1] > 0
    slopes, deviations = parts["coefficients"], parts["coefficient_sigma"]
    assert abs(slopes["x0"] - 2) < 5 * deviations["x0"] + 0.1
    assert abs(slopes["x1"] + 1) < 5 * deviations["x1"] + 0.1
    assert max(deviations.values()) < 0.2
    assert abs(parts["intercept"] + slopes["x0"] * 20 + slopes["x1"] * 50 - rows[:, 2].mean()) < 0.5
    assert (answer.rho, answer.delta) == (2, 0)


@pytest.mark.slow
def test_sigmas_are_the_deviations_of_the_noise():
    """Of a window whose records lie far inside of the ball's border, so that only noise moves the answer."""
    mechanism = mechanism_of(scale="declared", rho=1.0, size_hint=1000)
    view, noise = view_of(lattice_rows(1000)), Noise(SeededEntropy(2))
    fixed = 2000**2  # one radius, so that the noise is the same in all runs

    class Fixed(ClippedCovariance):
        def _radius(self, norms, noise):
            return fixed

    mechanism = Fixed(**{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__})
    found = [mechanism.release(view, Paid(), noise) for _ in range(400)]
    values = np.array([each.value for each in found])
    middle = np.mean([each.sigma for each in found], axis=0)
    assert values.std(axis=0) / middle == pytest.approx(np.ones((2, 2)), abs=0.15)
    assert np.abs(values.mean(axis=0) - np.cov(lattice_rows(1000).T)).max() < 4 * middle.max() / 20 + 100
    made = [correlations(each.value, each.sigma) for each in found]
    assert np.std([c[0, 1] for c, _ in made]) == pytest.approx(np.mean([s[0, 1] for _, s in made]), rel=0.15)


def test_correlations_are_null_where_noise_hides_a_variance():
    matrix, sigma = np.array([[4.0, 1.0], [1.0, 0.3]]), np.full((2, 2), 0.1)
    found, deviations = correlations(matrix, sigma)
    assert np.isnan(found[1]).all()
    assert np.isnan(deviations[0, 1])
    assert found[0, 0] == 1.0


def test_principal_components_have_fixed_signs():
    directions, shares = principal_components(np.array([[2.0, -1.0], [-1.0, 2.0]]), 2)
    assert directions == pytest.approx(np.array([[1, -1], [1, 1]]) / math.sqrt(2))
    assert shares == pytest.approx([0.75, 0.25])
    assert principal_components(np.zeros((2, 2)), 1)[1].tolist() == [0.0]


def test_a_regression_knows_its_noise_and_is_null_where_that_hides_a_direction():
    random = np.random.default_rng(0)
    truth = np.array([[4.0, 1.0, 7.0], [1.0, 2.0, 1.0], [7.0, 1.0, 15.0]])
    noise, found = 0.01, []
    for _ in range(2000):
        blur = np.tril(random.normal(0, noise, (3, 3)), -1)
        found.append(regression(truth + blur + blur.T + np.diag(random.normal(0, noise * 2**0.5, 3)), noise, 1e12, 2))
    slopes, sigma = np.array([each[0] for each in found]), np.mean([each[1] for each in found], axis=0)
    assert slopes.mean(axis=0) == pytest.approx(np.linalg.solve(truth[:2, :2], truth[:2, 2]), abs=1e-3)
    assert slopes.std(axis=0) == pytest.approx(sigma, rel=0.1)
    assert regression(np.array([[1.0, 1.0, 0], [1.0, 1.01, 0], [0, 0, 1]]), noise, 100, 2) is None


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
    assert any("deciles" in note or "quartiles" in note for note in told.notes)
    few = mechanism_of(rho=0.1).notes(40, job_of().grid)
    assert any("noise hides" in warning for warning in few.warnings)
    with pytest.raises(UnusablePlan, match="longer windows"):
        plan(Config.from_mapping(config | {"release": {**release, "size_hint": 300, "rho": 0.02}}))


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
    """Deciles where there are records for them; more of rho for scales where there are few."""
    found = [mechanism_of(rho=0.1, size_hint=size) for size in (100_000, 3000, 900, 400)]
    assert (found[0].percent, found[0].level) == (8, Fraction(1, 10))
    assert [each.percent for each in found] == sorted(each.percent for each in found)
    assert found[-1].percent == 30
    assert all(sum(loss.rho_nano for loss in each.shares.values()) == each.loss.rho_nano for each in found)
    assert replace(found[0], level=Fraction(1, 2)).ladder[0] == 1
