"""Data frames, Arrow tables and moments pushed into an engine: read by name, each row for itself."""

import datetime as dt
import logging
import subprocess
import sys

import numpy as np
import pytest
from support import REPOSITORY
from support.helpers import sample

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.errors import ConfigError
from fcstream.formats.batch import Schema
from fcstream.formats.cells import Role, datetimes_to_ms, read
from fcstream.formats.frames import read_table
from fcstream.formats.rows import read_labels, read_positions

COUNT = {"kind": "count", "method": None, "radius": None, "spread": None, "delta": None, "rho": 1e4}
ONE = {"end": "1970-01-01T00:00:10Z"}
MAKERS = ["pandas", "polars", "arrow", "arrow batch"]
UTC = dt.UTC
BERLIN = dt.timezone(dt.timedelta(hours=1))


def table(maker, columns):
    """Columns of Python's values as a table."""
    if maker == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    if maker == "polars":
        return pytest.importorskip("polars").DataFrame(columns, strict=False)
    pa = pytest.importorskip("pyarrow")
    return pa.table(columns) if maker == "arrow" else pa.RecordBatch.from_pydict(columns)


def engine_of(rejected=None, kind=Engine, **sections):
    sections = {"release": COUNT, "budget": {"rho": 1e6}, "window": ONE} | sections
    hand = None if rejected is None else rejected.extend
    return kind(sample(**sections), noise=Noise(SeededEntropy(1)), on_rejection=hand)


def told(rejections):
    return [(each.position, each.reason, each.field) for each in rejections]


COLUMNS = {
    "ts_ms": [1, 2, None, 4, 5, 10**6],
    "b": [50.0, 50.0, 50.0, None, float("nan"), 50.0],
    "other": ["x"] * 6,
    "a": [20.0, 500.0, 20.0, 20.0, 20.0, 20.0],
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_table_is_pushed_by_the_names_of_its_columns(maker):
    rejected = []
    engine = engine_of(rejected, stream={"time": "ts_ms"})
    engine.push(table(maker, COLUMNS))
    assert sorted(told(rejected)) == [
        (1, "out_of_range", "a"),
        (2, "missing", "ts_ms"),
        (3, "missing", "b"),
        (4, "missing", "b"),
        (5, "time_out_of_range", None),
    ]
    assert engine.close()[0].value == [1]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
def test_times_of_a_table(maker, unit):
    """Moments say their unit themselves, zones or not; numbers and texts have the stream's."""
    moments = [dt.datetime(1970, 1, 1, 0, 0, 5), None, dt.datetime(2020, 1, 1)]
    plain = {"ms": [5000, 2**60, None], "s": [5.0, 1e300, None], "iso8601": ["1970-01-01T00:00:05", "soon", None]}[unit]
    reasons = {"moments": ["missing", "time_out_of_range"], "plain": ["bad_time", "missing"]}
    for name, times in {
        "moments": moments,
        "aware": [moment and moment.replace(tzinfo=UTC) for moment in moments],
        "berlin": [moment and moment.replace(tzinfo=UTC).astimezone(BERLIN) for moment in moments],
        "plain": plain,
    }.items():
        rejected = []
        engine = engine_of(rejected, stream={"time_unit": unit})
        engine.push(table(maker, {"ts_ms": times, "a": [20.0] * 3, "b": [50.0] * 3}))
        assert engine.close()[0].value == [1], name
        assert sorted(reason for _, reason, _ in told(rejected)) == reasons.get(name, reasons["moments"])


@pytest.mark.parametrize("maker", MAKERS)
def test_users_keys_and_levels_of_a_table(maker):
    rejected = []
    stream = {"unit": "user", "user": "id", "key": "site", "keys": ["p", "q"], "keys_per_user": 1}
    config = {"release": COUNT, "budget": {"rho": 1e6}, "window": ONE, "stream": stream}
    features = [{"name": "on", "type": "boolean"}, {"name": "state", "type": "category", "levels": ["1", "2"]}]
    config = sample(**config) | {"features": features}
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(1)), on_rejection=rejected.extend)
    columns = {
        "ts_ms": [1] * 7,
        "site": ["p", "p", "q", None, "r", "q", "q"],
        "id": [2**50 + 1, 2**50 + 2, 2**50 + 1, 5, 5, None, 7],
        "on": [True, False, True, True, True, True, None],
        "state": [1, 2, 1, 1, 1, 1, 1],
    }
    engine.push(table(maker, columns))
    assert [release.value for release in engine.close()] == [[2], [1]]
    odd = [(3, "missing", "site"), (4, "unknown_key", "site"), (5, "missing", "id"), (6, "missing", "on")]
    assert sorted(told(rejected)) == odd


