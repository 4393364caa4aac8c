import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.windows import charge_for, everyone, view_of

import fcstream
from fcstream._kernels import sums
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cores.filters import ZCDPFilter, smallest_rho
from fcstream.errors import ConfigError
from fcstream.ledgers import WindowKey
from fcstream.ledgers.base import Charge
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.averages import (
    BallAverage,
    Estimate,
    FriendlyAverage,
    exact_sums,
    gaussian_variance,
    norm_quantile,
)
from fcstream.releases.base import Spread, Track
from fcstream.releases.core_stage import coin_noise, core_law
from fcstream.releases.means.ball import BallMean
from fcstream.releases.means.mean import FriendlyMean, RecentredMean
from fcstream.releases.means.shares import CORE_MARGINS, bin_noise, divide_for_exact_core, predicted_noise
from fcstream.releases.means.spread_histogram import supposed_deviation
from fcstream.releases.means.tracking import TrackingMean
from fcstream.releases.statistics.count import NoisyCount
from fcstream.stream.lattice import Lattice, sqrt_up

LOSS = PrivacyLoss.charge(1, 1e-8)


def clipped_sum(view, center, radius_squared, total):
    return sum(
        sums.clipped_sum(tiles, len(inside), inside, center, float(radius_squared), total)
        for tiles, inside in everyone(view).parts
    )


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_sums_and_histograms_equal_the_naive_twin(n, d, seed):
    rng = np.random.default_rng(seed)
    points = np.rint(rng.normal(size=(n, d)) * 50)
    mask = rng.random(n) < 0.6
    center = np.rint(rng.normal(size=d) * 10)
    view = view_of(points)
    assert exact_sums(view.select(mask)) == naive.masked_sum(points, mask)
    bounds = np.unique(np.floor(rng.uniform(1, 20000, 7)))
    out = np.zeros(len(bounds) + 1, np.int64)
    for tiles, inside in view.select(mask).parts:
        sums.masked_histogram(tiles, len(inside), inside, center, bounds, out)
    assert out.tolist() == naive.histogram(points, mask, center, bounds)


def test_sums_of_the_largest_coordinates_are_exact():
    points = np.full((300, 2), 2.0**40)
    points[::2, 1] = -(2.0**40) + 1
    assert exact_sums(everyone(view_of(points))) == [300 * 2**40, 150 * (2**40 - 2**40 + 1)]


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(1, 2**26), st.integers(0, 2**32 - 1))
def test_clipped_offsets_stay_in_the_ball_and_on_the_ray(d, radius, seed):
    """One record moves the sum by a vector of at most the radius: the sensitivity the noise is made for."""
    rng = np.random.default_rng(seed)
    radius_squared = min(radius * radius, 2**53 - 1)
    center = np.rint(rng.uniform(-(2**40), 2**40, d))
    length = float(rng.choice([0.5, 0.999999999, 1.0, 1.0000001, 2.0, 1e6]))
    direction = rng.normal(size=d)
    point = np.clip(np.rint(center + direction / np.linalg.norm(direction) * radius * length), -(2**40), 2**40)
    total = np.zeros(d, np.int64)
    view = view_of(point[None, :])
    assert clipped_sum(view, center, radius_squared, total) == 1
    offset = [int(p) - int(c) for p, c in zip(point, center, strict=True)]
    moved = total.tolist()
    assert sum(x * x for x in moved) <= radius_squared
    if sum(x * x for x in offset) <= radius_squared:
        assert moved == offset
    else:  # toward the point, and nearly all the way to the ball
        assert all(abs(m) <= abs(o) and m * o >= 0 for m, o in zip(moved, offset, strict=True))
        assert math.dist(moved, [0] * d) >= radius * (1 - 1e-9) - 2 * math.sqrt(d)


def test_clipping_does_not_depend_on_the_neighbors():
    rng = np.random.default_rng(5)
    points = np.rint(rng.normal(size=(150, 3)) * 100)
    whole, single = np.zeros(3, np.int64), np.zeros(3, np.int64)
    clipped_sum(view_of(points), np.zeros(3), 90**2, whole)
    for row in points:
        clipped_sum(view_of(row[None, :]), np.zeros(3), 90**2, single)
    assert whole.tolist() == single.tolist()


