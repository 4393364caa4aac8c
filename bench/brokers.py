"""Brokers as the live benches see them: filled with messages, and read by the bare client, which acknowledges.

A new one is a class here and a line in `BROKERS`. What a bare client does is what its documentation shows for reading
much: as many messages a request as are useful, acknowledged by request.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

PATIENCE_S = 30.0
Bodies = Iterator[list[bytes]]


class Absent(Exception):
    """A broker or a client that is not here: it is left out, and said so."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server of our own, until the block ends."""
    if shutil.which(command[0]) is None:
        raise Absent(f"{command[0]} is not installed")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > until or process.poll() is not None:
                raise Absent(f"{command[0]} does not start")
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


class Broker:
    """One place for messages.

    `start` prepares it in the parent process and tells children its `place`; `fill` puts messages there, before every
    run if they do not stay (`stays`); `url` is what fcstream reads; `bare` yields messages that were acknowledged.
    """

    stays = True
    package = ""

    def __init__(self, place: str = "") -> None:
        self.place = place

    @contextmanager
    def started(self) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                self.start(stack)
            except Absent:
                raise
            except Exception as error:
                raise Absent(f"{type(error).__name__}: {error}") from error
            yield

    def start(self, stack: ExitStack) -> None:
        raise NotImplementedError

    def fill(self, bodies: list[bytes], n: int) -> None:
        raise NotImplementedError

    def url(self) -> str:
        raise NotImplementedError

    def bare(self, consumer: str) -> Bodies:
        raise NotImplementedError


class Redis(Broker):
    package = "redis"

    def start(self, stack: ExitStack) -> None:
        host = os.environ.get("FCSTREAM_REDIS", "127.0.0.1:6379")
        self.place = f"{host}/bench-{secrets.token_hex(4)}"
        self.client().ping()
        stack.callback(lambda: self.client().delete(self.key))

    @property
    def key(self) -> str:
        return self.place.partition("/")[2]

    def client(self):
        import redis

        host, _, port = self.place.partition("/")[0].partition(":")
        return redis.Redis(host, int(port), protocol=2)

    def fill(self, bodies: list[bytes], n: int) -> None:
        client = self.client()
        for first in range(0, n, 500):
            pipe = client.pipeline(transaction=False)
            for i in range(first, min(n, first + 500)):
                pipe.xadd(self.key, {"data": bodies[i % len(bodies)]})
            pipe.execute()

    def url(self) -> str:
        return f"redis://{self.place.partition('/')[0]}/0?stream={self.key}"

    def bare(self, consumer: str) -> Bodies:
        client = self.client()
        client.set_response_callback("XREADGROUP", lambda reply, **_: reply)  # parsed by hiredis alone
        client.xgroup_create(self.key, consumer, "0")
        while True:
            reply = client.execute_command(
                "XREADGROUP", "GROUP", consumer, "c", "COUNT", 1000, "BLOCK", 1000, "STREAMS", self.key, ">"
            )
            entries = reply[0][1] if reply else []
            if entries:
                client.xack(self.key, consumer, *[entry_id for entry_id, _ in entries])
            yield [fields[1] for _, fields in entries]


