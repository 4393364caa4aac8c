"""The shared ledger against a real server: FCSTREAM_POSTGRESQL, or one on this machine; skipped where none answers."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
from support.helpers import rows, sample
from support.postgres import PostgresSchema
from support.postgres_node import PostgresNode

from fcstream import Engine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.stream.contributions import user_key
from fcstream.testing import LedgerContract, window

TERMS = LedgerContract.terms
LOSS = LedgerContract.loss
USERS = LedgerContract.users_terms
SECRET = "s3cretWord"


class TestPostgres(LedgerContract):
    @pytest.fixture(autouse=True)
    def _place(self, postgres):
        self.place = postgres

    def make(self, terms, tmp_path):
        return open_ledger(self.place.url, terms)


def charged(ledger, index, *blocks, loss=LOSS):
    return ledger.charge([Request(window(index), loss, blocks or (str(index),))])[0].charge


def filled(place, n=4, terms=TERMS):
    with contextlib.closing(place.open(terms)) as ledger:
        ledger.charge([Request(window(i), LOSS, (str(i), str(i + 1))) for i in range(n)])
        ledger.seal([SealedRelease(window(i), b"answer") for i in range(n - 1)])
        ledger.acknowledge([window(0)])


# -- what it holds -----------------------------------------------------------------------------------------------------


def test_modes_of_the_session(postgres):
    ledger = postgres.open(options="-csynchronous_commit%3Doff%20-cdefault_transaction_isolation%3Dserializable")
    db = ledger._session.db
    assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert db.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    db.execute("SET synchronous_commit = off")  # a pooler may hand out a session that we did not set up
    with db.transaction():
        charged(ledger, 0)
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.spent()


def test_verify_of_a_sound_ledger(postgres):
    filled(postgres)
    ledger = postgres.open(None)
    assert ledger.verify() == 8
    assert ledger.summary() == {"charged": 1, "sealed": 2, "acknowledged": 1, "blocks": 5, "users": 0}
    assert ledger.terms == TERMS
    assert ledger.releases() == [b"answer"] * 3
    assert ledger.charges() == [(window(i), LOSS) for i in range(4)]
    for change in (lambda: charged(ledger, 9), lambda: ledger.seal([SealedRelease(window(9), b"")])):
        with pytest.raises(LedgerError, match="opened to look at it"):
            change()
    ledger.close()


def attempt(ledger, call, *values):
    """What a call says, in words that two implementations share."""
    try:
        found = getattr(ledger, call)(*values)
    except LedgerError as error:
        return type(error), str(error).split(" in ")[0].split(":")[0]
    if call != "charge":
        return found
    return [
        (
            *(v.window, v.spent, v.charge and (v.charge.loss, v.charge.spent, v.charge.is_redraw), v.interrupted),
            *(v.refusal and (str(v.refusal), v.refusal.remaining), v.admitted is not None and v.admitted.tolist()),
        )
        for v in found
    ]


@pytest.mark.parametrize("unit", ["event", "stream", "user"])
@pytest.mark.parametrize("has_total", [False, True])
def test_the_journal_is_the_embedded_ledgers_byte_for_byte(postgres, tmp_path, unit, has_total):
    """Any sequence of calls gives both the same verdicts, the same errors, the same rows."""
    draw = random.Random(f"{unit}{has_total}")
    total = PrivacyLoss.cap("5.1", "9e-6") if has_total else None
    terms = Terms("stream", unit, PrivacyLoss.cap("2.5", "5e-6"), "specification", total)
    ours, twin = postgres.open(terms), SQLiteLedger(str(tmp_path / "l.db"), terms)
    keys = np.array(sorted(user_key(b"salt", str(i)) for i in range(40)), "S16")

    def request(index):
        loss = PrivacyLoss.charge(draw.choice(["0.1", "0.3", "0.7", "1.2"]), draw.choice(["0", "1e-9", "4e-7"]))
        if unit == "user":
            return Request(window(index), loss, (), keys[sorted(draw.sample(range(40), draw.randrange(40)))])
        blocks = ("stream",) if unit == "stream" else tuple(str(index + k) for k in range(draw.randint(1, 3)))
        return Request(window(index), loss, blocks)

    for _ in range(150):
        size = 1 if unit == "user" else draw.randint(0, 3)
        some = [draw.randrange(25) for _ in range(size)]
        call = draw.choice(["charge", "charge", "seal", "acknowledge", "spent", "last_sealed", "unacknowledged"])
        values = ()
        if call == "charge":
            values = ([request(index) for index in some],)
        elif call == "seal":
            refund = PrivacyLoss.charge(draw.choice(["0", "0.05", "0.2"]))
            if unit == "user":  # given back to those who were charged last: right after the charge
                attempt(ours, "charge", charge := [request(some[0])])
                attempt(twin, "charge", charge)
            values = ([SealedRelease(window(index), b"%d" % index, refund) for index in some],)
        elif call == "acknowledge":
            values = ([window(index) for index in some],)
        assert attempt(ours, call, *values) == attempt(twin, call, *values)
    assert ours.rows() == twin.rows()
    assert len(ours.rows()) > 15
    assert ours.verify() == twin.verify()
    for look in ("summary", "charges", "releases"):
        assert getattr(ours, look)() == getattr(twin, look)()
    head = twin._tables.head  # links hang on each one's salt
    assert postgres.sql("SELECT seq, digest, users FROM {s}.streams") == [(head.seq, head.digest, head.users)]
    ours.close()
    twin.close()


def test_two_streams_do_not_disturb_each_other(postgres):
    other = Terms("other", "stream", PrivacyLoss.cap("0.5", "1e-6"), "another")
    with contextlib.closing(postgres.open(TERMS)) as first, contextlib.closing(postgres.open(other)) as second:
        assert charged(first, 0, "stream")
        assert charged(second, 0, "stream")
        assert not charged(second, 1, "stream")
        assert charged(first, 1, "stream")
        first.seal([SealedRelease(window(0), b"first")])
        second.seal([SealedRelease(window(0), b"second")])
        assert first.unacknowledged() == [(window(0), b"first")]
        assert second.last_sealed() == (window(0), b"second")
        assert first.spent() == LOSS + LOSS
        assert second.spent() == LOSS
        assert (first.verify(), second.verify()) == (3, 2)
        assert first.salt != second.salt
    with pytest.raises(LedgerMismatch, match=r"2 streams: name one with &stream=NAME: 'other', 'stream'"):
        postgres.open(None)
    with contextlib.closing(postgres.open(None, stream="other")) as book:
        assert book.terms == other
    with pytest.raises(LedgerMismatch, match="no such stream"):
        postgres.open(None, stream="third")
    with pytest.raises(LedgerMismatch, match="names stream 'other'"):
        postgres.open(TERMS, stream="other")


def test_a_stream_that_was_made_by_many_at_once_is_one(postgres):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        salts = pool.map(salt_of, [postgres.url] * 8, 1)
    assert len(set(salts)) == 1


def salt_of(url):
    with contextlib.closing(open_ledger(url, TERMS)) as ledger:
        return ledger.salt


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        ("UPDATE {s}.journal SET rho = 1 WHERE seq = 2", "row 2"),
        ("UPDATE {s}.journal SET body = '\\x00' WHERE seq = 6", "row 6"),
        ("DELETE FROM {s}.journal WHERE seq = 3", "row 3"),
        ("UPDATE {s}.blocks SET rho = rho - 1 + 2 * (block = '2')::int WHERE block IN ('2', '3')", "block 2"),
        ("UPDATE {s}.blocks SET delta = 0 WHERE block = '1'", "block 1"),
        ("UPDATE {s}.windows SET sealed_seq = 1 WHERE open_ms = 60000", "window 60000"),
        ("UPDATE {s}.windows SET draws = 0 WHERE open_ms = 0", "window 0"),
        ("UPDATE {s}.journal SET body = replace(convert_from(body, 'UTF8'), 'event', 'user')::bytea", "row 0"),
    ],
)
def test_edited_ledgers_are_found_out(postgres, edit, what):
    filled(postgres)
    postgres.sql(edit)
    for terms in (None, TERMS):
        with pytest.raises(LedgerDamaged, match=what):
            postgres.open(terms)


@pytest.mark.parametrize(
    ("edit", "error", "what"),
    [
        ("DELETE FROM {s}.journal WHERE seq = 8", LedgerDamaged, "row 8"),
        ("UPDATE {s}.streams SET chain = '\\x00'", LedgerDamaged, "head"),
        ("DELETE FROM {s}.streams", LedgerDamaged, "there is a journal"),
        ("UPDATE {s}.streams SET capacity_rho = -1", LedgerDamaged, "head"),
        ("UPDATE {s}.meta SET value = '99'", LedgerMismatch, "schema version 99"),
        ("DELETE FROM {s}.meta", LedgerDamaged, "meta"),
        ("DROP TABLE {s}.journal", LedgerDamaged, "journal"),
        ("DELETE FROM {s}.blocks", LedgerDamaged, "disagree"),
        ("UPDATE {s}.blocks SET rho = 0", LedgerDamaged, "disagree"),
        ("UPDATE {s}.windows SET state = 'charged'", LedgerDamaged, "disagree"),
        ("DELETE FROM {s}.windows", LedgerDamaged, "disagree"),
        ("DROP SCHEMA {s} CASCADE; CREATE TABLE {s}.mine (x int)", LedgerMismatch, "another program"),
    ],
)
def test_ledgers_that_cannot_be_opened(postgres, edit, error, what):
    filled(postgres)
    postgres.sql(edit.replace("CASCADE;", "CASCADE; CREATE SCHEMA {s};"))
    with pytest.raises(error, match=what):
        postgres.open(TERMS)


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        (Terms("stream", "stream", TERMS.capacity, TERMS.specification), "unit"),
        (Terms("stream", "event", PrivacyLoss.cap(2, 1e-6), TERMS.specification), "for ever"),
        (Terms("stream", "event", TERMS.capacity, TERMS.specification, TERMS.capacity), "for ever"),
        (Terms("stream", "event", TERMS.capacity, "changed"), "another specification"),
    ],
)
def test_ledger_of_another_stream(postgres, terms, what):
    filled(postgres)
    with pytest.raises(LedgerMismatch, match=what):
        postgres.open(terms)
    postgres.open(TERMS).close()  # and nothing was harmed


def test_places_that_cannot_hold_a_ledger(postgres, monkeypatch):
    with pytest.raises(LedgerError, match="does not exist: there is no ledger"):
        postgres.open(None)
    with pytest.raises(LedgerError, match="may not be used by this login"):
        postgres.open(TERMS, options="-crole%3Dpg_monitor")
    assert postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = %s", postgres.schema) == [(0,)]
    from fcstream.ledgers.postgres import connection

    monkeypatch.setattr(connection, "_SETTINGS", connection._SETTINGS.replace("current_setting('fsync')", "'off'"))
    with pytest.raises(LedgerError, match="fsync = off: switch it on"):
        postgres.open(TERMS)
    postgres.open(TERMS, unsafe="yes").close()


def test_edited_users_are_found_out(postgres):
    ledger = postgres.open(USERS)
    keys = np.array(sorted(user_key(ledger.salt, f"user {i}") for i in range(50)), "S16")
    for i, refund in enumerate([PrivacyLoss(), PrivacyLoss.charge("0.1"), PrivacyLoss()]):
        ledger.charge([Request(window(i), LOSS, (), keys[i:])])
        ledger.seal([SealedRelease(window(i), b"answer", refund)])
    assert ledger.verify() == 6
    assert ledger.summary()["users"] == 50
    postgres.sql("DELETE FROM {s}.users WHERE bucket = (SELECT max(bucket) FROM {s}.users)")
    with pytest.raises(LedgerDamaged, match="users' budgets"):
        ledger.verify()
    ledger.close()


def test_users_of_many_buckets(postgres):
    """More of them than one statement writes, twice."""
    ledger = postgres.open(USERS)
    keys = np.unique(np.random.default_rng(0).integers(1, 256, (9000, 16), np.uint8).view("S16").ravel())
    for index, refund in enumerate(["0.1", "0", "0"]):
        result = ledger.charge([Request(window(index), LOSS, (), keys)])[0]
        assert result.admitted.all() == result.admitted.any() == (index < 2)
        ledger.seal([SealedRelease(window(index), b"answer", PrivacyLoss.charge(refund))])
    assert ledger.summary()["users"] == len(keys)
    assert ledger.verify() == 6
    ledger.close()


def test_users_who_were_charged_again_get_nothing_back(postgres):
    """They know their last window only; to give back for an earlier one would tell of less than somebody spent."""
    keys = np.array([b"k" * 16])
    with contextlib.closing(postgres.open(USERS)) as one, contextlib.closing(postgres.open(USERS)) as two:
        one.charge([Request(window(0), LOSS, (), keys)])
        two.charge([Request(window(1), LOSS, (), keys)])
        one.seal([SealedRelease(window(0), b"answer", LOSS)])  # it stands: its value does not decide
        assert one.spent() == LOSS * 2
        two.seal([SealedRelease(window(1), b"answer", LOSS)])
        assert one.spent() == LOSS
        assert one.verify() == 4


# -- addresses and secrets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/test",
        f"postgresql://me:{SECRET}@127.0.0.1:port/test",
        f"postgresql://me:{SECRET}/x@127.0.0.1:1/test",
        f"postgresql://me:{SECRET}?x@127.0.0.1:1/test",
        f"postgresql://me:{SECRET}?x=y@127.0.0.1:1/test",
        f"postgresql://me:1{SECRET}#x@127.0.0.1:1/test?sslmode=no",
        f"postgresql://me:@{SECRET}@[::1:1/test",
        f"postgresql://127.0.0.1:1/test?password={SECRET}",
        f"postgresql://127.0.0.1:1/test?password={SECRET}&schema=pg_x",
        f"postgresql://127.0.0.1:1/test?passwort={SECRET}",
        f"postgresql://me:{SECRET}@127.0.0.1:1/test?unsafe={SECRET}",
        f"postgresql:me:{SECRET}@127.0.0.1:1/test",
        f"postgres://me:{SECRET}@127.0.0.1:1,127.0.0.1:2/test",
        f"postgre://me:{SECRET}@127.0.0.1:1/test",
    ],
)
def test_no_error_tells_a_password(postgres_url, url):
    with pytest.raises((ConfigError, LedgerError)) as caught:
        open_ledger(url, TERMS)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(caught.value)
    assert "ledger.url" in str(caught.value)


def test_addresses(postgres_url):
    from fcstream.ledgers.postgres.connection import ServerAddress

    address = ServerAddress.of("postgresql://me:p%40ss@db1:5433,db2/telemetry?schema=a&stream=b%20c&sslmode=require")
    wanted = {"user": "me", "password": "p@ss", "host": "db1,db2", "port": "5433,", "dbname": "telemetry"}
    assert address.parameters.items() >= (wanted | {"sslmode": "require"}).items()
    assert (address.schema, address.stream, address.is_unsafe) == ("a", "b c", False)
    assert address.location("b c") == "postgresql://db1,db2/telemetry?schema=a&stream=b%20c"
    assert "p@ss" not in repr(address)
    socket_place = ServerAddress.of("postgresql:///test?host=/var/run").location("s")
    assert socket_place == "postgresql:///test?schema=fcstream&stream=s&host=/var/run"
    assert ServerAddress.of("postgres://[::1]:5432/x").parameters["host"] == "::1"


def test_a_missing_client_is_named():
    code = (
        "import sys\nsys.modules['psycopg'] = None\nfrom fcstream.errors import ConfigError\n"
        "from fcstream.ledgers import open_ledger\nfrom fcstream.testing import LedgerContract\n"
        "try:\n    open_ledger('postgresql://h/d', LedgerContract.terms)\nexcept ConfigError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[postgresql]'" in done.stdout


# -- several processes -------------------------------------------------------------------------------------------------


def together(work, url, count=8):
    """Run `work(url, k)` in processes at the same time; what each returned."""
    with multiprocessing.get_context("fork").Pool(count) as pool:
        return pool.starmap(work, [(url, k) for k in range(count)], 1)


SHARED = Terms("stream", "stream", PrivacyLoss.cap("40", "1e-6"), "specification", PrivacyLoss.cap("60", "1e-6"))


def exhaust(url, k):
    """Grants until a block refuses: two blocks of 100 charges each, 150 in total."""
    granted = 0
    with contextlib.closing(open_ledger(url, SHARED)) as ledger:
        for block in ("left", "right"):
            for index in itertools.count():
                key = window(1_000_000 * k + (500_000 if block == "right" else 0) + index)
                if not ledger.charge([Request(key, LOSS, (block,))])[0].charge:
                    break
                granted += 1
    return granted


def test_processes_on_one_budget_grant_exactly_what_it_holds(postgres):
    assert sum(together(exhaust, postgres.url)) == 150
    with contextlib.closing(postgres.open(None)) as ledger:
        assert ledger.spent("left") == LOSS * 100
        assert ledger.spent("right") == LOSS * 50
        assert ledger.spent("total") == LOSS * 150
        assert ledger.verify() == 150


RACED = 25


def race(url, k):
    """Answer the same windows as everybody else; which answers of this process were taken."""
    taken = {}
    with contextlib.closing(open_ledger(url, TERMS)) as ledger:
        for index in range(RACED):
            result = ledger.charge([Request(window(index), LOSS, (str(index),))])[0]
            if not (result.charge or result.interrupted):
                continue
            body = b"drawn by %d" % k if result.charge else b"interrupted"
            try:
                ledger.seal([SealedRelease(window(index), body)])
            except LedgerError as error:
                if "final" not in str(error):
                    raise
                continue
            taken[index] = body
            ledger.acknowledge([window(index)])
    return taken


def test_processes_racing_for_the_same_windows_publish_each_once(postgres):
    answers = together(race, postgres.url)
    assert sorted(index for taken in answers for index in taken) == list(range(RACED))
    with contextlib.closing(postgres.open(None)) as ledger:
        kinds = [row.kind for row in ledger.rows()]
        assert [kinds.count(kind) for kind in ("charge", "seal", "acknowledge")] == [RACED] * 3
        assert kinds.count("again") <= RACED
        sealed = {row.open_ms // 60_000: row.body for row in ledger.rows() if row.kind == "seal"}
        assert sealed == {index: body for taken in answers for index, body in taken.items()}
        assert all(loss == LOSS for _, loss in ledger.charges())
        ledger.verify()


def test_the_second_of_two_draws_is_refused_before_it_leaves(postgres):
    with contextlib.closing(postgres.open()) as one, contextlib.closing(postgres.open()) as two:
        assert charged(one, 0)
        assert charged(two, 0).is_redraw
        two.seal([SealedRelease(window(0), b"two")])
        with pytest.raises(LedgerError, match=r"window 0 is sealed in .*: its answer is final"):
            one.seal([SealedRelease(window(1), b"not this one either"), SealedRelease(window(0), b"one")])
        assert one.unacknowledged() == [(window(0), b"two")]
        assert charged(one, 1)
        assert one.verify() == 4


def test_a_stream_that_somebody_keeps_locked(postgres):
    with contextlib.closing(postgres.open()) as ledger, postgres.db.transaction():
        postgres.sql("SELECT FROM {s}.streams FOR UPDATE")
        ledger._session.db.execute("SET lock_timeout = '50ms'")
        with pytest.raises(LedgerInUse, match="kept the stream locked"):
            charged(ledger, 0)
    with contextlib.closing(postgres.open()) as ledger:
        assert charged(ledger, 0)


def test_a_fork_may_not_use_its_parents_ledger(postgres):
    ledger = postgres.open()
    pid = os.fork()
    if pid == 0:
        try:
            charged(ledger, 0)
        except LedgerError as error:
            ledger.close()
            session, ledger = ledger._session, None
            session.__del__()
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    backend = ledger._session.db.info.backend_pid
    assert charged(ledger, 0)
    assert ledger._session.db.info.backend_pid == backend  # the child ended nothing
    ledger.close()


def test_a_child_that_ends_takes_nothing_from_its_parent(postgres):
    code = """
