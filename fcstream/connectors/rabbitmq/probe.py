"""What `fcstream doctor` asks RabbitMQ about queues and streams."""

from __future__ import annotations

from typing import Any

from ..probes import Checkup, Probe
from ..urls import Address
from .queue_connection import AmqpChannel
from .queue_sink import AmqpSink
from .queue_source import AmqpQueue
from .stream_sink import RabbitStreamSink
from .stream_source import RabbitStreamSource


class QueueProbe(Probe):
    """Checks whether the queue or exchange exists."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        class PassiveQueue(AmqpQueue):
            """A queue that is connected without consuming."""

            def _consume(self, channel: AmqpChannel) -> None:
                if self._names_stream(channel):
                    raise self._is_stream
                answer = self._declared(channel)
                said = f"{answer.message_count} messages and {answer.consumer_count} consumers"
                checkup.ok("source", f"queue {self._queue} has {said}; not tried: consuming")

        PassiveQueue(address, name).close()

    def sink(self, checkup: Checkup, address: Address) -> None:
        AmqpSink(address).close()
        checkup.ok("sink", f"{address.masked}: it exists; not tried: publishing")


class StreamProbe(Probe):
    """Checks whether the stream exists, and where it ends."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        class UnsubscribedStream(RabbitStreamSource):
            """A stream that is connected without a subscription."""

            async def _begin(self, client: Any) -> None:
                end = await self._end(client)
                where = f"stream {self._stream} ends at offset {max(0, end)}"
                checkup.ok("source", f"{where}; the consumer is {self._name!r}; not tried: reading, writing positions")

        UnsubscribedStream(address, name).close()

    def sink(self, checkup: Checkup, address: Address) -> None:
        RabbitStreamSink(address).close()
        checkup.ok("sink", f"{address.masked}: it exists; not tried: publishing")
