"""Early elimination under pure geo-privacy: losses are epsilons, noise has exponential tails."""

import math

import numpy as np
import pytest
from scipy import stats

from fcstream.accounting.filters import BudgetSchedule
from fcstream.accounting.losses import DPLoss, PrivacyLoss, zcdp_of_geo
from fcstream.errors import ConfigError
from fcstream.local import Box, Component, Distance, Euclidean, LocalBudget, LocalFilter, Records
from fcstream.local.analyst.series import Series
from fcstream.local.device.journal import MemoryJournal
from fcstream.local.queries.confidence import pure_confidence_radius
from fcstream.local.queries.counting import RangeCount
from fcstream.local.queries.density import KernelDensity
from fcstream.local.queries.elimination import Question, Rounds, Triple, eliminate
from fcstream.local.queries.neighbors import Nearest
from fcstream.local.queries.threshold import ShareBelow
from fcstream.local.simulation import Fleet, Simulation
from fcstream.noise.samplers import Noise, SeededEntropy

PLANE = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, unit=100.0)
LINE = Euclidean((-500.0,), (500.0,), step=1.0, unit=10.0)
CROWD = PLANE.encode_all(np.random.default_rng(7).normal(500, 180, (1500, 2)))
UNIT = 10**9


def simulation(points=CROWD, space=PLANE, seed=1, capacity=None):
    capacity = capacity or DPLoss.cap(10**4)
    return Simulation({"place": (space, points)}, capacity, Noise(SeededEntropy(seed)))


def fleet(points, seed=1, budget=None, space=PLANE):
    noise, journal, budget = Noise(SeededEntropy(seed)), MemoryJournal(), budget or LocalBudget.geo(10)
    return Fleet(
        [
            LocalFilter(budget, {"place": Component(space, row)}, journal, name=str(i), noise=noise)
            for i, row in enumerate(points.tolist())
        ]
    )


@pytest.mark.parametrize("split", ["even", "doubling", "steep"])
@pytest.mark.parametrize("is_points", [True, False])
def test_intervals_hold_at_their_level(is_points, split):
    """Noise averaged over rounds leaves its interval as rarely as promised, and half of it does not do."""
    beta, n = 0.1, 3000
    triple = Triple(PLANE, Distance((100, 200)), is_points, pure=True)
    keep = lambda rows, phi, h: np.zeros(len(rows), np.int8)  # noqa: E731
    question = Question("q", 1, "place", PLANE, triple.phi)
    budgets = np.full(n, 3 * UNIT)
    found = eliminate(simulation(np.tile([[500, 500]], (n, 1))), question, triple, budgets, Rounds(3, split), keep)
    assert np.allclose(found.known, np.square(found.parts / UNIT).sum(axis=1))
    if is_points:  # the bound is on the whole displacement
        off = np.linalg.norm(found.means(np.arange(n)) - 500, axis=1)
    else:
        off = np.abs(found.estimates(triple, np.arange(n)) - 500)
    h = triple.half_width(found.known, beta, found.consumed)
    assert stats.binomtest(int((off > h).sum()), n, beta, alternative="greater").pvalue > 1e-4
    assert (off > 0.4 * h).mean() > beta
    assert math.isclose(triple.sigma(found.known)[0], off_scale(found, triple, is_points), rel_tol=0.1)


def off_scale(found, triple, is_points):
    if is_points:
        return found.means(np.arange(len(found.who))).std(axis=0).mean()
    return found.estimates(triple, np.arange(len(found.who))).std()


