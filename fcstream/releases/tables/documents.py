"""Base class of all releases of synthetic rows, and reading the rows of such a release."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import DPLoss, PrivacyLoss, largest, zcdp_of_dp
from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...synthetic.codes import Codes
from ...synthetic.counts import TableCounts
from ...synthetic.mixtures import UNIT, TableMixture, draw
from ..base import Counter, Mechanism, Outcome, Release, ReleaseValues, Track
from ..long_form import HOLDS, LongRow, long_form

MAX_ROWS = 10**8
_FLAGS = ["false", "true"]
_OF_NUMBERS = ("name", "value", "sigma", "low", "high")
NANO = 10**9
USELESS = 0.05
"""Root-mean-square error of two-way marginals from which a table says too little: independent columns do as well."""


class TableMechanism(Mechanism):
    """Base class of all releases of synthetic rows, with their counter and the form in which they are published.

    Privacy
    -------
    Costs nothing itself: a mixture, its seed and its rows are functions of noisy numbers and of fresh coins.

    Source
    ------
    Specification 9.2, 9.3; proof 9.1.
    """

    codes: Codes
    rows: int | None

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return TableCounts(self.codes)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        columns = {"columns": self.codes.described()}
        if outcome.value is None:
            return ReleaseValues(None, None, parts=columns)
        return ReleaseValues(outcome.value.astype(np.int64).tolist(), None, parts=columns | (outcome.parts or {}))

    def published(
        self, mixture: TableMixture, counts: NDArray[Any], count: int, noise: Noise, track: Track | None
    ) -> Outcome:
        """Return the outcome that publishes a mixture, with a random seed for its rows; the seed reveals nothing."""
        weights, points = mixture.rounded()
        parts = {
            "unit": UNIT,
            "weights": weights,
            "counts": counts.tolist(),
            "rows": self.rows or max(1, min(count, MAX_ROWS)),
            "seed": noise.uniform_below(2**53),  # a whole number wherever JSON is read
        }
        return Outcome(None, np.array(points, np.float64), None, count, count, track=track, parts=parts)


def epsilon_nano(loss: PrivacyLoss) -> int:
    """Return the largest epsilon, in 1e-9, whose pure DP costs no more than this rho.

    Privacy
    -------
    rho is what is charged: epsilon tanh(epsilon / 2), see `zcdp_of_dp`.

    Source
    ------
    Specification 1.2, 9.2; proof 1.6; Bun and Steinke 2016.
    """
    return largest(lambda nano: zcdp_of_dp(DPLoss(nano, 0)).rho_nano <= loss.rho_nano)


def usefulness(error: float) -> tuple[str, ...]:
    """Return advice for the user on the predicted error of two-way marginals.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 9.2; ours.
    """
    if error <= USELESS / 3:
        return ()
    return (f"marginals off by {error:.2g} are of little use: raise `release.rho`, or use longer windows",)


def synthetic_codes(release: Release) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """Return the columns of a synthetic release, and its rows as codes of their levels: (m, columns).

    The same release gives the same rows on every machine.

    Raises
    ------
    ConfigError
        If the release is not a synthetic one, or is a refusal.

    Privacy
    -------
    Post-processing, so it costs nothing, however often it is called.

    Source
    ------
    Specification 9.2.
    """
    codes, mixture = _read(release)
    parts = release.parts or {}
    drawn = draw(codes, mixture, parts["rows"], parts["seed"])
    rows = np.empty_like(drawn)
    rows[:, [one.index for one in codes.attributes]] = drawn
    return parts["columns"], rows


def synthetic_shares(release: Release) -> dict[str, list[tuple[str, float]]]:
    """Return for each column of a synthetic release its levels as texts, and the share of rows that has each.

    These are the shares that rows are drawn with; the rows themselves come within one of them in each cell.

    Raises
    ------
    ConfigError
        If the release is not a synthetic one, or is a refusal.

    Privacy
    -------
    Post-processing, so it costs nothing.

    Source
    ------
    Specification 9.2.
    """
    codes, mixture = _read(release)
    chances = mixture.weights / mixture.weights.sum() @ mixture.points
    found = {}
    for one, block in sorted(zip(codes.attributes, codes.blocks, strict=True), key=lambda pair: pair[0].index):
        own = chances[block].tolist()
        shares = [1 - own[0], own[0]] if one.bits == 1 else [share / sum(own) for share in own]
        names = [f"{low:g}..{high:g}" for low, high in itertools.pairwise(one.edges)] or map(str, one.levels)
        found[one.name] = list(zip(names, shares, strict=True))
    return found


def _read(release: Release) -> tuple[Codes, TableMixture]:
    """Read the columns and the mixture of a synthetic release."""
    parts = release.parts or {}
    if release.value is None or "seed" not in parts:
        raise ConfigError("must be a release of kind 'synthetic' that has a value", "release")
    weights, points = np.array(parts["weights"], np.float64), np.array(release.value, np.float64)
    return Codes.read(parts["columns"]), TableMixture(weights, points / parts["unit"])


def row_columns(releases: Iterable[Release]) -> dict[str, tuple[str, list[Any]]]:
    """Return the made-up rows of releases as columns, by name what each holds and its cells; see `synthetic_rows`.

    Before the table's own columns stand those that say of which release a row is. A refused window has one row.

    Privacy
    -------
    Post-processing, so it costs nothing.

    Source
    ------
    Specification 9.2.
    """
    found = [release for release in releases if release.kind == "synthetic"]
    about: dict[str, list[Any]] = {name: [] for name in LongRow._fields if name not in _OF_NUMBERS}
    columns: dict[str, tuple[str, list[Any]]] = {}
    for release in found:
        for column in (release.parts or {}).get("columns", ()):
            holds = "flag" if column["levels"] == _FLAGS else "number" if column.get("edges") else "text"
            columns.setdefault(column["name"], (holds, []))
    for release in found:
        rows = {name: [None] for name in columns} if release.value is None else synthetic_rows(release)
        length = len(next(iter(rows.values()), [None]))
        (first,) = long_form([release])
        for name, cells in about.items():
            cells += [getattr(first, name)] * length
        for name, (_, cells) in columns.items():
            cells += rows[name]
    named = {name: (HOLDS[name], cells) for name, cells in about.items()}
    for name, column in columns.items():
        while name in named:
            name += "_"
        named[name] = column
    return named


def synthetic_rows(release: Release) -> dict[str, list[Any]]:
    """Return the rows of a synthetic release, column by column, with the levels as they were declared.

    Booleans become true or false, categories become texts, and numbers in bins become the middle of their bin.

    Raises
    ------
    ConfigError
        If the release is not a synthetic one, or is a refusal.

    Privacy
    -------
    Post-processing, so it costs nothing, however often it is called.

    Source
    ------
    Specification 9.2.
    """
    columns, rows = synthetic_codes(release)
    found = {}
    for column, codes in zip(columns, rows.T, strict=True):
        levels = column["levels"]
        if levels == _FLAGS:
            levels = [False, True]
        found[column["name"]] = [levels[code] for code in codes.tolist()]
    return found
