"""A service that is told something while it runs: reloads, passwords, and what systemd hears."""

import json
import os
import signal
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from support.helpers import free_port
from support.running import Running
from support.status import SENTINEL, URL, ask, live, watched

from fcstream import ConfigError, FcstreamError
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cli.run import _load
from fcstream.connectors.retry import BrokerLost, with_patience
from fcstream.errors import LedgerDamaged, LedgerMismatch, SinkError
from fcstream.service.logs import logging_as
from fcstream.service.reload import ActiveConfig, Reloader, _opens_alike, needs_restart, what_a_restart_does
from fcstream.service.signals import signals
from fcstream.service.systemd import SystemdNotifier

ALLOWED = [
    {"service": {"listen": "127.0.0.1:1", "counters": True}},
    {"sink": {"url": "jsonl:other"}},
    {"dead_letter": {"url": "jsonl:letters"}},
    {"source": {"url": "rediss://user:secret@elsewhere:1/0?stream=k&patience=9&ca=x"}},
    {"source": {"spool_bytes": 2**21}},
    {"window": {"end": "1970-01-01T00:02:00Z"}},
    {"window": {"end": None}},
]
REFUSED = [
    ({"window": {"end": "1970-01-01T00:00:50Z"}}, ["window.end"]),
    ({"window": {"lateness": "1s"}}, ["window.lateness"]),
    ({"window": {"ahead": "1s"}}, ["window.ahead"]),
    ({"source": {"url": URL.replace("=k", "=other")}}, ["source.url"]),
    ({"source": {"url": URL.replace("/0", "/1")}}, ["source.url"]),
    ({"source": {"url": URL + "&group=other"}}, ["source.url"]),
    ({"source": {"url": URL + "&arrival=sent"}}, ["source.url"]),  # of queues: decides what is late, as `lateness` does
    ({"source": {"format": "msgpack", "name": "other"}}, ["source.format", "source.name"]),
    ({"source": {"spool": "folder"}}, ["source.spool"]),
    ({"budget": {"rho": 5.0}, "sink": {"url": "jsonl:other"}}, ["budget.rho"]),
    ({"stream": {"name": "other"}, "release": {"radius": 2.0}}, ["release.radius", "stream.name"]),
    ({"ledger": {"url": "sqlite:other"}}, ["ledger.url"]),
]


@pytest.mark.parametrize("changes", ALLOWED, ids=str)
def test_what_a_running_service_can_change(changes):
    assert needs_restart(live(), live(**changes)) == []


@pytest.mark.parametrize(("changes", "keys"), REFUSED, ids=str)
def test_what_it_cannot(changes, keys):
    assert sorted(needs_restart(live(), live(**changes))) == keys


def test_a_session_is_not_opened_again_for_nothing():
    assert _opens_alike(live(), live(service={"counters": True}))
    assert not _opens_alike(live(), live(sink={"url": "jsonl:other"}))
    secret = {"source": {"url": "redis://me:${file:password}@127.0.0.1/0?stream=k"}}
    assert not _opens_alike(live(**secret), live(**secret))


def test_signals_work_after_a_reload_that_fails(capfd):
    service = watched().service

    def fail():
        raise ValueError(SENTINEL)

    with logging_as("text"), signals([service], fail):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        until(service.stopping.is_set)
    assert capfd.readouterr().err == "fcstream: the configuration could not be read again (ValueError)\n"


def test_an_end_with_savings_stays():
    savings = {"stream": {"unit": "stream"}, "budget": {"rho": 90.0, "savings": "even"}}
    later = {"window": {"end": "1970-01-01T00:02:00Z"}}
    assert needs_restart(live(**savings), live(**savings, **later)) == ["window.end"]


def test_a_configuration_that_cannot_be_opened_is_undone_once():
    old, new = live(), live(sink={"url": "jsonl:other"})
    current = ActiveConfig(old)

    def fails(_config):
        raise ConfigError("no", "sink.url")

    with pytest.raises(ConfigError, match="no"):  # nothing to go back to
        current.open(fails, "sink")
    current.take(new)
    current.confirm()  # by a step of the session before: not what is meant
    with pytest.raises(Exception, match="the former one stays in use") as caught:
        current.open(fails, "sink")
    assert not isinstance(caught.value, ConfigError)
    assert current.config is old


