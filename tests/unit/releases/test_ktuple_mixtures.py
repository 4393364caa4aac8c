"""Mixtures that are learned by way of tuples, and audits of everything that tuples release."""

import dataclasses

import numpy as np
import pytest
from support.audits import Weak, epsilon_lower_bound
from support.clusters import BASE, LOSS, STEP, Paid, balls_of, job, quick, seeded, three
from support.windows import view_of

import fcstream
from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.averages import Estimate, gaussian_variance
from fcstream.releases.clusters import oracles
from fcstream.releases.clusters.agreement import (
    Balls,
    Geometry,
    plan_gaussian,
)
from fcstream.releases.clusters.ktuples import (
    BallCenters,
    nearest_averages,
    noisy_centers,
    own_centers,
    spread_of_logs,
)
from fcstream.releases.clusters.mixtures import ComponentLearner, MixtureAlgorithm
from fcstream.stream.lattice import Lattice

DELTA = 1e-3


def mixture(rho=1.0, **changes):
    more = {"size_hint": 5000, "spread": 0.06, **changes}
    return MixtureAlgorithm.of(job(**more), PrivacyLoss.charge(rho, 1e-8), Lattice(STEP))


def gaussians(n, seed=0):
    """Three clusters of known weights and deviations, and these."""
    rng = np.random.default_rng(seed)
    deviations = np.array([[100.0, 40.0], [60.0, 60.0], [30.0, 120.0]])
    labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    return np.rint(BASE[labels] + rng.normal(size=(n, 2)) * deviations[labels]), np.array([0.5, 0.3, 0.2]), deviations


def test_a_mixture_is_learned_and_costs_the_larger_half():
    made, paid = mixture(), Paid()
    points, weights, deviations = gaussians(10_000)
    found = made.release(view_of(points), seeded(1), paid)
    assert found.reason is None
    assert paid.total == made.loss == PrivacyLoss.charge(1, 1e-8)
    assert made.average.loss == made.loss  # each half has all of rho
    order = np.argsort(BASE[:, 0])
    assert np.abs(found.means - BASE[order]).max() < 20
    assert np.abs(found.weights - weights[order]).max() < 0.03
    assert abs(found.counts.sum() - 5000) < 200
    assert 0.5 * made.shards.tuples < found.tuples < 1.2 * made.shards.tuples
    for covariance, sigma, deviation in zip(found.covariances, found.covariance_sigma, deviations[order], strict=True):
        assert (np.abs(covariance - np.diag(deviation**2)) < 5 * sigma + 1000).all()
        assert np.linalg.eigvalsh(covariance).min() >= -1e-6


def test_sigma_of_a_mixture_is_honest():
    learner, center = ComponentLearner(5 * 10**8, 2, 500**2), np.zeros(2)
    points = np.rint(np.random.default_rng(0).normal(0, [60, 90], size=(3000, 2)))
    view, found = view_of(points), []
    for seed in range(150):
        found.append(learner.release(view, np.ones(3000, bool), view.points(), center, seeded(seed)))
    for name, told, truth in (
        ("mean", np.mean([one.sigma for one in found], axis=0), points.mean(axis=0)),
        ("covariance", np.mean([one.covariance_sigma for one in found], axis=0), np.cov(points.T, bias=True)),
    ):
        errors = np.array([getattr(one, name) for one in found]) - truth
        assert (errors.std(axis=0) / told > 0.8).all()
        assert (errors.std(axis=0) / told < 1.2).all()


@pytest.mark.slow
def test_tuples_that_do_not_agree_cost_what_they_started_and_the_learners_nothing():
    for rows, reason in ((np.empty((0, 2)), "no_radius"), (np.zeros((5000, 2)), "no_radius")):
        made, paid = mixture(), Paid()
        assert made.release(view_of(rows), seeded(), paid).reason == reason
        assert paid.total == PrivacyLoss(made.average.radius_nano)
    wild = np.rint(np.random.default_rng(0).uniform(-7000, 7000, size=(5000, 2)))
    made, paid = mixture(), Paid()
    assert made.release(view_of(wild), seeded(), paid).reason in ("no_radius", "no_match")
    assert paid.total.rho_nano < made.loss.rho_nano - 9 * 10**6


def test_a_mixture_of_few_records_is_refused_by_its_counts():
    """Tuples may agree (here they are made so) where the learning half holds too little."""

    class TupleMethod:
        loss = PrivacyLoss.charge(1, 1e-8)

        def release(self, tuples, noise, start):
            start(PrivacyLoss(10**8))
            return None, Estimate(BASE.copy(), np.ones((3, 2)), 90)

    made, paid = dataclasses.replace(mixture(), average=TupleMethod()), Paid()
    assert made.release(view_of(BASE), seeded(), paid).reason == "too_few"
    counts = made.learner.average.count_nano  # more than the tenth that the tuples cost
    assert paid.total == PrivacyLoss(counts)


