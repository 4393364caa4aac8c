"""Means that start from the public ranges: their slow twin, what they pay, and how near a few dozen records come."""

import math

import numpy as np
import pytest
from support import naive_zooming
from support.helpers import Paid, sample
from support.windows import charge_for, view_of

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.planning.plan import plan
from fcstream.releases.base import Track
from fcstream.releases.floors import FALSE_RELEASE
from fcstream.releases.means.ball import BallMean
from fcstream.releases.means.zooming import ZoomingMean, min_sum, tail_of_sum
from fcstream.releases.trees.growing import PublicBox

BOX = PublicBox((-62_500, 0, -9_000, -11_500), (62_500, 20_000, 29_000, 11_500))
RHO = PrivacyLoss.charge(0.25)
WITHOUT = {"method": "tracking", "radius": None, "spread": None, "delta": None, "rho": 0.25}


def box_of(d):
    return PublicBox(BOX.low[:d], BOX.high[:d])


def window(d, seed, wild=0.0, middle=0.6, n=60):
    """Points of deviation 1,000 around a place in the box, some of them moved to its corner; which ones stayed."""
    rng, box = np.random.default_rng([seed, d]), box_of(d)
    low, high = np.array(box.low), np.array(box.high)
    points = np.rint(low + middle * (high - low) + rng.normal(size=(n, d)) * 1000)
    strays = rng.random(n) < wild
    points[strays] = high
    return points, ~strays


def follow(d, windows, seed, track=None):
    """Releases of windows one after another."""
    mechanism, found = ZoomingMean(RHO, box_of(d), track), []
    for k, points in enumerate(windows):
        outcome = mechanism.release(view_of(points), Paid(), Noise(SeededEntropy(1000 * seed + k)))
        found.append(outcome)
        mechanism = mechanism.after(outcome.track)
    return found


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_windows_are_those_of_the_slow_twin(d, seed):
    """Cold, warm, with everybody elsewhere, and of hardly any records."""
    windows = [window(d, seed, 0.05)[0], window(d, seed + 9, 0.05)[0], window(d, seed, middle=0.1)[0]]
    windows += [window(d, seed, n=8)[0], window(d, seed, 0.2)[0]]
    found, box = follow(d, windows, seed), box_of(d)
    state, nano = None, RHO.rho_nano
    for k, (points, outcome) in enumerate(zip(windows, found, strict=True)):
        noise = Noise(SeededEntropy(1000 * seed + k))
        if state is None:
            told = naive_zooming.start(points, nano, box, noise)
        else:
            (_, inside, everybody), rest = naive_zooming.look(points, *state, nano, box, noise)
            sum_nano, count_nano = naive_zooming.split(nano, d)
            doubt = math.sqrt(1.5 * 10**9 / (2 * count_nano))
            least = naive_zooming.least_of(count_nano, 6)
            elsewhere = everybody >= least and inside + doubt < 0.5 * everybody
            assert elsewhere == (k in (2, 4))
            told = naive_zooming.start(points, sum_nano, box, noise) if elsewhere else rest()
        assert (told is None) == (outcome.value is None) == (k == 3)
        if told is None:
            assert (outcome.track.center, outcome.track.reach) == state  # nobody says that they have moved
            continue
        value, sigma, place, following, share = told
        assert outcome.value.tolist() == value
        assert outcome.sigma == pytest.approx(sigma, rel=1e-12)
        assert outcome.track.center == place
        assert outcome.track.reach == following
        assert outcome.track.share == share
        state = place, following


def test_wide_ranges_are_summed_in_coarser_units():
    box = PublicBox((-(2**26), 5, 0), (2**26 + 9, 5, 3))
    points = np.rint(np.random.default_rng(0).normal([2**25, 5, 1], [9.0, 0, 1], (90, 3)))
    outcome = ZoomingMean(RHO, box).release(view_of(points), Paid(), Noise(SeededEntropy(3)))
    value, *_ = naive_zooming.start(points, RHO.rho_nano, box, Noise(SeededEntropy(3)))
    assert outcome.value.tolist() == value
    with pytest.raises(ConfigError, match=r"lattice\.step: must be larger"):
        ZoomingMean(RHO, PublicBox((0,), (2**29,)))


def test_stages_are_paid_one_by_one():
    """All of a cold start; the look's counts and a cold start with the rest; counts alone where there are too few."""
    near, far, few = window(2, 0)[0], window(2, 1, middle=0.1)[0], window(2, 2, n=8)[0]
    mechanism = ZoomingMean(RHO, box_of(2))
    charge = charge_for(RHO)
    track = mechanism.release(view_of(near), charge, Noise(SeededEntropy(1))).track
    assert charge.unused == PrivacyLoss()
    warm, seed = mechanism.after(track), 2
    for points, left in ((near, 0), (far, 0), (few, warm.look.average.sum_nano)):
        charge = charge_for(RHO)
        warm.release(view_of(points), charge, Noise(SeededEntropy(seed)))
        assert charge.unused == PrivacyLoss(left)
    charge = charge_for(RHO)
    assert mechanism.release(view_of(few), charge, Noise(SeededEntropy(4))).reason == "too_few"
    assert charge.unused == RHO - PrivacyLoss(mechanism.start.first.count_nano)


