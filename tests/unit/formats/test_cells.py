"""The table of truth: what a cell of each type is in each role, by whichever way it comes."""

import datetime as dt
import math
import random
from decimal import Decimal

import cbor2
import msgspec
import numpy as np
import pytest
from support.payloads import arrow

import fcstream
from fcstream import ConfigError, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.arrays.arguments import rows_of
from fcstream.connectors.table_files import TableFile
from fcstream.formats.batch import Schema, UnusableRecord
from fcstream.formats.cells import Role, read, read_cell
from fcstream.formats.decoders import CsvRows
from fcstream.formats.envelopes import Envelope
from fcstream.formats.frames import read_rows_by_name, read_table
from fcstream.formats.nested import objects_decoder
from fcstream.formats.paths import parse_path
from fcstream.formats.payloads import decoder_for
from fcstream.formats.texts import composed
from fcstream.sections import Budget, Feature, Lattice, Quantiles, Window

pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
UTC = dt.UTC
LEVELS = ["1", "true", "x", "2026-01-02", "2026-01-02T00:00:00", "3", "false", "a", "u\u0308"]
BOOLEAN = Feature(name="c", type="boolean").codes()
CATEGORY = Feature(name="c", type="category", levels=LEVELS).codes()
SCHEMAS = {
    "time": Schema("c", "s", ()),
    "instant": Schema("c", "s", (), dates=False),
    "number": Schema("t", "ms", ("c",)),
    "optional": Schema("t", "ms", ("c",), optional=frozenset("c")),
    "Boolean": Schema("t", "ms", ("c",), levels={"c": BOOLEAN}),
    "category": Schema("t", "ms", ("c",), levels={"c": CATEGORY}),
    "user": Schema("t", "ms", (), user="c"),
    "key": Schema("t", "ms", (), key="c"),
    "text": Schema("t", "ms", (), texts={"c": 64}, order=("c",)),
}
LABELS = ("user", "key", "text")
NONE = {"time": "bad_time", "instant": "bad_time", "number": "not_a_number", "optional": "not_a_number"}
NONE |= {"Boolean": "unknown_level", "category": "unknown_level"}
NONE |= {"user": "bad_user", "key": "unknown_key", "text": "not_a_text"}
DAY = 1_767_312_000_000  # 2026-01-02


def labels(*texts):
    return {role: list(texts) for role in LABELS}


def wholes(kind):
    """Integers, and what they are: 0, 1, 3, a large one of the type, null."""
    most = int(np.iinfo(kind).max)
    ms = most * 1000
    return pa.array([0, 1, 3, most, None], kind), {
        "time": [0, 1000, 3000, ms if ms <= 2**53 else "bad_time", "missing"],
        "number": [0.0, 1.0, 3.0, float(most), "missing"],
        "optional": [0.0, 1.0, 3.0, float(most), None],
        "Boolean": [0.0, 1.0, "unknown_level", "unknown_level", "missing"],
        "category": ["unknown_level", 0.0, 5.0, "unknown_level", "missing"],
        **labels("0", "1", "3", str(most), "missing"),
    }


def floats(kind):
    half = [0.0, 1.0, 3.0, 0.5, math.nan, math.inf, None]
    cells = [None if cell is None else kind(cell) for cell in half]
    return pa.array(cells, pa.from_numpy_dtype(kind), from_pandas=False), {
        "time": [0, 1000, 3000, 500, "missing", "bad_time", "missing"],
        "number": [0.0, 1.0, 3.0, 0.5, "missing", "not_finite", "missing"],
        "optional": [0.0, 1.0, 3.0, 0.5, None, "not_finite", None],
        "Boolean": [0.0, 1.0, "unknown_level", "unknown_level", "missing", "unknown_level", "missing"],
        "category": ["unknown_level", 0.0, 5.0, "unknown_level", "missing", "unknown_level", "missing"],
        "user": ["0", "1", "3", "bad_user", "missing", "bad_user", "missing"],
        "key": ["0", "1", "3", "unknown_key", "missing", "unknown_key", "missing"],
        "text": ["0", "1", "3", "not_a_text", "missing", "not_a_text", "missing"],
    }


