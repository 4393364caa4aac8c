"""Records on the ends of the lattice, which lie half a step beyond the public ranges, in every kind of release."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support.helpers import sample
from support.release_kinds import ALSO, BARE, RELEASES

import fcstream
from fcstream import Config, Engine, Noise, SeededEntropy
from fcstream.releases.statistics.sum import NoisySum, WindowSums
from fcstream.stream.lattice import Grid, exact

STEP, FEATURES = 0.5, [{"name": "a", "min": -10.25, "max": 40.25}, {"name": "b", "min": 0.25, "max": 100.25}]
CORNERS = [(low, high) for low in (-21, 81) for high in (0, 201)]
"""Lattice points: a step more than the ranges, whose coordinates as doubles are rounded to -20, 80, 0 and 200."""


def config_of(release, **changes):
    wanted = {"lattice": {"step": STEP}, "release": release, "window": {"end": "1970-01-01T00:00:10Z"}}
    wanted["budget"] = {"rho": 400.0, "delta": 1e-4}
    return Config.from_mapping(sample(**wanted) | {"features": FEATURES} | changes)


def grid_of():
    return config_of({**BARE, "kind": "sum"}).job.grid


def test_the_ends_lie_a_step_beyond_the_rounded_ranges():
    grid = grid_of()
    assert [grid.ends(feature) for feature in grid.features] == [(-21, 81), (0, 201)]
    assert grid.points(np.array([[-10.25, 0.25], [40.25, 100.25]])).tolist() == [[-20, 0], [80, 200]]
    points, inside = grid.located(np.array([[-10.74, -0.24], [40.74, 100.74], [-10.76, 0.3], [0.0, 100.76]]))
    assert points.tolist()[:2] == [[-21, 0], [81, 201]]
    assert inside.tolist() == [[True, True], [True, True], [False, True], [True, False]]


def test_a_balls_center_is_in_range_where_a_record_is():
    """Its coordinates are rounded to the lattice first, as those of records are."""
    ball = {"method": "ball", "radius": 30.0, "delta": None, "size_hint": None, "spread": None, "rho": 1.0}
    for center in ([40.25, 100.25], [40.25 + 1e-14, 100.25], [40.7, 0.0]):
        found = config_of({**ball, "center": center}).job.answers[0].mechanism.center
        assert found == tuple(grid_of().points(np.array([center]))[0].astype(int).tolist())
    with pytest.raises(fcstream.ConfigError, match=r"release\.center: must lie in the range of 'a', got 40\.8"):
        _ = config_of({**ball, "center": [40.8, 0.0]}).job


def sums_of(kind):
    mechanism = config_of(kind).job.answers[0].mechanism
    return mechanism if isinstance(mechanism, NoisySum) else mechanism.sums.inner


@pytest.mark.parametrize("kind", ["sum", "total"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_record_on_the_ends_moves_sums_by_at_most_their_sensitivity(kind, scale):
    mechanism = sums_of({**BARE, "kind": kind} | ({"epoch": "1m", "of": "sum"} if kind == "total" else {}))
    grid = grid_of()
    for origin in (0.0, 7.3):
        features = tuple(type(f)(f.name, f.minimum, f.maximum, scale, origin) for f in grid.features)
        changed = Grid(grid.lattice, features)
        for way in (mechanism, *NoisySum.ways(mechanism.loss, changed)):
            own = grid if way is mechanism else changed
            reached = 0
            for x, y in [(a, b) for a in own.ends(own.features[0]) for b in own.ends(own.features[1])]:
                moved = way.offsets(WindowSums(1, [x, y]))
                if not way.weight:  # what is not whole of the zeros is rounded up
                    moved = [Fraction(at) - each.zero for at, each in zip((x, y), way.ranges, strict=True)]
                reached = max(reached, sum(each * each for each in moved) + way.weight**2)
            assert reached <= way.sensitivity_squared < 1.1 * reached + 5  # and no more noise than that
            assert way.variance >= way.sensitivity_squared / (2 * Fraction(str(way.loss.rho)))


def test_users_sums_are_clipped_to_the_ends_that_their_sensitivity_has():
    release = {
        **BARE,
        "kind": "sum",
        "feature": "a",
        "per_user": "sum",
        "user_bounds": [-3.25, 12.25],
        "features": ["a"],
    }
    del release["feature"]
    job = config_of(release, stream={"name": "s", "unit": "user", "user": "id"}).job
    answer = job.answers[0]
    assert answer.selection.bounds == (-7.0, 25.0) == tuple(answer.mechanism.ranges[0][:2])


def test_conditions_and_bins_reach_the_ends():
    job = config_of({**BARE, "kind": "count", "where": {"a": {"min": 0.0}, "b": {"max": 100.25}}}).job
    spans = [condition.spans for condition in job.answers[0].selection.rows.where]
    assert spans == [((0.0, 81.0),), ((0.0, 201.0),)]
    histogram = config_of({**BARE, "kind": "histogram", "feature": "a", "edges": [-10.25, 0.1 + 0.2, 40.25]}).job
    mechanism = histogram.answers[0].mechanism
    assert mechanism.named == (-10.25, 0.1 + 0.2, 40.25)
    counter = mechanism.counter(2, 1, Noise())
    counter.add(0, np.array(CORNERS, np.float64))
    assert counter.view([0]).tolist() == [2, 2]


def test_what_depends_on_ranges_has_the_ends_of_the_lattice():
    """Trees, points, quantiles and covariances: a record on any corner is one that their costs and boxes know."""

    def mechanism(**release):
        return config_of({**BARE, **release}).job.answers[0].mechanism

    low, high = (-21, 0), (81, 201)
    by_tree = [{"kind": "tree"}, {"kind": "centers", "k": 3, "method": "tree"}, {"kind": "points", "method": "tree"}]
    for box in (mechanism(**release).box for release in by_tree):
        assert (box.low, box.high) == (low, high)
    zooming = config_of({**BARE, "kind": "mean", "method": "tracking"}).job.answers[0].mechanism
    assert (zooming.box.low, zooming.box.high) == (low, high)
    region = mechanism(kind="points", method="cells").region
    assert (tuple(region.low), tuple(region.high)) == (low, high)
    assert all(math.dist(region.center, corner) <= region.radius for corner in CORNERS)
    quantiles = mechanism(kind="quantiles", feature="b", quantiles=[0.5])
    clipped = mechanism(kind="covariance", size_hint=2000, target="b")
    assert (quantiles.column.lowest, quantiles.column.highest) == (0, 201)
    assert [(each.lowest, each.highest) for each in clipped.columns] == [(-21, 81), (0, 201)]
    assert clipped.ladder[-1] >= 102**2 + 201**2 or clipped.learns
    ball = mechanism(kind="centers", method="friendly", k=3, delta=1e-8, size_hint=2000, rho=4.0).inner
    far = max(math.dist(np.array(corner) * STEP, ball.job.center) for corner in CORNERS)
    assert far <= ball.job.ball * (1 + 1e-12)


NUMBERS = {
    name: release
    for name, (release, _) in {**RELEASES, **ALSO}.items()
    if name not in ("count", "histogram") and release.get("radius") != "search"
}
SLOW = ("centers", "mixtures", "synthetic", "covariance/friendly")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name.startswith(SLOW) else name for name in NUMBERS],
)
def test_a_window_of_records_on_the_ends_is_answered_within_the_ranges(name):
    release = {**NUMBERS[name]}
    if name.startswith(("synthetic", "marginals")):
        release["edges"] = {"a": [-10.25, 0.0, 30.0], "b": [20.0, 60.0, 100.25]}
    for corner in ([40.7, 100.7], [-10.7, -0.2]):
        engine = Engine(config_of(release), noise=Noise(SeededEntropy(3)))
        engine.push(np.full(2000, 1000), np.tile(corner, (2000, 1)))
        (found,) = engine.close()
        assert engine.rejected == {}
        if found.value is None or found.kind in (
            "sum",
            "total",
            "variance",
            "covariance",
            "marginals",
            "tree",
            "synthetic",
        ):
            continue
        for row in np.asarray(found.value, np.float64).reshape(-1, len(found.features or ())).tolist():
            for number, feature in zip(row, found.features, strict=True):
                low, high = (-10.25, 40.25) if feature == "a" else (0.25, 100.25)
                assert low <= number <= high, (name, feature)


def test_a_quantile_prints_the_decimal_that_it_is():
    features = [{"name": "a", "min": 0.0, "max": 0.3}]
    release = {**BARE, "kind": "quantiles", "quantiles": [0.5, 0.9], "rho": 100.0}
    engine = Engine(config_of(release, features=features, lattice={"step": 0.1}), noise=Noise(SeededEntropy(3)))
    engine.push(np.full(1000, 1000), np.full((1000, 1), 0.1 + 0.2))
    assert engine.close()[0].value == [0.3, 0.3]
    assert exact(0.3) == Fraction(3, 10)


def test_a_learned_scale_as_wide_as_the_range_refuses_nothing_after_the_charge():
    """A step of 1.5 scales is wider than the range then, which is found by records and so stops no window."""
    rows = np.repeat([[0.0], [1.0]], 20_000, axis=0)
    asked = {"radius": 6.0, "rho": 50.0, "delta": 1e-6, "size_hint": 40_000, "step": 1.5, "bounds": (0, 1)}
    found = fcstream.private_mean(rows, **asked, scale="learned", noise=Noise(SeededEntropy(1)))
    assert found.status == "released"
    assert found.parts["scale"][0] * 1.5 > 1.0
