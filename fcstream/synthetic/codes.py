"""Codes of table records as bits: Booleans, categories, and numbers in public bins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..stream.lattice import Grid

MAX_BITS = 2048
MAX_LEVELS = 1024
CENTERED = 4
"""Largest one-hot block whose bits count as -1 and 1; in larger blocks they count as 0 and 2, which is shorter."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of a table (specification 9.1).

    Attributes
    ----------
    name : str
    index : int
        Its index among the features.
    cuts : tuple of int
        Lattice coordinates at which the next level begins, ascending.
    levels : tuple
        The value that is written for each level, one more than `cuts`; for a number in bins, the middle of each bin.
    edges : tuple of float
        For a number in bins, where the bins begin and end; empty otherwise.
    """

    name: str
    index: int
    cuts: tuple[int, ...]
    levels: tuple[Any, ...]
    edges: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        return len(self.levels)

    @property
    def bits(self) -> int:
        """Number of bits: one for a Boolean, else one for each level."""
        return 1 if self.size == 2 else self.size

    @property
    def is_centered(self) -> bool:
        return self.bits <= CENTERED

    @property
    def norm_squared(self) -> int:
        """Squared l2 norm of the block's numbers u (-1 and 1, or 0 and 2), the same for every level."""
        return self.bits if self.is_centered else 4

    @property
    def norm(self) -> int:
        """l1 norm of the block's numbers u."""
        return self.bits if self.is_centered else 2