MOMENT = dt.datetime(2026, 1, 2)
TYPES = {
    **{str(kind): wholes(kind) for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{np.dtype(kind).name: floats(kind) for kind in (np.float16, np.float32, np.float64)},
    "decimal128": (
        pa.array([Decimal("1.00"), Decimal("3.00"), Decimal("12.50"), None], pa.decimal128(20, 2)),
        {
            "time": [1000, 3000, 12500, "missing"],
            "number": [1.0, 3.0, 12.5, "missing"],
            "optional": [1.0, 3.0, 12.5, None],
            "Boolean": [1.0, "unknown_level", "unknown_level", "missing"],
            "category": [0.0, 5.0, "unknown_level", "missing"],
            "user": ["1", "3", "bad_user", "missing"],
            "key": ["1", "3", "unknown_key", "missing"],
            "text": ["1", "3", "not_a_text", "missing"],
        },
    ),
    "bool": (
        pa.array([True, False, None]),
        {
            "time": ["bad_time", "bad_time", "missing"],
            "number": ["not_a_number", "not_a_number", "missing"],
            "optional": ["not_a_number", "not_a_number", None],
            "Boolean": [1.0, 0.0, "missing"],
            "category": [1.0, 6.0, "missing"],
            **labels("true", "false", "missing"),
        },
    ),
    "string": (
        pa.array(["x", "true", "3", "", "2026-01-02", None]),
        {
            "time": ["bad_time"] * 3 + ["missing", "bad_time", "missing"],
            "number": ["not_a_number"] * 5 + ["missing"],
            "optional": ["not_a_number"] * 5 + [None],
            "Boolean": ["unknown_level", 1.0, "unknown_level", "missing", "unknown_level", "missing"],
            "category": [2.0, 1.0, 5.0, "missing", 3.0, "missing"],
            **labels("x", "true", "3", "missing", "2026-01-02", "missing"),
        },
    ),
    "accents": (  # one text, written in three ways
        pa.array(["\u01d6", "u\u0308\u0304", "\u00fc\u0304", "\u00fc", "u\u0308"]),
        {
            **{role: [NONE[role]] * 5 for role in ("time", "number", "optional", "Boolean")},
            "category": ["unknown_level"] * 3 + [8.0, 8.0],
            **labels(*["\u01d6"] * 3, "\u00fc", "\u00fc"),
        },
    ),
    "binary": (
        pa.array([b"x", b"true", None], pa.binary()),
        {
            "time": ["bad_time", "bad_time", "missing"],
            "number": ["not_a_number", "not_a_number", "missing"],
            "optional": ["not_a_number", "not_a_number", None],
            "Boolean": ["unknown_level", 1.0, "missing"],
            "category": [2.0, 1.0, "missing"],
            **labels("x", "true", "missing"),
        },
    ),
    "date32": (
        pa.array([dt.date(2026, 1, 2), None], pa.date32()),
        {
            "time": [DAY, "missing"],
            "instant": ["bad_time", "missing"],
            "number": ["not_a_number", "missing"],
            "optional": ["not_a_number", None],
            "Boolean": ["unknown_level", "missing"],
            "category": [3.0, "missing"],
            **labels("2026-01-02", "missing"),
        },
    ),
    **{
        f"timestamp[{unit}{', ' + zone if zone else ''}]": (
            pa.array([MOMENT, None], pa.timestamp(unit, zone or None)),
            {
                "time": [DAY, "missing"],
                "instant": [DAY, "missing"],
                "number": ["not_a_number", "missing"],
                "optional": ["not_a_number", None],
                "Boolean": ["unknown_level", "missing"],
                "category": [4.0, "missing"],
                **labels("2026-01-02T00:00:00", "missing"),
            },
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in ("", "Europe/Berlin")
    },
    "time64": (
        pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
        {
            "time": ["bad_time", "missing"],
            "number": ["not_a_number", "missing"],
            "optional": ["not_a_number", None],
            "Boolean": ["unknown_level", "missing"],
            "category": ["unknown_level", "missing"],
            **labels("01:02:03", "missing"),
        },
    ),
    "duration": (
        pa.array([dt.timedelta(1), None], pa.duration("us")),
        {role: [reason, None if role == "optional" else "missing"] for role, reason in NONE.items()},
    ),
    "dictionary": (
        pa.array(["x", "true", "x", None]).dictionary_encode(),
        {
            "time": ["bad_time"] * 3 + ["missing"],
            "number": ["not_a_number"] * 3 + ["missing"],
            "optional": ["not_a_number"] * 3 + [None],
            "Boolean": ["unknown_level", 1.0, "unknown_level", "missing"],
            "category": [2.0, 1.0, 2.0, "missing"],
            **labels("x", "true", "x", "missing"),
        },
    ),
}
WAYS = ["arrow table", "pandas", "pandas objects", "pandas of Arrow", "polars", "mappings", "parquet", "ipc", "json"]
WHY_NOT = {
    ("pandas of Arrow", "float16"): "pandas has no operations for it",
    ("polars", "float16"): "polars makes other floats of it",
    ("parquet", "timestamp[s]"): "Parquet has no seconds: they are milliseconds, as another row says",
    ("ipc", "dictionary"): "a small message could stand for millions of records",
}
ONLY_TEXT = ("decimal128", "binary", "date32", "time64", "duration", "timestamp")  # JSON has no such types


def outcome(batch, n, role):
    """What became of each row: its value, or why it has none."""
    found = [None] * n
    for each in batch.rejections:
        found[each.position] = each.reason
    column = {"time": batch.times_ms, "instant": batch.times_ms, "user": batch.users, "key": batch.keys}.get(role)
    column = batch.texts["c"] if role == "text" else batch.values[:, 0] if column is None else column
    for at, value in zip(batch.positions.tolist(), column.tolist(), strict=True):
        found[at] = None if value != value else value
    return found


def taken(way, array, schema, tmp_path):
    """Read one column, beside fixed times, by one way."""
    n = len(array)
    columns = {"c": array} if schema.time == "c" else {"t": pa.array([5] * n), "c": array}
    table = pa.table(columns)
    if way == "arrow table":
        return read_table(schema, table)[0]
    if way == "pandas":
        return read_table(schema, table.to_pandas())[0]
    if way == "pandas objects":
        objects = {name: pd.Series(column.to_pylist(), dtype=object) for name, column in columns.items()}
        return read_table(schema, pd.DataFrame(objects))[0]
    if way == "pandas of Arrow":
        return read_table(schema, table.to_pandas(types_mapper=pd.ArrowDtype))[0]
    if way == "polars":
        return read_table(schema, pl.from_arrow(table))[0]
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)
    ]
    if way == "mappings":
        return read_rows_by_name(schema, rows)
    if way == "json":
        decoder, whole = objects_decoder(schema), objects_decoder(schema)
        batch = decoder.decode([msgspec.json.encode(row) for row in rows], 0)
        for i, row in enumerate(rows):  # and each alone says the same
            one = whole.decode([msgspec.json.encode(row)], i)
            assert len(one.times_ms) == (i in batch.positions.tolist())
        return batch
    if way == "ipc":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        decoder, body = decoder_for("arrow", schema), sink.getvalue().to_pybytes()
        batch = decoder.decode([body], 0)
        if len(batch.times_ms) + len(batch.rejections) == 1 < n:  # no row of such a column can be used
            return batch.rejections[0].reason
        singles = []
        for i in range(n):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(i, 1))
            singles.append(sink.getvalue().to_pybytes())
        return decoder.decode(singles, 0)
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    try:
        source = TableFile(str(tmp_path / "x.parquet"), "parquet", schema)
    except ConfigError:
        return "refused"
    batch = source.poll(1000)
    source.close()
    return batch


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TYPES)
def test_the_table_of_truth(kind, way, tmp_path):
    import pyarrow.parquet  # noqa: F401 - its functions are found by the package then

    if (way, kind) in WHY_NOT or (way == "json" and kind.startswith(ONLY_TEXT)):
        pytest.skip(WHY_NOT.get((way, kind), "JSON has no such type"))
    array, expected = TYPES[kind]
    if way == "pandas" and kind in (
        "int64",
        "uint64",
    ):  # beside a null pandas makes floats of all, which are no ids then
        array, expected = array[:-1], {role: results[:-1] for role, results in expected.items()}
    for role, results in expected.items():
        found = taken(way, array, SCHEMAS[role], tmp_path)
        if isinstance(found, str):  # a column of which no row could be used is refused as one
            assert {each for each in results if each is not None} <= {NONE[role], "missing"}, (role, kind)
            assert found in ("refused", NONE[role])
            continue
        told = results
        if way == "json" and kind.startswith("float"):  # NaN and infinity are null in JSON
            told = [None if value is None and role == "optional" else value for value in results]
            told[4:] = [None if role == "optional" else "missing"] * len(told[4:])
        assert outcome(found, len(array), role) == told, role


