"""The Redis of this machine, and servers of a test's own."""

import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import threading
import time

import pytest

from fcstream.connectors.redis.ids import of_offset, parse_id, to_offset, write_id
from fcstream.connectors.redis.sink import RedisSink
from fcstream.connectors.redis.source import RedisSource
from fcstream.connectors.urls import parse
from support.helpers import free_port, service
from support.proxy import Proxy

NAMES = itertools.count()
HOST = os.environ.get("FCSTREAM_REDIS", "127.0.0.1:6379")


def connect():
    """A client of the server that is there; skips without one."""

    def probe():
        import redis

        host, _, port = HOST.partition(":")
        client = redis.Redis(host, int(port), protocol=2, socket_connect_timeout=30)
        client.ping()
        return client

    return service("Redis (FCSTREAM_REDIS names another host:port)", probe)


@pytest.fixture(scope="session")
def redis_client():
    with contextlib.closing(connect()) as client:
        yield client


class PrivateRedis:
    """A server of a test's own, which may be killed."""

    def __init__(self, folder, *options):
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._folder, self._options = folder, options
        self._process = None

    def start(self):
        keeps_nothing = ["--save", "", "--appendonly", "no", "--dir", str(self._folder), "--bind", "127.0.0.1"]
        port = [] if "--tls-port" in self._options else ["--port", str(self.port)]
        options = [option.replace("PORT", str(self.port)) for option in self._options]
        command = ["redis-server", *keeps_nothing, *port, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.05)
        raise TimeoutError("it does not start")

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def frozen(self):
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # it goes on for a moment
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def client(self, **options):
        import redis

        return contextlib.closing(redis.Redis("127.0.0.1", self.port, protocol=2, **options))


@pytest.fixture
def private_redis(redis_client, tmp_path):
    """Makes private servers."""
    made = []

    def make(*options):
        made.append(PrivateRedis(tmp_path, *options))
        return service("a private redis-server", made[-1].start)

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def redis_stream(redis_client):
    """A client, the name of a stream of its own, and the stream's URL."""
    key = f"fcstream-test-{secrets.token_hex(6)}"
    yield redis_client, key, f"redis://{HOST}/0?stream={key}"
    redis_client.delete(key)


@pytest.fixture
def redis_key(redis_client):
    """A stream of its own, and afterwards nothing of it."""
    name = f"fcstream-test-{os.getpid()}-{next(NAMES)}"
    yield name
    redis_client.delete(name, f"fcstream:{name}:positions", *redis_client.keys(f"{name}:*"))


def source(key, options="", host=HOST, name=None, patience_s=5.0):
    address = parse(f"redis://{host}/0?stream={key}{options}", "source.url")
    return contextlib.closing(RedisSource(address, name or key, patience_s))


def sink(key, options="", host=HOST, patience_s=5.0):
    return contextlib.closing(RedisSink(parse(f"redis://{host}/0?stream={key}{options}", "sink.url"), patience_s))


def add(server, key, bodies, **options):
    pipe = server.pipeline(transaction=False)
    for body in bodies:
        pipe.xadd(key, {"data": body}, **options)
    return pipe.execute()


@contextlib.contextmanager
def listening(serve):
    """A place where every connection is served in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as place:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(place.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{place.getsockname()[1]}"
        with contextlib.suppress(OSError):
            place.shutdown(socket.SHUT_RDWR)


class Relay:
    """Stands for a name behind which servers change: a connection stays with the one it was made to."""

    def __init__(self, port):
        self.port, self.made, self.cuts_added = port, 0, False

    def serve(self, near):
        far = socket.create_connection(("127.0.0.1", self.port))
        self.made += 1
        asked = []

        def pump(source, target, is_answer):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    if not is_answer and b"XADD" in data:
                        asked.append(data)
                    target.sendall(data)
                    if is_answer and asked and self.cuts_added:
                        self.cuts_added = False
                        break
            for one in (near, far):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        with near, far:
            back = threading.Thread(target=pump, args=(near, far, False), daemon=True)
            back.start()
            pump(far, near, True)
            back.join()


def offset(entry_id):
    return to_offset(parse_id(entry_id))


def entry_id(number):
    return write_id(of_offset(int(number)))


def cuttable(server):
    """A proxy to a server of a test's own."""
    return contextlib.closing(Proxy(server.port))