@dataclass(frozen=True)
class Codes:
    """Columns of a table, Booleans first, and the bits that encode them (specification 9.1).

    A record is a vector u of p numbers 2 bit - shift, where the shift is 1 for Booleans and small one-hot blocks and 0
    for large blocks. The norms of u are the same for every record, and sensitivities rest on that.
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        if not self.attributes:
            raise ConfigError("must name at least one feature", "release.columns")
        if self.bits > MAX_BITS:
            raise ConfigError(
                f"must have at most {MAX_BITS} bits in all",
                "release.columns",
                got=self.bits,
                remedy="name fewer columns, or use coarser bins",
            )

    @classmethod
    def of(cls, grid: Grid, columns: Sequence[str] | None, edges: Mapping[str, Sequence[float]]) -> Codes:
        """Make codes for features that are Boolean, have levels, or are cut at edges; with None, for all features.

        Raises
        ------
        ConfigError
        """
        named = {feature.name: index for index, feature in enumerate(grid.features)}
        wanted = list(named) if columns is None else list(columns)
        for name in (*wanted, *edges):
            if name not in named:
                raise ConfigError(f"must be among {', '.join(map(repr, named))}", "release.columns", got=name)
        if len(set(wanted)) < len(wanted):
            raise ConfigError("must not repeat a feature", "release.columns")
        found = [_attribute(grid, named[name], edges.get(name)) for name in wanted]
        return cls.ordered(found)

    @classmethod
    def ordered(cls, attributes: Sequence[Attribute]) -> Codes:
        """Make codes with Booleans first, as in packed records."""
        return cls(tuple(sorted(attributes, key=lambda one: one.size > 2)))

    @cached_property
    def booleans(self) -> int:
        return sum(one.size == 2 for one in self.attributes)

    @cached_property
    def bits(self) -> int:
        """Number of bits p."""
        return sum(one.bits for one in self.attributes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The first bit of each attribute."""
        return tuple(itertools.accumulate((one.bits for one in self.attributes[:-1]), initial=0))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """The bits of each attribute."""
        return tuple(slice(at, at + one.bits) for at, one in zip(self.offsets, self.attributes, strict=True))

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """Index of the attribute that each bit belongs to (p,)."""
        return np.repeat(np.arange(len(self.attributes)), [one.bits for one in self.attributes])

    @cached_property
    def shifts(self) -> NDArray[np.int64]:
        """Shift of each bit (p,), in u = 2 bit - shift."""
        return np.repeat([int(one.is_centered) for one in self.attributes], [one.bits for one in self.attributes])

    @cached_property
    def norm_squared(self) -> int:
        """Squared l2 norm of u, the same for every record: p if all are Booleans."""
        return sum(one.norm_squared for one in self.attributes)

    @cached_property
    def norm(self) -> int:
        """l1 norm of u."""
        return sum(one.norm for one in self.attributes)

    @cached_property
    def pairs_squared(self) -> int:
        """Squared l2 norm of the products u_i u_j over pairs of bits of different attributes: p (p - 1) / 2 if all are
        Booleans."""
        return (self.norm_squared**2 - sum(one.norm_squared**2 for one in self.attributes)) // 2

    @cached_property
    def pairs_norm(self) -> int:
        """l1 norm of the same products."""
        return (self.norm**2 - sum(one.norm**2 for one in self.attributes)) // 2

    @cached_property
    def apart(self) -> NDArray[np.bool_]:
        """Mask (p, p) of the pairs of bits that belong to different attributes."""
        return np.asarray(self.owners[:, None] != self.owners[None, :])

    @cached_property
    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Arrays for the packing kernel: columns, cuts, and where each attribute's cuts start."""
        starts = np.cumsum([0, *(len(one.cuts) for one in self.attributes)])
        cuts = np.array([cut for one in self.attributes for cut in one.cuts], np.float64)
        return np.array([one.index for one in self.attributes], np.int64), cuts, starts.astype(np.int64)

    def encoded(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert levels (n, attributes) to bits (n, p)."""
        bits = np.zeros((len(codes), self.bits), np.int64)
        for k, (one, block) in enumerate(zip(self.attributes, self.blocks, strict=True)):
            if one.size == 2:
                bits[:, block.start] = codes[:, k]
            else:
                bits[np.arange(len(codes)), block.start + codes[:, k]] = 1
        return bits

    def described(self) -> list[dict[str, Any]]:
        """Describe the columns, in the order of the features, for a release."""
        columns = []
        for one in sorted(self.attributes, key=lambda one: one.index):
            columns.append({"name": one.name, "levels": list(one.levels)})
            if one.edges:
                columns[-1]["edges"] = list(one.edges)
        return columns

    @classmethod
    def read(cls, columns: Sequence[Mapping[str, Any]]) -> Codes:
        """Read codes, without cuts, from what `described` returned."""
        found = [
            Attribute(column["name"], k, (), tuple(column["levels"]), tuple(column.get("edges", ())))
            for k, column in enumerate(columns)
        ]
        return cls.ordered(found)


def _attribute(grid: Grid, index: int, edges: Sequence[float] | None) -> Attribute:
    feature = grid.features[index]
    if feature.levels:
        if edges is not None:
            raise ConfigError(f"must be left out: {feature.name!r} has levels", f"release.edges.{feature.name}")
        if len(feature.levels) > MAX_LEVELS:
            raise ConfigError(f"must be at most {MAX_LEVELS}", f"features.{feature.name}", got=len(feature.levels))
        places = [int(grid.lattice.coordinates(feature.scaled(float(code)))) for code in range(len(feature.levels))]
        return Attribute(feature.name, index, tuple(places[1:]), feature.levels)
    key = f"release.edges.{feature.name}"
    if edges is None:
        raise ConfigError("is required for a number: where its public range is cut into bins", key)
    bounds, cuts = grid.cut(feature, edges)
    if not 1 <= len(cuts) < MAX_LEVELS or any(grid.number(feature, edge) is None for edge in edges):
        raise ConfigError(f"must hold 1 to {MAX_LEVELS - 1} numbers inside the range of {feature.name!r}", key)
    if any(b <= a for a, b in itertools.pairwise(cuts)):
        raise ConfigError("must ascend by at least one lattice step", key)
    middles = tuple((a + b) / 2 for a, b in itertools.pairwise(bounds))
    return Attribute(feature.name, index, cuts, middles, bounds)
