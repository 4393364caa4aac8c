"""Rejections as messages to a broker, instead of lines of a file."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..errors import FcstreamError, SinkError
from ..formats.rejections import total
from .sinks import Sink

if TYPE_CHECKING:
    from ..formats.batch import Rejection

LOG = logging.getLogger("fcstream.connectors.dead_letters")
MESSAGE_BYTES = 1 << 15
"""Largest number of bytes of a message, which holds as many lines as fit, so that many rejections are few messages."""
MAX_WAITING = 1 << 16
"""Largest number of rejections that wait for a broker; further ones are lost, and counted."""
_TOGETHER = 4096
_PAUSE_S, _CLOSE_S, _TELL_S = 1.0, 5.0, 60.0


class QueuedDeadLetters:
    """Sends rejections as messages of JSON lines ``{"reason", "position", "field", "count"}``, which never hold a
    record's content.

    A thread of its own sends them, so that a broker which is unreachable or slow never delays the stream. They are sent
    at least once, unless more than `MAX_WAITING` of them wait for the broker. A process that is killed loses those that
    wait.

    Parameters
    ----------
    open_sink : callable
        Connects to the broker. It is tried again for as long as there are rejections to send.

    Attributes
    ----------
    lost : int
        Number of rejections that no broker got. It is exact, so not private: for the operator only.

    Raises
    ------
    ConfigError
        Raised by the first try to connect, which is made at once.
    """

    def __init__(self, open_sink: Callable[[], Sink]) -> None:
        self._open = open_sink
        self._messenger: Sink | None = None
        self._reported = -_TELL_S
        try:
            self._messenger = open_sink()
        except SinkError as error:
            self._tell(error)
        self.lost = 0
        self._waiting: deque[Rejection] = deque()
        self._changed = threading.Condition()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="fcstream-letters", daemon=True)
        self._thread.start()

    def write(self, rejections: Sequence[Rejection]) -> None:
        """Queue rejections for sending; returns at once and never raises."""
        with self._changed:
            room = 0 if self._is_ending else MAX_WAITING - len(self._waiting)
            self._waiting.extend(rejections[:room])
            self.lost += total(rejections[room:])
            self._changed.notify_all()

    def close(self) -> None:
        """Send what waits for some seconds; what is left then is lost. May be called again."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        sending: list[Rejection] = []
        while sending := sending or self._next():
            try:
                self._messenger = self._messenger or self._open()
                self._messenger.send(list(_packed(sending)))
                sending = []
            except Exception as error:  # no error may end this thread, or later rejections would be lost
                self._tell(error)
                with self._changed:
                    if self._is_ending:
                        self.lost += total(sending) + total(list(self._waiting))
                        break
                    self._changed.wait(_PAUSE_S)
        if self._messenger is not None:
            self._messenger.close()

    def _next(self) -> list[Rejection]:
        """Wait for the next rejections; returns none once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ending)
            return [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]

    def _tell(self, error: Exception) -> None:
        if time.monotonic() >= self._reported + _TELL_S:
            self._reported = time.monotonic()
            what = str(error) if isinstance(error, FcstreamError) else type(error).__name__
            LOG.warning("dead letters: %s; the stream goes on without them", what)


def _packed(rejections: Sequence[Rejection]) -> Iterator[bytes]:
    """Pack lines into messages of whole lines, in order."""
    lines: list[bytes] = []
    size = 0
    for line in map(msgspec.json.encode, rejections):
        if lines and size + len(line) + 1 > MESSAGE_BYTES:
            yield b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines)
