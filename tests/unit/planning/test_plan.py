"""What `fcstream plan` says is true: no probability that nobody knows, and no remedy that does not help."""

import json
import re

import numpy as np
import pytest
from support.helpers import sample

from fcstream import Engine
from fcstream.config import Config
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.formats.registry import FORMATS
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.planning.plan import plan

PLAIN = {"method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
WITHOUT_HINT = [
    {"kind": "count", **PLAIN},
    {"kind": "histogram", **PLAIN, "feature": "a", "edges": [0, 20]},
    {"kind": "quantiles", **PLAIN, "feature": "a", "quantiles": [0.1, 0.5, 0.9], "rho": 0.001},
    {"kind": "marginals", **PLAIN, "edges": {"a": [0.0, 20.0], "b": [50.0]}, "rho": 0.001},
    {"kind": "synthetic", **PLAIN, "edges": {"a": [0.0, 20.0], "b": [50.0]}, "rho": 0.001},
    {"kind": "points", **PLAIN, "set": "box", "rho": 0.001},
]


@pytest.mark.parametrize("release", WITHOUT_HINT, ids=lambda release: release["kind"])
def test_no_probability_without_a_size_hint(release):
    """It said 0% of a thousand records that nobody had spoken of."""
    found = plan(Config.from_mapping(sample(release=release)))
    text = "\n".join(found.lines())
    assert "probability 0%" not in text
    if found.smallest_size == 1:
        assert found.probability == 1
    else:
        assert found.probability is None
        assert "how often windows release is not known without `size_hint`; noise (standard deviation) at 1000" in text
        assert "smallest usable window (99%, with `size_hint` set to it): " in text
    assert found.as_dict()["probability"] == found.probability


def clusters(**release):
    mine = {"kind": "centers", "k": 4, "rho": 1.0, "delta": 1e-8, "size_hint": 30_000, "method": "friendly"}
    mapping = sample(release={**PLAIN, **mine, **release}, budget={"rho": 1.0, "delta": 1e-8})
    return Config.from_mapping(mapping)


@pytest.mark.slow
def test_clusters_are_released_if_shards_agree_which_only_the_data_tell():
    """It said over 99.9% of two real data sets, whose windows were then refused with `no_match`."""
    found = plan(clusters())
    assert found.probability is None
    line = next(line for line in found.lines() if line.startswith("a window of 30000 records releases"))
    assert re.search(r"over 99.9% if all \d+ shards find the same 4 centers, 95% if \d+% of them do not", line)
    assert line.endswith("only the data tell")
    shares = [row["shards_that_differ"] for row in found.as_dict()["agreement"]]
    assert 0 == shares[0] < shares[1] < shares[2] < 0.5


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_shares_of_shards_that_may_differ_are_true(row):
    """Tuples of which so many match nothing are released as often as the plan says."""
    mechanism = clusters().job.answers[0].mechanism.inner
    told = mechanism.notes(30_000, None).facts["agreement"][row]
    average, rng, runs = mechanism.average, np.random.default_rng(row), 60
    centers, reach = np.array([[0, 0], [2000, 0], [0, 2000], [2000, 2000.0]]), 1500
    many = round(told["shards_that_differ"] * average.tuples)
    released = 0
    for seed in range(runs):
        tuples = np.tile(centers, (average.tuples, 1, 1)) + rng.integers(-5, 6, (average.tuples, 4, 2))
        tuples[:many] = rng.integers(-reach, reach, (many, 4, 2))
        released += average.release(tuples, Noise(SeededEntropy(seed)), lambda stage: None)[0] is None
    deviation = 3 * np.sqrt(runs * told["probability"] * (1 - told["probability"])) + 4
    assert abs(released - runs * told["probability"]) <= deviation


@pytest.mark.slow
def test_users_are_called_users():
    for hint in (600, 130, 60):
        config = sample(
            stream={"unit": "user", "user": "id"}, release={"size_hint": hint, "rho": 0.25}, budget={"rho": 0.25}
        )
        try:
            text = "\n".join(plan(Config.from_mapping(config)).lines())
        except UnusablePlan as error:
            text = str(error)
        assert f"{hint} users" in text
        about_counts = [line for line in text.splitlines() if "somebody" not in line and "record in every" not in line]
        assert not [line for line in about_counts if re.search(r"\d+ records", line)]


@pytest.mark.slow
@pytest.mark.parametrize("hint", [20, 60, 100, 140, 200])
@pytest.mark.parametrize("method", ["recentered", "friendly", "ball"])
def test_what_would_help_does(hint, method):
    """Every remedy that is named is tried: with it windows release."""
    more = {"center": [20.0, 50.0], "spread": None, "delta": None} if method == "ball" else {}
    release = {"method": method, "size_hint": hint, "rho": 0.02, **more}
    mapping = sample(release=release, budget={"rho": 1.0, "delta": 1e-6})
    try:
        warnings = [w for w in plan(Config.from_mapping(mapping)).warnings if "releases with probability" in w]
        text = warnings[0] if warnings else ""
    except UnusablePlan as error:
        text = str(error)
    if not text:
        return
    size = re.search(r"use longer windows, of (\d+) records", text)
    rho = re.search(r"raise `release.rho` to ([\d.e+-]+)", text)
    delta = re.search(r"raise `release.delta` to ([\d.e+-]+)", text)
    assert size or rho or delta
    for found, changes in ((size, "size_hint"), (rho, "rho"), (delta, "delta")):
        if found:
            value = int(found[1]) if changes == "size_hint" else float(found[1].rstrip(",."))
            tried = sample(release={**release, changes: value}, budget={"rho": 100.0, "delta": 1e-3})
            assert plan(Config.from_mapping(tried)).probability >= 0.99


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "without `radius`: "),
        ({"spread": 1.0}, "without `radius` and `spread`: "),
        ({"radius": "search", "radius_min": 0.1, "radius_max": 30.0}, "without `radius` and `radius_min` and "),
        ({"method": "friendly"}, "without `radius`: "),
    ],
)
@pytest.mark.parametrize("unit", ["event", "user"])
def test_windows_too_small_for_a_core_are_told_of_the_mean_that_needs_none(changes, told, unit):
    """It is named, with what to leave out and how far it will be off, and releases."""
    release = {"radius": 3.0, "rho": 0.25, "size_hint": 60} | changes
    mapping = sample(stream={"unit": unit, "user": "id" if unit == "user" else None}, release=release)
    with pytest.raises(ConfigError) as refused:
        plan(Config.from_mapping(mapping))
    points = "users" if unit == "user" else "records"
    assert f"use `release.method` = 'tracking' {told}" in str(refused.value)
    assert f"so 60 {points} release with probability over 99.9%, from about the tenth window on" in str(refused.value)
    left_out = dict.fromkeys(("spread", "outliers", "radius", "radius_min", "radius_max"))
    found = plan(
        Config.from_mapping(sample(stream=mapping["stream"], release=release | left_out | {"method": "tracking"}))
    )
    assert found.probability > 0.99
    share = re.search(r"with an error of ([\d.]+) of the distance", str(refused.value))
    if share:  # without a radius nothing says how far records lie
        noise = found.facts["noise_of_reach"]
        assert noise < float(share[1]) < 1.6 * noise  # the rest is what clipping adds


