"""Kafka: against librdkafka's mock cluster in another process, and the same against brokers that FCSTREAM_KAFKA names
(host:port,...; they must let anybody make topics)."""

import concurrent.futures
import contextlib
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from support import kafka_mock
from support.helpers import service
from support.kafka import make_topic, quiet, send, sink_of
from support.sources import SECRET

from fcstream.connectors import open_live, open_ranges, open_sink
from fcstream.connectors.kafka import source as kafka_module
from fcstream.connectors.kafka.source import KafkaSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, SinkError, SourceError
from fcstream.testing import SourceContract, sample_release


def stop(process):
    """Let a process hang; it does when this returns."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class End:
    """The client's event that a partition was read to its end."""

    def __init__(self, topic, partition, offset):
        self.topic, self.partition, self.offset = lambda: topic, lambda: partition, lambda: offset

    def error(self):
        return confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF)


class Exchanging:
    """A consumer whose partitions are exchanged while it gives messages."""

    def __init__(self, source, topic):
        self.source, self.topic, self.restarted, self.asked = source, topic, None, 0

    def consume(self, limit, timeout_s):
        self.asked += 1
        self.source._on_revoke(None, [])
        self.source._on_assign(None, [TopicPartition(self.topic, 1)])
        return ["from before or after"]

    def incremental_unassign(self, partitions):
        self.restarted = []

    def incremental_assign(self, partitions):
        self.restarted += [(each.partition, each.offset) for each in partitions]

    def close(self):
        pass


def source_of(address, topic, patience_s=60.0, session_s=None, options=""):
    # The mock's groups wait for nearly a session when a member has left; real brokers take 6 s and more only.
    session_s = session_s or (6 if address == os.environ.get("FCSTREAM_KAFKA") else 4)
    url = f"kafka://{address}/{topic}?group={topic}&session_s={session_s}{options}"
    return KafkaSource(parse(url, "source.url"), "name", patience_s)


def bodies_of(chunks):
    return [body for chunk in chunks for body in chunk.bodies]


def commit_for_ever(source, positions):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        source.commit(positions)
        time.sleep(0.1)


def until_answered(call, *arguments):
    """Its result; brokers that have come back may need longer than a patience of a second."""
    for _ in range(40):
        with contextlib.suppress(SourceError, SinkError):
            return call(*arguments)
    return call(*arguments)


def poll_for_ever(source):
    while True:
        assert source.poll(10, 0.2) == []


def gather(sources, wanted, seconds=90.0):
    """Poll in turn until `wanted()` holds; chunks of each source, emptied when its generation grows."""
    found = [[] for _ in sources]
    generations = [source.generation for source in sources]
    until = time.monotonic() + seconds
    while time.monotonic() < until and not wanted(found):
        for i, source in enumerate(sources):
            chunks = source.poll(100, 0.05)
            if source.generation != generations[i]:
                found[i], generations[i] = [], source.generation
            found[i] += chunks
    assert wanted(found), [len(bodies_of(chunks)) for chunks in found]
    return found


class TestKafkaSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _place(self, kafka_broker):
        self.address, self.topic = kafka_broker, make_topic(kafka_broker)

    def make(self, tmp_path):
        return source_of(self.address, self.topic)

    def send(self, tmp_path, bodies):
        send(self.address, self.topic, bodies)

    def ranges(self, tmp_path):
        return open_ranges(f"kafka://{self.address}/{self.topic}?group=x", "ranges")


