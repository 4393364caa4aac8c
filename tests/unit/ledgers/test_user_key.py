"""The key under which users' names are hashed lies outside of the ledger, and a wrong one is found before a charge."""

import os
import stat
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner
from support.helpers import rows, sample

from fcstream import ConfigError, DiscoveringEngine, Engine, KeyedEngine, LedgerError, LedgerMismatch
from fcstream.cli import main
from fcstream.config import Config
from fcstream.ledgers import each_reader, open_reader
from fcstream.ledgers.user_key import SETTING
from fcstream.service.doctor import examine

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None, "rho": 1.0}
SHARED = {"key": "site", "keys": ["a", "b"], "unit": "user", "user": "who", "keys_per_user": 1, "key_budgets": "shared"}
DIGITS = "a1" * 32


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request, tmp_path):
    """The section of a ledger, with the key in a file."""
    if request.param == "sqlite":
        return {"url": f"sqlite:{tmp_path / 'l.db'}", "user_key": None}
    return {"url": request.getfixturevalue("postgres").url, "user_key": f"file:{tmp_path / 'l.db.user-key'}"}


def config_of(ledger, stream=SHARED, **sections):
    found = {name: value for name, value in ledger.items() if value is not None}
    sections = {"budget": {"rho": 90.0}} | sections
    return Config.from_mapping(sample(stream=stream, release=COUNT, ledger=found, **sections))


def run(config, names=("ann", "bob")):
    with KeyedEngine(config) as engine:
        engine.push([5] * len(names), rows(len(names)), ["a"] * len(names), ids=list(names))
        return engine.close()


def charges(url):
    with closing(each_reader(url)) as readers:
        return [len(reader.rows()) for reader in readers]


def test_the_first_run_makes_it_and_later_ones_use_it(ledger, tmp_path):
    path = tmp_path / "l.db.user-key"
    config = config_of(ledger)
    assert len(run(config)) == 2 * config.job.schedule.count
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(path.read_text())) == 32
    before = path.read_bytes(), charges(ledger["url"])
    run(config)
    assert (path.read_bytes(), charges(ledger["url"])) == before
    assert [file.name for file in tmp_path.iterdir() if "user-key" in file.name] == [path.name]
    with closing(each_reader(ledger["url"])) as readers:
        for reader in readers:
            assert reader.verify() > 0
    path.unlink()  # what looks at a ledger needs no key
    assert CliRunner().invoke(main, ["budget", "verify", ledger["url"]]).exit_code == 0
    assert CliRunner().invoke(main, ["budget", "show", ledger["url"]]).exit_code == 0


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (lambda path: path.unlink(), LedgerMismatch, "user-key is missing: users are known by it"),
        (lambda path: path.write_text(DIGITS), LedgerMismatch, "`ledger.user_key` is not the key of stream 't'"),
        (lambda path: path.write_text(DIGITS[1:]), ConfigError, "must hold 64 hexadecimal digits"),
        (lambda path: path.write_text(""), ConfigError, "must hold 64 hexadecimal digits"),
        (lambda path: path.write_bytes(b"\xff" * 64), ConfigError, "must hold 64 hexadecimal digits"),
        (lambda path: path.chmod(0o640), LedgerError, "can be read by others: chmod 600"),
        (lambda path: path.chmod(0o604), LedgerError, "can be read by others: chmod 600"),
        (lambda path: (path.unlink(), path.mkdir()), ConfigError, "must hold 64 hexadecimal digits"),
        (lambda path: (path.unlink(), os.mkfifo(path)), ConfigError, "must hold 64 hexadecimal digits"),
    ],
    ids=["missing", "another", "short", "empty", "binary", "group", "others", "folder", "pipe"],
)
def test_a_stream_does_not_start_with_another_or_an_open_one(ledger, damage, error, text, tmp_path):
    """Nothing is charged, and no message shows a digit of what is there."""
    config, path = config_of(ledger), tmp_path / "l.db.user-key"
    run(config)
    before = charges(ledger["url"])
    damage(path)
    with pytest.raises(error, match=text) as caught:
        KeyedEngine(config)
    assert "a1a1" not in str(caught.value)
    assert charges(ledger["url"]) == before
    finding = next(each for each in examine(lambda: config) if each.check == "user key")
    assert finding.level == "problem"
    with Engine(config_of(ledger, {"name": "other"})) as engine:  # the ledger was let go of
        engine.close()


def test_it_may_come_from_the_environment(ledger, monkeypatch):
    config = config_of(ledger | {"user_key": "env:USERS"})
    with pytest.raises(ConfigError, match=r"^ledger\.user_key: the environment variable USERS is not set"):
        KeyedEngine(config)
    for wrong in ("", "abc", "g" * 64, DIGITS + "00"):
        monkeypatch.setenv("USERS", wrong)
        with pytest.raises(ConfigError, match="the environment variable USERS must hold 64 hexadecimal digits"):
            KeyedEngine(config)
    monkeypatch.setenv("USERS", DIGITS)
    run(config)
    monkeypatch.setenv("USERS", DIGITS[::-1])
    with pytest.raises(LedgerMismatch, match="the environment variable USERS holds another"):
        KeyedEngine(config)