def test_the_noise_is_what_sigma_says():
    """The right scale of the noise passes, 0.85 and 1.2 of it would not."""
    points = window(2, 0, n=300)[0]
    middle = points.mean(axis=0)
    mechanism = ZoomingMean(RHO, box_of(2), Track([int(x) + 300 for x in middle], 1.0, 9000.0, 9000.0))
    view, errors = view_of(points), []
    for seed in range(300):
        outcome = mechanism.release(view, Paid(), Noise(SeededEntropy(seed)))
        errors.append((outcome.value - middle) / outcome.sigma)
    assert 0.92 < np.sqrt(np.mean(np.square(errors))) < 1.08


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("wild", [0.0, 0.05])
def test_from_the_tenth_window_on_it_is_as_near_as_a_ball_that_knows_center_and_spread(d, wild):
    found, known = [], []
    for seed in range(8):
        windows = [window(d, 100 * seed + k, wild) for k in range(16)]
        outcomes = follow(d, [points for points, _ in windows], seed)
        for outcome, (points, stayed) in list(zip(outcomes, windows, strict=True))[9:]:
            assert outcome.reason is None
            found.append(outcome.value - points[stayed].mean(axis=0))
        center = np.rint(np.array(BOX.low[:d]) + 0.6 * (np.array(BOX.high[:d]) - BOX.low[:d]))
        ball = BallMean(RHO, tuple(int(x) for x in center), int(1000 * (math.sqrt(d) + 2.3)) ** 2)
        for k, (points, stayed) in enumerate(windows[9:]):
            outcome = ball.release(view_of(points[stayed]), Paid(), Noise(SeededEntropy(50 * seed + k)))
            known.append(outcome.value - points[stayed].mean(axis=0))
    error, ideal = (math.sqrt(np.mean(np.square(some))) for some in (found, known))
    assert error < 1.3 * ideal


def test_a_jump_is_found_in_its_window_and_the_ball_shrinks_again():
    d = 2
    windows = [window(d, k, 0.05, 0.6 if k < 8 else 0.1)[0] for k in range(14)]
    for seed in range(4):
        outcomes = follow(d, windows, seed)
        assert all(outcome.reason is None for outcome in outcomes)
        target = np.array(BOX.low[:d]) + 0.1 * (np.array(BOX.high[:d]) - BOX.low[:d])
        assert np.linalg.norm(outcomes[8].value - target) < 20_000
        assert np.linalg.norm(outcomes[-1].value - target) < 1000
        assert outcomes[-1].track.reach < 5000


def test_windows_of_one_and_the_same_point_end_in_the_smallest_ball():
    outcomes = follow(2, [np.full((80, 2), 4000.0)] * 14, 0)
    assert outcomes[-1].track.reach <= 2
    assert outcomes[-1].value == pytest.approx([4000, 4000], abs=2)


def test_a_window_without_records_hardly_ever_has_a_value():
    for d in (1, 4, 40):
        box = PublicBox((0,) * d, (1000,) * d)
        assert 0 < ZoomingMean(RHO, box).false_release <= FALSE_RELEASE
    variance = ZoomingMean(RHO, box_of(2)).look.variance
    far = math.ceil(30 * math.sqrt(variance))
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * float(variance)))
    law = weights / weights.sum()
    whole = law
    for _ in range(4):
        whole = np.convolve(whole, law)
    for least in (1, 5, min_sum(variance, 5)):
        assert whole[5 * far + least :].sum() <= tail_of_sum(variance, 5, least)


def test_configurations_without_a_radius():
    job = Config.from_mapping(sample(release={**WITHOUT, "size_hint": 60}, budget={"delta": 0.0})).job
    mechanism = job.answers[0].mechanism
    assert isinstance(mechanism, ZoomingMean)
    assert mechanism.loss == RHO
    gated = Config.from_mapping(sample(release={**WITHOUT, "size_hint": 60, "delta": 1e-9})).job.answers[0].mechanism
    assert gated.loss == PrivacyLoss.charge(0.25, 1e-9)
    assert gated.inner.loss.delta_femto == 0
    for key, value in (("spread", 1.0), ("pairs", "blocks"), ("outliers", 0.1), ("radius_min", 1.0)):
        with pytest.raises(ConfigError, match=f"release.{key}: needs `release.radius`"):
            _ = Config.from_mapping(sample(release={**WITHOUT, "size_hint": 60, key: value})).job
    with pytest.raises(ConfigError, match=r"release\.rho: must be larger"):
        _ = Config.from_mapping(sample(release={**WITHOUT, "rho": 1e-6})).job


def test_plan_tells_that_sixty_records_suffice_and_six_do_not():
    found = plan(Config.from_mapping(sample(release={**WITHOUT, "size_hint": 60})))
    assert found.probability > 0.99
    assert any("public ranges" in line for line in found.notes)
    with pytest.raises(ConfigError, match="a window of 6 records"):
        plan(Config.from_mapping(sample(release={**WITHOUT, "size_hint": 6})))


def test_it_goes_on_after_a_restart(tmp_path):
    ledger, reaches = {"url": f"sqlite:{tmp_path / 'l.db'}"}, []
    for k in range(4):
        config = sample(release=WITHOUT, window={"end": "1970-01-01T00:02:00Z"}, ledger=ledger)
        engine = Engine(config, noise=Noise(SeededEntropy(k)))
        points = np.random.default_rng(k).normal([20, 50], 1, (60, 2))
        engine.push(np.full(60, 10_000 * k), points)
        (release,) = next(iter(engine.closing()))
        engine.acknowledge()
        engine.abort()
        assert (release.rho, release.delta) == (0.25, 0.0)
        reaches.append(release.track.reach)
    assert reaches[-1] < reaches[0]
    assert reaches[-1] < 5000
