"""Ledgers of earlier versions are refused as they are: in them users may have spent more than the public block."""

import pytest
from support.helpers import sample
from support.upgrades import JOBS, KEPT, VERSIONS, restore_postgres, restore_sqlite

from fcstream.config import Config
from fcstream.errors import LedgerMismatch
from fcstream.ledgers import open_ledger, open_reader

TOLD = (
    "is of an earlier version, which kept budgets of single users: take another ledger; what both cost somebody adds up"
)
USERS = {"stream": {"name": "users", "unit": "user", "user": "id"}}


def terms(**changes):
    return Config.from_mapping(sample(**(USERS | changes))).job.terms


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_an_earlier_version_is_refused_and_stays_as_it_is(version, job, tmp_path):
    path = tmp_path / "l.db"
    restore_sqlite((KEPT / version / f"{job}.sql").read_text(), path)
    whole, url = path.read_bytes(), f"sqlite:{path}"
    for call in (
        lambda: open_ledger(url, terms()),
        lambda: open_ledger(url, terms(budget={"group": "fleet"})),
        lambda: open_reader(url, f"{job}s"),
    ):
        with pytest.raises(LedgerMismatch, match=TOLD):
            call()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("version", VERSIONS)
def test_a_schema_of_an_earlier_version_is_refused(version, postgres):
    restore_postgres((KEPT / version / "postgresql.sql").read_text(), postgres.db, postgres.schema)
    before = postgres.sql("SELECT stream, seq, chain FROM {s}.streams ORDER BY stream")
    for call in (
        lambda: open_ledger(postgres.url, terms()),
        lambda: open_ledger(postgres.url, terms(budget={"group": "fleet"})),
        lambda: open_reader(postgres.url, "users"),
    ):
        with pytest.raises(LedgerMismatch, match=TOLD):
            call()
    assert postgres.sql("SELECT stream, seq, chain FROM {s}.streams ORDER BY stream") == before
