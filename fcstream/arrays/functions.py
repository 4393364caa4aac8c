"""The functions about one array that answer as a kind of release does; their keys are those of its options.

The stub beside this file shows type checkers and editors the signatures; ``python tests/support/stubs.py`` writes it.
"""

from __future__ import annotations

from typing import Any, Literal

from ..accounting.losses import DPLoss, zcdp_of_dp
from ..errors import ConfigError
from ..releases.tables.documents import MAX_ROWS
from .answering import checked_loss
from .arguments import Bounds
from .asking import Argument, ArrayQuestion, by_epsilon, by_rho, function_of

_EPSILON = Argument("The loss of the answer, with `delta`.", float)


def _mean(keys: dict[str, Any]) -> dict[str, Any]:
    return by_rho(keys) | {"learned": keys.pop("scale") == "learned"}


_MEAN = "radius* rho* delta size_hint* spread center radius_min radius_max outliers scale"
private_mean = function_of(
    "private_mean",
    ArrayQuestion(
        "mean",
        "Release the differentially private mean of an array's rows: of all, or without outliers.",
        {"recentered": _MEAN, "friendly": _MEAN, "ball": _MEAN},
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(1).normal(20.0, 0.5, size=(2000, 3))
        >>> answer = fcstream.private_mean(rows, radius=4, rho=0.5, size_hint=2000, step=1e-3, bounds=(-50, 50))
        >>> answer.status, [round(v) for v in answer.value]
        ('released', [20, 20, 20])
        """,
        own={
            "scale": Argument(
                "``learned`` divides each column by a scale that is found privately, the difference of its quartiles, "
                "for a tenth of rho; all other distances are then in these scales. Left out: columns count as they "
                "are.",
                Literal["learned"] | None,
                None,
            )
        },
        prepare=_mean,
    ),
)
private_sum = function_of(
    "private_sum",
    ArrayQuestion(
        "sum",
        "Release the differentially private sum of each column of an array.",
        {"": "rho*"},
        """
        >>> import numpy as np, fcstream
        >>> trips = np.random.default_rng(1).uniform(0.0, 30.0, size=(5000, 1))
        >>> answer = fcstream.private_sum(trips, rho=1, step=0.01, bounds=(0, 30))
        >>> round(answer.value[0], -3), round(answer.sigma[0])
        (75000.0, 21)
        """,
        prepare=by_rho,
    ),
)
private_histogram = function_of(
    "private_histogram",
    ArrayQuestion(
        "histogram",
        "Release differentially private counts of an array's values in public bins, empty bins included.",
        {"": "rho* edges categories"},
        """
        >>> import numpy as np, fcstream
        >>> ages = np.random.default_rng(1).integers(0, 100, 5000)
        >>> answer = fcstream.private_histogram(ages, rho=1, step=1, bounds=(0, 120), edges=[18, 65])
        >>> answer.parts["edges"], [round(count, -2) for count in answer.value]
        ([0.0, 18.0, 65.0, 120.0], [900.0, 2400.0, 1700.0])
        """,
        rows="values",
        prepare=by_rho,
    ),
)
private_quantiles = function_of(
    "private_quantiles",
    ArrayQuestion(
        "quantiles",
        "Release differentially private quantiles of an array's values, of which only a public range must be known.",
        {"": "quantiles* rho*"},
        """
        >>> import numpy as np, fcstream
        >>> waits = np.random.default_rng(1).exponential(10.0, 20000)
        >>> answer = fcstream.private_quantiles(waits, [0.5, 0.9], rho=1, step=0.01, bounds=(0, 10000))
        >>> [round(v) for v in answer.value]
        [7, 23]
        """,
        rows="values",
        about="A range that is a hundred times too wide adds a few ranks of error.",
        prepare=by_rho,
        places=("quantiles",),
    ),
)
private_variance = function_of(
    "private_variance",
    ArrayQuestion(
        "variance",
        "Release the differentially private variance of each column around a private mean, without outliers.",
        {"": "radius* rho* delta* size_hint* reach radius_min radius_max"},
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(1).normal(20.0, [1.0, 2.0], size=(20000, 2))
        >>> answer = fcstream.private_variance(
        ...     rows, radius=15, rho=1, delta=1e-8, size_hint=20000, step=1e-2, bounds=(-50, 90)
        ... )
        >>> [round(v) for v in answer.value]
        [1, 4]
        """,
        prepare=by_rho,
    ),
)


def _covariance(keys: dict[str, Any]) -> dict[str, Any]:
    if "epsilon" in keys:
        return by_epsilon(keys)
    target = keys["target"]
    return by_rho(keys) | {"target": None if target is None else f"x{target}", "scale": keys["scale"] or "declared"}


