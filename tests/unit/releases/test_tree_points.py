"""Kind `points` with `method = "tree"`: rows of a slow twin, their shares and means, and what a release tells."""

import math

import numpy as np
import pytest
from support import naive_trees
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.releases.trees.drawn import TreePoints, draw_rows
from fcstream.releases.trees.growing import PublicBox, TreeMechanism
from fcstream.releases.trees.release import TreeRelease

BOXES = {  # name -> box, records, their deviation
    "a line": (PublicBox((-50,), (70,)), 300, 3.0),
    "a feature of one value": (PublicBox((-50, 7, 0), (50, 7, 3)), 400, 20.0),
    "two features": (PublicBox((0, 0), (1000, 500)), 3000, 60.0),
    "many features": (PublicBox((0,) * 9, (200,) * 9), 900, 4.0),
    "hardly any records": (PublicBox((-50, 0), (70, 90)), 60, 9.0),
}
RELEASE = {"kind": "points", "method": "tree", "rho": 1.0} | dict.fromkeys(("radius", "spread", "delta", "size_hint"))


def grown(name, rho_nano=10**9):
    box, size, deviation = BOXES[name]
    random = np.random.default_rng(len(name))
    middles = np.array([box.low, box.high]).mean(axis=0)
    points = np.rint(middles + random.normal(0, deviation, (size, box.dimension)))
    tree, _ = TreeMechanism(box, rho_nano, rho_nano // 2).release(points, Noise(SeededEntropy(1)), lambda loss: None)
    return tree


@pytest.mark.parametrize("rows", [1, 7, 400])
@pytest.mark.parametrize("name", BOXES)
def test_rows_are_those_of_the_slow_twin(name, rows):
    tree = grown(name)
    made = draw_rows(tree, rows, Noise(SeededEntropy(2)))
    assert made.tolist() == naive_trees.rows_of(tree, rows, Noise(SeededEntropy(2)))


def test_every_leaf_has_its_share_of_the_rows_and_they_have_its_mean():
    tree, rows = grown("two features"), 40_000
    made = draw_rows(tree, rows, Noise(SeededEntropy(3)))
    shares = np.maximum(tree.weights, 1e-9) / tree.weights.sum()
    for low, high, mean, share in zip(tree.low, tree.high, tree.points, shares, strict=True):
        own = made[((made >= low) & (made <= high)).all(axis=1)]
        assert abs(len(own) - rows * share) <= 1
        if len(own) > 100:
            assert (np.abs(own.mean(axis=0) - mean) < 5 * (high - low + 1) / math.sqrt(len(own)) + 0.5).all()


def test_regions_of_the_tree_get_their_rows_however_few_these_are():
    """Leaves are taken in the order in which they lie: what is on one side of a cut is at most one row off."""
    tree = grown("two features")
    made = draw_rows(tree, 50, Noise(SeededEntropy(4)))
    left = made[:, tree.features[0]] <= tree.middles[0]
    inside = tree.low[:, tree.features[0]] <= tree.middles[0]
    assert abs(left.sum() - 50 * tree.weights[inside].sum() / tree.weights.sum()) <= 1


def test_rows_of_wide_data_lie_no_farther_apart_than_records():
    tree = grown("many features")
    made = draw_rows(tree, 5000, Noise(SeededEntropy(5)))
    assert (made.std(axis=0) < 1.5 * tree.deviations).all()


def test_a_window_releases_rows_within_the_public_ranges():
    raw = np.random.default_rng(0).normal([20.0, 50.0], [2.0, 5.0], (4000, 2))
    engine = Engine(
        sample(release=RELEASE | {"rows": 500}, window={"end": "1970-01-01T00:00:10Z"}), noise=Noise(SeededEntropy(1))
    )
    engine.push(np.zeros(len(raw), np.int64), raw)
    (release,) = engine.close()
    made = np.array(release.value)
    assert (release.kind, release.sigma, release.parts["set"]) == ("points", None, "box")
    assert (made.shape, release.parts["weights"]) == ((500, 2), [1 / 500] * 500)
    assert made.mean(axis=0) == pytest.approx([20, 50], abs=0.5)
    assert made.std(axis=0) == pytest.approx([2, 5], rel=0.15)
    assert abs(release.count - 4000) < 60


def test_rows_follow_from_the_tree_that_kind_tree_releases():
    """Both draw the same noise and pay the same, so rows cost nothing beyond the tree."""
    rows = np.random.default_rng(1).normal(0, 1, (3000, 2))
    known = {"rho": 0.3, "step": 0.01, "bounds": (-4, 4)}
    made = fcstream.private_points(rows, **known, names=["a", "b"], noise=Noise(SeededEntropy(1)))
    tree = fcstream.private_tree(rows, **known, noise=Noise(SeededEntropy(1)))
    assert (made.count, made.rho, made.features) == (tree.count, tree.rho, ["a", "b"])
    box = PublicBox((-400, -400), (400, 400))
    assert TreePoints(PrivacyLoss(10**8), box).inner is TreeRelease(PrivacyLoss(10**8), box).inner
    few = fcstream.private_points(rows[:3], **known)
    assert (few.reason, few.value) == ("too_few", None)
    assert 0 < few.rho < 0.05 * 0.3


def test_cells_of_an_array_are_those_of_a_window():
    rows = np.random.default_rng(1).normal(0, 1, (3000, 2))
    known = {"rho": 0.5, "step": 0.01, "bounds": (-4, 4)}
    found = fcstream.private_points(rows, **known, method="cells", noise=Noise(SeededEntropy(1)))
    assert np.array(found.parts["weights"]) @ np.array(found.value) == pytest.approx([0, 0], abs=0.3)
    assert len(found.value) < 257


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "rows: must be in"),
        ({"method": "cell"}, "method: must be 'auto', 'tree' or 'cells'"),
        ({"names": ["a"]}, "names: must name 2 columns"),
        ({"rho": 0.0}, "rho"),
        ({"bounds": (1, 1)}, "bounds: must be .*: finite"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    known = {"rho": 1.0, "step": 1e-3, "bounds": (-1, 1)} | changes
    with pytest.raises(ConfigError, match=message):
        fcstream.private_points(np.zeros((5, 2)), **known)
