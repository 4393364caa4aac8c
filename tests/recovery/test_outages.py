"""What is away shows by its name, long before anybody's patience is over, and keeps no process from ending: the real
command, a source, a sink and a ledger behind proxies that stop forwarding, or refuse.

After how many seconds it shows is tested in `unit/runtime/test_waiting.py`, where no machine can be slow.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial

import pytest
from support import redis_server
from support.helpers import counting_job, free_port, service
from support.postgres import URL as SERVER
from support.proxy import Proxy

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.beside
COMPILES_S = 15.0  # the kernels take twice as long
PATIENCE_S = 3600  # of sources and sinks: no process that waits for one to come back ends within `AWAY_S`
AWAY_S = 300.0
LOOK_S = 0.05
PARTS = ("source", "sink", "ledger")


class Stand:
    """The command, whose source, sink and ledger each stand behind a proxy."""

    def __init__(self, folder):
        self.folder, self.name = folder, f"fcstream_test_{secrets.token_hex(6)}"
        self.db = service("PostgreSQL", lambda: psycopg.connect(SERVER, autocommit=True))
        self.redis = redis_server.connect()
        self.proxies = {"source": Proxy(6379), "sink": Proxy(5432), "ledger": Proxy(5432)}
        self.port = free_port()
        self.process = None
        self.sent = 0

    def start(
        self, source="redis://127.0.0.1:{port}/0?stream={name}&", length="1s", spool=None, release=None, **environment
    ):
        server = {part: SERVER.replace("5432", str(self.proxies[part].port)) for part in ("sink", "ledger")}
        source = source.format(port=self.proxies["source"].port, name=self.name) + f"patience={PATIENCE_S}"
        text = counting_job(
            time.time() - 5,
            stream={"name": "out"},
            window={"length": length, "lateness": "200ms"},
            source={"url": source, "spool": spool},
            sink={"url": f"{server['sink']}?table={self.name}&patience={PATIENCE_S}"},
            ledger={"url": f"{server['ledger']}?schema={self.name}"},
            service={"listen": f"127.0.0.1:{self.port}"},
            release=release or {},
        )
        (self.folder / "c.toml").write_text(text)
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fcstream", "run", "c.toml"],
                cwd=self.folder,
                stderr=log,
                env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment,
            )

    def log(self):
        return (self.folder / "log").read_text()

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait(self, what):
        until = time.monotonic() + AWAY_S
        while not what():
            if time.monotonic() > until or self.process.poll() is not None:
                pytest.fail(f"{self.ready()} {self.sent} {self.last_words()}")
            time.sleep(LOOK_S)

    def last_words(self):
        """The log, with what each thread of the process was doing."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        return self.log()

    def has_answered(self):
        """Releases come."""
        if not self.db.execute("SELECT to_regclass(%s)", (self.name,)).fetchone()[0]:
            return False
        self.sent += 1
        self.redis.xadd(self.name, {"data": json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0})})
        return self.db.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0] > 5 and self.ready()[0] == 200

    def ends(self, within_s=AWAY_S):
        """Whatever is away: on any machine, long before anybody's patience is over."""
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(within_s) == 0, self.log()
        except subprocess.TimeoutExpired:
            pytest.fail(self.last_words())

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for proxy in self.proxies.values():
            proxy.close()
        self.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s", (f"%{self.name}%",)
        )
        self.db.execute(f"DROP SCHEMA IF EXISTS {self.name} CASCADE")
        self.db.execute(f"DROP TABLE IF EXISTS {self.name}")
        self.db.close()
        self.redis.delete(self.name, f"fcstream:{self.name}:positions")
        self.redis.close()


