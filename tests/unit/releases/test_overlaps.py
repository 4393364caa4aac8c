"""Mixtures by a tree whose clusters overlap: a slow twin of the fit, when it is made, and how near it comes."""

import math

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.errors import ConfigError
from fcstream.releases.clusters import overlaps
from fcstream.releases.clusters.overlaps import Mixture, outside, overlapping
from fcstream.releases.trees.drawn import draw_rows
from fcstream.releases.trees.growing import PublicBox, TreeMechanism

BOX = PublicBox((-5000, -5000), (5000, 5000))
WEIGHTS = [0.5, 0.3, 0.2]
RELEASE = {"kind": "mixtures", "method": "tree", "k": 3, "rho": 1.0} | dict.fromkeys(
    ("radius", "spread", "delta", "size_hint")
)


def clusters(apart, n=20_000, seed=0):
    """Rows of three normal clusters of deviation 300, and their middles, ascending."""
    random = np.random.default_rng(seed)
    middles = 300 * apart * np.array([[-0.5, 0.0], [0.0, 0.87], [0.5, 0.0]])
    return np.rint(middles[random.choice(3, n, p=WEIGHTS)] + random.normal(0, 300, (n, 2))), middles


def parts_of(apart, rho_nano=10**9, n=20_000):
    """A tree, the middles of the parts, and the weights, means and covariances of the rows nearest to each."""
    rows, middles = clusters(apart, n)
    tree, _ = TreeMechanism(BOX, rho_nano, rho_nano // 2).release(rows, Noise(SeededEntropy(1)), lambda loss: None)
    labels = ((rows[:, None] - middles) ** 2).sum(axis=2).argmin(axis=1)
    own = [rows[labels == j] for j in range(3)]
    told = Mixture(
        np.array([len(one) for one in own]) / n,
        np.stack([one.mean(axis=0) for one in own]),
        np.stack([np.cov(one.T, bias=True) for one in own]),
    )
    return tree, middles, told


def density(row, mean, covariance):
    gap, scale = row - mean, np.linalg.inv(covariance)
    return math.exp(-float(gap @ scale @ gap) / 2) / math.sqrt(np.linalg.det(covariance))


def naive_fit(tree, centers, told, noise, rounds):
    """The same rows, moved part by part, and a plain EM of so many rounds."""
    rows = draw_rows(tree, overlaps.ROWS, noise)
    near = [int(np.argmin([np.sum((row - c) ** 2) for c in centers])) for row in rows]
    moved, masses = [], []
    for j in range(len(centers)):
        own = np.array([row for row, label in zip(rows, near, strict=True) if label == j])
        values, vectors = np.linalg.eigh(np.cov(own.T, bias=True))
        back = vectors @ np.diag(values**-0.5) @ vectors.T
        values, vectors = np.linalg.eigh(told.covariances[j])
        onto = vectors @ np.diag(values**0.5) @ vectors.T
        moved += [told.means[j] + (row - own.mean(axis=0)) @ back @ onto for row in own]
        masses += [told.weights[j] / len(own)] * len(own)
    weights, means, covariances = (list(x) for x in told)
    for _ in range(rounds):
        shares = []
        for row in moved:
            each = [w * density(row, m, c) for w, m, c in zip(weights, means, covariances, strict=True)]
            shares.append([x / sum(each) for x in each])
        for j in range(len(centers)):
            own = [mass * share[j] for mass, share in zip(masses, shares, strict=True)]
            weights[j] = sum(own)
            means[j] = sum(x * row for x, row in zip(own, moved, strict=True)) / weights[j]
            gaps = [row - means[j] for row in moved]
            covariances[j] = sum(x * np.outer(g, g) for x, g in zip(own, gaps, strict=True)) / weights[j]
    return weights, means, covariances


def test_the_fit_is_that_of_the_slow_twin(monkeypatch):
    monkeypatch.setattr(overlaps, "ROWS", 300)
    monkeypatch.setattr(overlaps, "ROUNDS", 5)
    monkeypatch.setattr(overlaps, "_GAIN", -math.inf)
    tree, centers, told = parts_of(3.5)
    found = overlapping(tree, centers, told, Noise(SeededEntropy(2)))
    twin = naive_fit(tree, centers, told, Noise(SeededEntropy(2)), 5)
    for own, other in zip(found, twin, strict=True):
        assert own == pytest.approx(np.array(other), rel=1e-6, abs=1e-6)


def test_the_share_outside_is_that_of_normal_rows():
    centers = np.array([[0.0, 0.0], [4.0, 0.0]])
    told = Mixture(np.array([0.7, 0.3]), np.array([[0.5, 0.0], [4.0, 1.0]]), np.array([np.diag([1.0, 9.0]), np.eye(2)]))
    random, away = np.random.default_rng(0), 0.0
    for j, (weight, mean, covariance) in enumerate(zip(*told, strict=True)):
        rows = random.multivariate_normal(mean, covariance, 200_000)
        away += weight * (((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1) != j).mean()
    assert outside(centers, told) == pytest.approx(away, rel=0.03)
    assert outside(np.zeros((2, 2)), told) == 0  # centers in one place have no border


def test_clusters_that_lie_apart_are_left_as_they_are(monkeypatch):
    tree, centers, told = parts_of(10)
    assert overlapping(tree, centers, told, Noise(SeededEntropy(1))) is None
    monkeypatch.setattr(overlaps, "MIN", 1e-300)  # and a fit would change nothing
    for own, before in zip(overlapping(tree, centers, told, Noise(SeededEntropy(1))), told, strict=True):
        assert own == pytest.approx(before, rel=1e-3, abs=1e-2)


def test_boxes_that_are_too_coarse_say_nothing_of_shapes():
    tree, centers, told = parts_of(3, rho_nano=10**7, n=1500)
    assert overlapping(tree, centers, told, Noise(SeededEntropy(1))) is None


def test_a_part_without_rows_is_not_fitted(monkeypatch):
    monkeypatch.setattr(overlaps, "ROWS", 5)
    tree, centers, told = parts_of(3)
    assert overlapping(tree, centers, told, Noise(SeededEntropy(1))) is None


@pytest.mark.parametrize("apart", [2.5, 3.0, 4.0])
def test_a_fit_comes_nearer_than_the_parts(apart):
    tree, centers, told = parts_of(apart)
    found = overlapping(tree, centers, told, Noise(SeededEntropy(3)))
    for fitted, part, truth in zip(found, told, (WEIGHTS, centers, 300.0**2 * np.eye(2)), strict=True):
        assert np.abs(fitted - truth).max() < 0.85 * np.abs(part - truth).max()


# -- releases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("apart", "is_fitted"), [(3.5, True), (12.0, False)])
def test_an_array_gets_the_better_mixture(apart, is_fitted):
    rows, middles = clusters(apart)
    known = {"rho": 0.5, "step": 1.0, "bounds": (-5000, 5000), "noise": Noise(SeededEntropy(1))}
    answer = fcstream.private_mixture(rows, 3, **known)
    assert (answer.status, answer.rho, answer.parts["tuples"]) == ("released", 0.5, None)
    assert (answer.sigma == [[None, None]] * 3) == is_fitted
    counts = np.array(answer.parts["counts"])
    assert answer.parts["weights"] == pytest.approx(WEIGHTS if is_fitted else counts / counts.sum(), abs=0.03)
    assert np.abs(np.array(answer.value) - middles).max() < 60
    assert np.abs(np.array(answer.parts["covariances"]) / 300**2 - np.eye(2)).max() < 0.25


def test_a_window_tells_whether_its_mixture_was_fitted():
    random = np.random.default_rng(0)
    for apart, is_fitted in ((3.5, True), (12.0, False)):
        raw = np.array([[20.0, 50.0]]) + random.normal(0, 1.0, (8000, 2))
        raw[:, 0] += apart * random.choice([-0.5, 0.5], 8000)
        release = RELEASE | {"k": 2}
        engine = Engine(sample(release=release, window={"end": "1970-01-01T00:00:10Z"}), noise=Noise(SeededEntropy(1)))
        engine.push(np.zeros(len(raw), np.int64), raw)
        (found,) = engine.close()
        assert found.parts["fitted"] == is_fitted
        assert (found.parts["covariance_sigma"] == [None, None]) == is_fitted
        assert (found.sigma == [[None, None]] * 2) == is_fitted
        assert Release.from_bytes(found.to_bytes()) == found
        assert found.parts["weights"] == pytest.approx([0.5, 0.5], abs=0.03)


def test_an_array_that_is_too_small_costs_one_level():
    answer = fcstream.private_mixture(np.zeros((5, 2)), "auto", ball=1.0, rho=0.1, step=1e-3)
    assert (answer.reason, answer.value) == ("too_few", None)
    assert 0 < answer.rho < 0.1 * 0.3 / 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "^k: must be at least 1"),
        ({"k": "some"}, "k: must be a whole number or 'auto'"),
        ({"bounds": None}, "bounds: must be given, or else `ball`"),
        ({"method": "tree", "spread": 0.1}, "spread: belongs to methods 'friendly' and 'ktuples', not to 'tree'"),
        ({"method": "tree", "variant": "paper"}, "variant: belongs to methods"),
        ({"center": [0, 0]}, "center: belongs to `ball`"),
        ({"rho": 1e-8}, "^rho: must be larger"),
        ({"method": "friendly", "delta": 1e-6}, "size_hint: must be a public guess"),
        ({"method": "friendly", "size_hint": 9, "spread": 0.1}, "delta: must be in "),
        (
            {"method": "friendly", "k": "auto", "delta": 1e-6, "size_hint": 9, "spread": 0.1},
            "k: must be a whole number for method 'friendly'",
        ),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    known = {"k": 2, "rho": 1.0, "step": 1e-3, "bounds": (-1, 1)} | changes
    with pytest.raises(ConfigError, match=message):
        fcstream.private_mixture(np.zeros((5, 2)), **known)
