"""Files: JSON lines and CSV are read (plain or gzip, or standard input to its end), JSON lines are written.

Sources are read line by line, whatever the lines hold, so that a broken record damages no other. File sinks hold
whole lines only: a line torn by a crash is cut off when the file is opened again.
"""

from __future__ import annotations

import gzip
import logging
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from typing import cast

import msgspec

from ..errors import ConfigError, SinkError, SourceError
from ..formats.batch import Batch, Rejection, Schema
from ..formats.csv_dialect import BOM, COMMAS, CsvDialect, Transcoder
from ..formats.decoders import CsvRows, LineDecoder
from ..formats.nested import objects_decoder
from ..formats.rejections import is_packed, total
from ..releases.base import Release
from ..runtime.disk import lock_file, sync_folder, write_all
from ..runtime.undo import on_error
from .sinks import Sink, read_release
from .sources import FileSource

LOG = logging.getLogger("fcstream.connectors.files")
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 20
DEAD_LETTER_BYTES, MIN_DEAD_LETTER_BYTES = 1 << 26, 1 << 20
"""Size of a file of dead letters: the default, and the least."""
_LETTERS_TOGETHER, _TELL_S = 1024, 60.0
NO_RECORD = b"\0"
"""Stands for a line that is too long to be read."""


class LineSplitter:
    """Splits blocks of bytes into lines of bounded length; a longer one is replaced by bytes that no format can read.

    Memory stays bounded too: of a line that is too long no more than that it is so is kept.
    """

    def __init__(self) -> None:
        self._tail = b""

    def split(self, block: bytes) -> list[bytes]:
        """Return the lines that end in this block."""
        lines = block.split(b"\n")
        lines[0] = self._tail + lines[0]
        self._tail = lines.pop()[: LONGEST_LINE + 1]  # just enough to know that it is too long
        return [line if len(line) <= LONGEST_LINE else NO_RECORD for line in lines]

    def last(self) -> list[bytes]:
        """Return the line without an end with which a file ends, if it has one."""
        tail, self._tail = self._tail, b""
        return [tail if len(tail) <= LONGEST_LINE else NO_RECORD] if tail else []

    def torn(self) -> list[bytes]:
        """Return what stands for the line that a pipe broke off in, if it did: part of a number is a number too."""
        return [NO_RECORD for _ in self.last()]


class LineSource(FileSource):
    """Records from the lines of a file; a record's identity is its line number, from 0.

    Parameters
    ----------
    path : str
        ``-`` for standard input; names that end in ``.gz`` are unpacked.
    make_decoder : callable
        Gets a function that reads one line (a header) and returns the decoder.

    Raises
    ------
    SourceError
        The file cannot be opened, or (from `poll`) cannot be read to its end.
    """

    def __init__(self, path: str, make_decoder: Callable[[LineSource], LineDecoder]) -> None:
        self.path = path
        self._file = _open(path)
        self._splitter = LineSplitter()
        self._pending: list[bytes] = []
        self._ended = self._has_begun = False
        self._next = 0
        self._to_utf8: Transcoder | None = None
        with on_error(self.close):
            self._decoder = make_decoder(self)

    @classmethod
    def jsonl(cls, path: str, schema: Schema) -> LineSource:
        return cls(path, lambda source: objects_decoder(schema))

    @classmethod
    def csv(cls, path: str, schema: Schema, dialect: CsvDialect | None = None) -> LineSource:
        dialect = dialect or COMMAS

        def make(source: LineSource) -> LineDecoder:
            source._to_utf8 = dialect.to_utf8()
            header = b"" if dialect.header else source._header()
            try:
                return CsvRows(schema, header, dialect)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from None

        return cls(path, make)

    def poll(self, max_records: int) -> Batch | None:
        while len(self._pending) < max_records and not self._ended:
            self._read_block()
        if not self._pending:
            return None
        lines, self._pending = self._pending[:max_records], self._pending[max_records:]
        first = self._next
        self._next += len(lines)
        return self._decoder.decode(lines, first)

    def part_read(self) -> float | None:
        """Return how much of the file has been read, between 0 and 1, or of its packed bytes if it is packed; None for
        pipes.
        """
        if self._file.closed:
            return None
        packed = cast(BufferedIOBase, self._file.fileobj) if isinstance(self._file, gzip.GzipFile) else self._file
        state = os.fstat(packed.fileno())
        return min(1.0, packed.tell() / max(1, state.st_size)) if stat.S_ISREG(state.st_mode) else None

    def close(self) -> None:
        if self.path != "-":
            self._file.close()

    def _header(self) -> bytes:
        while not self._pending and not self._ended:
            self._read_block()
        if not self._pending:
            raise SourceError(f"{self.path} must start with a header line, it is empty")
        self._next = 1
        return self._pending.pop(0)

    def _read_block(self) -> None:
        try:
            # A pipe is read as far as it has data; unpacking is faster in whole blocks.
            block = self._file.read1(BLOCK_BYTES) if self.path == "-" else self._file.read(BLOCK_BYTES)
        except EOFError:
            raise SourceError(
                f"{self.path} is truncated: its compressed data ends early; nothing was released"
            ) from None
        except (OSError, zlib.error) as error:
            what = error.strerror if isinstance(error, OSError) and error.strerror else "not readable as gzip data"
            raise SourceError(f"{self.path} cannot be read to its end: {what}; nothing was released") from None
        self._ended = not block
        if self._to_utf8 is not None:
            block = self._to_utf8(block)
        if block:
            self._pending.extend(self._splitter.split(block))
        if self._ended:
            self._pending.extend(self._splitter.last())
        if self._pending and not self._has_begun:
            self._has_begun = True
            self._pending[0] = self._pending[0].removeprefix(BOM)


