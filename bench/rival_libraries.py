"""Rivals from the package index, each in a process of its own; called by `bench/rivals.py`.

    python bench/rival_libraries.py LIBRARY JOBS.npz OUT.npz

LIBRARY is `diffprivlib`, `opendp` or `sklearn`. JOBS.npz holds one array per data set and `jobs`, a JSON list of what
to answer: {"what": ..., "data": name of an array, and public parameters}. OUT.npz gets `answer0`, `answer1`, ..., and
in `errors` what a library said where it has no answer.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")


class Diffprivlib:
    """Pure epsilon-DP; bounds are told. Means and variances take the number of rows as public (one is replaced)."""

    name = "diffprivlib"

    def mean(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Every coordinate for itself, with `each`."""
        from diffprivlib.tools import mean

        coins, bounds = np.random.RandomState(job["seed"]), (job["low"], job["high"])
        return np.array([mean(column, epsilon=job["each"], bounds=bounds, random_state=coins) for column in rows.T])

    def variance(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from diffprivlib.tools import var

        bounds = (job["low"], job["high"])
        return np.array([var(rows, epsilon=job["each"], bounds=bounds, random_state=job["seed"])])

    def histogram(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from diffprivlib.tools import histogram

        edges = np.array(job["edges"])
        bounds = (float(edges[0]), float(edges[-1]))
        options = {"epsilon": job["each"], "bins": edges, "range": bounds, "random_state": job["seed"]}
        return np.asarray(histogram(rows, **options)[0], float)

    def quantiles(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Every level for itself, with `each`."""
        from diffprivlib.tools import quantile

        coins, bounds = np.random.RandomState(job["seed"]), (job["low"], job["high"])
        levels = job["levels"]
        return np.array([quantile(rows, q, epsilon=job["each"], bounds=bounds, random_state=coins) for q in levels])

    def centers(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from diffprivlib.models import KMeans

        bounds = (np.array(job["low"]), np.array(job["high"]))
        made = KMeans(job["k"], epsilon=job["each"], bounds=bounds, random_state=job["seed"]).fit(rows)
        return np.asarray(made.cluster_centers_)

    def covariance(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Of centered rows, from its eigenvalues and eigenvectors; it wants rows that are clipped already."""
        from diffprivlib.models.utils import covariance_eig

        rows = rows * np.minimum(1, job["norm"] * (1 - 1e-9) / np.linalg.norm(rows, axis=1))[:, None]
        values, vectors = covariance_eig(rows, epsilon=job["each"], norm=job["norm"], random_state=job["seed"])
        return np.asarray((vectors * values) @ vectors.T)

    def component(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from diffprivlib.models import PCA

        options = {"epsilon": job["each"], "data_norm": job["norm"], "random_state": job["seed"]}
        return np.asarray(PCA(1, centered=True, **options).fit(rows).components_[0])

    def regression(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Of the last column on the others; the intercept comes last."""
        from diffprivlib.models import LinearRegression

        low, high = np.array(job["low"]), np.array(job["high"])
        told = {"bounds_X": (low[:-1], high[:-1]), "bounds_y": (low[-1], high[-1])}
        made = LinearRegression(epsilon=job["each"], random_state=job["seed"], **told).fit(rows[:, :-1], rows[:, -1])
        return np.append(made.coef_, made.intercept_)


class OpenDP:
    """Concentrated DP at the same rho; rows are added or removed (variance: a public number, one replaced)."""

    name = "opendp"

    def __init__(self) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib", "floating-point", "idealized-numerics")
        self.dp = dp
        self.column = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()

    def _at(self, make: Callable[[float], Any], rho: float, rows: int = 1) -> Any:
        """What `make` builds for a scale, with the least noise that costs rho for so many rows changed."""
        return self.dp.binary_search_chain(make, d_in=rows, d_out=rho, bounds=(1e-6, 1e9))

    def mean(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Rows clipped to a ball around 0; their noisy sum by their noisy number, which gets a twentieth."""
        from opendp.extras.numpy import array2_domain, make_np_clamp
        from opendp.extras.numpy._make_np_sum import make_private_np_sum

        dp, share = self.dp, job["rho"] / 20
        space = array2_domain(num_columns=rows.shape[1], nan=False, T=float), dp.symmetric_distance()
        clip = make_np_clamp(*space, job["ball"], 2, np.zeros(rows.shape[1]))
        measure = dp.zero_concentrated_divergence()
        total = self._at(lambda s: clip >> make_private_np_sum(*clip.output_space, measure, s), job["rho"] - share)
        number = self._at(lambda s: self.column >> dp.t.then_count() >> dp.m.then_gaussian(s), share)
        return np.asarray(total(rows)) / max(1, number(rows[:, 0].tolist()))

    def variance(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        dp, bounds = self.dp, (float(job["low"]), float(job["high"]))
        space = dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=len(rows)), dp.symmetric_distance()
        made = self._at(lambda s: space >> dp.t.then_variance() >> dp.m.then_gaussian(s), job["rho"], rows=2)
        return np.array([made(np.clip(rows, *bounds).tolist())])

    def histogram(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """It counts categories, so rows come as the numbers of their bins."""
        dp, edges = self.dp, job["edges"]
        bins = np.clip(np.searchsorted(edges, rows, "right") - 1, 0, len(edges) - 2)
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
        categories = list(range(len(edges) - 1))
        count = dp.t.make_count_by_categories(*space, categories, null_category=False, MO=dp.L2Distance[int], TOA=int)
        return np.asarray(self._at(lambda s: count >> dp.m.then_gaussian(s), job["rho"])(bins.tolist()), float)

    def quantiles(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Every level for itself, over the lattice of the public range."""
        dp, data = self.dp, rows.tolist()
        places = np.linspace(job["low"], job["high"], round((job["high"] - job["low"]) / job["step"]) + 1).tolist()
        measure, share = dp.zero_concentrated_divergence(), job["rho"] / len(job["levels"])
        found = []
        for q in job["levels"]:
            made = self._at(lambda s, q=q: dp.m.make_private_quantile(*self.column, measure, places, q, s), share)
            found.append(made(data))
        return np.array(found)


class Sklearn:
    """Not private: what a private answer is compared with."""

    name = "scikit-learn"

    def centers(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from sklearn.cluster import KMeans

        return np.asarray(KMeans(job["k"], n_init=10, random_state=job["seed"]).fit(rows).cluster_centers_)


LIBRARIES = {"diffprivlib": Diffprivlib, "opendp": OpenDP, "sklearn": Sklearn}


def main() -> None:
    library, source, out = sys.argv[1:]
    rival = LIBRARIES[library]()
    held = np.load(source)
    found: dict[str, Any] = {}
    errors = []
    for k, job in enumerate(json.loads(str(held["jobs"]))):
        try:
            found[f"answer{k}"] = getattr(rival, job["what"])(held[job["data"]], job)
            errors.append("")
        except Exception as error:  # whatever a library says is part of the comparison
            found[f"answer{k}"] = np.empty(0)
            errors.append(f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150] if str(error) else ''}")
    np.savez(out, errors=np.array(errors), version=version(rival.name), **found)


if __name__ == "__main__":
    main()