@pytest.mark.parametrize(("section", "is_taken_back"), [("sink", True), ("source", False)])
def test_a_new_sink_that_is_away_is_taken_back_and_an_old_source_that_is_away_is_waited_for(section, is_taken_back):
    old, new = live(), live(sink={"url": "jsonl:other"})
    current, tries = ActiveConfig(old), []
    current.take(new)

    def away(_config):
        def once():
            tries.append(0)
            raise BrokerLost

        return with_patience(once, lambda: None, 0.3, lambda _: SinkError("is away"))

    with pytest.raises(FcstreamError, match="the former one stays in use" if is_taken_back else "is away"):
        current.open(away, section)
    assert current.config is (old if is_taken_back else new)
    assert (len(tries) == 1) is is_taken_back


@pytest.mark.slow
def test_a_reload_with_a_sink_that_cannot_be_reached_leaves_the_stream_as_it_was(running_service, manager):
    path = running_service.folder / "c.toml"
    good = path.read_text()
    running_service.start()
    manager.wait_for("READY=1")
    until(lambda: running_service.get("/ready")[0] == 200)
    path.write_text(good.replace("jsonl:out.jsonl", "postgresql://nobody@127.0.0.1:1/nothing"))
    running_service.process.send_signal(signal.SIGHUP)
    until(lambda: 'fcstream_reloads_total{result="undone",stream="live"} 1.0' in running_service.get("/metrics")[1])
    running_service.send(20)
    running_service.wait_for(max(running_service.sent))
    code, errors = running_service.end(signal.SIGTERM)
    assert code == 0
    assert "the former one stays in use: " in errors
    running_service.check()


@pytest.mark.slow
def test_a_new_sink_that_holds_foreign_windows_does_not_take_the_service_down(running_service, manager):
    """Opening it succeeds; that its windows are not the ledger's is found afterwards, and ended the service."""
    path, folder = running_service.folder / "c.toml", running_service.folder
    good = path.read_text()
    running_service.start()
    manager.wait_for("READY=1")
    until(lambda: running_service.get("/ready")[0] == 200)
    running_service.send(20)
    running_service.wait_for(max(running_service.sent))
    line = json.loads((folder / "out.jsonl").read_text().splitlines()[0])
    year = 365 * 86_400_000
    times = {name: line[name] + year for name in ("window_open_ms", "window_close_ms")}
    (folder / "foreign.jsonl").write_text(json.dumps(line | times) + "\n")
    path.write_text(good.replace("jsonl:out.jsonl", "jsonl:foreign.jsonl"))
    running_service.process.send_signal(signal.SIGHUP)
    until(lambda: 'fcstream_reloads_total{result="undone",stream="live"} 1.0' in running_service.get("/metrics")[1])
    until(lambda: running_service.get("/ready")[0] == 200)
    code, errors = running_service.end(signal.SIGTERM)
    assert code == 0
    assert "the former one stays in use: the sink holds the release of window" in errors


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"window": {"lateness": "1s"}}, "needs a restart to change: window.lateness"),
        ({"budget": {"rho": 3.5}}, "needs a restart to change: budget.rho"),
        ({"ledger": {"url": "sqlite:other"}}, "ledger.url; that makes a new ledger, with a whole budget of its own"),
        ({"stream": {"name": "other"}}, "that makes a new stream of the ledger, with a whole budget of its own"),
        ({"budget": {"rho": 500.0}}, "a restart with it would be refused too: budget.rho: the ledger guarantees"),
        ({"release": {"radius": 2.0}}, "would be refused too: release.radius: the ledger was made with another"),
        ({"release": {"rho": 0.001}}, "would be refused too: release.rho: release: a window of"),
        ({"budget": {"rho": 1.0}}, "would be refused too: budget.rho: the ledger, stream 't': it has spent"),
    ],
    ids=str,
)
def test_a_restart_is_announced_only_where_it_would_be_taken(changes, told):
    """It said "needs a restart", and the restart was refused by the ledger: the stream stayed down."""
    old = live()
    new = live(**changes)
    engine = SimpleNamespace(job=old.job, spent=PrivacyLoss.cap(3.0), spent_total=PrivacyLoss())
    found = what_a_restart_does(old, new, needs_restart(old, new), [engine])
    assert told in found
    assert found.startswith("needs a restart") == ("refused" not in told)


