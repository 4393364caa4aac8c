"""The two private averages that all means are built from, in exact lattice arithmetic.

`FriendlyAverage` needs a core whose points lie within a known distance of each other, wherever that is. `BallAverage`
needs a public ball.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import DELTA_UNIT, RHO_UNIT, PrivacyLoss
from ..counting.views import Selection
from ..errors import ConfigError
from ..noise.samplers import MAX_VARIANCE, Noise
from ..stream.lattice import MAX_COORDINATE, sqrt_up
from ..stream.totals import tile_totals
from .floors import FALSE_RELEASE, gaussian_tail, min_gaussian

Start = Callable[[PrivacyLoss], None]
"""Called with the loss of a stage before its first draw; see `Charge.start`."""
_UP = 1 + 1e-12
MIN_NANO = 4
"""rho (nano) with which the noise of a sum can be drawn for every ball: (2**53 - 1) 1e9 / 8 is below 2**80."""
_MAX_COORDINATES = 2**20
"""Most coordinates of one average; for tuples, those of all points of a tuple together."""


def _no_stages(loss: PrivacyLoss) -> None:
    """Do nothing; for callers that have charged all stages beforehand."""


def in_parts(start: Start) -> Callable[[], Start]:
    """Share the stages of a charge among disjoint parts of the records: each call returns one part's own `start`.

    Privacy
    -------
    Every part has the same stages, and each record is in one part only. A stage is paid once, when the first part
    starts it (parallel composition): the part that holds a record costs no more than that, and the other parts do not
    depend on this record.

    Source
    ------
    Specification 1.4; proof 7.8.
    """
    begun = 0

    def part() -> Start:
        done = 0

        def begin(stage: PrivacyLoss) -> None:
            nonlocal begun, done
            done += 1
            if done > begun:
                begun = done
                start(stage)

        return begin

    return part


@dataclass(frozen=True, slots=True)
class Estimate:
    """A noisy average in lattice steps, the deviation of its noise, and the noisy number of points; all released."""

    value: NDArray[np.float64]
    sigma: NDArray[np.float64]
    count: int


def gaussian_variance(sensitivity_squared: Fraction | int, rho_nano: int) -> Fraction:
    """Return the noise variance at which a Gaussian of this l2 sensitivity costs `rho_nano` (specification 1.3).

    It is rounded up.
    """
    return _variance(sensitivity_squared.numerator, sensitivity_squared.denominator, rho_nano)


def _variance(numerator: int, denominator: int, rho_nano: int) -> Fraction:
    """Return `gaussian_variance` of a squared sensitivity, which need not be in lowest terms."""
    if rho_nano < 1:
        raise ConfigError("must be larger: a part that an answer needs is less than 1e-9", "release.rho")
    return Fraction(-(-numerator * RHO_UNIT * 1024 // (denominator * 2 * rho_nano)), 1024)


def noisy_sums(exact: Sequence[Any] | NDArray[Any], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add noise (n,) to n sums of integers exactly, then round to doubles.

    Privacy
    -------
    That of the noise; rounding is post-processing.

    Source
    ------
    Specification 2.3; ours.
    """
    return np.array([float(int(a) + b) for a, b in zip(exact, drawn.tolist(), strict=True)])


def noisy_products(products: NDArray[Any], variance: Fraction, noise: Noise) -> NDArray[np.float64]:
    """Add noise of a variance to the diagonal, and of half of it to each pair, of sums of products (d, d).

    Privacy
    -------
    Protects one record, an integer vector of squared length at most R, with R**2 / (2 * variance) of rho, whatever its
    direction.

    Source
    ------
    Specification 7.4; proof 8.3; ours.
    """
    d = len(products)
    found = np.diag(noisy_sums(np.diag(products), noise.discrete_gaussian(variance, d)))
    rows, columns = np.tril_indices(d, -1)
    below = noisy_sums(products[rows, columns], noise.discrete_gaussian(variance / 2, len(rows)))
    found[rows, columns] = found[columns, rows] = below
    return found


