"""Audits of clustering: one record replaces one tuple, and is in one part of the last step.

The neighbors are the worst the shards allow: the record turns its shard's tuple from one that matches all others into
one that matches none, and it lies at the edge of the public ball.
"""

import dataclasses
import math

import numpy as np
import pytest
from support.audits import Weak, epsilon_lower_bound

from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.cores.replacement import ReplacedFilter
from fcstream.counting.exact import FriendCounts
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.predicates import MatchWithin
from fcstream.releases.clusters.mixtures import MixtureAlgorithm
from fcstream.releases.clusters.pipeline import LloydStep
from fcstream.releases.clusters.plan import ClusterJob
from fcstream.releases.clusters.tuples import MatchCheck, TupleAverage, friend_counts
from fcstream.stream.lattice import Lattice

RUNS = 700
STEP = 1e-4
BASE = np.array([[0.0, 0.0], [5000.0, 1000.0], [-3000.0, 4000.0]])
RHO = 0.3
LOSS = PrivacyLoss.charge(RHO, 1e-8)
DELTA = 1e-3


def nothing(loss):
    """Stages are paid as a whole."""


def view_of(points):
    friends = FriendCounts(2, None)
    friends.add(0, points)
    return friends.view([0])


def neighbors(mechanism, strange=0):
    """Tuples and records of two windows: the second has one record more, far out, which spoils one shard."""
    rng = np.random.default_rng(0)
    t = mechanism.shards.tuples
    points = np.rint(BASE[rng.integers(0, 3, 3000)] + rng.normal(0, 100, size=(3000, 2)))
    tuples = np.rint(BASE + rng.normal(0, 60, size=(t, 3, 2)))
    tuples[t - strange :] = 0.0
    other = tuples.copy()
    other[0, 2] = [9000.0, -4000.0]
    return (tuples, view_of(points)), (other, view_of(np.vstack([points, [[9999.0, 0.0]]])))


def outputs(mechanism, side, make_noise, first_seed):
    """Everything that is printed, many times; nan where it refuses."""
    tuples, view = side
    out = np.full((RUNS, 10), np.nan)
    for run in range(RUNS):
        found = mechanism.from_tuples(tuples, view, make_noise(SeededEntropy(first_seed + run)), nothing)
        if found.centers is not None:
            out[run] = [*found.centers.ravel(), *found.counts, found.tuples]
    return out


def mechanism(**changes):
    job = ClusterJob(3, (0.0, 0.0), 1.0, 9000, oracle=lambda p, k, s: p[:k], **changes)
    return job.mechanism(LOSS, Lattice(STEP))


@pytest.mark.parametrize("strange", [0, 55])
def test_clusters_stay_below_their_claim(strange):
    made = mechanism()
    one, two = neighbors(made, strange)
    a, b = (outputs(made, side, Noise, seed) for side, seed in ((one, 0), (two, 10**6)))
    released = 1 - np.isnan(a[:, 0]).mean()
    assert released > 0.95 if strange == 0 else 0.02 < released < 0.98, "nothing is audited"
    assert epsilon_lower_bound(a, b, DELTA) < epsilon_tight(RHO, DELTA - 1e-8)


def test_noise_that_is_far_too_small_is_caught():
    made = mechanism()
    one, two = neighbors(made)
    a, b = (
        outputs(made, side, lambda e: Weak(e, 0.05), seed) for side, seed in ((one, 0), (two, 10**6))
    )  # fmt: skip
    assert epsilon_lower_bound(a, b, DELTA) > epsilon_tight(RHO, DELTA)


def likelihoods(kept, counts, other, sigma, threshold, size):
    """Log-likelihood ratio of keep bits under two count vectors: the best test between them."""
    p, q = (
        np.array([0.5 * math.erfc((threshold - (c - size / 2)) / sigma / math.sqrt(2)) for c in x])
        for x in (counts, other)
    )
    return np.where(kept, np.log(p / q), np.log((1 - p) / (1 - q))).sum(axis=1)  # p, q far from 0 and 1


def test_keep_bits_of_replaced_tuples():
    """The whole core, tested with the best test there is. (Too little noise is caught by `test_clusters`, exactly.)"""
    loss, t = PrivacyLoss.charge(0.5, 1e-8), 300
    made = ReplacedFilter(loss, t)
    threshold, sigma = made.bar
    height = int(threshold + t / 2)
    counts, other = np.full(t, height), np.full(t, height - 1)
    rows = []
    for truth, seed in ((counts, 0), (other, 10**6)):
        kept = np.array(
            [Noise(SeededEntropy(seed + s)).threshold_bits(truth, t, threshold, sigma) for s in range(4 * RUNS)]
        )
        rows.append(likelihoods(kept, counts, other, sigma, threshold, t)[:, None])
    assert 0.2 < epsilon_lower_bound(*rows, DELTA) < epsilon_tight(0.5, DELTA)


