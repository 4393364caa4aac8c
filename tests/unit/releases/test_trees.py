"""Trees: the boxes, counts and points of a slow twin, sums that agree, and what is paid along each path."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support import naive_trees
from support.helpers import Paid

import fcstream
from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.releases.clusters.tree_centers import TreeClustering
from fcstream.releases.trees.agreement import variance_of_sum
from fcstream.releases.trees.growing import PublicBox, TreeMechanism
from fcstream.releases.trees.points import k_means, weighted_points

BOXES = {  # name -> box, middles of clusters, their width, records, rho (nano) of the counts
    "a line": (PublicBox((-50,), (70,)), [[0], [40]], 3.0, 300, 10**8),
    "a feature of one value": (PublicBox((-50, 7, 0), (50, 7, 3)), [[0, 7, 1], [30, 7, 2]], 2.0, 400, 2 * 10**8),
    "far beyond the box": (PublicBox((-9, -9), (9, 9)), [[0, 0], [40, -40]], 2.0, 300, 10**8),
    "one value": (PublicBox((5, 5), (5, 5)), [[5, 5]], 1.0, 90, 10**8),
    "wide offsets": (PublicBox((-(2**40), 0), (2**40, 2**39)), [[2**38, 5], [-(2**39), 2**38]], 2.0**30, 300, 10**8),
    "many features": (PublicBox((0,) * 9, (200,) * 9), [[50] * 9, [90] * 4 + [50] * 5], 4.0, 500, 10**9),
    "hardly any records": (PublicBox((-50, 0), (70, 90)), [[0, 10]], 9.0, 60, 10**8),
}


def records(name):
    box, middles, width, size, _ = BOXES[name]
    random = np.random.default_rng(len(name))
    middles = np.array(middles, float)
    return np.rint(middles[random.integers(0, len(middles), size)] + random.normal(0, width, (size, box.dimension)))


def grown(name, seed=1):
    box, _, _, _, count_nano = BOXES[name]
    mechanism, paid = TreeMechanism(box, count_nano, count_nano // 2), Paid()
    tree, root = mechanism.release(records(name), Noise(SeededEntropy(seed)), paid.start)
    return mechanism, tree, root, paid


@pytest.mark.parametrize("name", BOXES)
def test_a_tree_is_that_of_its_slow_twin(name):
    box, _, _, _, count_nano = BOXES[name]
    mechanism, tree, _, paid = grown(name)
    noise = Noise(SeededEntropy(1))
    nodes, leaves = naive_trees.grow(records(name), list(box.low), list(box.high), count_nano, count_nano // 2, noise)
    assert tree.asked.tolist() == [node[2] for node in nodes]
    assert tree.parents.tolist() == [node[3] for node in nodes]
    assert tree.leaves.tolist() == [v for v, _ in leaves]
    assert tree.low.tolist() == [list(nodes[v][0]) for v, _ in leaves]
    assert tree.high.tolist() == [list(nodes[v][1]) for v, _ in leaves]
    assert sum(paid.stages, PrivacyLoss()) == mechanism.loss
    # Counts: each node's own, leaves' with what is told of their points, and all of them at once.
    sums, counts = naive_trees.points_of(leaves, noise)
    variances, values = [float(mechanism.variance)] * len(nodes), [float(node[2]) for node in nodes]
    for (v, own), count in zip(leaves, counts.tolist(), strict=True):
        other = 10**9 / (2 * own[0])
        values[v] = (values[v] / variances[v] + count / other) / (1 / variances[v] + 1 / other)
        variances[v] = 1 / (1 / variances[v] + 1 / other)
    solved, ends, covariance = naive_trees.agreed(nodes, variances, values)
    assert tree.counts == pytest.approx(solved, rel=1e-9, abs=1e-6)
    for i, (v, own) in enumerate(leaves):
        point = np.array(own[5], float)
        if solved[v] >= 1:
            point = np.clip(point + sums[i] * 2.0 ** own[6] / solved[v], nodes[v][0], nodes[v][1])
        assert tree.points[i] == pytest.approx(point, rel=1e-9, abs=1e-6)
    # Errors of sums over boxes.
    weights = np.zeros(len(nodes))
    weights[ends] = np.random.default_rng(2).random(len(ends))
    found = variance_of_sum(weights, tree.variances, tree.children, tree.levels)
    assert found == pytest.approx(weights[ends] @ covariance @ weights[ends], rel=1e-9)


@pytest.mark.parametrize("name", BOXES)
def test_no_path_pays_more_than_the_tree_costs(name):
    """Level by level, and what is left for the point: what is drawn has at least the noise of that."""
    mechanism, tree, *_ = grown(name)
    spent = (tree.levels[tree.leaves] + 1 + (tree.features[tree.leaves] >= 0)) * mechanism.level_nano
    assert (spent <= mechanism.count_nano - mechanism.moment_nano).all()
    assert mechanism.variance * 2 * mechanism.level_nano >= 10**9
    # All counts along a path are told of one number of records: with the noise of no more than was paid for them.
    told = Fraction(10**9, 2) / Fraction(float(tree.variances[0]))
    assert len(tree.leaves) > 1 or told <= mechanism.loss.rho_nano * (1 + 1e-9)


def test_noise_of_a_points_sums_pays_for_every_corner_of_its_box():
    """Along a path every draw is counted: the squares of what one record moves over twice the variances."""
    drawn, box = [], PublicBox((0, 0, 0), (10, 1000, 1))

    class Recording(Noise):
        def discrete_gaussian(self, variance, size):
            drawn.append((variance, size))
            return np.zeros(size, np.int64)

    mechanism = TreeMechanism(box, 10**7, 10**7)
    points = np.array([[5.0, 500.0, 1.0]] * 82 + [[6.0, 600.0, 0.0]] * 82)  # halves are below what is kept
    tree, _ = mechanism.release(points, Recording(), lambda loss: None)
    assert tree.leaves.tolist() == [0]
    root, halves, *sums, count = [variance for variance, _ in drawn]
    assert root == halves == mechanism.variance
    moved = [1, 5, 500]  # at a corner, from the middle (5, 500, 0); the draws go by size
    share = sum(Fraction(h**2, 2) / variance for h, variance in zip(moved, sums, strict=True))
    paid = share + sum(Fraction(1, 2) / variance for variance in (root, halves, count))
    assert 0.99 * mechanism.loss.rho < float(paid) <= mechanism.loss.rho


def test_too_few_records_cost_one_level_and_no_more():
    mechanism, paid = TreeMechanism(PublicBox((0,), (100,)), 10**8, 10**8), Paid()
    tree, root = mechanism.release(np.zeros((3, 1)), Noise(SeededEntropy(1)), paid.start)
    assert tree is None
    assert root < mechanism.min_count
    assert paid.stages == [PrivacyLoss(mechanism.level_nano)]
    assert mechanism.false_release <= 1e-4


def test_nodes_of_a_level_are_capped_by_released_counts(monkeypatch):
    monkeypatch.setattr("fcstream.releases.trees.growing.MAX_NODES", 8)
    points = np.rint(np.random.default_rng(0).uniform(0, 1000, (4000, 2)))
    tree, _ = TreeMechanism(PublicBox((0, 0), (1000, 1000)), 10**9, 10**9).release(points, Noise(), lambda loss: None)
    assert np.bincount(tree.levels).max() == 8
    for level in range(3, 16):
        mine = np.flatnonzero(tree.levels == level)
        split = tree.asked[mine[tree.features[mine] >= 0]]
        rest = tree.asked[mine[tree.features[mine] < 0]]
        assert not len(split) or not len(rest) or split.min() >= rest.max() or len(split) < 4


def test_wide_data_are_cut_where_records_differ():
    random = np.random.default_rng(3)
    points = np.full((3000, 12), 500.0)
    points[:, 7] = random.integers(0, 1000, 3000)
    mechanism = TreeMechanism(PublicBox((0,) * 12, (1000,) * 12), 10**9, 10**8)
    tree, _ = mechanism.release(points, Noise(), lambda loss: None)
    assert set(tree.features[tree.levels < 3].tolist()) <= {-1, 7}


# -- centers -------------------------------------------------------------------------------------------------------


def clusters(n, seed=0):
    random = np.random.default_rng(seed)
    middles = np.array([[0.5, 0.5], [-0.5, 0.0], [0.2, -0.6]])
    return middles[random.integers(0, 3, n)] + random.normal(0, 0.02, (n, 2)), middles[[1, 2, 0]]


def test_centers_of_a_tree_are_near_the_truth_at_a_small_budget():
    rows, middles = clusters(6000)
    known = {"rho": 0.05, "step": 1e-4, "bounds": (-1, 1), "method": "tree"}
    for seed in range(5):
        answer = fcstream.private_centers(rows, 3, **known, noise=Noise(SeededEntropy(seed)))
        assert (answer.status, answer.rho, answer.parts["tuples"]) == ("released", 0.05, None)
        centers, sigma = np.array(answer.value), np.array(answer.sigma)
        assert np.abs(centers - middles).max() < 0.005
        assert np.abs(np.array(answer.parts["counts"]) - 2000).max() < 200
        gaps = [np.mean(rows[np.linalg.norm(rows - m, axis=1) < 0.2], axis=0) for m in middles]
        assert (np.abs(centers - gaps) < 5 * sigma + 2e-3).all()


def test_records_of_one_place_are_answered_too():
    answer = fcstream.private_centers(
        np.full((500, 2), 0.25), 4, rho=1.0, step=1e-3, bounds=([0, 0], [1, 2]), method="tree", noise=Noise()
    )
    assert answer.status == "released"
    assert np.shape(answer.value) == (4, 2)
    assert np.linalg.norm(np.array(answer.value) - 0.25, axis=1).min() < 0.01


def test_few_records_are_refused_for_one_level():
    answer = fcstream.private_centers(np.zeros((5, 2)), 2, ball=1.0, rho=0.1, step=1e-3, method="tree")
    assert (answer.reason, answer.value) == ("too_few", None)
    assert 0 < answer.rho < 0.1 * 0.42 / 16


def test_a_center_with_few_records_stays_where_the_tree_puts_it():
    mechanism = TreeClustering(10**7, 40, PublicBox((-1000,) * 2, (1000,) * 2))
    found = mechanism.find(np.rint(clusters(2500)[0] * 1000), Noise(SeededEntropy(1)), lambda loss: None)
    unknown = np.isnan(found.sigma)
    assert unknown.any()
    assert (np.abs(found.centers[unknown]) <= 1000).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "^k: must be at least 1"),
        ({"bounds": None}, "bounds: must be given, or else `ball`"),
        ({"bounds": ([0, 0, 0], [1, 1, 1])}, "bounds: must be .* two numbers, or of two lists of 2"),
        ({"bounds": (1, 1)}, "bounds: must be .*: finite"),
        ({"bounds": (-1e10, 1e10)}, "bounds: range"),
        ({"tuples": 9}, "tuples: belongs to methods"),
        ({"rho": 1e-8}, "^rho: must be larger"),
        ({"method": "friendly", "bounds": None, "size_hint": 9}, "bounds: must be given, or else `ball`"),
        ({"method": "friendly", "bounds": None, "ball": 1.0, "delta": 1e-6}, "size_hint: must be a public guess"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    known = {"k": 2, "rho": 1.0, "step": 1e-3, "bounds": (-1, 1), "method": "tree"} | changes
    with pytest.raises(ConfigError, match=message):
        fcstream.private_centers(np.zeros((5, 2)), **known)


def test_fewer_leaves_than_centers_are_halved():
    tree, _ = TreeMechanism(PublicBox((0, 0), (100, 40)), 10**7, 10**7).release(
        np.full((140, 2), 30.0), Noise(SeededEntropy(2)), lambda loss: None
    )
    points, weights, _ = weighted_points(tree, len(tree.leaves) + 5)
    assert len(points) == len(tree.leaves) + 5
    assert weights.sum() == pytest.approx(tree.weights.sum())
    assert ((points >= 0) & (points <= [100, 40])).all()


def test_weighted_k_means_finds_the_best_of_all_partitions():
    random = np.random.default_rng(5)
    points, weights = random.normal(size=(9, 2)), random.uniform(0.1, 5, 9)
    best = math.inf
    for mask in range(1, 2**8):  # one of the halves holds the last point
        sides = [(mask >> i) & 1 == 1 for i in range(9)]
        total = 0.0
        for side in (True, False):
            own = [i for i in range(9) if sides[i] == side]
            middle = np.average(points[own], axis=0, weights=weights[own])
            total += (weights[own] * ((points[own] - middle) ** 2).sum(axis=1)).sum()
        best = min(best, total)
    assert k_means(points, weights, 2, Noise())[1] == pytest.approx(best)


# -- releases ------------------------------------------------------------------------------------------------------


def test_boxes_divide_the_public_box_and_their_numbers_agree():
    rows = np.clip(np.random.default_rng(3).normal([0.3, -0.2], 0.1, (5000, 2)), -1, 1)
    known = {"rho": 0.5, "step": 1e-3, "bounds": (-1, 1)}
    for most in (1, 2, 7, 1000):
        answer = fcstream.private_tree(rows, **known, max_boxes=most, noise=Noise(SeededEntropy(1)))
        low, high, means = (np.array(answer.parts[name]) for name in ("low", "high", "means"))
        assert len(low) == len(answer.value) == len(answer.sigma) <= most
        assert (low <= means).all()
        assert (means <= high).all()
        assert np.prod(high - low, axis=1).sum() == pytest.approx(4)
        assert sum(answer.value) == pytest.approx(answer.count, abs=0.5)
    # Numbers of ranges, with errors that hold boxes' errors together.
    found = fcstream.count_in_range(answer, {})
    assert found.value == pytest.approx(sum(answer.value))
    assert found.sigma < 5 < np.linalg.norm(answer.sigma)
    assert found.cut == 0
    one = fcstream.count_in_range(answer, dict(zip(("x0", "x1"), zip(low[9], high[9], strict=True), strict=True)))
    assert (one.value, one.sigma) == pytest.approx((answer.value[9], answer.sigma[9]))
    part = fcstream.count_in_range(answer, {"x0": (0.3, 1)})
    assert abs(part.value - (rows[:, 0] >= 0.3).sum()) < 5 * part.sigma + 0.2 * part.cut
    assert fcstream.count_in_range(answer, {"x1": (0.9, 0.9)}).value == pytest.approx(0, abs=1)


def test_errors_of_ranges_are_those_of_many_trees():
    rows, ends = clusters(1500)[0], {"x0": (0.005, 1.0)}  # where the first cut is
    known = {"rho": 0.2, "step": 1e-2, "bounds": (-1, 1), "max_boxes": 2}
    found = [fcstream.count_in_range(fcstream.private_tree(rows, **known), ends) for _ in range(200)]
    gaps = np.array([one.value - (rows[:, 0] >= 0.005).sum() for one in found])
    assert np.std(gaps) == pytest.approx(np.mean([one.sigma for one in found]), rel=0.25)
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 200**0.5 + 1


@pytest.mark.parametrize(
    ("ranges", "message"), [({"y": (0, 1)}, "ranges: must be one of 'x0', 'x1', got 'y'"), ({"x0": (1, 0)}, "ascend")]
)
def test_ranges_that_cannot_be_counted(ranges, message):
    answer = fcstream.private_tree(clusters(900)[0], rho=1.0, step=1e-2, bounds=(-1, 1))
    with pytest.raises(ConfigError, match=message):
        fcstream.count_in_range(answer, ranges)
    few = fcstream.private_tree(np.zeros((3, 2)), rho=0.1, step=1e-2, bounds=(-1, 1))
    assert few.reason == "too_few"
    with pytest.raises(ConfigError, match="must be a released value of kind 'tree'"):
        fcstream.count_in_range(few, {})


def test_how_many_clusters_is_chosen_on_the_points():
    rows, _ = clusters(6000)
    known = {"rho": 0.5, "step": 1e-4, "bounds": (-1, 1), "method": "tree"}
    for seed in range(3):
        answer = fcstream.private_centers(rows, "auto", **known, noise=Noise(SeededEntropy(seed)))
        assert len(answer.value) == 3
