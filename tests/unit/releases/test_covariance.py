"""Covariance matrices: shards, their moments, the core of those that agree, and what is released."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from support import naive
from support.audits import Weak, epsilon_lower_bound
from support.helpers import sample
from support.windows import charge_for

import fcstream
from fcstream import Engine, MatrixDistance, PredicateCounts
from fcstream._kernels import moments
from fcstream.accounting.losses import DPLoss, PrivacyLoss, zcdp_of_dp
from fcstream.config import Config
from fcstream.cores.filters import ReplacementFilter
from fcstream.counting import threads
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan
from fcstream.predicates import matrices
from fcstream.releases.statistics.covariance import FriendlyCovariance, ShardCovariance, allowed_distance, blur
from fcstream.releases.statistics.moments import MomentsView, ShardMoments

LOSS = zcdp_of_dp(DPLoss.charge(4, 1e-5))
WINDOW = {
    "kind": "covariance", "method": "friendly", "radius": None, "spread": None, "rho": 3.9, "delta": 1e-5,
    "shards": 2500, "limit": 1.0, "size_hint": 200_000,
}  # fmt: skip


def moments_of(points, shards, count):
    d = points.shape[1]
    sizes, means, scatters = np.zeros(count, np.int64), np.zeros((count, d)), np.zeros((count, d, d))
    moments.add_points(points, shards.astype(np.int64), sizes, means, scatters)
    return sizes, means, scatters


def distance(x, y):
    values = linalg.eigh(x, y, eigvals_only=True)
    return max(np.abs(values - 1).max(), np.abs(1 / values - 1).max())


def near(rng, base, reach):
    """A matrix within a matrixDist of `reach` of another."""
    d = len(base)
    rotation = linalg.qr(rng.normal(size=(d, d)))[0]
    values = (1 + reach) ** rng.choice([-1.0, 1.0, 0.3], d)
    root = np.real(linalg.sqrtm(base))
    found = root @ rotation @ np.diag(values) @ rotation.T @ root
    return (found + found.T) / 2


# -- shards ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(1, 120), st.integers(1, 4), st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_moments_equal_the_naive_twin_to_the_last_bit(n, d, count, seed):
    rng = np.random.default_rng(seed)
    points = np.rint(rng.normal(size=(n, d)) * 1e3 + rng.choice([0, 2.0**39]))
    shards = rng.integers(0, count, n)
    got, expected = moments_of(points, shards, count), naive.shard_moments(points, shards, count)
    assert [part.tolist() for part in got] == list(expected)
    # other shards' points, left out or not, change nothing
    left_out = int(rng.integers(n))
    fewer = moments_of(np.delete(points, left_out, axis=0), np.delete(shards, left_out), count)
    others = np.arange(count) != shards[left_out]
    assert all((a[others] == b[others]).all() for a, b in zip(got, fewer, strict=True))


@pytest.mark.parametrize("centered", [True, False])
def test_windows_of_several_panes_hold_the_covariance_of_their_points(centered):
    rng = np.random.default_rng(0)
    counter, held = ShardMoments(3, 4, Noise(SeededEntropy(0))), {}
    twin = Noise(SeededEntropy(0))
    for pane, n in ((0, 50), (1, 30), (0, 20), (3, 40), (7, 5)):
        points = np.rint(rng.normal(size=(n, 3)) * 500 + 100)
        counter.add(pane, points)
        held.setdefault(pane, []).append((points, twin.uniform_integers(4, n)))
    assert counter.panes == [0, 1, 3, 7]
    assert counter.size(0) == 70
    counter.drop(7)
    counter.drop(7)
    matrices = counter.view([0, 1, 2, 3]).covariances(centered=centered)
    assert (matrices == matrices.transpose(0, 2, 1)).all()
    everything = [part for pane in (0, 1, 3) for part in held[pane]]
    points, coins = np.concatenate([p for p, _ in everything]), np.concatenate([c for _, c in everything])
    for shard in range(4):
        mine = points[coins == shard]
        expected = np.cov(mine.T) if centered else mine.T @ mine / len(mine)
        np.testing.assert_allclose(matrices[shard], expected, rtol=1e-10)
    assert counter.view([5]).sizes.tolist() == [0] * 4
    assert not counter.view([5]).covariances(centered=centered).any()


def test_bad_shards():
    for wrong in ((0, 5), (2, 1), (2, 2**21)):
        with pytest.raises(ConfigError):
            ShardMoments(*wrong, Noise())
    with pytest.raises(ConfigError, match="points"):
        ShardMoments(2, 4, Noise()).add(0, np.zeros((3, 3)))
    assert "MomentsView of 4" in repr(ShardMoments(2, 4, Noise()).view([]))


# -- published inequalities -----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 5), st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 2**32 - 1))
def test_matrix_distance_has_an_approximate_triangle_inequality(d, first, second, seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(d, d))
    x = a @ a.T + 0.1 * np.eye(d)
    y = near(rng, x, first)
    z = near(rng, y, second)
    parts = distance(x, y), distance(y, z)
    if max(parts) <= 1:
        assert distance(x, z) <= 1.5 * sum(parts) + 1e-9
    assert distance(3 * x, 3 * y) == pytest.approx(parts[0], abs=1e-7)


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(2, 12), st.sampled_from([0.1, 0.5, 2.0]), st.integers(0, 2**32 - 1))
def test_leaving_out_one_friendly_matrix_moves_the_mean_by_c1_over_n(d, n, limit, seed):
    """All matrices are friends of one, so any two share it: c1 = (1 + limit)**2 - 1, also past the paper's limit."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(d, d))
    middle = a @ a.T + np.eye(d)
    matrices = np.array([near(rng, middle, limit) for _ in range(n)])
    c1 = (1 + limit) ** 2 - 1
    assert distance(matrices.mean(axis=0), matrices[1:].mean(axis=0)) <= c1 / n + 1e-9
    average = FriendlyCovariance(DPLoss.charge(1, 1e-6), d, 0.1, limit)
    assert average.needed * average.gamma == pytest.approx(c1, rel=1e-6)
    assert average.needed * average.gamma >= c1


