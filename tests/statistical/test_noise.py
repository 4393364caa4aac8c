"""Exactness of the samplers. Statistical tests have power: scales off by 30% must be rejected by the same test."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from support import naive
from support.distributions import chi_square_p

from fcstream.errors import ConfigError
from fcstream.noise import samplers as noise_module
from fcstream.noise.samplers import (
    TAIL_CUTOFF,
    Noise,
    SeededEntropy,
    SystemEntropy,
    _WordReader,
    gaussian_draw,
    laplace_draw,
    normal_tail,
)

DRAWS = 40_000


class Planned:
    """Entropy that deals given words first; asking for more than planned gets seeded ones."""

    private = False

    def __init__(self, words, seed=0):
        self._words = list(words)
        self._rest = SeededEntropy(seed)

    def words(self, count):
        dealt, self._words = self._words[:count], self._words[count:]
        return np.concatenate([np.array(dealt, np.uint64), self._rest.words(count - len(dealt))])


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1, 3), Fraction(2), Fraction(50), Fraction(1000, 7)])
def test_discrete_gaussian_has_the_right_law_and_no_other(variance):
    draws = Noise(SeededEntropy(11)).discrete_gaussian(variance, DRAWS)
    reach = 12 * math.isqrt(math.ceil(variance)) + 20
    assert chi_square_p(draws, naive.gaussian_pmf(float(variance), reach)) > 1e-4
    for wrong in (0.7, 1.3):  # of the deviation
        assert chi_square_p(draws, naive.gaussian_pmf(float(variance) * wrong**2, reach)) < 1e-12


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_discrete_laplace_has_the_right_law_and_no_other(scale):
    draws = Noise(SeededEntropy(12)).discrete_laplace(scale, DRAWS)
    reach = 40 * math.ceil(scale) + 20
    assert chi_square_p(draws, naive.laplace_pmf(float(scale), reach)) > 1e-4
    for wrong in (0.7, 1.3):
        assert chi_square_p(draws, naive.laplace_pmf(float(scale) * wrong, reach)) < 1e-12


def test_large_gaussian_has_the_right_deviation():
    draws = Noise(SeededEntropy(13)).discrete_gaussian(Fraction(10**12), DRAWS) / 1e6
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    for wrong in (0.7, 1.3):
        assert stats.kstest(draws * wrong, "norm").pvalue < 1e-12
    assert stats.kstest(draws, lambda x: stats.norm.cdf(x, 0.05)).pvalue < 1e-6  # a shift is seen too


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1, 3), Fraction(50), Fraction(12345678901, 3), 10**12])
def test_compiled_gaussian_equals_its_twin(variance):
    n = 400
    fast = Noise(SeededEntropy(5)).discrete_gaussian(variance, n)
    reader = _WordReader(SeededEntropy(5))  # the same stream of words, read one by one
    assert fast.tolist() == [gaussian_draw(Fraction(variance), reader) for _ in range(n)]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(50, 7), Fraction(10**6)])
def test_compiled_laplace_equals_its_twin(scale):
    n = 400
    fast = Noise(SeededEntropy(7)).discrete_laplace(scale, n)
    reader = _WordReader(SeededEntropy(7))
    assert fast.tolist() == [laplace_draw(scale, reader) for _ in range(n)]


def test_a_starved_draw_goes_on_from_its_own_words(monkeypatch):
    """Few words at a time must give the values that many words at once give: no draw is started again."""
    plenty = Noise(SeededEntropy(21)).discrete_gaussian(Fraction(400), 300)

    class Stingy(Noise):
        def _fill(self, out, words_each, *how):
            return super()._fill(out, 0, *how)

    # The same word stream, dealt in small helpings: SeededEntropy continues its stream over calls.
    few = Stingy(SeededEntropy(21)).discrete_gaussian(Fraction(400), 300)
    assert (few == plenty).all()


def test_undecided_draws_are_decided_exactly():
    """Words planted at a comparison's boundary leave the kernel; the draw goes on in exact arithmetic."""
    mpmath.mp.dps = 60
    boundary = int(mpmath.floor(mpmath.exp(-1) * 2**64))
    # variance 1/4: scale is 1, so u needs a word (mask 0), then exp(0), then exp(-1) tests at the boundary.
    calls = []
    original = noise_module.gaussian_draw

    def spy(variance, word, more=None):
        calls.append(variance)
        return original(variance, word, more)

    noise_module.gaussian_draw = spy
    try:
        values = Noise(Planned([0, 0, boundary, 2**64 - 1, 0, 0])).discrete_gaussian(Fraction(1, 4), 5)
    finally:
        noise_module.gaussian_draw = original
    assert len(calls) == 1
    assert len(values) == 5


def test_exact_comparison_extends_the_uniform_number():
    mpmath.mp.dps = 60
    below = int(mpmath.floor(mpmath.mpf(2) ** 64 * mpmath.exp(-1)))  # exp(-1) lies inside this cell
    assert noise_module._uniform_is_below(below - 1, noise_module._exp_bounds(Fraction(1)), lambda: 0)
    assert not noise_module._uniform_is_below(below + 1, noise_module._exp_bounds(Fraction(1)), lambda: 0)
    assert noise_module._uniform_is_below(below, noise_module._exp_bounds(Fraction(1)), lambda: 0)
    assert not noise_module._uniform_is_below(below, noise_module._exp_bounds(Fraction(1)), lambda: 2**64 - 1)


