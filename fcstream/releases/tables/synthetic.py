"""Synthetic rows from noisy second moments, public cells along their directions, and noisy averages in every cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise, sampleable
from ...stream.lattice import Grid
from ...synthetic.cells import MAX_AXES, MAX_WORK, Cells, along, by_number
from ...synthetic.codes import Codes
from ...synthetic.counts import TableCounts, TableView
from ...synthetic.mixtures import ReleasedMoments, TableMixture, to_simplex
from ..averages import BallAverage, check_noise, gaussian_variance
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, Track
from ..core_stage import normal_above
from ..floors import gaussian_tail, laplace_tail, least_gaussian, least_laplace
from ..options import BuildContext, Options
from .documents import MAX_ROWS, NANO, USELESS, TableMechanism, epsilon_nano, usefulness
from .synthetic_paper import PaperSynthetic

SHARES = (Fraction(2, 10), Fraction(6, 10))
"""Of rho for means (with the number of records) and for second moments; the rest is for the cells."""
PURE_SHARES = (Fraction(1, 10), Fraction(3, 10), Fraction(1, 10))
"""Of epsilon for means, second moments and counts of cells; the rest is for sums in cells."""
COMPONENTS = 128
"""Of a mixture at least (not if pure), where columns are not too many."""
LIMIT = 0.01
"""For the noise of all cells together, as a part of the records."""
_LOSS = 2.0
"""How much larger the error of marginals is than the noise of second moments at most, measured."""
_Scales = tuple[Fraction, Fraction, Fraction, Fraction]


class SyntheticOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "synthetic"``: a mixture from which synthetic rows are drawn.

    The low-dimensional marginals of the mixture are near those of the data.

    Released
    --------
    value
        Points of a small mixture, from which rows are drawn: always the same ones, also by `fcstream.synthetic_rows`.
    parts.columns
        Name and levels of each column, and where a number is cut.
    parts.unit, parts.weights, parts.counts
        What `value` counts in, weights of the points, and noisy numbers of records behind them.
    parts.rows, parts.seed
        How many rows are drawn, and with which seed.

    Cost
    ----
    rho; a window with too few records a fifth of it (`pure`, `paper`: all).

    Privacy
    -------
    See `Synthetic`, and `fcstream.releases.tables.synthetic_paper.PaperSynthetic` for ``variant = "paper"``.

    Source
    ------
    Specification 9.2, 9.3, 12.1; proofs 9.1, 9.3.
    """

    kind: str = "synthetic"
    variant: Literal["zcdp", "pure", "paper"] = "zcdp"
    """Mechanism: zCDP, pure ε-DP, or Algorithm 4 of *Covariance's Loss is Privacy's Gain* as printed (``paper``, to
    compare)."""
    columns: list[str] | None = None
    """Features of the table. Left out: all."""
    edges: dict[str, list[float]] = msgspec.field(default_factory=dict)
    """Where features that are numbers are cut into bins: inner edges, by name of the feature."""
    projection: Literal["learned", "previous", "ones"] = "learned"
    """Where cells come from: one more pass over the window (``learned``), the release before (``previous``), or they
    are public (``ones``, Booleans only; no records are kept)."""
    rows: int | None = None
    """Public number of rows. Left out: the noisy number of records."""
    kappa: float = 0.5
    """For ``paper``: its κ."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    takes_categories: ClassVar[bool] = True
    needs_no_delta: ClassVar[bool] = True

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.columns is None else self.columns

    def build(self, setting: BuildContext) -> Mechanism:
        loss, codes = self.pure_loss(), Codes.of(setting.grid, self.columns, self.edges)
        if self.rows is not None and not 1 <= self.rows <= MAX_ROWS:
            raise ConfigError(f"must be in [1, {MAX_ROWS}], got {self.rows}", "release.rows")
        if self.kappa != 0.5 and self.variant != "paper":
            raise ConfigError("belongs to variant = 'paper': leave it out", "release.kappa")
        if self.size_hint is not None or self.variant == "paper" or self.projection == "ones":
            self.checked_size_hint()
        if loss.rho_nano < 10_000:
            raise ConfigError(f"must be at least 1e-5, got {self.rho:g}", "release.rho")
        if self.projection == "ones" and codes.bits > codes.booleans:
            raise ConfigError("must be 'learned' or 'previous' unless all columns are Boolean", "release.projection")
        if self.variant != "paper":
            return Synthetic(loss, codes, self.projection, self.size_hint, self.rows, self.variant == "pure")
        if self.projection != "learned":
            raise ConfigError("must be 'learned' with variant = 'paper'", "release.projection")
        if not 0 < self.kappa < 1:
            raise ConfigError(f"must be in (0, 1), got {self.kappa:g}", "release.kappa")
        return PaperSynthetic(loss, codes, self.checked_size_hint(), self.kappa, self.rows)


@dataclass(frozen=True)
class Synthetic(TableMechanism):
    """Mechanism for synthetic rows: it adds noise to moments, then to a sum and a count in every cell.

    The cells lie along the leading directions of the noisy covariance.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    codes : Codes
    projection : str
        Source of the cells. ``learned`` makes them from this window's noisy moments (one more pass over its records).
        ``previous`` makes them from the last release's moments, so that cells are counted as records arrive. ``ones``
        divides records by how many Booleans are true.
    size_hint : int or None
    rows : int or None
        Public number of rows; None takes the noisy number of records.
    is_pure : bool
        Whether noise is discrete Laplace instead of discrete Gaussian.
    cells : Cells or None
        Cells of an earlier release.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the window holds. A record is a vector
    u of integers, whose norm is the same for all records (for p Booleans -1 and 1, norm sqrt(p)). Exact discrete
    Gaussian noise is added three times: to (1, u), of squared sensitivity norm squared + 1; to the products of entries
    of u of different columns, of squared sensitivity p (p - 1) / 2 (`Codes.pairs_squared` in general); and, in every
    cell, empty ones too, to the number of records and the sum of u. A record lies in one cell, which is an integer
    function of the record and of released numbers. All else is post-processing. A noisy number of records below
    `least_count` stops after the first stage, and the others are refunded.

    With `is_pure` the release is epsilon-DP, charged as rho = epsilon tanh(epsilon / 2), and nothing is refunded.
    Discrete Laplace noise is added to the same sums, of l1 sensitivities p + 1, p (p - 1) / 2, 1 and p, with epsilon
    divided as in `PURE_SHARES`.

    Source
    ------
    Specification 9.2; proof 9.1; erratum 5.5; Boedihardjo et al. 2022: microaggregation along leading directions. Ours:
    noise on integer moments instead of PROJ, counts and sums instead of damped means, the l2 projection of weights, and
    the fit of the mixture to the moments that were paid for anyway.
    """

    loss: PrivacyLoss
    codes: Codes
    projection: str = "learned"
    size_hint: int | None = None
    rows: int | None = None
    is_pure: bool = False
    cells: Cells | None = None
    kind: str = "synthetic"

    def __post_init__(self) -> None:
        if not self.is_pure:
            most = max(self.codes.norm_squared + 1, self.codes.pairs_squared)
            check_noise(most, min(self.shares[0], self.average.sum_nano))
        _ = self.scales  # refuses noise that cannot be drawn, now

    @cached_property
    def shares(self) -> tuple[int, int, int]:
        """Shares of rho (nano): of the means, of the second moments and of the cells."""
        means, pairs = (int(self.loss.rho_nano * share) for share in SHARES)
        return means, pairs, self.loss.rho_nano - means - pairs

    @cached_property
    def epsilon(self) -> Fraction:
        """Epsilon of pure DP that this rho pays for."""
        return Fraction(epsilon_nano(self.loss), NANO)

    @cached_property
    def average(self) -> BallAverage:
        """Mechanism of the average in every cell."""
        return BallAverage.split(self.shares[2], self.codes.bits)

    @cached_property
    def scales(self) -> _Scales:
        """Noise of the means, the second moments, and the counts and the sums of cells.

        The numbers are variances, or scales of Laplace noise with `is_pure`.
        """
        codes = self.codes
        if self.is_pure:
            parts = [self.epsilon * share for share in PURE_SHARES]
            parts.append(self.epsilon - sum(parts))
            norms = (codes.norm + 1, max(1, codes.pairs_norm), 1, codes.norm)
            means, pairs, counts, sums = (sampleable(norm / part) for norm, part in zip(norms, parts, strict=True))
            return means, pairs, counts, sums
        return (
            gaussian_variance(codes.norm_squared + 1, self.shares[0]),
            gaussian_variance(max(1, codes.pairs_squared), self.shares[1]),
            self.average.count_variance,
            gaussian_variance(codes.norm_squared, self.average.sum_nano),
        )

    @cached_property
    def variances(self) -> tuple[float, float, float, float]:
        """Noise variances: of the means, the second moments, and the counts and the sums of cells."""
        means, pairs, counts, sums = (float(2 * x * x if self.is_pure else x) for x in self.scales)
        return means, pairs, counts, sums

    def _drawn(self, noise: Noise, which: int, size: int) -> NDArray[np.int64]:
        if self.is_pure:
            return noise.discrete_laplace(self.scales[which], size)
        return noise.discrete_gaussian(self.scales[which], size)

    @property
    def cell_sigma(self) -> float:
        """Noise deviation of how often a bit is set in a cell."""
        return math.sqrt(self.variances[3] + self.variances[2]) / 2

    @property
    def tracks(self) -> bool:
        return self.projection == "previous"

    def after(self, track: Track | None) -> Synthetic:
        return self if track is None else replace(self, cells=_read(self.codes, track))

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        counter = TableCounts(self.codes, self._by_number if self.projection == "ones" else None)
        if self.cells is not None:
            counter.prepare(self.cells)
        return counter

    @cached_property
    def _by_number(self) -> Cells:
        return by_number(self.codes, self.cell_sigma / (self.size_hint or 1), LIMIT)

    def pair_noise(self, size: float) -> float:
        """Return the noise of a two-way marginal from second moments alone."""
        return math.sqrt(self.variances[1] + 3 * self.variances[0]) / (4 * max(size, 1.0))

    @cached_property
    def least_count(self) -> int:
        """Least count: with a smaller noisy size a window is refused, as its marginals would be off by `USELESS`."""
        gate = least_laplace(self.scales[0]) if self.is_pure else least_gaussian(self.scales[0])
        return max(gate, math.ceil(_LOSS * self.pair_noise(1) / USELESS))

    @property
    def false_release(self) -> float:
        return (laplace_tail if self.is_pure else gaussian_tail)(self.scales[0], self.least_count)

    def release(self, view: TableView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        means, pairs, cells_nano = (self.loss.rho_nano, 0, 0) if self.is_pure else self.shares
        moments, codes = view.moments(), self.codes
        p, ones, size = codes.bits, np.diag(moments), view.size
        charge.start(PrivacyLoss(means))
        drawn = self._drawn(noise, 0, p + 1)
        count = size + int(drawn[0])
        if count < self.least_count:  # what cells were known stays known
            return Outcome("too_few", count=count, track=None if self.cells is None else _written(self.cells))
        sums = 2 * ones - size * codes.shifts + drawn[1:]
        charge.start(PrivacyLoss(pairs))
        products = self._noisy_products(moments, ones, size, noise)
        self._complete(products, sums, count)
        mean = sums / count
        found = None if self.projection == "ones" else self._directions(products, mean, count)
        # Public cells come first: they are the cells that were counted, whatever rho this window has.
        cells = view.public or self.cells or found or self._by_number
        charge.start(PrivacyLoss(cells_nano))
        counts, set_ = self._noisy_cells(view, cells, noise)
        mixture = self._mixture(counts, set_, mean, products / count, count)
        if found is None or not self.tracks:
            return self.published(mixture, counts, count, noise, None)
        view.prepare(found)
        return self.published(mixture, counts, count, noise, _written(found))

    def _noisy_products(
        self, moments: NDArray[np.int64], ones: NDArray[np.int64], size: int, noise: Noise
    ) -> NDArray[np.int64]:
        """Return the noisy sums of u_i u_j over records for entries of different columns, and 0 elsewhere."""
        shifts, p = self.codes.shifts, self.codes.bits
        half = 2 * shifts[:, None] * ones[None, :]
        exact = 4 * moments - half - half.T + size * np.outer(shifts, shifts)
        above = np.triu_indices(p, 1)
        drawn = np.zeros((p, p), np.int64)
        drawn[above] = self._drawn(noise, 1, len(above[0]))
        return np.asarray(np.where(self.codes.apart, exact + drawn + drawn.T, 0))

    def _complete(self, products: NDArray[np.int64], sums: NDArray[np.int64], count: int) -> None:
        """Fill in the products within a column, which are known from the means."""
        for one, block in zip(self.codes.attributes, self.codes.blocks, strict=True):
            own = sums[block]
            if one.is_centered:
                products[block, block] = -own[:, None] - own[None, :] - count
                np.fill_diagonal(products[block, block], count)
            else:
                products[block, block] = np.diag(2 * own)

    def _directions(self, products: NDArray[np.int64], mean: NDArray[np.float64], count: int) -> Cells:
        """Make cells along the leading eigenvectors of the noisy covariance."""
        vectors = np.linalg.eigh(products / count - np.outer(mean, mean))[1]
        leading = vectors[:, ::-1][:, :MAX_AXES].T
        return along(self.codes, leading, mean, self.cell_sigma / count, LIMIT)

    def _noisy_cells(
        self, view: TableView, cells: Cells, noise: Noise
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the noisy numbers of records of all cells, and how often each bit is set in each cell."""
        counts, ones = view.cells(cells)
        sums = 2 * ones - counts[:, None] * self.codes.shifts
        counts = counts + self._drawn(noise, 2, len(counts))
        sums += self._drawn(noise, 3, sums.size).reshape(sums.shape)
        return counts, (sums + counts[:, None] * self.codes.shifts) / 2

    def _mixture(
        self,
        counts: NDArray[np.int64],
        ones: NDArray[np.float64],
        mean: NDArray[np.float64],
        products: NDArray[np.float64],
        count: int,
    ) -> TableMixture:
        codes, shifts = self.codes, self.codes.shifts
        means = (mean + shifts) / 2
        pairs = (products + np.outer(shifts, mean) + np.outer(mean, shifts) + np.outer(shifts, shifts)) / 4
        first = TableMixture.of(codes, counts.astype(np.float64), ones, self.cell_sigma, means)
        kept = to_simplex(counts / max(float(counts.sum()), 1.0)) > 0
        mean_sigma = math.sqrt(2 * self.variances[0]) / (2 * count)
        moments = ReleasedMoments(
            means, pairs, np.full(codes.bits, mean_sigma), np.full((codes.bits,) * 2, self.pair_noise(count))
        )
        # Pure DP's noise of pairs is several times that of cells: more components would only fit the noise.
        components = 0 if self.is_pure else min(COMPONENTS, MAX_WORK // codes.bits**2)
        return first.fitted(codes, moments, count, ones[kept], self.cell_sigma, components)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is the root-mean-square error of two-way marginals by noise, a share of records."""
        chance = normal_above((self.least_count - 0.5 - size) / math.sqrt(self.variances[0]))
        return Forecast(chance, _LOSS * self.pair_noise(size))

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {"two-way marginals": self.forecast(size).sigma}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        how = (f"pure epsilon {float(self.epsilon):.4g}-DP",) if self.is_pure else ()
        lines = (
            *how,
            f"{len(self.codes.attributes)} columns as {self.codes.bits} bits; what cells lose comes on top of that "
            "noise, about 0.001 to 0.01 on tables that were tried",
            "if only marginals are wanted, kind = 'marginals' gives them with less error",
        )
        warnings = usefulness(self.forecast(size).sigma) if size is not None else ()
        spread = math.sqrt(self.variances[0])
        facts: dict[str, Any] = {
            "marginal_error": self.forecast(size or 1000).sigma,
            "bits": self.codes.bits,
            "count_sigma": spread,
        }
        if self.is_pure:
            return PlanNotes(lines, warnings, facts | {"epsilon": float(self.epsilon)})
        return PlanNotes(lines, warnings, facts, stopped=PrivacyLoss(self.shares[0]))


def _written(cells: Cells) -> Track:
    """Write cells as the track for the next window: the directions one after another, then the center."""
    flat = [x for direction in cells.directions for x in direction]
    return Track([*flat, *cells.center], float(cells.width), float(len(cells.directions)), float(cells.odd))


def _read(codes: Codes, track: Track) -> Cells:
    axes = int(track.reach)
    flat, center = track.center[: axes * codes.bits], track.center[axes * codes.bits :]
    directions = tuple(tuple(flat[k * codes.bits : (k + 1) * codes.bits]) for k in range(axes))
    return Cells(codes, directions, tuple(center), int(track.sigma), track.across > 0)
