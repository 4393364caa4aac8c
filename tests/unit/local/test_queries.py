"""The analyst: budgets over many queries, elimination, and the four queries."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support import naive

from fcstream.accounting.filters import BudgetSchedule
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerError, LedgerMismatch
from fcstream.local import Box, Component, Distance, Euclidean, GreatCircle, LocalBudget, LocalFilter, Records
from fcstream.local.analyst.series import Series, shares
from fcstream.local.device.journal import MemoryJournal
from fcstream.local.queries.confidence import confidence_radius, split_budget
from fcstream.local.queries.counting import RangeCount, balanced_cut, paper_cut
from fcstream.local.queries.density import KernelDensity, predicted_errors
from fcstream.local.queries.elimination import (
    Question,
    Rounds,
    Transcript,
    Triple,
    eliminate,
    non_interactive,
    smallest,
)
from fcstream.local.queries.neighbors import Nearest
from fcstream.local.queries.threshold import ShareBelow
from fcstream.local.simulation import Fleet, Simulation
from fcstream.noise.samplers import Noise, SeededEntropy

PLANE = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, unit=100.0)
LINE = Euclidean((-500.0,), (500.0,), step=1.0, unit=10.0)
RNG = np.random.default_rng(7)
CROWD = PLANE.encode_all(RNG.normal(500, 180, (4000, 2)))


def simulation(points=CROWD, space=PLANE, seed=1, rho=10**4):
    return Simulation({"place": (space, points)}, PrivacyLoss.cap(rho), Noise(SeededEntropy(seed)))


class Scripted:
    """Respondents who say what is planned, round by round."""

    def __init__(self, answers):
        self.answers, self.asked = np.asarray(answers, np.int64), []

    @property
    def count(self):
        return len(self.answers)

    def ask(self, question, who, costs):
        self.asked.append((question.round, who.tolist(), costs.tolist()))
        return np.ones(len(who), bool), self.answers[who, question.round - 1].reshape(len(who), -1)


# -- devices without a value -------------------------------------------------------------------------------------------


def test_devices_without_a_value_count_in_no_box():
    """Issue: they answered from the middle of the public box: 501 were reported for 308."""
    box = RangeCount.around("place", PLANE, (500, 500), (200, 200))
    points = PLANE.encode_all(np.vstack([RNG.uniform(0, 1000, (800, 2)), np.full((200, 2), np.nan)]))
    truth = box.exact(points[:800])
    for method in ("BM0", "BM1", "PM0", "PM1"):
        answer = box.run(simulation(points), "q", np.full(1000, 10**12), method)
        assert answer.missing == 0
        assert abs(answer.value - truth) <= 8, method
    nearest = Nearest.at("place", PLANE, (500, 500), 3)
    found = nearest.run(simulation(points), "r", np.full(1000, 10**12), "PM1")
    assert max(np.asarray(found.value).ravel().tolist()) < 800


@pytest.mark.parametrize("space", [PLANE, LINE, GreatCircle(), Euclidean((3.0,), (3.4,), step=1.0)])
def test_the_point_of_a_missing_value_is_public_and_outside(space):
    nowhere = space.nowhere
    width = max(b - a for a, b in space._bounds)
    assert all(n < a for n, (a, _) in zip(nowhere, space._bounds, strict=True))
    assert all(a - n >= min(width, b - a) for n, (a, b) in zip(nowhere, space._bounds, strict=True))
    for value in (None, "x", [], [float("nan")] * space.dimension, [1e400] * 2, object()):
        assert space.encode(value) == nowhere
    count = 2 if isinstance(space, GreatCircle) else space.dimension
    assert space.encode_all(np.full((2, count), np.nan)).tolist() == [list(nowhere)] * 2
    assert space.reach >= max(map(abs, nowhere))
    assert "missing" not in space.as_dict()


def test_a_configured_point_for_missing_values():
    space = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=2.0, missing=(10.0, 1500.0))
    assert space.encode(None) == (5, 750)
    assert space.as_dict()["missing"] == [10.0, 1500.0]
    gulf = GreatCircle(missing=(0.0, 0.0)).encode(None)
    assert np.abs(np.subtract(gulf, GreatCircle().encode((0.0, 0.0)))).max() <= 1
    for wrong in ((1.0,), (1.0, float("nan")), (1e15, 0.0)):
        with pytest.raises(ConfigError, match="missing"):
            Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, missing=wrong)
    with pytest.raises(ConfigError, match="missing"):
        GreatCircle(missing=(1.0, 2.0, 3.0))


# -- budgets ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shares_equal_the_schedule_and_keep_its_invariants(data):
    capacity = data.draw(st.integers(0, 10**14))
    known = data.draw(st.booleans())
    m = data.draw(st.integers(1, 8))
    weights = None
    if known and data.draw(st.booleans()):
        cuts = data.draw(st.lists(st.integers(0, 30), min_size=m, max_size=m))
        weights = tuple(Fraction(c, max(1, sum(cuts))) for c in cuts)
    savings = data.draw(st.sampled_from(["paper", "even", "none"] if known else ["paper", "none"]))
    schedule = BudgetSchedule(capacity, m if known else None, savings, weights)
    remaining = np.full(5, capacity, np.int64)
    for step in range(1, m + 1):
        offered = shares(schedule, step, remaining)
        assert offered.tolist() == [schedule.share(step, int(left)) for left in remaining]
        if weights is None and savings == "paper" and known:
            expected = [math.floor(naive.paper_share(Fraction(capacity), Fraction(int(b)), step, m)) for b in remaining]
            assert offered.tolist() == expected
        own = math.floor(schedule.weight(step) * capacity)
        assert (own <= offered).all()
        assert (offered <= remaining).all()
        used = [data.draw(st.integers(0, int(most))) for most in offered]
        remaining = remaining - np.array(used, np.int64)
    assert (remaining >= 0).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 2**50), min_size=1, max_size=5),
    st.one_of(
        st.tuples(st.integers(1, 30), st.sampled_from(["even", "doubling"])),
        st.tuples(st.integers(1, 10), st.just("steep")),
    ),
)
def test_parts_sum_exactly(budgets, asked):
    rounds, how = asked
    parts = split_budget(np.array(budgets), rounds, how)
    assert parts.sum(axis=1).tolist() == budgets
    assert parts.min() >= 0
    for row, budget in zip(parts.tolist(), budgets, strict=True):
        for j, part in enumerate(row):
            base = {"even": 1, "doubling": 2, "steep": 8}[how]
            share = Fraction(budget * base**j, sum(base**k for k in range(rounds)))
            assert abs(part - share) <= 1
    with pytest.raises(ConfigError):
        split_budget(np.array(budgets), 0, how)
    with pytest.raises(ConfigError):
        split_budget(np.array([-1]), 3, how)
    with pytest.raises(ConfigError):
        split_budget(np.array([1]), 3, "halves")
    with pytest.raises(ConfigError):
        split_budget(np.array([1]), 11, "steep")


# -- widths ----------------------------------------------------------------------------------------------------------


def test_widths():
    for d in (1, 2, 3, 784):
        for beta in (0.05, 1e-6, 1e-12):
            exact = confidence_radius(d, beta)
            assert math.isclose(exact**2, stats.chi2.isf(beta, d), rel_tol=1e-9)
            assert exact <= confidence_radius(d, beta, "paper") + 1e-12
            assert exact <= confidence_radius(d, beta, "subgaussian") + 1e-12
    assert (
        round(confidence_radius(1, 1e-6), 3),
        round(confidence_radius(3, 1e-6), 3),
        round(confidence_radius(784, 1e-6), 2),
    ) == (4.892, 5.538, 31.41)
    assert (round(confidence_radius(1, 1e-6, "paper"), 3), round(confidence_radius(784, 1e-6, "paper"), 2)) == (
        5.387,
        31.93,
    )
    for bad in (0, 1):
        with pytest.raises(ConfigError):
            confidence_radius(2, bad)
    with pytest.raises(ConfigError):
        confidence_radius(2, 0.1, "guess")


def test_intervals_hold_at_their_level_and_no_better():
    """Averages over rounds, points and distances; the interval's level is met, and 0.8 of the width is not enough."""
    beta, points = 0.1, np.tile([[500, 500]], (4000, 1))
    for is_points in (True, False):
        triple = Triple(PLANE, Distance((100, 200)), is_points)
        truth = math.hypot(400, 300)
        budgets = np.full(4000, 10**9)
        keep = lambda rows, phi, h: np.zeros(len(rows), np.int8)  # noqa: E731
        question = Question("q", 1, "place", PLANE, triple.phi)
        found = eliminate(simulation(points), question, triple, budgets, Rounds(3), keep)
        phi = triple.estimate(found.means(np.arange(4000)))
        h = triple.half_width(found.known, beta)
        misses = int((abs(phi - truth) > h).sum())
        assert stats.binomtest(misses, 4000, beta, alternative="greater").pvalue > 1e-4
        if not is_points:  # of points the bound is on the whole displacement
            assert stats.binomtest(misses, 4000, beta).pvalue > 1e-4
            assert stats.binomtest(int((abs(phi - truth) > 0.8 * h).sum()), 4000, beta).pvalue < 1e-9


