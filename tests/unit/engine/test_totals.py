"""Running totals of a stream: against the twin in rationals, across restarts, crashes, lost states and processes."""

import json
import sqlite3
from fractions import Fraction

import numpy as np
import pytest
from support import naive_totals as naive
from support.helpers import changed

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.errors import ConfigError, LedgerError
from fcstream.ledgers import open_ledger
from fcstream.ledgers.memory import MemoryLedger
from fcstream.planning.plan import plan
from fcstream.releases.totals.factor import factor
from fcstream.releases.totals.ranges import between
from fcstream.releases.totals.total import TotalOptions

T = 6
THETA = Fraction(4, 5)
BASE = {
    "stream": {"name": "visits"},
    "lattice": {"step": 0.5},
    "features": [{"name": "a", "min": 0.0, "max": 40.0}],
    "window": {
        "length": "1s",
        "clock": "broker",
        "start": "1970-01-01T00:00:00Z",
        "end": "1970-01-01T01:00:00Z",
        "backlog": "1d",
    },
    "release": {"kind": "total", "of": "histogram", "edges": [10.0, 30.0], "epoch": T, "rho": 0.5},
    "budget": {"rho": 0.5, "delta": 0.0},
    "ledger": {"url": "memory:"},
}


def config_of(**sections):
    return Config.from_mapping(changed(BASE, sections))


def values_of(window):
    """What the records of one window hold."""
    return np.random.default_rng(window).integers(0, 81, 40 + window % 5) / 2


def bins_of(window):
    values = values_of(window)
    return [int((values < 10).sum()), int(((values >= 10) & (values < 30)).sum()), int((values >= 30).sum())]


def push(engine, window):
    values = values_of(window)
    engine.push(
        np.full(len(values), 1000 * window + 5), values[:, None], arrival_ms=np.full(len(values), 1000 * window)
    )


def run(engine, windows):
    """Push and close some windows, and return their releases."""
    engine.begin(0)
    found = []
    for window in windows:
        push(engine, window)
        found += engine.advance(1000 * window + 1001)
    return found


def drawn(seed, count, rho_nano=500_000_000):
    """What a seeded source draws for so many windows of three bins."""
    noise = Noise(SeededEntropy(seed))
    return [noise.discrete_gaussian(factor(T, THETA).variance(1, rho_nano), 3).tolist() for _ in range(count)]


def expected(windows, zs):
    """Estimates of some windows of one epoch, one list of three bins for each."""
    bits = factor(T, THETA).fraction_bits(factor(T, THETA).variance(1, 500_000_000))
    return naive.estimates(T, THETA, naive.noisy(T, THETA, [bins_of(k) for k in windows], zs), bits)


def check(releases, windows, zs):
    """These windows of one epoch were answered in this order; each release is what the rationals say."""
    found = expected(windows, zs)
    assert [release.window_open_ms for release in releases] == [1000 * k for k in windows]
    for i, release in enumerate(releases):
        assert release.value == [float(sum(row[k] for row in found[: i + 1])) for k in range(3)]
        assert release.parts["window"]["value"] == [float(x) for x in found[i]]
        assert release.parts["windows"] == i + 1
        assert release.count == round(sum(found[i]))


def seeded(seed):
    return Noise(SeededEntropy(seed))


def test_two_epochs_are_the_twins(tmp_path):
    engine = Engine(config_of(), noise=seeded(4))
    releases = run(engine, range(2 * T))
    zs = drawn(4, 2 * T)
    check(releases[:T], range(T), zs[:T])
    check(releases[T:], range(T, 2 * T), zs[T:])
    assert {release.rho for release in releases} == {0.5}
    assert {release.spent["rho"] for release in releases} == {0.5}
    sigma = float(factor(T, THETA).variance(1, 500_000_000)) ** 0.5
    for i, release in enumerate(releases[:T]):
        assert release.sigma == pytest.approx([sigma * naive.noise_of(T, THETA, 0, i + 1)] * 3)
        assert release.parts["window"]["sigma"] == pytest.approx([sigma * naive.noise_of(T, THETA, i, i + 1)] * 3)
        assert release.parts["epoch_open_ms"] == 0
        assert release.parts["edges"] == [0.0, 10.0, 30.0, 40.0]
    assert releases[T].parts["epoch_open_ms"] == 1000 * T
    engine.abort()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_another_process_goes_on_where_the_first_one_stopped(kind, tmp_path, request):
    url = f"sqlite:{tmp_path / 'l.db'}" if kind == "sqlite" else request.getfixturevalue("postgres").url
    config = config_of(ledger={"url": url})
    first = Engine(config, noise=seeded(1))
    releases = run(first, range(4))
    first.abort()
    second = Engine(config, noise=seeded(2))
    second.unpublished()
    releases += run(second, range(4, 8))
    second.abort()
    zs = drawn(1, 4) + drawn(2, 4)
    check(releases[:T], range(T), zs[:T])
    check(releases[T:], range(T, 8), zs[T:])


