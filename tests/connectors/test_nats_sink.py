"""Releases that are written to JetStream: once, whatever is lost, and beside what others write and take."""

import asyncio
import contextlib
import random
import signal
import threading
import time
import tracemalloc

import pytest
from support.nats_server import HOST, cuttable, sink
from support.sources import SECRET, everything

from fcstream.connectors.nats.reader import NatsReader
from fcstream.connectors.nats.sink import NatsSink
from fcstream.connectors.retry import BrokerLost
from fcstream.connectors.urls import parse
from fcstream.errors import SinkError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, sample_release


class TestNatsSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, nats_server, nats_stream):
        self.server, self.stream = nats_server, nats_stream

    def make(self, tmp_path):
        return NatsSink(parse(f"nats://{HOST}/{self.stream}?subject={self.stream}", "sink.url"), 5.0)

    def read(self, tmp_path):
        return [Release.from_bytes(body) for body in self.server.held(self.stream)]


def test_a_cut_connection_writes_once(nats_server, nats_stream):
    """Wherever it is cut: before the server has a release, or before its answer is here, or while it is looked for."""
    sent, places = [sample_release(i) for i in range(120)], random.Random(1)
    with cuttable() as proxy, sink(nats_stream, host=proxy.host, patience_s=30.0) as out:
        for i in range(0, 120, 5):
            proxy.cut_after(places.randrange(3000), *[places.randrange(10_000) for _ in range(i % 3)])
            out.write(sent[i : i + 5])
        proxy.cut_after()
        assert proxy.cuts > 30
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]


def test_a_release_written_again_is_there_once(nats_server, nats_stream):
    sent = [sample_release(i) for i in range(6)]
    with sink(nats_stream) as out:
        assert out.last() is None
        assert out.missing(sent) == sent
        out.write(sent[:3])
        out.write(sent[1:5])  # as after a crash between the write and its acknowledgment
    with sink(nats_stream) as out:
        assert out.missing(sent) == sent[5:]
        assert out.missing([]) == []
        out.write(sent)
        assert out.last() == sent[-1]
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]
    assert nats_server.js("get_msg", nats_stream, 2).headers["Nats-Msg-Id"] == f"sample:60000@{nats_stream}"


def test_what_is_there_is_recognized_when_ids_are_forgotten(nats_server, nats_stream):
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream, f"{nats_stream}.*"], duplicate_window=0.1)
    sent = [sample_release(i) for i in range(6)]
    with sink(nats_stream) as out:
        out.write(sent[:4])
        nats_server.add(f"{nats_stream}.other", [b"other"] * 10)
        time.sleep(0.3)
        assert out.missing(sent) == sent[4:]
        out.write(out.missing(sent))
        assert out.missing(sent) == []


def test_another_release_of_the_same_window_is_no_repetition(nats_server, nats_stream):
    one, other = sample_release(1), sample_release(1)
    object.__setattr__(other, "count", 7)
    with sink(nats_stream) as out:
        out.write([one])
        with pytest.raises(SinkError, match="holds another release of window 60000"):
            out.write([other])
    assert nats_server.held(nats_stream) == [one.to_bytes()]


def test_a_stream_that_is_full_refuses(nats_server, nats_stream):
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream], max_msgs=1, discard="new")
    with sink(nats_stream) as out:
        out.write([sample_release(1)])
        with pytest.raises(SinkError, match="refuses: maximum messages exceeded"):
            out.write([sample_release(2)])


def test_a_surprise_of_the_library_is_a_loss(nats_server, nats_stream):
    async def surprise():
        raise RecursionError(SECRET)

    with sink(nats_stream, patience_s=0.2) as out:
        with pytest.raises(SinkError, match="cannot be reached: RecursionError") as caught:
            out._wire.run(surprise)
        assert SECRET not in everything(caught.value)
        assert out.last() is None


@contextlib.contextmanager
def answering(subject, answer):
    """A subscriber that answers whatever is published, before the server does."""
    import nats

    ready, stop = threading.Event(), threading.Event()

    async def serve():
        client = await nats.connect(f"nats://{HOST}")

        async def reply(message):
            await message.respond(answer)

        await client.subscribe(subject, cb=reply)
        await client.flush()
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("answer", [b"+ACK", b"", b'{"ok":1}', b"[]", b'{"stream":"other","seq":1}', b"[" * 99_999])
def test_a_subscriber_that_answers(nats_server, nats_stream, answer):
    """The stream is gone: nobody else answers."""
    sent = [sample_release(i) for i in range(5)]
    with sink(nats_stream, patience_s=30.0) as out, answering(nats_stream, answer):
        out.write(sent)
        assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]
        nats_server.js("delete_stream", nats_stream)
        with contextlib.closing(out), pytest.raises(SinkError, match="a subscriber of the subject answers"):
            out._wire.run(lambda: out._post(b"x"), 0.1)


def forget_at_once(server, stream, **options):
    """From now on the server forgets ids after a tenth of a second."""
    server.js("update_stream", name=stream, subjects=[stream, f"{stream}.*"], duplicate_window=0.1, **options)