def test_a_null_among_whole_numbers_changes_no_other_id():
    """pandas makes floating-point numbers of all of them."""
    pd = pytest.importorskip("pandas")
    schema = Schema("t", "ms", (), "u")
    for ids in ([1, 2], [1, 2, None], [1, 2, 0.5], [1, 2, 2.0**53 + 2]):
        batch, _ = read_table(schema, pd.DataFrame({"t": [1] * len(ids), "u": ids}))
        assert batch.users.tolist()[:2] == ["1", "2"]


def test_nulls_of_every_type_of_column_are_missing():
    pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
    schema = Schema("t", "ms", ("x",), "u")
    numbers = [
        *(pd.array([1, None], kind) for kind in ("Int64", "Float64", "int64[pyarrow]")),
        *(pl.Series([1, None], dtype=kind) for kind in (pl.Int32, pl.Float32, pl.UInt64)),
        *(pa.array([1, None], kind) for kind in (pa.int8(), pa.float32(), pa.uint64())),
        pa.array([1, None]).dictionary_encode(),
        pa.chunked_array([pa.array([1, None])]),
        pd.array([1, None], "object"),
    ]
    texts = [
        *(pd.array(["x", None], kind) for kind in ("string", "object", "string[pyarrow]", "category")),
        *(pl.Series(["x", None], dtype=kind) for kind in (pl.String, pl.Categorical)),
        *(pa.array(["x", None], kind) for kind in (pa.string(), pa.large_string())),
        pa.array(["x", None]).dictionary_encode(),
    ]

    class Columns(dict):
        @property
        def columns(self):
            return list(self)

    def as_column(values):
        return pd.Series(values) if isinstance(values, pd.api.extensions.ExtensionArray) else values

    for number in numbers:
        batch, n = read_table(schema, Columns(t=pl.Series([1, 2]), x=as_column(number), u=pl.Series(["a", "b"])))
        assert (batch.values.tolist(), told(batch.rejections), n) == ([[1.0]], [(1, "missing", "x")], 2), number
    for text in texts:
        batch, n = read_table(schema, Columns(t=pl.Series([1, 2]), x=pl.Series([1, 2]), u=as_column(text)))
        assert (batch.users.tolist(), told(batch.rejections), n) == (["x"], [(1, "missing", "u")], 2), text


def test_texts_and_objects_in_a_column_of_numbers_reject_their_rows():
    pd = pytest.importorskip("pandas")
    rejected = []
    odd = ["5", True, [1], 10**400, float("inf"), None, float("nan"), 20]
    engine = engine_of(rejected)
    engine.push(pd.DataFrame({"ts_ms": [1] * 8, "a": odd, "b": [50.0] * 8}))
    reasons = ["not_a_number"] * 3 + ["not_finite"] * 2 + ["missing"] * 2
    assert told(rejected) == [(i, reason, "a") for i, reason in enumerate(reasons)]
    assert engine.close()[0].value == [1]


@pytest.mark.parametrize("maker", MAKERS[:3])
def test_columns_replace_arrays(maker):
    rejected = []
    window = {"clock": "broker", "end": None}
    engine = engine_of(rejected, window=window)
    moments = [dt.datetime(1970, 1, 1, 0, 0, second) for second in (1, 2, 3)]
    found = table(maker, {"t": moments, "b": [50.0, 50.0, None], "a": [20.0] * 3, "where": [7, 7, 8], "came": [5] * 3})
    points = found[["a", "b"]] if maker != "arrow" else found.select(["a", "b"])
    engine.push(found["t"], points, positions=found["where"], arrival_ms=found["came"])
    assert told(rejected) == [(7, "duplicate", None), (8, "missing", "b")]
    assert engine.advance(dt.datetime(1970, 1, 1, 0, 1))[0].value == [1]
    with pytest.raises(ConfigError, match="points: must have a column 'b' "):
        engine.push(found["t"], found[["a"]] if maker != "arrow" else found.select(["a"]), arrival_ms=5)


