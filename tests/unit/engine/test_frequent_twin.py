"""Frequent texts of streams drawn at random: without noise, an engine says exactly what its slow twin says."""

import hashlib
import random
from collections import Counter

import pytest
from support.answer_twin import SLIDES_MS, composed, openings, pay, user_key, windows_of
from support.drawn_streams import (
    END_MS,
    KEYS,
    Record,
    accepted,
    open_silent,
    push_points,
    run,
    salts_of,
    schedule,
)

SEEDS = range(30)
MAX_BYTES = 8
GOOD = ["e\u0301", "a", "\u00e9", 1, "maps", "x" * 8, "\u00e9" * 4, "1", "zz", 2, 3]
BAD = ["x" * 9, "\u00e9" * 5, "", None, 1.5, "\ud800"]


def any_stream(draw):
    """A configuration with the one answer ``frequent``."""
    unit, clock = draw.choice(["event", "stream", "user", "user"]), draw.choice(["eof", "broker"])
    stream = {"name": "phones", "unit": unit}
    release = {"kind": "frequent", "rho": draw.choice([0.5, 3.0]), "delta": draw.choice([1e-3, 1e-6])}
    window = schedule(clock) | draw.choice([{}, {}, {"slide": "5s"}, {"slide": "2s"}])
    if unit == "user":
        stream["user"] = "who"
        release["values_per_user"] = draw.choice([1, 2, 5])
        window["max_records"] = draw.choice([5, 25, 1000])
    else:
        release["max_values"] = draw.choice([3, 8, 50])
    if draw.random() < 0.3:
        stream |= {"key": "site", "keys": KEYS}
        if unit != "event":
            stream["keys_per_user"] = draw.choice([1, 3])
    windows = 2.5 * stream.get("keys_per_user", 1)  # for how many a small budget is enough
    features = [{"name": "app", "type": "text", "max_bytes": MAX_BYTES}]
    if draw.random() < 0.3:
        features.append({"name": "other", "type": "text"})
        release["feature"] = "app"
    return {
        "stream": stream,
        "features": features,
        "window": window,
        "release": release,
        "budget": {"rho": draw.choice([1e4, windows * release["rho"]]), "delta": 0.5},
        "ledger": {"url": "memory:"},
    }


def any_records(draw, number):
    """Records of forty users; one in twenty is no text, or too long a one."""
    vocabulary = GOOD[: draw.choice([3, 6, 11])] + [f"rare {i}" for i in range(draw.choice([0, 0, 3, 30]))]
    found = []
    for _ in range(number):
        time_ms = draw.randrange(END_MS)
        arrival_ms = time_ms + draw.choice([0, 900, 1500, 9000])
        common = vocabulary[: draw.randint(1, len(vocabulary))]
        text = draw.choice(BAD if draw.random() < 0.05 else common)
        values = {"app": text, "other": "o"}
        found.append(Record(time_ms, arrival_ms, f"u{draw.randrange(40)}", draw.choice(KEYS), values))
    return found


def drawn(seed):
    """A stream, its job, its records, and what draws the rest."""
    draw = random.Random(seed)
    mapping, job = accepted(lambda: any_stream(draw))
    return mapping, job, any_records(draw, draw.choice([0, 200, 600])), draw


def text_of(value):
    """The text that a field's value is, None if it is none that is admitted."""
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str) or not value or any("\ud800" <= letter <= "\udfff" for letter in value):
        return None
    text = composed(value)
    return text if len(text.encode()) <= MAX_BYTES else None


def chosen_texts(salt, index, user, texts, most):
    """The texts for which a user counts in a window: those of the least hash."""

    def rank(text):
        data = index.to_bytes(8, "big", signed=True) + user_key(salt, user) + text.encode()
        return hashlib.blake2b(data, digest_size=16, key=salt).digest()

    return sorted(set(texts), key=rank)[:most]


