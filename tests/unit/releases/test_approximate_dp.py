"""Means in the (epsilon, delta) paradigm: their arithmetic, their cores, and what they print."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support import naive
from support.audits import Weak, epsilon_lower_bound
from support.helpers import sample
from support.windows import charge_for, view_of

import fcstream
from fcstream import Engine
from fcstream.accounting.losses import DPLoss, PrivacyLoss, delta_tight, zcdp_of_dp
from fcstream.cores.filters import BasicFilter, Core, ReplacementFilter
from fcstream.cores.generator import FriendlyGenerator
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.averages import gaussian_variance
from fcstream.releases.means.approximate_dp import BasicMean, EstimatedAverage, FriendlyAverageDP
from fcstream.stream.lattice import sqrt_up

ONE = 2**52


# -- arithmetic -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", [BasicFilter(), BasicFilter(0.25), ReplacementFilter()])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 5.0])
def test_what_follows_on_a_core_fills_the_total_and_no_more(core, epsilon):
    total = DPLoss.charge(epsilon, 1e-6)
    inner = core.within(total)
    assert DPLoss.charge(*core.total(inner.epsilon, inner.delta)).fits(total)
    more = core.total(inner.epsilon + 2e-9, 0)[0], core.total(inner.epsilon, inner.delta * 1.001 + 2e-15)[1]
    assert more[0] > total.epsilon
    assert more[1] > total.delta
    gamma = {0: 2, 0.25: 3.25}[core.alpha] if isinstance(core, BasicFilter) else 3
    assert core.total(0.5, 1e-9)[0] == pytest.approx(gamma * (math.e**0.5 - 1))
    assert core.total(0.5, 1e-9)[1] == pytest.approx(gamma * 1e-9 * math.exp(0.5 + gamma * (math.e**0.5 - 1)))
    with pytest.raises(ConfigError, match="must leave more"):
        core.within(DPLoss(1, 5))
    with pytest.raises(ConfigError, match="must leave more"):
        core.within(DPLoss.charge(1000, 1e-6))
    assert min(core.total(1000, 1e-15)) > 1


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(10**6, 5 * 10**9), st.integers(10**3, 10**9))
def test_the_average_s_gaussian_costs_no_more_than_it_may_and_less_than_printed(epsilon_nano, delta_femto):
    average = FriendlyAverageDP(DPLoss(epsilon_nano, delta_femto), 100, 500)
    epsilon, delta = (epsilon_nano - average._first_nano) / 1e9, delta_femto / 2e15
    assert delta_tight(average._rho_nano / 1e9, epsilon) <= delta * (1 + 1e-6)
    printed = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    if average._rho_nano > 1000 and epsilon <= 1:
        assert average.sigma(1) <= 20 * printed * 1.001
    # n-hat is hardly ever above the size: the tail of the discrete Laplace noise beyond the offset
    ratio = math.exp(-1 / float(average.size.scale))
    assert (average.offset + 1) * math.log(ratio) - math.log1p(ratio) <= math.log(delta)


def test_a_basic_mean_s_loss_pays_for_its_total():
    for rho in (0.01, 0.5, 3):
        mechanism = BasicMean(PrivacyLoss.charge(rho, 1e-7), 100, 5000)
        assert zcdp_of_dp(mechanism.total).fits(mechanism.loss)
        assert not zcdp_of_dp(mechanism.total + DPLoss(10, 0)).fits(mechanism.loss)
        assert DPLoss.charge(*BasicFilter().total(mechanism.average.loss.epsilon, mechanism.average.loss.delta)).fits(
            mechanism.total
        )


# -- cores ----------------------------------------------------------------------------------------------------------


def test_replacement_filter_keeps_with_the_specified_probability():
    n, repeats = 8, 4000
    noise, kept = Noise(SeededEntropy(1)), np.zeros(8)
    for _ in range(repeats):
        kept += ReplacementFilter().select_core(np.arange(1, n + 1), noise).mask
    for count in range(1, n + 1):
        p = float(naive.replacement_filter_probability(count, n))
        hits = int(kept[count - 1])
        assert (hits == p * repeats) if p in (0.0, 1.0) else stats.binomtest(hits, repeats, p).pvalue > 1e-4
    for few in (0, 1):
        assert not ReplacementFilter().select_core(np.ones(few, np.int64), noise).mask.any()


def neighbors(rng, n, density):
    """Friend graphs of n points, and the same with the first one replaced: int64 counts, bool (n, n)."""
    graph = rng.random((n, n)) < density
    graph = np.triu(graph, 1)
    graph = graph | graph.T | np.eye(n, dtype=bool)
    other = graph.copy()
    other[0, 1:] = other[1:, 0] = rng.random(n - 1) < rng.choice([0, 0.5, 1])
    return graph, other


@settings(max_examples=100)
@given(st.integers(3, 40), st.floats(0.3, 1), st.integers(0, 2**32 - 1))
def test_a_replaced_item_changes_the_basic_core_by_three_at_most_and_all_kept_are_friendly(n, density, seed):
    graph, other = neighbors(np.random.default_rng(seed), n, density)
    p, q = ([naive.replacement_filter_probability(int(c), n) for c in g.sum(axis=1)] for g in (graph, other))
    assert sum(abs(a - b) for a, b in zip(p[1:], q[1:], strict=True)) + p[0] + q[0] <= 3
    common = graph[:, 1:]  # friends that both data sets have
    kept = [common[i] for i in range(n) if p[i] > 0] + [other[i, 1:] for i in range(n) if q[i] > 0]
    assert all((a & b).any() for a in kept for b in kept)


def test_the_three_is_reached():
    n = 400
    graph = np.ones((n, n), bool)
    other = graph.copy()
    other[0, 1:] = other[1:, 0] = False
    counts = graph.sum(axis=1), other.sum(axis=1)
    p, q = ([naive.replacement_filter_probability(int(c), n) for c in of] for of in counts)
    assert float(sum(abs(a - b) for a, b in zip(p[1:], q[1:], strict=True)) + p[0] + q[0]) > 2.9


GENERATORS = [
    {},
    {"growth": 0.0},
    {"growth": 100.0},
    {"growth": 1.0, "ramp": 5.5},
    {"outliers": 4.0, "ramp": 11.0},
    {"epsilon": 0.05, "delta": 1e-9},
]


def generator(size, **changes):
    changes = {"ramp": (size - 1) / 2, **changes}
    changes["ramp"] = min(changes["ramp"], size / 2)
    return FriendlyGenerator(**{"size": size, "epsilon": 1.0, "delta": 1e-6, "beta": 0.05, **changes})


@pytest.mark.parametrize("changes", GENERATORS)
def test_generator_equals_its_naive_twin_with_the_same_words(changes):
    rng = np.random.default_rng(0)
    for seed in range(20):
        n = int(rng.integers(12, 60))
        made = generator(n, **changes)
        counts = rng.integers(1, n + 1, n)
        scale = Fraction((2**16 + 4) * 10**9, math.floor(made.epsilon * 1e9))
        twin = Noise(SeededEntropy(seed))
        keeps, success = naive.generator(
            counts,
            made.epsilon,
            made.beta,
            made.ramp,
            made.outliers,
            made.growth,
            lambda scale=scale, twin=twin: int(twin.discrete_laplace(scale, 1)[0]),
        )
        assert np.abs(made.keeps(counts) / ONE - np.array(keeps, float)).max() < 1e-13
        drawn = made.draw(counts, Noise(SeededEntropy(seed)))
        assert drawn.success == bool(success)
        assert drawn.mask.tolist() == twin.bernoulli(made.keeps(counts), ONE).tolist()
        exact = float(
            naive.generator_stability(n, made.epsilon, made.delta, made.beta, made.ramp, made.outliers, made.growth)
        )
        assert exact <= made.stability <= exact * (1 + 1e-6)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.integers(12, 60), st.sampled_from(GENERATORS), st.floats(0.4, 1), st.integers(0, 2**32 - 1))
def test_generator_is_stable_and_friendly(n, changes, density, seed):
    """Theorem 3.8: the bit's statistic moves by at most 1; where a success counts, keep probabilities by alpha."""
    made = generator(n, **changes)
    graph, other = neighbors(np.random.default_rng(seed), n, density)
    p, q = (made.keeps(g.sum(axis=1)) / ONE for g in (graph, other))
    kept = [graph[i, 1:] for i in range(n) if p[i] > 0] + [other[i, 1:] for i in range(n) if q[i] > 0]
    assert all((a & b).any() for a in kept for b in kept)
    moved = np.abs(p[1:] - q[1:]).sum()
    if not made.growth:
        assert moved <= made.stability
        return
    omegas = [made._omega(float((1 - x).sum())) for x in (p, q)]
    assert abs(omegas[0] - omegas[1]) <= 1 + 1e-9
    # chance of success: the tail of Laplace noise
    chances = [0.5 * math.exp(-max(0.0, (omega - made.bar) * made.epsilon)) for omega in omegas]
    if max(chances) >= made.delta:
        assert moved <= made.stability
        step, whole = made._step
        most_left_out = math.expm1(made.exponent / made.ramp * made.reach) * whole / step
        assert min((1 - p).sum(), (1 - q).sum()) <= most_left_out


