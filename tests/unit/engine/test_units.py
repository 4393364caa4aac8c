"""Units of privacy, savings, tracking and what happens when a budget ends: through the whole engine."""

import json
from itertools import pairwise

import numpy as np
import pytest
from support import naive
from support.helpers import rows, sample

from fcstream import BudgetExhausted, ConfigError, Engine, Noise, PrivacyLoss, SeededEntropy
from fcstream.config import Config
from fcstream.ledgers.base import TOTAL_BLOCK, USER_BLOCK
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.stream.contributions import UserPoints, user_key

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
USERS = {"unit": "user", "user": "id"}


def engine(seed=0, **sections):
    return Engine(sample(**sections), noise=Noise(SeededEntropy(seed)))


def count_engine(rho=50.0, **sections):
    """Counts with hardly any noise."""
    return engine(release={**COUNT, "rho": rho}, **sections)


# -- users -------------------------------------------------------------------------------------------------------------


def test_a_user_counts_once_a_window():
    eng = count_engine(stream=USERS, budget={"rho": 500.0})
    ids = np.repeat(np.arange(40), 25)
    eng.push(np.zeros(1000), rows(1000), ids=ids)
    eng.push(np.full(1000, 10_001), rows(1000), ids=ids[::-1])
    assert [abs(r.count - n) < 2 for r, n in zip(eng.close(), [40, 40, 0, 0, 0, 0], strict=True)] == [True] * 6


def test_the_budget_of_users_runs_out_for_all_of_them_at_once():
    """Three windows' budget: the fourth is refused, since a number without those who came every time would be wrong."""
    eng = count_engine(stream=USERS, budget={"rho": 150.0})
    for k in range(6):
        eng.push(np.full(100, 10_000 * k), rows(100), ids=[f"always {i}" for i in range(100)])
        eng.push(np.full(30, 10_000 * k), rows(30), ids=[f"only in {k}: {i}" for i in range(30)])
    answers = eng.close()
    assert [r.reason for r in answers] == [None] * 3 + ["budget_exhausted"] * 3
    assert np.abs(np.array([r.count for r in answers[:3]]) - 130).max() <= 2
    assert [r.spent["rho"] for r in answers] == [50.0, 100.0, 150.0, 150.0, 150.0, 150.0]
    assert [r.rho for r in answers] == [50.0] * 3 + [0.0] * 3  # what any one participant was charged
    assert eng.rejected == {}


def test_first_takes_the_earliest_record_and_mean_the_mean():
    points = np.array([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0], [5.0, 50.0]])
    names, times = np.array(["a", "b", "a", "a"], object), np.array([5, 1, 4, 4])
    for per_user, wanted in (("first", [5.0, 50.0]), ("mean", [4.0, 40.0])):
        users = UserPoints(2, per_user)
        users.add(7, names[:2], times[:2], points[:2])
        users.add(7, names[2:], times[2:], points[2:])
        keys, reduced = users.read(7, b"salt")
        assert keys.tolist() == sorted(keys.tolist())
        a = keys.tolist().index(user_key(b"salt", "a").rstrip(b"\0"))
        assert reduced[a].tolist() == wanted
        assert reduced[1 - a].tolist() == [2.0, 20.0]
        users.forget_before(8)
        assert users.read(7, b"salt")[1].shape == (0, 2)


@pytest.mark.parametrize("per_user", ["first", "mean"])
def test_order_and_batches_change_nothing_about_users(per_user):
    """Which of a user's records counts must not depend on other users' traffic, so not on the order of reading."""
    rng = np.random.default_rng(5)
    points = rng.integers(-(2**30), 2**30, size=(500, 3)).astype(float)
    points[:, 0] = rng.integers(0, 2, 500)  # ties that the next coordinate decides
    names, times = np.array([f"u{i}" for i in rng.integers(0, 60, 500)], object), rng.integers(0, 4, 500)
    whole, parts = UserPoints(3, per_user), UserPoints(3, per_user)
    whole.add(0, names, times, points)
    cuts, order = [0, *np.sort(rng.integers(0, 500, 12)).tolist(), 500], rng.permutation(500)
    for a, b in pairwise(cuts):
        some = order[a:b]
        parts.add(0, names[some], times[some], points[some])
    for one, two in zip(whole.read(0, b"s"), parts.read(0, b"s"), strict=True):
        assert (one == two).all()
    keys, reduced = whole.read(0, b"s")
    found = dict(zip(keys.tolist(), reduced.tolist(), strict=True))
    wanted = naive.user_points(names, times, points, per_user)
    assert found == {user_key(b"s", name).rstrip(b"\0"): point for name, point in wanted.items()}


