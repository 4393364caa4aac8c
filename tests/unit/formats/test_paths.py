"""Paths of fields and fields of envelopes: what may be written, and what is found."""

import random

import numpy as np
import pytest

from fcstream.errors import ConfigError
from fcstream.formats.envelopes import (
    LONGEST_HEADER,
    NOTHING,
    AskedFields,
    Envelope,
    EnvelopeField,
    OfferedFields,
    asked_fields,
)
from fcstream.formats.paths import FieldPath, parse_path

MESSAGE = {
    "temp": 1,
    "data.temp": 2,
    "data": {"temp": 3, "a b": {"c": 4}, "list": [5, {"x": 6}, [7, 8]]},
    "@key": 9,
    'quo"te': 10,
    "": 11,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("temp", 1),
        ('"data.temp"', 2),
        ("data.temp", 3),
        ("data.a b.c", 4),
        ('data."a b".c', 4),
        ("data.list[0]", 5),
        ("data.list[1].x", 6),
        ("data.list[2][1]", 8),
        ('"@key"', 9),
        (r'"quo\"te"', 10),
        (".", MESSAGE),
        ("data.list[3]", None),
        ("data[0]", None),
        ("temp.x", None),
        ("temp[0]", None),
        ("data.list.x", None),
    ],
)
def test_what_a_path_finds(text, value):
    assert parse_path(text, "key").find(MESSAGE) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "a..b", ".a", "a.", "a[", "a[]", "a[-1]", "a[x]", "a]b", "a[0]b", 'a"b"', '"a', '""', "a.[0]"),
        *("a" + ".a" * 32, "@", "@time", "@topic:", "@topic:x", "@topic:-1", "@header", "@header:", "@key:x"),
        *("@broker:1", "@topic:1234"),
    ],
)
def test_what_is_no_path_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError) as caught:
        parse_path(text, "features.t.path")
    assert str(caught.value).startswith("features.t.path: must be ")
    assert "\n" not in str(caught.value)


def test_any_names_can_be_quoted():
    rng = random.Random(3)
    for _ in range(2000):
        names = ["".join(rng.choices('ab."\\[]@ é0', k=rng.randrange(1, 6))) for _ in range(rng.randrange(1, 5))]
        text = ".".join('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names)
        assert parse_path(text, "key") == FieldPath(tuple(names)), text


def test_columns_are_named_as_the_path_is_written():
    for text in ("at.s", '"at.s"', '"at".s'):
        assert parse_path(text, "key").column == "at.s"
    assert parse_path("acc[0].x", "key").column == "acc[0].x"


def test_fields_of_envelopes():
    envelopes = [
        Envelope("a/b/c", b"k1", {"device": b"d1"}, 5),
        Envelope("a", None, {}, 6),
        Envelope(None, b"\xff", {"device": b"\xff"}, None),
    ]
    for text, column in {
        "@topic": ["a/b/c", "a", None],
        "@topic:0": ["a", "a", None],
        "@topic:2": ["c", None, None],
        "@topic:3": [None, None, None],
        "@key": ["k1", None, b"\xff"],
        "@header:device": ["d1", None, b"\xff"],
        "@broker": [5, 6, None],
    }.items():
        field = parse_path(text, "key")
        assert field.column(envelopes, "/") == column
        assert field.text == text
    assert EnvelopeField("topic", 1).column([Envelope("x.y")], ".") == ["y"]


def test_what_is_asked_for():
    paths = [parse_path(text, "key") for text in ("temp", "@topic:1", "@header:a", "@header:b", "@broker")]
    assert asked_fields(paths) == AskedFields(True, False, frozenset("ab"), True)
    assert not asked_fields(paths[:1])
    assert asked_fields(paths[4:]).broker
    assert not asked_fields(paths[4:]).from_source


def test_an_envelope_holds_what_was_asked_for_alone():
    headers = [("a", "é"), ("b", b"\xff"), ("a", 7), ("c", True), ("d", [1]), ("e", None), ("f", 10**400), ("g", 1.5)]
    asked = AskedFields(headers=frozenset("acdefg"))
    assert asked.envelope("t", b"k", headers) == Envelope(headers={"a": b"7", "c": b"true", "f": b"", "g": b"1.5"})
    assert AskedFields(topic=True, key=True).envelope("t", "k", headers) == Envelope("t", b"k")
    long = "x" * (LONGEST_HEADER + 1)
    assert AskedFields(True, True, frozenset("a")).envelope(long, long, [("a", long)]) == NOTHING


def test_envelopes_survive_packing():
    rng = np.random.default_rng(1)
    for _ in range(500):
        envelope = Envelope(
            *(rng.choice(["é/x", None]), bytes(rng.bytes(3)) if rng.random() < 0.5 else None),
            {str(i): bytes(rng.bytes(4)) for i in range(rng.integers(3))},
        )
        assert Envelope.unpacked(envelope.packed()) == envelope
        assert Envelope.unpacked(envelope.packed()[:-1]) == NOTHING
    assert NOTHING.packed() == b""
    for _ in range(500):
        assert isinstance(Envelope.unpacked(bytes(rng.bytes(rng.integers(12)))), Envelope)


def test_what_a_source_offers():
    offered = OfferedFields("/", False, "user properties")
    assert [offered.has(part) for part in ("topic", "key", "header", "broker")] == [True, False, True, True]
    assert offered.words() == "'@topic', '@topic:N', '@header:NAME' (user properties), '@broker' (the time of arrival)"