def test_generator_on_complete_data_keeps_all_and_succeeds_as_often_as_it_says():
    made = generator(101, beta=0.1)
    noise = Noise(SeededEntropy(0))
    drawn = [made.draw(np.full(101, 101), noise) for _ in range(3000)]
    assert all(one.mask.all() for one in drawn)
    assert stats.binomtest(sum(one.success for one in drawn), 3000, 0.9).pvalue > 1e-4
    # the printed m = n/2 leaves some out (erratum 2.1)
    assert generator(101, ramp=50.5).keeps(np.full(101, 101)).max() < ONE
    # outliers beyond what was expected: no success
    wild = np.where(np.arange(101) < 30, 1, 71)
    assert np.mean([made.draw(wild, noise).success for _ in range(300)]) < 0.01


def test_generator_totals_are_the_theorem_s():
    for made in (generator(1000, growth=50.0), generator(1000, growth=0.0)):
        alpha, first = made.stability, made.epsilon if made.growth else 0.0
        epsilon, delta = made.total(0.3, 1e-8)
        assert epsilon == pytest.approx(first + 0.3 + alpha * math.expm1(0.3), rel=1e-8)
        factor = (1 + alpha) * math.exp(first + 0.6 + (1 + alpha) * math.expm1(0.3))
        assert delta == pytest.approx(max(factor * 1e-8, made.delta if made.growth else 0), rel=1e-8)
    assert generator(1000, growth=0.0).stability == pytest.approx(2.002, rel=1e-4)
    # the paper's table: lambda = 10 and 100 give alpha of about 6 h/n + 0.5 and 10 h/n + 0.1
    for growth, a, b in ((10.0, 6, 0.5), (100.0, 10, 0.1)):
        made = generator(200_000, growth=growth, delta=1e-9)
        h = made.reach
        assert made.stability == pytest.approx(a * h / 200_000 + b, rel=0.12)


