import pytest
from support.helpers import SAMPLE, sample

from fcstream.config import Config, duration_ms
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.planning.plan import plan

ISSUE_SAMPLE = """
[stream]
name = "rooms"
time = "ts_ms"
time_unit = "ms"
unit = "event"
[lattice]
step = 0.001
[[features]]
name = "temp_c"
scale = 1.0
origin = 20.0
min = -40.0
max = 80.0
transform = "none"
[window]
length = "10m"
slide = "10m"
lateness = "0s"
clock = "eof"
start = "2016-03-15T00:00:00Z"
end   = "2016-03-16T00:00:00Z"
[release]
kind = "mean"
method = "recentered"
radius = 3.0
spread = "histogram"
rho = 0.25
delta = 1e-9
size_hint = 600
[budget]
rho = 1.0
delta = 1e-6
[source]
url = "csv:rooms.csv.gz"
[sink]
url = "jsonl:-"
[ledger]
url = "sqlite:ledger.db"
[dead_letter]
url = "jsonl:dead.jsonl"
"""


def test_every_documented_key_is_read(tmp_path):
    (tmp_path / "c.toml").write_text(ISSUE_SAMPLE)
    config = Config.load(tmp_path / "c.toml")
    assert config.release.size_hint == 600
    assert config.dead_letter.url == "jsonl:dead.jsonl"
    found = plan(config)
    assert found.probability > 0.99
    assert [text.partition(":")[0] for text in found.warnings] == ["`window.max_records` is not given"]


@pytest.mark.parametrize(
    ("section", "key", "near"),
    [
        ("release", "raduis", "radius"),
        ("window", "lenght", "length"),
        ("stream", "tim", "time"),
        ("budget", "roh", "rho"),
    ],
)
def test_unknown_keys_name_the_nearest(section, key, near):
    with pytest.raises(ConfigError, match=rf"{section}\.{key}: is not a known key: did you mean '({near})'"):
        Config.from_mapping(sample(**{section: {key: 1}}))


def test_a_word_that_is_none_of_the_choices_lists_them():
    with pytest.raises(ConfigError, match=r"stream.unit: must be 'event', 'stream' or 'user', got 'events'"):
        Config.from_mapping(sample(stream={"unit": "events"}))
    with pytest.raises(ConfigError, match=r"source.partitioner: must be 'murmur2' or 'crc32', got 'x'"):
        Config.from_mapping(sample(source={"partitioner": "x"}))
    mapping = sample()
    mapping["features"][0]["transform"] = "log"
    with pytest.raises(ConfigError, match=r"features\[0\].transform: must be 'none', 'log1p' or 'asinh', got 'log'"):
        Config.from_mapping(mapping)
    with pytest.raises(ConfigError, match=r"window.length: must be text in quotes, got a number"):
        Config.from_mapping(sample(window={"length": 10}))


def test_a_key_unlike_any_other_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"budget.kind: is not a known key: known are rho, delta, "):
        Config.from_mapping(sample(budget={"kind": "concentrated"}))


