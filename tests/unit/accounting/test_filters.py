"""Odometers report, filters promise, schedules divide."""

import doctest
import math
import random
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcstream.accounting.filters
from fcstream.accounting.filters import AdvancedDPFilter, BudgetSchedule, PrivacyFilter, PrivacyOdometer
from fcstream.accounting.losses import DPLoss, PrivacyLoss, epsilon_simple, rho_for_epsilon, zcdp_of_dp
from fcstream.errors import BudgetExhausted, ConfigError


def streams(runs, steps, rng):
    """Sums of rho and realized losses of Gaussian mechanisms whose rho is chosen from the losses so far."""
    rho, loss = np.zeros((steps + 1, runs)), np.zeros((steps + 1, runs))
    for step in range(steps):
        eager = loss[step] > rho[step]  # an analyst who asks more where it went badly
        here = np.where(eager, 0.08, 0.01)
        rho[step + 1] = rho[step] + here
        loss[step + 1] = loss[step] + here + np.sqrt(2 * here) * rng.standard_normal(runs)
    return rho[1:], loss[1:]


@pytest.mark.parametrize("form", ["mixture", "ladder"])
def test_the_bound_holds_at_all_times_and_the_naive_epsilon_does_not(form):
    rng, failure = np.random.default_rng(1), 0.05
    rho, loss = streams(2000, 400, rng)

    def bound(total):
        odometer = PrivacyOdometer(1.0)
        odometer.spend(PrivacyLoss(round(total * 1e9), 0))
        return odometer.realized_loss_bound(failure, form)

    levels = np.unique(np.round(rho, 9))
    table = np.array([bound(level) for level in levels])
    naive = np.array([epsilon_simple(level, failure) for level in levels])
    at = np.searchsorted(levels, np.round(rho, 9))
    assert (loss > table[at]).any(axis=0).mean() <= failure
    # shown beside it as the thing not to do: an epsilon of the sum so far, read whenever one likes
    assert (loss > naive[at]).any(axis=0).mean() > failure


def test_bounds_have_the_published_values():
    """At a failure of 1e-6: 8.94 for rho = 1 and 3.38 for rho = 0.1 by the mixture (eta = 0.2), naive 8.43 and 2.45."""
    for rho, expected in ((1, 8.94), (0.1, 3.38)):
        odometer = PrivacyOdometer(1.0)
        odometer.spend(PrivacyLoss.charge(rho))
        assert abs(odometer.realized_loss_bound(1e-6) - expected) < 0.01
        assert odometer.realized_loss_bound(1e-6, "ladder") > epsilon_simple(rho, 1e-6)
        assert odometer.realized_loss_bound(1e-6) > epsilon_simple(rho, 1e-6)


def test_the_deltas_to_come_are_taken_out_of_the_failure():
    """Taking out only what was spent so far would fail with failure + sum of deltas, if the deltas come last."""
    odometer = PrivacyOdometer(deltas=0.04)
    assert odometer.realized_loss_bound(0.1) == 0.0
    odometer.spend(PrivacyLoss.charge(0.5))
    without = PrivacyOdometer(spent=PrivacyLoss.charge(0.5))
    assert math.isclose(odometer.realized_loss_bound(0.1), without.realized_loss_bound(0.06), rel_tol=1e-12)
    before = odometer.realized_loss_bound(0.1)
    odometer.spend(PrivacyLoss.charge(0, 0.04))
    assert odometer.realized_loss_bound(0.1) == before
    assert odometer.realized_loss_bound(0.04) == math.inf
    odometer.spend(PrivacyLoss.charge(0.5, 0.001))
    assert odometer.realized_loss_bound(0.1) == math.inf  # more than was set aside
    assert odometer.spent == PrivacyLoss.charge(1.0, 0.041)


