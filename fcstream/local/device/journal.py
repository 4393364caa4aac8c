"""The file in which devices write what they were charged and what they replied, before a reply leaves.

Each line is a transaction: 64 hex digits that bind it to all lines before it, then JSON (see `accounts`). A rollback
guard, `PATH-witness`, remembers how far the file came, so that an older copy is refused. Once much of the file is about
dropped queries, a smaller file with the same totals replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch, LedgerTaken
from ...ledgers.rollback_guard import RollbackGuard
from ...runtime.disk import lock_file, sync_folder, write_all
from ...runtime.undo import on_error
from .accounts import Accounts, DeviceCharge, Reply, charging, sealing

KEEP = 1000
"""How many queries keep their replies; one more query drops the oldest."""
_SMALL = 2**18  # bytes below which a file is left as it is
_encode = json.JSONEncoder(separators=(",", ":")).encode


def link(before: bytes, text: bytes) -> bytes:
    """The hash that binds a line to those before it."""
    return hashlib.sha256(before + text).digest()


class Journal:
    """The devices' accounts in memory; `FileJournal` adds the file.

    Parameters
    ----------
    keep : int
        How many queries, the newest ones, keep their replies. Public: whether a question is too old must not depend
        on anybody's data.

    Raises
    ------
    LedgerError
        On every call after a failed write, and in a forked process: only opening the file again shows what is on disk.
    """

    def __init__(self, keep: int = KEEP) -> None:
        if keep < 1:
            raise ConfigError("must be at least 1", "keep", got=keep)
        self.lock = threading.RLock()
        self.keep = keep
        self.accounts = Accounts()
        self._pid = os.getpid()
        self._failed = self._closed = False
        self._names: set[str] = set()
        self._budget: dict[str, Any] | None = None  # of the devices that are here

    @property
    def location(self) -> str:
        """For messages."""
        return "the journal"

    def enter(self, device: str, budget: Mapping[str, Any]) -> int:
        """Register a device; returns what it has spent, in nano units of its budget.

        Raises
        ------
        LedgerInUse
            A device of this name is registered: two would each spend the same budget.
        LedgerMismatch
            The journal's devices have another budget.
        """
        with self.lock:
            self.check()
            if device in self._names:
                raise LedgerInUse(
                    f"{self.location} has a device {device!r} that is in use", remedy="give each a name of its own"
                )
            self._budget = self._budget or self.accounts.budget or dict(budget)
            if self._budget != dict(budget):
                raise LedgerMismatch(
                    f"{self.location} has devices with another budget: what was promised stays promised",
                    remedy="give devices with another budget a journal of their own",
                )
            self._names.add(device)
            return self.accounts.tally(device).spent

    def leave(self, device: str) -> None:
        self._names.discard(device)

    def check(self) -> None:
        """Raise unless the journal can be written."""
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.location} was opened before a fork", remedy="open it in the process that uses it")
        if self._closed:
            raise LedgerError(f"{self.location} is closed", remedy="open it again")
        if self._failed:
            raise LedgerError(f"{self.location} could not be written before", remedy="open it again")

    def charge(
        self, charges: list[DeviceCharge], redraws: list[tuple[str, int, str]], metrics: Mapping[str, Any] | None = None
    ) -> None:
        """Note charges, redraws (query, round, device) and new metrics; durable when this returns."""
        change = charging(charges, redraws)
        if metrics:
            change = {"metrics": dict(metrics)} | change
        asked = {charge.query for charge in charges} | {query for query, *_ in redraws}
        dropped = self.accounts.oldest_beyond(asked, self.keep)
        if dropped:
            change = {"drop": dropped} | change
        if self.accounts.budget is None:
            change = {"open": self._budget} | change
        self._commit(change)

    def seal(self, replies: list[Reply]) -> None:
        """Note replies; durable when this returns."""
        self._commit(sealing(replies))

    def _commit(self, change: dict[str, Any]) -> None:
        with self.lock:
            self.check()
            change = {"at": int(time.time() * 1000)} | change
            # The flag is set until memory and disk agree, so that an interrupt in between stops the journal too. Memory
            # comes first: a transaction that contradicts it must not be written.
            self._failed = True
            self.accounts.follow(change)
            self._write(change)
            self._failed = False

    def _write(self, change: Mapping[str, Any]) -> None:
        """Make a transaction durable."""

    def close(self) -> None:
        """Idempotent."""
        self._closed = True


class MemoryJournal(Journal):
    """A journal that ends with the process: for tests and simulations."""


class FileJournal(Journal):
    """A journal in a file (mode 0600) that one process holds at a time.

    An incomplete last line was never durable, so no reply that left depends on it: it is cut off. Any other line that
    does not follow from those before it is damage, and the devices refuse to go on.

    Parameters
    ----------
    path : path
    keep : int
        See `Journal`.
    sync : bool
        False: what is written survives the process, but not a power failure.

    Raises
    ------
    LedgerInUse
        Another process, or this one, holds the file.
    LedgerDamaged
        A line does not follow; or the file is lost, or older than its rollback guard.
    LedgerError
        The file cannot be opened, read or written. After a failed write nothing more is written.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: int = KEEP, sync: bool = True) -> None:
        super().__init__(keep)
        self.path = Path(path)
        self._sync = sync
        self._seq, self._chain = 0, b""
        self._rollback_guard = RollbackGuard(f"{self.path}-witness")
        self._file = -1
        with on_error(self.close):
            try:
                self._open()
            except OSError as error:
                raise LedgerError(f"{self.path} cannot be opened: {error.strerror}") from None

    @property
    def location(self) -> str:
        return str(self.path)

    def _open(self) -> None:
        is_new = not self.path.exists()
        if is_new:
            self._rollback_guard.check_absence(_REMEDY)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _hold(self._file, self.path)
        if is_new:
            sync_folder(self.path.parent)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._scratch)  # of a compaction that was interrupted
        data = Path(self.path).read_bytes()
        found = read(data, self.path, self._rollback_guard)
        if found.size < len(data):
            os.ftruncate(self._file, found.size)
            os.fsync(self._file)
        self.accounts, self._seq, self._chain = found.accounts, found.seq, found.chain
        self._size = self._last_size = found.size
        self._dropped = len(found.accounts.expired)

    @property
    def _scratch(self) -> str:
        return f"{self.path}-new"

    def _write(self, change: Mapping[str, Any]) -> None:
        text = _encode(change).encode()
        chain = link(self._chain, text)
        line = chain.hex().encode() + b" " + text + b"\n"
        try:
            write_all(self._file, line)
            if self._sync:
                os.fsync(self._file)
            is_mine = self.path.exists() and os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be written: {error.strerror}") from None
        if not is_mine or not RollbackGuard.are_ours([self._rollback_guard]):
            raise LedgerTaken(
                f"{self.path} was replaced, or changed by another process, while this one had it "
                "open: nothing more is answered",
                remedy="let one process use it, and start again",
            )
        self._seq, self._chain, self._size = self._seq + 1, chain, self._size + len(line)
        self._rollback_guard.note(self._seq, chain)

    def seal(self, replies: list[Reply]) -> None:
        with self.lock:
            super().seal(replies)
            # Unless queries were dropped, the new file would be about as long as the old one.
            if self._size > 2 * self._last_size + _SMALL and len(self.accounts.expired) > self._dropped:
                self.compact()

    def compact(self) -> None:
        """Replace the file by one with the same totals, without dropped replies; a crash leaves one of the two.

        Raises
        ------
        LedgerError
            The new file may be there without being durable: devices answer again once the journal was opened anew.
        """
        with self.lock:
            self.check()
            self._last_size, self._dropped = (
                self._size,
                len(self.accounts.expired),
            )  # if it fails: not tried again at once
            if self.accounts.budget is None:
                return
            try:
                file, lines = self._write_scratch()
            except OSError:
                return  # the disk is full, for instance: the old file serves as well
            self._failed = True
            try:
                os.replace(self._scratch, self.path)
                sync_folder(self.path.parent)
            except OSError as error:
                os.close(file)
                raise LedgerError(f"{self.path} cannot be replaced: {error.strerror}") from None
            os.close(self._file)
            self._file = file
            self._seq, self._chain = self._seq + len(lines), lines[-1]
            self._size = self._last_size = os.fstat(file).st_size
            self._rollback_guard.note(self._seq, self._chain)
            self._failed = False

    def _write_scratch(self) -> tuple[int, list[bytes]]:
        """The new file, locked and durable, and the hashes of its lines."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        file, chain = os.open(self._scratch, flags, 0o600), self._chain
        links: list[bytes] = []
        with on_error(self._drop_scratch, file):
            lock_file(file)  # before it gets its name, so that no other process locks it first
            for change in self.accounts.compacted(int(time.time() * 1000)):
                if not links:
                    change = change | {"follows": [self._seq, chain.hex()]}
                text = _encode(change).encode()
                chain = link(chain, text)
                links.append(chain)
                write_all(file, chain.hex().encode() + b" " + text + b"\n")
            os.fsync(file)
        return file, links

    def _drop_scratch(self, file: int) -> None:
        os.close(file)
        with contextlib.suppress(OSError):
            os.remove(self._scratch)

    def close(self) -> None:
        with self.lock:
            super().close()
            self._rollback_guard.close()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


_REMEDY = (
    "restore the newest one; if there is none, count the budgets of its devices as used up and let them not answer"
)


class JournalContents:
    """What a journal's file holds: state, length of its complete lines, number of transactions, last hash."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.changes: list[tuple[int, dict[str, Any]]] = []
        self.seq, self.size, self.chain = 0, 0, b""


