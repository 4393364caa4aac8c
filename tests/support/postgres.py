"""The PostgreSQL server of this machine."""

import contextlib
import itertools
import os

import pytest

from fcstream.connectors.postgres.sink import PostgresSink
from fcstream.connectors.urls import parse
from fcstream.ledgers.base import Request
from fcstream.testing import LedgerContract, window
from support.filled_ledgers import fill_blocks

TERMS = LedgerContract.terms
LOSS = LedgerContract.loss
USERS = LedgerContract.users_terms
URL = os.environ.get("FCSTREAM_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/test")
PLACES = ["postgresql://127.0.0.1:5432/test", "postgresql:///test?host=/var/run/postgresql"]
NAMES = itertools.count()


@pytest.fixture(scope="session")
def postgres_url():
    """URL of a server that answers."""
    required = os.environ.get("FCSTREAM_REQUIRE_SERVICES") == "1"
    reason = "psycopg is not installed"
    with contextlib.suppress(ImportError):
        import psycopg

        for url in [os.environ["FCSTREAM_POSTGRESQL"]] if "FCSTREAM_POSTGRESQL" in os.environ else PLACES:
            try:
                psycopg.connect(url, connect_timeout=30).close()
            except psycopg.OperationalError as error:
                reason = f"no PostgreSQL server answers (FCSTREAM_POSTGRESQL names one): {error}"
            else:
                return url
    if required:
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresSchema:
    """A schema of its own, and a connection beside the ledger's."""

    def __init__(self, server):
        import psycopg

        self.server = server
        self.schema = f"fcstream_test_{os.getpid()}_{next(NAMES)}"
        self.url = f"{server}{'&' if '?' in server else '?'}schema={self.schema}&application_name={self.schema}"
        self.db = psycopg.connect(server, autocommit=True)

    def sql(self, text, *values):
        """Rows of a statement on the schema's tables; none if it returns none."""
        cursor = self.db.execute(text.replace("{s}", self.schema), values or None)
        return cursor.fetchall() if cursor.description else []

    def open(self, terms=LedgerContract.terms, **options):
        from fcstream.ledgers.postgres.ledger import PostgresLedger

        return PostgresLedger(self.url + "".join(f"&{name}={value}" for name, value in options.items()), terms)

    def cut_sessions(self):
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", self.schema)

    def draws(self):
        return self.sql("SELECT stream, open_ms, draws FROM {s}.windows ORDER BY 1, 2")


@pytest.fixture
def postgres(postgres_url):
    schema = PostgresSchema(postgres_url)
    yield schema
    schema.cut_sessions()
    schema.sql("DROP SCHEMA IF EXISTS {s} CASCADE")
    schema.db.close()


def charged(ledger, index, *blocks, loss=LOSS):
    return ledger.charge([Request(window(index), loss, blocks or (str(index),))])[0].charge


def filled(place, n=4, terms=TERMS):
    with contextlib.closing(place.open(terms)) as ledger:
        fill_blocks(ledger, n)


class ReleaseTable:
    """A table's place, and a connection beside the sink's."""

    def __init__(self, server):
        import psycopg

        self.server = server
        self.name = f"releases_{os.getpid()}_{next(NAMES)}"
        self.schema = f"fcstream_sinks_{os.getpid()}"
        self.url = f"{server}{'&' if '?' in server else '?'}schema={self.schema}&table={self.name}"
        self.db = psycopg.connect(server, autocommit=True)

    def sink(self, patience_s=60.0, url=None):
        return PostgresSink(parse(url or self.url, "sink.url"), patience_s)

    def query(self, text, *values):
        return self.db.execute(text.format(f"{self.schema}.{self.name}"), values).fetchall()

    def bodies(self):
        return [row[0].encode() for row in self.query("SELECT body::text FROM {} ORDER BY written_at, window_open_ms")]

    def cut_connections(self):
        """What a restart of the server does to its clients."""
        return self.query(
            "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE application_name = %s", self.name
        )
