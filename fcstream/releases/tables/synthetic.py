"""Synthetic rows from noisy second moments, public cells along their directions, and noisy averages in every cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise, sampleable
from ...stream.lattice import Grid
from ...synthetic.cells import MAX_AXES, MAX_WORK, Cells, along, by_number
from ...synthetic.codes import Codes
from ...synthetic.counts import TableCounts, TableView
from ...synthetic.mixtures import ReleasedMoments, TableMixture, to_simplex
from ...synthetic.triples import MAX_CHOSEN_BITS, MAX_TRIPLES, Triples
from ..averages import BallAverage, check_noise, gaussian_variance
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, Track
from ..core_stage import normal_above
from ..floors import gaussian_tail, laplace_tail, min_gaussian, min_laplace
from ..options import BuildContext, Options
from .documents import MAX_ROWS, NANO, USELESS, TableMechanism, epsilon_nano, usefulness
from .synthetic_paper import PaperSynthetic

COUNT_SHARE, CELL_SHARE = Fraction(5, 100), Fraction(3, 100)
"""Of rho for the number of records, and for the cells."""
SHARES = (Fraction(17, 100), Fraction(0))
TRIPLE_SHARES = (Fraction(40, 100), Fraction(20, 100))
"""Of rho for means and for third moments, without and with these; the rest is for second moments. Measured."""
TRIPLE_NOISE = 0.002
"""Third moments are taken where the noise of a three-way marginal, a part of the records, is at most this."""
PURE_SHARES = (Fraction(1, 10), Fraction(3, 10), Fraction(1, 10))
"""Of epsilon for means, second moments and counts of cells; the rest is for sums in cells."""
COMPONENTS, TRIPLE_COMPONENTS = 128, 256
"""Of a mixture at least (not if pure), where columns are not too many."""
LIMIT = 0.01
"""For the noise of all cells together, as a part of the records."""
_T = TypeVar("_T")
_LOSS = 2.0
"""How much larger the error of marginals is than the noise of second moments at most, measured."""


class _Stages(NamedTuple, Generic[_T]):
    """One number for the noise of each stage: of the number of records, the sums of u and of its products of two and of
    three entries, and the number of records and the sums of u in cells."""

    records: _T
    means: _T
    pairs: _T
    triples: _T
    cell_counts: _T
    cell_sums: _T


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
    rho; a window with too few records a twentieth of it (`pure`, `paper`: all).

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
    makes_rows: ClassVar[bool] = True

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.columns is None else self.columns

    def build(self, setting: BuildContext) -> Mechanism:
        loss, codes = self.pure_loss(), Codes.of(setting.grid, self.columns, self.edges)
        if self.rows is not None and not 1 <= self.rows <= MAX_ROWS:
            raise ConfigError(f"must be in [1, {MAX_ROWS}]", "release.rows", got=self.rows)
        if self.kappa != 0.5 and self.variant != "paper":
            raise ConfigError("belongs to variant = 'paper'", "release.kappa", remedy="leave it out")
        if self.size_hint is not None or self.variant == "paper" or self.projection == "ones":
            self.checked_size_hint()
        if loss.rho_nano < 10_000:
            raise ConfigError("must be at least 1e-5", "release.rho", got=Shown(f"{self.rho:g}"))
        if self.projection == "ones" and codes.bits > codes.booleans:
            raise ConfigError("must be 'learned' or 'previous' unless all columns are Boolean", "release.projection")
        if self.variant != "paper":
            return Synthetic(loss, codes, self.projection, self.size_hint, self.rows, self.variant == "pure")
        if self.projection != "learned":
            raise ConfigError("must be 'learned' with variant = 'paper'", "release.projection")
        if not 0 < self.kappa < 1:
            raise ConfigError("must be in (0, 1)", "release.kappa", got=Shown(f"{self.kappa:g}"))
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
    Gaussian noise is added in up to five stages: to the number of records (1); to the sum of u (its squared norm); to
    the sums of products of two entries of u of different columns, of squared sensitivity p (p - 1) / 2
    (`Codes.pairs_squared` in general); to the sums of products of three entries of three different columns
    (`Triples.squared`, for all of p Booleans p (p - 1) (p - 2) / 6); and, in every cell, empty ones too, to the number
    of records and the sum of u. Whether products of three are taken, and how rho is divided then, depends on the noisy
    number of records, and which ones on noisy sums. A record lies in one cell, which is an integer function of the
    record and of released numbers. All else is post-processing. A noisy number of records below `min_count` stops
    after the first stage, and the others are refunded.

    With `is_pure` the release is epsilon-DP, charged as rho = epsilon tanh(epsilon / 2), and nothing is refunded.
    Discrete Laplace noise is added to the same sums but products of three, of l1 sensitivities p + 1 (the number of
    records and the sum of u together), p (p - 1) / 2, 1 and p, with epsilon divided as in `PURE_SHARES`.

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
            for parts in (SHARES, TRIPLE_SHARES):
                shares = self._divided(parts)
                check_noise(self.codes.norm_squared, min(shares.means, shares.cell_sums))
                check_noise(max(1, self.codes.pairs_squared), shares.pairs)
                if shares.triples:
                    check_noise(MAX_TRIPLES, shares.triples)
        _ = self.scales(0), self.scales(math.inf)  # refuses noise that cannot be drawn, now

    def _divided(self, parts: tuple[Fraction, Fraction]) -> _Stages[int]:
        """Divide rho (nano) among the stages; the number and the sums in cells as 1 and sqrt(p)."""
        total = self.loss.rho_nano
        count, all_cells, means, triples = (int(total * share) for share in (COUNT_SHARE, CELL_SHARE, *parts))
        cells = BallAverage.split(all_cells, self.codes.bits)
        pairs = total - count - all_cells - means - triples
        return _Stages(count, means, pairs, triples, cells.count_nano, cells.sum_nano)

    @cached_property
    def triples_squared(self) -> int:
        """The largest squared sensitivity of the sums of products of three entries that noise is added to.

        It is 0 where none can be taken: records that are not kept must be counted for products that are known before.
        Where they are chosen, there are at most `MAX_TRIPLES`, and a record's squares of them average at most 1.
        """
        known = Triples.all_of(self.codes).squared
        can_choose = self.projection != "ones" and 2 < len(self.codes.attributes) <= self.codes.bits <= MAX_CHOSEN_BITS
        return 0 if self.is_pure else known or (MAX_TRIPLES if can_choose else 0)

    def takes_triples(self, count: float) -> bool:
        """Whether third moments are taken from a window with this noisy number of records."""
        if self.is_pure or not self.triples_squared:
            return False
        variance = gaussian_variance(self.triples_squared, self._divided(TRIPLE_SHARES).triples)
        return math.sqrt(variance) <= 8 * TRIPLE_NOISE * count

    def shares(self, count: float) -> _Stages[int]:
        """Shares of rho (nano) of the stages for a noisy number of records.

        Those of records and cells are always the same.
        """
        if self.is_pure:
            return _Stages(self.loss.rho_nano, 0, 0, 0, 0, 0)
        return self._divided(TRIPLE_SHARES if self.takes_triples(count) else SHARES)

    @cached_property
    def epsilon(self) -> Fraction:
        """Epsilon of pure DP that this rho pays for."""
        return Fraction(epsilon_nano(self.loss), NANO)

    def scales(self, count: float) -> _Stages[Fraction]:
        """Noise of the stages for a noisy number of records: variances, or scales of Laplace noise with `is_pure`.

        Those of records and cells are always the same. That of triples is an upper bound.
        """
        codes = self.codes
        if self.is_pure:
            first, pairs, counts = (self.epsilon * share for share in PURE_SHARES)
            sums = self.epsilon - first - pairs - counts
            alike = sampleable((codes.norm + 1) / first)
            pair_scale = sampleable(max(1, codes.pairs_norm) / pairs)
            return _Stages(alike, alike, pair_scale, Fraction(0), sampleable(1 / counts), sampleable(codes.norm / sums))
        shares = self.shares(count)
        return _Stages(
            gaussian_variance(1, shares.records),
            gaussian_variance(codes.norm_squared, shares.means),
            gaussian_variance(max(1, codes.pairs_squared), shares.pairs),
            gaussian_variance(self.triples_squared, shares.triples) if shares.triples else Fraction(0),
            gaussian_variance(1, shares.cell_counts),
            gaussian_variance(codes.norm_squared, shares.cell_sums),
        )

    def variances(self, count: float) -> _Stages[float]:
        """Noise variances of the stages for a noisy number of records."""
        return _Stages(*(float(2 * x * x if self.is_pure else x) for x in self.scales(count)))

    def _drawn(self, noise: Noise, scale: Fraction, size: int) -> NDArray[np.int64]:
        return noise.discrete_laplace(scale, size) if self.is_pure else noise.discrete_gaussian(scale, size)

    @cached_property
    def cell_sigma(self) -> float:
        """Noise deviation of how often a bit is set in a cell."""
        noise = self.variances(0)
        return math.sqrt(noise.cell_sums + noise.cell_counts) / 2

    @property
    def tracks(self) -> bool:
        return self.projection == "previous"

    def after(self, track: Track | None) -> Synthetic:
        return self if track is None else replace(self, cells=_read(self.codes, track))

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        is_public = self.projection == "ones"
        ahead = Triples.all_of(self.codes) if is_public and not self.is_pure else None
        counter = TableCounts(self.codes, self._by_number if is_public else None, triples=ahead)
        if self.cells is not None:
            counter.prepare(self.cells)
        return counter

    @cached_property
    def _by_number(self) -> Cells:
        return by_number(self.codes, self.cell_sigma / (self.size_hint or 1), LIMIT)

    def pair_noise(self, size: float) -> float:
        """Return the noise of a two-way marginal from second moments alone."""
        noise = self.variances(size)
        return math.sqrt(noise.pairs + 2 * noise.means + noise.records) / (4 * max(size, 1.0))

    @cached_property
    def min_count(self) -> int:
        """Least count: with a smaller noisy size a window is refused, as its marginals would be off by `USELESS`."""
        gate = min_laplace(self.scales(0).records) if self.is_pure else min_gaussian(self.scales(0).records)
        return max(gate, math.ceil(_LOSS * self.pair_noise(1) / USELESS))

    @property
    def false_release(self) -> float:
        return (laplace_tail if self.is_pure else gaussian_tail)(self.scales(0).records, self.min_count)

    def release(self, view: TableView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        moments, codes = view.moments(), self.codes
        ones, size = np.diag(moments), view.size
        charge.start(PrivacyLoss(self.shares(0).records))
        count = int((size + self._drawn(noise, self.scales(0).records, 1))[0])
        if count < self.min_count:  # what cells were known stays known
            return Outcome("too_few", count=count, track=None if self.cells is None else _written(self.cells))
        shares, scales = self.shares(count), self.scales(count)
        charge.start(PrivacyLoss(shares.means))
        sums = 2 * ones - size * codes.shifts + self._drawn(noise, scales.means, codes.bits)
        charge.start(PrivacyLoss(shares.pairs))
        products = self._noisy_products(moments, ones, size, noise, scales.pairs)
        self._complete(products, sums, count)
        released = ReleasedMoments(
            count,
            sums / count,
            products / count,
            math.sqrt(self.variances(count).means) / count,
            math.sqrt(self.variances(count).pairs) / count,
        )
        if shares.triples:
            released = self._with_triples(released, view, moments, PrivacyLoss(shares.triples), charge, noise)
        found = None if self.projection == "ones" else self._directions(products, released.means, count)
        # Public cells come first: they are the cells that were counted, whatever rho this window has.
        cells = view.public or self.cells or found or self._by_number
        charge.start(PrivacyLoss(shares.cell_counts + shares.cell_sums))
        counts, set_ = self._noisy_cells(view, cells, noise)
        mixture = self._mixture(counts, set_, released)
        if found is None or not self.tracks:
            return self.published(mixture, counts, count, noise, None)
        view.prepare(found)
        return self.published(mixture, counts, count, noise, _written(found))

    def _with_triples(
        self,
        released: ReleasedMoments,
        view: TableView,
        moments: NDArray[np.int64],
        loss: PrivacyLoss,
        charge: Charge,
        noise: Noise,
    ) -> ReleasedMoments:
        """Add noisy means of products of three entries, which were chosen from what was released."""
        triples = view.triples_ahead or Triples.chosen(self.codes, released)
        if not triples.sets:
            return released
        charge.start(loss)
        variance = gaussian_variance(triples.squared, loss.rho_nano)
        exact = triples.sums(view.triples(triples), moments, view.size)
        noisy = exact + noise.discrete_gaussian(variance, len(exact))
        return replace(
            released,
            triples=triples.bits,
            products=noisy / released.count,
            triple_sigma=math.sqrt(variance) / released.count,
        )

    def _noisy_products(
        self, moments: NDArray[np.int64], ones: NDArray[np.int64], size: int, noise: Noise, scale: Fraction
    ) -> NDArray[np.int64]:
        """Return the noisy sums of u_i u_j over records for entries of different columns, and 0 elsewhere."""
        shifts, p = self.codes.shifts, self.codes.bits
        half = 2 * shifts[:, None] * ones[None, :]
        exact = 4 * moments - half - half.T + size * np.outer(shifts, shifts)
        above = np.triu_indices(p, 1)
        noisy = np.zeros((p, p), np.int64)
        noisy[above] = np.where(self.codes.apart, exact, 0)[above] + self._drawn(noise, scale, len(above[0]))
        return np.asarray(np.where(self.codes.apart, noisy + noisy.T, 0))

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
        counts = counts + self._drawn(noise, self.scales(0).cell_counts, len(counts))
        sums += self._drawn(noise, self.scales(0).cell_sums, sums.size).reshape(sums.shape)
        return counts, (sums + counts[:, None] * self.codes.shifts) / 2

    def _mixture(self, counts: NDArray[np.int64], ones: NDArray[np.float64], released: ReleasedMoments) -> TableMixture:
        codes = self.codes
        means = (released.means + codes.shifts) / 2
        first = TableMixture.of(codes, counts.astype(np.float64), ones, self.cell_sigma, means)
        kept = to_simplex(counts / max(float(counts.sum()), 1.0)) > 0
        # Pure DP's noise of pairs is several times that of cells: more components would only fit the noise.
        most = TRIPLE_COMPONENTS if len(released.triples) else COMPONENTS
        components = 0 if self.is_pure else min(most, MAX_WORK // codes.bits**2)
        return first.fitted(codes, released, ones[kept], self.cell_sigma, components)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is the root-mean-square error of two-way marginals by noise, a share of records."""
        chance = normal_above((self.min_count - 0.5 - size) / math.sqrt(self.variances(0).records))
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
        spread = math.sqrt(self.variances(0).records)
        facts: dict[str, Any] = {
            "marginal_error": self.forecast(size or 1000).sigma,
            "bits": self.codes.bits,
            "count_sigma": spread,
        }
        if self.is_pure:
            return PlanNotes(lines, warnings, facts | {"epsilon": float(self.epsilon)})
        return PlanNotes(lines, warnings, facts, stopped=PrivacyLoss(self.shares(0).records))


def _written(cells: Cells) -> Track:
    """Write cells as the track for the next window: the directions one after another, then the center."""
    flat = [x for direction in cells.directions for x in direction]
    return Track([*flat, *cells.center], float(cells.width), float(len(cells.directions)), float(cells.odd))


def _read(codes: Codes, track: Track) -> Cells:
    axes = int(track.reach)
    flat, center = track.center[: axes * codes.bits], track.center[axes * codes.bits :]
    directions = tuple(tuple(flat[k * codes.bits : (k + 1) * codes.bits]) for k in range(axes))
    return Cells(codes, directions, tuple(center), int(track.sigma), track.across > 0)