private_covariance = function_of(
    "private_covariance",
    ArrayQuestion(
        "covariance",
        "Release the differentially private covariance matrix of an array's columns, and what follows from it.",
        {
            "clipped": "rho* size_hint* scale components target",
            "friendly": "epsilon* delta shards* centered limit eta",
        },
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(1).multivariate_normal([20, 50], [[4, 3], [3, 9]], size=5000)
        >>> answer = fcstream.private_covariance(rows, rho=1, size_hint=5000, step=1e-3, bounds=(-1000, 1000))
        >>> round(answer.parts["correlations"][0][1], 1)
        0.5
        """,
        own={
            "rho": Argument("The loss of the answer with ``clipped``, which has no delta.", float | None, None),
            "epsilon": Argument("The loss of the answer with ``friendly``, with `delta`.", float | None, None),
            "delta": Argument("For ``friendly``, which needs one.", float, 0.0),
            "scale": Argument(
                "Whether each column is divided by a scale that is found privately (``learned``); None where columns "
                "have one scale.",
                Literal["learned"] | None,
                "learned",
            ),
            "target": Argument("Place of the column that is regressed on the others.", int | None, None),
            "shards": Argument("For ``friendly``: how many parts rows are dealt to.", int | None, None),
            "size_hint": Argument("For ``clipped``: a public guess of the number of rows.", int | None, None),
        },
        prepare=_covariance,
    ),
)
private_dp_mean = function_of(
    "private_dp_mean",
    ArrayQuestion(
        "mean",
        "Release the (epsilon, delta)-DP mean of an array's rows by FriendlyCore's BasicFilter.",
        {"basic": "radius* epsilon* delta* size_hint* alpha"},
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(1).normal(20.0, 0.5, size=(5000, 1))
        >>> answer = fcstream.private_dp_mean(
        ...     rows, radius=5, epsilon=2, delta=1e-6, size_hint=5000, step=1e-3, bounds=(-50, 50)
        ... )
        >>> round(answer.value[0])
        20
        """,
        own={"epsilon": _EPSILON},
        about="If the budget may be zCDP, `private_mean` has much less noise.",
        prepare=by_epsilon,
    ),
)
private_marginals = function_of(
    "private_marginals",
    ArrayQuestion(
        "marginals",
        "Release differentially private contingency tables of all pairs (or triples) of columns of a table of codes.",
        {"": "rho* order"},
        """
        >>> import numpy as np, fcstream
        >>> coded = np.random.default_rng(1).random((20000, 3)) < 0.5
        >>> answer = fcstream.private_marginals(coded, rho=0.5)
        >>> answer.parts["tables"][0], [round(cell, -3) for cell in answer.value[0]]
        (['x0', 'x1'], [5000.0, 5000.0, 5000.0, 5000.0])
        """,
        rows="rows",
        prepare=by_rho,
    ),
)


def _synthetic(keys: dict[str, Any]) -> dict[str, Any]:
    rho, epsilon, size, variant = (keys.pop(name) for name in ("rho", "epsilon", "size", "variant"))
    if (rho is None) == (epsilon is None):
        raise ConfigError("must be given, or `epsilon`, not both", "rho")
    if size is not None and not 1 <= size <= MAX_ROWS:
        raise ConfigError(f"must be in [1, {MAX_ROWS}]", "size", got=size)
    if epsilon is None:
        checked_loss(rho)
    elif variant == "zcdp" or not 0 < epsilon < 1e3:
        raise ConfigError("must be in (0, 1000), for variants 'pure' and 'paper'", "epsilon", got=epsilon)
    else:
        rho = zcdp_of_dp(DPLoss.charge(epsilon)).rho
    return keys | {"rho": rho, "rows": size, "variant": variant or ("zcdp" if epsilon is None else "pure")}


