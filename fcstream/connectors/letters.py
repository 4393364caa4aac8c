"""Rejections to a broker, instead of to a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..errors import SinkError

if TYPE_CHECKING:
    from ..records import Rejection
    from .base import Messenger

LOG = logging.getLogger("fcstream.connectors.letters")
MESSAGE_BYTES = 1 << 15
"""A message holds as many lines as fit: a flood of rejections must not hold up the stream."""


class QueuedDeadLetters:
    """Rejections as messages of JSON lines ``{"reason", "position", "field"}``: where and why, never what.

    At least once: the broker has them when `write` returns, so before the source's position moves past the records;
    what is read again after a restart may be rejected again.

    Parameters
    ----------
    open_sink : callable
        Connects. A broker that is away is tried again when there is something to tell it, and then for as long as the
        address says.

    Raises
    ------
    ConfigError
        Also `SinkError`, from `write`.
    """

    def __init__(self, open_sink: Callable[[], Messenger]) -> None:
        self._open = open_sink
        self._messenger: Messenger | None = None
        try:
            self._messenger = open_sink()
        except SinkError as error:
            LOG.warning("dead letters: %s", error)

    def write(self, rejections: Sequence[Rejection]) -> None:
        if rejections:
            if self._messenger is None:
                self._messenger = self._open()
            self._messenger.send(list(_packed(rejections)))

    def close(self) -> None:
        messenger, self._messenger = self._messenger, None
        if messenger is not None:
            messenger.close()


def _packed(rejections: Sequence[Rejection]) -> Iterator[bytes]:
    """Messages of whole lines, in order."""
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
