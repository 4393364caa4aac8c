"""Microaggregation of real vectors: groups as large as promised, the paper's steps, and how near the means stay."""

import itertools
import math

import numpy as np
import pytest

from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.synthetic import microaggregate
from fcstream.synthetic.microaggregation import _axes, _cells


def blobs(n, p, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(4, p)) * 5
    return (centers[rng.integers(0, 4, n)] + rng.normal(size=(n, p))) * scale


def twin(points, groups):
    """BSV Theorem 4.1 word for word, on lists: the groups as lists of row numbers."""
    n, p = points.shape
    longest = max(math.sqrt(sum(x * x for x in row)) for row in points.tolist())
    rows = [[x / longest for x in row] for row in points.tolist()]
    moments = [[sum(row[i] * row[j] for row in rows) / n for j in range(p)] for i in range(p)]
    cells = {}
    root = math.isqrt(groups)
    t, alpha = 0, 1.0
    if groups >= 100:
        alpha = (math.log(math.log(root)) / math.log(root)) ** 0.25
        t = min(p, math.floor(math.log(root) / math.log(7 / alpha)))
    axes = np.linalg.eigh(np.array(moments))[1][:, ::-1][:, :t].T.tolist()
    most = math.floor(math.sqrt(t) / alpha) if t else 0
    lattice = [v for v in itertools.product(range(-most, most + 1), repeat=t) if sum(x * x for x in v) * alpha**2 <= t]
    cover = [[x * alpha / math.sqrt(t) for x in v] for v in lattice]
    for i, row in enumerate(rows):
        place = [sum(a * x for a, x in zip(axis, row, strict=True)) for axis in axes]
        cells.setdefault(min(range(len(cover)), key=lambda c: math.dist(place, cover[c])), []).append(i)
    size, found, left = n // groups, [], []
    for _, members in sorted(cells.items()):
        while len(members) >= size:
            found.append(members[:size])
            members = members[size:]
        left += members
    while len(found) < groups:
        found.append(left[:size])
        left = left[size:]
    left += itertools.chain.from_iterable(found[groups:])
    return [*found[: groups - 1], found[groups - 1] + left]


@pytest.mark.parametrize(
    ("n", "p", "groups"), [(60, 3, 9), (1000, 4, 100), (1003, 5, 110), (900, 1, 150), (450, 2, 450)]
)
def test_groups_are_those_of_the_paper(n, p, groups):
    points = blobs(n, p, seed=n)
    found, expected = microaggregate(points, groups), twin(points, groups)
    assert found.sizes.tolist() == [len(members) for members in expected]
    assert sorted(itertools.chain.from_iterable(expected)) == list(range(n))
    means = np.array([points[members].mean(axis=0) for members in expected])
    assert found.points == pytest.approx(means, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("n", "groups"), [(200, 9), (1003, 100), (9000, 9000), (20_000, 2600)])
def test_groups_are_as_large_as_promised(n, groups):
    points = blobs(n, 3, seed=n)
    found = microaggregate(points, groups, rows=50)
    assert len(found.sizes) == len(found.points) == groups
    assert found.sizes.sum() == n
    assert (found.sizes[:-1] == n // groups).all()
    assert found.sizes[-1] >= n // groups
    assert found.points.T @ found.sizes == pytest.approx(points.sum(axis=0))
    assert f"at least {n // groups} records" in found.promise
    assert "NOT differentially private" in found.promise


@pytest.mark.parametrize(("groups", "p"), [(100, 3), (400, 8), (10_000, 2)])
def test_moments_are_within_the_bound(groups, p):
    """k divides n: the mean exactly, second moments within alpha**2 + s / k + 1 / sqrt(t) of the longest squared."""
    points = blobs(2 * groups, p, seed=groups, scale=1e3)
    found = microaggregate(points, groups)
    assert found.points.mean(axis=0) == pytest.approx(points.mean(axis=0), abs=1e-6)
    longest = np.linalg.norm(points, axis=1).max()
    t, alpha = _axes(groups, p)
    cells = len(np.unique(_cells(points / longest, groups)))
    loss = np.linalg.norm(points.T @ points / len(points) - found.points.T @ found.points / groups)
    assert 1 <= t <= p
    assert loss <= longest**2 * (alpha**2 + cells / groups + 1 / math.sqrt(t))
    shuffled = np.random.default_rng(0).permutation(points).reshape(groups, 2, p).mean(axis=1)
    assert loss < 0.7 * np.linalg.norm(points.T @ points / len(points) - shuffled.T @ shuffled / groups)


def test_rows_are_drawn_from_the_means_alike_and_stay_in_the_convex_hull():
    points = np.abs(blobs(900, 3))
    points /= points.sum(axis=1, keepdims=True)  # a simplex
    found = microaggregate(points, 100, rows=20_000, noise=Noise(SeededEntropy(1)))
    known = {tuple(mean) for mean in found.points.tolist()}
    drawn, counts = np.unique(found.rows, axis=0, return_counts=True)
    assert {tuple(row) for row in drawn.tolist()} == known
    assert np.abs(counts - 200).max() < 5 * math.sqrt(200)
    assert found.rows.min() >= 0
    assert found.rows.sum(axis=1) == pytest.approx(1)
    assert microaggregate(points, 100).rows.shape == points.shape


@pytest.mark.parametrize("points", [np.zeros((200, 2)), np.full((200, 3), -7.5), np.full((150, 1), 1e300)])
def test_equal_rows_stay_what_they_are(points):
    found = microaggregate(points, 120)
    assert (found.points == points[0]).all()
    assert (found.rows == points[0]).all()


def test_a_given_radius_scales_cells_and_nothing_else():
    points = blobs(1000, 3)
    longest = float(np.linalg.norm(points, axis=1).max())
    same, wide = microaggregate(points, 200, radius=longest), microaggregate(points, 200, radius=1e9)
    assert same.points == pytest.approx(microaggregate(points, 200).points)
    assert wide.sizes.tolist() == same.sizes.tolist()
    assert not np.allclose(wide.points, same.points)  # all lie in one cell
    with pytest.raises(ConfigError, match="radius: must be at least the length of every vector"):
        microaggregate(points, 200, radius=0.9 * longest)


@pytest.mark.parametrize(
    ("points", "groups", "more", "message"),
    [
        ([[0.0, 1.0]] * 20, 8, {}, r"groups: must be in \[9, 20\], got 8"),
        ([[0.0, 1.0]] * 20, 21, {}, "groups"),
        ([[0.0, math.nan]] * 20, 9, {}, "points: must be a table"),
        ([[0.0, math.inf]] * 20, 9, {}, "finite"),
        ([["a"]] * 20, 9, {}, "points"),
        ([1.0] * 20, 9, {}, "points"),
        ([[0.5]] * 20, 9, {"rows": 0}, "rows"),
        ([[0.5]] * 20, 9, {"radius": -1.0}, "radius"),
        (np.empty((0, 2)), 9, {}, "groups"),
    ],
)
def test_what_cannot_be_grouped(points, groups, more, message):
    with pytest.raises(ConfigError, match=message):
        microaggregate(points, groups, **more)