@pytest.mark.parametrize("bad", [None, "", {}, 1.5, ["a"]])
def test_ids_that_are_none(bad):
    reasons = []
    eng = Engine(sample(stream=USERS), on_rejection=reasons.extend)
    eng.push([1, 2, 3], rows(3), ids=["x", bad, 7])
    assert [(r.position, r.reason) for r in reasons] == [(1, "missing" if bad in (None, "") else "bad_user")]


def test_ids_belong_to_the_unit_user():
    with pytest.raises(ConfigError, match="must be left out with unit 'event'"):
        Engine(sample()).push([1], rows(1), ids=["a"])
    with pytest.raises(ConfigError, match="must be given with unit 'user'"):
        Engine(sample(stream=USERS)).push([1], rows(1))
    with pytest.raises(ConfigError, match="must have 1 entries, got 2"):
        Engine(sample(stream=USERS)).push([1], rows(1), ids=["a", "b"])


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"stream": {"unit": "user"}}, "stream.user"),
        ({"stream": {"user": "id"}}, "stream.user"),
        ({"stream": {"unit": "user", "user": "a"}}, "stream.user"),
        ({"budget": {"total_delta": 1e-6}}, "budget.total_rho"),
        ({"budget": {"total_rho": 0.5, "total_delta": 1e-6}}, "budget.total_rho"),
        ({"budget": {"total_rho": 5.0}}, "budget.total_delta"),
        ({"budget": {"savings": "even"}}, "budget.savings"),
        ({"stream": {"unit": "stream"}, "budget": {"savings": "even", "rho": 4.0}}, "budget"),
        (
            {"stream": {"unit": "stream"}, "budget": {"savings": "even"}, "window": {"clock": "wall", "end": None}},
            "window.end",
        ),
    ],
)
def test_configurations_that_cannot_be(sections, place):
    with pytest.raises(ConfigError) as caught:
        Config.from_mapping(sample(**sections))
    assert caught.value.key == place


def test_users_from_files(tmp_path):
    """JSON lines and CSV name the same users, numbers and text alike; odd ones are rejected."""
    from fcstream.formats.decoders import CsvRows, Objects

    schema = Config.from_mapping(sample(stream=USERS)).job.schema
    lines = [
        b'{"ts_ms": 1, "a": 1, "b": 2, "id": "x"}',
        b'{"ts_ms": 2, "a": 1, "b": 2, "id": 17}',
        b'{"ts_ms": 3, "a": 1, "b": 2, "id": null}',
        b'{"ts_ms": 4, "a": 1, "b": 2, "id": 1.5}',
        b'{"ts_ms": 5, "a": 1, "b": 2}',
        b'{"ts_ms": 6, "a": 1, "b": 2, "id": "\\u00fc"}',
    ]
    batch = Objects(schema).decode(lines, 0)
    assert batch.users.tolist() == ["x", "17", "ü"]
    assert [(r.position, r.reason, r.field) for r in batch.rejections] == [
        (2, "missing", "id"),
        (3, "bad_user", "id"),
        (4, "missing", "id"),
    ]
    fast = Objects(schema).decode(lines[:2], 0)
    assert fast.users.tolist() == ["x", "17"]
    table = CsvRows(schema, b"id,ts_ms,b,a")
    batch = table.decode([b"x,1,2,1", b"17,2,2,1", b",3,2,1", b'"\xc3\xbc",6,2,1'], 1)
    assert batch.users.tolist() == ["x", "17", "ü"]
    assert [(r.position, r.reason) for r in batch.rejections] == [(3, "missing")]


def test_a_second_draw_for_users_after_a_crash(tmp_path):
    """Charged and lost: the restarted engine draws once more for those who were charged, at no new cost."""
    shape = {"stream": USERS, "budget": {"rho": 100.0}, "ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"}}
    ids = [f"u{i}" for i in range(200)]
    eng = count_engine(**shape)
    eng.push(np.zeros(200), rows(200), ids=ids)
    real = SQLiteLedger.seal
    try:
        SQLiteLedger.seal = lambda self, answers: (_ for _ in ()).throw(OSError("power"))
        with pytest.raises(OSError):
            eng.close()
    finally:
        SQLiteLedger.seal = real
        eng.abort()
    eng = count_engine(**shape)
    eng.push(np.zeros(201), rows(201), ids=[*ids, "newcomer"])
    answers = eng.close()
    assert abs(answers[0].count - 201) <= 2  # the public block was charged for whoever is in the window
    eng.acknowledge()
    ledger = SQLiteLedger(str(tmp_path / "l.db"))
    ledger.verify()
    assert ledger.spent(USER_BLOCK) == PrivacyLoss.charge(100)
    ledger.close()