def product_deviations(variance: Fraction, dimension: int) -> NDArray[np.float64]:
    """Return the deviations (d, d) of what `noisy_products` adds.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 7.4; ours.
    """
    return math.sqrt(variance) * np.where(np.eye(dimension, dtype=np.bool_), 1.0, math.sqrt(0.5))


def check_noise(sensitivity_squared: Fraction | int, rho_nano: int, key: str = "release.rho") -> None:
    """Refuse, before anything is drawn, a rho with which noise of this l2 sensitivity cannot be drawn.

    Raises
    ------
    ConfigError
        Its variance would be above 2**80.

    Privacy
    -------
    Computed from public numbers alone, so that no later draw decides whether noise can be drawn.

    Source
    ------
    Specification 1.3; proof 2.9; ours.
    """
    if rho_nano < 1 or gaussian_variance(sensitivity_squared, rho_nano) > MAX_VARIANCE:
        raise ConfigError(
            f"must be larger: {rho_nano / RHO_UNIT:g} is left for noise of sensitivity "
            f"{math.sqrt(sensitivity_squared):.3g}, whose variance must be at most 2**80",
            key,
            remedy="or use a coarser {step}, or a smaller `radius`",
            step="lattice.step",
        )


def check_average(diameter: Fraction, rho_nano: int) -> None:
    """Refuse a rho that is too small for an average of points at most `diameter` apart, whatever n-hat will be drawn.

    On the grid of `_noisy_average` the sensitivity is at most the larger of the diameter and 257 times the sensitivity
    of rounding, plus that of rounding.

    Raises
    ------
    ConfigError
        As `check_noise`.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.3, 5.1; proof 2.9; ours.
    """
    rounding = sqrt_up(_MAX_COORDINATES, 20)
    check_noise((max(diameter, 257 * rounding) + rounding) ** 2, rho_nano)