@pytest.mark.parametrize("wrong", ["", "file:", "env:", "secret", "vault:x", "env:A=B", "file:a\0b"])
def test_a_place_that_is_none_is_refused_with_the_configuration(wrong, tmp_path):
    with pytest.raises(ConfigError, match=r"^ledger\.user_key: must be 'file:PATH' or 'env:NAME'$"):
        assert config_of({"url": f"sqlite:{tmp_path / 'l.db'}", "user_key": wrong}).job


def test_a_server_keeps_none_so_it_must_be_named():
    with pytest.raises(ConfigError, match=r"^ledger\.user_key: is required with this ledger"):
        assert config_of({"url": "postgresql://host/database"}).job
    alone = {"unit": "user", "user": "who"}
    assert config_of({"url": "postgresql://host/database"}, alone).job.terms.unit == "user"  # remembers nobody


BEGINNING = """
import sys
from fcstream.ledgers.user_key import UserKeyPlace
sys.stdin.readline()
print(UserKeyPlace("file", sys.argv[1]).make().hex())
"""


def test_processes_that_begin_together_have_one(tmp_path):
    """The file is whole when it has its name."""
    command, pipe = [sys.executable, "-c", BEGINNING, str(tmp_path / "key")], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]
    for each in processes:
        each.stdin.write("\n")
        each.stdin.flush()
    keys = {each.communicate(timeout=60)[0].strip() for each in processes}
    assert len(keys) == 1
    assert keys != {""}
    assert os.listdir(tmp_path) == ["key"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(LedgerError, match="cannot be made: No such file or directory; put 64 hexadecimal digits"):
        KeyedEngine(config_of({"url": f"sqlite:{tmp_path / 'l.db'}", "user_key": f"file:{tmp_path / 'no' / 'key'}"}))


def test_a_link_is_followed_and_one_that_leads_nowhere_told(ledger, tmp_path):
    link, config = tmp_path / "l.db.user-key", config_of(ledger)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="user-key is a link to a file that is not there"):
        KeyedEngine(config)
    (tmp_path / "elsewhere").write_text(DIGITS)
    (tmp_path / "elsewhere").chmod(0o600)
    run(config)
    (tmp_path / "elsewhere").write_text(DIGITS[::-1])
    with pytest.raises(LedgerMismatch, match="holds another"):
        KeyedEngine(config)


def test_two_streams_know_a_user_by_different_hashes(ledger):
    found = []
    for name in ("t", "u"):
        with KeyedEngine(config_of(ledger, SHARED | {"name": name})) as engine:
            engine.push([5], rows(1), ["a"], ids=["ann"])
            found.append(engine.parts[0].users(0).tolist())
    assert len(found[0]) == len(found[1]) == 1
    assert found[0] != found[1]


def test_a_stream_that_remembers_nobody_has_none(tmp_path):
    """Its users are hashed under a key of the process, which draws another one at the next start."""
    config = config_of({"url": f"sqlite:{tmp_path / 'l.db'}"}, {"unit": "user", "user": "who"})
    found = []
    for _ in range(2):
        with Engine(config) as engine:
            engine.push([5], rows(1), ids=["ann"])
            found.append(engine.users(0).tolist())
    assert found[0] != found[1]
    assert not (tmp_path / "l.db.user-key").exists()
    with closing(open_reader(f"sqlite:{tmp_path / 'l.db'}")) as reader:
        assert reader.setting(SETTING) is None


def test_found_keys_have_the_same_key(ledger, tmp_path):
    stream = SHARED | {"keys": {"discover": "frequent", "every": "20s", "first": ["a"]}, "name": "found"}
    config = config_of(ledger, stream, budget={"rho": 90.0, "delta": 1e-6})
    with DiscoveringEngine(config) as engine:
        engine.close()
    (tmp_path / "l.db.user-key").write_text(DIGITS)
    with pytest.raises(LedgerMismatch, match="is not the key of stream 'found'"):
        DiscoveringEngine(config)
    (tmp_path / "l.db.user-key").unlink()
    finding = next(each for each in examine(lambda: config) if each.check == "user key")
    assert (finding.level, "is missing" in finding.what) == ("problem", True)


def test_it_stands_in_no_error_log_or_repr(tmp_path, caplog):
    config = config_of({"url": f"sqlite:{tmp_path / 'l.db'}"})
    with KeyedEngine(config) as engine:
        account = engine.parts[0].ledger._account
        shown = repr(engine) + repr(vars(engine)) + repr(account) + repr(engine.parts[0].ledger) + caplog.text
        for key in (account.secret, bytes.fromhex((tmp_path / "l.db.user-key").read_text())):
            assert key.hex() not in shown
            assert repr(key)[2:-1] not in shown
