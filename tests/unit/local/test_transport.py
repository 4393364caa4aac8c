"""Devices over real transports: MQTT by the machine's broker, HTTP by a server of our own."""

import contextlib
import gc
import http.server
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from support.devices import PLANE, Direct, devices
from support.helpers import free_port, open_sockets, service

from fcstream.accounting.filters import BudgetSchedule
from fcstream.errors import ConfigError, LedgerError, SourceError
from fcstream.local import Box, FileJournal, RangeCount, Rounds, Series
from fcstream.local.protocol import Ask, answered, canonical
from fcstream.local.simulation import Fleet
from fcstream.local.transport.gateway import LARGEST, MAX_QUESTIONS, Gateway, Remote, message_of
from fcstream.local.transport.mqtt import MqttGateway, MqttTransport
from fcstream.local.transport.web import HttpTransport, open_server, serve

HOST = os.environ.get("FCSTREAM_MQTT", "127.0.0.1:1883")
QUERY = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))
BUDGETS = np.full(60, 3 * 10**9)
NAMES = itertools.count()


def addresses(gateway="g", count=60):
    return [(gateway, f"d{i}") for i in range(count)]


def same(a, b):
    return a.value == b.value and all(
        (getattr(a.transcript, name) == getattr(b.transcript, name)).all() for name in ("sums", "state", "consumed")
    )


class Lossy(Direct):
    """Loses some messages, delivers some twice, some too late, some in another order."""

    def __init__(self, gateways, fates):
        super().__init__(gateways)
        self.fates = iter(fates)
        self.late = {}

    def exchange(self, messages, timeout_s):
        came = dict(self.late)
        self.late = {}
        for batch, message in sorted(messages.items(), reverse=True):
            fate = next(self.fates)
            if fate == "lost":
                continue
            found = super().exchange({batch: message}, timeout_s)
            if fate == "twice":
                assert super().exchange({batch: message}, timeout_s) == found
            if fate == "unheard":
                continue
            (self.late if fate == "late" else came).update(found)
        return came


def test_lost_doubled_and_late_messages_change_nothing():
    expected = QUERY.run(Fleet(devices()), "q", BUDGETS, "PM1", Rounds(4))
    plain = Remote(Direct({"g": Gateway(devices())}), addresses(), batch=60)
    assert same(QUERY.run(plain, "q", BUDGETS, "PM1", Rounds(4)), expected)
    held = devices()
    fates = itertools.cycle(["unheard", "twice", "late", "on time", "lost"])
    lossy = Remote(Lossy({"g": Gateway(held)}, fates), addresses(), batch=7, tries=9)
    answer = QUERY.run(lossy, "q", BUDGETS, "PM1", Rounds(4))
    assert answer.missing == 0
    assert [d.spent.rho_nano for d in held] == answer.transcript.consumed.tolist()  # nobody paid twice
    assert same(QUERY.run(plain, "q", BUDGETS, "PM1", Rounds(4)), expected)  # asked again: the same bytes


def test_who_stays_silent_counts_as_charged():
    gone = Remote(Direct({"g": Gateway(devices(count=40))}), addresses(), batch=9, tries=2)
    answer = QUERY.run(gone, "q", BUDGETS, "BM1")
    assert answer.missing == 20
    assert answer.saving == 0
    silent = Remote(Direct({}), addresses(), tries=2)
    assert QUERY.run(silent, "q", BUDGETS, "PM1").missing == 60


@pytest.mark.parametrize(("forged", "value"), [(-(10**6), 60), (10**6, 0)])
def test_forged_replies_change_an_answer_without_a_trace_as_the_readme_says(forged, value):
    class Forger(Direct):
        def exchange(self, messages, timeout_s):
            found = {}
            for batch, reply in super().exchange(messages, timeout_s).items():
                told = json.loads(reply)
                for each in told["replies"]:
                    each["values"] = [forged] * len(each["values"])
                found[batch] = json.dumps(told).encode()
            return found

    remote = Remote(Forger({"g": Gateway(devices())}), addresses())
    answer = QUERY.run(remote, "q", BUDGETS, "BM1")
    assert (answer.value, answer.missing) == (value, 0)


