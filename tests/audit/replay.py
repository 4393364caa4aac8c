"""What is replayed: one case for each registered kind of release, with neighbors that are as bad as it allows."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from support.helpers import sample
from support.release_kinds import ALSO, RELEASES

from fcstream.config import Config
from fcstream.noise.replay import Drawn, Tape
from fcstream.releases.base import Track
from fcstream.releases.totals.memory import UNIT, EpochMemory

CENTER = [20.0, 50.0]
MIDDLES = np.array([[0.0, 10.0], [20.0, 50.0], [35.0, 90.0]])
EXTRAS = {
    "a friend that is kept": [20.1, 50.2],
    "a tie": CENTER,
    "at the border of the radius": [23.0, 50.0],
    "a stranger": [60.0, 20.0],
    "in a corner of the ranges": [80.0, 100.0],
    "in the other corner": [-40.0, 0.0],
}
"""What only the neighbor has, in the sample's units."""
CLUSTERED = ("centers", "mixtures", "tree", "points", "synthetic", "marginals")
UNSEEN = {  # their guarantees are of (epsilon, delta), and coins choose the core: the structure is followed alone
    "mean/basic": frozenset({"bernoulli"}),
    "covariance/friendly": frozenset({"bernoulli", "discrete_gaussian"}),
}
"""Kinds of which not all draws are followed, and those draws."""
SINGLE = {"mean/ball": 30, "quantiles": 40, "count": 12, "mean/auto": 40, "mean/tracking": 40}
"""Records with which these kinds are near their least number."""


def job_of(release, **sections):
    shape = {"window": {"end": "1970-01-01T00:00:10Z"}, "budget": {"rho": 400.0, "delta": 1e-4}} | sections
    learned = {"features": LEARNED} if release.get("outliers") and release["size_hint"] == CROWD else {}
    return Config.from_mapping(sample(release=release, **shape) | learned).job


LEARNED = [
    {"name": "a", "min": -40.0, "max": 80.0, "scale": "learned"},
    {"name": "b", "min": 0.0, "max": 100.0, "scale": "learned"},
]
CROWD = 40_000
CROWDS = ("covariance/clipped", "mean/recentered, learned")
"""Kinds that look at a sample of a large window."""


def cases():
    """Name -> what is configured."""
    return {name: release for name, (release, _) in {**RELEASES, **ALSO}.items()} | {
        "mean/tracking, no radius": {**RELEASES["count"][0], "kind": "mean", "method": "tracking", "rho": 0.5},
        "mean/tracking, with a track": RELEASES["mean/tracking"][0],
        "mean/recentered, learned": {"size_hint": CROWD, "outliers": "leave_out"},
    }


def mechanism_of(name, job):
    mechanism = job.answers[0].mechanism
    if name == "mean/tracking, with a track":
        where = job.grid.points(np.array([CENTER]))[0].astype(int).tolist()
        return mechanism.after(Track(where, 1.0, 300.0, 150.0, 1.0))
    return mechanism


def neighbors(name, seed):
    """Windows of a kind, and the record that only the neighbor has, in the sample's units, with words for both."""
    random, slow = np.random.default_rng(seed), name.startswith(("centers", "mixtures"))
    which = random.integers(0, 3, 4000 if slow else 2000) if name.startswith(CLUSTERED) else np.ones(2000, int)
    made = {
        "many records": MIDDLES[which] + random.normal(0, 0.3, (len(which), 2)),
        "ties": MIDDLES[which],
        "few records": CENTER + random.normal(0, 0.3, (SINGLE.get(name, 60), 2)),
        "no record": np.empty((0, 2)),
    }
    pairs = list(itertools.product(made, EXTRAS))
    if slow and "tree" not in name:  # which take seconds: another part of them with each seed
        pairs = [pairs[i] for i in random.permutation(len(pairs))[:4]]
    if name in CROWDS:
        made["a crowd"] = CENTER + random.normal(0, 0.3, (CROWD, 2))
        pairs += [("a crowd", "a stranger")]
    for window, extra in pairs:
        yield f"{window}, {extra}", made[window], np.array([EXTRAS[extra]])


def tape_of(name):
    return Tape(grows=name.startswith("frequent"), unseen=UNSEEN.get(name, frozenset()))


def next_total(self, numbers, drawn, plain=EpochMemory.next):
    """Running totals carry the noise of earlier windows along: what they release is z + share x - past, in units."""
    if isinstance(drawn, Drawn):
        share, one, found = UNIT * int(self._factor.weights[len(self)]), 1 << self.bits, []
        for i, (x, past) in enumerate(zip(numbers, self._past().tolist(), strict=True)):
            exact = share * x - Fraction(past, one)
            found.append(int(drawn.noise.add(drawn.draw, i, exact, 1) - exact))
        drawn = np.array(found, np.int64)
    return plain(self, numbers, drawn)
