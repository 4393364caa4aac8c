"""The true values of a window, as each kind of release would publish them without noise, and distances from them.

Nothing here is private: it serves rehearsals and benches, on data that may be looked at.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..releases.base import Mechanism, Release
from ..releases.clusters import oracles
from ..releases.long_form import named_numbers
from ..stream.lattice import Grid

Points = NDArray[np.float64]
_SEED = 20160315  # of the clustering that true centers come from


class Compared(NamedTuple):
    """One released number beside its truth: its name, released minus true, and its sigma where one is stated."""

    name: str
    error: float
    sigma: float | None


class Yardstick:
    """How releases of one answer are compared with the truth that its mechanism states.

    Parameters
    ----------
    mechanism : Mechanism
    grid : Grid

    Attributes
    ----------
    note : str
        What errors are measured by, where that is not plain.
    """

    def __init__(self, mechanism: Mechanism, grid: Grid) -> None:
        self._mechanism, self._grid, self._shape = mechanism, grid, mechanism.shape
        self.note = _NOTES.get(self._shape.error, "")

    def truth(self, points: Points) -> Any:
        """Return the truth of a window of lattice points (n, d), for `compare`; None if it has none."""
        if self._shape.error == "matched":
            return _Clusters(points, self._grid) if len(points) else None
        return self._mechanism.truth(points, self._grid)

    def compare(self, release: Release, truth: Any) -> Iterator[Compared]:
        """Compare a release that has a value."""
        if self._shape.error == "matched":
            release, truth = _matched(release, truth, self._grid)
            if truth is None:
                return
        for (name, value, sigma), (_, true, _) in zip(
            named_numbers(release), named_numbers(replace(release, value=truth["value"], sigma=None)), strict=True
        ):
            yield Compared(name, value - true, sigma)
        if self._shape.error == "rank":
            yield from _ranks(release, truth["ordered"])
        for numbers in self._shape.numbers[1:]:
            told = (release.parts or {}).get(numbers.name)
            if told is not None and numbers.name in truth and self._shape.form == "matrix":
                yield from _below_diagonal(release, numbers.name, numbers.stem, truth[numbers.name])

    def planned(self, name: str, sigmas: Mapping[str, float]) -> float | None:
        """Find what was predicted for a number among `Mechanism.predicted_sigmas`; None for nothing."""
        if self._shape.value.law == "count":
            return next(iter(sigmas.values()))
        if self._shape.error == "rank":
            return sigmas.get(f"level {name.removeprefix('rank of ')}")
        about, stem = name.partition("/")[0], name.partition(" ")[0]
        known = (about, f"{self._shape.subject} of {about}", stem)
        return next((sigmas[each] for each in known if each in sigmas), None)


def _ranks(release: Release, ordered: list[float]) -> Iterator[Compared]:
    """Compare the ranks of released quantiles among all records."""
    size = len(ordered)
    for level, value in zip((release.parts or {})["quantiles"], release.value or [], strict=True):
        below, upto = bisect.bisect_left(ordered, value) / size, bisect.bisect_right(ordered, value) / size
        yield Compared(f"rank of {level:g}", max(below - level, min(0.0, upto - level)), None)


def _below_diagonal(release: Release, name: str, stem: str, true: list[list[float]]) -> Iterator[Compared]:
    """Compare the numbers of a symmetric matrix beside the value, each pair of features once."""
    parts, names = release.parts or {}, release.features or []
    for i, row in enumerate(parts[name]):
        for j, found in enumerate(row[:i]):
            if found is not None and np.isfinite(true[i][j]):
                yield Compared(f"{stem} {names[j]}/{names[i]}", found - true[i][j], parts[f"{stem}_sigma"][i][j])


def _matched(release: Release, clusters: _Clusters, grid: Grid) -> tuple[Release, dict[str, Any] | None]:
    """Return a release whose places are in the order of the true ones that they are matched to, and those."""
    from scipy.optimize import linear_sum_assignment

    released = np.array(release.value, np.float64)
    true = clusters.centers(len(released))
    if true is None:
        return release, None
    scales = np.array([feature.scale for feature in grid.features])
    gaps = ((true[:, None, :] - released[None, :, :]) / scales) ** 2
    _, match = linear_sum_assignment(gaps.sum(axis=2))
    sigma = [[None] * len(scales)] * len(released) if release.sigma is None else release.sigma
    ordered = [release.value[i] for i in match.tolist()]  # type: ignore[index]
    return replace(release, value=ordered, sigma=[sigma[i] for i in match.tolist()]), {"value": true.tolist()}


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


_NOTES = {
    "rank": "the rank of a level is off by so many shares of the records; a level among equal values is not off",
    "matched": "the truth are the centers of k-means without noise, matched to the released ones",
}


def yardstick_of(mechanism: Mechanism, grid: Grid) -> Yardstick | None:
    """Return how releases of a mechanism are compared with the truth; None for one that states no truth."""
    return None if mechanism.shape.error == "none" else Yardstick(mechanism, grid)


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