@pytest.mark.parametrize(
    "wrong",
    [{"ramp": 0.5}, {"ramp": 99.0}, {"growth": -1.0}, {"growth": math.nan}, {"epsilon": 0.0}, {"delta": 0.7},
     {"beta": 0.5}, {"outliers": 99.0}],
)  # fmt: skip
def test_bad_generators(wrong):
    with pytest.raises(ConfigError):
        FriendlyGenerator(**{"size": 40, "epsilon": 1, "delta": 1e-6, "beta": 0.1, "ramp": 19.5, **wrong})
    with pytest.raises(ConfigError, match="counts"):
        generator(40).draw(np.ones(39, np.int64), Noise())


# -- the averages ---------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 400), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_friendly_average_equals_its_naive_twin_with_the_same_words(n, d, seed):
    rng = np.random.default_rng(seed)
    points = np.rint(rng.normal(size=(n, d)) * 20 + 1000)
    average = FriendlyAverageDP(DPLoss.charge(2, 1e-3), 80**2, 300)
    twin, bits = Noise(SeededEntropy(seed)), [0]

    def draw(n_hat, dimension):
        width = 2 * sqrt_up(80**2, 40) / n_hat
        bits[0] = min(20, max(0, math.ceil(math.log2(128 * math.sqrt(dimension) / float(width)))))
        variance = gaussian_variance((width * 2 ** bits[0] + sqrt_up(dimension, 20)) ** 2, average._rho_nano)
        return twin.discrete_gaussian(variance, dimension).tolist()

    view = view_of(points.reshape(n, d))
    got = average.release(view.select(np.ones(n, bool)), Noise(SeededEntropy(seed)))
    at = twin._entropy._generator.state
    for grid_bits in range(21):  # the grid depends on n-hat
        twin._entropy._generator.state = at
        expected = naive.friendly_average(
            points,
            [True] * n,
            average.offset,
            160,
            grid_bits,
            lambda: int(twin.discrete_laplace(average.size.scale, 1)[0]),
            draw,
        )
        if expected is None or bits[0] == grid_bits:
            break
    if expected is None:
        assert got is None
    else:
        assert (got.value.tolist(), got.count) == expected


