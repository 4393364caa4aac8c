"""SenML: the examples of RFC 8428, a slow twin, hostile packs."""

import json
import random
from collections import Counter
from decimal import Decimal

import pytest
from support.fuzz import shaken, told
from support.helpers import sample

from fcstream.config import Config
from fcstream.formats.batch import REASONS, Schema
from fcstream.formats.envelopes import Envelope, EnvelopeField
from fcstream.formats.payloads import decoder_for
from fcstream.formats.senml import (
    BrokenPack,
    SenmlPacks,
    _groups,
    join_measurements,
    json_pack,
    resolved,
    senml_messages,
)
from fcstream.formats.senml_entries import CODES
from fcstream.planning.plan import plan

SCHEMA = Schema("t", "s", ("v",), "n")
ROOM = Schema("bt", "s", ("temperature", "humidity"), "bn")


def packs(*found):
    return [json.dumps(pack).encode() for pack in found]


def binary(*found):
    """Packs in CBOR, with integers as labels."""
    cbor2 = pytest.importorskip("cbor2")
    return [cbor2.dumps([{CODES.get(label, label): value for label, value in e.items()} for e in p]) for p in found]


def reasons(batch):
    return [(r.position, r.reason, r.field) for r in batch.rejections for _ in range(r.count)]


# RFC 8428, 5.1.2: base name, base time, base unit, and times relative to the base time.
CURRENT = [
    {
        "bn": "urn:dev:ow:10e2073a0108006:",
        "bt": 1.276020076001e9,
        "bu": "A",
        "bver": 5,
        "n": "voltage",
        "u": "V",
        "v": 120.1,
    },
    *({"n": "current", "t": -5 + i, "v": v} for i, v in enumerate((1.2, 1.3, 1.4, 1.5, 1.6))),
    {"n": "current", "v": 1.7},
]
# RFC 8428, 5.1.4 and 5.1.3, shortened: values of several kinds; a base that changes.
KINDS = [
    {"bn": "urn:dev:ow:10e2073a01080063:", "bt": 1.320067464e9, "n": "temp", "u": "Cel", "v": 23.1},
    {"n": "label", "vs": "Machine Room"},
    {"n": "open", "vb": False},
    {"n": "nfc-reader", "vd": "aGkgCg"},
]


def test_examples_of_the_specification():
    found = resolved(json.loads(json.dumps(CURRENT)))
    assert found[0] == {
        "bn": "urn:dev:ow:10e2073a0108006:",
        "n": "urn:dev:ow:10e2073a0108006:voltage",
        "t": 1.276020076001e9,
        "u": "V",
        "v": 120.1,
    }
    assert {each["u"] for each in found[1:]} == {"A"}
    assert [each["t"] for each in found[1:]] == [1.276020076001e9 + i for i in (-5, -4, -3, -2, -1, 0)]
    assert [each["n"] for each in found[1:]] == ["urn:dev:ow:10e2073a0108006:current"] * 6
    batch = decoder_for("senml", SCHEMA).decode(packs(CURRENT, KINDS), 4)
    assert batch.times_ms.tolist() == [1276020076001 + 1000 * i for i in (0, -5, -4, -3, -2, -1, 0)] + [1320067464000]
    assert batch.values[:, 0].tolist() == [120.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 23.1]
    assert batch.positions.tolist() == [4] * 7 + [5]
    assert reasons(batch) == [(5, "missing", "v")] * 3  # texts, Booleans and data are no numbers


def test_one_measurement_has_a_relative_time():
    """RFC 8428, 5.1.1: no time at all is the time of arrival, and so is a small one."""
    from fcstream.formats.paths import parse_path

    one = [{"n": "urn:dev:ow:10e2073a01080063", "u": "Cel", "v": 23.1}]
    early = [{"n": "x", "t": 2.0**28 - 1, "v": 1}]
    absolute = [{"n": "x", "t": 2**28, "v": 1}]
    batch = decoder_for("senml", SCHEMA).decode(packs(one, early, absolute), 0)
    assert batch.times_ms.tolist() == [2**28 * 1000]
    assert reasons(batch) == [(0, "missing", "t"), (1, "missing", "t")]
    schema = Schema("at", "s", ("v",), "n", paths={"at": parse_path("@broker", "stream.time")})
    batch = decoder_for("senml", schema).decode(packs(one), 0, [Envelope(arrived_ms=5000)])
    assert (batch.times_ms.tolist(), batch.users.tolist()) == ([5000], ["urn:dev:ow:10e2073a01080063"])