def test_the_error_of_the_mean_without_a_core_is_about_the_one_that_is_told():
    mapping = sample(release={"radius": 3.0, "spread": 1.5, "rho": 0.25, "size_hint": 60}, budget={"rho": 20.0})
    with pytest.raises(UnusablePlan) as refused:
        plan(Config.from_mapping(mapping))
    told = re.search(r"with an error of a (\S+), b (\S+) if", str(refused.value))
    tried = {"method": "tracking", "radius": None, "spread": None, "delta": None, "outliers": None}
    window = {"end": "1970-01-01T00:05:00Z"}
    config = Config.from_mapping(sample(release=mapping["release"] | tried, window=window, budget={"delta": 0.0}))
    errors, deviation = [], 1.5 / np.sqrt(2) * np.array([1.0, 2.0])
    for seed in range(6):
        engine, means = Engine(config, noise=Noise(SeededEntropy(seed))), []
        for k in range(30):
            points = np.random.default_rng([seed, k]).normal([20.0, 50.0], deviation, (60, 2))
            engine.push(np.full(60, 10_000 * k), points)
            means.append(points.mean(axis=0))
        errors += [np.array(r.value) - mean for r, mean in zip(engine.close(), means, strict=True)][10:]
    found = np.sqrt(np.mean(np.square(errors), axis=0)) / [float(told[1]), float(told[2])]
    assert (found > 0.75).all()
    assert (found < 1.3).all()


