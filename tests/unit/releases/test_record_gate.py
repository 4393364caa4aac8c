"""Too many records: who refuses a window, when what it holds is let go of, and what that costs."""

import gc
import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support import naive
from support.helpers import rows, sample

from fcstream import Config, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.counting.exact import FriendCounts
from fcstream.errors import ConfigError
from fcstream.noise.samplers import normal_tail
from fcstream.planning.plan import plan
from fcstream.releases.base import Mechanism
from fcstream.releases.record_gate import GatedCounter, GatedMechanism, RecordGate, tail_margin

ONE_WINDOW = {"end": "1970-01-01T00:00:10Z"}


class Recording(Noise):
    """Exact noise that remembers what it drew for one variance."""

    def __init__(self, seed, variance):
        super().__init__(SeededEntropy(seed))
        self._variance, self.drawn = variance, []

    def discrete_gaussian(self, variance, size):
        found = super().discrete_gaussian(variance, size)
        if variance == self._variance:
            self.drawn += found.tolist()
        return found


@pytest.mark.parametrize("rho_nano", [10**9, 10**7, 25 * 10**5, 10**3])
@pytest.mark.parametrize("delta_femto", [5 * 10**13, 10**6, 1])
def test_margin_is_the_exact_quantile_of_the_noise_rounded_to_the_safe_side(rho_nano, delta_femto):
    variance = Fraction(10**9, 2 * rho_nano)
    margin = tail_margin(variance, delta_femto)
    sigma = math.sqrt(variance)
    pmf = naive.gaussian_pmf(float(variance), int(12 * sigma) + 20)
    tails, total = {}, 0.0
    for value in sorted(pmf, reverse=True):
        total += pmf[value]
        tails[value] = total
    quantile = min(m for m in tails if tails[m] <= delta_femto / 1e15)  # Pr[N >= quantile] <= delta
    assert quantile <= margin <= quantile + 2
    assert tails[margin] <= delta_femto / 1e15
    assert float(normal_tail(Fraction(5))) == pytest.approx(stats.norm.sf(5))


def refusal_law(gate, size):
    """Exact probability that a window of so many records is refused, by the definition."""
    return naive.too_many_probability(size, gate.max_records, gate.margin, float(gate.variance))


@pytest.mark.parametrize("delta_femto", [5 * 10**13, 10**9])
def test_neighbors_at_every_boundary_lose_no_more_than_the_gate_costs(delta_femto):
    gate = RecordGate(PrivacyLoss(10**7, delta_femto), 60)
    claimed_delta = delta_femto / 1e15
    # (epsilon, delta) of (rho, delta)-zCDP: delta + the tight conversion at some epsilons.
    from fcstream.accounting.losses import delta_tight

    for size in (0, 30, gate.max_records - 1, gate.max_records, gate.max_held - 1, gate.max_held, gate.max_held + 1):
        one, two = refusal_law(gate, size), refusal_law(gate, size + 1)
        for epsilon in (0.05, 0.1, 0.3, 0.6, 1.0):
            allowed = claimed_delta + delta_tight(0.01, epsilon)
            for p, q in ((one, two), (two, one), (1 - one, 1 - two), (1 - two, 1 - one)):
                assert p - math.exp(epsilon) * q <= allowed + 1e-12, (size, epsilon)
    assert refusal_law(gate, gate.max_held + 1) == 1.0
    assert 1 - refusal_law(gate, gate.max_held) <= claimed_delta


def test_planted_faults_of_the_gate_are_what_these_bounds_would_catch():
    from fcstream.accounting.losses import delta_tight

    gate = RecordGate(PrivacyLoss(10**7, 10**9), 60)
    no_margin = naive.too_many_probability(60, 60, 0, float(gate.variance))  # a hard cut at the released bound
    assert 1 - no_margin > 1e-6 + delta_tight(0.01, 1.0)
    no_noise = (
        naive.too_many_probability(60, 60, gate.margin, 1e-9),
        naive.too_many_probability(61, 60, gate.margin, 1e-9),
    )
    assert abs(no_noise[0] - no_noise[1]) > 0.9


