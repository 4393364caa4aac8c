"""What `fcstream doctor` asks an MQTT broker."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace

from ...errors import SourceError
from ..probes import PATIENCE_S, Checkup, Probe
from ..urls import Address
from .connection import MqttConnection, MqttSession, topic_of
from .sink import MqttSink
from .source import ARRIVAL, CLIENT_ID, DELIVERY_ID, INFLIGHT, SESSION

_VERSION, _DROPPED = "$SYS/broker/version", "$SYS/broker/publish/messages/dropped"


class MqttProbe(Probe):
    """Checks the broker, and whether it permits the subscription."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        asked = replace(address, options=dict(address.options))
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
        if is_shared:
            checkup.warn(
                "source",
                "a member of the group that is away keeps its share of the messages in its session",
                "start all members again, or end the sessions of those that do not come back",
            )
        self._limits(checkup, asked)

    def _limits(self, checkup: Checkup, address: Address) -> None:
        """Report what a broker may drop unread, as far as it says so; by a connection of its own, because some brokers
        close one that asks for what they do not permit.
        """
        for option in (CLIENT_ID, INFLIGHT, SESSION, DELIVERY_ID, ARRIVAL):
            address.options.pop(option.name, None)
        found: list[str] = []

        def ask(connection: MqttConnection, host: str, port: int) -> None:
            connection.open(host, port)
            found.extend(connection.retained(topic).decode("ascii", "replace")[:40] for topic in (_VERSION, _DROPPED))

        with suppress(SourceError):
            MqttSession(address, PATIENCE_S, SourceError, ask).close()
        version, dropped, *_ = *found, "", ""
        if not version.startswith("mosquitto"):
            checkup.ok("source", "how many messages the broker keeps for a client that is away or slow it does not say")
            return
        limits = "`max_queued_messages` (1000 by default) for a client that is away or slow, and drops the rest unread"
        checkup.ok("source", f"{version} keeps as many messages as its {limits}")
        if dropped.isdecimal() and int(dropped) > 0:
            checkup.warn(
                "source",
                f"the broker has dropped {int(dropped)} messages of some client since it started",
                "raise its `max_queued_messages` and `max_queued_bytes` if they may have been this stream's",
            )

    def sink(self, checkup: Checkup, address: Address) -> None:
        address.options.pop(CLIENT_ID.name, None)  # with the same id the running stream would be disconnected
        with closing(MqttSink(address)) as sink:
            if address.key == "sink.url":
                sink.last()
        checkup.ok("sink", f"{address.masked} answers; not tried: publishing")
