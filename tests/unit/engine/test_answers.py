"""Several answers of one window: what each is about, what all of them cost together, and that they stay together."""

import json
from contextlib import closing

import numpy as np
import pytest

from fcstream import ConfigError, Engine, KeyedEngine, Noise, PrivacyLoss, SeededEntropy
from fcstream.config import Config
from fcstream.counting.exact import FriendCounts
from fcstream.ledgers import open_reader
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.releases.base import Release, from_lines

LEVELS = ["idle", "busy", "off"]
COUNT = {"kind": "count", "rho": 100.0}
BALL = {"kind": "mean", "method": "ball", "rho": 100.0, "radius": 75.0, "center": [50.0, 50.0], "size_hint": 100}


def configuration(*release, stream=None, window=None, budget=None, **more):
    return {
        "stream": {"name": "cars", **(stream or {})},
        "lattice": {"step": 0.01},
        "features": [
            {"name": "speed", "min": 0.0, "max": 100.0},
            {"name": "load", "min": 0.0, "max": 100.0},
            {"name": "status", "type": "category", "levels": LEVELS},
        ],
        "window": {
            "length": "10s",
            "start": "1970-01-01T00:00:00Z",
            "end": "1970-01-01T00:01:00Z",
            **(window or {}),
        },
        "release": list(release),
        "budget": {"rho": 10_000.0, "delta": 1e-3, **(budget or {})},
        "ledger": {"url": "memory:"},
        **more,
    }


def records(n, seed=1):
    draw = np.random.default_rng(seed)
    return np.column_stack([draw.integers(0, 101, (n, 2)), draw.integers(0, 3, n)]).astype(float)


def run(config, times, rows, seed=0, **push):
    engine = Engine(config, noise=Noise(SeededEntropy(seed)))
    engine.push(times, rows, **push)
    return engine.close()


def named(releases, name):
    return [release for release in releases if release.name == name]


def loss_of(*release, **more):
    return Config.from_mapping(configuration(*release, **more)).job.answers.loss


# -- what each is about ------------------------------------------------------------------------------------------------

WISHES = [
    {"name": "all", **COUNT},
    {"name": "busy", **COUNT, "where": {"status": ["busy"]}},
    {"name": "used", **COUNT, "where": {"status": ["busy", "idle"]}},
    {"name": "slow", **COUNT, "where": {"speed": {"max": 30}}},
    {"name": "slow and busy", **COUNT, "where": {"speed": {"min": 10, "max": 30}, "status": ["busy"]}},
    {"name": "sum", "kind": "sum", "rho": 1000.0, "features": ["load"], "where": {"status": ["busy"]}},
    {"name": "ball", **BALL, "features": ["load", "speed"], "where": {"load": {"min": 50}}},
]


@pytest.mark.parametrize("slide", [None, "5s"])
def test_every_answer_is_that_of_a_stream_that_has_its_rows_and_features_only(slide):
    rows, times = records(4000), np.arange(4000) * 15
    window = {} if slide is None else {"slide": slide}
    mine = run(configuration(*WISHES, window=window), times, rows)
    speed, load, status = rows.T
    parts = {
        "all": speed >= 0,
        "busy": status == 1,
        "used": status < 2,
        "slow": speed <= 30,
        "slow and busy": (speed >= 10) & (speed <= 30) & (status == 1),
        "sum": status == 1,
        "ball": load >= 50,
    }
    windows = 6 if slide is None else 11
    assert [release.name for release in mine] == list(parts) * windows
    assert [release.place for release in mine] == list(range(7)) * windows
    for name, marks in parts.items():
        for release in named(mine, name):
            here = rows[marks & (times >= release.window_open_ms) & (times < release.window_close_ms)]
            wanted = {
                "sum": lambda some: [some[:, 1].sum()],
                "ball": lambda some: [some[:, 1].mean(), some[:, 0].mean()],
            }.get(name, lambda some: [len(some)])(here)
            assert release.value == pytest.approx(wanted, abs=6 * max(release.sigma) + 0.01), (name, release)
            assert max(release.sigma) < 25
    assert {release.rho for release in named(mine, "sum")} == {1000.0}
    assert {tuple(release.features) for release in named(mine, "ball")} == {("load", "speed")}


