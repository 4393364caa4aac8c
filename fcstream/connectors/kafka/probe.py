"""What `fcstream doctor` asks Kafka's brokers."""

from __future__ import annotations

from ...errors import SinkError, SourceError
from ..probes import PATIENCE_S, Checkup, Probe
from ..retry import close_quietly
from ..urls import Address
from .connection import KafkaConnection
from .source import GROUP, INSTANCE, MAX_POLL, SESSION

_SETTINGS_S = 2.0


class KafkaProbe(Probe):
    """Checks topics, their settings, and the positions of the group."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        for option in (SESSION, MAX_POLL):
            address.take_number(option)
        group = address.take(GROUP, name)
        address.take(INSTANCE)
        cluster = KafkaConnection(address, name, PATIENCE_S, SourceError)
        address.finish()
        kafka = cluster.kafka
        # It never subscribes, so it is not a member of the group and disturbs none. A producer could make topics by
        # asking.
        consumer = cluster.make(kafka.Consumer, {"group.id": group, "allow.auto.create.topics": False})
        try:
            topics = cluster.partitions_of_topics(consumer)
            partitions = [(topic, number) for topic, numbers in topics.items() for number in numbers]
            cluster.retry(lambda: cluster.spans(partitions))
            asked = [kafka.TopicPartition(*partition) for partition in partitions]
            cluster.retry(lambda: consumer.committed(asked, timeout=cluster.patience_s))
        finally:
            close_quietly(consumer.close)
        for topic, numbers in topics.items():
            checkup.ok("source", f"topic {topic} has {len(numbers)} partitions, and their ends can be asked for")
            _settings(checkup, cluster, topic)
        checkup.ok(
            "source", f"the group is {group!r}, and its positions can be read; not tried: reading, writing positions"
        )

    def sink(self, checkup: Checkup, address: Address) -> None:
        cluster = KafkaConnection(address, "fcstream-doctor", PATIENCE_S, SinkError)
        settings = {"group.id": "fcstream-doctor", "allow.auto.create.topics": False}
        consumer = cluster.make(cluster.kafka.Consumer, settings)
        try:
            topics = cluster.partitions_of_topics(consumer)
        finally:
            close_quietly(consumer.close)
        checkup.ok("sink", f"topic {', '.join(topics)} exists; not tried: writing")


def _settings(checkup: Checkup, cluster: KafkaConnection, topic: str) -> None:
    resource = cluster.kafka.admin.ConfigResource(cluster.kafka.admin.ConfigResource.Type.TOPIC, topic)
    try:
        answer = cluster.admin.describe_configs([resource], request_timeout=_SETTINGS_S)[resource].result(
            _SETTINGS_S + 1
        )
        values = {name: entry.value for name, entry in answer.items()}
        keeps, timestamps = float(values["retention.ms"]), values["message.timestamp.type"]
    except Exception as error:
        checkup.warn(
            "source",
            f"topic {topic} does not tell its settings ({type(error).__name__})",
            "check that retention.ms is long enough, and message.timestamp.type is LogAppendTime",
        )
        return
    if keeps >= 0:
        checkup.retention(keeps)
    if timestamps == "LogAppendTime":
        checkup.ok("source", f"topic {topic} stamps messages by the brokers' clock")
    else:
        checkup.warn(
            "source",
            f"topic {topic} has message.timestamp.type = {timestamps}: producers choose when their messages arrived",
            "set it to LogAppendTime",
        )
