"""The NATS server of this machine, with JetStream."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from fcstream.connectors.nats.sink import NatsSink
from fcstream.connectors.nats.source import NatsSource
from fcstream.connectors.urls import parse
from support.helpers import free_port, service
from support.proxy import Proxy

HOST = os.environ.get("FCSTREAM_NATS", "127.0.0.1:4222")
NAMES = itertools.count()


class NatsServer:
    """What tests do behind a source's back."""

    def __init__(self, host, **options):
        self.host, self.options = host, options

    def ask(self, action):
        """The result of ``await action(client, jetstream)``."""
        import nats

        async def whole():
            options = {"connect_timeout": 30, "allow_reconnect": False, "max_reconnect_attempts": 1}
            client = await nats.connect(f"nats://{self.host}", error_cb=ignore, **options, **self.options)
            try:
                return await action(client, client.jetstream(timeout=60))
            finally:
                await client.close()

        return asyncio.run(whole())

    def js(self, what, *arguments, **options):
        return self.ask(lambda _, js: getattr(js, what)(*arguments, **options))

    def add(self, subject, bodies):
        async def publish(_, js):
            for start in range(0, len(bodies), 500):
                waiting = [await js.publish_async(subject, body) for body in bodies[start : start + 500]]
                await asyncio.gather(*waiting)

        self.ask(publish)

    def held(self, stream):
        """Bodies of a stream, by sequence."""

        async def read(_, js):
            state = (await js.stream_info(stream)).state
            return [(await js.get_msg(stream, n)).data for n in range(max(1, state.first_seq), state.last_seq + 1)]

        return self.ask(read)


async def ignore(_):
    pass


def connect():
    """The server that is there; skips without one."""
    found = NatsServer(HOST)
    service("NATS with JetStream (FCSTREAM_NATS names another host:port)", lambda: found.js("account_info"))
    return found


@pytest.fixture(scope="session")
def nats_server():
    return connect()


@contextlib.contextmanager
def stream_of(server):
    """A stream of its own, and a bucket of the same name; gone afterwards."""
    name = f"fcstream_test_{os.getpid()}_{next(NAMES)}"
    server.js("add_stream", name=name, subjects=[name, f"{name}.*"])
    try:
        yield name
    finally:
        for each in (name, f"KV_{name}"):
            with contextlib.suppress(Exception):
                server.js("delete_stream", each)


@pytest.fixture
def nats_stream(nats_server):
    with stream_of(nats_server) as name:
        yield name


def source(stream, options="", host=HOST, name="n", patience_s=5.0):
    address = parse(f"nats://{host}/{stream}?bucket={stream}{options}", "source.url")
    return contextlib.closing(NatsSource(address, name, patience_s))


def sink(stream, options="", host=HOST, patience_s=5.0):
    address = parse(f"nats://{host}/{stream}?subject={stream}{options}", "sink.url")
    return contextlib.closing(NatsSink(address, patience_s))


class PrivateNats(NatsServer):
    """A server of a test's own, which may be killed and keeps what it has."""

    def __init__(self, folder, settings, **options):
        self.port = free_port()
        super().__init__(f"127.0.0.1:{self.port}", **options)
        self._folder = folder
        self._file = folder / f"{self.port}.conf"
        self._file.write_text(settings)
        self._process = None

    def start(self):
        place = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder / str(self.port))]
        command = [shutil.which("nats-server") or "/usr/sbin/nats-server", "-c", str(self._file), *place]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.05)
        raise TimeoutError("it does not start")

    def set(self, settings):
        """For the next start."""
        self._file.write_text(settings)

    def signal(self, which):
        self._process.send_signal(which)
        if which == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # it goes on for a moment

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def private_nats(nats_server, tmp_path):
    """Makes private servers."""
    made = []

    def make(settings="", **options):
        made.append(PrivateNats(tmp_path, settings, **options))
        return service("a private nats-server", made[-1].start)

    yield make
    for one in made:
        one.stop()


def cuttable():
    """A proxy to the server of this machine."""
    return contextlib.closing(Proxy(int(HOST.partition(":")[2])))