@pytest.mark.parametrize("part", PARTS)
def test_one_that_hangs_shows_by_its_name_and_the_stream_goes_on_after_it(folder, part):
    with contextlib.closing(Stand(folder)) as stand:
        stand.start()
        stand.wait(stand.has_answered)
        stand.proxies[part].is_silent = True
        told = f"the {part} has not answered"
        stand.wait(lambda: told in stand.ready()[1] and stand.ready()[0] == 503)
        stand.wait(lambda: told in stand.log())
        stand.proxies[part].is_silent = False
        stand.wait(lambda: stand.ready()[0] == 200)
        stand.wait(stand.has_answered)


def nats_stream(name):
    nats = pytest.importorskip("nats")

    async def make():
        client = await nats.connect("nats://127.0.0.1:4222")
        await client.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
        await client.close()

    async def drop():
        client = await nats.connect("nats://127.0.0.1:4222")
        await client.jetstream().delete_stream(name)
        await client.close()

    service("NATS", lambda: asyncio.run(make()))
    return lambda: asyncio.run(drop())


def rabbit_queue(kind, name):
    pika = pytest.importorskip("pika")

    def do(action):
        with pika.BlockingConnection(pika.URLParameters("amqp://guest:guest@127.0.0.1/")) as connection:
            action(connection.channel())

    arguments = {"x-queue-type": kind}
    service("RabbitMQ", lambda: do(lambda it: it.queue_declare(name, durable=True, arguments=arguments)))
    return lambda: do(lambda it: it.queue_delete(name))


BROKERS = {
    "nats": (4222, "nats://127.0.0.1:{port}/{name}?", None, nats_stream),
    "mqtt": (1883, "mqtt://127.0.0.1:{port}/{name}?", "spool", lambda name: lambda: None),
    "amqp": (
        5672,
        "amqp://guest:guest@127.0.0.1:{port}/?queue={name}&",
        "spool",
        partial(rabbit_queue, "classic"),
    ),
    "rabbitmq-stream": (
        5552,
        "rabbitmq-stream://guest:guest@127.0.0.1:{port}/?stream={name}&",
        None,
        partial(rabbit_queue, "stream"),
    ),
}


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_that_hangs_in_the_middle_of_a_long_window_shows(folder, broker):
    """Its client waits for messages in silence, and no window closes for an hour."""
    with contextlib.closing(Stand(folder)) as stand:
        port, url, spool, make = BROKERS[broker]
        stand.proxies["source"].close()
        stand.proxies["source"] = Proxy(port)
        drop = make(stand.name)
        try:
            stand.start(url, "1h", spool)
            stand.wait(lambda: stand.ready()[0] == 200)
            stand.proxies["source"].is_silent = True
            stand.wait(lambda: "the source has not answered" in stand.ready()[1] and stand.ready()[0] == 503)
            stand.ends()
        finally:
            drop()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", ["silent", "refusing"])
def test_one_that_is_away_does_not_keep_the_process_from_ending(folder, part, how):
    with contextlib.closing(Stand(folder)) as stand:
        stand.start()
        stand.wait(stand.has_answered)
        if how == "silent":
            stand.proxies[part].is_silent = True
        else:
            stand.proxies[part].close()
        stand.wait(lambda: part in stand.ready()[1] and stand.ready()[0] == 503)
        stand.wait(lambda: part in stand.log())
        stand.ends()


@pytest.mark.parametrize("part", PARTS)
def test_a_start_that_fails_says_which_part(folder, part):
    with contextlib.closing(Stand(folder)) as stand:
        stand.proxies[part].close()
        stand.start()
        stand.wait(lambda: part in stand.ready()[1] and "refused" in stand.ready()[1])
        stand.wait(lambda: part in stand.log() and "refused" in stand.log())
        stand.ends()


def test_a_process_that_compiles_kernels_says_so_and_ends_at_once(folder):
    with contextlib.closing(Stand(folder)) as stand:
        mean = {"kind": "mean", "method": "ball", "center": [20.0], "radius": 20.0}
        stand.start(release=mean, NUMBA_CACHE_DIR=str(folder / "empty"))
        stand.wait(lambda: "what windows need is compiled" in stand.ready()[1])
        stand.ends(within_s=COMPILES_S)
