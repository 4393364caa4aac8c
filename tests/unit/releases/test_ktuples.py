"""Averages by k-tuples: geometry, sizes, costs, and the whole against its claims."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.clusters import BASE, LOSS, STEP, Paid, balls_of, job, seeded, tuples_like
from support.windows import view_of

from fcstream._kernels import clusters as kernels
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.clusters import oracles
from fcstream.releases.clusters.agreement import (
    Balls,
    GaussianTest,
    Geometry,
    fewest_gaussian,
    plan_gaussian,
)
from fcstream.releases.clusters.ktuples import (
    BallCenters,
    averages,
    nearest_averages,
    noisy_centers,
    own_centers,
    spread_of_logs,
)
from fcstream.releases.clusters.plan import BallPlan, ClusterPlan, plan_balls
from fcstream.releases.clusters.tuples import radius_grid
from fcstream.stream.lattice import Lattice

small = st.integers(0, 2**32 - 1)


@settings(max_examples=40)
@given(small, st.booleans())
def test_members_equal_their_twin(seed, own):
    rng = np.random.default_rng(seed)
    k, d, r2 = int(rng.integers(1, 4)), int(rng.integers(1, 3)), 9
    base = rng.integers(-60, 61, size=(k, d))
    tuples = (base + rng.integers(-4, 5, size=(9, k, d))).astype(np.float64)
    for i in range(9):
        tuples[i] = tuples[i][rng.permutation(k)]
    if k == 1 and own:
        return
    radii, inside = Geometry(None if own else r2).members(tuples[:4], tuples[4:])
    for i, x in enumerate(tuples[:4]):
        alone = [
            min([naive._squared_distance(a, b) for j, b in enumerate(x) if j != n] or [2**53]) for n, a in enumerate(x)
        ]
        found = [a // 49 for a in alone] if own else [r2] * k
        has_balls = min(found) >= 1 and (own or all(a >= 49 * r2 for a in alone))
        assert (radii[i] > 0).all() == has_balls
        if has_balls:
            assert radii[i].tolist() == found
            assert inside[i].tolist() == [naive.partitioned(x, found, y) for y in tuples[4:]]
        else:
            assert not inside[i].any()


def test_a_tuple_with_equal_points_has_no_balls_and_fits_none():
    tuples = np.array([[[5.0, 5.0], [5.0, 5.0]], [[0.0, 0.0], [500.0, 0.0]]])
    for geometry in (Geometry(), Geometry(4)):
        assert geometry.members(tuples[:1], tuples)[1].tolist() == [[False, False]]
        assert geometry.members(tuples[1:], tuples)[1].tolist() == [[False, True]]


def far_balls(rng, k, d, parted):
    """Centers and radii of balls that are `parted` radii apart."""
    while True:
        centers = rng.uniform(-10, 10, size=(k, d))
        apart = np.linalg.norm(centers[:, None] - centers[None], axis=2) + np.diag([np.inf] * k)
        radii = apart.min(axis=1) / parted
        if all(apart[i, j] >= parted * max(radii[i], radii[j]) for i in range(k) for j in range(k) if i != j):
            return centers, radii


@settings(max_examples=60)
@given(small)
def test_balls_that_share_a_tuple_cut_alike_and_have_alike_radii(seed):
    """Lemmas G1 and G4: two families of far balls that meet pairwise."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 5)), int(rng.integers(1, 3))
    centers, radii = far_balls(rng, k, d, 7)

    def inside(centers, radii):
        offset = rng.normal(size=centers.shape)
        length = radii[:, None] * rng.choice([0.0, 0.9, 0.999], size=(k, 1))
        return centers + offset / np.linalg.norm(offset, axis=1, keepdims=True) * length

    shared = inside(centers, radii)
    others = inside(shared, radii * 1.3)
    apart = np.linalg.norm(others[:, None] - others[None], axis=2) + np.diag([np.inf] * k)
    other_radii = apart.min(axis=1) / 7
    if not (np.linalg.norm(others - shared, axis=1) <= other_radii).all():
        return
    for ball, reach in ((centers, radii), (others, other_radii)):
        for i, x in enumerate(inside(ball, reach)):
            for cut in (centers, others):
                assert np.linalg.norm(cut - x, axis=1).argmin() == i
    own = np.linalg.norm(centers[:, None] - centers[None], axis=2) + np.diag([np.inf] * k)
    assert np.abs(np.log(own.min(axis=1) / apart.min(axis=1))).max() <= spread_of_logs(7)