ARRAYS = {
    "arrow table": lambda array: pa.table({"c": array}),
    "pandas": lambda array: pa.table({"c": array}).to_pandas(),
    "pandas objects": lambda array: pd.DataFrame({"c": pd.Series(array.to_pylist(), dtype=object)}),
    "pandas of Arrow": lambda array: pa.table({"c": array}).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda array: pl.from_arrow(pa.table({"c": array})),
    "lists": lambda array: [[cell] for cell in array.to_pylist()],
    "array of objects": lambda array: np.array(array.to_pylist(), object)[:, None],
}


@pytest.mark.parametrize("way", ARRAYS)
@pytest.mark.parametrize("kind", TYPES)
def test_arrays_are_read_by_the_same_table(kind, way):
    """One wrong cell refused them all, and truth values, texts of numbers and dates were numbers."""
    if (way, kind) in WHY_NOT:
        pytest.skip(WHY_NOT[way, kind])
    array, roles = TYPES[kind]
    given, expected = ARRAYS[way](array), roles["number"]
    if set(expected) <= {"not_a_number", "missing"}:
        with pytest.raises(ConfigError, match=r"^points: must be a rectangular array of numbers: truth values, "):
            rows_of(given, "points")
        return
    rows = rows_of(given, "points")
    assert [rows.odd.get(i, cell) for i, cell in enumerate(rows.cells[:, 0].tolist())] == expected