@settings(max_examples=60)
@given(st.floats(1e-4, 10), st.floats(1e-3, 1), st.floats(1e-12, 0.5), st.integers(1, 100))
def test_allowed_distance_equals_its_naive_twin_rounded_down_and_grows_with_noise(eta, epsilon, delta, d):
    exact, got = float(naive.matrix_gamma(eta, epsilon, delta, d)), allowed_distance(eta, (epsilon, delta), d)
    assert exact * (1 - 1e-8) <= got <= exact
    assert allowed_distance(eta * 1.5, (epsilon, delta), d) >= got


# -- the release ----------------------------------------------------------------------------------------------------


def test_blur_is_what_is_specified_with_the_same_words():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    matrix = a @ a.T + np.eye(4)
    got = blur(matrix, 0.3, Noise(SeededEntropy(5)))
    normal = Noise(SeededEntropy(5)).discrete_gaussian(2**60, 16).reshape(4, 4) / 2**30
    root = np.real(linalg.sqrtm(matrix))
    factor = np.eye(4) + 0.3 * normal
    np.testing.assert_allclose(got, root @ factor @ factor.T @ root, rtol=1e-9)
    noise, draws = Noise(SeededEntropy(6)), 2000
    mean = sum(blur(matrix, 0.3, noise) for _ in range(draws)) / draws
    np.testing.assert_allclose(mean, (1 + 0.09 * 4) * matrix, rtol=0.1, atol=0.15)


@pytest.mark.slow
def test_core_and_refusal_equal_the_naive_twin_with_the_same_words():
    rng = np.random.default_rng(3)
    base = np.array([[2.0, 0.5], [0.5, 1.0]])
    for seed in range(6):
        matrices = np.array([near(rng, base, 0.03 if i % 4 else 1.0) for i in range(24)])
        noise, twin = Noise(SeededEntropy(seed)), Noise(SeededEntropy(seed))
        counts = naive.predicate_counts(list(matrices), lambda x, y: naive.matrix_distance(x, y, Fraction(1, 10)))
        friends = PredicateCounts(MatrixDistance(2, 0.1))
        friends.add(0, matrices)
        assert friends.counts([0]).tolist() == counts
        core = ReplacementFilter().select_core(friends.counts([0]), noise)
        probabilities = [naive.replacement_filter_probability(c, 24) for c in counts]
        assert all(0 < p < 1 or keep == p for p, keep in zip(probabilities, core.mask, strict=True))
        twin.bernoulli(2 * np.array(counts) - 25, 23)
        average = FriendlyCovariance(DPLoss.charge(1, 1e-2), 2, 1.0, percent=90)
        value, n_hat = average.release(matrices[core.mask], noise)
        assert n_hat == core.mask.sum() - average.offset + int(twin.discrete_laplace(average.number.scale, 1)[0])
        assert (value is None) == (n_hat <= average.needed)


