"""Keys that are found: what a configuration may say, what the ledger is bound to, and what is planned."""

import copy
import json

import pytest

from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.planning.plan import plan
from fcstream.sections import Budget, Count, KeyDiscovery, Records, Window

KEYS = {"discover": "frequent", "every": "4h", "rho": 0.05, "delta": 1e-6}
USERS = {"unit": "user", "user": "who", "key_budgets": "shared", "keys_per_user": 2}
BASE = {
    "stream": {"name": "t", "key": "site"},
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "count", "rho": 0.1},
    "budget": {"rho": 0.15, "delta": 1e-6},
    "ledger": {"url": "sqlite:l.db"},
}


def settings(keys=None, **sections):
    found = copy.deepcopy(BASE)
    found["stream"]["keys"] = KEYS | (keys or {})
    for name, values in sections.items():
        found[name] = found.get(name, {}) | values
    return found


def job_of(keys=None, **sections):
    return Config.from_mapping(settings(keys, **sections)).job


def test_the_search_is_a_stream_of_its_own_with_periods_as_windows():
    job = job_of({"first": ["a"]})
    found = job.finder
    assert (found.job.terms.stream, found.period_windows, found.first) == ("t/", 4, ("a",))
    assert found.job.schedule.count == 5  # nothing is looked for in the last of six periods
    assert found.job.answers.loss + job.answers.loss == job.terms.capacity
    assert job.part("a").terms.stream == "t/a"
    assert job.for_key("") is found.job
    assert job.keys == ()
    assert job.has_keys


def test_a_schedule_without_an_end_is_searched_for_ever():
    window = {"clock": "broker", "start": "now", "lateness": "1m"}
    base = settings(window=window)
    del base["window"]["end"]
    schedule = Config.from_mapping(base).job.finder.job.schedule
    assert (schedule.count, schedule.length_ms, schedule.lateness_ms) == (None, 4 * 3_600_000, 60_000)


def test_users_have_one_filter_for_searches_and_keys():
    job = job_of(stream=USERS, budget={"rho": 10.0})
    assert job.terms.group == job.finder.job.terms.group == "t/"
    assert job.part("a").terms.group is None
    own = job_of(stream=USERS, budget={"rho": 10.0, "group": "fleet"})
    assert own.terms.group == own.finder.job.terms.group == "fleet"


def test_a_ledger_is_bound_to_the_search_but_not_to_the_first_keys():
    plain = Config.from_mapping(settings()).job.terms
    assert json.loads(plain.specification)["stream"]["keys"] == KEYS
    assert Config.from_mapping(settings({"first": ["a"], "every": "240m"})).job.terms == plain
    for other in ({"every": "8h"}, {"rho": 0.04}, {"delta": 1e-7}, {"max_values": 10}):
        assert Config.from_mapping(settings(other)).job.terms.specification != plain.specification
    declared = settings() | {"stream": {"name": "t", "key": "site", "keys": ["a"]}}
    assert "keys" not in json.loads(Config.from_mapping(declared).job.terms.specification)["stream"]


def test_typed_sections_say_the_same():
    typed = Config.of(
        stream=Records(
            name="t", key="site", keys=KeyDiscovery(discover="frequent", every="4h", rho=0.05, delta=1e-6, first=["a"])
        ),
        window=Window(**BASE["window"]),
        release=Count(rho=0.1),
        budget=Budget(rho=0.15, delta=1e-6),
    )
    assert typed.job == Config.from_mapping(settings({"first": ["a"]})).job


TOTAL = {"kind": "total", "of": "count", "rho": 0.1, "epoch": "6h"}


