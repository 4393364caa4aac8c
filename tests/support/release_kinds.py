"""One configuration of every kind of release."""

import numpy as np

from fcstream import Engine, Noise, SeededEntropy

from .helpers import sample

N = 2000
BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
CLUSTERS = {**BARE, "k": 3, "delta": 1e-8, "size_hint": N, "ball": 65.0, "rho": 4.0}
CUT = {"edges": {"a": [0.0, 30.0], "b": [20.0, 60.0]}}
RELEASES = {  # name in the registry -> what is configured, and whether something that was never started comes back
    "mean/recentered": ({"size_hint": N}, True),
    "mean/friendly": ({"method": "friendly", "size_hint": N, "rho": 2.0, "spread": None}, True),
    "mean/ball": ({"method": "ball", "center": [20.0, 50.0], "delta": None, "size_hint": None}, True),
    "mean/tracking": ({"method": "tracking", "size_hint": N}, True),
    "mean/auto": ({"method": "auto", "size_hint": N, "spread": None}, True),
    "mean/basic": ({"method": "basic", "size_hint": N, "spread": None, "rho": 3.0}, False),
    "count": ({**BARE, "kind": "count"}, False),
    "sum": ({**BARE, "kind": "sum"}, False),
    "histogram": ({**BARE, "kind": "histogram", "feature": "a", "edges": [0.0, 20.0]}, False),
    "total": ({**BARE, "kind": "total", "epoch": "1m"}, False),
    "quantiles": ({**BARE, "kind": "quantiles", "feature": "a", "quantiles": [0.1, 0.5, 0.9]}, True),
    "variance": ({"kind": "variance", "method": None, "spread": None, "size_hint": N}, True),
    "centers/auto": ({**CLUSTERS, "kind": "centers"}, True),
    "centers/friendly": ({**CLUSTERS, "kind": "centers", "method": "friendly"}, True),
    "centers/ktuples": ({**CLUSTERS, "kind": "centers", "method": "ktuples"}, True),
    "centers/tree": ({**BARE, "kind": "centers", "method": "tree", "k": 3}, True),
    "mixtures/auto": ({**CLUSTERS, "kind": "mixtures", "size_hint": 2 * N, "spread": 6.0}, True),
    "mixtures/friendly": (
        {**CLUSTERS, "kind": "mixtures", "method": "friendly", "size_hint": 2 * N, "spread": 6.0},
        True,
    ),
    "mixtures/ktuples": ({**CLUSTERS, "kind": "mixtures", "method": "ktuples", "size_hint": N, "spread": 6.0}, True),
    "mixtures/tree": ({**BARE, "kind": "mixtures", "method": "tree", "k": 3}, True),
    "covariance/clipped": (
        {**BARE, "kind": "covariance", "size_hint": N, "components": 2, "target": "b"},
        True,
    ),
    "covariance/friendly": (
        {
            **BARE,
            "kind": "covariance",
            "method": "friendly",
            "rho": 3.9,
            "delta": 1e-5,
            "shards": 1500,
            "limit": 1.0,
            "size_hint": 200_000,
        },
        False,
    ),
    "synthetic": ({**BARE, "kind": "synthetic", **CUT}, True),
    "marginals": ({**BARE, "kind": "marginals", **CUT}, True),
    "points/auto": ({**BARE, "kind": "points"}, True),
    "points/cells": ({**BARE, "kind": "points", "method": "cells"}, True),
    "points/tree": ({**BARE, "kind": "points", "method": "tree"}, True),
    "tree": ({**BARE, "kind": "tree"}, True),
}
OF_TEXTS = {"frequent": {**BARE, "kind": "frequent", "delta": 1e-8}}  # these need a feature of texts
ALSO = {
    "mean/recentered, clip": ({"size_hint": N, "outliers": "clip", "delta": None}, True),
    "mean/recentered, searched": (
        {"radius": "search", "radius_min": 0.05, "radius_max": 90.0, "size_hint": N, "spread": None},
        True,
    ),
    "mean/recentered, searched in a sample": (
        {"radius": "search", "radius_min": 0.05, "radius_max": 90.0, "size_hint": N, "spread": None, "pairs": "blocks"},
        True,
    ),
    "variance, searched": (
        {"kind": "variance", "method": None, "spread": None, "size_hint": N, "rho": 2.0}
        | {"radius": "search", "radius_min": 0.05, "radius_max": 90.0},
        True,
    ),
    "centers/friendly, searched": ({**CLUSTERS, "kind": "centers", "method": "friendly", "radius": "search"}, True),
    "centers/ktuples, paper": (
        {**CLUSTERS, "kind": "centers", "method": "ktuples", "variant": "paper", "k": 2, "size_hint": 10 * N},
        True,
    ),
    "centers/auto, learning": ({**CLUSTERS, "kind": "centers", "oracle": "minibatch"}, True),
    # Fixed tuples of empty shards agree, and so are averaged.
    "centers/tree, any number": ({**BARE, "kind": "centers", "method": "tree", "k": "auto"}, True),
    "centers/friendly, one": ({**CLUSTERS, "kind": "centers", "method": "friendly", "k": 1}, False),
    "centers/auto, fallback": ({**CLUSTERS, "kind": "centers", "fallback": "tree"}, True),
}


def released(name):
    """The release of one window of a kind, of three clusters for those that look for some."""
    random, kind = np.random.default_rng(1), name.partition("/")[0]
    middles = np.array([[0.0, 10.0], [20.0, 50.0], [35.0, 90.0]])
    which = random.integers(0, 3, 4000) if kind in ("centers", "mixtures") else np.ones(2000, int)
    schedule = {"window": {"end": "1970-01-01T00:00:10Z"}, "budget": {"rho": 400.0, "delta": 1e-4}}
    engine = Engine(sample(release=RELEASES[name][0], **schedule), noise=Noise(SeededEntropy(3)))
    engine.push(np.full(len(which), 1000), middles[which] + random.normal(0, 0.3, (len(which), 2)))
    (release,) = engine.close()
    return release
