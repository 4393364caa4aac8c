"""What `fcstream doctor` can find out about a receiver of OTLP without sending a metric."""

from __future__ import annotations

from contextlib import closing

from ..probes import Checkup, Probe, probe_server
from ..urls import Address
from .sink import OtlpSink


class OtlpProbe(Probe):
    """Checks whether a connection can be made."""

    def sink(self, checkup: Checkup, address: Address) -> None:
        with closing(OtlpSink(address)) as sink:
            probe_server(checkup, sink.poster)