# -- elimination -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_elimination_equals_its_twin(data):
    n, c = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    noisy = st.lists(st.integers(-3000, 3000), min_size=c, max_size=c)
    answers = data.draw(st.lists(noisy, min_size=n, max_size=n))
    budgets = np.array(data.draw(st.lists(st.integers(2**c, 10**10), min_size=n, max_size=n)))
    rounds = Rounds(c, data.draw(st.sampled_from(["even", "doubling"])), 0.1)
    k = data.draw(st.integers(0, 3))
    triple = Triple(LINE, Distance((0,), 2), False)
    low, high = sorted(data.draw(st.lists(st.integers(-800, 800), min_size=2, max_size=2)))
    fast = smallest(k) if k else non_interactive(low, high)
    slow = naive.judge_smallest(k) if k else naive.judge_range(low, high)
    crowd = Scripted(answers)
    found = eliminate(crowd, Question("q", 1, "p", LINE, triple.phi), triple, budgets, rounds, fast, enough=k)
    parts = split_budget(budgets, c, rounds.split).tolist()
    states, charged, asked = naive.eliminate(
        answers,
        parts,
        lambda mean: (mean + 0.5) / 2,
        lambda paid: float(triple.half_width(np.array([paid]), 0.1 / (c * n))[0]),
        slow,
        k,
    )
    assert found.state.tolist() == states
    assert found.consumed.tolist() == charged
    counted = [sum(i in who for _, who, _ in crowd.asked) for i in range(n)]
    assert counted == asked


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-400, 400), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 99))
def test_within_the_intervals_nobody_is_sorted_wrongly(places, k, seed):
    """The corrected lemmas are deterministic where all errors stay below h: S1 inside, S0 outside, neighbors stay."""
    rng, rounds = np.random.default_rng(seed), Rounds(4, "doubling", 0.1)
    points = np.array(places)[:, None]
    budgets = np.full(len(points), 10**9)
    for phi, judge, enough in ((Box((0,), (200,)), non_interactive(0, 0), 0), (Distance((5,)), smallest(k), k)):
        triple = Triple(LINE, phi, False)
        so_far = np.cumsum(split_budget(budgets, 4), axis=1)
        h = np.stack([triple.half_width(so_far[:, j], rounds.level(len(points), 0)) for j in range(4)], axis=1)
        means = (phi.evaluate_all(points) + 0.5) / 16 + h * rng.uniform(-0.98, 0.98, h.shape)
        sums = np.diff(np.concatenate([np.zeros((len(points), 1)), means * so_far], axis=1), axis=1)
        answers = np.rint(sums / split_budget(budgets, 4) * 16 - 0.5)
        found = eliminate(
            Scripted(answers), Question("q", 1, "p", LINE, phi), triple, budgets, rounds, judge, enough=enough
        )
        exact = phi.evaluate_all(points)[:, 0]
        if enough:
            kept = set(found.rows(Transcript.LEFT).tolist())
            kth = sorted(exact)[min(k, len(exact)) - 1]
            assert {i for i in range(len(exact)) if exact[i] < kth} <= kept
            assert len(kept) >= min(k, len(exact))
        else:
            assert (exact[found.rows(Transcript.INSIDE)] < 0).all()
            assert (exact[found.rows(Transcript.OUTSIDE)] >= 0).all()