def test_unknown_sections_and_feature_keys():
    with pytest.raises(ConfigError, match="windows: is not a known key: did you mean 'window'"):
        Config.from_mapping({**SAMPLE, "windows": {}})
    mapping = sample()
    mapping["features"][0]["scales"] = 1
    with pytest.raises(ConfigError, match=r"features\.scales.*'scale'"):
        Config.from_mapping(mapping)


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"stream": {"name": None}}, "name"),
        ({"stream": {"name": ""}}, r"stream\.name"),
        ({"stream": {"unit": "user"}}, "user"),
        ({"stream": {"time_unit": "min"}}, "min"),
        ({"stream": {"time": "a"}}, "features"),
        ({"lattice": {"step": 0}}, r"lattice\.step"),
        ({"lattice": {"step": "fine"}}, "must be a number, got text"),
        ({"window": {"length": "ten minutes"}}, r"window\.length"),
        ({"window": {"length": "0s"}}, r"window\.length"),
        ({"window": {"slide": "20s"}}, "gaps"),
        ({"window": {"start": None}}, "start"),
        ({"window": {"start": "soon"}}, r"window\.start"),
        ({"window": {"end": None}}, r"window\.end"),
        ({"window": {"end": "1970-01-01T00:00:05Z"}}, r"window\.end"),
        ({"window": {"clock": "sun"}}, "sun"),
        ({"release": {"rho": 0}}, r"release\.rho"),
        ({"release": {"rho": -1}}, r"release\.rho"),
        ({"release": {"delta": 0.0}}, r"release\.delta"),
        ({"release": {"radius": None}}, r"release\.radius"),
        ({"release": {"radius": 1e-5}}, r"release\.radius"),
        ({"release": {"size_hint": None}}, r"release\.size_hint"),
        ({"release": {"size_hint": 0}}, r"release\.size_hint"),
        ({"release": {"size_hint": 2.5}}, "int"),
        ({"release": {"spread": 99.0}}, r"release\.spread"),
        ({"release": {"spread": "wide"}}, "spread"),
        ({"release": {"center": [1, 2]}}, r"release\.center"),
        ({"release": {"method": "ball"}}, r"release\.center"),
        ({"release": {"method": "ball", "center": [1]}}, r"release\.center"),
        ({"release": {"kind": "sum"}}, "sum"),
        ({"budget": {"rho": 0.5}}, "budget: must hold one window"),
        ({"window": {"slide": "5s"}, "budget": {"rho": 1.5}}, "up to 2 windows"),
        ({"budget": {"delta": 1e-12}}, "budget"),
        ({"budget": {"rho": -1}}, r"budget\.rho"),
        ({"budget": {"delta": 2}}, r"budget\.delta"),
        ({"release": {"method": "ball", "center": [500, 50]}}, r"release\.center"),
    ],
)
def test_rules(sections, what):
    with pytest.raises(ConfigError, match=what):
        Config.from_mapping(sample(**sections))


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.load(tmp_path / "absent.toml")
    (tmp_path / "c.toml").write_text("[stream\n")
    with pytest.raises(ConfigError, match="not TOML"):
        Config.load(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not TOML"):
        Config.load(tmp_path / "c.toml")
    with pytest.raises(ConfigError, match="stream"):
        Config.from_mapping({"stream": 5})


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("1.5s", 1500), ("10m", 600_000), ("1h", 3_600_000), ("2d", 172_800_000)]
)
def test_durations(text, ms):
    assert duration_ms(text, "x") == ms


@pytest.mark.parametrize("text", ["", "10", "m", "-5s", "1e3s", "0.5ms", "99999999999999d"])
def test_bad_durations(text):
    with pytest.raises(ConfigError):
        duration_ms(text, "x")


def test_a_toml_date_needs_no_quotes(tmp_path):
    text = ISSUE_SAMPLE.replace('"2016-03-15T00:00:00Z"', "2016-03-15T00:00:00Z").replace(
        '"2016-03-16T00:00:00Z"', "2016-03-16"
    )
    (tmp_path / "c.toml").write_text(text)
    assert Config.load(tmp_path / "c.toml").job.schedule.count == 144


def test_specification_covers_what_shapes_a_release_and_nothing_else():
    base = Config.from_mapping(sample()).job.terms.specification
    for same in (
        {"window": {"end": "1970-01-02T00:00:00Z"}},
        {"window": {"slide": "10s"}},
        {"ledger": {"url": "sqlite:x"}},
    ):
        assert Config.from_mapping(sample(**same)).job.terms.specification == base
    for other in (
        {"lattice": {"step": 0.002}},
        {"release": {"radius": 2.0}},
        {"release": {"rho": 0.9}},
        {"window": {"length": "5s"}},
        {"window": {"start": "1970-01-01T00:00:01Z"}},
        {"stream": {"time": "t"}},
    ):
        assert Config.from_mapping(sample(**other)).job.terms.specification != base


def test_plan_refuses_what_can_never_release():
    config = Config.from_mapping(sample(release={"size_hint": 60, "rho": 0.25}))
    with pytest.raises(UnusablePlan, match=r"60 records.*use longer windows, of \d+ records") as refused:
        plan(config)
    assert refused.value.exit_code == 2


