"""Marginals: noisy contingency tables of all sets of one, two or three columns, made consistent with each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise, SeededEntropy
from ...stream.lattice import Grid
from ...synthetic.codes import Codes
from ...synthetic.counts import ContingencyTables, PairPanes, TablePanes
from ..averages import gaussian_variance
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..intervals import count_half_width, lattice_half_width
from ..options import BuildContext, Options

MAX_CELLS = 2**20
"""Of all tables together: a release of so many is some 32 MB of JSON, which a ledger and a file take."""
LARGE_CELLS = 2**15
"""From which on a release may be larger than a broker's message: by default 1 MB with Kafka and NATS."""
MAX_ORDER = 3
DECIMALS = 2
"""Of the numbers of a release."""
BYTES = 32
"""Of the JSON of a cell, with its sigma and its interval."""


class MarginalsOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "marginals"``: noisy contingency tables of all sets of `order` columns.

    Released
    --------
    value, sigma
        A list of numbers of records for each set of `order` columns: contingency tables that agree with each other; and
        the deviation of each number's noise.
    parts.columns
        Name and levels of each column, and where a number is cut.
    parts.tables
        Names of the columns of each table.
    parts.cell_sigma
        Deviation of the noise of a cell before tables were made to agree, which makes it smaller.

    Cost
    ----
    rho for all tables together: the noise of a cell has at most the deviation sqrt(tables / (2 rho)). At most 1,048,576
    cells; above 32,768 `fcstream plan` warns that brokers may not take so long a message.

    Privacy
    -------
    `Marginals` states the guarantee.

    Source
    ------
    Specification 9.5, 12.1; proof 6.2.
    """

    kind: str = "marginals"
    order: int = 2
    """How many columns each table has: 1, 2 or 3."""
    columns: list[str] | None = None
    """Features of the table. Left out: all."""
    edges: dict[str, list[float]] = msgspec.field(default_factory=dict)
    """Where features that are numbers are cut into bins: inner edges, by name of the feature."""

    takes_categories: ClassVar[bool] = True

    holds_records = False

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.columns is None else self.columns

    def build(self, setting: BuildContext) -> Marginals:
        codes = Codes.of(setting.grid, self.columns, self.edges)
        if not 1 <= self.order <= min(MAX_ORDER, len(codes.attributes)):
            raise ConfigError(
                f"must be in [1, {min(MAX_ORDER, len(codes.attributes))}]", "release.order", got=self.order
            )
        found = Marginals(self.pure_loss(), codes, self.order)
        if found.tables.cells > MAX_CELLS:
            raise ConfigError(
                f"must be smaller: {found.tables.number:,} tables have {found.tables.cells:,} cells, "
                f"at most {MAX_CELLS:,} fit one release",
                "release.order",
                remedy="name fewer `columns`, use coarser `edges`, or ask for kind = 'synthetic'",
            )
        return found


@dataclass(frozen=True)
class Marginals(Mechanism):
    """Mechanism that adds discrete Gaussian noise to every cell of every table, then makes all tables agree.

    Making the tables agree also reduces the noise.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    codes : Codes
    order : int
        Number of columns in a table: 1, 2 or 3. Tables of fewer columns are sums of these tables.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0. A record is counted once in each table, so the
    squared l2 sensitivity is the number of tables. Values may be negative.

    Source
    ------
    Specification 9.5; proof 6.2; Gaussian mechanism on the discrete Gaussian (Canonne, Kamath, Steinke 2020). Least
    squares by the orthogonal decomposition of tables into means and interactions; Barak et al. 2007 do so for Booleans.
    """

    loss: PrivacyLoss
    codes: Codes
    order: int
    kind: str = "marginals"

    @cached_property
    def tables(self) -> ContingencyTables:
        return ContingencyTables(tuple(one.size for one in self.codes.attributes), self.order)

    @cached_property
    def variance(self) -> Fraction:
        return gaussian_variance(self.tables.number, self.loss.rho_nano)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return (PairPanes if self.order == 2 else TablePanes)(self.codes, self.tables)

    def release(self, view: NDArray[np.int64], charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        noisy = view + noise.discrete_gaussian(self.variance, len(view))
        agreed = agree(noisy.astype(np.float64), self.tables)
        total = round(float(agreed[: self._sizes[0]].sum()))
        value = np.round(agreed, DECIMALS)
        deviations = np.repeat(deviations_of_agreed(self.tables), self._sizes)
        sigma = math.sqrt(self.variance) * deviations
        if self.tables.number == 1:  # whose numbers are whole
            half: Any = float(count_half_width(math.sqrt(self.variance)))
        else:
            half = lattice_half_width(sigma, deviations) + 10**-DECIMALS  # value and ends are rounded
        interval = np.round(np.stack([value - half, value + half], axis=1), DECIMALS)
        return Outcome(value=value, sigma=sigma, interval=interval, count=total, core_count=total)

    @cached_property
    def _sizes(self) -> list[int]:
        return [math.prod(self.tables.sizes[a] for a in one) for one in self.tables.sets]

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is that of one cell, in records, before agreement reduces it."""
        return Forecast(1.0, math.sqrt(self.variance))

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        attributes = self.codes.attributes
        parts: dict[str, Any] = {
            "columns": self.codes.described(),
            "tables": [[attributes[a].name for a in one] for one in self.tables.sets],
            "cell_sigma": math.sqrt(self.variance),
        }
        if outcome.value is None:
            return ReleaseValues(None, None, parts=parts)
        ends = list(itertools.accumulate(self._sizes))
        assert outcome.sigma is not None
        assert outcome.interval is not None
        value, sigma, interval = (
            [each[end - size : end].tolist() for end, size in zip(ends, self._sizes, strict=True)]
            for each in (outcome.value, np.round(outcome.sigma, DECIMALS), outcome.interval)
        )
        return ReleaseValues(value, sigma, parts=parts, interval=interval)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        counter = self.counter(grid.dimension, 1, Noise(SeededEntropy(0)))
        if len(points):
            counter.add(0, points)
        counts = np.asarray(counter.view([0]), np.float64)
        return {"value": [each.tolist() for each in np.split(counts, np.cumsum(self._sizes)[:-1])]}

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {"a cell at most": math.sqrt(self.variance)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        sigma, most = math.sqrt(self.variance), max(self._sizes)
        lines = (
            f"{len(self._sizes)} tables of {self.order} columns, {self.tables.cells} cells in all, empty ones too",
        )
        warnings: tuple[str, ...] = ()
        if size is not None and size / most < sigma:
            warnings = (
                f"{size} records in {most} cells are fewer in a cell than the noise: use fewer `columns`, a smaller "
                "`release.order`, or a larger `release.rho`",
            )
        if self.tables.cells > LARGE_CELLS:
            warnings += (
                f"a release holds {self.tables.cells:,} numbers, about {self.tables.cells * BYTES / 1e6:.1f} MB: more "
                "than many brokers take as one message; write to a file or a database, or use fewer `columns`",
            )
        return PlanNotes(lines, warnings, {"tables": len(self._sizes), "cells": self.tables.cells})


def agree(noisy: NDArray[np.float64], tables: ContingencyTables) -> NDArray[np.float64]:
    """Fit tables by least squares so that all of them are marginals of one function of all columns; end to end.

    Privacy
    -------
    Post-processing, so it costs nothing.

    Complexity
    ----------
    2**order passes over the cells; tables of one shape are worked on together.

    Source
    ------
    Specification 9.5; proof 6.2; a table is the sum of one term for each subset of its columns, whose sums along any of
    them are 0; terms of different subsets are orthogonal, so each is the mean, weighted by how well each table tells
    it, of what all tables say.
    """
    members, _, starts = tables.layout()
    shapes, kinds = np.unique(np.array(tables.sizes)[members], axis=0, return_inverse=True)
    groups = [
        (np.flatnonzero(kinds.ravel() == kind), tuple(shape)) for kind, shape in enumerate(shapes.tolist())
    ]  # tables of each shape
    subsets = [kept for order in range(tables.order + 1) for kept in itertools.combinations(range(tables.order), order)]
    said: dict[tuple[int, ...], list[_Said]] = {}  # by the shape of what is kept
    for own, shape in groups:
        stack = noisy[starts[own][:, None] + np.arange(math.prod(shape))].reshape(-1, *shape)
        for kept in subsets:
            dropped = [k for k in range(tables.order) if k not in kept]
            weight = 1 / math.prod(shape[k] for k in dropped)  # the noise of a sum grows with its terms
            term = _centered(stack.sum(axis=tuple(1 + k for k in dropped))).reshape(len(own), -1)
            names = _names(members[own][:, kept], len(tables.sizes))
            said.setdefault(tuple(shape[k] for k in kept), []).append((names, weight * term, weight))
    terms = {shape: _weighed(parts) for shape, parts in said.items()}
    found = np.empty_like(noisy)
    for own, shape in groups:
        total = np.zeros((len(own), *shape))
        for kept in subsets:
            kept_shape = tuple(shape[k] for k in kept)
            names, means = terms[kept_shape]
            share = means[np.searchsorted(names, _names(members[own][:, kept], len(tables.sizes)))]
            total += share.reshape(len(own), *(n if k in kept else 1 for k, n in enumerate(shape))) / math.prod(
                shape[k] for k in range(tables.order) if k not in kept
            )
        found[starts[own][:, None] + np.arange(math.prod(shape))] = total.reshape(len(own), -1)
    return found


def deviations_of_agreed(tables: ContingencyTables) -> NDArray[np.float64]:
    """Return the deviation of the noise in a cell of each table (m,) after `agree`, for noise of deviation 1 before.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 9.5; proof 6.2: a term of subset S is a mean of what all tables with S say, each weighted by how well
    it tells it, so its variance is c / W with the sum W of these weights, which is an elementary symmetric polynomial
    of the inverse sizes of the other columns, and c the product of 1 - 1/size over S.
    """
    members, _, _ = tables.layout()
    inverse = 1 / np.array(tables.sizes, np.float64)
    powers = [float((inverse**k).sum()) for k in (1, 2, 3)]
    found = np.zeros(len(members))
    for order in range(tables.order + 1):
        for kept in itertools.combinations(range(tables.order), order):
            own = inverse[members[:, kept]]
            dropped = inverse[members[:, [k for k in range(tables.order) if k not in kept]]]
            one, two, three = (power - (own**k).sum(axis=1) for k, power in enumerate(powers, 1))
            weights = (np.ones(len(members)), one, (one**2 - two) / 2, (one**3 - 3 * one * two + 2 * three) / 6)
            found += (1 - own).prod(axis=1) * dropped.prod(axis=1) ** 2 / weights[tables.order - order]
    return np.sqrt(found)


_Said = tuple["NDArray[np.int64]", "NDArray[np.float64]", float]
"""Terms of some tables: names of their columns (g,), values times weight (g, cells), and the weight."""


def _names(columns: NDArray[np.int64], attributes: int) -> NDArray[np.int64]:
    """Return one number for each set of columns (g, kept), which identifies the set."""
    return np.asarray(columns @ (attributes + 1) ** np.arange(columns.shape[1]), np.int64)


def _weighed(parts: list[_Said]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Combine the estimates of all tables for each set of columns, ascending by the set's number."""
    names, index = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    totals, trust = np.zeros((len(names), parts[0][1].shape[1])), np.zeros(len(names))
    np.add.at(totals, index.ravel(), np.concatenate([part[1] for part in parts]))
    np.add.at(trust, index.ravel(), np.repeat([part[2] for part in parts], [len(part[0]) for part in parts]))
    return names, totals / trust[:, None]


def _centered(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Center tables (g, ...), so that their sums along any column are 0."""
    for axis in range(1, stack.ndim):
        stack = stack - stack.mean(axis=axis, keepdims=True)
    return stack
