"""Kind `points`: weighted points in a public convex set."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from support.helpers import sample

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.config import Config
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.planning.plan import plan
from fcstream.releases.tables.points import Points
from fcstream.synthetic.cells import FINE
from fcstream.synthetic.convex import REACH, BallCells, ConvexSet, RegionCounts

BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
POINTS = {**BARE, "kind": "points", "method": "cells", "rho": 1.0}
ONE = {"end": "1970-01-01T00:00:10Z"}
BALL = {**POINTS, "set": "ball", "center": [20.0, 50.0], "radius": 5.0}
SIMPLEX = [{"name": name, "min": 0.0, "max": 1.0} for name in "abc"]


def cloud(n, seed=0):
    """Two lumps."""
    rng = np.random.default_rng(seed)
    lump = rng.random(n) < 0.3
    return np.where(lump[:, None], [18.0, 52.0], [23.0, 47.0]) + rng.normal(0, 0.3, (n, 2))


def answer(release, raw, seed=1, **sections):
    engine = Engine(
        Config.from_mapping(sample(release=release, window=ONE, **sections)), noise=Noise(SeededEntropy(seed))
    )
    engine.push(np.zeros(len(raw), np.int64), raw)
    return engine.close()[0]


SETS = {
    "box": ConvexSet("box", (10, 0), 30, (0.0, -10.0), (20.0, 10.0)),
    "ball": ConvexSet("ball", (10, -5), 30),
    "simplex": ConvexSet("simplex", (10, 10, 10), 31, total=30.0),
}


@pytest.mark.parametrize("name", SETS)
def test_projections_are_the_nearest_points(name):
    region, rng = SETS[name], np.random.default_rng(0)
    d = len(region.center)
    limits = {
        "box": [{"type": "ineq", "fun": lambda x: np.concatenate([x - region.low, region.high - x])}],
        "ball": [{"type": "ineq", "fun": lambda x: region.radius**2 - np.sum((x - region.center) ** 2)}],
        "simplex": [{"type": "ineq", "fun": lambda x: x}, {"type": "eq", "fun": lambda x: x.sum() - region.total}],
    }[name]
    for point in rng.normal(0, 40, size=(15, d)):
        found = minimize(lambda x, p=point: np.sum((x - p) ** 2), region.center, constraints=limits, tol=1e-12).x
        assert region.nearest(point[None, :])[0] == pytest.approx(found, abs=1e-3)


def test_every_record_is_within_the_ball_and_has_a_cell_of_its_own_making():
    region = ConvexSet("ball", (0, 0, 0), 1000)
    rng = np.random.default_rng(1)
    raw = np.rint(
        np.concatenate([rng.normal(0, 2000, (300, 3)), [[0, 0, 0], [1000, 0, 0], [-577, 577, 577], [9e11, 1, 1]]])
    )
    small = region.small(raw)
    assert (small * small).sum(axis=1).max() <= REACH**2
    inside = np.linalg.norm(raw, axis=1) < 1000
    assert np.abs(small[inside] - raw[inside] * REACH / 1000).max() < 1.0
    assert (np.concatenate([region.small(row[None, :]) for row in raw]) == small).all()
    directions = np.linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    whole = tuple(map(tuple, np.rint(directions * FINE).astype(int).tolist()))
    cells = BallCells(whole, (12345, -999), REACH * FINE // 3)
    boxes = {tuple(box) for box in cells.boxes().tolist()}
    edge = np.trunc(directions * REACH).astype(np.int64)
    for row in [*small.tolist(), *edge.tolist(), *(-edge).tolist()]:
        place = tuple(
            (sum(d * x for d, x in zip(w, row, strict=True)) - c) // cells.width
            for w, c in zip(whole, cells.center, strict=True)
        )
        assert place in boxes
    counts, sums = cells.sums(small)
    assert (len(counts), counts.sum()) == (len(boxes), len(raw))
    assert sums.sum(axis=0).tolist() == small.sum(axis=0).tolist()


def test_where_a_record_is_drawn_to_depends_on_it_alone():
    """Not on who else is there, nor on the layout in memory: sums along rows would round in another order."""
    region = ConvexSet("ball", (0,) * 16, 1000)
    raw = np.arange(300.0, 4000.0)[:, None] * np.ones(16)  # all of them are drawn to 4096, or a little below
    alone = np.concatenate([region.small(row[None, :]) for row in raw])
    for layout in (raw, np.asfortranarray(raw), np.repeat(raw, 2, axis=1)[:, ::2]):
        assert (region.small(layout) == alone).all()


def test_moments_are_exact_whatever_the_batches():
    region, rng = ConvexSet("ball", (0, 0), 10**6), np.random.default_rng(2)
    raw = np.rint(rng.normal(0, 4e5, (9000, 2)))
    one, two = RegionCounts(region), RegionCounts(region)
    one.add(0, raw)
    two.add(0, raw[:1])
    two.add(3, raw[1:])
    small = region.small(raw).tolist()
    twin = [[sum(row[i] * row[j] for row in small) for j in range(2)] for i in range(2)]
    assert one.view([0]).moments.tolist() == two.view([0, 3]).moments.tolist() == twin
    two.drop(0)
    assert len(two.view([0, 3, 5]).rows) == 8999
    assert (two.panes, len(two.view([]).rows)) == ([3], 0)


def test_sensitivities_and_what_the_parts_cost():
    mechanism = Config.from_mapping(sample(release={**BALL, "rho": 0.123456}, window=ONE)).job.answers[0].mechanism
    worst = [(x, y) for x, y in itertools.product(range(-REACH, REACH + 1, 512), repeat=2) if x * x + y * y <= REACH**2]
    assert max(x * x + y * y for x, y in worst) == REACH**2
    assert max(x**4 + 2 * (x * y) ** 2 + y**4 for x, y in worst) == REACH**4  # a pair has half of a square's noise
    mean, pairs, counts, sums = mechanism.variances
    cost = Fraction(2 * REACH**2) / (2 * mean) + Fraction(REACH**4) / (2 * pairs) + 1 / (2 * counts)
    cost += Fraction(REACH**2) / (2 * sums)
    assert cost <= Fraction(mechanism.loss.rho_nano, 10**9)
    assert float(cost) == pytest.approx(mechanism.loss.rho, rel=1e-4)
    assert sum(mechanism.shares) == mechanism.loss.rho_nano


@pytest.mark.parametrize("release", [POINTS, BALL], ids=["box", "ball"])
def test_points_lie_where_the_data_do(release):
    found = answer({**release, "rho": 2.0}, cloud(8000))
    assert found.reason is None
    points, weights = np.array(found.value), np.array(found.parts["weights"])
    assert weights.sum() == pytest.approx(1)
    assert weights @ points == pytest.approx(cloud(8000).mean(axis=0), abs=0.3)
    assert len(found.parts["counts"]) >= len(points)
    if release is BALL:
        assert (np.linalg.norm((points - [20, 50]) / [1, 2], axis=1) <= 5.001).all()
        near = np.abs(points - [18, 52]).max(axis=1) < 1.2
        assert weights[near].sum() == pytest.approx(0.3, abs=0.1)


def test_points_of_a_simplex():
    raw = np.random.default_rng(3).dirichlet([1.0, 2.0, 5.0], 6000)
    config = {**sample(release={**POINTS, "set": "simplex", "total": 1.0}, window=ONE), "features": SIMPLEX}
    engine = Engine(config, noise=Noise(SeededEntropy(2)))
    engine.push(np.zeros(6000, np.int64), raw)
    found = engine.close()[0]
    points = np.array(found.value)
    assert points.sum(axis=1) == pytest.approx(1)
    assert points.min() >= -1e-12
    assert found.parts["weights"] @ points == pytest.approx(raw.mean(axis=0), abs=0.03)


@pytest.mark.slow
def test_the_whole_release_stays_below_its_claim_and_weak_noise_is_caught():
    """The record more lies at the far end of the ball."""
    from support.audits import epsilon_lower_bound

    mechanism = Points(PrivacyLoss.charge(0.25), ConvexSet("ball", (0, 0), 1000))
    one, delta = np.zeros((400, 2)), 1e-3
    claim = epsilon_tight(0.25, delta)

    def told(rows, seed, factor=1):
        counter, out = RegionCounts(mechanism.region), []
        counter.add(0, rows)
        view = counter.view([0])
        for run in range(320):
            noise = Noise(SeededEntropy(seed + run))
            draw = noise.discrete_gaussian
            noise.discrete_gaussian = lambda v, n, draw=draw: draw(v * Fraction(factor) ** 2, n)
            ledger = open_ledger("memory:", Terms("t", "stream", PrivacyLoss.cap(1, 0), ""))
            charge = ledger.charge([Request(WindowKey(0, 1), mechanism.loss, (STREAM_BLOCK,))])[0].charge
            found = mechanism.release(view, charge, noise)
            counts, weights = sorted(found.parts["counts"]), np.array(found.parts["weights"])
            out.append([found.count, sum(counts), *counts[-2:], *(weights @ found.value)])
        return np.array(out)

    two = np.concatenate([one, [[1000.0, 0.0]]])
    assert epsilon_lower_bound(told(one, 0), told(two, 10**6), delta) < claim
    assert epsilon_lower_bound(told(one, 0, "0.04"), told(two, 10**6, "0.04"), delta) > claim


def test_few_records_are_refused_by_plan_and_window():
    found = answer({**POINTS, "rho": 0.01}, cloud(30))
    assert (found.reason, found.value) == ("too_few", None)
    assert found.rho < 0.002
    with pytest.raises(UnusablePlan, match="use longer windows"):
        plan(Config.from_mapping(sample(release={**POINTS, "rho": 0.01, "size_hint": 30})))
    lines = plan(Config.from_mapping(sample(release={**BALL, "size_hint": 5000}))).lines()
    assert any("weighted points in a ball of 2 dimensions" in line for line in lines)


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ({"set": "ball"}, r"release\.center: must be given"),
        ({"set": "ball", "center": [1.0], "radius": 1.0}, r"release\.center: must hold 2"),
        ({"set": "box", "radius": 1.0}, r"release\.radius: .*no other"),
        ({"set": "simplex"}, r"release\.total: must be given"),
        ({"set": "simplex", "total": 1.0}, r"features: must be at least two features without"),
        ({"set": "ring"}, r"release\.set"),
        ({"rho": 1e-7}, r"release\.rho"),
    ],
)
def test_rules(release, message):
    with pytest.raises(ConfigError, match=message):
        Config.from_mapping(sample(release={**POINTS, **release}))
    assert math.isfinite(Config.from_mapping(sample(release=POINTS)).job.answers[0].mechanism.forecast(10).sigma)