def test_a_group_that_got_stuck_goes_on_where_it_was(nats_server, nats_stream):
    small, big = sample_release(1), sample_release(2)
    object.__setattr__(big, "value", [0.125] * 400)
    forget_at_once(nats_server, nats_stream, max_msg_size=1500)
    with sink(nats_stream) as out:
        for _ in range(3):
            with pytest.raises(SinkError, match="refuses: message size exceeds"):
                out.write([small, big])
            with pytest.raises(SinkError, match="refuses: message size exceeds"):
                out.send([b"letter", bytes(2000)])
            time.sleep(0.3)
        assert nats_server.held(nats_stream) == [small.to_bytes(), b"letter"]
        forget_at_once(nats_server, nats_stream, max_msg_size=-1)
        out.write([small, big])
        out.send([b"letter", bytes(2000)])
    assert nats_server.held(nats_stream) == [small.to_bytes(), b"letter", big.to_bytes(), bytes(2000)]


def test_an_answer_that_came_too_late(nats_server, nats_stream, monkeypatch):
    forget_at_once(nats_server, nats_stream)
    sent = [sample_release(i) for i in range(3)]
    post, lost = NatsSink._post, []

    async def lose(self, body, *arguments):
        ack = await post(self, body, *arguments)
        if body == sent[1].to_bytes() and not lost:
            lost.append(body)
            await asyncio.sleep(0.3)
            raise BrokerLost("no answer")
        return ack

    monkeypatch.setattr(NatsSink, "_post", lose)
    with sink(nats_stream) as out:
        out.write(sent)
    assert lost
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]


def test_silence_is_not_the_end(private_nats, monkeypatch):
    """The server sleeps while it is asked what it holds, until it is asked whether that was all."""
    server, sent = private_nats(), [sample_release(i) for i in range(3)]
    server.js("add_stream", name="s", subjects=["s"])
    first, last, opened = NatsReader.open, NatsSink._last, []

    async def sleep(*arguments):
        reader = await first(*arguments)
        if not opened:
            server.signal(signal.SIGSTOP)
        monkeypatch.setattr("fcstream.connectors.nats.sink.REQUEST_S", 60.0 if opened else 0.3)
        opened.append(reader)
        return reader

    async def wake(self):
        server.signal(signal.SIGCONT)
        return await last(self)

    monkeypatch.setattr(NatsSink, "_last", wake)
    with sink("s", host=server.host, patience_s=60.0) as out:
        out.write(sent)
        monkeypatch.setattr(NatsReader, "open", sleep)
        assert out.missing(sent) == []
    assert len(opened) == 1  # afterwards message by message was asked for


def take_one(server, stream):
    """As a worker that takes a message off a queue."""

    async def take(_, js):
        worker = await js.pull_subscribe(stream, "w", stream=stream)
        [message] = await worker.fetch(1)
        await message.ack_sync()
        await js.delete_consumer(stream, "w")

    server.ask(take)


@pytest.fixture
def queue(nats_server, nats_stream):
    nats_server.js("delete_stream", nats_stream)
    nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream, f"{nats_stream}.*"], retention="workqueue")
    return nats_stream


def test_a_repetition_of_what_a_worker_took(nats_server, queue):
    with sink(queue) as out:
        out.write([sample_release(1)])
        take_one(nats_server, queue)
        out.write([sample_release(1)])
        assert out.last() is None
    assert nats_server.js("stream_info", queue).state.messages == 0


def test_a_work_queue_with_a_backlog(nats_server, queue):
    sent = [sample_release(i) for i in range(4)]
    with sink(queue) as out:
        out.write(sent[:3])
        take_one(nats_server, queue)
        nats_server.add(f"{queue}.other", [b"other"] * 3)
        assert out.missing(sent) == [sent[0], sent[3]]
        take_one(nats_server, queue)
    assert nats_server.js("stream_info", queue).state.messages == 4
    assert nats_server.js("consumers_info", queue) == []


def test_other_subjects_do_not_hide_what_is_there(nats_server, nats_stream, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.nats.sink._LOOK_BACK", 10)
    forget_at_once(nats_server, nats_stream)
    sent, looks = [sample_release(i) for i in range(3)], []
    among = NatsSink._find_between

    async def look(self, wanted, start, end):
        looks.append((start, end))
        return await among(self, wanted, start, end)

    monkeypatch.setattr(NatsSink, "_find_between", look)
    with sink(nats_stream) as out:
        out.write(sent[:1])
        nats_server.add(f"{nats_stream}.other", [b"other"] * 100)
        out.write(sent[1:2])
        assert out.missing(sent[:2]) == []
        assert looks == [(93, 103), (73, 93), (33, 73), (1, 33)]
        assert out.missing(sent) == sent[2:]
        looks.clear()
        late = sample_release(int(time.time() / 60) + 1)
        monkeypatch.setattr("fcstream.connectors.nats.sink._EARLY_MS", 0)
        assert out.missing([late]) == [late]
        assert looks == [(93, 103)]  # it cannot have been there before its window closed


def test_memory_of_missing_is_bounded(nats_server, nats_stream, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.nats.reader.POLL_BYTES", 1 << 20)
    nats_server.add(nats_stream, [bytes([i]) * 900_000 for i in range(60)])
    with sink(nats_stream) as out:
        out.write([sample_release(1)])
        tracemalloc.start()
        try:
            assert out.missing([sample_release(1), sample_release(2)]) == [sample_release(2)]
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


def test_two_subjects_of_a_stream_take_the_same_release(nats_server, nats_stream):
    for subject in ("a", "b", "a"):
        address = parse(f"nats://{HOST}/{nats_stream}?subject={nats_stream}.{subject}", "sink.url")
        with contextlib.closing(NatsSink(address, 5.0)) as out:
            out.write([sample_release(1)])
            assert out.last() == sample_release(1)
    assert len(nats_server.held(nats_stream)) == 2