@pytest.mark.slow
def test_plan_warns_in_between_and_agrees_with_itself():
    config = Config.from_mapping(sample(release={"size_hint": 600, "rho": 0.25}))
    smallest = plan(config).smallest_size
    assert plan(Config.from_mapping(sample(release={"size_hint": smallest, "rho": 0.25}))).probability >= 0.99
    below = Config.from_mapping(sample(release={"size_hint": smallest - 1, "rho": 0.25}))
    assert below.job.answers[0].mechanism.forecast(smallest - 1).probability < 0.99
    for hint in range(150, 400, 10):  # somewhere the probability lies between 1% and 99%
        config = Config.from_mapping(sample(release={"size_hint": hint, "rho": 0.25}))
        try:
            found = plan(config)
        except UnusablePlan:
            continue
        if found.probability < 0.99:
            assert "raise `release.rho`" in found.warnings[0]
            return
    pytest.fail("no size with a doubtful forecast")


def test_plan_of_other_kinds_and_units():
    found = plan(Config.from_mapping(sample(release={"kind": "count", "rho": 0.1}, stream={"unit": "stream"})))
    assert found.probability == 1
    assert found.sigma == {"count": pytest.approx(5**0.5)}
    assert found.lasting_windows == 40
    assert any("lasts 40 windows" in line for line in found.lines())
    tail = plan(Config.from_mapping(sample(window={"end": "1970-01-01T00:01:03Z"})))
    assert any("3000 ms" in text for text in tail.warnings)
    assert found.as_dict()["loss"] == {"rho": 0.1, "delta": 0.0}


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("lattice.step", {"lattice": {"step": 5e-324}}),
        ("lattice.step", {"lattice": {"step": 1e300}}),
        ("features.a.scale", {"features": [{"name": "a", "min": 0.0, "max": 1.0, "scale": 5e-324}]}),
        ("features.a.origin", {"features": [{"name": "a", "min": 0.0, "max": 1.0, "origin": 1e308}]}),
        ("features.a", {"features": [{"name": "a", "min": -1e308, "max": 1e308}]}),
        ("release.rho", {"release": {"rho": 1e300}}),
        ("budget.rho", {"budget": {"rho": 1e300}}),
        ("budget.total_rho", {"budget": {"total_rho": 1e10}}),
    ],
)
def test_public_numbers_that_no_arithmetic_survives_are_refused(where, changes):
    """A step of 5e-324 made every coordinate infinite, and an error of its own kind."""
    features = changes.pop("features", None)
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping(sample(**changes) | ({"features": features} if features else {}))
    assert refused.value.key == where


@pytest.mark.parametrize(
    ("key", "text"),
    [("length", "9" * 400 + "s"), ("start", "0001-01-01T00:00:00+23:59"), ("end", "9999-12-31T23:59:59-10:00")],
)
def test_times_beyond_the_calendar_are_refused(key, text):
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping(sample(window={key: text}))
    assert refused.value.key == f"window.{key}"


def test_a_job_of_a_billion_windows_is_refused():
    """It was begun, with 27 hours left, for a typing error in `end` or `length`."""
    given = {"start": "2016-03-15T00:00:00Z", "length": "1ms"}
    with pytest.raises(ConfigError, match=r"must leave 100,000,000 windows at most, got 1,000,000,000") as refused:
        Config.from_mapping(sample(window={**given, "end": "2016-03-26T13:46:40Z"}))
    assert refused.value.key == "window.end"
    Config.from_mapping(sample(window={**given, "end": "2016-03-16T03:46:40Z"}))


def test_a_budget_that_lacks_a_billionth_says_so():
    thirds = [{"name": name, "kind": "count", "rho": 0.333333334} for name in "abc"]
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping(sample() | {"release": thirds, "budget": {"rho": 1.0, "delta": 0.0}})
    assert "at (rho=1.000000002, delta=0) each, got (rho=1, delta=0), (rho=2e-09, delta=0) too little" in str(
        refused.value
    )
    fitting = [each | {"rho": 0.333333333} for each in thirds]
    Config.from_mapping(sample() | {"release": fitting, "budget": {"rho": 1.0, "delta": 0.0}})
