"""Standard input as a live source: a message on each line, for as long as the program at the other end writes.

Programs that start others and talk to them over pipes (Telegraf's ``processors.execd`` and ``outputs.execd``, Redpanda
Connect's ``subprocess``) send each message once and hear no acknowledgement. So lines go into the spool as soon as they
are read. While the spool is full nothing is read, and the pipe holds up whoever writes.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from ...errors import ConfigError, Shown, SourceError
from ..base import Queue, ReceivedMessage
from ..files import BLOCK_BYTES, LineSplitter
from ..urls import Address, UrlOption


class _OpenInput:
    """A descriptor of this process, what was read of it, and who reads it. It outlives the sources of sessions."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lines: deque[bytes] = deque()
        self.has_ended = False
        self.reader: object | None = None
        self._splitter = LineSplitter()

    def is_ready(self, timeout_s: float) -> bool:
        """Wait until something, the end too, can be read."""
        poller = select.poll()  # unlike select.select, it takes any descriptor
        poller.register(self.descriptor, select.POLLIN)
        return bool(poller.poll(max(0.0, 1000 * timeout_s)))

    def count_bytes(self) -> int:
        """Count the bytes that are there to be read."""
        return int(struct.unpack("i", fcntl.ioctl(self.descriptor, termios.FIONREAD, bytes(4)))[0])

    def read(self, max_bytes: int = BLOCK_BYTES) -> int:
        """Read what there is, at most so many bytes; returns how many it were."""
        try:
            block = os.read(self.descriptor, max_bytes)
        except BlockingIOError:  # a descriptor that its owner made non-blocking, and nothing to read after all
            return 0
        except OSError as error:
            raise SourceError(f"standard input cannot be read: {error.strerror}") from None
        if block:
            self.lines.extend(filter(None, self._splitter.split(block)))
        else:
            self.has_ended = True
            self.lines.extend(self._splitter.torn())
        return len(block)


_opened: dict[int, _OpenInput] = {}


class StandardInput(Queue):
    """Reads lines of standard input; each is one message.

    Parameters
    ----------
    address : Address
        ``stdin:``, without anything else.
    name : str
        Not used: nobody at the other end asks for it.
    descriptor : int

    Raises
    ------
    ConfigError
        Standard input is closed, or another stream of this process reads it.

    Notes
    -----
    Input ends when the other side closes it. The process then ends as after SIGTERM: what was read is in the spool,
    open windows stay open, and the next start continues them. A last line without a line end is one that its writer did
    not finish: it is rejected as a broken record. So is a line of more than a mebibyte. Empty lines are skipped. Lines
    that are in the pipe when the process is killed, and lines that come while none runs, are lost, as is the batch that
    was just being put on disk.
    """

    comes_once = True
    url: ClassVar = "stdin:"
    url_options: ClassVar[tuple[UrlOption, ...]] = ()

    def __init__(self, address: Address, name: str, descriptor: int = 0) -> None:
        if address.hosts:
            raise ConfigError("must be 'stdin:' alone", address.key, got=Shown(address.masked))
        if descriptor == 0 and sys.stdin is None:
            raise ConfigError("must be open for this source: standard input is closed", address.key)
        self._input = _opened.setdefault(descriptor, _OpenInput(descriptor))
        if self._input.reader is not None:
            raise ConfigError("must be another source: a stream of this process reads standard input", address.key)
        self._input.reader = self
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._number = 0

    @property
    def has_ended(self) -> bool:
        return self._input.has_ended and not self._input.lines

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        until, lines = time.monotonic() + timeout_s, self._input.lines
        while len(lines) < max_messages and not self._input.has_ended:
            if not self._input.is_ready(0.0 if lines else until - time.monotonic()):
                break
            self._input.read()
        if not lines:  # after the end, so that callers need not wait themselves
            time.sleep(max(0.0, until - time.monotonic()))
        found = [self._take() for _ in range(min(max_messages, len(lines)))]
        self._unacknowledged.extend((one.token, one.body) for one in found)
        return found

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        done = {one.token for one in received}
        while self._unacknowledged and self._unacknowledged[0][0] in done:
            self._unacknowledged.popleft()

    def pending(self) -> bool:
        return bool(self._input.lines) or (not self._input.has_ended and self._input.is_ready(0.0))

    def waiting(self) -> int | None:
        """Count the lines that end in what the pipe holds now; None for more than fits into memory, as of a file."""
        left = 0 if self._input.has_ended else self._input.count_bytes()
        if left > BLOCK_BYTES:
            return None
        while left > 0 and (count := self._input.read(left)):
            left -= count
        return len(self._input.lines)

    def close(self) -> None:
        """Hand what was not acknowledged back to the next source of this process."""
        if self._input.reader is self:
            self._input.lines.extendleft(body for _, body in reversed(self._unacknowledged))
            self._unacknowledged.clear()
            self._input.reader = None

    def _take(self) -> ReceivedMessage:
        self._number += 1
        return ReceivedMessage(self._input.lines.popleft(), self._number)