def test_what_would_not_help_is_not_named():
    """A larger delta does nothing where there is none, and longer windows nothing where no size would do."""
    mapping = sample(
        release={"method": "ball", "center": [20.0, 50.0], "size_hint": 3, "rho": 0.02, "spread": None, "delta": None}
    )
    with pytest.raises(UnusablePlan) as refused:
        plan(Config.from_mapping(mapping))
    assert "delta" not in str(refused.value).partition(": ")[2].partition("delta=0)")[2]


def test_noise_that_only_the_data_tell_is_no_number():
    release = {
        **PLAIN,
        "kind": "covariance",
        "method": "friendly",
        "shards": 600,
        "delta": 1e-7,
        "size_hint": 5_000_000,
        "rho": 3.0,
    }
    text = "\n".join(plan(Config.from_mapping(sample(release=release, budget={"rho": 4.0}))).lines())
    assert "nan" not in text


def test_a_larger_budget_of_users_is_told_with_its_windows():
    """A budget that grows with the cost of a window lasts as long as before."""
    mapping = sample(stream={"unit": "user", "user": "id"}, release={"rho": 0.02, "size_hint": 60}, budget={"rho": 1.0})
    with pytest.raises(UnusablePlan) as refused:
        plan(Config.from_mapping(mapping))
    found = re.search(
        r"`release.rho` to (\S+), and `budget.rho` to (\S+), to last for 50 windows as now", str(refused.value)
    )
    assert found
    assert float(found[2]) == pytest.approx(50 * float(found[1]))


@pytest.mark.slow
def test_a_plan_of_several_answers_tells_each_and_what_all_cost_together():
    config = sample(window={"max_records": 5000})
    core = config["release"]
    config["features"].append({"name": "use", "type": "category", "levels": ["lab", "store"]})
    config["release"] = [
        {"name": "n", "kind": "count", "rho": 0.05},
        {**core, "name": "labs", "where": {"use": ["lab"]}},
        {**core, "name": "stores", "where": {"use": ["store"]}},
    ]
    found = plan(Config.from_mapping(config))
    alone = plan(Config.from_mapping(config | {"release": config["release"][1] | {"where": None}}))
    assert found.loss == alone.loss + found.answers[0].loss
    assert [answer.name for answer in found.answers] == ["n", "labs", "stores"]
    assert found.answers[1].sigma == alone.sigma
    told = json.loads(json.dumps(found.as_dict()))
    assert [answer["kind"] for answer in told["answers"]] == ["count", "mean", "mean"]
    assert told["answers"][2]["most_held"] == alone.facts["most_held"]
    assert told["loss"] == found.loss.as_dict()
    assert not {"kind", "sigma", "smallest_size"} & told.keys()
    lines = "\n".join(found.lines())
    assert "answer 'labs': mean" in lines
    assert "the dearest of those that it can belong to, 'n', 'labs'" in lines
    assert f"all answers of a window together cost {found.loss}" in lines
    config["release"][2]["size_hint"] = 3
    with pytest.raises(UnusablePlan, match=r"release\[stores\]: a window of 3 records .* would release with"):
        plan(Config.from_mapping(config))


def test_what_only_the_data_tell():
    """It said "noise (standard deviation) at 1000 records: a that only the data tell"."""
    release = {"kind": "mean", "method": "tracking", "rho": 0.25}
    lines = plan(Config.from_mapping(sample(release={**PLAIN, **release}))).lines()
    assert [line for line in lines if line.endswith("; only the data tell the noise of a, b")]
    lines = plan(Config.from_mapping(sample(release={**PLAIN, "kind": "count"}))).lines()
    assert not [line for line in lines if "only the data tell" in line]


