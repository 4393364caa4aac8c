"""Streams of texts, from records to releases: units, keys, crashes, and what is refused."""

import json

import numpy as np
import pytest
from support.helpers import sample

import fcstream
from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.errors import ConfigError

APPS = {"name": "app", "type": "text"}
BARE = dict.fromkeys(("method", "radius", "spread", "size_hint"))
FREQUENT = {**BARE, "kind": "frequent", "rho": 0.5, "delta": 1e-9}
WINDOW = {"end": "1970-01-01T00:00:10Z"}


def config_of(*, features=(APPS,), unit="event", release=(), stream=(), window=(), **more):
    who = {"unit": unit, **({"user": "id"} if unit == "user" else {})}
    found = sample(release=FREQUENT | dict(release), window=WINDOW | dict(window), stream=who | dict(stream), **more)
    return found | {"features": [dict(each) for each in features]}


def engine_of(seed=1, **options):
    return Engine(config_of(**options), noise=Noise(SeededEntropy(seed)))


def test_a_window_tells_what_many_have():
    engine = engine_of()
    texts = ["maps"] * 300 + ["mail"] * 200 + [f"rare {i}" for i in range(100)]
    engine.push(np.zeros(600, np.int64), texts)
    found = engine.close()[0]
    assert (found.status, found.kind, found.features) == ("released", "frequent", None)
    assert found.parts["feature"] == "app"
    assert found.parts["levels"] == ["maps", "mail"]
    np.testing.assert_allclose(found.value, [300, 200], atol=6)
    assert len(found.sigma) == 2
    assert fcstream.Release.from_bytes(found.to_bytes()) == found
    assert (found.rho, found.delta) == (0.5, 1e-9)


def test_an_empty_window_tells_nothing():
    found = engine_of().close()[0]
    assert (found.status, found.value, found.parts["levels"]) == ("released", [], [])


def test_parts_and_order_of_reading_change_nothing():
    texts = [f"t{i}" for i in np.random.default_rng(0).integers(0, 30, 400)]
    whole, parts = engine_of(), engine_of()
    whole.push(np.zeros(400, np.int64), texts)
    for cut in np.array_split(np.array(texts[::-1], object), 7):
        parts.push(np.zeros(len(cut), np.int64), cut)
    one, two = whole.close()[0], parts.close()[0]
    assert one.to_bytes() == two.to_bytes()
    assert one.value


@pytest.mark.parametrize("k", [1, 2])
def test_a_user_counts_for_so_many_texts(k):
    engine = engine_of(unit="user", release={"values_per_user": k, "rho": 2.0}, budget={"rho": 9.0, "delta": 1e-6})
    for text in ("a", "b", "c"):
        engine.push(np.zeros(900, np.int64), [text] * 900, ids=[str(i % 300) for i in range(900)])
    found = engine.close()[0]
    np.testing.assert_allclose(sum(found.value), 300 * k, atol=12)
    assert found.unit == "user"
    assert len(found.value) == 3


def test_too_many_users_are_refused_and_too_many_texts_of_events():
    engine = engine_of(unit="user", window={**WINDOW, "max_records": 50})
    engine.push(np.zeros(900, np.int64), ["a"] * 900, ids=[str(i) for i in range(900)])
    assert engine.close()[0].reason == "too_many"
    engine = engine_of(release={"max_values": 50})
    engine.push(np.zeros(900, np.int64), [str(i) for i in range(900)])
    found = engine.close()[0]
    assert (found.reason, found.rho, found.value, found.parts) == ("too_many_values", 0.01, None, None)


def test_users_texts_do_not_depend_on_the_order_of_reading():
    ids, texts = [str(i % 40) for i in range(400)], [f"t{i % 7}" for i in range(400)]
    found = []
    for order in (slice(None), slice(None, None, -1)):
        engine = engine_of(unit="user", release={"rho": 2.0, "delta": 1e-3}, budget={"rho": 9.0, "delta": 0.1})
        engine.push(np.zeros(400, np.int64), texts[order], ids=ids[order])
        found.append(engine.close()[0])
    assert found[0].value == found[1].value
    assert found[0].parts == found[1].parts


