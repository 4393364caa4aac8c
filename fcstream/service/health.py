"""Health of a live stream, for those who watch it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

LOG = logging.getLogger("fcstream.service")


@dataclass(slots=True)
class Health:
    """State of a service, and when it last completed a step (`time.monotonic`).

    Attributes
    ----------
    trouble : str or None
        Why a step cannot be done; the next one that is done clears it.
    hold : str or None
        Why no window is closed, while records are read as usual. The code that sets it clears it.
    warnings : dict of str to str
        What is wrong although the stream runs, by kind (``late``, ``clock``, ``stamps``, ``incomplete``, ``budget``,
        ...): part of ``/ready``, and ``fcstream_warning`` in the metrics.
    faults : dict of str to str
        Why the stream is not ready although its steps are done, by kind (``too_late``, ...).
    standby : str or None
        Why another process releases the windows; nothing is wrong with this one.
    clock_gap_ms : int or None
        How far this machine's clock is ahead of the broker's, where that is known.
    """

    trouble: str | None = "starting"
    beat: float = field(default_factory=time.monotonic)
    hold: str | None = None
    warnings: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
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
        """Keep all windows open, with a reason, or (None) let them close again; logged when that changes."""
        if why is not None and self.hold is None:
            LOG.warning("no window is closed: %s", why)
        elif why is None and self.hold is not None:
            LOG.info("windows are closed again")
        self.hold = why

    def note(self, kind: str, text: str | None) -> None:
        """Note what is wrong, or (None) that it is not, where others log it."""
        if not text:
            self.warnings.pop(kind, None)
        else:
            self.warnings[kind] = text

    def warn(self, kind: str, text: str | None) -> None:
        """Note what is wrong, or (None) that it is no longer wrong; logged when that changes."""
        _note(self.warnings, kind, text)

    def fault(self, kind: str, text: str | None) -> None:
        """Note why the stream is not ready although its steps are done, or (None) that this is over; see `warn`."""
        _note(self.faults, kind, text)


def _note(noted: dict[str, str], kind: str, text: str | None) -> None:
    if text is None:
        if noted.pop(kind, None) is not None:
            LOG.info("warning is over: %s", kind)
    else:
        if kind not in noted:
            LOG.warning("%s", text)
        noted[kind] = text