# -- the total ---------------------------------------------------------------------------------------------------------


def test_a_total_stops_an_event_stream():
    eng = count_engine(budget={"rho": 50.0, "total_rho": 150.0})
    answers = eng.close()
    assert [r.reason for r in answers] == [None] * 3 + ["budget_exhausted"] * 3
    assert eng._ledger.spent(TOTAL_BLOCK) == PrivacyLoss.charge(150)


def test_stop_raises_and_leaves_the_rest():
    eng = count_engine(stream={"unit": "stream"}, budget={"rho": 100.0, "exhausted": "stop"})
    with pytest.raises(
        BudgetExhausted, match=r"block stream refuses the charge for window 1970-01-01 00:00:20 UTC.*difference"
    ) as caught:
        eng.close()
    assert caught.value.requested == PrivacyLoss.charge(50)
    assert caught.value.remaining == PrivacyLoss(0, 10**9)
    assert caught.value.difference == PrivacyLoss.charge(50)
    assert caught.value.window.open_ms == 20_000
    with pytest.raises(BudgetExhausted):
        eng.close()  # still usable, still full
    assert [r.window_open_ms for r in eng.unpublished()] == [0, 10_000]


def test_the_command_stops_with_its_exit_code(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from fcstream.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"ts_ms": 1, "a": 20, "b": 50}\n')
    (tmp_path / "c.toml").write_text(
        """
stream = {name = "t", unit = "stream"}
lattice.step = 0.001
features = [{name = "a", min = 0.0, max = 40.0}, {name = "b", min = 0.0, max = 100.0}]
window = {length = "10s", start = "1970-01-01T00:00:00Z", end = "1970-01-01T00:01:00Z"}
release = {kind = "count", rho = 1.0}
budget = {rho = 2.0, delta = 0.0, exhausted = "stop"}
source.url = "jsonl:in.jsonl"
sink.url = "jsonl:out.jsonl"
ledger.url = "sqlite:l.db"
"""
    )
    done = CliRunner().invoke(main, ["run", "c.toml"])
    assert done.exit_code == 3
    assert "for window 1970-01-01 00:00:20 UTC" in done.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert "2 windows: 2 released, 0 refused" in done.stderr  # what was done until then
    assert "1 record read, 0 rejected" in done.stderr
    again = CliRunner().invoke(main, ["run", "c.toml", "--json"])
    assert again.exit_code == 3
    told = json.loads(again.stderr.splitlines()[-1])
    assert (told["records"], told["already_answered"], told["spent"]["rho"]) == (1, 2, 2.0)
    assert told["stopped"].startswith("block stream refuses the charge")


# -- savings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "pairs"), [("mean", "blocks"), ("mean", "hidden"), ("variance", "blocks")])
def test_windows_that_spend_more_take_the_pairs_that_were_sampled(kind, pairs):
    """More rho would do with fewer pairs, but coins are drawn as records come, for the rho of the configuration."""
    release = {"kind": kind, "rho": 1.0, "size_hint": 4000, "pairs": pairs}
    if kind == "variance":
        release |= {"method": None, "spread": None}
    shape = {"stream": {"unit": "stream"}, "budget": {"rho": 3.0, "savings": "even"}, "release": release}
    engine = Engine(sample(**shape, window={"end": "1970-01-01T00:00:30Z"}), noise=Noise(SeededEntropy(1)))
    engine.push(np.full(4000, 25_000), rows(4000))
    last = engine.close()[-1]
    assert last.status == "released"
    assert last.rho > 1.1


