"""Features that hold texts: every decoder reads the same texts, and rejects the same ones."""

import json
import time
import unicodedata

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.payloads import arrow

from fcstream.errors import ConfigError
from fcstream.formats.batch import Schema
from fcstream.formats.cells import Role, read, read_cell
from fcstream.formats.decoders import CsvRows, Objects
from fcstream.formats.frames import read_table
from fcstream.formats.payloads import decoder_for
from fcstream.formats.plain_columns import as_objects
from fcstream.formats.rows import read_push
from fcstream.formats.texts import UnusableRecord, parse_text

SCHEMA = Schema("t", "ms", ("x",), texts={"app": 8}, order=("app", "x"))
OPTIONAL = Schema(
    "t", "ms", (), "u", None, {}, {"app": frozenset({"n/a", "0"})}, frozenset(["app"]), {"app": 8}, ("app",)
)
GOOD = {"maps": "maps", "Zu\u0308rich": "Z\u00fcrich", " a ": " a ", "\u00e9" * 4: "\u00e9" * 4, "7": "7"}
BAD = {"": "missing", "123456789": "too_long", "\u00e9" * 5: "too_long"}
CELLS = [*GOOD, *BAD, "maps"]
TEXT = st.text(alphabet="aZ\u00e9e\u0301 \u212b0", max_size=12)


def told(batch, name="app"):
    """Texts by position, and reasons."""
    found = dict(zip(batch.positions.tolist(), batch.texts[name].tolist(), strict=True))
    return found | {each.position: (each.reason, each.field) for each in batch.rejections}


def wanted(cells):
    return {i: GOOD.get(cell) or (BAD[cell], "app") for i, cell in enumerate(cells)}


def test_all_decoders_of_one_record_a_line_agree():
    rows = [{"t": 1, "x": 2.0, "app": cell} for cell in CELLS]
    lines = [json.dumps(row).encode() for row in rows]
    assert told(Objects(SCHEMA).decode(lines, 0)) == wanted(CELLS)
    packed = [msgspec.msgpack.encode(row) for row in rows]
    assert told(decoder_for("msgpack", SCHEMA).decode(packed, 0)) == wanted(CELLS)
    cells = [f"{cell},1,2".encode() for cell in CELLS]
    assert told(CsvRows(SCHEMA, b"app,t,x").decode(cells, 0)) == wanted(CELLS)


def test_rows_of_a_message_are_read_one_by_one():
    body = arrow(t=[1] * len(CELLS), x=[1.0] * len(CELLS), app=CELLS)
    batch = decoder_for("arrow", SCHEMA).decode([body], 0)
    assert batch.texts["app"].tolist() == [GOOD[cell] for cell in CELLS if cell in GOOD]
    kind_description = [(each.reason, each.field) for each in batch.rejections for _ in range(each.count)]
    assert sorted(kind_description) == sorted((why, "app") for why in BAD.values())
    assert decoder_for("arrow", SCHEMA).decode([], 0).texts["app"].tolist() == []


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_tables_hold_texts_in_columns(library):
    columns = {"x": [1.0] * len(CELLS), "app": CELLS, "t": [1] * len(CELLS)}
    if library == "arrow":
        table = pytest.importorskip("pyarrow").table(columns)
    else:
        table = pytest.importorskip(library).DataFrame(columns)
    batch, n = read_table(SCHEMA, table)
    assert (told(batch), n) == (wanted(CELLS), len(CELLS))


def test_a_categorical_column_is_a_column_of_texts():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    cells = ["maps", "mail", "maps"]
    for table in (
        pandas.DataFrame({"t": [1, 2, 3], "x": 1.0, "app": pandas.Categorical(cells)}),
        polars.DataFrame({"t": [1, 2, 3], "x": [1.0] * 3, "app": polars.Series(cells, dtype=polars.Categorical)}),
    ):
        assert read_table(SCHEMA, table)[0].texts["app"].tolist() == cells


def test_pushed_rows_have_their_texts_where_the_configuration_has_them():
    rows = [(cell, 2.0) for cell in CELLS]
    for points in (rows, as_objects(rows), np.array(rows, object)):
        batch, n = read_push(SCHEMA, [1] * len(CELLS), points, None, None)
        assert {at: why if isinstance(why, str) else why[0] for at, why in told(batch).items()} == {
            at: why if isinstance(why, str) else why[0] for at, why in wanted(CELLS).items()
        }
        assert n == len(CELLS)
        assert batch.values.tolist() == [[2.0]] * (len(GOOD) + 1)
    pandas = pytest.importorskip("pandas")
    points = pandas.DataFrame({"x": [1.5, None], "app": ["a", "b"]})
    batch, _ = read_push(SCHEMA, [1, 2], points, None, None, {})
    assert batch.texts["app"].tolist() == ["a"]
    assert batch.rejections[0].reason == "missing"


def test_a_stream_of_one_text_takes_its_column():
    schema = Schema("t", "ms", (), texts={"app": 8}, order=("app",))
    for points in (["a", "b"], [("a",), ("b",)], np.array(["a", "b"]), np.array([["a"], ["b"]], object)):
        batch, _ = read_push(schema, [1, 2], points, None, None)
        assert batch.texts["app"].tolist() == ["a", "b"]
        assert batch.values.shape == (2, 0)
    assert read_push(schema, 5, "a", None, None)[0].texts["app"].tolist() == ["a"]
    assert read_push(schema, [], [], None, None)[0].texts["app"].tolist() == []


@pytest.mark.parametrize("points", [None, "ab", ["a"], [("a", 1, 2), ("b", 2, 3)], [1.0, 2.0, 3.0]])
def test_wrong_shapes_are_refused(points):
    with pytest.raises(ConfigError):
        read_push(SCHEMA, [1, 2], points, None, None)


