"""Remembers the length of a journal in a small file beside its ledger, to detect an older copy put in its place.

The file is written after every transaction and never flushed: after a power loss it may be behind the ledger, but never
ahead of it. Its two lines are written alternately, each with a checksum, so that a torn line leaves the other intact.
Where a ledger holds several streams, each has two lines of the one file, in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import LedgerDamaged
from ..runtime.words import many

LOG = logging.getLogger("fcstream.ledgers")
_LINE = re.compile(rb"((\d{20}) ([0-9a-f]{64})) ([0-9a-f]{8})\n")
_WIDTH = 95
_AFTERWARD = (
    "make sure that this ledger is the newest one (`fcstream budget releases` lists what it knows); the next run goes "
    "on with a sound file"
)
_OR_END = "restore the newest one, or end this stream and start one under a new name and budget"


class GuardFile:
    """The file that the rollback guards of a ledger's streams share; it is made with mode 0600 when it is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self._is_told = False

    def read(self, start: int, size: int) -> bytes:
        """Read some bytes; fewer where the file ends, and none if it is absent."""
        if self._file >= 0:
            return os.pread(self._file, size, start)
        with open(self.path, "rb") as file:
            return os.pread(file.fileno(), size, start)

    def open(self) -> None:
        """Make the file if it is absent, and keep it open."""
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes | bytearray, start: int) -> None:
        self.open()
        os.pwrite(self._file, data, start)

    def close(self) -> None:
        """Close the file. May be called more than once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def trouble(self) -> str | None:
        """Return why a file that is there can be of no use, and what to do; None if it can be read and written."""
        if not os.path.lexists(self.path):
            return None
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            return _useless(self.path, error)
        return None

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Go on after a failure to write, and log one warning until a write succeeds."""
        try:
            yield
            self._is_told = False
        except OSError as error:
            if not self._is_told:
                self._is_told = True
                LOG.warning("%s", _useless(self.path, error))
            with contextlib.suppress(OSError):
                self.close()  # so that a file that was repaired, or deleted, is opened anew


def _useless(path: str, error: OSError) -> str:
    return (
        f"{path} cannot be read and written ({error.strerror}): an older copy of {_ledger_of(path)} would not be "
        "noticed; make it a file that this user may write, or delete it: then a new one is begun"
    )


def _ledger_of(path: str) -> str:
    return path.rpartition("-witness")[0]


def _line(seq: int, chain: bytes) -> bytes:
    text = f"{seq:020} {chain.hex()}".encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))


class RollbackGuard:
    """Keeps the length and the last link of a journal in a file beside the ledger.

    Parameters
    ----------
    file : str or GuardFile
        That file, or its path.
    number : int
        Number of the stream in its ledger, from 1 on.
    """

    def __init__(self, file: str | GuardFile, number: int = 1) -> None:
        self._file = GuardFile(file) if isinstance(file, str) else file
        self.path, self._number = self._file.path, number
        self._turn = 0

    def check_absence(self, remedy: str | None = None) -> None:
        """Refuse to make a new ledger where the guard has seen one. `remedy` replaces the message's advice.

        Raises
        ------
        LedgerDamaged
        """
        seen, _ = self.seen()
        if seen:
            if self._number > 1:
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
        """Remember the last row and its link. After a failure, which is logged, the guard is behind its ledger."""
        with self._file.going_on():
            self._file.write(_line(seq, chain), self._start + self._turn * _WIDTH)
            self._turn = 1 - self._turn

    @staticmethod
    def note_together(notes: Sequence[tuple[RollbackGuard, int, bytes]]) -> None:
        """Do what `note` does for several guards of one file, whose lines are written at once if they lie together.

        What lies between them is written as it is, so a write that is torn leaves it intact. Nobody else may write to
        the file meanwhile.
        """
        numbers = [guard._number for guard, _, _ in notes]
        if max(numbers) - min(numbers) > 2 * len(notes) - 3:  # few, or far from each other
            for guard, seq, chain in notes:
                guard.note(seq, chain)
            return
        file, start = notes[0][0]._file, 2 * _WIDTH * (min(numbers) - 1)
        size = 2 * _WIDTH * max(numbers) - start
        with file.going_on():
            file.open()
            lines = bytearray(file.read(start, size).ljust(size, b"\0"))
            for guard, seq, chain in notes:
                at = guard._start + guard._turn * _WIDTH - start
                lines[at : at + _WIDTH] = _line(seq, chain)
            file.write(lines.rstrip(b"\0"), start)
            for guard, _, _ in notes:
                guard._turn = 1 - guard._turn

    @property
    def _start(self) -> int:
        return 2 * _WIDTH * (self._number - 1)

    @property
    def _ledger(self) -> str:
        return _ledger_of(self.path)

    def damage(self, lag: Callable[[int], int]) -> str | None:
        """Return why the file of this guard, which can be read, would not have found an older copy; None if it would.

        `lag` gets the number of rows that the guard has seen, and returns how many more it should have seen.
        """
        with contextlib.suppress(OSError):
            if not self.seen()[0] and self._file.read(self._start, 2 * _WIDTH).strip(b"\0"):
                return (
                    f"{self.path} holds something else than what it has seen of {self._ledger}: an older copy would "
                    f"not have been noticed; {_AFTERWARD}"
                )
        count, _ = self.seen()
        missing = lag(count)
        if missing <= 0:
            return None
        what = f"has missed {many(missing, 'journal row')}" if count else "has seen no journal row"
        return (
            f"{self.path} {what} of {self._ledger}: an older copy from since then would not have been noticed; after "
            f"a power loss that may be, otherwise {_AFTERWARD}"
        )

    @staticmethod
    def renew(file: GuardFile, guards: Iterable[tuple[RollbackGuard, int, bytes, Callable[[int], int]]]) -> None:
        """Log a warning if a file that is there is damaged or behind its ledger, and note what its guards should know.

        Each guard comes with the last row that is on disk, its link, and what `damage` needs.
        """
        if not os.path.lexists(file.path):
            return
        known = [*guards]
        if file.trouble() is None:
            found = next(filter(None, (guard.damage(lag) for guard, _, _, lag in known)), None)
            if found is not None:
                LOG.warning("%s", found)
        RollbackGuard.note_together([(guard, seq, chain) for guard, seq, chain, _ in known])

    def seen(self) -> tuple[int, bytes]:
        """Return how many rows the guard has seen, and the last link; 0 rows if the file is absent or torn.

        Beside files of schema 1 each further stream had a guard file of its own, which still counts.
        """
        lines = [*self._lines(self._file, self._start)]
        if self._number > 1:
            lines += self._lines(GuardFile(f"{self.path}_{self._number}"), 0)
        sound = [line for line in lines if line and zlib.crc32(line[1]) == int(line[4], 16)]
        return max(((int(line[2]), bytes.fromhex(line[3].decode())) for line in sound), default=(0, b""))

    @staticmethod
    def _lines(file: GuardFile, start: int) -> list[re.Match[bytes] | None]:
        try:
            data = file.read(start, 2 * _WIDTH)
        except OSError:
            return []
        return [_LINE.fullmatch(data, at, at + _WIDTH) for at in (0, _WIDTH)]

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self._file.close()
