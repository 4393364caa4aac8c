"""Ten thousand nested messages that nobody would write: nothing is raised, nothing is quoted, and what a message or an
element is read as does not depend on what comes with it."""

import json
import os
import random
import time
from itertools import chain

import msgspec
import pytest

from fcstream.formats.batch import REASONS, Schema
from fcstream.formats.envelopes import LONGEST_HEADER, AskedFields, Envelope
from fcstream.formats.nested import objects_decoder
from fcstream.formats.paths import FieldPath, parse_path

SECONDS = float(os.environ.get("FCSTREAM_FUZZ_SECONDS", "4"))
CASES, GROUP = 10_000, 40
SECRET = "s3cretValue"


def schema_of(time, unit, features, paths=(), records=None, **options):
    found = {name: parse_path(text, "key") for name, text in {time: time, **dict(paths)}.items()}
    for name in (options.get("user"), options.get("key")):
        if name is not None:
            found[name] = parse_path(name, "key")
    return Schema(
        *(time, unit, features),
        paths={name: path for name, path in found.items() if path != FieldPath.named(name)},
        records=None if records is None else parse_path(records, "key"),
        **options,
    )


LEVELS = {"b": {"off": 0, "on": 1, 0: 0, 1: 1}}
SCHEMAS = {
    "nested": schema_of("at.t", "ns", ("a", "b"), {"a": "o.p.a", "b": "l[1]"}),
    "records": schema_of("ts", "s", ("a", "b"), {"b": "p.b"}, "o.rs", user="id", key="@topic:1"),
    "levels": schema_of(
        *("ts", "iso8601", ("a", "b"), {"a": "o.p.a"}, "rs"),
        levels=LEVELS,
        missing={"a": frozenset({"n/a"})},
        optional=frozenset("ab"),
        user="@header:id",
        quoted=frozenset("a"),
    ),
    "values": schema_of("@broker", "ms", ("a",), {"a": "."}),
    "lists": schema_of("[0]", "us", ("a",), {"a": "[1]"}, ".", texts={"w": 12}, order=("a", "w")),
}
ODD = [
    *(None, True, False, [], {}, [[]], {"a": 1}, "", " ", "x", "on", "n/a", "nan", "1e999", "1_0", "\0", "\ud800", "٣"),
    *(0, -1, 2**53 + 1, 2**63, -(2**63), 10**400, 5e-324, -0.0, 1e308, 0.1 + 0.2, SECRET, "é" * 2000, "y" * 1024),
    *(
        "2020-01-01",
        "9999-12-31T23:59:59.999999+00:00",
        [1, "2", None],
        {"p": {"a": 3}},
        10**18,
        "10000000000000000000",
    ),
]
WHOLE = {
    "ts": 5,
    "at": {"t": 1_700_000_000_000_000_000},
    "a": 1.5,
    "b": 1,
    "o": {"p": {"a": 2.5}},
    "l": [1, 2],
    "p": {"b": 3},
    "id": "x",
}


def element(rng):
    found = dict(WHOLE)
    for name in rng.sample(list(found), rng.choice([0, 0, 1, 3])):
        found[name] = rng.choice(ODD)
    for name in rng.sample(list(found), rng.choice([0, 0, 2])):
        del found[name]
    return found if rng.random() < 0.9 else rng.choice([*ODD, [1_000_000, 2]])


def message(rng, kind):
    if kind == "values":
        return rng.choice([*ODD, 1.5, 2, 3])
    inner = [element(rng) for _ in range(rng.randrange(4))]
    if kind == "lists":
        return rng.choice([inner, [[rng.choice([5, 10**6, *ODD]), rng.choice([1, 2.5, *ODD])] for _ in range(3)]])
    found = element(rng)
    if isinstance(found, dict):
        found = {**found, "rs": inner, "o": {**WHOLE["o"], "rs": inner}}
        if kind == "levels":
            found["ts"] = "2020-01-01T00:00:00Z"
    return found


def encoded(rng, value, codec):
    if codec == "json":
        body = json.dumps(value).encode()
    else:
        try:
            body = msgspec.msgpack.encode(value)
        except (OverflowError, UnicodeEncodeError):
            body = rng.randbytes(20)
    if rng.random() < 0.15 and body:
        at, width = rng.randrange(len(body)), rng.randrange(3)
        body = body[:at] + rng.choice([rng.randbytes(width), b"", b"1e999", b"\xff", b"NaN", b"["]) + body[at + width :]
    return body


