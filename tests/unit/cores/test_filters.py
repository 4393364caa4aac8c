import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support import naive

from fcstream.accounting.losses import PrivacyLoss
from fcstream.cores.filters import BasicFilter, NoisySize, ZCDPFilter, smallest_rho
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0, 0.25, Fraction(1, 3)])
def test_basic_filter_keeps_with_the_printed_probability(alpha):
    n, repeats = 9, 4000
    counts = np.tile(np.arange(1, n + 1), repeats)
    noise = Noise(SeededEntropy(1))
    kept = np.zeros(n)
    for block in counts.reshape(repeats, n):
        kept += BasicFilter(alpha).select_core(block, noise).mask
    for count in range(1, n + 1):
        p = float(naive.basic_filter_probability(count, n, Fraction(str(alpha))))
        hits = int(kept[count - 1])
        assert (hits == p * repeats) if p in (0.0, 1.0) else stats.binomtest(hits, repeats, p).pvalue > 1e-4


def test_basic_filter_core_is_friendly_with_certainty():
    """Only points with more than n/2 friends are ever kept, so any two share one."""
    noise = Noise(SeededEntropy(2))
    counts = np.array([1, 2, 3, 4, 5, 5, 6, 10, 10, 10])
    for _ in range(500):
        assert (counts[BasicFilter().select_core(counts, noise).mask] > 5).all()