def test_bernoulli_is_exact_and_clips():
    coins = Noise(SeededEntropy(3))
    assert coins.bernoulli(np.array([-5, 0, 7, 9], np.int64), 7).tolist() == [False, False, True, True]
    for a, b in ((1, 3), (5, 7), (1, 1000), (999, 1000)):
        hits = int(coins.bernoulli(np.full(DRAWS, a, np.int64), b).sum())
        assert stats.binomtest(hits, DRAWS, a / b).pvalue > 1e-4
    hits = int(coins.bernoulli(np.full(DRAWS, 1, np.int64), 3).sum())
    assert stats.binomtest(hits, DRAWS, 0.7 / 3).pvalue < 1e-12


@pytest.mark.parametrize("x", [0, 0.1, 1, 2.5, 6, 9.99, 13, 13.06])
def test_normal_tail_to_40_digits(x):
    mpmath.mp.dps = 100
    true = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
    mine = mpmath.mpf(str(normal_tail(Fraction(x))))
    assert abs(mine / true - 1) < mpmath.mpf(10) ** -50


def test_tail_cutoff_is_at_two_to_the_minus_128():
    assert normal_tail(Fraction(TAIL_CUTOFF)) < Fraction(1, 2**128)
    assert normal_tail(Fraction(13)) > Fraction(1, 2**128)


def test_threshold_bits_have_the_tail_probability():
    source = Noise(SeededEntropy(4))
    n, threshold, sigma = 1000, 120.25, 37.5
    for z in (-200, 0, 60, 120, 150, 300):
        counts = np.full(DRAWS, z + n // 2, np.int64)
        hits = int(source.threshold_bits(counts, n, threshold, sigma).sum())
        true = stats.norm.sf((threshold - z) / sigma)
        assert stats.binomtest(hits, DRAWS, true).pvalue > 1e-4
        if 0.01 < true < 0.99:
            wrong = stats.norm.sf((threshold - z) / (0.7 * sigma))
            assert abs(true - wrong) < 0.01 or stats.binomtest(hits, DRAWS, wrong).pvalue < 1e-12


def test_threshold_bits_equal_exact_arithmetic_for_every_16_bit_word():
    """All 65536 prefixes at one point: the kernel and the slow path together give exactly the tail's share."""
    threshold, sigma = 3.3, 2.0
    words = np.arange(65536, dtype=np.uint16).view(np.uint64)
    for count in (1, 4, 9):
        entropy = Planned(words.tolist(), seed=count)
        bits = Noise(entropy).threshold_bits(np.full(65536, count, np.int64), 10, threshold, sigma)
        z = Fraction(count) - 5
        x = (Fraction(threshold) - z) / Fraction(sigma)
        tail = normal_tail(abs(x))
        expected = int(tail * 65536)
        kept = int(bits.sum())
        tails = kept if x >= 0 else 65536 - kept
        assert expected <= tails <= expected + 1  # the one undecided prefix may go either way


def test_far_points_use_no_luck():
    counts = np.array([0, 10**6], np.int64)
    for seed in range(20):
        assert Noise(SeededEntropy(seed)).threshold_bits(counts, 10**6, 100.0, 5.0).tolist() == [False, True]
    assert Noise().threshold_bits(np.empty(0, np.int64), 0, 1.0, 1.0).shape == (0,)


def test_table_and_direct_paths_agree():
    """Short inputs compute tails one by one, long ones from a table; the same words give the same bits."""
    rng = np.random.default_rng(0)
    counts = rng.integers(400, 640, 5000)
    words = SeededEntropy(9).words(1250).tolist()
    table = Noise(Planned(words)).threshold_bits(counts, 1000, 20.0, 8.0)
    direct = np.concatenate(
        [
            Noise(Planned(words[i // 4 : i // 4 + 1])).threshold_bits(counts[i : i + 4], 1000, 20.0, 8.0)
            for i in range(0, 5000, 4)
        ]
    )
    assert (table != direct).sum() <= 3  # undecided prefixes draw on


def test_seeded_noise_says_so_and_repeats():
    assert Noise().private
    assert SystemEntropy().private
    assert not Noise(SeededEntropy(1)).private
    a, b = (Noise(SeededEntropy(1)).discrete_gaussian(100, 50) for _ in range(2))
    assert (a == b).all()
    assert (Noise().discrete_gaussian(10**9, 50) != Noise().discrete_gaussian(10**9, 50)).any()


def test_bad_scales():
    with pytest.raises(ConfigError):
        Noise().discrete_gaussian(0, 1)
    with pytest.raises(ConfigError):
        Noise().discrete_gaussian(2**81, 1)
    with pytest.raises(ConfigError):
        Noise().discrete_laplace(-1, 1)
    with pytest.raises(ConfigError):
        Noise().bernoulli(np.array([1], np.int64), 0)


def test_plain_samplers_have_the_right_law():
    reader = _WordReader(SeededEntropy(31))
    draws = np.array([gaussian_draw(Fraction(3, 2), reader) for _ in range(3000)])
    assert chi_square_p(draws, naive.gaussian_pmf(1.5, 40)) > 1e-4
    assert chi_square_p(draws, naive.gaussian_pmf(1.5 * 0.49, 40)) < 1e-9
