"""Records of public levels: Booleans, categories and numbers in declared bins, as bits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..stream.lattice import Grid

MAX_BITS = 2048
MAX_LEVELS = 1024
CENTERED = 4
"""One-hot blocks of up to so many bits are counted as -1 and 1, larger ones as 0 and 2: what is shorter."""


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
        What is written for each level: one more than cuts. Of a number in bins: the middle of each.
    edges : tuple of float
        Of a number in bins: where they begin and end. Empty otherwise.
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
        """A Boolean is one bit, others are a one-hot block."""
        return 1 if self.size == 2 else self.size

    @property
    def is_centered(self) -> bool:
        return self.bits <= CENTERED

    @property
    def norm_squared(self) -> int:
        """Of the block's numbers u (-1 and 1, or 0 and 2): the same for every level."""
        return self.bits if self.is_centered else 4

    @property
    def norm(self) -> int:
        """Sum of their absolute values."""
        return self.bits if self.is_centered else 2


@dataclass(frozen=True)
class Codes:
    """The columns of a table, Booleans first, and the bits that stand for them (specification 9.1).

    A record is a vector u of p numbers: 2 bit - shift, with shift 1 for Booleans and small one-hot blocks, 0 for large
    ones. Its norms are the same for every record, which is what sensitivities rest on.
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        if not self.attributes:
            raise ConfigError("must name at least one feature", "release.columns")
        if self.bits > MAX_BITS:
            raise ConfigError(
                f"must have at most {MAX_BITS} bits in all, got {self.bits}: name fewer columns, or use coarser bins",
                "release.columns",
            )

    @classmethod
    def of(cls, grid: Grid, columns: Sequence[str] | None, edges: Mapping[str, Sequence[float]]) -> Codes:
        """Of features that are Boolean, have levels, or are cut at edges; None stands for all of them.

        Raises
        ------
        ConfigError
        """
        named = {feature.name: index for index, feature in enumerate(grid.features)}
        wanted = list(named) if columns is None else list(columns)
        for name in (*wanted, *edges):
            if name not in named:
                raise ConfigError(f"must be among {', '.join(map(repr, named))}, got {name!r}", "release.columns")
        if len(set(wanted)) < len(wanted):
            raise ConfigError("must not repeat a feature", "release.columns")
        found = [_attribute(grid, named[name], edges.get(name)) for name in wanted]
        return cls.ordered(found)

    @classmethod
    def ordered(cls, attributes: Sequence[Attribute]) -> Codes:
        """With Booleans first, as packed records have them."""
        return cls(tuple(sorted(attributes, key=lambda one: one.size > 2)))

    @cached_property
    def booleans(self) -> int:
        return sum(one.size == 2 for one in self.attributes)

    @cached_property
    def bits(self) -> int:
        """p."""
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
        """Whose each bit is (p,)."""
        return np.repeat(np.arange(len(self.attributes)), [one.bits for one in self.attributes])

    @cached_property
    def shifts(self) -> NDArray[np.int64]:
        """u = 2 bit - shift (p,)."""
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
        """Which pairs of bits (p, p) belong to different attributes."""
        return np.asarray(self.owners[:, None] != self.owners[None, :])

    @cached_property
    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Columns, cuts and where each attribute's cuts start, for the packing kernel."""
        starts = np.cumsum([0, *(len(one.cuts) for one in self.attributes)])
        cuts = np.array([cut for one in self.attributes for cut in one.cuts], np.float64)
        return np.array([one.index for one in self.attributes], np.int64), cuts, starts.astype(np.int64)

    def encoded(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bits (n, p) of levels (n, attributes)."""
        bits = np.zeros((len(codes), self.bits), np.int64)
        for k, (one, block) in enumerate(zip(self.attributes, self.blocks, strict=True)):
            if one.size == 2:
                bits[:, block.start] = codes[:, k]
            else:
                bits[np.arange(len(codes)), block.start + codes[:, k]] = 1
        return bits

    def described(self) -> list[dict[str, Any]]:
        """The columns in the order of the features, for a release."""
        columns = []
        for one in sorted(self.attributes, key=lambda one: one.index):
            columns.append({"name": one.name, "levels": list(one.levels)})
            if one.edges:
                columns[-1]["edges"] = list(one.edges)
        return columns

    @classmethod
    def read(cls, columns: Sequence[Mapping[str, Any]]) -> Codes:
        """The inverse of `described`, without cuts."""
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
            raise ConfigError(f"must be at most {MAX_LEVELS}, got {len(feature.levels)}", f"features.{feature.name}")
        places = [int(grid.lattice.coordinates(feature.scaled(float(code)))) for code in range(len(feature.levels))]
        if any(b <= a for a, b in itertools.pairwise(places)):
            raise ConfigError("must be at most 1 where features have levels", "lattice.step")
        return Attribute(feature.name, index, tuple(places[1:]), feature.levels)
    key = f"release.edges.{feature.name}"
    if edges is None:
        raise ConfigError("is required for a number: where its public range is cut into bins", key)
    inner = [float(edge) for edge in edges if feature.minimum < edge < feature.maximum]
    if not inner or len(inner) >= MAX_LEVELS or any(not feature.minimum <= x <= feature.maximum for x in edges):
        raise ConfigError(f"must hold 1 to {MAX_LEVELS - 1} numbers inside the range of {feature.name!r}", key)
    cuts = [int(grid.lattice.coordinates(feature.scaled(edge))) for edge in inner]
    if any(b <= a for a, b in itertools.pairwise(cuts)):
        raise ConfigError("must ascend by at least one lattice step", key)
    bounds = (feature.minimum, *inner, feature.maximum)
    middles = tuple((a + b) / 2 for a, b in itertools.pairwise(bounds))
    return Attribute(feature.name, index, tuple(cuts), middles, bounds)
