"""The shared ledger against a real server: FCSTREAM_POSTGRESQL, or one on this machine; skipped where none answers."""

import contextlib
import itertools
import multiprocessing
import os
import random
import subprocess
import sys
import traceback

import pytest
from support.postgres import LOSS, TERMS, USERS, charged, filled

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window

SECRET = "s3cretWord"


class TestPostgres(LedgerContract):
    @pytest.fixture(autouse=True)
    def _place(self, postgres):
        self.place = postgres

    def make(self, terms, tmp_path):
        return open_ledger(self.place.url, terms)


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
    assert ledger.summary() == {"charged": 1, "sealed": 2, "acknowledged": 1, "blocks": 5}
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
            *(v.window, v.spent, v.charge and (v.charge.loss, v.charge.is_redraw), v.interrupted),
            v.refusal and (str(v.refusal), v.refusal.remaining),
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

    def request(index):
        loss = PrivacyLoss.charge(draw.choice(["0.1", "0.3", "0.7", "1.2"]), draw.choice(["0", "1e-9", "4e-7"]))
        blocks = (unit,) if unit != "event" else tuple(str(index + k) for k in range(draw.randint(1, 3)))
        return Request(window(index), loss, blocks)

    for _ in range(150):
        some = [draw.randrange(25) for _ in range(draw.randint(0, 3))]
        call = draw.choice(["charge", "charge", "seal", "acknowledge", "spent", "last_sealed", "unacknowledged"])
        values = ()
        if call == "charge":
            values = ([request(index) for index in some],)
        elif call == "seal":
            refund = PrivacyLoss.charge(draw.choice(["0", "0.05", "0.2"]))
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
    assert postgres.sql("SELECT seq, digest FROM {s}.streams") == [(head.seq, head.digest)]
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


def test_a_window_that_is_not_the_last_gets_its_refund(postgres):
    """Users knew their last window only, so that what an earlier one had not used was lost."""
    with contextlib.closing(postgres.open(USERS)) as one, contextlib.closing(postgres.open(USERS)) as two:
        one.charge([Request(window(0), LOSS, ("user",))])
        two.charge([Request(window(1), LOSS, ("user",))])
        one.seal([SealedRelease(window(0), b"answer", LOSS)])
        assert one.spent() == LOSS
        two.seal([SealedRelease(window(1), b"answer", LOSS)])
        assert one.spent() == PrivacyLoss()
        assert one.verify() == 4


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


@pytest.mark.slow
def test_a_missing_client_is_named():
    code = (
        "import sys\nsys.modules['psycopg'] = None\nfrom fcstream.errors import ConfigError\n"
        "from fcstream.ledgers import open_ledger\nfrom fcstream.testing import LedgerContract\n"
        "try:\n    open_ledger('postgresql://h/d', LedgerContract.terms)\nexcept ConfigError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[postgresql]'" in done.stdout


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
        with pytest.raises(LedgerError, match=r"window 0 is sealed in .*: its release is final"):
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