def test_a_key_that_is_dropped_is_not_announced_as_a_restart():
    users = {"stream": {"unit": "stream", "key": "site", "keys": ["a", "b"]}, "budget": {"rho": 90.0}}
    old, new = live(**users), live(**users | {"stream": users["stream"] | {"keys": ["a", "c"]}})
    parts = [SimpleNamespace(job=old.job.part(key), spent=PrivacyLoss(), spent_total=None) for key in "ab"]
    assert "would be refused too: stream.keys" in what_a_restart_does(old, new, needs_restart(old, new), parts)


def test_a_reload_cannot_make_the_ledger_a_sink(tmp_path):
    """Files were kept apart for runs of files only: a service would have written releases into its own ledger."""
    path = tmp_path / "live.toml"
    path.write_text(
        '[stream]\nname = "s"\n[window]\nlength = "10s"\nclock = "broker"\nstart = "now"\n'
        '[release]\nkind = "count"\nrho = 0.5\n'
        '[budget]\nrho = 1.0\ndelta = 0.0\n[source]\nurl = "redis://h/0?stream=s"\n'
        f'[sink]\nurl = "jsonl:{tmp_path}/x.db"\n[ledger]\nurl = "sqlite:{tmp_path}/y.db"\n'
    )
    status, current = watched(), ActiveConfig(_load(str(path)))
    reload = Reloader(partial(_load, str(path)), current, status, lambda _: None)
    path.write_text(path.read_text().replace("x.db", "y.db"))
    reload()
    assert status.reloads["refused"] == 1
    assert current.config.sink.url.endswith("x.db")


def test_an_error_that_no_configuration_caused_is_not_undone():
    current = ActiveConfig(live())
    assert not current.undo(LedgerMismatch("x"))  # there is nothing to return to
    current.take(live(sink={"url": "jsonl:other"}))
    assert not current.undo(LedgerDamaged("x"))
    assert current.undo(LedgerMismatch("x"))
    assert current.config == live()


