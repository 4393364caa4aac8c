"""Clusters: kernels and cores against their twins, and the whole pipeline."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.clusters import BASE, LOSS, STEP, Paid, job, seeded, small, three, tuples_like
from support.windows import view_of

import fcstream
from fcstream._kernels import clusters as kernels
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cores.filters import ZCDPFilter
from fcstream.cores.replacement import ReplacedFilter, ReplacedSizeFilter, tail_quantile
from fcstream.errors import ConfigError, UnusableRecords
from fcstream.predicates import MatchTuples, MatchWithin, OrderedTuples
from fcstream.releases.clusters.pipeline import ClusteringAlgorithm, LloydStep, nearest_labels
from fcstream.releases.clusters.tuples import (
    GAMMA,
    friend_counts,
)
from fcstream.stream.lattice import Lattice


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), small)
def test_kernels_equal_their_twins(k, d, t, seed):
    rng = np.random.default_rng(seed)
    reach = int(rng.choice([3, 30, 2**20]))
    tuples = rng.integers(-reach, reach + 1, size=(t, k, d)).astype(np.float64)
    found = np.empty(t)
    kernels.separations(tuples, found)
    assert [None if x == math.inf else int(x) for x in found] == [naive.separation(x) for x in tuples]
    alone = np.empty((t, k))
    kernels.isolations(tuples, alone)
    assert (alone.min(axis=1) == found).all()
    numbered = np.empty_like(tuples)
    kernels.number(tuples[0], tuples, numbered)
    assert numbered.tolist() == [naive.number(tuples[0], x) for x in tuples]
    radii = rng.integers(0, reach * reach + 1, size=k).astype(np.float64)
    inside = np.empty(t, bool)
    kernels.partitioned(tuples[0], radii, tuples, inside)
    assert inside.tolist() == [naive.partitioned(tuples[0], radii, x) for x in tuples]


@settings(max_examples=25)
@given(st.integers(0, 150), st.integers(1, 4), st.integers(1, 3), small)
def test_labels_equal_their_twin(n, k, d, seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-20, 21, size=(n, d)).astype(np.float64)
    centers = rng.integers(-20, 21, size=(k, d)).astype(np.float64)
    step = LloydStep(PrivacyLoss.charge(1), (1,) * d, 15**2)
    view = view_of(points)
    expected = [naive.label(x, [1] * d, 15**2, centers) for x in view.points()]
    assert nearest_labels(view, centers, step.origin, step.ball_squared).tolist() == expected


@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 5e-9 / 200, 1e-20, 1e-35])
def test_tail_quantile_is_right_and_never_too_small(p):
    with mpmath.workdps(50):
        tail = mpmath.erfc(mpmath.mpf(tail_quantile(p)) / mpmath.sqrt(2)) / 2
        assert p * (1 - 1e-6) < tail <= p


@pytest.mark.parametrize(("rho", "published"), [(0.05, 5455), (0.25, 981), (1, 222)])
def test_fewest_tuples_are_below_the_published_ones(rho, published):
    """The threshold 1/2 + sigma sqrt(2 ln(t/delta)) needs so many to keep nearly all; ours is a little lower."""
    sigma, margin = math.sqrt((published - 1) / (2 * rho)), tail_quantile(0.05 / published)
    room = published / 2 - 0.5 - sigma * (math.sqrt(2 * math.log(published / 5e-9)) + margin)
    assert abs(room) < 0.01 * published
    loss = PrivacyLoss.charge(rho, 5e-9)
    enough = [ReplacedFilter(loss, round(share * published)).margin >= margin for share in (0.88, 1.0)]
    assert enough == [False, True]


def renyi(p, q, alpha):
    return math.log(p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)) / (alpha - 1)


@pytest.mark.parametrize(("t", "rho"), [(60, 0.3), (200, 1.0), (1000, 0.1)])
def test_keep_bits_cost_what_is_claimed(t, rho):
    """t - 1 bits whose counts move by 1, each where that tells most; the noise of add/remove would cost too much."""

    def worst(sigma, threshold, alpha):
        best = 0.0
        for z in np.linspace(threshold - 3 * sigma, threshold + 3 * sigma, 61):
            p, q = (0.5 * math.erfc((threshold - x) / sigma / math.sqrt(2)) for x in (z, z + 1))
            best = max(best, renyi(p, q, alpha), renyi(q, p, alpha))
        return best

    loss = PrivacyLoss.charge(rho, 1e-8)
    threshold, sigma = ReplacedFilter(loss, t).bar
    for alpha in (1.5, 2.0, 8.0):
        assert (t - 1) * worst(sigma, threshold, alpha) <= alpha * rho
    old_threshold, old_sigma = ZCDPFilter(loss).bar(t)
    assert (t - 1) * worst(old_sigma, old_threshold, 2.0) > 2.0 * rho


def test_items_with_few_friends_are_kept_with_at_most_delta():
    kept = ReplacedFilter(PrivacyLoss.charge(1, 1e-6), 100)
    threshold, sigma = kept.bar
    worst = 100 * 0.5 * math.erfc((threshold - 0.5) / sigma / math.sqrt(2))  # (t - 1)/2 common friends, and the other
    assert 0.99e-6 < worst <= 1e-6


@pytest.mark.parametrize(("kind", "fewest"), [(ZCDPFilter, 2660), (ReplacedSizeFilter, 10_730)])
def test_the_papers_second_core_needs_thousands_of_tuples(kind, fewest):
    """0.05 of a quarter of rho = 1: the figures that `TupleAverage` tells."""
    core = kind(PrivacyLoss.charge(0.0125, 2.5e-9))
    assert core.margin(fewest - 20) < 0 <= core.margin(fewest)


def test_a_core_of_a_core_has_twice_the_deviation():
    loss = PrivacyLoss.charge(0.5, 1e-8)
    assert ReplacedSizeFilter(loss).bar(400)[1] == pytest.approx(2 * ZCDPFilter(loss).bar(400)[1])


def test_filters_refuse_what_they_cannot_do():
    with pytest.raises(ConfigError, match="at least 2 items"):
        ReplacedFilter(LOSS, 1)
    with pytest.raises(ConfigError, match="counts of 5 items, got 4"):
        ReplacedFilter(LOSS, 5).select_core(np.ones(4, np.int64), seeded())
    with pytest.raises(ConfigError, match="probability"):
        tail_quantile(0.0)


@pytest.mark.slow
def test_clusters_are_found_and_all_of_rho_is_used():
    mechanism, paid = job().mechanism(LOSS, Lattice(STEP)), Paid()
    found = mechanism.find(view_of(three(n=6000)), seeded(), paid)
    assert found.reason is None
    assert paid.total == LOSS
    expected = BASE[np.lexsort(BASE.T[::-1])]
    assert np.abs(found.centers - expected).max() < 5 * found.sigma.max() + 10
    assert abs(found.counts - 2000).max() < 200
    assert found.tuples > 0.8 * mechanism.shards.tuples
    outcome = found.outcome()
    assert outcome.value.shape == (3, 2)
    assert outcome.parts == {"counts": found.counts.tolist(), "tuples": found.tuples}


@pytest.mark.slow
def test_sigma_of_centers_is_honest():
    mechanism, view = job().mechanism(LOSS, Lattice(STEP)), view_of(three(n=6000))
    labels = nearest_labels(view, BASE, (0, 0), mechanism.shards.ball_squared)
    exact = np.stack([view.points()[labels == j].mean(axis=0) for j in range(3)])
    exact = exact[np.lexsort(exact.T[::-1])]
    tuples = mechanism.shards.tuples_of(view.points(), seeded())
    errors = []
    for seed in range(60):
        found = mechanism.from_tuples(tuples, view, seeded(seed), Paid())
        errors.append((found.centers - exact) / found.sigma)
    assert 0.85 < np.std(errors) < 1.15


@pytest.mark.parametrize("method", ["ball", "friendly"])
def test_a_lloyd_step_costs_its_loss_once_and_finds_the_means(method):
    view, paid = view_of(three(n=6000)), Paid()
    step = LloydStep(PrivacyLoss.charge(0.2, 1e-8), (0, 0), 10_000**2, method=method)
    found, counts = step.release(view, BASE + 300, seeded(2), paid)
    assert paid.total == PrivacyLoss(step.loss.rho_nano, step.loss.delta_femto if method == "friendly" else 0)
    assert len(paid.stages) == 2  # one for all parts' counts, one for their sums
    assert np.abs(found.value - BASE).max() < 5 * np.nanmax(found.sigma) + 20
    assert abs(counts - 2000).max() < 300
    if method == "ball":
        tight = LloydStep(step.loss, (0, 0), 10_000**2, 600**2).release(view, BASE + 300, seeded(2), Paid())[0]
        assert np.nanmax(tight.sigma) < 0.2 * np.nanmax(found.sigma)


@pytest.mark.parametrize("method", ["ball", "friendly"])
def test_a_lloyd_step_over_nothing_costs_its_counts(method):
    step, paid = LloydStep(PrivacyLoss.charge(0.2, 1e-8), (0, 0), 10_000**2, method=method), Paid()
    found, _ = step.release(view_of(np.empty((0, 2))), BASE, seeded(2), paid)
    assert np.isnan(found.sigma).all()
    assert len(paid.stages) == 1
    assert paid.total.rho < 0.1


def test_a_part_with_too_few_records_keeps_its_center():
    centers = np.array([[0.0, 0.0], [9000.0, -3000.0]])
    step = LloydStep(PrivacyLoss.charge(0.2), (0, 0), 10_000**2)
    found, counts = step.release(view_of(three(n=500)[:, :] * 0.1), centers, seeded(), Paid())
    assert found.value[1].tolist() == [9000, -3000]
    assert np.isnan(found.sigma[1]).all()
    assert counts[1] < 40


DEGENERATE = {
    "all equal": np.full((6000, 2), 0.25),
    "fewer distinct rows than centers": np.tile([[0.1, 0.1], [-0.4, 0.2]], (3000, 1)),
    "one row": np.array([[0.1, 0.2]]),
    "no row": np.empty((0, 2)),
    "all outside": np.full((6000, 2), 3.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("oracle", ["kmeans", "scipy"])
def test_degenerate_data_are_refused_at_the_loss_that_is_reported(name, oracle):
    answer = fcstream.private_centers(
        DEGENERATE[name], 3, ball=1, rho=1, delta=1e-8, size_hint=6000, step=STEP, oracle=oracle, noise=seeded()
    )
    mechanism = job(oracle=oracle).mechanism(LOSS, Lattice(STEP))
    assert (answer.status, answer.value) == ("refused", None)
    assert answer.reason == "no_radius"
    assert answer.rho == PrivacyLoss(mechanism.average.radius_nano).rho
    assert not answer.private


def test_rows_that_are_all_no_numbers_charge_nothing():
    with pytest.raises(UnusableRecords, match="missing"):
        fcstream.private_centers(
            np.full((6000, 2), np.nan), 3, ball=1, rho=1, delta=1e-8, size_hint=6000, step=STEP, noise=seeded()
        )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [np.full((9000, 2), 0.25), np.zeros((0, 2))])
def test_one_center_of_degenerate_data(rows):
    """All equal is no trouble for k = 1; an empty array is told by its noisy count."""
    answer = fcstream.private_centers(
        rows, 1, ball=1, rho=1, delta=1e-8, size_hint=9000, step=STEP, oracle=lambda p, k, s: p.mean(axis=0)[None],
        noise=seeded(),
    )  # fmt: skip
    assert answer.reason == (None if len(rows) else "too_few")
    if len(rows):
        assert np.abs(np.array(answer.value) - 0.25).max() < 0.01


@pytest.mark.slow
def test_a_fallback_answers_where_tuples_do_not_match():
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 2))
    shared = {"ball": 1, "rho": 1, "delta": 1e-8, "size_hint": 20_000, "step": STEP, "oracle": "scipy"}

    def wild(points, k, seed):
        return points[seed % 7 : seed % 7 + k]

    refused = fcstream.private_centers(rows, 4, noise=seeded(), **(shared | {"oracle": wild}))
    assert refused.reason in ("no_match", "no_radius")
    assert refused.rho <= 0.06
    answer = fcstream.private_centers(rows, 4, noise=seeded(), fallback="tree", **(shared | {"oracle": wild}))
    assert answer.status == "released"
    assert answer.parts["tuples"] is None
    assert answer.rho == LOSS.rho
    quarter = ((rows[:, None] - np.array(answer.value)) ** 2).sum(axis=2).min(axis=1).mean()
    assert quarter < 0.6 * (rows**2).sum(axis=1).mean()


def test_fallback_budget_is_not_touched_by_a_release():
    mechanism, paid = job(fallback="tree").mechanism(LOSS, Lattice(STEP)), Paid()
    assert mechanism.find(view_of(three(n=6000)), seeded(), paid).reason is None
    assert paid.total == LOSS - PrivacyLoss(mechanism.fallback_nano)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.25, 1, 4])
def test_plans_spend_all_and_choose_fewer_tuples_for_more_budget(rho):
    loss = PrivacyLoss.charge(rho, 1e-8)
    plan = job(size_hint=50_000).choose(loss, Lattice(STEP)).plan
    spent = plan.radius_nano + plan.check_nano + plan.core_nano + plan.average_nano + plan.lloyd_nano
    assert spent <= loss.rho_nano
    assert spent >= loss.rho_nano - 3
    assert plan.tuples == {0.25: 497, 1: 151, 4: 50}[rho] or plan.tuples < 600
    more = job(size_hint=200_000).choose(loss, Lattice(STEP)).plan
    assert more.separation == pytest.approx(plan.separation / 2, rel=0.05)
    fixed = job(size_hint=50_000, tuples=plan.tuples + 40).choose(loss, Lattice(STEP)).plan
    assert fixed.separation >= plan.separation


@pytest.mark.slow
def test_forecasts_come_true():
    mechanism = job(size_hint=9000).mechanism(LOSS, Lattice(STEP))
    assert mechanism.forecast(9000).probability > 0.95
    strange = job(size_hint=9000).choose(LOSS, Lattice(STEP)).plan.outlier_tuples
    tuples = tuples_like(BASE, mechanism.shards.tuples, 60, 3)
    lost = int(strange * len(tuples))
    tuples[:lost] = 0.0
    released = sum(mechanism.average.release(tuples, seeded(s), Paid())[1] is not None for s in range(40))
    assert released >= 36


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size_hint": 500}, "keeps none"),
        ({"k": 0}, "k: must be at least 1"),
        ({"center": ()}, "center"),
        ({"center": (math.nan, 0.0)}, "center"),
        ({"fallback": "guess"}, "'tree' or absent"),
        ({"fallback": "tree", "fallback_share": 1.5}, "fallback_share"),
        ({"ball": -1.0}, "ball"),
        ({"radius": 0.0}, "radius"),
    ],
)
def test_jobs_that_cannot_work_are_refused_at_once(changes, message):
    with pytest.raises(ConfigError, match=message):
        job(**changes).mechanism(LOSS, Lattice(STEP))


def test_parts_must_fit_the_loss():
    mechanism = job().mechanism(LOSS, Lattice(STEP))
    with pytest.raises(ConfigError, match="must hold its parts"):
        ClusteringAlgorithm(PrivacyLoss(10**8, 10**7), mechanism.shards, mechanism.average, mechanism.lloyd)


@pytest.mark.parametrize(
    ("points", "changes", "message"),
    [
        (np.zeros(3), {}, "shape"),
        ([["a"]], {}, "rectangular"),
        (np.zeros((5, 2)), {"center": [0.0]}, "must list 2 numbers"),
        (np.zeros((5, 2)), {"rho": -1}, "positive"),
    ],
)
def test_private_centers_refuses_wrong_arguments(points, changes, message):
    arguments = {"ball": 1, "rho": 1, "delta": 1e-8, "size_hint": 9000, "step": STEP} | changes
    with pytest.raises(ConfigError, match=message):
        fcstream.private_centers(points, 3, **arguments)


@pytest.mark.parametrize(
    ("predicate", "twin"),
    [
        (MatchWithin(3, 2, 900**2, GAMMA), lambda x, y: naive.match_within(x, y, GAMMA, 900**2)),
        (MatchTuples(3, 2), lambda x, y: naive.match_tuples(x, y, Fraction(1, 7))),
        (OrderedTuples((900**2,) * 3, 2), lambda x, y: naive.ordered_tuples(x, y, [900**2] * 3)),
    ],
)
def test_friend_counts_of_tuples_equal_the_twin(predicate, twin):
    tuples = tuples_like(BASE, 30, 400, 8)
    assert friend_counts(predicate, tuples).tolist() == naive.predicate_counts(tuples, twin)
