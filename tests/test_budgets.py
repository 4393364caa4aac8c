"""Odometers report, filters promise."""

import math

import numpy as np
import pytest

from fcstream.budgets import PrivacyFilter, PrivacyOdometer
from fcstream.errors import BudgetExhausted, ConfigError
from fcstream.zcdp import PrivacyLoss, epsilon_simple


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


def test_deltas_are_taken_out_of_the_failure():
    odometer = PrivacyOdometer()
    assert odometer.realized_loss_bound(0.1) == 0.0
    odometer.spend(PrivacyLoss.charge(0.5, 0.04))
    without = PrivacyOdometer(spent=PrivacyLoss.charge(0.5))
    assert math.isclose(odometer.realized_loss_bound(0.1), without.realized_loss_bound(0.06), rel_tol=1e-12)
    odometer.spend(PrivacyLoss.charge(0.5, 0.07))
    assert odometer.realized_loss_bound(0.1) == math.inf
    assert odometer.spent == PrivacyLoss.charge(1.0, 0.11)


def test_bounds_never_fall_as_more_is_spent():
    for form in ("mixture", "ladder"):
        odometer, last = PrivacyOdometer(0.3), 0.0
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


def test_eleven_elevenths_fit_and_a_refusal_changes_nothing():
    capacity = PrivacyLoss.cap("1.0", "1e-6")
    budget = PrivacyFilter(capacity)
    for share in capacity.split(11):
        budget.spend(share)
    assert budget.remaining == PrivacyLoss()
    with pytest.raises(BudgetExhausted):
        budget.spend(PrivacyLoss(1, 0))
    assert budget.spent == capacity
    assert PrivacyLoss.charge(1e-30).rho_nano == 1  # a tiny spend never becomes nothing
