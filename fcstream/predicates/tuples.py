"""Predicates on tuples of lattice points, which are matched by nearest neighbors, compared in order, or both."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED, as_doubles
from .base import LANES, Arrays, Family, Predicate

_NO_RADIUS = float("inf")
_ANY_DISTANCE = 2.0**200  # larger than every squared distance


class _TupleFamily(Family):
    """Storage of tuples in lanes, with points numbered like those of a pivot tuple.

    If gamma is None, point j of one tuple is compared with point j of the other.
    """

    led = True

    def __init__(
        self, dimension: int, radii_squared: list[float], gamma: Fraction | None, radius_squared: float
    ) -> None:
        self._k, self._d = len(radii_squared), dimension
        self._radii2 = np.array(radii_squared, np.float64)
        self._gamma = 0.0 if gamma is None else float(gamma)
        self._radius2 = radius_squared
        if gamma is not None:
            self._ratio = np.uint64(gamma.denominator**2), np.uint64(gamma.numerator**2)
        self._pivot: NDArray[np.float64] | None = None

    def check(self, items: object) -> NDArray[np.float64]:
        shape = self._k, self._d
        tuples = np.ascontiguousarray(as_doubles(items, "items"))
        if tuples.ndim != 3 or tuples.shape[1:] != shape:
            raise ConfigError(f"must have shape (n, {shape[0]}, {shape[1]})", "items", got=tuples.shape)
        if not ((np.rint(tuples) == tuples) & (np.abs(tuples) <= MAX_COORDINATE)).all():
            raise ConfigError("must hold lattice coordinates: integers up to 2**40 in size", "items")
        return tuples.reshape(len(tuples), shape[0] * shape[1])

    def rows(self, items: NDArray[np.float64]) -> Arrays:
        from .._kernels import tuples

        if self._pivot is None:
            self._pivot = items[0].copy()
        numbered, bounds, limits = items.copy(), np.empty((len(items), 4)), np.empty((len(items), self._k))
        tuples.number(numbered, self._pivot, self._radii2, self._gamma, self._radius2, bounds, limits)
        return numbered, bounds, limits

    def allocate(self, tiles: int) -> Arrays:
        return np.zeros((tiles, self._k * self._d, LANES)), np.zeros((tiles, 4, LANES))

    def items(self, arrays: Arrays, used: int) -> NDArray[np.float64]:
        from .._kernels import lane_counts

        flat = np.empty((used, self._k * self._d))
        lane_counts.load(arrays[0], used, flat)
        return flat

    def set_pivot(self, item: NDArray[np.float64]) -> None:
        self._pivot = item.copy()

    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        from .._kernels import tuple_matching, tuples

        (flat, bounds, limits), (tiles, tile_bounds), undecided = rows, arrays, np.empty_like(masks)
        tuples.compare(flat, bounds, limits, tiles, tile_bounds, used, first, masks, undecided)
        if self._gamma > 0.0:
            (p, q), slack = self._ratio, (self._d + 8) * 2.0**-52
            tuple_matching.match(flat, tiles, used, first, self._k, p, q, slack, self._radius2, undecided, masks)


def _check_sizes(k: int, dimension: int, key: str = "k") -> None:
    if k < 1:
        raise ConfigError("must be at least 1 point", key, got=k)
    if not 1 <= dimension < 2**16:
        raise ConfigError("must be in [1, 2**16)", "dimension", got=dimension)


def _check_gamma(gamma: Fraction, dimension: int) -> Fraction:
    if isinstance(gamma, float) or not 0 < gamma <= 1:
        raise ConfigError("must be a Fraction in (0, 1]", "gamma", got=gamma)
    gamma = Fraction(gamma)
    if gamma.denominator >= 2**26 or gamma.numerator**2 * dimension * (dimension + 8) >= 2**32:
        raise ConfigError(
            "must keep numerator**2 * dimension * (dimension + 8) below 2**32 and the denominator "
            f"below 2**26, got {gamma} at dimension {dimension}: comparisons would not be exact",
            "gamma",
            remedy="use a simpler fraction",
        )
    return gamma


def _check_radius(radius_squared: int, key: str) -> float:
    if not 1 <= radius_squared <= MAX_RADIUS_SQUARED:
        raise ConfigError("must be in [1, 2**53)", key, got=radius_squared)
    return float(radius_squared)


@dataclass(frozen=True, slots=True)
class MatchTuples(Predicate):
    """Predicate match_gamma: the points of two k-tuples form pairs that are much closer than points of different pairs.

    X and Y are friends if and only if there is a permutation p such that, for all i and all j != i,
    ``|x_i - y_p(i)| < gamma * min(|x_i - y_p(j)|, |x_j - y_p(i)|)``. For gamma <= 1 this p is the nearest-neighbor map.

    Parameters
    ----------
    k : int
        Number of points in a tuple, >= 1; if it is 1, all items are friends.
    dimension : int
        Number of coordinates of a point, in [1, 2**16).
    gamma : Fraction
        In (0, 1], with numerator**2 * dimension * (dimension + 8) < 2**32 and denominator < 2**26.

    Raises
    ------
    ConfigError
        A parameter is out of range.

    Notes
    -----
    Items are float64 (n, k, dimension), lattice coordinates: integers whose absolute values are at most 2**40. Each
    inequality is decided in exact integers, ``denominator**2 * D1 < numerator**2 * D2`` for squared distances D1 and
    D2, so equality is no match. The order of the points of a tuple does not matter.

    A tuple with two equal points has no nearest-neighbor map that is one to one, so it matches no tuple, not even an
    equal one. Its friend count is 1, for itself.

    Complexity
    ----------
    A pair costs O(1) if distances from a pivot tuple decide it, and O(k * dimension) if distances between points with
    the same nearest pivot point decide it, as for well separated friends. It costs at most O(k**2 * dimension).

    Source
    ------
    Specification 6.1; proof 7.2; Tsfadia et al. 2022, section 5.2.1.
    """

    k: int
    dimension: int
    gamma: Fraction = Fraction(1, 7)

    def __post_init__(self) -> None:
        _check_sizes(self.k, self.dimension)
        object.__setattr__(self, "gamma", _check_gamma(self.gamma, self.dimension))

    def _family(self) -> Family:
        if self.k == 1:
            return _TupleFamily(self.dimension, [_ANY_DISTANCE], None, _NO_RADIUS)
        return _TupleFamily(self.dimension, [_ANY_DISTANCE] * self.k, self.gamma, _NO_RADIUS)


@dataclass(frozen=True, slots=True)
class OrderedTuples(Predicate):
    """Predicate dist_{r1..rk}: for every j, point j of one tuple is within radius r_j of point j of the other.

    Parameters
    ----------
    radii_squared : tuple of int
        Squared radii in lattice steps, inclusive, each in [1, 2**53); as many as a tuple has points.
    dimension : int
        Number of coordinates of a point, in [1, 2**16).

    Raises
    ------
    ConfigError
        A parameter is out of range.

    Notes
    -----
    Items are float64 (n, k, dimension), lattice coordinates: integers whose absolute values are at most 2**40. They are
    compared in exact integers.

    Complexity
    ----------
    A pair costs O(1) if distances from a pivot tuple decide it, and at most O(k * dimension) otherwise.

    Source
    ------
    Specification 6.1; proof 7.4; Tsfadia et al. 2022, section 5.2.3.
    """

    radii_squared: tuple[int, ...]
    dimension: int

    def __post_init__(self) -> None:
        _check_sizes(len(self.radii_squared), self.dimension, "radii_squared")
        object.__setattr__(self, "radii_squared", tuple(self.radii_squared))
        for radius_squared in self.radii_squared:
            _check_radius(radius_squared, "radii_squared")

    def _family(self) -> Family:
        return _TupleFamily(self.dimension, [float(r2) for r2 in self.radii_squared], None, _NO_RADIUS)


@dataclass(frozen=True, slots=True)
class MatchWithin(Predicate):
    """Predicate that holds if match_gamma holds and the two points of every matched pair are within one radius.

    A core under this predicate serves both steps of clustering: it is friendly for reordering and, once its tuples are
    in one order, friendly for dist_r in every coordinate.

    Parameters
    ----------
    k, dimension, gamma
        As in `MatchTuples`; with k = 1 two points are friends if they are within the radius.
    radius_squared : int
        Squared radius in lattice steps, inclusive, in [1, 2**53).

    Raises
    ------
    ConfigError
        A parameter is out of range.

    Notes
    -----
    Items, exact arithmetic and tuples with equal points are as in `MatchTuples`.

    Complexity
    ----------
    The same as of `MatchTuples`.


    Source
    ------
    Specification 6.1; proof 7.2; Tsfadia et al. 2022, sections 5.2.1 and 5.2.3, fused (ours).
    """

    k: int
    dimension: int
    radius_squared: int
    gamma: Fraction = Fraction(1, 7)

    def __post_init__(self) -> None:
        _check_sizes(self.k, self.dimension)
        _check_radius(self.radius_squared, "radius_squared")
        object.__setattr__(self, "gamma", _check_gamma(self.gamma, self.dimension))

    def _family(self) -> Family:
        radius_squared = float(self.radius_squared)
        if self.k == 1:
            return _TupleFamily(self.dimension, [radius_squared], None, _NO_RADIUS)
        return _TupleFamily(self.dimension, [_ANY_DISTANCE] * self.k, self.gamma, radius_squared)