def read(
    data: bytes,
    path: Path,
    rollback_guard: RollbackGuard,
    seen: tuple[int, bytes] | None = None,
    *,
    all_changes: bool = False,
) -> JournalContents:
    """Apply a journal's lines and compare them with its rollback guard: as it is now, or as `seen` before.

    Raises
    ------
    LedgerDamaged
    """
    found = JournalContents()
    links = {0: b""}
    found.size = data.rfind(b"\n") + 1
    for number, line in enumerate(_lines(data, found.size), 1):
        try:
            text = line[65:]
            change = json.loads(text)
            if number == 1 and "follows" in change:
                found.seq, found.chain = change["follows"][0], bytes.fromhex(change["follows"][1])
                links = {found.seq: found.chain}
            found.chain = link(found.chain, text)
            if line[:65] != found.chain.hex().encode() + b" ":
                raise ValueError
            found.accounts.follow(change)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise LedgerDamaged(
                f"{path} is damaged: line {number} does not follow from those before it",
                remedy="restore the newest copy",
            ) from None
        found.seq += 1
        links[found.seq] = found.chain
        if all_changes:
            found.changes.append((found.seq, change))
    # Lines from before the last compaction are gone and cannot be compared.
    rollback_guard.check(found.seq, found.chain, links.get, _REMEDY, seen)
    return found


def _lines(data: bytes, size: int) -> Iterable[bytes]:
    start = 0
    while start < size:
        end = data.index(b"\n", start)
        yield data[start:end]
        start = end + 1


def _hold(file: int, path: Path) -> None:
    try:
        lock_file(file)
        # Another process may have replaced the file by a compacted one since it was opened here.
        is_mine = os.path.samestat(os.fstat(file), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        is_mine = False
    if not is_mine:
        raise LedgerInUse(f"{path} is held by another process: a device's state has one holder")