def test_cells_of_csv_are_texts():
    """Numbers and times in numbers are read of them; everywhere else a text is no number."""
    cells = ["0", "1.5", "x", "", "2026-01-02", "true", "3"]
    expected = {
        "time": [0, 1500, "bad_time", "missing", "bad_time", "bad_time", 3000],
        "number": [0.0, 1.5, "not_a_number", "missing", "not_a_number", "not_a_number", 3.0],
        "optional": [0.0, 1.5, "not_a_number", None, "not_a_number", "not_a_number", 3.0],
        "Boolean": [0.0] + ["unknown_level"] * 2 + ["missing", "unknown_level", 1.0, "unknown_level"],
        "category": ["unknown_level", "unknown_level", 2.0, "missing", 3.0, 1.0, 5.0],
        **labels(*cells[:3], "missing", *cells[4:]),
    }
    for role, results in expected.items():
        schema = SCHEMAS[role]
        lines = [(f"{cell}," if schema.time == "c" else f"5,{cell}").encode() for cell in cells]
        batch = CsvRows(schema, b"c,rest" if schema.time == "c" else b"t,c").decode(lines, 0)
        assert outcome(batch, len(cells), role) == results, role


def test_an_empty_level_takes_nulls_iff_it_is_declared():
    for levels, found in ((["", "a"], [0.0, 0.0, 1.0]), (["a", "b"], ["missing", "missing", 0.0])):
        schema = Schema("t", "ms", ("c",), levels={"c": Feature(name="c", type="category", levels=levels).codes()})
        frame = {"t": [5, 5, 5], "c": [None, "", "a"]}
        for batch in (
            read_table(schema, pd.DataFrame(frame))[0],
            read_table(schema, pl.DataFrame(frame))[0],
            read_table(schema, pa.table(frame))[0],
            CsvRows(schema, b"t,c").decode([b"5,", b"5,", b"5,a"], 0),
            objects_decoder(schema).decode([b'{"t":5,"c":null}', b'{"t":5,"c":""}', b'{"t":5,"c":"a"}'], 0),
        ):
            assert outcome(batch, 3, "category") == found


def rng_cells(rng, kind, n):
    """Random cells of a type of numpy, or of objects of all types."""
    if kind == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if kind[:8] in ("datetime", "timedelt"):
        found = rng.integers(-(2**40), 2**62, n)
        found[rng.random(n) < 0.1] = np.iinfo(np.int64).min  # NaT
        return found.view(kind)
    if kind.startswith("float"):
        wide = np.exp(rng.uniform(-10, 45, n)) * rng.choice([-1, 1], n)
        some = rng.choice([0, 1, 3, 0.5, np.nan, np.inf, -np.inf, 2.0**53, 2.0**53 + 2, 1e300, -0.0], n)
        with np.errstate(over="ignore"):
            return np.where(rng.random(n) < 0.5, some, wide).astype(kind)
    if kind != "object":
        ends, few = np.iinfo(kind), rng.integers(0, 4, n)
        return np.where(rng.random(n) < 0.5, few, rng.integers(ends.min, ends.max, n, kind, endpoint=True)).astype(kind)
    found = np.empty(n, object)
    found[:] = [ODD[i] for i in rng.integers(0, len(ODD), n)]
    return found


