import doctest
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fcstream.accounting.losses
from fcstream.accounting.filters import BudgetSchedule, PrivacyFilter, PrivacyOdometer
from fcstream.accounting.losses import (
    DPLoss,
    PrivacyLoss,
    delta_tight,
    epsilon_simple,
    epsilon_tight,
    geo_epsilon,
    geo_rho_cap,
    group_rho,
    rho_for_epsilon,
    zcdp_of_dp,
    zcdp_of_geo,
    zcdp_of_laplace,
)
from fcstream.cores.filters import BasicFilter
from fcstream.errors import BudgetExhausted, ConfigError

KINDS = [PrivacyLoss, DPLoss]


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
    assert epsilon_simple(0, 1e-9) == 0
    assert epsilon_simple(1, 0) == math.inf
    assert delta_tight(0, 1) == 0
    assert delta_tight(1, 0) <= 1
    assert PrivacyLoss.charge(1, 1e-6).epsilon(1e-6) == math.inf
    assert group_rho(10, 3) == 90


ONE = PrivacyLoss.cap(rho=1)
NO_NUMBERS = [math.nan, math.inf, -math.inf, -1, True, False, np.True_, "0.1", None, [0.1], np.array([0.1]), 1j]
CONVERSIONS = [
    (ONE.epsilon, {"delta": 1e-6}),
    (epsilon_tight, {"rho": 1, "delta": 1e-6}),
    (epsilon_simple, {"rho": 1, "delta": 1e-6}),
    (delta_tight, {"rho": 1, "epsilon": 1}),
    (rho_for_epsilon, {"epsilon": 1, "delta": 1e-6}),
    (geo_epsilon, {"rho": 1, "delta": 1e-6, "distance": 1}),
    (geo_rho_cap, {"epsilon": 1, "delta": 1e-6, "distance": 1}),
    (group_rho, {"rho_nano": 10, "size": 2}),
    (PrivacyLoss, {"rho_nano": 1, "delta_femto": 1}),
    (DPLoss, {"epsilon_nano": 1, "delta_femto": 1}),
    (ONE.split, {"parts": 2}),
    (BasicFilter, {"alpha": 0.25}),
    (BasicFilter().total, {"epsilon": 1, "delta": 1e-6}),
    (PrivacyOdometer, {"tuned_for": 1.0, "deltas": 0.1}),
    (PrivacyOdometer().realized_loss_bound, {"failure": 0.1}),
    (BudgetSchedule, {"capacity_nano": 10**9, "queries": 4}),
    (BudgetSchedule(10**9, 4).share, {"step": 1, "remaining_nano": 10**9}),
]
LEFT = ((epsilon_tight, "delta"), (epsilon_simple, "delta"))  # a delta that is left may be used up
PROBABILITIES = [(i, key) for i, (_, given) in enumerate(CONVERSIONS) for key in given if key in ("delta", "failure")]


@pytest.mark.parametrize("i", range(len(CONVERSIONS)))
@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=repr)
def test_no_conversion_takes_what_is_no_number(i, wrong):
    function, given = CONVERSIONS[i]
    assert function(**given) is not None
    for key in given:
        if (wrong == -1 and wrong.__class__ is int and (function, key) in LEFT) or (wrong is None and key == "queries"):
            continue
        with pytest.raises(ConfigError, match=f"^{key}: must "):
            function(**given | {key: wrong})


@pytest.mark.parametrize(("i", "key"), PROBABILITIES)
def test_a_delta_of_one_or_more_is_refused_and_is_not_perfect_privacy(i, key):
    function, given = CONVERSIONS[i]
    if function.__name__ == "total":
        return  # it returns deltas that may pass 1, and so takes them
    for wrong in (1, 2, 1.0):
        with pytest.raises(ConfigError, match=f"^{key}: must be "):
            function(**given | {key: wrong})


def test_a_number_of_numpy_counts_as_a_number():
    assert PrivacyLoss(np.int64(10**9)) == ONE
    assert PrivacyLoss(np.int64(10**9)).rho_nano.__class__ is int  # whose sums cannot overflow
    assert ONE.epsilon(np.float64(1e-6)) == ONE.epsilon(1e-6) == ONE.epsilon(Fraction(1, 10**6))


def test_only_losses_of_epsilon_are_converted_to_rho():
    with pytest.raises(ConfigError, match="loss: must be a DPLoss, got a PrivacyLoss"):
        zcdp_of_dp(ONE)