def test_the_printed_confidence_fails_where_ours_holds():
    """All phi one interval and 4.05 deviations above the threshold: about 25 survive, chosen by their own noise."""
    n, beta = 10**6, 0.1
    triple, ours, paper = (
        Triple(LINE, Distance((0,), 2**12), False),
        Rounds(2, beta=beta),
        Rounds(2, beta=beta, confidence="paper"),
    )
    r1, total = np.array([999 * 10**6]), np.array([10**9])
    h1, sigma = triple.half_width(r1, ours.level(n, n))[0], triple.sigma(r1)[0]
    failed = {"ours": 0, "paper": 0}
    for seed in range(5):
        first = np.random.default_rng(seed).normal(0, sigma, n)
        left = first[first + h1 + 4.05 * sigma <= h1]  # not yet certainly above
        assert 5 < len(left) < 60
        second = np.random.default_rng(seed + 99).normal(0, triple.sigma(np.array([10**6]))[0], len(left))
        mean = 0.999 * left + 0.001 * second
        failed["ours"] += bool((abs(mean) > triple.half_width(total, ours.level(n, len(left)))[0]).any())
        failed["paper"] += bool((abs(mean) > triple.half_width(total, paper.level(n, len(left)))[0]).any())
    assert failed["paper"] == 5  # of 5, where one in ten is allowed
    assert failed["ours"] <= 2