def naive(pack):
    """Resolve a pack entry by entry, with every base value looked up anew in all entries before."""
    found = []
    for i, entry in enumerate(pack):

        def base(label, otherwise, i=i):
            return next((each[label] for each in reversed(pack[: i + 1]) if label in each), otherwise)

        if entry and not set(entry) - {"bn", "bt", "bu", "bver"}:
            continue
        record = {label: entry[label] for label in ("vs", "vb", "vd") if label in entry}
        record |= {"bn": base("bn", ""), "n": base("bn", "") + entry.get("n", "")}
        time = float(base("bt", 0)) + entry.get("t", 0)
        record["t"] = None if time < 2**28 else time
        if base("bu", entry.get("u")) is not None:
            record["u"] = entry.get("u", base("bu", None))
        if "v" in entry or (base("bv", None) is not None and not record.keys() & {"vs", "vb", "vd"}):
            record["v"] = entry.get("v", 0) if base("bv", None) is None else base("bv", 0) + entry.get("v", 0)
        if "s" in entry or base("bs", None) is not None:
            record["s"] = entry.get("s", 0) if base("bs", None) is None else base("bs", 0) + entry.get("s", 0)
        found.append(record)
    return found


def drawn(draw, part=0.4):
    pack = []
    for _ in range(draw.randint(1, 6)):
        entry = {
            "bn": draw.choice(["urn:a:", "b/"]),
            "bt": draw.choice([1.5e9, 1600000000, 3]),
            "bu": "Cel",
            "bv": draw.choice([20, 0.5]),
            "bs": 100,
            "bver": 10,
            "n": draw.choice(["temp", "hum", ""]),
            "t": draw.choice([0, -5, 0.25, 1.6e9]),
            "u": "%RH",
            "s": draw.choice([1, 2.5]),
            draw.choice(["v", "vs", "vb", "vd"]): draw.choice([1, 2.5]),
        }
        pack.append({label: entry[label] for label in entry if draw.random() < part})
    return pack


def test_drawn_packs_are_what_a_slow_resolver_makes_of_them():
    draw = random.Random(2)
    for _ in range(2000):
        pack = drawn(draw)
        assert resolved(json.loads(json.dumps(pack))) == naive(pack), pack


USUAL = {
    "n": SCHEMA,
    "bn": Schema("t", "ms", ("v",), "bn", "u", optional=frozenset("v")),
    "both": Schema(
        "t", "s", ("v", "s"), "n", texts={"vs": 9, "u": 9}, order=("v", "s", "vs", "u"), missing={"v": {"1"}}
    ),
    "levels": Schema("t", "s", ("vb",), "n", levels={"vb": {False: 0, True: 1}}),
    "quoted": Schema("t", "s", ("vs", "v"), "vd", quoted=frozenset({"vs"}), optional=frozenset({"vs", "v"})),
    "arrival": Schema("at", "s", ("v",), "n", paths={"at": EnvelopeField("broker")}),
}


def usual(draw):
    """A pack with base values in its first entry, or without any; sometimes with one elsewhere."""
    entries = [
        {"n": draw.choice(["temp", "battery", "b", ""]), "v": draw.choice([21.5, 3]), "t": draw.choice([0, -5, 1.6e9])}
        | draw.choice(
            [{}, {}, {"u": draw.choice(["Cel", "bar"])}, {"s": 2}, {"vs": "1.5"}, {"vb": True}, {"vd": "aGk"}]
        )
        for _ in range(draw.randint(0, 5))
    ]
    for entry in entries:
        for label in draw.choice([(), (), ("v",), ("n",), ("t",), ("v", "t"), ("n", "t")]):
            del entry[label]
    base = draw.choice([{"bn": "urn:a:"}, {"bt": 1.5e9}, {"bn": "b", "bt": 1600000000, "bu": "Cel"}, {"bver": 5}])
    where = draw.choice(entries) if entries and draw.random() < 0.1 else {}
    where |= base
    return [where, *entries] if where not in entries else [{"n": "a", "bt": 1.5e9, "v": 1}, *entries]


@pytest.mark.slow
@pytest.mark.parametrize("kind", USUAL)
def test_packs_that_are_read_together_are_what_they_are_alone(kind):
    draw, decoder = random.Random(kind), senml_messages(USUAL[kind])
    careful = SenmlPacks(USUAL[kind], json_pack)
    for _ in range(25):
        group = packs(*(draw.choice([usual, usual, usual, drawn])(draw) for _ in range(20)))
        group += [shaken(draw, body) if draw.random() < 0.5 else body for body in group]
        envelopes = [Envelope(arrived_ms=draw.choice([5, 7])) for _ in group]
        found, expected = (each.decode(group, 3, envelopes) for each in (decoder, careful))
        assert found.positions.tolist() == expected.positions.tolist()
        assert reasons(found) == reasons(expected)
        for i in range(len(group)):
            assert told(found, 3 + i) == told(expected, 3 + i), group[i]


