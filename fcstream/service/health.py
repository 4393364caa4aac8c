"""How a live stream is, for those who watch it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

LOG = logging.getLogger("fcstream.service")


@dataclass(slots=True)
class Health:
    """Whether a service is served now, and when it last went round (`time.monotonic`).

    Attributes
    ----------
    trouble : str or None
        Why a step cannot be done; the next one that is done ends it.
    hold : str or None
        Why no window is closed, while records are read as ever. The code that sets it clears it.
    warnings : dict of str to str
        What is wrong though the stream is served, by kind (``late``, ``clock``, ``stamps``, ``incomplete``, ...): part
        of ``/ready``, and ``fcstream_warning`` in the metrics.
    standby : str or None
        Why another process answers; nothing is wrong with this one.
    clock_gap_ms : int or None
        How far this machine's clock is ahead of the broker's, where that is known.
    """

    trouble: str | None = "starting"
    beat: float = field(default_factory=time.monotonic)
    hold: str | None = None
    warnings: dict[str, str] = field(default_factory=dict)
    clock_gap_ms: int | None = None
    standby: str | None = None

    def good(self) -> None:
        self.trouble, self.standby, self.beat = None, None, time.monotonic()

    def bad(self, trouble: str) -> None:
        self.trouble, self.standby, self.beat = trouble, None, time.monotonic()

    def stand_by(self, why: str) -> None:
        if self.standby != why:
            LOG.info("standing by: %s", why)
        self.trouble, self.standby, self.beat = None, why, time.monotonic()

    def keep_closed(self, why: str | None) -> None:
        """Hold all windows back, or no longer; logged when that changes."""
        if why is not None and self.hold is None:
            LOG.warning("no window is closed: %s", why)
        elif why is None and self.hold is not None:
            LOG.info("windows are closed again")
        self.hold = why

    def warn(self, kind: str, text: str | None) -> None:
        """Note what is wrong, or (None) that it is mended; logged when that changes."""
        if text is None:
            if self.warnings.pop(kind, None) is not None:
                LOG.info("no longer so: %s", kind)
        else:
            if kind not in self.warnings:
                LOG.warning("%s", text)
            self.warnings[kind] = text