def test_users_are_sorted_wrongly_no_more_often_than_promised():
    """beta = 0.5 and a crowd at the boundary: 120 queries; the event of an error keeps its level."""
    points = np.repeat(np.arange(-14, 15, 2), 4)[:, None]
    query = RangeCount("place", LINE, Box((0,), (20,)), "none")
    wrong = 0
    for seed in range(120):
        found = query.run(
            simulation(points, LINE, seed), "q", np.full(len(points), 8 * 10**9), "PM1", Rounds(3, "even", 0.5)
        )
        exact = query.box.evaluate_all(points)[:, 0]
        state = found.transcript.state
        wrong += bool(((state == 1) & (exact >= 0)).any() or ((state == 2) & (exact < 0)).any())
    assert stats.binomtest(wrong, 120, 0.5, alternative="greater").pvalue > 1e-3


# -- the same protocol -----------------------------------------------------------------------------------------------


def fleet(points, seed=1, rho=10, journal=None, space=PLANE, wrap=Fleet):
    noise, journal = Noise(SeededEntropy(seed)), journal or MemoryJournal()
    budget = LocalBudget.concentrated(rho)
    return wrap(
        [
            LocalFilter(budget, {"place": Component(space, row)}, journal, name=str(i), noise=noise)
            for i, row in enumerate((points * space.step).tolist())
        ]
    )


@pytest.mark.parametrize("method", ["PM0", "PM1", "BM1"])
def test_simulated_devices_say_what_real_ones_say(method):
    points = CROWD[:150]
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    budgets = np.linspace(10**8, 5 * 10**9, 150).astype(np.int64)
    real, made_up = fleet(points), simulation(points, rho=10)
    for number in range(3):  # the third finds some budgets used up
        answers = [query.run(crowd, f"q{number}", budgets, method, Rounds(4)) for crowd in (real, made_up)]
        assert answers[0].value == answers[1].value
        assert answers[0].missing == answers[1].missing
        for name in ("consumed", "known", "sums", "state"):
            assert (getattr(answers[0].transcript, name) == getattr(answers[1].transcript, name)).all()
    assert answers[0].missing > 0
    assert [d.spent.rho_nano for d in real.devices] == made_up.spent.tolist()
    assert made_up.spent.max() <= 10 * 10**9


class Dies(Fleet):
    """The analyst dies in some round; the devices have been asked, and their answers are lost."""

    die_in = None

    def ask(self, question, who, costs):
        found = super().ask(question, who, costs)
        if question.round == self.die_in:
            raise KeyboardInterrupt
        return found