class Nats(Broker):
    package = "nats-py"

    def start(self, stack: ExitStack) -> None:
        host = os.environ.get("FCSTREAM_NATS", "127.0.0.1:4222")
        self.place = f"{host}/bench-{secrets.token_hex(4)}"

        async def make(client, js) -> None:
            await js.add_stream(name=self.stream, subjects=[self.stream])

        async def drop(client, js) -> None:
            await js.delete_stream(self.stream)

        self._with(make)
        stack.callback(lambda: self._with(drop))

    @property
    def stream(self) -> str:
        return self.place.partition("/")[2]

    def _with(self, action: Callable) -> None:
        async def act() -> None:
            import nats

            client = await nats.connect(f"nats://{self.place.partition('/')[0]}", connect_timeout=3)
            try:
                await action(client, client.jetstream(timeout=30))
            finally:
                await client.close()

        asyncio.run(act())

    def fill(self, bodies: list[bytes], n: int) -> None:
        async def publish(client, js) -> None:
            for i in range(n):
                if i % 500 == 499:  # waits for the answer: the server's queue stays short
                    await js.publish(self.stream, bodies[i % len(bodies)])
                else:
                    await client.publish(self.stream, bodies[i % len(bodies)])
            await client.flush(30)

        self._with(publish)

    def url(self) -> str:
        host, _, stream = self.place.partition("/")
        return f"nats://{host}/{stream}"

    def bare(self, consumer: str) -> Bodies:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(nats.connect(f"nats://{self.place.partition('/')[0]}"))
        subscription = loop.run_until_complete(
            client.jetstream().pull_subscribe(
                self.stream, consumer, self.stream, config=ConsumerConfig(ack_policy=AckPolicy.ALL)
            )
        )

        async def fetch() -> list[bytes]:
            messages = await subscription.fetch(1000, timeout=1)
            await messages[-1].ack()
            return [message.data for message in messages]

        while True:
            yield loop.run_until_complete(fetch())


class Kafka(Broker):
    """librdkafka's mock cluster, in a process of its own; it keeps some 5 MB of each partition, 4 a topic."""

    package = "confluent-kafka"
    TOPICS = 8  # what is kept of each must fit

    def start(self, stack: ExitStack) -> None:
        from support import kafka_mock

        address = os.environ.get("FCSTREAM_KAFKA") or stack.enter_context(kafka_mock.mock())[0]
        name = secrets.token_hex(4)
        self.place = f"{address}/{','.join(f'bench-{name}-{i}' for i in range(self.TOPICS))}"

    def fill(self, bodies: list[bytes], n: int) -> None:
        from support import kafka_mock

        address, _, topics = self.place.partition("/")
        kafka_mock.fill(address, topics.split(","), bodies, n)

    def url(self) -> str:
        return f"kafka://{self.place}"

    def bare(self, consumer: str) -> Bodies:
        import confluent_kafka

        address, _, topics = self.place.partition("/")
        settings = {"bootstrap.servers": address, "group.id": consumer, "auto.offset.reset": "earliest"}
        settings |= {
            "enable.auto.commit": False,
            "log_level": 0,
            "fetch.queue.backoff.ms": 10,
        }  # else it waits a second
        client = confluent_kafka.Consumer(settings)
        client.subscribe(topics.split(","))
        while True:
            messages = client.consume(4096, 0) or client.consume(1, 1.0)
            if messages:
                client.commit(asynchronous=True)
            yield [message.value() for message in messages]