@pytest.mark.slow
@pytest.mark.parametrize("kind", USUAL)
def test_packs_in_cbor_that_are_read_together_are_what_they_are_alone(kind):
    cbor2 = pytest.importorskip("cbor2")
    from fcstream.formats.bounds import PACK_BYTES
    from fcstream.formats.senml_cbor import cbor_pack, senml_cbor_messages

    draw, decoder = random.Random(kind), senml_cbor_messages(USUAL[kind])
    careful = SenmlPacks(USUAL[kind], cbor_pack, longest=PACK_BYTES)
    odd = [None, True, 1, 2.0, "x", b"x", 10**400, -(10**400), Decimal("1.5"), float("nan"), {}, [], 1.6e9]
    keys = [-1, -2, -3, -4, 0, 1, 2, 5, 6, True, 2.0, "n", "v", "x_", -5, 99]
    assert kind not in ("n", "bn") or decoder._usual.read(binary(CURRENT, KINDS[:1]), 0)[1] == []
    for _ in range(25):
        group = []
        for _ in range(20):
            pack = [
                {CODES.get(label, label): value for label, value in entry.items()}
                for entry in draw.choice([usual, usual, drawn])(draw)
            ]
            for _ in range(draw.choice([0, 0, 0, 1, 2])):
                draw.choice(pack)[draw.choice(keys)] = draw.choice(odd)
            group.append(cbor2.dumps(pack))
        group += [shaken(draw, body) if draw.random() < 0.3 else body for body in group]
        envelopes = [Envelope(arrived_ms=draw.choice([5, 7])) for _ in group]
        found, expected = (each.decode(group, 3, envelopes) for each in (decoder, careful))
        assert found.positions.tolist() == expected.positions.tolist()
        assert reasons(found) == reasons(expected)
        for i in range(len(group)):
            assert told(found, 3 + i) == told(expected, 3 + i), group[i]


def test_usual_packs_are_read_together():
    base = {"bn": "urn:b:", "bt": 1.7e9}
    shapes = [
        CURRENT,
        [base, {"n": "a", "v": 1}, {"n": "b", "v": 2}],
        [base | {"n": "battery", "v": 1}, {"n": "battery", "v": 2}],
        [base | {"n": "a", "v": 1}, {"n": "\xe9", "v": 2}],
        [{"n": "a", "t": 1.7e9, "v": 1}],
    ]
    decoder = senml_messages(SCHEMA)
    batch, others = decoder._usual.read(packs(*shapes), 0)
    assert (others, batch.positions.tolist()) == ([], [0] * 7 + [1, 1, 2, 2, 3, 3, 4])
    assert batch.users.tolist()[7:11] == ["urn:b:a", "urn:b:b", "urn:b:battery", "urn:b:battery"]
    _, others = decoder._usual.read(packs([base, {"n": "a", "v": 1}, {"bn": "c", "v": 1}], [{"bv": 1}], KINDS), 0)
    assert others == [0, 1, 2]


@pytest.mark.parametrize("lengths", [[], [1], [5, 5], [3, 9, 1, 1, 1, 8]])
def test_groups_of_messages_hold_each_once(monkeypatch, lengths):
    monkeypatch.setattr("fcstream.formats.senml._BYTES_TOGETHER", 8)
    found = [i for some in _groups([bytes(n) for n in lengths]) for i in range(some.start, some.stop)]
    assert found == list(range(len(lengths)))


@pytest.mark.parametrize(
    "pack",
    [
        *({}, [], "x", 3, None, [3], [None], [[{"v": 1}]]),
        [{"bn": 3, "v": 1}],
        [{"bt": "1", "v": 1}],
        [{"bv": True, "v": 1}],
        [{"bver": 11, "n": "a", "v": 1}],
        [{"n": "a", "v": 1}, {"n": "b", "v": 1, "must_": 1}],
    ],
)
def test_packs_that_cannot_be_resolved(pack):
    with pytest.raises(BrokenPack):
        resolved(pack)
    batch = decoder_for("senml", SCHEMA).decode(packs(pack), 3)
    assert reasons(batch) == [(3, "broken_record", None)]


