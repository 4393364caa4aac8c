"""Where PostgreSQL is another machine, it must prove who it is, and no password crosses the network in clear."""

import socket
import struct
import threading

import pytest

from fcstream.connectors import open_sink
from fcstream.errors import FcstreamError
from fcstream.ledgers import each_reader
from fcstream.runtime.libpq import parameters

psycopg = pytest.importorskip("psycopg")
VERSION = psycopg.pq.version()


@pytest.mark.parametrize(
    "given",
    [
        {"host": "db.example"},
        {"host": "localhost,db.example"},
        {"host": "10.1.2.3"},
        {"host": "db.example", "hostaddr": "127.0.0.1"},
        {"hostaddr": "192.0.2.1"},
        {"service": "telemetry"},
    ],
)
def test_a_server_on_another_host_must_prove_who_it_is(given):
    assert parameters(given, VERSION)["sslmode"] == "verify-full"


@pytest.mark.parametrize(
    "given", [{}, {"host": "/run/postgresql"}, {"host": "localhost"}, {"host": "127.0.0.2"}, {"host": "::1,localhost"}]
)
def test_a_server_on_this_machine_needs_no_certificate(given, monkeypatch):
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    assert "sslmode" not in parameters(given, VERSION)


def test_a_host_from_the_environment_counts_too(monkeypatch):
    monkeypatch.setenv("PGHOST", "db.example")
    assert parameters({}, VERSION)["sslmode"] == "verify-full"
    monkeypatch.setenv("PGSSLMODE", "require")
    assert parameters({}, VERSION)["sslmode"] == "require"
    assert parameters({"sslmode": "disable"}, VERSION)["sslmode"] == "disable"


class Thief:
    """A server that declines TLS and asks for the password in clear."""

    def __init__(self):
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    self._talk(connection)
                except OSError:
                    pass

    def _talk(self, connection):
        while data := connection.recv(4096):
            self.heard += data
            if struct.unpack("!I", data[4:8])[0] in (80877103, 80877104):  # asks for TLS, or GSSAPI
                connection.sendall(b"N")
            else:
                connection.sendall(b"R" + struct.pack("!II", 8, 3))  # your password, in clear

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def thief():
    server = Thief()
    yield server
    server.close()


@pytest.mark.parametrize("mode", ["", "&sslmode=prefer", "&sslmode=allow", "&sslmode=disable"])
@pytest.mark.parametrize("opened", [lambda url: next(each_reader(url)), open_sink])
def test_a_server_that_declines_tls_gets_no_password(thief, mode, opened):
    url = f"postgresql://me:S3CRET@db.example:{thief.port}/test?hostaddr=127.0.0.1&connect_timeout=2{mode}"
    with pytest.raises(FcstreamError, match=r"SSL|authentication method") as caught:
        opened(url)
    assert "must prove who it is" in str(caught.value)
    assert thief.heard
    assert b"S3CRET" not in thief.heard
    assert "S3CRET" not in str(caught.value)
