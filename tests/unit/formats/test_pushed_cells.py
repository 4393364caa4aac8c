"""Cells of pushed rows: whole numbers as levels, and types of numpy and pandas that are no numbers."""

import datetime as dt

import numpy as np
import pytest

from fcstream import ConfigError, Engine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.formats.payloads import decoder_for

START = 1767225600000
COUNT = {"kind": "count", "rho": 1e6}


def config_of(features, release=COUNT, **sections):
    return {
        "stream": {"name": "s"},
        "lattice": {"step": 0.001},
        "features": features,
        "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"},
        "release": release,
        "budget": {"rho": 9e8, "delta": 0.0},
        "ledger": {"url": "memory:"},
    } | sections


def pushed(config, *arguments, **named):
    """Return what the window holds, and what was rejected."""
    rejected = []
    engine = Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=rejected.extend)
    engine.first_records.ignore()
    engine.push(*arguments, **named)
    release = engine.close()[0]
    return release.value, [(each.position, each.reason) for each in rejected]


X = {"name": "x", "min": -1000.0, "max": 1000.0}
STARS = {"name": "stars", "type": "category", "levels": ["1", "2", "3"]}
STATES = STARS | {"levels": ["idle", "busy", "off"]}
TABLES = {"kind": "marginals", "rho": 1e6, "order": 1}
CELLS = [1, 2, 2, 3, 3, 3, 0, 7]
KINDS = {
    "list": lambda pd, cells: [[cell] for cell in cells],
    "integers": lambda pd, cells: np.array(cells)[:, None],
    "floats": lambda pd, cells: np.array(cells, float)[:, None],
    "many": lambda pd, cells: np.array(cells)[:, None],
    "frame": lambda pd, cells: pd.DataFrame({"stars": cells}),
    "frame of floats": lambda pd, cells: pd.DataFrame({"stars": [float(cell) for cell in cells]}),
    "frame of texts": lambda pd, cells: pd.DataFrame({"stars": [str(cell) for cell in cells]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_are_the_levels_with_their_text(kind):
    """Numbers in rows were codes 0, 1, 2, also where levels are "1", "2", "3"."""
    pd = pytest.importorskip("pandas")
    times = 20 if kind == "many" else 1
    cells = CELLS * times
    value, rejected = pushed(config_of([STARS], TABLES), [START] * len(cells), KINDS[kind](pd, cells))
    assert value == [[times, 2 * times, 3 * times]]
    assert rejected == [(i, "unknown_level") for i, cell in enumerate(cells) if cell in (0, 7)]


def test_whole_numbers_are_places_where_no_level_is_a_number():
    """A fraction was taken for a place between two levels."""
    for rows in ([[0], [1], [1], [2], [3], [0.5]], np.array([[0], [1], [1], [2], [3], [0.5]])):
        value, rejected = pushed(config_of([STATES], TABLES), [START] * 6, rows)
        assert value == [[1, 2, 1]]
        assert rejected == [(4, "unknown_level"), (5, "unknown_level")]


def test_a_frame_of_features_never_holds_places():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"stars": [0, 1]})
    assert pushed(config_of([STATES], TABLES), [START] * 2, frame)[1] == [(0, "unknown_level"), (1, "unknown_level")]
    frame = pd.DataFrame({"stars": ["busy", None]})
    assert pushed(config_of([STATES], TABLES), [START] * 2, frame) == ([[0, 1, 0]], [(1, "missing")])
    frame = pd.DataFrame({"stars": [1, None]})  # floats
    assert pushed(config_of([STARS], TABLES), [START] * 2, frame) == ([[1, 0, 0]], [(1, "missing")])


def test_packed_floats_name_levels_as_arrays_do():
    block = np.zeros(5, [("t", "<i8"), ("v", "<f8", (1,))])
    block["t"], block["v"] = START, np.array([[1], [2], [2], [0], [np.nan]])
    rejected = []
    config = config_of([STARS], TABLES)
    engine = Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=rejected.extend)
    engine.take(decoder_for("floats", Config.from_mapping(config).job.schema).decode([block.tobytes()], 0))
    assert engine.close()[0].value == [[1, 2, 0]]
    assert [each.reason for each in rejected] == ["unknown_level", "missing"]


def test_missing_whole_numbers_of_optional_categories_in_arrays():
    optional = STARS | {"missing": [-1], "optional": True}
    config = config_of([X, optional], COUNT)
    rows = np.array([[1, 1], [1, -1], [1, np.nan], [1, -2]])
    for points in (rows, rows.tolist()):
        assert pushed(config, [START] * 4, points) == ([3], [(3, "unknown_level")])


SPANS = [np.timedelta64(5, "s"), np.timedelta64(5, "ns"), np.timedelta64(5), dt.timedelta(5), np.datetime64(5, "ns")]


