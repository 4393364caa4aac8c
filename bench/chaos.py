"""A long torture of live streams: whatever is killed, cut or refused, every window is answered once, and right.

    python bench/chaos.py [--kills 100] [--seed 0] [--minutes M] [--outage 60] [--broker redis|nats|mqtt|kafka]...

``fcstream run`` reads numbered records from a private broker through a proxy that cuts every connection after some
random number of bytes, charges a ledger in PostgreSQL through another, and publishes to a web server that refuses, is
slow, and takes releases without saying so. It is killed with SIGKILL at random moments, and at chosen ones: when the
web server was called, when it has answered, at some message to the ledger. The broker is restarted, the ledger goes
away for `--outage` seconds; records come out of order, late, early, twice, and with garbage among them.

In the end the broker's own log (for MQTT: the spool) says which records there were and when each arrived, so for every
window there is one right number, and the releases, which cost so much that their noise is far below one half, must show
it. Checked too: the ledger verifies, each window was charged once, what the web server got are the sealed bytes and no
others, and no record's content is in the log. Exits with 1 on any violation. Needs PostgreSQL (FCSTREAM_POSTGRESQL) and
redis-server, nats-server, mosquitto; Kafka is librdkafka's mock, which cannot be restarted or stand behind a proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.server
import json
import os
import random
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from brokers import free_port
from kernels import machine

from fcstream import Release
from fcstream.ledgers.postgres.ledger import PostgresLedger

LENGTH_MS = 1000
SENTINEL = "sentinelContent"
LONGEST_LIFE_S = 8.0
SERVER = os.environ.get("FCSTREAM_POSTGRESQL", "postgresql://127.0.0.1:5432/test")
CONFIG = """
[stream]
name = "chaos"
[lattice]
step = 0.001
[[features]]
name = "a"
min = 0.0
max = 1e9
[window]
length = "{length}ms"
lateness = "{lateness}ms"
clock = "{clock}"
backlog = "1h"
start = "{start}"
[release]
kind = "count"
rho = 200.0
[budget]
rho = 200.0
delta = 0.0
[source]
url = "{source}"
name = "chaos"
{spool}
[sink]
url = "http://127.0.0.1:{hook}/releases?fcstream.timeout=2&fcstream.patience=4"
[ledger]
url = "{ledger}"
[dead_letter]
url = "jsonl:dead.jsonl"
"""


class Proxy:
    """Passes bytes on; cuts a connection after so many bytes as `budget` says, and all of them while `down`."""

    def __init__(self, port: int, budget: Callable[[], int], on_client: Callable[[], object] = lambda: None) -> None:
        self._target, self._budget, self._on_client = port, budget, on_client
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._open: set[socket.socket] = set()
        self.down, self.cuts = False, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inner = self._door.accept()[0]
            except OSError:
                return
            try:
                if self.down:
                    raise OSError
                outer = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                inner.close()
                continue
            outer.settimeout(None)
            left = [self._budget()]
            self._open |= {inner, outer}
            for one, other, hook in ((inner, outer, self._on_client), (outer, inner, lambda: None)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(one, other, left, hook), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket, left: list[int], hook: Callable[[], object]) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                hook()
                part = data[: max(0, left[0])]
                left[0] -= len(data)
                other.sendall(part)
                if left[0] <= 0:
                    self.cuts += 1
                    break
        self._end(one, other)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            self._open.discard(end)
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def away(self, is_away: bool) -> None:
        self.down = is_away
        if is_away:
            self._end(*self._open)

    def close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.away(True)


class Hook:
    """A web server that keeps every body by its idempotency key, in various tempers."""

    def __init__(self, rng: random.Random, trap: Callable[[str], None]) -> None:
        self.bodies: dict[str, Counter[bytes]] = defaultdict(Counter)
        self.calls, self.is_kind = 0, False
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.calls += 1
                trap("called")
                temper = 1.0 if hook.is_kind else rng.random()
                if temper < 0.15:
                    return self._answer(503)
                if temper < 0.2:
                    time.sleep(rng.random() * 2.5)
                hook.bodies[self.headers["Idempotency-Key"]][body] += 1
                if temper < 0.3:  # taken, and nobody knows
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return None
                self._answer(200)
                trap("answered")
                return None

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


# -- brokers -------------------------------------------------------------------------------------------------------

Log = list[tuple[int, bytes]]  # arrival in ms, body


class Private:
    """A server of our own that can be stopped and started again on the same port with the same data."""

    stop_with, lateness_ms = signal.SIGKILL, 1000

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.process = folder, free_port(), None
        folder.mkdir()

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        if shutil.which(self.command()[0]) is None:
            raise SystemExit(f"{self.command()[0]} is not installed")
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise SystemExit(f"{self.command()[0]} does not start")

    def stop(self, number: int | None = None) -> None:
        self.process.send_signal(self.stop_with if number is None else number)
        self.process.wait()


class RedisPlace(Private):
    clock = "broker"

    def command(self) -> list[str]:
        rules = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(self.folder)]
        return ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), *rules]

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0?stream=chaos&patience=3"

    def prepare(self) -> None:
        pass

    def sender(self) -> Callable[[list[bytes]], None]:
        import redis

        client = redis.Redis(port=self.port)

        def send(bodies: list[bytes]) -> None:
            pipe = client.pipeline(transaction=False)
            for body in bodies:
                pipe.xadd("chaos", {"data": body})
            pipe.execute()

        return send

    def log(self) -> Log:
        import redis

        client, found, last = redis.Redis(port=self.port), [], "-"
        while entries := client.xrange("chaos", last, "+", 10_000):
            found += [(int(entry_id.split(b"-")[0]), fields[b"data"]) for entry_id, fields in entries]
            last = b"(" + entries[-1][0]
        return found


class NatsPlace(Private):
    clock, stop_with = "broker", signal.SIGTERM

    def command(self) -> list[str]:
        return ["nats-server", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]

    def url(self, port: int) -> str:
        return f"nats://127.0.0.1:{port}/chaos?patience=3"

    def _run(self, action: Callable) -> object:
        async def act() -> object:
            import nats

            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            try:
                return await action(client.jetstream(timeout=20))
            finally:
                await client.close()

        return asyncio.run(act())

    def prepare(self) -> None:
        self._run(lambda js: js.add_stream(name="chaos", subjects=["chaos"]))

    def sender(self) -> Callable[[list[bytes]], None]:
        import nats

        loop = asyncio.new_event_loop()

        async def ignore(_: object) -> None:
            pass

        options = {"allow_reconnect": False, "error_cb": ignore}
        client = loop.run_until_complete(nats.connect(f"nats://127.0.0.1:{self.port}", **options))
        js = client.jetstream(timeout=2)

        async def publish(bodies: list[bytes]) -> None:
            for body in bodies[:-1]:
                await client.publish("chaos", body)
            await js.publish("chaos", bodies[-1])

        def send(bodies: list[bytes]) -> None:
            try:
                loop.run_until_complete(publish(bodies))
            except Exception:
                with suppress(Exception):
                    loop.run_until_complete(client.close())
                loop.close()
                raise

        return send

    def log(self) -> Log:

        async def read(js) -> Log:
            found, subscription = [], await js.subscribe("chaos", ordered_consumer=True)
            end = (await js.stream_info("chaos")).state.last_seq
            while not found or found[-1][2] < end:
                message = await subscription.next_msg(5)
                data = message.metadata
                tokens = message.reply.split(".")
                timestamp = int(tokens[7] if len(tokens) < 11 else tokens[9]) // 1_000_000
                found.append((timestamp, message.data, data.sequence.stream))
            return [(timestamp, body) for timestamp, body, _ in found]

        return self._run(read)


class MqttPlace(Private):
    # Messages arrive when they are received: those that came while it was dead must be in time still.
    clock, stop_with, lateness_ms = "wall", signal.SIGTERM, 12_000

    def command(self) -> list[str]:
        rules = ["allow_anonymous true", "max_queued_messages 0", "persistence true", "autosave_interval 1"]
        conf = self.folder / "mosquitto.conf"
        user = "user root" if os.geteuid() == 0 else ""
        place = f"persistence_location {self.folder}/"
        conf.write_text("\n".join([f"listener {self.port} 127.0.0.1", place, user, *rules, ""]))
        return ["mosquitto", "-c", str(conf)]

    def url(self, port: int) -> str:
        return f"mqtt://127.0.0.1:{port}/chaos?client_id=chaos&patience=3"

    def prepare(self) -> None:
        """The reader's session must be there before the first record."""
        from paho.mqtt import client, enums
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties, subscribed = Properties(PacketTypes.CONNECT), threading.Event()
        properties.SessionExpiryInterval = 3600
        reader = client.Client(enums.CallbackAPIVersion.VERSION2, client_id="chaos", protocol=client.MQTTv5)
        reader.on_connect = lambda *_: reader.subscribe("chaos", 1)
        reader.on_subscribe = lambda *_: subscribed.set()
        reader.connect("127.0.0.1", self.port, clean_start=False, properties=properties)
        reader.loop_start()
        assert subscribed.wait(10)
        reader.disconnect()
        reader.loop_stop()

    def watch(self, spool: Path) -> Iterator[None]:
        """Keep what the spool deletes: a link to every segment, as long as this is stepped."""
        kept = self.folder / "kept"
        kept.mkdir()
        while True:
            for path in spool.glob("*.rows"):
                with suppress(OSError):
                    os.link(path, kept / path.name)
            yield

    def sender(self) -> Callable[[list[bytes]], None]:
        from paho.mqtt import client, enums

        writer = client.Client(enums.CallbackAPIVersion.VERSION2, client_id="writer", protocol=client.MQTTv5)
        writer.reconnect_delay_set(1, 1)
        writer.connect("127.0.0.1", self.port, clean_start=False)
        writer.loop_start()

        def send(bodies: list[bytes]) -> None:
            for body in bodies:
                told = writer.publish("chaos", body, 1)
            told.wait_for_publish(30)

        return send

    def log(self) -> Log:
        from fcstream.connectors.spool import Spool

        spool, found = Spool(self.folder / "kept", 2**40), []
        number = min(int(path.name[:20]) for path in (self.folder / "kept").glob("*.rows"))
        while number < spool.end:
            rows = spool.read(number)
            found += [(rows.receipt_ms, body) for body in rows.bodies]
            number += len(rows.bodies)
        spool.close()
        return found


