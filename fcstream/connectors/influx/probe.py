"""What `fcstream doctor` can find out about InfluxDB without writing."""

from __future__ import annotations

from contextlib import closing

from ..probes import Checkup, Probe, probe_server
from ..urls import Address
from .sink import InfluxSink


class InfluxProbe(Probe):
    """Checks whether a connection can be made."""

    def sink(self, checkup: Checkup, address: Address) -> None:
        with closing(InfluxSink(address)) as sink:
            probe_server(checkup, sink.poster)
