"""Shards and oracles: every shard answers alone, whatever its oracle does."""

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from support import naive
from support.clusters import BASE, STEP, seeded, three

from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.clusters import oracles
from fcstream.releases.clusters.shards import ShardCounts, Shards


def shards(oracle, t=10, k=3, ball=20_000):
    return Shards(t, k, oracle, (0, 0), ball**2, STEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kmeans", "gaussians", "scipy", "pca"])
def test_oracles_find_clusters_and_every_shard_answers_alone(name):
    made, points = shards(oracles.find(name, 3, 2), t=5), three(n=300)
    coins = seeded().uniform_integers(5, len(points))
    tuples = made.cluster(points, coins)
    for x in tuples:
        assert np.abs(np.array(naive.number(BASE, x)) - BASE).max() < 150
    changed, i = points.copy(), 7
    changed[i] = [19_000.0, 0.0]
    again = made.cluster(changed, coins)
    removed = made.cluster(np.delete(points, i, axis=0), np.delete(coins, i))
    for other in (again, removed):
        same = (other == tuples).all(axis=(1, 2))
        assert same[np.arange(5) != coins[i]].all()
    assert not (again[coins[i]] == tuples[coins[i]]).all()
    shuffled = np.random.default_rng(1).permutation(len(points))
    assert (made.cluster(points[shuffled], coins[shuffled]) == tuples).all()


class Averages:
    """A learner for tests: means by the nearest true center, and every chunk it got."""

    def __init__(self, k, seed, log):
        self.sums, self.counts, self.log = np.zeros((k, 2)), np.zeros(k), log.setdefault(seed, [])

    def partial_fit(self, points):
        labels = ((points[:, None] - BASE * STEP) ** 2).sum(axis=2).argmin(axis=1)
        np.add.at(self.sums, labels, points)
        np.add.at(self.counts, labels, 1)
        self.log.append(points.copy())

    @property
    def cluster_centers_(self):
        return self.sums / self.counts[:, None]


class Fixed(Noise):
    """Coins that are given."""

    def __init__(self, coins):
        super().__init__(SeededEntropy(0))
        self.coins = list(coins)

    def uniform_integers(self, bound, size):
        head, self.coins = self.coins[:size], self.coins[size:]
        return np.array(head, np.int64)


def test_learners_see_their_own_shard_only_however_records_are_batched():
    points, coins = three(n=3000), seeded().uniform_integers(10, 3000)
    whole, logs = [], []
    for cuts, left_out in (([], None), ([1, 700, 701, 2500], None), ([1500], 7)):
        log = {}
        made = shards(oracles.Incremental(lambda k, seed, log=log: Averages(k, seed, log)))
        kept = np.arange(3000) != left_out if left_out is not None else np.ones(3000, bool)
        counter = ShardCounts(made, Fixed(coins[kept]))
        for part in np.split(points[kept], cuts):
            counter.add(0, part)
        assert counter.panes == [0]
        view = counter.view([0])
        assert view.view.size == kept.sum()
        whole.append(view.tuples)
        logs.append(log)
        counter.drop(0)
        assert counter.view([0]).view.size == 0
    for seed in range(10):
        assert [x.tolist() for x in logs[0][seed]] == [x.tolist() for x in logs[1][seed]]
        assert {len(x) for x in logs[0][seed][:-1]} == {oracles.CHUNK}
    assert (whole[0] == whole[1]).all()
    same = (whole[0] == whole[2]).all(axis=(1, 2))
    assert same[np.arange(10) != coins[7]].all()
    assert not same[coins[7]]
    assert np.abs(np.sort(whole[0][:, :, 0]) - np.sort(BASE[:, 0])).max() < 60


def test_a_learner_that_fails_gives_the_fixed_tuple():
    class Failing:
        def partial_fit(self, points):
            raise RuntimeError(f"a record: {points[0]}")

    made = shards(oracles.Incremental(lambda k, seed: Failing()))
    counter = ShardCounts(made, seeded())
    counter.add(0, three(n=3000))
    assert (counter.view([0]).tuples == 0).all()
    empty = ShardCounts(shards(oracles.MINIBATCH), seeded())
    assert (empty.view([0]).tuples == 0).all()
    assert (empty.view([]).tuples == 0).all()
    with pytest.raises(ConfigError, match="tumbling"):
        counter.view([0, 1])


class Ready:
    """A learner that has an answer before it has seen a record."""

    cluster_centers_ = np.array([[0.1, 0.1], [0.2, 0.1], [0.3, 0.1]])

    def partial_fit(self, points):
        pass


def test_a_record_replaces_one_tuple_also_where_learners_start_with_an_answer():
    counter = ShardCounts(shards(oracles.Incremental(lambda k, seed: Ready())), seeded())
    nobody = counter.view([0]).tuples
    counter.add(0, np.array([[1.0, 2.0]]))
    assert (counter.view([0]).tuples != nobody).any(axis=(1, 2)).sum() == 1


def test_minibatches_find_clusters_at_once_and_piece_by_piece():
    points = three(n=3000)
    counter = ShardCounts(shards(oracles.find("minibatch", 3, 2), t=4), seeded())
    for part in np.array_split(points, 7):
        counter.add(0, part)
    at_once = shards(oracles.MINIBATCH, t=4).tuples_of(points, seeded())
    for tuples in (counter.view([0]).tuples, at_once):
        near = [np.abs(np.array(naive.number(BASE, x)) - BASE).max() < 300 for x in tuples]
        assert sum(near) >= 3


def failing(points, k, seed):
    raise RuntimeError(f"a record: {points[0]}")


class Torn:
    """An answer that fails when it is looked at."""

    def __array__(self, *_, **__):
        raise RuntimeError("a record")


def warning(points, k, seed):
    warnings.warn(f"a record: {points[0]}", stacklevel=1)
    return np.zeros((k, 2))


@pytest.mark.parametrize(
    "oracle",
    [
        failing,
        warning,
        lambda p, k, s: p[:1],
        lambda p, k, s: np.full((k, 2), np.nan),
        lambda p, k, s: "no",
        lambda p, k, s: None,
        lambda p, k, s: [[10**400, 0]] * k,
        lambda p, k, s: np.full((k, 2), 1j),
        lambda p, k, s: Torn(),
    ],
)
def test_an_oracle_that_fails_gives_one_fixed_tuple(oracle):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tuples = shards(oracle).tuples_of(three(), seeded())
    assert (tuples == 0).all()
    assert not told


def test_shards_with_too_few_points_give_the_fixed_tuple():
    tuples = shards(oracles.find("scipy", 3, 2)).tuples_of(three(n=5), seeded())
    assert (tuples == 0).all()
    assert shards(failing).tuples_of(np.empty((0, 2)), seeded()).shape == (10, 3, 2)


def test_tuples_lie_in_the_ball_whatever_the_oracle_says():
    def far(points, k, seed):
        return np.array([[1e300, 1.0], [-3.0, 4.0], [0.5, 0.25]])

    tuples = shards(far, ball=10_000).tuples_of(three(), seeded())
    assert (np.rint(tuples) == tuples).all()
    assert ((tuples**2).sum(axis=2) <= 10_000**2).all()
    assert tuples[0][2].tolist() == [5000, 2500]
    assert np.linalg.norm(tuples[0][1]) > 9990


def test_records_outside_the_ball_do_not_reach_the_oracle():
    seen = []

    def look(points, k, seed):
        seen.append(points)
        return np.zeros((k, 2))

    shards(look, ball=5200).tuples_of(three(), seeded())
    assert max(np.linalg.norm(points, axis=1).max() for points in seen) <= 5200 * STEP * (1 + 1e-12)


def test_coins_are_uniform():
    coins = seeded().uniform_integers(7, 70_000)
    assert abs(np.bincount(coins, minlength=7) - 10_000).max() < 5 * math.sqrt(10_000)
    assert seeded().uniform_integers(1, 3).tolist() == [0, 0, 0]
    with pytest.raises(ConfigError):
        seeded().uniform_integers(0, 1)


def test_oracles_are_found_by_name(monkeypatch):
    assert oracles.find("auto", 3, 2) is oracles.kmeans
    assert oracles.find("auto", 3, 12) is oracles.pca
    monkeypatch.setattr(oracles, "has_sklearn", lambda: False)
    assert oracles.find("auto", 3, 2) is oracles.scipy_kmeans
    with pytest.raises(ConfigError, match="scikit-learn"):
        oracles.find("gaussians", 3, 2)
    with pytest.raises(ConfigError, match="must be one of"):
        oracles.find("birch", 3, 2)


ALONE = """
import numpy as np, threadpoolctl
from fcstream.releases.clusters import oracles
with oracles.one_thread():
    oracles.kmeans(np.random.default_rng(1).normal(size=(300, 2)), 3, 0)
    print({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
"""


@pytest.mark.slow
def test_the_first_shard_of_a_process_has_one_thread_too():
    """scikit-learn's threads wait for each other by spinning: on a busy machine that took 80 seconds in place of 8."""
    pytest.importorskip("sklearn")
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == "{1}\n"