def test_what_is_protected_of_a_message():
    """Elements of a list are records where they cannot take each other with them; else the message is."""

    def notes(**source):
        return "\n".join(plan(Config.from_mapping(sample(source={"url": "kafka://h/t", **source}))).lines())

    assert "message" not in notes()
    assert "every element of `source.records` is a record and protected by itself; only where" in notes(records="r")
    assert "over 16777216 bytes or 699050 elements) what is protected is the message" in notes(records="r")
    assert "over 16777216 bytes" in notes(records="r", format="msgpack")
    assert "of one 'floats' message 699050 rows are read" in notes(format="floats")
    for name in ("otlp-metrics", "otlp-logs"):
        assert f"a '{name}' message is read whole" in notes(format=name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(FORMATS, "json", FORMATS["json"]._replace(isolates_elements=False))
        assert "rejects its whole 'json' message, so what is protected is the message" in notes(records="r")


MEAN = sample()["release"] | {"name": "m", "rho": 0.045, "size_hint": 60}
NUMBER = {"name": "n", "kind": "count", "rho": 0.005}
OF_USERS = {
    "stream": {"unit": "user", "user": "id"},
    "window": {"length": "1h", "end": "2027-01-01T00:00:00Z"},
    "budget": {"rho": 1.0, "delta": 1e-6},
}


def test_advice_counts_all_answers_and_names_the_keys_that_the_error_names():
    """It told the windows, and the budget, of one answer alone, beside a line that counted both."""
    config = Config.from_mapping(sample(**OF_USERS) | {"release": [MEAN, NUMBER]})
    with pytest.raises(UnusablePlan) as refused:
        plan(config)
    text = str(refused.value)
    assert text.startswith("release[m]: ")
    rho, budget = map(float, re.search(r"raise `release\[m\].rho` to (\S+), and `budget.rho` to (\S+),", text).groups())
    assert "to last for 20 windows as now" in text
    assert budget == pytest.approx((rho + 0.005) / 0.05, rel=1e-2)
    assert "`release." not in text
    usable = Config.from_mapping(sample(**OF_USERS) | {"release": [MEAN | {"rho": 0.045, "size_hint": 5000}, NUMBER]})
    assert "lasts 20 windows" in "\n".join(plan(usable).lines())


def test_advice_names_the_ball_that_needs_no_core():
    small = Config.from_mapping(sample(**OF_USERS) | {"release": MEAN})
    with pytest.raises(UnusablePlan) as refused:
        plan(small)
    center, radius, a, b = re.search(
        r"'ball' with a public ball, such as `center` = (\[.*?\]) and `radius` = (\S+), which hold the public ranges: "
        r"60 users release with probability over 99.9%, with a noise of a (\S+), b (\S+)",
        str(refused.value),
    ).groups()
    ball = {"kind": "mean", "method": "ball", "rho": 0.045, "center": json.loads(center), "radius": float(radius)}
    mapping = sample(**OF_USERS) | {"release": ball | {"size_hint": 60}}
    told = plan(Config.from_mapping(mapping))
    assert told.probability > 0.99
    assert list(told.sigma.values()) == pytest.approx([float(a), float(b)], rel=1e-2)


@pytest.mark.parametrize(("delta", "part"), [(1e-6, "rho"), (5e-9, "delta")])
def test_advice_on_a_budget_names_the_part_that_is_used_up_first(delta, part):
    """It said to raise rho where delta ended first."""
    release = MEAN | {"name": None, "rho": 0.05, "size_hint": 5000}
    del release["name"]
    config = Config.from_mapping(sample(**OF_USERS | {"budget": {"rho": 1.0, "delta": delta}}) | {"release": release})
    (text,) = (text for text in plan(config).warnings if " lasts " in text)
    assert text.endswith(f"raise `budget.{part}`, lower `release.{part}`, or use longer windows")
