"""The search for an unknown diameter, and the means that go on from it."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import naive
from support.audits import Weak, epsilon_lower_bound
from support.helpers import sample
from support.windows import charge_for, view_of

import fcstream
from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss, epsilon_tight
from fcstream.config import Config
from fcstream.counting.multi_radius import MultiRadiusCounts, SampledMultiRadiusCounts
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan
from fcstream.releases.averages import gaussian_variance
from fcstream.releases.diameter_search import DiameterCheck, DiameterSearch, far_per_point
from fcstream.releases.means import searched
from fcstream.releases.means.mean import RecentredMean
from fcstream.releases.means.searched import BETA, SearchedMean, search_radii
from fcstream.stream.lattice import Lattice

LOSS = PrivacyLoss.charge(1, 1e-8)
RADII = search_radii(Lattice(1.0), 10, 1e5)


def multi_radius_view(points, radii=RADII):
    points = np.asarray(points, np.float64).reshape(-1, np.shape(points)[-1])
    counter = MultiRadiusCounts(points.shape[1], radii)
    counter.add(0, points)
    return counter.view([0])


def mean(dimension=2, hint=400, **changes):
    return replace(SearchedMean(LOSS, RADII, dimension, hint), **changes)


@settings(max_examples=60)
@given(st.integers(0, 25), st.integers(1, 7), st.floats(1e-3, 1e3), st.integers(0, 10), st.integers(0, 2**32 - 1))
@example(12, 7, 1.0, 0, 2195908194)  # noise of another variance changes what is found in this one
@example(2, 5, 1.0, 5, 2472402290)
def test_searches_equal_the_naive_twin_with_the_same_words(n, radii, rho, tolerance, seed):
    rng = np.random.default_rng(seed)
    radii_squared = [4, 25, 100, 400, 2500, 10_000, 40_000][:radii]
    points = np.rint(rng.normal(size=(n, 2)) * float(rng.choice([1, 10, 60])))
    search = DiameterSearch(int(rho * 1e9), 0.1 if seed % 2 else 1.0, radii, Fraction(tolerance, 20))
    variance = gaussian_variance(2049**2, search.check.rho_nano)
    words = Noise(SeededEntropy(seed))
    expected = naive.find_diameter(
        points,
        radii_squared,
        search.tolerance,
        search.check.bar,
        lambda: int(words.discrete_gaussian(variance, 1)[0]),
    )
    view = multi_radius_view(points.reshape(n, 2), radii_squared)
    assert search.find(view.pairs.tolist().__getitem__, view.size, Noise(SeededEntropy(seed))) == expected


@settings(max_examples=100)
@given(st.integers(1, 12), st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_one_point_moves_the_statistic_by_less_than_two(n, tolerance, seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 8, size=(n, 2))
    other = rng.integers(0, 8, size=(1, 2))
    of = [
        far_per_point(sum(naive.friend_counts(rows, 9)), len(rows), Fraction(tolerance, 20))
        for rows in (points, points[:-1], np.vstack([points[:-1], other]))
    ]
    assert max(of) - min(of) <= 2 * 1024 + 1


def test_the_bound_of_the_sensitivity_is_reached():
    """A stranger to all others."""
    points = [[0, 0]] * 40
    far = far_per_point(sum(naive.friend_counts([*points, [99, 99]], 9)), 41)
    assert far == round(2 * 40 / 41 * 1024)
    assert far_per_point(1600, 40) == far_per_point(1, 1) == far_per_point(0, 0) == 0


@pytest.mark.parametrize("radii", [1, 2, 3, 4, 5, 8, 9, 24, 43])
def test_no_search_costs_more_than_its_rho_and_every_radius_can_be_found(radii):
    search = DiameterSearch(10**9 + 7, 0.05, radii)
    n, pairs = 1000, lambda k: [1000 if i < k else 1000**2 for i in range(radii)]
    most = 0
    for k in range(radii):
        started = []
        assert search.find(pairs(k).__getitem__, n, Noise(SeededEntropy(k)), started.append) == k
        assert len(started) <= search.steps
        most = max(most, sum(loss.rho_nano for loss in started))
    assert 10**9 - search.steps < most <= search.rho_nano or radii == 1
    assert most == search.check.rho_nano * max(0, math.ceil(math.log2(radii)))


def test_a_check_lets_complete_data_pass_and_stops_incomplete_data():
    """The two sides of the paper's utility claim."""
    check = DiameterCheck(10**8, 0.05)
    noise, n = Noise(SeededEntropy(1)), 300
    complete = np.mean([check.passes(n * n, n, noise) for _ in range(2000)])
    assert complete >= 1 - check.beta
    expected = 0.5 * math.erfc(-math.sqrt(math.log(1 / check.beta)))
    assert abs(complete - expected) < 0.01
    beyond = int(2 * check.bar * n) + 1  # twice as many strangers as the bar
    assert np.mean([check.passes(n * n - beyond, n, noise) for _ in range(2000)]) <= 0.05