def test_late_records_reach_the_answers_of_the_later_windows():
    live = {"clock": "broker", "lateness": "1s", "backlog": "40000d", "slide": "5s"}
    engine = Engine(configuration(*WISHES[:2], window=live), noise=Noise(SeededEntropy(0)))
    engine.push([7000] * 30, np.tile([5.0, 5.0, 1.0], (30, 1)), arrival_ms=[12_000] * 30)  # late for [0, 10 s)
    releases = engine.advance(17_001)
    counts = [(release.window_open_ms, release.name, round(release.value[0] / 10)) for release in releases]
    assert counts == [(0, "all", 0), (0, "busy", 0), (5000, "all", 3), (5000, "busy", 3)]
    engine.abort()


def test_one_release_in_double_brackets_is_the_same_as_in_single_ones():
    rows, times = records(500), np.arange(500) * 100
    alone = configuration(BALL | {"features": ["speed", "load"]})
    single = alone | {"release": alone["release"][0]}
    assert Config.from_mapping(alone) == Config.from_mapping(single)
    assert [r.to_bytes() for r in run(alone, times, rows)] == [r.to_bytes() for r in run(single, times, rows)]


def test_answers_that_compare_the_same_points_at_one_radius_share_their_counts(monkeypatch):
    added = []
    real = FriendCounts.add
    monkeypatch.setattr(FriendCounts, "add", lambda self, *given: added.append(self) or real(self, *given))
    core = {"kind": "mean", "radius": 150.0, "rho": 1.0, "delta": 1e-7, "size_hint": 500, "outliers": "leave_out"}
    wishes = [{**core, "name": f"{i}", "features": ["speed", "load"]} for i in range(3)]
    wishes += [{**core, "name": "other", "radius": 160.0}, {**core, "name": "busy", "where": {"status": ["busy"]}}]
    config = configuration(*wishes, window={"max_records": 5000, "end": "1970-01-01T00:00:10Z"})
    releases = run(config, np.zeros(3000, int), records(3000))
    assert len({id(counter) for counter in added}) == 3
    assert {release.status for release in releases} == {"released"}
    alone = run(configuration({**wishes[0], "name": "0"}, window=config["window"]), np.zeros(3000, int), records(3000))
    assert releases[0].value == alone[0].value  # the first draws come from the same seed


# -- what they cost ----------------------------------------------------------------------------------------------------


def test_disjoint_answers_cost_the_dearest_and_others_their_sum():
    def part(name, *levels, rho=1.0, **more):
        return {"name": name, "kind": "count", "rho": rho, "where": {"status": list(levels)}, **more}

    assert loss_of(part("a", "idle"), part("b", "busy", rho=2.0), part("c", "off")) == PrivacyLoss.charge(2)
    pairs = part("a", "idle", "busy"), part("b", "busy", "off"), part("c", "off", "idle")
    assert loss_of(*pairs) == PrivacyLoss.charge(2)
    assert loss_of(*pairs, {"name": "all", **COUNT}) == PrivacyLoss.charge(102)
    users = {"unit": "user", "user": "id"}
    assert loss_of(*pairs, stream=users) == PrivacyLoss.charge(3)  # one user may be in all of them
    speed = [
        {"name": f"{low}", "kind": "count", "rho": 1.0, "where": {"speed": {"min": low, "max": high}}}
        for low, high in ((0, 30), (30.01, 60), (60.01, 100))
    ]
    assert loss_of(*speed) == PrivacyLoss.charge(1)
    speed[1]["where"]["speed"]["min"] = 30  # 30 lies in two of them
    assert loss_of(*speed) == PrivacyLoss.charge(2)


