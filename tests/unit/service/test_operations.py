"""What operators see: metrics, health and logs."""

import json
import logging
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from dataclasses import replace
from functools import partialmethod
from types import SimpleNamespace

import pytest
from support.helpers import free_port, sample
from support.releases import release
from support.status import SENTINEL, ask, live, watched

from fcstream import ConfigError
from fcstream.cli import base as cli_base
from fcstream.config import Config
from fcstream.connectors.retry import BrokerLost, with_patience
from fcstream.engine.engine import Engine
from fcstream.errors import LedgerDamaged, SinkError
from fcstream.ledgers.memory import MemoryLedger
from fcstream.runtime.waiting import calling
from fcstream.service.app import StreamSpec, _windows, serve
from fcstream.service.context import Counters, SessionContext
from fcstream.service.logs import logging_as, stream_context
from fcstream.service.metrics import BudgetGauge, exposition
from fcstream.service.status import SLOWEST_BEAT_S, StatusServer, answer, stuck
from fcstream.service.supervisor import Supervisor

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def values(body, parser):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_both_formats_tell_the_same():
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as open_parser

    each = watched()
    job = Engine(sample(budget={"total_rho": 9.0, "total_delta": 1e-6}))
    each.note({"s": job})
    text, kind = exposition([each], "")
    assert kind.startswith("text/plain")
    found = values(text, parser)
    openly, kind = exposition([each], OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert openly.endswith(b"# EOF\n")
    assert values(openly, open_parser) == found
    stream = ("stream", "s")
    assert found["fcstream_ready", stream] == 0
    assert found["fcstream_windows_released_total", stream] == 3
    assert found["fcstream_windows_refused_total", ("reason", "too_few"), stream] == 2
    assert found["fcstream_budget_guarantee_rho", ("block", "event"), stream] == 4.0
    assert found["fcstream_budget_remaining_rho", ("block", "total"), stream] == 9.0
    assert found["fcstream_budget_spent_delta", ("block", "total"), stream] == 0
    assert [name for name in found if name[0] == "fcstream_build_info"]


def test_the_answers_of_windows_are_counted_each_by_itself():
    from prometheus_client import parser

    each, stream = watched(), ("stream", "s")
    each.service.counters.answers = {("n", None): 4, ("m", None): 1, ("m", "too_few"): 3, ("w", "no_core"): 4}
    found = values(exposition([each])[0], parser)
    released = {dict(labels)["answer"]: n for (name, *labels), n in found.items() if "windows_released_total" in name}
    assert released == {"n": 4, "m": 1, "w": 0}
    assert found["fcstream_windows_refused_total", ("answer", "m"), ("reason", "too_few"), stream] == 3
    assert found["fcstream_windows_refused_total", ("answer", "w"), ("reason", "no_core"), stream] == 4


def test_exact_numbers_stay_hidden_unless_asked_for():
    """Of two streams in one process, each decides for itself; what the process uses follows the data too."""
    public, exact = watched("public"), watched("exact", counters=True)
    alone, _ = exposition([public])
    for hidden in (b"71717", b"72727", b"73737", b"messages", b"rejected", b"process_"):
        assert hidden not in alone
    both, _ = exposition([public, exact])
    assert b'fcstream_messages_total{stream="exact"} 71717.0' in both
    assert b'fcstream_rejected_total{reason="late",stream="exact"} 73737.0' in both
    assert b"process_resident_memory_bytes" in both
    assert both.count(b"71717.0") == both.count(b"73737.0") == 1


def test_the_budget_is_looked_at_when_windows_were_answered():
    each = watched()
    asked = []

    class Ledger(MemoryLedger):
        def spent(self, block=None):
            asked.append(block)
            return super().spent(block)

    config = Config.from_mapping(sample())
    engine = Engine(config, ledger=Ledger(Engine(config).job.terms))
    each.note({"s": engine})
    asked.clear()
    each.note({"s": engine})
    assert asked == []
    each.service.counters.answers[None, None] += 1
    each.note({"s": engine})
    assert asked == [None]
    assert each.standings["s"] == (BudgetGauge("event", engine.guarantee, engine.guarantee, engine.spent),)


def test_what_is_not_known_yet_is_absent_and_not_zero():
    """Zero would be 1970: an alert on the age of the last window would go off at every start."""
    from prometheus_client import parser

    each, stream = watched(), ("stream", "s")
    found = values(exposition([each])[0], parser)
    assert not {name for name, *_ in found} & {"fcstream_last_window_close_seconds", "fcstream_lag_seconds"}
    config = Config.from_mapping(sample())
    engine = Engine(config)
    each.service.counters.update_from(engine)
    each.service._context = replace(each.service._context, clock=lambda: time.time_ns() // 1_000_000)
    length_s = engine.job.schedule.length_ms / 1000
    found = values(exposition([each])[0], parser)
    assert ("fcstream_last_window_close_seconds", stream) not in found
    assert found["fcstream_lag_seconds", stream] == pytest.approx(time.time() - length_s, abs=60)
    next(iter(engine.closing(int(2000 * length_s))))
    each.service.counters.update_from(engine)
    found = values(exposition([each])[0], parser)
    assert found["fcstream_last_window_close_seconds", stream] >= length_s


def test_a_process_that_stands_by_is_in_no_trouble_and_says_nothing_of_windows():
    from prometheus_client import parser

    each, stream = watched(), ("stream", "s")
    health = each.service._health

    def state():
        found = values(exposition([each])[0], parser)
        told = [dict(labels)["state"] for name, *labels in found if name == "fcstream_state" and found[(name, *labels)]]
        return *told, found["fcstream_ready", stream], *answer([each], "/ready")[::2]

    assert state() == ("starting", 0, 503, b"s: starting\n")
    each.service._ending.set()
    each.service.counters.last_close_ms = 7
    each.service._stand_by("another process serves this stream")
    assert state() == ("standby", 1, 200, b"ready\ns: standing by: another process serves this stream\n")
    assert b"last_window_close" not in exposition([each])[0].replace(b"# ", b"").partition(b"{")[0]
    assert each.service.counters.last_close_ms is None
    health.good()
    assert state() == ("serving", 1, 200, b"ready\n")
    health.bad("sink: it is away")
    assert state() == ("trouble", 0, 503, b"s: sink: it is away\n")


def test_failed_tries_are_counted_by_what_they_were_about():
    from prometheus_client import parser

    each, tries = watched(), iter([BrokerLost, BrokerLost, None])

    def action():
        if (error := next(tries)) is not None:
            raise error

    with each.service.external_calls.watched(), calling("sink"):
        with_patience(action, lambda: None, 5.0, SinkError)
    with pytest.raises(LedgerDamaged), each.service.external_calls.watched(), calling("ledger"):
        raise LedgerDamaged("no")
    found = values(exposition([each])[0], parser)
    told = {dict(labels)["part"]: n for (name, *labels), n in found.items() if name == "fcstream_errors_total"}
    assert told == {"source": 0, "sink": 2, "ledger": 1}


@pytest.fixture
def status():
    it = StatusServer([watched("one"), watched("two")])
    yield it
    it.close()


def test_health_needs_no_client_and_metrics_say_what_to_install(status, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    port = free_port()
    status.listen(f"127.0.0.1:{port}")
    assert "[service]'" in caplog.text
    assert ask(port, "/live") == (200, "alive\n")
    assert ask(port, "/ready") == (503, "one: starting\ntwo: starting\n")
    code, text = ask(port, "/metrics")
    assert code == 501
    assert "[service]'" in text
    assert ask(port, "/elsewhere")[0] == 404


def test_a_server_that_moves(status):
    first, second = free_port(), free_port()
    status.listen(f"127.0.0.1:{first}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"service\.listen: .*another process listens there"):
            status.listen(f"127.0.0.1:{taken.getsockname()[1]}")
    assert ask(first, "/live")[0] == 200
    status.listen(f"127.0.0.1:{second}")
    assert ask(second, "/live")[0] == 200
    with pytest.raises(urllib.error.URLError):
        ask(first, "/live")
    status.listen(None)
    with pytest.raises(urllib.error.URLError):
        ask(second, "/live")
    for wrong in ("9100", ":9100", "localhost:http", "localhost:70000"):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            status.listen(wrong)


def test_an_address_of_ipv6(status):
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    port = free_port()
    status.listen(f"[::1]:{port}")
    assert ask(port, "/live", "[::1]")[0] == 200


def test_one_that_hangs_is_not_alive_and_one_that_waits_is():
    each = watched("s")
    each.service._health.good()
    each.service._health.beat -= SLOWEST_BEAT_S + 1
    assert stuck([watched("other"), each]).startswith("s: stuck for 18")
    each.service._health.trouble = "the broker is away"
    assert not stuck([each])


def log_everything():
    """As libraries do, with a record's content in every place that there is."""
    ours, theirs = logging.getLogger("fcstream.service"), logging.getLogger("somelibrary.adapters")
    ours.info("starting over: %s", "a reason", extra={"window": 60000})
    ours.debug(SENTINEL)
    with stream_context("other"):
        ours.warning("another stream")
    theirs.info(SENTINEL)
    theirs.warning("cannot parse %s of %r", SENTINEL, 7, extra={"window": SENTINEL, "stream": SENTINEL})
    theirs.error(f"broken: {SENTINEL}")
    theirs.error(ValueError(SENTINEL))
    theirs.error("" + SENTINEL, stack_info=True)
    theirs.warning("%d", SENTINEL)  # does not fit
    try:
        raise ValueError(SENTINEL)
    except ValueError:
        ours.exception("a failure")
        theirs.exception("their failure %s", SENTINEL)
    thread = threading.Thread(target=lambda: [][int(f"{SENTINEL}")])
    thread.start()
    thread.join()


@pytest.mark.parametrize("kind", ["json", "text"])
def test_no_log_holds_what_a_library_put_into_it(kind, capsys):
    with logging_as(kind, "s"):
        log_everything()
    out, lines = capsys.readouterr()
    assert not out
    assert SENTINEL not in lines
    for said in ("starting over: a reason", "cannot parse %s of %r", "a failure (ValueError)", "ValueError"):
        assert said in lines
    assert "a thread ended: ValueError" in lines
    logging.getLogger("fcstream").info("afterwards")
    assert not capsys.readouterr().err


def test_fields_of_a_json_line(capsys):
    with logging_as("json", "s") as logs:
        log_everything()
        logging.getLogger("fcstream.windows").info("window answered", extra={"window": 0, "reason": None})
        logs.set_format("text")
        logging.getLogger("fcstream.windows").info("not on a terminal")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    first = lines[0]
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "fcstream.service",
        "event": "starting over: a reason",
        "stream": "s",
        "window": 60000,
    }
    assert lines[1]["stream"] == "other"
    assert all(line["stream"] == "s" for line in lines[2:])
    assert [line["window"] for line in lines if "window" in line] == [60000, 0]
    assert lines[-1]["event"] == "window answered"


def test_json_without_structlog_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ConfigError, match=r"service\.log: needs .*\[service\]"), logging_as("json"):
        pass


class Stepping(Supervisor):
    """Counts what nobody may know, and ends as it is told."""

    end = None

    def run(self, on_step=None):
        for _ in range(5):
            self.counters.messages += 71717
            on_step(self)
        if self.end is not None:
            raise self.end


def serve_stepping(monkeypatch, kind, end=None, **section):
    """A service whose status would be told at every step."""
    monkeypatch.setattr("fcstream.service.app.warm_up", lambda *_: None)
    monkeypatch.setattr("fcstream.service.app.ProgressLine.__init__", partialmethod(impatient_progress))

    def make(_config, _current):
        it = Stepping(*[lambda: None] * 3, SessionContext(decoder=None, clock=lambda: 0))
        it.end = end
        return it

    serve([StreamSpec(live(service={"log": kind, **section}))], make)


def impatient_progress(self):
    self._out, self._live, self._pause, self._last, self._shown = sys.stderr, False, 0.0, 0.0, False


@pytest.mark.parametrize("kind", ["text", "json"])
def test_no_log_reveals_exact_counts_in_its_lines_or_their_timing(kind, monkeypatch, capsys):
    serve_stepping(monkeypatch, kind)
    errors = capsys.readouterr().err
    assert "71717" not in errors.replace(",", "")
    assert "358585" not in errors.replace(",", "")
    assert "stopped; 0 windows released" in errors


@pytest.mark.parametrize(
    ("names", "told"),
    [("abc", "4 windows, 11 of their answers released, 1 refused"), ([None], "4 windows released, 0 refused")],
)
def test_windows_are_counted_and_not_their_answers(names, told):
    """Four windows of three answers each were told as twelve windows."""
    counters = Counters()
    for window in range(4):
        places = [{"name": name, "place": None if name is None else k} for k, name in enumerate(names)]
        counters.add([release(window, [1.0], **place) for place in places])
    if len(names) > 1:
        counters.answers["c", None], counters.answers["c", "too_few"] = 3, 1
    assert _windows(SimpleNamespace(service=SimpleNamespace(counters=counters))) == told


def test_every_line_of_a_json_log_is_json_to_its_end(monkeypatch, capsys):
    warned = []
    monkeypatch.setattr(
        "fcstream.service.app.warm_up", lambda *_: warned.append(warnings.warn("plain text", stacklevel=1))
    )
    with pytest.raises(LedgerDamaged) as caught:
        serve_stepping(monkeypatch, "json", LedgerDamaged("the ledger is damaged"))
    guarded = cli_base.guarded(lambda: (_ for _ in ()).throw(caught.value))
    with pytest.raises(SystemExit) as ended:
        guarded()
    assert ended.value.code == 4
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert events[-1]["event"] == "the ledger is damaged"
