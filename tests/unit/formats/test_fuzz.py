"""Seeded inputs that nobody would write: ten thousand for each decoder and for the configuration, or as many as
FCSTREAM_FUZZ_SECONDS allow. Decoders never raise, and what they make of one message is the same whatever comes with it;
a configuration is taken or refused with an error of this package."""

import copy
import json
import os
import random
import time

import msgspec
import numpy as np
import pytest
from support.fuzz import shaken
from support.helpers import sample
from support.payloads import arrow

from fcstream.cli.templates import template
from fcstream.config import Config
from fcstream.errors import FcstreamError
from fcstream.formats.batch import MAX_TIME_MS, REASONS, Schema
from fcstream.formats.decoders import CsvRows, Objects
from fcstream.formats.payloads import decoder_for

SECONDS = float(os.environ.get("FCSTREAM_FUZZ_SECONDS", "4"))
CASES = 10_000
GROUP = 40
LEVELS = {"b": {"off": 0, "on": 1, 0: 0, 1: 1}}
SCHEMAS = {
    "plain": Schema("ts", "ms", ("a", "b")),
    "seconds": Schema("ts", "s", ("a", "b")),
    "texts": Schema("ts", "iso8601", ("a", "b"), "id", "k", LEVELS),
    "gaps": Schema(
        *("ts", "ms", ("a", "b"), None, None, LEVELS),
        missing={"a": frozenset({"", "n/a"}), "b": frozenset({"?", "-1"})},
        optional=frozenset("ab"),
    ),
    "nothing": Schema("ts", "ms", ()),
    "words": Schema("ts", "ms", ("a",), "id", texts={"b": 12}, order=("a", "b")),
}
ODD = [
    *(
        None,
        True,
        False,
        [],
        {},
        [[]],
        {"a": 1},
        "",
        " ",
        "x",
        "on",
        "off",
        "n/a",
        "?",
        "nan",
        "inf",
        "1e999",
        "1_0",
        "٣",
        "\0",
    ),
    *(0, -1, 1, 2**53, 2**53 + 2, -(2**53), 2**63 - 1, -(2**63), 2**64 - 1, 5e-324, -0.0, 1e308, 1e-300, 0.1 + 0.2),
    *("2020-01-01", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+23:59", "2020"),
    *("é" * 2000, "y" * 1024, 10**18, [1, "2", None]),
]
TIMES = {"plain": 5, "seconds": 1.5, "texts": "2020-01-01T00:00:00Z", "gaps": 5, "nothing": 5, "words": 5}


def cases(share=1.0, least=200):
    """Numbers of groups of inputs, until there were enough or a share of the time is up."""
    end = time.monotonic() + share * SECONDS
    for i in range(CASES // GROUP):
        if time.monotonic() > end and i * GROUP >= least:
            return
        yield i


def whole(kind):
    return {"ts": TIMES[kind], "a": 1.5, "b": "on" if kind in ("texts", "gaps", "words") else 2.5, "id": "x", "k": 7}


def odd_row(rng, kind):
    row = whole(kind)
    for _ in range(rng.choice([0, 1, 1, 2])):
        row[rng.choice(list(row))] = rng.choice(ODD)
    if rng.random() < 0.2:
        del row[rng.choice(list(row))]
    return row


def json_body(rng, kind):
    return json.dumps(odd_row(rng, kind)).encode()


def msgpack_body(rng, kind):
    row = odd_row(rng, kind)
    if rng.random() < 0.2:
        row["a"] = rng.choice([float("nan"), float("inf"), msgspec.msgpack.Ext(5, b"x" * 9), b"bytes"])
    return msgspec.msgpack.encode(row)


def csv_body(rng, kind):
    cells = ["" if value is None else str(value) for value in odd_row(rng, kind).values()]
    return ",".join(cell if rng.random() < 0.8 else f'"{cell}"' for cell in cells).encode("utf-8", "surrogatepass")


def floats_body(rng, kind):
    rows = [rng.choice([5, 2**53, -(2**63), rng.getrandbits(63)]) for _ in range(rng.randrange(5))]
    width = 1 + len(SCHEMAS[kind].features)
    return b"".join(
        int(at).to_bytes(8, "little", signed=True)
        + b"".join(rng.choice([rng.randbytes(8), bytes(8)]) for _ in range(width - 1))
        for at in rows
    ) + rng.randbytes(rng.choice([0, 0, 1, 7]))


def arrow_body(rng, kind):
    pa = pytest.importorskip("pyarrow")
    n = rng.randrange(4)
    stamps = [5 if kind == "words" else rng.choice([5, 2**62, -(2**63), 2**53, None]) for _ in range(n)]
    units, zones = ("s", "ms", "us", "ns"), ("UTC", "Nowhere/Atall", None)
    times = {
        "whole": lambda: pa.array(stamps, pa.int64()),
        "moments": lambda: pa.array(stamps, pa.int64()).cast(pa.timestamp(rng.choice(units), rng.choice(zones))),
        "unsigned": lambda: pa.array([abs(at or 0) * 3 % 2**64 for at in stamps], pa.uint64()),
        "floats": lambda: pa.array([rng.choice([5.5, float("nan"), 1e300]) for _ in stamps], pa.float64()),
        "texts": lambda: pa.array([TIMES["texts"]] * n, pa.string()),
    }
    columns = {"ts": times[rng.choice(list(times) if kind != "texts" else ["texts", "moments"])]()}
    texts = pa.array([rng.choice([b"on", b"\xff\xfe", b"", None]) for _ in range(n)], pa.binary())
    columns["a"] = pa.array([rng.choice([1.5, None, float("nan")]) for _ in range(n)], pa.float64())
    others = [pa.nulls(n), pa.array([True] * n), pa.array([1] * n, pa.int8()), pa.array([[1.0]] * n)]
    good = [pa.array(["on"] * n, pa.string())] if kind in ("texts", "gaps", "words") else [columns["a"]]
    columns["b"] = rng.choice([texts.view(pa.string()), *3 * good, *others])
    columns["id"], columns["k"] = (rng.choice([texts.view(pa.string()), *3 * good, *others]) for _ in "ab")
    return arrow(**columns)


MAKERS = {"json": json_body, "msgpack": msgpack_body, "csv": csv_body, "floats": floats_body, "arrow": arrow_body}


def decoder_of(codec, kind):
    schema = SCHEMAS[kind]
    if codec == "csv":
        return CsvRows(schema, ",".join(whole(kind)).encode())
    return decoder_for(codec, schema)


def told(batch, position):
    """What a decoder made of one message."""
    rows = batch.positions == position
    labels = [None if column is None else column[rows].tolist() for column in (batch.users, batch.keys)]
    faults = sorted((each.reason, each.field or "") for each in batch.rejections if each.position == position)
    texts = {name: column[rows].tolist() for name, column in batch.texts.items()}
    return batch.times_ms[rows].tolist(), batch.values[rows].tobytes(), labels, texts, faults


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("codec", MAKERS)
def test_decoders_never_raise_and_take_every_message_for_itself(codec, kind):
    if codec == "floats" and kind in ("texts", "seconds", "words"):
        pytest.skip("floats hold times in ms and no labels")
    decoder, seen, taken = decoder_of(codec, kind), 0, 0
    for group in cases(1 / 4):
        rng = random.Random(f"{codec}-{kind}-{group}")
        bodies = [MAKERS[codec](rng, kind) for _ in range(GROUP)]
        bodies = [body if rng.random() < 0.3 else shaken(rng, body) for body in bodies]
        if codec == "csv":
            bodies = [body.replace(b"\n", b" ") for body in bodies]
        together = decoder.decode(bodies, 0)
        assert {each.reason for each in together.rejections} <= set(REASONS)
        assert {each.position for each in together.rejections} <= set(range(GROUP))
        assert together.values.shape == (len(together.times_ms), len(SCHEMAS[kind].features))
        assert (np.abs(together.times_ms) <= MAX_TIME_MS).all()
        for i, body in enumerate(bodies):
            alone = told(decoder.decode([body], i), i)
            assert alone == told(together, i), (group, i)
            taken += len(alone[0])
        seen += GROUP
    assert seen >= 200
    assert taken > seen / 100  # a fuzz of nothing but refusals looks at refusals only


@pytest.mark.parametrize("kind", ["plain", "texts"])
def test_json_lines_never_raise(kind):
    """Of files: blank lines are no records there."""
    decoder = Objects(SCHEMAS[kind])
    for group in cases(1 / 4):
        rng = random.Random(f"lines-{kind}-{group}")
        lines = [shaken(rng, json_body(rng, kind)).replace(b"\n", b" ") for _ in range(GROUP)]
        batch = decoder.decode(lines, 0)
        assert {each.reason for each in batch.rejections} <= set(REASONS)
        blank = {i for i, line in enumerate(lines) if not line.strip()}
        assert blank | set(batch.positions.tolist()) | {r.position for r in batch.rejections} == set(range(GROUP))


# -- configuration -----------------------------------------------------------------------------------------------------

NO_MEAN = {"method": None, "radius": None, "spread": None, "delta": None, "size_hint": None}
TWO = {"a": [10.0, 20.0], "b": [50.0]}
KINDS = [
    {},
    {"radius": "search", "radius_min": 0.1, "radius_max": 100.0},
    {"method": "ball", "radius": 30.0, "center": [20.0, 50.0], "delta": None, "spread": None},
    {"method": "tracking"},
    {"method": "basic", "spread": None},
    {"pairs": "blocks", "size_hint": 200_000},
    {**NO_MEAN, "kind": "count"},
    {**NO_MEAN, "kind": "histogram", "feature": "a", "edges": [15.0, 20.0]},
    {**NO_MEAN, "kind": "histogram", "feature": "b", "categories": [10.0, 20.0]},
    {**NO_MEAN, "kind": "quantiles", "feature": "a", "quantiles": [0.1, 0.5]},
    {"kind": "variance", "method": None, "spread": None},
    {"kind": "covariance", "method": "friendly", "radius": None, "spread": None, "shards": 500, "size_hint": 6_000_000},
    {"kind": "covariance", "method": None, "radius": None, "spread": None, "size_hint": 6000, "target": "a"},
    {"kind": "centers", "method": None, "radius": None, "spread": None, "k": 3, "size_hint": 30_000},
    {"kind": "mixtures", "method": None, "radius": None, "spread": 2.0, "k": 3, "size_hint": 100_000},
    {"kind": "centers", "method": "tree", "radius": None, "spread": None, "k": "auto", "size_hint": None},
    {"kind": "tree", "method": None, "radius": None, "spread": None, "size_hint": None, "max_boxes": 20},
    {**NO_MEAN, "kind": "synthetic", "edges": TWO},
    {**NO_MEAN, "kind": "marginals", "edges": TWO},
    {**NO_MEAN, "kind": "points", "set": "box"},
    {**NO_MEAN, "kind": "frequent", "delta": 1e-9, "max_values": 100, "values_per_user": 2},
]
VALUES = [
    *(float("nan"), float("inf"), -float("inf"), 0, -1, 1, 3, 0.1, 5e-324, 2.2e-308, 1e-100, 1e-17, 1e100, 1.7e308),
    *(2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 2**70, 10**400, True, False, None, [], {}, [[]], [None], [1e308]),
    *(
        "",
        "x",
        "0s",
        "10s",
        "99999999999999d",
        "9" * 400 + "s",
        "1.5ms",
        "-1s",
        "0001-01-01",
        "9999-12-31T23:59:59.999999+00:00",
    ),
    *("0001-01-01T00:00:00+23:59", "\ud800", "a\0b", "x" * 5000, "${X}", ["a"], ["a", "a"], {"a": 1}, [0.5] * 200),
    *("search", "histogram", "user", "stream", "event", "broker", "wall", "mean", "even", "paper"),
    *("boolean", "category", "text", "count", "ball", "blocks", "frequent"),
    *("jsonl:x", "redis://h:6379/0?stream=k", b"x"),
]
SECTIONS = ("stream", "lattice", "features", "window", "release", "budget", "source", "sink", "dead_letter", "service")


def known_keys():
    """(section, key) of all sections, and of `[release]` of all kinds."""
    hints = {field.name: field.type for field in msgspec.structs.fields(Config)}
    found = [
        (section, inner.encode_name)
        for section in SECTIONS
        for part in (hints[section], *getattr(hints[section], "__args__", ()))
        if isinstance(part, type) and issubclass(part, msgspec.Struct)
        for inner in msgspec.structs.fields(part)
    ]
    return found + [("release", key) for kind in KINDS for key in kind]


def leaves(node, at=()):
    """Paths of everything below a node."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inner:
        yield (*at, key)
        yield from leaves(value, (*at, key))


def changed(rng, config, keys):
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.3:
            section, key = rng.choice(keys)
            place = config.setdefault(section, {})
            place = rng.choice(place) if isinstance(place, list) and place else place
            if isinstance(place, dict):
                place[key] = copy.deepcopy(rng.choice(VALUES))
            continue
        *path, last = rng.choice(list(leaves(config)) or [("stream",)])
        node = config
        for key in path:
            node = node[key]
        if rng.random() < 0.1:
            del node[last]
            continue
        old = node[last]
        is_number = isinstance(old, (int, float)) and not isinstance(old, bool)
        kin = [value for value in VALUES if isinstance(value, (int, float) if is_number else type(old))] or VALUES
        if is_number and abs(old) < 1e9 and rng.random() < 0.5:
            kin = [old * 10 ** rng.uniform(-3, 3), int(old * rng.uniform(-2, 20))]
        node[last] = copy.deepcopy(rng.choice(kin if rng.random() < 0.8 else VALUES))
    return config


@pytest.mark.slow
def test_a_configuration_is_taken_or_refused_with_an_error_of_this_package():
    keys, taken, seen = known_keys(), 0, 0
    for group in cases():
        for i in range(GROUP):
            rng = random.Random(f"configuration-{group}-{i}")
            config = changed(rng, sample(release=rng.choice(KINDS)), keys)
            try:
                Config.from_mapping(config)
            except FcstreamError:
                pass
            else:
                taken += 1
        seen += GROUP
    assert seen >= 200
    assert taken > seen / 50


def test_a_file_of_configuration_is_taken_or_refused_with_an_error_of_this_package(tmp_path):
    text, path = template().encode(), tmp_path / "c.toml"
    hostile = [b"a = " + b"[" * 100_000, b"a = " + b"9" * 5000, b"a" + b".a" * 5000 + b" = 1", b"\xff", b""]
    for body in hostile:
        path.write_bytes(body)
        with pytest.raises(FcstreamError):
            Config.load(path)
    with pytest.raises(FcstreamError):
        Config.load("a\0b")
    for group in cases(1 / 4):
        for i in range(GROUP):
            path.write_bytes(shaken(random.Random(f"file-{group}-{i}"), text))
            try:
                Config.load(path)
            except FcstreamError:
                pass