def test_a_mean_is_near_and_its_sigma_is_honest():
    rows = np.random.default_rng(0).normal(5, 1, size=(2500, 2))
    rows[:50] = 40.0
    errors = []
    for seed in range(30):
        answer = fcstream.private_dp_mean(
            rows, radius=8, epsilon=2, delta=1e-6, size_hint=2500, step=1e-3, bounds=(-50, 50),
            noise=Noise(SeededEntropy(seed)),
        )  # fmt: skip
        assert answer.parts == {"epsilon": 2.0, "delta": 1e-6, "no_interval": {"value": "left_out"}}
        assert answer.rho == zcdp_of_dp(DPLoss.charge(2, 1e-6)).rho
        errors.append((np.array(answer.value) - rows[50:].mean(axis=0)) / np.array(answer.sigma))
    assert 0.75 < np.std(errors) < 1.25


@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.0123, 0.1, 0.5, 0.7, 1, 3])
def test_no_more_epsilon_is_spent_than_was_asked_for(epsilon):
    answer = fcstream.private_dp_mean(
        np.zeros((10, 1)), radius=8, epsilon=epsilon, delta=1e-6, size_hint=10**7, step=1e-3, bounds=(-9, 9)
    )
    assert 0.99 * epsilon < answer.parts["epsilon"] <= epsilon
    assert answer.delta == 1e-6


def test_an_epsilon_below_the_grain_of_rho_is_refused():
    with pytest.raises(ConfigError, match="epsilon: must be larger"):
        fcstream.private_dp_mean(
            np.zeros((10, 1)), radius=8, epsilon=1e-5, delta=1e-6, size_hint=10**7, step=1e-3, bounds=(-9, 9)
        )


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["best", "high", "moderate"])
def test_estimated_averages(regime):
    rows = np.random.default_rng(0).normal(5, 1, size=(2500, 2))
    errors, successes = [], 0
    for seed in range(30):
        answer = fcstream.estimate_average(
            rows, radius=9, epsilon=1, delta=1e-6, step=1e-3, bounds=(-50, 50), regime=regime,
            noise=Noise(SeededEntropy(seed)),
        )  # fmt: skip
        assert answer.parts["epsilon"] <= 1
        assert answer.parts["delta"] <= 1e-6
        assert answer.parts["regime"] == ("moderate" if regime == "moderate" else "high")
        successes += answer.parts["success"]
        if answer.value is None:
            assert answer.reason == "too_few"
            assert not answer.parts["success"]
        else:
            errors.append((np.array(answer.value) - rows.mean(axis=0)) / np.array(answer.sigma))
    assert 0.7 < np.std(errors) < 1.3
    assert successes >= 25


