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
from importlib.metadata import version
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")


class Diffprivlib:
    """Pure epsilon-DP; bounds are told. Means and variances take the number of rows as public (one is replaced)."""

    name = "diffprivlib"

    def mean(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        import diffprivlib

        # It gives every coordinate epsilon / d by itself.
        bounds = (np.array(job["low"]), np.array(job["high"]))
        return np.asarray(
            diffprivlib.tools.mean(rows, epsilon=job["epsilon"], bounds=bounds, axis=0, random_state=job["seed"])
        )

    def variance(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        import diffprivlib

        bounds = (job["low"], job["high"])
        return np.asarray(
            diffprivlib.tools.var(rows, epsilon=job["epsilon"], bounds=bounds, random_state=job["seed"])
        ).reshape(1)

    def histogram(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        import diffprivlib

        edges = np.array(job["edges"])
        bounds = (float(edges[0]), float(edges[-1]))
        return np.asarray(
            diffprivlib.tools.histogram(
                rows, epsilon=job["epsilon"], bins=edges, range=bounds, random_state=job["seed"]
            )[0],
            float,
        )

    def quantiles(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        import diffprivlib

        bounds = (job["low"], job["high"])  # it divides epsilon among the levels
        return np.asarray(
            diffprivlib.tools.quantile(
                rows, job["levels"], epsilon=job["epsilon"], bounds=bounds, random_state=job["seed"]
            )
        )

    def centers(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        from diffprivlib.models import KMeans

        bounds = (np.array(job["low"]), np.array(job["high"]))
        made = KMeans(job["k"], epsilon=job["epsilon"], bounds=bounds, random_state=job["seed"]).fit(rows)
        return np.asarray(made.cluster_centers_)


class OpenDP:
    """Concentrated DP at the same rho; rows are added or removed (the mean of rows: a public number, one replaced)."""

    name = "opendp"

    def __init__(self) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib", "floating-point", "honest-but-curious")
        self.dp = dp

    def _column(self):  # type: ignore[no-untyped-def]
        dp = self.dp
        return dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()

    def _noisy(self, total, rho: float):  # type: ignore[no-untyped-def]
        """The Gaussian mechanism of a transformation at so much rho."""
        dp = self.dp
        return dp.binary_search_chain(lambda s: total >> dp.m.then_gaussian(s), d_in=1, d_out=rho, bounds=(1e-9, 1e12))

    def mean(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        """Rows clipped to a ball; one Gaussian."""
        import opendp.extras.numpy._make_np_mean as own
        from opendp.extras.numpy import array2_domain

        dp = self.dp
        n, d = rows.shape
        space = array2_domain(size=n, num_columns=d, T=float), dp.symmetric_distance()
        origin, norm = np.array(job["center"]), job["ball"]
        made = dp.binary_search_chain(
            lambda s: own.make_private_np_mean(*space, s, norm=norm, p=2, origin=origin),
            d_in=2, d_out=job["rho"], bounds=(1e-9, 1e12),
        )  # fmt: skip
        return np.asarray(made(rows))

    def variance(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        dp = self.dp
        low, high = float(job["low"]), float(job["high"])
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(rows)), dp.symmetric_distance()
        made = dp.binary_search_chain(
            lambda s: space >> dp.t.then_clamp((low, high)) >> dp.t.then_variance() >> dp.m.then_gaussian(s),
            d_in=2, d_out=job["rho"], bounds=(1e-9, 1e12),
        )  # fmt: skip
        return np.asarray([made(rows.tolist())])

    def histogram(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        dp = self.dp
        edges = [float(edge) for edge in job["edges"]]
        # Its counts are of categories: a record's bin is its own affair.
        bins = np.clip(np.searchsorted(edges, rows, "right") - 1, 0, len(edges) - 2)
        domain = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
        count = dp.t.make_count_by_categories(
            *domain, categories=list(range(len(edges) - 1)), MO=dp.L2Distance[float], TOA=int, null_category=False
        )
        made = self._noisy(count, job["rho"])
        return np.asarray(made(bins.tolist()), float)

    def quantiles(self, rows: np.ndarray, job: dict[str, Any]) -> np.ndarray:
        dp = self.dp
        candidates = np.arange(job["low"], job["high"] + job["step"] / 2, job["step"]).tolist()
        domain, metric = self._column()
        share, found, data = job["rho"] / len(job["levels"]), [], rows.tolist()
        for level in job["levels"]:
            made = dp.binary_search_chain(
                lambda s, level=level: dp.m.make_private_quantile(
                    domain, metric, dp.zero_concentrated_divergence(), candidates, level, s
                ),
                d_in=1, d_out=share, bounds=(1e-6, 1e9),
            )  # fmt: skip
            found.append(made(data))
        return np.asarray(found)


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