def test_a_fault_of_one_entry_rejects_that_entry():
    odd = [
        {"bn": "a", "bt": 1e9},
        {"v": "1"},
        {"v": True},
        {"n": 5, "v": 1},
        {"t": "1", "v": 1},
        {"u": "Cel"},
        {"v": 7, "x": 1},
    ]
    batch = decoder_for("senml", SCHEMA).decode(packs(odd), 0)
    assert batch.values.tolist() == [[1.0], [7.0]]  # a name may be any number
    assert batch.users.tolist() == ["5", "a"]
    assert reasons(batch) == [
        (0, "not_a_number", "v"),
        (0, "not_a_number", "v"),
        (0, "bad_time", "t"),
        (0, "missing", "v"),
    ]


@pytest.mark.parametrize("encode", [packs, binary])
@pytest.mark.parametrize(
    "two",
    [
        {"v": 1, "vs": "x"},
        {"v": 1, "vb": True},
        {"v": 1, "vd": "aGk"},
        {"vs": "x", "vb": False},
        {"vb": True, "vd": "aGk"},
    ],
)
def test_an_entry_with_two_values_is_rejected(encode, two):
    """Which of them was meant nobody knows, and one was taken in silence."""
    usual = [{"bn": "a", "bt": 1e9, "v": 1}, {"v": 2}]
    mixed = [{"bn": "a", "bt": 1e9, "v": 1}, two, {"vs": "3"}, {"v": 4}]
    later = [{"bn": "a", "bt": 1e9, "v": 1}, {"bn": "b", **two}, {"v": 4}]
    format = "senml" if encode is packs else "senml-cbor"
    batch = decoder_for(format, SCHEMA).decode(encode(usual, mixed, [{"bn": "a", "bt": 1e9}, two], later), 0)
    assert batch.positions.tolist() == [0, 0, 1, 1, 3, 3]
    assert batch.values.ravel().tolist() == [1, 2, 1, 4, 1, 4]
    assert reasons(batch) == [
        *[(1, "missing", "v"), (1, "two_values", None), (2, "two_values", None), (3, "two_values", None)]
    ]
    rooms = [{"bn": "a", "bt": 1e9, "n": "humidity", "v": 3}, {"n": "temperature", **two}]
    batch = decoder_for(format, ROOM, {"joined": True}).decode(encode(rooms), 0)
    assert reasons(batch) == [(0, "missing", "temperature"), (0, "two_values", None)]


def test_escaped_labels_hide_no_second_value():
    body = rb'[{"bn": "a", "bt": 1e9, "v": 1, "\u0076s": "x"}]'
    assert reasons(decoder_for("senml", SCHEMA).decode([body], 0)) == [(0, "two_values", None)]


def test_measurements_of_a_time_are_one_record():
    pack = [
        {"bn": "urn:a:", "bt": 1e9, "n": "temperature", "u": "Cel", "v": 21.5},
        {"n": "humidity", "u": "%RH", "v": 40},
        {"n": "temperature", "t": 10, "v": 22.5},
        {"n": "humidity", "t": 10, "v": 41},
        {"bn": "urn:b:", "n": "temperature", "v": 1},
        {"n": "humidity", "v": 2},
        {"n": "temperature", "v": 3},
        {"n": "humidity", "v": 4},
    ]
    batch = decoder_for("senml", ROOM, {"joined": True}).decode(packs(pack), 0)
    assert batch.times_ms.tolist() == [10**12, 10**12 + 10_000, 10**12, 10**12]
    assert batch.values.tolist() == [[21.5, 40], [22.5, 41], [1, 2], [3, 4]]
    assert batch.users.tolist() == ["urn:a:", "urn:a:", "urn:b:", "urn:b:"]
    assert join_measurements(resolved([{"n": "", "bn": "x", "bt": 1e9, "vs": "on"}])) == [
        {"bn": "x", "bt": 1e9, "v": "on"}
    ]


def test_packs_in_cbor():
    decoder = decoder_for("senml-cbor", SCHEMA)
    batch, same = (
        decoder.decode(binary(CURRENT, KINDS), 4),
        decoder_for("senml", SCHEMA).decode(packs(CURRENT, KINDS), 4),
    )
    assert batch.times_ms.tolist() == same.times_ms.tolist()
    assert batch.values.tolist() == same.values.tolist()
    assert batch.users.tolist() == same.users.tolist()
    assert reasons(batch) == reasons(same)
    # RFC 8428, 6.1: the example's bytes, shortened; a decimal fraction; text labels; what is no pack.
    (one,) = binary([{"bn": "a", "bt": 1320067464, "n": "b", "v": Decimal("23.1")}])
    assert one[:4] == bytes([0x81, 0xA4, 0x21, 0x61])
    text = pytest.importorskip("cbor2").dumps([{"n": "c", "t": 1320067464, "v": 2}])
    batch = decoder.decode([one, text, one + b"\0", one[:-1], b"", b"\x80", b"\x81\xa2\x00\x61a\x61n\x61b"], 0)
    assert batch.times_ms.tolist() == [1320067464000] * 2
    assert batch.values.tolist() == [[23.1], [2.0]]
    assert batch.users.tolist() == ["ab", "c"]
    assert reasons(batch) == [(i, "broken_record", None) for i in range(2, 7)]
    assert reasons(decoder.decode([bytes(2**15 + 1)], 0)) == [(0, "too_long", None)]