def test_bad_messages_are_refused_and_cost_nothing():
    held = devices()
    gateway = Gateway(held)
    one = Ask("q", 1, "place", PLANE.as_dict(), {"kind": "point"}, 0)
    good = json.loads(message_of(one, "b", [("d1", 5), ("nobody", 5)]))
    for change in (
        {"batch": 5},
        {"batch": "x" * 300},
        {"to": "d1"},
        {"to": [["d1"]]},
        {"to": [["d1", 1.5]]},
        {"to": [["d1", True]]},
        {"loss": "euros"},
        {"ask": []},
        {"ask": {}},
        {"extra": 1},
    ):
        assert json.loads(gateway.answer(canonical(good | change)))["reason"] == "malformed"
    for data in (b"", b"{", b"[]", b"null", b" " * (LARGEST + 1)):
        assert json.loads(gateway.answer(data))["reason"] == "malformed"
    assert all(d.spent.rho_nano == 0 for d in held)
    said = json.loads(gateway.answer(canonical(good)))["replies"]
    assert said[0]["status"] == "answered"
    assert said[1] is None
    assert gateway.names[:2] == ["d0", "d1"]


@pytest.mark.slow
def test_a_message_names_so_many_devices_and_each_once():
    """Issue: one device named a million times in one message took 1.3 GB."""
    held = devices(count=2)
    gateway = Gateway(held)
    one = Ask("q", 1, "place", PLANE.as_dict(), {"kind": "point"}, 0)
    for to in ([("d1", 5)] * 2, [("d1", 5)] * 100_000, [(f"n{i}", 5) for i in range(MAX_QUESTIONS + 1)]):
        said = json.loads(gateway.answer(message_of(one, "b", to)))
        assert (said["status"], said["reason"]) == ("refused", "malformed")
    assert all(d.spent.rho_nano == 0 for d in held)
    most = [("d1", 10**9), *((f"n{i}", 5) for i in range(MAX_QUESTIONS - 1))]
    assert json.loads(gateway.answer(message_of(one, "b", most)))["replies"][0]["status"] == "answered"
    for batch in (0, MAX_QUESTIONS + 1):
        with pytest.raises(ConfigError, match=rf"analyst\.batch: must be in \[1, {MAX_QUESTIONS}\]"):
            Remote(Direct({}), addresses(), batch=batch)


def test_a_refusal_does_not_repeat_a_long_ask_for_every_device():
    one = Ask("q", 1, "place", PLANE.as_dict(), {"kind": "x" * 10**6}, 0)
    said = Gateway(devices()).answer(message_of(one, "b", [(f"d{i}", 5) for i in range(60)]))
    assert b'"function"' in said
    assert len(said) < 60 * 1000


def test_deep_messages_and_long_names_do_not_stop_a_gateway():
    """Found by reading: an ask nested as deep as could just be read ran out of stack when it was written again."""
    held = devices(count=2)
    gateway = Gateway(held)
    one = Ask("q", 1, "place", PLANE.as_dict(), {"kind": "point"}, 0)
    good = message_of(one, "b", [("d1", 5)])
    for depth in range(4, 3000, 83):
        for key in (b'"point"', b"100.0", b'"place"'):
            deep = gateway.answer(good.replace(key, b"[" * depth + b"]" * depth))
            assert b"malformed" in deep or b"refused" in deep
    assert all(d.spent.rho_nano == 0 for d in held)
    remote = Remote(Direct({"g": gateway}), addresses(count=2), tries=1)
    assert QUERY.run(remote, "n" * 200, np.full(2, 10**9), "BM1").missing == 0
    with pytest.raises(ConfigError, match="name"):
        Gateway([*held, *devices(count=1)])


def test_messages_that_wait_are_answered_with_two_durable_writes(tmp_path):
    journal = FileJournal(tmp_path / "state")
    held = devices(journal=journal)
    gateway = Gateway(held)
    one, other = (Ask(name, 1, "place", PLANE.as_dict(), {"kind": "point"}, 0) for name in ("q", "r"))
    to = [("d1", 5 * 10**8), ("d2", 4 * 10**8)]
    messages = [
        message_of(one, "a", to),
        b"{",
        message_of(other, "b", [("d1", 10**8), ("nobody", 5)]),
        message_of(one, "c", to),
    ]
    lines = len((tmp_path / "state").read_bytes().splitlines())
    first, bad, second, again = map(json.loads, gateway.answer_many(messages))
    assert len((tmp_path / "state").read_bytes().splitlines()) == lines + 2
    assert bad["reason"] == "malformed"
    assert [reply["status"] for reply in first["replies"]] == ["answered"] * 2
    assert (second["batch"], second["replies"][0]["query"], second["replies"][1]) == ("b", "r", None)
    assert (again["batch"], again["replies"]) == ("c", first["replies"])
    assert [d.spent.rho_nano for d in held[:4]] == [0, 6 * 10**8, 4 * 10**8, 0]
    assert json.loads(gateway.answer(messages[0])) == first
    journal.close()


