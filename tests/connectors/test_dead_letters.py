"""Dead letters to every kind of broker, against real ones: all of them arrive, in order, and hold no content."""

import contextlib
import json
import os
import secrets
import threading
import time

import pytest
from click.testing import CliRunner
from support import kafka_mock
from support.helpers import free_port, sample, service
from support.memory_log import LogSource, Rig
from support.nats_server import HOST as NATS
from support.proxy import Proxy
from support.rabbitmq import HOST as AMQP
from support.rabbitmq import STREAMS, declared
from support.redis_server import HOST as REDIS
from support.redis_server import connect

from fcstream import Engine
from fcstream.cli import main
from fcstream.config import Config
from fcstream.connectors import dead_letters as letters_module
from fcstream.connectors import open_dead_letter, open_live
from fcstream.connectors.files import MIN_DEAD_LETTER_BYTES, DeadLetters
from fcstream.errors import ConfigError
from fcstream.formats.batch import Rejection
from fcstream.formats.payloads import decoder_for
from fcstream.service.context import SessionContext
from fcstream.service.supervisor import Supervisor

MQTT = os.environ.get("FCSTREAM_MQTT", "127.0.0.1:1883")
SECRET = "s3cretWord"
CONTENT = "sentinelContent"
REJECTIONS = [
    Rejection(reason, position, field)
    for position in range(700)
    for reason, field in (("broken_record", None), ("missing", "temperature"), ("late", None))
]


@contextlib.contextmanager
def kafka(request, name):
    pytest.importorskip("confluent_kafka")
    with kafka_mock.mock() as (address, _):
        yield f"kafka://{address}/{name}", f"kafka://{address}/{name}"


@contextlib.contextmanager
def redis(request, name):
    with contextlib.closing(connect()) as client:
        yield (f"redis://{REDIS}/0?stream={name}",) * 2
        client.delete(name)


@contextlib.contextmanager
def nats(request, name):
    pytest.importorskip("nats")
    found = request.getfixturevalue("nats_server")
    found.js("add_stream", name=name, subjects=[name])
    yield f"nats://{NATS}/{name}?subject={name}", f"nats://{NATS}/{name}"
    found.js("delete_stream", name)


@contextlib.contextmanager
def mqtt(request, name):
    pytest.importorskip("paho.mqtt.client")
    url = f"mqtt://{MQTT}/{name}"
    service("MQTT (FCSTREAM_MQTT names another host:port)", lambda: open_live(f"{url}?session=60", name).close())
    yield url, f"{url}?session=60"  # a session that lasts: it gets what comes from now on


@contextlib.contextmanager
def amqp(request, name):
    request.getfixturevalue("rabbitmq")
    with declared("quorum") as queue:
        yield (f"amqp://{AMQP}/?queue={queue}",) * 2


@contextlib.contextmanager
def rabbitmq_stream(request, name):
    request.getfixturevalue("rabbitmq_streams")
    with declared("stream") as stream:
        yield (f"rabbitmq-stream://{STREAMS}/?stream={stream}",) * 2


def read(url, name, is_all):
    """All that is there, message by message, until `is_all` of the lines."""
    found, until = [], time.monotonic() + 60
    with contextlib.closing(open_live(url, name)) as opened:
        while not is_all([line for body in found for line in body.splitlines()]) and time.monotonic() < until:
            if hasattr(opened, "poll"):
                found += [body for chunk in opened.poll(1000, 0.5) for body in chunk.bodies]
            else:
                received = opened.receive(1000, 0.5)
                found += [one.body for one in received]
                opened.acknowledge(received)
    return found


def position(line):
    return json.loads(line)["position"]


