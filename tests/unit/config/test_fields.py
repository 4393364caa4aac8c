"""Fields in a configuration: paths, numbers in text, factors, and what a source has besides bodies."""

import json

import numpy as np
import pandas
import pytest
from support.helpers import sample

from fcstream.config import Config
from fcstream.connectors import check_asked
from fcstream.engine.engine import Engine
from fcstream.errors import ConfigError
from fcstream.formats.envelopes import EnvelopeField
from fcstream.formats.frames import read_table
from fcstream.formats.paths import FieldPath


def config(stream=(), features=({},), source=None, **sections):
    first, *others = sample()["features"]
    mapping = sample(stream=dict(stream), **sections)
    mapping["features"] = [{**first, **changes} for changes in features] + others
    if source is not None:
        mapping["source"] = source
    return Config.from_mapping(mapping)


def test_paths_are_read_and_plain_names_stay():
    name = sample()["features"][0]["name"]
    schema = config({"time": "at.s"}, [{"path": "o.t"}], {"url": "jsonl:x", "records": "r[0].x"}).job.schema
    assert schema.paths == {"at.s": FieldPath(("at", "s")), name: FieldPath(("o", "t"))}
    assert schema.records == FieldPath(("r", 0, "x"))
    assert config().job.schema.is_flat
    assert config(features=[{"name": "data.temp"}]).job.schema.is_flat  # a name is literal, a path is not
    schema = config({"unit": "user", "user": "@topic:3", "key": "@header:site", "keys": ["n"]}).job.schema
    assert schema.paths == {
        "@topic:3": EnvelopeField("topic", 3),
        "@header:site": EnvelopeField("header", header="site"),
    }
    assert schema.key_of("@topic:3") == "stream.user"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stream": {"time": "a..b"}}, "stream.time: must be a field such as"),
        ({"stream": {"time": "@clock"}}, "stream.time: must be '@topic'"),
        ({"stream": {"unit": "user", "user": "@topic:x"}}, "stream.user: must be '@topic'"),
        ({"features": [{"path": "a["}]}, ".path: must be a field such as"),
        ({"source": {"url": "jsonl:x", "records": "@topic"}}, "source.records: must be a list in the body"),
        ({"features": [{"factor": 0.0}]}, ".factor: must be a number from 1e-100"),
        ({"features": [{"factor": float("nan")}]}, ".factor: must be a number from 1e-100"),
        (
            {"features": [{"type": "boolean", "min": None, "max": None, "origin": 0.0, "factor": 2.0}]},
            ".factor: must be left out",
        ),
        ({"features": [{"text": "yes"}]}, "must be true or false, got text"),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(changes, words):
    with pytest.raises(ConfigError) as caught:
        config(**changes).job.schema  # noqa: B018
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_at_their_defaults_bind_no_ledger():
    plain = config().job.terms
    assert config({"time": sample()["stream"]["time"]}, [{"factor": 1.0, "text": False}]).job.terms == plain
    bound = json.loads(config(features=[{"path": "o.t", "text": True, "factor": 0.1}]).job.terms.specification)
    assert {"path": "o.t", "text": True, "factor": 0.1}.items() <= bound["features"][0].items()


def test_a_factor_comes_before_the_range_and_after_missing_numbers():
    first = sample()["features"][0]
    raw = np.array([205.0, -9999.0, 5000.0, -500.0, 1e308])
    facts = {"min": -40.0, "max": 80.0, "factor": 0.1, "missing": [-9999]}
    job = config(features=[facts]).job
    rejected = []
    with Engine(config(features=[facts]), on_rejection=rejected.extend) as engine:
        engine.push(np.full(5, job.schedule.start_ms + 1), np.column_stack([raw, np.full(5, 49.0)]))
    assert [(each.reason, each.field) for each in rejected] == [
        ("missing", first["name"]),
        *[("out_of_range", first["name"])] * 3,
    ]
    plain = config(features=[{"min": -40.0, "max": 80.0}]).job
    assert job.grid.features[0].factor == 0.1
    assert plain.grid.features[0].factor == 1.0


def test_tables_that_are_pushed_have_columns_only():
    with Engine(config({"time": "at.s"})) as engine:
        start = engine.job.schedule.start_ms
        engine.push(pandas.DataFrame({"at.s": [start + 1, start + 2], "a": [20.0, 21.0], "b": [49.0, None]}))
        assert engine.rejected == {"missing": 1}
    with (
        Engine(config({"time": "@broker"})) as engine,
        pytest.raises(
            ConfigError, match=r"stream\.time: must name a field of the records, since tables have no topics"
        ),
    ):
        engine.push(pandas.DataFrame({"@broker": [start + 1], "a": [20.0], "b": [49.0]}))
    with (
        Engine(config(source={"url": "jsonl:x", "records": "r"})) as engine,
        pytest.raises(ConfigError, match=r"source\.records: must be left out for tables"),
    ):
        engine.push(pandas.DataFrame({"ts_ms": [start + 1], "a": [20.0], "b": [49.0]}))


def test_ticks_in_a_table_are_divided_before_they_are_floats():
    at = 1_700_000_000_000_999_999
    job = config({"time_unit": "ns"}).job
    for kind in ("int64", "uint64", "Int64", object):
        table = pandas.DataFrame(
            {job.schema.time: pandas.array([at, at], dtype=kind), "a": [20.0] * 2, "b": [49.0] * 2}
        )
        batch, _ = read_table(job.schema, table)
        assert batch.times_ms.tolist() == [at // 10**6] * 2, kind


@pytest.mark.parametrize(
    ("url", "field", "words"),
    [
        ("kafka://h/t", "@topic:1", None),
        ("kafka://h/t", "@header:x", None),
        ("jsonl:x", "@key", "stream.user: must name a field of the records, since files have no topics"),
    ],
)
def test_what_sources_have(url, field, words):
    schema = config({"unit": "user", "user": field}).job.schema
    if words is None:
        assert check_asked(url, schema).asked == schema.asked
        return
    with pytest.raises(ConfigError, match=words):
        check_asked(url, schema)
