"""One filter for each user across all keys: who counts where depends on own records alone, and one charge pays."""

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import ledger_of, rows, sample
from support.naive import chosen_keys

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.errors import ConfigError, LedgerError
from fcstream.ledgers import open_reader
from fcstream.ledgers.base import USER_BLOCK, WindowKey
from fcstream.ledgers.user_key import UserKeyPlace, derived
from fcstream.planning.plan import plan
from fcstream.stream.contributions import user_key
from fcstream.stream.key_choice import choose_keys

KEYS = ["paris", "rome", "oslo"]
COUNT = {
    "kind": "count",
    "method": None,
    "spread": None,
    "radius": None,
    "delta": None,
    "size_hint": None,
    "rho": 500.0,
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'l.db'}"
    return request.getfixturevalue("postgres").url


def shared(url, most=1, keys=KEYS, **sections):
    stream = {"key": "site", "keys": list(keys), "unit": "user", "user": "who"} | sections.pop("stream", {})
    stream |= {"keys_per_user": most, "key_budgets": "shared"}
    sections = {"release": COUNT, "budget": {"rho": 10_000.0}} | sections
    return Config.from_mapping(sample(stream=stream, ledger=ledger_of(url), **sections))


def records(n=400, windows=4, users=60, seed=1):
    rng = np.random.default_rng(seed)
    times = rng.integers(0, windows * 10_000, n)
    return times, rng.choice(KEYS, n).tolist(), [f"u{k}" for k in rng.integers(0, users, n)]


def answers(engine, data, end=True):
    times, keys, ids = data
    engine.push(times, rows(len(times)), keys, ids=ids, positions=np.arange(len(times)))
    found = engine.close()
    if end:
        engine.acknowledge()
    return found


def test_the_choice_is_that_of_a_slow_twin_and_of_own_keys_alone():
    rng = np.random.default_rng(4)
    salt = b"s" * 32
    names = [user_key(salt, f"u{k}") for k in range(200)]
    held = [np.array(sorted(name for name in names if rng.random() < 0.5), "S16") for _ in KEYS]
    for most in (1, 2, 3):
        masks = choose_keys(salt, -5000, KEYS, held, most)
        for name in names:
            mine = [i for i in range(len(KEYS)) if np.isin(np.array([name], "S16"), held[i])[0]]
            expected = chosen_keys(salt, name, -5000, [KEYS[i] for i in mine], most)
            assert {KEYS[i] for i in mine if masks[i][held[i] == np.array(name, "S16")].all()} == expected
            assert len(expected) == min(most, len(mine))
        # Without somebody else, and with the keys in another order, everybody counts where they did.
        fewer = [each[each != held[0][0]] for each in held]
        for a, b, c, d in zip(held, masks, fewer, choose_keys(salt, -5000, KEYS, fewer, most), strict=True):
            assert (b[a != held[0][0]] == d).all()
            assert len(c) == len(d)
        turned = choose_keys(salt, -5000, KEYS[::-1], held[::-1], most)
        assert all((a == b).all() for a, b in zip(masks, turned[::-1], strict=True))
    other = choose_keys(salt, 5000, KEYS, held, 1)
    assert any((a != b).any() for a, b in zip(choose_keys(salt, -5000, KEYS, held, 1), other, strict=True))


@pytest.mark.parametrize("exhausted", ["refuse", "stop"])
def test_counts_under_all_keys_add_up_to_what_users_paid_for(tmp_path, exhausted):
    """Without a mask twenty users under five keys would count a hundred times, and pay for one key each."""
    sites = ["a", "b", "c", "d", "e"]
    stream = {"key": "site", "keys": sites, "keys_per_user": 1, "key_budgets": "shared", "unit": "user", "user": "who"}
    budget = {"rho": 3000.0, "exhausted": exhausted}
    url = f"sqlite:{tmp_path / 'l.db'}"
    config = Config.from_mapping(sample(stream=stream, release=COUNT, budget=budget, ledger=ledger_of(url)))
    data = np.zeros(100, int), sites * 20, [f"u{i // 5}" for i in range(100)]
    assert sum(release.count for release in answers(KeyedEngine(config), data) if release.window_open_ms == 0) == 20


def test_nobody_counts_where_no_keys_were_chosen(url):
    engine = KeyedEngine(shared(url, 1))
    part = engine.parts[0].ledger
    with pytest.raises(RuntimeError, match="no keys were chosen for this window"):
        part.mask(WindowKey(0, 10_000), np.array([b"a" * 16]))
    engine.abort()