@given(st.fractions(min_value=0, max_value=10**12), st.integers(0, 80))
def test_sqrt_up_is_tight_and_never_below(value, bits):
    root = sqrt_up(value, bits)
    assert root * root >= value
    assert root == 0 or (root - Fraction(2, 2**bits)) ** 2 <= value or root < Fraction(2, 2**bits)


def test_gaussian_variance_is_rounded_up():
    exact = Fraction(49) * 10**9 / (2 * 333_333_333)
    assert exact <= gaussian_variance(49, 333_333_333) <= exact + Fraction(1, 1024)


def test_friendly_average_noise_covers_its_sensitivity():
    average = FriendlyAverage(LOSS, 50**2, 400)
    points = np.rint(np.random.default_rng(0).normal(size=(400, 4)) * 8)
    noise = Noise(SeededEntropy(1))
    for _ in range(20):
        estimate = average.release(everyone(view_of(points)), noise)
        assert estimate is not None
        rho2 = average._rho2_nano / 1e9
        assert estimate.sigma[0] >= 2 * 50 / estimate.count / math.sqrt(2 * rho2)
        assert estimate.sigma[0] <= 1.02 * 2 * 50 / estimate.count / math.sqrt(2 * rho2)
    assert average._rho1_nano + average._rho2_nano <= LOSS.rho_nano


def test_friendly_average_of_few_points_says_no():
    average = FriendlyAverage(LOSS, 50**2, 400)
    assert average.release(everyone(view_of(np.zeros((0, 2)))), Noise(SeededEntropy(1))) is None
    three = everyone(view_of(np.zeros((3, 2))))
    assert all(average.release(three, Noise(SeededEntropy(s))) is None for s in range(200))


def test_ball_average_splits_all_of_rho_and_has_the_right_noise():
    average = BallAverage.split(10**9, 16)
    assert average.sum_nano + average.count_nano == 10**9
    assert average.sum_nano == pytest.approx(4 * average.count_nano, rel=1e-6)
    points, center = np.zeros((1000, 1)), np.zeros(1)
    view, noise = view_of(points), Noise(SeededEntropy(2))
    average = BallAverage.split(10**9, 1)
    values = []
    for _ in range(3000):
        estimate, _count = average.release(everyone(view), center, 100**2, noise)
        values.append(estimate.value[0])
    predicted = average.sigma(100**2, 1000)
    ratio = np.std(values) / predicted
    assert 0.93 < ratio < 1.07  # ×0.7 and ×1.3 are far outside


@pytest.mark.slow
@pytest.mark.parametrize("method", ["recentered", "friendly", "ball"])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_private_mean_is_near_and_its_sigma_is_honest(method, d):
    rng = np.random.default_rng(d)
    rows = rng.normal(5, 1, size=(3000, d))
    errors = []
    for seed in range(40):
        answer = fcstream.private_mean(
            rows,
            radius=1.5 * (math.sqrt(2 * d) + 3),
            rho=0.5,
            delta=1e-8,
            size_hint=3000,
            step=1e-3,
            bounds=(-100, 100),
            method=method,
            center=[4.5] * d if method == "ball" else None,
            noise=Noise(SeededEntropy(seed)),
        )
        assert answer.status == "released"
        assert not answer.private
        errors.append((np.array(answer.value) - rows.mean(axis=0)) / np.array(answer.sigma))
    deviation = np.std(errors)
    assert 0.75 < deviation < 1.25, deviation


def test_outliers_are_left_out():
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1, size=(2000, 5))
    rows[:100] = [1e6, 0, 0, 0, 0]
    answer = fcstream.private_mean(
        rows, radius=8, rho=1, delta=1e-8, size_hint=2000, step=1e-3, bounds=(-1e7, 1e7), outliers="leave_out",
        noise=Noise(SeededEntropy(1)),
    )  # fmt: skip
    assert np.linalg.norm(np.array(answer.value) - rows[100:].mean(axis=0)) < 0.1
    assert 1750 < answer.core_count < 1930


@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0])
def test_private_spread_finds_the_scale(scale):
    """The histogram makes noise in proportion to how tightly the data really lie."""
    rows = np.random.default_rng(2).normal(0, scale, size=(4000, 3))
    answer = fcstream.private_mean(
        rows, radius=8, rho=0.5, delta=1e-8, size_hint=4000, step=1e-4, bounds=(-50, 50), noise=Noise(SeededEntropy(1))
    )
    ideal = scale * (math.sqrt(3) + 2.3) / 4000 / math.sqrt(2 * 0.5)
    assert answer.sigma[0] < max(4 * ideal, 1e-3 * 0.02)