def test_datetimes_replace_milliseconds():
    engine, rejected = engine_of(), []
    aware = dt.datetime(1970, 1, 1, 1, 0, 5, tzinfo=BERLIN)
    for times in (
        np.array(["1970-01-01T00:00:05"], "datetime64[s]"),
        np.array([5 * 10**9], "datetime64[ns]"),
        [dt.datetime(1970, 1, 1, 0, 0, 5)],
        [aware],
        aware,
        [np.datetime64(5, "s")],
        np.datetime64(5, "s"),
    ):
        engine.push(times, [[20.0, 50.0]])
    assert engine.close()[0].value == [7]
    engine = engine_of(rejected)
    engine.push([np.datetime64("NaT"), "1970-01-01", dt.date(1970, 1, 1)], [[20.0, 50.0]] * 3)
    engine.push(np.array(["NaT"], "datetime64[ns]"), [[20.0, 50.0]])
    assert [reason for _, reason, _ in told(rejected)] == ["missing", "bad_time", "bad_time", "missing"]


MIN, MAX = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("kind", "ticks", "times"),
    [
        ("W", [1, MAX, -(2**62)], [604_800_000, None, None]),
        ("D", [1, MAX, MIN + 1], [86_400_000, None, None]),
        ("Y", [1, MAX, MIN + 1, -(10**7)], [31_536_000_000, None, None, None]),
        ("M", [1, MAX], [2_678_400_000, None]),
        ("10m", [1, MAX], [600_000, None]),
        ("s", [1, -1, MAX, 2**54, MIN], [1000, -1000, None, None, None]),
        ("ms", [1, 2**53 - 1, 2**53, MIN], [1, 2**53 - 1, None, None]),
        ("us", [-1, 999, 1000, MIN], [-1, 0, 1, None]),
        ("ns", [-1, 10**6, MAX, MIN], [-1, 1, MAX // 10**6, None]),
        ("10ns", [10**5, MAX], [1, None]),
        ("as", [10**15, -1], [1, -1]),
    ],
)
def test_moments_never_wrap_around(kind, ticks, times):
    found, good = datetimes_to_ms(np.array(ticks, np.int64).view(f"datetime64[{kind}]"))
    assert [int(at) if is_good else None for at, is_good in zip(found, good, strict=True)] == times


@pytest.mark.parametrize("maker", MAKERS)
def test_tables_of_another_shape_are_refused(maker):
    whole = {"ts_ms": [1], "a": [20.0], "b": [50.0]}
    engine = engine_of()
    for name in whole:
        with pytest.raises(ConfigError, match=f"must have a column '{name}'"):
            engine.push(table(maker, {key: value for key, value in whole.items() if key != name}))
    for given in ({"points": [[1, 2]]}, {"ids": ["x"]}):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}: must be left out with a table"):
            engine.push(table(maker, whole), **given)
    with pytest.raises(ConfigError, match="positions"):
        engine.push(table(maker, whole), positions=[1, 2])
    engine.push(table(maker, {name: values[:0] for name, values in whole.items()}))
    assert engine.rejected == {}


ODD_SHAPES = [[20.0, 21.0], [[20.0]] * 2, [[1, 2, 3], [4]], np.zeros((2, 3)), np.zeros(2), ["ab", "cd"]]


@pytest.mark.parametrize("points", ODD_SHAPES, ids=repr)
def test_rows_that_all_have_another_shape_raise(points):
    """A list of two numbers for two records was two broken records, and the caller never heard of it."""
    with pytest.raises(ConfigError, match="points"):
        engine_of().push([1, 2], points)


def test_rejections_are_warned_about_once_for_each_reason_where_nobody_takes_them(caplog):
    caplog.set_level(logging.WARNING, "fcstream")
    engine, rejected = engine_of(), []
    for _ in range(3):
        engine.push([1, 2, 3, 10**9], [[20.0, 50.0], [-7000.125, 50.0], [20.0, 8000.375], [20.0, 50.0]])
    assert engine.rejected == {"out_of_range": 6, "time_out_of_range": 3}
    (line,) = caplog.messages
    assert "out_of_range (a), time_out_of_range; `Engine.rejected`" in line
    assert "7000" not in line
    engine.push([1], np.array([[np.nan, 1]]))
    assert "missing (a)" in caplog.messages[1]
    taken = engine_of(rejected)
    taken.push([-1], [[20.0, 50.0]])
    assert (len(rejected), len(caplog.messages)) == (1, 2)
    keyed = KeyedEngine(sample(stream={"key": "k", "keys": ["p", "q"]}))
    keyed.push([1, 1], [[20.0, 50.0], [900.0, 50.0]], ["r", "p"])
    assert "'t' rejects records that were pushed: unknown_key (k), out_of_range (a)" in caplog.messages[2]


