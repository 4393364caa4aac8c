"""Means and variances whose scales are learned: the slow twin, what windows pay, whose scales they take, refusals."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive_scales
from support.helpers import Paid, sample

import fcstream
from fcstream import ConfigError, Engine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.counting.exact import FriendCounts
from fcstream.planning.plan import plan
from fcstream.releases.base import Release, Track
from fcstream.releases.statistics.learned import REFRESH, rescaled
from fcstream.stream.lattice import Feature, Grid, Lattice, exact

DEVIATIONS = (0.02, 30.0)


def config_of(windows=1, **release):
    features = [{"name": name, "min": -1e4, "max": 1e4, "scale": "learned"} for name in "ab"]
    base = sample(
        release={"rho": 4.0, "radius": 6.0, "size_hint": 900} | release,
        window={"end": f"1970-01-01T00:0{windows * 10 // 60}:{windows * 10 % 60:02d}Z"},
        budget={"rho": 900.0, "delta": 1e-4},
    )
    return base | {"features": features}


def mechanism_of(**release):
    """The mechanism without its gate."""
    return Config.from_mapping(config_of(**release)).job.answers[0].mechanism.inner


def values(n, seed=0, center=(500.0, -20.0), deviations=DEVIATIONS):
    return np.random.default_rng(seed).normal(center, deviations, (n, 2))


def view_of(rows):
    counter = FriendCounts(rows.shape[1], None)
    counter.add(0, rows)
    return counter.view([0])


def run(mapping, batches, seed=3):
    """The releases of the engine, one batch of values a window."""
    with Engine(mapping, noise=Noise(SeededEntropy(seed))) as engine:
        for number, raw in enumerate(batches):
            engine.push(np.full(len(raw), 10_000 * number), raw)
        return engine.close()


# -- one window -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", [{}, {"method": "friendly"}, {"kind": "variance", "method": None, "spread": None}])
def test_a_release_equals_the_slow_twin_with_the_same_draws(release):
    mechanism = mechanism_of(rho=100.0, size_hint=120, **release)
    rows = Config.from_mapping(config_of()).job.grid.points(values(110))
    outcome = mechanism.release(view_of(rows), paid := Paid(), Noise(SeededEntropy(5)))
    noise, share = Noise(SeededEntropy(5)), Fraction(mechanism.stage.rho_nano, 10**9)
    bits, finest = 39, 30  # a range of 2**39 steps, scales down to its 2**-30th
    assert [own.highest - own.lowest for own in mechanism.columns] == [2**bits] * 2
    sizes = naive_scales.learned(rows.astype(int).tolist(), mechanism, bits - finest, share, noise)
    assert min(sizes) > 2**19  # far from the least scale
    assert outcome.parts["scale"] == sizes
    points = naive_scales.rescaled(rows.astype(int).tolist(), sizes, Fraction(1, 1000))
    counter = mechanism.learning.counter(2, 1, noise)
    counter.add(0, points)
    expected = mechanism.learning.release(counter.view([0]), then := Paid(), noise)
    assert outcome.reason is None
    assert outcome.value.tolist() == expected.value.tolist()
    assert outcome.sigma.tolist() == expected.sigma.tolist()
    assert (outcome.count, outcome.core_count) == (expected.count, expected.core_count)
    assert paid.stages == [mechanism.stage, *then.stages]


@settings(max_examples=80)
@given(
    st.integers(1, 10**9),
    st.integers(1, 10**6),
    st.lists(st.integers(-(2**38), 2**38), min_size=1, max_size=5),
    st.integers(0, 30),
    st.integers(0, 2**20),
)
def test_coordinates_are_rounded_exactly_and_stay_in_bounds(denominator, numerator, values, fine, more):
    lattice = Lattice(round(numerator / denominator, 9) or 1e-9)
    step = exact(lattice.step)
    if step.numerator > 10**9:
        return
    bits, most = lattice.learned_bits()
    size = (1024 + more % 1024) << (bits - min(fine, most))
    limit = 2 ** (bits - 1)
    rows = [[max(-limit, min(limit, x))] for x in [*values, limit, -limit]]
    ratio = Fraction(1024, size) / step
    found = rescaled(np.array(rows, np.float64), [ratio])
    assert found.tolist() == naive_scales.rescaled(rows, [size], step).tolist()
    assert np.abs(found).max() <= 2**40
    assert limit * ratio.numerator < 2**63
    assert ratio.denominator < 2**63


def test_halves_go_to_the_even_number_and_declared_features_stay():
    rows = np.array([[5.0, 7.0], [15.0, 7.0], [-5.0, 7.0], [-15.0, 7.0], [16.0, 7.0]])
    assert rescaled(rows, [Fraction(1, 10), None]).tolist() == [[0, 7], [2, 7], [0, 7], [-2, 7], [2, 7]]


def test_a_window_pays_a_tenth_for_its_scales_and_all_in_all_what_was_asked_for():
    mechanism = mechanism_of(rho=3.7, delta=1e-6)
    whole = mechanism.given.loss
    assert mechanism.loss == whole
    assert mechanism.stage == PrivacyLoss(whole.rho_nano // 10)
    assert mechanism.learning.loss + mechanism.stage == whole
    assert mechanism.medians.loss + mechanism.spreads.loss == mechanism.stage
    later = mechanism.after(Track([], 0.0, 0.0, 0.0, 1.0, scales=[2**30, 2**40], age=1))
    assert (later.loss, later.inherits) == (whole, True)
    rows = Config.from_mapping(config_of()).job.grid.points(values(900))
    for each, stages in ((mechanism, [mechanism.stage]), (later, [])):
        each.release(view_of(rows), paid := Paid(), Noise(SeededEntropy(1)))
        spent = sum((stage for stage in paid.stages), PrivacyLoss())
        assert paid.stages[: len(stages)] == stages
        assert spent.fits(whole)
    offered = mechanism.with_loss(PrivacyLoss(2 * whole.rho_nano))
    assert offered.loss == PrivacyLoss(2 * whole.rho_nano, whole.delta_femto)
    assert offered.learning.loss.rho_nano == 2 * whole.rho_nano - offered.stage.rho_nano


def test_features_of_any_scale_get_noise_in_proportion_to_their_own():
    answer = fcstream.private_mean(
        values(4000, 2), radius=6, rho=1, delta=1e-8, size_hint=4000, step=1e-3, bounds=(-1e4, 1e4), scale="learned",
        noise=Noise(SeededEntropy(1)),
    )  # fmt: skip
    assert answer.parts["scale_source"] == "window"
    assert np.array(answer.parts["scale"]) / DEVIATIONS == pytest.approx([1.35, 1.35], rel=0.2)
    noise = np.array(answer.sigma) / DEVIATIONS
    assert noise.max() < 0.003
    assert np.abs(np.array(answer.value) - [500, -20]) / DEVIATIONS == pytest.approx([0, 0], abs=0.08)
    told = fcstream.private_mean(
        values(4000, 2) / DEVIATIONS / 1.35, radius=6, rho=1, delta=1e-8, size_hint=4000, step=1e-3, bounds=(-1e6, 1e6),
        noise=Noise(SeededEntropy(1)),
    )  # fmt: skip
    assert noise.max() < 1.3 * max(told.sigma) * 1.35


def test_scales_of_a_sample_are_near_those_of_all():
    """Of records that drift: the first of them lie elsewhere."""
    mechanism = mechanism_of(rho=40.0, size_hint=100_000)
    rows = Config.from_mapping(config_of()).job.grid.points(values(100_000))
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    found = mechanism._learn(rows, Noise(SeededEntropy(0)))
    steps = 2e4 / 2**39  # of the lattice of the features, in their units
    assert np.array(found) / 1024 * steps / DEVIATIONS == pytest.approx([1.35, 1.35], rel=0.1)


def test_the_rate_of_a_sample_is_that_of_the_size_hint():
    """By the true number of records one more would move the coins of all others."""
    mechanism, rates = mechanism_of(rho=40.0, size_hint=100_000), set()

    class Recording(Noise):
        def failures(self, rate, size):
            rates.add(rate)
            return super().failures(rate, size)

    rows = Config.from_mapping(config_of()).job.grid.points(values(2**18))
    for size in (50_000, 99_999, 2**18):
        mechanism._learn(rows[:size], Recording(SeededEntropy(0)))
    (rate,) = rates
    assert rate.denominator == 100_000 // math.gcd(rate.numerator * 100_000 // rate.denominator, 100_000)
    assert 2**14 <= rate * 100_000 < 50_000


def test_a_search_and_a_variance_are_in_scales_and_told_in_the_users_units():
    known = {"rho": 4, "delta": 1e-8, "size_hint": 3000, "step": 1e-3, "bounds": (-1e4, 1e4)}
    found = fcstream.private_mean(
        values(3000), radius="search", radius_min=0.1, radius_max=1e3, scale="learned",
        noise=Noise(SeededEntropy(1)), **known,
    )  # fmt: skip
    assert np.abs(np.array(found.value) - [500, -20]) / DEVIATIONS == pytest.approx([0, 0], abs=0.1)
    mapping = config_of(kind="variance", method=None, spread=None, size_hint=3000)
    (variance,) = run(mapping, [values(3000)])
    assert np.sqrt(variance.value) / DEVIATIONS == pytest.approx([1, 1], rel=0.1)
    assert np.array(variance.parts["mean"]) == pytest.approx([500, -20], abs=2)


def test_only_features_that_ask_for_it_are_rescaled():
    mapping = config_of()
    mapping["features"][1] = {"name": "b", "min": -1e4, "max": 1e4, "scale": 40.0}
    (release,) = run(mapping, [values(900)])
    assert release.parts["scale"][1] == 40.0
    assert release.parts["scale"][0] / 0.02 == pytest.approx(1.35, rel=0.3)
    assert np.array(release.value) == pytest.approx([500, -20], abs=5)


def test_how_records_came_in_changes_nothing():
    raw = values(700)
    whole = run(config_of(), [raw])
    with Engine(config_of(), noise=Noise(SeededEntropy(3))) as engine:
        for part in np.array_split(raw, 5):
            engine.push(np.zeros(len(part), np.int64), part)
        assert engine.close() == whole


# -- a stream ---------------------------------------------------------------------------------------------------------


def test_later_windows_take_released_scales_until_the_next_refresh():
    windows = REFRESH + 3
    releases = run(config_of(windows), [values(900, seed) for seed in range(windows)])
    sources = [release.parts["scale_source"] for release in releases]
    assert sources == (["window", *["earlier"] * (REFRESH - 1)] * 2)[:windows]
    assert [release.track.age for release in releases[:3]] == [1, 2, 3]
    assert len({tuple(release.parts["scale"]) for release in releases[:REFRESH]}) == 1
    for release in releases:
        assert release.spent["rho"] <= 4.0
        assert np.array(release.value) == pytest.approx([500, -20], abs=8)
    noise = [release.sigma[1] / release.parts["scale"][1] for release in releases]
    assert np.median(noise[1:REFRESH]) < np.mean([noise[0], noise[REFRESH]])


def test_a_refused_window_and_a_lost_core_make_the_next_one_learn_anew():
    wide = values(900, 9, deviations=(0.02, 3000.0))
    batches = [values(900), values(20), values(900, 1), wide, wide, values(900, 2)]
    releases = run(config_of(len(batches)), batches)
    sources = [(release.parts or {}).get("scale_source") for release in releases]
    assert [release.reason for release in releases[:3]] == [None, "too_few", None]
    assert sources[:4] == ["window", "earlier", "window", "earlier"]
    assert releases[3].reason is not None or releases[3].track.drift
    assert sources[4] == "window"
    assert releases[4].reason is None
    assert releases[4].parts["scale"][1] / releases[2].parts["scale"][1] == pytest.approx(100, rel=0.3)


def test_a_stream_goes_on_with_its_scales_after_a_restart(tmp_path):
    mapping = config_of(3) | {"ledger": {"url": f"sqlite:{tmp_path / 'ledger.db'}"}}
    batches = [values(900, seed) for seed in range(3)]
    with Engine(mapping, noise=Noise(SeededEntropy(3))) as engine:
        engine.push(np.zeros(900, np.int64), batches[0])
        (first,) = next(engine.closing(10_000)) if engine.job.clock != "eof" else next(iter(engine.closing()))
        engine.acknowledge()
        engine.abort()
    assert Release.from_bytes(first.to_bytes()) == first
    with Engine(mapping, noise=Noise(SeededEntropy(4))) as engine:
        for number in (1, 2):
            engine.push(np.full(900, 10_000 * number), batches[number])
        later = engine.close()
    assert [release.parts["scale_source"] for release in later] == ["earlier", "earlier"]
    assert later[0].parts["scale"] == first.parts["scale"]


def test_a_tracking_mean_keeps_its_place_when_scales_change():
    windows = REFRESH + 3
    mapping = config_of(windows, method="tracking")
    releases = run(mapping, [values(900, seed) for seed in range(windows)])
    warm = [release.delta for release in releases[1:]]
    assert max(warm) < releases[0].delta  # the gate's part alone
    at = [release.parts["scale_source"] for release in releases].index("window", 1)
    assert at == REFRESH
    assert releases[at].track.scales != releases[at - 1].track.scales
    for release in releases:
        assert np.array(release.value) == pytest.approx([500, -20], abs=8)


def test_a_center_is_expressed_in_new_scales():
    mechanism = mechanism_of(method="tracking")
    track = Track([1000, -3001], 2.0, 50.0, 60.0, 0.9, scales=[2**20, 2**30], age=REFRESH)
    moved = mechanism.moved(track, [2**21, 2**29])
    assert (moved.center, moved.sigma) == ([500, -6002], 4.0)
    assert (moved.reach, moved.across, moved.share) == (50.0, 60.0, 0.9)


def test_tracks_without_scales_are_written_as_before():
    old = Track([1, 2], 1.0, 2.0, 3.0, 0.5)
    line = b'"track":{"center":[1,2],"sigma":1.0,"reach":2.0,"across":3.0,"share":0.5,"drift":false}'
    made = Release("s", 0, 1, "released", None, "mean", [1.0], [1.0], 5, 5, 1.0, 0.0, {}, {}, True, track=old)
    assert line in made.to_bytes()
    assert Release.from_bytes(made.to_bytes()) == made


# -- plans and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_plan_says_whether_scales_are_learned_and_why_not():
    on = plan(Config.from_mapping(config_of()))
    assert (on.facts["scales"], on.facts["scale_rho"]) == ("learned", pytest.approx(0.396))
    assert 1.05 < on.facts["scale_noise"] < 1.1
    assert not any("declare those that you know" in text for text in on.warnings)
    dear = plan(Config.from_mapping(config_of(rho=0.2, delta=1e-5, size_hint=500)))
    assert 1.1 < dear.facts["scale_noise"] < 1.2
    assert any("declare those that you know" in text for text in dear.warnings)
    assert "a in scales" in on.sigma
    off = plan(Config.from_mapping(config_of(rho=0.12, delta=1e-5, size_hint=380)))
    assert off.facts["scales"] == "public"
    assert off.facts["scale_records"] > 380
    assert any("a tenth of each range counts as 1" in text for text in off.warnings)
    assert set(off.sigma) == {"a", "b"}
    assert off.loss == PrivacyLoss.charge(0.12, 1e-5)


def test_where_scales_cannot_be_learned_they_are_public_and_cost_nothing():
    mechanism = mechanism_of(rho=0.1, size_hint=380)
    rows = Config.from_mapping(config_of()).job.grid.points(values(500))
    outcome = mechanism.release(view_of(rows), paid := Paid(), Noise(SeededEntropy(1)))
    assert outcome.parts["scale_source"] == "public"
    assert mechanism.stage not in paid.stages
    assert mechanism.loss == mechanism.given.loss
    told = mechanism.to_user_units(outcome, Config.from_mapping(config_of()).job.grid).parts["scale"]
    assert told == pytest.approx([2000, 2000], rel=0.06)
    assert not mechanism.tracks


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"release": {"method": "ball", "center": [0.0, 0.0], "spread": None}}, "features.a.scale", "with a core"),
        ({"release": {"kind": "sum"}}, "features.a.scale", "must be a number for a release of kind 'sum'"),
        ({"features": {"origin": 5.0}}, "features.a.origin", "left out"),
        ({"lattice": {"step": 1e-10}}, "lattice.step", "nine decimal places"),
        ({"lattice": {"step": 0.1 / 3}}, "lattice.step", "nine decimal places"),
        ({"release": {"method": "tracking", "radius": None}}, "release.radius", "is required"),
        ({"release": {"rho": 4e-9}}, "release.rho", "must"),
    ],
)
def test_what_does_not_go_with_learned_scales_is_refused(changes, key, said):
    mapping = config_of(**changes.get("release", {}))
    if mapping["release"]["kind"] == "sum":
        mapping["release"] = {"kind": "sum", "rho": 4.0}
    mapping["features"][0] |= changes.get("features", {})
    mapping["lattice"] |= changes.get("lattice", {})
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping(mapping)
    assert refused.value.key.startswith(key.rsplit(".", 1)[0])
    assert said in str(refused.value)


def test_bounds_of_sums_that_arithmetic_could_not_hold_are_refused_before_any_charge():
    mechanism = mechanism_of()
    for lattice, limit, is_refused in (
        (mechanism.lattice, 2**39, False),
        (mechanism.lattice, 2**40, True),  # rescaled, more than 2**40
        (Lattice(1e9), 2**39, True),  # a divisor of 2**63 and more
        (Lattice(1e9), 2**20, False),
    ):
        columns = tuple(replace(column, lowest=-limit, highest=limit) for column in mechanism.columns)
        if is_refused:
            with pytest.raises(ConfigError, match=r"release\.user_bounds: must lie within the feature's range"):
                replace(mechanism, lattice=lattice, columns=columns)
        else:
            replace(mechanism, lattice=lattice, columns=columns)


def test_arrays_take_no_other_word_for_scales():
    known = {"radius": 1, "rho": 1, "delta": 1e-8, "size_hint": 5, "step": 1e-3, "bounds": (-1, 1)}
    with pytest.raises(ConfigError, match="must be 'learned', got 'told'"):
        fcstream.private_mean([[0.0]], scale="told", **known)
    with pytest.raises(ConfigError, match="with a core learn scales"):
        fcstream.private_mean([[0.0]], scale="learned", method="ball", center=[0.0], **known)


def test_the_finest_grid_of_a_feature_covers_its_range():
    lattice = Lattice(1e-3)
    grid = Grid(lattice, (lattice.finest(Feature("a", 2.0, 50.0, transform="log1p")),))
    ends = grid.points(np.array([[2.0], [50.0]]))
    assert ends.tolist() == [[-(2.0**38)], [2.0**38]]
    assert grid.values(ends[0]) == pytest.approx([np.log1p(2.0)])
