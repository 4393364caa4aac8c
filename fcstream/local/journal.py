"""Where a device writes what it has spent and answered, before an answer leaves. One file that only grows."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import LedgerDamaged, LedgerError, LedgerInUse

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Journal(Protocol):
    """Lines that are durable when `append` returns."""

    def lines(self, device: str) -> Iterable[dict[str, Any]]:
        """What was written about a device before the journal was opened, in order; asked once for each device."""
        ...

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        """Write lines; all of them are durable when this returns."""
        ...

    def close(self) -> None: ...


class MemoryJournal:
    """Forgets everything with the process: for tests and simulations."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def lines(self, device: str) -> Iterable[dict[str, Any]]:
        return [line for line in self.written if line["device"] == device]

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        self.written += lines

    def close(self) -> None:
        pass


class FileJournal:
    """One line with a checksum for each write, in one file (mode 0600) which one process holds at a time.

    A last line that was cut off in the middle was never durable, so nothing of it left the device: it is dropped. Any
    other line that does not fit its checksum is damage, and the device refuses to go on.

    Raises
    ------
    LedgerInUse
        Another process, or this one, holds the file.
    LedgerDamaged
        A line does not fit its checksum.
    LedgerError
        The file cannot be opened, read or written. After a failed write nothing more is written.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        self.path = Path(path)
        self._sync = sync
        self._failed = False
        try:
            is_new = not self.path.exists()
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._file)
                raise LedgerInUse(f"{self.path} is held by another process: a device's state has one holder") from None
            if is_new:
                folder = os.open(self.path.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
            self._found = self._read()
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be opened: {error.strerror}") from None

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        with open(self.path, "rb") as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
        found: dict[str, list[dict[str, Any]]] = {}
        for number, line in enumerate(data[:whole].splitlines(), 1):
            text = line[9:]
            if len(line) < 10 or line[:8] != b"%08x" % zlib.crc32(text):
                os.close(self._file)
                raise LedgerDamaged(f"{self.path}: line {number} does not fit its checksum: restore the newest copy")
            for one in json.loads(text):
                found.setdefault(one["device"], []).append(one)
        return found

    def lines(self, device: str) -> Iterable[dict[str, Any]]:
        return self._found.pop(device, [])

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        if self._failed:
            raise LedgerError(f"{self.path} could not be written before: open it again")
        text = _encode(list(lines)).encode()
        data = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if self._sync:
                os.fsync(self._file)
        except OSError as error:
            self._failed = True
            raise LedgerError(f"{self.path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
