"""Means of everybody, whose far records are moved to the border of a ball; and what means tell of their tails."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive_clipping
from support.helpers import data_file, sample
from support.windows import charge_for, view_of

import fcstream
from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.noise.samplers import MAX_VARIANCE, Noise, SeededEntropy
from fcstream.releases.intervals import interval_of
from fcstream.releases.means.box_average import box_variances
from fcstream.releases.means.clipped_mean import ClippedMean
from fcstream.releases.means.mean import RecentredMean
from fcstream.releases.means.spread_histogram import best_reach, clipping_radii, histogram_radii
from fcstream.releases.trees.growing import PublicBox

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


def mechanism_of(d, size, half=10**6, radius=500, loss=LOSS, **more):
    box = PublicBox((-half,) * d, (half,) * d)
    return ClippedMean(loss, box, int(radius * math.sqrt(d)) ** 2, size, **more)


@pytest.mark.parametrize("half", [10**4, 10**6, 2**35])
@pytest.mark.parametrize("name", ["normal", "skewed", "far"])
@pytest.mark.parametrize(("size", "d"), [(400, 1), (600, 3), (500, 40)])
def test_a_release_equals_the_naive_twin(name, size, d, half):
    mechanism = mechanism_of(d, size, half)
    view = view_of(points_of(name, size, d, d), None)
    outcome = mechanism.release(view, charge_for(LOSS), Noise(SeededEntropy(7)))
    twin = naive_clipping.mean_of_all(mechanism, view.points().tolist(), Noise(SeededEntropy(7)))
    value, sigma, interval, count, share = twin
    assert outcome.value.tolist() == pytest.approx(value, rel=1e-12)
    assert outcome.sigma.tolist() == pytest.approx(sigma, rel=1e-12)
    assert outcome.core_count == outcome.count == count
    assert outcome.parts == {"tail_share": share}
    if interval is None:
        assert outcome.interval is None
    else:
        assert np.ravel(outcome.interval).tolist() == pytest.approx(np.ravel(interval).tolist(), rel=1e-12)


def test_features_of_very_different_ranges_are_released_each_in_its_own():
    """One whose range is 2**35 times that of another is no reason for more noise in that, or for none."""
    box, points = PublicBox((-(2**36), 0), (2**36, 100)), np.tile([1000.0, 30.0], (4000, 1))
    mechanism = ClippedMean(LOSS, box, 10**4, 4000)
    outcome = mechanism.release(view_of(points, None), charge_for(LOSS), Noise(SeededEntropy(7)))
    twin = naive_clipping.mean_of_all(mechanism, points.tolist(), Noise(SeededEntropy(7)))
    assert outcome.value.tolist() == pytest.approx(twin[0], rel=1e-12)
    assert 0 < outcome.sigma[1] < 0.1
    assert abs(outcome.value[1] - 30) < 5 * outcome.sigma[1]
    assert (outcome.interval[:, 0] <= points[0]).all()
    assert (points[0] <= outcome.interval[:, 1]).all()


@pytest.mark.parametrize("radius", [1000, 10**5, 10**7])
def test_whatever_records_choose_its_noise_can_be_drawn(radius):
    """Whether the last sum is one in the public ranges is read from the records; it may have less than the first."""

    def accepted(rho_nano):
        try:
            return mechanism_of(3000, 10**6, 2**26 - 1, radius, PrivacyLoss(rho_nano))
        except ConfigError:
            return None

    found = [accepted(rho_nano) for rho_nano in (25_000, 40_000, 60_000, 80_000, 200_000)]
    assert found[0] is None
    assert found[-1] is not None
    for mechanism in filter(None, found):
        assert max(box_variances(mechanism.box, mechanism.final.sum_nano)) <= MAX_VARIANCE


def test_steps_lead_to_records_where_the_public_ranges_are_wide():
    assert mechanism_of(1, 5000, 2000).steps == ()  # the mean of all is near enough
    steps = mechanism_of(40, 500, 2**30).steps
    assert 1 <= len(steps) <= 4
    assert list(steps) == sorted(steps, reverse=True)


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
    mechanism = RecentredMean(LOSS, 1000**2, 1, 2000)
    bins = np.zeros(len(mechanism._edges) + 1, np.int64)
    near, far = 15, 40
    bins[near - 4 : near + 1], bins[far : far + 3], bins[far + 7 : far + 11] = 300, 40, (6, -5, 7, -4)
    reach, tail = mechanism._read(bins, 9.0, 0.2)
    assert mechanism._edges[near] < reach < mechanism._edges[far - 1]
    assert tail == 120


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
    left_out, without = errors(SKEWED, outliers="leave_out")
    clipped, answers = errors(SKEWED)
    assert clipped < 0.1 * left_out
    assert clipped < 4 * np.median([math.hypot(*answer.sigma) for answer in answers])
    assert np.median([answer.parts["tail_share"] for answer in answers]) < 0.02
    assert 0.05 < np.median([answer.parts["tail_share"] for answer in without]) < 0.2
    assert {answer.interval for answer in without} == {None}
    assert all(answer.parts["no_interval"] == {"value": "left_out"} for answer in without)


def test_clipping_is_the_default():
    told = {**ARRAY, "noise": Noise(SeededEntropy(1))}
    asked = {**ARRAY, "noise": Noise(SeededEntropy(1)), "outliers": "clip", "delta": 0.0}
    assert fcstream.private_mean(SKEWED, **told) == fcstream.private_mean(SKEWED, **asked)
    with pytest.raises(ConfigError, match=r"^release.delta|^delta"):
        fcstream.private_mean(SKEWED, **{**ARRAY, "delta": 0.0}, outliers="leave_out")


def test_normal_data_lose_little():
    rows = np.random.default_rng(5).normal(20, 1, (3000, 2))
    sigma = [np.hypot(*errors(rows, 3, outliers=way)[1][0].sigma) for way in ("leave_out", "clip")]
    assert sigma[1] < 1.8 * sigma[0]  # half of rho is for the number of records and for the interval


def held(rows, seeds=60, **parameters):
    """How many intervals of each column hold the mean of all rows, in how many answers."""
    truth, answers = rows.mean(axis=0), errors(rows, seeds, **parameters)[1]
    ends = np.array([answer.interval for answer in answers])
    assert all(np.array(answer.interval)[:, 0].tolist() <= answer.value for answer in answers)
    return ((ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])).sum(axis=0)


COLUMNS = {
    "normal": lambda random: random.normal(20, 1, 2000),
    "skewed": lambda random: random.lognormal(0, 2, 2000),
    "heavy": lambda random: np.minimum(random.pareto(1.1, 2000), 900),
    "few far out": lambda random: np.append(random.normal(5, 1, 1990), np.full(10, 1000.0)),
    "at a border": lambda random: np.where(np.arange(2000) % 50 == 0, 900.0, -1000.0),
    "constant": lambda random: np.full(2000, 7.0),
    "two values": lambda random: np.where(np.arange(2000) % 3 == 0, 1.0, 0.0),
}


@pytest.mark.parametrize("rho", [0.05, 1.0])
@pytest.mark.parametrize("name", COLUMNS)
def test_intervals_hold_the_mean_of_all_records_whatever_they_are(name, rho):
    """Of 60 each with a probability of 95%: fewer than 51 have one of 1 in 10,000."""
    rows = COLUMNS[name](np.random.default_rng(8)).reshape(-1, 1)
    for bounds in ((-1000, 1000), (-10_000, 10_000)):
        assert held(rows, rho=rho, size_hint=2000, bounds=bounds, step=0.001).min() >= 51


def test_an_interval_is_that_of_the_noise_where_nobody_is_moved():
    rows = np.random.default_rng(5).uniform(0, 10, (3000, 1))
    answer = fcstream.private_mean(rows, **{**ARRAY, "bounds": (0, 10)}, noise=Noise(SeededEntropy(3)))
    assert answer.interval == interval_of("normal", answer.value, answer.sigma)
    assert answer.parts == {"tail_share": 0.0}


def test_a_value_that_clipping_took_too_far_is_not_taken():
    """A third of the records lies so far out that noise hides no more than a part of what they move."""
    rows = np.append(np.zeros(4000), np.full(60, 1000.0)).reshape(-1, 1)
    told = {**ARRAY, "radius": 1, "rho": 20.0, "spread": 0.5, "size_hint": 4060}
    answer = fcstream.private_mean(rows, **told, noise=Noise(SeededEntropy(3)))
    assert abs(answer.value[0] - rows.mean()) < 4 * answer.sigma[0]
    assert answer.interval == interval_of("normal", answer.value, answer.sigma)


@pytest.mark.slow
def test_the_mean_of_real_ages_lies_in_its_interval():
    ages = np.loadtxt(data_file("adult_coded.csv.gz"), delimiter=",", skiprows=1, usecols=0).reshape(-1, 1)
    told = {"radius": 100, "rho": 0.02, "delta": 1e-8, "size_hint": 50_000, "step": 1, "bounds": (0, 100)}
    assert held(ages, **told)[0] >= 54


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
        ({"outliers": "clip", "method": "friendly"}, "outliers: must be 'leave_out' or a share: 'clip' belongs to"),
        ({"outliers": "clip", "method": "ball", "center": [0, 0]}, "outliers: must be 'leave_out' or a share"),
        ({"outliers": 0.1, "method": "friendly"}, "outliers: must be no share but with the methods"),
        ({"outliers": "cut"}, "outliers: must be a number, 'clip' or 'leave_out'"),
        (
            {"outliers": "clip", "method": "friendly", "radius": "search", "radius_min": 1, "radius_max": 9},
            "outliers: must be 'leave_out' with method 'friendly'",
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
    ball = {"method": "ball", "center": [1, 1]}
    for changes in ({"spread": 1.5}, ball, {"method": "friendly", "radius": 20}):
        parts = fcstream.private_mean(SKEWED, **{**ARRAY, **changes}).parts or {}
        assert "tail_share" not in parts


def test_a_public_ball_has_an_interval_where_it_holds_the_public_ranges():
    ball = {**ARRAY, "method": "ball", "center": [1, 1]}
    answer = fcstream.private_mean(SKEWED, **ball)
    assert (answer.interval, answer.parts) == (None, {"no_interval": {"value": "clipped"}})
    answer = fcstream.private_mean(SKEWED, **{**ball, "radius": 1416.0})
    assert answer.interval == interval_of("normal", answer.value, answer.sigma)
    assert fcstream.private_mean(SKEWED, **{**ball, "radius": 1415.0}).interval is None
