"""The Redis of this machine, and servers of a test's own."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time

import pytest

from support.helpers import service

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
        with socket.create_server(("127.0.0.1", 0)) as place:
            self.port = place.getsockname()[1]
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