def test_topics_partitions_and_tombstones(kafka_broker):
    topics = [make_topic(kafka_broker), make_topic(kafka_broker)]
    for topic in topics:
        send(kafka_broker, topic, [topic.encode(), None, b"c", b"d", *[b"more"] * 40])
    source = open_live(f"kafka://{kafka_broker}/{','.join(topics)}", f"group-{topics[0]}")
    assert not source.receipt_is_durable
    ends = source.ends()  # waits for the partitions, and may receive meanwhile
    assert ends == {f"{topic}:{i}": 11 for topic in topics for i in range(4)}
    chunks = source.poll(3, 60.0)
    assert 0 < len(bodies_of(chunks)) <= 3
    source.commit(dict.fromkeys(ends, 0))  # so does a commit
    while source.behind(ends):
        chunks += source.poll(7, 5.0)
    assert len(bodies_of(chunks)) == 88
    assert {chunk.partition for chunk in chunks} == set(ends)
    for topic in topics:
        first = [chunk for chunk in chunks if chunk.partition == f"{topic}:0"]
        assert bodies_of(first) == [topic.encode(), *[b"more"] * 10]
        assert np.concatenate([chunk.offsets for chunk in first]).tolist() == list(range(11))
        assert bodies_of(chunk for chunk in chunks if chunk.partition == f"{topic}:1")[0] == b""
    assert source.timestamp_kind in ("CreateTime", "LogAppendTime")
    assert all(chunk.timestamps_ms.flags.c_contiguous and chunk.timestamps_ms.dtype == np.int64 for chunk in chunks)
    assert source.poll(1, 0) == []
    assert source.generation == 0
    # Ends are asked for beside the long polls of the consumer, which would hold up each question for half a second.
    waits = []
    while len(waits) < 20 and min(waits, default=1.0) >= 0.4:  # not every time on a machine with other work
        began = time.perf_counter()
        assert source.ends() == ends
        waits.append(time.perf_counter() - began)
    assert min(waits) < 0.4
    # Marks of transactions take offsets too: the client tells when it is past them.
    assert not source.behind(ends)
    name = f"{topics[1]}:2"
    assert source.behind({name: 12})
    assert not source._is_message(End(topics[1], 2, 12))
    assert not source.behind({name: 12, "another:0": 7})
    source.close()
    with pytest.raises(SourceError, match="is closed"):
        source.poll(1, 0)


