"""The check that tuples match, before a core or a test of them is paid for: exact, and what it saves."""

import math
from contextlib import closing
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.clusters import BASE, LOSS, STEP, Paid, job, seeded, small, tuples_like
from support.helpers import sample

from fcstream import Engine, KeyedEngine, private_centers
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError
from fcstream.ledgers import open_reader
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.predicates import MatchWithin
from fcstream.releases.clusters.agreement import Geometry, outlier_tolerance, partitioned_pairs
from fcstream.releases.clusters.mixtures import MixtureAlgorithm
from fcstream.releases.clusters.tuples import GAMMA, TOLERANCE, MatchCheck, friend_counts
from fcstream.releases.diameter_search import far_per_point
from fcstream.stream.lattice import Lattice

pytestmark = pytest.mark.usefixtures("one_start")

FORMS = {
    "friendly": {"method": "friendly"},
    "public radius": {"method": "friendly", "radius": 0.04},
    "search": {"method": "friendly", "radius": "search", "size_hint": 20_000},
    "ktuples": {"method": "ktuples", "size_hint": 20_000},
}


def algorithm(form, loss=LOSS):
    return job(**FORMS[form]).mechanism(loss, Lattice(STEP))


def wild(t, seed=0):
    """Tuples of equally spread separations that do not match."""
    rng = np.random.default_rng(seed)
    return np.rint(BASE + rng.uniform(-4000, 4000, size=(t, 1, 2)) + rng.normal(0, 60, size=(t, 3, 2)))


def relations(tuples, r2, parted=7):
    """Ordered pairs that match, counted fast, and the naive relation: friends of a core, and balls of a test."""
    geometry = Geometry(r2, parted)
    radii = geometry.radii_squared(tuples)
    friends = friend_counts(MatchWithin(tuples.shape[1], tuples.shape[2], r2, GAMMA), tuples).sum()
    yield friends, lambda i, j: naive.match_within(tuples[i], tuples[j], GAMMA, r2)
    yield (
        partitioned_pairs(geometry, tuples),
        lambda i, j: radii[i, 0] > 0 and naive.partitioned(tuples[i], radii[i], tuples[j]),
    )


@settings(max_examples=40)
@given(small, st.integers(2, 9), st.integers(1, 3), st.integers(1, 2))
def test_the_check_equals_its_twin(seed, t, k, d):
    rng = np.random.default_rng(seed)
    base = rng.integers(-300, 301, size=(k, d))
    tuples = np.rint(base + rng.normal(0, rng.choice([1, 20, 200]), size=(t, k, d)))
    tolerance, rho_nano = Fraction(int(rng.integers(1, 51)), 100), int(rng.integers(10**6, 10**9))
    check = MatchCheck(rho_nano, t, tolerance)
    for pairs, matches in relations(tuples, int(rng.integers(1, 60)) ** 2):
        drawn, paid = [], Paid()

        class Kept(Noise):
            def discrete_gaussian(self, variance, size, drawn=drawn):
                assert 2 * rho_nano * variance >= (2 * 1024 + 1) ** 2 * 10**9
                drawn.append(super().discrete_gaussian(variance, size))
                return drawn[-1]

        passed = check.passes(pairs, Kept(SeededEntropy(seed)), paid)
        expected = naive.check_matches(range(t), matches, tolerance, rho_nano, lambda drawn=drawn: int(drawn[0][0]))
        assert passed == expected
        assert paid.stages == [PrivacyLoss(rho_nano)]


@settings(max_examples=40)
@given(small, st.integers(2, 9), st.integers(1, 3))
def test_a_replaced_tuple_moves_what_gets_noise_by_less_than_its_sensitivity(seed, t, k):
    rng = np.random.default_rng(seed)
    tuples = np.rint(rng.integers(-100, 101, size=(k, 2)) + rng.normal(0, 3, size=(t, k, 2)))
    other = tuples.copy()
    other[int(rng.integers(t))] = rng.integers(-1000, 1001, size=(k, 2))
    for (one, _), (two, _) in zip(relations(tuples, 400), relations(other, 400), strict=True):
        moved = abs(far_per_point(int(one), t, TOLERANCE) - far_per_point(int(two), t, TOLERANCE))
        assert moved <= 2 * 1024 + 1


