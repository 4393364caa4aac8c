"""Means of everybody, whose far records are moved to the border of a ball; and what means tell of their tails."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive_clipping
from support.helpers import sample
from support.windows import charge_for, view_of

import fcstream
from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.core_stage import find_core
from fcstream.releases.means.mean import RecentredMean
from fcstream.releases.means.spread_histogram import best_reach, clipping_radii, histogram_radii

LOSS = PrivacyLoss.charge(1, 1e-9)


def points_of(name, size, d, seed):
    random = np.random.default_rng(seed)
    if name == "normal":
        return np.rint(random.normal(0, 100, (size, d)))
    if name == "far":
        rows = random.normal(0, 100, (size, d))
        rows[: size // 20] += 1e8
        return np.rint(rows)
    return np.rint(100 * random.pareto(2.0, (size, d)))


@pytest.mark.parametrize("name", ["normal", "skewed", "far"])
@pytest.mark.parametrize(("size", "d"), [(400, 1), (600, 3), (500, 40)])
def test_a_release_equals_the_naive_twin(name, size, d):
    mechanism = RecentredMean(LOSS, int(500 * math.sqrt(d)) ** 2, d, size, clips=True)
    points = points_of(name, size, d, d)
    view = view_of(points, mechanism.radius_squared)
    outcome = mechanism.release(view, charge_for(LOSS), Noise(SeededEntropy(7)))
    noise, charge = Noise(SeededEntropy(7)), charge_for(LOSS)
    charge.open(LOSS)
    core = find_core(mechanism.core, mechanism.stop, view, charge, noise)
    rough = mechanism.center.release(view.select(core.mask), noise)
    value, sigma, count, share = naive_clipping.mean_of_all(mechanism, view.points().tolist(), rough, noise)
    assert outcome.value.tolist() == value
    assert outcome.sigma.tolist() == pytest.approx(sigma, rel=1e-12)
    assert outcome.core_count == count
    assert outcome.parts == {"tail_share": share}


@settings(max_examples=60)
@given(
    st.lists(st.integers(-30, 80), min_size=3, max_size=70),
    st.floats(0.5, 400.0),
    st.floats(1e-6, 1.0),
    st.booleans(),
)
def test_the_radius_equals_the_naive_twin(bins, variance, unit, clips):
    edges = 3.7 * 1.14 ** np.arange(len(bins) - 1)
    reach, top = best_reach(np.array(bins), edges, variance, unit, clips=clips)
    found = naive_clipping.reach_of(bins, edges.tolist(), variance, unit, *((4, 4) if clips else (16, 8)))
    assert top == found[2]
    assert reach == pytest.approx(found[0]) or unit * reach == pytest.approx(unit * found[0])


@pytest.mark.parametrize("d", [1, 4, 31, 1000])
@pytest.mark.parametrize("radius_squared", [1, 10**6, 2**40, 2**53 - 1])
def test_bins_reach_to_the_largest_exact_ball(d, radius_squared):
    bounds = clipping_radii(radius_squared, d)
    wanted = naive_clipping.bounds_of(radius_squared, d)
    assert bounds == pytest.approx(np.array(wanted, float), rel=1e-12, abs=1)  # powers may be rounded differently
    assert (np.diff(bounds) >= 0).all()
    assert 2**51 < bounds[-1] <= 2**53 - 1


def test_noise_alone_hardly_ever_makes_a_ball_wide():
    """Empty bins far out, and more of them than those that hold points: at most 1 noise in 100 reaches there."""
    bounds = clipping_radii(10**8, 3)
    edges, rng = np.sqrt(bounds), np.random.default_rng(17)
    held = np.zeros(len(bounds) + 1, np.int64)
    held[8:13] = 500, 1200, 1800, 1200, 300
    noises = np.rint(rng.normal(0, 4, (300, len(held)))).astype(np.int64)
    wide = sum(best_reach(held + noise, edges, 16.0, 0.001, clips=True)[0] > edges[19] for noise in noises)
    assert wide <= 3


def test_noise_alone_does_not_make_the_ball_of_a_core_wide():
    """74 bins, of which the upper 36 are empty: a bar of three deviations would be passed by 1 noise in 12."""
    edges, rng = np.sqrt(histogram_radii(10**8)), np.random.default_rng(17)
    held = np.zeros(len(edges) + 1, np.int64)
    held[20:38] = 40, 60, 90, 140, 200, 300, 420, 560, 700, 760, 700, 560, 420, 300, 200, 140, 90, 60
    found = [
        best_reach(held + noise, edges, 100.0, 0.001, clips=False)[0] / edges[37]
        for noise in np.rint(rng.normal(0, 10, (1500, len(held)))).astype(np.int64)
    ]
    assert sum(each > 1.5 for each in found) <= 1
    assert np.quantile(found, 0.05) > 0.8  # and no point is lost that stands out


def test_a_little_more_noise_moves_the_radius_a_little():
    """Two groups of points, one of them few and far: as noise grows the ball shrinks, without a jump by a bin."""
    edges = np.sqrt(histogram_radii(10**8))
    held = np.zeros(len(edges) + 1, np.int64)
    held[20:60] = np.rint(2000 * 0.85 ** np.arange(40))
    found = [best_reach(held, edges, 20.0, unit, clips=False)[0] for unit in np.geomspace(1e-4, 0.3, 60)]
    assert found == sorted(found, reverse=True)
    assert max(found) > 3 * min(found)
    assert min(b / a for a, b in itertools.pairwise(found)) > 0.9


def test_the_tail_is_counted_to_its_end():
    """Bins beyond the one that holds the radius, up to the last one that stands out; of everybody all of them."""
    for clips, noise in ((False, 0), (True, 4)):
        mechanism = RecentredMean(LOSS, 1000**2, 1, 2000, clips=clips)
        edges = mechanism._edges
        bins = np.zeros(len(edges) + 1, np.int64)
        near, far = (5, 12) if clips else (15, 40)
        bins[near - 4 : near + 1], bins[far : far + 3], bins[far + 7 : far + 11] = 300, 40, (6, -5, 7, -4)
        reach, tail = mechanism._read(bins, 9.0, 0.2)
        assert edges[near] < reach < edges[far - 1]
        assert tail == 120 + noise


SKEWED = np.random.default_rng(4).lognormal(0.0, 1.0, (3000, 2))
ARRAY = {"radius": 6, "rho": 1, "delta": 1e-9, "size_hint": 3000, "step": 1e-3, "bounds": (-1000, 1000)}


def errors(rows, seeds=6, **parameters):
    answers = [
        fcstream.private_mean(rows, **{**ARRAY, **parameters}, noise=Noise(SeededEntropy(seed)))
        for seed in range(seeds)
    ]
    distance = [math.dist(answer.value, rows.mean(axis=0)) for answer in answers]
    return math.sqrt(np.mean(np.square(distance))), answers


def test_the_mean_of_everybody_is_near_where_that_of_the_core_is_not():
    left_out, without = errors(SKEWED)
    clipped, answers = errors(SKEWED, outliers="clip")
    assert clipped < 0.1 * left_out
    assert clipped < 4 * np.median([math.hypot(*answer.sigma) for answer in answers])
    assert np.median([answer.parts["tail_share"] for answer in answers]) < 0.02
    assert 0.05 < np.median([answer.parts["tail_share"] for answer in without]) < 0.2


def test_normal_data_lose_little():
    rows = np.random.default_rng(5).normal(20, 1, (3000, 2))
    sigma = [np.hypot(*errors(rows, 3, outliers=way)[1][0].sigma) for way in (0.0, "clip")]
    assert sigma[1] < 1.4 * sigma[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{"scale": "learned", "step": 1e-3}, {"radius": "search", "radius_min": 0.1, "radius_max": 100}]
)
def test_learned_scales_and_searches_clip_too(more):
    distance, answers = errors(SKEWED[:1500], 2, outliers="clip", size_hint=1500, **more)
    assert distance < 0.3
    assert all("tail_share" in answer.parts for answer in answers)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"outliers": "clip", "method": "friendly"}, "outliers: must be a share: 'clip' belongs to the method"),
        ({"outliers": "clip", "method": "ball", "center": [0, 0]}, "outliers: must be a share"),
        ({"outliers": "clip", "spread": 2.0}, "spread: must be 'histogram' where records are clipped"),
        ({"outliers": "cut"}, "outliers: must be a share of rows or 'clip'"),
        (
            {"outliers": "clip", "method": "friendly", "radius": "search", "radius_min": 1, "radius_max": 9},
            "outliers: belongs to the method 'recentered'",
        ),
    ],
)
def test_where_nothing_is_clipped(changes, what):
    with pytest.raises(ConfigError, match=what):
        fcstream.private_mean(SKEWED, **{**ARRAY, **changes})


def test_a_tracking_mean_refuses_to_clip():
    for radius in (3.0, None):
        with pytest.raises(ConfigError, match=r"release\.outliers"):
            Engine(sample(release={"method": "tracking", "outliers": "clip", "radius": radius, "spread": None}))


@pytest.mark.parametrize("release", [{"method": "tracking"}, {"method": "tracking", "radius": None, "spread": None}])
def test_every_window_of_a_tracking_mean_tells_its_tail(release):
    engine = Engine(
        sample(release={"size_hint": 1000, "rho": 1.0, **release}, budget={"rho": 50.0, "delta": 1e-4}),
        noise=Noise(SeededEntropy(3)),
    )
    random = np.random.default_rng(2)
    times = np.arange(6000) * 10
    rows = random.normal((20, 50), 0.3, (6000, 2))
    rows[::50] = 79.0, 99.0
    engine.push(times, rows)
    shares = [release.parts["tail_share"] for release in engine.close() if release.value is not None]
    assert len(shares) >= 4
    assert all(0 <= share < 0.2 for share in shares)


def test_a_public_spread_and_a_ball_tell_no_tail():
    for changes in ({"spread": 1.5}, {"method": "ball", "center": [1, 1]}, {"method": "friendly", "radius": 20}):
        assert fcstream.private_mean(SKEWED, **{**ARRAY, **changes}).parts is None