def test_a_view_of_users_needs_a_mask(url):
    """No mask must never mean everybody."""
    users = {"unit": "user", "user": "who"}
    engine = Engine(sample(stream=users, release=COUNT, budget={"rho": 500.0}, ledger=ledger_of(url)))
    engine.push([5, 6], rows(2), ids=["ann", "bob"])
    users = engine._records.users(0)
    for mask in (None, np.ones(1, np.bool_)):
        with pytest.raises(RuntimeError, match="who of a window's users takes part was not decided"):
            engine._records.view(range(1), users, mask)
    engine.abort()


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_user_counts_under_so_many_keys_and_pays_once(url, most):
    config, data = shared(url, most), records()
    found = answers(KeyedEngine(config, noise=Noise(SeededEntropy(0))), data)
    assert len(found) == 3 * config.job.schedule.count
    reader = open_reader(url, "t")
    place = UserKeyPlace.of(url, config.ledger.user_key)
    salt = derived(place.read(), "t")
    assert reader.spent(USER_BLOCK).rho == 6 * most * 500.0  # the schedule has six windows
    assert reader.summary()["acknowledged"] == 6
    reader.close()
    for w in range(4):
        here = [(k, u) for t, k, u in zip(*data, strict=True) if t // 10_000 == w]
        expected = dict.fromkeys(KEYS, 0)
        for user in {u for _, u in here}:
            mine = sorted({k for k, u in here if u == user})
            for key in chosen_keys(salt, user_key(salt, user), w * 10_000, mine, most):
                expected[key] += 1
        # With this much budget noise is far below one user.
        counted = {r.key: r.count for r in found if r.window_open_ms == w * 10_000}
        assert counted == expected
    for name in ("t", "t/paris", "t/rome", "t/oslo"):
        reader = open_reader(url, name)
        assert reader.verify() > 0
        reader.close()
    shown = CliRunner().invoke(main, ["budget", "show", url])
    assert "the filter for all keys is that of stream 't'" in shown.output
    assert "together  " not in shown.output  # one stream, whatever its keys
    lines = CliRunner().invoke(main, ["budget", "releases", url]).output.splitlines()
    assert len(lines) == len(found)


def test_no_user_pays_more_than_the_cap_whatever_keys_they_are_under(url):
    """Promised to be under one key, a user of three would lose three times the budget; here three windows use it up."""
    config = shared(url, 1, budget={"rho": 1500.0})
    data = np.arange(0, 60_000, 2500), ["paris", "rome", "oslo", "rome"] * 6, ["ann"] * 24
    found = answers(KeyedEngine(config), data)
    per_window = {w: sum(r.count for r in found if r.window_open_ms == w * 10_000) for w in range(3)}
    assert per_window == {0: 1, 1: 1, 2: 1}
    assert {r.reason for r in found if r.window_open_ms >= 30_000} == {"budget_exhausted"}
    assert {r.reason for r in found if r.window_open_ms < 30_000} == {None}


def test_several_answers_are_about_the_same_chosen_users(url):
    stream = {"key": "site", "keys": KEYS, "unit": "user", "user": "who", "key_budgets": "shared", "keys_per_user": 1}
    mapping = sample(stream=stream, budget={"rho": 10_000.0}, ledger=ledger_of(url))
    count = {name: value for name, value in COUNT.items() if value is not None}
    mapping["release"] = [{"name": "one", **count}, {"name": "two", **count}]
    data = records(windows=1)
    found = answers(KeyedEngine(Config.from_mapping(mapping), noise=Noise(SeededEntropy(0))), data)
    first = {(r.key, r.name): r.count for r in found if r.window_open_ms == 0}
    assert len(first) == 6
    assert all(abs(first[key, "one"] - first[key, "two"]) <= 1 for key in KEYS)
    assert abs(sum(first[key, "one"] for key in KEYS) - len(set(data[2]))) <= 3
    reader = open_reader(url, "t")
    assert reader.spent(USER_BLOCK).rho == 6 * 1000.0
    reader.close()


def test_windows_that_overlap_choose_for_each_window(url):
    config = shared(url, 1, window={"slide": "5s"})
    found = answers(KeyedEngine(config), (np.full(3, 6000), KEYS, ["ann"] * 3))
    counts = {w: [r.count for r in found if r.window_open_ms == w] for w in (0, 5000, 10_000)}
    assert {w: sorted(each) for w, each in counts.items()} == {0: [0, 0, 1], 5000: [0, 0, 1], 10_000: [0, 0, 0]}


def test_after_a_crash_before_any_key_is_sealed_all_are_interrupted(url):
    """The dead process may have chosen other keys for somebody, and is not certain to be dead."""
    config, data = shared(url, 2), records(windows=1)
    engine = KeyedEngine(config)
    for part in engine.parts:
        part._closer._noise = _Broken()
    with pytest.raises(ZeroDivisionError):
        answers(engine, data)
    engine.abort()
    found = answers(KeyedEngine(config), data)
    assert {r.reason for r in found if r.window_open_ms == 0} == {"interrupted"}
    assert {r.reason for r in found if r.window_open_ms > 0} == {None}
    assert {r.spent["rho"] for r in found if r.window_open_ms == 0} == {1000.0}
    reader = open_reader(url, "t")
    assert reader.spent(USER_BLOCK).rho == 6000.0
    reader.close()


def test_two_processes_never_choose_keys_for_one_window_twice(postgres):
    """They hold different records of a user, who counts under the keys that one of them chose, or under none."""
    config = shared(postgres.url, 1)
    one, two = (KeyedEngine(config, noise=Noise(SeededEntropy(k))) for k in range(2))
    one.push([5], rows(1), ["paris"], ids=["ann"], positions=[0])
    two.push([6], rows(1), ["rome"], ids=["ann"], positions=[1])
    assert one._close_window(None)
    assert two._close_window(None)  # all of its keys are sealed by the other one
    found = [r for engine in (one, two) for part in engine.parts for r in part.collect() if r.window_open_ms == 0]
    assert {(r.key, r.count) for r in found} == {("paris", 1), ("rome", 0), ("oslo", 0)}
    for engine in (one, two):
        engine.abort()
    late, early = (KeyedEngine(config, noise=Noise(SeededEntropy(k))) for k in range(2))
    late.push([10_005], rows(1), ["paris"], ids=["ann"], positions=[0])
    early.push([10_006], rows(1), ["rome"], ids=["ann"], positions=[1])
    assert late.parts[0].close_next(None)  # Paris of the next window, and then it hangs
    assert early._close_window(None)
    assert late._close_window(None)  # finds the others sealed
    found = [r for engine in (late, early) for part in engine.parts for r in part.collect()]
    assert {(r.key, r.count, r.reason) for r in found if r.window_open_ms == 10_000} == {
        ("paris", 1, None),
        ("rome", None, "interrupted"),
        ("oslo", None, "interrupted"),
    }
    for engine in (late, early):
        engine.abort()


def test_after_a_crash_between_two_keys_the_others_are_interrupted(url):
    """Records of a sealed key are not kept, so under which keys a user counted is not known any more."""
    config, data = shared(url, 1), records(windows=1)
    engine = KeyedEngine(config)
    engine.parts[1]._closer._noise = _Broken()
    with pytest.raises(ZeroDivisionError):
        answers(engine, data)
    engine.abort()
    second = KeyedEngine(config)
    assert [r.key for r in second.unpublished()] == ["paris"]
    found = answers(second, data)
    first = {r.key: r.reason for r in found if r.window_open_ms == 0}
    assert first == {"rome": "interrupted", "oslo": "interrupted"}
    assert {r.reason for r in found if r.window_open_ms > 0} == {None}
    assert not answers(KeyedEngine(config), data)


def test_an_error_between_two_keys_is_made_good_by_the_same_process(url):
    config, data = shared(url, 1), records(windows=1)
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(0)))
    good, engine.parts[1]._closer._noise = engine.parts[1]._closer._noise, _Broken()
    with pytest.raises(ZeroDivisionError):
        answers(engine, data)
    engine.parts[1]._closer._noise = good
    found = engine.close()
    assert {r.reason for r in found} == {None}
    assert sum(r.count for r in found if r.window_open_ms == 0) == len(set(data[2]))
    engine.acknowledge()