@pytest.mark.parametrize("kind", KINDS)
def test_charges_round_up_caps_round_down_and_nothing_becomes_zero(kind):
    assert kind.charge("0.0000000001", "1e-30") == kind(1, 1)
    assert kind.charge("1e-2000000", 1e-300) == kind(1, 1)
    assert kind.cap("0.0000000019", "1.9e-15") == kind(1, 1)
    assert kind.charge(0.1, 1e-9) == kind(100_000_000, 1_000_000)  # the decimal, not the double
    assert kind.cap(0.1, 1e-9) == kind(100_000_000, 1_000_000)
    assert kind.charge(Fraction(1, 3)) == kind(333_333_334, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_digits_beyond_the_usual_28_count(kind):
    assert kind.charge("1." + 60 * "0" + "1") == kind(1_000_000_001, 0)
    assert kind.cap("1." + 60 * "9") == kind(1_999_999_999, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [-1, "x", math.nan, math.inf, "-0.5", "1." + 2000 * "1"])
def test_bad_numbers(kind, value):
    with pytest.raises(ConfigError):
        kind.charge(value)


@given(st.sampled_from(KINDS), st.integers(0, 10**12), st.integers(0, 10**15), st.integers(1, 500))
def test_shares_sum_exactly(kind, first, delta, parts):
    whole = kind(first, delta)
    shares = whole.split(parts)
    total = kind()
    for share in shares:
        total = total + share
    assert total == whole
    assert len(shares) == parts
    assert max(s.parts[0] for s in shares) - min(s.parts[0] for s in shares) <= 1


@given(st.sampled_from(KINDS), *[st.integers(0, 10**12)] * 4)
def test_algebra(kind, a, b, c, d):
    one, other = kind(a, b), kind(c, d)
    assert one + other - other == one == one * 1
    assert one.fits(one + other)
    assert one.fits(other) == (a <= c and b <= d) == (one.missing(other) == kind())
    assert one.fits(other + one.missing(other))


def test_kinds_never_mix():
    rho, epsilon = PrivacyLoss(1, 1), DPLoss(1, 1)
    assert rho != epsilon
    for mix in (lambda: rho + epsilon, lambda: epsilon - rho, lambda: rho.fits(epsilon), lambda: epsilon.missing(rho)):
        with pytest.raises(ConfigError, match="DPLoss"):
            mix()


def test_losses_can_be_read():
    assert str(DPLoss.charge(0.5, 1e-9)) == "(epsilon=0.5, delta=1e-09)"
    assert DPLoss.charge(0.5, 1e-9).as_dict() == {"epsilon": 0.5, "delta": 1e-9}
    assert str(PrivacyLoss.charge(0.5, 1e-9)) == "(rho=0.5, delta=1e-09)"
    assert PrivacyLoss.charge(0.5, 1e-9).as_dict() == {"rho": 0.5, "delta": 1e-9}
    assert doctest.testmod(fcstream.accounting.losses).failed == 0


ORDERS = [1 + 10**k for k in (-6, -3, -1, 0, 1, 2)] + [1.5, 3, 5, 20]


def divergence(p, q, order):
    """Renyi divergence of two finite distributions."""
    return math.log(math.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.7, 1, 2, 5])
def test_pure_privacy_costs_what_randomized_response_does(epsilon):
    p = [1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))]
    rho = zcdp_of_dp(DPLoss.charge(epsilon)).rho
    for order in ORDERS:
        assert divergence(p, p[::-1], order) <= order * rho * (1 + 1e-6)
    kullback = (p[0] - p[1]) * epsilon  # the divergence at orders near 1
    assert kullback <= rho <= kullback + 2e-9
    assert rho <= epsilon**2 / 2 + 1e-9


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.7, 1, 2, 5])
def test_laplace_costs_less_but_not_on_a_grid(epsilon):
    rho = zcdp_of_laplace(epsilon).rho
    for order in ORDERS:
        grow, fall = math.exp((order - 1) * epsilon), math.exp(-order * epsilon)
        here = math.log((order * grow + (order - 1) * fall) / (2 * order - 1)) / (order - 1)  # Mironov 2017, Table II
        assert here <= order * rho * (1 + 1e-6)
    assert rho == pytest.approx(math.fsum([epsilon, math.expm1(-epsilon)]), abs=2e-9)
    assert zcdp_of_laplace(epsilon).rho_nano < zcdp_of_dp(DPLoss.charge(epsilon)).rho_nano
    ratio = math.exp(-epsilon)
    mass = [(1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-4000, 4001)]
    kullback = math.fsum(a * math.log(a / b) for a, b in zip(mass[1:], mass, strict=False) if a > 1e-300 < b)
    assert kullback == pytest.approx(zcdp_of_dp(DPLoss.charge(epsilon)).rho, abs=2e-9)  # one step of discrete noise


