"""The factorization of prefix sums: how noise is spread over the windows of an epoch, and what of it a total holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT

MAX_WINDOWS = 2**20
"""Largest number of windows of an epoch."""
UNIT = 2**16
"""What the first coefficient is."""
_WEIGHT = 64  # weight of a record of the first window
_FINE = 256  # estimates are rounded to less than the noise of one coefficient divided by this
_GUARD_BITS = 200  # of the fractions whose rounding makes the coefficients
_SEVERAL = 64  # totals of which the largest noise of a long epoch is found


@dataclass(frozen=True)
class Factor:
    """The public integers by which the windows of an epoch are mixed and weighted, and the noise that follows.

    With c = `coefficients` and w = `weights`, the noisy numbers of an epoch are
    y_t = sum over s <= t of c[t - s] w[s] x_s + z_t, and totals are computed from them.

    Parameters
    ----------
    windows : int
        T, the number of windows of an epoch, 1 to `MAX_WINDOWS`.
    theta : Fraction
        In (0, 1]. 1 makes totals best, smaller values the single windows.

    Privacy
    -------
    Public: a function of the configuration alone. `energy` is the largest squared length, over s, of what a record of
    window s with a vector of length 1 adds to all y together.

    Source
    ------
    Specification 5.13; proof 6.5; square root: Fichtenberger, Henzinger, Upadhyay 2023; weights and integers ours.
    """

    windows: int
    theta: Fraction

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """c (T,): 2**16 for j = 0, then theta 2**16 binomial(2j, j) / 4**j, rounded half up."""
        top, bottom = 2 * UNIT * self.theta.numerator, 2 * self.theta.denominator
        scaled, found = 1 << _GUARD_BITS, np.full(self.windows, UNIT, np.int64)
        for j in range(1, self.windows):
            scaled = scaled * (2 * j - 1) // (2 * j)
            found[j] = ((top * scaled >> _GUARD_BITS) + bottom // 2) // bottom
        return found

    @cached_property
    def _squares(self) -> NDArray[np.int64]:
        """Sums of the squares of the first coefficients: of none, one, two, ... (T + 1,)."""
        return np.concatenate([[0], np.cumsum(self.coefficients**2)])

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """w (T,): a record of a later window moves fewer numbers, so it may weigh more."""
        squares = self._squares
        # Quotients below 2**20, whose double root is off by far less than what separates it from the next integer.
        found: NDArray[np.int64] = np.sqrt(_WEIGHT**2 * squares[-1] // squares[:0:-1]).astype(np.int64)
        return found

    @cached_property
    def energy(self) -> int:
        return int((self.weights**2 * self._squares[:0:-1]).max())

    @cached_property
    def mass(self) -> int:
        """An upper bound of what noise of 1 in all estimates adds up to where they are mixed again."""
        return int(self.coefficients.sum()) * int(self.weights[-1])

    def variance(self, sensitivity_squared: int, rho_nano: int) -> Fraction:
        """Return the variance of every z, an integer, at which all y of an epoch together cost rho."""
        return Fraction(-(-self.energy * sensitivity_squared * RHO_UNIT // (2 * rho_nano)))

    def fraction_bits(self, variance: Fraction) -> int:
        """Return the number of binary places to which estimates are rounded.

        The rounding is a 256th of the noise of one z at most, in any window, so it adds less than a millionth to the
        deviation of any estimate.
        """
        share = Fraction(_FINE * UNIT * int(self.weights[-1])) ** 2 / variance
        return max(0, -(-((math.ceil(share) - 1).bit_length()) // 2))

    # -- what of the noise estimates hold ----------------------------------------------------------------------------

    @cached_property
    def _inverse(self) -> NDArray[np.float64]:
        """Coefficients (T,) of the inverse of c / c[0] as a power series, by Newton's method."""
        series, found = self.coefficients / UNIT, np.ones(1)
        while len(found) < self.windows:
            n = min(2 * len(found), self.windows)
            residue = -_convolve(found, series[:n], n)
            residue[0] += 2.0
            found = _convolve(found, residue, n)
        return found

    @staticmethod
    def noise_of(spread: NDArray[np.float64]) -> float:
        """Return the deviation of what each z moves by so much, for z of deviation 1."""
        return math.sqrt(float(np.square(spread).sum()))  # without the threads of a linear algebra library

    def spread_of_total(self, windows: int) -> NDArray[np.float64]:
        """Return by how much each z (n,) of the first n windows moves their total."""
        steps = 1.0 / (UNIT * self.weights[:windows])
        return _convolve(steps[::-1], self._inverse[:windows], windows)[::-1]

    def step(self, windows: int) -> NDArray[np.float64]:
        """Return what window n adds to the first n elements of `spread_of_total`."""
        return self._inverse[:windows][::-1] / (UNIT * int(self.weights[windows - 1]))

    def noise_of_total(self, windows: int) -> float:
        """Return the deviation of the total of the first windows, for z of deviation 1."""
        return self.noise_of(self.spread_of_total(windows))

    def noise_of_range(self, first: int, last: int) -> float:
        """Return the deviation of the sum of windows first + 1 to last, for z of deviation 1."""
        spread = self.spread_of_total(last)
        spread[:first] -= self.spread_of_total(first)
        return self.noise_of(spread)

    def noise_of_window(self, windows: int) -> float:
        """Return the deviation of the last one of so many windows, for z of deviation 1."""
        return float(self._noise_of_windows[windows - 1])

    @cached_property
    def largest_noise_of_total(self) -> float:
        """The deviation of the worst total, for z of deviation 1; of a long epoch, of the worst of 64 totals."""
        several = np.linspace(1, self.windows, min(self.windows, _SEVERAL)).round().astype(int).tolist()
        return max(map(self.noise_of_total, several))

    @cached_property
    def largest_noise_of_window(self) -> float:
        """The deviation of the worst single window, for z of deviation 1."""
        return float(self._noise_of_windows.max())

    @cached_property
    def _noise_of_windows(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.sqrt(np.cumsum(self._inverse**2)) / (UNIT * self.weights)
        return found

    @cached_property
    def repeated(self) -> float:
        """How many times rho somebody with a record in every window of an epoch pays, where others pay T times rho."""
        moved = np.rint(_convolve(self.coefficients.astype(float), self.weights.astype(float), self.windows))
        return float(np.square(moved).sum()) / self.energy


def _convolve(a: NDArray[np.float64], b: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the first elements of a convolution; for public numbers, whose last digits do not matter."""
    length = 1 << (len(a) + len(b) - 2).bit_length() if len(a) + len(b) > 2 else 1
    found: NDArray[np.float64] = np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)[:size]
    return found


@lru_cache(maxsize=8)
def factor(windows: int, theta: Fraction) -> Factor:
    """Return the factorization for an epoch; the same object each time.

    Privacy
    -------
    Public: a function of the configuration alone.

    Source
    ------
    Specification 5.13; proof 6.5.
    """
    return Factor(windows, theta)
