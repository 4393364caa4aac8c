"""Libraries whose insides are used: one that has changed is told before the first connection, with what to install."""

import re

import pytest

from fcstream.connectors import open_live
from fcstream.connectors.libraries import unsupported_version
from fcstream.errors import ConfigError


def refuses(url, package):
    with pytest.raises(ConfigError, match=rf"source\.url: needs {package}") as caught:
        open_live(url, "test")
    assert re.search(rf"version [0-9.]+ is installed, .*pip install '{package}[^']*'$", str(caught.value))


@pytest.mark.parametrize("change", ["parse", "fields", "method", "attribute"])
def test_a_nats_client_with_other_insides(change, monkeypatch):
    """Nobody listens at the address: it is told first."""
    pytest.importorskip("nats")
    from nats.aio.client import Client
    from nats.protocol import parser

    async def process(self, message):
        pass

    if change == "parse":
        monkeypatch.delattr(parser.Parser, "parse")
    elif change == "fields":  # as if the expressions had become another module's
        monkeypatch.setattr(parser.Parser.parse, "__code__", (lambda self, data=b"": None).__code__)
    elif change == "method":
        monkeypatch.setattr(Client, "_process_msg", process)
    else:
        monkeypatch.setattr(Client, "__init__", lambda self: None)
    refuses("nats://127.0.0.1:1/STREAM", "nats-py")


@pytest.mark.parametrize("name", ["query_leader_and_replicas", "run_queue_listener_task", "credit"])
def test_a_client_of_rabbitmq_streams_with_other_insides(name, monkeypatch):
    client = pytest.importorskip("rstream.client")
    monkeypatch.delattr(next(each for each in client.Client.__mro__ if name in vars(each)), name)
    refuses("rabbitmq-stream://127.0.0.1:1/?stream=s", "rstream")


def test_what_is_wanted_is_what_the_package_declares():
    for package in ("nats-py", "rstream"):
        told = str(unsupported_version(package, "source.url"))
        assert re.search(rf"needs {package}(\[nkeys\])?[<>=,.0-9]+: ", told), told
