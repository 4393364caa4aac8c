"""Clusters with `method = "auto"`: which method is taken, what the plan says of it, and that settings alone decide."""

import numpy as np
import pytest
from support import naive_trees
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.releases.clusters.automatic import tree_noise
from fcstream.releases.clusters.centers import CentersRelease
from fcstream.releases.clusters.plan import typical_quantile
from fcstream.releases.clusters.tree_centers import TreeClustering
from fcstream.releases.clusters.tree_mixtures import TreeMixturesRelease
from fcstream.releases.clusters.tree_release import TreeCentersRelease
from fcstream.releases.record_gate import GatedMechanism
from fcstream.releases.trees.growing import PublicBox

FEATURES = [{"name": "a", "min": -1.0, "max": 1.0}, {"name": "b", "min": -1.0, "max": 1.0}]
PLAIN = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
TRUE = np.array([[-0.5, 0.0], [0.2, -0.6], [0.5, 0.5]])


def config(**changes):
    """Three clusters in a public square, by default without what tuples need."""
    release = {**PLAIN, "kind": "centers", "k": 3, "rho": 1.0} | changes
    found = sample(release=release, window={"end": "1970-01-01T00:00:10Z"}, budget={"rho": 9.0, "delta": 1e-6})
    return found | {"features": FEATURES, "lattice": {"step": 1e-5}}


def taken(**changes):
    """The mechanism that is taken, and why."""
    answer = Config.from_mapping(config(**changes)).job.answers[0]
    mechanism = answer.mechanism
    return mechanism.inner if isinstance(mechanism, GatedMechanism) else mechanism, answer.why


def rows(n=6000, width=0.02, seed=0):
    random = np.random.default_rng(seed)
    return TRUE[random.integers(0, 3, n)] + random.normal(0, width, (n, 2))


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        ({}, "`release.delta` and `release.size_hint`"),
        ({"delta": 1e-8}, "`release.size_hint`"),
        ({"size_hint": 6000}, "`release.delta`"),
        ({"delta": 1e-8, "size_hint": 6000, "k": "auto"}, "a number `release.k`"),
        ({"kind": "mixtures", "delta": 1e-8, "size_hint": 6000}, "`release.spread`"),
    ],
)
def test_without_what_tuples_need_the_tree_is_taken(changes, lacking):
    mechanism, why = taken(**changes)
    assert isinstance(mechanism, TreeMixturesRelease if "kind" in changes else TreeCentersRelease)
    assert why == f"`auto` takes the tree: tuples need {lacking}"


def test_a_size_that_no_tuples_can_use_takes_the_tree():
    mechanism, why = taken(delta=1e-8, size_hint=300)
    assert isinstance(mechanism, TreeCentersRelease)
    assert why == "`auto` takes the tree: no plan for tuples works with 300 records at this `release.rho`"


@pytest.mark.slow
def test_a_key_of_tuples_asks_for_them():
    mechanism, why = taken(delta=1e-8, size_hint=6000, oracle="kmeans")
    assert isinstance(mechanism, CentersRelease)
    assert why == "`auto` leaves the tree out: `release.oracle` belongs to tuples"
    with pytest.raises(ConfigError, match=r"release\.size_hint: must be a public guess"):
        taken(delta=1e-8, oracle="kmeans")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "method"), [(0.05, "the tree"), (0.0005, "a core of tuples (`friendly`)"), (None, "the tree")]
)
def test_the_smaller_predicted_noise_decides(spread, method):
    """Clusters far smaller than the tree's last boxes, by a public `spread`, are those of tuples."""
    mechanism, why = taken(delta=1e-8, size_hint=20_000, spread=spread)
    assert why.startswith(f"`auto` takes {method}: noise is predicted to move each coordinate of a center by ")
    assert isinstance(mechanism, TreeCentersRelease if method == "the tree" else CentersRelease)
    assert taken(delta=1e-8, size_hint=20_000, spread=spread)[0] == mechanism


@pytest.mark.parametrize("changes", [{"spread": -1.0}, {"ball": 0.0}, {"center": [5.0, 0.0]}, {"k": 0}, {"delta": 2.0}])
def test_what_cannot_be_meant_is_refused_whichever_is_taken(changes):
    (key,) = changes
    with pytest.raises(ConfigError, match=rf"^release\.{key}"):
        taken(**{"delta": 1e-8, "size_hint": 300} | changes)