@pytest.mark.slow
def test_audit_of_the_gate_at_max_records_at_h_and_beyond():
    gate, runs, noise = RecordGate(PrivacyLoss(10**7, 5 * 10**13), 60), 20_000, Noise(SeededEntropy(4))
    for size in (
        gate.max_records - 5,
        gate.max_records,
        gate.max_records + 1,
        gate.max_held - 1,
        gate.max_held,
        gate.max_held + 1,
        gate.max_held + 500,
    ):
        refused = sum(gate.refuses(size, noise) for _ in range(runs))
        law = refusal_law(gate, size)
        if law == 1.0:
            assert refused == runs
        else:
            assert stats.binomtest(refused, runs, law).pvalue > 1e-4, size


def test_counter_holds_what_its_naive_twin_holds_and_lets_go_of_a_pane_that_alone_has_too_many():
    generator, held, reach = np.random.default_rng(3), 60, 4
    for trial in range(20):
        counter = GatedCounter(FriendCounts(2, 400, reach), held)
        panes: dict[int, list[np.ndarray]] = {}
        for _ in range(int(generator.integers(5, 40))):
            pane, size = int(generator.integers(8)), int(generator.integers(0, 25))
            points = generator.integers(-40, 40, (size, 2)).astype(float)
            counter.add(pane, points)
            panes.setdefault(pane, []).extend(points)
        for first in range(5):
            window = range(first, first + reach)
            content = [point for pane in window for point in panes.get(pane, [])]
            view = counter.view(window)
            if len(content) > held:
                assert view.view is None
                assert view.size > held, trial
            else:
                assert view.size == len(content)
                assert view.view.in_order().tolist() == naive.friend_counts(content, 400)
        for pane in range(8):
            own = len(panes.get(pane, []))
            assert counter.inner.size(pane) == (own if own <= held else 0)


@pytest.mark.parametrize("slide", [None, "5s"])
def test_windows_are_refused_exactly_as_by_the_naive_twin(slide):
    window = {"end": "1970-01-01T00:05:00Z", "slide": slide, "max_records": 120}
    config = Config.from_mapping(
        sample(window=window, release={"rho": 0.5, "delta": 1e-7}, budget={"rho": 2.0, "delta": 1e-5})
    )
    gate, schedule = config.job.gate, config.job.schedule
    generator = np.random.default_rng(8)
    sizes = generator.integers(0, gate.max_held, schedule.count * (2 if slide else 1) + 2)
    times = np.concatenate([np.full(n, 5_000 * i + 7) for i, n in enumerate(sizes.tolist())])
    times = times[times < 300_000]
    noise = Recording(1, gate.variance)
    engine = Engine(config, noise=noise)
    order = generator.permutation(len(times))
    for some in np.array_split(order, 50):
        engine.push(times[some], rows(len(some)))
    found = {release.window_open_ms: release.reason for release in engine.close()}
    assert len(noise.drawn) == schedule.count
    for index, draw in enumerate(noise.drawn):
        opens = schedule.window(index).open_ms
        n = int(np.count_nonzero((times >= opens) & (times < opens + 10_000)))
        assert (found[opens] == "too_many") == naive.too_many(n, gate.max_records, gate.margin, draw), n
    assert set(found.values()) >= {"too_few", "too_many"}


def test_a_refusal_reveals_nothing_and_refunds_what_was_not_started():
    config = Config.from_mapping(sample(window=ONE_WINDOW | {"max_records": 400}))
    engine = Engine(config)
    gate = engine.job.gate
    assert gate.loss == PrivacyLoss(10**7, 10**5)
    assert engine.job.answers[0].mechanism.loss == PrivacyLoss(10**9, 10**6)
    engine.push(np.zeros(5_000, np.int64), rows(5_000))
    (release,) = engine.close()
    assert (release.status, release.reason) == ("refused", "too_many")
    assert release.count is release.core_count is release.value is release.parts is None
    assert engine.spent == gate.loss == PrivacyLoss.charge(release.rho, release.delta)