@pytest.mark.parametrize("place", [kafka, redis, nats, mqtt, amqp, rabbitmq_stream], ids=lambda place: place.__name__)
def test_every_rejection_arrives(request, tmp_path, place):
    """The same lines as in a file, in messages that no broker finds too large; all are there before `close`."""
    name = f"fcstream-test-{secrets.token_hex(6)}"
    with contextlib.closing(DeadLetters(str(tmp_path / "file.jsonl"))) as file:
        file.write(REJECTIONS)
    lines = (tmp_path / "file.jsonl").read_bytes().splitlines()
    with place(request, name) as (to, at), contextlib.closing(open_dead_letter(to)) as opened:
        opened.write([])
        opened.write(REJECTIONS)
        opened.write(REJECTIONS[:1])  # told again after a restart: there again
        bodies = read(at, name, lambda found: len(found) > len(lines))
    assert b"\n".join(bodies).splitlines() == lines + lines[:1]
    assert len(bodies) > 2
    assert all(len(body) <= letters_module.MESSAGE_BYTES for body in bodies)


def test_a_dead_letter_sink_that_goes_away_never_holds_up_the_stream(request, tmp_path, caplog):
    """Records are counted and windows released meanwhile, and the letters arrive when it is back: one whose receipt
    was not confirmed before may come again."""
    port, door = int(REDIS.partition(":")[2]), free_port()
    with redis(request, f"fcstream-test-{secrets.token_hex(6)}") as (to, at):
        rig = Rig(tmp_path)
        proxies = [Proxy(port, door=door)]
        dead_letters = open_dead_letter(f"{to.replace(REDIS, f'127.0.0.1:{door}')}&patience=0.1")
        dead_letters.write(REJECTIONS[:1])
        assert read(at, "reader", bool)
        proxies[0].close()
        setting = SessionContext(decoder_for("json", rig.config.job.schema), lambda: rig.clock.now_ms)
        service = Supervisor(
            lambda keys: Engine(rig.config, on_rejection=dead_letters.write),
            lambda: LogSource(rig.log),
            lambda: rig.sink,
            setting,
        )
        rig.send(0, [1, 2, 3])
        rig.send(0, [4], body=json.dumps({"ts_ms": CONTENT}).encode())
        rig.send(0, [5, 6])
        rig.clock.now_ms = 13_000  # the window is over
        service.run(lambda it: it.stop() if rig.log.committed[0] == 6 else None)
        assert service.counters.restarts == 0
        assert [round(release.count) for release in rig.sink.releases] == [5]
        until = time.monotonic() + 60
        while "dead letters: " not in caplog.text and time.monotonic() < until:
            time.sleep(0.05)
        assert "the stream goes on without them" in caplog.text
        proxies.append(Proxy(port, door=door))
        bodies = read(at, "reader", lambda found: 3 in map(position, found))
        dead_letters.close()
        proxies[-1].close()
        assert dead_letters.lost == 0
        assert list(dict.fromkeys(position(line) for body in bodies for line in body.splitlines())) == [0, 3]
        assert CONTENT.encode() not in b"".join(bodies)