class Manager:
    """Systemd's end of the line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.said = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while text := self.socket.recv(4096).decode():
            self.said.append(text)

    def wait_for(self, text):
        until(lambda: any(line.startswith(text) for line in self.said))

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # ends `listen`
        self.socket.close()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    it = Manager(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "600000")
    yield it
    it.close()


def until(true):
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end, true
        time.sleep(0.05)


@pytest.mark.slow
def test_a_service_that_is_reloaded_while_it_runs(running_service, manager):
    """Under a sink that refuses; with a broken file; with another budget; with a URL that cannot be opened; with
    another sink and port. Nothing is lost or counted twice, systemd is told, and every line of the log is JSON."""
    path, folder = running_service.folder / "c.toml", running_service.folder
    good = path.read_text()
    bad_sink = good.replace("jsonl:out.jsonl", "http://127.0.0.1:1/hook?fcstream.patience=0.1")
    path.write_text(bad_sink)

    def hup(text, result, count):
        path.write_text(text)
        running_service.process.send_signal(signal.SIGHUP)
        line = f'fcstream_reloads_total{{result="{result}",stream="live"}} {count}.0'
        until(lambda: line in running_service.get("/metrics")[1])

    running_service.start()
    manager.wait_for("READY=1")
    running_service.send(50)
    until(lambda: "did not take a release" in running_service.get("/ready")[1])  # it also tells that it compiles
    assert running_service.get("/ready")[0] == 503
    assert running_service.get("/live")[0] == 200
    hup(good, "taken", 1)
    manager.wait_for("RELOADING=1\nMONOTONIC_USEC=")
    running_service.send(50)
    running_service.wait_for(max(running_service.sent))
    assert running_service.get("/ready") == (200, "ready\n")
    hup(good + "\n[broken", "refused", 1)
    hup(good.replace("rho = 50.0", "rho = 60.0"), "refused", 2)
    restarts = 'fcstream_restarts_total{stream="live"} '
    before = running_service.get("/metrics")[1].partition(restarts)[2].partition("\n")[0]
    hup(good.replace("&patience=2", f"&password={SENTINEL}&nonsense=1"), "taken", 2)
    until(lambda: running_service.get("/metrics")[1].partition(restarts)[2].partition("\n")[0] != before)
    running_service.send(50)
    running_service.wait_for(max(running_service.sent))
    port = free_port()
    moved = good.replace("jsonl:out.jsonl", "jsonl:out2.jsonl").replace(f":{running_service.port}", f":{port}")
    path.write_text(moved.replace("counters = true", "counters = false"))
    running_service.process.send_signal(signal.SIGHUP)
    running_service.send(50)
    until(lambda: (folder / "out2.jsonl").exists() and (folder / "out2.jsonl").stat().st_size)
    code, text = ask(port, "/metrics")
    assert code == 200
    assert "fcstream_messages" not in text
    time.sleep(1.0)
    code, errors = running_service.end(signal.SIGTERM)
    assert code == 0, errors
    manager.wait_for("STOPPING=1")
    assert manager.said.count("WATCHDOG=1") >= 3
    assert manager.said[0] == "READY=1"
    events = [json.loads(line) for line in errors.splitlines()]
    assert events[-1]["event"].startswith("stopped; ")
    assert all(event["stream"] == "live" and event["logger"].startswith("fcstream.") for event in events)
    told = [event["event"] for event in events if event["level"] == "warning"]
    assert any("is not TOML" in text for text in told)
    assert any("would be refused too: release.rho, budget.rho: " in text for text in told)
    assert any("cannot be used, the former one stays in use" in text for text in told)
    assert SENTINEL not in errors
    windows = [event["window"] for event in events if event["event"] == "window answered"]
    (folder / "out.jsonl").write_bytes((folder / "out.jsonl").read_bytes() + (folder / "out2.jsonl").read_bytes())
    assert windows == [release.window_open_ms for release in running_service.released()]
    running_service.check()


def test_a_password_that_changes(tmp_path, private_redis, monkeypatch):
    """The server gets a new one and cuts the connection; the service waits, whatever it is told too early, and goes
    on with the new one."""
    it = private_redis("--requirepass", "first")
    (tmp_path / "password").write_text("first\n")
    with it.client(password="first") as client:
        service = Running(tmp_path, client)
        config = tmp_path / "c.toml"
        text = config.read_text().replace("127.0.0.1:6379", f"me:${{file:password}}@{it.host}")
        config.write_text(text.replace("me:", "default:").replace("patience=2", "patience=0.2"))
        service.start()
        try:
            until(lambda: (tmp_path / "out.jsonl").exists())
            service.send(30)
            service.wait_for(max(service.sent))
            client.config_set("requirepass", SENTINEL)
            client.client_kill_filter(_type="normal", skipme=True)
            until(lambda: service.get("/ready")[0] == 503)
            service.process.send_signal(signal.SIGHUP)  # too early: nothing has changed
            (tmp_path / "password").write_text(SENTINEL)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.get("/ready")[0] == 200)
            service.send(30)
            service.wait_for(max(service.sent))
        finally:
            code, errors = service.end(signal.SIGTERM)
        assert code == 0, errors
        assert SENTINEL not in errors
        service.check()


def test_what_is_reported_to_the_service_manager(tmp_path):
    manager = Manager(str(tmp_path / "n"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "90000", "WATCHDOG_PID": str(os.getpid())}
    notifier = SystemdNotifier(environment)
    is_up, is_alive, began = [False], [True], time.monotonic()
    with notifier.watching(lambda: is_up[0], lambda: is_alive[0]):
        time.sleep(0.15)
        assert manager.said == []
        is_up[0] = True
        until(lambda: manager.said.count("WATCHDOG=1") >= 3)
        is_alive[0] = False
        time.sleep(0.3)
        notifier.stopping()
        manager.wait_for("STOPPING=1")
        assert manager.said.count("READY=1") == 1
        assert manager.said.count("WATCHDOG=1") <= 1 + (time.monotonic() - began) / (0.09 / 3)
        before = len(manager.said)
        time.sleep(0.2)
        assert len(manager.said) == before
    manager.close()
    notifier.stopping()  # nobody listens: nothing happens


def test_an_abstract_name_and_no_name():
    name = f"fcstream-test-{os.getpid()}"
    manager = Manager("\0" + name)
    SystemdNotifier({"NOTIFY_SOCKET": "@" + name}).ready()
    manager.wait_for("READY=1")
    manager.close()
    for environment in ({}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"WATCHDOG_USEC": "5"}):
        assert SystemdNotifier(environment).watchdog_s is None
        SystemdNotifier(environment).ready()
    other = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}
    assert SystemdNotifier(other).watchdog_s is None