@pytest.mark.parametrize("weak", [1.0, 0.02])
@pytest.mark.parametrize("method", ["ball", "friendly"])
def test_a_lloyd_step(method, weak):
    """One record more, at the edge of the public ball: a part's sum moves by the radius, its number by one."""
    (_, one), (_, two) = neighbors(mechanism())
    step = LloydStep(PrivacyLoss.charge(0.5, 1e-8), (0, 0), 10_000**2, method=method)
    rows = []
    for view, seed in ((one, 0), (two, 10**6)):
        out = []
        for s in range(RUNS):
            found, counts = step.release(view, BASE, Weak(SeededEntropy(seed + s), weak), nothing)
            out.append([*found.value.ravel(), *counts])
        rows.append(np.array(out, np.float64))
    assert np.isfinite(rows[0]).all()
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(0.5, DELTA)) == (weak < 1)


@pytest.mark.parametrize("weak", [1.0, 0.1])
def test_a_radius_that_is_searched_for(weak):
    """One tuple replaced by a stranger, where a check is undecided."""
    radii_squared = tuple((100 * 4**b) ** 2 for b in range(4))
    made = TupleAverage(PrivacyLoss.charge(1, 1e-8), 150, 3, 2, 10**8, 8 * 10**8, radii_squared, "search")
    one = np.tile(BASE, (150, 1, 1))
    strange = next(s for s in range(150) if s * (299 - s) / 150 > made._search.check.bar - 1)
    one[1 : 1 + strange] = 0.0
    two = one.copy()
    two[0] = [[9000.0, -9000.0], [0.0, 9000.0], [-9000.0, 0.0]]
    rows = []
    for tuples, seed in ((one, 0), (two, 10**6)):
        pairs = [friend_counts(MatchWithin(3, 2, r2, made.gamma), tuples).sum() for r2 in radii_squared]
        noises = (Weak(SeededEntropy(seed + s), weak) for s in range(4000))
        rows.append(np.array([[made._search.find(pairs.__getitem__, 150, noise)] for noise in noises], float))
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(0.1, DELTA)) == (weak < 1)


@pytest.mark.parametrize("weak", [1.0, 0.1])
def test_the_check_that_tuples_match(weak):
    """A tuple that matches all others is replaced by one that matches none, where the check is undecided."""
    check = MatchCheck(10**8, 150)
    strange = next(s for s in range(150) if check.forecast(s / 150) < 0.5)
    rows = []
    for lost, seed in ((strange - 1, 0), (strange, 10**6)):
        pairs, noises = (150 - lost) ** 2 + lost, (Weak(SeededEntropy(seed + s), weak) for s in range(4000))
        rows.append(np.array([[check.passes(pairs, noise, nothing)] for noise in noises], float))
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(0.1, DELTA)) == (weak < 1)


@pytest.mark.parametrize("weak", [1.0, 0.02])
def test_a_mixture(weak):
    """One record more in the learning half, at the edge of its part; the tuples are given."""
    made = MixtureAlgorithm.of(
        ClusterJob(3, (0.0, 0.0), 1.0, 9000, oracle=lambda p, k, s: p[:k], spread=0.05), LOSS, Lattice(STEP)
    )
    rng = np.random.default_rng(0)
    points = np.rint(BASE[rng.integers(0, 3, 3000)] + rng.normal(0, 100, size=(3000, 2)))
    tuples = np.rint(BASE + rng.normal(0, 60, size=(made.shards.tuples, 3, 2)))
    half, rows = np.arange(3001) % 2 == 1, []
    for data, seed in ((points, 0), (np.vstack([points, [[450.0, 0.0]]]), 10**6)):
        view, out = view_of(data), np.full((500, 12), np.nan)
        for run in range(500):
            noise = Weak(SeededEntropy(seed + run), weak)
            found = made.from_tuples(tuples, half[: len(data)], view, noise, nothing)
            if found.reason is None:
                out[run] = [*found.means.ravel(), *found.counts, *found.covariances[:, 0, 0]]
        rows.append(out)
    assert np.isnan(rows[0][:, 0]).mean() < 0.05
    bound = epsilon_lower_bound(*rows, DELTA)
    assert (bound > epsilon_tight(RHO, DELTA)) == (weak < 1)


def test_a_core_that_keeps_everyone_is_caught(monkeypatch):
    """Planted fault: no filter. One strange tuple then moves the average by far more than its noise."""
    real = ReplacedFilter.select_core
    monkeypatch.setattr(
        ReplacedFilter,
        "select_core",
        lambda self, counts, noise: dataclasses.replace(real(self, counts, noise), mask=np.ones(len(counts), bool)),
    )
    made = TupleAverage(LOSS, 400, 3, 2, 0, 2 * 10**8, (100**2,), "public")
    one, two = np.rint(BASE + np.zeros((made.tuples, 1, 1))), np.rint(BASE + np.zeros((made.tuples, 1, 1)))
    two[5, 2] = [9000.0, -9000.0]
    rows = []
    for tuples, seed in ((one, 0), (two, 10**6)):
        out = np.full((RUNS, 6), np.nan)
        for run in range(RUNS):
            _, found = made.release(tuples, Noise(SeededEntropy(seed + run)), nothing)
            if found is not None:
                out[run] = found.value[np.lexsort(found.value.T[::-1])].ravel()
        rows.append(out)
    assert epsilon_lower_bound(*rows, DELTA) > epsilon_tight(RHO, DELTA)