def test_rows_outside_the_bounds_are_left_out_each_for_itself():
    rows = np.concatenate([np.zeros((500, 2)), [[np.nan, 0], [np.inf, 0], [51, 0]]])
    answer = fcstream.private_mean(
        rows, radius=2, rho=1, delta=1e-8, size_hint=500, step=0.01, bounds=(-50, 50), noise=Noise(SeededEntropy(1))
    )
    assert abs(answer.count - 500) < 60
    assert np.abs(answer.value).max() < 0.2


@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_small_and_empty_arrays_are_refused_for_what_was_started(n):
    answer = fcstream.private_mean(
        np.zeros((n, 2)), radius=2, rho=0.25, delta=1e-9, size_hint=600, step=0.01, bounds=(-50, 50),
        outliers="leave_out",
    )  # fmt: skip
    assert answer.status == "refused"
    assert answer.reason == "too_few"
    assert answer.value is None
    assert 0 < answer.rho < 0.05
    assert answer.spent == {"rho": answer.rho, "delta": answer.delta}
    assert answer.guarantee == {"rho": 0.25, "delta": 1e-9}


@pytest.mark.parametrize(
    "mechanism",
    [
        NoisyCount(PrivacyLoss.charge(0.5)),
        BallMean(PrivacyLoss.charge(0.5), (0, 0), 100),
        FriendlyMean(LOSS, 100, 2, 500),
        RecentredMean(LOSS, 100, 2, 500),
        RecentredMean(LOSS, 100, 2, 500, 3.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_one_charge_serves_one_release(mechanism):
    view = view_of(np.zeros((500, 2)), getattr(mechanism, "radius_squared", None))
    charge = charge_for(mechanism.loss)
    assert mechanism.release(view, charge, Noise(SeededEntropy(1))).reason is None
    with pytest.raises(RuntimeError, match="charge of its own"):
        mechanism.release(view, charge, Noise(SeededEntropy(1)))
    small = charge_for(PrivacyLoss(mechanism.loss.rho_nano - 1, mechanism.loss.delta_femto))
    with pytest.raises(RuntimeError, match="the charge holds"):
        mechanism.release(view, small, Noise(SeededEntropy(1)))


def test_nobody_but_a_ledger_makes_a_charge():
    with pytest.raises(TypeError, match="ledger only"):
        Charge(object(), WindowKey(0, 1), LOSS)


def test_shares_of_the_recentred_mean_never_pass_the_whole():
    for rho in (1e-4, 0.01, 0.25, 1, 8):
        for hint in (1, 50, 600, 10**5):
            for spread in (None, 3.0):
                mechanism = RecentredMean(PrivacyLoss.charge(rho, 1e-9), 3000**2, 4, hint, spread)
                shares = mechanism._shares
                used = shares.core + shares.center + shares.histogram + shares.middle + shares.final
                assert used <= mechanism.loss.rho_nano
                assert mechanism.middle.sum_nano + mechanism.middle.count_nano == shares.middle
                assert mechanism.final.sum_nano + mechanism.final.count_nano == shares.final
                assert mechanism.core.loss.delta_femto + mechanism.center.loss.delta_femto == mechanism.loss.delta_femto
                assert mechanism.core.loss.rho_nano == shares.core
                assert mechanism.center.loss.rho_nano == shares.center


@pytest.mark.parametrize(("d", "part"), [(1, 0.003), (10, 0.003), (30, 0.009), (66, 0.0198), (1000, 0.02)])
def test_bins_of_the_spread_have_the_more_noise_the_more_features_there_are(d, part):
    """A coarse bin is three fine ones, whose noise adds up."""
    mechanism = RecentredMean(PrivacyLoss.charge(8, 1e-9), 3000**2, d, 5000)
    sigma = math.sqrt(3 * 1e9 / (2 * mechanism._shares.histogram))
    assert sigma == pytest.approx(part * 5000, rel=1e-3)


def test_distances_within_a_core_are_noisy():
    mechanism = RecentredMean(LOSS, 600**2, 2, 300)
    points = everyone(view_of(np.rint(np.random.default_rng(1).normal(0, 80, (300, 2)))))
    rough = Estimate(np.zeros(2), np.ones(2), 280)
    assert len({mechanism._reach(points, rough, Noise(SeededEntropy(seed)))[0] for seed in range(20)}) > 5


@pytest.mark.slow
def test_finding_the_spread_of_many_features_costs_hardly_more_than_knowing_it():
    errors = {"found": [], "told": []}
    for seed in range(8):
        rows = np.random.default_rng(seed).normal(size=(800, 200))
        for name, spread in (("found", "histogram"), ("told", math.sqrt(200))):
            found = fcstream.private_mean(
                rows, radius=1.2 * math.sqrt(400), rho=1, delta=1e-8, size_hint=800, step=1e-3, bounds=(-1e3, 1e3),
                spread=spread, outliers="leave_out", noise=Noise(SeededEntropy(seed)),
            )  # fmt: skip
            errors[name].append(np.linalg.norm(found.value - rows.mean(axis=0)))
    assert np.mean(errors["found"]) < 1.05 * np.mean(errors["told"])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "hint"), [(340, 600), (362, 600), (380, 600), (420, 600)])
def test_forecast_probability_is_what_happens(n, hint):
    mechanism = RecentredMean(PrivacyLoss.charge(0.25, 1e-9), 3000**2, 2, hint)
    view = view_of(np.zeros((n, 2)), mechanism.radius_squared)
    repeats = 400
    hits = sum(
        mechanism.release(view, charge_for(mechanism.loss), Noise(SeededEntropy(s))).reason is None
        for s in range(repeats)
    )
    assert abs(hits / repeats - mechanism.forecast(n).probability) < 0.08


def test_norm_quantile_bounds_the_norm():
    rng = np.random.default_rng(0)
    for d in (1, 2, 10, 300):
        norms = np.linalg.norm(rng.normal(size=(4000, d)), axis=1)
        assert (norms > norm_quantile(d, 0.01)).mean() <= 0.013


def test_noisy_count_law():
    view, noise = view_of(np.zeros((50, 1))), Noise(SeededEntropy(3))
    counter = NoisyCount(PrivacyLoss.charge(0.02))
    values = [counter.release(view, charge_for(counter.loss), noise).count - 50 for _ in range(2000)]
    assert 0.92 < np.std(values) / 5 < 1.08
    assert abs(np.mean(values)) < 0.5


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"method": "median"}, "method"),
        ({"radius": -1}, "positive"),
        ({"radius": 1e-9}, "at least one lattice step"),
        ({"size_hint": 0}, "size_hint"),
        ({"rho": 0}, "rho"),
        ({"rho": 1e-8}, "rho"),
        ({"delta": 0, "outliers": "leave_out"}, "delta"),
        ({"spread": 5}, "spread"),
        ({"spread": "wide"}, "spread"),
        ({"center": [0, 0]}, "ball"),
        ({"method": "ball"}, "center"),
        ({"method": "ball", "center": [0, math.nan]}, "finite"),
        ({"bounds": (1, 0)}, "lower ends below the upper ones"),
        ({"bounds": (0, 1e30)}, "2\\*\\*40"),
        ({"step": 0}, "positive"),
        ({"points": [[1, 2], [3]]}, "numbers"),
        ({"points": [1, 2]}, "shape"),
    ],
)
def test_bad_arguments_of_private_mean(changes, what):
    good = {
        "points": np.zeros((10, 2)),
        "radius": 2,
        "rho": 1,
        "delta": 1e-8,
        "size_hint": 10,
        "step": 0.01,
        "bounds": (-5, 5),
        "method": "recentered",
    }
    with pytest.raises(ConfigError, match=what):
        fcstream.private_mean(**{**good, **changes})