@pytest.mark.parametrize(("rho", "published"), [(0.05, 332), (0.1, 201), (0.25, 106), (0.5, 65), (1, 43)])
def test_fewest_tuples_of_a_g_form(rho, published):
    found = fewest_gaussian(PrivacyLoss.charge(rho, 5e-9))
    assert abs(found - published) <= max(1, 0.03 * published)


def test_fewest_tuples_with_room_for_outliers():
    assert fewest_gaussian(PrivacyLoss.charge(0.5, 5e-9), outlier_tuples=0.05) == pytest.approx(97, abs=6)


@pytest.mark.parametrize(("rho", "t"), [(0.1, 300), (1.0, 43), (1.0, 300)])
def test_a_g_form_costs_what_its_theorem_says(rho, t):
    loss = PrivacyLoss.charge(rho, 5e-9)
    test = plan_gaussian(loss, t)
    first, second = test.sigmas
    m, tail = test.positions, lambda x: 0.5 * math.erfc(x / math.sqrt(2))
    rho1, rho2 = m / (2 * first**2), 1 / (2 * second**2)
    delta1 = m * tail((test.max_outlier_tuples - test.threshold) * math.sqrt(2 * rho1 / m))
    delta2 = tail((test.level - 1) * math.sqrt(2 * rho2))
    assert max(rho1, rho2) / (1 - delta2) <= rho
    assert 0.9 * loss.delta < delta1 + delta2 + 2e-15 <= loss.delta * (1 + 1e-9)
    assert test.compared >= 2 * test.max_outlier_tuples + 2


def status_law(strange, test):
    """Probability of a yes, exactly: each proposal passes by itself."""
    tail = lambda x: 0.5 * math.erfc(x / math.sqrt(2))  # noqa: E731
    law = [1.0]
    for x in strange:
        p = tail((x - test.threshold) / test.sigmas[0])
        law = [(law[i] if i < len(law) else 0) * (1 - p) + (law[i - 1] * p if i else 0) for i in range(len(law) + 1)]
    return sum(p * tail((test.level - s) / test.sigmas[1]) for s, p in enumerate(law))


def test_the_g_forms_status_stays_below_rho():
    test, rng = plan_gaussian(PrivacyLoss.charge(0.5, 1e-6), 60), np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        one = rng.integers(0, test.compared + 1, test.positions) if rng.random() < 0.5 else np.full(
            test.positions, rng.integers(0, test.compared)
        )  # fmt: skip
        two = np.clip(one + rng.choice([-1, 0, 1]), 0, test.compared)
        if rng.random() < 0.5:
            two = one.copy()
            two[0] = rng.integers(0, test.compared + 1)
        p, q = status_law(one, test), status_law(two, test)
        if min(p, q, 1 - p, 1 - q) > 1e-12:
            for alpha in (1.5, 4.0):
                d = math.log(p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)) / (alpha - 1)
                worst = max(worst, d / alpha)
    assert 0.05 < worst <= 0.5


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_tests_pass_where_tuples_agree_and_fail_where_not(share):
    tuples = tuples_like(BASE, 100, 60, 3)
    tuples[:: int(1 / share) if share else 10**9] = 0.0
    geometry = Geometry(400**2)
    test = plan_gaussian(PrivacyLoss.charge(0.5, 5e-9), 100)
    passed = [test.release(tuples, geometry, seeded(s), Paid()) is not None for s in range(40)]
    if share == 0:
        assert sum(passed) >= 35
    else:
        assert sum(passed) <= 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianTest(LOSS, 5, 1), "cannot pass"),
        (lambda: GaussianTest(LOSS, 5, 5), "positions"),
        (lambda: GaussianTest(PrivacyLoss(10**9, 0), 50, 5), "loss"),
        (lambda: GaussianTest(LOSS, 100, 12, outlier_tuples=60), "at most 43"),
        (lambda: Geometry(4, 6), "parted"),
        (lambda: Geometry(2**50), "2\\*\\*26.5"),
        (lambda: fewest_gaussian(PrivacyLoss(1, 10)), "no number of tuples"),
    ],
)
def test_tests_that_cannot_work_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_test_takes_as_many_tuples_as_it_was_made_for():
    """With more of them two proposals that no tuple has in common could both pass."""
    test, paid = plan_gaussian(PrivacyLoss.charge(0.5, 1e-8), 150), []
    for t in (149, 151):
        with pytest.raises(ConfigError, match="150"):
            test.release(np.zeros((t, 2, 1)), Geometry(100), Noise(SeededEntropy(0)), paid.append)
    assert not paid


