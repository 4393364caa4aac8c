"""Functions that a question can ask for: the lattice point itself, or a 1-Lipschitz function of it.

All values are exact integers. A function with real values is rounded down to a part of a lattice step, and the noise is
scaled up for the rounding.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .noise import _kernels

FINENESS = 16
MAX_FINENESS = 2**16
_SAFE = 2**62
_MAX_TURNED_BITS = 64  # checking a matrix takes the cube of it
_WIDE = 8  # columns: up to here one column after the other, beyond row by row


@dataclass(frozen=True)
class Function:
    """A function of a lattice point, in units of 1/`fineness` of a lattice step.

    Privacy
    -------
    Protects one value of one component. If two values are `dist` lattice steps apart, the integers of `evaluate` differ
    by at most `sensitivity` * dist.

    Source
    ------
    Specification 11.2; proof 10.3; Liang and Yi 2025, section 5.2 (1-Lipschitz functions).
    """

    @property
    def fineness(self) -> int:
        return 1

    @property
    def sensitivity(self) -> int:
        """The most by which the integers move per lattice step."""
        return 1

    def check(self, dimension: int, reach: int) -> None:
        """Refuse parameters that do not fit points of `dimension` coordinates with absolute values up to `reach`."""

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        """The exact integers of one point."""
        raise NotImplementedError

    def evaluate_all(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """`evaluate` of every row: int64 (n, outputs)."""
        return np.array([self.evaluate(row) for row in points.tolist()], np.int64).reshape(len(points), -1)

    def outputs(self, dimension: int) -> int:
        """How many integers a reply has."""
        return 1

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """The function, in lattice steps, at averaged noisy points (n, d). Post-processing."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Point(Function):
    """The lattice point itself.

    Privacy
    -------
    The identity is 1-Lipschitz.

    Source
    ------
    Specification 11.2; proof 10.2; Liang and Yi 2025, section 6 (point privatization).
    """

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        return tuple(point)

    def evaluate_all(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        return points

    def outputs(self, dimension: int) -> int:
        return dimension

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        return means

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "point"}


@dataclass(frozen=True)
class _Rounded(Function):
    """A 1-Lipschitz real function, rounded down to 1/`parts` of a step."""

    @property
    def sensitivity(self) -> int:
        # |floor(m a) - floor(m b)| < m dist + 1 <= (m + 1) dist: two lattice points lie at least one step apart.
        return self.fineness + 1


def _check_fineness(parts: int) -> None:
    if not 1 <= parts <= MAX_FINENESS:
        raise ConfigError(f"must be in [1, {MAX_FINENESS}]", "parts", got=parts)


@dataclass(frozen=True)
class Distance(_Rounded):
    """The Euclidean distance to a public lattice point.

    Parameters
    ----------
    to : tuple of int
        In lattice steps.
    parts : int
        The value is rounded down to 1/`parts` of a step; the noise grows by the factor 1 + 1/`parts`.

    Privacy
    -------
    1-Lipschitz by the triangle inequality; the integers move by at most `parts` + 1 for each step.

    Source
    ------
    Specification 11.2; proof 10.3; Liang and Yi 2025, section 6.3 (len_p).
    """

    to: tuple[int, ...]
    parts: int = FINENESS

    @property
    def fineness(self) -> int:
        return self.parts

    def check(self, dimension: int, reach: int) -> None:
        _check_fineness(self.parts)
        if len(self.to) != dimension:
            raise ConfigError(f"must have {dimension} coordinates", "to", got=len(self.to))
        _check_size(self.to, "to")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        square = sum((x - t) ** 2 for x, t in zip(point, self.to, strict=True))
        return (math.isqrt(self.parts**2 * square),)

    def evaluate_all(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        kernels = _kernels()
        reach = (int(np.abs(points).max(initial=0)) + max(map(abs, self.to), default=0)) * self.parts
        if kernels is None or reach * reach * points.shape[1] >= _SAFE:
            return super().evaluate_all(points)
        out = np.empty(len(points), np.int64)
        kernels.distances(points, np.array(self.to, np.int64), self.parts, out)
        return out.reshape(-1, 1)

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        if len(self.to) > _WIDE:
            to, squares = self._point, np.empty(len(means))
            for start in range(0, len(means), 64):
                gap = means[start : start + 64] - to
                squares[start : start + 64] = np.einsum("ij,ij->i", gap, gap)
            return np.asarray(np.sqrt(squares))
        total = np.zeros(len(means))
        for k, t in enumerate(self.to):
            total += (means[:, k] - t) ** 2
        return np.sqrt(total)

    @functools.cached_property
    def _point(self) -> NDArray[np.float64]:
        return np.array(self.to, np.float64)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "distance", "to": list(self.to), "parts": self.parts}