def test_an_analyst_restarted_in_mid_query_gets_the_same_answers_for_nothing(tmp_path):
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    schedule = BudgetSchedule(10 * 10**9, 4)
    for die_in in (1, 3):
        crowd, path = fleet(CROWD[:60], wrap=Dies), tmp_path / f"books{die_in}"
        series = Series(crowd, schedule, "s", path)
        series.run(query, "PM1", Rounds(4))
        left = series.account.remaining.copy()
        for _ in range(3):  # as often as it likes
            crowd.die_in = die_in
            with pytest.raises(KeyboardInterrupt):
                series.run(query, "PM1", Rounds(4))
            assert (series.account.remaining == left).all()
            series.close()
            crowd.die_in = None
            series = Series(crowd, schedule, "s", path)  # the books are those before the query
            assert series.step == 2
            assert (series.account.remaining == left).all()
        answer = series.run(query, "PM1", Rounds(4))
        assert answer.missing == 0
        assert (10**10 - series.account.remaining).tolist() == [d.spent.rho_nano for d in crowd.devices]
        series.close()
    with pytest.raises(LedgerMismatch):
        Series(crowd, BudgetSchedule(10 * 10**9, 5), "s", path)
    with pytest.raises(LedgerMismatch):
        Series(fleet(CROWD[:59]), schedule, "s", path)
    path.write_bytes(b"broken")
    with pytest.raises(LedgerError):
        Series(crowd, schedule, "s", path)


def test_a_restarted_analyst_hears_the_same_bytes():
    """Round by round: what devices said before the analyst died they say again, at no cost."""
    query = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
    budgets = np.full(60, 3 * 10**9)
    crowd = fleet(CROWD[:60], wrap=Dies)
    once = query.run(crowd, "q", budgets, "PM1", Rounds(4))
    spent = [d.spent for d in crowd.devices]
    twice = query.run(crowd, "q", budgets, "PM1", Rounds(4))
    assert once.value == twice.value
    assert (once.transcript.sums == twice.transcript.sums).all()
    assert [d.spent for d in crowd.devices] == spent
    other = query.run(crowd, "q", budgets * 2, "PM1", Rounds(4))  # the same id for another price
    assert other.missing == 60


def test_silent_devices_are_left_out_and_count_as_charged():
    class Deaf(Fleet):
        def ask(self, question, who, costs):
            answered, values = super().ask(question, who, costs)
            hears = who % 3 != 0
            return answered & hears, values[hears[answered]]

    crowd = fleet(CROWD[:90], wrap=Deaf)
    found = RangeCount("place", PLANE, Box((1000, 1000), (3000, 3000))).run(crowd, "q", np.full(90, 10**9), "BM1")
    assert found.missing == 30
    assert found.value <= 60
    assert (found.transcript.consumed == 10**9).all()
    assert found.saving == 0


def test_an_analyst_refuses_lies():
    class Liar(Fleet):
        def ask(self, question, who, costs):
            from fcstream.local.simulation import ask_of, read_replies

            one = ask_of(question, 0)
            good = b'{"nano":1000000000,"query":"q","round":1,"status":"answered","values":[5]}'
            lies = [good, good[:-1], b"", None, b"[]", good.replace(b"[5]", b"[5,6]"), good.replace(b"5]", b"5.5]")]
            lies += [
                good.replace(b'"q"', b'"p"'),
                good.replace(b"[5]", b"[1" + b"0" * 30 + b"]"),
                good.replace(b"[5]", b"[true]"),
            ]
            return read_replies(question, one, lies, costs)

    crowd = fleet(CROWD[:10], wrap=Liar)
    found = RangeCount("place", PLANE, Box((0, 0), (1, 1))).run(crowd, "q", np.full(10, 10**9), "BM1")
    assert found.missing == 9


# -- many queries ----------------------------------------------------------------------------------------------------


def test_savings_pay_for_better_answers():
    """Twelve counts with a budget each, and the same with what was saved: the error falls."""
    errors = {}
    for method in ("BM1", "PM1"):
        series = Series(simulation(rho=12, seed=3), BudgetSchedule(12 * 10**9, 12), "s")
        found = []
        for step in range(12):
            query = RangeCount("place", PLANE, Box((900 + 20 * step, 1000), (160, 160)))
            offered = series.shares()
            answer = series.run(query, method, Rounds(8))
            assert (answer.transcript.consumed <= offered).all()
            found.append(query.error(answer.value, query.exact(CROWD)))
        errors[method] = np.mean(found)
        assert (series.account.remaining >= 0).all()
    assert errors["PM1"] < errors["BM1"]
    assert series.account.remaining.min() < series.account.remaining.max()


