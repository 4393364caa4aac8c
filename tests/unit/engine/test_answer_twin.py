"""Streams with several answers, drawn at random: without noise, an engine says exactly what its slow twin says."""

import random
from collections import Counter
from functools import partial

import pytest
from support import answer_twin
from support.drawn_streams import draw_records, draw_stream, open_silent, push, run, salts_of

SEEDS = range(60)


def drawn(seed):
    """A stream, its job, its records, and what draws the rest."""
    draw = random.Random(seed)
    mapping, job = draw_stream(draw)
    return mapping, job, draw_records(draw, draw.choice([0, 30, 300, 600])), draw


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_is_that_of_the_twin_in_whatever_order_records_come(seed):
    mapping, job, records, draw = drawn(seed)
    assert job.answers.loss.parts == answer_twin.window_loss(mapping, job)
    for in_order in (False, True):
        engine = open_silent(mapping, job)
        salts = salts_of(engine)
        releases = run(engine, job, records, draw, in_order=in_order, push_some=partial(push, mapping, job))
        assert set(engine.rejected) <= {"late"}
        wanted = answer_twin.wanted_releases(mapping, job, records, salts)
        answer_twin.compare(releases, wanted, f"seed {seed}, {'in order' if in_order else 'in no order'}")


@pytest.mark.slow
def test_the_drawn_streams_are_of_every_sort_and_hardly_any_answer_is_left_to_itself():
    sorts, reasons = set(), Counter()
    for seed in SEEDS:
        mapping, job, records, _ = drawn(seed)
        stream, window = mapping["stream"], mapping["window"]
        sorts |= {
            (stream["unit"], window["clock"]),
            (stream["unit"], "slides" if "slide" in window else "tumbles"),
            (stream["unit"], stream.get("key_budgets", "divided") if job.keys else "no keys"),
            ("a user's records", stream.get("per_user")),
        }
        for answer in mapping["release"]:
            sorts.add((stream["unit"], answer.get("method", answer["kind"])))
            sorts |= {("condition", feature) for feature in answer.get("where", {})}
            sorts.add(("a user's records in one answer", answer.get("per_user")))
        salts = dict.fromkeys(job.keys or [None], bytes(32))
        for allowed, value in answer_twin.wanted_releases(mapping, job, records, salts).values():
            reasons["numbers" if value else " or ".join(map(str, allowed))] += 1
    kinds = {(unit, kind) for unit in ("event", "stream", "user") for kind in ("count", "sum", "histogram", "ball")}
    assert sorts >= kinds | {(unit, "recentered") for unit in ("event", "stream", "user")} | {("event", "total")}
    assert sorts >= {(unit, clock) for unit in ("event", "stream", "user") for clock in ("eof", "broker")}
    assert sorts >= {(unit, pace) for unit in ("event", "stream", "user") for pace in ("slides", "tumbles")}
    assert sorts >= {(unit, keys) for unit in ("event", "stream", "user") for keys in ("divided", "no keys")}
    assert sorts >= {("user", "shared"), ("a user's records", "first"), ("a user's records", "mean")}
    assert sorts >= {("condition", feature) for feature in ("speed", "on", "status", "app")}
    assert sorts >= {("a user's records in one answer", each) for each in (None, "first", "mean", "sum")}
    assert reasons["numbers"] > 1000
    assert min(reasons[reason] for reason in ("budget_exhausted", "too_many", "too_few")) > 10
    assert reasons["numbers"] > 0.7 * reasons.total(), reasons