def test_replay_from_says_from_where_to_push_again(tmp_path):
    """A crash in the third window: what is pushed again from there counts once, what lies before it changes nothing."""
    config = sample(release=COUNT, budget={"rho": 1e6}, window={"clock": "broker", "end": None})
    config["ledger"] = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    times, answered = np.arange(0, 30_000, 100), []
    engine = Engine(config, noise=Noise(SeededEntropy(1)))
    assert engine.replay_from == 0
    for at in times:
        engine.push([at], [[20.0, 50.0]], arrival_ms=at, positions=[at])
        answered += engine.advance(at + 1)
        if at == 25_000:
            assert engine.replay_from == 20_000
            engine.abort()
            break
    again = Engine(config, noise=Noise(SeededEntropy(1)))
    assert again.replay_from == 20_000
    for first in (again.replay_from, 0):
        some = times[times >= first]
        again.push(some, [[20.0, 50.0]] * len(some), arrival_ms=some, positions=some)
    assert again.rejected == {"duplicate": 100}
    assert again.replayed == 200
    answered += again.advance(30_001)
    assert [release.value for release in answered] == [[100], [100], [100]]
    assert [release.window_open_ms for release in answered] == [0, 10_000, 20_000]


@pytest.mark.slow
def test_pushing_needs_neither_pandas_nor_polars():
    code = """
import sys
from support.helpers import rows, sample
from fcstream import Engine
Engine(sample()).push([1] * 5, rows(5))
print([name for name in ("pandas", "polars", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY / "tests")
    assert done.stdout.strip() == "[]", done.stderr


def test_no_cell_of_a_table_or_a_list_raises():
    """Arrays, pandas' own nulls and other things that cannot be compared are their row's affair alone."""
    pd = pytest.importorskip("pandas")
    odd = [np.zeros(2), pd.NA, pd.NaT, [1], {}, {1}, b"x", object(), 10**5000, 1j, dt.date(2020, 1, 1), dt.timedelta(1)]
    odd += [float("nan"), None, "", np.datetime64("NaT"), np.str_("x"), np.bool_(True), type, "\ud800"]
    schema = Schema("t", "ms", ("a", "on"), "u", "k", {"on": {True: 1, False: 0}})
    names, good = ("t", "a", "on", "u", "k"), (5, 1.5, True, "x", "y")
    rows = [good]
    for cell in odd:
        rows += [(*good[:at], cell, *good[at + 1 :]) for at in range(5)]
    found = pd.DataFrame({name: pd.Series([row[i] for row in rows], dtype=object) for i, name in enumerate(names)})
    batch, n = read_table(schema, found)
    alone = [read_table(schema, found.iloc[i : i + 1])[0] for i in range(n)]
    kept = {i for i, one in enumerate(alone) if len(one.times_ms)}
    assert set(batch.positions.tolist()) == kept
    bad = {each.position: each.reason for each in batch.rejections}
    assert bad == {i: one.rejections[0].reason for i, one in enumerate(alone) if one.rejections}
    assert len(bad) > 80
    engine = engine_of([], stream={"unit": "user", "user": "id"})
    engine.push([5, *odd], [[20.0, 50.0]] + [[cell, 50.0] for cell in odd], ids=["x", *odd])
    assert engine.close()[0].value == [1]


BIG = [2**60 + 2 * i for i in range(5)]


@pytest.mark.parametrize("maker", ["pandas Int64", "pandas Arrow", "polars", "arrow", "chunked arrow", "masked"])
def test_a_null_among_integers_changes_no_other_row(maker):
    """As floats, all rows beside it were beyond 2**53 and refused."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    make = {
        "pandas Int64": lambda cells: pd.Series(cells, dtype="Int64"),
        "pandas Arrow": lambda cells: pd.Series(cells, dtype="int64[pyarrow]"),
        "polars": lambda cells: pl.Series(cells, dtype=pl.Int64),
        "arrow": lambda cells: pa.array(cells, pa.int64()),
        "chunked arrow": lambda cells: pa.chunked_array([pa.array([cell], pa.int64()) for cell in cells]),
        "masked": lambda cells: np.ma.array([cell or 0 for cell in cells], mask=[cell is None for cell in cells]),
    }[maker]
    for cells in (BIG, [*BIG, None], [None, *BIG]):
        column, good = read_positions(make(cells), len(cells))
        assert column.tolist() == [cell or 0 for cell in cells]
        assert good.tolist() == [cell is not None for cell in cells]
        users, odd = read_labels(make(cells), len(cells))
        assert users.tolist() == [str(cell or "") for cell in cells]
        assert odd == {i: "missing" for i, cell in enumerate(cells) if cell is None}
    rejected = []
    engine = engine_of(rejected)
    engine.push([1] * 6, [[20.0, 50.0]] * 6, positions=make([*BIG, None]))
    assert told(rejected) == [(0, "broken_record", None)]  # it has no position to be named by
    assert engine.close()[0].value == [5]