def test_a_row_of_another_shape_is_rejected_alone():
    batch, _ = read_push(SCHEMA, [1, 2, 3], [("a", 1.0), ("b",), ("c", "x")], None, None)
    assert batch.texts["app"].tolist() == ["a"]
    assert [each.reason for each in batch.rejections] == ["broken_record", "not_a_number"]


def test_optional_texts_may_be_missing():
    cells = ["maps", None, "", "n/a", 0, "0", 3.5, "much too long"]
    lines = [json.dumps({"t": 1, "u": "z", "app": cell}).encode() for cell in cells]
    batch = Objects(OPTIONAL).decode([*lines, b'{"t": 1, "u": "z"}'], 0)
    assert batch.texts["app"].tolist() == ["maps", None, None, None, None, None, None]
    assert [each.reason for each in batch.rejections] == ["not_a_text", "too_long"]
    csv = CsvRows(OPTIONAL, b"t,u,app").decode([b"1,z,maps", b"1,z,", b"1,z,n/a", b"1,z,0"], 0)
    assert csv.texts["app"].tolist() == ["maps", None, None, None]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "missing"),
        (True, "not_a_text"),
        (1.5, "not_a_text"),
        ([], "not_a_text"),
        (b"\xff", "not_a_text"),
        ("\ud800", "not_a_text"),
        pytest.param(10**5000, "too_long", id="many digits"),
        ("x" * 257, "too_long"),
    ],
)
def test_what_is_no_text_is_rejected(value, reason):
    with pytest.raises(UnusableRecord) as caught:
        parse_text(value)
    assert caught.value.reason == reason
    assert list(read(["a", value], Role("label", max_bytes=256))[1]) == ([] if value is True else [1])


def test_whole_numbers_and_bytes_are_texts():
    assert [parse_text(value) for value in (7, np.int64(-3), "Zu\u0308".encode())] == ["7", "-3", "Z\u00fc"]


@given(st.lists(TEXT, max_size=6))
def test_a_text_does_not_depend_on_its_neighbors(texts):
    def alone(text):
        try:
            return parse_text(text, 8)
        except UnusableRecord:
            return None

    found, odd = read(texts, Role("label", max_bytes=8))
    assert [None if i in odd else text for i, text in enumerate(found.tolist())] == [alone(text) for text in texts]


def test_packed_floats_hold_no_texts():
    with pytest.raises(ConfigError, match="texts"):
        decoder_for("floats", SCHEMA)


MARKS = "\u0300\u0316"


@pytest.mark.parametrize(("many", "reason"), [(30, None), (31, "not_a_text")])
@pytest.mark.parametrize("before", [1, 17, 40])
@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "bytes"])
def test_a_letter_has_so_many_accents(before, many, reason, form):
    """The normal form takes the square of the number of accents in a row."""
    text = "a" * before + (MARKS * many)[:many] + "b" * before
    if reason is None:
        assert len(parse_text(form(text))) == len(text) - 1  # one is a part of the letter now
        assert read([text, "b"], Role("label", max_bytes=256))[0].tolist() == [parse_text(text), "b"]
        return
    with pytest.raises(UnusableRecord, match=reason):
        parse_text(form(text))
    assert read([text, "b"], Role("label", max_bytes=256))[1] == {0: reason}


PEOPLE = Schema("t", "ms", ("x",), "who", order=("x",))
ACCENTS = {"a" + MARKS * 15: None, "a" + MARKS * 15 + "\u0300": "bad_user", "ann": None}
DECODERS = {
    "lines": lambda who: Objects(PEOPLE).decode(
        [json.dumps({"t": 1, "x": 2.0, "who": each}).encode() for each in who], 0
    ),
    "msgpack": lambda who: decoder_for("msgpack", PEOPLE).decode(
        [msgspec.msgpack.encode({"t": 1, "x": 2.0, "who": each}) for each in who], 0
    ),
    "csv": lambda who: CsvRows(PEOPLE, b"who,t,x").decode([f"{each},1,2".encode() for each in who], 0),
    "arrow": lambda who: decoder_for("arrow", PEOPLE).decode([arrow(t=[1], x=[1.0], who=[each]) for each in who], 0),
    "arrays": lambda who: read_push(PEOPLE, [1] * len(who), [[1.0]] * len(who), list(who), None)[0],
    "bytes": lambda who: read_push(PEOPLE, [1] * len(who), [[1.0]] * len(who), [each.encode() for each in who], None)[
        0
    ],
}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("count", [1, 3])
def test_an_id_has_so_many_accents_too(decoder, count):
    """However it comes, and whatever stands beside it."""
    for i in range(4 - count):
        who = list(ACCENTS)[i : i + count]
        batch = DECODERS[decoder](who)
        good = [unicodedata.normalize("NFC", each) for each in who if ACCENTS[each] is None]
        assert batch.users.tolist() == good
        assert [each.reason for each in batch.rejections] == [ACCENTS[each] for each in who if ACCENTS[each]]


def test_a_level_has_so_many_accents_too():
    few, many = ("a" + (MARKS * count)[:count] for count in (30, 31))
    role = Role("category", codes={unicodedata.normalize("NFC", each): code for code, each in enumerate([few, many])})
    assert read_cell(few, role) == 0
    with pytest.raises(UnusableRecord, match="unknown_level"):
        read_cell(many, role)


def test_hostile_accents_take_time_in_their_number():
    def seconds(count):
        texts = [f"{i}" + MARKS * (count // 2) for i in range(50)]
        started = time.process_time()
        assert len(read(texts, Role("label", max_bytes=16 * count))[1]) == 50
        return time.process_time() - started

    seconds(2_000)
    assert seconds(64_000) < 100 * seconds(2_000)  # 32 times, or 1,024
