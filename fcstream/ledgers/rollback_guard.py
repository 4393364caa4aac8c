"""Remembers the length of a journal in a small file beside its ledger, to detect an older copy put in its place.

The file is written after every transaction and never flushed: after a power loss it may be behind the ledger, but never
ahead of it. Its two lines are written alternately, each with a checksum, so that a torn line leaves the other intact.
A line holds a mark of the process that wrote it, by which this one finds out whether another has written since. Where a
ledger holds several streams, each has two lines of the one file, in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import LedgerDamaged
from ..runtime.words import many

LOG = logging.getLogger("fcstream.ledgers")
_LINE = re.compile(rb"((\d{20}) ([0-9a-f]{64}) [0-9a-f]{16}) ([0-9a-f]{8})\n")
_WIDTH = 112
_AFTERWARD = (
    "make sure that this ledger is the newest one (`fcstream budget releases` lists what it knows); the next run goes "
    "on with a sound file"
)
_OR_END = "restore the newest one, or end this stream and start one under a new name and budget"


class GuardFile:
    """The file that the rollback guards of a ledger's streams share; it is made with mode 0600 when it is written.

    Attributes
    ----------
    warning : str
        What was found wrong with it since it was opened, as it was logged; empty if nothing was.
    """

    def __init__(self, path: str, shown: str = "") -> None:
        self.path = path
        self.shown = shown or path
        self.warning = ""
        self.mark = uuid.uuid4().hex[:16].encode()
        self._file = -1
        self._place = (0, 0)
        self._is_reported = False

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
            self._place = _place(os.fstat(self._file))

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for those who ask."""
        self.warning = text
        LOG.warning("%s", text)

    def find_anew(self) -> None:
        """Let go of an open file that is no longer the one of its path, and log a warning if there is none."""
        if self._file < 0:
            return
        try:
            is_here = _place(os.stat(self.path)) == self._place
        except OSError:
            is_here = False
            self.warn(f"{self.path} was removed while its ledger was open: a new one is begun")
        if not is_here:
            self.close()

    def write(self, data: bytes | bytearray, start: int) -> None:
        self.open()
        os.pwrite(self._file, data, start)

    def close(self) -> None:
        """Close the file. May be called more than once."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

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
            self._is_reported = False
        except OSError as error:
            if not self._is_reported:
                self._is_reported = True
                self.warn(_useless(self.path, error))
            with contextlib.suppress(OSError):
                self.close()  # so that a file that was repaired, or deleted, is opened anew


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _useless(path: str, error: OSError) -> str:
    return (
        f"{path} cannot be read and written ({error.strerror}): an older copy of {_ledger_of(path)} would not be "
        "noticed; make it a file that this user may write, or delete it: then a new one is begun"
    )


def _ledger_of(path: str) -> str:
    return path.rpartition("-witness")[0]


def _line(seq: int, chain: bytes, mark: bytes) -> bytes:
    text = b"%020d %s %s" % (seq, chain.hex().encode(), mark)
    return b"%s %08x\n" % (text, zlib.crc32(text))


def _halves(lines: bytes) -> list[bytes]:
    return [lines[:_WIDTH], lines[_WIDTH:]]


def _sound(lines: bytes) -> list[re.Match[bytes]]:
    """Return those of two lines that are whole."""
    found = (_LINE.fullmatch(lines, at, at + _WIDTH) for at in (0, _WIDTH))
    return [line for line in found if line and zlib.crc32(line[1]) == int(line[4], 16)]


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
        self._known: list[bytes] = []  # both lines as this process left them, once it has written one

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
                    f"{self._ledger} lacks a stream that {self._file.shown} has seen {seen} journal rows "
                    "of: an older copy was put in its place and charges are forgotten",
                    remedy="restore the newest one",
                )
            remedy = remedy or "restore it; or remove that file too and start a stream under a new name and budget"
            raise LedgerDamaged(
                f"{self._ledger} is missing, {self._file.shown} has seen {seen} journal rows of it", remedy=remedy
            )

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
                f"{ledger} has {seq} journal rows, {self._file.shown} has seen {count}: an older copy was "
                "put in its place and charges are forgotten",
                remedy=remedy,
            )
        known = chain if count == seq else chain_at(count)
        if count and known is not None and known != link:
            raise LedgerDamaged(
                f"{ledger} differs at journal row {count} from what {self._file.shown} has seen: it is the "
                "ledger of another history",
                remedy="restore the right one",
            )

    def note(self, seq: int, chain: bytes) -> None:
        """Remember the last row and its link. After a failure, which is logged, the guard is behind its ledger."""
        with self._file.going_on():
            self._file.open()
            known, line = self._known or _halves(self._read()), _line(seq, chain, self._file.mark)
            self._file.write(line, self._start + self._turn * _WIDTH)
            self._keep(known, line)

    def _read(self) -> bytes:
        return self._file.read(self._start, 2 * _WIDTH)

    def _keep(self, known: list[bytes], line: bytes) -> None:
        known[self._turn], self._known = line, known
        self._turn = 1 - self._turn

    @staticmethod
    def note_together(notes: Sequence[tuple[RollbackGuard, int, bytes]]) -> None:
        """Do what `note` does for several guards of one file, whose lines are written at once if they lie together.

        What lies between them is written as it is, so a write that is torn leaves it intact. Nobody else may write to
        the file meanwhile.
        """
        start, size = _extent([guard for guard, _, _ in notes])
        if not size:
            for guard, seq, chain in notes:
                guard.note(seq, chain)
            return
        file = notes[0][0]._file
        with file.going_on():
            file.open()
            lines = bytearray(file.read(start, size).ljust(size, b"\0"))
            written = []
            for guard, seq, chain in notes:
                at, line = guard._start - start, _line(seq, chain, file.mark)
                written.append((guard, guard._known or _halves(bytes(lines[at : at + 2 * _WIDTH])), line))
                at += guard._turn * _WIDTH
                lines[at : at + _WIDTH] = line
            file.write(lines.rstrip(b"\0"), start)
            for guard, known, line in written:
                guard._keep(known, line)

    @staticmethod
    def are_ours(guards: Sequence[RollbackGuard]) -> bool:
        """Tell whether the newest line of each of several guards of one file is the last one that this process wrote.

        A guard that this process has not written, or that is gone, has no line of anybody else.
        """
        file = guards[0]._file
        file.find_anew()
        start, size = _extent(guards)
        try:
            held = file.read(start, size) if size else b""
            for guard in guards:
                at = guard._start - start
                if guard._known and not guard._is_known(held[at : at + 2 * _WIDTH] if size else guard._read()):
                    return False
        except OSError:
            pass  # the next note tells
        return True

    def _is_known(self, lines: bytes) -> bool:
        if lines == b"".join(self._known):
            return True
        found = _sound(lines)
        newest = max((line[2] for line in found), default=b"")
        return all(line[0] in self._known for line in found if line[2] == newest)

    @property
    def _start(self) -> int:
        return 2 * _WIDTH * (self._number - 1)

    @property
    def _ledger(self) -> str:
        return _ledger_of(self._file.shown)

    def damage(self, lag: Callable[[int], int]) -> str | None:
        """Return why the file of this guard, which can be read, would not have found an older copy; None if it would.

        `lag` gets the number of rows that the guard has seen, and returns how many more it should have seen.
        """
        with contextlib.suppress(OSError):
            if not self.seen()[0] and self._file.read(self._start, 2 * _WIDTH).strip(b"\0"):
                return (
                    f"{self._file.shown} holds something else than what it has seen of {self._ledger}: an older copy "
                    f"would not have been noticed; {_AFTERWARD}"
                )
        count, _ = self.seen()
        missing = lag(count)
        if missing <= 0:
            return None
        if not os.path.lexists(self.path):
            missed = f"an older copy of {self._ledger} would not have been noticed"
            return f"{self._file.shown} is missing: {missed}; {_AFTERWARD}"
        what = f"has missed {many(missing, 'journal row')}" if count else "has seen no journal row"
        return (
            f"{self._file.shown} {what} of {self._ledger}: an older copy from since then would not have been noticed; "
            f"after a power loss that may be, otherwise {_AFTERWARD}"
        )

    @staticmethod
    def renew(file: GuardFile, guards: Iterable[tuple[RollbackGuard, int, bytes, Callable[[int], int]]]) -> None:
        """Log a warning if the file is absent, damaged or behind its ledger, and note what its guards should know.

        Each guard comes with the last row that is on disk, its link, and what `damage` needs. Beside a new ledger the
        file is absent, and stays so.
        """
        known, found = [*guards], None
        if file.trouble() is None:
            found = next(filter(None, (guard.damage(lag) for guard, _, _, lag in known)), None)
        if found is not None:
            file.warn(found)
        elif not os.path.lexists(file.path):
            return
        RollbackGuard.note_together([(guard, seq, chain) for guard, seq, chain, _ in known])

    def seen(self) -> tuple[int, bytes]:
        """Return how many rows the guard has seen, and the last link; 0 rows if the file is absent or torn."""
        try:
            found = _sound(self._file.read(self._start, 2 * _WIDTH))
        except OSError:
            found = []
        return max(((int(line[2]), bytes.fromhex(line[3].decode())) for line in found), default=(0, b""))

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self._file.close()


def _extent(guards: Sequence[RollbackGuard]) -> tuple[int, int]:
    """Return where the lines of some guards begin and how long they are; no length if they are few, or far apart."""
    numbers = [guard._number for guard in guards]
    start = 2 * _WIDTH * (min(numbers) - 1)
    return start, 0 if max(numbers) - min(numbers) > 2 * len(numbers) - 3 else 2 * _WIDTH * max(numbers) - start
