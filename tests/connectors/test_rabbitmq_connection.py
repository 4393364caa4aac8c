"""RabbitMQ that restarts, is away, speaks TLS, and addresses that cannot be used."""

import contextlib
import gc
import logging
import signal
import socket
import sys
import time
import traceback
import warnings

import pytest
from support.certificates import certificates
from support.helpers import service
from support.proxy import Proxy
from support.rabbitmq import HOST, MIB, STREAMS, declared, port_of, publish, queue, sink, source, spooled
from support.rabbitmq_node import Node
from support.sources import CONTENT, SECRET, bodies, drain

from fcstream.connectors import open_live, open_sink, retry
from fcstream.connectors.rabbitmq import queue_connection, stream_connection
from fcstream.connectors.rabbitmq.stream_source import RabbitStreamSource
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SourceError
from fcstream.testing import sample_release


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def starting(tmp_path_factory, files):
    """A broker of our own, that takes some seconds to start: meanwhile other tests run."""
    node = Node(tmp_path_factory.mktemp("rabbitmq"), files)
    yield node
    node.stop(signal.SIGKILL)


@pytest.fixture(scope="module", autouse=True)
def early(starting):
    """It starts with the first test."""


@pytest.fixture
def node(starting):
    return service("a RabbitMQ of our own", starting.wait)


def test_no_broker_for_longer_than_patience(classic, rabbitmq_stream):
    proxies = [Proxy(port_of(HOST)), Proxy(port_of(STREAMS))]
    opened = [queue(classic, host=proxies[0].host, patience_s=0.2)]
    reading = RabbitStreamSource(parse(f"rabbitmq-stream://{proxies[1].host}/?stream={rabbitmq_stream}", ""), "n", 0.2)
    for proxy in proxies:
        proxy.close()
    start = time.monotonic()
    with pytest.raises(SourceError, match="start the broker"):
        opened[0].receive(1, 120)
    with pytest.raises(SourceError, match="start the broker"):
        reading.poll(1, 120)
    with pytest.raises(SourceError, match="start the broker"):
        reading.ends()
    assert time.monotonic() - start < 60
    opened[0].close()
    reading.close()