def test_every_key_has_its_own_texts():
    config = config_of(stream={"key": "site", "keys": ["x", "y"]}, budget={"rho": 9.0, "delta": 1e-6})
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(2)))
    engine.push([0] * 400, ["a"] * 200 + ["b"] * 200, keys=["x"] * 200 + ["y"] * 200)
    assert {each.key: each.parts["levels"] for each in engine.close()} == {"x": ["a"], "y": ["b"]}


def test_a_file_of_records_is_read_by_the_command(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from fcstream.cli import main

    monkeypatch.chdir(tmp_path)
    rows = [{"ts_ms": 1, "app": "Zu\u0308rich" if i % 2 else "Z\u00fcrich"} for i in range(300)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "c.toml").write_text(
        '[stream]\nname = "s"\n[[features]]\nname = "app"\ntype = "text"\n[window]\nlength = "10s"\n'
        'start = "1970-01-01T00:00:00Z"\nend = "1970-01-01T00:00:10Z"\n'
        '[release]\nkind = "frequent"\nrho = 0.5\ndelta = 1e-9\n[budget]\nrho = 1.0\ndelta = 1e-6\n'
        '[source]\nurl = "jsonl:in.jsonl"\n[sink]\nurl = "jsonl:out.jsonl"\n[ledger]\nurl = "sqlite:l.db"\n'
    )
    plan = CliRunner().invoke(main, ["plan", "c.toml"])
    assert "texts of 'app' are told from a noisy number of" in plan.output
    result = CliRunner().invoke(main, ["run", "c.toml"])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out.jsonl").read_text())
    assert found["parts"]["levels"] == ["Z\u00fcrich"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"features": ({**APPS, "min": 1.0},)}, "features.app.min"),
        ({"features": ({**APPS, "levels": ["a", "b"]},)}, "features.app.levels"),
        ({"features": ({**APPS, "max_bytes": 0},)}, "features.app.max_bytes"),
        ({"features": ({"name": "x", "min": 0.0, "max": 1.0, "max_bytes": 9},)}, "features.x.max_bytes"),
        ({"features": ({"name": "x", "min": 0.0, "max": 1.0},)}, "features"),
        ({"features": (APPS, {**APPS, "name": "title"})}, "release.feature"),
        ({"features": (APPS, APPS)}, "features"),
        ({"features": ({**APPS, "optional": True},)}, "features.app.optional"),
        ({"release": {"where": {"app": {"min": 1}}}}, "release.where.app"),
        ({"release": {"where": {"app": []}}}, "release.where.app"),
        ({"release": {"where": {"app": ["a", "x" * 300]}}}, "release.where.app"),
        ({"release": {"kind": "count", "delta": None, "features": ["app"]}}, "release.features"),
        ({"release": {"kind": "sum", "delta": None}}, "features"),
        ({"release": {"features": ["app"]}}, "release.features"),
        ({"unit": "user", "stream": {"per_user": "mean"}}, "stream.per_user"),
        ({"window": {**WINDOW, "max_records": 9}}, "window.max_records"),
        ({"features": ({**APPS, "name": "ts_ms"},)}, "features"),
    ],
)
def test_wrong_configurations_are_refused(changes, key):
    with pytest.raises(ConfigError) as caught:
        assert Config.from_mapping(config_of(**changes)).job
    assert caught.value.key == key


def test_a_configuration_of_texts_needs_no_lattice():
    config = config_of()
    del config["lattice"]
    assert Config.from_mapping(config).job.texts == ("app",)