class Mqtt(Broker):
    """A private Mosquitto whose queues have no bound: the sessions of readers are filled while they are away."""

    package = "paho-mqtt"
    stays = False

    def start(self, stack: ExitStack) -> None:
        folder, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
        conf = Path(folder) / "mosquitto.conf"
        rules = ["allow_anonymous true", "max_queued_messages 0", "max_inflight_messages 1000"]
        conf.write_text("\n".join([f"listener {port} 127.0.0.1", *rules, ""]))
        stack.enter_context(server(["mosquitto", "-c", str(conf)], port))
        self.place = f"127.0.0.1:{port}/bench"

    def client(self, name: str, **options):
        from paho.mqtt import client, enums

        return client.Client(enums.CallbackAPIVersion.VERSION2, client_id=name, protocol=client.MQTTv5, **options)

    def connect(self, client) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        properties.ReceiveMaximum = 1000
        host, _, port = self.place.partition("/")[0].partition(":")
        client.connect(host, int(port), clean_start=False, properties=properties)

    def fill(self, bodies: list[bytes], n: int) -> None:
        """For the consumer ``reader``, which must be made before."""
        reader, subscribed = self.client("reader"), threading.Event()
        reader.on_connect = lambda client, *_: client.subscribe("bench", 1)
        reader.on_subscribe = lambda *_: subscribed.set()
        self.connect(reader)
        reader.loop_start()
        assert subscribed.wait(5)
        reader.disconnect()
        reader.loop_stop()
        writer = self.client("writer")
        host, _, port = self.place.partition("/")[0].partition(":")
        writer.connect(host, int(port))
        writer.loop_start()
        for i in range(n):
            told = writer.publish("bench", bodies[i % len(bodies)], 1)
            if i % 500 == 499:
                told.wait_for_publish(30)
        told.wait_for_publish(30)
        writer.disconnect()
        writer.loop_stop()

    def url(self) -> str:
        return f"mqtt://{self.place}?client_id=reader"

    def bare(self, consumer: str) -> Bodies:
        """Acknowledged one by one, in the client's own thread, as that client wants it."""
        found: list[bytes] = []
        client = self.client("reader", manual_ack=True)

        def take(client, _userdata, message) -> None:
            found.append(message.payload)
            client.ack(message.mid, message.qos)

        client.on_message = take
        self.connect(client)
        while True:
            client.loop(1.0)
            bodies = found[:]
            found.clear()
            yield bodies


class RabbitStream(Broker):
    """A RabbitMQ with its stream plug-in."""

    package = "rstream"

    def start(self, stack: ExitStack) -> None:
        host = os.environ.get("FCSTREAM_RABBITMQ_STREAM", "127.0.0.1:5552")
        self.place = f"{host}/bench-{secrets.token_hex(4)}"
        name, _, port = host.partition(":")
        with suppress(OSError), socket.create_connection((name, int(port)), 1):
            asyncio.run(self._manage("create_stream"))
            stack.callback(lambda: asyncio.run(self._manage("delete_stream")))
            return
        raise Absent(f"no stream plug-in answers on {host}: rabbitmq-plugins enable rabbitmq_stream")

    def _options(self) -> dict:
        host, _, port = self.place.partition("/")[0].partition(":")
        return {"host": host, "port": int(port), "username": "guest", "password": "guest"}

    async def _manage(self, what: str) -> None:
        import rstream

        async with rstream.Producer(**self._options()) as producer:
            await getattr(producer, what)(self.stream)

    @property
    def stream(self) -> str:
        return self.place.partition("/")[2]

    def fill(self, bodies: list[bytes], n: int) -> None:
        async def publish() -> None:
            import rstream

            async with rstream.Producer(**self._options()) as producer:
                for first in range(0, n, 500):
                    some = [bodies[i % len(bodies)] for i in range(first, min(n, first + 500))]
                    await producer.send_batch(self.stream, some)
                await producer.send_wait(self.stream, bodies[0])

        asyncio.run(publish())

    def url(self) -> str:
        return f"rabbitmq-stream://{self.place.partition('/')[0]}/?stream={self.stream}"

    def bare(self, consumer: str) -> Bodies:
        import rstream

        found: list[bytes] = []
        loop = asyncio.new_event_loop()
        reader = rstream.Consumer(**self._options())
        seen = 0

        async def take(body: bytes, context) -> None:
            nonlocal seen
            found.append(body)
            seen += 1
            if seen % 10_000 == 0:
                await reader.store_offset(self.stream, consumer, context.offset)

        async def begin() -> None:
            await reader.start()
            await reader.subscribe(
                self.stream,
                take,
                offset_specification=rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST),
                subscriber_name=consumer,
            )

        loop.run_until_complete(begin())
        while True:
            loop.run_until_complete(asyncio.sleep(0.001))
            bodies = found[:]
            found.clear()
            yield bodies


BROKERS: dict[str, type[Broker]] = {
    "redis": Redis,
    "nats": Nats,
    "kafka": Kafka,
    "mqtt": Mqtt,
    "rabbitmq-stream": RabbitStream,
}