@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
def test_a_moment_among_times_changes_no_other_row(unit):
    pd = pytest.importorskip("pandas")
    plain = {"ms": 5000, "s": 5, "iso8601": "1970-01-01T00:00:05Z"}[unit]
    moment = dt.datetime(1970, 1, 1, 0, 0, 5)
    odd = [moment, moment.replace(tzinfo=UTC), np.datetime64(5 * 10**9, "ns"), pd.NaT, np.datetime64("NaT"), None, []]
    schema = Schema("t", unit, ())
    for cell in odd:
        for cells in ([plain] * 3, [plain] * 3 + [cell], [cell]):
            batch, _ = read_table(schema, pd.DataFrame({"t": pd.Series(cells, dtype=object)}))
            taken = [i for i, each in enumerate(cells) if each is plain or any(each is one for one in odd[:3])]
            assert batch.positions.tolist() == taken, cells
            assert batch.times_ms.tolist() == [5000] * len(taken), cells
            assert [each.reason for each in batch.rejections] == (
                [] if len(taken) == len(cells) else ["bad_time" if isinstance(cell, list) else "missing"]
            )


@pytest.mark.parametrize("odd", [None, float("nan"), 0.5, "x", 2**70, True], ids=str)
def test_no_row_of_pandas_changes_another_rows_id_level_or_position(odd):
    """pandas makes floats of all beside one without an id or with half a one: 2**53 + 1 became the user 2**53."""
    pd = pytest.importorskip("pandas")
    ids = [7, 2**53 - 1, -(2**53) + 1, 2**53, 2**53 + 1, 2**60, -(2**53)]
    good = [str(user) for user in ids[:3]]
    numbers = [2**53 + 1, 2**53, 2**53 - 1, 7, -(2**53) + 1]
    levels = {"s": {str(number): code for code, number in enumerate(numbers)}}
    for cells in (ids, [*ids, odd]):
        table_of = pd.DataFrame({"t": [1] * len(cells), "u": cells})
        batch, _ = read_table(Schema("t", "ms", (), "u"), table_of)
        assert batch.users.tolist()[:3] == good
        is_float = table_of["u"].dtype == float
        refused_ids = {each.position for each in batch.rejections if each.reason == "bad_user"}
        assert (set(range(3, 7)) <= refused_ids) == is_float
        assert is_float or batch.users.tolist()[:7] == list(map(str, ids))
        users, refused = read_labels(table_of["u"], len(cells))
        assert users.tolist()[:3] == good
        assert [refused.get(i) for i in range(7)] == [None] * 3 + ["bad_user" if is_float else None] * 4
        batch, _ = read_table(Schema("t", "ms", ("s",), levels=levels), table_of.rename(columns={"u": "s"}))
        assert batch.values[:3, 0].tolist() == [3, 2, 4]
        column, taken = read_positions(table_of["u"], len(cells))
        assert column[:3].tolist() == ids[:3]
        assert taken[:7].tolist() == [True] * 3 + [not is_float] * 4


@pytest.mark.parametrize("odd", [None, float("nan"), "x", True, [1]], ids=str)
def test_no_row_of_a_table_of_features_stops_the_others(odd):
    pd = pytest.importorskip("pandas")
    rejected = []
    engine = engine_of(rejected)
    points = pd.DataFrame({"a": [20.0, 21.0, odd], "b": [50.0] * 3})
    engine.push([1, 2, 3], points)
    (one,) = told(rejected)
    assert (one[0], one[1] in ("not_a_number", "missing")) == (2, True)
    assert engine.close()[0].value == [2]


def test_the_last_whole_number_of_a_time_does_not_depend_on_a_null():
    pd = pytest.importorskip("pandas")
    for cells in ([2**53, 2**53 - 1, 1], [2**53, 2**53 - 1, 1, None]):
        batch, _ = read_table(Schema("t", "ms", ()), pd.DataFrame({"t": cells}))
        assert batch.times_ms.tolist() == [2**53 - 1, 1]


def test_masked_moments_are_none():
    moments = np.array([5, 6], "datetime64[s]")
    for mask in ([False, True], [True, False], [False, False]):
        column, odd = read(np.ma.array(moments, mask=mask), Role("time"))
        good = np.array([i not in odd for i in range(2)])
        assert good.tolist() == [not is_masked for is_masked in mask]
        assert column[good].tolist() == [at for at, is_good in zip([5000, 6000], good, strict=True) if is_good]
