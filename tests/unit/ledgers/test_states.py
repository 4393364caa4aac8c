"""What windows leave for later ones: in no journal, report or export, and gone where a stream is retired."""

import pytest
from click.testing import CliRunner
from support.embedded_ledgers import TERMS
from support.postgres import charged

from fcstream.accounting.losses import PrivacyLoss
from fcstream.cli import main
from fcstream.ledgers.base import EpochState, Request, SealedRelease
from fcstream.ledgers.retired_streams import retire
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import window

SECRET = b"left 4711 for later"


def sealed(ledger, count=2, *, leaves=True):
    for index in range(count):
        ledger.charge([Request(window(index), PrivacyLoss.charge("0.1"), (str(index),))])
        states = [EpochState("", 0, 60_000 * index, SECRET)] if leaves else []
        ledger.seal_with_states([SealedRelease(window(index), b"{}")], states)


def test_journal_and_reports_hold_no_state(tmp_path):
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS)
    sealed(ledger)
    assert SECRET.hex() not in str(ledger.rows())
    assert str(SECRET) not in str(ledger.rows())
    assert str(SECRET) not in repr(EpochState("", 0, 0, SECRET))
    assert ledger.verify() == 4
    ledger.close()
    for command in (["verify"], ["show", "--json"], ["releases"], ["export", str(tmp_path / "out.json")]):
        shown = CliRunner().invoke(main, ["budget", command[0], f"sqlite:{path}", *command[1:]])
        assert SECRET not in shown.stdout_bytes
    for file in tmp_path.glob("out*"):
        assert SECRET not in file.read_bytes()
        assert SECRET.hex().encode() not in file.read_bytes()


def test_a_damaged_state_is_left_out(tmp_path):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    sealed(ledger, 3)
    ledger._file.db.execute("UPDATE states SET body = x'00' WHERE open_ms = 60000")
    assert ledger.epoch_states("", 0) == [(0, SECRET), (120_000, SECRET)]
    ledger.close()


def test_what_is_forgotten_is_overwritten(tmp_path):
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS)
    sealed(ledger)
    ledger.forget_states("", 1)
    ledger.close()  # merges the log into the file
    assert SECRET not in path.read_bytes()


def files_of(path):
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize("size", [20, 3_000, 200_000])  # of a row, of a page, of many
def test_the_last_window_of_an_epoch_leaves_no_byte(tmp_path, size):
    """Exact totals of a stream's last epoch stayed in the file, and those of earlier ones in its log."""
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS)
    parts = [b"<%06d exact total>" % i for i in range(size // 20 + 1)]
    for index in range(4):
        ledger.charge([Request(window(index), PrivacyLoss.charge("0.1"), (str(index),))])
        body = b"" if index == 3 else b"".join(parts)
        ledger.seal_with_states([SealedRelease(window(index), b"{}")], [EpochState("", 0, 60_000 * index, body)])
        assert any(part in files_of(path) for part in parts) == (index < 3)
    assert ledger.epoch_states("", 0) == []
    ledger.close()
    assert not any(part in files_of(path) for part in parts)


def test_the_last_window_of_an_epoch_leaves_no_row_on_a_server(postgres):
    """Its bytes lie in dead rows until the table is written anew, as the documents say."""
    ledger = postgres.open()
    sealed(ledger, 3)
    charged(ledger, 3)
    ledger.seal_with_states([SealedRelease(window(3), b"{}")], [EpochState("", 0, 180_000, b"")])
    assert postgres.sql("SELECT count(*) FROM {s}.states") == [(0,)]
    postgres.sql("VACUUM FULL {s}.states")
    postgres.sql("CHECKPOINT")
    found = "SELECT position(%b in pg_read_binary_file(pg_relation_filepath('{s}.states')))"
    assert postgres.sql(found.replace("%b", f"'\\x{SECRET.hex()}'::bytea")) == [(0,)]
    ledger.close()


def test_retiring_a_stream_deletes_its_states(tmp_path):
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS)
    sealed(ledger)
    ledger.close()
    retire(f"sqlite:{path}", TERMS.stream)
    assert SECRET not in path.read_bytes()


def test_a_stream_on_a_server_keeps_and_loses_its_states(postgres):
    first, second = postgres.open(), postgres.open()
    assert postgres.sql("SELECT to_regclass('{s}.states')") == [(None,)]
    sealed(first)
    assert second.epoch_states("", 0) == [(0, SECRET), (60_000, SECRET)]
    charged(second, 2)
    second.seal_with_states([SealedRelease(window(2), b"{}")], [EpochState("", 0, 120_000, SECRET)])
    with pytest.raises(Exception, match="final"):
        first.seal_with_states([SealedRelease(window(2), b"{}")], [EpochState("", 0, 120_000, b"other")])
    assert first.epoch_states("", 0)[2:] == [(120_000, SECRET)]
    postgres.sql("UPDATE {s}.states SET body = 'x' WHERE open_ms = 0")
    assert len(first.epoch_states("", 0)) == 2
    assert first.verify() > 0
    first.close()
    second.close()
    retire(postgres.url, TERMS.stream)
    assert postgres.sql("SELECT count(*) FROM {s}.states") == [(0,)]


def test_a_seal_that_is_repeated_after_a_lost_connection_stores_once(postgres):
    ledger = postgres.open()
    charged(ledger, 0)
    token = ledger._token()
    ledger._calls -= 1  # both calls have the token of one
    state = [EpochState("", 0, 0, SECRET)]
    ledger.seal_with_states([SealedRelease(window(0), b"{}")], state)
    ledger._calls -= 1
    ledger.seal_with_states([SealedRelease(window(0), b"{}")], state)
    assert ledger._instance == token[:16]
    assert ledger.epoch_states("", 0) == [(0, SECRET)]
    ledger.close()