def wanted_releases(mapping, job, records, salts):
    """By key and opening of the window, a reason, or how often each frequent text came."""
    frequent = getattr(job.answers[0].mechanism, "inner", job.answers[0].mechanism)
    spent, wanted = {}, {}
    for key in mapping["stream"].get("keys", [None]):
        for open_ms in openings(mapping):
            here = [
                (record.user, text_of(record.values["app"]))
                for record in records
                if key in (None, record.key) and open_ms in windows_of(mapping, record)
            ]
            here = [(user, text) for user, text in here if text is not None]
            texts = texts_that_count(mapping, job, here, (key, open_ms), salts[key], spent)
            if isinstance(texts, str):
                wanted[key, open_ms] = texts
            else:
                counts = Counter(texts)
                wanted[key, open_ms] = {text: n for text, n in counts.items() if n >= frequent.threshold}
    return wanted


def texts_that_count(mapping, job, here, at, salt, spent):
    """The texts of a window's (user, text) that are counted, or the reason why none is; whoever takes part has paid."""
    mechanism, (key, open_ms) = job.answers[0].mechanism, at
    loss, capacity = job.answers.loss.rho_nano, job.terms.capacity.rho_nano
    unit, release = mapping["stream"]["unit"], mapping["release"]
    if unit == "user":
        users = {user: [text for other, text in here if other == user] for user, _ in here}
        if not pay(spent, key, loss, capacity):
            return "budget_exhausted"
        if len(users) > mapping["window"]["max_records"]:
            spent[key] -= loss - mechanism.gate.loss.rho_nano  # what the gate did not use
            return "too_many"
        index, most = open_ms // SLIDES_MS[mapping["window"].get("slide")], release["values_per_user"]
        return [text for user, own in users.items() for text in chosen_texts(salt, index, user, own, most)]
    if unit == "stream" and not pay(spent, key, loss, capacity):
        return "budget_exhausted"
    texts = [text for _, text in here]
    if len(set(texts)) > release["max_values"]:
        if unit == "stream":
            spent[key] -= loss - mechanism.gate.loss.rho_nano
        return "too_many_values"
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_frequent_texts_are_those_of_the_twin_in_whatever_order_records_come(seed):
    mapping, job, records, draw = drawn(seed)
    names = [feature["name"] for feature in mapping["features"]]

    def push(engine, batch):
        bare = len(names) == 1 and len(batch) > 1 and draw.random() < 0.5
        points = [record.values["app"] if bare else [record.values[name] for name in names] for record in batch]
        return push_points(job, engine, batch, points)

    for in_order in (False, True):
        engine = open_silent(mapping, job)
        salts = salts_of(engine)
        releases = run(engine, job, records, draw, in_order=in_order, push_some=push)
        found = {
            (each.key, each.window_open_ms): each.reason or dict(zip(each.parts["levels"], each.value, strict=True))
            for each in releases
        }
        assert len(found) == len(releases)
        assert found == wanted_releases(mapping, job, records, salts), (seed, in_order)


def test_the_drawn_streams_are_of_every_sort():
    sorts, results = set(), Counter()
    for seed in SEEDS:
        mapping, job, records, _ = drawn(seed)
        unit = mapping["stream"]["unit"]
        clock, slides = mapping["window"]["clock"], "slide" in mapping["window"]
        sorts |= {(unit, clock), (unit, "keys" if job.keys else "no keys"), (clock, slides), (unit, slides)}
        salts = dict.fromkeys(job.keys or [None], bytes(32))
        for found in wanted_releases(mapping, job, records, salts).values():
            results[found if isinstance(found, str) else "texts" if found else "no text"] += 1
    units = ("event", "stream", "user")
    assert sorts >= {(unit, clock) for unit in units for clock in ("eof", "broker")}
    assert sorts >= {(unit, keys) for unit in units for keys in ("keys", "no keys")}
    assert sorts >= {(which, slides) for which in (*units, "eof", "broker") for slides in (False, True)}
    assert min(results[result] for result in ("texts", "too_many", "too_many_values", "budget_exhausted")) > 5, results