def test_a_learners_noise_is_that_of_its_share():
    learner, center = ComponentLearner(9 * 10**8, 2, 500**2), np.zeros(2)
    drawn = []

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append((variance, size))
            return super().discrete_gaussian(variance, size)

    points = np.rint(np.random.default_rng(0).normal(0, 100, size=(300, 2)))
    view = view_of(points)
    learner.release(view, np.ones(300, bool), view.points(), center, Recording(SeededEntropy(0)))
    costs = [1 / (2 * float(drawn[0][0])), 500**2 / (2 * float(drawn[1][0])), 500**4 / (2 * float(drawn[2][0]))]
    assert sum(costs) <= 0.9
    assert sum(costs) > 0.8999
    assert drawn[2:] == [(gaussian_variance(500**4, 6 * 10**8), 2), (gaussian_variance(500**4, 6 * 10**8) / 2, 1)]


def test_private_mixture_of_an_array(monkeypatch):
    monkeypatch.setattr(oracles, "RESTARTS", 1)
    rows = three(n=10_000) * STEP
    shared = {"ball": 1.0, "spread": 0.06, "rho": 1, "delta": 1e-8, "size_hint": 10_000, "step": STEP}
    answer = fcstream.private_mixture(rows, 3, oracle=quick, method="friendly", noise=seeded(), **shared)
    assert answer.status == "released"
    assert answer.rho == 1
    assert np.abs(answer.value - STEP * BASE[np.argsort(BASE[:, 0])]).max() < 0.005
    assert 0 < np.max(answer.sigma) < 0.005
    assert np.abs(np.sqrt(np.array(answer.parts["covariances"])[:, [0, 1], [0, 1]]) - 0.01).max() < 0.006
    assert sum(answer.parts["weights"]) == pytest.approx(1)
    assert abs(sum(answer.parts["counts"]) - 5000) < 250
    assert answer.parts["tuples"] > 0
    refused = fcstream.private_mixture(np.zeros((0, 2)), 3, oracle=quick, method="friendly", noise=seeded(), **shared)
    assert (refused.status, refused.reason, refused.value) == ("refused", "no_radius", None)
    assert refused.rho < 0.1


def test_mixtures_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="second moments"):
        dataclasses.replace(mixture(), learner_nano=5)
    with pytest.raises(ConfigError, match="spread: is required"):
        mixture(spread=None)
    with pytest.raises(ConfigError, match="2\\*\\*53"):
        dataclasses.replace(mixture(), spread_squared=2**53)


def printed_by(release, runs, first, make=Noise):
    out = np.full((runs, 6), np.nan)
    for run in range(runs):
        _, found = release(make(SeededEntropy(first + run)))
        if found is not None:
            out[run] = found.value[np.lexsort(found.value.T[::-1])].ravel()
    return out


@pytest.mark.slow
@pytest.mark.parametrize("role", ["first", "compared", "bar"])
def test_a_g_form_stays_below_its_claim(role):
    """The replaced tuple proposes the balls, or is compared, or is compared where the test is on edge."""
    loss, r = PrivacyLoss.charge(0.5, 1e-8), 300
    made = BallCenters(loss, plan_gaussian(PrivacyLoss.charge(0.25, 1e-8), 150), 3, 2, 0, (r * r,), answer="averages")
    one = np.tile(BASE, (150, 1, 1))
    if role == "bar":
        one[150 - round(made.test.threshold) :] = 0.0
    two = one.copy()
    if role == "first":
        two[0] += [[r, 0], [0, r], [-r, 0]]
    else:
        two[80 if role == "compared" else 100, 0] += [r * 0.99, 0] if role == "compared" else [9 * r, 0]
    a, b = (printed_by(lambda n, t=t: made.release(t, n, Paid()), 600, s) for t, s in ((one, 0), (two, 10**6)))
    released = 1 - np.isnan(a[:, 0]).mean()
    assert (0.02 < released < 0.98) if role == "bar" else released > 0.8
    assert epsilon_lower_bound(a, b, DELTA) < epsilon_tight(0.5, DELTA - 1e-8)


@pytest.mark.parametrize("weak", [1.0, 0.02])
def test_noisy_centers_of_moved_balls(weak):
    """The first tuple moves by twice the radius in every point: the whole sensitivity of the answer."""
    r, rho = 300, 0.3
    make = Noise if weak == 1.0 else lambda entropy: Weak(entropy, weak)
    rows = []
    for shift, first in ((-r, 0), (r, 10**6)):
        balls = balls_of(np.tile(BASE + np.array([shift, 0]), (5, 1, 1)), r * r)
        rows.append(printed_by(lambda n, b=balls: (None, noisy_centers(b, r * r, int(rho * 1e9), n)), 800, first, make))
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(rho, DELTA)) == (weak < 1)


def grown(center, r):
    """A tuple and the farthest one that shares a partitioned tuple with it, by own radii: all moves outward."""
    distance = center[1] - center[0]
    far = (distance * (1 + 2 * r)) / (1 - 2 * r)  # ends of z in the ball's edge, ends of the other one beyond z
    middle = (center[0] + center[1]) / 2
    return np.array([middle - far / 2, middle + far / 2])


