"""What `fcstream doctor` asks an MQTT broker."""

from __future__ import annotations

from contextlib import closing

from ...errors import SourceError
from ..probes import PATIENCE_S, Checkup, Probe
from ..urls import Address
from .connection import MqttConnection, MqttSession, topic_of
from .sink import MqttSink
from .source import ARRIVAL, CLIENT_ID, DELIVERY_ID, INFLIGHT, SESSION


class MqttProbe(Probe):
    """Checks the broker, and whether it permits the subscription."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        topic, client_id = topic_of(address), address.take(CLIENT_ID, name)
        for option in (INFLIGHT, SESSION):
            address.take_number(option)
        for option in (DELIVERY_ID, ARRIVAL):  # user properties, which only messages would show
            address.take(option)
        is_shared = topic.startswith("$share/")

        def prepare(connection: MqttConnection, host: str, port: int) -> None:
            connection.open(host, port)
            if not is_shared:  # each client gets a copy, so nothing is taken from a running stream
                connection.subscribe(topic, retained=False)

        MqttSession(address, PATIENCE_S, SourceError, prepare).close()
        said = "with QoS 1"
        if is_shared:
            said = "not tried: subscribing, which would take messages of a shared subscription"
        checkup.ok("source", f"{address.masked} answers and may be subscribed to, {said}; the client is {client_id!r}")

    def sink(self, checkup: Checkup, address: Address) -> None:
        address.options.pop(CLIENT_ID.name, None)  # with the same id the running stream would be disconnected
        with closing(MqttSink(address)) as sink:
            if address.key == "sink.url":
                sink.last()
        checkup.ok("sink", f"{address.masked} answers; not tried: publishing")