def exact_sums(points: Selection) -> list[int]:
    """Add up the coordinates of some points exactly."""
    from .._kernels import sums

    origin = np.zeros(points.dimension)

    def add(tiles: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
        return int(sums.clipped_sum(tiles, len(mask), mask, origin, math.inf, out))

    return tile_totals(points.parts, points.dimension, MAX_COORDINATE, add)[0]


@dataclass(frozen=True)
class FriendlyAverage:
    """Average of points that lie within `radius` of common friends, wherever they are.

    Parameters
    ----------
    loss : PrivacyLoss
    radius_squared : int
        Radius of the predicate, squared, in squared lattice steps.
    size_hint : int or None
        Public guess of the number of points, to split the budget; None uses one tenth for the size.

    Privacy
    -------
    Protects one point, added or removed, with (rho, delta)-zCDP for every pair of neighbors in which any two points
    share a friend, so it must run on a core only. The sensitivity of the size is 1. That of the average is 2 r_eff /
    n-hat, plus h sqrt(d) for rounding it to the grid h, with r_eff >= step * sqrt(radius_squared) and n-hat a released
    lower bound of the size. An empty core and an n-hat of 0 or less give the same refusal.

    Source
    ------
    Specification 5.1; proof 5.1; Tsfadia et al. 2022, FriendlyAvg, with the experiments' split of its footnote 4 taken
    from a public hint.
    """

    loss: PrivacyLoss
    radius_squared: int
    size_hint: int | None = None

    def __post_init__(self) -> None:
        if self.loss.delta_femto < 1 or self._rho1_nano < 1 or self._rho2_nano < 1:
            raise ConfigError("must have rho >= 1e-7 and delta >= 1e-15", "release", got=self.loss)
        check_average(self._diameter, self._rho2_nano)

    @cached_property
    def _first_nano(self) -> int:
        if self.size_hint is None:
            return self.loss.rho_nano // 10
        share = (math.sqrt(math.log(1 / self.loss.delta)) * self.loss.rho / self.size_hint) ** (2 / 3)
        return min(int(share * RHO_UNIT), self.loss.rho_nano // 2)

    @cached_property
    def _rho1_nano(self) -> int:
        return self._first_nano * (DELTA_UNIT - self.loss.delta_femto) // DELTA_UNIT

    @property
    def _rho2_nano(self) -> int:
        return self.loss.rho_nano - self._first_nano

    @cached_property
    def first(self) -> PrivacyLoss:
        """Loss of the first stage, the noisy size."""
        return PrivacyLoss(self._first_nano, self.loss.delta_femto)

    @cached_property
    def second(self) -> PrivacyLoss:
        """Loss of the second stage."""
        return PrivacyLoss(self._rho2_nano)

    @property
    def rho2(self) -> float:
        """The rho that is left for the average after the stage of the size."""
        return self._rho2_nano / RHO_UNIT

    @cached_property
    def offset(self) -> int:
        """How far the mean of n-hat lies below the size: 1 + sqrt(ln(1/delta) / rho1), rounded up."""
        return math.ceil((1 + math.sqrt(math.log(1 / self.loss.delta) * RHO_UNIT / self._rho1_nano)) * _UP)

    @cached_property
    def size_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self._rho1_nano)

    @cached_property
    def _diameter(self) -> Fraction:
        """2 r_eff in lattice steps, rounded up."""
        return 2 * sqrt_up(self.radius_squared, 40)

    def sigma(self, n_hat: float, dimension: int) -> float:
        """Return the noise deviation per coordinate at a size, in lattice steps (without the rounding term)."""
        return float(self._diameter) / n_hat / math.sqrt(2 * self._rho2_nano / RHO_UNIT)

    def inverse_size(self, size: float) -> float:
        """Predict the root mean square of 1 / n-hat for so many points, of those that are 1 or more.

        By far the largest ones are seldom drawn, where n-hat falls to a few; few windows show them.
        """
        middle, deviation = size - self.offset, math.sqrt(self.size_variance)
        first = max(1.0, math.floor(middle - 9 * deviation))
        values = np.unique(np.rint(np.linspace(first, max(first, middle + 9 * deviation), 4096)))
        weights = np.exp(-(((values - max(middle, 1.0)) / deviation) ** 2) / 2)
        return math.sqrt(float((weights / values**2).sum() / weights.sum()))

    def release(self, points: Selection, noise: Noise, start: Start = _no_stages) -> Estimate | None:
        """Average the points with noise; None if they are too few. Calls `start` before the draws of each stage."""
        return self.divide(lambda: exact_sums(points), points.size, points.dimension, noise, start)

    def divide(
        self,
        sums: Callable[[], list[int]],
        size: int,
        d: int,
        noise: Noise,
        start: Start = _no_stages,
        least: int = 0,
    ) -> Estimate | None:
        """Release the average of `size` points; `sums` computes their exact coordinate sums (d,) if it comes to that.

        Returns None, too few points, if n-hat is not above the public number `least`.
        """
        n_hat = self.find_size(size, noise, start, least)
        if n_hat is None:
            return None
        start(self.second)
        return self.noisy_mean(sums(), size, n_hat, d, noise)

    def find_size(self, size: int, noise: Noise, start: Start = _no_stages, least: int = 0) -> int | None:
        """Run the first stage: draw n-hat; None if it is not above `least`."""
        start(self.first)
        n_hat = size - self.offset + noise.one_gaussian(self.size_variance)
        return None if size == 0 or n_hat <= least else n_hat

    def noisy_mean(self, sums: list[int], size: int, n_hat: int, rounded: int, noise: Noise) -> Estimate:
        """Run the second stage, for some of the `rounded` coordinates that are released with this n-hat."""
        return _noisy_average(sums, size, self._diameter / n_hat, self._rho2_nano, n_hat, noise, rounded)


def _noisy_average(
    sums: list[int], size: int, width: Fraction, rho_nano: int, n_hat: int, noise: Noise, rounded: int | None = None
) -> Estimate:
    """Divide the sums of `size` points by their number and add noise.

    `width` is the l2 sensitivity of the average before rounding, in lattice steps. It is that of all `rounded`
    coordinates together, of which `sums` may hold only some.
    """
    d = rounded or len(sums)
    top, bottom, rounding = width.numerator, width.denominator, sqrt_up(d, 20)
    # The grid h = step / 2**bits: fine enough that rounding adds about 1% to the sensitivity, and not finer.
    bits = min(20, max(0, math.ceil(math.log2(128 * math.sqrt(d) / (top / bottom)))))
    # The sensitivity is width * 2**bits + rounding, here over the product of both denominators.
    sensitivity = (top << bits) * rounding.denominator + rounding.numerator * bottom
    variance = _variance(sensitivity**2, (bottom * rounding.denominator) ** 2, rho_nano)
    average = [_divide(total << bits, size) for total in sums]
    noisy = np.array(average, np.int64) + noise.discrete_gaussian(variance, len(sums))
    return Estimate(
        noisy / 2**bits, np.full(len(sums), math.sqrt(variance.numerator / variance.denominator) / 2**bits), n_hat
    )


def _divide(numerator: int, denominator: int) -> int:
    """Return the integer nearest to a quotient (halves up)."""
    return (2 * numerator + denominator) // (2 * denominator)


@dataclass(frozen=True)
class BallAverage:
    """Average of points around a released or public center, each clipped to a ball.

    Parameters
    ----------
    sum_nano, count_nano : int
        rho (nano) of the clipped sum and of the count.
    parts : int
        How many such averages one release consists of, if one value is enough for a release; public.

    Privacy
    -------
    Protects one point, added or removed, with rho-zCDP and delta = 0, whatever the points are, also on a core. rho is
    the sum of the shares for sum and count. The sensitivity of the sum is R, because each offset is clipped, truncated
    toward the center and checked in integers; that of the count is 1. A noisy count below `smallest` gives no value, by
    a rule that is fixed beforehand. No ball asks for more noise than can be drawn, whatever was released before.

    Source
    ------
    Specification 5.2; proof 5.3; Gaussian mechanism on the discrete Gaussian (Canonne, Kamath, Steinke 2020). Ours in
    this form; best split sqrt(d) : 1.
    """

    sum_nano: int
    count_nano: int
    parts: int = 1

    def __post_init__(self) -> None:
        if self.sum_nano < MIN_NANO or self.count_nano < 1:
            raise ConfigError("must leave at least 4e-9 of rho for a sum and 1e-9 for its count", "release.rho")

    @classmethod
    def split(cls, rho_nano: int, dimension: int, parts: int = 1) -> BallAverage:
        """Shares sqrt(d) : 1 that sum to `rho_nano`."""
        count = int(rho_nano / (1 + math.sqrt(dimension)))
        return cls(rho_nano - count, count, parts)

    @cached_property
    def count_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.count_nano)

    @cached_property
    def smallest(self) -> int:
        """Least noisy count that a value is released for, so that without records hardly ever any part has a value."""
        return min_gaussian(self.count_variance, FALSE_RELEASE / self.parts)

    @property
    def false_release(self) -> float:
        """An upper bound of the chance that any part has a value although no part has a record."""
        return self.parts * gaussian_tail(self.count_variance, self.smallest)

    def sigma(self, radius_squared: float, count: float) -> float:
        """Return the noise deviation per coordinate of the sum divided by a count, in lattice steps."""
        return math.sqrt(radius_squared * RHO_UNIT / (2 * self.sum_nano)) / count

    def release(
        self,
        points: Selection,
        center: NDArray[np.float64],
        radius_squared: int,
        noise: Noise,
        start: Start = _no_stages,
    ) -> tuple[Estimate | None, int]:
        """Average the points around the integer `center` with noise; returns the average and the noisy count.

        The average is None if the points are too few. Calls `start` before the draws of each stage, count and sum.
        """
        total, size = self.clipped_total(points, center, radius_squared)
        return self.divide(total, size, center, radius_squared, noise, start)

    def clipped_total(
        self, points: Selection, center: NDArray[np.float64], radius_squared: int
    ) -> tuple[list[int], int]:
        """Add up the offsets (d,) of the points from `center`, each clipped to the ball; returns their number too."""
        from .._kernels import sums

        def add(tiles: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
            return int(sums.clipped_sum(tiles, len(mask), mask, center, float(radius_squared), out))

        return tile_totals(points.parts, points.dimension, math.isqrt(radius_squared) + 1, add)

    def divide(
        self,
        total: list[int],
        size: int,
        center: NDArray[np.float64],
        radius_squared: int,
        noise: Noise,
        start: Start = _no_stages,
    ) -> tuple[Estimate | None, int]:
        """Release the average from the sum (d,) of `size` offsets from `center`, each of them in the ball."""
        start(PrivacyLoss(self.count_nano))
        count = size + noise.one_gaussian(self.count_variance)
        if count < self.smallest:
            return None, count
        start(PrivacyLoss(self.sum_nano))
        return self.quotient(total, count, self.count_variance, center, radius_squared, noise), count

    def quotient(
        self,
        total: list[int],
        count: int,
        count_variance: Fraction,
        center: NDArray[np.float64],
        radius_squared: int,
        noise: Noise,
    ) -> Estimate:
        """Add noise to the sum (d,) of offsets, and divide it by a noisy count that was released before."""
        variance = gaussian_variance(radius_squared, self.sum_nano)
        noisy = zip(total, noise.discrete_gaussian(variance, len(total)).tolist(), strict=True)
        offset = np.array([(exact + drawn) / count for exact, drawn in noisy])
        # The noise of the count moves the quotient along the offset, which adds to the deviation.
        own, of_count = (math.sqrt(each.numerator / each.denominator) for each in (variance, count_variance))
        sigma = np.hypot(own, offset * of_count) / count
        return Estimate(center + offset, sigma, count)


def to_center(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lattice point nearest to a released value, clipped to the range of all lattice points."""
    limit = float(MAX_COORDINATE)
    return np.minimum(np.maximum(np.rint(value), -limit), limit)


def ball_squared(radius: float) -> int:
    """Return the squared radius of a ball of about this radius, in lattice steps, in which arithmetic is exact.

    Privacy
    -------
    Computed from a public or released radius alone.

    Source
    ------
    Specification 5.4; ours.
    """
    return int(min(max(math.ceil(radius), 1) ** 2, 2**53 - 1))


def chi_quantile(dimension: int, level: float) -> float:
    """Return the norm that a standard Gaussian vector exceeds with the probability ``1 - level``, to about 1%.

    Privacy
    -------
    Computed from public numbers alone; only predictions depend on it.

    Source
    ------
    Specification 5.4; Wilson and Hilferty 1931.
    """
    cube = 1 - 2 / (9 * dimension) + NormalDist().inv_cdf(level) * math.sqrt(2 / (9 * dimension))
    return math.sqrt(dimension * max(0.0, cube) ** 3)


def norm_quantile(dimension: int, beta: float) -> float:
    """Bound the norm of a standard Gaussian vector, except with probability at most `beta`.

    Privacy
    -------
    Computed from public numbers alone; only the accuracy depends on it.

    Source
    ------
    Specification 5.4; Laurent and Massart 2000, Lemma 1.
    """
    tail = math.log(1 / beta)
    return math.sqrt(dimension + 2 * math.sqrt(dimension * tail) + 2 * tail)
