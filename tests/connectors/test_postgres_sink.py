"""Releases that are written to a table of PostgreSQL: once, whatever becomes of server and connection."""

import contextlib
import dataclasses
import os
import socket
import threading
import time

import pytest
from support.postgres import ReleaseTable
from support.sources import SECRET

from fcstream.connectors import open_sink
from fcstream.errors import ConfigError, SinkError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, sample_release

ONE = sample_release(0)


@pytest.fixture
def table(postgres_url):
    table = ReleaseTable(postgres_url)
    yield table
    table.db.execute(f"DROP SCHEMA IF EXISTS {table.schema} CASCADE")
    table.db.close()


class TestPostgresSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, table):
        self.table = table

    def make(self, tmp_path):
        return self.table.sink()

    def read(self, tmp_path):
        return [Release.from_bytes(body) for body in self.table.bodies()]


def test_a_row_holds_the_bytes_of_a_release(table):
    sink = open_sink(table.url)
    sent = [
        dataclasses.replace(sample_release(i), stream='ströme"\\u0000', value=[1e-320, 0.1 + 0.2]) for i in range(3)
    ]
    sink.write(sent)
    assert table.bodies() == [release.to_bytes() for release in sent]
    rows = table.query(
        "SELECT stream, window_open_ms, window_close_ms, status, written_at > now() - interval '1 min', "
        "body ->> 'core_count' FROM {} ORDER BY 2"
    )
    assert rows == [(sent[0].stream, i * 60_000, (i + 1) * 60_000, "released", True, "598") for i in range(3)]
    sink.close()
    sink.close()


def test_missing_and_last_are_exact(table):
    sink = table.sink()
    assert sink.last() is None
    assert sink.missing([]) == []
    sent = [sample_release(i) for i in range(2500)]  # more than one statement's
    assert sink.missing(sent) == sent
    sink.write(sent[:2000])
    sink.write([])
    assert sink.missing(sent) == sent[2000:]
    assert sink.last() == sent[1999]
    other = dataclasses.replace(sample_release(3), stream="other")
    sink.write([other])
    assert sink.last() == other
    assert sink.last("sample") == sent[1999]
    assert sink.last("nobody") is None
    sink.close()


def test_a_second_answer_for_a_window_is_refused(table):
    sink = table.sink()
    sink.write([sample_release(0), sample_release(1)])
    again = dataclasses.replace(sample_release(1), value=[123.456, 0.0])
    assert sink.missing([sample_release(0), again]) == [again]
    with pytest.raises(SinkError, match="holds another release for window 60000: a window has one") as caught:
        sink.write([sample_release(2), again])
    assert "123.456" not in str(caught.value)
    assert len(table.bodies()) == 2  # all or nothing
    with pytest.raises(SinkError, match="another release"):  # within one write too
        sink.write([sample_release(3), dataclasses.replace(sample_release(3), count=1)])
    assert len(table.bodies()) == 2
    sink.write([sample_release(0), sample_release(2), sample_release(2)])
    assert table.bodies() == [sample_release(i).to_bytes() for i in range(3)]
    sink.close()


def test_a_crash_before_the_acknowledgment_is_repeated_without_a_trace(table):
    sent = [sample_release(i) for i in range(3)]
    first = table.sink()
    first.write(sent)
    first.close()  # and nobody was told that it is written
    sink = table.sink()
    assert sink.missing(sent) == []
    sink.write(sent)
    assert table.bodies() == [release.to_bytes() for release in sent]
    sink.close()


def test_connections_that_a_server_ends_are_made_again(table):
    sink = table.sink(url=f"{table.url}&application_name={table.name}")
    sink.write([sample_release(0)])
    assert table.cut_connections() == [(True,)]
    sink.write([sample_release(1)])
    assert table.cut_connections() == [(True,)]
    assert sink.last() == sample_release(1)
    assert table.cut_connections() == [(True,)]
    assert sink.missing([sample_release(1), sample_release(2)]) == [sample_release(2)]
    sink.close()


