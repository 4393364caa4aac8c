"""Rounds floats to exact integers on one public lattice, once, when a record is admitted.

From then on no decision about privacy depends on floating-point rounding. Lattice coordinates are integers that are
stored in float64 arrays (exact below 2**53), on which the kernels for distances are fast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError, Shown

MAX_COORDINATE = 2**40
_NARROW = np.dtype(np.float32), np.dtype(np.float16)
MAX_FEATURES = 2**16
MAX_RADIUS_SQUARED = 2**53 - 1
SMALLEST, LARGEST = 1e-100, 1e100
"""Public numbers beyond these are taken for mistakes; their differences, quotients and squares could overflow."""
_NO_NUMBERS = (datetime, timedelta, np.datetime64, np.timedelta64, complex, np.complexfloating)
_AT_ONCE = 2**15  # numbers that become coordinates at once
_FEW, _FEW_FEATURES = 1000, 3
TRANSFORMS: dict[str, Callable[[Any], Any]] = {"none": np.asarray, "log1p": np.log1p, "asinh": np.arcsinh}


@functools.lru_cache(maxsize=1024, typed=True)  # 2.0**60 was written with fewer digits than 2**60, which it equals
def exact(value: float | int | str | Fraction) -> Fraction:
    """Return the exact decimal that a public number was written as: 0.1 is one tenth, not the nearest double."""
    return value if isinstance(value, Fraction) else Fraction(Decimal(str(value)))


def as_doubles(values: object, key: str) -> NDArray[np.float64]:
    """Return an array of items of an algorithm, which a caller gave as the argument `key`.

    Raises
    ------
    ConfigError
        It holds anything but numbers; moments, time spans and complex numbers are none.
    """
    try:
        array = np.asarray(np.ma.filled(np.ma.asarray(values, np.float64), np.nan) if np.ma.isMA(values) else values)
        kinds = set(map(type, array.ravel().tolist())) if array.dtype.kind == "O" else {array.dtype.type}
        if not any(issubclass(kind, _NO_NUMBERS) for kind in kinds):
            return np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigError("must be a rectangular array of numbers", key)


def _check_positive(value: float, key: str) -> None:
    if not SMALLEST <= value <= LARGEST:
        raise ConfigError(f"must be a positive number from {SMALLEST:g} to {LARGEST:g}", key, got=value)


@functools.lru_cache(maxsize=256)
def sqrt_up(value: Fraction | int, bits: int = 64) -> Fraction:
    """Return a rational upper bound of a square root, at most 2**-bits above it."""
    exact_value = Fraction(value)
    scaled = -(-(exact_value.numerator << (2 * bits)) // exact_value.denominator)
    root = math.isqrt(scaled)
    return Fraction(root if root * root == scaled else root + 1, 1 << bits)


@dataclass(frozen=True, slots=True)
class Lattice:
    """The public grid: integer multiples of `step`, the same for all coordinates (specification 2.1).

    Parameters
    ----------
    step : float
        Grid width in scaled units, > 0; taken as the decimal it prints as.

    Raises
    ------
    ConfigError
        `step` not in [1e-100, 1e100].
    """

    step: float

    def __post_init__(self) -> None:
        _check_positive(self.step, "lattice.step")

    def radius_squared(self, radius: float, key: str = "radius") -> int:
        """Return floor((radius / step)**2), the integer that squared distances are compared with (specification 2.2).

        Raises
        ------
        ConfigError
            Not positive, smaller than one step, or 2**53 and more.
        """
        if not (math.isfinite(radius) and radius > 0):
            raise ConfigError("must be a positive number", key, got=radius)
        squared = math.floor((exact(radius) / exact(self.step)) ** 2)
        if squared < 1:
            raise ConfigError(f"must be at least one lattice step ({self.step:g})", key, got=radius)
        if squared > MAX_RADIUS_SQUARED:
            raise ConfigError(
                "must be below 2**26.5 lattice steps",
                key,
                got=Shown(f"{radius!r} at step {self.step!r}"),
                remedy="use a coarser {step}",
                step="lattice.step",
            )
        return squared

    def check_range(self, low: float, high: float, key: str) -> None:
        """Refuse a public range whose lattice coordinates would be too large.

        Raises
        ------
        ConfigError
            A bound of 2**40 lattice steps or more.
        """
        largest = max(abs(exact(low)), abs(exact(high))) / exact(self.step)
        if largest > MAX_COORDINATE:
            raise ConfigError(
                f"range [{low:g}, {high:g}] must lie within 2**40 lattice steps of 0",
                key,
                got=Shown(f"{float(largest):.3g}"),
                remedy="use a coarser {step}, or set {origin}",
                step="lattice.step",
                origin="features.origin",
            )

    def learned_bits(self) -> tuple[int, int]:
        """Return in how many steps the range of a feature is divided whose scale windows learn, and the smallest scale
        they may find, as a part of the range; both as exponents of two (specification 5.15).

        With them |x| 2**10 q < 2**63, where the lattice's step is p / q, and no rescaled coordinate passes 2**40.

        Raises
        ------
        ConfigError
            The step is no decimal of nine places or fewer.
        """
        step = exact(self.step)
        if max(step.denominator, step.numerator) > 10**9:
            raise ConfigError(
                "must have at most nine decimal places and nine digits where scales are learned",
                "lattice.step",
                got=self.step,
            )
        bits = min(39, 53 - step.denominator.bit_length(), 51 - step.numerator.bit_length())
        return bits, min(30, bits, 40 - max(0, math.ceil(math.log2(1 / step))))

    def finest(self, feature: Feature) -> Feature:
        """Return a feature whose scale windows learn, with the origin in the middle of its range, and a fine scale."""
        low, high = feature.range
        scale = (high - low) / 2.0 ** self.learned_bits()[0] / self.step
        return replace(feature, scale=scale, origin=low + (high - low) / 2, learned=True)

    def coordinates(self, scaled: ArrayLike) -> NDArray[np.float64]:
        """Round finite scaled values to the nearest lattice coordinates (half to even), as float64 integers."""
        return np.rint(np.asarray(scaled, np.float64) / self.step)

    def points(self, values: object) -> NDArray[np.float64]:
        """Check an array (n, d) of scaled points, and round it to the lattice: float64 integers (n, d)."""
        array = as_doubles(values, "points")
        if array.ndim != 2 or array.shape[1] < 1:
            raise ConfigError("must have shape (n, d) with d >= 1", "points", got=array.shape)
        if not np.isfinite(array).all():
            raise ConfigError("must be finite", "points", remedy="remove rows with NaN or infinity first")
        points = self.coordinates(array)
        if array.size and np.abs(points).max() > MAX_COORDINATE:
            raise ConfigError("must lie within 2**40 lattice steps of 0", "points", remedy="use a coarser `step`")
        return points


@dataclass(frozen=True, slots=True)
class Feature:
    """One public coordinate: (transform(factor · field) - origin) / scale (specification 2.1).

    Parameters
    ----------
    name : str
        The record's field.
    minimum, maximum : float
        Public range of the field times its factor; a value outside is rejected.
    scale : float
        Public divisor that makes coordinates comparable, > 0.
    origin : float
        In transformed units.
    transform : str
        ``none``, ``log1p`` or ``asinh``.
    levels : tuple of str
        Of a Boolean or a category: what its codes 0, 1, ... stand for. Empty for a number.
    missing : tuple of float
        Numbers that stand for no value, in the field's own units.
    optional : bool
        Whether a record without a value counts all the same: the stream's answer is about other fields.
    factor : float
        What the field is multiplied with before anything else, so that it has the units of `minimum` and `maximum`; of
        either sign, not 0.
    learned : bool
        Whether windows learn what counts as 1; `scale` then only makes lattice steps, see `Lattice.finest`.
    """

    name: str
    minimum: float
    maximum: float
    scale: float = 1.0
    origin: float = 0.0
    transform: str = "none"
    levels: tuple[str, ...] = ()
    missing: tuple[float, ...] = ()
    optional: bool = False
    factor: float = 1.0
    learned: bool = False

    def __post_init__(self) -> None:
        key = f"features.{self.name}"
        if self.transform not in TRANSFORMS:
            raise ConfigError(f"must be one of {sorted(TRANSFORMS)}", f"{key}.transform", got=self.transform)
        if not -LARGEST <= self.minimum < self.maximum <= LARGEST:
            raise ConfigError(
                f"must be finite, within {LARGEST:g} of 0, and min < max, got [{self.minimum}, {self.maximum}]", key
            )
        _check_positive(self.scale, f"{key}.scale")
        if not SMALLEST <= abs(self.factor) <= LARGEST:
            raise ConfigError(
                f"must be a number from {SMALLEST:g} to {LARGEST:g} or its negative", f"{key}.factor", got=self.factor
            )
        if not abs(self.origin) <= LARGEST:
            raise ConfigError(f"must be within {LARGEST:g} of 0", f"{key}.origin", got=self.origin)
        if self.transform == "log1p" and self.minimum <= -1:
            raise ConfigError("must be above -1 for log1p", f"{key}.min", got=self.minimum)

    @property
    def interval(self) -> str:
        """The public range, for messages."""
        return f"[{self.minimum:g}, {self.maximum:g}]"

    @property
    def range(self) -> tuple[float, float]:
        """Ends of the public range in transformed units."""
        return float(TRANSFORMS[self.transform](self.minimum)), float(TRANSFORMS[self.transform](self.maximum))

    @property
    def scaled_range(self) -> tuple[float, float]:
        """Ends of the public range in scaled units."""
        low, high = self.range
        return (low - self.origin) / self.scale, (high - self.origin) / self.scale

    @property
    def cells(self) -> list[Fraction]:
        """Ends of the public range in the field's own units, ascending."""
        return sorted(exact(end) / exact(self.factor) for end in (self.minimum, self.maximum))

    def scaled(self, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Transform and scale raw values, each one by itself."""
        return np.asarray((TRANSFORMS[self.transform](np.asarray(value, np.float64)) - self.origin) / self.scale)


def check_step(step: float, low: float, high: float, scale: float, name: str) -> None:
    """Refuse a lattice whose step is wider than a public range, of which it would leave nothing to tell.

    Parameters
    ----------
    step : float
    low, high : float
        Of a category two neighboring codes.
    scale : float
        What the range is divided by before it is rounded.
    name : str
        Of the feature.

    Raises
    ------
    ConfigError
    """
    if exact(step) * exact(scale) > exact(high) - exact(low):
        of = f" times the scale {scale:g}" if scale != 1 else ""
        raise ConfigError(
            f"must be smaller: the range [{low:g}, {high:g}] of {name!r} is narrower than a step of {step:g}{of}, so "
            "that nothing of its values could be told",
            "lattice.step",
        )


@functools.lru_cache(maxsize=4096)
def _end_of(step: float, feature: Feature, value: float, up: int) -> int:
    """Return the lattice number of an end of a public range; `up` is 1 for the upper end, -1 for the lower one.

    Halves are rounded outward, so that a cell that stands for the end, with whatever rounding, lies within.
    """
    own = Fraction(float(TRANSFORMS[feature.transform](value))) if feature.transform != "none" else exact(value)
    at = up * (own - exact(feature.origin)) / (exact(feature.scale) * exact(step))
    of_cell = float(exact(value) / exact(feature.factor)) * feature.factor
    with np.errstate(divide="ignore", invalid="ignore"):  # just above -1 a cell's logarithm may be none
        ways = [float(up * np.rint(feature.scaled(each) / step)) for each in (value, of_cell)]
    return up * max(math.floor(at + Fraction(1, 2)), *(int(way) for way in ways if math.isfinite(way)))


def multiples(steps: ArrayLike, step: float, scale: float = 1.0, origin: float = 0.0) -> NDArray[np.float64]:
    """Convert numbers of lattice steps to other units: origin + scale * step * number.

    A whole number of steps, or of half ones, is the double that is nearest to that decimal: 3 steps of 0.1 are 0.3.
    """
    given = np.asarray(steps, np.float64)
    found: NDArray[np.float64] = np.asarray(origin + scale * (given * step))
    halves = 2 * given
    whole = np.rint(halves) == halves
    if whole.any():
        unit, start = exact(scale) * exact(step) / 2, exact(origin)
        below = math.lcm(unit.denominator, start.denominator)
        times, plus = int(unit * below), int(start * below)
        numbers = halves[whole]
        if max(below, float(np.abs(numbers).max()) * times + abs(plus)) < 2**53:  # one rounding, that of the quotient
            found[whole] = (numbers * times + plus) / below
        else:
            found[whole] = [(int(number) * times + plus) / below for number in numbers.tolist()]
    return found


def _narrowed(value: Fraction, kind: np.dtype[Any]) -> float:
    """Round a number to a type of floats: to the nearest (half to even) of its finite numbers."""
    with np.errstate(over="ignore"):
        near = kind.type(float(value))
        around = (near, np.nextafter(near, kind.type(-np.inf)), np.nextafter(near, kind.type(np.inf)))
    return min((float(each) for each in around if np.isfinite(each)), key=lambda each: abs(Fraction(each) - value))


@dataclass(frozen=True, slots=True)
class Grid:
    """Features on a lattice: converts raw rows to points, and released points back to values (specification 2.1).

    Attributes
    ----------
    lowest, highest : float64 (d,)
        The `ends` of all features.
    """

    lattice: Lattice
    features: tuple[Feature, ...]
    lowest: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    highest: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _range: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.features) > MAX_FEATURES:
            raise ConfigError(f"must be at most {MAX_FEATURES}", "features", got=len(self.features))
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ConfigError("must have distinct names", "features")
        found: dict[object, tuple[float, ...]] = {}  # features of an array are all alike
        ends = np.empty((4, len(names)))
        for k, feature in enumerate(self.features):
            alike = (*(feature.minimum, feature.maximum, feature.scale, feature.origin, feature.factor),
                     feature.transform, len(feature.levels), feature.learned)  # fmt: skip
            if alike not in found:
                self.lattice.check_range(*feature.scaled_range, f"features.{feature.name}")
                if not feature.learned:  # of a scale that a window learned nothing may be refused
                    near = (0.0, 1.0) if feature.levels else feature.range
                    check_step(self.lattice.step, *near, feature.scale, feature.name)
                found[alike] = (*self.ends(feature), *feature.range)
            ends[:, k] = found[alike]
        for name, value in (("lowest", ends[0]), ("highest", ends[1]), ("_range", ends[2:])):
            object.__setattr__(self, name, value)

    @property
    def dimension(self) -> int:
        return len(self.features)

    def ends(self, feature: Feature) -> tuple[int, int]:
        """Return the least and the greatest lattice number of a public range, both included.

        The one place where ends are rounded: as rationals, halves outward, and never short of the number that the end
        itself gets as a double. So hi may be one more than the rounded coordinate of the maximum, and sensitivities
        are those of these ends.

        Privacy
        -------
        Public: a function of the configuration alone.

        Source
        ------
        Specification 2.1; ours.
        """
        low, high = feature.minimum, feature.maximum
        return _end_of(self.lattice.step, feature, low, -1), _end_of(self.lattice.step, feature, high, 1)

    def located(self, cells: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Convert cells (n, d) of the fields, not yet multiplied by factors, to lattice points (n, d), and tell which
        numbers are in range: those that are finite and whose lattice number lies within the `ends`.
        """
        cells = self.all_doubles(cells)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if any(feature.factor != 1 for feature in self.features):
                cells = cells * np.array([feature.factor for feature in self.features])
            points = self.points(cells)
            return points, (points >= self.lowest) & (points <= self.highest)  # False for NaN

    def doubles(self, index: int, cells: NDArray[Any], kind: Any = None) -> NDArray[np.float64]:
        """Convert a column of cells (n,) to double precision, in the field's own units.

        In a column of float32 or float16 an end of the range and a declared "no value" are rounded to that type. Cells
        between the rounded ends are in range, so that those beyond the ends are moved there, and the rounded "no value"
        is the declared one. An end that the type rounds to infinity is its greatest finite number.

        Parameters
        ----------
        index : int
            Of the feature.
        cells : array (n,)
        kind : dtype, optional
            What the column's type is, if not that of the array.

        Privacy
        -------
        Each cell is judged by itself and by the column's type, which must not depend on other cells.

        Source
        ------
        Specification 2.1; ours.
        """
        feature, kind = self.features[index], np.dtype(cells.dtype if kind is None else kind)
        given = np.asarray(cells, np.float64)
        if kind not in _NARROW:
            return given
        found, (below, above) = given.copy(), feature.cells
        for end, sign in ((below, -1), (above, 1)):
            inner, outer = float(end), _narrowed(end, kind)
            if (outer - inner) * sign <= 0:
                continue
            beyond = ((given > inner) & (given <= outer)) if sign > 0 else ((given < inner) & (given >= outer))
            if beyond.any():
                last = self._last_cell(index, inner, outer)
                found[beyond & ((given - last) * sign > 0)] = last
        for number in feature.missing:
            if abs(number) <= np.finfo(kind).max:
                found[given == _narrowed(exact(number), kind)] = number
        return found

    def all_doubles(self, cells: NDArray[Any], kinds: Sequence[np.dtype[Any]] = ()) -> NDArray[np.float64]:
        """Convert an array (n, d) of cells by `doubles`, or columns of several `kinds` (d,); one of float64
        stays itself."""
        if not any(kind in _NARROW for kind in kinds or (cells.dtype,)):
            return cells
        columns = [self.doubles(k, cells[:, k], kinds[k] if kinds else None) for k in range(self.dimension)]
        return np.stack(columns, axis=1)

    def number(self, feature: Feature, value: float) -> int | None:
        """Return the lattice number of a public number in the units of `minimum`; None if it is not in range."""
        low, high = self.ends(feature)
        at = float(self.lattice.coordinates(feature.scaled(value)))
        return int(at) if low <= at <= high else None

    def cut(self, feature: Feature, edges: Iterable[float]) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Cut a public range at public edges, of which those at its ends, or beyond by a rounding, cut nothing.

        Returns the ends of all parts, and the lattice numbers of the inner ones, at which the part above each begins.
        """
        inner = [float(edge) for edge in edges if feature.minimum < edge < feature.maximum]
        cuts = tuple(int(self.lattice.coordinates(feature.scaled(edge))) for edge in inner)
        return (feature.minimum, *inner, feature.maximum), cuts

    def _last_cell(self, index: int, inner: float, outer: float) -> float:
        """Return the last double from a cell in range to another one whose lattice number is in range."""
        feature = self.features[index]
        while (middle := inner + (outer - inner) / 2) not in (inner, outer):
            number = np.rint(feature.scaled(middle * feature.factor) / self.lattice.step)
            is_inside = self.lowest[index] <= number <= self.highest[index]
            inner, outer = (middle, outer) if is_inside else (inner, middle)
        return inner

    def points(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert raw rows (n, d) within the public ranges to lattice points (n, d)."""
        found, points = np.asarray(raw, np.float64), np.empty(raw.shape, np.float64)
        if len(raw) < _FEW and len(self.features) <= _FEW_FEATURES:  # the same numbers, sooner
            for k, feature in enumerate(self.features):
                points[:, k] = self.lattice.coordinates(feature.scaled(raw[:, k]))
            return points
        changed = [k for k, feature in enumerate(self.features) if feature.transform != "none"]
        if changed:
            found = found.copy()
            for k in changed:
                found[:, k] = TRANSFORMS[self.features[k].transform](raw[:, k])
        pairs = [(feature.origin, feature.scale) for feature in self.features]
        origins, scales = np.array(pairs, np.float64).reshape(-1, 2).T
        shifts, divides = origins.any(), (scales != 1).any()
        some = max(1, _AT_ONCE // max(1, len(self.features)))
        for first in range(0, len(points), some):  # which stay in the processor's caches between the steps
            source, part = found[first : first + some], points[first : first + some]
            if shifts:
                source = np.subtract(source, origins, out=part)
            if divides:
                source = np.divide(source, scales, out=part)
            np.rint(np.divide(source, self.lattice.step, out=part), out=part)
        return points

    def values(self, steps: ArrayLike) -> Any:
        """Convert a released point (d,), or points (n, d), from lattice steps to the features' own (transformed) units.

        Numbers are clipped to the public ranges; noise may have moved them out, and ends of the lattice may lie beyond.
        """
        return np.clip(self.in_units(steps), *self._range).tolist()

    def column(self, feature: Feature, steps: ArrayLike) -> NDArray[np.float64]:
        """Convert numbers of one feature as `values` does."""
        found = multiples(steps, self.lattice.step, feature.scale, feature.origin)
        return np.clip(found, *feature.range)

    def widths(self, steps: ArrayLike) -> Any:
        """Convert released sums, differences or standard deviations, likewise, which no range bounds."""
        return self.in_units(steps, has_origin=False).tolist()

    def in_units(self, steps: ArrayLike, *, has_origin: bool = True) -> NDArray[np.float64]:
        """Convert points (d,) or (n, d) from lattice steps to the features' units, as noise left them; see `values`."""
        alike: dict[tuple[float, float], list[int]] = {}
        for k, feature in enumerate(self.features):
            alike.setdefault((feature.scale, feature.origin if has_origin else 0.0), []).append(k)
        given = np.asarray(steps, np.float64)
        found = np.empty_like(given)
        for (scale, origin), columns in alike.items():
            found[..., columns] = multiples(given[..., columns], self.lattice.step, scale, origin)
        return found