def test_noisy_centers_have_the_noise_of_their_sensitivity():
    balls, rho = balls_of(tuples_like(BASE, 20, 60, 3)), 4 * 10**8
    draws = np.array([noisy_centers(balls, 400**2, rho, seeded(s)).value - balls.centers for s in range(400)])
    expected = 2 * 400 * math.sqrt(3 / (2 * 0.4))
    assert noisy_centers(balls, 400**2, rho, seeded()).sigma[0, 0] == pytest.approx(expected, rel=1e-6)
    assert 0.93 < draws.std() / expected < 1.07


@settings(max_examples=30)
@given(small)
def test_averages_move_by_no_more_than_is_claimed(seed):
    """Neighbors' balls, each leaving out at most l of q tuples: every mean moves by 4 r (l + 1) / (q - l) at most."""
    rng = np.random.default_rng(seed)
    q, strange, r = 12, 3, 100
    base = np.array([[0.0], [3000.0], [-3000.0]])
    middle = base + rng.integers(-r, r + 1, size=(1, 3, 1))
    tuples = middle + rng.integers(-2 * r, 2 * r + 1, size=(q, 3, 1))
    other = tuples.copy()
    other[rng.integers(q)] = rng.integers(-4000, 4001, size=(3, 1))
    found = []
    for data in (tuples, other):
        center = (middle + rng.integers(-r, r + 1, size=(1, 3, 1)))[0]
        radii, inside = Geometry(r * r).members(np.ascontiguousarray(center[None]), data)
        if (~inside[0]).sum() > strange or radii[0, 0] == 0:
            return

        class Silent(Noise):
            def discrete_gaussian(self, variance, size):
                return np.zeros(size, np.int64)

        estimate = averages(Balls(center, radii[0], inside[0]), data, r * r, strange, 10**9, Silent(SeededEntropy(0)))
        found.append((estimate.value[np.argsort(center.ravel())], estimate.sigma[0, 0]))
    claim = 4 * r * (strange + 1) / (q - strange)
    assert np.abs(found[0][0] - found[1][0]).max() <= claim + 1
    assert found[0][1] >= claim * math.sqrt(3 / 2)


def test_own_radii_pay_for_their_scale():
    """s = kappa sqrt(k / (2 rho_D)) on the logarithms; each center's noise in proportion to a bound of its radius."""
    tuples = np.array([[[0.0, 0.0], [10**6, 0.0], [0.0, 3 * 10**6]]])
    radii, inside = Geometry(None, 1000).members(tuples, tuples)
    balls, loss = Balls(tuples[0], radii[0], inside[0]), PrivacyLoss.charge(0.5, 1e-8)
    kappa, sigmas = math.log(1002 / 998), []
    for seed in range(200):
        found = own_centers(balls, 1000, loss, seeded(seed))
        sigmas.append(found.sigma[:, 0])
    logs = np.log(np.array(sigmas))
    s = kappa * math.sqrt(3 / (2 * 0.25))
    assert 0.88 < logs.std(axis=0).mean() / s < 1.12
    u = s * 6  # about the quantile of delta / k
    for i, distance in enumerate([10**6, 10**6, 3 * 10**6]):
        least = distance * (1 + math.exp(kappa)) / 1000 * math.sqrt(3 / (2 * 0.25))
        assert least < np.median(sigmas, axis=0)[i] < least * math.exp(1.1 * u)
    near = Balls(tuples[0], *(x[0] for x in Geometry().members(tuples, tuples)))
    assert own_centers(near, 7, PrivacyLoss.charge(1e-4, 1e-8), seeded()) is None