def test_threads_change_no_count(monkeypatch):
    rng = np.random.default_rng(4)
    items = np.array([near(rng, np.eye(3), 0.04 if i % 3 else 0.5) for i in range(300)])
    found = []
    for alone in (1e18, 1.0):
        monkeypatch.setattr(matrices, "_ALONE", alone)
        monkeypatch.setattr(threads, "_wanted", 3)
        friends = PredicateCounts(MatrixDistance(3, 0.1))
        for part in np.array_split(items, 4):
            friends.add(0, part)
        found.append(friends.counts([0]).tolist())
    assert found[0] == found[1]
    assert min(found[0]) < 10 < max(found[0])


def test_costs_are_the_theorem_s_and_a_release_uses_all():
    mechanism = ShardCovariance(LOSS, 2, 900)
    inner = mechanism.average.loss
    epsilon, delta = inner.epsilon, inner.delta
    total = 3 * math.expm1(epsilon), 3 * delta * math.exp(epsilon + 3 * math.expm1(epsilon))
    assert total == pytest.approx((4, 1e-5), rel=1e-6)
    assert zcdp_of_dp(DPLoss.charge(*ReplacementFilter().total(epsilon, delta))).fits(mechanism.loss)
    charge = charge_for(LOSS)
    mechanism.release(ShardMoments(2, 900, Noise()).view([0]), charge, Noise())
    assert charge.unused == PrivacyLoss()
    # above epsilon 1 the lemma of the noise says nothing, so more is not used
    assert ShardCovariance(zcdp_of_dp(DPLoss.charge(20, 1e-5)), 2, 900).average.loss.epsilon == pytest.approx(1.0)
    # the matrices' number takes the rest: with it n-hat is hardly ever above the truth
    average = mechanism.average
    assert average.offset >= 1 + math.log(1 / delta) / (epsilon * average.percent / 100)
    exact = naive.matrix_gamma(
        average.eta, epsilon * (1 - average.percent / 100), delta * math.exp(-epsilon * average.percent / 100), 2
    )
    assert 0.21 / float(exact) <= average.needed <= 0.21 / float(exact) * 1.001
    assert 0.99 <= average.chance(720) < 0.995


def test_answers_are_right_on_average():
    """Noise alone would make a matrix (1 + eta**2 d) times too large."""
    truth = np.array([[4.0, 1.5], [1.5, 1.0]])
    mechanism, noise = ShardCovariance(LOSS, 2, 400, eta=0.7), Noise(SeededEntropy(3))
    view = MomentsView(np.full(400, 2), np.zeros((400, 2)), np.tile(truth, (400, 1, 1)))
    assert (view.covariances(centered=True)[0] == truth).all()
    values = [mechanism.release(view, charge_for(mechanism.loss), noise).value for _ in range(300)]
    mean = np.mean([value for value in values if value is not None], axis=0)
    assert np.abs(mean / truth - 1).max() < 0.35  # 0.98 too much without the factor


@pytest.mark.slow
@pytest.mark.parametrize("centered", [True, False])
def test_covariances_are_found_whatever_their_scale(centered):
    rng = np.random.default_rng(1)
    truth = np.array([[4.0, 1.5], [1.5, 1.0]])
    rows = rng.multivariate_normal([300, -5] if centered else [0, 0], truth, size=1_300_000)
    rows[:5] = 9e4  # each of these spoils a shard
    answer = fcstream.private_covariance(
        rows, method="friendly", epsilon=4, delta=1e-5, shards=400, step=1e-3, bounds=(-1e5, 1e5), centered=centered,
        noise=Noise(SeededEntropy(0)),
    )  # fmt: skip
    assert answer.status == "released"
    value, eta, sigma = np.array(answer.value), answer.parts["eta"], np.array(answer.sigma)
    assert (value == value.T).all()
    assert (np.abs(value - truth) < 5 * sigma).all()
    assert 0.5 * eta < answer.sigma[0][0] / value[0, 0] < 3 * eta
    assert answer.features is None or len(answer.features) == 2


