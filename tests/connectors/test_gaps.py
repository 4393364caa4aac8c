"""A stream purged, trimmed or made anew: what was read stays, and which windows lack something is told for good."""

import asyncio
import json
import logging
import secrets
import threading
import time

import pytest
from support import nats_server, redis_server
from support.live import Live
from support.nats_server import HOST, stream_of
from support.rabbitmq import STREAMS, amqp, declared

from fcstream.connectors import open_live
from fcstream.connectors.base import Gap
from fcstream.service.gaps import IncompleteWindows
from fcstream.service.metrics import StreamStatus, exposition
from fcstream.service.status import answer
from fcstream.stream.windows import Schedule

SCHEDULE = Schedule(0, 10_000, 10_000, 2_000, 600_000)
LOGGED = []  # by all services that run beside each other


@pytest.fixture(scope="module", autouse=True)
def logged():
    logger, handler = logging.getLogger("fcstream.windows"), logging.Handler()
    handler.emit, before = LOGGED.append, logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)
    logger.removeHandler(handler)


class Missing:
    def __init__(self, *gaps):
        self.left = list(gaps)

    def gaps(self):
        found, self.left = self.left, []
        return found


@pytest.mark.parametrize(
    ("since_ms", "next_window", "now_ms", "concerned"),
    [
        (25_000, 0, 41_000, [2, 3, 4]),  # a record may be for the window before its stamp, until that is late
        (21_000, 0, 41_000, [1, 2, 3, 4]),
        (21_000, 3, 41_000, [3, 4]),
        (None, 1, 15_000, [1]),
        (None, 50, 10**9, list(range(50, 60))),
        (5_000, 3, 21_000, []),
    ],
)
def test_which_windows_a_gap_concerns(since_ms, next_window, now_ms, concerned):
    gaps = IncompleteWindows()
    last = gaps.update(Missing(Gap("x", since_ms)), SCHEDULE, next_window, now_ms)
    assert [k for k in range(60) if gaps.includes(10_000 * k)] == concerned
    assert last == (concerned[-1] if concerned else -1)
    assert gaps.found == 1
    assert gaps.update(Missing(), SCHEDULE, next_window, now_ms) == -1
    gaps.forget_answered([10_000 * k for k in range(60)])
    assert gaps.answered == len(concerned)


def told(live):
    """What those who watch a service see of gaps."""
    watched = StreamStatus("s", live.service)
    code, _, text = answer([watched], "/ready")
    assert code == 200, text
    metrics = exposition([watched])[0].decode().splitlines()
    values = {
        line.split("{")[0]: float(line.split()[-1])
        for line in metrics
        if line[:13] in ("fcstream_gaps", "fcstream_inco")
    }
    return text.decode(), values["fcstream_gaps_total"], values["fcstream_incomplete_windows_total"]


def nothing_that_was_read_is_missing(live):
    """Of what was sent, only the few messages on their way when the stream went."""
    found = {r.window_open_ms: round(r.count) for r in live.sink.releases}
    sent = {opened: live.sent[opened] for opened in found}
    assert sum(sent.values()) > 400
    assert all(count <= sent[opened] + 1 for opened, count in found.items()), (found, sent)
    assert sum(found.values()) >= sum(sent.values()) - 60, (found, sent)


@pytest.fixture
def stream_of_its_own(rabbitmq_streams):
    with declared("stream") as name:
        yield name