class _Broken:
    private = True

    def __getattr__(self, name):
        raise ZeroDivisionError


def test_what_no_key_used_goes_back_to_every_user(url):
    """Means of hardly any records stop at their noisy size; the account gets back what the dearest key left."""
    mean = {"rho": 1.0, "delta": 1e-9}
    config = shared(url, 2, release=mean, budget={"rho": 30.0, "delta": 1e-6})
    found = answers(KeyedEngine(config), (np.array([5, 6, 7]), ["paris", "rome", "oslo"], ["ann", "ann", "bob"]))
    first = [r for r in found if r.window_open_ms == 0]
    assert {r.reason for r in first} == {"too_few"}
    reader = open_reader(url, "t")
    (window, charged), *_ = reader.charges()
    assert window.open_ms == 0
    assert charged.rho == pytest.approx(2 * max(r.rho for r in first))
    assert charged.rho < 1.0
    assert reader.verify() > 0
    reader.close()


def test_live_windows_close_together(url):
    config = shared(url, 1, window={"clock": "broker", "start": "1970-01-01T00:00:00Z", "end": None, "lateness": "1s"})
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(0)))
    assert engine.advance(0) == []
    times, keys, ids = np.array([5, 10_005, 6, 10_006]), ["paris", "rome", "rome", "paris"], ["ann"] * 4
    engine.push(times, rows(4), keys, ids=ids, arrival_ms=times)
    found = engine.advance(11_001)
    assert [r.key for r in found] == KEYS
    assert sum(r.count for r in found) == 1
    found = [release for group in engine.closing(31_001) for release in group]
    assert [r.window_open_ms for r in found] == [10_000] * 3 + [20_000] * 3
    assert sum(r.count for r in found) == 1
    engine.acknowledge()
    engine.abort()