def test_noise_has_the_right_scale():
    check = DiameterCheck(10**8, math.exp(-1e-9))  # a bar of 0.2 strangers per point
    assert check.bar < 0.3
    for factor, right in ((1.0, True), (0.7, False), (1.3, False)):
        noise = Weak(SeededEntropy(3), factor)
        passed = np.mean([check.passes(400 * 400 - 400 * 4, 400, noise) for _ in range(8000)])
        expected = 0.5 * math.erfc((4 - check.bar) / check.sigma / math.sqrt(2))
        assert (abs(passed - expected) < 0.015) == right


@pytest.mark.parametrize(("low", "high"), [(1, 1), (5, 2), (0, 1), (1, 1e8)])
def test_bad_ranges_of_radii_are_refused(low, high):
    with pytest.raises(ConfigError, match="radius"):
        search_radii(Lattice(1.0), low, high)


def test_radii_run_from_end_to_end():
    radii = search_radii(Lattice(0.5), 1, 1e4)
    assert radii[0] == 4
    assert radii[-1] == 4 * 10**8
    assert len(radii) == 24
    ratios = np.sqrt(np.diff(np.log(radii)))
    assert ratios.max() < math.sqrt(2 * math.log(1.51))
    assert search_radii(Lattice(1.0), 1, 2) == (1, 2, 4)


@pytest.mark.parametrize("method", ["recentered", "friendly"])
def test_it_costs_what_it_says_and_finds_the_mean(method):
    rng = np.random.default_rng(0)
    points = np.rint(rng.normal(size=(2000, 3)) * 200 + [5000, -300, 0])
    mechanism = mean(3, 2000, method=method)
    charge = charge_for(mechanism.loss)
    outcome = mechanism.release(multi_radius_view(points), charge, Noise(SeededEntropy(0)))
    assert np.abs(outcome.value - [5000, -300, 0]).max() < 80
    # what is left: checks that were not needed, and rounding
    checks = mechanism.search.check.rho_nano
    assert charge.unused.delta_femto == 0
    assert charge.unused.rho_nano < 2 * checks
    rest = mechanism.mean_at(5)
    assert mechanism.search.rho_nano + rest.loss.rho_nano == 10**9
    assert rest.loss.delta_femto == LOSS.delta_femto
    if method == "friendly":
        assert mechanism.search == DiameterSearch(10**8, BETA / 2, len(RADII))


def test_at_the_radius_found_it_is_the_mean_of_that_radius():
    """Same words, same answer as the mechanism for a known radius, on counts of its own."""
    rng = np.random.default_rng(1)
    points = np.rint(rng.normal(size=(600, 2)) * 300)
    mechanism = mean(hint=600)
    noise, twin = Noise(SeededEntropy(9)), Noise(SeededEntropy(9))
    outcome = mechanism.release(multi_radius_view(points), charge_for(LOSS), noise)
    view = multi_radius_view(points)
    index = mechanism.search.find(view.pairs.tolist().__getitem__, view.size, twin)
    known = mechanism.mean_at(index)
    assert known.radius_squared == RADII[index + mechanism.wider]
    exact = view_of(points, known.radius_squared)
    assert sorted(exact.counts) == sorted(view.at(index + mechanism.wider).counts)
    charge = charge_for(known.loss)
    expected = known.release(view.at(index + mechanism.wider), charge, twin)
    assert outcome.value.tolist() == expected.value.tolist()
    assert outcome.count == expected.count