def test_bounds_never_fall_as_more_is_spent():
    for form in ("mixture", "ladder"):
        odometer, last = PrivacyOdometer(0.3, deltas=1e-9), 0.0
        for _ in range(300):
            odometer.spend(PrivacyLoss.charge("0.007", "1e-12"))
            now = odometer.realized_loss_bound(1e-6, form)
            assert now >= last
            last = now


@pytest.mark.parametrize(("arguments", "what"), [((0.0,), "failure"), ((1.0,), "failure"), ((0.1, "best"), "form")])
def test_bad_arguments(arguments, what):
    with pytest.raises(ConfigError, match=what):
        PrivacyOdometer().realized_loss_bound(*arguments)
    with pytest.raises(ConfigError, match="tuned_for"):
        PrivacyOdometer(0.0)


@pytest.mark.parametrize("kind", [PrivacyLoss, DPLoss])
def test_eleven_elevenths_fit_and_a_refusal_changes_nothing(kind):
    capacity = kind.cap("1.0", "1e-6")
    budget = PrivacyFilter(capacity)
    for share in capacity.split(11):
        budget.spend(share)
    assert budget.remaining == kind()
    with pytest.raises(BudgetExhausted):
        budget.spend(kind(1, 0))
    assert budget.spent == capacity
    assert kind.charge(1e-30).parts == (1, 0)  # a tiny spend never becomes nothing


def test_a_filter_takes_one_kind_of_loss():
    budget, loss = PrivacyFilter(PrivacyLoss.cap(1, 1e-6)), DPLoss.charge(0.1)
    for use in (budget.spend, budget.can_spend):
        with pytest.raises(ConfigError, match="one kind"):
            use(loss)
    assert budget.spent == PrivacyLoss()
    budget.spend(zcdp_of_dp(loss))
    assert budget.spent.rho == pytest.approx(0.1 * math.tanh(0.05), abs=1e-9)


def test_filters_go_on_from_a_stored_state():
    capacity = PrivacyLoss.cap(1, 1e-6)
    assert PrivacyFilter(capacity, spent=PrivacyLoss.charge(0.75)).remaining == PrivacyLoss.charge(0.25, 1e-6)
    shrunk = PrivacyFilter(capacity, spent=PrivacyLoss.charge(2))  # the cap was lowered since
    assert shrunk.remaining == PrivacyLoss.cap(0, 1e-6)
    with pytest.raises(BudgetExhausted):
        shrunk.spend(PrivacyLoss(1, 0))


# -- sums of squares -----------------------------------------------------------------------------------------------


def advanced_epsilon(squares, slack):
    """Theorem 2's epsilon of a sum of squares, to 60 digits."""
    exact = Context(prec=60)
    total = exact.divide(Decimal(squares), Decimal(10**18))
    logarithm = exact.ln(exact.divide(Decimal(1), Decimal(slack)))
    return exact.add(exact.sqrt(exact.multiply(2 * total, logarithm)), total / 2)


@given(st.integers(1, 50 * 10**9), st.integers(1, 10**15 - 1))
def test_the_cap_on_squares_is_the_largest_and_never_too_large(epsilon_nano, slack_femto):
    capacity = DPLoss(epsilon_nano, slack_femto)
    slack = Decimal(slack_femto).scaleb(-15)
    most = AdvancedDPFilter(capacity, slack)._max_squares
    assert advanced_epsilon(most, slack) <= Decimal(epsilon_nano).scaleb(-9) < advanced_epsilon(most + 1, slack)


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 400)), max_size=60))
def test_advanced_filter_keeps_within_its_capacity(losses):
    budget = AdvancedDPFilter(DPLoss(10**9, 3000), "2e-12", "b")
    squares = deltas = 0
    for loss in (DPLoss(*each) for each in losses):
        fits = advanced_epsilon(squares + loss.epsilon_nano**2, "2e-12") <= 1 and deltas + loss.delta_femto <= 1000
        assert budget.can_spend(loss) == fits
        if fits:
            budget.spend(loss)
            squares, deltas = squares + loss.epsilon_nano**2, deltas + loss.delta_femto
        else:
            with pytest.raises(BudgetExhausted, match="block b"):
                budget.spend(loss)
        assert (budget.squares, budget.delta_femto) == (squares, deltas)
        assert budget.can_spend(budget.remaining)
        assert not budget.can_spend(budget.remaining + DPLoss(1, 0))
        assert not budget.can_spend(budget.remaining + DPLoss(0, 1))