class KafkaPlace:
    clock, lateness_ms = "broker", 1000

    def __init__(self, folder: Path) -> None:
        self.stack, self.port = ExitStack(), 0

    def start(self) -> None:
        from support import kafka_mock

        self.address = self.stack.enter_context(kafka_mock.mock())[0]

    def stop(self, number: int | None = None) -> None:
        self.stack.close()

    def prepare(self) -> None:
        import confluent_kafka

        confluent_kafka.Producer({"bootstrap.servers": self.address}).list_topics("chaos", timeout=5)

    def url(self, port: int) -> str:
        return f"kafka://{self.address}/chaos?patience=10&session_s=6&instance=chaos"

    def sender(self) -> Callable[[list[bytes]], None]:
        import confluent_kafka

        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "linger.ms": 0})

        def send(bodies: list[bytes]) -> None:
            for body in bodies:
                producer.produce("chaos", body)
            producer.flush(10)

        return send

    def log(self) -> Log:
        import confluent_kafka

        settings = {"bootstrap.servers": self.address, "group.id": "log", "enable.partition.eof": True}
        reader = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
        reader.assign([confluent_kafka.TopicPartition("chaos", p, 0) for p in range(4)])
        found, ended = [], set()
        while len(ended) < 4:
            for message in reader.consume(1000, 1.0):
                if message.error() is None:
                    found.append((message.timestamp()[1], message.value()))
                else:
                    ended.add(message.partition())
        reader.close()
        return found