def test_nearest_averages_have_the_printed_groups_noise():
    tuples = tuples_like(BASE, 400, 60, 3)
    drawn = []

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append((float(variance), size))
            return np.zeros(size, np.int64)

    found = nearest_averages(balls_of(tuples), tuples, np.zeros(2), 10_000**2, 5, 10**9, Recording(SeededEntropy(0)))
    order = np.argmin(((found.value[:, None] - BASE) ** 2).sum(axis=2), axis=1)
    assert np.abs(found.value - BASE[order]).max() < 20
    counts, sums = drawn[0][0], drawn[1][0]
    assert counts == pytest.approx((math.sqrt(2) * 3 * 6) ** 2 / (2 * 0.1))
    assert sums == pytest.approx((3 * 10_000 * (math.sqrt(2) * 5 + 2)) ** 2 / (2 * 0.9))


def test_cut_and_clip_equal_their_twins():
    rng = np.random.default_rng(0)
    tuples, centers = (
        rng.integers(-50, 51, size=(20, 3, 2)).astype(float),
        rng.integers(-50, 51, size=(4, 2)).astype(float),
    )
    labels = np.empty((20, 3), np.int64)
    kernels.cut(tuples, centers, labels)
    assert labels.tolist() == [[naive.label(x, x, 0, centers) for x in y] for y in tuples]
    offsets = np.rint(rng.normal(0, 300, size=(200, 3)))
    for ball2, shift in ((200**2, 0), (200**2, 3), (1, 0), (7, 2)):
        out = np.empty((200, 3), np.int64)
        kernels.clip(offsets, float(ball2), shift, out)
        assert all(sum(int(v) ** 2 for v in row) * 4**shift <= ball2 for row in out)
        for row, kept in zip(offsets, out, strict=True):
            if sum(int(v) ** 2 for v in row) <= ball2:
                assert kept.tolist() == [math.trunc(v / 2**shift) for v in row]


def ball_centers(t=150, **changes):
    test = plan_gaussian(PrivacyLoss.charge(0.4, 1e-8), t)
    values = {"loss": LOSS, "test": test, "k": 3, "dimension": 2, "radius_nano": 0, "radii_squared": (300**2,)}
    return BallCenters(**(values | changes))


def sigma_in_radii(made):
    """Noise deviation of a center per coordinate, in radii."""
    test, per = made.test, 2.0
    if made.answer == "averages":
        per = 4.0 * (test.max_outlier_tuples + 1) / (test.compared - test.max_outlier_tuples)
    return per * math.sqrt(made.k / (2 * made.last.rho))


@pytest.mark.parametrize("answer", ["centers", "averages", "nearest"])
def test_ball_centers_cost_exactly_their_loss(answer):
    made, paid = ball_centers(answer=answer, origin=(0, 0), ball_squared=10_000**2), Paid()
    reason, found = made.release(tuples_like(BASE, 150, 60, 3), seeded(2), paid)
    assert reason is None
    assert paid.total == LOSS
    order = np.argmin(((found.value[:, None] - BASE) ** 2).sum(axis=2), axis=1)
    if answer != "nearest":
        assert np.abs(found.value - BASE[order]).max() < 5 * found.sigma.max() + 200
        assert found.sigma[0, 0] == pytest.approx(300 * sigma_in_radii(made), rel=0.02)