DEGENERATE = {
    "empty": np.empty((0, 2)),
    "one": np.ones((1, 2)),
    "equal": np.full((5000, 2), 3.0),
    "collinear": np.column_stack([np.arange(5000.0)] * 2),
    "few in each shard": np.random.default_rng(0).normal(size=(5000, 2)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_arrays_are_refused_at_the_full_price(name):
    answer = fcstream.private_covariance(
        DEGENERATE[name], method="friendly", epsilon=4, delta=1e-5, shards=900, step=1e-3, bounds=(-1e5, 1e5)
    )
    assert answer.reason == "too_few"
    assert answer.value is None
    assert answer.rho == LOSS.rho


def test_what_cannot_release_is_refused_before():
    with pytest.raises(ConfigError, match=r"must be at least \d+ for 64 features"):
        ShardCovariance(LOSS, 64, 400)
    for wrong in ({"shards": 1}, {"limit": 0.0}, {"limit": math.nan}, {"eta": -1.0}):
        with pytest.raises(ConfigError):
            ShardCovariance(**{"loss": LOSS, "dimension": 2, "shards": 900, **wrong})
    with pytest.raises(ConfigError, match="at most 1"):
        FriendlyCovariance(DPLoss.charge(1.5, 1e-5), 2, 0.1)
    with pytest.raises(UnusablePlan):
        plan(Config.from_mapping(sample(release={**WINDOW, "size_hint": 50_000}, budget={"rho": 50.0, "delta": 1e-3})))
    given_eta = ShardCovariance(LOSS, 2, 900, eta=0.5)
    assert given_eta.average.eta == 0.5
    assert given_eta.average.chance(900) > 0.99


def test_windows():
    rng = np.random.default_rng(2)
    rows = rng.multivariate_normal([20, 50], [[0.09, 0.03], [0.03, 0.25]], size=120_000)
    config = sample(
        window={"end": "1970-01-01T00:00:10Z", "slide": "5s", "start": "1970-01-01T00:00:00Z"},
        release=WINDOW,
        budget={"rho": 50.0, "delta": 1e-3},
        lattice={"step": 1e-4},
    )  # fmt: skip
    engine = Engine(config, noise=Noise(SeededEntropy(4)))
    engine.push(np.arange(120_000) * 10_000 // 120_000, rows)
    released = [release for release in engine.close() if release.status == "released"]
    assert released
    notes = " ".join(plan(Config.from_mapping(config)).notes)
    assert "shards agree from about 94 normal records" in notes
    value, sigma = np.array(released[-1].value), np.array(released[-1].sigma)
    assert (np.abs(value - [[0.09, 0.03], [0.03, 0.25]]) < 5 * sigma).all()


def numbers(outcome):
    return (
        [np.nan, outcome.parts["shards"]] if outcome.value is None else [outcome.value[0, 0], outcome.parts["shards"]]
    )


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [1.075, 9.0])
@pytest.mark.parametrize("factor", [1.0, 1e-4])
def test_audit_of_one_shard_replaced(factor, replaced):
    """The worst replacement that may still be in the core, a matrix at the edge of friendship; and a stranger."""
    rng = np.random.default_rng(0)
    mechanism = ShardCovariance(zcdp_of_dp(DPLoss.charge(3, 1e-3)), 1, 300)
    variances = rng.uniform(0.98, 1.02, 300)
    of = []
    for i, last in enumerate((0.98, replaced)):
        variances[-1] = last
        view = MomentsView(np.full(300, 2), np.zeros((300, 1)), variances.reshape(300, 1, 1))
        of.append(
            np.array(
                [
                    numbers(
                        mechanism.release(view, charge_for(mechanism.loss), Weak(SeededEntropy(s + i * 10**6), factor))
                    )
                    for s in range(600)
                ]
            )
        )
    assert np.isnan(of[0][:, 0]).mean() < 0.05
    assert (epsilon_lower_bound(*of, 1e-3) < 3) == (factor == 1.0)