def test_a_tree_pays_a_delta_for_its_limit_of_records_only():
    loss = Config.from_mapping(config()).job.window_loss
    assert loss == PrivacyLoss(10**9)
    limited = Config.from_mapping(config(delta=1e-8, size_hint=300)).job
    assert limited.window_loss == PrivacyLoss(10**9, 10**7)
    assert limited.answers[0].mechanism.gate.loss == PrivacyLoss(10**7, 10**7)
    assert limited.answers[0].mechanism.inner.loss == PrivacyLoss(99 * 10**7)


@pytest.mark.parametrize("kind", ["centers", "mixtures"])
def test_records_outside_of_a_public_ball_do_not_count(kind):
    points, found = rows(), []
    inside = ((points - [0.2, 0.0]) ** 2).sum(axis=1) <= 0.65**2
    for some in (points, points[inside]):
        engine = Engine(config(kind=kind, k=2, ball=0.65, center=[0.2, 0.0]), noise=Noise(SeededEntropy(1)))
        engine.push(np.full(len(some), 1000), some)
        (release,) = engine.close()
        found.append((release.value, release.parts))
    assert 3000 < inside.sum() < 5000
    assert found[0] == found[1]


# -- predicted noise -------------------------------------------------------------------------------------------------

BOXES = {  # name -> box, k, records, radius of a cluster
    "a line": (PublicBox((-50,), (70_000,)), 2, 4000, 90.0),
    "sides that differ": (PublicBox((0, -900_000, 5), (90_000, 7, 5)), 3, 6000, 10.0),
    "few records": (PublicBox((0, 0), (10**6, 10**6)), 40, 2000, 3.0),
    "hardly any": (PublicBox((0, 0), (10**6, 10**6)), 4, 8, 3.0),
    "many features": (PublicBox((0,) * 20, (10**5,) * 20), 2, 9000, 500.0),
}


@pytest.mark.parametrize("name", BOXES)
def test_predicted_noise_is_that_of_its_slow_twin(name):
    box, k, size, width = BOXES[name]
    mechanism = TreeClustering(10**8, k, box)
    slow = naive_trees.noise_of_a_center(10**8, list(box.low), list(box.high), k, size, width)
    assert tree_noise(mechanism.average, mechanism.tree, box, k, size, width) == pytest.approx(slow, rel=1e-6)


@pytest.mark.parametrize("width", [0.02, 0.0003])
def test_noise_is_what_was_predicted(width):
    box = PublicBox((-100_000,) * 2, (100_000,) * 2)
    mechanism = TreeClustering(10**9, 3, box)
    radius = typical_quantile(2, 0.01) * width * 1e5
    predicted = tree_noise(mechanism.average, mechanism.tree, box, 3, 6000, radius)
    found = mechanism.find(np.rint(rows(width=width) * 1e5), Noise(SeededEntropy(1)), lambda loss: None)
    assert np.median(found.sigma) == pytest.approx(predicted, rel=0.25)


# -- arrays ----------------------------------------------------------------------------------------------------------


def answer(**changes):
    known = {"rho": 1.0, "step": 1e-5, "bounds": (-1, 1), "noise": Noise(SeededEntropy(1))} | changes
    return fcstream.private_centers(rows(), 3, **known)


@pytest.mark.parametrize(
    "changes", [{}, {"delta": 1e-8}, {"size_hint": 6000}, {"delta": 1e-8, "size_hint": 300, "spread": 0.1}]
)
def test_an_array_is_answered_by_the_tree_too(changes):
    by_tree = answer(method="tree")
    found = answer(**changes)
    assert found.value == by_tree.value
    assert found.rho == by_tree.rho == 1


@pytest.mark.slow
def test_an_array_is_answered_by_tuples_where_they_are_nearer():
    known = {"delta": 1e-8, "size_hint": 6000, "spread": 0.0005}
    assert answer(**known).delta == 1e-8
    assert answer(**(known | {"spread": 0.1})).delta == 0


def test_wrong_arguments_of_arrays_are_named():
    with pytest.raises(ConfigError, match="spread: must be a positive number"):
        answer(delta=1e-8, size_hint=300, spread=-1.0)
    with pytest.raises(ConfigError, match="size_hint: must be a public guess"):
        answer(delta=1e-8, oracle="scipy")