def test_moderate_stability_tolerates_many_outliers_and_high_stability_refuses():
    rows = np.random.default_rng(0).normal(5, 0.5, size=(3000, 2))
    rows[:900] = np.random.default_rng(1).uniform(-50, 50, size=(900, 2))
    rows[0] = np.nan  # counts as a corner: n stays public
    common = {"radius": 6, "epsilon": 2, "delta": 1e-6, "step": 1e-3, "bounds": (-50, 50)}
    for seed in range(5):
        noise = Noise(SeededEntropy(seed))
        answer = fcstream.estimate_average(rows, regime="moderate", outliers=900, noise=noise, **common)
        assert np.abs(np.array(answer.value) - 5).max() < 1
        assert answer.count == 3000
        assert fcstream.estimate_average(rows, regime="high", noise=noise, **common).status == "refused"


def test_costs_of_estimated_averages_fill_the_total():
    for regime in ("high", "moderate"):
        made = EstimatedAverage(DPLoss.charge(1.5, 1e-7), 2000, 100, regime=regime)
        assert made.cost.fits(made.total)
        assert made.cost.epsilon > 1.4999
        assert made.cost.delta > 0.99e-7
    best = EstimatedAverage(DPLoss.charge(1.5, 1e-7), 2000, 100)
    assert best.generator == EstimatedAverage(best.total, 2000, 100, regime="high").generator
    for wrong in ({"outliers": 1500}, {"beta": 0.6}, {"regime": "low"}, {"size": 2}, {"total": DPLoss(1000, 10**6)}):
        with pytest.raises(ConfigError):
            replace(best, **wrong)


DEGENERATE = {
    "empty": np.empty((0, 2)),
    "one": np.array([[7.0, 7.0]]),
    "equal": np.full((800, 2), 9.0),
    "collinear": np.column_stack([np.arange(800.0) / 100] * 2),
    "scattered": np.random.default_rng(0).uniform(-50, 50, size=(800, 2)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_arrays_are_answered_or_refused_at_the_price_they_say(name):
    rows, common = DEGENERATE[name], {"radius": 12, "epsilon": 4, "delta": 1e-6, "step": 1e-2, "bounds": (-50, 50)}
    answer = fcstream.private_dp_mean(rows, size_hint=800, **common)
    mechanism = BasicMean(PrivacyLoss.charge(answer.rho, answer.delta), 1200**2, 800)
    charge = charge_for(mechanism.loss)
    mechanism.release(view_of(rows * 100, 1200**2), charge, Noise())
    assert charge.unused == PrivacyLoss()
    answers = [answer]
    if len(rows) >= 3:
        answers.append(fcstream.estimate_average(rows, regime="moderate", **common))
    else:
        with pytest.raises(ConfigError, match="outliers"):
            fcstream.estimate_average(rows, **common)
    for one in answers:
        if name in ("equal", "collinear"):
            assert np.abs(np.array(one.value) - rows.mean(axis=0)).max() < 1.5
        else:
            assert one.reason == "too_few"


def test_windows():
    rows = np.random.default_rng(0).normal([20, 50], 0.3, size=(3000, 2))
    config = sample(
        window={"end": "1970-01-01T00:00:10Z"},
        release={"method": "basic", "spread": None, "rho": 2.0, "size_hint": 3000, "delta": 1e-8},
    )
    engine = Engine(config)
    engine.push(np.zeros(3000, np.int64), rows)
    (release,) = engine.close()
    assert np.abs(np.array(release.value) - [20, 50]).max() < 0.2
    assert release.parts["epsilon"] == pytest.approx(2.382686, abs=1e-5)  # of 99% of rho: the gate has the rest
    with pytest.raises(ConfigError, match=r"release\.alpha"):
        Engine(sample(release={**config["release"], "spread": None, "alpha": 0.7}))


# -- audits: replaced and removed ------------------------------------------------------------------------------------


def numbers(outcome):
    return [np.nan, np.nan, np.nan] if outcome.value is None else [*outcome.value, outcome.core_count]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 0.003])
