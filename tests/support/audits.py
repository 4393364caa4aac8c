"""Lower bounds on a privacy loss from many answers of two neighbors, and noise that is too small."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import stats

from fcstream import Noise, SeededEntropy


class Weak(Noise):
    """A planted fault: all noise far too small."""

    def __init__(self, entropy, factor):
        super().__init__(entropy)
        self._factor = factor

    def discrete_gaussian(self, variance, size):
        return super().discrete_gaussian(variance * Fraction(self._factor) ** 2, size)

    def discrete_laplace(self, scale, size):
        weaker = Fraction(float(scale) * self._factor).limit_denominator(10**6) or Fraction(1, 10**6)
        return super().discrete_laplace(scale if self._factor == 1 else weaker, size)


class FaultyNoise(Noise):
    """Noise with faults: a fixed n-hat, or bits with another deviation or threshold."""

    def __init__(self, seed, size_noise=None, sigma_factor=1.0, threshold_factor=1.0):
        super().__init__(SeededEntropy(seed))
        self._size_noise, self._sigma, self._threshold = size_noise, sigma_factor, threshold_factor

    def discrete_gaussian(self, variance, size):
        if self._size_noise is None:
            return super().discrete_gaussian(variance, size)
        return np.full(size, self._size_noise, np.int64)

    def threshold_bits(self, counts, size, threshold, sigma):
        return super().threshold_bits(counts, size, threshold * self._threshold, sigma * self._sigma)


def epsilon_lower_bound(one, two, delta):
    """Best epsilon shown by a threshold on any printed number or on refusal, with 99.9% confidence.

    Thresholds are picked on the first half of the runs and tested on the second.
    """
    best = 0.0
    half = len(one) // 2
    level = 0.001 / 20
    for column in range(one.shape[1]):
        for x, y in ((one[:, column], two[:, column]), (two[:, column], one[:, column])):
            events = [np.isnan]
            pool = np.concatenate([x[:half], y[:half]])
            if np.isfinite(pool).any():
                grid = np.nanquantile(pool, np.linspace(0.005, 0.995, 60))
                for sign in (1, -1):
                    scores = [
                        math.log(
                            (np.mean(sign * x[:half] > sign * t) + 1e-3) / (np.mean(sign * y[:half] > sign * t) + 1e-3)
                        )
                        for t in grid
                    ]
                    t = grid[int(np.argmax(scores))]
                    events.append(lambda v, t=t, sign=sign: sign * v > sign * t)
            for event in events:
                a, b = int(event(x[half:]).sum()), int(event(y[half:]).sum())
                low = stats.beta.ppf(level, a, half - a + 1) if a else 0.0
                high = stats.beta.ppf(1 - level, b + 1, half - b) if b < half else 1.0
                if low > delta:
                    best = max(best, math.log((low - delta) / high))
    return best


def rho_lower_bound(one, two):
    """Lower bound on the Kullback-Leibler divergence, and so on rho, from numbers of runs of both.

    E_P[f] - ln E_Q[exp(f)] is one for every f (Donsker and Varadhan): f is a multiple of one of the numbers, cut off,
    the multiple picked on the first quarter of the runs. Four standard errors are taken off. Delta of 1e-8 moves it by
    less than 1e-6.
    """

    def bound(p, q, factor, errors):
        f, g = np.clip(factor * p, -4.0, 4.0), np.exp(np.clip(factor * q, -4.0, 4.0))
        doubt = math.hypot(f.std() / len(f) ** 0.5, g.std() / g.mean() / len(g) ** 0.5)
        return f.mean() - math.log(g.mean()) - errors * doubt

    best, quarter = 0.0, len(one) // 4
    for column in range(one.shape[1]):
        both = np.concatenate([one[:, column], two[:, column]])
        if not np.isfinite(both).all() or both.std() == 0:
            continue
        scaled = ((x[:, column] - both.mean()) / both.std() for x in (one, two))
        for p, q in itertools.permutations(scaled):
            sign = 1.0 if p[:quarter].mean() > q[:quarter].mean() else -1.0
            tried = sign * np.linspace(0.1, 4.0, 40)
            factor = max(tried, key=lambda factor, p=p, q=q: bound(p[:quarter], q[:quarter], factor, 1.0))
            best = max(best, bound(p[quarter:], q[quarter:], factor, 4.0))
    return best
