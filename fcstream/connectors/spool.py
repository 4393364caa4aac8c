"""Spool: local files in front of brokers that forget acknowledged messages (MQTT, AMQP queues), to make them
replayable.

A message is acknowledged only when it is in the spool and on disk, and stays there until a commit says that no open
window needs it. Delivery is *at least once*: the broker sends a message again if the process or the connection dies
after the spool took it and before the broker handled the acknowledgement. Such a message counts as another record,
unless the operator names an identity of deliveries (AMQP's ``?delivery_id=message_id``, a user property of MQTT). Then
the identities of the last `MEMORY` messages are remembered, across restarts too.

The files have mode 0600 in a folder of mode 0700: ``lock``; ``position``, the first record that a restart needs;
``decoding`` and ``quarantine`` (see `fcstream.connectors.quarantine`); and segments ``FIRST.rows``, named after their
first record. A segment is a row of frames. The first one has no records but the ids of earlier ones; each
`Spool.append` adds one more::

    magic, first record, count, number of ids, of timestamps, receipt, bytes | crc32 |
    lengths, timestamps, ids, bodies | crc32 | end

A frame whose messages have envelopes has another magic, twice as many lengths, and the envelopes after the bodies.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ..errors import ConfigError, SourceError
from ..runtime.disk import lock_file, sync_folder
from ..runtime.undo import on_error
from ..runtime.wall_clock import ACCEPTANCE, NOTES
from .quarantine import FILES

LOG = logging.getLogger("fcstream.connectors.spool")
MEMORY = 4096
"""Number of messages whose identities are remembered; a source with identities may not have more unacknowledged
messages.
"""
LONGEST_S = 600
"""Seconds after which a segment is followed by another one, so that what was sealed long ago is deleted."""
MIN_BYTES = 1 << 20
UNREADABLE = b"\xc1"
"""Stands for a message that is too large: it is not text, and MessagePack never uses this byte."""
_LARGE = 2048  # bytes; below it, one copy costs less than many pieces
_PIECE, _MAX_PARTS = 1 << 18, 1000  # bytes that fit a processor's cache; parts that a system writes at once
ID_BYTES = 16
NO_ID = bytes(ID_BYTES)
_TIMESTAMP_BYTES = 8
_MAGIC, _MAGIC_ENVELOPES = b"fcs2", b"fcs3"
_FRAME, _CRC = struct.Struct("<4sQIIIqQ"), struct.Struct("<I")
_HEAD, _TAIL = _FRAME.size + _CRC.size, _CRC.size + 1
_END = b"\n"  # not zero, so that a hole in a file does not look like an end
_NAME = re.compile(r"(\d{20})\.rows")
_OWN = (
    "lock",
    "position",
    "position.new",
    *FILES,
    *(name + end for name in (NOTES, ACCEPTANCE) for end in ("", ".new")),
)


class SpooledRecords(NamedTuple):
    """Records that came together, numbered from `first` on.

    `ids`, `timestamps` and `envelopes` have one entry for each record, or none. A timestamp says when a record arrived,
    if that is not the time of receipt. An envelope is bytes here (`Envelope.packed`).
    """

    first: int
    receipt_ms: int
    bodies: list[bytes]
    ids: list[bytes]
    timestamps: Sequence[int] = ()
    envelopes: Sequence[bytes] = ()

    def part(self, start: int, stop: int | None = None) -> SpooledRecords:
        """Return the records from `start` to before `stop`."""
        cut = slice(start, stop)
        return SpooledRecords(
            self.first + start,
            self.receipt_ms,
            self.bodies[cut],
            self.ids[cut],
            self.timestamps[cut],
            self.envelopes[cut],
        )

    @property
    def arrivals_ms(self) -> Sequence[int]:
        return self.timestamps or [self.receipt_ms] * len(self.bodies)


class Spool:
    """Records in order, numbered from 0 for ever, each with the time of its receipt.

    Parameters
    ----------
    folder : Path
        A folder for this spool alone; it is made if absent. One process at a time may open it.
    max_bytes : int
        Largest size of all its files. A spool that is full accepts nothing and never drops anything.
    segment_bytes : int, optional
        Size of one file, which is deleted as a whole; by default a sixteenth of `max_bytes`, at most 64 MiB.
    clock : callable, optional
        Returns Unix milliseconds. If it is set back, receipt times stay the same until it has caught up, after a
        restart too.
    bounds : callable, optional
        Returns the earliest and the latest time that it may be now, where a jump of the clock has made that doubtful
        (`WallClock.bounds_ms`). Records then have both, so that whichever is right makes none of them late.
    memory : int, optional
        Number of messages whose identities are remembered, `MEMORY` by default; each takes 16 bytes in every segment.

    Attributes
    ----------
    position, end : int
        The first record that a restart needs; the number that the next record gets.
    torn : str or None
        What was cut off at the end of its files when it was opened, and what that means.
    alive_ms : int or None
        When a process last had the spool open before, in Unix milliseconds; None if none had, or that is not known.
    is_full : bool
        Whether the last `append` could not store everything.

    Raises
    ------
    ConfigError, SourceError
        The folder is in use, belongs to another program, or is damaged. A last frame that a crash tore was never
        acknowledged and is cut off.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        segment_bytes: int | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        memory: int | None = None,
        bounds: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        if max_bytes < MIN_BYTES:
            raise ConfigError(f"must be at least {MIN_BYTES}", "source.spool_bytes", got=max_bytes)
        self.folder, self.max_bytes = Path(folder), max_bytes
        self.position = self.end = 0
        self.is_full = False
        self._segment_bytes = min(segment_bytes or min(max_bytes // 16, 1 << 26), max_bytes // 4)
        self._clock = clock
        self._bounds = bounds or (lambda: (clock(),) * 2)
        self._receipt_ms = 0
        self.alive_ms: int | None = None
        self.torn: str | None = None
        self._memory = MEMORY if memory is None else memory
        self._ids: OrderedDict[bytes, None] = OrderedDict()
        self._begun_s = time.monotonic()
        self._sizes: dict[int, int] = {}  # bytes of a segment by its first record, ascending
        self._recent = SpooledRecords(0, 0, [], [])  # what was appended last, so that it need not be read again
        # The record with which the next frame begins, and the frames from there on.
        self._next_frame: tuple[int, Iterator[tuple[int, SpooledRecords]]] = (-1, iter(()))
        self._fds: dict[str, int] = {}
        with on_error(self.close), self._telling("opened"):
            self._claim()
            self._recover()

    @property
    def stored_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def clock(self) -> Callable[[], int]:
        return self._clock

    def mark(self) -> None:
        """Note that a process has the spool open now, for whichever opens it next."""
        now = self._clock()
        with self._telling("written"):
            os.utime(self._fds["lock"], ns=(now * 1_000_000, now * 1_000_000))

    def knows(self, identity: bytes) -> bool:
        """Return whether one of the last `memory` records had this identity."""
        return identity in self._ids

    def append(
        self,
        bodies: Sequence[bytes],
        ids: Sequence[bytes] = (),
        sync: Callable[[int], object] | None = None,
        timestamps: Sequence[int | None] = (),
        envelopes: Sequence[bytes] = (),
    ) -> int:
        """Put records on disk (one fsync) and return how many: fewer than all, from the front, if there is no room.

        Parameters
        ----------
        bodies : sequence of bytes
        ids : sequence of bytes
            An identity of 16 bytes for each record (zeros for none), or nothing.
        sync : callable, optional
            Puts a file on disk; `os.fsync` by default.
        timestamps : sequence of int or None
            When each record arrived, or nothing. A time that is missing or ahead of the clock is replaced by the time
            of receipt.
        envelopes : sequence of bytes
            What each record has besides its body (`Envelope.packed`), or nothing.

        Raises
        ------
        SourceError
            The disk cannot be written. Nothing was stored.

        Notes
        -----
        A record that is larger than half of the spool is replaced by one that no format can read, and is rejected where
        records are decoded. Otherwise it would come again, and not fit again, for ever.
        """
        if any(len(body) > self.max_bytes // 2 for body in bodies):
            bodies = [body if len(body) <= self.max_bytes // 2 else UNREADABLE for body in bodies]
        if any(map(len, envelopes)):
            sizes = [len(body) + len(envelope) + 4 for body, envelope in zip(bodies, envelopes, strict=True)]
        else:
            sizes, envelopes = list(map(len, bodies)), ()
        earliest, latest = self._bounds()
        is_doubtful = earliest < latest
        each = 4 + (ID_BYTES if ids else 0) + (_TIMESTAMP_BYTES if timestamps or is_doubtful else 0)
        frames = 2 * (_HEAD + _TAIL) + ID_BYTES * self._memory  # room for the beginning of a new segment
        room = self.max_bytes - self.stored_bytes - frames
        count = sum(total <= room for total in accumulate(size + each for size in sizes))
        if count < len(bodies) and not self.is_full:
            LOG.warning(
                "%s is full: nothing is received until windows close; raise `source.spool_bytes` (%d)",
                self.folder,
                self.max_bytes,
            )
        self.is_full = count < len(bodies)
        if count:
            base = max(self._receipt_ms, self._clock())
            receipt = max(latest, base)
            floor = min(earliest, base) if is_doubtful else receipt
            given = timestamps[:count] or [None] * (count if is_doubtful else 0)
            arrivals = [floor if timestamp is None else max(0, min(timestamp, receipt)) for timestamp in given]
            rows = SpooledRecords(
                self.end, receipt, list(bodies[:count]), list(ids[:count]), arrivals, envelopes[:count]
            )
            with self._telling("written"):
                self._write(rows, sync)
            self._receipt_ms = base
        return count

    def read(self, number: int) -> SpooledRecords:
        """Return the records from `number` on of the frame that holds it; `number` must be before `end`.

        Raises
        ------
        SourceError
            The segment is damaged.
        """
        rows = self._recent
        if not rows.first <= number < rows.first + len(rows.bodies):
            at, frames = self._next_frame
            self._next_frame = (-1, iter(()))
            with self._telling("read"):
                after, rows = next(frames if at == number else (frames := self._frames(number)))
            self._next_frame = (after, frames)
        skip = number - rows.first
        return rows.part(skip) if skip else rows

    def commit(self, number: int) -> None:
        """Note durably that a restart reads from this record on, and delete what is not needed; the position never goes
        back.
        """
        number = min(number, self.end)
        if number <= self.position:
            return
        text, path = b"%d" % number, self.folder / "position"
        with self._telling("written"):
            os.close(_new_file(path.with_suffix(".new"), [[b"%s %08x\n" % (text, zlib.crc32(text))]]))
            os.rename(path.with_suffix(".new"), path)
            os.fsync(self._fds["folder"])
            self.position = number
            self.discard_before(number)

    def discard_before(self, number: int) -> None:
        """Delete the segments that hold only records before this one (and before `position`).

        Where these are all, the last segment goes too: no message outlives its windows because no other comes.
        """
        last = next(reversed(self._sizes))
        if min(number, self.position) >= self.end > last:
            self._start()
        for first, following in list(pairwise(self._sizes)):
            if following <= min(number, self.position):
                os.unlink(self._path(first))
                del self._sizes[first]

    @property
    def is_open(self) -> bool:
        return bool(self._fds)

    def close(self) -> None:
        """Close the spool; may be called again."""
        self._next_frame = (-1, iter(()))
        for name in list(self._fds):
            os.close(self._fds.pop(name))

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:020d}.rows"

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise SourceError(
                f"{self.folder} cannot be {what}: {words}; nothing was lost", remedy="repair the folder or its disk"
            ) from None

    def _claim(self) -> None:
        """Lock the folder, after checking that it holds nothing but a spool."""
        absent = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in absent:
            sync_folder(path.parent)
        for name in os.listdir(self.folder):
            if name not in _OWN and not _NAME.fullmatch(name):
                raise SourceError(
                    f"{self.folder} must be for the spool alone, it holds {name!r}", remedy="choose another folder"
                )
        self._fds["folder"] = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        os.fchmod(self._fds["folder"], 0o700)
        with suppress(FileNotFoundError):
            self.alive_ms = (self.folder / "lock").stat().st_mtime_ns // 1_000_000
        self._fds["lock"] = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock_file(self._fds["lock"])
        except BlockingIOError:
            raise SourceError(f"{self.folder} is in use", remedy="give every process a spool of its own") from None

    def _recover(self) -> None:
        names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name))
        self._sizes = {int(name[:20]): (self.folder / name).stat().st_size for name in names}
        path, first = self.folder / "position", next(iter(self._sizes), 0)
        self.position = first
        if path.exists():
            text, _, crc = path.read_bytes().partition(b" ")
            if crc != b"%08x\n" % zlib.crc32(text):
                raise SourceError(f"{path} is damaged", remedy="remove it, and all that the spool holds is read again")
            self.position = int(text)
        if self._sizes and not self._scan(next(reversed(self._sizes))):
            # The process died while it began this segment; those before it are complete.
            begun = self._sizes.popitem()[0]
            whole = not self._sizes or self._scan(next(reversed(self._sizes)))
            if not whole or self.end != begun:
                raise self._damaged(begun)
            self._tell_torn(self._path(begun), 0, os.path.getsize(self._path(begun)))
            os.unlink(self._path(begun))
        if not first <= self.position <= self.end:
            raise SourceError(
                f"{self.folder} must hold record {self.position}, where reading is to go on: "
                "segments were removed or put back",
                remedy="restore them, or move the folder away to begin anew",
            )
        if not self._sizes:
            self._start()

    def _scan(self, last: int) -> bool:
        """Check the last segment, find its end, and cut off what a crash tore; returns False if nothing is left."""
        self.end, sound = last, 0
        with self._path(last).open("rb") as file:
            while sound < self._sizes[last]:
                try:
                    number, rows = _read_frame(file, self.end, -1)
                except _Broken as broken:
                    if not broken.torn:
                        raise self._damaged(last) from None
                    break
                self.end, sound = number, file.tell()
                self._receipt_ms = min([rows.receipt_ms, *rows.timestamps])  # the last one may have been doubtful
                self._remember(rows.ids)
        if not sound:
            self.end = 0
            return False
        self._fds["last"] = os.open(self._path(last), os.O_RDWR | os.O_CLOEXEC)
        if sound < self._sizes[last]:
            self._tell_torn(self._path(last), sound, self._sizes[last])
            os.ftruncate(self._fds["last"], sound)
            os.fsync(self._fds["last"])
            self._sizes[last] = sound
        return True

    def _tell_torn(self, path: Path, start: int, stop: int) -> None:
        self.torn = (
            f"bytes {start} to {stop} of {path} were no whole entry and are cut off: a process that died while it wrote"
            " them had acknowledged none of their messages, which are sent again; if none died, the disk has lost data"
        )
        LOG.warning("%s", self.torn)

    def _damaged(self, segment: int) -> SourceError:
        return SourceError(
            f"{self._path(segment)} is damaged",
            remedy="restore it; or move the folder away to begin anew, without its records",
        )

    def _frames(self, start: int) -> Iterator[tuple[int, SpooledRecords]]:
        """Yield frames from the one that holds a record on, with the number of the record after each."""
        segment = number = max((first for first in self._sizes if first <= start), default=0)
        while True:
            try:
                with self._path(segment).open("rb") as file:
                    while file.tell() < self._sizes[segment]:
                        number, rows = _read_frame(file, number, start)
                        if rows.bodies:
                            yield number, rows
            except _Broken:
                raise self._damaged(segment) from None
            if number == segment or number not in self._sizes:
                raise self._damaged(segment)
            segment = number

    def _remember(self, ids: Sequence[bytes]) -> None:
        if ids:
            self._ids.update(dict.fromkeys(ids))
            self._ids.pop(NO_ID, None)
            while len(self._ids) > self._memory:
                self._ids.popitem(last=False)

    def _start(self) -> None:
        """Begin a segment; it holds what must outlive earlier ones: the receipt time and the ids."""
        path, rows = self._path(self.end), SpooledRecords(self.end, self._receipt_ms, [], list(self._ids))
        with on_error(self._undo, lambda: path.unlink(missing_ok=True)):
            file = _new_file(path, _frame(rows))
            os.fsync(self._fds["folder"])
        if "last" in self._fds:
            os.close(self._fds["last"])
        self._fds["last"] = file
        self._sizes[self.end], self._begun_s = _frame_size(rows), time.monotonic()

    def _write(self, rows: SpooledRecords, sync: Callable[[int], object] | None) -> None:
        size = _frame_size(rows)
        last = next(reversed(self._sizes))
        is_old = time.monotonic() - self._begun_s > LONGEST_S
        if self.end > last and (is_old or self._sizes[last] + size > self._segment_bytes):
            self._start()
            last = self.end
        file, start = self._fds.get("last", -1), self._sizes[last]
        with on_error(self._undo, lambda: os.ftruncate(file, start)):
            _write_all(file, _frame(rows), start, sync)
        self._sizes[last] = start + size
        self._recent, self.end = rows, self.end + len(rows.bodies)
        self._remember(rows.ids)

    def _undo(self, action: Callable[[], object]) -> None:
        """Undo a write that failed; if that fails too, nothing more is written until the spool is opened anew."""
        try:
            action()
        except OSError:
            if "last" in self._fds:
                os.close(self._fds.pop("last"))


class _Broken(Exception):
    """A segment does not hold what was written; `torn` if a crash during a write explains it."""

    def __init__(self, torn: bool) -> None:
        self.torn = torn


def _frame(rows: SpooledRecords) -> Iterator[list[bytes]]:
    """Make the parts of a frame, in pieces that stay in a processor's cache from checksum to write.

    Large bodies are among them as they are, not copied.
    """
    blobs = [*rows.bodies, *rows.envelopes]
    lengths = np.fromiter(map(len, blobs), "<u4", len(blobs))
    start = b"".join([lengths.tobytes(), np.array(rows.timestamps, "<i8").tobytes(), *rows.ids])
    bodies = blobs if len(lengths) and lengths.mean() > _LARGE else [b"".join(blobs)]
    magic = _MAGIC_ENVELOPES if rows.envelopes else _MAGIC
    count, named, size = len(rows.bodies), len(rows.ids), _payload_size(rows)
    head = _FRAME.pack(magic, rows.first, count, named, len(rows.timestamps), rows.receipt_ms, size)
    piece, crc = [head, _CRC.pack(zlib.crc32(head)), start], zlib.crc32(start)
    size = len(start)
    for body in bodies:
        if size + len(body) > _PIECE or len(piece) > _MAX_PARTS:
            yield piece
            piece, size = [], 0
        piece.append(body)
        crc, size = zlib.crc32(body, crc), size + len(body)
    yield [*piece, _CRC.pack(crc), _END]


def _payload_size(rows: SpooledRecords) -> int:
    labels = _TIMESTAMP_BYTES * len(rows.timestamps) + ID_BYTES * len(rows.ids)
    number = len(rows.bodies) + len(rows.envelopes)
    return 4 * number + labels + sum(map(len, rows.bodies)) + sum(map(len, rows.envelopes))


def _frame_size(rows: SpooledRecords) -> int:
    return _HEAD + _payload_size(rows) + _TAIL


def _read_frame(file: BinaryIO, number: int, start: int) -> tuple[int, SpooledRecords]:
    """Read the next frame, which must begin with record `number`, and return it with the number of the record after it.

    Records before `start` are skipped.
    """
    head = file.read(_HEAD)
    if len(head) < _HEAD or zlib.crc32(head[: _FRAME.size]) != _CRC.unpack_from(head, _FRAME.size)[0]:
        raise _Broken(torn=len((head + file.read()).rstrip(b"\0")) < _HEAD)
    magic, first, count, named, stamped, receipt_ms, size = _FRAME.unpack_from(head)
    if magic not in (_MAGIC, _MAGIC_ENVELOPES) or first != number:
        raise _Broken(torn=False)
    if 0 < first + count <= start:
        file.seek(size + _TAIL, os.SEEK_CUR)
        return first + count, SpooledRecords(first, receipt_ms, [], [])
    payload = file.read(size + _TAIL)
    if len(payload) < size + _TAIL:
        raise _Broken(torn=True)
    if zlib.crc32(memoryview(payload)[:size]) != _CRC.unpack_from(payload, size)[0]:
        raise _Broken(torn=payload[-1] == 0 and not file.read().strip(b"\0"))
    blobs = 2 * count if magic == _MAGIC_ENVELOPES else count
    if size < 4 * blobs + _TIMESTAMP_BYTES * stamped:
        raise _Broken(torn=False)
    lengths, timestamps = (
        np.frombuffer(payload, "<u4", blobs),
        np.frombuffer(payload, "<i8", stamped, 4 * blobs).tolist(),
    )
    at = 4 * blobs + _TIMESTAMP_BYTES * stamped
    ids = [payload[i : i + ID_BYTES] for i in range(at, at + ID_BYTES * named, ID_BYTES)]
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]) + (at + ID_BYTES * named)
    if bounds[-1] != size or payload[-1:] not in (_END, b"\0"):
        raise _Broken(torn=False)
    parts = [payload[i:j] for i, j in pairwise(bounds.tolist())]
    return first + count, SpooledRecords(first, receipt_ms, parts[:count], ids, timestamps, parts[count:])


def _new_file(path: Path, pieces: Iterable[list[bytes]]) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(file, pieces, 0)
    except OSError:
        os.close(file)
        raise
    return file


def _write_all(file: int, pieces: Iterable[list[bytes]], at: int, sync: Callable[[int], object] | None = None) -> None:
    for piece in pieces:
        left = [memoryview(part) for part in piece if part]
        while left:
            done = os.pwritev(file, left, at)
            at += done
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]
    (sync or os.fsync)(file)