@pytest.mark.parametrize("span", SPANS, ids=repr)
def test_a_span_or_moment_among_numbers_is_rejected_alone(span):
    """One cell raised a TypeError, or was a number."""
    config = config_of([X])
    assert pushed(config, [START] * 3, [[1.0], [span], [2.0]]) == ([2], [(1, "not_a_number")])
    users = config_of([], stream={"name": "s", "unit": "user", "user": "id"})
    is_moment = isinstance(span, np.datetime64)  # which is as good an id as its text
    assert pushed(users, [START] * 2, None, [7, span]) == ([1 + is_moment], [(1, "bad_user")][is_moment:])
    texts = config_of(
        [{"name": "t", "type": "text"}],
        {"kind": "frequent", "rho": 100, "delta": 1e-3},
        budget={"rho": 1e6, "delta": 0.5},
    )
    assert pushed(texts, [START] * 60, ["a"] * 59 + [span])[1] == [(59, "not_a_text")][is_moment:]
    if not isinstance(span, np.datetime64):
        assert pushed(config, [START, span], [[1.0]] * 2) == ([1], [(1, "bad_time")])


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_columns_of_moments_and_spans_are_no_features(kind, unit):
    """Those of nanoseconds were plain integers."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    column = np.array([5, 6], f"{kind}[{unit}]")
    config, refused = config_of([X]), ([0], [(0, "not_a_number"), (1, "not_a_number")])
    arrow = pa.table({"ts_ms": [START] * 2, "x": pa.array(column)})
    for table in (pd.DataFrame({"ts_ms": [START] * 2, "x": column}), arrow, pl.from_arrow(arrow)):
        assert pushed(config, table) == refused
    for points in (column[:, None], pd.DataFrame({"x": column}), arrow.select(["x"])):
        assert pushed(config, [START] * 2, points) == refused
    users = config_of([], stream={"name": "s", "unit": "user", "user": "id"})
    wrong = [] if kind == "datetime64" else [(0, "bad_user"), (1, "bad_user")]
    assert pushed(users, [START] * 2, None, column) == ([2 - len(wrong)], wrong)


def test_columns_of_spans_are_no_times():
    """They raised a TypeError of numpy."""
    pl = pytest.importorskip("polars")
    config, spans = config_of([X]), np.array([5, 6], "timedelta64[ms]")
    for times in (spans, pl.Series(spans)):
        with pytest.raises(ConfigError, match=r"^times_ms: must hold Unix milliseconds or moments, got time spans"):
            pushed(config, times, [[1.0]] * 2)
    with pytest.raises(ConfigError, match=r"^positions: must hold whole numbers, got time spans"):
        pushed(config, [START] * 2, [[1.0]] * 2, positions=spans)
    live = config_of([X], window={"length": "1h", "start": "2026-01-01T00:00:00Z", "clock": "broker"})
    with pytest.raises(ConfigError, match=r"^arrival_ms: must hold Unix milliseconds or moments, got time spans"):
        pushed(live, [START] * 2, [[1.0]] * 2, arrival_ms=spans)
    assert pushed(config, pl.DataFrame({"ts_ms": spans, "x": [1.0, 2.0]})) == ([0], [(0, "bad_time"), (1, "bad_time")])


def test_positions_are_no_moments():
    """Moments were rounded to milliseconds, and good records became duplicates."""
    moments = np.array([5, 6], "datetime64[us]")
    with pytest.raises(ConfigError, match=r"^positions: must hold whole numbers, got moments, of which several may"):
        pushed(config_of([X]), [START] * 2, [[1.0]] * 2, positions=moments)
    listed = pushed(config_of([X]), [START] * 2, [[1.0]] * 2, positions=[7, dt.datetime(2026, 1, 1)])
    assert listed == ([1], [(0, "broken_record")])


def test_a_timestamp_of_pandas_is_a_moment():
    """It has a method `to_numpy` as columns have, and raised a TypeError."""
    pd = pytest.importorskip("pandas")
    at = pd.Timestamp(START, unit="ms", tz="UTC")
    assert pushed(config_of([X]), at, [1.0]) == ([1], [])
    assert pushed(config_of([X]), pd.NaT, [1.0]) == ([0], [(0, "missing")])
    live = config_of([X], window={"length": "1h", "start": "2026-01-01T00:00:00Z", "clock": "broker"})
    engine = Engine(live, noise=Noise(SeededEntropy(1)))
    engine.begin(at)
    engine.push([START] * 2, [[1.0]] * 2, arrival_ms=at)
    with pytest.raises(ConfigError, match=r"now_ms: must be Unix milliseconds, .* or a moment"):
        engine.advance(pd.NaT)
    assert engine.advance(at + pd.Timedelta(hours=2))[0].value == [2]