@pytest.mark.slow
def test_what_a_flooded_window_held_is_freed_and_nothing_more_of_it_is_kept():
    config = Config.from_mapping(sample(window=ONE_WINDOW | {"max_records": 20_000}))
    engine, block = Engine(config), rows(5_000)
    engine.push(np.zeros(100, np.int64), block[:100])
    Engine(config).push(np.zeros(20_000, np.int64), np.tile(block, (4, 1)))  # what is made once is made
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        most = 0
        for _ in range(4):
            engine.push(np.zeros(5_000, np.int64), block)
            most = max(most, tracemalloc.get_traced_memory()[0] - before)
        assert most > 20_000 * 2 * 8 * 0.7  # it did hold them
        for _ in range(6):
            engine.push(np.zeros(5_000, np.int64), block)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert left < 20_000
    assert [release.reason for release in engine.close()] == ["too_many"]


def test_late_records_that_wait_for_a_later_window_are_bounded_too():
    window = {"slide": "5s", "clock": "broker", "lateness": "0s", "end": None, "max_records": 100}
    engine = Engine(Config.from_mapping(sample(window=window)))
    held = engine.job.gate.max_held
    # Late for the window that closes at 10 s, in time for the one that closes at 15 s.
    engine.push(np.full(5_000, 6_000), rows(5_000), arrival_ms=10_500)
    assert sum(map(len, engine._records._late._rows.values())) <= held
    assert engine._records.counter.panes == []
    found = {release.window_open_ms: release.reason for release in engine.advance(20_001)}
    assert found[0] == "too_few"  # it was late for this one
    assert found[5_000] == "too_many"
    assert found[10_000] == "too_few"
    engine.abort()


def test_each_key_has_its_own_number_of_records():
    shape = sample(window=ONE_WINDOW | {"max_records": 600}, release={"size_hint": 300})
    shape["stream"] |= {"key": "room", "keys": ["north", "south"]}
    engine = KeyedEngine(Config.from_mapping(shape))
    engine.push(np.zeros(400, np.int64), rows(400), ["north"] * 400)
    engine.push(np.zeros(4_000, np.int64), rows(4_000), ["south"] * 4_000)
    assert {release.key: release.reason for release in engine.close()} == {"north": None, "south": "too_many"}


