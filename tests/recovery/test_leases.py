"""One process at a time answers a stream: leases with a deadline, which the ledger's own transactions check."""

import contextlib
import secrets
import threading
import time

import pytest
from support.helpers import service
from support.postgres import URL as SERVER
from support.proxy import Proxy

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerError
from fcstream.ledgers import Request, SealedRelease, Terms, WindowKey, open_ledger
from fcstream.ledgers.postgres import statements

psycopg = pytest.importorskip("psycopg")
lead = pytest.importorskip("fcstream.ledgers.postgres.leader")
TERMS = Terms("s", "event", PrivacyLoss.cap(1, 0), "")
LOSS = PrivacyLoss.cap(0.1, 0)


@pytest.fixture
def url():
    schema = f"fcstream_test_{secrets.token_hex(6)}"
    with contextlib.closing(service("PostgreSQL", lambda: psycopg.connect(SERVER, autocommit=True))) as db:
        yield f"{SERVER}?schema={schema}"
        db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(lead, "LEASE_S", 3.0)
    monkeypatch.setattr(lead, "_RENEW_S", 0.3)
    monkeypatch.setattr(lead, "_ANSWER_S", 1.0)


def request(opens):
    return Request(WindowKey(opens, opens + 1), LOSS, (f"w{opens}",))


def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def stand_in(url):
    """Another process that waits for the lease."""
    return contextlib.closing(lead.PostgresLease(url, "s"))


def test_only_one_has_it_and_it_is_renewed_for_longer_than_it_lasts(url, short):
    with stand_in(url) as one, stand_in(url) as two:
        assert one.acquire()
        end = time.monotonic() + 1.5 * lead.LEASE_S
        while time.monotonic() < end:
            assert not two.acquire()
            one.check()
            time.sleep(0.1)


def test_who_ends_or_is_killed_is_replaced_at_once(url, monkeypatch):
    monkeypatch.setattr(lead, "LEASE_S", 120.0)
    with stand_in(url) as one, stand_in(url) as two, stand_in(url) as three:
        assert one.acquire()
        assert not two.acquire()
        one.close()
        until(two.acquire)
        two._session.run(lambda db: (two._closing.set(), db.close()))  # what the kernel does for a killed process
        until(three.acquire)


def test_a_holder_behind_a_silent_network_is_replaced_at_the_deadline_and_knows_it(url, short):
    with Proxy(5432) as proxy:
        through = url.replace(":5432", f":{proxy.port}")
        with stand_in(through) as cut_off, stand_in(url) as other:
            assert cut_off.acquire()
            with contextlib.closing(open_ledger(cut_off.bind(through), TERMS)) as ledger:
                ledger.charge([request(0)])
                proxy.is_silent = True
                until(other.acquire)
                assert raises(cut_off.check)  # it knew before
                proxy.is_silent = False
                with pytest.raises(LedgerError, match="another process serves this stream"):
                    ledger.charge([request(1)])


def test_a_holder_that_was_replaced_can_neither_charge_nor_seal_nor_acknowledge(url, short):
    with stand_in(url) as one, stand_in(url) as two:
        assert one.acquire()
        with contextlib.closing(open_ledger(one.bind(url), TERMS)) as mine:
            mine.charge([request(0), request(1)])
            mine.seal([SealedRelease(WindowKey(0, 1), b"{}", PrivacyLoss())])
            one._closing.set()  # it renews no more, as if it was stopped
            one._renewer.join()
            until(two.acquire)
            for change in (
                lambda: mine.charge([request(2)]),
                lambda: mine.seal([SealedRelease(WindowKey(1, 2), b"{}", PrivacyLoss())]),
                lambda: mine.acknowledge([WindowKey(0, 1)]),
            ):
                with pytest.raises(LedgerError, match="another process serves this stream"):
                    change()
            with contextlib.closing(open_ledger(two.bind(url), TERMS)) as theirs:
                assert not theirs.charge([request(2)])[0].refusal
                assert theirs.summary().get("acknowledged", 0) == 0
                theirs.verify()


def test_a_holder_that_was_replaced_cannot_charge_a_group(url, short):
    terms = Terms("s", "stream", PrivacyLoss.cap(0.25, 0), "{}", group="fleet")
    charge = [Request(WindowKey(k, k + 1), LOSS, ("stream",)) for k in range(3)]
    with stand_in(url) as one, stand_in(url) as two:
        assert one.acquire()
        with contextlib.closing(open_ledger(one.bind(url), terms)) as mine:
            mine.charge(charge[:1])
            one._closing.set()  # it renews no more, as if it was stopped
            one._renewer.join()
            until(two.acquire)
            with pytest.raises(LedgerError, match="another process serves this stream"):
                mine.charge(charge[1:2])
            with contextlib.closing(open_ledger(two.bind(url), terms)) as theirs:
                assert [found.refusal is None for found in theirs.charge(charge[1:])] == [True, False]
                theirs.verify()


def test_it_is_not_taken_while_a_transaction_of_its_holder_is_under_way(url, short):
    with stand_in(url) as one, stand_in(url) as two:
        assert one.acquire()
        with contextlib.closing(open_ledger(one.bind(url), TERMS)) as mine:
            taken = threading.Event()
            taker = threading.Thread(target=lambda: (until(two.acquire), taken.set()))

            def slow(db):
                with db.transaction():
                    statements.charge(db, mine._schema, mine._token(), [mine._last_row], [[request(0)]])
                    one._closing.set()
                    taker.start()
                    assert not taken.wait(1.5 * lead.LEASE_S)

            mine._session.run(slow)
            assert taken.wait(60)
            taker.join()
            with contextlib.closing(open_ledger(two.bind(url), TERMS)) as theirs:
                assert theirs.charges() == [(WindowKey(0, 1), LOSS)]


def raises(check):
    try:
        check()
    except LedgerError:
        return True
    return False