def test_lattice_radius_used_by_noise_is_never_smaller_than_the_predicate():
    lattice = Lattice(0.3)
    r2 = lattice.radius_squared(7.77)
    assert FriendlyAverage(LOSS, r2, 10)._diameter >= 2 * sqrt_up(r2, 60) - Fraction(1, 2**30)
    assert (FriendlyAverage(LOSS, r2, 10)._diameter / 2) ** 2 >= r2


# -- tracking ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_sums_inside_a_ball_equal_the_naive_twin(n, d, seed):
    rng = np.random.default_rng(seed)
    points = np.rint(rng.normal(size=(n, d)) * 50)
    mask, center = rng.random(n) < 0.7, np.rint(rng.normal(size=d) * 10)
    # Some radius that a point lies on exactly.
    radius_squared = int(((points[rng.integers(n)] - center) ** 2).sum())
    total, count = np.zeros(d, np.int64), 0
    for tiles, inside in view_of(points).select(mask).parts:
        count += sums.inside_sum(tiles, len(inside), inside, center, float(radius_squared), total)
    assert (count, total.tolist()) == naive.inside_sum(points, mask, center, radius_squared)


def warm(rho=1.0, reach=100.0):
    cold = RecentredMean(PrivacyLoss.charge(rho, 1e-8), 400**2, 2, 300)
    return TrackingMean(cold, Track([10, -20], 1.0, reach, reach / 2))