@dataclass(frozen=True)
class Box(_Rounded):
    """The signed distance to a box in any dimension, also a turned one: below 0 inside, 0 on the boundary.

    Parameters
    ----------
    center2, half2 : tuple of int
        Center and half sides in HALF lattice steps; half sides at least 0.
    turn : tuple of tuple of int
        Rows of a matrix, times 2**`turn_bits`, by which offsets from the center are turned first; empty for none.
    turn_bits : int
    parts : int
        As for `Distance`.

    Privacy
    -------
    1-Lipschitz, because it is a signed distance after a map that lengthens no distance. The latter is checked in
    integers: the largest row sum of the matrix's Gram matrix is at most 1. The integers move by at most `parts` + 1 for
    each step.

    Source
    ------
    Specification 11.2; proof 10.3; erratum 3.8; Liang and Yi 2025, section 6.2 and Lemma 6.3. Ours: q = |x - c| - a,
    |max(q, 0)| + min(max q, 0), in every dimension (theirs is for rectangles in the plane, and its inside test for
    right angles only); a point on the boundary counts as outside.
    """

    center2: tuple[int, ...]
    half2: tuple[int, ...]
    turn: tuple[tuple[int, ...], ...] = ()
    turn_bits: int = 0
    parts: int = FINENESS

    @property
    def fineness(self) -> int:
        return self.parts

    def check(self, dimension: int, reach: int) -> None:
        _check_fineness(self.parts)
        for name, values in (("center2", self.center2), ("half2", self.half2)):
            if len(values) != dimension:
                raise ConfigError(f"must have {dimension} coordinates", name, got=len(values))
            _check_size(values, name)
        if min(self.half2, default=0) < 0:
            raise ConfigError("must be at least 0", "half2")
        if not self.turn:
            return
        if not 0 <= self.turn_bits <= 60:
            raise ConfigError("must be in [0, 60]", "turn_bits", got=self.turn_bits)
        if dimension > _MAX_TURNED_BITS:
            raise ConfigError(f"must be left out in more than {_MAX_TURNED_BITS} dimensions", "turn")
        if len(self.turn) != dimension or any(len(row) != dimension for row in self.turn):
            raise ConfigError(f"must be {dimension} rows of {dimension}", "turn")
        for row in self.turn:
            _check_size(row, "turn", 60)
        gram = [sum(abs(sum(a * b for a, b in zip(p, q, strict=True))) for q in self.turn) for p in self.turn]
        if max(gram) > 1 << (2 * self.turn_bits):
            raise ConfigError("must not stretch: a row of its Gram matrix sums to more than 1", "turn")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        gap = [2 * x - c for x, c in zip(point, self.center2, strict=True)]
        if self.turn:
            gap = [sum(u * g for u, g in zip(row, gap, strict=True)) for row in self.turn]
        q = [abs(g) - (a << self.turn_bits) for g, a in zip(gap, self.half2, strict=True)]
        most, shift = max(q), self.turn_bits + 1
        if most > 0:
            return (math.isqrt(self.parts**2 * sum(v * v for v in q if v > 0) >> (2 * shift)),)
        return (self.parts * most >> shift,)

    def evaluate_all(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        kernels = _kernels()
        reach = 2 * int(np.abs(points).max(initial=0)) + max(map(abs, (*self.center2, *self.half2)), default=0)
        reach *= self.parts
        if kernels is None or self.turn or reach * reach * points.shape[1] >= _SAFE:
            return super().evaluate_all(points)
        out = np.empty(len(points), np.int64)
        kernels.box_distances(points, np.array(self.center2, np.int64), np.array(self.half2, np.int64), self.parts, out)
        return out.reshape(-1, 1)

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        gap = means - np.array(self.center2) / 2
        if self.turn:
            gap = gap @ (np.array(self.turn, np.float64) / 2.0**self.turn_bits).T
        outside, most = np.zeros(len(means)), np.full(len(means), -np.inf)
        for k, a in enumerate(self.half2):
            q = np.abs(gap[:, k]) - a / 2
            np.maximum(most, q, out=most)
            outside += np.maximum(q, 0) ** 2
        return np.where(most > 0, np.sqrt(outside), most)

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "box", "center2": list(self.center2), "half2": list(self.half2)}
        if self.turn:
            found |= {"turn": [list(row) for row in self.turn], "turn_bits": self.turn_bits}
        return found | {"parts": self.parts}


