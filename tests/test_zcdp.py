import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcstream.budgets import PrivacyFilter
from fcstream.errors import BudgetExhausted, ConfigError
from fcstream.zcdp import PrivacyLoss, delta_tight, epsilon_simple, epsilon_tight, group_rho, rho_for_epsilon


def gaussian_delta(rho, epsilon):
    """Exact delta of the Gaussian mechanism of this rho (Balle and Wang 2018): no conversion may beat it."""
    a = math.sqrt(2 * rho)  # sensitivity / sigma

    def phi(x):
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return phi(a / 2 - epsilon / a) - math.exp(epsilon) * phi(-a / 2 - epsilon / a)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.1, 0.5, 1, 4, 20])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_conversions_are_ordered_and_inverse(rho, delta):
    tight, simple = epsilon_tight(rho, delta), epsilon_simple(rho, delta)
    assert 0 < tight <= simple
    assert delta_tight(rho, tight) == pytest.approx(delta, rel=1e-6)
    assert gaussian_delta(rho, tight) <= delta * (1 + 1e-9)  # sound
    assert tight <= 0.97 * simple or rho > 4  # and worth having


def test_known_values():
    # Canonne, Kamath, Steinke 2020: the cap of (1, 1e-6) under geo-privacy in algorithms of budgets is 0.0244.
    assert rho_for_epsilon(1.0, 1e-6) == pytest.approx(0.0244, abs=5e-5)
    assert epsilon_simple(0.5, 1e-5) == pytest.approx(0.5 + 2 * math.sqrt(0.5 * math.log(1e5)))


def test_conversion_edges():
    assert epsilon_tight(0, 1e-6) == 0
    assert epsilon_tight(1, 0) == math.inf
    assert epsilon_tight(1, -1e-9) == math.inf
    assert epsilon_tight(1, 1) == 0
    assert epsilon_simple(0, 1e-9) == 0
    assert epsilon_simple(1, 0) == math.inf
    assert delta_tight(0, 1) == 0
    assert delta_tight(1, 0) <= 1
    assert PrivacyLoss.charge(1, 1e-6).epsilon(1e-6) == math.inf
    assert group_rho(10, 3) == 90


def test_charges_round_up_caps_round_down_and_nothing_becomes_zero():
    assert PrivacyLoss.charge("0.0000000001", "1e-30") == PrivacyLoss(1, 1)
    assert PrivacyLoss.cap("0.0000000019", "1.9e-15") == PrivacyLoss(1, 1)
    assert PrivacyLoss.charge(0.1, 1e-9) == PrivacyLoss(100_000_000, 1_000_000)  # the decimal, not the double
    assert PrivacyLoss.cap(0.1, 1e-9) == PrivacyLoss(100_000_000, 1_000_000)
    assert PrivacyLoss.charge(Fraction(1, 3)) == PrivacyLoss(333_333_334, 0)


@pytest.mark.parametrize("value", [-1, "x", math.nan, math.inf, "-0.5"])
def test_bad_numbers(value):
    with pytest.raises(ConfigError):
        PrivacyLoss.charge(value)


@given(st.integers(0, 10**12), st.integers(0, 10**15), st.integers(1, 500))
def test_shares_sum_exactly(rho, delta, parts):
    whole = PrivacyLoss(rho, delta)
    shares = whole.split(parts)
    total = PrivacyLoss()
    for share in shares:
        total = total + share
    assert total == whole
    assert len(shares) == parts
    assert max(s.rho_nano for s in shares) - min(s.rho_nano for s in shares) <= 1


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=60))
def test_spent_never_passes_the_cap(losses):
    book = PrivacyFilter(PrivacyLoss(1000, 1000), "b")
    for rho, delta in losses:
        loss = PrivacyLoss(rho, delta)
        before = book.spent
        if book.can_spend(loss):
            book.spend(loss)
            assert book.spent == before + loss
        else:
            with pytest.raises(BudgetExhausted) as refused:
                book.spend(loss)
            assert book.spent == before
            assert refused.value.remaining == book.remaining
            assert refused.value.requested == loss
            assert "block b" in str(refused.value)
        assert book.spent.fits(book.capacity)


def test_a_refusal_leaves_the_filter_usable():
    book = PrivacyFilter(PrivacyLoss.cap(1.0, 1e-6))
    with pytest.raises(BudgetExhausted):
        book.spend(PrivacyLoss.charge(1.5))
    book.spend(PrivacyLoss.charge(1.0, 1e-6))
    assert book.remaining == PrivacyLoss()


def test_negative_and_bad_splits():
    with pytest.raises(ConfigError):
        PrivacyLoss(1, 0) - PrivacyLoss(2, 0)
    with pytest.raises(ConfigError):
        PrivacyLoss(1, 0).split(0)