PLACES = {"redis": RedisPlace, "nats": NatsPlace, "mqtt": MqttPlace, "kafka": KafkaPlace}


# -- the torture ---------------------------------------------------------------------------------------------------


class Producer(threading.Thread):
    """Numbered records, most of them a little out of order; some late, early, twice, or no records at all."""

    def __init__(self, place: Private, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.place, self.rng, self.ending = place, rng, threading.Event()
        self.number = self.lost_connections = 0
        self.confirmed: list[int] = []

    def run(self) -> None:
        send = None
        while not self.ending.is_set():
            some = [self.body() for _ in range(self.rng.randint(1, 40))]
            numbers = list(range(self.number - len(some), self.number))
            if self.rng.random() < 0.05:
                some += some[: self.rng.randint(1, 5)]
            self.rng.shuffle(some)
            try:
                send = send or self.place.sender()
                send(some)
                self.confirmed += numbers
            except Exception:  # whatever a client raises when its server is gone
                self.lost_connections += 1
                send = None
                time.sleep(0.1)
            time.sleep(0.05)

    def body(self) -> bytes:
        now, kind = time.time_ns() // 10**6, self.rng.random()
        ago = self.rng.randint(0, 900)
        if kind < 0.02:
            ago = self.rng.randint(900, 6000)
        elif kind < 0.03:
            ago = -self.rng.randint(0, 4000)
        record = {"ts_ms": now - ago, "a": self.number, "note": SENTINEL}
        self.number += 1
        body = json.dumps(record).encode()
        if kind > 0.98:
            return self.rng.choice([body[:-3], b"", SENTINEL.encode(), body.replace(b'"a"', b'"b"'), b"\xff" + body])
        return body


def right_numbers(log: Log, lateness_ms: int) -> Counter[int]:
    """By the opening of each window: records that parse, lie not ahead of their arrival, and came in time."""
    right: Counter[int] = Counter()
    for timestamp, body in log:
        try:
            record = json.loads(body)
            at, value = record["ts_ms"], record["a"]
        except (ValueError, KeyError, TypeError):
            continue
        opens = at // LENGTH_MS * LENGTH_MS
        if 0 <= value <= 1e9 and at <= timestamp + LENGTH_MS and timestamp <= opens + LENGTH_MS + lateness_ms:
            right[opens] += 1
    return right


class Torture:
    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.name, self.rng, self.folder = name, random.Random(f"{seed} {name}"), folder
        self.place = PLACES[name](folder / "broker")
        self.process: subprocess.Popen[bytes] | None = None
        self._trap: list[object] = ["", 0]
        self.violations: list[str] = []
        self.killed_by: Counter[str] = Counter()

    def trap(self, kind: str) -> None:
        """Called when something happens; kills if this is what was waited for."""
        if self._trap[0] == kind and self.process is not None:
            self._trap[1] -= 1
            if self._trap[1] == 0:
                self.process.kill()

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fcstream", "run", "c.toml"], cwd=self.folder, stderr=log, stdout=log
            )

    def run(self, kills: int, outage_s: float, until: float) -> None:
        place, rng = self.place, self.rng
        schema = f"chaos_{secrets.token_hex(4)}"
        with ExitStack() as stack:
            place.start()
            stack.callback(lambda: place.stop(signal.SIGKILL))
            place.prepare()
            broker = Proxy(place.port, lambda: rng.randint(2_000, 3_000_000))
            ledger = Proxy(5432 if "//127.0.0.1:5432/" in SERVER else _port(SERVER), self._budget, self._on_ledger)
            hook = Hook(rng, self.trap)
            for each in (broker, ledger):
                stack.callback(each.close)
            stack.callback(hook.server.shutdown)
            stack.callback(drop, schema)
            url = f"postgresql://127.0.0.1:{ledger.port}/{SERVER.rpartition('/')[2]}?schema={schema}&sslmode=disable"
            begun_ms = time.time_ns() // 10**6 // 1000 * 1000
            (self.folder / "c.toml").write_text(
                CONFIG.format(
                    length=LENGTH_MS,
                    lateness=place.lateness_ms,
                    clock=place.clock,
                    start=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun_ms // 1000)),
                    source=place.url(broker.port),
                    spool=f'spool = "{self.folder}/spool"' if place.clock == "wall" else "",
                    hook=hook.port,
                    ledger=url,
                )
            )
            producer = Producer(place, rng)
            stack.enter_context(self.watching())
            producer.start()
            began = time.monotonic()
            for life in range(kills):
                if time.monotonic() > until:
                    kills = life
                    break
                self.life()
                if life % 8 == 4 and place.port:
                    place.stop()
                    time.sleep(rng.random() * 2)
                    place.start()
                if life == kills // 2 and outage_s:
                    self.outage(ledger, outage_s)
            seconds = time.monotonic() - began
            self._trap = ["", 0]
            hook.is_kind = True
            self.start()
            time.sleep(2)
            producer.ending.set()
            producer.join()
            self.drain()
            last = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
            self.wait_for(hook, last)
            self.process.send_signal(signal.SIGTERM)
            try:
                if self.process.wait(30) != 0:
                    self.violations.append(f"SIGTERM ended it with {self.process.returncode}")
            except subprocess.TimeoutExpired:
                self.violations.append("SIGTERM does not end it within 30 s")
                self.process.kill()
            releases = self.check(place.log(), hook, f"{SERVER}?schema={schema}", begun_ms, producer)
        again = ""
        if self.name == "mqtt":
            again = f" {self.spooled:,} messages were received for {len(producer.confirmed):,} sent;"
        interrupted = sum(release.reason == "interrupted" for release in releases)
        print(
            f"{self.name}: {kills} kills in {seconds:.0f} s ({', '.join(f'{n} {k}' for k, n in self.killed_by.items())}"
            f"), {broker.cuts} + {ledger.cuts} connections cut, {hook.calls} posts; {producer.number} records, "
            f"{len(releases)} windows, {interrupted} interrupted;{again} {len(self.violations)} violations",
            flush=True,
        )
        for violation in self.violations[:20]:
            print(f"  {violation}", flush=True)

    def _budget(self) -> int:
        return self.rng.randint(3_000, 150_000)

    def _on_ledger(self) -> None:
        self.trap("ledger")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Steps what a place wants stepped."""
        if not hasattr(self.place, "watch"):
            yield
            return
        ending = threading.Event()

        def step() -> None:
            for _ in self.place.watch(self.folder / "spool"):
                if ending.wait(0.02):
                    return

        thread = threading.Thread(target=step)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def life(self) -> None:
        """Start, and be killed."""
        rng = self.rng
        kind = rng.choice(["time", "called", "answered", "ledger", "ledger"])
        self._trap = [kind, rng.randint(1, 40 if kind == "ledger" else 5)]
        self.start()
        seconds = rng.random() * 4 if kind == "time" else LONGEST_LIFE_S
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            kind = "time"
            self.process.kill()
            self.process.wait()
        if self.process.returncode != -signal.SIGKILL:
            self.violations.append(f"it ended by itself with {self.process.returncode}")
        self.killed_by[kind] += 1
        self._trap = ["", 0]

    def outage(self, ledger: Proxy, seconds: float) -> None:
        """The ledger is away for a while, and nothing else happens."""
        self.start()
        time.sleep(4)
        ledger.away(True)
        time.sleep(seconds)
        ledger.away(False)
        time.sleep(8)
        if self.process.poll() is not None:
            self.violations.append(f"it ended by itself with {self.process.returncode} while the ledger was away")
        self.process.kill()
        self.process.wait()

    def drain(self) -> None:
        """What a broker without a log holds is in the spool when that grows no more."""
        spool, sizes, until = self.folder / "spool", [0], time.monotonic() + 300
        while self.name == "mqtt" and time.monotonic() < until and sizes[-20:] != sizes[-1:] * 20:
            time.sleep(0.5)
            sizes.append(sum(path.stat().st_size for path in spool.glob("*.rows")))

    def wait_for(self, hook: Hook, last_open_ms: int) -> None:
        until = time.monotonic() + 240
        while time.monotonic() < until:
            if any(int(key.split("/")[1]) >= last_open_ms for key in list(hook.bodies)):
                return
            if self.process.poll() is not None:
                self.violations.append(f"it ended by itself with {self.process.returncode}")
                return
            time.sleep(0.1)
        self.violations.append("the last window was not answered within 240 s")

    def check(self, log: Log, hook: Hook, url: str, begun_ms: int, producer: Producer) -> list[Release]:
        """Every rule, on everything."""
        self.spooled = len(log)
        wrong, right = self.violations.append, right_numbers(log, self.place.lateness_ms)
        reader = PostgresLedger(url)
        try:
            reader.verify()
            rows, bodies = reader.rows(), reader.releases()
        finally:
            reader.close()
        releases = [Release.from_bytes(body) for body in bodies]
        opens = [release.window_open_ms for release in releases]
        if opens != list(range(begun_ms, begun_ms + LENGTH_MS * len(opens), LENGTH_MS)):
            wrong("windows are not sealed each once and in order")
        for release in releases:
            expected = right[release.window_open_ms]
            if release.reason == "interrupted":
                continue
            if release.count is None or abs(release.count - expected) > 0.5:
                wrong(f"window {release.window_open_ms - begun_ms} counts {release.count}, right is {expected}")
        charges = Counter(row.open_ms for row in rows if row.kind == "charge")
        if set(charges) != set(opens) or set(charges.values()) != {1}:
            wrong(f"charges: {[(o - begun_ms, n) for o, n in charges.items() if n != 1]} are not 1")
        again = Counter(row.open_ms for row in rows if row.kind == "again")
        for release in releases:
            if release.reason == "interrupted" and again[release.window_open_ms] != 1:
                wrong(f"window {release.window_open_ms - begun_ms} was given up without a second draw")
        published = {int(key.split("/")[1]): found for key, found in hook.bodies.items()}
        for release, body in zip(releases, bodies, strict=True):
            found = published.pop(release.window_open_ms, None)
            if found is None and release is releases[-1]:
                continue  # sealed when it was told to end: published by the next life
            if found is None or set(found) != {body}:
                wrong(f"window {release.window_open_ms - begun_ms} was published as {found and len(found)} texts")
        if published:
            wrong(f"{len(published)} windows were published and not sealed")
        there = set()
        for _, body in log:
            with suppress(ValueError):
                record = json.loads(body)
                there.add(record.get("a", record.get("b")))
        if self.name != "kafka":
            good = set(producer.confirmed) - there
            if len(good) > 0.03 * producer.number:  # those that are garbage have no number
                wrong(f"{len(good)} numbers that the broker confirmed are missing from its log")
        for path in ("log", "dead.jsonl"):
            if (self.folder / path).exists() and SENTINEL.encode() in (self.folder / path).read_bytes():
                wrong(f"a record's content is in {path}")
        return releases


def _port(url: str) -> int:
    from urllib.parse import urlsplit

    return urlsplit(url).port or 5432


def drop(schema: str) -> None:
    import psycopg

    with psycopg.connect(SERVER, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop killing after so long")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without a ledger, once per broker")
    parser.add_argument("--broker", action="append", choices=list(PLACES), default=[])
    parser.add_argument("--keep", action="store_true", help="leave the folders, and say where")
    given = parser.parse_args()
    names = given.broker or ["redis", "nats", "mqtt"]
    print(f"{machine()}; seed {given.seed}", flush=True)
    until, violations = time.monotonic() + 60 * given.minutes, 0
    for i, name in enumerate(names):
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{name}-"))
        torture = Torture(name, given.seed, folder)
        share = given.kills // len(names) + (i < given.kills % len(names))
        torture.run(share, given.outage, until)
        violations += len(torture.violations)
        if given.keep or torture.violations:
            print(f"  see {folder}")
        else:
            shutil.rmtree(folder)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
