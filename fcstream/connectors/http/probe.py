"""What `fcstream doctor` can find out about a web server without sending a request."""

from __future__ import annotations

from contextlib import closing

from ..probes import Checkup, Probe
from ..urls import Address
from .sink import WebhookSink, error_text


class WebhookProbe(Probe):
    """Checks whether a connection can be made."""

    patience_option = "fcstream.patience"

    def sink(self, checkup: Checkup, address: Address) -> None:
        with closing(WebhookSink(address)) as sink:
            try:
                sink._connection.connect()
            except OSError as error:
                checkup.problem(
                    "sink",
                    f"{sink._location} cannot be reached: {error_text(error)}",
                    "start the server, or correct it",
                )
                return
            checkup.ok("sink", f"{sink._location} answers; not tried: a request, because any POST would be a release")