private_synthetic = function_of(
    "private_synthetic",
    ArrayQuestion(
        "synthetic",
        "Release a differentially private mixture that draws synthetic rows of a table of Booleans and categories.",
        {"": "rho epsilon size_hint variant size projection kappa"},
        """
        >>> import numpy as np, fcstream
        >>> coded = np.random.default_rng(1).random((20000, 6)) < 0.3
        >>> answer = fcstream.private_synthetic(coded | coded[:, :1], rho=0.5)
        >>> made = fcstream.synthetic_rows(answer)
        >>> [round(float(np.mean(made[name])), 1) for name in ("x0", "x1")]
        [0.3, 0.5]
        """,
        rows="rows",
        own={
            "rho": Argument(
                "The loss of the answer; there is no delta. Give either `rho` or `epsilon`.", float | None, None
            ),
            "epsilon": Argument(
                "The loss of the answer in pure DP, for the variants ``pure`` (then the default) and ``paper``.",
                float | None,
                None,
            ),
            "variant": Argument(
                "``zcdp`` (default with `rho`), ``pure``, or ``paper``, which is Algorithm 4 of *Covariance's Loss is "
                "Privacy's Gain* as printed, to compare with.",
                Literal["zcdp", "pure", "paper"] | None,
                None,
            ),
            "size": Argument("Public number of rows to draw. Left out: the noisy number of rows.", int | None, None),
        },
        prepare=_synthetic,
    ),
)
private_tree = function_of(
    "private_tree",
    ArrayQuestion(
        "tree",
        "Release where an array's rows lie, as boxes with noisy numbers of rows: small boxes where there are many.",
        {"": "rho* max_boxes"},
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(0).normal(0, 1, (10_000, 2))
        >>> tree = fcstream.private_tree(rows, rho=0.5, step=0.01, bounds=(-5, 5))
        >>> tree.status, round(sum(tree.value), -2), len(tree.value) == len(tree.parts["low"])
        ('released', 10000.0, True)
        """,
        prepare=by_rho,
        has_columns=True,
    ),
)
private_points = function_of(
    "private_points",
    ArrayQuestion(
        "points",
        "Release points that stand for an array's rows: synthetic rows that lie where these do.",
        {"auto": "rho* rows size_hint", "tree": "rho* rows", "cells": "rho*"},
        """
        >>> import numpy as np, fcstream
        >>> rows = np.random.default_rng(0).normal(0, 1, (10_000, 2))
        >>> made = np.array(fcstream.private_points(rows, rho=0.5, step=0.01, bounds=(-5, 5)).value)
        >>> made.shape, bool(abs(made.mean()) < 0.1), bool(abs(made.std() - 1) < 0.1)
        ((1000, 2), True, True)
        """,
        prepare=by_rho,
        has_columns=True,
    ),
)

_TUPLES = "oracle radius radius_min tuples variant"
_IN_BALL = {
    "bounds": Argument(
        "Lower and upper ends of a public box that rows lie in, for all columns or for each; or give `ball`.",
        Bounds | None,
        None,
    ),
    "ball": Argument(
        "Radius of a public ball around `center` that rows lie in, in place of `bounds`. A tree counts the rows in the "
        "box around it.",
        float | None,
        None,
    ),
    "center": Argument("Center of that ball; 0 by default.", list[float] | None, None),
    "oracle": Argument(
        "What finds clusters in a part of the rows, without privacy: ``auto``, ``kmeans``, ``gaussians``, ``pca``, "
        "``scipy``, or ``oracle(points (m, d), k, seed) -> (k, d)``, a pure function that is called once for every "
        "part.",
        "str | Oracle",
        "auto",
    ),
    "delta": Argument("The delta of the answer; a tree has none, tuples need one.", float, 0.0),
}


def _clusters(keys: dict[str, Any]) -> dict[str, Any]:
    if keys["center"] is not None and keys["ball"] is None:
        raise ConfigError("belongs to `ball`", "center", remedy="leave it out, or give that")
    return by_rho(keys)


_CENTERS = f"k* rho* delta size_hint ball center {_TUPLES} spread fallback fallback_share"
private_centers = function_of(
    "private_centers",
    ArrayQuestion(
        "centers",
        "Find differentially private centers of k clusters: of any by a tree, or of clusters well apart by tuples.",
        {
            "auto": _CENTERS,
            "tree": "k* rho* delta size_hint ball center",
            "friendly": _CENTERS,
            "ktuples": _CENTERS,
        },
        """
        >>> import numpy as np, fcstream
        >>> rng = np.random.default_rng(1)
        >>> rows = rng.permutation([[0.5, 0.5], [-0.5, 0.0], [0.2, -0.6]] * 10000)
        >>> rows = rows + rng.normal(0, 0.02, size=(30000, 2))
        >>> answer = fcstream.private_centers(rows, 3, ball=1, rho=1, delta=1e-8, size_hint=30000, step=1e-5)
        >>> answer.status, [[round(x, 1) + 0.0 for x in center] for center in answer.value]
        ('released', [[-0.5, 0.0], [0.2, -0.6], [0.5, 0.5]])
        >>> answer = fcstream.private_centers(rows, 3, bounds=(-1, 1), rho=0.1, step=1e-5, method="tree")
        >>> [[round(x, 1) + 0.0 for x in center] for center in answer.value]
        [[-0.5, 0.0], [0.2, -0.6], [0.5, 0.5]]
        """,
        own=_IN_BALL,
        about="Oracles must keep nothing between calls.",
        prepare=_clusters,
        places=("k",),
        in_ball=True,
    ),
)
_MIXTURE = "k* rho* delta size_hint ball center spread oracle variant"
private_mixture = function_of(
    "private_mixture",
    ArrayQuestion(
        "mixtures",
        "Learn differentially private weights, means and covariances of k clusters: of any, or of clusters well apart.",
        {
            "auto": _MIXTURE,
            "tree": "k* rho* delta size_hint ball center",
            "friendly": _MIXTURE,
            "ktuples": _MIXTURE,
        },
        """
        >>> import numpy as np, fcstream
        >>> rng = np.random.default_rng(1)
        >>> rows = rng.normal(0, 1, size=(30000, 2)) + rng.permutation([[2, 0], [-2, 0], [0, 3]] * 10000)
        >>> answer = fcstream.private_mixture(rows, 3, bounds=(-10, 10), rho=1, step=1e-3)
        >>> [[round(x) for x in mean] for mean in answer.value]
        [[-2, 0], [0, 3], [2, 0]]
        >>> bool(np.abs(np.array(answer.parts["covariances"]) - np.eye(2)).max() < 0.3)
        True
        """,
        own=_IN_BALL,
        about="Oracles must keep nothing between calls.",
        prepare=_clusters,
        places=("k",),
        in_ball=True,
    ),
)
