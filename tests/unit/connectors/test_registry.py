"""Connectors are found by URL scheme: ours in the table, others by entry point."""

import importlib

import pytest

from fcstream.connectors import check_dead_letter, check_sink, is_live, is_queue, open_live, open_ranges, registry
from fcstream.connectors.base import AckSource, LiveSource, MessageSender, ReconnectingQueue, ReplayableSource
from fcstream.connectors.probes import Checkup, Probe, probe_sink, probe_source
from fcstream.connectors.sinks import Sink
from fcstream.errors import ConfigError

METHODS = {"source": LiveSource, "ranges": ReplayableSource, "queue": AckSource, "sink": Sink, "probe": Probe}
METHODS["reader"] = type("Reader", (), dict.fromkeys(("lines", "close")))
CODE = """
from fcstream.connectors.probes import Probe

class Once:
    def __init__(self, address, name):
        self.name = name

def make(address):
    return Once(address, "sink")

class Queue:
    def __init__(self, address, name):
        for thing in address.path.split(","):
            setattr(self, thing, thing)

    def close(self):
        print("closed")

class Look(Probe):
    def source(self, checkup, address, name):
        checkup.ok("source", f"{name} sees {address.path} for {address.take('patience')} s")
"""
ENTRIES = """
[fcstream.sources]
once = once_connector:Once
[fcstream.queues]
queue = once_connector:Queue
[fcstream.sinks]
once = once_connector:make
[fcstream.probes]
once = once_connector:Look
"""


@pytest.fixture
def once(tmp_path, monkeypatch):
    """A package with a source that cannot seek, a sink made by a function, and a probe of the source alone."""
    (tmp_path / "once_connector.py").write_text(CODE)
    info = tmp_path / "once_connector-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: once-connector\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


@pytest.mark.parametrize("role", registry.Connector._fields)
def test_every_class_of_the_table_is_there_and_does_what_its_role_asks_for(role):
    for scheme in registry.known(role):
        found = registry.find(scheme, role)
        asked = [name for name in vars(METHODS[role]) if not name.startswith("_")]
        assert not [name for name in asked if getattr(found, name, None) is None]


def test_every_broker_has_a_probe_of_its_own():
    assert registry.known("probe") == sorted(registry.CONNECTORS)


def test_connectors_of_another_package(once):
    assert is_live("once://h/p")
    assert not is_queue("once://h/p")
    assert open_live("once://h/p", "n").name == "n"
    assert check_sink("once://h/p")(None).name == "sink"
    with pytest.raises(ConfigError, match="read from any offset"):
        open_ranges("once://h/p", "n")
    with pytest.raises(ConfigError, match="mqtt, mqtts, nats, rabbitmq-stream"):
        check_dead_letter("once://h/p")  # it cannot send messages


@pytest.mark.parametrize(
    ("has", "what"),
    [
        ("receive,acknowledge", "`AckSource`, `Queue` has `receive` and `acknowledge` and `close` and no `pending`:"),
        ("is_current", "`ReconnectingQueue`, `Queue` has `is_current` and no `connections`:"),
        ("connections", "`ReconnectingQueue`, `Queue` has `connections` and no `is_current`:"),
        ("gives_arrivals", "`DatedQueue`, `Queue` has `gives_arrivals` and no `waiting`:"),
    ],
)
def test_a_queue_of_another_package_with_a_part_of_a_protocol_is_refused_and_closed(once, capsys, has, what):
    acks = "receive,acknowledge,pending"
    assert open_live(f"queue://h/{acks}", "n").receive
    whole = open_live(f"queue://h/{acks},is_current,connections,delivery_id,gives_arrivals,waiting", "n")
    assert isinstance(whole, ReconnectingQueue)
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError) as raised:
        open_live("queue://h/" + (has if "receive" in has else f"{acks},{has}"), "n")
    assert what in str(raised.value)
    assert capsys.readouterr().out == "closed\n"


def test_a_probe_of_another_package(once):
    checkup = Checkup(1000)
    probe_source(checkup, "once://h/p?patience=60", "n")
    assert [str(found) for found in checkup.findings] == ["ok: source: n sees p for 4.0 s"]
    probe_sink(checkup, "once://127.0.0.1:1/p")
    assert checkup.findings[1].level == "problem"
    assert "cannot be reached" in checkup.findings[1].what
    probe_sink(checkup, "once://local/p")
    assert checkup.findings[2].level == "warning"
    assert "once://local/p was not looked at" in checkup.findings[2].what


def test_who_gets_dead_letters():
    senders = [scheme for scheme in registry.known("sink") if issubclass(registry.find(scheme, "sink"), MessageSender)]
    assert set(registry.known("sink")) - set(senders) == {
        "http",
        "https",
        "influx",
        "influxs",
        "otlp",
        "otlps",
        "postgresql",
    }
