"""Records of which none can be used: nothing is charged for them."""

import datetime as dt
import json

import numpy as np
import pytest
from support.helpers import sample

from fcstream import ConfigError, Engine, KeyedEngine, Noise, SeededEntropy, Stream, UnusableRecords
from fcstream.formats.decoders import CsvRows
from fcstream.formats.nested import objects_decoder
from fcstream.sections import Budget, Count, Feature, Lattice, Records, Sum, Window

DAY = {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T02:00:00Z"}


TOLD = (
    r"^records: must hold records that can be used, none of the first 1000 records can \(1000 bad_time 'ts_ms'\): "
    r"check `stream.time_unit`.*; nothing was charged$"
)


def stream_of(ledger=None, **records):
    return Stream(
        Records(name="s", **records),
        lattice=Lattice(step=0.1),
        features=[Feature(name="x", min=0.0, max=10.0)],
        window=Window(**DAY),
        release=Sum(rho=0.5),
        budget=Budget(rho=0.5, delta=0.0),
        ledger=ledger,
        noise=Noise(SeededEntropy(1)),
    )


def frame_of(n=1000, good=0):
    pd = pytest.importorskip("pandas")
    times = (pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n), unit="s")).strftime("%Y-%m-%dT%H:%M:%S")
    frame = pd.DataFrame({"ts_ms": times.astype(object), "x": np.ones(n)})
    frame.loc[n - good :, "ts_ms"] = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
    return frame


def test_a_frame_of_which_nothing_can_be_used_charges_nothing(tmp_path):
    """Its windows were released and their budget was spent."""
    for ledger in (None, tmp_path / "ledger.db"):
        stream = stream_of(ledger)
        with pytest.raises(UnusableRecords, match=TOLD) as caught:
            stream.run(frame_of())
        assert caught.value.reasons == {"bad_time": 1000}
        assert isinstance(caught.value, ConfigError)
        with stream.engine() as engine:
            assert engine.spent.rho == 0
            assert engine.next_index == 0
        right = frame_of()
        right["ts_ms"] = 1767225600000
        assert stream.run(right).status.tolist() == ["released"] * 2
        assert stream.run(right.assign(ts_ms="x"), unchecked=True).status.tolist() == ["released"] * 2


@pytest.mark.parametrize(
    ("n", "good", "parts", "is_fine"),
    [(1000, 1, 1, True), (3000, 1, 1, True), (3000, 1, 3, False), (3, 0, 3, False), (3, 1, 3, True), (0, 0, 1, True)],
)
def test_the_first_thousand_records_decide(n, good, parts, is_fine):
    """Of a larger first batch all of them."""
    frame, stream = frame_of(n, good), stream_of()
    batches = [frame.iloc[i * n // parts : (i + 1) * n // parts] for i in range(parts)]
    if not is_fine:
        with pytest.raises(UnusableRecords):
            stream.run(batches)
    assert len(stream.run(batches, unchecked=not is_fine)) == 2


KEYS = {"key": "site", "keys": ["p", "q"]}


@pytest.mark.parametrize(("kind", "stream"), [(Engine, {}), (KeyedEngine, KEYS)])
@pytest.mark.parametrize("way", ["close", "closing"])
def test_every_engine_of_a_file_clock_refuses(kind, stream, way):
    config = sample(
        release={"kind": "count", "method": None, "radius": None, "spread": None, "delta": None, "rho": 1},
        budget={"rho": 1},
        window={"end": "1970-01-01T00:00:10Z"},
        stream=stream,
    )
    engine = kind(config)
    keys = {"keys": ["p", "other"]} if stream else {}
    engine.push([1, 2], [[np.nan, 1.0]] * 2, **keys)
    with pytest.raises(UnusableRecords):
        engine.close() if way == "close" else list(engine.closing())
    assert way == "closing" or (engine.is_closed if kind is Engine else all(part.is_closed for part in engine.parts))
    engine.abort()
    engine = kind(config)
    engine.push([1, 2], [[20.0, 50.0], [np.nan, 1.0]], **keys)
    assert {release.status for release in engine.close()} == {"released"}


def test_live_clocks_are_not_held_up():
    config = sample(
        release={"kind": "count", "method": None, "radius": None, "spread": None, "delta": None, "rho": 1},
        budget={"rho": 1},
        window={"clock": "broker", "end": None},
    )
    engine = Engine(config)
    engine.begin(0)
    engine.push([1, 2], [[np.nan, 1.0]] * 2, arrival_ms=3)
    assert len(engine.advance(10**5)) > 0


@pytest.mark.parametrize(("length", "is_fine"), [("1h", False), ("24h", True), ("2d", True), ("36h", False)])
def test_a_date_is_no_instant_unless_windows_last_whole_days(length, is_fine):
    """All records of a day were counted in its first hour."""
    pd = pytest.importorskip("pandas")
    rows = [(f"2026-01-0{day}", f"{hour:02d}:30") for day in (1, 2) for hour in range(24)]
    frame = pd.DataFrame(rows, columns=["date", "time"])
    stream = Stream(
        Records(name="s", time="date", time_unit="iso8601"),
        window=Window(length=length, start="2026-01-01T00:00:00Z", end="2026-01-07T00:00:00Z"),
        release=Count(rho=1e6),
        budget=Budget(rho=1e6, delta=0.0),
        ledger=None,
    )
    schema = stream.config.job.schema
    lines = [f"{date},{time}".encode() for date, time in rows]
    objects = [json.dumps({"date": date}).encode() for date, _ in rows]
    for batch in (CsvRows(schema, b"date,time").decode(lines, 0), objects_decoder(schema).decode(objects, 0)):
        assert {each.reason for each in batch.rejections} == (set() if is_fine else {"bad_time"})
        assert len(batch.times_ms) == 48 * is_fine
    if not is_fine:
        with pytest.raises(UnusableRecords):
            stream.run(frame)
        frame["date"] += "T" + frame["time"]
    assert sum(stream.run(frame).value) == 48


def test_records_outside_of_the_schedule_are_of_use_but_not_in_another_unit():
    """A sorted file may begin long before the windows do; seconds that are read as milliseconds never come to them."""
    opens = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp())
    frame = frame_of()
    frame["ts_ms"] = 1000 * opens - 1 - np.arange(1000)
    assert stream_of().run(frame).status.tolist() == ["released"] * 2
    frame["ts_ms"] = opens + np.arange(1000)
    with pytest.raises(UnusableRecords, match=r"check `stream\.time_unit`: 's' would bring times into the schedule"):
        stream_of().run(frame)