def test_a_warm_window_is_right_and_its_noise_is_what_it_says():
    """Only points in the ball count. The right scale of the noise passes, 0.7 and 1.3 of it would not."""
    rng = np.random.default_rng(3)
    points = np.rint(rng.normal(size=(300, 2)) * 20 + [10, -20])
    points[:40] = [5000, 5000]
    view, mechanism = view_of(points), warm()
    truth = points[40:].mean(axis=0)
    errors, counts = [], []
    for seed in range(400):
        charge = charge_for(mechanism.loss)
        outcome = mechanism.release(view, charge, Noise(SeededEntropy(seed)))
        assert charge.unused == PrivacyLoss()
        errors.append((outcome.value - truth) / outcome.sigma)
        counts.append((outcome.core_count - 260, outcome.count - 300))
    spread = np.sqrt(np.mean(np.square(errors)))
    assert 0.9 < spread < 1.1
    deviation = math.sqrt(mechanism.average.count_variance)
    assert 0.85 < np.std([c for c, _ in counts]) / deviation < 1.15
    assert 0.85 < np.std([b - a for a, b in counts]) / deviation < 1.15


def test_too_few_in_the_ball_end_the_tracking_and_the_sum_is_not_paid():
    mechanism = warm()
    charge = charge_for(mechanism.loss)
    outcome = mechanism.release(view_of(np.full((200, 2), 9000.0)), charge, Noise(SeededEntropy(1)))
    assert outcome.reason == "no_core"  # there are enough records
    assert outcome.track.drift
    assert charge.unused == PrivacyLoss(mechanism.average.sum_nano)
    following = mechanism.after(outcome.track)
    assert not following.is_warm
    assert following.loss == mechanism.cold.loss


def test_a_warm_window_costs_no_delta_and_a_cold_one_is_the_default():
    mechanism = warm()
    assert mechanism.loss == PrivacyLoss.charge(1)
    assert mechanism.after(None).loss == PrivacyLoss.charge(1, 1e-8)
    points = np.rint(np.random.default_rng(0).normal(size=(300, 2)) * 20)
    cold = mechanism.after(None).release(
        view_of(points, 400**2), charge_for(mechanism.cold.loss), Noise(SeededEntropy(5))
    )
    default = mechanism.cold.release(view_of(points, 400**2), charge_for(mechanism.cold.loss), Noise(SeededEntropy(5)))
    assert (cold.value == default.value).all()
    assert cold.track.center == np.rint(cold.value).tolist()


def test_stages_are_paid_one_by_one():
    """Stopped at the noisy size, at the rough center, or not at all: what was not started is left."""
    mechanism = RecentredMean(LOSS, 300**2, 2, 300)
    rng = np.random.default_rng(0)
    for n, expected in ((0, {mechanism.core.stages[0]}), (300, {LOSS})):
        costs = set()
        for seed in range(50):
            charge = charge_for(LOSS)
            mechanism.release(
                view_of(np.rint(rng.normal(size=(n, 2)) * 20), 300**2), charge, Noise(SeededEntropy(seed))
            )
            costs.add(LOSS - charge.unused)
        assert costs == expected


def test_the_gate_hardly_stops_what_could_release():
    """A window at the edge of usefulness is stopped by the noise of its size once in a thousand times at most."""
    mechanism = RecentredMean(LOSS, 300**2, 2, 300)
    edge = next(n for n in range(1, 300) if mechanism.forecast(n).probability >= 0.01)
    deviation = math.sqrt(mechanism.core.size_variance)
    assert 0.5 * math.erfc((edge - mechanism.min_count) / deviation / math.sqrt(2)) < 0.002
    assert mechanism.min_count > 0.3 * edge  # and an empty window nearly always is


