"""Faults of the shared ledger: at any statement, at any message, at any moment."""

import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from support.helpers import rows, sample
from support.postgres import LOSS, TERMS, USERS, PostgresSchema, charged, filled
from support.postgres_node import PostgresNode

from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerDamaged, LedgerError
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.testing import window


def story(ledger):
    """A life of some windows, with every kind of verdict, on blocks or on users."""
    blocks = ("user",) if ledger.terms.unit == "user" else ("b", "c")

    def request(index):
        return Request(window(index), LOSS, blocks)

    said = []
    for group in [[0], [1], [2, 1]]:
        for result in ledger.charge([request(index) for index in group]):
            said.append((result.charge and result.charge.is_redraw, result.refusal is None, result.interrupted))
        if group == [0]:
            ledger.seal([SealedRelease(window(0), b"zero", PrivacyLoss.charge("0.1"))])
    ledger.seal([SealedRelease(window(1), b"one"), SealedRelease(window(2), b"two")])
    ledger.acknowledge([window(0), window(1)])
    return said


def expected(place, terms):
    """Of the story without faults: what was said, and the journal."""
    with contextlib.closing(place.open(terms)) as ledger:
        return story(ledger), ledger.rows()


FUSE = """
CREATE SEQUENCE {s}.fuse;
CREATE TABLE {s}.fuse_burns (at bigint, fault text);
INSERT INTO {s}.fuse_burns VALUES (0, '');
CREATE FUNCTION {s}.burn() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    burns {s}.fuse_burns%ROWTYPE;
BEGIN
    SELECT * INTO burns FROM {s}.fuse_burns;
    IF nextval('{s}.fuse') = burns.at OR burns.at < 0 THEN
        IF burns.fault = 'cut' THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
            PERFORM pg_sleep(10);
        END IF;
        RAISE EXCEPTION 'injected' USING ERRCODE = burns.fault;
    END IF;
    RETURN NULL;
END
$$;
"""


def lay_fuse(place):
    """Before and after every statement on every table, and when a transaction commits."""
    place.sql(FUSE)
    for table in ("streams", "journal", "windows", "blocks"):
        for when in ("BEFORE", "AFTER"):
            place.sql(
                f"CREATE TRIGGER fuse_{when} {when} INSERT OR UPDATE ON {{s}}.{table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION {s}.burn()"
            )
    place.sql(
        "CREATE CONSTRAINT TRIGGER fuse_commit AFTER INSERT ON {s}.journal DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION {s}.burn()"
    )


@pytest.mark.parametrize(
    ("terms", "fault", "step"),
    [(TERMS, "cut", 3), (USERS, "cut", 1), (TERMS, "40001", 1), (USERS, "40P01", 3)],
    ids=lambda value: getattr(value, "unit", value),
)
def test_a_fault_at_any_statement_changes_nothing(postgres, terms, fault, step):
    """The server ends the session, or a conflict is found: the call is done again, and its outcome is the same.

    Each fault comes at every statement of one kind of stream, and at every third of the other.
    """
    said, journal = expected(postgres, terms)
    lay_fuse(postgres)
    burns = 0
    for at in itertools.count(1, step):
        ledger = postgres.open(Terms(f"stream {at}", terms.unit, terms.capacity, terms.specification))
        postgres.sql("SELECT setval('{s}.fuse', 1, false)")
        postgres.sql("UPDATE {s}.fuse_burns SET at = %s, fault = %s", at, fault)
        assert story(ledger) == said, at
        postgres.sql("UPDATE {s}.fuse_burns SET at = 0")
        assert ledger.rows() == journal, at
        assert ledger.verify() == len(journal)
        ledger.close()
        if postgres.sql("SELECT last_value FROM {s}.fuse")[0][0] < at:
            break
        burns = at
    assert burns > 50


def test_a_conflict_that_does_not_end(postgres):
    ledger = postgres.open()
    lay_fuse(postgres)
    postgres.sql("UPDATE {s}.fuse_burns SET at = -1, fault = '40001'")
    with pytest.raises(LedgerError, match="cannot be used: injected"):
        charged(ledger, 0)
    postgres.sql("UPDATE {s}.fuse_burns SET at = 0")
    assert charged(ledger, 0).is_redraw is False
    ledger.close()


