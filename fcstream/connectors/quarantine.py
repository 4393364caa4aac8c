"""What a process was decoding when it died, so that a message which ends it does not do so for ever."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError, SourceError
from ..runtime.disk import lock_file, sync_folder
from .base import Chunk

LOG = logging.getLogger("fcstream.connectors.quarantine")
_HEAD = struct.Struct("<II")
_STATE = struct.Struct("QQ")
FILES = ("decoding", "quarantine", "quarantine.new")


class _Span(NamedTuple):
    partition: str
    first: int
    last: int


class _Turns:
    """Lets a suspected message be decoded while no other stream decodes, or it could be blamed for that one's."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._together = self._alone = 0  # streams that decode; those that do so alone, or wait to
        self._is_alone = False
        self._changes = 0
        self._state: Any = bytearray(_STATE.size)

    def tell(self, state: Any) -> None:
        """Write to shared memory, from now on, how often what is being decoded has changed, and how many decode."""
        self._state = bytearray(_STATE.size) if state is None else state

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        with self._change:
            if alone:
                self._alone += 1
                self._change.wait_for(lambda: not self._together and not self._is_alone)
                self._is_alone = True
            else:
                self._change.wait_for(lambda: not self._alone)
                self._together += 1
            self._note()
        try:
            yield
        finally:
            with self._change:
                if alone:
                    self._alone -= 1
                    self._is_alone = False
                else:
                    self._together -= 1
                self._note()
                self._change.notify_all()

    def _note(self) -> None:
        self._changes += 1
        _STATE.pack_into(self._state, 0, self._changes, self._together + self._is_alone)


TURNS = _Turns()