def test_a_standby_takes_over_with_what_the_other_process_sealed(postgres):
    config = config_of(ledger={"url": postgres.url})
    first, standby = Engine(config, noise=seeded(1)), Engine(config, noise=seeded(2))
    releases = run(first, range(1))
    assert run(standby, range(1)) == []  # it learns that the window is sealed
    releases += run(standby, [1])
    for window in (0, 1):
        push(first, window)
    assert first.advance(2001) == []
    releases += run(first, [2])
    assert run(standby, [2]) == []
    releases += run(standby, [3])
    first.abort()
    standby.abort()
    ones, twos = drawn(1, 2), drawn(2, 2)
    check(releases, range(4), [ones[0], twos[0], ones[1], twos[1]])


def test_a_seal_that_fails_is_drawn_again_and_then_given_up(tmp_path, monkeypatch):
    engine = Engine(config_of(ledger={"url": f"sqlite:{tmp_path / 'l.db'}"}), noise=seeded(1))
    releases = run(engine, range(2))
    real = type(engine._ledger).seal_with_states
    monkeypatch.setattr(type(engine._ledger), "seal_with_states", _failing)
    push(engine, 2)
    for _ in range(2):
        with pytest.raises(LedgerError, match="the disk is full"):
            engine.advance(3001)
    monkeypatch.setattr(type(engine._ledger), "seal_with_states", real)
    given_up = engine.advance(3001)
    assert [(each.reason, each.value, each.parts["windows"]) for each in given_up] == [("interrupted", None, 2)]
    releases += run(engine, [3, 4])
    zs = drawn(1, 6)
    check(releases, [0, 1, 3, 4], [zs[0], zs[1], zs[4], zs[5]])
    assert [release.parts["skipped"] for release in releases] == [[], [], [[2000, 3000]], [[2000, 3000]]]
    engine.abort()


def _failing(*args):
    raise LedgerError("the disk is full")


def test_a_stream_that_begins_inside_an_epoch_says_so():
    engine = Engine(config_of(window={"backlog": None}), noise=seeded(1))
    engine.begin(2500)
    push(engine, 2)
    first, *_ = engine.advance(3001)
    assert first.parts["skipped"] == [[0, 2000]]
    assert first.parts["windows"] == 1
    engine.abort()


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM states",
        "DELETE FROM states WHERE open_ms = 0",
        "UPDATE states SET body = x'00' WHERE open_ms = 1000",
    ],
)
def test_a_lost_state_is_refused_until_the_next_epoch(tmp_path, edit):
    config = config_of(ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    engine = Engine(config, noise=seeded(1))
    run(engine, range(3))
    engine.acknowledge()
    engine.abort()
    db = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    db.execute(edit)
    db.close()
    engine = Engine(config, noise=seeded(2))
    lost = run(engine, [3])
    engine.acknowledge()
    engine.abort()  # and a process that starts later knows it too
    engine = Engine(config, noise=seeded(2))
    lost += run(engine, [4, 5])
    assert [(each.reason, each.value, each.rho, each.parts["windows"]) for each in lost] == [
        ("state_lost", None, 0, 3)
    ] * 3
    assert engine.spent.rho == 0.5  # of the windows before
    check(run(engine, [6, 7]), [6, 7], drawn(2, 2))
    engine.abort()


def test_every_key_has_totals_of_its_own():
    config = config_of(stream={"key": "site", "keys": ["x", "y"]}, release={"of": "count", "edges": None})
    engine = KeyedEngine(config, noise=seeded(1))
    engine.begin(0)
    for window in range(3):
        times = np.full(40, 1000 * window + 5)
        keys = np.array(["x"] * 30 + ["y"] * 10)
        engine.push(times, np.full((40, 1), 5.0), keys=keys, arrival_ms=times)
        releases = engine.advance(1000 * window + 1001)
        for release in releases:
            size = {"x": 30, "y": 10}[release.key] * (window + 1)
            assert abs(release.value[0] - size) < 8 * release.sigma[0]
            assert release.parts["windows"] == window + 1
    engine.abort()


def test_two_totals_of_one_stream_keep_to_themselves(tmp_path):
    mapping = changed(BASE, {"budget": {"rho": 3.0}, "ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"}})
    bins = {**mapping["release"], "name": "bins"}
    visits = {"kind": "total", "of": "count", "epoch": "3s", "rho": 0.5, "name": "visits"}
    level = {"kind": "total", "of": "sum", "epoch": T, "rho": 0.5, "name": "level", "theta": 1.0}
    mapping["release"] = [bins, visits, level]
    releases = []
    for part in (range(2), range(2, 5)):  # with a restart in between
        engine = Engine(mapping)
        engine.unpublished()
        releases += run(engine, part)
        engine.abort()
    assert len(releases) == 15
    for release in releases:
        window = release.window_open_ms // 1000
        first = window - window % 3 if release.name == "visits" else 0
        values = [values_of(k) for k in range(first, window + 1)]
        exact = {
            "bins": np.sum([bins_of(k) for k in range(first, window + 1)], axis=0),
            "visits": [sum(map(len, values))],
            "level": [sum(map(sum, values))],
        }[release.name]
        assert np.all(np.abs(np.subtract(release.value, exact)) < 8 * np.array(release.sigma))
        assert release.parts["windows"] == window - first + 1