@pytest.mark.parametrize("answer", ["centers", "averages", "nearest"])
def test_how_a_tuple_lists_its_points_does_not_show(answer):
    """A record may turn a tuple around. Which of two centers comes first decides where records halfway between go."""
    made = ball_centers(answer=answer, origin=(0, 0), ball_squared=10_000**2)
    for listed in (BASE, BASE[::-1]):
        found = made.release(np.tile(listed, (150, 1, 1)), seeded(2), Paid())[1]
        assert np.lexsort(found.value.T[::-1]).tolist() == [0, 1, 2]


def test_a_failed_test_gives_the_answers_share_back():
    made, paid = ball_centers(), Paid()
    wild = np.rint(np.random.default_rng(0).normal(0, 5000, size=(150, 3, 2)))
    assert made.release(wild, seeded(), paid) == ("no_match", None)
    assert paid.total == made.test.loss
    grid_paid, with_grid = Paid(), ball_centers(radius_nano=10**7, radii_squared=radius_grid(10, 10**5, 1.25))
    assert with_grid.release(np.zeros((150, 3, 2)), seeded(), grid_paid) == ("no_radius", None)
    assert grid_paid.total == PrivacyLoss(10**7)


def test_a_found_radius_is_small_against_the_separation():
    made = ball_centers(radius_nano=10**7, radii_squared=radius_grid(10, 10**5, 1.25))
    for seed in range(5):
        r2 = made._radius(tuples_like(BASE, 150, 60, seed), seeded(seed), Paid())
        assert 5000 / 7 / 1.6 < math.sqrt(r2) < 5000 / 7


def test_fewer_outlier_tuples_make_averages_better_than_centers():
    loss = PrivacyLoss.charge(0.4, 1e-8)
    test = GaussianTest(loss, 2000, 12)
    near = dataclasses.replace(test, outlier_tuples=60)
    made = ball_centers(test=near, answer="averages")
    assert sigma_in_radii(made) < 0.1 * sigma_in_radii(ball_centers(test=near))


@pytest.mark.slow
def test_centers_by_the_g_form_are_found(monkeypatch):
    """Few, tight, far clusters: what few tuples can carry; then the step over all records takes the noise away."""
    monkeypatch.setattr(oracles, "RESTARTS", 1)
    rng = np.random.default_rng(0)
    base = np.array([[0.7, 0.0], [-0.7, 0.1]])
    rows = base[rng.integers(0, 2, 1500)] + rng.normal(0, 0.001, size=(1500, 2))
    made = job(k=2, size_hint=1500, oracle="kmeans", method="ktuples", ball=1.0).mechanism(LOSS, Lattice(STEP))
    assert isinstance(made.average, BallCenters)
    view = view_of(np.rint(rows / STEP))
    found = [made.find(view, seeded(s), Paid()) for s in range(2)]
    assert all(x.reason is None for x in found)
    assert np.abs(found[0].centers * STEP - base[::-1]).max() < 0.05
    assert found[0].tuples is None


@pytest.mark.slow
def test_the_planner_compares_and_says_why():
    many = job(size_hint=20_000).choose(LOSS, Lattice(STEP))
    assert isinstance(many.plan, ClusterPlan)
    assert many.why.startswith("a core of tuples")
    assert "the G form asks for" in many.why
    few = job(k=2, size_hint=1100).choose(LOSS, Lattice(STEP))
    assert isinstance(few.plan, BallPlan)
    assert "no core was to be had" in few.why
    assert plan_balls(LOSS, 8, 2, 500) is None
    with pytest.raises(ConfigError, match="too few for a G form"):
        job(k=2, size_hint=500, method="ktuples").choose(LOSS, Lattice(STEP))
    with pytest.raises(ConfigError, match="'auto', 'friendly' or 'ktuples'"):
        job(method="best").choose(LOSS, Lattice(STEP))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "median"}, "must be one of"),
        ({"radius_nano": 5}, "rho for finding the radius"),
        ({"radii_squared": ()}, "delta of their own"),
        ({"radii_squared": (), "k": 1, "loss": PrivacyLoss.charge(1, 2e-8)}, "public radius for k = 1"),
        ({"loss": PrivacyLoss.charge(0.4, 1e-8)}, "leave rho for the answer"),
    ],
)
def test_ball_centers_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ball_centers(**changes)
