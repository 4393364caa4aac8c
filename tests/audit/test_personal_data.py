"""Who has every byte that a stream leaves behind cannot tell whether somebody named took part."""

import base64
import hashlib
import http.client
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from support.helpers import counting_job, free_port, ledger_of, rows, sample

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import EpochState, SealedRelease, WindowKey
from fcstream.ledgers.sqlite import tables
from fcstream.ledgers.user_key import UserKeyPlace, derived
from fcstream.stream.contributions import user_key

NAMES = ["Ana Mar\u00eda Quiroga", "zacharias.thorne@example.org", "device-7f93c1"]
ABSENT = ["Wilhelmina Ochs", "b.k.rasmussen@example.org", "device-0000aa"]
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None, "rho": 1.0}
KEYS = {"key": "site", "keys": ["a", "b"], "key_budgets": "shared", "keys_per_user": 2}
USERS = {"unit": "user", "user": "who"}


def digests(name, keys):
    """A name as text, and everything that hashes make of it, without a key and under each that somebody may have."""
    data = name.encode()
    yield data
    yield name.encode("utf-16-le")
    found = [hashlib.new(kind, data).digest() for kind in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s")]
    found += [user_key(key, name) for key in (b"", *keys)]
    for digest in found:
        yield from (digest[:16], digest[:16].hex().encode(), digest[:16].hex().upper().encode())
        yield base64.b64encode(digest[:15])


def traces(data, names, keys=()):
    """The names of which some bytes hold a trace."""
    return {name for name in names if any(trace in data for trace in digests(name, keys))}


def pieces_of(data):
    """Every 32 and 16 bytes that a dump shows in hex or as they are: who tries names would take each for a key."""
    found = {bytes.fromhex(text.decode()) for text in re.findall(rb"[0-9a-f]{32,128}", data) if len(text) % 2 == 0}
    return [piece[:size] for piece in found for size in (16, 32, 64)]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'l.db'}"
    return request.getfixturevalue("postgres").url


def rows_of(url, request):
    """All rows of all tables, as a dump tells them."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url[7:])) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
    postgres = request.getfixturevalue("postgres")
    found = postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = '{s}'")
    return {name: postgres.sql(f"SELECT * FROM {{s}}.{name}") for (name,) in found}


def dump_of(url, request):
    """The file with its log, or every value of every table: text as UTF-8, bytes as they are and in hex."""
    values = [value for table in rows_of(url, request).values() for row in table for value in row]
    found = [bytes(v) if isinstance(v, bytes | memoryview) else str(v).encode() for v in values]
    data = b"\n".join([*found, *(value.hex().encode() for value in found)])
    if url.startswith("sqlite:"):
        data += b"".join(path.read_bytes() for path in Path(url[7:]).parent.iterdir() if path.suffix != ".user-key")
    return data


def played(url, names, keys, seed=1):
    """Run a stream of users to its end."""
    stream = USERS | (KEYS if keys else {})
    ledger = ledger_of(url)
    config = Config.from_mapping(sample(stream=stream, release=COUNT, budget={"rho": 90.0}, ledger=ledger))
    with (KeyedEngine if keys else Engine)(config, noise=Noise(SeededEntropy(seed))) as engine:
        times = [5 + 10_000 * (i % 3) for i in range(len(names))]
        sites = [["a", "b"][i % 2] for i in range(len(names))]
        engine.push(times, rows(len(names)), *([sites] if keys else []), ids=names)
        engine.close()
    return config


@pytest.mark.parametrize("keys", [False, True], ids=["one answer", "shared keys"])
def test_a_backup_confirms_nobody(url, keys, request):
    """The attacker has the ledger, every value in it as a key, and the key that another stream had yesterday."""
    config = played(url, NAMES * 4, keys)
    data = dump_of(url, request)
    tried = [*pieces_of(data), derived(b"\x0f" * 31 + b"\x10", "t"), b"yesterday".ljust(32, b"\0")]
    assert traces(data, NAMES + ABSENT, tried) == set()
    place = UserKeyPlace.of(url, config.ledger.user_key)
    secret = place.read()
    if keys:
        assert secret is not None
        assert traces(data, NAMES, [derived(secret, "t"), secret]) == set()  # nor who has the key besides
        assert secret not in data
        assert secret.hex().encode() not in data
        assert derived(secret, "t").hex().encode() not in data


def test_the_attack_finds_a_hash_that_is_there(url, request):
    """What it would find: a state of an epoch with users under the ledger's own salt, as ledgers had them."""
    config = played(url, NAMES, False)
    ledger = open_ledger(url, config.job.terms)
    window = WindowKey(10**9, 10**9 + 10_000)
    state = EpochState("", 0, window.open_ms, user_key(ledger.salt, NAMES[1]))
    ledger.seal_with_states([SealedRelease(window, b"{}")], [state])
    ledger.close()
    data = dump_of(url, request)
    assert traces(data, NAMES + ABSENT, pieces_of(data)) == {NAMES[1]}
    assert traces(b"x" + NAMES[0].encode(), NAMES) == {NAMES[0]}


