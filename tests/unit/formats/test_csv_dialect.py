"""CSV with other delimiters, decimal signs, encodings and headers, beside the same rows as plain CSV."""

import codecs
import random
from contextlib import closing

import numpy as np
import pytest
from support.helpers import sample

from fcstream.config import Config
from fcstream.connectors import open_source
from fcstream.errors import ConfigError
from fcstream.formats.batch import Schema
from fcstream.formats.csv_dialect import CsvDialect
from fcstream.formats.decoders import CsvRows

SCHEMA = Schema(
    *("zeit", "s", ("temp", "an"), "wer", "ort", {"an": {"ja": 1, "nein": 0}}),
    missing={"temp": frozenset({"k. A.", "-9.5", "-"})},
    optional=frozenset({"temp"}),
    texts={"wort": 40},
    order=("temp", "an", "wort"),
)
NAMES = ["wort", "ort", "zeit", "wer", "an", "temp"]
DIALECTS = [
    CsvDialect(),
    CsvDialect(";", ","),
    CsvDialect("\t", ",", "utf-16"),
    CsvDialect("|", ".", "cp1252"),
    CsvDialect(";", ",", "latin-1", tuple(NAMES)),
    CsvDialect(";", ".", "utf-8-sig", tuple(NAMES)),
    CsvDialect(" ", ",", "utf-16-be", tuple(NAMES)),
    CsvDialect(",", ".", "utf-8", tuple(NAMES)),
    CsvDialect(";", ",", "cp500"),
]


NUMBERS = ["21.5", "-3", "1e3", "", "k. A.", "-9.5", "-", "n/a", "nan", "inf", "1.5.2", " 4.25 ", "3."]


def rows(n=400):
    draw = random.Random(4)
    for _ in range(n):
        yield {
            "wort": draw.choice(["Straße", "a;b", 'in "Zeichen"', "", "x,y", "tab\tab", "zwei Wörter", "a|b"]),
            "ort": draw.choice(["küche", "bad", ""]),
            "zeit": draw.choice(["1767225600", "1767225600.125", "", "x", "1_0", "-1"]),
            "wer": draw.choice(["a", "ß", "17"]),
            "an": draw.choice(["ja", "nein", "?", "ja.", "ja,"]),
            "temp": draw.choice(
                ["21.5", "-3", "1e3", "", "k. A.", "-9.5", "-", "n/a", "nan", "inf", "1.5.2", " 4.25 ", "3."]
            ),
        }


def written(dialect, found, *, ending="\n"):
    """The rows as a file of a dialect, with every cell quoted that has to be."""
    lines = [] if dialect.header else [dialect.delimiter.join(NAMES)]
    for row in found:
        cells = []
        for name in NAMES:
            cell = row[name]
            if dialect.decimal == "," and name in ("zeit", "temp") and cell not in SCHEMA.missing["temp"]:
                cell = cell.replace(".", ",")
            if dialect.delimiter in cell or '"' in cell:
                cell = '"' + cell.replace('"', '""') + '"'
            cells.append(cell)
        lines.append(dialect.delimiter.join(cells))
    return (ending.join(lines) + ending).encode(dialect.encoding)


def told(batches, shift=0):
    columns = ("times_ms", "positions", "users", "keys")
    found = {name: [cell for batch in batches for cell in getattr(batch, name).tolist()] for name in columns}
    found["positions"] = [position - shift for position in found["positions"]]
    found["values"] = [str(row) for batch in batches for row in batch.values.tolist()]
    found["wort"] = [cell for batch in batches for cell in batch.texts["wort"].tolist()]
    found["rejections"] = [(r.reason, r.position - shift, r.field) for batch in batches for r in batch.rejections]
    return found


def read(tmp_path, data, dialect, size=1000, block=None, monkeypatch=None):
    (tmp_path / "x.csv").write_bytes(data)
    with closing(open_source(f"csv:{tmp_path / 'x.csv'}", SCHEMA, dialect)) as source:
        return list(iter(lambda: source.poll(size), None))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [7, 2**20])