@pytest.mark.parametrize("alpha", [0, 0.25])
def test_basic_filter_stability_constant_by_enumeration(alpha):
    """Worst sum of |p_i - p'_i| plus p_j over all friend patterns of a removed point reaches gamma, never passes it."""
    n, a = 200, Fraction(str(alpha))
    worst = 0.0
    for friends in range(n):  # of the removed point among the others; all others are friends of each other
        others = [
            abs(
                naive.basic_filter_probability(n - 1 + is_friend, n, a)
                - naive.basic_filter_probability(n - 1, n - 1, a)
            )
            for is_friend in (1, 0)
        ]
        half = [  # others that stand on the ramp move most
            abs(naive.basic_filter_probability(c + f, n, a) - naive.basic_filter_probability(c, n - 1, a))
            for f, c in ((1, (3 * n) // 5), (0, (3 * n) // 5))
        ]
        own = naive.basic_filter_probability(friends + 1, n, a)
        worst = max(worst, float(friends * max(others[0], half[0]) + (n - 1 - friends) * max(others[1], half[1]) + own))
    assert worst <= BasicFilter(alpha).gamma + 1e-9
    assert worst >= 0.7 * BasicFilter(alpha).gamma


def test_basic_filter_totals():
    epsilon, delta = BasicFilter().total(0.5, 1e-9)
    assert epsilon == pytest.approx(2 * (math.e**0.5 - 1))
    assert delta == pytest.approx(2e-9 * math.exp(0.5 + epsilon))
    assert BasicFilter(0.25).gamma == pytest.approx(3.25)
    for alpha in (0.5, -0.1, 1 / 3):  # 1/3 as a float has a denominator of 10**16: coins would overflow
        with pytest.raises(ConfigError):
            BasicFilter(alpha)
    assert BasicFilter().select_core(np.empty(0, np.int64), Noise()).mask.shape == (0,)


def test_zcdp_filter_has_the_specified_constants():
    rho, delta = 0.5, 1e-8
    core = ZCDPFilter(PrivacyLoss.charge(rho, delta))
    rho1, rho2 = 0.1 * (1 - delta) * rho, 0.9 * rho
    assert float(core.size_variance) >= 1 / (2 * rho1)
    assert float(core.size_variance) == pytest.approx(1 / (2 * rho1), rel=1e-6)
    needed = 1 + math.sqrt(math.log(2 / (delta - 1e-15)) / rho1)
    assert needed <= core.offset <= needed + 1.0001
    for n_hat in (1, 10, 1000, 10**6):
        threshold, sigma = core.bar(n_hat)
        assert sigma >= max(1.0, math.sqrt(n_hat / (8 * rho2)))
        printed = math.sqrt(n_hat * math.log(2 * n_hat / delta) / (4 * rho2)) + 0.5
        assert threshold >= printed
        assert n_hat < 50 or threshold == pytest.approx(printed, rel=1e-6)


@pytest.mark.parametrize(("rho", "size"), [(0.01, 8594), (0.1, 794), (1, 82)])
def test_smallest_useful_sizes_of_the_specification(rho, size):
    """On complete data all points stay with 99% from the sizes that the specification measured."""
    core = ZCDPFilter(PrivacyLoss.charge(rho, 1e-8))

    def keeps_all(n):
        total, nodes = 0.0, np.polynomial.hermite_e.hermegauss(21)
        for node, weight in zip(*nodes, strict=True):
            threshold, sigma = core.bar(n + core.offset + node * math.sqrt(core.size_variance))
            total += weight * math.exp(n * stats.norm.logcdf((n / 2 - threshold) / sigma))
        return total / nodes[1].sum()

    assert keeps_all(math.ceil(size * 1.01)) > 0.99 > keeps_all(math.floor(size * 0.93))


def test_zcdp_filter_keeps_friends_and_drops_strangers():
    noise = Noise(SeededEntropy(3))
    counts = np.concatenate([np.full(950, 950), np.full(50, 50)]).astype(np.int64)
    core = ZCDPFilter(PrivacyLoss.charge(0.5, 1e-8)).select_core(counts, noise)
    assert core.mask[:950].all()
    assert not core.mask[950:].any()
    assert abs(core.count - 1000) < 60


def test_zcdp_filter_on_nothing_costs_the_same_and_says_little():
    core = ZCDPFilter(PrivacyLoss.charge(0.1, 1e-8)).select_core(np.empty(0, np.int64), Noise(SeededEntropy(1)))
    assert core.mask.shape == (0,)
    assert isinstance(core.count, int)


def test_size_is_noisy_with_the_right_deviation():
    core = ZCDPFilter(PrivacyLoss.charge(0.1, 1e-8))
    noise = Noise(SeededEntropy(5))
    sizes = [core.select_core(np.full(3, 3, np.int64), noise).count - 3 for _ in range(3000)]
    sigma = math.sqrt(core.size_variance)
    assert abs(np.mean(sizes)) < 4 * sigma / math.sqrt(3000)
    for scale, fits in ((1.0, True), (0.7, False), (1.3, False)):
        p = stats.kstest(
            (np.array(sizes) + np.random.default_rng(0).uniform(-0.5, 0.5, 3000)) / sigma / scale, "norm"
        ).pvalue
        assert (p > 1e-4) == fits


def test_smallest_rho_gives_the_margin():
    delta = PrivacyLoss(0, 500_000)
    for size in (100, 600, 5000):
        nano = smallest_rho(size, delta, 3.0, 10**9)
        assert ZCDPFilter(PrivacyLoss(nano, delta.delta_femto)).margin(size) >= 3.0 or nano == 10**9
        if nano < 10**9:
            assert ZCDPFilter(PrivacyLoss(int(nano * 0.98), delta.delta_femto)).margin(size) < 3.0


@pytest.mark.parametrize("loss", [PrivacyLoss(10**9, 0), PrivacyLoss(10**9, 1), PrivacyLoss(3, 10**6)])
def test_budgets_that_cannot_be_split_are_refused(loss):
    with pytest.raises(ConfigError):
        ZCDPFilter(loss)


@pytest.mark.parametrize("share", [0, -1, 100])
def test_shares_of_the_size_outside_their_range_are_refused(share):
    with pytest.raises(ConfigError, match=rf"first_share: must be in \[1, 99\], got {share}"):
        ZCDPFilter(PrivacyLoss(10**9, 10**6), share)


def test_size_falls_short_no_more_often_than_its_part_of_delta():
    """n-hat must reach n in the smaller of two neighbors' worlds too, hence the 1 in the offset."""
    for tails in (2, 4):
        size = NoisySize(PrivacyLoss.charge(0.02, 0.02), 10, tails)
        pmf = naive.gaussian_pmf(float(size.variance), 400)
        short = sum(p for y, p in pmf.items() if y < 1 - size.offset)
        assert 0 < short <= size.delta / tails
        drawn = size.draw(7, Noise(SeededEntropy(1)))
        assert abs(drawn - 7 - size.offset) < 6 * math.sqrt(size.variance)