def answers_of(n=3000, seed=1, **options):
    """Records with texts and numbers, and answers about both."""
    draw = np.random.default_rng(seed)
    texts = draw.choice(
        ["maps", "mail", "caf\u00e9", *(f"rare {i}" for i in range(50))], n, p=[0.4, 0.3, 0.2] + [0.002] * 50
    )
    speeds = draw.integers(0, 101, n).astype(float)
    config = config_of(features=(APPS, {"name": "speed", "min": 0.0, "max": 100.0}), budget={"rho": 1e5}, **options)
    config["release"] = [
        {"name": "texts", "kind": "frequent", "rho": 50.0, "delta": 1e-9},
        {"name": "fast", "kind": "frequent", "rho": 50.0, "delta": 1e-9, "where": {"speed": {"min": 80}}},
        {"name": "two", "kind": "count", "rho": 100.0, "where": {"app": ["mail", "cafe\u0301"]}},
        {"name": "speed of maps", "kind": "sum", "rho": 5000.0, "where": {"app": ["maps"]}},
        {"name": "fast mail", "kind": "count", "rho": 100.0, "where": {"app": ["mail"], "speed": {"min": 80}}},
    ]
    return config, texts, speeds


@pytest.mark.parametrize("unit", ["event", "user"])
def test_texts_stand_beside_numbers_and_choose_records(unit):
    config, texts, speeds = answers_of(unit=unit)
    engine = Engine(config, noise=Noise(SeededEntropy(1)))
    assert not engine.job.answers.is_simple
    for part in np.array_split(np.arange(len(texts)), 4):
        rows = np.array([[text, speed] for text, speed in zip(texts[part], speeds[part], strict=True)], object)
        engine.push(np.zeros(len(part), np.int64), rows, ids=part if unit == "user" else None)
    every, fast, two, speed, both = engine.close()
    assert engine.rejected == {}
    for release, chosen in ((every, speeds >= 0), (fast, speeds >= 80)):
        found = dict(zip(release.parts["levels"], release.value, strict=True))
        assert set(list(found)[:3]) == {"maps", "mail", "caf\u00e9"}
        for text in ("maps", "mail", "caf\u00e9"):
            assert found[text] == pytest.approx((chosen & (texts == text)).sum(), abs=2)
    assert two.value[0] == pytest.approx(np.isin(texts, ["mail", "caf\u00e9"]).sum(), abs=1)
    assert speed.value[0] == pytest.approx(speeds[texts == "maps"].sum(), abs=6 * speed.sigma[0])
    assert speed.features == ["speed"]
    assert both.value[0] == pytest.approx(((texts == "mail") & (speeds >= 80)).sum(), abs=1)


def test_answers_about_different_texts_are_disjoint():
    def loss(*wanted):
        config = config_of()
        config["release"] = [
            {"name": f"{i}", "kind": "count", "rho": 1.0, "where": {"app": texts}} for i, texts in enumerate(wanted)
        ]
        return Config.from_mapping(config).job.answers.loss.rho

    assert loss(["a"], ["b"], ["c", "d"]) == 1.0
    assert loss(["a", "b"], ["b", "c"], ["c", "a"]) == 2.0
    assert loss(["caf\u00e9"], ["cafe\u0301"]) == 2.0  # one text, written in two ways
    assert loss(["7"], ["07"]) == 1.0


def test_late_records_keep_the_codes_of_their_texts():
    config = config_of(
        budget={"rho": 1e5},
        window={"clock": "broker", "lateness": "1s", "backlog": "40000d", "slide": "5s", "end": None},
    )
    config["release"] = {"kind": "count", "rho": 100.0, "where": {"app": ["mail"]}}
    engine = Engine(config, noise=Noise(SeededEntropy(0)))
    engine.push([7000] * 30, ["mail"] * 20 + ["maps"] * 10, arrival_ms=[12_000] * 30)  # late for [0, 10 s)
    counts = [(release.window_open_ms, round(release.value[0])) for release in engine.advance(17_001)]
    assert counts == [(0, 0), (5000, 20)]
    engine.abort()
