"""The true values of a window, as each kind of release would publish them without noise, and distances from them.

Nothing here is private: it serves rehearsals and benches, on data that may be looked at.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..noise.samplers import Noise, SeededEntropy
from ..releases.base import Mechanism, Outcome, Release
from ..releases.clusters import oracles
from ..releases.long_form import named_numbers
from ..releases.record_gate import GatedMechanism
from ..releases.statistics.sum import WindowSums
from ..stream.lattice import Grid

Points = NDArray[np.float64]
_SEED = 20160315  # of the clustering that true centers come from


class Compared(NamedTuple):
    """One released number beside its truth: its name, released minus true, and its sigma where one is stated."""

    name: str
    error: float
    sigma: float | None


class Yardstick:
    """How releases of one answer are compared with the truth.

    Parameters
    ----------
    mechanism : Mechanism
    grid : Grid

    Attributes
    ----------
    note : str
        What errors are measured by, where that is not plain.
    """

    note = ""

    def __init__(self, mechanism: Mechanism, grid: Grid) -> None:
        self.mechanism, self.grid = mechanism, grid

    def truth(self, points: Points) -> Any:
        """Return the truth of a window of lattice points (n, d), for `compare`; None if it has none."""
        raise NotImplementedError

    def compare(self, release: Release, truth: Any) -> Iterator[Compared]:
        """Compare a release that has a value."""
        for (name, value, sigma), (_, true, _) in zip(
            named_numbers(release), named_numbers(replace(release, value=truth, sigma=None)), strict=True
        ):
            yield Compared(name, value - true, sigma)

    def planned(self, name: str, sigmas: Mapping[str, float]) -> float | None:
        """Find what was predicted for a number among `Mechanism.predicted_sigmas`; None for nothing."""
        about = name.partition("/")[0]
        for known in (about, f"sum of {about}", f"variance of {about}"):
            if known in sigmas:
                return sigmas[known]
        return None


class MeanYardstick(Yardstick):
    """Mean of all records, in the units in which it is released."""

    def truth(self, points: Points) -> list[float] | None:
        return self.grid.values(points.mean(axis=0)) if len(points) else None


class VarianceYardstick(Yardstick):
    """Mean squared distance of all records from their mean, for every feature."""

    def truth(self, points: Points) -> list[float] | None:
        if not len(points):
            return None
        squared = np.array([(f.scale * self.grid.lattice.step) ** 2 for f in self.grid.features])
        found: list[float] = (points.var(axis=0) * squared).tolist()
        return found


class SumYardstick(Yardstick):
    """Exact sums of all records on the lattice."""

    def truth(self, points: Points) -> list[float] | None:
        mechanism: Any = self.mechanism
        sums = [sum(map(int, column)) for column in points.T.tolist()]
        size = Fraction(len(points)) if mechanism.weight else None
        exact = mechanism.offsets(WindowSums(len(points), sums))
        outcome = mechanism.outcome([Fraction(each) for each in exact], size, Fraction(0))
        return self.mechanism.to_user_units(outcome, self.grid).value


class CountYardstick(Yardstick):
    """Exact counts, of the whole window or of each of its declared cells: what the mechanism adds noise to."""

    def truth(self, points: Points) -> list[Any] | None:
        counter = self.mechanism.counter(self.grid.dimension, 1, Noise(SeededEntropy(0)))
        if len(points) or self.mechanism.kind == "count":
            counter.add(0, points)
        view = counter.view([0])
        counts = np.array([view.size]) if self.mechanism.kind == "count" else np.asarray(view)
        exact = Outcome(value=counts.astype(np.float64))
        return self.mechanism.to_user_units(exact, self.grid).value

    def planned(self, name: str, sigmas: Mapping[str, float]) -> float | None:
        return None if self.mechanism.kind == "marginals" else next(iter(sigmas.values()))


class _TrueQuantiles(NamedTuple):
    values: list[float]
    ordered: list[float]


class QuantileYardstick(Yardstick):
    """The smallest value that at least that share of the records does not exceed, and how far ranks are off."""

    note = "the rank of a level is off by so many shares of the records; a level among equal values is not off"

    @property
    def _levels(self) -> Sequence[float]:
        levels: Sequence[float] = self._told.levels
        return levels

    @property
    def _told(self) -> Any:
        return self.mechanism

    def truth(self, points: Points) -> _TrueQuantiles | None:
        if not len(points):
            return None
        column, feature = self._told.column, self._told.column.feature
        steps = np.sort(points[:, column.index])
        ordered = self.grid.column(feature, steps).tolist()
        at = [max(0, -int(-Fraction(str(level)) * len(ordered) // 1) - 1) for level in self._levels]
        return _TrueQuantiles([ordered[i] for i in at], ordered)

    def compare(self, release: Release, truth: _TrueQuantiles) -> Iterator[Compared]:
        assert release.value is not None
        yield from super().compare(release, truth.values)
        size, ordered = len(truth.ordered), truth.ordered
        for level, value in zip(self._levels, release.value, strict=True):
            below, upto = bisect.bisect_left(ordered, value) / size, bisect.bisect_right(ordered, value) / size
            yield Compared(f"rank of {level:g}", max(below - level, min(0.0, upto - level)), None)

    def planned(self, name: str, sigmas: Mapping[str, float]) -> float | None:
        return sigmas.get(f"level {name.removeprefix('rank of ')}")


class _TrueCovariance(NamedTuple):
    value: list[list[float]]
    correlations: NDArray[np.float64]


class CovarianceYardstick(Yardstick):
    """Covariances of all records, and their correlations where the release tells some."""

    def truth(self, points: Points) -> _TrueCovariance | None:
        if len(points) < 2:
            return None
        units = np.array([f.scale * self.grid.lattice.step for f in self.grid.features])
        matrix = np.atleast_2d(np.cov(points.T, bias=True)) * np.outer(units, units)
        deviations = np.sqrt(np.diag(matrix))
        with np.errstate(invalid="ignore", divide="ignore"):
            return _TrueCovariance(matrix.tolist(), matrix / np.outer(deviations, deviations))

    def compare(self, release: Release, truth: _TrueCovariance) -> Iterator[Compared]:
        yield from super().compare(release, truth.value)
        told = (release.parts or {}).get("correlations")
        if told is None:
            return
        sigmas, names = (release.parts or {})["correlation_sigma"], release.features or []
        for i, row in enumerate(told):
            for j, found in enumerate(row[:i]):
                if found is not None and np.isfinite(truth.correlations[i, j]):
                    error = found - float(truth.correlations[i, j])
                    yield Compared(f"correlation {names[j]}/{names[i]}", error, sigmas[i][j])

    def planned(self, name: str, sigmas: Mapping[str, float]) -> float | None:
        return sigmas.get("correlation") if name.startswith("correlation ") else None


class CenterYardstick(Yardstick):
    """Centers of k-means over all records without noise, each beside the released center that is matched to it."""

    note = "the truth are the centers of k-means without noise, matched to the released ones"

    def truth(self, points: Points) -> _Clusters | None:
        return _Clusters(points, self.grid) if len(points) else None

    def compare(self, release: Release, truth: _Clusters) -> Iterator[Compared]:
        from scipy.optimize import linear_sum_assignment

        released = np.array(release.value, np.float64)
        true = truth.centers(len(released))
        if true is None:
            return
        scales = np.array([feature.scale for feature in self.grid.features])
        gaps = ((true[:, None, :] - released[None, :, :]) / scales) ** 2
        _, match = linear_sum_assignment(gaps.sum(axis=2))
        sigma = [[None] * len(scales)] * len(released) if release.sigma is None else release.sigma
        ordered = [release.value[i] for i in match.tolist()]  # type: ignore[index]
        aligned = replace(release, value=ordered, sigma=[sigma[i] for i in match.tolist()])
        yield from super().compare(aligned, true.tolist())


class _Clusters:
    """True centers of one window for each number of clusters, found when they are first asked for."""

    def __init__(self, points: Points, grid: Grid) -> None:
        self._points, self._grid = points, grid
        self._found: dict[int, NDArray[np.float64] | None] = {}

    def centers(self, k: int) -> NDArray[np.float64] | None:
        """Return k centers (k, d) in the units of releases, in ascending order; None if there are fewer records."""
        if k not in self._found:
            self._found[k] = None
            if len(np.unique(self._points, axis=0)) >= k:
                with oracles.one_thread():
                    steps = np.asarray(oracles.find("kmeans", k, self._points.shape[1])(self._points, k, _SEED))
                ordered = steps[np.lexsort(steps.T[::-1])]
                self._found[k] = np.array(self._grid.values(np.array(ordered)))
        return self._found[k]


_YARDSTICKS: dict[str, Callable[[Mechanism, Grid], Yardstick]] = {
    "count": CountYardstick,
    "histogram": CountYardstick,
    "marginals": CountYardstick,
    "sum": SumYardstick,
    "mean": MeanYardstick,
    "variance": VarianceYardstick,
    "quantiles": QuantileYardstick,
    "covariance": CovarianceYardstick,
    "centers": CenterYardstick,
}
KINDS_COMPARED = tuple(_YARDSTICKS)
"""Kinds whose releases are compared with a truth; of others only refusals are counted."""


def yardstick_of(mechanism: Mechanism, grid: Grid) -> Yardstick | None:
    """Return how releases of a mechanism are compared with the truth; None for kinds that have no single truth."""
    inner = mechanism.inner if isinstance(mechanism, GatedMechanism) else mechanism
    made = _YARDSTICKS.get(inner.kind)
    return None if made is None else made(inner, grid)


@dataclass(frozen=True, slots=True)
class WindowTruth:
    """The truth of one answer about one window.

    Attributes
    ----------
    size : int
        Number of points, exact.
    value : Any
        What the answer's `Yardstick` returned.
    """

    size: int
    value: Any