class Proxy:
    """Stands between a ledger and its server, and cuts one connection at one message of the client.

    ``lost``: the server never gets the message. ``done``: it answers, and the answer is lost. ``silent``: the server
    never gets it, nobody is told, and `fell_silent` is called.
    """

    fell_silent = staticmethod(lambda: None)

    def __init__(self, server):
        from fcstream.ledgers.postgres.connection import ServerAddress

        found = ServerAddress.of(server).parameters
        self.host, self.port = found.get("host", "127.0.0.1"), int(found.get("port", 5432))
        self.left, self.how, self.open = 0, "", set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://127.0.0.1:{self.listener.getsockname()[1]}/{found['dbname']}"
        self.threads = [threading.Thread(target=self.serve)]
        self.threads[0].start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.threads.append(threading.Thread(target=self.carry, args=(client,)))
                self.threads[-1].start()

    def reach(self):
        if not self.host.startswith("/"):
            return socket.create_connection((self.host, self.port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self.host}/.s.PGSQL.{self.port}")
        return server

    def carry(self, client):
        cut, answered = threading.Event(), threading.Event()
        with client, self.reach() as server, contextlib.suppress(OSError):
            self.open |= {client, server}
            other = threading.Thread(target=self.carry_back, args=(server, client, cut, answered))
            other.start()
            while data := client.recv(1 << 20):
                self.left -= 1
                if self.left == 0 and self.how == "done":
                    cut.set()
                    server.sendall(data)
                    answered.wait(60)
                if self.left == 0 and self.how == "silent":
                    self.fell_silent()
                    continue
                if self.left == 0:
                    break
                server.sendall(data)
            end(server, client)
            other.join()
            self.open -= {client, server}

    def carry_back(self, server, client, cut, answered):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if cut.is_set():
                    answered.set()
                    return
                client.sendall(data)
            end(client)

    def arm(self, at, how):
        self.left, self.how = at, how

    def close(self):
        end(self.listener, *self.open)
        self.listener.close()
        for thread in self.threads:
            thread.join()


def end(*sockets):
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("terms", [TERMS, USERS], ids=lambda terms: terms.unit)
@pytest.mark.parametrize("how", ["lost", "done", "silent"])
def test_a_connection_cut_at_any_message_changes_nothing(postgres, terms, how, monkeypatch):
    """Among others after the commit, before the client hears of it: the call must know its own work again."""
    from fcstream.ledgers.postgres import connection

    passed = []  # an answer is waited for until the clock is moved: no server is too slow for this test
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(passed), sleep=time.sleep)
    monkeypatch.setattr(connection, "time", clock)
    said, journal = expected(postgres, terms)
    proxy = Proxy(postgres.server)
    proxy.fell_silent = lambda: passed.append(connection._ANSWER_S + 1)
    proxy.arm(0, how)
    url, postgres.url = (
        postgres.url,
        f"{proxy.url}?schema={postgres.schema}&application_name={postgres.schema}&sslmode=disable",
    )
    try:
        for at in itertools.count(1):
            ledger = postgres.open(Terms(f"stream {at}", terms.unit, terms.capacity, terms.specification))
            proxy.arm(at, how)
            assert story(ledger) == said, at
            left = proxy.left
            proxy.arm(0, how)
            assert ledger.rows() == journal, at
            assert ledger.verify() == len(journal)
            ledger.close()
            if left > 0:
                break
        assert at > 5
    finally:
        proxy.close()
        postgres.url = url


LIFE = 3


def live(url, out, burn_at):
    """An engine's order: publish what waits, charge, draw, seal, publish, acknowledge; dies at a statement."""
    from fcstream.ledgers.postgres import connection

    calls = itertools.count(1)

    class Connection(connection._BoundedConnection):
        def execute(self, *values, **options):
            for step in (lambda: None, lambda: super(Connection, self).execute(*values, **options)):
                found = step()  # before the statement, and after it
                if next(calls) == burn_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return found

    connection._BoundedConnection = Connection
    ledger = open_ledger(url, TERMS)

    def publish(releases):
        with open(out, "a") as file:
            file.writelines(json.dumps([key.open_ms, body.decode()]) + "\n" for key, body in releases)
        ledger.acknowledge([key for key, _ in releases])

    publish(ledger.unacknowledged())
    for index in range(LIFE):
        result = ledger.charge([Request(window(index), LOSS, ("b",))])[0]
        body = os.urandom(8).hex() if result.charge else "interrupted" if result.interrupted else "refused"
        if result.charge or result.interrupted or result.refusal:
            ledger.seal([SealedRelease(window(index), body.encode())])
            publish([(window(index), body.encode())])
    ledger.close()
    return next(calls) - 1


