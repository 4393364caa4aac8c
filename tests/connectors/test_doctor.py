"""``fcstream doctor`` against real servers: a healthy service, and one thing broken at a time."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.helpers import sample, service
from support.http_in import serving
from support.kafka_mock import mock
from support.rabbitmq import STREAMS, publish
from support.schema_registry import schema_registry

from fcstream.config import Config
from fcstream.connectors import probes
from fcstream.connectors.probes import Finding
from fcstream.engine.engine import Engine
from fcstream.engine.keyed import KeyedEngine
from fcstream.service import doctor
from fcstream.service.doctor import examine

SECRET = "s3cretWord"
MANY = {"window": {"length": "1m", "lateness": "10s", "clock": "broker", "end": None, "start": "2026-01-01T00:00:00Z"}}


def look(**changes):
    """Findings for the sample as a live stream, with changes; none tells a secret."""
    mapping = sample(**MANY)
    mapping["ledger"] = {"url": "sqlite:ledger.db"}
    mapping["source"] = {"url": "redis://127.0.0.1:6379/0?stream=none"}
    mapping["sink"] = {"url": "jsonl:out.jsonl"}
    for name, section in changes.items():
        mapping[name] = {**mapping.get(name, {}), **section}
    if mapping["release"].get("kind") != "mean":
        mapping["release"].pop("outliers", None)
    found = examine(lambda: Config.from_mapping(mapping))
    assert SECRET not in "\n".join(map(str, found))
    assert "could not be looked at" not in "\n".join(map(str, found))
    return found


def said(found, check, level):
    return [f"{each.what}; {each.remedy}" for each in found if (each.check, each.level) == (check, level)]


def problem(check, text, **changes):
    """That thing is a problem, and everything else is none."""
    found = look(**changes)
    problems = [each for each in found if each.level == "problem"]
    assert [each.check for each in problems] == [check], "\n".join(map(str, found))
    assert text in str(problems[0])
    assert problems[0].remedy
    return found


def warning(check, text, **changes):
    found = look(**changes)
    assert not [each for each in found if each.level == "problem"], "\n".join(map(str, found))
    assert any(text in line for line in said(found, check, "warning")), "\n".join(map(str, found))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probes, "PATIENCE_S", 1.0)


# -- healthy -----------------------------------------------------------------------------------------------------------


def test_a_service_that_runs_is_healthy_and_is_not_disturbed(running_service):
    running_service.start()
    running_service.send(30)
    running_service.wait_for(max(running_service.sent))
    command = [sys.executable, "-m", "fcstream", "doctor", "c.toml", "--json"]
    before = running_service.redis.hgetall(f"fcstream:{running_service.key}:positions")
    length = running_service.redis.xlen(running_service.key)
    done = subprocess.run(command, cwd=running_service.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [Finding(**each) for each in json.loads(done.stdout)]
    assert {each.level for each in told} <= {"ok", "warning"}
    lines = "\n".join(map(str, told))
    for line in (
        f"ok: source: stream {running_service.key} can be read up to id ",
        "ok: ledger: ledger.db-witness is there",
        f"ok: ledger: ledger.db is held by process {running_service.process.pid}",
        "ok: budget: stream 'live', event: (rho=50, delta=0) spent of (rho=50, delta=0); runs out never: every pane",
        "ok: clock: Redis is ",
        f"ok: service: 127.0.0.1:{running_service.port} is served by a running fcstream",
        "ok: dead letters: dead.jsonl can be appended to",
    ):
        assert line in lines
    assert running_service.redis.xlen(running_service.key) == length
    assert running_service.redis.hgetall(f"fcstream:{running_service.key}:positions").keys() >= before.keys()
    running_service.send(30)
    running_service.wait_for(max(running_service.sent))
    assert running_service.end(signal.SIGTERM)[0] == 0
    running_service.check()


def test_timestamps_ahead_of_the_brokers_clock_are_a_problem(redis_client):
    key = "fcstream-doctor-ahead"
    redis_client.xadd(key, {"data": b"{}"}, id="9999999999999-0")
    try:
        problem("clock", "the broker's timestamps run", source={"url": f"redis://127.0.0.1:6379/0?stream={key}"})
    finally:
        redis_client.delete(key)


def test_a_look_leaves_nothing_behind(redis_client, tmp_path):
    url = "redis://127.0.0.1:6379/0?stream=fcstream-doctor-test"
    problems = [each for each in look(source={"url": url}, sink={"url": url + "-out"}) if each.level == "problem"]
    assert problems == []
    assert redis_client.exists("fcstream-doctor-test", "fcstream-doctor-test-out", "fcstream:fcstream-t:positions") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_the_only_finding(tmp_path):
    Path("c.toml").write_text("[stream")
    done = subprocess.run([sys.executable, "-m", "fcstream", "doctor", "c.toml"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout.startswith("problem: configuration: c.toml is not TOML")
    assert len(done.stdout.splitlines()) == 1


# -- Redis -------------------------------------------------------------------------------------------------------------


def test_a_schema_registry_is_asked_whether_it_is_there():
    with schema_registry() as (url, server):
        avro = {"format": "avro", "registry": url.replace("://", f"://user:{SECRET}@")}
        found = look(source=avro)
        assert said(found, "schemas", "ok") == [f"the schema registry {url.replace('://', '://***@')} answers; "]
        server.login = "somebody:else"
        found = look(source=avro)
        assert "answers with status 401" in said(found, "schemas", "problem")[0]
        assert server.asked == ["/schemas/types"] * 2
    found = look(source=avro)
    assert "cannot be reached" in said(found, "schemas", "problem")[0]


def test_redis_that_is_not_there():
    url = f"redis://me:{SECRET}@127.0.0.1:1/0?stream=k"
    found = problem("source", "redis://***@127.0.0.1:1/0?stream=k cannot be reached", source={"url": url})
    assert not said(found, "clock", "problem")


def test_redis_without_rights_or_room(private_redis):
    it = private_redis()
    with it.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@all", "-hdel", "-xadd")
        client.set("text", "x")
        client.xadd("k", {"data": b"x"})
    login = f"redis://reader:{SECRET}@{it.host}/0?stream="
    problem("source", "refuses: NoPermissionError", source={"url": login + "k"})
    problem("sink", "does not take entries: NoPermissionError", sink={"url": login + "out"})
    problem("source", "refuses: WRONGTYPE", source={"url": f"redis://{it.host}/0?stream=text"})
    problem("sink", "its key holds a string", sink={"url": f"redis://{it.host}/0?stream=text"})
    problem("source", "refuses: AuthenticationError", source={"url": f"redis://other:{SECRET}@{it.host}/0?stream=k"})
    with it.client() as client:
        client.config_set("maxmemory", "1")
    problem("sink", "does not take entries: O", sink={"url": f"redis://{it.host}/0?stream=out"})


def test_redis_that_trims_too_much_or_forgets(private_redis):
    it = private_redis()
    url = {"url": f"redis://{it.host}/0?stream=k"}
    with it.client() as client:
        for _ in range(5):
            client.xadd("k", {"data": b"x"})
        found = look(source=url)
        assert not any("were removed" in line for line in said(found, "source", "warning"))
        client.xtrim("k", maxlen=2, approximate=False)
    warning("source", "entries of stream k were removed, and the oldest left is ", source=url)
    warning("source", "does not write entries to disk at once (appendonly no)", source=url)
    with it.client() as client:
        client.config_set("appendonly", "yes")
    assert not any("appendonly" in line for line in said(look(source=url), "source", "warning"))


def test_a_clock_that_is_wrong(monkeypatch, redis_client):
    real = time.time_ns
    for shift_s, level in ((0.0, "ok"), (-3.0, "warning"), (5.0, "warning"), (70.0, "problem")):
        monkeypatch.setattr(probes.time, "time_ns", lambda shift_s=shift_s: real() + int(shift_s * 1e9))
        found = look()
        assert any(line.startswith("Redis is ") for line in said(found, "clock", level)), (shift_s, found)
    (told,) = (line for line in said(found, "clock", "problem") if line.startswith("Redis is "))
    assert "behind" in told
    lag_ms = float(re.search(r"Redis is ([\d.]+) ms", told)[1])  # half of the time that the answer took is in it
    assert 60_000 < lag_ms < 80_000


# -- other systems -----------------------------------------------------------------------------------------------------


def test_nats(nats_server, nats_stream):
    url = f"nats://{nats_server.host}/{nats_stream}?bucket={nats_stream}"
    sink = {"url": f"nats://{nats_server.host}/{nats_stream}?subject={nats_stream}"}
    found = look(source={"url": url}, sink=sink)
    assert [each for each in found if each.level == "problem"] == []
    names = nats_server.ask(lambda _, js: js.streams_info())
    assert f"KV_{nats_stream}" not in [each.config.name for each in names]
    assert nats_server.js("stream_info", nats_stream).state.consumer_count == 0
    problem("source", "stream not found", source={"url": f"nats://{nats_server.host}/nowhere"})
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream], max_age=30)
    problem("source", "keeps messages for 30s, a window and its lateness take 70s", source={"url": url})
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream], max_age=100)
    warning("source", "keeps messages for 100s", source={"url": url})
    nats_server.js("delete_stream", nats_stream)
    nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream], retention="workqueue")
    problem("source", "give it the retention policy 'limits'", source={"url": url})


def test_kafka(monkeypatch):
    pytest.importorskip("confluent_kafka")
    import confluent_kafka

    monkeypatch.setattr(probes, "PATIENCE_S", 5.0)
    with mock() as (address, _):
        producer = confluent_kafka.Producer({"bootstrap.servers": address})
        producer.produce("there", b"x")
        assert producer.flush(10) == 0
        found = look(source={"url": f"kafka://{address}/there"}, sink={"url": f"kafka://{address}/there"})
        assert [each for each in found if each.level == "problem"] == [], "\n".join(map(str, found))
        assert any("topic there has 4 partitions" in line for line in said(found, "source", "ok"))
    monkeypatch.setattr(probes, "PATIENCE_S", 1.0)
    problem(
        "source", "did not answer for 1 s", source={"url": f"kafka://me:{SECRET}@127.0.0.1:1/t?security=sasl_plaintext"}
    )


def test_mqtt_and_its_spool(tmp_path):
    service("MQTT", lambda: socket.create_connection(("127.0.0.1", 1883), 2).close())
    url = {"url": "mqtt://127.0.0.1/fcstream/doctor", "spool": "spool"}
    found = look(source=url, sink={"url": "mqtt://127.0.0.1/fcstream/doctor-out"})
    assert [each for each in found if each.level == "problem"] == []
    assert "spool will be made, with mode 0700; " in said(found, "spool", "ok")
    assert not Path("spool").exists()
    named = "mqtt://127.0.0.1/fcstream/doctor?delivery_id=id&arrival=sent"  # user properties, as the source takes them
    assert any(f"{named} answers" in line for line in said(look(source={**url, "url": named}), "source", "ok"))
    shared = look(source={**url, "url": "mqtt://127.0.0.1/$share/g/fcstream/doctor"})
    assert any("not tried: subscribing" in line for line in said(shared, "source", "ok"))
    assert any("`max_queued_messages` (1000" in line for line in said(shared, "source", "ok"))
    assert any("keeps its share" in line for line in said(shared, "source", "warning"))
    problem("spool", "source.spool is missing", source={"url": url["url"]})
    warning("spool", "GiB are free, it may grow by", source={**url, "spool_bytes": 2**50})
    Path("spool").mkdir(mode=0o755)
    problem("spool", "holds records and may be read by others", source=url)
    Path("spool").chmod(0o700)
    Path("spool/00000000000000000000.rows").write_bytes(b"xyz")
    problem("spool", "chmod 600 its files", source=url)
    Path("spool/00000000000000000000.rows").chmod(0o600)
    assert any("holds 3 bytes" in line for line in said(look(source=url), "spool", "ok"))
    problem("source", "cannot be used: Connection refused", source={**url, "url": f"mqtt://me:{SECRET}@127.0.0.1:1/t"})


def test_amqp():
    pika = pytest.importorskip("pika")
    connection = service(
        "RabbitMQ", lambda: pika.BlockingConnection(pika.URLParameters("amqp://guest:guest@127.0.0.1/"))
    )
    channel, name = connection.channel(), f"fcstream-doctor-{os.getpid()}"
    channel.queue_declare(name)
    channel.queue_declare(f"{name}-letters")
    channel.basic_publish("", name, b"x")
    url = f"amqp://guest:guest@127.0.0.1/?queue={name}"
    dead_letters = {"url": f"{url}-letters"}
    try:
        found = look(source={"url": url, "spool": "spool"}, sink={"url": url}, dead_letter=dead_letters)
        assert [each for each in found if each.level == "problem"] == [], "\n".join(map(str, found))
        assert f"queue {name} has 1 messages and 0 consumers; not tried: consuming; " in said(found, "source", "ok")
        assert len(said(found, "sink", "ok")) == len(said(found, "dead letters", "ok")) == 1
        assert channel.queue_declare(name, passive=True).method.message_count == 1
        assert channel.basic_get(name)[0].redelivered is False
    finally:
        channel.queue_delete(name)
        channel.queue_delete(f"{name}-letters")
        connection.close()
    problem("source", "queue", source={"url": url, "spool": "spool"})
    problem("dead letters", "queue", dead_letter=dead_letters)
    wrong = url.replace("guest:guest", f"guest:{SECRET}")
    problem("sink", "correct the address", sink={"url": wrong})


def test_rabbitmq_streams(rabbitmq_stream):
    publish(rabbitmq_stream, [b"x"] * 3)
    url = f"rabbitmq-stream://guest:guest@{STREAMS}/?stream={rabbitmq_stream}"
    found = look(source={"url": url}, sink={"url": url})
    assert [each for each in found if each.level == "problem"] == [], "\n".join(map(str, found))
    assert any(line.startswith(f"stream {rabbitmq_stream} ends at offset 3") for line in said(found, "source", "ok"))
    assert len(said(found, "sink", "ok")) == 1
    problem("source", "nowhere", source={"url": url + "-nowhere"})


def test_an_amqp_url_that_names_a_stream_is_refused_as_run_refuses_it(rabbitmq_stream):
    url = f"amqp://guest:guest@127.0.0.1/?queue={rabbitmq_stream}"
    problem("source", "must not name a stream", source={"url": url, "spool": "spool"})


def test_dead_letters_to_a_broker(private_redis):
    it = private_redis()
    url = f"redis://{it.host}/0?stream=letters"
    with it.client() as client:
        client.xadd("letters", {"data": b'{"reason":"late"}'})
        assert any("takes entries" in line for line in said(look(dead_letter={"url": url}), "dead letters", "ok"))
        client.config_set("maxmemory", "1")
    problem("dead letters", "does not take entries", dead_letter={"url": url})
    problem("dead letters", "or begin with one of amqp", dead_letter={"url": "http://127.0.0.1/"})


@pytest.fixture
def database():
    psycopg = pytest.importorskip("psycopg")
    name = f"doctor_{os.getpid()}"
    where = "host=127.0.0.1 dbname=test user=postgres"
    db = service("PostgreSQL", lambda: psycopg.connect(where, autocommit=True))
    db.execute(f"CREATE ROLE {name} LOGIN")
    db.execute(f"CREATE SCHEMA {name}")
    yield db, name
    db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    db.execute(f"DROP SCHEMA IF EXISTS {name}_l CASCADE")
    db.execute(f"DROP ROLE {name}")
    db.close()


def test_postgresql_as_a_sink(database):
    db, name = database
    ours = f"postgresql://postgres:{SECRET}@127.0.0.1/test?schema={name}&table="
    theirs = ours.replace("//postgres:", f"//{name}:")
    assert any("table t will be made" in line for line in said(look(sink={"url": ours + "t"}), "sink", "ok"))
    problem("sink", "may not use schema", sink={"url": theirs + "t"})
    db.execute(f"GRANT USAGE ON SCHEMA {name} TO {name}")
    problem("sink", "may not make table t", sink={"url": theirs + "t"})
    assert db.execute("SELECT to_regclass(%s)", (f"{name}.t",)).fetchone() == (None,)
    from fcstream.connectors import open_sink

    open_sink(ours + "t").close()
    assert any("table t takes rows" in line for line in said(look(sink={"url": ours + "t"}), "sink", "ok"))
    db.execute(f"GRANT SELECT ON {name}.t TO {name}")
    problem("sink", "may not use table t; grant it INSERT", sink={"url": theirs + "t"})
    db.execute(f"ALTER TABLE {name}.t ALTER body TYPE jsonb USING body::jsonb")
    problem("sink", "of type json or text", sink={"url": ours + "t"})
    problem("sink", "Connection refused", sink={"url": f"postgresql://me:{SECRET}@127.0.0.1:1/test"})


def test_postgresql_as_a_ledger(database, monkeypatch):
    _, name = database
    monkeypatch.setenv("DOCTOR_PASSWORD", SECRET)
    ours = {"url": f"postgresql://postgres:${{DOCTOR_PASSWORD}}@127.0.0.1/test?schema={name}_l&unsafe=yes"}
    theirs = {"url": ours["url"].replace("//postgres:", f"//{name}:")}
    assert any("will be made" in line for line in said(look(ledger=ours), "ledger", "ok"))
    problem("ledger", "may not be made by this login", ledger=theirs)
    mapping = sample(**MANY)
    for name in ("t", "other"):
        mapping["stream"]["name"], mapping["ledger"] = name, ours
        engine = Engine(mapping)
        engine.close()
    found = look(ledger=ours)
    assert any("event: (rho=0" in line for line in said(found, "budget", "ok"))
    assert any("the ledger's PostgreSQL is" in line for line in said(found, "clock", "ok"))
    problem("ledger", "may not be used by this login", ledger=theirs)
    problem("ledger", "a cap that was promised cannot grow", ledger=ours, budget={"rho": 5.0, "delta": 1e-6})
    third = look(ledger=ours, stream={"name": "third"})
    assert any("will be added" in line for line in said(third, "ledger", "ok"))
    monkeypatch.delenv("DOCTOR_PASSWORD")
    problem("ledger", "names the variable DOCTOR_PASSWORD, which is not set", ledger=ours)


def test_a_webhook_and_a_system_without_a_probe():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = look(sink={"url": f"http://me:{SECRET}@127.0.0.1:{port}/{SECRET}"})
        assert said(found, "sink", "ok") == [
            f"http://127.0.0.1:{port} answers; not tried: a request, because any POST would be a release; "
        ]
    problem("sink", "cannot be reached: Connection refused", sink={"url": f"http://127.0.0.1:1/{SECRET}"})


def test_a_receiver_over_http(tmp_path):
    window = {**MANY["window"], "clock": "wall"}
    with serving(tmp_path) as source:  # its own spool is in another folder
        url = f"http://127.0.0.1:{source.port}"
        found = look(source={"url": url, "spool": "s"}, window=window)
        assert "the stream runs already" in said(found, "source", "ok")[0]
        assert source.queue.refused == {}
    found = look(source={"url": url, "spool": "s"}, window=window)
    assert "is free to listen at; any program of this machine may send" in said(found, "source", "ok")[0]
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"http://127.0.0.1:{other.getsockname()[1]}"
        problem("source", "another process listens there", source={"url": taken, "spool": "s"}, window=window)
    token = f"http://0.0.0.0:{source.port}?token={SECRET}-and-more-of-it"
    warning("source", "not encrypted", source={"url": token, "spool": "s"}, window=window)
    problem("source", "must have a `token`", source={"url": "http://0.0.0.0:0", "spool": "s"}, window=window)
    problem("spool", "spool is missing", source={"url": url}, window=window)


# -- files, budget, machine --------------------------------------------------------------------------------------------


def test_files_that_cannot_be_written():
    problem("sink", "the folder of nowhere/out.jsonl does not exist", sink={"url": "jsonl:nowhere/out.jsonl"})
    problem("dead letters", "does not exist", dead_letter={"url": "jsonl:nowhere/dead.jsonl"})
    problem("ledger", "is no folder that this user may write to", ledger={"url": "sqlite:nowhere/l.db"})
    Path("out.jsonl").mkdir()
    problem("sink", "out.jsonl cannot be read and written")
    Path("dead.jsonl").touch(mode=0o644)
    Path("out.jsonl").rmdir()
    warning("dead letters", "is open to others", dead_letter={"url": "jsonl:dead.jsonl"})


def spent_ledger(windows=3):
    """A ledger with room for three windows, some of them charged."""
    changes = {"stream": {"unit": "stream"}, "budget": {"rho": 3.0, "delta": 1e-6}, "release": {"kind": "count"}}
    mapping = sample(**{**changes, "window": {"end": "1970-01-01T00:00:30Z"}})
    mapping["ledger"] = {"url": "sqlite:ledger.db"}
    mapping["window"]["end"] = f"1970-01-01T00:00:{10 * windows}Z"
    engine = Engine(mapping)
    engine.close()
    section = {"length": "10s", "lateness": "0s", "start": "1970-01-01T00:00:00Z", "clock": "broker"}
    return {**changes, "window": section}


def test_budgets_that_run_out():
    changes = spent_ledger(2)
    found = look(**changes)
    assert any("after 1 more windows" in line for line in said(found, "budget", "warning")), "\n".join(map(str, found))
    assert any("2 releases were sealed and not acknowledged" in line for line in said(found, "ledger", "warning"))
    Path("ledger.db").unlink()
    Path("ledger.db-witness").unlink()
    found = problem("budget", "every further window is refused", **spent_ledger(3))
    assert any("spent of (rho=3" in line for line in said(found, "budget", "problem"))


def test_every_key_has_a_budget():
    keys = [f"k{i}" for i in range(6)]
    changes = {
        "stream": {"unit": "stream", "key": "site", "keys": keys},
        "budget": {"rho": 12.0, "delta": 1e-6},
        "release": {"kind": "count"},
    }
    mapping = sample(**{**changes, "window": {"end": "1970-01-01T00:00:20Z"}})
    mapping["ledger"] = {"url": "sqlite:ledger.db"}
    engine = KeyedEngine(mapping, keys=keys[:5])
    engine.close()
    engine.abort()
    section = {"length": "10s", "lateness": "0s", "start": "1970-01-01T00:00:00Z", "clock": "broker"}
    found = look(**changes, window=section)
    assert said(found, "ledger", "ok")[-1] == "stream 't/k5' will be added by the first run; "
    told = [line for level in ("ok", "warning", "problem") for line in said(found, "budget", level)]
    assert [line[:12] for line in told] == [f"stream 't/{key}" for key in keys[:5]], told


def test_ledgers_that_were_changed_or_put_back():
    changes = spent_ledger(1)
    shutil.copy("ledger.db", "older")
    spent_ledger(2)
    Path("ledger.db").chmod(0o644)
    assert any("chmod 600 ledger.db" in line for line in said(look(**changes), "ledger", "warning"))
    problem("ledger", "restore `budget`", **{**changes, "budget": {"rho": 4.0, "delta": 1e-6}})
    problem("ledger", "another specification", **{**changes, "lattice": {"step": 0.002}})
    shutil.copy("older", "ledger.db")
    problem("ledger", "older copy", **changes)
    Path("ledger.db").unlink()
    problem("ledger", "is missing", **changes)
    Path("ledger.db-witness").unlink()
    Path("ledger.db").write_bytes(b"something else" * 400)
    problem("ledger", "ledger.db", **changes)


def test_the_port_and_the_limits(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0.1)
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(doctor, "_is_ours", lambda *_: False)
        problem("service", "cannot be used: Address already in use", service={"listen": place})
    problem("service", "must be HOST:PORT", service={"listen": "9100"})
    warning("service", "keep /metrics from the public", service={"counters": True})
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    warning("service", "[service]'", service={"listen": place})
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    problem("service", "[service]'", service={"listen": place})
    monkeypatch.setitem(sys.modules, "structlog", None)
    problem("service", "[service]'", service={"log": "json"})
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (256, 256))
    warning("limits", "at most 256 files may be open")


@pytest.mark.parametrize(
    ("check", "text", "changes"),
    [
        ("configuration", "window.clock = 'wall' needs a source with a spool", {"window": {"clock": "wall"}}),
        ("configuration", "is for brokers", {"source": {"url": "jsonl:data.jsonl"}}),
        ("source", "[redis]'", {}),
        ("plan", "`fcstream plan` says what would do", {"release": {"size_hint": 3}}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_configurations_that_cannot_work(check, text, changes, monkeypatch):
    Path("data.jsonl").touch()
    if check == "source":
        monkeypatch.setitem(sys.modules, "redis", None)
    problem(check, text, **changes)


@pytest.mark.parametrize(
    ("check", "text", "changes"),
    [
        ("source", "must be 'jsonl:PATH' or 'csv:PATH'", {"source": {"url": "cvs:x.csv"}}),
        ("source", "got 'rediss2://***@h'", {"source": {"url": f"rediss2://u:{SECRET}@h"}}),
        ("sink", "or begin with one of amqp", {"sink": {"url": f"rediss2://u:{SECRET}@127.0.0.1:6379/0"}}),
        ("sink", "got 'jsnol'", {"sink": {"url": "jsnol:out.jsonl"}}),
        ("sink", "must be 'jsonl:PATH'", {"sink": {"url": "jsonl:"}}),
        ("dead letters", "or begin with one of amqp", {"dead_letter": {"url": "redis2://127.0.0.1:6379/0"}}),
        ("dead letters", "must be 'jsonl:PATH'", {"dead_letter": {"url": "jsonl:-"}}),
        ("ledger", "got scheme 'sqlit'", {"ledger": {"url": "sqlit:ledger.db"}}),
        ("ledger", "got scheme 'mysql'", {"ledger": {"url": f"mysql://u:{SECRET}@h/d"}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_schemes_that_run_refuses_are_problems(check, text, changes, redis_client):
    """It said ok, or something of a client or a host, since the scheme was not looked at."""
    found = look(**changes)
    problems = [each for each in found if each.level == "problem"]
    assert [each.check for each in problems] == [check], "\n".join(map(str, found))
    assert text in str(problems[0])
    assert not said(found, check, "ok")


def test_a_budget_of_users_that_ran_out_is_a_problem():
    """It was a warning: windows went on to be answered without whoever had been there before."""
    changes = {"stream": {"unit": "user", "user": "who"}, "budget": {"rho": 3.0, "delta": 1e-6}}
    changes["release"] = {"kind": "count"}
    mapping = sample(**{**changes, "window": {"end": "1970-01-01T00:00:30Z"}})
    mapping["ledger"] = {"url": "sqlite:ledger.db"}
    Engine(mapping).close()
    window = {"length": "10s", "lateness": "0s", "start": "1970-01-01T00:00:00Z", "clock": "broker"}
    for exhausted, text in (
        (None, "every further window is refused"),
        ("refuse", "every further window is refused"),
        ("stop", "every further run ends at once"),
    ):
        problem("budget", text, **{**changes, "budget": {**changes["budget"], "exhausted": exhausted}}, window=window)