def test_reaches_are_those_of_single_answers():
    for beta in (0.1, 1e-3, 1e-6):
        assert pure_confidence_radius(0, beta)[1] > math.log(1 / beta)  # a Laplace number's own quantile
        for d in (1, 2, 5):
            a, s = pure_confidence_radius(d, beta)
            own = stats.gamma.isf(beta, d)
            assert own < a + s < 1.3 * own + 2
    with pytest.raises(ConfigError):
        pure_confidence_radius(2, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PM0", "PM1", "BM1"])
def test_simulated_devices_say_what_real_ones_say(method):
    points, budgets = CROWD[:80], np.linspace(2 * UNIT, 5 * UNIT, 80).astype(np.int64)
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    real, made_up = fleet(points), simulation(points, capacity=DPLoss.cap(10))
    for number in range(3):  # the third finds some budgets used up
        answers = [query.run(crowd, f"q{number}", budgets, method, Rounds(3), pure=True) for crowd in (real, made_up)]
        assert answers[0].value == answers[1].value
        for name in ("consumed", "known", "sums", "state"):
            assert (getattr(answers[0].transcript, name) == getattr(answers[1].transcript, name)).all()
    assert answers[0].missing == answers[1].missing > 0
    assert [d.spent.epsilon_nano for d in real.devices] == made_up.spent.tolist()
    assert made_up.spent.max() <= 10 * UNIT


def test_users_are_sorted_wrongly_no_more_often_than_promised():
    points = np.repeat(np.arange(-14, 15, 2), 4)[:, None]
    query = RangeCount("place", LINE, Box((0,), (20,)), "none")
    budgets, wrong, sorted_out = np.full(len(points), 40 * UNIT), 0, 0
    for seed in range(100):
        crowd = simulation(points, LINE, seed)
        found = query.run(crowd, "q", budgets, "PM1", Rounds(3, "even", 0.5), pure=True)
        exact, state = query.box.evaluate_all(points)[:, 0], found.transcript.state
        wrong += bool(((state == 1) & (exact >= 0)).any() or ((state == 2) & (exact < 0)).any())
        sorted_out += int((state > 0).sum())
    assert stats.binomtest(wrong, 100, 0.5, alternative="greater").pvalue > 1e-3
    assert sorted_out > 100


@pytest.mark.parametrize("method", ["PM0", "PM1"])
def test_rounds_cost_accuracy_and_steep_ones_least(method):
    query = RangeCount("place", PLANE, Box((1000, 1000), (400, 400)))
    budgets, truth = np.full(len(CROWD), 120 * UNIT), query.exact(CROWD)
    triple = query.triple(method, pure=True)
    whole = triple.sigma(triple.weigh(budgets[:1]))[0]
    worth = {}
    for split in ("even", "doubling", "steep"):
        answer = query.run(simulation(seed=3), "q", budgets, method, Rounds(4, split), pure=True)
        worth[split] = triple.sigma(np.square(answer.transcript.parts[0] / UNIT).sum()) / whole
        assert answer.saving > {"even": 0.45, "doubling": 0.4, "steep": 0.15}[split]
        assert query.error(answer.value, truth) < 0.05
        assert answer.bound > 0
    assert abs(worth["even"] - 2) < 1e-6
    assert worth["doubling"] > 1.5
    assert worth["steep"] < 1.14


def test_all_queries_are_answered_purely():
    near = Nearest.at("place", PLANE, (520.0, 470.0), 10)
    answer = near.run(simulation(), "q", np.full(len(CROWD), 300 * UNIT), "PM1", Rounds(4, "steep"), pure=True)
    away = near.phi.estimate(CROWD.astype(float))
    assert (np.sort(away[answer.value]) - np.sort(away)[:10]).max() <= answer.bound
    assert answer.saving > 0.5
    density = KernelDensity.at("place", PLANE, (500.0, 500.0), 100.0)
    found = density.run(simulation(), "q", np.full(len(CROWD), 40 * UNIT), "PM0", Rounds(3, "steep"), pure=True)
    assert density.error(found.value, density.exact(CROWD)) < 0.02
    space, incomes = Records(0.0, 500_000.0), np.random.default_rng(2).lognormal(10.8, 0.8, 2000)
    share = ShareBelow("incomes", space, 40_000.0, "0.9")
    holder = LocalFilter(LocalBudget.geo(1), {"incomes": Component(space, incomes)}, noise=Noise(SeededEntropy(3)))
    said = share.run(Fleet([holder]), "q", np.array([UNIT]), "PM1", Rounds(4, "steep"), pure=True)
    assert said.value is True is share.exact(incomes)
    assert said.saving > 0.8


def test_many_pure_queries_keep_the_budget():
    devices = fleet(CROWD[:60], budget=LocalBudget.geo(80))
    series = Series(devices, BudgetSchedule(80 * UNIT, 4), "s")
    for place in range(4):
        query = RangeCount("place", PLANE, Box((900 + 50 * place, 1000), (300, 300)))
        offered = series.shares()
        answer = series.run(query, "PM1", Rounds(3, "steep"), pure=True)
        assert answer.missing == 0
        assert (answer.transcript.consumed <= offered).all()
    assert (80 * UNIT - series.account.remaining).tolist() == [d.spent.epsilon_nano for d in devices.devices]
    assert series.account.remaining.max() > 0


def test_an_epsilon_has_a_price_in_rho_and_not_the_other_way_round():
    query, budgets = RangeCount("place", PLANE, Box((1000, 1000), (300, 300))), np.full(40, UNIT)
    for crowd in (fleet(CROWD[:40]), simulation(CROWD[:40], capacity=DPLoss.cap(10))):
        assert query.run(crowd, "q", budgets, "BM1").missing == 40
    crowds = fleet(CROWD[:40], budget=LocalBudget.concentrated(2)), simulation(CROWD[:40], capacity=PrivacyLoss.cap(2))
    answers = [query.run(crowd, "q", budgets, "PM0", Rounds(3), pure=True) for crowd in crowds]
    assert answers[0].value == answers[1].value
    spent = [d.spent.rho_nano for d in crowds[0].devices]
    assert spent == crowds[1].spent.tolist()
    full = sum(zcdp_of_geo(part / UNIT).rho_nano for part in answers[0].transcript.parts[0].tolist())
    assert max(spent) == full < zcdp_of_geo(1).rho_nano


def test_points_of_many_dimensions_are_refused():
    wide = Euclidean.cube(11, 0.0, 10.0, 1.0)
    points = np.zeros((3, 11), np.int64)
    query = Nearest.at("place", wide, [1.0] * 11, 1)
    with pytest.raises(ConfigError, match="10"):
        query.run(simulation(points, wide), "q", np.full(3, UNIT), "PM0", pure=True)
    assert len(query.run(simulation(points, wide), "q", np.full(3, UNIT), "PM1", pure=True).value) == 1
