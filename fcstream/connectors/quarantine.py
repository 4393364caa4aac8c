"""What a spool's process was decoding when it died, so that a message which ends it does not do so for ever."""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..runtime.disk import sync_folder

LOG = logging.getLogger("fcstream.connectors.spool")
_NOTE = struct.Struct("<QQQI")
FILES = ("decoding", "quarantine", "quarantine.new")


class Quarantine:
    """Notes which messages are being decoded, and finds the one at which a process died twice.

    After a first death the messages that were being decoded are decoded one by one. The one that is being decoded at a
    second death is in quarantine from then on.

    Parameters
    ----------
    folder : Path
        The spool's own; it is locked.
    position : int
        The first message that is still needed.

    Attributes
    ----------
    suspects : range
        Messages that are to be decoded one by one.
    numbers : frozenset of int
        Messages in quarantine.

    Notes
    -----
    The note survives the process and not the machine, whose death no message explains, so no fsync is needed.
    """

    def __init__(self, folder: Path, position: int) -> None:
        self._path = folder / "quarantine"
        self._file = os.open(folder / "decoding", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.suspects = range(0)
        known = self._path.read_text().split() if self._path.exists() else []
        self.numbers = frozenset(int(each) for each in known if each.isdecimal() and int(each) >= position)
        note = os.pread(self._file, _NOTE.size, 0)
        if len(note) == _NOTE.size and zlib.crc32(note[:-4]) == _NOTE.unpack(note)[3]:
            first, stop, deaths, _ = _NOTE.unpack(note)
            if deaths and stop - first == 1:
                self._keep(first)
            elif stop > first:
                self.suspects = range(first, stop)
        self._note(0, 0, 0)

    @contextmanager
    def decoding(self, first: int, stop: int) -> Iterator[None]:
        """Note that the messages from `first` to before `stop` are being decoded, until the end of the block."""
        self._note(first, stop, int(first in self.suspects))
        try:
            yield
        finally:
            self._note(0, 0, 0)
            if stop >= self.suspects.stop:
                self.suspects = range(0)

    def room(self, number: int) -> int | None:
        """Return how many messages from this one on may be decoded together; None for any number."""
        if number in self.suspects:
            return 1
        return self.suspects.start - number if number < self.suspects.start else None

    def close(self) -> None:
        os.close(self._file)

    def _note(self, *numbers: int) -> None:
        note = struct.pack("<QQQ", *numbers)
        os.pwrite(self._file, note + struct.pack("<I", zlib.crc32(note)), 0)

    def _keep(self, number: int) -> None:
        self.numbers |= {number}
        path = self._path.with_suffix(".new")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write("".join(f"{each}\n" for each in sorted(self.numbers)))
            file.flush()
            os.fsync(file.fileno())
        os.rename(path, self._path)
        sync_folder(self._path.parent)
        LOG.error(
            "message %d of %s was being decoded when the process died twice: it is rejected (broken_record), and "
            "tell whoever sends it; it stays in the spool until its windows are sealed",
            number,
            self._path.parent,
        )