def test_many_tuples_are_counted_in_pieces(monkeypatch):
    tuples = tuples_like(BASE, 23, 60, 3)
    tuples[:4] = 0.0
    whole = partitioned_pairs(Geometry(300**2), tuples)
    monkeypatch.setattr("fcstream.releases.clusters.agreement._CHUNK", 5)
    assert partitioned_pairs(Geometry(300**2), tuples) == whole == 19 * 19 + 4


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_tuples_that_do_not_match_cost_a_twentieth_and_no_delta(form):
    made, paid = algorithm(form).average, Paid()
    reasons = {made.release(wild(made.tuples, seed), seeded(seed), paid)[0] for seed in range(3)}
    assert reasons == {"no_match"}
    assert paid.total == PrivacyLoss(3 * made.refusal.rho_nano)
    assert made.refusal.fits(PrivacyLoss(6 * LOSS.rho_nano // 100))
    assert made.refusal.delta_femto == 0


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.05, 0.25, 4.0])
@pytest.mark.parametrize("method", ["friendly", "ktuples"])
def test_a_refusal_costs_little_at_every_budget(rho, method):
    loss = PrivacyLoss.charge(rho, 1e-8)
    clusters = job(method=method, size_hint=400_000)
    made = clusters.mechanism(loss, Lattice(STEP))
    assert made.average.refusal.fits(PrivacyLoss(6 * loss.rho_nano // 100))
    if rho == 4:
        mixed = MixtureAlgorithm.of(job(method=method, size_hint=200_000, spread=0.1), loss, Lattice(STEP))
        assert mixed.average.refusal.fits(PrivacyLoss(6 * loss.rho_nano // 100))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["friendly", "ktuples"])
def test_hardly_any_tuples_that_would_be_released_are_stopped(form):
    """Among shares of tuples that match nothing: those stopped by the check that would have been released."""
    made, stopped, answered = algorithm(form).average, 0, 0
    for share in np.linspace(0.0, 0.3, 13):
        tuples = tuples_like(BASE, made.tuples, 10, 3)
        lost = round(share * made.tuples)
        at = np.random.default_rng(1).permutation(made.tuples)[:lost]
        tuples[at] = np.rint(np.random.default_rng(2).uniform(-9000, 9000, size=(lost, 3, 2)))
        for seed in range(8):
            without = type(made)(**{**vars_of(made), "check_nano": 0, "loss": made.loss - made.check.loss})
            if without.release(tuples, seeded(seed), Paid())[0] is None:
                answered += 1
                stopped += made.release(tuples, seeded(1000 + seed), Paid())[0] is not None
    assert answered > 20
    assert stopped <= 0.03 * answered + 3 * math.sqrt(0.03 * answered)


def vars_of(made):
    return {name: getattr(made, name) for name in made.__dataclass_fields__}


@pytest.mark.parametrize("outliers", [0.0, 0.08, 0.12, 0.2])
def test_the_check_passes_as_often_as_it_forecasts(outliers):
    check, runs = MatchCheck(36 * 10**6, 160), 400
    good = round(160 * (1 - outliers))
    pairs = good * good + 160 - good
    passed = sum(check.passes(pairs, seeded(seed), Paid()) for seed in range(runs))
    told = check.forecast(1 - good / 160)
    assert abs(passed - runs * told) <= 3 * math.sqrt(runs * told * (1 - told)) + 1


def test_a_test_that_lets_more_tuples_differ_is_checked_for_more_pairs():
    assert outlier_tolerance(-1.0) == outlier_tolerance(0.05) == TOLERANCE
    assert outlier_tolerance(0.2) == Fraction(36, 100)
    assert outlier_tolerance(0.4) == Fraction(1, 2)
    made = algorithm("ktuples").average
    assert TOLERANCE < made.check.tolerance == outlier_tolerance(made.test.threshold / made.test.compared)


def test_checks_that_cannot_be_made_are_refused_and_one_point_needs_none():
    with pytest.raises(ConfigError, match="for a check"):
        MatchCheck(0, 10)
    assert job(k=1, method="friendly").mechanism(LOSS, Lattice(STEP)).average.check is None


# -- in streams and functions ------------------------------------------------------------------------------------------

BARE = dict.fromkeys(("method", "radius", "spread"))
CENTERS = {"kind": "centers", "k": 3, "rho": 4.0, "delta": 1e-8, "size_hint": 1500, "oracle": "scipy"}
MIXTURES = {"kind": "mixtures", "k": 2, "rho": 4.0, "delta": 1e-8, "size_hint": 3000, "oracle": "scipy", "spread": 9.0}
PLAN = PrivacyLoss.charge(4.0, 1e-8)
WINDOW = {"end": "1970-01-01T00:00:10Z"}
GATE = 1e-9
"""What the gate on too many records costs of delta."""
BUDGET = {"rho": 40.0, "delta": 1e-6}


def spread_out(n=1500, seed=2):
    """Records without clusters, in shards of which nobody finds the same centers twice."""
    return np.random.default_rng(seed).uniform(0, 80, size=(n, 2))


def made(release=CENTERS, **sections):
    mapping = sample(release={**BARE, **release}, budget=BUDGET, window=WINDOW, **sections)
    return mapping | ({"release": sections["release"]} if "release" in sections else {})


def cheap(release):
    assert (release.status, release.reason) == ("refused", "no_match")
    assert 0 < release.rho <= 0.06 * 4
    assert release.delta == GATE


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["event", "user", "stream"])
def test_a_refused_window_gets_back_what_was_not_started(unit, tmp_path):
    url, ids = f"sqlite:{tmp_path / 'ledger.db'}", {"ids": np.arange(1500)} if unit == "user" else {}
    stream = {"unit": unit, **({"user": "id"} if unit == "user" else {})}
    engine = Engine(made(stream=stream, ledger={"url": url}), noise=Noise(SeededEntropy(0)))
    engine.push(np.full(1500, 1000), spread_out(), **ids)
    (release,) = engine.close()
    cheap(release)
    engine.acknowledge()
    engine.abort()
    with closing(open_reader(url)) as reader:
        assert reader.spent() == PrivacyLoss.charge(release.rho, GATE)
        assert [cost for _, cost in reader.charges()] == [PrivacyLoss.charge(release.rho, GATE)]


@pytest.mark.slow
def test_a_crash_before_the_seal_is_no_gain(tmp_path):
    """The second draw may start what the first did not: nothing comes back."""
    url, real = f"sqlite:{tmp_path / 'ledger.db'}", SQLiteLedger.seal

    def torn(self, answers):
        raise OSError("power")

    for seal in (torn, real):
        engine = Engine(made(ledger={"url": url}), noise=Noise(SeededEntropy(0)))
        engine.push(np.full(1500, 1000), spread_out())
        SQLiteLedger.seal = seal
        try:
            if seal is torn:
                with pytest.raises(OSError, match="power"):
                    engine.close()
            else:
                (release,) = engine.close()
        finally:
            SQLiteLedger.seal = real
            engine.abort()
    assert (release.reason, release.rho, release.delta) == ("no_match", 4.0, 1e-8)
    with closing(open_reader(url)) as reader:
        assert reader.spent() == PLAN


@pytest.mark.slow
def test_every_key_gets_back_its_own():
    stream = {"key": "site", "keys": ["north", "south"]}
    engine = KeyedEngine(made(stream=stream), noise=Noise(SeededEntropy(0)))
    engine.push(np.full(3000, 1000), spread_out(3000), keys=["north", "south"] * 1500)
    found = engine.close()
    assert [release.key for release in found] == ["north", "south"]
    for release in found:
        cheap(release)


@pytest.mark.slow
def test_several_answers_get_back_what_none_of_them_started():
    answers = [
        {**CENTERS, "name": "groups"},
        {**MIXTURES, "name": "weights"},
        {"kind": "count", "name": "number", "rho": 1.0},
    ]
    engine = Engine({**made(), "release": answers}, noise=Noise(SeededEntropy(0)))
    engine.push(np.full(3000, 1000), spread_out(3000))
    groups, weights, number = engine.close()
    cheap(groups)
    cheap(weights)
    assert number.status == "released"
    assert number.spent["rho"] == pytest.approx(groups.rho + weights.rho + 1.0, abs=2e-9)
    assert number.spent["delta"] == pytest.approx(2 * GATE)


@pytest.mark.slow
def test_functions_tell_the_cost_of_a_refusal():
    shared = {"rho": 4, "delta": 1e-8, "step": 0.01, "ball": 60, "center": (40, 40), "oracle": "scipy"}
    found = private_centers(spread_out(), 3, size_hint=1500, method="friendly", noise=seeded(), **shared)
    assert found.reason == "no_match"
    assert found.rho <= 0.24