def turned(matrix: NDArray[np.float64], bits: int = 40) -> tuple[tuple[tuple[int, ...], ...], int]:
    """`turn` and `turn_bits` of a rotation: rounded, then shrunk a little so that it certainly stretches nothing."""
    d = len(matrix)
    room = 1 - 4 * d * d * 2.0**-bits
    return tuple(tuple(round(float(x) * room * 2**bits) for x in row) for row in matrix), bits


@dataclass(frozen=True)
class Mismatches(Function):
    """In how many positions packed bits differ from public ones.

    Privacy
    -------
    1-Lipschitz in the Hamming distance, and an integer.

    Source
    ------
    Specification 11.2; proof 10.3; Liang and Yi 2025, section 6.3 (len_p), in the Hamming metric.
    """

    to: tuple[int, ...]

    def check(self, dimension: int, reach: int) -> None:
        if len(self.to) != dimension or any(x not in (0, 1) for x in self.to):
            raise ConfigError(f"must be {dimension} bits", "to")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        return (sum(x != t for x, t in zip(point, self.to, strict=True)),)

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        to = np.array(self.to, np.float64)
        return np.asarray((means * (1 - to) + (1 - means) * to).sum(axis=1))

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "mismatches", "to": list(self.to)}


@dataclass(frozen=True)
class Outside(Function):
    """0 if a category is among the named ones, else 1.

    Privacy
    -------
    1-Lipschitz in the discrete metric.

    Source
    ------
    Specification 11.2; proof 10.3; Liang and Yi 2025, Definition 2 (the discrete metric: local differential privacy).
    """

    names: tuple[int, ...]

    def check(self, dimension: int, reach: int) -> None:
        if any(not 0 <= name < dimension for name in self.names):
            raise ConfigError(f"must be categories below {dimension}", "names")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        return (0 if any(point[name] for name in self.names) else 1,)

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(1 - means[:, list(self.names)].sum(axis=1))

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "outside", "names": list(self.names)}


@dataclass(frozen=True)
class Share(Function):
    """How far the records at or below a public value are from being a public share q of a holder's records.

    Parameters
    ----------
    at : int
        In lattice steps; a record counts if it is at most this.
    top, bottom : int
        q = top / bottom, in (0, 1).

    Privacy
    -------
    phi = (1 - q) h - q (N - h) for h of N records, times `bottom`, which is an integer. Adding or removing one record
    moves it by at most max(top, bottom - top). N stays private.

    Source
    ------
    Specification 11.2; proof 10.3; erratum 3.9; Liang and Yi 2025, Algorithm 9. Theirs compares h with q N, which
    publishes N.
    """

    at: int
    top: int
    bottom: int

    @property
    def fineness(self) -> int:
        return self.bottom

    @property
    def sensitivity(self) -> int:
        return max(self.top, self.bottom - self.top)

    def check(self, dimension: int, reach: int) -> None:
        if not 0 < self.top < self.bottom <= MAX_FINENESS:
            raise ConfigError(f"must be in (0, 1) with a denominator of at most {MAX_FINENESS}", "top")
        _check_size((self.at,), "at")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        below = sum(x <= self.at for x in point)
        return ((self.bottom - self.top) * below - self.top * (len(point) - below),)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "share", "at": self.at, "top": self.top, "bottom": self.bottom}