def test_asking_beyond_an_account_is_refused():
    series = Series(simulation(CROWD[:5]), BudgetSchedule(10**9, 2), "s")
    question = Question("q", 1, "place", PLANE, Distance((0, 0)))
    with pytest.raises(ConfigError):
        series.account.ask(question, np.arange(5), np.full(5, 2 * 10**9))


# -- the four queries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_counts_of_all_methods(method):
    query = RangeCount.around("place", PLANE, (500.0, 480.0), (300.0, 200.0))
    truth = query.exact(CROWD)
    values = [query.run(simulation(seed=s), "q", np.full(4000, 20 * 10**9), method, Rounds(6)) for s in range(4)]
    assert np.mean([query.error(v.value, truth) for v in values]) < 0.05
    saved = np.mean([v.saving for v in values])
    assert (saved > 0.25) if method.startswith("PM") else saved == 0
    assert values[0].bound > 0


def test_eliminating_costs_no_accuracy():
    """PM and BM err alike on the same budget, up to chance: 40 queries, errors within a tenth."""
    query = RangeCount("place", PLANE, Box((1000, 1000), (200, 200)), "none")
    truth = query.exact(CROWD)
    for pair in (("BM0", "PM0"), ("BM1", "PM1")):
        spread = []
        for method in pair:
            crowds = [simulation(seed=seed) for seed in range(20)]
            values = [query.run(crowd, "q", np.full(4000, 10**10), method, Rounds(8)).value for crowd in crowds]
            spread.append(np.sqrt(np.mean((np.array(values) - truth) ** 2)))
        assert 0.5 < spread[1] / spread[0] < 1.5


def test_turned_boxes():
    angle = 0.7
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    query = RangeCount.around("place", PLANE, (500.0, 500.0), (400.0, 100.0), turn=turn)
    gap = (CROWD - 500) @ turn.T
    inside = (np.abs(gap) < [200, 50]).all(axis=1)
    assert abs(query.exact(CROWD) - inside.sum()) <= 3  # points within 1e-9 of the boundary may differ
    answer = query.run(simulation(), "q", np.full(4000, 10**11), "PM1")
    assert abs(answer.value - inside.sum()) < 25


def test_balanced_cuts_are_the_roots_and_the_printed_ones_are_not():
    gammas = [0.3, 0.45, 0.499, 0.51, 1.0, 2.0]
    cuts = balanced_cut([1.0, 1.0], gammas)
    assert np.allclose(cuts, [-0.089, -0.202, -0.247, -0.258, -0.859, -2.55], atol=4e-3)
    for gamma, cut, printed in zip(gammas, cuts, paper_cut([1.0, 1.0], gammas), strict=True):
        outside, inside = naive.misplaced([1.0, 1.0], gamma, float(cut))
        assert abs(outside - inside) < 2e-4
        outside, inside = naive.misplaced([1.0, 1.0], gamma, float(printed))
        assert abs(outside - inside) > 0.02
    assert abs(balanced_cut([1.0], [0.2])[0]) < 0.01  # a line has two ends of the same size
    assert balanced_cut([1.0, 1.0, 1.0], [0.2])[0] < balanced_cut([1.0, 1.0], [0.2])[0]
    far = RangeCount("place", PLANE, Box((0, 0), (50, 80)))
    many = np.geomspace(0.5, 60, 400)
    assert np.allclose(far.cuts(many), balanced_cut([50, 80], many), atol=0.05)
    assert (RangeCount("place", PLANE, Box((0, 0), (5, 8)), "none").cuts(many) == 0).all()
    with pytest.raises(ConfigError):
        paper_cut([1.0], [1.0])
    with pytest.raises(ConfigError):
        balanced_cut(np.ones(17), [1.0])


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_the_unbiased_kernel_is_unbiased_and_the_plain_one_is_not(method):
    """All at one distance, noise of half a bandwidth."""
    points = np.tile([[560, 500]], (6000, 1))
    k = 2 if method.endswith("0") else 1
    rho = int(0.5 * (100 / 30) ** 2 * 10**9)
    values = {}
    for kernel in ("plain", "unbiased"):
        query = KernelDensity.at("place", PLANE, (500.0, 500.0), 60.0, kernel)
        values[kernel] = query.run(simulation(points, seed=5), "q", np.full(6000, rho), method, Rounds(3)).value
    truth = math.exp(-0.5)
    assert abs(query.exact(points) - truth) < 1e-12
    blurred = (1 + 0.25) ** (-k / 2) * math.exp(-0.5 / 1.25)
    assert abs(values["unbiased"] - truth) < 0.02
    assert abs(values["plain"] - blurred) < 0.02
    if k == 2:
        assert abs(values["plain"] - truth) > 0.05