import os, sys, warnings
from fcstream.ledgers import open_ledger
from fcstream.testing import LedgerContract
ledger = open_ledger(sys.argv[1], LedgerContract.terms)
backend = ledger._session.db.info.backend_pid
if os.fork() == 0:
    del ledger  # an ordinary end: finalizers run
    sys.exit(0)
os.wait()
ledger.spent()
assert ledger._session.db.info.backend_pid == backend
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, postgres.url], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# -- faults ------------------------------------------------------------------------------------------------------------


def story(ledger):
    """A life of some windows, with every kind of verdict, on blocks or on users."""
    is_user = ledger.terms.unit == "user"
    keys = np.array(sorted(user_key(b"salt", name) for name in "abcdef"), "S16")

    def request(index):
        return Request(window(index), LOSS, (), keys[index:]) if is_user else Request(window(index), LOSS, ("b", "c"))

    said = []
    for group in [[0], [1], [2, 1]]:
        for result in ledger.charge([request(index) for index in group]):
            taken = None if result.admitted is None else result.admitted.tolist()
            said.append((result.charge and result.charge.is_redraw, result.refusal is None, result.interrupted, taken))
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
    for table in ("streams", "journal", "windows", "blocks", "users"):
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
    ("terms", "fault"),
    [(TERMS, "cut"), (USERS, "cut"), (TERMS, "40001"), (USERS, "40P01")],
    ids=lambda value: getattr(value, "unit", value),
)
def test_a_fault_at_any_statement_changes_nothing(postgres, terms, fault):
    """The server ends the session, or a conflict is found: the call is done again, and its outcome is the same."""
    said, journal = expected(postgres, terms)
    lay_fuse(postgres)
    burns = 0
    for at in itertools.count(1):
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
    never gets it, and nobody is told.
    """

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
    monkeypatch.setattr("fcstream.ledgers.postgres.connection._ANSWER_S", 0.3 if how == "silent" else 60)
    said, journal = expected(postgres, terms)
    proxy = Proxy(postgres.server)
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
    tables = ("streams", "journal", "windows", "blocks", "users")
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