class Quarantine:
    """Notes which messages are being decoded, and finds the one at which a process died twice.

    After a first death the messages that were being decoded are suspected until they have been decoded, one by one and
    however many processes end before that. The one that is being decoded at a second death is in quarantine from then
    on: it is rejected without being decoded.

    Parameters
    ----------
    prefix : str, optional
        How the paths of its files begin: ``PREFIXdecoding`` and ``PREFIXquarantine``. Left out: nothing is noted.

    Attributes
    ----------
    found : int
        Number of messages in quarantine.

    Notes
    -----
    The note survives the process and not the machine, whose death no message explains, so no fsync is needed. A message
    is known by its partition, its offset and its content.
    """

    def __init__(self, prefix: str | None = None) -> None:
        self._prefix, self._file = prefix, -1
        self._suspects: list[_Span] = []
        self._held: dict[tuple[str, int], str] = {}

    @property
    def found(self) -> int:
        return len(self._held)

    def open(self) -> None:
        """Read what an earlier process noted; does nothing if that was done.

        Raises
        ------
        ConfigError
            Another process uses the files.
        SourceError
            They cannot be read or written.
        """
        if self._prefix is None or self._file >= 0:
            return
        try:
            os.makedirs(os.path.dirname(self._prefix) or ".", 0o700, exist_ok=True)
            self._file = os.open(f"{self._prefix}decoding", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            lock_file(self._file)
            self._read()
        except BlockingIOError:
            self.close()
            raise ConfigError(
                f"must be another one for each process, {self._prefix}decoding is in use", "source.quarantine"
            ) from None
        except OSError as error:
            self.close()
            raise SourceError(f"{self._prefix}decoding cannot be used: {error.strerror}") from None

    def apart(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        """Divide messages, in their order, into those to decode together; one that is suspected or held is alone."""
        if not self._suspects and not self._held:
            return [list(chunks)] if chunks else []
        groups: list[list[Chunk]] = [[]]
        for chunk in chunks:
            start = 0
            for i, offset in enumerate(map(int, chunk.offsets)):
                if self._is_suspect(chunk.partition, offset) or (chunk.partition, offset) in self._held:
                    groups[-1].append(chunk.part(start, i))
                    groups += [[chunk.part(i, i + 1)], []]
                    start = i + 1
            groups[-1].append(chunk.part(start, len(chunk.offsets)))
        return [some for group in groups if (some := [chunk for chunk in group if len(chunk.offsets)])]

    def holds(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether these are one message in quarantine."""
        if not self._held or len(chunks) > 1 or len(chunks[0].offsets) > 1:
            return False
        (chunk,) = chunks
        return self._held.get((chunk.partition, int(chunk.offsets[0]))) == _digest(chunk.bodies[0])

    @contextmanager
    def decoding(self, chunks: Sequence[Chunk]) -> Iterator[None]:
        """Note, until the end of the block, that messages are being decoded."""
        if self._file < 0:
            with TURNS.taken(alone=False):
                yield
            return
        spans = [_Span(chunk.partition, int(chunk.offsets[0]), int(chunk.offsets[-1])) for chunk in chunks]
        again = len(spans) == 1 and spans[0].first == spans[0].last and self._is_suspect(*spans[0][:2])
        digest = _digest(chunks[0].bodies[0]) if again else ""
        with TURNS.taken(alone=again):
            self._note(spans, digest)
            try:
                yield
            finally:
                if self._suspects:
                    self._clear(spans)
                self._note()

    def forget(self, positions: Mapping[str, int]) -> None:
        """Forget messages that no restart reads again."""
        self._suspects = [each for each in self._suspects if each.last >= positions.get(each.partition, 0)]
        old = [at for at in self._held if at[1] < positions.get(at[0], 0)]
        if old:
            for at in old:
                del self._held[at]
            self._write()

    def close(self) -> None:
        """Close the files; may be called again."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _is_suspect(self, partition: str, offset: int) -> bool:
        return any(name == partition and first <= offset <= last for name, first, last in self._suspects)

    def _note(self, spans: Sequence[_Span] = (), digest: str = "") -> None:
        """Note what is being decoded from now on, and what is suspected."""
        note = json.dumps([spans, digest, self._suspects]).encode()
        os.pwrite(self._file, _HEAD.pack(len(note), zlib.crc32(note)) + note, 0)

    def _clear(self, spans: Sequence[_Span]) -> None:
        """Suspect no longer what was decoded."""
        done = {span.partition: span.last for span in spans}
        self._suspects = [each for each in self._suspects if done.get(each.partition, -1) < each.last]

    def _read(self) -> None:
        with suppress(FileNotFoundError, ValueError, TypeError):
            listed = json.loads(Path(f"{self._prefix}quarantine").read_bytes())
            self._held = {(str(partition), int(offset)): str(digest) for partition, offset, digest in listed}
        spans, digest, self._suspects = self._noted()
        if digest:
            self._held[spans[0].partition, spans[0].first] = digest
            self._write()
            LOG.error(
                "message %d of %s was being decoded when the process died twice: it is rejected (broken_record), and "
                "tell whoever sends it; a restart knows it by %squarantine",
                spans[0].first,
                spans[0].partition,
                self._prefix,
            )
        elif spans:
            self._suspects += [span for span in spans if span not in self._suspects]
            LOG.warning(
                "the process died while it decoded messages: those from %s on are decoded one by one",
                ", ".join(f"{span.first} of {span.partition}" for span in spans),
            )
        self._note()

    def _noted(self) -> tuple[list[_Span], str, list[_Span]]:
        found: Any = os.pread(self._file, os.fstat(self._file).st_size, 0)
        with suppress(struct.error, ValueError, TypeError):
            size, crc = _HEAD.unpack_from(found)
            note = found[_HEAD.size : _HEAD.size + size]
            if size and len(note) == size and zlib.crc32(note) == crc:
                spans, digest, suspects = json.loads(note)
                return [_Span(*span) for span in spans], digest, [_Span(*span) for span in suspects]
        return [], "", []

    def _write(self) -> None:
        path = f"{self._prefix}quarantine"
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump([[*at, digest] for at, digest in self._held.items()], file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
        sync_folder(os.path.dirname(path) or ".")


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