def test_an_advanced_refusal_leaves_the_filter_usable():
    budget = AdvancedDPFilter(DPLoss.cap(1, 1e-6), 1e-6)
    with pytest.raises(BudgetExhausted) as refused:
        budget.spend(DPLoss.charge(0.5))
    assert refused.value.remaining == budget.remaining == DPLoss(186916584, 0)
    assert refused.value.difference == DPLoss(313083416, 0)
    budget.spend(refused.value.remaining)
    again = AdvancedDPFilter(budget.capacity, 1e-6, squares=budget.squares, delta_femto=budget.delta_femto)
    assert again.remaining == budget.remaining
    assert AdvancedDPFilter(budget.capacity, 1e-6, squares=10**18).remaining == DPLoss()


@pytest.mark.parametrize("slack", [0, "1e-16", 2e-6, -1, math.nan])
def test_slack_is_a_part_of_delta(slack):
    with pytest.raises(ConfigError, match="slack"):
        AdvancedDPFilter(DPLoss.cap(1, 1e-6), slack)
    with pytest.raises(ConfigError, match="slack"):
        AdvancedDPFilter(DPLoss.cap(1, 1), 1)


def accepted(budget, loss):
    count = 0
    while budget.can_spend(loss):
        budget.spend(loss)
        count += 1
    return count


def exact_delta(epsilon, times, target):
    """Exact delta at `target` of so many epsilon-DP randomized responses: the worst there is (Kairouz et al. 2015)."""
    keep, total = 1 / (1 + math.exp(-epsilon)), 0.0
    for i in range(times + 1):
        ways = math.lgamma(times + 1) - math.lgamma(i + 1) - math.lgamma(times - i + 1)
        here = math.exp(ways + (times - i) * math.log(keep) + i * math.log1p(-keep))
        total += here * max(0.0, -math.expm1(target - (times - 2 * i) * epsilon))
    return total


@pytest.mark.parametrize(("epsilon", "target"), [(0.01, 1), (0.03, 2), (0.1, 4)])
def test_what_an_advanced_filter_takes_is_private(epsilon, target):
    """Against the exact composition; more than basic composition takes, less than a filter on rho."""
    loss = DPLoss.charge(epsilon)
    advanced = accepted(AdvancedDPFilter(DPLoss.cap(target, 1e-6), 1e-6), loss)
    assert exact_delta(epsilon, advanced, target) <= 1e-6
    assert exact_delta(epsilon, 2 * advanced, target) > 1e-6  # the test can fail
    basic = accepted(PrivacyFilter(DPLoss.cap(target, 1e-6)), loss)
    concentrated = accepted(PrivacyFilter(PrivacyLoss.cap(rho_for_epsilon(target, 1e-6))), zcdp_of_dp(loss))
    assert basic < advanced < concentrated
    assert exact_delta(epsilon, concentrated, target) <= 1e-6


# -- schedules -----------------------------------------------------------------------------------------------------


def schedules():
    """Schedules of every sort; a number of steps to walk."""
    known = st.builds(
        lambda nano, queries, savings: (BudgetSchedule(nano, queries, savings), queries),
        st.integers(0, 10**12), st.integers(1, 12), st.sampled_from(["paper", "even", "none"]),
    )  # fmt: skip
    unknown = st.builds(
        lambda nano, steps, savings: (BudgetSchedule(nano, None, savings), steps),
        st.integers(0, 10**12), st.integers(1, 30), st.sampled_from(["paper", "none"]),
    )  # fmt: skip
    weighted = st.builds(
        lambda nano, raw, savings: (
            BudgetSchedule(nano, len(raw), savings, tuple(Fraction(each, max(1, sum(raw))) for each in raw)), len(raw)
        ),
        st.integers(0, 10**12), st.lists(st.integers(0, 50), min_size=1, max_size=12),
        st.sampled_from(["paper", "even", "none"]),
    )  # fmt: skip
    return st.one_of(known, unknown, weighted)


