"""Budgets over many queries, the widths of intervals, and elimination within them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support import naive
from support.crowds import LINE, simulation
from support.devices import PLANE

from fcstream.accounting.filters import BudgetSchedule
from fcstream.errors import ConfigError
from fcstream.local import Box, Distance
from fcstream.local.analyst.series import shares
from fcstream.local.queries.confidence import confidence_radius, split_budget
from fcstream.local.queries.counting import RangeCount
from fcstream.local.queries.elimination import (
    Question,
    Rounds,
    Transcript,
    Triple,
    eliminate,
    non_interactive,
    smallest,
)


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


@pytest.mark.slow
@settings(max_examples=60)
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


@settings(max_examples=60)
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


@settings(max_examples=60)
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


@settings(max_examples=40)
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