@pytest.mark.slow
def test_hostile_packs_in_cbor():
    draw, decoder = random.Random(8), decoder_for("senml-cbor", SCHEMA)
    good = binary(CURRENT, KINDS)
    for _ in range(250):
        group = []
        for _ in range(40):
            body = bytearray(draw.choice(good))
            for _ in range(draw.randint(0, 4)):
                at = draw.randrange(len(body) + 1)
                body[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
            group.append(bytes(body))
        whole = decoder.decode(group, 0)
        assert {r.reason for r in whole.rejections} <= set(REASONS)
        parts = [decoder.decode([body], i) for i, body in enumerate(group)]
        assert whole.positions.tolist() == [x for part in parts for x in part.positions.tolist()]
        assert whole.values.tolist() == [x for part in parts for x in part.values.tolist()]
        assert Counter(reasons(whole)) == Counter(x for part in parts for x in reasons(part))


@pytest.mark.parametrize("format", ["senml", "senml-cbor"])
def test_plan_says_that_a_pack_is_protected_as_a_whole(format):
    source = {"url": "mqtt://h/t", "spool": "s", "format": format}
    config = Config.from_mapping(sample(source=source, window={"clock": "wall"}))
    assert any("base values of those that follow" in line for line in plan(config).lines())
    assert "the message: all its records together" in str(plan(config).lines())


def test_long_packs(monkeypatch):
    monkeypatch.setattr("fcstream.formats.senml.max_rows", lambda dimension: 5)
    pack = [{"bn": "a", "bt": 1e9, "v": 1}] + [{"v": i} for i in range(9)]
    batch = decoder_for("senml", SCHEMA).decode(packs(pack[:5], pack), 0)
    assert batch.positions.tolist() == [0] * 5 + [1] * 5
    assert reasons(batch) == [(1, "too_long", None)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"joined": True}])
def test_hostile_packs(options):
    """Ten thousand packs raise nothing; what becomes of one is the same whatever comes with it."""
    draw = random.Random(7)
    schema = ROOM if options else SCHEMA
    decoder = decoder_for("senml", schema, options)
    odd = [None, True, "x", "", [], {}, 1e308, -1e308, 10**30, 2**28, -1, 0.1, "é", "\ud800", [[]], {"v": 1}]
    labels = ["bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x_", "x"]
    for _ in range(250):
        group = []
        for _ in range(40):
            pack = json.loads(json.dumps(draw.choice([CURRENT, KINDS])))
            for _ in range(draw.randint(0, 4)):
                entry = draw.choice(pack)
                entry[draw.choice(labels)] = draw.choice(odd)
            body = bytearray(json.dumps(pack).encode())
            if draw.random() < 0.3:
                at = draw.randrange(len(body))
                body[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 2))
            group.append(bytes(body))
        whole = decoder.decode(group, 0)
        assert {r.reason for r in whole.rejections} <= set(REASONS)
        parts = [decoder.decode([body], i) for i, body in enumerate(group)]
        assert whole.positions.tolist() == [x for part in parts for x in part.positions.tolist()]
        assert whole.times_ms.tolist() == [x for part in parts for x in part.times_ms.tolist()]
        assert whole.values.tolist() == [x for part in parts for x in part.values.tolist()]
        assert whole.users.tolist() == [x for part in parts for x in part.users.tolist()]
        assert Counter(reasons(whole)) == Counter(x for part in parts for x in reasons(part))


def test_a_long_base_name_is_not_copied_for_each_entry():
    pack = [{"bn": "x" * 50_000, "bt": 1.7e9, "v": 1}, *[{"n": "y", "v": 1}] * 3_500]  # 175 MB of names
    batch = decoder_for("senml", Schema("t", "s", ("v",), "n")).decode([json.dumps(pack).encode()], 0)
    assert [each.reason for each in batch.rejections] == ["broken_record"]