@dataclass(frozen=True)
class Named(_Rounded):
    """A function that the device's owner has registered under a name.

    Parameters
    ----------
    name : str
    parts : int
        The owner's function returns floor(`parts` phi) of a phi in lattice steps.
    of : callable, optional
        The function itself; it is not sent, so each device and simulator brings its own.

    Privacy
    -------
    The owner promises that phi is 1-Lipschitz and never raises; nothing checks it.

    Source
    ------
    Specification 11.2; proof 10.3; Liang and Yi 2025, Definition 5 (any 1-Lipschitz phi).
    """

    name: str
    parts: int = 1
    of: Callable[[Sequence[int]], int] | None = None

    @property
    def fineness(self) -> int:
        return self.parts

    def check(self, dimension: int, reach: int) -> None:
        _check_fineness(self.parts)
        if self.of is None:
            raise ConfigError("is not registered on this device", "name")

    def evaluate(self, point: Sequence[int]) -> tuple[int, ...]:
        assert self.of is not None
        return (operator.index(self.of(point)),)  # noise is an integer, so a fraction would show through

    def as_dict(self) -> dict[str, Any]:
        return {"kind": "named", "name": self.name, "parts": self.parts}


_KINDS: dict[str, type[Function]] = {
    "point": Point,
    "distance": Distance,
    "box": Box,
    "mismatches": Mismatches,
    "outside": Outside,
    "share": Share,
}


def _check_size(values: Sequence[int], key: str, bits: int = 50) -> None:
    if any(type(v) is not int or abs(v) > 1 << bits for v in values):
        raise ConfigError(f"must be integers within 2**{bits} of 0", key)


_DEPTHS = {"int": 0, "tuple[int, ...]": 1, "tuple[tuple[int, ...], ...]": 2}


def _integers(value: Any, key: str, depth: int) -> Any:
    if depth == 0:
        if type(value) is not int:
            raise ConfigError("must be an integer", key)
        return value
    if not isinstance(value, list):
        raise ConfigError("must be a list", key)
    return tuple(_integers(item, key, depth - 1) for item in value)


def function_from(mapping: Mapping[str, Any], named: Mapping[str, Named] | None = None) -> Function:
    """The function that a question names, from its JSON.

    Privacy
    -------
    Costs nothing, because it reads the question only.

    Source
    ------
    Specification 11.2; ours.

    Raises
    ------
    ConfigError
        It is not one of the known kinds, or a key is missing, unknown or of the wrong type.
    """
    rest = dict(mapping)
    kind = rest.pop("kind", None)
    if kind == "named":
        found = (named or {}).get(str(rest.get("name")))
        if found is None or found.as_dict() != {"kind": "named", **rest}:
            raise ConfigError("is not registered on this device", "function")
        return found
    maker = _KINDS.get(kind) if isinstance(kind, str) else None
    if maker is None:
        raise ConfigError(f"must be one of {[*sorted(_KINDS), 'named']}", "function")
    depths = {field.name: _DEPTHS[str(field.type)] for field in fields(maker)}
    if not set(rest) <= set(depths):
        raise ConfigError(f"must have no keys but {sorted(depths)}", "function")
    try:
        return maker(**{key: _integers(value, key, depths[key]) for key, value in rest.items()})
    except TypeError:
        raise ConfigError(f"must have more of the keys {sorted(depths)}", "function") from None