@pytest.mark.parametrize("percent", [0, 5, 20])
def test_outliers_change_neither_radius_nor_mean(percent):
    rng = np.random.default_rng(2)
    points = np.rint(rng.normal(size=(1000, 4)) * 100)
    points[: len(points) * percent // 100] = 50_000
    mechanism = mean(4, 1000, outliers=percent / 100 if percent > 5 else 0.0)
    view = multi_radius_view(points)
    assert mechanism.search.find(view.pairs.tolist().__getitem__, 1000, Noise(SeededEntropy(0))) < 12
    outcome = mechanism.release(view, charge_for(LOSS), Noise(SeededEntropy(0)))
    assert np.abs(outcome.value).max() < 30


DEGENERATE = {
    "empty": np.empty((0, 2)),
    "one point": np.array([[7.0, 7.0]]),
    "all equal": np.full((600, 2), 123.0),
    "collinear": np.column_stack([np.arange(600.0), 2 * np.arange(600.0)]),
    "spread over everything": np.random.default_rng(0).integers(-(10**6), 10**6, size=(600, 2)).astype(float),
}


def window(mechanism, points, seed):
    """What its own counter sees of points."""
    counter = mechanism.counter(points.shape[1], 1, Noise(SeededEntropy(seed)))
    for batch in np.array_split(points, 3):
        counter.add(0, batch)
    return counter.view([0])


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("method", ["recentered", "friendly"])
@pytest.mark.parametrize("sampling", ["exact", "blocks", "hidden"])
def test_degenerate_windows_release_or_refuse_at_the_price_they_say(name, method, sampling, monkeypatch):
    monkeypatch.setattr(searched, "_FEWEST", 200)
    mechanism = mean(method=method, loss=PrivacyLoss.charge(4, 1e-8), hint=600, sampling=sampling)
    for seed in range(3):
        charge = charge_for(mechanism.loss)
        outcome = mechanism.release(window(mechanism, DEGENERATE[name], seed), charge, Noise(SeededEntropy(seed)))
        assert (mechanism.loss - charge.unused).fits(mechanism.loss)
        if name in ("all equal", "collinear"):
            center = DEGENERATE[name].mean(axis=0)
            assert np.linalg.norm(outcome.value - center) < 100
        else:
            assert outcome.reason == ("no_core" if name.startswith("spread") else "too_few")
            assert outcome.value is None
            # the search has been paid for; what no stage was started for comes back
            assert charge.unused.rho_nano > 0.5 * mechanism.loss.rho_nano


def test_array_function_searches():
    rng = np.random.default_rng(3)
    rows = rng.normal(20, 0.5, size=(1500, 3))
    common = {"rho": 1, "delta": 1e-8, "size_hint": 1500, "step": 1e-3, "bounds": (-50, 50), "outliers": "leave_out"}
    answer = fcstream.private_mean(rows, radius="search", radius_min=0.01, radius_max=80, **common)
    assert answer.status == "released"
    assert np.abs(np.array(answer.value) - 20).max() < 0.2
    assert 0.95 < answer.rho <= 1  # checks that were not needed are not paid
    assert answer.delta == 1e-8
    for wrong in (
        {"radius": "search"},
        {"radius": "search", "radius_min": 1, "radius_max": 2, "spread": 1.0},
        {"radius": "search", "radius_min": 1, "radius_max": 2, "method": "ball"},
        {"radius": 4, "radius_min": 1},
        {"radius": "guess"},
    ):
        with pytest.raises(ConfigError):
            fcstream.private_mean(rows, **{**common, **wrong})


def test_windows_search_tumbling_and_sliding():
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, 20_000, 3000))
    rows = rng.normal([20, 50], 0.3, size=(3000, 2))
    search = {"radius": "search", "radius_min": 0.01, "radius_max": 100.0, "size_hint": 1500, "rho": 1.0}
    for slide in ({}, {"slide": "5s"}):
        config = sample(
            window={"end": "1970-01-01T00:00:20Z", **slide}, release=search, budget={"rho": 8.0}, lattice={"step": 1e-3}
        )
        report = plan(Config.from_mapping(config)) if slide else None
        engine = Engine(config)
        engine.push(times, rows)
        releases = [release for release in engine.close() if release.status == "released"]
        assert len(releases) >= 2
        for release in releases:
            assert np.abs(np.array(release.value) - [20, 50]).max() < 0.3
    assert "searched for" in str(report)
    for wrong in (
        {"method": "tracking"},
        {"pairs": "blocks", "rho": 0.1},  # no sample of pairs finds a core among so few
        {"radius_max": None},
        {"radius_max": 0.005},
        {"spread": 1.0},
        {"method": "friendly", "outliers": 0.1},
    ):
        with pytest.raises(ConfigError, match="release"):
            Engine(sample(release={**search, **wrong}))
    with pytest.raises(ConfigError, match=r"release\.radius_min"):
        Engine(sample(release={"radius_min": 1.0}))