def walk(schedule, steps, use):
    """Offered shares; checks what the docstring proves."""
    remaining, shares = schedule.capacity_nano, []
    for step in range(1, steps + 1):
        share = schedule.share(step, remaining)
        assert math.floor(schedule.weight(step) * schedule.capacity_nano) <= share <= remaining
        shares.append(share)
        remaining -= use(share)
        assert remaining >= 0
    return shares


@pytest.mark.slow
@given(schedules(), st.data())
def test_shares_stay_between_base_and_what_remains(drawn, data):
    schedule, steps = drawn
    walk(schedule, steps, lambda share: data.draw(st.integers(0, share)))


@pytest.mark.slow
def test_shares_in_20000_random_runs():
    rng = random.Random(0)
    for _ in range(20_000):
        savings = rng.choice(["paper", "even", "none"])
        queries = rng.choice([None, *range(1, 8)]) if savings != "even" else rng.randint(1, 7)
        schedule = BudgetSchedule(rng.choice([1, 10, 10**9, rng.randrange(10**9)]), queries, savings)
        eager = rng.random()  # how often a query uses all it may
        walk(schedule, queries or 6, lambda share, e=eager: share if rng.random() < e else rng.randint(0, share))


def everything(share):
    return share


def nothing(share):
    return 0


def test_shares_have_the_papers_values():
    whole = 10**9
    assert walk(BudgetSchedule(whole, 4), 4, everything) == [whole // 4] * 4
    # nothing used: base plus (3/4, 5/6, 11/12, 1 from the first on) of the savings
    assert walk(BudgetSchedule(whole, 4), 4, nothing) == [250_000_000, 458_333_333, 708_333_333, whole]
    assert walk(BudgetSchedule(whole, 4, "even"), 4, nothing) == [whole // 4, whole // 3, whole // 2, whole]
    assert walk(BudgetSchedule(whole, 4, "none"), 4, nothing) == [whole // 4] * 4
    assert walk(BudgetSchedule(whole, 1), 1, everything) == [whole]
    assert walk(BudgetSchedule(whole), 4, everything) == [whole // 2, whole // 6, whole // 12, whole // 20]
    assert walk(BudgetSchedule(whole), 2, nothing) == [whole // 2, 541_666_666]
    half = BudgetSchedule(whole, 2, "none", (Fraction(1, 8), Fraction(1, 2)))
    assert walk(half, 2, everything) == [whole // 8, whole // 2]


def test_schedules_refuse_what_breaks_their_rule():
    schedule = BudgetSchedule(1000, 4)
    for step, remaining, what in [(2, 749, "750"), (1, 1001, "1000"), (0, 1000, "step"), (5, 1000, "queries")]:
        with pytest.raises(ConfigError, match=what):
            schedule.share(step, remaining)
    assert schedule.share(2, 750) == 250


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((-1,), "capacity"),
        ((1, 0), "queries"),
        ((1, 2, "all"), "savings"),
        ((1, None, "even"), "even"),
        ((1, 2, "paper", (Fraction(1),)), "weights"),
        ((1, None, "paper", (Fraction(1),)), "weights"),
        ((1, 2, "paper", (Fraction(2, 3), Fraction(1, 2))), "at most 1"),
        ((1, 2, "paper", (Fraction(2, 3), Fraction(-1, 2))), "at least 0"),
    ],
)
def test_bad_schedules(arguments, what):
    with pytest.raises(ConfigError, match=what):
        BudgetSchedule(*arguments)


def test_docstring_examples():
    assert doctest.testmod(fcstream.accounting.filters).failed == 0