def _open(path: str) -> BufferedIOBase:
    if path == "-":
        if sys.stdin is None:
            raise SourceError("standard input is closed", remedy="open it, or give a file as `source.url`")
        return cast(BufferedIOBase, sys.stdin.buffer)
    try:
        if os.path.isdir(path):
            raise SourceError(f"{path} must be a file, it is a directory", remedy="change `source.url`")
        if path.endswith(".gz"):
            if os.path.getsize(path) == 0:
                raise SourceError(f"{path} must be gzip data, it is empty")
            return gzip.GzipFile(path, "rb")
        file = open(path, "rb")  # noqa: SIM115
        start = file.peek(8)[:8] if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        if is_packed(start) and not start.isascii():  # a line may begin with x^
            file.close()
            raise SourceError(
                f"{path} is compressed: with gzip its name must end in .gz, anything else must be unpacked"
            )
        return file
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from None


class _LineFile:
    """A file of fcstream's whole lines, to which lines are appended; a torn last line is cut off when it is opened.

    Every line starts with `marker`. A file that holds anything else belongs to another program and is not changed.
    `remedy` is what an error says to do where lines cannot be written.
    """

    def __init__(self, path: str, mode: int, marker: bytes, remedy: str) -> None:
        self.path, self._remedy = path, remedy
        self._marker = marker
        if os.path.exists(path) and not os.path.isfile(path):
            raise SinkError(f"{path} must be a file", remedy="choose another")
        try:
            is_new = not os.path.exists(path)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except OSError as error:
            raise SinkError(f"{path} cannot be opened for writing: {error.strerror}") from None
        try:
            lock_file(self._fd)
        except OSError:
            os.close(self._fd)
            raise SinkError(f"{path} is in use: one writer at a time", remedy="choose another file") from None
        try:
            self._end = self._whole_lines()
            self._end_last_line()
            torn = os.pread(self._fd, len(marker), self._end)
            if not marker.startswith(torn) or not marker.startswith(os.pread(self._fd, len(marker), 0)):
                raise SinkError(f"{path} holds something else than lines of fcstream", remedy="choose another file")
            if torn:
                os.ftruncate(self._fd, self._end)
            if is_new:
                sync_folder(os.path.dirname(os.path.abspath(path)))
        except OSError as error:
            raise SinkError(f"{path} cannot be opened for writing: {error.strerror}") from None

    def append(self, lines: Sequence[bytes], *, durable: bool) -> None:
        """Append all lines or none."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            write_all(self._fd, data, self._end)
            if durable:
                os.fsync(self._fd)
        except OSError as error:
            self._cut()
            raise SinkError(f"{self.path} cannot be written: {error.strerror}", remedy=self._remedy) from None
        self._end += len(data)

    @property
    def size(self) -> int:
        """Return the number of bytes of whole lines."""
        return self._end

    def lines(self) -> set[bytes]:
        """Yield the lines of the file."""
        with open(self.path, "rb") as file:
            return {line.rstrip(b"\n") for line in file}

    def lines_backward(self) -> Iterator[bytes]:
        """Yield the whole lines from the last one on, without their ends; empty ones are left out.

        The file is read as far as lines are asked for.
        """
        end, later = self._end, list[bytes]()  # parts of the line that the blocks after this one end
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            first, *others = os.pread(self._fd, end - start, start).split(b"\n")
            end = start
            if others:
                others[-1] = b"".join([others[-1], *reversed(later)])
                later = []
                yield from filter(None, reversed(others))
            later.append(first)
        yield from filter(None, [b"".join(reversed(later))])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _whole_lines(self) -> int:
        """Return the length of the file up to its last line end."""
        end = os.fstat(self._fd).st_size
        while end > 0:
            start = max(0, end - 65536)
            cut = os.pread(self._fd, end - start, start).rfind(b"\n")
            if cut >= 0:
                return start + cut + 1
            end = start
        return 0

    def _end_last_line(self) -> None:
        """Add the line end to a last line that is whole but lacks it, as after an editor removed it."""
        tail = os.pread(self._fd, LONGEST_LINE, self._end)
        if tail.startswith(self._marker):
            try:
                msgspec.json.decode(tail)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            self._end += os.pwrite(self._fd, b"\n", self._end + len(tail)) + len(tail)

    def _cut(self) -> None:
        try:
            os.ftruncate(self._fd, self._end)
        except OSError:  # the next opening cuts the torn line off
            pass


class JsonlSink(Sink):
    """Writes releases as JSON lines to a file; they are on disk (fsync) before they count as written."""

    finds_streams = True

    def __init__(self, path: str) -> None:
        remedy = "make room and run again: what was sealed is in the ledger and is written then"
        self._file = _LineFile(path, 0o644, b'{"stream":', remedy)

    def write(self, releases: Sequence[Release]) -> None:
        self._file.append([release.to_bytes() for release in releases], durable=True)

    def last(self) -> Release | None:
        """Return the last release that the file holds."""
        return self.last_of(lambda stream: True)

    def last_of(self, is_own: Callable[[str], bool]) -> Release | None:
        """The file is read from its end to that release: most often one block."""
        for number, line in enumerate(self._file.lines_backward(), start=1):
            foreign = (
                f"{self._file.path} must hold nothing but releases, its line {number} from the end is none: remove "
                "what another program wrote there, or choose another file (`sink.url`)"
            )
            if is_own(_stream_of(line, foreign)):
                return read_release(line, foreign)
        return None

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._file.lines() if releases else set()
        return [release for release in releases if release.to_bytes() not in held]

    def close(self) -> None:
        self._file.close()


class _StreamLine(msgspec.Struct):
    stream: str


_STREAM_LINE = msgspec.json.Decoder(_StreamLine)


def _stream_of(line: bytes, otherwise: str) -> str:
    """Return the stream of a release's line, which is not read further; `otherwise` is the error's text."""
    try:
        return _STREAM_LINE.decode(line).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SinkError(otherwise) from None


class DeadLetters:
    """Writes rejections as JSON lines ``{"reason", "position", "field", "count"}`` to a file of mode 0600, never a
    record's content.

    Parameters
    ----------
    path : str
    max_bytes : int
        Largest size of both files together: from half of it on, the file is renamed to ``PATH.1`` and replaces that.

    Attributes
    ----------
    lost : int
        Number of rejections that could not be written, on a full disk for instance; the stream itself continues.
        Exact, so not private: for the operator only.

    Raises
    ------
    ConfigError
    SinkError
        The file cannot be opened.
    """

    def __init__(self, path: str, max_bytes: int = DEAD_LETTER_BYTES) -> None:
        if max_bytes < MIN_DEAD_LETTER_BYTES:
            raise ConfigError(f"must be at least {MIN_DEAD_LETTER_BYTES}", "dead_letter.max_bytes", got=max_bytes)
        self.lost = 0
        self._path, self._max_bytes = path, max_bytes
        self._reported = -_TELL_S
        self._file: _LineFile | None = self._opened()

    def write(self, rejections: Sequence[Rejection]) -> None:
        for start in range(0, len(rejections), _LETTERS_TOGETHER):
            some = rejections[start : start + _LETTERS_TOGETHER]
            try:
                self._append([msgspec.json.encode(rejection) for rejection in some])
            except (SinkError, OSError) as error:
                self.lost += total(some)
                if time.monotonic() >= self._reported + _TELL_S:
                    self._reported = time.monotonic()
                    what = error if isinstance(error, SinkError) else error.strerror
                    LOG.warning("dead letters: %s; the stream goes on without them", what)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _append(self, lines: list[bytes]) -> None:
        if self._file is None:  # opening it again has failed
            self._file = self._opened()
        if self._file.size + sum(map(len, lines)) + len(lines) > self._max_bytes // 2:
            os.replace(self._path, f"{self._path}.1")
            self._file.close()
            self._file = None
            self._file = self._opened()
        self._file.append(lines, durable=False)

    def _opened(self) -> _LineFile:
        remedy = (
            "make room, or choose another `dead_letter.url`: rejections that come meanwhile are counted and not kept"
        )
        return _LineFile(self._path, 0o600, b'{"reason":', remedy)
