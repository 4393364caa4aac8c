"""InfluxDB's line protocol: what its documents say, a slow twin, hostile bytes."""

import random
from fractions import Fraction

import numpy as np
import pytest

from fcstream.formats.batch import REASONS, Schema
from fcstream.formats.bounds import LONGEST_MESSAGE
from fcstream.formats.envelopes import Envelope
from fcstream.formats.influx_lines import PointLines
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for
from fcstream.formats.rejections import total

SCHEMA = Schema("time", "ns", ("temp", "hum"), "dev")
CLASSES = Schema(
    *("time", "ns", ("temp", "online"), "dev", "_measurement"),
    {"online": {"false": 0, "true": 1, False: 0, True: 1}},
    optional=frozenset({"temp"}),
    texts={"note": 40},
    order=("temp", "online", "note"),
)


def told(batch):
    columns = [batch.times_ms, batch.values, batch.positions, batch.users, batch.keys, *batch.texts.values()]
    return (
        [None if column is None else list(map(str, column.tolist())) for column in columns],
        [(r.position, r.reason, r.field) for r in batch.rejections],
    )


def point(line):
    """A slow reader of one line, character by character: measurement, tags, fields and time; None if it is none."""
    parts, at = [], 0
    for stops in (" ", " ", ""):
        part, quoted = "", False
        while at < len(line) and (quoted or line[at] not in stops or not stops):
            if line[at] == "\\" and at + 1 < len(line):
                part += line[at : at + 2]
                at += 2
                continue
            quoted ^= line[at] == '"' and len(parts) == 1
            part += line[at]
            at += 1
        parts.append(part)
        while at < len(line) and line[at] == " ":
            at += 1
    names, values, time = parts
    measurement, *tags = split(names, ",")
    try:
        pairs = [split(each, "=") for each in split(values, ",", quotes=True)]
        record = {unescaped(name): unescaped(value) for name, value in (split(tag, "=") for tag in tags)}
        record |= {unescaped(name): value_of("=".join(rest)) for name, *rest in pairs if rest or 1 / 0}
        record |= {"time": int(time) if time.strip() else None, "_measurement": unescaped(measurement, ", ")}
    except (ValueError, ArithmeticError):
        return None
    return record


def split(text, mark, quotes=False):
    found, quoted, at = [""], False, 0
    while at < len(text):
        step = 2 if text[at] == "\\" and at + 1 < len(text) else 1
        quoted ^= quotes and text[at] == '"'
        if text[at] == mark and not quoted:
            found.append("")
        else:
            found[-1] += text[at : at + step]
        at += step
    return found


def unescaped(text, marks=", ="):
    return "".join(
        char for i, char in enumerate(text) if not (char == "\\" and i + 1 < len(text) and text[i + 1] in marks)
    )


def value_of(text):
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if text in ("t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE"):
        return text[0] in "tT"
    return int(text[:-1]) if text[-1:] in ("i", "u") else float(text)


LINES = [
    "weather,dev=a temp=21.5,hum=40i 1767225600123456789",
    "weather,dev=b temp=21.5,hum=40u 1767225600123999999",
    r"odd\ one\,x,dev=a\ b\,c\=d temp=-1e-3,hum=0 5",
    r'weather,dev=e temp=1,hum=2,note="a \"quoted\" text, with = and \\" 7',
    "weather,dev=f temp=1,hum=2 -1",
    "weather temp=1,hum=2,dev=9i 1767225600000000000",
    "weather,dev=tag temp=1,hum=2 1767225600000000000",
    'weather,temp=x temp=3,hum=2,dev="field" 1767225600000000000',
    "weather,dev=n temp=1,hum=2",  # no time
    "weather,dev=h hum=2 1",  # no temp
    'weather,dev=i temp="21.5",hum=2 1',
    "weather,dev=j temp=t,hum=2 1",
]


def test_lines_are_what_a_slow_reader_makes_of_them():
    for line in LINES:
        assert PointLines(SCHEMA).decode([line.encode()], 3).positions.tolist() in ([3], []), line
    batch = PointLines(SCHEMA).decode([line.encode() for line in LINES], 0)
    good = [
        (i, record)
        for i, record in enumerate(map(point, LINES))
        if record
        and record["time"] is not None
        and all(type(record.get(name)) in (int, float) for name in ("temp", "hum"))
    ]
    assert batch.positions.tolist() == [i for i, _ in good]
    assert batch.times_ms.tolist() == [Fraction(record["time"], 10**6).__floor__() for _, record in good]
    assert batch.values.tolist() == [[record["temp"], record["hum"]] for _, record in good]
    assert batch.users.tolist() == [str(record["dev"]) for _, record in good]
    assert [(r.position, r.reason, r.field) for r in batch.rejections] == [
        (8, "missing", "time"),
        (9, "missing", "temp"),
        (10, "not_a_number", "temp"),
        (11, "not_a_number", "temp"),
    ]


