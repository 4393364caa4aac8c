"""Real, messy telemetry through the examples' configurations (a bounded part of each)."""

import csv
import gzip
import json
from collections import Counter

import msgspec
import numpy as np
import pytest
from support import REPOSITORY
from support.helpers import data_file

from fcstream import Noise, SeededEntropy
from fcstream.config import Config, LedgerSection
from fcstream.connectors import open_source
from fcstream.engine.opening import open_engine
from fcstream.formats.batch import parse_iso8601
from fcstream.service.batch import run
from fcstream.testing import ListSink

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"
DAY_MS = 86_400_000


def release_all(name, start, end):
    config = Config.load(EXAMPLES / f"{name}.toml")
    config = msgspec.structs.replace(
        config,
        window=msgspec.structs.replace(config.window, start=start, end=end),
        ledger=LedgerSection(url="memory:"),
    )
    file = data_file(config.source.url.partition(":")[2])
    engine = open_engine(config, noise=Noise(SeededEntropy(1)))
    sink = ListSink()
    source = open_source(f"csv:{file}", engine.job.schema)
    summary = run(engine, source, sink)
    source.close()
    return sink.releases, summary, engine


def test_rooms():
    releases, summary, _ = release_all("rooms_10m", "2016-03-15T00:00:00Z", "2016-03-17T00:00:00Z")
    assert len(releases) == 288
    assert summary.released >= 70  # two working days
    values = np.array([r.value for r in releases if r.value])
    assert (np.abs(values[:, 0] - 22) < 3).all()
    assert (np.abs(values[:, 1] - 45) < 20).all()
    assert np.median([r.sigma[0] for r in releases if r.value]) < 0.03
    silent = [r for r in releases if r.window_open_ms % 86_400_000 < 8 * 3_600_000]
    assert {r.reason for r in silent} == {"too_few"}


def test_rooms_of_a_minute():
    """An hour and a half of the first day, 60 records a minute: nearly every minute is answered, none costs a delta."""
    releases, summary, _ = release_all("rooms_1m", "2016-03-15T09:00:00Z", "2016-03-15T10:30:00Z")
    assert summary.released >= 30
    assert all(r.rho <= 0.25 and r.delta == 0 for r in releases)
    told = [r for r in releases if r.value]
    assert np.median([r.sigma[0] for r in told[10:]]) < 0.1
    assert np.median([abs(r.value[0] - 22) for r in told[10:]]) < 3
    assert {r.reason for r in releases if r.value is None} <= {"too_few"}


def test_destinations_are_found_week_by_week():
    """Of 105 destinations those with a few flights a week are told, and their daily numbers are right within noise."""
    releases, summary, engine = release_all("destinations", "2013-01-01T00:00:00Z", "2013-02-12T00:00:00Z")
    flights = Counter()
    with gzip.open(data_file("nyc_flights_2013.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            flights[row["dest"], parse_iso8601(row["sched_dep_utc"]) // DAY_MS] += 1
    searches = [one for one in releases if one.key is None]
    assert len(searches) == 5  # the last of six weeks is not searched
    threshold = searches[0].parts["threshold"]
    for one in searches:
        days = range(one.window_open_ms // DAY_MS, one.window_close_ms // DAY_MS)
        weekly = {key: sum(flights[key, day] for day in days) for key, _ in flights}
        told = set(one.parts["levels"])
        assert {key for key, number in weekly.items() if number > threshold + 6 * one.sigma[0]} <= told
        assert told <= {key for key, number in weekly.items() if number >= threshold - 6 * one.sigma[0]}
        following = {other.key for other in releases if other.window_open_ms == one.window_close_ms} - {None}
        assert following == told
        assert 45 < len(told) < 75
    errors = [one.value[0] - flights[one.key, one.window_open_ms // DAY_MS] for one in releases if one.key is not None]
    assert np.std(errors) == pytest.approx(10**0.5, rel=0.1)
    assert abs(np.mean(errors)) < 0.5
    assert summary.rejected["undiscovered_key"] > 5000  # the first week
    assert engine.spent.rho == 0.1


def test_sliding_rooms_pay_twice():
    releases, _, engine = release_all("rooms_sliding", "2016-03-15T08:00:00Z", "2016-03-15T18:00:00Z")
    assert len(releases) == 119
    assert engine.job.schedule.overlap == 2
    assert max(r.spent["rho"] for r in releases) == pytest.approx(0.8)
    assert sum(r.value is not None for r in releases) > 70


def test_machines_and_their_outage():
    releases, _, _ = release_all("machines_1h", "2013-07-15T00:00:00Z", "2013-07-17T12:00:00Z")
    assert len(releases) == 60
    outage = [r for r in releases if 1373980200000 <= r.window_open_ms < 1374090000000 - 3_600_000]
    assert len(outage) > 20
    assert all(r.value is None or max(r.sigma) > 0.5 for r in outage)  # refused or wide, never wild
    fine = [r for r in releases if r.window_open_ms < 1373970000000]
    assert sum(r.value is not None for r in fine) > 0.9 * len(fine)
    for release in fine:
        if release.value:
            assert 0 <= release.value[0] < 20
            assert 9 < release.value[1] < 15


def test_air_with_missing_cells():
    releases, summary, _ = release_all("air_daily", "2014-01-01T00:00:00Z", "2014-03-01T00:00:00Z")
    assert len(releases) == 59
    assert summary.rejected["missing"] > 100
    assert summary.released > 35
    values = np.array([r.value for r in releases if r.value])
    assert (values > 0).all()
    assert (values < 10).all()
    assert json.loads(releases[0].to_bytes())["transform"] == ["log1p"] * 6


def test_machines_as_users():
    """802,083 records of 467 machines, one point a machine and day; every machine pays for seven days."""
    releases, summary, engine = release_all("machines_users", "2013-07-14T00:00:00Z", "2013-07-21T00:00:00Z")
    assert [r.status for r in releases] == ["released"] * 7
    assert summary.records == 802_083
    assert np.abs(np.array([r.count for r in releases]) - 467).max() < 120
    assert (np.abs(np.array([r.value for r in releases])[:, 1] - 10.5) < 1).all()
    assert engine.spent.rho == pytest.approx(1.4)