def test_a_rebalance_starts_again_from_the_committed_positions(kafka_broker):
    topic = make_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % i for i in range(80)])
    one = source_of(kafka_broker, topic)
    gather([one], lambda found: len(bodies_of(found[0])) == 80)
    assert one.generation == 0
    one.commit({f"{topic}:{i}": 5 + i for i in range(4)})
    two = source_of(kafka_broker, topic)
    rest = sorted(b"%d" % i for i in range(80) if i // 4 >= 5 + i % 4)
    send(kafka_broker, topic, [b"new"] * 4)

    def shared(found):
        return all(found) and len(bodies_of(found[0] + found[1])) >= len(rest) + 4

    found = gather([one, two], shared)
    assert one.generation > 0
    assert sorted(bodies_of(found[0] + found[1])) == sorted([*rest, *[b"new"] * 4])
    ours = [{chunk.partition for chunk in chunks} for chunks in found]
    assert ours[0].isdisjoint(ours[1])
    for chunks in found:
        for chunk in chunks:
            assert chunk.offsets.min() >= 5 + int(chunk.partition[-1])
    assert one.ends().keys() == ours[0]
    # A commit is for one's own partitions only, and never goes back.
    one.commit(dict.fromkeys(ours[0] | ours[1], 21))
    one.commit(dict.fromkeys(ours[0], 3))
    one.close()
    assert one._consumer is None
    (left,) = gather([two], lambda found: len({chunk.partition for chunk in found[0]}) == len(ours[1]))
    until = time.monotonic() + 60
    while len(two.ends()) < 4 and time.monotonic() < until:
        left += two.poll(100, 0.1)
    assert two.generation > 0
    assert two._committed_positions() == {**dict.fromkeys(ours[0], 21), **{name: 5 + int(name[-1]) for name in ours[1]}}
    two.close()


def test_messages_from_before_an_exchange_are_not_taken(kafka_broker):
    topic = make_topic(kafka_broker)
    source = source_of(kafka_broker, topic)
    source._consumer.close()
    source._consumer = Exchanging(source, topic)
    assert source._receive(["held"], 10, 0.0) == []
    assert source._consumer.restarted == [(1, -1001)]  # from what is committed
    # Whoever polls must learn of it before messages of the new assignment are handed out: those would count as old.
    assert source.poll(10, 1.0) == []
    assert source._consumer.asked == 2
    source.close()


def test_what_comes_while_an_answer_is_waited_for_is_bounded(kafka_broker, monkeypatch):
    topic = make_topic(kafka_broker)
    sent = [b"%05d" % i for i in range(3000)]
    send(kafka_broker, topic, sent)
    source = source_of(kafka_broker, topic)
    source._wait(lambda: source._is_assigned and source._held, "an assignment")
    monkeypatch.setattr(kafka_module, "_MAX_HELD", 1000 * (300 + 5))
    full = []

    def is_long_full():
        if len(source._held) >= 1000:
            full.append(time.monotonic())
        return bool(full) and time.monotonic() > full[0] + 1.0

    source._wait(is_long_full, "nothing")
    assert 1000 <= len(source._held) < 1100
    [found] = gather([source], lambda found: len(bodies_of(found[0])) >= len(sent))
    assert sorted(bodies_of(found)) == sent
    source.close()


def test_the_first_messages_of_a_member_are_taken_as_they_come(kafka_broker):
    """They may come from the very call that brings the assignment: none is of a time before, none is read again."""

    class StreamStatus:
        def __init__(self, consumer):
            self.consumer, self.restarts = consumer, 0

        def incremental_unassign(self, partitions):
            self.restarts += 1
            self.consumer.incremental_unassign(partitions)

        def __getattr__(self, name):
            return getattr(self.consumer, name)

    topic = make_topic(kafka_broker)
    sent = [b"%d" % i for i in range(40)]
    send(kafka_broker, topic, sent)
    source = source_of(kafka_broker, topic)
    watched = source._consumer = StreamStatus(source._consumer)
    [found] = gather([source], lambda found: len(bodies_of(found[0])) >= len(sent))
    assert sorted(bodies_of(found)) == sorted(sent)
    assert watched.restarts == 0
    source.close()


@pytest.mark.beside
def test_a_restart_of_a_named_instance_disturbs_nobody():
    real = os.environ.get("FCSTREAM_KAFKA")
    with contextlib.nullcontext([real]) if real else kafka_mock.mock() as (address, *_):
        topic = make_topic(address)
        send(address, topic, [b"%d" % i for i in range(8)])
        one, two = (source_of(address, topic, options=f"&instance=i{i}") for i in range(2))
        gather([one, two], lambda found: all(found) and len(bodies_of(found[0] + found[1])) == 8)
        generation, ours = two.generation, one.ends().keys()
        one.close()
        one = source_of(address, topic, options="&instance=i0")
        gather([one, two], lambda found: len({chunk.partition for chunk in found[0]}) == len(ours))
        assert one.ends().keys() == ours
        # The mock does not know of such members: everybody has to join again.
        assert two.generation == generation or not real
        one.close()
        two.close()


MEMBER = """
import sys
from fcstream.connectors.kafka.source import KafkaSource
from fcstream.connectors.urls import parse

source = KafkaSource(parse(sys.argv[1], "source.url"), "name")
while True:
    if source.poll(100, 0.1):
        print("reads", flush=True)
"""


@pytest.mark.beside
def test_members_read_on_while_the_group_waits_for_one_that_was_killed():
    """Kills, each followed by a newcomer at once: what a fleet under a bad orchestrator does."""
    session_s = 15
    with kafka_mock.mock() as (address, _):
        topic = make_topic(address)
        url = f"kafka://{address}/{topic}?group={topic}&session_s={session_s}"
        one = source_of(address, topic, session_s=session_s)
        gather_from = time.monotonic() + 60
        send(address, topic, [b"0"] * 8)
        while not one.poll(100, 0.1) and time.monotonic() < gather_from:
            pass
        silent, heard = 0.0, time.monotonic()

        def step():
            nonlocal silent, heard
            send(address, topic, [b"x"] * 8)
            chunks = one.poll(100, 0.1)
            if chunks:
                one.commit({chunk.partition: int(chunk.offsets[-1]) + 1 for chunk in chunks})
                silent, heard = max(silent, time.monotonic() - heard), time.monotonic()

        def member():
            command = [sys.executable, "-c", MEMBER, url]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        for _ in range(2):
            other = member()
            with other, concurrent.futures.ThreadPoolExecutor(1) as pool:
                reads = pool.submit(other.stdout.readline)
                until = time.monotonic() + 120
                while not reads.done() and time.monotonic() < until:
                    step()
                other.kill()
                assert reads.result() == "reads\n"
        for _ in range(20):
            step()
        assert silent < session_s / 2, silent
        one.close()


@pytest.mark.beside
def test_brokers_that_hang_are_waited_for():
    with kafka_mock.mock() as (address, process):
        topic = make_topic(address)
        send(address, topic, [b"%d" % i for i in range(8)])
        source, sink = source_of(address, topic, 1.5, 40), sink_of(address, topic, 1.5)
        gather([source], lambda found: len(bodies_of(found[0])) == 8)
        stop(process)
        assert source.poll(10, 0.1) == []
        calls = source.ends, lambda: source.commit({f"{topic}:0": 1}), lambda: sink.write([sample_release(0)])
        for call in calls:
            began = time.monotonic()
            with pytest.raises((SourceError, SinkError), match=r"did not answer for 1\.5 s"):
                call()
            assert 0.5 < time.monotonic() - began < 60.0
        process.send_signal(signal.SIGCONT)
        until_answered(sink.write, [sample_release(0)])
        until_answered(source.commit, {f"{topic}:0": 2})
        until_answered(gather, [source], lambda found: len(bodies_of(found[0])) >= 1)
        ends = until_answered(source.ends)
        assert sum(ends.values()) > 8  # a write that was not answered may have arrived all the same
        stop(process)
        with pytest.raises(SourceError):  # a group that waits for members does not answer either: patience decides
            commit_for_ever(source, {f"{topic}:1": 2})
        began = time.monotonic()
        source.close()
        sink.close()
        assert time.monotonic() - began < 30.0


@pytest.mark.beside
def test_brokers_that_are_gone_are_an_error_after_patience():
    with kafka_mock.mock() as (address, process):
        topic = make_topic(address)
        send(address, topic, [SECRET.encode()])
        source, sink = source_of(address, topic, 1.5, 40), sink_of(address, topic, 1.5)
        gather([source], lambda found: len(bodies_of(found[0])) == 1)
        process.kill()
        began = time.monotonic()
        for _ in range(2):  # calling again tries again
            with pytest.raises(SourceError, match=r"did not answer for 1.5 s: .*check that the brokers run") as caught:
                poll_for_ever(source)
            assert SECRET not in str(caught.value)
        assert 2.5 < time.monotonic() - began < 60.0
        calls = source.ends, lambda: source.commit({f"{topic}:0": 1}), lambda: sink.write([sample_release(0)])
        for call in calls:
            with pytest.raises((SourceError, SinkError), match=r"did not answer for 1\.5 s"):
                call()
        began = time.monotonic()
        source.close()
        sink.close()
        assert time.monotonic() - began < 30.0


@pytest.mark.beside
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
@pytest.mark.parametrize("make", [source_of, sink_of], ids=["source", "sink"])
def test_brokers_that_are_not_there(host, make):
    """The client says why it has no broker in its own time: on a busy machine that may come after the patience."""
    for _ in range(20):
        began = time.monotonic()
        with pytest.raises((SourceError, SinkError), match=r"did not answer for 3 s") as caught:
            make(host, "topic", patience_s=3.0)
        assert time.monotonic() - began < 30.0
        if re.search(r"refused|resolve", str(caught.value)):
            return
    pytest.fail(f"the client's reason never came: {caught.value}")


def test_a_topic_that_is_not_there(kafka_broker):
    with pytest.raises(SourceError, match=r"has no such topic: create it, or correct `source.url`"):
        source_of(kafka_broker, "fcstream-nobody-made-this", patience_s=6.0)


class Guard(threading.Thread):
    """A broker that refuses every password, and says it back."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.heard = b""

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with contextlib.suppress(OSError, struct.error), connection:
                    while self.answer(connection):
                        pass

    def answer(self, connection):
        size = connection.recv(4, socket.MSG_WAITALL)
        request = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
        key, version, correlation = struct.unpack(">hhi", request[:8])
        if key == 18:  # ApiVersions; the version that is asked for is not known
            versions = b"".join(struct.pack(">hhh", api, 0, 1 if api == 17 else 0) for api in (3, 17, 18, 36))
            body = struct.pack(">hi", 35 if version else 0, 4) + versions
        elif key == 17:  # SaslHandshake
            body = struct.pack(">hi", 0, 1) + struct.pack(">h", 5) + b"PLAIN"
        elif key == 36:  # SaslAuthenticate
            self.heard = request
            text = b"wrong: " + SECRET.encode()
            body = struct.pack(">hh", 58, len(text)) + text + struct.pack(">i", 0)
        else:
            return False
        connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
        return key != 36


@pytest.mark.beside
def test_a_refused_login_is_an_error_at_once():
    guard = Guard()
    guard.start()
    os.environ["FCSTREAM_TEST_PASSWORD"] = SECRET
    for password in (SECRET, "${FCSTREAM_TEST_PASSWORD}"):
        url = f"kafka://me:{password}@{guard.address}/topic?security=sasl_plaintext"
        for call in (lambda url=url: open_live(url, "name"), lambda url=url: open_sink(url)):
            began = time.monotonic()
            with pytest.raises((SourceError, SinkError), match=r"refuses: .*wrong.*correct the login") as caught:
                call()
            assert time.monotonic() - began < 50.0  # of 60
            assert SECRET in guard.heard.decode(errors="replace")
            assert SECRET not in str(caught.value)
            assert SECRET not in repr(caught.value.__context__)
    guard.listener.close()


def test_certificates_are_looked_at(tmp_path):
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    service("openssl", lambda: subprocess.run([*command.split(), *extra], check=True, capture_output=True))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    trusted = 0

    def shake_hands():
        nonlocal trusted
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(OSError), connection, context.wrap_socket(connection, True):
                    trusted += 1

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=shake_hands)
        thread.start()
        url = f"kafka://127.0.0.1:{listener.getsockname()[1]}/topic?patience=3"
        with pytest.raises(SinkError, match="certificate verify failed"):
            open_sink(f"{url}&security=ssl")
        assert trusted == 0
        with pytest.raises(SinkError):  # it speaks no Kafka
            open_sink(f"{url}&ca={files[0]}")
        assert trusted > 0
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("host", "must name a topic"),
        ("host/a,,b", "must name a topic"),
        ("host/^a.*", "must name a topic"),
        ("host/t?security=tls", "plaintext, ssl, sasl_plaintext, sasl_ssl as `security`, got 'tls'"),
        ("me:SECRET@host/t?sasl=OAUTH", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 as `sasl`, got 'OAUTH'"),
        ("me@host/t", "must have a user and a password"),
        ("me:SECRET@host/t?security=ssl", "must have a user and a password"),
        ("host/t?security=sasl_ssl", "must have a user and a password"),
        ("host/t?security=plaintext&ca=/x", "must have security 'ssl' or 'sasl_ssl' with certificates"),
        ("host/t?ca=/no/such/file", "cannot be used: .*ssl.ca.location"),
        ("host/t?grup=x", "unknown option 'grup'"),
        ("host/t?max_poll_s=soon", "positive number as `max_poll_s`"),
    ],
)
def test_addresses_that_cannot_be_used(rest, message):
    with pytest.raises(ConfigError, match=message) as caught:
        open_live("kafka://" + rest.replace("SECRET", SECRET), "name")
    assert SECRET not in str(caught.value)


def test_names_of_groups(kafka_broker):
    topic = make_topic(kafka_broker)
    opened = source_of(kafka_broker, f"{topic}?group=&patience=60", options="&instance=")
    opened.close()
    for option in ("group", "instance"):
        with pytest.raises(ConfigError, match="255 bytes at most"):
            open_live(f"kafka://{kafka_broker}/{topic}?{option}={300 * 'n'}", "name")


@pytest.mark.parametrize("polls_first", [False, True])
def test_messages_that_were_dropped_unread_are_a_gap(polls_first):
    with kafka_mock.mock() as (address, _):
        topic = make_topic(address)
        send(address, topic, [b"first"] * 10, 0)
        send(address, topic, [b"other"] * 10, 1)
        with contextlib.closing(source_of(address, topic)) as source:
            gather([source], lambda found: len(bodies_of(found[0])) == 20)
            source.commit({f"{topic}:0": 4, f"{topic}:1": 4})
            source.ends()
            assert source.gaps() == []
        send(address, topic, [bytes(100_000)] * 60, 0)  # the mock keeps about 5 MB
        with contextlib.closing(source_of(address, topic)) as source:
            for is_first in (True, False):
                if is_first == polls_first:
                    gather([source], lambda found: len({chunk.partition for chunk in found[0]}) == 2)
                else:
                    source.ends()
            found = source.gaps()
            assert [gap.what for gap in found] == [f"messages of partition {topic}:0 were dropped unread"]
            source.ends()
            assert source.gaps() == []


def test_offsets_that_go_back_while_it_is_read_are_a_gap(kafka_broker):
    """A topic was deleted and made anew: the client begins at the start, which nobody was told."""
    topic = make_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % i for i in range(8)], 0)
    with contextlib.closing(source_of(kafka_broker, topic)) as source:
        gather([source], lambda found: len(bodies_of(found[0])) == 8)
        source.commit({f"{topic}:0": 6})
        source.ends()
        assert source.gaps() == []
        source._consumer.seek(TopicPartition(topic, 0, 0))  # what the client does after "offset out of range"
        gather([source], lambda found: bodies_of(found[0]) == [b"%d" % i for i in range(8)])
        assert [gap.what for gap in source.gaps()] == [f"partition {topic}:0 was made anew"]
        source.commit({f"{topic}:0": 5})
        assert not source.behind(source.ends())
        assert source.gaps() == []
    with contextlib.closing(source_of(kafka_broker, topic)) as source:
        gather([source], lambda found: bodies_of(found[0]) == [b"5", b"6", b"7"])


def test_a_topic_made_anew_is_a_gap_and_is_read_from_its_start():
    with kafka_mock.mock() as (address, _):
        topic = make_topic(address)
        send(address, topic, [b"%d" % i for i in range(8)], 0)
        member = Consumer({**quiet(address), "group.id": topic})
        member.commit(offsets=[TopicPartition(topic, 0, 1000)], asynchronous=False)  # of the topic before
        member.close()
        with contextlib.closing(source_of(address, topic)) as source:
            source.ends()
            assert [gap.what for gap in source.gaps()] == [f"partition {topic}:0 was made anew"]
            gather([source], lambda found: bodies_of(found[0]) == [b"%d" % i for i in range(8)])
            source.commit({f"{topic}:0": 5})
            source.ends()
            assert source.gaps() == []
        with contextlib.closing(source_of(address, topic)) as source:
            gather([source], lambda found: bodies_of(found[0]) == [b"5", b"6", b"7"])