def test_conversions_round_up_exactly():
    """Against integers of 80 digits; nothing positive is free."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(80):
        for nano in [1, 2, 999, 31_622, 31_623, 44_721, 44_722, 10**6 + 1, 10**9, 7 * 10**9, 10**12]:
            epsilon = mpmath.mpf(nano) / 10**9
            exact = Fraction(nano, 10**9)
            assert zcdp_of_dp(DPLoss(nano, 7)) == PrivacyLoss(
                int(mpmath.ceil(epsilon * mpmath.tanh(epsilon / 2) * 10**9)), 7
            )
            assert zcdp_of_laplace(exact).rho_nano == int(mpmath.ceil((epsilon + mpmath.exp(-epsilon) - 1) * 10**9))
            assert zcdp_of_geo(exact).rho_nano == math.ceil(exact * exact / 2 * 10**9) > 0
    assert zcdp_of_dp(DPLoss()) == zcdp_of_laplace(0) == zcdp_of_geo(0) == PrivacyLoss()


def test_geo_privacy_needs_half_the_square_at_small_distances():
    """Why `zcdp_of_geo` is not `zcdp_of_dp`: per squared distance, the cost of randomized response rises to it."""
    costs = [zcdp_of_dp(DPLoss.charge(distance)).rho / distance**2 for distance in (4, 1, 0.1, 0.01)]
    assert costs == sorted(costs)
    assert costs[-1] == pytest.approx(zcdp_of_geo(1).rho, rel=1e-4)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2])
@pytest.mark.parametrize("distance", [0.01, 1, 5])
def test_geo_epsilon_is_largest_at_the_largest_distance(rho, distance):
    epsilon = geo_epsilon(rho, 1e-6, distance)
    deltas = [delta_tight(rho * d * d, epsilon * d) for d in (distance * part / 8 for part in range(1, 9))]
    assert deltas == sorted(deltas)
    assert deltas[-1] == pytest.approx(1e-6, rel=1e-5)
    assert all(gaussian_delta(rho * d * d, epsilon * d) <= 1e-6 for d in (distance, distance / 2, distance / 10))


def paper_fits(rho, epsilon, delta, distance):
    """The rule of Liang and Yi, eq. 10, its logarithm clipped at 0."""
    slopes = (1 + math.exp(t / 50) for t in range(-500, 500))
    return min(
        max(s / (s - 1) * 2 * math.sqrt(rho * max(0.0, math.log(2 / ((s + 1) * delta)))), s * distance * rho)
        for s in slopes
    ) <= epsilon  # fmt: skip


@pytest.mark.parametrize(("epsilon", "cap", "paper"), [(1, 0.0244, 0.0224), (3, 0.185, 0.172)])
def test_geo_cap_is_above_the_papers(epsilon, cap, paper):
    mine = geo_rho_cap(epsilon, 1e-6, 1)
    assert mine.rho == pytest.approx(cap, rel=3e-3)
    assert mine.delta_femto == 0
    assert paper_fits(paper * 0.99, epsilon, 1e-6, 1)
    assert not paper_fits(paper * 1.01, epsilon, 1e-6, 1)
    assert not paper_fits(mine.rho, epsilon, 1e-6, 1)


@pytest.mark.slow
@given(st.floats(0.01, 20), st.sampled_from([1e-3, 1e-6, 1e-12]), st.floats(0.01, 100))
@settings(max_examples=30)
def test_geo_cap_is_the_largest(epsilon, delta, distance):
    cap = geo_rho_cap(epsilon, delta, distance)
    assert geo_epsilon(cap.rho, delta, distance) <= epsilon < geo_epsilon((cap.rho_nano + 1) / 1e9, delta, distance)
    assert cap.rho == pytest.approx(rho_for_epsilon(epsilon * distance, delta) / distance**2, rel=1e-9, abs=1e-9)


def test_geo_edges():
    for distance in (0, -1, math.inf, math.nan):
        with pytest.raises(ConfigError, match="distance"):
            geo_epsilon(1, 1e-6, distance)
    for epsilon in (-1, math.inf, math.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            geo_rho_cap(epsilon, 1e-6, 1)
    for delta in (0, 1, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            geo_rho_cap(1, delta, 1)
    assert geo_rho_cap(0, 1e-6, 1) == PrivacyLoss()


def test_a_basic_core_is_charged_as_one():
    """(0.1, 1e-9) on a core: 2 (e^0.1 - 1) and 2e-9 exp(0.1 + that)."""
    grown = 2 * math.expm1(0.1)
    loss = DPLoss.charge(*BasicFilter().total(0.1, 1e-9))
    assert loss.epsilon == pytest.approx(grown, abs=1e-9)
    assert loss.epsilon >= grown
    assert loss.delta == pytest.approx(2e-9 * math.exp(0.1 + grown), rel=1e-6)


@pytest.mark.slow
def test_conversion_agrees_with_dp_accounting():
    """A grid of orders comes near the best one from above; the exact curve of Gaussian noise lies below."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dp_accounting = pytest.importorskip("dp_accounting")
        from dp_accounting import pld, rdp
    for rho in (0.01, 0.1, 1, 5):
        event = dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho))
        mine = epsilon_tight(rho, 1e-6)
        assert mine * (1 - 1e-9) <= rdp.RdpAccountant().compose(event).get_epsilon(1e-6) <= 1.01 * mine
        assert pld.PLDAccountant().compose(event).get_epsilon(1e-6) <= mine


@given(st.sampled_from(KINDS), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=60))
def test_spent_never_passes_the_cap(kind, losses):
    book = PrivacyFilter(kind(1000, 1000), "b")
    for first, delta in losses:
        loss = kind(first, delta)
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


@given(st.sampled_from(KINDS), *[st.integers(0, 10**14)] * 2, *[st.integers(0, 10**15)] * 2)
def test_losses_that_differ_look_different(kind, a, b, c, d):
    """Three answers of .333333334 were refused as "must hold one window at (rho=1, ...), got (rho=1, ...)"."""
    assert (str(kind(a, c)) == str(kind(b, d))) == ((a, c) == (b, d))