@pytest.mark.slow
@pytest.mark.parametrize("weak", [1.0, 0.02])
def test_own_radii_of_moved_balls(weak):
    """Both centers move by twice the radius, and the distances grow by all that kappa allows for."""
    parted, loss = 1000, PrivacyLoss.charge(0.3, 5e-4)
    one = np.array([0.0, 10.0**6])
    two = np.rint(grown(one, 1 / parted))
    shared = np.array([[[-(10.0**3), 0.0], [10.0**6 + 10**3, 0.0]]])
    rows = []
    for ends, first in ((one, 0), (two, 10**6)):
        center = np.column_stack([ends, np.zeros(2)])
        radii, inside = Geometry(None, parted).members(center[None], shared)
        assert inside.all()  # they do share it
        balls, out = Balls(center, radii[0], inside[0]), np.full((800, 4), np.nan)
        for run in range(800):
            found = own_centers(balls, parted, loss, Weak(SeededEntropy(first + run), weak))
            ends_of = np.sort(found.value[:, 0])
            out[run] = [*ends_of, ends_of[1] - ends_of[0], found.sigma.max()]
        rows.append(out)
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(0.3, DELTA - 5e-4)) == (weak < 1)


def test_own_radii_pay_for_what_conditions_on_them():
    """The first step's noise is that of (1 - delta) of its share: what follows holds on a likely event only."""
    drawn = []

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append(variance)
            return super().discrete_gaussian(variance, size)

    tuples, loss = np.array([[[0.0, 0.0], [10.0**6, 0.0]]]), PrivacyLoss.charge(0.5, 0.01)
    radii, inside = Geometry(None, 1000).members(tuples, tuples)
    own_centers(Balls(tuples[0], radii[0], inside[0]), 1000, loss, Recording(SeededEntropy(0)))
    steps = spread_of_logs(1000) * 2**24
    assert 2 * steps**2 / (2 * float(drawn[0])) <= 0.25 * (1 - 0.01)


def test_own_radii_of_a_tuple_that_has_none():
    """The test may err, with a chance below delta: two equal points must not be an error then."""
    balls = Balls(np.zeros((2, 2)), np.zeros(2), np.zeros(5, bool))
    assert own_centers(balls, 1000, LOSS, seeded()).value.shape == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("weak", [1.0, 0.01])
def test_averages_by_the_nearest_center(weak):
    """One tuple replaced, from one end of the public ball to the other."""
    base, rho, rows = np.array([[-5000.0, 0.0], [5000.0, 0.0]]), 0.25, []
    one = np.tile(base, (60, 1, 1))
    two = one.copy()
    two[7] = [[-100.0, 9990.0], [-200.0, 9980.0]]
    one[7] = [[-100.0, -9990.0], [-200.0, -9980.0]]
    for tuples, first in ((one, 0), (two, 10**6)):
        balls, out = Balls(base, np.full(2, 300.0**2), np.ones(60, bool)), np.empty((600, 4))
        for run in range(600):
            noise = Weak(SeededEntropy(first + run), weak)
            found = nearest_averages(balls, tuples, np.zeros(2), 10_000**2, 1, int(rho * 1e9), noise)
            out[run] = found.value.ravel()
        rows.append(out)
    assert (epsilon_lower_bound(*rows, DELTA) > epsilon_tight(rho, DELTA)) == (weak < 1)


@pytest.mark.slow
@pytest.mark.parametrize("weak", [1.0, 0.02])
def test_a_learner_stays_below_its_claim(weak):
    """One record more, at the edge of the spread: count, sums and second moments all move as far as they can."""
    learner, rho = ComponentLearner(5 * 10**8, 2, 500**2), 0.5
    make = Noise if weak == 1.0 else lambda entropy: Weak(entropy, weak)
    points = np.rint(np.random.default_rng(0).normal(0, 100, size=(300, 2)))
    rows = []
    for data, first in ((points, 0), (np.vstack([points, [[500.0, 0.0]]]), 10**6)):
        view, out = view_of(data), []
        for s in range(800):
            part = learner.release(
                view, np.ones(len(data), bool), view.points(), np.zeros(2), make(SeededEntropy(first + s))
            )
            out.append([part.count, *part.mean, part.covariance[0, 0]])
        rows.append(np.array(out, np.float64))
    assert (epsilon_lower_bound(*rows, DELTA) > epsilon_tight(rho, DELTA)) == (weak < 1)


def test_mixture_halves_do_not_meet():
    """A record of one half reaches the tuples or the learner, never both."""
    seen = []

    def looking(points, k, seed):
        seen.append(len(points))
        return quick(points, k, seed)

    found = mixture(oracle=looking).release(view_of(three(n=5000)), seeded(3), Paid())
    assert found.reason is None
    assert abs(sum(seen) - 2500) < 200