class Publisher:
    """Publishes to JetStream on one connection."""

    def __init__(self, subject):
        self.subject = subject
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.run(self.connect())

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    async def connect(self):
        import nats

        self.client = await nats.connect(f"nats://{HOST}")
        self.js = self.client.jetstream()

    def put(self, body):
        self.run(self.js.publish(self.subject, body))

    def close(self):
        self.run(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def test_rabbitmq_stream(tmp_path, rabbitmq_streams, stream_of_its_own):
    live = Live(tmp_path, f"rabbitmq-stream://{STREAMS}/?stream={stream_of_its_own}", 0)
    connection = amqp()
    channel = connection.channel()
    sent = []

    def put(body):
        sent.append(body)
        if len(sent) == 350:
            channel.queue_delete(stream_of_its_own)
            channel.queue_declare(stream_of_its_own, durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", stream_of_its_own, body)

    live.feed(put, 7)
    text, gaps, incomplete = told(live)
    live.end()
    connection.close()
    nothing_that_was_read_is_missing(live)
    assert live.service.counters.restarts == 0
    assert gaps == 1
    assert 1 <= incomplete <= 5
    assert "was made anew: windows that open from" in text


@pytest.mark.beside
@pytest.mark.parametrize("what", ["made anew", "purged"])
def test_jetstream(folder, what):
    """340 of 611 records of open windows were dropped that the engine already held."""
    with stream_of(nats_server.connect()) as name:
        lose_jetstream(folder, name, what)


def lose_jetstream(folder, nats_stream, what):
    polled = []

    def opened():
        source = open_live(f"nats://{HOST}/{nats_stream}?bucket={nats_stream}", f"test-{nats_stream}")
        real = source.poll

        def poll(most, timeout_s):
            began = time.monotonic()
            found = real(most, timeout_s)
            polled.append(time.monotonic() - began)
            return found

        source.poll = poll
        return source

    live = Live(folder, opened, 0)
    publisher = Publisher(nats_stream)
    sent = []

    def put(body):
        sent.append(body)
        if len(sent) == 350 and what == "made anew":
            publisher.run(publisher.js.delete_stream(nats_stream))
            publisher.run(publisher.js.add_stream(name=nats_stream, subjects=[nats_stream]))
        elif len(sent) == 350:
            for _ in range(2000):  # some that are not read before they are gone
                publisher.run(publisher.client.publish(nats_stream, b"no record"))
            publisher.run(publisher.js.purge_stream(nats_stream))
        publisher.put(body)

    live.feed(put, 7)
    text, gaps, incomplete = told(live)
    live.end()
    publisher.close()
    assert max(polled) < 4.0  # 4.7 s: the server counts purged messages among those that it is about to send
    nothing_that_was_read_is_missing(live)
    assert live.service.counters.restarts == 0
    unread = 0 if what == "made anew" else 2000 - live.service.counters.rejected.get("broken_record", 0)
    assert bool(gaps) == (what == "made anew" or unread > 0)  # a reader that is quick misses nothing of a purge
    if gaps:
        assert gaps == 1
        assert 1 <= incomplete <= 4
        assert (
            f"warning: stream {nats_stream} was made anew: windows that open from " in text or "dropped unread" in text
        )
        marked = [r for r in LOGGED if r.thread == live.thread and getattr(r, "incomplete", False)]
        assert len(marked) == live.service.gaps.answered


@pytest.mark.beside
def test_redis(folder):
    """Deleted and written anew with ids before those that were read; trimmed before that, with entries unread."""
    key = f"fcstream-test-{secrets.token_hex(6)}"
    with redis_server.connect() as client:
        try:
            lose_redis(folder, client, key)
        finally:
            client.delete(key)


def lose_redis(folder, client, key):
    live = Live(folder, f"redis://{redis_server.HOST}/0?stream={key}", 0)
    sent = []

    def put(body):
        sent.append(body)
        if len(sent) == 350:
            client.delete(key)
            client.xadd(key, {"data": body}, id="1000-1")
            live.sent.subtract([json.loads(body)["ts_ms"] // 1000 * 1000])  # its id says that it came in 1970
        client.xadd(key, {"data": body})

    live.feed(put, 7)
    text, gaps, incomplete = told(live)
    live.end()
    nothing_that_was_read_is_missing(live)
    assert live.service.counters.restarts == 0
    assert gaps >= 1
    assert incomplete >= 1
    assert "windows that open from" in text