def test_a_dialect_changes_nothing_but_how_rows_are_written(tmp_path, monkeypatch, dialect, ending, block):
    """The naive twin: plain CSV, line by line. In a dialect with a decimal comma -9.5 stands for no value too, since it
    is no number there."""
    found = [row for row in rows() if row["temp"] != "-9.5" or dialect.decimal == "."]
    plain = written(CsvDialect(), found).split(b"\n")
    decoder = CsvRows(SCHEMA, plain[0])
    naive = told([decoder.decode([line], i) for i, line in enumerate(plain[1:-1])])
    monkeypatch.setattr("fcstream.connectors.files.BLOCK_BYTES", block)
    data = written(dialect, found, ending=ending)
    assert told(read(tmp_path, data, dialect), 0 if dialect.header else 1) == naive
    assert told(read(tmp_path, data, dialect, 1), 0 if dialect.header else 1) == naive
    assert len(naive["values"]) > 20
    assert len(naive["rejections"]) > 50


def test_a_point_is_no_decimal_comma(tmp_path):
    schema = Schema("t", "ms", ("a",), missing={"a": frozenset({"-9.5", "k. A."})}, optional=frozenset({"a"}))
    cells = ["1,5", "1.5", "1.021,5", "1,021,5", "-9.5", "k. A.", "n.", ",5", "2,", "1_0,5"]
    dialect = CsvDialect(";", ",")
    decoder = CsvRows(schema, b"t;a", dialect)
    lines = [f"1;{cell}".encode() for cell in cells]
    batch = decoder.decode(lines, 0)
    assert [str(value) for value in batch.values[:, 0]] == ["1.5", "nan", "nan", "0.5", "2.0"]
    assert [(r.reason, r.position) for r in batch.rejections] == [("not_a_number", i) for i in (1, 2, 3, 6, 9)]
    for i, line in enumerate(lines):  # what becomes of a row does not depend on its neighbors
        alone = decoder.decode([line], i)
        assert [position in batch.positions for position in [i]] == [len(alone.positions) == 1]
        assert alone.rejections == [r for r in batch.rejections if r.position == i]
    assert [r.position for r in decoder.decode([b"1,5;1", b"1.5;1"], 0).rejections] == [1]  # times are numbers too


def test_bytes_that_are_no_text_damage_their_own_row(tmp_path):
    dialect = CsvDialect(";", ",", "utf-16-le", tuple(NAMES))
    good = "a;b;1;w;ja;1\n".encode("utf-16-le")
    odd = good[:2] + b"\x00\xd8" + good[2:]  # half of a pair
    batch = read(tmp_path, good + odd + good[:-1], dialect)[0]
    assert batch.positions.tolist() == [0]
    assert [(r.position, r.reason) for r in batch.rejections][:1] == [(1, "not_a_text")]
    cp1252 = CsvDialect(";", ",", "cp1252", tuple(NAMES))
    batch = read(tmp_path, b"a\x81;b;1;w;ja;1\na\x80;b;1;w;ja;1\n", cp1252)[0]
    assert batch.texts["wort"].tolist() == ["a€"]
    assert [(r.position, r.reason, r.field) for r in batch.rejections] == [(0, "not_a_text", "wort")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_a_record(tmp_path, encoding):
    data = ("" if encoding != "utf-8" else codecs.BOM_UTF8.decode()).encode() + "x;b;1;w;ja;1\n".encode(encoding)
    (batch,) = read(tmp_path, data, CsvDialect(";", ",", encoding, tuple(NAMES)))
    assert batch.texts["wort"].tolist() == ["x"]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": ";;"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"delimiter": "\n"}, "delimiter"),
        ({"delimiter": "e"}, "delimiter"),
        ({"delimiter": "§"}, "delimiter"),
        ({"decimal": ";"}, "decimal"),
        ({"decimal": ","}, "delimiter"),
        ({"encoding": "no such"}, "encoding"),
        ({"encoding": "hex"}, "encoding"),
        ({"encoding": "idna"}, "encoding"),
        ({"header": ["a", "a"]}, "header"),
        ({"url": "jsonl:x", "delimiter": ";"}, "delimiter"),
        ({"url": "jsonl:x", "header": ["a"]}, "header"),
    ],
)
def test_wrong_keys_are_refused(keys, key):
    with pytest.raises(ConfigError, match=rf"source\.{key}"):
        Config.from_mapping(sample(source={"url": "csv:x"} | keys)).job  # noqa: B018