CONSTANT = [
    {"kind": "count", "rho": 0.1},
    {"kind": "histogram", "feature": "a", "edges": [0.0, 10.0], "rho": 0.1},
    {"kind": "mean", "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "rho": 0.1},
    {
        "kind": "covariance",
        "method": "friendly",
        "shards": 2000,
        "limit": 0.5,
        "rho": 1.0,
        "delta": 1e-7,
        "size_hint": 10**6,
    },
]
PURE = [
    {"kind": "quantiles", "feature": "a", "quantiles": [0.5], "rho": 0.1},
    {"kind": "points", "set": "box", "rho": 0.1},
]


def config_of(release, **window):
    shape = sample(window=window, budget={"rho": 2.0, "delta": 1e-5})
    shape["release"] = release
    return Config.from_mapping(shape)


@pytest.mark.parametrize("release", CONSTANT, ids=lambda release: release.get("method", release["kind"]))
def test_kinds_with_constant_work_take_no_gate_and_refuse_a_bound_that_would_do_nothing(release):
    job = config_of({"size_hint": 300} | release).job
    assert job.gate is None
    assert not any("max_records" in text for text in plan(config_of(release)).warnings)
    with pytest.raises(ConfigError, match=r"window\.max_records: belongs to kinds that hold"):
        config_of(release, max_records=100)


@pytest.mark.parametrize("release", PURE, ids=lambda release: release["kind"])
def test_kinds_without_delta_take_the_gate_only_if_a_delta_pays_for_it(release):
    config = config_of(release | {"size_hint": 300})
    assert config.job.gate is None
    assert any("nothing bounds the records" in text and "release.delta" in text for text in plan(config).warnings)
    with pytest.raises(ConfigError, match=r"window\.max_records: needs `release\.delta`"):
        config_of(release, max_records=100)
    job = config_of(release | {"delta": 1e-9}, max_records=100).job
    assert job.gate.loss == PrivacyLoss(10**6, 10**6)
    assert job.answers[0].mechanism.loss == PrivacyLoss(10**8, 10**6)
    assert job.answers[0].mechanism.inner.loss == PrivacyLoss(99 * 10**6)


def test_the_bound_is_sixteen_hints_where_it_is_not_given_and_plan_says_so():
    default, given = Config.from_mapping(sample()), Config.from_mapping(sample(window={"max_records": 4_800}))
    assert default.job.gate == given.job.gate
    assert default.job.gate.max_records == 16 * 300
    warned = [text for text in plan(default).warnings if "max_records" in text]
    assert len(warned) == 1
    assert "4800 records, 16 times" in warned[0]
    assert not any("max_records" in text for text in plan(given).warnings)
    assert plan(given).facts["max_records"] == 4_800
    assert any("more than 4800 records are refused (too_many)" in line for line in plan(given).lines())


def test_the_specification_changes_with_the_bound_only_where_it_is_given():
    default, given = (
        Config.from_mapping(sample()).job,
        Config.from_mapping(sample(window={"max_records": 9})).job,
    )
    assert default.terms.specification != given.terms.specification


@pytest.mark.parametrize("most", [0, -1, 2**31])
def test_bounds_out_of_range_are_refused(most):
    with pytest.raises(ConfigError, match=r"window\.max_records: must be in \[1, "):
        Config.from_mapping(sample(window={"max_records": most}))


def test_the_gate_keeps_its_bound_whatever_a_window_is_offered():
    mechanism = Config.from_mapping(sample()).job.answers[0].mechanism
    assert isinstance(mechanism, GatedMechanism)
    richer = mechanism.with_loss(PrivacyLoss(3 * 10**9, 10**6))
    assert richer.gate == mechanism.gate
    assert richer.loss == PrivacyLoss(3 * 10**9, 10**6)


USERS = {"stream": {"unit": "user", "user": "who"}}


def user_engine(most, windows=3, cap=4.0, noise=None, **changes):
    end = f"1970-01-01T00:00:{10 * windows:02d}Z"
    shape = sample(
        stream=USERS["stream"],
        window={"end": end, "max_records": most} | changes,
        budget={"rho": cap, "delta": 1e-6},
    )
    return Engine(Config.from_mapping(shape), noise=noise)


def names(first, size):
    return [f"u{i}" for i in range(first, first + size)]


def test_users_are_counted_not_records_and_only_those_who_have_room():
    engine = user_engine(60, windows=3, cap=2.0)
    held = engine.job.gate.max_held
    # 10 users with 20 records each are 10.
    engine.push(np.full(200, 1), rows(200), ids=names(0, 10) * 20)
    # The ten are used up after two windows.
    engine.push(np.full(10, 10_001), rows(10), ids=names(0, 10))
    engine.push(np.full(10 + 4 * held, 20_001), rows(10 + 4 * held), ids=names(0, 10) + names(10**6, 4 * held))
    found = [release.reason for release in engine.close()]
    assert found == ["too_few", "too_few", "too_many"]


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_users_at_h_are_answered_by_noise_and_beyond_it_refused_always_and_all_of_them_pay(extra):
    engine = user_engine(60, windows=1)
    held = engine.job.gate.max_held
    n = held + extra
    for start in range(0, n, 7):
        some = names(start, min(7, n - start))
        engine.push(np.full(len(some), 1), rows(len(some)), ids=some)
    assert (engine._records._users.groups[0].read(0, b"x" * 16)[1] is None) == (extra > 0)
    (release,) = next(iter(engine.closing()))
    assert release.reason == "too_many"  # at H but with probability delta_g
    assert engine._ledger.spent("user") == engine.job.gate.loss
    engine.abort()


@pytest.mark.slow
def test_points_of_a_flooded_window_of_users_are_let_go_of_while_it_is_open():
    engine = user_engine(1_000, windows=2)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for start in range(0, 40_000, 2_000):
            engine.push(np.full(2_000, 1), rows(2_000), ids=names(start, 2_000))
        gc.collect()
        flooded = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert engine._records._users.groups[0].size(0) == 0
    assert flooded < 40_000 * 110
    assert [release.reason for release in engine.close()] == ["too_many", "too_few"]


def test_windows_of_users_are_refused_exactly_as_by_the_naive_twin():
    generator = np.random.default_rng(5)
    gate = user_engine(60).job.gate
    noise = Recording(3, gate.variance)
    engine = user_engine(60, windows=5, cap=9.0, noise=noise)
    records = []
    for window in range(5):
        size = int(generator.choice([20, 60, gate.max_held, 2 * gate.max_held]))
        records += [(window, f"u{i}") for i in generator.integers(0, 4 * gate.max_held, size).tolist()]
    order = generator.permutation(len(records))
    for some in np.array_split(order, 30):
        engine.push(
            np.array([10_000 * records[i][0] + 5 for i in some]), rows(len(some)), ids=[records[i][1] for i in some]
        )
    releases = engine.close()
    assert len(noise.drawn) == 5
    for window, (release, draw) in enumerate(zip(releases, noise.drawn, strict=True)):
        present = {name for index, name in records if index == window}
        assert (release.reason == "too_many") == naive.too_many(len(present), gate.max_records, gate.margin, draw)
    assert {release.reason for release in releases} >= {"too_many"}


@pytest.mark.parametrize("dies", [True, False], ids=["the process dies", "the seal fails once"])
@pytest.mark.parametrize("more", [-3, -2, -1, 0, 40])
def test_users_who_came_after_the_first_draw_are_counted_by_the_second(tmp_path, dies, more):
    """The public charge covers everybody in the window; the first draw, which answered, was not published."""
    release = {"rho": 0.5, "delta": 1e-7, "radius": 3.0, "size_hint": 200}
    window = {"clock": "broker", "lateness": "0s", "end": None, "max_records": 60}
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    stream = {"unit": "user", "user": "id"}
    config = sample(stream=stream, window=window, release=release, ledger=ledger, budget={"rho": 4.0, "delta": 1e-5})
    engine = Engine(config)
    engine.begin(0)

    def push(names):
        engine.push([10] * len(names), rows(len(names)), ids=names, arrival_ms=[10] * len(names))

    def fail(_answers):
        raise OSError("the disk is full")

    first, later = ["a", "b", "c"], [f"q{i}" for i in range(engine.job.gate.max_held + more)]
    push(first)
    seal, engine._ledger.seal = engine._ledger.seal, fail
    with pytest.raises(OSError, match="disk"):
        engine.advance(10_001)
    if dies:
        engine.abort()
        engine = Engine(config)
        push(first)
    else:
        engine._ledger.seal = seal
    push(later)
    (release,) = engine.advance(10_001)
    engine.abort()
    assert (release.status, release.reason) == ("refused", "too_many")
    assert release.rho == 0.5  # nothing goes back after a second draw


def test_a_gate_asks_its_mechanism_for_whatever_has_a_default():
    """A default that was forgotten here would answer for the mechanism behind it."""
    assert {name for name in vars(Mechanism) if name[0] != "_"} <= set(vars(GatedMechanism))