def test_what_an_answer_does_not_start_comes_back_for_the_whole_window():
    core = {"kind": "mean", "radius": 150.0, "rho": 3.0, "delta": 1e-7, "size_hint": 500, "features": ["speed", "load"]}
    core["outliers"] = "leave_out"
    wishes = (
        {**core, "name": "busy", "where": {"status": ["busy"]}},
        {**core, "name": "idle", "where": {"status": ["idle"]}},
        {"name": "n", "kind": "count", "rho": 1.0},
    )
    config = configuration(*wishes, window={"end": "1970-01-01T00:00:10Z"})
    engine = Engine(config, noise=Noise(SeededEntropy(0)))
    rows = records(2000)
    rows[:, 2] = 1
    engine.push(np.zeros(2000, int), rows)
    busy, idle, count = engine.close()
    assert (busy.status, idle.reason, count.status) == ("released", "too_few", "released")
    assert busy.rho == 3.0 > 10 * idle.rho > 0
    assert busy.spent == idle.spent == count.spent
    assert busy.spent["rho"] == pytest.approx(4.0)  # the two are disjoint
    nothing = run(config, [], np.zeros((0, 3)))
    assert nothing[0].reason == nothing[1].reason == "too_few"
    assert nothing[2].spent["rho"] == pytest.approx(1 + max(nothing[0].rho, nothing[1].rho))


def test_savings_give_every_answer_its_part():
    window = {"end": "1970-01-01T00:00:30Z"}
    core = {"name": "m", "kind": "mean", "radius": 150.0, "rho": 3.0, "delta": 1e-7, "size_hint": 500}
    config = configuration(
        {"name": "n", "kind": "count", "rho": 1.0},
        core,
        stream={"unit": "stream"},
        window=window,
        budget={"rho": 12.0, "delta": 1e-3, "savings": "even"},
    )
    releases = run(config, np.full(3000, 25_000), records(3000))
    rhos = [release.rho for release in named(releases, "n")]
    assert rhos[0] == 1.0 < rhos[1] < rhos[2]
    assert named(releases, "m")[2].rho == pytest.approx(3 * rhos[2])
    assert releases[-1].spent["rho"] <= 12.0


# -- that they stay together -------------------------------------------------------------------------------------------