def test_a_dead_letter_sink_that_is_away_is_reported_and_losses_are_counted(request, caplog, monkeypatch):
    monkeypatch.setattr(letters_module, "_CLOSE_S", 60.0)
    door = free_port()
    with redis(request, f"fcstream-test-{secrets.token_hex(6)}") as (to, _):
        away = to.replace("redis://", f"redis://u:{SECRET}@").replace(REDIS, f"127.0.0.1:{door}")
        opened = open_dead_letter(f"{away}&patience=0.1")
        assert "dead letters: redis://***@127.0.0.1" in caplog.text
        goes_on, connect, waits = threading.Event(), opened._open, []
        opened._open = lambda: (waits.append(goes_on.wait(60)), connect())[1]
        opened.write([])
        for _ in range(letters_module.MAX_WAITING // len(REJECTIONS) + 10):
            opened.write(REJECTIONS)
        goes_on.set()
        assert len(opened._waiting) <= letters_module.MAX_WAITING
        assert opened.lost >= 5 * len(REJECTIONS)
        opened.close()
        opened.close()
        assert all(waits)  # the connection waited for `write`, which did not wait for it
        assert opened.lost == len(REJECTIONS) * (letters_module.MAX_WAITING // len(REJECTIONS) + 10)
    assert SECRET not in caplog.text


def test_dead_letters_in_files_keep_to_their_limit_and_hold_the_newest(tmp_path):
    path, most = tmp_path / "dead.jsonl", MIN_DEAD_LETTER_BYTES
    with contextlib.closing(DeadLetters(str(path), most)) as dead_letters:
        for start in range(0, 60_000, 3_000):
            dead_letters.write([Rejection("out_of_range", start + i, "temperature") for i in range(3_000)])
            held = sum(file.stat().st_size for file in tmp_path.iterdir())
            assert held <= most
        assert {file.name for file in tmp_path.iterdir()} == {"dead.jsonl", "dead.jsonl.1"}
        assert dead_letters.lost == 0
    lines = [*(tmp_path / "dead.jsonl.1").read_text().splitlines(), *path.read_text().splitlines()]
    positions = [json.loads(line)["position"] for line in lines]
    assert positions == list(range(60_000 - len(positions), 60_000))
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())


def test_a_disk_that_takes_no_dead_letters_never_stops_the_engine(tmp_path, caplog):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    dead_letters = DeadLetters(str(tmp_path / "dead.jsonl"))
    os.dup2(os.open("/dev/full", os.O_RDWR), dead_letters._file._fd)
    engine = Engine(Config.from_mapping(sample()), on_rejection=dead_letters.write)
    engine.push([1, 2], [[20.0, 50.0], [9e9, 50.0]])
    assert engine.rejected == {"out_of_range": 1}
    assert len(engine.close()) == 6
    assert dead_letters.lost == 1
    dead_letters.close()
    assert "cannot be written" in caplog.text
    assert "the stream goes on without them" in caplog.text


def test_the_command_sends_them_too(request, tmp_path):
    lines = ['{"ts_ms": 1, "a": 20.0, "b": 50.0}', CONTENT, '{"ts_ms": 2, "a": 20.0}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    count = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None}
    config = sample(
        release=count,
        source={"url": f"jsonl:{tmp_path}/in.jsonl"},
        sink={"url": f"jsonl:{tmp_path}/out.jsonl"},
        ledger={"url": f"sqlite:{tmp_path}/ledger.db"},
    )
    (tmp_path / "c.toml").write_text(toml(config))
    with redis(request, f"fcstream-test-{secrets.token_hex(6)}") as (to, at):
        done = CliRunner().invoke(main, ["run", str(tmp_path / "c.toml"), "--dead-letter", to])
        assert done.exit_code == 0, done.output
        found = b"\n".join(read(at, "reader", lambda found: len(found) > 1)).splitlines()
    assert [json.loads(line)["position"] for line in found] == [1, 2]
    assert [json.loads(line)["field"] for line in found] == [None, "b"]


def toml(mapping):
    """Of sections of plain values, and lists of such."""
    text = []
    for name, section in mapping.items():
        for one in section if isinstance(section, list) else [section]:
            text.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            text += [f"{key} = {json.dumps(value)}" for key, value in one.items()]
    return "\n".join(text)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        (f"ftp://u:{SECRET}@h/x", "begin with one of amqp, .*redis.*, got 'ftp'"),
        (f"postgresql://u:{SECRET}@h/d?table=t", "got 'postgresql'"),
        (f"https://u:{SECRET}@h/d", "got 'https'"),
        (f"redis://u:{SECRET}@h/0", "must name `stream`"),
        ("jsonl:-", "got 'jsonl'"),
    ],
)
def test_wrong_addresses(url, what):
    with pytest.raises(ConfigError, match=rf"^dead_letter\.url: .*{what}") as caught:
        open_dead_letter(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("role", ["source", "sink"])
def test_not_where_records_or_releases_are(role):
    url = f"redis://u:{SECRET}@h/0?stream=s"
    with pytest.raises(ConfigError, match=r"dead_letter\.url: must be a queue of its own") as caught:
        Config.from_mapping(sample(**{role: {"url": url}}, dead_letter={"url": url}))
    assert SECRET not in str(caught.value)