@pytest.mark.parametrize("keys", [False, True], ids=["one answer", "shared keys"])
def test_other_names_leave_the_same_ledger(keys, tmp_path, monkeypatch, request):
    """Two streams that differ in who took part, with the same noise: byte for byte the same tables."""
    monkeypatch.setattr(tables, "SystemEntropy", lambda: SeededEntropy(3))
    found = []
    for folder, names in (("here", NAMES), ("there", ABSENT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "l.db.user-key").write_text("0f" * 32)
        (tmp_path / folder / "l.db.user-key").chmod(0o600)
        url = f"sqlite:{tmp_path / folder / 'l.db'}"
        played(url, names * 4, keys)
        found.append(rows_of(url, request))
    assert found[0] == found[1]
    assert len(found[0]["journal"]) > 6


def posted(port, body, path="/ingest", kind="application/x-ndjson"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        return connection.getresponse().status
    finally:
        connection.close()


def until(condition, seconds=90):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_what_a_service_leaves_behind(tmp_path):
    """A real run over HTTP, bad records and a restart: the spool alone held a name, until its windows were sealed."""
    port, listen = free_port(), free_port()
    usual = {
        "stream": USERS | KEYS,
        "source": {"url": f"http://127.0.0.1:{port}", "spool": "spool"},
        "ledger": {"url": "sqlite:l.db"},
        "dead_letter": {"url": "jsonl:dead.jsonl"},
        "service": {"listen": f"127.0.0.1:{listen}", "counters": True, "values": True, "page": True, "log": "json"},
        "window": {"clock": "broker", "length": "1s", "lateness": "1s"},
        "budget": {"rho": 90000.0},
    }
    (tmp_path / "c.toml").write_text(counting_job(time.time_ns() // 10**9, usual))
    errors, seen = [], b""
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "fcstream", "run", "c.toml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        try:
            until(lambda: answers(port))
            now = time.time_ns() // 10**6
            good = [{"ts_ms": now, "a": 20.0, "who": name, "site": site} for name in NAMES for site in "ab"]
            bad = [
                good[0] | {"ts_ms": "x"},
                good[1] | {"a": NAMES[0]},
                good[2] | {"site": NAMES[1]},
                good[3] | {"ts_ms": 1},
            ]
            lines = [json.dumps(each, ensure_ascii=False).encode() for each in good + bad]
            assert posted(port, b"\n".join([*lines, b'{"who": "' + NAMES[2].encode()])) == 204
            seen += spool_of(tmp_path)
            until(lambda now=now: sealed(tmp_path) > now + 1000)
            pages = [fetched(listen, path) for path in ("/metrics", "/ready", "/live", "/")]
            process.send_signal(signal.SIGTERM)
            errors.append(process.communicate(timeout=120)[1])
            assert process.returncode == 0, errors
        finally:
            process.kill()
    assert traces(seen, NAMES) == set(NAMES)  # a spool holds what was sent
    place = UserKeyPlace.of(f"sqlite:{tmp_path / 'l.db'}", None)
    secret = place.read()
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".user-key"]
    assert {"dead.jsonl", "out.jsonl", "l.db", "l.db-witness"} <= {path.name for path in left}
    assert (tmp_path / "dead.jsonl").read_bytes().count(b"\n") >= 6
    told = {str(path): path.read_bytes() for path in left} | {"log": "".join(errors).encode(), "pages": b"".join(pages)}
    keys = [derived(secret, "live"), secret]
    assert {name: traces(data, NAMES, keys) for name, data in told.items() if traces(data, NAMES, keys)} == {}
    assert all(path.stat().st_mode & 0o077 == 0 for path in left if path.name not in ("c.toml", "out.jsonl"))


def answers(port):
    try:
        return posted(port, b"") > 0
    except OSError:
        return False


def fetched(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.read()


def spool_of(folder):
    return b"".join(path.read_bytes() for path in (folder / "spool").iterdir() if path.is_file())


def sealed(folder):
    """The opening of the newest window that was published."""
    path = folder / "out.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return max((json.loads(line)["window_open_ms"] for line in lines), default=0)
