"""What `fcstream doctor` can find out about a web server without a request, and about an address to listen at."""

from __future__ import annotations

import http.client
from contextlib import closing, suppress
from http import HTTPStatus

from ...errors import AddressTaken
from ..probes import PATIENCE_S, Checkup, Probe, probe_server
from ..urls import Address
from .sink import WebhookSink
from .source import PORT, HttpReceiver


def _is_ours(host: str, port: int) -> bool:
    """Return whether a receiver of this package answers; it counts nothing that only looks."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        return answer.getheader("Server") == "fcstream" and answer.status == HTTPStatus.METHOD_NOT_ALLOWED
    return False


class HttpProbe(Probe):
    """Checks of a sink whether a connection can be made, and of a source whether its address can be listened at."""

    patience_option = "fcstream.patience"

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        del address.options[self.patience_option]
        location = address.hosts[0][0], address.host(PORT)[1]
        try:
            receiver = HttpReceiver(address, name)
        except AddressTaken:
            if address.scheme != "http" or not _is_ours(*location):
                raise
            checkup.ok("source", f"a receiver of fcstream answers at port {location[1]}: the stream runs already")
            return
        with closing(receiver):
            access = receiver.access
            checkup.ok("source", f"port {receiver.port} is free to listen at; {access.words}")
            if access.is_plain:
                checkup.warn(
                    "source",
                    "tokens and records are not encrypted",
                    "use https:// with `cert`, unless a proxy on a private network does it",
                )

    def sink(self, checkup: Checkup, address: Address) -> None:
        with closing(WebhookSink(address)) as sink:
            probe_server(checkup, sink.poster)
