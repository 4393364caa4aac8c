"""What `fcstream doctor` can say of standard input: nothing is read, since what is read is gone."""

from __future__ import annotations

import sys

from ..probes import Checkup, Probe
from ..urls import Address


class PipeProbe(Probe):
    """Looks whether standard input is open."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        if sys.stdin is None:
            checkup.problem("source", "standard input is closed", "open it, or name another source")
            return
        checkup.ok("source", "standard input, a message on each line; nothing was read")