def test_audit_of_the_basic_mean(factor):
    points = np.rint(np.random.default_rng(0).normal(size=(300, 2)) * 40)
    mechanism = BasicMean(zcdp_of_dp(DPLoss.charge(2, 1e-3)), 400**2, 300)
    of = []
    for i, rows in enumerate((points, np.vstack([points, [260, 0]]))):
        view = view_of(rows, 400**2)
        of.append(
            np.array(
                [
                    numbers(
                        mechanism.release(view, charge_for(mechanism.loss), Weak(SeededEntropy(s + i * 10**6), factor))
                    )
                    for s in range(1200)
                ]
            )
        )
    assert np.isnan(of[0][:, 0]).mean() < 0.05
    assert (epsilon_lower_bound(*of, 1e-3) < 2) == (factor == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "sound"), [("high", True), ("moderate", True), ("moderate", False)])
def test_audit_of_estimated_averages(regime, sound):
    """One point replaced, from the middle to the edge. The planted fault: too little noise."""
    points = np.rint(np.random.default_rng(0).normal(size=(400, 2)) * 40)
    moved = points.copy()
    moved[0] = [260, 0]
    made = EstimatedAverage(DPLoss.charge(3, 1e-3), 400, 400**2, regime=regime)
    of = []
    for i, rows in enumerate((points, moved)):
        view = view_of(rows, 400**2)
        noises = (Weak(SeededEntropy(s + i * 10**6), 1.0 if sound else 0.003) for s in range(1200))
        of.append(np.array([numbers(made.release(view, noise)[1]) for noise in noises]))
    assert np.isnan(of[0][:, 0]).mean() < 0.15
    assert (epsilon_lower_bound(*of, 1e-3) < 3) == sound


@pytest.mark.slow
def test_a_basic_core_that_keeps_everyone_is_caught(monkeypatch):
    """Planted fault: no filter. A stranger far away then moves the mean by far more than its noise."""
    points = np.rint(np.random.default_rng(0).normal(size=(300, 2)) * 40)
    mechanism = BasicMean(zcdp_of_dp(DPLoss.charge(2, 1e-3)), 400**2, 300)
    bounds = []
    for keeps in (False, True):
        if keeps:
            everyone = lambda self, counts, noise: Core(np.ones(len(counts), bool), None)  # noqa: E731
            monkeypatch.setattr(BasicFilter, "select_core", everyone)
        of = []
        for i, rows in enumerate((points, np.vstack([points, [10**7, 0]]))):
            view = view_of(rows, 400**2)
            noises = (Noise(SeededEntropy(s + i * 10**6)) for s in range(600))
            of.append(np.array([numbers(mechanism.release(view, charge_for(mechanism.loss), n)) for n in noises]))
        bounds.append(epsilon_lower_bound(*of, 1e-3))
    assert bounds[0] < 2 < bounds[1]


@pytest.mark.slow
@pytest.mark.parametrize("weak", [1.0, 0.1])
def test_audit_of_the_success_bit(weak):
    """One point replaced by a stranger, where the bit is undecided; all others lose a friend."""
    made = FriendlyGenerator(60, 1.0, 1e-6, 0.05, 29.5, 6.0, growth=10.0)
    left_out = [(60 * ONE - sum(made.keeps(np.full(60, c)).tolist())) / ONE for c in range(1, 61)]
    edge = next(c for c in range(1, 61) if made._omega(left_out[c - 1]) <= made.bar + 0.5)
    rows = []
    for counts, first in ((np.full(60, edge), 0), (np.array([1] + [edge - 1] * 59), 10**6)):
        noises = (Weak(SeededEntropy(first + s), weak) for s in range(6000))
        rows.append(np.array([[made.draw(counts, noise).success] for noise in noises], float))
    assert weak < 1 or 0.05 < rows[0].mean() < 0.95
    bound = epsilon_lower_bound(*rows, 1e-4)
    assert bound > 0.3
    assert (bound > made.epsilon) == (weak < 1)