class Relay:
    """Stands between a sink and its server, and loses connections when told."""

    def __init__(self, server):
        import psycopg

        with psycopg.connect(server) as db:
            self.target = (db.info.host if "/" not in db.info.host else "127.0.0.1", db.info.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.is_down = False
        self.lose_after = b""  # the answer to the next message with this in it is lost
        self.silent_from = b""  # from the next message with this in it on, nothing is passed on
        self.is_silent = False
        self.threads = [threading.Thread(target=self.serve)]
        self.threads[0].start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.threads.append(threading.Thread(target=self.relay, args=(client,)))
                self.threads[-1].start()

    def relay(self, client):
        with client:
            if self.is_down:
                return
            with socket.create_connection(self.target) as server:
                back = threading.Thread(target=self.pump, args=(server, client))
                back.start()
                self.pump(client, server)
                back.join()

    def pump(self, one, two):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if self.is_silent or (self.silent_from and self.silent_from in data):
                    self.is_silent = True
                    continue
                if self.lose_after and self.lose_after in data and two.getpeername() == self.target:
                    self.lose_after = b""
                    one.shutdown(socket.SHUT_RDWR)
                    two.sendall(data)
                    time.sleep(0.2)
                    break
                two.sendall(data)
        for each in (one, two):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()


@pytest.fixture
def relay(table):
    relay = Relay(table.server)
    yield relay
    relay.close()


def through(relay, table):
    """The table's URL by way of the relay, with a password if the server does not ask for one."""
    known = table.db.info.get_parameters() | {"password": table.db.info.password or SECRET}
    login = f"{known['user']}:{known['password']}@127.0.0.1:{relay.port}/{known['dbname']}"
    return f"postgresql://{login}?application_name={table.name}&schema={table.schema}&table={table.name}"


def test_a_commit_whose_answer_is_lost_is_written_once(table, relay):
    sink = table.sink(url=through(relay, table))
    relay.lose_after = b"COMMIT"
    sink.write([sample_release(0), sample_release(1)])
    assert relay.lose_after == b""
    assert table.bodies() == [sample_release(i).to_bytes() for i in range(2)]
    sink.close()


def test_a_server_that_is_away_is_waited_for_and_not_for_ever(table, relay):
    sink = table.sink(url=through(relay, table))
    relay.is_down = True
    table.cut_connections()
    timer = threading.Timer(0.7, lambda: setattr(relay, "is_down", False))
    timer.start()
    began = time.monotonic()
    sink.write([sample_release(0)])
    assert 0.5 < time.monotonic() - began < 30.0
    timer.join()
    sink.close()
    sink = table.sink(3.0, through(relay, table))
    relay.is_down = True
    table.cut_connections()
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"did not answer for 3 s: .*; check that the server runs") as caught:
        sink.write([sample_release(1)])
    assert time.monotonic() - began < 30.0
    assert SECRET not in str(caught.value)
    relay.is_down = False
    sink.write([sample_release(1)])
    assert len(table.bodies()) == 2
    sink.close()