@pytest.mark.parametrize(
    ("keys", "sections", "message"),
    [
        ({"every": "90m"}, {}, r"stream\.keys\.every: must be a whole number of windows of 3600000 ms, got '90m'"),
        ({"every": "30m"}, {}, r"stream\.keys\.every: must be a whole number of windows"),
        ({"every": "1d"}, {}, r"stream\.keys\.every: must be shorter than the schedule"),
        ({"every": "soon"}, {}, r"stream\.keys\.every: must be a number with a unit"),
        ({"discover": "all"}, {}, r"stream\.keys\.discover: must be 'frequent', got 'all'"),
        ({"evry": "1d"}, {}, r"stream\.keys\.evry: is not a known key: did you mean 'every'"),
        ({"rho": 0.0}, {}, r"stream\.keys\.rho: must be"),
        ({"delta": 0.0}, {}, r"stream\.keys\.delta: "),
        ({"delta": 2.0}, {}, r"stream\.keys\.delta: "),
        ({"max_values": 0}, {}, r"stream\.keys\.max_values: must be in \[1, "),
        ({"values_per_user": 2}, {}, r"stream\.keys\.values_per_user: belongs to unit = 'user'"),
        ({"max_users": 2}, {}, r"stream\.keys\.max_users: belongs to unit = 'user'"),
        ({"first": ["a", "a"]}, {}, r"stream\.keys\.first: must be different texts"),
        ({"first": [""]}, {}, r"stream\.keys\.first: must be different texts"),
        ({"rho": 0.06}, {}, r"budget: must hold a window at .* and finding the keys of its period at .*, got"),
        ({}, {"stream": {"unit": "stream"}}, r"stream\.unit: must be 'event' or 'user' where keys are found"),
        ({}, {"budget": {"total_rho": 5.0}}, r"budget\.total_rho: must be left out where keys are found"),
        ({}, {"stream": {"keys_per_user": 2}}, r"stream\.keys_per_user: must be left out where keys are found"),
        ({}, {"window": {"slide": "30m"}}, r"window\.slide: must be left out where keys are found"),
        (
            {},
            {"source": {"url": "kafka://h/t", "partitioner": "crc32"}},
            r"source\.partitioner: must be left out where keys are found",
        ),
        ({}, {"release": TOTAL}, r"release\.epoch: must divide `stream\.keys\.every`"),
        ({}, {"stream": USERS | {"key_budgets": "divided"}}, r"stream\.key_budgets: must be 'shared' where keys are"),
        ({}, {"stream": USERS | {"keys_per_user": None}}, r"stream\.keys_per_user: is required where keys are found"),
        ({"max_values": 5}, {"stream": USERS, "budget": {"rho": 9.0}}, r"stream\.keys\.max_values: must be left out"),
        (
            {"values_per_user": 0},
            {"stream": USERS, "budget": {"rho": 9.0}},
            r"stream\.keys\.values_per_user: must be in \[1, 1000\], got 0",
        ),
        ({}, {"stream": USERS}, r"budget: must hold a user under 2 keys of a window at"),
        (
            {},
            {"stream": USERS, "budget": {"rho": 9.0}, "ledger": {"url": "memory:"}},
            r"ledger\.url: must be SQLite or PostgreSQL where keys are found",
        ),
        ({}, {"budget": {"rho": 9.0, "savings": "even"}}, r"budget\.savings: must be 'none'"),
        ({}, {"stream": {"key": None}}, r"stream\.keys: belongs to `stream\.key`"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_sentence(keys, sections, message):
    with pytest.raises(ConfigError, match=f"^{message}") as refused:
        job_of(keys, **sections)
    assert "\n" not in str(refused.value)


def test_a_missing_key_of_the_search_is_named():
    base = settings()
    del base["stream"]["keys"]["every"]
    with pytest.raises(ConfigError, match=r"^stream\.keys\.every: is required"):
        Config.from_mapping(base)


def test_a_search_has_a_cost_that_nobody_states():
    keys = {"discover": "frequent", "every": "4h"}
    for stream, budget in (({}, {}), (USERS, {"rho": 10.0})):
        base = settings(stream=stream, budget=budget)
        base["stream"]["keys"] = keys
        job = Config.from_mapping(base).job
        assert job.finder.job.answers.loss.as_dict() == {"rho": 0.01, "delta": 1e-9}
        stated = job_of({"rho": 0.01, "delta": 1e-9}, stream=stream, budget=budget)
        assert job.finder.job.answers.loss == stated.finder.job.answers.loss
        assert plan(Config.from_mapping(base)).as_dict()["search"]["loss"] == {"rho": 0.01, "delta": 1e-9}


def test_a_search_without_a_delta_is_refused():
    base = settings(budget={"delta": 0.0})
    del base["stream"]["keys"]["delta"]
    with pytest.raises(ConfigError, match=r"^stream\.keys\.delta: must be"):
        Config.from_mapping(base)


def test_groups_of_searches_have_names_of_their_own():
    base = settings(stream=USERS, budget={"rho": 9.0, "group": "t/"})
    with pytest.raises(ConfigError, match=r"^budget\.group: must not end with '/'"):
        Config.from_mapping(base)


def test_totals_whose_epoch_divides_the_period_are_taken():
    assert job_of(release=TOTAL | {"epoch": "2h"}).finder is not None


def test_the_plan_has_the_search_in_every_sum():
    config = Config.from_mapping(settings())
    made = plan(config)
    assert made.per_record == made.guarantee
    assert made.as_dict()["search"]["loss"]["rho"] == 0.05
    text = "\n".join(made.lines())
    assert "after every 4 windows a search costs (rho=0.05, delta=1e-06): a key that 25 records of these have" in text
    assert "one record costs at most (rho=0.15, delta=1e-06) of its budget, the search for keys included" in text
    assert made.search.threshold == config.job.finder.job.answers[0].mechanism.threshold


def test_a_users_budget_lasts_for_windows_and_searches():
    budget = {"rho": 1.0, "delta": 1.0e-5}
    made = plan(Config.from_mapping(settings(stream=USERS, budget=budget)))
    # 4 windows of two keys and a search cost 0.85, then 0.15 is left, which is less than another window
    assert made.lasting_windows == 4
    assert "the budget of a user present in every window lasts 4 windows" in "\n".join(made.lines())
    more = plan(Config.from_mapping(settings(stream=USERS, budget={"rho": 1.05, "delta": 1.0e-5})))
    assert more.lasting_windows == 5
