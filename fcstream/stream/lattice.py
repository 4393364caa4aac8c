"""Rounds floats to exact integers on one public lattice, once, when a record is admitted.

From then on no decision about privacy depends on floating-point rounding. Lattice coordinates are integers that are
stored in float64 arrays (exact below 2**53), on which the kernels for distances are fast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError

MAX_COORDINATE = 2**40
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


def as_doubles(values: object, key: str, what: str = "a rectangular array of numbers") -> NDArray[np.float64]:
    """Return an array of what a caller gave as the argument `key`, with NaN for masked cells.

    Raises
    ------
    ConfigError
        It holds anything but numbers; moments, time spans and complex numbers are none.
    """
    try:
        given: Any = [_unmasked(row) for row in values] if isinstance(values, (list, tuple)) else _unmasked(values)
        array = np.asarray(given)
        kinds = set(map(type, array.ravel().tolist())) if array.dtype.kind == "O" else {array.dtype.type}
        if not any(issubclass(kind, _NO_NUMBERS) for kind in kinds):
            return np.asarray(given if array.dtype.kind == "O" else array, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"must be {what}", key) from None
    raise ConfigError(f"must be {what}: moments, time spans and complex numbers are none, convert them", key)


def _unmasked(values: Any) -> Any:
    """Return an array with NaN for its masked cells; anything else as it is."""
    if not isinstance(values, np.ma.MaskedArray) or values.dtype.kind in "mMc":
        return values
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def as_rows(values: object, key: str, what: str = "a rectangular array of numbers") -> NDArray[np.float64]:
    """Return an array (n, d), d >= 1, of what a caller gave as the argument `key`."""
    rows = as_doubles(values, key, what)
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise ConfigError(f"must have shape (n, d) with d >= 1, got {rows.shape}", key)
    return rows


def _check_positive(value: float, key: str) -> None:
    if not SMALLEST <= value <= LARGEST:
        raise ConfigError(f"must be a positive number from {SMALLEST:g} to {LARGEST:g}, got {value!r}", key)


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
            raise ConfigError(f"must be a positive number, got {radius!r}", key)
        squared = math.floor((exact(radius) / exact(self.step)) ** 2)
        if squared < 1:
            raise ConfigError(f"must be at least one lattice step ({self.step:g}), got {radius!r}", key)
        if squared > MAX_RADIUS_SQUARED:
            raise ConfigError(
                f"must be below 2**26.5 lattice steps, got {radius!r} at step {self.step!r}: use a coarser "
                "`lattice.step`",
                key,
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
                f"range [{low:g}, {high:g}] must lie within 2**40 lattice steps of 0, got {float(largest):.3g}: use "
                "a coarser `lattice.step`, or set `origin`",
                key,
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
                f"must have at most nine decimal places and nine digits where scales are learned, got {self.step!r}",
                "lattice.step",
            )
        bits = min(39, 53 - step.denominator.bit_length(), 51 - step.numerator.bit_length())
        return bits, min(30, bits, 40 - max(0, math.ceil(math.log2(1 / step))))

    def finest(self, feature: Feature) -> Feature:
        """Return a feature whose scale windows learn, with the origin in the middle of its range, and a fine scale."""
        low, high = (float(TRANSFORMS[feature.transform](bound)) for bound in (feature.minimum, feature.maximum))
        scale = (high - low) / 2.0 ** self.learned_bits()[0] / self.step
        return replace(feature, scale=scale, origin=low + (high - low) / 2, learned=True)

    def coordinates(self, scaled: ArrayLike) -> NDArray[np.float64]:
        """Round finite scaled values to the nearest lattice coordinates (half to even), as float64 integers."""
        return np.rint(np.asarray(scaled, np.float64) / self.step)

    def points(self, values: object) -> NDArray[np.float64]:
        """Check an array (n, d) of scaled points, and round it to the lattice: float64 integers (n, d)."""
        array = as_rows(values, "points")
        if not np.isfinite(array).all():
            raise ConfigError("must be finite: remove rows with NaN or infinity first", "points")
        points = self.coordinates(array)
        if array.size and np.abs(points).max() > MAX_COORDINATE:
            raise ConfigError("must lie within 2**40 lattice steps of 0: use a coarser `step`", "points")
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
            raise ConfigError(f"must be one of {sorted(TRANSFORMS)}, got {self.transform!r}", f"{key}.transform")
        if not -LARGEST <= self.minimum < self.maximum <= LARGEST:
            raise ConfigError(
                f"must be finite, within {LARGEST:g} of 0, and min < max, got [{self.minimum}, {self.maximum}]", key
            )
        _check_positive(self.scale, f"{key}.scale")
        if not SMALLEST <= abs(self.factor) <= LARGEST:
            raise ConfigError(
                f"must be a number from {SMALLEST:g} to {LARGEST:g} or its negative, got {self.factor!r}",
                f"{key}.factor",
            )
        if not abs(self.origin) <= LARGEST:
            raise ConfigError(f"must be within {LARGEST:g} of 0, got {self.origin!r}", f"{key}.origin")
        if self.transform == "log1p" and self.minimum <= -1:
            raise ConfigError(f"must be above -1 for log1p, got {self.minimum!r}", f"{key}.min")

    def inside(self, value: float) -> float:
        """Clip a released number, in transformed units, to the public range."""
        low, high = (float(TRANSFORMS[self.transform](bound)) for bound in (self.minimum, self.maximum))
        return min(max(value, low), high)

    def scaled(self, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Transform and scale raw values, each one by itself."""
        return np.asarray((TRANSFORMS[self.transform](np.asarray(value, np.float64)) - self.origin) / self.scale)


@dataclass(frozen=True, slots=True)
class Grid:
    """Features on a lattice: converts raw rows to points, and released points back to values (specification 2.1)."""

    lattice: Lattice
    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        if len(self.features) > MAX_FEATURES:
            raise ConfigError(f"must be at most {MAX_FEATURES}, got {len(self.features)}", "features")
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ConfigError("must have distinct names", "features")
        fine = set()  # features of an array are all alike
        for feature in self.features:
            alike = feature.minimum, feature.maximum, feature.scale, feature.origin, feature.transform
            if alike not in fine:
                low, high = (float(feature.scaled(bound)) for bound in (feature.minimum, feature.maximum))
                self.lattice.check_range(low, high, f"features.{feature.name}")
                fine.add(alike)

    @property
    def dimension(self) -> int:
        return len(self.features)

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

    def values(self, steps: NDArray[np.float64]) -> list[float]:
        """Convert a released point from lattice steps to the features' own (transformed) units."""
        step = self.lattice.step
        return [float(f.origin + f.scale * (x * step)) for f, x in zip(self.features, steps.tolist(), strict=True)]

    def rows_inside(self, steps: NDArray[np.float64]) -> list[list[float]]:
        """Convert released points (n, d) to `values`, each clipped to the public range of its feature."""
        columns = []
        for feature, some in zip(self.features, np.asarray(steps, np.float64).T, strict=True):
            found = feature.origin + feature.scale * (some * self.lattice.step)
            low, high = feature.inside(-math.inf), feature.inside(math.inf)
            found = np.where(low > found, low, found)
            columns.append(np.where(high < found, high, found))
        return np.stack(columns, axis=1).tolist()  # type: ignore[no-any-return]

    def widths(self, steps: NDArray[np.float64]) -> list[float]:
        """Convert released standard deviations from lattice steps to the features' own (transformed) units."""
        step = self.lattice.step
        return [float(f.scale * (x * step)) for f, x in zip(self.features, steps.tolist(), strict=True)]