def test_all_answers_are_sealed_in_one_row_and_come_again_after_a_crash(tmp_path):
    config = configuration(*WISHES, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    engine = Engine(config, noise=Noise(SeededEntropy(0)))
    engine.push(np.zeros(200, int), records(200))
    releases = engine.close()
    engine.abort()  # nothing was acknowledged
    again = Engine(config)
    assert again.unpublished() == releases
    again.acknowledge()
    again.abort()
    with closing(open_reader(f"sqlite:{tmp_path / 'l.db'}")) as reader:
        seals = [bytes(row.body) for row in reader.rows() if row.kind == "seal"]
        assert len(seals) == 6
        assert reader.releases() == [release.to_bytes() for release in releases]
    assert from_lines(seals[0]) == releases[:7]
    assert Release.from_bytes(releases[0].to_bytes()) == releases[0]


def test_a_window_that_was_drawn_and_not_sealed_draws_all_answers_once_more(tmp_path, monkeypatch):
    config = configuration(*WISHES, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    for seed, reasons in ((0, None), (1, None), (2, {"interrupted"})):
        engine = Engine(config, noise=Noise(SeededEntropy(seed)))
        engine.push(np.zeros(200, int), records(200))
        if seed < 2:
            with monkeypatch.context() as broken:
                broken.setattr(SQLiteLedger, "seal", lambda *_: (_ for _ in ()).throw(OSError("gone")))
                with pytest.raises(OSError, match="gone"):
                    engine.close()
            engine.abort()
        else:
            releases = engine.close()
            assert {release.reason for release in releases} == reasons
            assert {release.rho for release in named(releases, "sum")} == {1000.0}  # what is charged stays
            assert releases[0].spent["rho"] == config_loss(config)


def test_a_second_draw_gives_nothing_back(tmp_path, monkeypatch):
    """Which stages the lost draw had started is not known."""
    core = {"name": "m", "kind": "mean", "radius": 20.0, "rho": 3.0, "delta": 1e-7, "size_hint": 500}
    config = configuration(core, {"name": "n", **COUNT}, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    with monkeypatch.context() as broken:
        broken.setattr(SQLiteLedger, "seal", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            run(config, [], np.zeros((0, 3)))
    engine = Engine(config)
    releases = engine.close()
    assert {(r.reason, r.rho, r.spent["rho"]) for r in releases} == {("too_few", 3.0, 103.0), (None, 100.0, 103.0)}
    assert engine.spent.rho == 103.0


def config_loss(config):
    return Config.from_mapping(config).job.answers.loss.rho


def test_each_answer_tracks_by_itself_also_after_a_restart(tmp_path):
    track = {"kind": "mean", "method": "tracking", "radius": 30.0, "rho": 5.0, "delta": 1e-7, "size_hint": 400}
    wishes = [
        {"name": "one", **track, "features": ["speed"]},
        {"name": "n", **COUNT},
        {"name": "two", **track, "features": ["load"]},
    ]
    rows = np.column_stack([np.full(500, 20.0), np.full(500, 80.0), np.zeros(500)])
    config = configuration(*wishes, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"}, window={"clock": "broker"})
    config["window"] |= {"backlog": "40000d"}
    for first in (0, 10_000):
        engine = Engine(config, noise=Noise(SeededEntropy(first)))
        engine.push(np.full(500, first), rows, arrival_ms=np.full(500, first))
        one, count, two = engine.advance(first + 10_001)
        assert (one.value[0], two.value[0]) == pytest.approx((20.0, 80.0), abs=1)
        assert one.track != two.track
        assert count.track is None
        assert engine._closer._tracks == (one.track, None, two.track)
        engine.acknowledge()
        engine.abort()
    assert Engine(config)._closer._tracks == (one.track, None, two.track)


# -- users and keys ----------------------------------------------------------------------------------------------------

USERS = {"unit": "user", "user": "id"}


def test_where_comes_before_the_choice_of_a_users_record():
    wishes = [
        {"name": "first", "kind": "sum", "rho": 1000.0, "features": ["speed"]},
        {"name": "busy", "kind": "sum", "rho": 1000.0, "features": ["speed"], "where": {"status": ["busy"]}},
        {"name": "mean", "kind": "count", "rho": 100.0, "where": {"status": ["off"]}},
    ]
    config = configuration(*wishes, stream=USERS, window={"end": "1970-01-01T00:00:10Z"})
    rows = [[10.0, 0, 0], [70.0, 0, 1], [90.0, 0, 1]] * 50
    releases = run(config, [1, 2, 3] * 50, np.array(rows), ids=np.repeat(np.arange(50), 3))
    assert [release.value[0] for release in releases] == pytest.approx([500, 3500, 0], abs=40)
    assert releases[0].spent["rho"] == 2100.0


def test_a_users_sum_is_clipped_once_at_the_close_whatever_the_order():
    wishes = [
        {
            "name": "use",
            "kind": "sum",
            "rho": 1000.0,
            "features": ["load"],
            "per_user": "sum",
            "user_bounds": [0, 120],
        },
        {"name": "people", "kind": "count", "rho": 100.0},
    ]
    config = configuration(*wishes, stream=USERS, window={"end": "1970-01-01T00:00:10Z"})
    loads, ids = [100.0, 100.0, 30.0, 20.0, 5.0], ["a", "a", "b", "b", "c"]
    for order in (slice(None), slice(None, None, -1)):
        rows = np.array([[0.0, load, 0.0] for load in loads])[order]
        use, people = run(config, np.arange(5), rows, ids=np.array(ids, object)[order])
        assert use.value[0] == pytest.approx(120 + 50 + 5, abs=6 * use.sigma[0])
        assert use.sigma[0] < 4
        assert people.value[0] == pytest.approx(3, abs=1)


def test_sums_of_users_agree_with_python_integers_beyond_64_bits():
    from fcstream.stream.contributions import UserPoints

    draw, users = np.random.default_rng(4), UserPoints(1, "sum")
    truth = {}
    for _ in range(40):
        names = np.array([f"{k}" for k in draw.integers(0, 3, 1000)], object)
        points = draw.integers(-(2**40), 2**40 + 1, (1000, 1)) + np.where(names == "2", 2**39, 0)[:, None]
        users.add(0, names, np.zeros(1000, int), points.astype(float))
        for name, (value,) in zip(names, points.tolist(), strict=True):
            truth[name] = truth.get(name, 0) + value
    users._windows[0].wide = {}
    held = users._windows[0]
    held.wide = {held.slots["1"]: [2**70]}
    found = dict(zip(held.slots, held.totals()[:, 0].tolist(), strict=True))
    clipped = {name: min(max(total, -(2**53) + 1), 2**53 - 1) for name, total in truth.items()}
    assert found == clipped | {"1": 2**53 - 1}


def test_a_flood_of_users_of_one_answer_leaves_the_others():
    core = {"kind": "mean", "radius": 20.0, "rho": 2.0, "delta": 1e-6, "size_hint": 100, "features": ["speed"]}
    wishes = [
        {"name": "off", **core, "where": {"status": ["off"]}},
        {"name": "busy", **core, "where": {"status": ["busy"]}},
    ]
    window = {"max_records": 1000, "end": "1970-01-01T00:00:10Z"}
    engine = Engine(configuration(*wishes, stream=USERS, window=window), noise=Noise(SeededEntropy(0)))
    for part in range(10):
        rows = np.column_stack([np.full(1000, 50.0), np.zeros(1000), np.full(1000, 2.0)])
        engine.push(np.zeros(1000, int), rows, ids=np.arange(1000) + 1000 * part)
    engine.push(np.zeros(300, int), np.tile([20.0, 0.0, 1.0], (300, 1)), ids=np.arange(300))
    assert engine._records._users.groups[0]._flooded
    assert not engine._records._users.groups[1]._flooded
    off, busy = engine.close()
    assert (off.reason, busy.status) == ("too_many", "released")
    assert busy.value[0] == pytest.approx(20, abs=1)


def test_every_key_has_all_answers():
    wishes = [WISHES[0], WISHES[1]]
    stream = {"key": "site", "keys": ["north", "south"]}
    engine = KeyedEngine(configuration(*wishes, stream=stream), noise=Noise(SeededEntropy(0)))
    engine.push(np.zeros(100, int), records(100), keys=["north"] * 60 + ["south"] * 40)
    releases = [release for release in engine.close() if release.window_open_ms == 0]
    assert [(r.key, r.name, r.series) for r in releases] == [
        ("north", "all", "cars/north/all"),
        ("north", "busy", "cars/north/busy"),
        ("south", "all", "cars/south/all"),
        ("south", "busy", "cars/south/busy"),
    ]


# -- bad configurations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "stream", "message"),
    [
        ([COUNT, COUNT], {}, r"release\[0\].name: is required where there are several"),
        ([{"name": "a", **COUNT}, {"name": "a", **COUNT}], {}, "must be different for each answer, 'a' is there twice"),
        ([{"name": "a/b", **COUNT}], {}, "release.name: must be 1 to 64 printable characters"),
        ([{"name": "a", **COUNT}, {"name": "b", "kind": "count"}], {}, r"release\[b\].rho: is required"),
        ([{"name": "a", **COUNT}, {"name": "b", **COUNT, "rho": -1}], {}, r"release\[b\].rho: must be a positive"),
        ([{"name": "a", **COUNT}, {"name": "b", **COUNT, "rh": 1}], {}, r"release\[b\].rh: is not a known key"),
        ([{**COUNT, "features": ["weight"]}], {}, "release.features: must name declared features, 'weight' is none"),
        ([{**COUNT, "features": ["load", "load"]}], {}, "release.features: must name each feature once"),
        ([{**BALL, "features": ["status"]}], {}, "must not be a category for a release of kind 'mean'"),
        (
            [{"kind": "histogram", "feature": "status", "edges": [1.0], "rho": 1.0}],
            {},
            "features.status.type: must not be a category for a release of kind 'histogram': .* kind 'marginals'",
        ),
        ([{**COUNT, "where": {"weight": {"min": 1}}}], {}, "release.where.weight: must be a declared feature"),
        ([{**COUNT, "where": {"status": ["buzy"]}}], {}, "must hold declared levels .idle, busy, off., 'buzy' is none"),
        ([{**COUNT, "where": {"status": {"min": 1}}}], {}, "must be a list of levels"),
        ([{**COUNT, "where": {"speed": ["fast"]}}], {}, "must be { min = ..., max = ... } for a number"),
        ([{**COUNT, "where": {"speed": {"low": 1}}}], {}, "must be { min = ..., max = ... } for a number"),
        ([{**COUNT, "where": {"speed": {"min": 60, "max": 30}}}], {}, "must be an interval within the feature's range"),
        ([{**COUNT, "per_user": "first"}], {}, "release.per_user: belongs to unit = 'user'"),
        ([{"kind": "sum", "rho": 1.0, "per_user": "sum"}], USERS, "release.user_bounds: is required"),
        ([{**COUNT, "user_bounds": [0, 1]}], USERS, "release.user_bounds: belongs to per_user = 'sum'"),
        (
            [{"kind": "marginals", "rho": 1.0, "per_user": "mean"}],
            USERS,
            "release.per_user: must be 'first' where a feature is a category",
        ),
        ([], {}, "release: must name at least one answer"),
        ([{"name": f"{i}", **COUNT} for i in range(101)], {}, r"must hold one window at .*rho=10100.*got .*rho=10000"),
    ],
)
def test_a_bad_configuration_gets_one_sentence(release, stream, message):
    with pytest.raises(ConfigError, match=message) as told:
        Config.from_mapping(configuration(*release, stream=stream))
    assert "\n" not in str(told.value)


def test_a_remedy_names_the_answer_that_needs_it():
    """It said `release.delta`, of which there were two."""
    matrix = {"name": "both", "kind": "covariance", "rho": 100.0, "size_hint": 300}
    wanted = configuration({"name": "all", **COUNT}, matrix, window={"max_records": 100})
    with pytest.raises(ConfigError, match=r"^window\.max_records: needs `release\[both\]\.delta`, which pays"):
        Config.from_mapping(wanted)


def test_a_users_sum_needs_one_plain_number_and_a_range():
    def refused(message, **changes):
        config = configuration(
            {"kind": "sum", "rho": 1.0, "per_user": "sum", "user_bounds": [0, 9], **changes}, stream=USERS
        )
        config["features"] = [
            {"name": "speed", "min": 0.0, "max": 100.0},
            {"name": "load", "min": 0.0, "max": 100.0, "origin": 5.0},
        ]
        with pytest.raises(ConfigError, match=message):
            Config.from_mapping(config)

    refused("release.features: must name one feature with per_user = 'sum'")
    refused("release.per_user: must be 'first' or 'mean' for 'load'", features=["load"])
    refused("release.user_bounds: must be finite", features=["speed"], user_bounds=[9, 0])


def test_an_optional_feature_is_neither_answered_nor_asked_for():
    config = configuration({**COUNT, "where": {"speed": {"min": 1}}})
    config["features"][0]["optional"] = True
    with pytest.raises(ConfigError, match=r"release.where.speed: must not be optional"):
        Config.from_mapping(config)
    config = configuration({"name": "n", **COUNT}, {"name": "s", "kind": "sum", "rho": 1.0, "features": ["load"]})
    config["features"][0]["optional"] = True
    Config.from_mapping(config)


def test_the_specification_names_every_answer():
    config = Config.from_mapping(configuration(*WISHES[:2]))
    told = json.loads(config.job.terms.specification)["release"]
    assert told == [
        {"kind": "count", "name": "all", "rho": 100.0},
        {"kind": "count", "name": "busy", "rho": 100.0, "where": {"status": ["busy"]}},
    ]
