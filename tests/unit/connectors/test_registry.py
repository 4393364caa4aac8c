"""Connectors are found by URL scheme: ours in the table, others by entry point."""

import importlib
import inspect

import pytest

from fcstream.connectors import check_dead_letter, check_sink, is_live, is_queue, open_live, open_ranges, registry
from fcstream.connectors.base import Queue, Source
from fcstream.connectors.probes import Checkup, Probe, probe_sink, probe_source
from fcstream.connectors.sinks import Sink
from fcstream.errors import ConfigError

BASES = {"source": Source, "ranges": Source, "queue": Queue, "sink": Sink, "probe": Probe, "reader": object}
CODE = """
from fcstream.connectors.base import Queue, Source
from fcstream.connectors.probes import Probe
from fcstream.connectors.sinks import Sink

class Once(Source):
    def __init__(self, address, name):
        self.name = name

    poll = ends = behind = commit = close = None

class Half(Source):
    poll = ends = close = None

class Kept(Sink):
    def __init__(self, address):
        self.name = "sink"

    write = close = None

class Plain:
    poll = ends = behind = commit = close = None

def make(address):
    return Kept(address)

class Told(Queue):
    def __init__(self, address, name):
        for thing in filter(None, address.path.split(",")):
            vars(self)[thing] = thing

    receive = acknowledge = pending = None

    def close(self):
        print("closed")

class Look(Probe):
    def source(self, checkup, address, name):
        checkup.ok("source", f"{name} sees {address.path} for {address.take('patience')} s")
"""
ENTRIES = """
[fcstream.sources]
once = once_connector:Once
half = once_connector:Half
plain = once_connector:Plain
[fcstream.queues]
queue = once_connector:Told
[fcstream.sinks]
once = once_connector:Kept
made = once_connector:make
[fcstream.probes]
once = once_connector:Look
"""


@pytest.fixture
def once(tmp_path, monkeypatch):
    """A package with a source that cannot seek, a sink, and a probe of the source alone."""
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
        assert issubclass(found, BASES[role])
        assert not inspect.isabstract(found)
        assert role != "ranges" or found.is_replayable()
        assert role != "reader" or (found.lines and found.close)


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
        ("is_current", "`connections` beside `is_current`, `Told`"),
        ("connections", "`is_current` beside `connections`, `Told`"),
        ("gives_arrivals", "`waiting` beside `gives_arrivals`, `Told`"),
        ("has_ended", "`comes_once` beside `has_ended`, `Told`"),
        ("make_decoder", "`expect` beside `make_decoder`, `Told`"),
    ],
)
def test_a_queue_of_another_package_that_says_a_part_of_what_it_can_is_refused_and_closed(once, capsys, has, what):
    assert open_live("queue://h/", "n").delivery_id(None) is None
    open_live("queue://h/is_current,connections,delivery_id,gives_arrivals,waiting", "n")
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError) as raised:
        open_live(f"queue://h/{has}", "n")
    assert what in str(raised.value)
    assert capsys.readouterr().out == "closed\n"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("plain://h/p", "`fcstream.connectors.base.Source`, `Plain` is none"),
        ("half://h/p", "`fcstream.connectors.base.Source`, `Half` has no `behind`, `commit`"),
    ],
)
def test_a_source_of_another_package_that_is_none_is_refused(once, url, what):
    for ask in (open_live, open_ranges):
        with pytest.raises(ConfigError) as raised:
            ask(url, "n")
        assert what in str(raised.value)


def test_a_sink_of_another_package_that_is_none_is_refused(once):
    with pytest.raises(ConfigError, match=r"subclass of `fcstream\.connectors\.sinks\.Sink`, `make` is none") as raised:
        check_sink("made://h/p")
    assert raised.value.key == "sink.url"


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
    senders = [scheme for scheme in registry.known("sink") if registry.find(scheme, "sink").sends_messages()]
    assert set(registry.known("sink")) - set(senders) == {
        "http",
        "https",
        "influx",
        "influxs",
        "otlp",
        "otlps",
        "postgresql",
    }