def test_expected_outliers_are_planned_for():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(600, 20))
    rows[:120] = 1e4
    common = {"radius": 14, "rho": 1, "delta": 1e-8, "size_hint": 600, "step": 1e-3, "bounds": (-1e5, 1e5)}
    answer = fcstream.private_mean(rows, outliers=0.2, noise=Noise(SeededEntropy(0)), **common)
    assert np.linalg.norm(answer.value) < 0.5
    assert answer.core_count > 430
    plain, told = (RecentredMean(LOSS, 14_000**2, 20, 600, outliers=share) for share in (0.0, 0.2))
    assert told.core.loss.rho_nano > 2 * plain.core.loss.rho_nano
    assert told.core.margin(600, 120) >= 3 > plain.core.margin(600, 120)
    assert told.forecast(600).probability > 0.99
    for wrong in (-0.1, 0.5, math.nan):
        with pytest.raises(ConfigError, match="outliers"):
            fcstream.private_mean(rows, outliers=wrong, **common)
    with pytest.raises(ConfigError, match="outliers"):
        fcstream.private_mean(rows, outliers=0.1, method="friendly", **common)


@pytest.mark.parametrize("share", [0.4, 0.45])
def test_so_many_outliers_that_windows_would_be_refused_are_an_error_before_anything_is_read(share):
    """It spent 0.6 of rho on a refusal. With the records that the error asks for, and no fewer, there is a mean."""
    told = {"method": "recentered", "radius": 6.0, "outliers": share}
    few = {"rho": 1.0, "delta": 1e-8, "size_hint": 500}
    with pytest.raises(ConfigError, match=r"^release\.outliers: must leave a core.*windows of \d+ records") as error:
        Config.from_mapping(sample(release={**told, **few}))
    enough = int(re.search(r"windows of (\d+) records", str(error.value))[1])
    with pytest.raises(ConfigError, match=r"release\.outliers"):
        Config.from_mapping(sample(release={**told, **few, "size_hint": enough // 2}))
    mean = Config.from_mapping(sample(release={**told, **few, "size_hint": enough})).job.answers[0].mechanism
    assert mean.forecast(enough).probability >= 0.5
    rows = [[1.0, 2.0]] * 10
    with pytest.raises(ConfigError, match=r"outliers"):
        fcstream.private_mean(rows, bounds=(-9, 9), step=0.1, noise=Noise(SeededEntropy(0)), **told, **few)
    searched = {"radius": "search", "radius_min": 0.1, "radius_max": 1.0}
    with pytest.raises(ConfigError, match=r"outliers"):
        fcstream.private_mean(rows, bounds=(-9, 9), step=0.1, **{**told, **few, **searched, "size_hint": 300})


def test_the_papers_search_takes_outliers_for_data():
    """Why `recentered` searches with a tolerance: 5% of far points are 10% of the pairs."""
    points = np.zeros((1000, 2))
    points[:50] = 50_000
    pairs = multi_radius_view(points).pairs.tolist()
    of = {method: mean(method=method, hint=1000).search for method in ("friendly", "recentered")}
    assert of["friendly"].find(pairs.__getitem__, 1000, Noise(SeededEntropy(0))) > 20
    assert of["recentered"].find(pairs.__getitem__, 1000, Noise(SeededEntropy(0))) == 0


def audited(view, mechanism, make_noise, runs):
    out = np.full((runs, 4), np.nan)
    for run in range(runs):
        outcome = mechanism.release(view, charge_for(mechanism.loss), make_noise(run))
        out[run, 0] = outcome.count
        if outcome.value is not None:
            out[run, 1:3], out[run, 3] = outcome.value, outcome.core_count
    return out


@pytest.mark.parametrize("factor", [1.0, 0.05])
def test_audit_of_the_whole_mean(factor):
    """One more record at the edge, so that it moves both the search and the mean; planted faults are found."""
    rng = np.random.default_rng(0)
    points = np.rint(rng.normal(size=(400, 2)) * 50)
    mechanism = mean(loss=PrivacyLoss.charge(0.5, 1e-9))
    views = [multi_radius_view(rows) for rows in (points, np.vstack([points, [430, 0]]))]
    a, b = (
        audited(view, mechanism, lambda s, i=i: Weak(SeededEntropy(s + i * 10**6), factor), 1000)
        for i, view in enumerate(views)
    )
    assert np.isnan(a[:, 1]).mean() < 0.05
    claim = epsilon_tight(0.5, 1e-3 - 1e-9)
    assert (epsilon_lower_bound(a, b, 1e-3) < claim) == (factor == 1.0)


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_audit_of_a_check(factor):
    """The neighbor with the largest shift, at a number of strangers where the bit is undecided."""
    check = DiameterCheck(10**8, 0.5)
    n, strangers = 200, int(check.bar * 200)
    of = []
    for i, (pairs, size) in enumerate(((n * n - strangers, n), ((n + 1) ** 2 - strangers - 2 * n, n + 1))):
        noise = Weak(SeededEntropy(i), factor)
        of.append(np.array([[check.passes(pairs, size, noise)] for _ in range(6000)], float))
    assert (epsilon_lower_bound(*of, 1e-3) < epsilon_tight(0.1, 1e-3)) == (factor == 1.0)


# -- a search in a sample ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["recentered", "friendly"])
@pytest.mark.parametrize("sampling", ["blocks", "hidden"])
def test_a_sample_finds_a_radius_and_the_core_has_coins_of_its_own(method, sampling, monkeypatch):
    """The same words by hand: a search among the chosen records, then a mean of all at that radius."""
    monkeypatch.setattr(searched, "_FEWEST", 300)
    monkeypatch.setattr(searched, "_BARS", 10)
    rng = np.random.default_rng(6)
    points = np.rint(rng.normal(size=(900, 2)) * 150)
    points[: 20 if method == "recentered" else 0] = 70_000
    mechanism = mean(hint=900, sampling=sampling, method=method, loss=PrivacyLoss.charge(16, 1e-8))
    assert 300 <= mechanism.sample_hint < 450
    view = window(mechanism, points, 3)
    chosen, coins = [], Noise(SeededEntropy(3))
    for batch in np.array_split(points, 3):
        rate = mechanism.sample_rate
        chosen += batch[coins.bernoulli(np.full(len(batch), rate.numerator), rate.denominator)].tolist()
    noise, twin, charge = Noise(SeededEntropy(9)), Noise(SeededEntropy(9)), charge_for(mechanism.loss)
    outcome = mechanism.release(view, charge, noise)
    check = mechanism.search.check
    variance = gaussian_variance(2049**2, check.rho_nano)
    found = naive.find_diameter(
        chosen, RADII, check.tolerance, check.bar, lambda: int(twin.discrete_gaussian(variance, 1)[0])
    )
    known = mechanism.mean_at(found)
    assert known.sampling == sampling
    expected = known.release(window_at(known, view.everyone.points(), twin), charge_for(known.loss), twin)
    assert outcome.value.tolist() == expected.value.tolist()
    assert np.abs(outcome.value).max() < 60
    assert (mechanism.loss - charge.unused).fits(mechanism.loss)
    assert mechanism.search.rho_nano + known.loss.rho_nano == mechanism.loss.rho_nano  # no amplification is claimed


def window_at(mechanism, points, noise):
    counter = mechanism.counter(points.shape[1], 1, noise)
    counter.add(0, points)
    return counter.view([0])


def test_the_size_of_a_sample_is_public_and_enough_for_a_hundredth_of_rho():
    for rho in (0.001, 0.01, 0.1, 1.0):
        found = mean(hint=10**6, sampling="blocks", loss=PrivacyLoss.charge(rho, 1e-8))
        assert 8192 <= found.sample_hint < 60_000
        assert found.sample_rate == Fraction(found.sample_hint, 10**6)
        assert found.search.rho_nano <= found.loss.rho_nano // 100 + 1
        checks = found.search.check
        assert 2.9 * checks.sigma < 0.055 * found.sample_hint
    assert mean(hint=10**6).sample_rate == 1
    few = mean(hint=5000, sampling="hidden")
    assert few.sample_hint == 5000
    friendly = mean(hint=10**6, sampling="hidden", method="friendly", loss=PrivacyLoss.charge(0.1, 1e-8))
    assert 200 * friendly.search.check.bar <= friendly.sample_hint < 200 * friendly.search.check.bar + 1


def test_windows_search_in_a_sample():
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, 20_000, 20_000))
    rows = rng.normal([20, 50], 0.3, size=(20_000, 2))
    search = {"radius": "search", "radius_min": 0.01, "radius_max": 100.0, "size_hint": 10_000, "spread": None}
    config = sample(
        window={"end": "1970-01-01T00:00:20Z"},
        release={**search, "pairs": "blocks", "rho": 0.5},
        budget={"rho": 8.0},
        lattice={"step": 1e-3},
    )
    text = str(plan(Config.from_mapping(config)))
    assert "a random sample of about 8192 records; when a window closes, friends are counted among" in text
    engine = Engine(config)
    engine.push(times, rows)
    for release in engine.close():
        assert np.abs(np.array(release.value) - [20, 50]).max() < 0.1
        assert release.rho <= 0.5
    sliding = sample(window={"slide": "5s"}, release={**search, "pairs": "blocks"})
    with pytest.raises(ConfigError, match=r"release\.pairs: must be 'exact' for sliding windows"):
        Engine(sliding)
    with pytest.raises(ConfigError, match="sliding"):
        mean(hint=10_000, sampling="blocks").counter(2, 2, Noise())


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_audit_of_a_search_in_a_sample(factor):
    """One more record, a stranger to all, with coins that are drawn anew in every run."""
    search = DiameterSearch(5 * 10**8, 1.0, 2, Fraction(1, 36))  # one stranger per point of a sample is undecided
    points, of = np.zeros((41, 2)), []
    points[40] = 900
    for more in (0, 1):
        noise, rows = Weak(SeededEntropy(more), factor), []
        for _ in range(4000):
            counter = SampledMultiRadiusCounts(2, [100, 10**6], Fraction(9, 10), noise)
            counter.add(0, points[: 40 + more])
            view = counter.view([0]).sample
            rows.append([search.find(view.pairs.tolist().__getitem__, view.size, noise)])
        of.append(np.array(rows, float))
    assert factor < 1 or 0.05 < of[0].mean() < 0.95
    assert (epsilon_lower_bound(*of, 1e-3) < epsilon_tight(0.5, 1e-3)) == (factor == 1.0)


@pytest.mark.parametrize(
    ("outliers", "said"),
    [("clip", "the mean is that of all records, and `interval` holds it"), (0.1, "of a long tail the outer records")],
)
def test_a_plan_says_which_mean_it_is(outliers, said):
    release = {"radius": "search", "radius_min": 0.05, "radius_max": 90.0, "size_hint": 3000, "spread": None}
    notes = plan(Config.from_mapping(sample(release={**release, "outliers": outliers}))).notes
    assert sum(note.startswith(said) for note in notes) == 1


def test_a_search_that_clips_is_nearer_to_the_mean_of_tails():
    off = {"clip": [], 0.0: []}
    for seed in range(8):
        rows = np.random.default_rng(seed).pareto(2, (2000, 2))
        for outliers, errors in off.items():
            found = fcstream.private_mean(
                rows, radius="search", radius_min=1.0, radius_max=1e4, rho=1, delta=1e-8, size_hint=2000, step=1e-3,
                bounds=(-2e3, 2e3), outliers=outliers, noise=Noise(SeededEntropy(seed)),
            )  # fmt: skip
            errors.append(float(np.linalg.norm(found.value - rows.mean(axis=0))))
    assert np.median(off["clip"]) < 0.8 * np.median(off[0.0])
