"""Releases that are written to Kafka topics."""

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.kafka import make_topic, quiet, send, sink_of

from fcstream.connectors import open_sink
from fcstream.errors import ConfigError, SinkError
from fcstream.testing import SinkContract, sample_release


def test_a_sink_has_one_topic_and_no_group():
    for rest, message in (("a,b", "must name one topic"), ("a?group=x", "unknown option 'group'")):
        with pytest.raises(ConfigError, match=message):
            open_sink(f"kafka://host/{rest}")


class TestKafkaSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, kafka_broker):
        self.address, self.topic = kafka_broker, make_topic(kafka_broker)

    def make(self, tmp_path):
        return sink_of(self.address, self.topic)

    def read(self, tmp_path):
        from fcstream.releases.base import Release

        return [Release.from_bytes(message.value()) for message in messages_of(self.address, self.topic)]


def messages_of(address, topic):
    """All messages of a topic, partition by partition."""
    reader = Consumer({**quiet(address), "group.id": "reader", "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    found = []
    for partition in reader.list_topics(topic, timeout=60).topics[topic].partitions:
        reader.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = reader.poll(60)
            assert message is not None
            if message.error():
                break
            found.append(message)
    reader.close()
    return found


def test_a_message_says_which_window_it_is_of(kafka_broker):
    topic = make_topic(kafka_broker)
    sink = sink_of(kafka_broker, topic)
    assert sink.last() is None
    sink.write([])
    sink.write([sample_release(i) for i in range(3)])
    found = messages_of(kafka_broker, topic)
    assert [message.key() for message in found] == [b"sample"] * 3
    assert [message.headers() for message in found] == [
        [("window", b"%d/%d" % (i * 60_000, i * 60_000 + 60_000))] for i in range(3)
    ]
    assert [message.value() for message in found] == [sample_release(i).to_bytes() for i in range(3)]
    sink.close()
    sink.close()
    with pytest.raises(SinkError, match="is closed"):
        sink.write([sample_release(0)])


def test_the_last_release_among_other_messages(kafka_broker):
    import dataclasses

    topic = make_topic(kafka_broker)
    sink = sink_of(kafka_broker, topic)
    other = dataclasses.replace(sample_release(9), stream="other")
    sink.write([sample_release(0), sample_release(1)])
    time.sleep(0.01)
    sink.write([other])
    send(kafka_broker, topic, [b"not ours", b"\xff", b"{}", b'{"value":' + b"[" * 5000])
    assert sink.last() == other
    assert sink.last("sample") == sample_release(1)
    assert sink.last("nobody") is None
    sent = [sample_release(i) for i in range(3)]
    assert sink.missing(sent) == sent[2:]
    assert sink.missing([dataclasses.replace(sample_release(1), count=1)]) != []
    assert sink.missing([]) == []
    sink.close()


def test_a_release_that_is_refused(kafka_broker):
    import dataclasses

    topic = make_topic(kafka_broker)
    sink = sink_of(kafka_broker, topic)
    large = dataclasses.replace(sample_release(1), value=[0.123456789012345] * 100_000)
    huge = dataclasses.replace(sample_release(2), value=[0.123456789012345] * 1_000_000)
    for _ in range(4):  # what the brokers have is not sent again, and what comes later waits
        with pytest.raises(SinkError, match=r"did not take all releases: .*too large") as caught:
            sink.write([sample_release(0), large, huge, sample_release(3)])
        assert "0.1234" not in str(caught.value)
    assert [message.value() for message in messages_of(kafka_broker, topic)] == [
        each.to_bytes() for each in (sample_release(0), large)
    ]
    sink.write([sample_release(4)])
    assert sink.last() == sample_release(4)
    sink.close()


def test_a_crash_writes_the_same_bytes_again(kafka_broker):
    topic = make_topic(kafka_broker)
    sent = [sample_release(i) for i in range(4)]
    for count in (2, 4):
        sink = sink_of(kafka_broker, topic)
        sink.write(sink.missing(sent[:count]))
        del sink  # no farewell
    assert [message.value() for message in messages_of(kafka_broker, topic)] == [each.to_bytes() for each in sent]
