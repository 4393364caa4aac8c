"""Core selection from sampled pairs: formulas and plans."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats
from support import naive
from support.audits import FaultyNoise

from fcstream.accounting.losses import PrivacyLoss
from fcstream.cores.filters import ZCDPFilter
from fcstream.cores.sampled_filters import HiddenCoinFilter, SparseZCDPFilter, choose, smallest_rate
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy

LOSS = PrivacyLoss.charge(0.5, 1e-8)
BOTH = pytest.mark.parametrize("make", [SparseZCDPFilter, HiddenCoinFilter])


# -- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(3, 16), Fraction(1, 1000), 1 - Fraction(1, 2**32)], ids=str)
@pytest.mark.parametrize("rho", [1e-6, 0.01, 1, 20])
def test_bars_equal_the_specification_and_are_rounded_up(rate, rho):
    for delta in (2e-15, 1e-8, 0.3):
        loss = PrivacyLoss.charge(rho, delta)
        rho2 = Fraction(loss.rho_nano - loss.rho_nano // 10, 10**9)
        own = Fraction(loss.delta_femto - 1, 10**15)  # less what pays for the bits' precision
        for n_hat in (1, 2, 100, 3000, 10**7, 2**40):
            for bar, exact in (
                (SparseZCDPFilter(loss, rate).bar(n_hat), naive.sparse_bar(n_hat, rate, rho2, own)),
                (SparseZCDPFilter(loss, rate, 10, 77).bar(n_hat), naive.sparse_bar(n_hat, rate, rho2, own, 77)),
                (HiddenCoinFilter(loss, rate).bar(n_hat), naive.hidden_bar(n_hat, rate, rho2, own)),
            ):
                for mine, wanted in zip(bar, exact, strict=True):
                    assert wanted <= mine <= wanted * (1 + 1e-9)
                assert bar[1] >= 1


@BOTH
@pytest.mark.parametrize("rho", [0.001, 0.5])
def test_size_pays_a_quarter_of_delta(make, rho):
    loss = PrivacyLoss.charge(rho, 1e-8)
    core = make(loss, Fraction(1, 4))
    rho1 = 0.1 * (1 - 1e-8) * rho
    assert float(core.size_variance) == pytest.approx(1 / (2 * rho1), rel=1e-4)
    assert float(core.size_variance) >= 1 / (2 * rho1)
    needed = 1 + math.sqrt(math.log(4 / (1e-8 - 1e-15)) / rho1)
    assert needed <= core.offset <= needed + 1.01
    assert make(loss, Fraction(1, 4), 20).offset < core.offset


@BOTH
def test_all_pairs_at_rate_one_are_the_dense_filter_but_for_its_offset(make):
    for n_hat in (50, 5000):
        assert make(LOSS, Fraction(1)).bar(n_hat) == pytest.approx(ZCDPFilter(LOSS).bar(n_hat), rel=1e-9)


def kept_everything(core, n, size_quantile=2.807, failure=0.0075):
    """All of n complete points stay with 99%, as the specification's table counts: n-hat may be too large with 0.25%,
    and then the points may fail with 0.75% together."""
    q = float(core.rate)
    deviation = math.sqrt((n - 1) * q * (1 - q))
    low, high = (n - 1) * q - 12 * deviation, (n - 1) * q + 12 * deviation
    degrees = np.arange(max(0, math.floor(low)), min(n - 1, math.ceil(high)) + 1)
    threshold, sigma = core.bar(n + core.offset + size_quantile * math.sqrt(core.size_variance))
    drops = stats.binom.pmf(degrees, n - 1, q) @ special.ndtr((threshold - (1 + degrees) / 2) / sigma)
    return n * drops <= failure


TABLE = {  # specification 4.5: smallest expected degree of the tight and of the hidden form
    0.01: {10**4: (8853, 2153), 10**5: (10244, 261), 10**6: (11360, 217)},
    0.1: {10**3: (873, 830), 10**4: (1140, 226), 10**5: (1289, 196), 10**6: (1424, 198)},
    1: {10**3: (213, 176), 10**4: (265, 172), 10**5: (298, 179), 10**6: (329, 191)},
}


@pytest.mark.parametrize("rho", TABLE)
def test_smallest_degrees_of_the_specification(rho):
    loss = PrivacyLoss.charge(rho, 1e-8)
    for n, row in TABLE[rho].items():
        for make, degree in zip((SparseZCDPFilter, HiddenCoinFilter), row, strict=True):
            assert kept_everything(make(loss, Fraction(min(degree * 1.03 / n, 1.0))), n)
            assert not kept_everything(make(loss, Fraction(degree * 0.97 / n)), n)
    if rho == 0.01:
        assert not kept_everything(SparseZCDPFilter(loss, Fraction(1)), 1000)


def test_shared_coins_cost_more_and_grow_with_what_may_be_chosen():
    rate = Fraction(1, 8)
    bars = [SparseZCDPFilter(LOSS, rate, parameter_sets=sets).bar(2000) for sets in (None, 1, 10, 10**30)]
    assert [sigma for _, sigma in bars] == [bars[0][1]] * 4
    assert sorted(bars) == bars
    assert len(set(bars)) == 4


def worst_bit(core, n_hat):
    """Largest loss of one keep bit over rho2 / n-hat, its share, where the proof of hidden coins compares bits: exact
    divergences of Bern((1-q) S(x) + q S(x +- a)) and Bern(S(x)), |x| <= X."""
    _, sigma = core.bar(n_hat)
    q, a = float(core.rate), 1 / (2 * sigma)
    reach = a + math.sqrt(2 * math.log(2 * n_hat / core.delta))
    x = np.linspace(-reach, reach, 1201)[:, None, None]
    orders = np.geomspace(1.001, 2000, 60)[None, :, None]
    shift = np.array([a, -a])

    def logs(sign):
        plain = special.log_ndtr(sign * x) + 0 * shift
        return plain, np.logaddexp(math.log1p(-q) + plain, math.log(q) + special.log_ndtr(sign * x + sign * shift))

    (one, mixed_one), (zero, mixed_zero) = logs(-1), logs(1)
    worst = 0.0
    for p1, p0, q1, q0 in ((one, zero, mixed_one, mixed_zero), (mixed_one, mixed_zero, one, zero)):
        terms = orders * p1 + (1 - orders) * q1, orders * p0 + (1 - orders) * q0
        worst = max(worst, float((np.logaddexp(*terms) / (orders - 1) / orders).max()))
    return worst * n_hat / core.size.rho2


@pytest.mark.parametrize(
    ("rho", "n"), [(0.01, 10**4), (0.1, 10**3), (0.1, 10**5), (1, 10**3), (1, 10**6), (0.001, 10**7)]
)
def test_amplification_by_sampling_is_not_overstated(rho, n):
    loss = PrivacyLoss.charge(rho, 1e-8)
    core = HiddenCoinFilter(loss, smallest_rate("hidden", n, loss))
    sparse = SparseZCDPFilter(loss, core.rate)
    assert core.bar(n)[1] < sparse.bar(n)[1]
    assert worst_bit(core, n) < 1


def test_amplification_that_is_overstated_is_seen(monkeypatch):
    loss = PrivacyLoss.charge(0.01, 1e-8)
    core = HiddenCoinFilter(loss, smallest_rate("hidden", 10**4, loss))
    fair = worst_bit(core, 10**4)
    real = HiddenCoinFilter.bar
    monkeypatch.setattr(HiddenCoinFilter, "bar", lambda self, n_hat: (real(self, n_hat)[0], real(self, n_hat)[1] / 2))
    assert worst_bit(core, 10**4) > max(1.0, 3 * fair)


# -- bits ------------------------------------------------------------------------------------------------------------


@BOTH
def test_bits_have_the_tail_probability_of_doubled_sums(make):
    """Sums far below 0 as well as near n / 2: a point far from the bar must not be decided by one at its edge."""
    n = 20_000
    core = make(PrivacyLoss.charge(0.002, 1e-4), Fraction(1, 2))
    threshold, sigma = core.bar(n + core.offset)
    for away in (-40.0, -3.0, -1.0, 0.0, 0.5, 2.0, 3.0):
        z2 = max(2 - n, round(2 * (threshold + away * sigma)))
        mask = core.select_core(np.full(n, z2, np.int64), FaultyNoise(round(500 + 10 * away), 0)).mask
        p = stats.norm.sf((threshold - z2 / 2) / sigma)
        assert stats.binomtest(int(mask.sum()), n, p).pvalue > 1e-4


@BOTH
def test_no_points_and_one_point(make):
    core = make(LOSS, Fraction(1, 3))
    nothing = core.select_core(np.empty(0, np.int64), Noise(SeededEntropy(1)))
    assert nothing.mask.shape == (0,)
    assert isinstance(nothing.count, int)
    noise = Noise(SeededEntropy(2))
    singles = [core.select_core(np.ones(1, np.int64), noise) for _ in range(300)]
    assert not any(single.mask.any() for single in singles)
    assert abs(np.mean([single.count for single in singles]) - 1) < 4 * math.sqrt(core.size_variance / 300)


@BOTH
def test_a_size_of_zero_or_less_gives_the_empty_core(make):
    core = make(LOSS, Fraction(1))
    doubled = np.full(500, 500, np.int64)
    for n_hat in (0, -7):
        empty = core.select_core(doubled, FaultyNoise(1, n_hat - 500 - core.offset))
        assert not empty.mask.any()
        assert empty.mask.shape == (500,)
        assert empty.count == n_hat - core.offset
    assert core.select_core(doubled, FaultyNoise(1, 1 - 500 - core.offset)).mask.all()


@BOTH
def test_points_without_partners_are_strangers(make):
    loss = PrivacyLoss.charge(1, 1e-8)
    doubled = np.ones(3000, np.int64)
    doubled[::2] = 600
    core = make(loss, Fraction(1, 5)).select_core(doubled, Noise(SeededEntropy(3)))
    assert core.mask[::2].all()
    assert not core.mask[1::2].any()


@BOTH
@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1, 2), Fraction(5, 4), 0.5, 1])
def test_rates_outside_their_range_are_refused(make, rate):
    with pytest.raises(ConfigError, match=r"rate: must be a Fraction in \(0, 1\], got"):
        make(LOSS, rate)


def test_other_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="parameter_sets: must be at least 1, got 0"):
        SparseZCDPFilter(LOSS, Fraction(1, 2), parameter_sets=0)
    with pytest.raises(ConfigError, match=r"first_share: must be in \[1, 99\], got 0"):
        HiddenCoinFilter(LOSS, Fraction(1, 2), 0)
    for loss in (PrivacyLoss(10**9, 1), PrivacyLoss(3, 10**6)):
        with pytest.raises(ConfigError, match="loss: must have"):
            SparseZCDPFilter(loss, Fraction(1, 2))


# -- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["blocks", "hidden"])
@pytest.mark.parametrize(("rho", "size"), [(0.1, 1000), (0.1, 10**5), (1, 10**4), (0.01, 10**6)])
def test_smallest_rate_gives_the_margin(kind, rho, size):
    loss = PrivacyLoss.charge(rho, 1e-8)
    make = {"blocks": SparseZCDPFilter, "hidden": HiddenCoinFilter}[kind]
    for margin in (0.0, 3.0):
        rate = smallest_rate(kind, size, loss, margin)
        assert 2**32 % rate.denominator == 0
        assert make(loss, rate).margin(size) >= margin > make(loss, rate - Fraction(1, 2**32)).margin(size)


def test_margin_counts_the_random_degree():
    """Simulated sums of a point befriended by all: their mean less the bar, over their deviation."""
    rng, n = np.random.default_rng(0), 4000
    for core in (SparseZCDPFilter(LOSS, Fraction(1, 10)), HiddenCoinFilter(LOSS, Fraction(1, 10))):
        threshold, sigma = core.bar(n + core.offset)
        z = (1 + rng.binomial(n - 1, 0.1, 100_000)) / 2 + rng.normal(0, sigma, 100_000)
        assert core.margin(n) == pytest.approx((z.mean() - threshold) / z.std(), rel=0.02)


def test_no_rate_will_do():
    assert smallest_rate("blocks", 1000, PrivacyLoss.charge(0.01, 1e-8)) is None
    assert smallest_rate("hidden", 1, PrivacyLoss.charge(1, 1e-8)) is None
    for kind, size, place in (("exact", 10, "kind"), ("blocks", 0, "size")):
        with pytest.raises(ConfigError, match=f"{place}: must be"):
            smallest_rate(kind, size, LOSS)


EQUAL = {"exact": 1e-9, "blocks": 1e-9, "hidden": 1e-9}


def test_few_points_and_sliding_windows_are_counted_exactly():
    for size, tumbling in ((60, True), (10**6, False)):
        choice = choose(size, 2, PrivacyLoss.charge(0.1, 1e-8), EQUAL, tumbling)
        assert (choice.kind, choice.rate, choice.blocks, choice.partners) == ("exact", 1, 0, 0)
        assert choice.seconds == pytest.approx(size**2 / 2 * 1e-9)


@pytest.mark.parametrize("size", [1000, 1023, 1024, 5000, 30_000, 10**6])
@pytest.mark.parametrize("rho", [0.1, 1])
def test_blocks_are_whole_odd_and_enough(size, rho):
    loss = PrivacyLoss.charge(rho, 1e-8)
    choice = choose(size, 2, loss, {"exact": 1.0, "blocks": 1e-3})
    assert choice.kind == "blocks"
    assert choice.rate == Fraction(choice.partners, choice.blocks)
    assert choice.blocks.bit_count() == 1
    assert 32 <= size / choice.blocks < 64
    needed = smallest_rate("blocks", size, loss)
    assert choice.rate >= needed
    assert choice.partners % 2 == 1 or choice.partners == choice.blocks
    assert choice.partners < needed * choice.blocks + 2
    assert choice.seconds == pytest.approx(size**2 * float(choice.rate) / 2 * 1e-3)
    assert SparseZCDPFilter(loss, choice.rate).margin(size) >= 3


def test_tiny_windows_have_two_blocks():
    choice = choose(20, 1, PrivacyLoss.charge(20, 0.1), {"exact": 1.0, "blocks": 1e-3})
    assert choice.blocks == 2
    assert choice.partners in (1, 2)


def test_hidden_coins_where_their_fewer_pairs_count():
    loss = PrivacyLoss.charge(0.01, 1e-8)
    choice = choose(10**6, 2, loss, {**EQUAL, "hidden": 5e-9})
    assert choice.kind == "hidden"
    assert choice.rate == smallest_rate("hidden", 10**6, loss)
    assert choice.seconds == pytest.approx(10**12 * float(choice.rate) * 5e-9)
    assert choose(10**6, 2, loss, {**EQUAL, "hidden": 1e-6}).kind == "blocks"
    assert choose(10**6, 2, loss, {**EQUAL, "hidden": 1e-3, "blocks": 1e-3}).kind == "exact"


def test_sampling_must_be_worth_it():
    loss = PrivacyLoss.charge(0.1, 1e-8)
    rate = float(choose(10**4, 2, loss, {"exact": 1.0, "blocks": 1.0}).rate)
    assert choose(10**4, 2, loss, {"exact": 1.99 * rate, "blocks": 1.0}).kind == "exact"
    assert choose(10**4, 2, loss, {"exact": 2.01 * rate, "blocks": 1.0}).kind == "blocks"


@pytest.mark.parametrize(
    ("costs", "place"),
    [({}, "costs.exact"), ({"exact": 0.0}, "costs.exact"), ({"exact": 1, "blocks": math.inf}, "costs.blocks")],
)
def test_costs_must_be_seconds(costs, place):
    with pytest.raises(ConfigError, match=f"{place}: must be seconds per pair"):
        choose(10, 1, LOSS, costs)
    with pytest.raises(ConfigError, match="costs: must have keys"):
        choose(10, 1, LOSS, {"exact": 1.0, "Blocks": 1.0})
    with pytest.raises(ConfigError, match="dimension: must be at least 1"):
        choose(10, 0, LOSS, {"exact": 1.0})