def told(batch):
    columns = [batch.times_ms.tolist(), batch.values.tolist(), batch.positions.tolist()]
    columns += [list(column) for column in (batch.users, batch.keys) if column is not None]
    rows = list(zip(*columns, *map(list, batch.texts.values()), strict=True))
    faults = [(each.position, each.reason, each.field or "") for each in batch.rejections for _ in range(each.count)]
    return sorted(map(repr, rows)), sorted(faults)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_messages_are_read_each_for_itself(kind, codec):
    rng, decoder = random.Random(f"{kind} {codec}"), objects_decoder(SCHEMAS[kind], codec, are_messages=True)
    asked = AskedFields(True, True, frozenset({"id"}), True)
    end = time.monotonic() + SECONDS
    for i in range(CASES // GROUP):
        if time.monotonic() > end and i >= 5:
            break
        bodies = [encoded(rng, message(rng, kind), codec) for _ in range(GROUP)]
        envelopes = [
            asked.envelope(
                rng.choice(["a/b", "a", "", None, "/" * 9, "é/\ud800"]),
                rng.choice([b"k", b"\xff", None]),
                [("id", rng.choice(["u", b"\xff", "", 5, None, "x" * (LONGEST_HEADER + 1)]))],
            )._replace(arrived_ms=rng.choice([5, 2**53, -1]))
            for _ in bodies
        ]
        whole = decoder.decode(bodies, 0, envelopes)
        assert all(each.reason in REASONS for each in whole.rejections)
        assert SECRET not in str(whole.rejections)
        alone = [
            decoder.decode([body], i, [envelope])
            for i, (body, envelope) in enumerate(zip(bodies, envelopes, strict=True))
        ]
        rows, rejected = zip(*map(told, alone), strict=True)
        assert told(whole) == (sorted(chain.from_iterable(rows)), sorted(chain.from_iterable(rejected)))


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("kind", ["records", "levels"])
def test_elements_are_read_each_for_itself(kind, codec):
    """One more element, whatever it holds, changes nothing about the others."""
    rng, schema = random.Random(f"{kind} {codec} elements"), SCHEMAS[kind]
    decoder = objects_decoder(schema, codec, are_messages=True)
    envelope = [Envelope("a/b", b"k", {"id": b"u"}, 5)]

    def pack(elements):
        if codec == "json":
            inner = b"[" + b",".join(elements) + b"]"
            return b'{"ts": %s, "id": "u", "o": {"rs": %s}, "rs": %s}' % (at.encode(), inner, inner)
        inner = bytes([0x90 + len(elements)]) + b"".join(elements)
        head = b"\x84\xa2ts" + msgspec.msgpack.encode(json.loads(at)) + b"\xa2id\xa1u"
        return head + b"\xa1o\x81\xa2rs" + inner + b"\xa2rs" + inner

    at = '"2020-01-01"' if kind == "levels" else "5"
    bad = [
        b'{"a": 1e999}',
        b'{"x": "\xff"}',
        b'{"id": "\\ud800"}',
        b"NaN",
        b'{"a": 1, "a": 2}',
        b"-Infinity",
        b'{"a": %s}' % (b"9" * 5000),
        b'"\\ud800"',
    ]
    if codec == "msgpack":
        bad = [
            b"\x81\xa1x\xa1\xff",
            b"\xa1\xff",
            b"\x81\xa1a\xcb\x7f\xf8" + bytes(6),
            b"\xc7\x01\x05\x00",
            b"\x81\x90\x01",
        ]
    end = time.monotonic() + SECONDS
    for i in range(CASES // 10):
        if time.monotonic() > end and i >= 100:
            break
        elements, extra = [], rng.choice(bad)
        for _ in range(rng.randrange(5)):
            body = encoded(random.Random(0), element(rng), codec) if rng.random() < 0.7 else rng.choice(bad)
            try:  # only what can be an element; the rest breaks the message
                if codec == "json":
                    json.loads(body.decode("utf-8", "surrogateescape"))
                else:
                    msgspec.msgpack.decode(b"\x91" + body, type=list[msgspec.Raw])
            except (ValueError, msgspec.DecodeError):
                body = extra
            elements.append(body)
        place = rng.randrange(len(elements) + 1)
        without = told(decoder.decode([pack(elements)], 0, envelope))
        alone = told(decoder.decode([pack([extra])], 0, envelope))
        whole = told(decoder.decode([pack([*elements[:place], extra, *elements[place:]])], 0, envelope))
        assert whole == (sorted(without[0] + alone[0]), sorted(without[1] + alone[1]))