@pytest.mark.parametrize("savings", ["none", "even", "paper"])
def test_what_empty_windows_save_makes_later_ones_better(savings):
    shape = {"stream": {"unit": "stream"}, "budget": {"rho": 6.0, "savings": savings}, "release": {"rho": 1.0}}
    eng = engine(**shape)
    for k in (3, 4, 5):
        eng.push(np.full(300, 10_000 * k), rows(300))
    answers = eng.close()
    assert [r.reason for r in answers] == ["too_few"] * 3 + [None] * 3
    assert sum(r.rho for r in answers) <= 6.0 + 1e-9
    assert answers[-1].spent["rho"] == pytest.approx(sum(r.rho for r in answers), abs=1e-8)
    costs, sigmas = [r.rho for r in answers[3:]], [r.sigma[0] for r in answers[3:]]
    if savings == "none":
        assert costs == [1.0] * 3
    if savings == "paper":
        assert costs[0] > 3  # three quarters at once
        assert sigmas[0] < 0.7 * sigmas[2]
    if savings == "even":
        assert 1.5 < min(costs) < max(costs) < 1.05 * min(costs)


def test_savings_survive_a_restart(tmp_path):
    """Offers are computed from the ledger, so a restarted engine makes the same ones."""
    shape = {"stream": {"unit": "stream"}, "budget": {"rho": 6.0, "savings": "even"}, "release": {"rho": 1.0}}
    whole = [r.rho for r in engine(**shape).close()]
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    costs = []
    for _ in range(6):
        eng = engine(**shape, ledger=ledger)
        stops = iter(eng.closing())
        costs += [r.rho for r in next(stops)]
        eng.acknowledge()
        eng.abort()
    assert np.allclose(costs, whole, rtol=0.2)
    assert len(costs) == 6


def test_users_are_charged_what_was_offered_and_get_back_the_same():
    shape = {"stream": USERS, "budget": {"rho": 6.0, "savings": "paper"}, "release": {"rho": 1.0}}
    eng = engine(**shape)
    eng.push(np.full(300, 50_000), rows(300), ids=np.arange(300))
    answers = eng.close()
    assert [r.reason for r in answers] == ["too_few"] * 5 + [None]
    assert answers[-1].rho > 5
    assert eng._ledger.spent(USER_BLOCK).rho == pytest.approx(sum(r.rho for r in answers), abs=1e-8)


# -- tracking ----------------------------------------------------------------------------------------------------------


def tracking(seed=0, **sections):
    window = {"end": "1970-01-01T00:02:00Z"}
    return engine(seed, window=window, release={"method": "tracking", "rho": 1.0}, **sections)


def test_tracking_follows_and_costs_no_delta_but_that_of_the_gate_when_warm():
    eng = tracking()
    for k in range(12):
        eng.push(np.full(300, 10_000 * k), rows(300, k, center=(20 + 0.02 * k, 50 - 0.02 * k)))
    answers = eng.close()
    assert all(r.status == "released" for r in answers)
    assert [r.delta for r in answers] == [1e-9] + [1e-10] * 11
    cold, warm = answers[0], answers[1:]
    assert np.mean([r.sigma[0] for r in warm]) < 0.99 * cold.sigma[0]
    for k, r in enumerate(answers):
        assert abs(r.value[0] - (20 + 0.02 * k)) < 0.1
        assert r.track.drift is False


def test_tracking_notices_a_jump_and_starts_cold():
    eng = tracking()
    for k in range(6):
        eng.push(np.full(300, 10_000 * k), rows(300, k, center=(20, 50)))
    for k in range(6, 12):
        eng.push(np.full(300, 10_000 * k), rows(300, k, center=(24, 50)))
    answers = eng.close()
    assert [r.delta > 1e-10 for r in answers] == [True] + [False] * 6 + [True] + [False] * 4
    assert answers[6].track.drift
    assert answers[6].reason == "no_core"  # nobody is near where they were
    assert abs(answers[7].value[0] - 24) < 0.1
    assert all(abs(r.value[0] - 24) < 0.1 for r in answers[8:])


def test_tracking_is_not_moved_by_outliers():
    eng = tracking()
    for k in range(12):
        points = rows(300, k, center=(20, 50))
        points[:30] = [79.0, 99.0]
        eng.push(np.full(300, 10_000 * k), points)
    answers = eng.close()
    assert [r.delta > 1e-10 for r in answers] == [True] + [False] * 11
    assert max(abs(r.value[0] - 20) for r in answers) < 0.1


def test_tracking_goes_on_after_a_restart(tmp_path):
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    answers = []
    for k in range(3):
        eng = tracking(k, ledger=ledger)
        eng.push(np.full(300, 10_000 * k), rows(300, k, center=(20, 50)))
        answers += next(iter(eng.closing()))
        eng.acknowledge()
        eng.abort()
    assert [r.delta > 1e-10 for r in answers] == [True, False, False]
    assert answers[1].track.center != answers[2].track.center
