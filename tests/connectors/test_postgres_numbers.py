"""The second table of the PostgreSQL sink, which has a row for each published number."""

import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from support.postgres import ReleaseTable

from fcstream.connectors import open_sink
from fcstream.connectors.probes import Checkup, probe_sink
from fcstream.errors import ConfigError, SinkError
from fcstream.releases.long_form import long_form
from fcstream.testing import sample_release

TYPES = {
    "window_open": "timestamp with time zone",
    "window_close": "timestamp with time zone",
    "stream": "text",
    "key": "text",
    "answer": "text",
    "kind": "text",
    "name": "text",
    "value": "double precision",
    "sigma": "double precision",
    "low": "double precision",
    "high": "double precision",
    "status": "text",
    "reason": "text",
}
REFUSED = {"status": "refused", "reason": "too_few", "value": None, "sigma": None, "count": None}


@pytest.fixture
def table(postgres_url):
    table = ReleaseTable(postgres_url)
    yield table
    table.db.execute(f"DROP SCHEMA IF EXISTS {table.schema} CASCADE")
    table.db.close()


def with_numbers(table):
    return f"{table.url}&numbers=numbers_{table.name}"


def numbers(table):
    query = f"SELECT {', '.join(TYPES)} FROM {table.schema}.numbers_{table.name} ORDER BY window_open, stream, name"
    return [tuple(row) for row in table.db.execute(query).fetchall()]


def expected(releases):
    """The rows as `long_form` gives them to data frames."""
    began = datetime(1970, 1, 1, tzinfo=UTC)
    rows = [(*(began + timedelta(milliseconds=time) for time in row[:2]), *row[2:]) for row in long_form(releases)]
    return sorted(rows, key=lambda row: (row[0], row[2], row[6] or "~"))


def test_rows_are_those_of_data_frames(table):
    sent = [
        replace(
            sample_release(0), features=["x", "y"], value=[0.1 + 0.2, 1e-300], sigma=[1, 2.5], interval=[[0, 2], None]
        ),
        replace(sample_release(1), stream="all/north", key="north", value=[7], sigma=None),
        replace(sample_release(2), **REFUSED),
    ]
    sink = open_sink(with_numbers(table))
    sink.write(sent)
    assert numbers(table) == expected(sent)
    asked = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    assert dict(table.db.execute(asked, (table.schema, f"numbers_{table.name}")).fetchall()) == TYPES
    sink.close()


def test_what_is_written_again_has_its_rows_once(table):
    sent = [sample_release(i) for i in range(2500)]
    sink = open_sink(with_numbers(table))
    sink.write(sent[:1500])
    sink.write(sent[1000:])
    sink.write(sent)
    assert numbers(table) == expected(sent)
    sink.close()


def test_a_refused_write_leaves_no_rows(table):
    sink = open_sink(with_numbers(table))
    sink.write([sample_release(0)])
    with pytest.raises(SinkError, match="holds another release"):
        sink.write([sample_release(1), replace(sample_release(0), value=[9.0])])
    assert numbers(table) == expected([sample_release(0)])
    sink.close()


def test_a_table_that_comes_later_has_the_numbers_of_what_is_there(table):
    sent = [sample_release(i) for i in range(1200)]
    sink = open_sink(table.url)
    sink.write(sent[:1100])
    sink.close()
    for _ in range(2):
        sink = open_sink(with_numbers(table))
        assert numbers(table) == expected(sent[:1100])
        sink.close()
    sink = open_sink(with_numbers(table))
    sink.write(sent[1000:])
    assert numbers(table) == expected(sent)
    sink.close()


def test_rows_and_release_are_one_transaction(table):
    """The server dies between the two, as far as the sink can tell: the statement of the rows fails."""
    sink = open_sink(f"{with_numbers(table)}&patience=1")
    name = f"{table.schema}.numbers_{table.name}"
    table.db.execute(f"ALTER TABLE {name} ADD CHECK (value < 0 OR value IS NULL)")
    with pytest.raises(SinkError):
        sink.write([sample_release(0)])
    assert table.query("SELECT count(*) FROM {}") == [(0,)]
    table.db.execute(f"ALTER TABLE {name} DROP CONSTRAINT numbers_{table.name}_value_check")
    with contextlib.suppress(psycopg.Error):
        sink._db.close()  # and the connection is lost
    sink.write([sample_release(0)])
    assert numbers(table) == expected([sample_release(0)])
    sink.close()


def test_doctor_makes_nothing(table):
    open_sink(table.url).close()
    checkup = Checkup(1000)
    probe_sink(checkup, with_numbers(table))
    assert [finding.level for finding in checkup.findings] == ["ok", "ok"]
    assert table.db.execute("SELECT to_regclass(%s)", (f"{table.schema}.numbers_{table.name}",)).fetchone() == (None,)


def test_names_of_the_second_table(table):
    for wrong in (table.name, "no-name"):
        with pytest.raises(ConfigError, match="table"):
            open_sink(f"{table.url}&numbers={wrong}")