@pytest.mark.parametrize(
    ("make", "rho"),
    [(make, rho) for make in (FriendlyMean, RecentredMean) for rho in (1e-9, 1.3e-8)]
    + [(RecentredMean, rho) for rho in (7e-8, 1.5e-7)],
)
def test_a_budget_that_cannot_be_divided_is_refused_before_it_is_charged(make, rho):
    with pytest.raises(ConfigError, match=r"^release\.rho"):
        make(PrivacyLoss.charge(rho, 1e-9), 100, 2, 500)
    with pytest.raises(ConfigError, match=r"^release\.rho"):
        BallMean(PrivacyLoss(3), (0,) * 9, 100)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-12, 0.014, 0.5])
def test_forecasts_stand_sizes_that_noise_may_take_to_nothing(delta):
    for make in (FriendlyMean, RecentredMean):
        for rho in (0.01, 0.0877, 3):
            mechanism = make(PrivacyLoss.charge(rho, delta), 100, 2, 20)
            assert all(0 <= mechanism.forecast(n).probability <= 1 for n in range(60))
            assert mechanism.min_count < 20


@pytest.mark.parametrize(("size", "rho", "margin"), [(2000, 0.1, 3.0), (20_000, 0.1, 4.0), (20_000, 1.0, 5.0)])
def test_a_cores_margin_is_the_one_with_the_least_predicted_error(monkeypatch, size, rho, margin):
    """Each margin in turn, with a division of its own, and the noise that the core's coins have by its law."""
    loss, radius, d = PrivacyLoss.charge(rho, 1e-9), 8000, 8
    guess, aim = Spread.public(radius / 2, d), bin_noise(d)
    known = loss, 0.0, radius**2, d, size, guess, aim
    errors, found = {}, {}
    for each in CORE_MARGINS:
        monkeypatch.setattr("fcstream.releases.means.shares.CORE_MARGINS", (each,))
        shares = divide_for_exact_core.__wrapped__(*known)
        assert shares.core + shares.center + shares.histogram + shares.middle + shares.final == loss.rho_nano
        center = FriendlyAverage(PrivacyLoss(shares.center, loss.delta_femto // 2), radius**2, size)
        law = core_law(ZCDPFilter(PrivacyLoss(shares.core, loss.delta_femto // 2)), size)
        noise = predicted_noise(shares, center, guess, d, size)
        errors[each] = math.hypot(noise, guess.across / 3 * coin_noise(law))
        found[each] = shares
    monkeypatch.undo()
    assert divide_for_exact_core(*known) == found[margin]
    assert errors[margin] < 1.005 * min(errors.values())
    assert errors[margin] == errors[3.0] or errors[margin] < 0.98 * errors[3.0]


@pytest.mark.parametrize(("size", "rho", "margin"), [(2000, 0.1, 3.0), (2000, 1.0, 3.5), (20_000, 1.0, 4.5)])
def test_a_friendly_core_gets_what_its_points_need(size, rho, margin):
    """Each margin in turn, by the law of the core; a tenth is too little for the first, too much for the last."""
    loss, radius, d = PrivacyLoss.charge(rho, 1e-9), 8000, 8
    errors = {}
    for each in CORE_MARGINS:
        core = PrivacyLoss(
            smallest_rho(size, PrivacyLoss(0, loss.delta_femto // 2), each, 6 * loss.rho_nano // 10),
            loss.delta_femto // 2,
        )
        average = FriendlyAverage(loss - core, radius**2, size)
        noise = average.sigma(size - average.offset, d)
        coins = supposed_deviation(radius, d) * coin_noise(core_law(ZCDPFilter(core), size))
        errors[each] = math.hypot(noise, coins), core
    mechanism = FriendlyMean(loss, radius**2, d, size)
    assert mechanism.core.loss == errors[margin][1]
    assert mechanism.core.loss.rho_nano + mechanism.average.loss.rho_nano == loss.rho_nano
    assert errors[margin][0] < 1.005 * min(errors.values())[0]
    assert mechanism.forecast(size).probability > 0.99