def test_the_fast_reply_is_the_canonical_one():
    one = Ask('q"\\é', 3, "place", {}, {}, 7)
    for values, private in (([1, -2], True), ([], False)):
        data = answered(one, values, private)
        assert canonical(json.loads(data)) == data


def test_gateways_share_a_journal_and_come_back(tmp_path):
    path = tmp_path / "state"
    journal = FileJournal(path)
    remote = Remote(Direct({"g": Gateway(devices(journal=journal))}), addresses(), batch=13)
    first = QUERY.run(remote, "q", BUDGETS, "PM1", Rounds(4))
    journal.close()
    journal = FileJournal(path)
    again = devices(seed=9, journal=journal)
    assert [d.spent.rho_nano for d in again] == first.transcript.consumed.tolist()
    remote = Remote(Direct({"g": Gateway(again)}), addresses(), batch=5)
    assert same(QUERY.run(remote, "q", BUDGETS, "PM1", Rounds(4)), first)
    journal.close()


# -- MQTT ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def url():
    def probe():
        host, _, port = HOST.partition(":")
        socket.create_connection((host, int(port)), 2).close()

    service("MQTT", probe)
    return f"mqtt://{HOST}/fcstream-test-{os.getpid()}-{next(NAMES)}"


def test_over_mqtt(url, tmp_path):
    held = devices(rho=20)
    with contextlib.ExitStack() as stack:
        stack.callback(MqttGateway(url, "one", Gateway(held[:30])).close)
        stack.callback(MqttGateway(url, "two", Gateway(held[30:])).close)
        transport = MqttTransport(url)
        stack.callback(transport.close)
        named = [("one" if i < 30 else "two", f"d{i}") for i in range(60)]
        remote = Remote(transport, named, batch=8, timeout_s=60)
        schedule = BudgetSchedule(20 * 10**9, 3)
        with Series(remote, schedule, "s", tmp_path / "books") as series:
            series.run(QUERY, "PM1", Rounds(4))
        # The analyst dies in the second query, after two rounds, and starts again elsewhere.
        asked = []

        class Dying(Remote):
            def ask(self, question, who, costs):
                if question.round == 3:
                    raise KeyboardInterrupt
                asked.append(super().ask(question, who, costs))
                return asked[-1]

        dying = Series(Dying(transport, named, batch=8), schedule, "s", tmp_path / "books")
        with pytest.raises(KeyboardInterrupt):
            dying.run(QUERY, "PM1", Rounds(4))
        dying.close()
        spent = [d.spent.rho_nano for d in held]
        other = MqttTransport(url)
        stack.callback(other.close)
        heard = []

        class Listening(Remote):
            def ask(self, question, who, costs):
                heard.append(super().ask(question, who, costs))
                if question.round == 2:
                    assert [d.spent.rho_nano for d in held] == spent  # replayed: nobody pays twice
                return heard[-1]

        again = Series(Listening(other, named, batch=8), schedule, "s", tmp_path / "books")
        stack.callback(again.close)
        answer = again.run(QUERY, "PM1", Rounds(4))
        assert answer.missing == 0
        for before, after in zip(asked, heard, strict=False):
            assert (before[1] == after[1]).all()
        assert (20 * 10**9 - again.account.remaining).tolist() == [d.spent.rho_nano for d in held]


def test_mqtt_gateways_reply_where_replies_belong_only(url):
    from paho.mqtt import client as paho
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    prefix = url.rpartition("/")[2]
    host, _, port = HOST.partition(":")
    heard, ready = [], threading.Event()
    gateway = MqttGateway(url, "one", Gateway(devices()))
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _c, _d, message: heard.append(message.topic)
    client.on_subscribe = lambda *_: ready.set()
    client.connect(host, int(port))
    client.subscribe(f"{prefix}/#", qos=1)
    client.loop_start()
    assert ready.wait(60)
    try:
        for topic in (None, f"{prefix}/elsewhere", f"{prefix}/reply/#", f"{prefix}/reply/me"):
            properties = Properties(PacketTypes.PUBLISH)
            if topic:
                with contextlib.suppress(Exception):
                    properties.ResponseTopic = topic
            client.publish(f"{prefix}/ask/one", b"{}", qos=1, properties=properties)
        until = time.monotonic() + 60
        while f"{prefix}/reply/me" not in heard and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        client.disconnect()
        client.loop_stop()
        gateway.close()
    assert set(heard) == {f"{prefix}/ask/one", f"{prefix}/reply/me"}


