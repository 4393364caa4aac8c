"""Remembers the length of a journal in a small file beside its ledger, to detect an older copy put in its place.

The file is written after every transaction and never flushed: after a power loss it may be behind the ledger, but never
ahead of it. Its two lines are written alternately, each with a checksum, so that a torn line leaves the other intact.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from typing import ClassVar

from ..errors import LedgerDamaged

_LINE = re.compile(rb"((\d{20}) ([0-9a-f]{64})) ([0-9a-f]{8})\n")
_WIDTH = 95
_MOST_OPEN = 64  # guards of one process that keep their file open: a process may open some 1,000 files
_OR_END = "restore the newest one, or end this stream and start one under a new name and budget"


class RollbackGuard:
    """Keeps the length and the last link of a journal in a file of its own.

    Parameters
    ----------
    path : str
        Path of that file; it is made with mode 0600 at the first note.
    """

    _held: ClassVar[int] = 0

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self._turn = 0

    def check_absence(self, remedy: str | None = None) -> None:
        """Refuse to make a new ledger where the guard has seen one. `remedy` replaces the message's advice.

        Raises
        ------
        LedgerDamaged
        """
        seen, _ = self.seen()
        if seen:
            if not self.path.endswith("-witness"):
                raise LedgerDamaged(
                    f"{self._ledger} lacks a stream that {self.path} has seen {seen} journal rows of: an older copy "
                    "was put in its place and charges are forgotten; restore the newest one"
                )
            remedy = remedy or "restore it; or remove that file too and start a stream under a new name and budget"
            raise LedgerDamaged(f"{self._ledger} is missing, {self.path} has seen {seen} journal rows of it: {remedy}")

    def check(
        self,
        seq: int,
        chain: bytes,
        chain_at: Callable[[int], bytes | None],
        remedy: str = _OR_END,
        seen: tuple[int, bytes] | None = None,
    ) -> None:
        """Compare the ledger's last row `seq` and link `chain` with what the guard remembers of it.

        `seen` is what the guard held earlier; by default the file is read now. `chain_at` returns the link of an older
        row, or None if that row is gone; then there is nothing to compare. An absent or torn guard file is ignored.

        Raises
        ------
        LedgerDamaged
            The ledger is older than what the guard has seen, or a different one.
        """
        count, link = self.seen() if seen is None else seen
        ledger = self._ledger
        if count > seq:
            raise LedgerDamaged(
                f"{ledger} has {seq} journal rows, {self.path} has seen {count}: an older copy was put in its place "
                f"and charges are forgotten; {remedy}"
            )
        known = chain if count == seq else chain_at(count)
        if count and known is not None and known != link:
            raise LedgerDamaged(
                f"{ledger} differs at journal row {count} from what {self.path} has seen: it is the ledger of another "
                "history; restore the right one"
            )

    def note(self, seq: int, chain: bytes) -> None:
        """Remember the last row and its link. A failure is ignored: the guard is then merely behind its ledger."""
        try:
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                RollbackGuard._held += 1
            text = b"%020d %s" % (seq, chain.hex().encode())
            os.pwrite(self._file, b"%s %08x\n" % (text, zlib.crc32(text)), self._turn * _WIDTH)
            self._turn = 1 - self._turn
            if RollbackGuard._held > _MOST_OPEN:
                self.close()
        except OSError:
            pass

    @property
    def _ledger(self) -> str:
        return self.path.rpartition("-witness")[0]

    def seen(self) -> tuple[int, bytes]:
        """Return how many rows the guard has seen, and the last link; 0 rows if the file is absent or torn."""
        try:
            with open(self.path, "rb") as file:
                found = [_LINE.fullmatch(file.read(_WIDTH)) for _ in range(2)]
        except OSError:
            return 0, b""
        sound = [line for line in found if line and zlib.crc32(line[1]) == int(line[4], 16)]
        return max(((int(line[2]), bytes.fromhex(line[3].decode())) for line in sound), default=(0, b""))

    def close(self) -> None:
        """Close the file. May be called more than once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            RollbackGuard._held -= 1