def test_drawn_lines_are_what_a_slow_reader_makes_of_them():
    draw = random.Random(5)
    texts = ["a", "b c", "d,e", "f=g", 'h"i', "é", "x" * 30, "0", r"c:\temp"]

    def escaped(text, marks=", ="):
        return "".join(f"\\{char}" if char in marks else char for char in text)

    lines = []
    for _ in range(500):
        tags = "".join(
            f",{escaped(name)}={escaped(draw.choice(texts))}" for name in draw.sample(["dev", "a b", "k=1"], 2)
        )
        note = draw.choice(texts).replace("\\", "\\\\").replace('"', '\\"')
        number = draw.choice(["1.5", "-3i", "7u", "1e300", "0", "t"])
        fields = draw.sample([f"temp={number}", f'note="{note}"', f"online={draw.choice(['t', 'False', '3'])}"], 3)
        measurement = escaped(draw.choice(texts), ", ")
        lines.append(f"{measurement}{tags} {','.join(fields)} {draw.randrange(-(2**62), 2**62)}")
    batch = PointLines(CLASSES).decode(["\n".join(lines[i : i + 10]).encode() for i in range(0, 500, 10)], 0)
    naive = [(i // 10, point(line)) for i, line in enumerate(lines)]
    kept = [
        (position, record)
        for position, record in naive
        if type(record["online"]) is bool and type(record["temp"]) is not bool and "dev" in record
    ]
    assert len(kept) > 100
    assert batch.positions.tolist() == [position for position, _ in kept]
    assert batch.times_ms.tolist() == [record["time"] // 10**6 for _, record in kept]
    assert batch.values[:, 0].tolist() == [record["temp"] for _, record in kept]
    assert batch.values[:, 1].tolist() == [float(record["online"]) for _, record in kept]
    assert batch.texts["note"].tolist() == [record["note"] for _, record in kept]
    assert batch.keys.tolist() == [record["_measurement"] for _, record in kept]
    assert total(batch.rejections) == len(naive) - len(kept)


def test_messages_of_many_lines():
    body = b"# a comment\n\nweather,dev=a temp=1,hum=2 1000000\r\n   \nbroken\nweather,dev=b temp=3,hum=4 2999999\n"
    batch = PointLines(SCHEMA).decode(
        [b"", body, b"weather,dev=\xff temp=1,hum=2 1\nweather,dev=c temp=5,hum=6 3000000"], 7
    )
    assert batch.times_ms.tolist() == [1, 2, 3]
    assert batch.positions.tolist() == [8, 8, 9]
    assert batch.users.tolist() == ["a", "b", "c"]
    assert [(r.position, r.reason) for r in batch.rejections] == [(8, "broken_record"), (9, "broken_record")]


def test_points_of_other_measurements_are_no_records():
    body = b"cpu,dev=a usage=1 1\nweather,dev=a temp=1,hum=2 1\nweather\\ 2,dev=a temp=1,hum=2 1\nbroken"
    batch = decoder_for("influx", SCHEMA, {"measurement": "weather"}).decode([body], 0)
    assert batch.users.tolist() == ["a"]
    assert [r.reason for r in batch.rejections] == ["broken_record"]


def test_nanoseconds_stay_whole_numbers():
    times = [
        1767225600123999999,
        1767225600124000000,
        2**63 - 2,
        -1,
        -(2**63) + 2,
    ]  # up to what InfluxDB has
    lines = [b"w,dev=a temp=1,hum=1 %d" % time for time in times]
    assert PointLines(SCHEMA).decode(lines, 0).times_ms.tolist() == [time // 10**6 for time in times]
    seconds = [b"w,dev=a temp=1,hum=1 1767225600"]
    assert PointLines(SCHEMA, ticks=10**9).decode(seconds, 0).times_ms.tolist() == [1767225600000]


def test_the_time_of_arrival_stands_for_a_timestamp():
    from fcstream.formats.paths import parse_path

    schema = Schema("arrived", "ms", ("temp",), paths={"arrived": parse_path("@broker", "stream.time")})
    bodies = [b"w temp=1\nw temp=2 99", b"w temp=3"]
    batch = PointLines(schema).decode(bodies, 0, [Envelope(arrived_ms=1000), Envelope(arrived_ms=2000)])
    assert batch.times_ms.tolist() == [1000, 1000, 2000]
    assert batch.values.tolist() == [[1], [2], [3]]


@pytest.mark.slow
def test_long_messages(monkeypatch):
    monkeypatch.setattr("fcstream.formats.influx_lines.max_rows", lambda dimension: 5)
    line = b"w,dev=a temp=1,hum=1 1\n"
    batch = PointLines(SCHEMA).decode([line * 5, line * 6, line * 4 + b"\n\n\n\n", line * LONGEST_MESSAGE], 0)
    assert np.bincount(batch.positions).tolist() == [5, 5, 4]
    assert [(r.position, r.reason) for r in batch.rejections] == [(1, "too_long"), (3, "too_long")]


@pytest.mark.slow
@pytest.mark.parametrize("schema", [SCHEMA, CLASSES])
def test_hostile_bytes(schema):
    """Ten thousand messages raise nothing; what becomes of one is the same whatever comes with it."""
    draw, decoder = random.Random(3), decoder_for("influx", schema)
    marks = b' ,="\\\n\r#itf0.e-\x00\xff\xc3\xa9'
    for _ in range(250):
        group = []
        for _ in range(40):
            body = bytearray("\n".join(draw.sample(LINES, draw.randint(1, 3))).encode())
            for _ in range(draw.randint(0, 6)):
                at = draw.randrange(len(body) + 1)
                if draw.random() < 0.3:
                    del body[at : at + draw.randint(1, 8)]
                else:
                    body[at : at + draw.randint(0, 1)] = bytes([draw.choice(marks)])
            group.append(bytes(body))
        whole = decoder.decode(group, 0)
        assert {r.reason for r in whole.rejections} <= set(REASONS)
        parts = [told(decoder.decode([body], i)) for i, body in enumerate(group)]
        columns, rejections = told(whole)
        for k, column in enumerate(columns):
            assert column is None or column == [cell for part in parts for cell in part[0][k]]
        assert rejections == [each for part in parts for each in part[1]]


ESCAPES = [
    # measurement: comma and space are escaped, any other backslash stands for itself
    (r"m\ n f=1 1", "_measurement", "m n"),
    (r"m\,n f=1 1", "_measurement", "m,n"),
    (r"m\=n f=1 1", "_measurement", r"m\=n"),
    (r"m\\n f=1 1", "_measurement", r"m\\n"),
    # tags: comma, equals sign and space
    (r"m,t=a\ b f=1 1", "t", "a b"),
    (r"m,t=a\,b f=1 1", "t", "a,b"),
    (r"m,t=a\=b f=1 1", "t", "a=b"),
    (r"m,t=a\b f=1 1", "t", r"a\b"),
    (r"m,t=a\\b f=1 1", "t", r"a\\b"),
    (r"m,t=a\\\ b f=1 1", "t", r"a\\ b"),
    (r"m,t=a\\\\b f=1 1", "t", r"a\\\\b"),
    (r"m,t=a\nb f=1 1", "t", r"a\nb"),
    (r"m,t=\"a\" f=1 1", "t", r"\"a\""),
    (r"m,t=C:\dir\new f=1 1", "t", r"C:\dir\new"),
    (r"m,t=a\\=b f=1 1", "t", r"a\=b"),
    (r"m,t\ 1=a f=1 1", "t 1", "a"),
    (r"m,t\=1=a f=1 1", "t=1", "a"),
    (r"m,t\,1=a f=1 1", "t,1", "a"),
    (r"m,t\\1=a f=1 1", r"t\\1", "a"),
    # a backslash before what ends a tag escapes it: no value can end in one
    (r"m,t=a\ f=1 1", "t", None),
    (r"m,t=a\\ f=1 1", "t", None),
    (r"m,t=a\\,u=b f=1 1", "t", None),
    # names of fields: as those of tags
    (r"m f\ 1=1 1", "f 1", 1.0),
    (r"m f\,1=1 1", "f,1", 1.0),
    (r"m f\=1=1 1", "f=1", 1.0),
    (r"m f\\1=1 1", r"f\\1", 1.0),
    # texts of fields: quotation mark and backslash
    (r'm f="a\"b" 1', "f", 'a"b'),
    (r'm f="a\\b" 1', "f", r"a\b"),
    (r'm f="a\b" 1', "f", r"a\b"),
    (r'm f="a\\\"b" 1', "f", r"a\"b"),
    (r'm f="a\\\\b" 1', "f", r"a\\b"),
    (r'm f="a\\" 1', "f", "a\\"),
    (r'm f="C:\\new\\t" 1', "f", r"C:\new\t"),
    (r'm f="a\ b\,c\=d" 1', "f", r"a\ b\,c\=d"),
    (r'm f="a\" 1', "f", None),
]


@pytest.mark.parametrize(("line", "name", "value"), ESCAPES, ids=[line for line, *_ in ESCAPES])
def test_backslashes_are_what_the_protocol_s_reference_says(line, name, value):
    """Source: "Special characters" of InfluxDB's line protocol reference."""
    decoder = PointLines(Schema("time", "ns", (), "who", paths={"who": FieldPath((name,))}))
    batch = decoder.decode([line.encode()], 0)
    found = None if batch.users is None or not len(batch.users) else batch.users[0]
    assert found == (str(int(value)) if isinstance(value, float) else value)
    assert [each.reason for each in batch.rejections] == (["broken_record"] if value is None else [])
    if value is not None:
        assert batch.times_ms.tolist() == [0]