def in_child(work, *values):
    """Exit status of a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work(*values)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


@pytest.mark.slow
def test_kill_at_every_statement(postgres, tmp_path):
    """kill -9, start again: each window charged once, one answer each, whatever was published is in the ledger."""
    for burn_at in itertools.count(1):
        out = tmp_path / f"{burn_at}.jsonl"
        postgres.sql("DROP SCHEMA IF EXISTS {s} CASCADE")
        status = in_child(live, postgres.url, out, burn_at)
        assert in_child(live, postgres.url, out, None) == 0, burn_at
        with contextlib.closing(postgres.open(None)) as ledger:
            ledger.verify()
            assert ledger.spent() == LOSS + LOSS
            assert ledger.unacknowledged() == []
            sealed = {row.open_ms: row.body.decode() for row in ledger.rows() if row.kind == "seal"}
        told = [json.loads(line) for line in out.read_text().splitlines()]
        assert {key for key, _ in told} == {window(i).open_ms for i in range(LIFE)}
        assert all(sealed[key] == body for key, body in told), burn_at  # never two answers
        assert [sealed[window(i).open_ms] == "refused" for i in range(LIFE)] == [False, False, True]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert burn_at > 40


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_restarted_in_mid_charge(postgres_url, mode):
    """``immediate`` is a crash: what was said to be charged must come back from its log."""
    try:
        node = PostgresNode()
    except FileNotFoundError as why:
        if os.environ.get("FCSTREAM_REQUIRE_SERVICES") == "1":
            pytest.fail(str(why))
        pytest.skip(str(why))
    with contextlib.closing(node):
        place = PostgresSchema(node.url)
        place.db.close()
        ledger, granted, stop = place.open(), [], threading.Event()

        def work():
            for index in itertools.count():
                granted.append(charged(ledger, index).is_redraw)
                ledger.seal([SealedRelease(window(index), b"answer")])
                if stop.is_set():
                    return

        thread = threading.Thread(target=work)
        thread.start()
        while len(granted) < 20 and thread.is_alive():
            time.sleep(0.01)
        node.stop(mode)
        time.sleep(0.3)
        node.start()
        before = len(granted)
        while len(granted) < before + 20 and thread.is_alive():
            time.sleep(0.01)
        stop.set()
        thread.join()
        assert len(granted) >= before + 20
        assert not any(granted)
        assert ledger.verify() == 2 * len(granted)
        ledger.close()


def test_a_server_that_stays_away(postgres, monkeypatch):
    ledger = postgres.open()
    monkeypatch.setattr(ledger._session, "patience", 0.3)
    proxy = Proxy(postgres.server)
    proxy.close()
    monkeypatch.setitem(ledger._session._address.parameters, "port", proxy.url.rpartition(":")[2].partition("/")[0])
    monkeypatch.setitem(ledger._session._address.parameters, "host", "127.0.0.1")
    postgres.cut_sessions()
    started = time.monotonic()
    with pytest.raises(LedgerError, match=r"cannot be reached: .*; check `ledger.url`"):
        charged(ledger, 0)
    assert time.monotonic() - started < 30
    monkeypatch.undo()
    assert charged(ledger, 0).is_redraw is False  # and is there again
    ledger.close()


def test_an_interrupted_call_leaves_a_usable_ledger(postgres, monkeypatch):
    ledger = postgres.open()

    def interrupt(*values, **options):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger._session.db, "execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        charged(ledger, 0)
    assert ledger._session.db is None
    assert charged(ledger, 0)
    ledger.close()


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_older_copy_restored_under_an_open_ledger(postgres, goes_on):
    filled(postgres)
    tables = ("streams", "journal", "windows", "blocks")
    for table in tables:
        postgres.sql(f"CREATE TABLE {{s}}.old_{table} AS TABLE {{s}}.{table}")
    ledger = postgres.open()
    assert charged(ledger, 9)
    for table in tables:
        postgres.sql(f"TRUNCATE {{s}}.{table}; INSERT INTO {{s}}.{table} TABLE {{s}}.old_{table}")
    if goes_on:  # the copy has rows of its own by now
        with contextlib.closing(postgres.open()) as other:
            assert charged(other, 10)
            assert charged(other, 11)
    for call in (
        lambda: charged(ledger, 12),
        lambda: ledger.seal([SealedRelease(window(9), b"answer")]),
        lambda: ledger.acknowledge([window(1)]),
        ledger.spent,
        ledger.verify,
    ):
        with pytest.raises(LedgerDamaged, match="has lost journal row 9, which this process has seen: an older copy"):
            call()
    ledger.close()


def test_two_engines_share_a_stream(postgres):
    """The second finds what the first has answered, and nothing is charged twice."""
    config = sample(ledger={"url": postgres.url}, release={"size_hint": 100})
    answers = []
    for _ in range(2):
        engine = Engine(config)
        raw = rows(200)
        engine.push(np.arange(200) * 40, raw)
        answers.append(engine.close())
        engine.acknowledge()
    assert [len(releases) for releases in answers] == [6, 0]
    with contextlib.closing(postgres.open(None)) as ledger:
        ledger.verify()
        assert ledger.summary()["acknowledged"] == 6
        assert ledger.releases() == [release.to_bytes() for release in answers[0]]