def test_an_mqtt_gateway_that_cannot_write_stops(url, tmp_path):
    journal = FileJournal(tmp_path / "state")
    gateway = MqttGateway(url, "one", Gateway(devices(journal=journal)))
    transport = MqttTransport(url)
    try:
        os.close(journal._file)
        remote = Remote(transport, addresses("one"), timeout_s=0.5, tries=2)
        assert QUERY.run(remote, "q", BUDGETS, "BM1").missing == 60
        with pytest.raises(LedgerError):
            gateway.wait(threading.Event())
    finally:
        journal._file = -1
        gateway.close()
        transport.close()


def test_an_mqtt_gateway_outlives_what_it_cannot_answer_and_holds_little_of_what_waits(url):
    """Issue: a thread that died of one reply left a gateway that looked alive; 1,000 messages of any size waited."""
    import paho.mqtt.client as paho

    prefix = url.rpartition("/")[2]
    held, gate, entered = Gateway(devices()), threading.Event(), threading.Event()
    inner = held.answer_many

    def slow(messages):
        entered.set()
        gate.wait(120)
        return inner(messages)

    held.answer_many = slow
    gateway = MqttGateway(url, "one", held)
    host, _, port = HOST.partition(":")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect(host, int(port))
    client.loop_start()
    transport = MqttTransport(url)
    try:
        client.publish(f"{prefix}/ask/one", b" " * (2 * LARGEST), qos=1).wait_for_publish(60)
        for _ in range(20):
            client.publish(f"{prefix}/ask/one", b" " * (LARGEST - 100), qos=1)
        assert entered.wait(60)
        until = time.monotonic() + 60
        while gateway._queue.qsize() <= 2**20 and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1)
        assert 2**20 < gateway._queue.qsize() <= 2**24 + LARGEST + 1000
        gate.set()
        remote = Remote(transport, addresses("one"), timeout_s=60, tries=2)
        assert QUERY.run(remote, "q", BUDGETS, "BM1").missing == 0
        assert gateway.failed is None
    finally:
        gate.set()
        client.disconnect()
        client.loop_stop()
        gateway.close()
        transport.close()


def test_an_mqtt_gateway_that_fails_while_messages_wait_ends(url):
    held = Gateway(devices())
    held.answer_many = lambda messages: [b""] * (len(messages) + 1)
    gateway = MqttGateway(url, "one", held)
    transport = MqttTransport(url)
    transport.exchange({"b": ("one", b"{}")}, 0.5)
    with pytest.raises(ValueError):
        gateway.wait(threading.Event())
    transport.exchange({"c": ("one", b" " * (LARGEST - 100))}, 0.5)
    transport.close()
    gateway.close()
    assert not gateway._thread.is_alive()


def test_what_is_closed_leaves_no_socket_to_the_garbage_collector(url):
    before = open_sockets()
    gc.disable()
    try:
        gateway, transport = MqttGateway(url, "one", Gateway(devices())), MqttTransport(url)
        assert open_sockets() > before
        transport.close()
        gateway.close()
        del gateway, transport
        assert open_sockets() <= before
    finally:
        gc.enable()


def test_mqtt_addresses():
    for bad in ("mqtt://h/a/%23", "mqtt://h", "amqp://h/a", "mqtt://h/a?wrong=1"):
        with pytest.raises(ConfigError):
            MqttTransport(bad)
    with pytest.raises(SourceError) as caught:
        MqttTransport("mqtt://u:s3cret@127.0.0.1:9/a")
    assert "s3cret" not in str(caught.value)


# -- HTTP ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(gateway):
    server = open_server(gateway, "127.0.0.1", 0)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


def test_over_http():
    held = devices()
    expected = QUERY.run(Fleet(devices()), "q", BUDGETS, "PM1", Rounds(4))
    with served(Gateway(held)) as base:
        transport = HttpTransport()
        remote = Remote(transport, addresses(base), batch=60)
        answer = QUERY.run(remote, "q", BUDGETS, "PM1", Rounds(4))
        assert same(answer, expected)
        assert same(QUERY.run(remote, "q", BUDGETS, "PM1", Rounds(4)), expected)  # replayed
        with urllib.request.urlopen(f"{base}/live", timeout=60) as response:
            assert response.read() == b"live"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{base}/ask", b" " * (LARGEST + 5), timeout=60)
        assert caught.value.code == 413
        caught.value.close()
        both = Remote(transport, [*addresses(base, 30), *addresses("http://127.0.0.1:9", 30)], timeout_s=20, tries=2)
        half = QUERY.run(both, "r", BUDGETS, "BM1")
        assert half.missing == 30
        with pytest.raises(ConfigError):
            transport.exchange({"b": ("file:///etc/passwd", b"")}, 1)
        transport.close()
    assert max(d.spent.rho_nano for d in held) <= 10**10