def test_the_kernel_is_chosen_by_predicted_error():
    assert predicted_errors(0.1, 1.0, 2, 10**6)[1] < predicted_errors(0.1, 1.0, 2, 10**6)[0]
    assert predicted_errors(0.97, 1.0, 2, 10)[1] > predicted_errors(0.97, 1.0, 2, 10)[0]
    assert predicted_errors(1.5, 1.0, 2, 10)[1] == math.inf
    # The prediction is right: noise at one distance, many times.
    draws = np.random.default_rng(1).normal([1.0, 0.0], 0.6, (200_000, 2))
    away = (draws**2).sum(axis=1)
    plain = np.exp(-away / 2)
    assert abs(plain.mean() - (1.36) ** -1 * math.exp(-1 / 2.72)) < 5e-3
    query = KernelDensity.at("place", PLANE, (500.0, 500.0), 150.0)
    values = [query.run(simulation(seed=seed), "q", np.full(4000, 3 * 10**9), "PM1").value for seed in range(3)]
    errors = [query.error(value, query.exact(CROWD)) for value in values]
    assert max(errors) < 0.02


@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
def test_neighbors_of_all_methods(method):
    query = Nearest.at("place", PLANE, (520.0, 470.0), 15)
    answer = query.run(simulation(), "q", np.full(4000, 500 * 10**9), method, Rounds(8))
    away = query.phi.estimate(CROWD.astype(float))
    excess = np.sort(away[answer.value]) - np.sort(away)[:15]
    assert excess.max() <= answer.bound
    assert query.error(answer.value, CROWD) < 0.4
    assert (answer.saving > 0.5) == method.startswith("PM")
    assert query.error(query.exact(CROWD), CROWD) == 0


@pytest.mark.parametrize("method", ["BM1", "PM1"])
def test_thresholds_in_the_central_model(method):
    space = Records(0.0, 500_000.0)
    incomes = np.random.default_rng(2).lognormal(10.8, 0.8, 3000)
    for share, expected in (("0.05", False), ("0.9", True), ("0.4", None)):
        query = ShareBelow("incomes", space, 40_000.0, share)
        holder = LocalFilter(
            LocalBudget.concentrated(1), {"incomes": Component(space, incomes)}, noise=Noise(SeededEntropy(3))
        )
        answer = query.run(Fleet([holder]), "q", np.array([5 * 10**8]), method, Rounds(8))
        assert query.exact(incomes) is bool((incomes <= 40_000.4).mean() < float(share))
        if expected is not None:
            assert answer.value is expected is query.exact(incomes)
            assert (answer.saving > 0.8) == (method == "PM1")
    with pytest.raises(ConfigError):
        query.run(Fleet([holder]), "r", np.array([10**8]), "PM0")


def test_adding_one_record_moves_a_threshold_by_at_most_its_sensitivity():
    phi = ShareBelow("t", Records(0, 10), 5, Fraction(1, 3)).phi
    for table in ((), (1,), (9, 2, 5), (7, 7)):
        for more in (0, 5, 6, 10):
            assert abs(phi.evaluate((*table, more))[0] - phi.evaluate(table)[0]) <= phi.sensitivity
    assert phi.sensitivity == 2  # of thirds: max(q, 1 - q)


