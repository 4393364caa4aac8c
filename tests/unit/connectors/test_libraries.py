"""A client that lacks what is used is told before the first connection, with what to install."""

import re

import pytest

from fcstream.connectors import open_live
from fcstream.connectors.libraries import unsupported_version
from fcstream.errors import ConfigError


def refuses(url, package):
    with pytest.raises(ConfigError, match=rf"source\.url: needs {package}") as caught:
        open_live(url, "test")
    assert re.search(rf"version [0-9.]+ is installed, .*pip install '{package}[^']*'$", str(caught.value))


@pytest.mark.parametrize("name", ["query_leader_and_replicas", "run_queue_listener_task", "credit"])
def test_a_client_of_rabbitmq_streams_that_has_changed(name, monkeypatch):
    client = pytest.importorskip("rstream.client")
    monkeypatch.delattr(next(each for each in client.Client.__mro__ if name in vars(each)), name)
    refuses("rabbitmq-stream://127.0.0.1:1/?stream=s", "rstream")


def test_what_is_wanted_is_what_the_package_declares():
    for package in ("nats-py", "rstream"):
        told = str(unsupported_version(package, "source.url"))
        assert re.search(rf"needs {package}(\[nkeys\])?[<>=,.0-9]+: ", told), told