def test_a_group_holds_the_account_and_other_streams(url):
    budget = {"rho": 1000.0, "delta": 0.0, "group": "fleet"}
    config = shared(url, 1, budget=budget)
    found = answers(KeyedEngine(config), (np.array([5, 6, 10_005]), ["paris", "rome", "oslo"], ["ann"] * 3))
    assert [sum(r.count for r in found if r.window_open_ms == w * 10_000) for w in range(2)] == [1, 1]
    alone = {"name": "other", "unit": "user", "user": "who"}
    other = Config.from_mapping(sample(stream=alone, release=COUNT, budget=budget, ledger=ledger_of(url)))
    engine = Engine(other, noise=Noise(SeededEntropy(0)))
    engine.push([5, 6], rows(2), ids=["ann", "bob"])
    found = engine.close()
    assert {r.reason for r in found} == {"budget_exhausted"}  # also for whoever comes for the first time
    engine.acknowledge()
    shown = CliRunner().invoke(main, ["budget", "show", url]).output
    assert "group 'fleet' ('t', 'other'): one budget" in shown or "group 'fleet' ('other', 't'): one budget" in shown
    assert "together  " not in shown
    assert CliRunner().invoke(main, ["budget", "verify", url]).exit_code == 0


def test_a_plan_counts_what_a_window_of_all_keys_costs():
    found = plan(shared("memory:", 2, release=COUNT | {"rho": 0.01}, budget={"rho": 0.1, "delta": 0.0}))
    assert "a user counts under at most 2 of them in a window" in "\n".join(found.lines())
    assert found.lasting_windows == 5
    assert found.as_dict()["keys_chosen"] == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stream": {"unit": "stream", "user": None}}, r"stream\.key_budgets: must be 'divided' but for unit = 'user'"),
        ({"budget": {"total_rho": 3000.0}}, r"budget\.total_rho: must be left out"),
        ({"budget": {"savings": "even"}}, r"budget\.savings: must be 'none'"),
        ({"budget": {"rho": 999.0}}, "a user counts under up to 2 keys of a window"),
        ({"source": {"url": "kafka://h/t", "partitioner": "murmur2"}}, r"source\.partitioner: must be left out"),
    ],
)
def test_what_shared_filters_cannot_have_is_refused_in_one_sentence(changed, message):
    with pytest.raises(ConfigError, match=message):
        shared("memory:", 2, **changed).job  # noqa: B018


def test_one_process_answers_all_keys():
    config = shared("memory:", 1)
    with pytest.raises(ConfigError, match="must be 'divided' here"):
        KeyedEngine(config, keys=["paris"])
    with pytest.raises(ConfigError, match="a `KeyedEngine` answers all keys"):
        Engine(config, key="paris")
    alone = sample(stream={"key_budgets": "shared"})
    with pytest.raises(ConfigError, match=r"stream\.key_budgets: belongs to `stream\.key`"):
        Config.from_mapping(alone).job  # noqa: B018


def test_a_ledger_of_divided_keys_is_not_shared_later(url):
    divided = shared(url, 1, stream={})
    mapping = sample(
        stream={"key": "site", "keys": KEYS, "unit": "user", "user": "who", "keys_per_user": 1},
        release=COUNT, budget={"rho": 10_000.0}, ledger=ledger_of(url),
    )  # fmt: skip
    KeyedEngine(Config.from_mapping(mapping)).abort()
    with pytest.raises(LedgerError, match=r"`stream\.key_budgets` changed from its default to 'shared'"):
        KeyedEngine(divided)
