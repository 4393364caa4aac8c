"""Ledgers of earlier versions open, stand up to a check, and their streams go on where they were."""

import json
import shutil

import pytest
from click.testing import CliRunner
from support.upgrades import (
    JOBS,
    KEPT,
    WINDOW_MS,
    dump_postgres,
    dump_sqlite,
    fill,
    open_engine,
    push,
    restore_postgres,
    restore_sqlite,
    schema_lines,
)

from fcstream import Release
from fcstream.cli import main

VERSIONS = sorted(path.name for path in KEPT.iterdir())


def kept(version, name):
    return (KEPT / version / name).read_text()


def published(version, job):
    return [Release.from_bytes(line.encode()) for line in kept(version, f"{job}.jsonl").splitlines()]


def check_goes_on(version, job, url):
    """What was published stays, what was only sealed is returned once more, and the next window costs what it costs."""
    before = published(version, job)
    last = max(release.window_close_ms for release in before)
    engine = open_engine(job, url)
    try:
        waiting = {release.to_bytes() for release in engine.unpublished()}
        assert waiting == {release.to_bytes() for release in before if release.window_close_ms > last - WINDOW_MS}
        spent = engine.spent
        push(engine, job, 0)  # replayed
        assert engine.replayed > 0
        assert engine.advance(last) == []
        push(engine, job, 2)  # of which sliding windows need the second half
        push(engine, job, 3)
        after = engine.advance(4 * WINDOW_MS + 1)
        assert {release.status for release in after} == {"released"}
        assert min(release.window_open_ms for release in after) > max(release.window_open_ms for release in before)
        assert engine.spent.rho_nano >= spent.rho_nano
        engine.acknowledge()
        return [release.to_bytes() for release in [*before, *after]]
    finally:
        engine.abort()


def check_reads_well(url, job, lines):
    """The command reads it: the chain holds, and every release is printed as it was published."""
    printed = []
    for stream in ("keyss/a", "keyss/b") if job == "keys" else (f"{job}s",):
        verified = CliRunner().invoke(main, ["budget", "verify", url, "--stream", stream])
        assert verified.exit_code == 0, verified.output
        printed += CliRunner().invoke(main, ["budget", "releases", url, "--stream", stream]).stdout_bytes.splitlines()
        shown = CliRunner().invoke(main, ["budget", "show", url, "--stream", stream, "--json"])
        assert json.loads(shown.stdout)
    assert sorted(printed) == sorted(lines)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_ledger_file_of_an_earlier_version_goes_on(version, job, tmp_path):
    url = f"sqlite:{tmp_path / 'ledger.db'}"
    restore_sqlite(kept(version, f"{job}.sql"), tmp_path / "ledger.db")
    check_reads_well(url, job, check_goes_on(version, job, url))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ledger_in_postgresql_of_an_earlier_version_goes_on(version, postgres):
    restore_postgres(kept(version, "postgresql.sql"), postgres.db, postgres.schema)
    for job in JOBS:
        check_reads_well(postgres.url, job, check_goes_on(version, job, postgres.url))


CHANGED = "the form has changed: keep ledgers of the last version that wrote the old one, and let it be read"


@pytest.mark.parametrize("job", JOBS)
def test_kept_ledger_files_have_the_form_that_is_written_now(job, tmp_path):
    fill(job, f"sqlite:{tmp_path / 'ledger.db'}")
    assert schema_lines(dump_sqlite(tmp_path / "ledger.db")) == schema_lines(kept(VERSIONS[-1], f"{job}.sql")), CHANGED


def test_kept_ledgers_in_postgresql_have_the_form_that_is_written_now(postgres):
    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    fill("stream", postgres.url)
    now = dump_postgres(postgres.server, postgres.schema)
    postgres.sql("DROP SCHEMA {s} CASCADE")
    restore_postgres(kept(VERSIONS[-1], "postgresql.sql"), postgres.db, postgres.schema)
    assert schema_lines(now) == schema_lines(dump_postgres(postgres.server, postgres.schema)), CHANGED
