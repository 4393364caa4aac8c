"""Private directions: their law on the sphere, and what finds and covers them."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from support.tables import table

from fcstream import Noise, SeededEntropy
from fcstream.releases.tables import synthetic_paper
from fcstream.synthetic.bingham import envelope, log_acceptance, proj, pvec
from fcstream.synthetic.cells import FINE, covering, rounded


def circle(matrix, low, high):
    """Mass of exp(<Ax, x>) on the circle between two angles."""
    return integrate.quad(
        lambda t: math.exp(np.array([math.cos(t), math.sin(t)]) @ matrix @ [math.cos(t), math.sin(t)]), low, high
    )[0]


@pytest.mark.parametrize("values", [(0.0, 0.0), (3.0, 1.0), (30.0, 0.0)])
def test_pvec_has_its_law_on_the_circle(values):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    matrix = turn @ np.diag(values) @ turn.T
    noise = Noise(SeededEntropy(1))
    drawn = pvec(matrix, noise, 4000)
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(1)
    edges = np.linspace(-math.pi, math.pi, 13)
    seen = np.histogram(np.arctan2(drawn[:, 1], drawn[:, 0]), edges)[0]
    for wrong, passes in ((1.0, True), (1.6, False)):
        mass = np.array([circle(wrong * matrix, a, b) for a, b in itertools.pairwise(edges)])
        held = mass / mass.sum() * 4000 > 5
        expected = np.append(mass[held], mass[~held].sum() + 1e-12) / mass.sum() * 4000
        p = (
            stats.chisquare(np.append(seen[held], seen[~held].sum()), expected).pvalue
            if expected[-1] > 1
            else (stats.chisquare(seen[held], mass[held] / mass[held].sum() * seen[held].sum()).pvalue)
        )
        assert (p > 1e-4) == passes or not any(values)


def test_pvec_has_its_law_on_the_sphere():
    """Second moments against numeric integration in three dimensions."""
    values = np.array([4.0, 1.0, 0.0])
    noise = Noise(SeededEntropy(2))
    drawn = pvec(np.diag(values), noise, 4000)

    def mass(weight):
        return integrate.dblquad(
            lambda z, t: weight(math.sqrt(1 - z * z) * math.cos(t), math.sqrt(1 - z * z) * math.sin(t), z)
            * math.exp((1 - z * z) * (values[0] * math.cos(t) ** 2 + values[1] * math.sin(t) ** 2)),
            0, 2 * math.pi, -1, 1, epsabs=1e-4,
        )[0]  # fmt: skip

    whole = mass(lambda x, y, z: 1.0)
    for k, weight in enumerate((lambda x, y, z: x * x, lambda x, y, z: y * y, lambda x, y, z: z * z)):
        assert (drawn[:, k] ** 2).mean() == pytest.approx(mass(weight) / whole, abs=0.02)
    assert np.abs(drawn.mean(axis=0)).max() < 0.06


@pytest.mark.parametrize("q", [2, 3, 5, 16])
def test_proposals_are_never_too_likely_and_often_enough_taken(q):
    rng, noise = np.random.default_rng(q), Noise(SeededEntropy(q))
    for scale in (0.0, 1.0, 50.0, 1e4):
        gaps = np.append(rng.random(q - 1) * scale, 0.0)
        b = envelope(gaps)
        assert np.sum(1 / (b + 2 * gaps)) == pytest.approx(1, rel=1e-6)
        x = noise.normals(4000 * q).reshape(-1, q) / np.sqrt(1 + 2 * gaps / b)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        logs = log_acceptance(x, gaps, b)
        assert logs.max() < 1e-9
        assert log_acceptance(x, gaps, 0.7 * b).max() < 1e-9, "a rounded b would be harmful"
        assert np.exp(logs).mean() > 0.97 * math.sqrt(2 / (math.e * q))


def test_proj_is_orthonormal_and_finds_what_is_large():
    noise, matrix = Noise(SeededEntropy(3)), np.diag([300.0, 200.0, 0.0, 0.0, 0.0])
    for _ in range(20):
        found = proj(matrix, 2, noise)
        assert found @ found.T == pytest.approx(np.eye(2), abs=1e-9)
        assert (found[:, :2] ** 2).sum() > 1.9


def largest_loss(one, two):
    """Of PVEC on the circle, exactly: the largest log ratio of the two densities."""
    whole = math.log(circle(one, 0, 2 * math.pi) / circle(two, 0, 2 * math.pi))
    angles = [np.array([math.cos(t), math.sin(t)]) for t in np.linspace(0, math.pi, 721)]
    return max(abs(x @ (one - two) @ x - whole) for x in angles)


@pytest.mark.parametrize(("parts", "is_private"), [(synthetic_paper.PARTS, True), (3, False)])
def test_correcting_one_of_two_slips_is_caught(parts, is_private):
    """One of errata 5.1 and 5.2 put right and the other left as printed would use n epsilon / (3 t) S."""
    from support.audits import epsilon_lower_bound

    epsilon, others = 6.0, 2.0  # points of the unit ball: one record e1 becomes e2
    step = epsilon / parts
    one, two = np.diag([step, others]), np.diag([0.0, others + step])
    claim = epsilon / 3
    assert (largest_loss(one, two) <= claim) == is_private
    first, second = Noise(SeededEntropy(4)), Noise(SeededEntropy(5))
    drawn = [pvec(matrix, noise, 60_000) ** 2 for matrix, noise in ((one, first), (two, second))]
    assert (epsilon_lower_bound(*drawn, 0.0) <= claim) == is_private


def test_the_covering_covers_and_the_nearest_is_nearest():
    rng = np.random.default_rng(6)
    for axes, alpha in ((1, 0.6), (2, 0.55), (3, 0.5)):
        cover = covering(axes, alpha)
        points = rng.normal(size=(500, axes))
        points /= np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))
        far = np.linalg.norm(points[:, None] - cover * alpha / math.sqrt(axes), axis=2).min(axis=1)
        assert far.max() <= alpha
        assert (np.linalg.norm(cover * alpha / math.sqrt(axes), axis=1) <= 1 + 1e-12).all()
    bits = table(60, [2] * 8)
    directions = [rounded(one) for one in np.linalg.qr(rng.normal(size=(8, 2)))[0].T]
    cover = covering(2, 0.55)
    found = synthetic_paper.nearest(bits, directions, cover, 0.55)
    places = bits @ np.array(directions).T / FINE / math.sqrt(8)
    gaps = np.linalg.norm(places[:, None] - cover * 0.55 / math.sqrt(2), axis=2)
    assert gaps[np.arange(60), found] == pytest.approx(gaps.min(axis=1), abs=1e-5)
    assert covering(0, 0.5).shape == (1, 0)