def test_sums_are_in_the_features_own_units():
    mapping = changed(BASE, {"release": {"of": "sum", "edges": None, "rho": 1e6}, "budget": {"rho": 1e6}})
    mapping["features"] = [{"name": "a", "min": 0.0, "max": 40.0, "origin": 5.0, "scale": 2.0}]
    engine = Engine(mapping)
    last = run(engine, range(4))[-1]
    exact = [sum(values_of(k)) for k in range(4)]
    assert last.value == pytest.approx([sum(exact)], abs=8 * last.sigma[0] + 60)  # values are rounded to the lattice
    assert last.parts["window"]["value"] == pytest.approx([exact[-1]], abs=8 * last.sigma[0] + 60)
    assert last.features == ["a"]
    engine.abort()


def test_what_came_in_between():
    engine = Engine(config_of(), noise=seeded(4))
    releases = run(engine, range(2 * T))
    sigma = float(factor(T, THETA).variance(1, 500_000_000)) ** 0.5
    found = between(releases[1], releases[4])
    assert found.value == [b - a for a, b in zip(releases[1].value, releases[4].value, strict=True)]
    assert found.sigma == pytest.approx([sigma * naive.noise_of(T, THETA, 2, 5)] * 3)
    for earlier, later in ((4, 1), (2, 2), (1, T + 1)):
        with pytest.raises(ConfigError, match="must be of"):
            between(releases[earlier], releases[later])
    engine.abort()


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"stream": {"unit": "stream"}}, "stream.unit: must be 'event' for running totals"),
        ({"stream": {"unit": "user", "user": "id"}}, "stream.unit: must be 'event' for running totals"),
        ({"window": {"length": "2s", "slide": "1s"}}, "window.slide: must be left out for running totals"),
        ({"budget": {"total_rho": 9.0}}, "budget.total_rho: must be left out with running totals"),
        ({"budget": {"total_delta": 1e-6}}, "budget.total_delta: must be left out with running totals"),
        ({"release": {"epoch": "1500ms"}}, "release.epoch: must be a whole number of windows, or a duration"),
        (
            {"release": {"epoch": "1m"}, "window": {"length": "7s"}},
            "release.epoch: must be a multiple of `window.length`",
        ),
        ({"release": {"epoch": 0}}, "release.epoch: must be 1 to 1048576 windows, got 0"),
        ({"release": {"epoch": "30d"}}, "release.epoch: must be 1 to 1048576 windows, got 2592000"),
        ({"release": {"theta": 1.5}}, "release.theta: must be above 0 and at most 1, got 1.5"),
        ({"release": {"theta": 0.0}}, "release.theta: must be above 0"),
        ({"release": {"of": "count"}}, "release.edges: belongs to of = 'histogram', not to 'count'"),
        ({"release": {"edges": None}}, "release.edges: must be given, or `categories`"),
        (
            {"release": {"epoch": 2**20, "edges": [1 + 0.1 * k for k in range(390)]}, "lattice": {"step": 0.01}},
            "must have at most",
        ),
    ],
)
def test_what_totals_cannot_do_is_said(sections, what):
    with pytest.raises(ConfigError) as error:
        _ = config_of(**sections).job
    assert what in str(error.value)