def test_a_table_that_is_locked_is_waited_for(table):
    sink = table.sink(2.0)
    with table.db.transaction():
        table.db.execute(f"LOCK TABLE {table.schema}.{table.name} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SinkError, match="did not answer for 2 s: canceling statement due to"):
            sink.write([sample_release(0)])
    sink.write([sample_release(0)])
    sink.close()


@pytest.mark.parametrize("message", [b"statement_timeout", b"to_regclass", b"INSERT INTO"])
def test_an_answer_that_never_comes_is_not_waited_for(table, relay, monkeypatch, message):
    """The peer acknowledges every byte, so neither TCP nor the server's limits end it."""
    monkeypatch.setattr("fcstream.connectors.postgres.sink._LATE_S", 0.3)
    url = through(relay, table)
    table.sink().close()  # the table is there
    sink = table.sink(2.0, url) if message == b"INSERT INTO" else None
    relay.silent_from = message
    rescue = threading.Timer(60.0, table.cut_connections)
    rescue.start()
    began = time.monotonic()
    with pytest.raises(SinkError, match="did not answer for 2 s"):
        sink.write([ONE]) if sink else table.sink(2.0, url)
    assert 2.0 < time.monotonic() - began < 50.0
    rescue.cancel()
    rescue.join()
    relay.is_silent, relay.silent_from = False, b""
    if sink:
        sink.write([ONE])  # the same sink, on a new connection
        assert table.bodies() == [ONE.to_bytes()]
        sink.close()


def test_no_thread_and_no_descriptor_stays(table):
    sink = table.sink()
    sink.write([ONE])
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        sink.write([ONE])
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files
    sink.close()


def test_rows_that_are_no_releases(table):
    sink = table.sink()
    sink.write([ONE])
    for body in ("[]", "1", f'{{"stream": "{SECRET}"}}', '{"stream": 5}'):
        table.db.execute(f"UPDATE {table.schema}.{table.name} SET body = %s", (body,))
        with pytest.raises(SinkError, match="holds something else than releases: choose another table") as caught:
            sink.last()
        assert SECRET not in str(caught.value)
    sink.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("where", ["option", "options", "environment"])
def test_texts_are_utf_8_whatever_is_said(table, monkeypatch, encoding, where):
    url = table.url
    if where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", encoding)
    else:
        said = f"client_encoding={encoding}" if where == "option" else f"options=-cclient_encoding%3D{encoding}"
        url = f"{url}&{said}"
    sink = table.sink(url=url)
    sent = dataclasses.replace(ONE, stream="a→b")
    sink.write([sent])
    assert sink.last() == sent
    assert sink.last("a→b") == sent
    assert sink.missing([sent]) == []
    sink.close()


def test_rows_that_a_trigger_leaves_out(table):
    sink = table.sink()
    table.db.execute(
        f"CREATE FUNCTION {table.schema}.leave_out() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF NEW.window_open_ms = 60000 THEN RETURN NULL; END IF; RETURN NEW; END'"
    )
    table.db.execute(
        f"CREATE TRIGGER leave_out BEFORE INSERT ON {table.schema}.{table.name} "
        f"FOR EACH ROW EXECUTE FUNCTION {table.schema}.leave_out()"
    )
    with pytest.raises(SinkError, match="did not keep 1 of 3 releases that were inserted: look for a trigger"):
        sink.write([sample_release(i) for i in range(3)])
    assert table.bodies() == []
    sink.write([sample_release(0)])
    sink.close()


def test_a_server_that_became_read_only_is_left(table):
    """A new connection looks for the host that can be written to."""
    sink = table.sink()
    sink._db.execute("SET default_transaction_read_only = on")
    sink.write([ONE])
    assert table.bodies() == [ONE.to_bytes()]
    sink.close()


def test_nothing_is_prepared(table):
    """Behind a pooler, the next statement may come to a server that did not prepare it."""
    sink = table.sink()
    for i in range(12):
        sink.write([sample_release(i)])
    assert sink._db.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
    sink.close()


def test_many_sinks_at_once(table):
    """Tables are made once, and writers of the same window agree."""
    failures = []

    def work():
        try:
            sink = table.sink()
            for i in range(20):
                sink.write([sample_release(i)])
            sink.close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(table.bodies()) == 20


def test_tables_of_ones_own(table):
    columns = "stream text, window_open_ms bigint, window_close_ms bigint, name text, status text"
    columns += ", written_at timestamptz"
    key = "UNIQUE (stream, window_open_ms, window_close_ms, name)"
    table.db.execute(f"CREATE SCHEMA {table.schema}")
    for body, rest, message in (
        ("body jsonb", f", {key}", "must have a `body` of type json or text"),
        ("note text", f", {key}", 'cannot be used: column "body" does not exist'),
        ("body text", "", r"must have the primary key \(stream, window_open_ms, window_close_ms, name\)"),
        ("body text", f", {key}", None),
    ):
        table.db.execute(f"CREATE TABLE {table.schema}.{table.name} ({columns}, {body}{rest})")
        expected = pytest.raises(SinkError, match=message) if message else contextlib.nullcontext()
        with expected, contextlib.closing(table.sink()) as sink:
            sink.write([ONE])
        if message is None:
            assert table.bodies() == [ONE.to_bytes()]
        table.db.execute(f"DROP TABLE {table.schema}.{table.name}")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("/DATABASE?", "/no_such_database?"), SinkError, "refuses the login: .*no_such_database"),
        (("//", f"//no_such_user:{SECRET}@"), SinkError, "refuses the login: .*no_such_user"),
        (("table=", "tabel="), ConfigError, "unknown option 'tabel'"),
        (("table=", "table=a;b"), ConfigError, "must name a table of letters"),
    ],
)
def test_addresses_that_cannot_be_used(table, change, error, message):
    if "@" in change[1] and "@" in table.url:
        pytest.skip("the server's URL has a login")
    began = time.monotonic()
    with pytest.raises(error, match=message) as caught:
        open_sink(table.url.replace(change[0].replace("DATABASE", table.db.info.dbname), change[1]))
    assert time.monotonic() - began < 50.0  # of 60
    assert SECRET not in str(caught.value)


def test_a_server_that_is_not_there():
    pytest.importorskip("psycopg")
    with pytest.raises(SinkError, match=r"did not answer for 0.3 s: .*refused") as caught:
        open_sink(f"postgresql://me:{SECRET}@127.0.0.1:1/test?patience=0.3")
    assert SECRET not in str(caught.value)