def test_a_crowd_of_analysts_over_http(tmp_path):
    """The same ids for other prices, at the same time: one of each is answered, and everybody hears the same bytes."""
    journal = FileJournal(tmp_path / "state")
    held = devices(rho=2, count=8, journal=journal)
    heard = [{} for _ in range(6)]

    def analyst(number, base):
        transport = HttpTransport()
        for step in range(8):
            query = f"q{(step + number) % 8}"
            one = Ask(query, 1, "place", PLANE.as_dict(), {"kind": "point"}, 0)
            price = 3 * 10**8 + number % 2
            body = message_of(one, "b", [(d.name, price) for d in held])
            found = json.loads(transport.exchange({"b": (base, body)}, 20)["b"])["replies"]
            heard[number] |= {(query, d.name): r for d, r in zip(held, found, strict=True) if "values" in r}
        transport.close()

    with served(Gateway(held)) as base:
        threads = [threading.Thread(target=analyst, args=(number, base)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    paid = {}
    for found in heard:
        for key, said in found.items():
            assert paid.setdefault(key, said) == said
    for one in held:
        mine = [said["nano"] for (_, name), said in paid.items() if name == one.name]
        assert len(mine) == 6  # of eight: there is room for no more
        assert sum(mine) == one.spent.rho_nano <= 2 * 10**9
    journal.close()


SERVED = """
import resource, sys, threading
from fcstream.local.transport.gateway import Gateway
from fcstream.local.transport.web import open_server
from support.devices import devices
server = open_server(Gateway(devices()), "127.0.0.1", int(sys.argv[1]))
server.start()
for line in sys.stdin:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, flush=True)
server.close()
"""


@pytest.mark.slow
def test_half_sent_bodies_take_a_bounded_amount_of_memory_and_others_are_answered():
    """Issue: 40 half-sent bodies took 605 MB."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SERVED, str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=environment, **pipes) as server, contextlib.ExitStack() as stack:

        def megabytes():
            server.stdin.write("\n")
            return int(server.stdout.readline())

        stack.callback(server.kill)
        transport = HttpTransport()
        stack.callback(transport.close)
        remote = Remote(transport, addresses(f"http://127.0.0.1:{port}"), timeout_s=120)
        megabytes()  # it is up
        assert QUERY.run(remote, "before", BUDGETS // 2, "BM1").missing == 0
        before = megabytes()
        for _ in range(60):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            with contextlib.suppress(OSError):
                one.sendall(b"POST /ask HTTP/1.1\r\nHost: [::]\r\nContent-Length: %d\r\n\r\n" % LARGEST)
                one.sendall(b"[" * (LARGEST - 1))
        assert QUERY.run(remote, "q", BUDGETS, "BM1").missing == 0
        assert megabytes() - before < 100
        server.stdin.close()
        assert server.wait(120) == 0


def test_a_gateway_that_fails_ends_its_server(tmp_path):
    journal = FileJournal(tmp_path / "state")
    gateway = Gateway(devices(journal=journal))
    server = open_server(gateway, "127.0.0.1", 0)
    journal.close()
    transport = HttpTransport()
    asked = threading.Thread(target=lambda: transport.exchange({"b": (f"http://127.0.0.1:{server.port}", MESSAGE)}, 5))
    asked.start()
    with pytest.raises(LedgerError):
        serve(gateway, server, threading.Event())
    asked.join()
    transport.close()


MESSAGE = message_of(Ask("q", 1, "place", PLANE.as_dict(), {"kind": "point"}, 0), "b", [("d1", 5 * 10**8)])


def test_a_gateway_that_cannot_write_says_so_over_http(tmp_path):
    journal = FileJournal(tmp_path / "state")
    with served(Gateway(devices(journal=journal))) as base:
        journal.close()
        transport = HttpTransport()
        assert QUERY.run(Remote(transport, addresses(base), tries=1), "q", BUDGETS, "BM1").missing == 60
        transport.close()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{base}/live", timeout=60)
        assert caught.value.code == 503
        caught.value.close()


def test_a_token_is_not_carried_elsewhere():
    """A gateway that sends the analyst to another place is silent."""
    seen = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        transport = HttpTransport("secret")
        assert transport.exchange({"b": (f"http://127.0.0.1:{server.server_port}", b"{}")}, 5) == {}
        transport.close()
        server.shutdown()
    assert seen == ["/ask"]