def test_errors_about_columns_say_where_they_are_named():
    with pytest.raises(ConfigError, match=r"`source.header` must name the column 'temp': check it"):
        CsvRows(Schema("t", "ms", ("temp",)), b"", CsvDialect(header=("t", "tempo")))
    with pytest.raises(
        ConfigError, match=r"1 cell; cells are separated by ';': if this is wrong, set `source.delimiter`"
    ):
        CsvRows(Schema("t", "ms", ("temp",)), b"t,temp", CsvDialect(";"))


def test_a_column_that_is_read_is_named_once():
    """The first of two was taken without a word."""
    schema = Schema("t", "ms", ("temp",))
    with pytest.raises(ConfigError, match=r"the first line must name the column 'temp' once: rename the others"):
        CsvRows(schema, b"t,temp,temp")
    found = CsvRows(schema, b"t,other,temp,other").decode([b"1,2,3,4"], 0)
    assert found.values.tolist() == [[3.0]]


@pytest.mark.parametrize("block", [1, 2, 2**20])
@pytest.mark.parametrize(("kind", "header"), [("jsonl", ""), ("csv", "t,a\n")])
def test_a_byte_order_mark_costs_no_record(tmp_path, monkeypatch, kind, header, block):
    """Of JSON lines it took the first one."""
    monkeypatch.setattr("fcstream.connectors.files.BLOCK_BYTES", block)
    lines = ["1,2.5", "2,3.5"] if kind == "csv" else ['{"t": 1, "a": 2.5}', '{"t": 2, "a": 3.5}']
    (tmp_path / "x").write_bytes(codecs.BOM_UTF8 + (header + "\n".join(lines)).encode())
    with closing(open_source(f"{kind}:{tmp_path / 'x'}", Schema("t", "ms", ("a",)))) as source:
        batches = list(iter(lambda: source.poll(10), None))
    assert [x for batch in batches for (x,) in batch.values.tolist()] == [2.5, 3.5]
    assert not any(batch.rejections for batch in batches)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_hostile_files(tmp_path, dialect):
    """Ten thousand damaged rows raise nothing, and every row is a record, a rejection or blank."""
    draw = random.Random(6)
    for k in range(4):
        data = bytearray(written(dialect, rows(300)))
        keep = 0 if dialect.header else len((dialect.delimiter.join(NAMES) + "\n").encode(dialect.encoding)) + 2
        for _ in range(300 * k):
            at = draw.randrange(keep, len(data))
            data[at : at + draw.randint(0, 2)] = draw.randbytes(draw.randint(0, 2))
        batches = read(tmp_path, bytes(data), dialect, draw.choice([1, 50]))
        seen = [p for b in batches for p in b.positions.tolist()] + [r.position for b in batches for r in b.rejections]
        assert len(set(seen)) == len(seen) > 100


@pytest.mark.parametrize("header", [(), tuple(NAMES)])
def test_lines_that_spark_reads(header):
    from types import SimpleNamespace

    from fcstream.spark.tasks import LineReader

    dialect = CsvDialect(";", ",", header=header)
    lines = written(dialect, rows(50)).splitlines()
    read = LineReader(None if header else lines[0], dialect)(SimpleNamespace(schema=SCHEMA))
    batch, _, count = read("file:/x 0", np.arange(51), np.zeros(51, np.int64), lines)
    assert count == 50  # a header line is no record
    own = CsvRows(SCHEMA, lines[0], dialect).decode(lines if header else lines[1:], 0 if header else 1)
    assert told([batch]) == told([own])
