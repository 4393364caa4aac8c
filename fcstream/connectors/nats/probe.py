"""What `fcstream doctor` asks a NATS server."""

from __future__ import annotations

import datetime
from contextlib import closing
from typing import Any

from ...errors import SourceError
from ..probes import PATIENCE_S, Checkup, ClockOffset, Probe
from ..urls import Address
from .connection import NatsConnection, stream_of
from .sink import NatsSink
from .source import BUCKET, GROUP, SUBJECT


class NatsProbe(Probe):
    """Checks the stream, how long it keeps messages, the bucket of positions, and the clock."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        stream, bucket = stream_of(address), address.take(BUCKET)
        address.take(SUBJECT)
        group = address.take(GROUP, name)
        wire = NatsConnection(address, PATIENCE_S, SourceError)

        async def info() -> Any:
            return await wire._api(f"STREAM.INFO.{stream}")

        async def positions() -> bool:
            import nats.js.errors

            try:
                await wire.js.key_value(bucket)
            except nats.js.errors.NotFoundError:
                return False
            return True

        with closing(wire):
            answer = wire.first(info)
            if "ts" in answer:  # servers report their time since 2.10
                checkup.clocks.append(ClockOffset.read("NATS", lambda: _time(wire.run(info)["ts"])))
            state, config = answer["state"], answer["config"]
            checkup.ok("source", f"stream {stream} holds messages {state['first_seq']} to {state['last_seq']}")
            if config.get("retention", "limits") != "limits":
                checkup.problem(
                    "source",
                    f"stream {stream} drops messages that are acknowledged or that nobody is interested in",
                    "give it the retention policy 'limits': open windows are read again after a restart",
                )
            if config.get("max_age"):
                checkup.retention(config["max_age"] / 1e6)
            where = f"bucket {bucket}" if wire.run(positions) else f"bucket {bucket}, which will be made"
            checkup.ok(
                "source", f"the consumer is {group!r}, its positions are kept in {where}; not tried: reading, writing"
            )

    def sink(self, checkup: Checkup, address: Address) -> None:
        with closing(NatsSink(address)) as sink:
            if address.key == "sink.url":
                sink.last()
            checkup.ok("sink", f"stream {sink._stream} takes subject {sink._subject}; not tried: publishing")


def _time(text: str) -> float:
    """Convert ``2026-01-01T00:00:00.123456789Z`` to Unix milliseconds."""
    return datetime.datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp() * 1000