def test_plans():
    count = RangeCount.around("place", PLANE, (500.0, 500.0), (200.0, 200.0))
    cheap, dear = (count.plan(1000, rho) for rho in (0.1, 10.0))
    assert dear.sigma < cheap.sigma
    assert dear.half_saved_at < cheap.half_saved_at
    assert cheap.widths == sorted(cheap.widths, reverse=True)
    assert "\n".join(cheap.lines()).count("says little") == 1
    # The width after the last round is that of a real transcript.
    real = count.run(simulation(CROWD[:1000]), "q", np.full(1000, 10**10), "PM1")
    assert math.isclose(dear.widths[-1], count.triple("PM1").half_width(np.array([10**10]), 0.05 / 10_000)[0])
    assert real.bound > 0
    near = Nearest.at("place", PLANE, (1.0, 1.0), 3).plan(1000, 1.0, "PM0")
    found = Nearest.at("place", PLANE, (1.0, 1.0), 3).run(simulation(CROWD[:1000]), "q", np.full(1000, 10**9), "PM0")
    assert math.isclose(near.error, found.bound, rel_tol=1e-9)
    density = KernelDensity.at("place", PLANE, (500.0, 500.0), 90.0).plan(4000, 2.0)
    assert 0 < density.error < 0.1
    assert ShareBelow("t", Records(0, 10), 5, "0.5").plan(0.1).sigma > 1
    assert count.plan(10, 1.0, "BM0").widths == []
    assert count.plan(10, 1.0).as_dict()["sigma"] > 0


def test_degenerate_crowds():
    empty = np.empty((0, 2), np.int64)
    count = RangeCount.around("place", PLANE, (500.0, 500.0), (200.0, 200.0))
    assert count.run(simulation(empty), "q", np.empty(0, np.int64)).value == 0
    assert KernelDensity.at("place", PLANE, (1, 1), 5.0).run(simulation(empty), "q", np.empty(0, np.int64)).value == 0
    few = Nearest.at("place", PLANE, (1, 1), 5)
    assert sorted(few.run(simulation(CROWD[:3]), "q", np.full(3, 10**9), "BM1").value.tolist()) == [0, 1, 2]
    assert few.run(simulation(CROWD[:3]), "r", np.full(3, 10**9), "PM1").saving == 1  # nothing to ask
    poor = count.run(simulation(CROWD[:3]), "q", np.zeros(3, np.int64), "PM1")
    assert (poor.value, poor.saving, poor.transcript.consumed.tolist()) == (0, 0, [0, 0, 0])
    sparse = count.run(simulation(CROWD[:3]), "q", np.array([1, 5, 10**9]), "PM1", Rounds(10))
    assert (sparse.transcript.parts.sum(axis=1) == [1, 5, 10**9]).all()
    assert BudgetSchedule(5, 1).share(1, 5) == 5
    assert shares(BudgetSchedule(5, 1), 1, np.empty(0, np.int64)).tolist() == []


def test_queries_refuse_what_they_cannot_answer():
    for make in (
        lambda: RangeCount("p", PLANE, Box((0,), (1,))),
        lambda: RangeCount("p", PLANE, Box((0, 0), (1, 1)), "wild"),
        lambda: KernelDensity.at("p", PLANE, (1, 1), 0.0),
        lambda: KernelDensity.at("p", PLANE, (1, 1), 1.0, "sharp"),
        lambda: Nearest.at("p", PLANE, (1, 1), 0),
        lambda: ShareBelow("p", PLANE, 1, "0.5"),
        lambda: ShareBelow("p", Records(0, 1), 1, "1.5"),
        lambda: Rounds(0),
        lambda: Rounds(3, beta=1.0),
        lambda: Rounds(3, confidence="hope"),
        lambda: non_interactive(2, 1),
        lambda: Simulation({}, PrivacyLoss()),
    ):
        with pytest.raises(ConfigError):
            make()
    count = RangeCount("place", PLANE, Box((0, 0), (1, 1)))
    with pytest.raises(ConfigError):
        count.run(simulation(), "q", np.full(4000, 10**9), "XM")
    with pytest.raises(ConfigError):
        count.run(simulation(), "q", np.full(3, 10**9))
    crowd = simulation()
    count.run(crowd, "q", np.full(4000, 10**9), "BM1")
    with pytest.raises(ConfigError, match="remember"):
        count.run(crowd, "q", np.full(4000, 10**9), "BM1")