def test_a_ledger_that_keeps_no_states_is_refused():
    class Plain(MemoryLedger):
        epoch_states = None

    config = config_of()
    with pytest.raises(ConfigError, match="must keep what windows leave for later ones"):
        Engine(config, ledger=Plain(config.job.terms))


def test_durations_are_counted_in_windows():
    for epoch, windows in (("6s", 6), ("1m", 60), ("2h", 7200), ("1d", 86400), (17, 17)):
        assert config_of(release={"epoch": epoch}).job.answers[0].mechanism.epoch_windows == windows


def test_a_plan_tells_what_everybody_pays():
    found = plan(config_of(release={"of": "count", "edges": None, "epoch": 1440}))
    assert found.sigma == pytest.approx({"last total": 2.93, "worst total": 3.28, "worst window": 1.73}, abs=0.006)
    assert found.facts["epoch_rho_of_all_windows"] == pytest.approx(0.5 * factor(1440, THETA).repeated)
    assert any("loses rho = 1.79e+05 in it, not 1440 times 0.5 = 720" in line for line in found.lines())
    once = plan(config_of(release={"kind": "count", "of": None, "edges": None, "epoch": None}))
    assert found.epsilon_day > 100 * once.epsilon_day


def test_releases_and_reports_tell_no_exact_total(tmp_path):
    """Neither what is published nor what is exported has the state, which lies in the ledger's own table alone."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    engine = Engine(config_of(ledger={"url": url}))
    releases = run(engine, range(3))
    engine.abort()
    ledger = open_ledger(url, config_of(ledger={"url": url}).job.terms)
    states = [body for _, body in ledger.epoch_states("", 0)]
    assert len(states) == 3
    journal = b"".join(row.body for row in ledger.rows())
    assert not any(body in journal for body in states)
    ledger.close()
    assert "state" not in json.loads(releases[0].to_bytes())


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_last_window_of_an_epoch_leaves_nothing(tmp_path, is_refused):
    """Exact totals of a stream's last epoch stayed in its ledger for ever."""
    url, path = f"sqlite:{tmp_path / 'l.db'}", tmp_path / "l.db"
    engine = Engine(config_of(ledger={"url": url}))
    run(engine, range(3))
    engine.abort()
    if is_refused:
        with sqlite3.connect(path) as db:
            db.execute("DELETE FROM states WHERE open_ms = 1000")
        db.close()
    engine = Engine(config_of(ledger={"url": url}))
    found = run(engine, range(3, 6))
    assert {release.reason for release in found} == {"state_lost" if is_refused else None}
    assert engine.ledger.epoch_states("", 0) == []
    assert [release.status for release in run(engine, [6])] == ["released"]
    assert len(engine.ledger.epoch_states("", 6000)) == 1
    engine.abort()


def test_the_options_have_their_defaults():
    options = TotalOptions(kind="total", rho=1.0, epoch="1d")
    assert (options.of, options.theta, options.holds_records) == ("count", 0.8, False)
    assert options.takes_categories
    assert not options.needs_features


def test_a_window_that_was_stored_before_the_seal_failed_stays_in_the_totals(monkeypatch):
    """What memory holds of the epoch is read anew: the failed call may have sealed it or not."""
    wide = {"release": {"rho": 5e7}, "budget": {"rho": 1e8}}  # hardly any noise
    engine = Engine(config_of(**wide), noise=Noise(SeededEntropy(1)))
    real, calls = MemoryLedger.seal_with_states, []

    def failing(self, *given):
        real(self, *given)
        calls.append(given)
        if len(calls) == 2:
            raise OSError("the answer was lost")

    monkeypatch.setattr(MemoryLedger, "seal_with_states", failing)
    found = run(engine, [0])
    push(engine, 1)
    with pytest.raises(OSError, match="lost"):
        engine.advance(2001)
    found += engine.advance(2001)
    push(engine, 2)
    found += engine.advance(3001)
    totals = np.cumsum([bins_of(window) for window in range(3)], axis=0)
    assert [np.round(release.value).tolist() for release in found] == totals.tolist()
    engine.abort()