def test_secrets_and_content_are_in_no_message(classic, rabbitmq_stream, tmp_path, caplog, capfd):
    """Wrong passwords, places that do not exist, lost brokers: what is told, logged, printed."""
    told = []

    def tell(action):
        try:
            action()
        except FcstreamError as error:
            told.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("no error")

    with caplog.at_level(logging.DEBUG):
        for url in (
            f"amqp://ann:{SECRET}@{HOST}/?queue={classic}",
            f"amqp://guest:guest@{HOST}/nowhere?queue={classic}",
            f"amqp://ann:{SECRET}@127.0.0.1:1/?queue={classic}",
            f"amqp://ann:{SECRET}@no.such.host.invalid/?queue={classic}",
            f"amqp://{HOST}/?queue=nothing-of-the-sort",
            f"rabbitmq-stream://ann:{SECRET}@{STREAMS}/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://ann:{SECRET}@127.0.0.1:1/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://ann:{SECRET}@no.such.host.invalid/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://guest:guest@{STREAMS}/nowhere?stream={rabbitmq_stream}",
            f"rabbitmq-stream://guest:guest@{STREAMS}/?stream=nothing-of-the-sort",
        ):
            tell(lambda url=url: open_live(url, "n"))
            tell(lambda url=url: open_sink(url))
        proxies = [Proxy(port_of(HOST)), Proxy(port_of(STREAMS))]
        publish(classic, [CONTENT] * 3)
        publish(rabbitmq_stream, [CONTENT] * 3)
        with spooled(tmp_path, classic, host=proxies[0].host, patience_s=0.2) as queued:
            assert len(drain(queued, 3)) == 3
            with source(rabbitmq_stream, host=proxies[1].host, patience_s=0.2) as opened:
                assert len(drain(opened, 3)) == 3
                for proxy in proxies:
                    proxy.close()
                tell(lambda: queued.poll(1, 60.0))
                tell(lambda: opened.poll(1, 60.0))
        publish(rabbitmq_stream, [sample_release().to_bytes()])
        with sink(rabbitmq_stream) as out:
            out.write([sample_release()])
    everything = "".join(told) + caplog.text + "".join(capfd.readouterr())
    assert len(told) == 22
    assert "***" in everything
    assert "ACCESS_REFUSED" in told[0]
    assert "AuthenticationFailure" in told[10]
    for secret in (SECRET, CONTENT.decode()):
        assert secret not in everything


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(queue_connection, "_SOCKET_S", 0.3)
    monkeypatch.setattr(stream_connection, "_REQUEST_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as door:
        host = f"127.0.0.1:{door.getsockname()[1]}"
        for url, what in (
            (f"amqp://{host}/?queue=q", "did not answer in time; start the broker"),
            (f"rabbitmq-stream://{host}/?stream=s", "no answer; start the broker"),
        ):
            with pytest.raises(SourceError, match=what):
                open_live(url, "n")


def test_a_live_server_behind_silent_ones_of_the_same_name_is_reached(classic, monkeypatch):
    monkeypatch.setattr(queue_connection, "_SOCKET_S", 3.0)
    with contextlib.closing(Proxy(port_of(HOST))) as live, contextlib.ExitStack() as stack:
        port = port_of(live.host)
        silent = [f"127.0.0.{last}" for last in (2, 3)]
        for address in silent:
            stack.enter_context(socket.create_server((address, port)))
        real = socket.getaddrinfo

        def resolve(host, *rest, **options):
            names = [*silent, "127.0.0.1"] if host == "brokers.invalid" else [host]
            return [found for name in names for found in real(name, *rest, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with contextlib.closing(open_live(f"amqp://brokers.invalid:{port}/?queue={classic}", "n")) as opened:
            assert opened.receive(1, 0.1) == []


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("amqp://h/", "must name `queue`"),
        ("amqp://h/?queue=q&prefetch=70000", "prefetch"),
        ("amqp://h/?queue=q&delivery_id=body", "delivery_id"),
        ("amqp://127.0.0.1:1/?queue=q&nonsense=1", "unknown option 'nonsense'"),
        ("amqp://127.0.0.1:1/?queue=q&ca=file", "unknown option 'ca'"),
        ("rabbitmq-stream://h/", "must name `stream`"),
        ("rabbitmq-stream://h/?stream=s&ca=file", "unknown option 'ca'"),
        ("rabbitmq-stream+tls://h/?stream=s&ca=/no/file", "files `ca`, `cert` or `key`"),
        ("rabbitmq-stream://h/?stream=s&nonsense=1", "unknown option 'nonsense'"),
    ],
)
def test_wrong_addresses(url, what):
    with pytest.raises(ConfigError, match=what):
        open_live(url, "n")


@pytest.mark.parametrize(
    ("module", "url"), [("pika", "amqp://h/?queue=q"), ("rstream", "rabbitmq-stream://h/?stream=s")]
)
def test_missing_libraries(monkeypatch, module, url):
    monkeypatch.setitem(sys.modules, module, None)
    for opening in (lambda: open_live(url, "n"), lambda: open_sink(url)):
        with pytest.raises(ConfigError, match=r"pip install .*\[rabbitmq\]'"):
            opening()


def test_tls(node, files, tmp_path):
    """The broker asks for a certificate of ours, and we for one of its authority, for its host."""
    with declared("classic", f"127.0.0.1:{node.queues}") as name, declared("stream", f"127.0.0.1:{node.queues}") as log:
        queues = f"amqps://localhost:{node.queues_tls}/?queue={name}"
        logs = f"rabbitmq-stream+tls://localhost:{node.streams_tls}/?stream={log}"
        for url in (queues, logs):
            with contextlib.closing(open_sink(f"{url}&{files.login}")) as out:
                out.write([sample_release()])
            opened = open_live(f"{url}&{files.login}", "n")
            if url is queues:
                opened = SpooledSource(opened, Spool(tmp_path / "spool", MIB))
            with contextlib.closing(opened):
                assert bodies(drain(opened, 1)) == [sample_release().to_bytes()]
            for wrong, what in {
                url: "name the file of its authority as `ca`",
                f"{url}&ca={files.stranger}": "name the file of its authority as `ca`",
                f"{url}&ca={files.ca}".replace("localhost", "127.1"): "(?i)mismatch",
                f"{url}&ca={files.ca}": "cannot be used",  # it wants to know who we are
            }.items():
                with pytest.raises(SourceError, match=what):
                    open_live(wrong, "n")
            with pytest.raises(ConfigError, match="cannot be used"):
                open_live(f"{url}&ca={tmp_path}/nothing", "n")
    with warnings.catch_warnings():  # clients leave the sockets of refused connections to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_the_broker_restarts(node, tmp_path, monkeypatch):
    """All four come back by themselves."""
    monkeypatch.setattr(retry, "_MAX_S", 0.5)
    host, logs = f"127.0.0.1:{node.queues}", f"127.0.0.1:{node.streams}"
    with contextlib.ExitStack() as stack:
        classic, stream = (stack.enter_context(declared(kind, host)) for kind in ("classic", "stream"))
        out = stack.enter_context(contextlib.closing(open_sink(f"amqp://{host}/?queue={classic}&patience=300")))
        other = stack.enter_context(sink(stream, host=logs, patience_s=300))
        queued = stack.enter_context(spooled(tmp_path, classic, "", host, 300))
        opened = stack.enter_context(source(stream, "", logs, 300))
        out.write([sample_release(0)])
        other.write([sample_release(0)])
        assert len(drain(queued, 1)) == len(drain(opened, 1)) == 1
        node.stop()
        node.start()
        out.write([sample_release(1)])
        other.write([sample_release(1)])
        assert bodies(drain(queued, 1, 300)) == [sample_release(1).to_bytes()]
        assert bodies(drain(opened, 1, 300)) == [sample_release(1).to_bytes()]
        node.wait()
