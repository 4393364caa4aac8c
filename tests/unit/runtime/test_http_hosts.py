"""Names by which servers may be asked for: a page whose own name leads here reads nothing."""

import contextlib
import http.client
import socket

import pytest
from support.helpers import free_port

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from fcstream.connectors import open_live
from fcstream.local.transport.web import open_server
from fcstream.runtime.http_hosts import ServedNames
from fcstream.service.status import StatusServer

FINE = [
    "127.0.0.1",
    "127.0.0.1:9100",
    "[::1]:9100",
    "[2001:db8::1]",
    "10.2.3.4:80",
    "localhost",
    "LOCALHOST:80",
    "localhost.",
]
FOREIGN = [
    "evil.example",
    "evil.example:9100",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "",
    "[evil]",
    "1.2.3",
    "::",
]


def asked(port, host, path="/live", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        for each in [host] if isinstance(host, str) else host:
            connection.putheader("Host", each)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def admits(names, *hosts):
    return names.admit({"headers": [(b"host", host.encode("latin-1")) for host in hosts]})


def test_names():
    names = ServedNames("metrics.plant", ["status.plant.example", "Other"])
    own = [*FINE, "metrics.plant:1", "status.plant.example", "other:9", "x.localhost", socket.gethostname()]
    assert [host for host in own if not admits(names, host)] == []
    assert [host for host in FOREIGN if admits(names, host)] == []
    assert admits(names)  # HTTP/1.0
    assert not admits(names, "localhost", "evil.example")
    assert not admits(ServedNames("0.0.0.0"), "plant.example")


def test_the_status_server_answers_to_its_own_names_alone():
    status, port = StatusServer([]), free_port()
    status.listen(f"127.0.0.1:{port}", ["plant.example"])
    try:
        for host in ("127.0.0.1", f"localhost:{port}", "plant.example"):
            assert asked(port, host) == (200, "alive\n")
        for path in ("/live", "/ready", "/metrics", "/", "/events"):
            code, text = asked(port, f"evil.example:{port}", path)
            assert code == 421
            assert "list the name in service.hosts" in text
            assert "evil" not in text
        status.listen(f"127.0.0.1:{port}", ["plant.example"])
        assert asked(port, "plant.example")[0] == 200
    finally:
        status.close()


def test_devices_are_asked_by_names_of_their_gateway_alone():
    class Silent:
        failed = None

        def answer(self, body):
            return b"{}"

    server = open_server(Silent(), "127.0.0.1", 0, ["north.example"])
    server.start()
    try:
        for host in ("north.example", "127.0.0.1"):
            assert asked(server.port, host, "/ask", "POST") == (200, "{}")
        assert asked(server.port, "evil.example", "/ask", "POST")[0] == 421
    finally:
        server.close()


@pytest.mark.parametrize(("options", "status"), [("", 421), ("?token=0123456789abcdef", 401)])
def test_a_receiver_without_a_token_takes_nothing_by_another_name(options, status):
    """With a token it may have any name: a page of another site has none."""
    receiver = open_live(f"http://127.0.0.1:{free_port()}{options}", "n")
    receiver.start()
    try:
        assert asked(receiver.port, "evil.example", "/ingest", "POST")[0] == status
        assert receiver.refused == {"host" if status == 421 else "unauthorized": 1}
        assert asked(receiver.port, "127.0.0.1", "/ingest", "POST")[0] != 421
    finally:
        receiver.close()
