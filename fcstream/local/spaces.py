"""Spaces: where a component's values live, how far apart they are, and which noise hides them.

A value is rounded to a lattice point once, when it is read. What is protected is that point: distances, losses and
guarantees are about it, never about the raw value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import EPSILON_UNIT
from ..errors import ConfigError
from ..noise.samplers import MAX_VARIANCE, Noise
from ..stream.lattice import Feature, Grid, Lattice, exact
from .functions import Box, Distance, Function, Mismatches, Named, Outside, Point, Share
from .noise import MAX_DIMENSIONS, gaussians, lattice_laplace

EARTH_RADIUS = 6_371_008.8
"""Mean radius in meters."""
_MAX = 2**40
_COARSE = 2**12
MAX_LOSS = 2**50
"""The largest loss of one reply, in nano units."""


@dataclass(frozen=True)
class Space:
    """One component's metric space.

    Privacy
    -------
    Protects one value of the component against any other value: a loss of rho means rho * dist**2 * alpha, a loss of
    epsilon means epsilon * dist, with dist in public units (`unit`). Components compose under the largest of their
    distances: losses add up, whatever component each query is about, and a component needs no metric before it is
    first queried.

    Source
    ------
    Specification 11.1, 11.3; proof 10.1; Liang and Yi 2025, Theorem 5.1, Corollary 5.1 and Remark 4.
    """

    allowed: ClassVar[tuple[type[Function], ...]]
    """Kinds of functions that are Lipschitz in this metric."""
    spread: ClassVar[int] = 1
    """The largest squared l2 distance, and the largest l1 distance, of two points one lattice step apart."""
    is_euclidean: ClassVar[bool] = False

    @property
    def steps_per_unit(self) -> Fraction:
        """Lattice steps in one unit of distance."""
        return Fraction(1)

    @property
    def dimension(self) -> int:
        """The number of integers of a lattice point."""
        raise NotImplementedError

    @property
    def reach(self) -> int:
        """Largest absolute coordinate."""
        return 1

    def encode(self, value: Any) -> tuple[int, ...]:
        """The lattice point of a value; for None, or a value that cannot be read, a public point. Never raises."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def metric(self) -> dict[str, Any]:
        """What distance 1 is: the kind of space, and its unit if it has one."""
        return {key: value for key, value in self.as_dict().items() if key in ("kind", "unit")}

    def check(self, function: Function) -> None:
        """Refuse a function that does not fit this space. Costs nothing and looks at no value."""
        if not isinstance(function, self.allowed):
            raise ConfigError(f"must not be of this kind in the space {self.as_dict()['kind']!r}", "function")
        function.check(self.dimension, self.reach)

    def variance(self, function: Function) -> Fraction:
        """Variance times rho, in squared units of the function's integers."""
        spread = self.spread if isinstance(function, Point) else 1
        return Fraction(function.sensitivity**2 * spread, 2) * self.steps_per_unit**2

    def draw(self, noise: Noise, function: Function, cost_nano: int, costs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Discrete Gaussian noise for losses of `costs` parts of 1/`cost_nano` of rho: int64 (n, outputs).

        Privacy
        -------
        A row that is added to the function's integers costs costs[i] / cost_nano in rho per squared unit, for all
        pairs.

        Source
        ------
        Specification 11.3; proof 10.2; Liang and Yi 2025, Lemma 3.4, on the lattice with constant 1.
        """
        scaled = self.variance(function) * cost_nano
        if scaled.denominator > _COARSE:  # rounded up, so that denominators stay small
            scaled = Fraction(math.ceil(scaled * _COARSE), _COARSE)
        return gaussians(noise, scaled.numerator, costs * scaled.denominator, function.outputs(self.dimension))

    def draw_pure(self, noise: Noise, function: Function, costs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Noise for replies with pure geo-privacy, for losses of `costs` in nano units of epsilon: int64 (n, outputs).

        Privacy
        -------
        Row i that is added to the function's integers costs costs[i] / 1e9 in epsilon per unit of distance, with delta
        = 0, for all pairs.

        Source
        ------
        Specification 11.3; proof 10.2; points in the plane and in space: `lattice_laplace_draw`; all else discrete
        Laplace (its l1 distance is at most `spread` per step).
        """
        outputs = function.outputs(self.dimension)
        out = np.empty((len(costs), outputs), np.int64)
        order = np.argsort(costs, kind="stable")
        values, counts = np.unique(costs, return_counts=True)
        for nano, rows in zip(values.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True):
            rate = Fraction(nano, EPSILON_UNIT) / self.steps_per_unit
            if isinstance(function, Point) and self.is_euclidean:
                out[rows] = lattice_laplace(noise, rate, self.dimension, len(rows))
                continue
            scale = Fraction(self._stretch(function)) / rate
            if scale.numerator >= 2**55:
                scale = Fraction(math.ceil(scale * 2**14), 2**14)
            out[rows] = noise.discrete_laplace(scale, outputs * len(rows)).reshape(-1, outputs)
        return out

    def check_loss(self, function: Function, nano: int, pure: bool = False) -> None:
        """Refuse a loss for which there is no sampler. Costs nothing."""
        least = self.min_loss(function, pure)
        if not least <= nano <= MAX_LOSS:
            raise ConfigError(
                f"must be in [{least}, 2**50] nano units, got {nano}: noise must stay below 2**40 lattice steps", "loss"
            )

    def min_loss(self, function: Function, pure: bool = False) -> int:
        """The smallest loss in nano units for which there is a sampler."""
        if pure:
            widest = self._stretch(function) * self.steps_per_unit
            return max(1, math.ceil(widest * 10**9 / 2**39))
        return max(1, math.ceil(self.variance(function) * 10**9 / MAX_VARIANCE))

    def _stretch(self, function: Function) -> int:
        """l1 sensitivity of the integers per lattice step, or a bound that the lattice sampler's proposals need."""
        if isinstance(function, Point):
            return 4 if self.is_euclidean else self.spread  # sqrt(MAX_DIMENSIONS) < 4
        return function.sensitivity

    def check_pure(self, function: Function) -> None:
        """Refuse pure geo-privacy where its sampler would take too long."""
        if isinstance(function, Point) and self.is_euclidean and self.dimension > MAX_DIMENSIONS:
            raise ConfigError(
                f"must be a distance, or cost rho: points have {self.dimension} dimensions, above {MAX_DIMENSIONS}",
                "function",
            )


def _numbers(value: Any, count: int) -> list[float] | None:
    try:
        found = [float(x) for x in value]
    except Exception:  # of any type: the reply must not show that a value cannot be read
        return None
    return found if len(found) == count and all(math.isfinite(x) for x in found) else None


def _items(value: Any) -> list[Any]:
    """The records of a table; a value that is no table counts as one record, None as no record."""
    if value is None:
        return []
    try:
        return [value] if isinstance(value, (str, bytes)) else list(value)
    except Exception:
        return [value]


@dataclass(frozen=True)
class Euclidean(Space):
    """Points of a public box of R^d, on the lattice of multiples of `step`.

    Parameters
    ----------
    low, high : tuple of float
        The public box, whose ends on the lattice are those of `fcstream.stream.lattice.Grid.ends`. Values outside are
        moved to its nearest point.
    step : float
        Lattice width, in the coordinates' own unit; taken as the decimal it prints as.
    unit : float
        What counts as distance 1 for the budget: 1000 for budgets per kilometer of coordinates in meters.
    missing : tuple of float, optional
        The public point that stands for a missing value. By default it lies one width of the box below its lowest
        corner, in every coordinate: outside every box that lies in the public one.

    Privacy
    -------
    dist is the Euclidean distance between lattice points, divided by `unit`. Values in one cell of the lattice are the
    same value, and a missing value is the point `missing`: noise that hides the difference between near points hides
    that a value is missing only if `missing` is near the values.

    Source
    ------
    Specification 11.1; proof 10.2; erratum 3.10; Liang and Yi 2025, section 6. On raw reals no constant works: rounding
    can separate two values that are as near as one likes.
    """

    allowed = (Point, Distance, Box, Named)
    is_euclidean = True
    low: tuple[float, ...]
    high: tuple[float, ...]
    step: float
    unit: float = 1.0
    missing: tuple[float, ...] | None = None
    _bounds: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value in (("step", self.step), ("unit", self.unit)):
            if not (math.isfinite(value) and value > 0):
                raise ConfigError("must be a positive number", name, got=value)
        if not self.low or len(self.low) != len(self.high):
            raise ConfigError(f"must have as many coordinates as `low` ({len(self.low)}), at least 1", "high")
        if not all(math.isfinite(a) and math.isfinite(b) and a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ConfigError("must be finite and below `high` in every coordinate", "low")
        named = zip(self.low, self.high, strict=True)
        try:
            grid = Grid(Lattice(self.step), tuple(Feature(f"coordinate {k}", *ends) for k, ends in enumerate(named)))
        except ConfigError as error:
            error.key = "step" if error.key == "lattice.step" else "high"
            raise
        ends = np.stack([grid.lowest, grid.highest], axis=1).astype(np.int64)
        object.__setattr__(self, "_bounds", tuple(map(tuple, ends.tolist())))
        self._check_missing(len(self.low))

    def _check_missing(self, count: int) -> None:
        if self.missing is None:
            return
        if len(self.missing) != count or not all(math.isfinite(x) for x in self.missing):
            raise ConfigError(f"must be {count} finite coordinates", "missing", got=self.missing)
        if max(map(abs, self.nowhere)) > _MAX:
            raise ConfigError("must be within 2**40 steps of 0", "missing")

    @classmethod
    def cube(cls, dimension: int, low: float, high: float, step: float, unit: float = 1.0) -> Euclidean:
        """The same range in every coordinate."""
        return cls((low,) * dimension, (high,) * dimension, step, unit)

    @functools.cached_property
    def steps_per_unit(self) -> Fraction:
        return exact(self.unit) / exact(self.step)

    @property
    def dimension(self) -> int:
        return len(self.low)

    @functools.cached_property
    def reach(self) -> int:
        return max(*map(abs, self.nowhere), *(max(-a, b) for a, b in self._bounds))

    @functools.cached_property
    def nowhere(self) -> tuple[int, ...]:
        """The lattice point that stands for a missing value."""
        if self.missing is not None:
            return self.steps(self.missing)
        return tuple(a - max(b - a, 1) for a, b in self._bounds)

    def encode(self, value: Any) -> tuple[int, ...]:
        found = _numbers(value, self.dimension)
        if found is None:
            return self.nowhere
        return tuple(round(min(max(x / self.step, a), b)) for x, (a, b) in zip(found, self._bounds, strict=True))

    def encode_all(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """`encode` of every row: int64 (n, d)."""
        known = np.asarray(np.isfinite(values).all(axis=1))
        with np.errstate(over="ignore"):
            steps = np.where(known.reshape(-1, 1), values, 0.0) / self.step
        points = np.rint(np.clip(steps, *np.array(self._bounds, np.float64).T)).astype(np.int64)
        points[~known] = self.nowhere
        return points

    def steps(self, value: Sequence[float]) -> tuple[int, ...]:
        """The nearest lattice point of a public position, inside the box or not."""
        return tuple(round(float(x) / self.step) for x in value)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "euclidean",
            "low": list(self.low),
            "high": list(self.high),
            "step": self.step,
            "unit": self.unit,
            **self._missing_as_dict(),
        }

    def _missing_as_dict(self) -> dict[str, Any]:
        return {} if self.missing is None else {"missing": list(self.missing)}


@dataclass(frozen=True)
class GreatCircle(Euclidean):
    """Longitude and latitude in degrees, as points on a sphere of the Earth's size, in meters.

    Parameters
    ----------
    step : float
        Lattice width in meters.
    unit : float
        What counts as distance 1, in meters.
    missing : (longitude, latitude), optional
        The public point that stands for a missing value; by default a point far outside the sphere.

    Privacy
    -------
    dist is the length of the straight line (chord) between lattice points, divided by `unit`. It is never longer than
    the great circle, and 1 m shorter at 100 km, so a guarantee per meter of chord holds per meter of great circle.

    Source
    ------
    Specification 11.1; proof 10.2; ours: the identity from the sphere with arcs to the same sphere with chords is
    1-Lipschitz. `chord` turns arcs into chords for queries; the nearest by chord are the nearest by arc.
    """

    low: tuple[float, ...] = (-EARTH_RADIUS,) * 3
    high: tuple[float, ...] = (EARTH_RADIUS,) * 3
    step: float = 1.0
    unit: float = 1000.0

    def encode(self, value: Any) -> tuple[int, ...]:
        found = _numbers(value, 2)
        if found is None or not (abs(found[0]) <= 360 and abs(found[1]) <= 90):
            return self.nowhere
        return super().encode(self.position(*found))

    def encode_all(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.array([self.encode(row) for row in values], np.int64).reshape(-1, 3)

    def steps(self, value: Sequence[float]) -> tuple[int, ...]:
        return super().steps(self.position(*value))

    @staticmethod
    def position(longitude: float, latitude: float) -> tuple[float, float, float]:
        """Meters from the center of the sphere."""
        a, b = math.radians(longitude), math.radians(latitude)
        return (
            EARTH_RADIUS * math.cos(b) * math.cos(a),
            EARTH_RADIUS * math.cos(b) * math.sin(a),
            EARTH_RADIUS * math.sin(b),
        )

    @staticmethod
    def chord(meters: float) -> float:
        """The length of the chord that belongs to a great-circle distance."""
        return 2 * EARTH_RADIUS * math.sin(min(meters / (2 * EARTH_RADIUS), math.pi / 2))

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "great_circle", "step": self.step, "unit": self.unit, **self._missing_as_dict()}

    def _check_missing(self, count: int) -> None:
        super()._check_missing(2)


@dataclass(frozen=True)
class Hamming(Space):
    """Strings of bits; dist is the number of positions that differ.

    Parameters
    ----------
    bits : int
        Missing values count as all 0.

    Privacy
    -------
    Two values that differ in k positions are k apart in l1 and sqrt(k) <= k in l2. So noise of deviation 1/sqrt(2 rho),
    or Laplace noise of scale 1/epsilon, in every position is enough for all pairs.

    Source
    ------
    Specification 11.1; proof 10.2; Liang and Yi 2025, section 3.1 (the Hamming metric).
    """

    allowed = (Point, Mismatches, Named)
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 2**20:
            raise ConfigError("must be in [1, 2**20]", "bits", got=self.bits)

    @property
    def dimension(self) -> int:
        return self.bits

    def encode(self, value: Any) -> tuple[int, ...]:
        found = _numbers(value, self.bits)
        return (0,) * self.bits if found is None else tuple(int(x != 0) for x in found)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "hamming", "bits": self.bits}


@dataclass(frozen=True)
class Discrete(Space):
    """One of several categories; two different ones are at distance 1: local differential privacy.

    Parameters
    ----------
    categories : int
        Values are 0 to categories - 1; anything else counts as 0.

    Privacy
    -------
    Points are unit vectors: two of them differ by 2 in l1 and by sqrt(2) in l2.

    Source
    ------
    Specification 11.1; proof 10.2; Liang and Yi 2025, section 3.1 (the discrete metric).
    """

    allowed = (Point, Outside, Named)
    spread = 2
    categories: int

    def __post_init__(self) -> None:
        if not 2 <= self.categories <= 2**16:
            raise ConfigError("must be in [2, 2**16]", "categories", got=self.categories)

    @property
    def dimension(self) -> int:
        return self.categories

    def encode(self, value: Any) -> tuple[int, ...]:
        category = value if isinstance(value, (int, np.integer)) and 0 <= value < self.categories else 0
        return tuple(int(k == category) for k in range(self.categories))

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "discrete", "categories": self.categories}


@dataclass(frozen=True)
class Records(Space):
    """A table of numbers held by one curator; dist is the number of records added or removed. The central model.

    Parameters
    ----------
    low, high, step : float
        Public range and lattice of a record. Numbers outside are moved to the end of the range; other values are left
        out.

    Privacy
    -------
    Protects one record, added or removed; k records cost k times epsilon, k**2 times rho. The number of records is
    private.

    Source
    ------
    Specification 11.1; proof 10.3; Liang and Yi 2025, appendix C.
    """

    allowed = (Share,)
    dimension = 1
    low: float
    high: float
    step: float = 1.0

    def __post_init__(self) -> None:
        Euclidean((self.low,), (self.high,), self.step)

    def encode(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            values = value.astype(np.float64).ravel()
        else:  # one by one: a record must not change how another one is read
            values = np.array([x for item in _items(value) for x in _numbers((item,), 1) or ()], np.float64)
        grid = Euclidean((self.low,), (self.high,), self.step)
        return tuple(grid.encode_all(values[np.isfinite(values)][:, None])[:, 0].tolist())

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "records", "low": self.low, "high": self.high, "step": self.step}