ODD = [
    *(None, True, False, 0, 1, 3, -1, 2**53, 2**53 + 1, 2**70, 10**400, 10**5000, 0.5, 1.0, 3.0, math.nan, math.inf),
    *("", " ", "x", "true", "False", "1", "3", "1.5", "nan", "1_0", "2026-01-02", "2026-01-02T00:00:00Z", "y" * 2000),
    *("é" * 40, "e\u0301", "\ud800", b"x", b"\xff", b"true", 1e300, -0.0),
    *map(Decimal, ("1", "12.50", "NaN", "sNaN", "Infinity", "1E+999999", "-1E-999999", "3.0", "9007199254740993")),
    *(MOMENT, MOMENT.replace(tzinfo=UTC), MOMENT.date(), dt.time(1), dt.timedelta(1), dt.datetime.max, dt.datetime.min),
    *(dt.date.max, np.datetime64("NaT"), np.datetime64("2026-01-02"), np.datetime64(5, "ns"), np.datetime64(5, "us")),
    *(np.timedelta64(5, "s"), np.float32(0.1), np.float16(1), np.int8(3), np.uint64(2**64 - 1), np.bool_(True)),
    *(np.str_("x"), pd.NA, pd.NaT, pd.Timestamp("2026-01-02T03"), pd.Timestamp(1, tz="UTC"), pd.Timedelta(1)),
    *([], [1], {}, {"a": 1}, object(), np.zeros(2), 1j, set(), pa.scalar(3), np.longdouble(1.5)),
]
WHOLES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
KINDS = [*WHOLES, "float16", "float32", "float64", "bool", "object", "timedelta64[s]"]
KINDS += [f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns", "D")]
UNITS = ("ms", "s", "us", "ns", "iso8601")
ROLES = {f"time in {unit}, {dates}": Role("time", unit, dates) for unit in UNITS for dates in (True, False)}
ROLES |= {name: schema.role("c") for name, schema in SCHEMAS.items() if schema.time != "c"}
ROLES |= {
    "number in text": Role("number", as_text=True),
    "number with sentinels": Role("number", missing=frozenset({"x", "3"}), optional=True),
    "category with sentinels": Role("code", codes=CATEGORY, missing=frozenset({"0", "y"}), optional=True),
    "text with sentinels": Role("label", missing=frozenset({"x", "3"}), optional=True, max_bytes=64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_read_as_its_cells_are(kind):
    """Ten thousand random cells of each type in all roles, with and without nulls."""
    rng = np.random.default_rng(random.Random(kind).randrange(2**32))
    for name, role in ROLES.items():
        column = rng_cells(rng, kind, 10_000 // len(ROLES) + 1)
        if kind != "object" and rng.random() < 0.5:
            column = np.ma.array(column, mask=rng.random(len(column)) < 0.1)
        values, odd = read(column, role)
        for i, cell in enumerate(column):
            try:
                alone = read_cell(cell, role)
            except UnusableRecord as refused:
                alone = refused.reason
            together = odd.get(i, values[i])
            assert together == alone or (alone != alone and together != together), (name, type(cell), i in odd)


def engine_of(kind=Engine, **sections):
    config = {
        "stream": {"name": "s"},
        "window": {"length": "1d", "start": "2026-01-01T00:00:00Z", "end": "2026-01-04T00:00:00Z"},
        "release": {"kind": "count", "rho": 1e8},
        "budget": {"rho": 9e8, "delta": 0.0},
        "ledger": {"url": "memory:"},
    }
    return kind(config | sections, noise=Noise(SeededEntropy(1)))


def test_decimals_of_every_library_are_numbers(tmp_path):
    """Frames rejected them all, and were charged."""
    import pyarrow.parquet  # noqa: F401

    sums = {"lattice": {"step": 0.01}, "release": {"kind": "sum", "rho": 1e8}}
    sums["features"] = [{"name": "x", "min": 0.0, "max": 100.0}]
    times = [MOMENT] * 100
    table = pa.table({"ts_ms": times, "x": pa.array([Decimal("12.50")] * 100, pa.decimal128(10, 2))})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    for frame in (table, table.to_pandas(), pl.from_arrow(table), table.to_pylist(), None):
        engine = engine_of(**sums)
        if frame is None:
            source = TableFile(str(tmp_path / "x.parquet"), "parquet", engine.job.schema)
            engine.take(source.poll(1000))
            source.close()
        else:
            engine.push(frame)
        assert [round(release.value[0], 1) for release in engine.close()] == [0, 1250, 0]
    engine = engine_of(**sums)
    engine.push(times, [[Decimal("12.50")]] * 100)
    assert round(engine.close()[1].value[0], 1) == 1250


def test_large_ids_of_pandas_are_exact():
    """All but 7 were refused."""
    users = {"stream": {"name": "s", "unit": "user", "user": "id"}}
    frame = pd.DataFrame({"ts_ms": [MOMENT] * 4, "id": [10**18 + 1, 10**18 + 2, 10**18 + 3, 7]})
    engine = engine_of(**users)
    engine.push(frame)
    assert engine.close()[1].value == [4]
    engine = engine_of(**users)
    engine.push(frame["ts_ms"], ids=frame["id"])
    assert engine.close()[1].value == [4]


def test_truth_values_are_keys():
    keys = {"stream": {"name": "s", "key": "on", "keys": ["true", "false"], "keys_per_user": 2}}
    for on in (pd.Series([True, False, True]), pl.Series([True, False, True]), pa.array([True, False, True])):
        engine = engine_of(KeyedEngine, **keys)
        engine.push([MOMENT] * 3, keys=on)
        assert [release.value for release in engine.close() if release.window_open_ms == DAY] == [[2], [1]]


def test_dates_of_python_are_days():
    days = [dt.date(2026, 1, 2), dt.date(2026, 1, 3)]
    for push in (
        lambda engine: engine.push(days),
        lambda engine: engine.push(np.array(days, "datetime64[D]")),
        lambda engine: engine.push(pd.DataFrame({"ts_ms": days})),
        lambda engine: engine.push(pl.DataFrame({"ts_ms": days})),
        lambda engine: engine.push([{"ts_ms": day} for day in days]),
    ):
        engine = engine_of()
        push(engine)
        assert [release.value for release in engine.close()] == [[0], [1], [1]]
        hours = engine_of(window={"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-04T00:00:00Z"})
        push(hours)
        assert hours.rejected == {"bad_time": 2}


@pytest.mark.filterwarnings("error")
def test_categoricals_of_pandas_warn_of_nothing():
    frame = pd.DataFrame({"ts_ms": [MOMENT] * 4, "c": pd.Categorical(["a", "b", None, "a"])})
    marginals = {"kind": "marginals", "rho": 1e6, "order": 1}
    features = [{"name": "c", "type": "category", "levels": ["a", "b"]}]
    engine = engine_of(release=marginals, features=features, lattice={"step": 1.0})
    engine.push(frame)
    engine.push(frame["ts_ms"], frame[["c"]])
    assert engine.rejected == {"missing": 2}
    assert engine.close()[1].value == [[4, 2]]


def test_options_take_arrays_of_numpy():
    values = np.random.default_rng(1).uniform(0, 100, 20_000)
    public = {"rho": 1e6, "step": 0.1, "bounds": (0, 100), "noise": Noise(SeededEntropy(1))}
    found = fcstream.private_quantiles(values, np.linspace(0.1, 0.9, 9), **public).value
    assert np.abs(np.array(found) - np.linspace(10, 90, 9)).max() < 2
    stream = fcstream.Stream(
        "s",
        lattice=Lattice(step=0.1),
        features=[Feature(name="x", min=0.0, max=100.0)],
        window=Window(length="1d", start="2026-01-02T00:00:00Z", end="2026-01-03T00:00:00Z"),
        release=Quantiles(quantiles=np.linspace(0.1, 0.9, 9), rho=np.float64(1e6)),
        budget=Budget(rho=1e6, delta=0.0),
        ledger=None,
    )
    made = stream.run(pd.DataFrame({"ts_ms": [MOMENT] * len(values), "x": values}))
    assert np.abs(made.value.to_numpy() - np.linspace(10, 90, 9)).max() < 2
    assert made.name.tolist() == [f"x/0.{i}" for i in range(1, 10)]


COMPOSED, DECOMPOSED = "Ren\u00e9", "Rene\u0301"


def messages_of(name):
    """One record of a user and a key of one name, in each format and place."""
    plain = {"t": 5, "u": name, "k": name}
    raw, schema = name.encode(), Schema("t", "ms", (), "u", "k")
    around = Schema("t", "ms", (), "u", "k", records=parse_path("r", "source.records"))
    yield "json", schema, msgspec.json.encode(plain), Envelope()
    yield "json", around, msgspec.json.encode({"u": name, "k": name, "r": [{"t": 5}]}), Envelope()
    yield "msgpack", schema, msgspec.msgpack.encode(plain), Envelope()
    yield "cbor", schema, cbor2.dumps(plain), Envelope()
    yield "arrow", schema, arrow(t=[5], u=[name], k=[name]), Envelope()
    yield "influx", Schema("time", "ms", (), "u", "k"), f"m,u={name},k={name} v=1 5".encode(), Envelope()
    for user in ("@key", "@header:who"):
        paths = {"u": parse_path(user, "stream.user"), "k": parse_path("@topic:1", "stream.key")}
        envelope = Envelope(f"a/{name}", raw, {"who": raw})
        yield "json", Schema("t", "ms", (), "u", "k", paths=paths), b'{"t":5}', envelope


def test_one_person_is_one_however_a_name_is_written():
    """Two forms of a name had a budget each, and counted twice."""
    schema = Schema("t", "ms", (), "u", "k")
    for (codec, own, body, envelope), (*_, other, around) in zip(
        messages_of(COMPOSED), messages_of(DECOMPOSED), strict=True
    ):
        batch = decoder_for(codec, own).decode([body, other], 0, [envelope, around])
        assert (batch.users.tolist(), batch.keys.tolist()) == ([COMPOSED] * 2,) * 2, (codec, own)
    batch = CsvRows(schema, b"t,u,k").decode([f"5,{n},{n}".encode() for n in (COMPOSED, DECOMPOSED)], 0)
    assert (batch.users.tolist(), batch.keys.tolist()) == ([COMPOSED] * 2,) * 2


def test_one_person_has_one_budget_in_frames_arrays_and_keys():
    names = [COMPOSED, DECOMPOSED]
    frame = {"ts_ms": [MOMENT] * 2, "id": names, "k": names[::-1]}
    users = {"name": "s", "unit": "user", "user": "id"}
    keys = users | {"key": "k", "keys": [DECOMPOSED, "z"]}
    pushes = [lambda engine, make=make: engine.push(make(frame)) for make in (pd.DataFrame, pl.DataFrame, pa.table)]
    pushes += [lambda engine: engine.push(pd.DataFrame(frame).to_dict("records"))]
    for push in (*pushes, lambda engine: engine.push([MOMENT] * 2, ids=names)):
        engine = engine_of(stream=users)
        push(engine)
        assert engine.close()[1].value == [1]
    for push in (*pushes, lambda engine: engine.push([MOMENT] * 2, ids=names, keys=frame["k"])):
        engine = engine_of(KeyedEngine, stream=keys)
        push(engine)
        told = [(each.key, each.value) for each in engine.close() if each.window_open_ms == DAY]
        assert told == [(COMPOSED, [1]), ("z", [0])]
        assert not engine.rejected
    assert KeyedEngine(engine.config, keys=[DECOMPOSED]).keys == (COMPOSED,)
    with pytest.raises(ConfigError, match=r"^stream\.keys: must be different texts"):
        engine_of(KeyedEngine, stream=keys | {"keys": names})
    feature = {"name": "c", "type": "category", "levels": names}
    with pytest.raises(ConfigError, match=r"^features\.c\.levels: must be at least two different texts"):
        engine_of(features=[feature], lattice={"step": 1.0})
    ids = [f"{name} {i}" for name in names for i in range(100)]
    found = fcstream.private_frequent(["a"] * 200, ids=ids, rho=1e6, delta=1e-3, noise=Noise(SeededEntropy(1)))
    assert found.value == [100]


def test_a_name_that_a_message_repeats_is_brought_to_its_form_once():
    """All elements of a message may share one, of a thousand characters to be put in order."""
    name = ("a" + "\u0315" * 15 + "\u0323" * 15) * 33
    schema = Schema("t", "ms", (), "u", records=parse_path("r", "source.records"))
    body = msgspec.json.encode({"u": name, "r": [{"t": 5}, {"t": "5"}] * 10_000})
    composed.cache_clear()
    batch = objects_decoder(schema).decode([body], 0)
    assert len(batch.users) == 10_000
    assert composed.cache_info().misses == 1
