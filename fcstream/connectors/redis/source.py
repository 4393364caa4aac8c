"""Redis Streams: entries are read by id, and the ids are their identity, so a stream can be read from any position.

An id is ``ms-seq``: the server's clock when the entry was added, and a counter within that millisecond. Those who add
entries may choose ids themselves; then they choose the timestamps too, and with them which records are late: let the
server choose. How much a server keeps when it stops is its own configuration (``appendonly``).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...errors import ConfigError, Shown, SourceError
from ...formats.envelopes import Envelope, OfferedFields
from ..base import BrokerTime, Chunk, Source
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .connection import RedisConnection, answers_of, redis_errors
from .ids import HIGH_COUNTERS, LOW_COUNTERS, MARKED, MS_LIMIT, SEQ_BITS, of_offset, parse_id, to_offset, write_id

LOG = logging.getLogger("fcstream.connectors.redis")
POLL_BYTES = 1 << 24
"""Size at which a poll stops reading; it exceeds this by one command's entries at most."""
_STEP = 250  # entries per command: more is no faster, and all of them are read even if they are suddenly huge
_WAIT_S = 5.0  # longest time of one blocking command
_FEW = 16  # entries of the first command, when it is not known yet how large entries are
_REACH = """
local found = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
return {#found, #found > 0 and found[#found][1] or ''}
"""
_STREAMS = UrlOption("stream", "Keys of the streams that are read, with commas between them.")
GROUP = UrlOption("group", "Consumer under whose name positions are kept.", otherwise="`source.name`")
_FIELD = UrlOption("field", "Field of an entry that holds the record.", "data")


class RedisSource(Source):
    """Reads one or more streams, each a partition, with ``XREAD``.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``rediss`` for TLS.
    name : str
        The consumer's name. Positions are kept in the hash ``fcstream:NAME:positions`` of the same database, as ids.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        Opening makes one attempt only, so that a wrong address is reported at once.

    Notes
    -----
    An entry without the field has the empty body. A stream that does not exist is empty.

    If entries were trimmed away or deleted before they were read, reading continues with the oldest that is left. That
    is noticed when everything was read that was there at an `ends`, by comparing how many entries the server added with
    how many were read; then a warning is logged. Servers before Redis 7 do not count entries, and nothing is known of
    those between a stored position and the end at opening: there the source looks for the entry that was read last.

    A stream that ends before what was read of it was made anew, with older ids. It is then read from its beginning, as
    another partition. So is a stream that has grown past that position since, if it holds older ids but not the entry
    that was read last.
    """

    url: ClassVar = "redis://[user:password@]host[:port]/[db]?stream=KEY[,KEY...]"
    url_options: ClassVar = (_STREAMS, GROUP, _FIELD, PATIENCE, *TLS)
    offered: ClassVar = OfferedFields(topic=":", headers="the other fields of an entry")

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._asked = address.asked
        keys = list(dict.fromkeys(key for key in address.take(_STREAMS).split(",") if key))
        if not keys:
            raise ConfigError("must name a stream", address.key, got=Shown(address.masked))
        self._positions_key = f"fcstream:{address.take(GROUP, name)}:positions"
        self._field = address.take(_FIELD).encode()
        self._link = RedisConnection(address, patience_s, SourceError)
        self._entry_bytes = POLL_BYTES / _STEP
        self._step = _FEW
        self._warned: dict[str, int] = {}
        self._times_made: dict[str, int] = {}
        # Positions are parsed ids within this class, and offsets outside of it.
        self._last: dict[str, int] = {}  # the last id that was read
        # streams with an id that does not fit an int64; their later ids stay parsed ids too
        self._marked: set[str] = set()
        self._ranges = False
        self._partitions = {key: key for key in keys}  # names of partitions, which change when a stream is made anew
        self._sound: dict[str, int | None] = {}  # by key, the position before which everything was read
        self._ranks: dict[str, int] = {}  # how many entries had been added up to the position, where that is known
        self._marks: dict[str, tuple[int, int]] = {}  # an end, and how many entries had been added up to it
        stored = self._link.open(lambda client: client.hgetall(self._positions_key))
        self._next = {key: parse_id(stored.get(key.encode(), b"0-0")) for key in keys}
        self._committed = dict(self._next)
        for key, extent in self._link.run(self._extents).items():
            if 0 < extent.end < self._next[key]:
                self._reset_partition(key, None)
            self._warn_trimmed(key, extent)
            self._count(key, extent)
        self._partitions = {key: key for key in keys}  # nothing was polled yet
        self.ends()

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until = time.monotonic() + timeout_s
        while True:
            wait_s = min(until - time.monotonic(), _WAIT_S)
            chunks = self._link.run(partial(self._gather, room=max_messages, wait_s=wait_s))
            for key, chunk in chunks:
                self._advance(key, chunk)
            if chunks or time.monotonic() >= until:
                return [chunk for _, chunk in chunks]

    def ends(self) -> dict[str, int]:
        extents = self._link.run(self._extents)
        for key, extent in extents.items():
            position = self._next[key]
            if 0 < extent.end < position or not self._is_same_stream(key, extent):
                if self._ranges:
                    raise SourceError(
                        f"stream {key} must go on after id {write_id(position - 1)}, it does not: it was made anew",
                        remedy="open the source again to read it from its beginning",
                    )
                self._reset_partition(key, position >> 64)
                self._count(key, extent)
            elif extent.added is not None and extent.added < self._ranks.get(key, 0):
                # The stream was deleted, and written again with ids that continue.
                self.note_gap(f"stream {key} was made anew", self._sound.get(key))
                del self._ranks[key]
                self._marks.pop(key, None)
            self._warn_trimmed(key, extent)
            if extent.added is not None and key not in self._marks:  # a later mark might never be reached
                self._marks[key] = extent.end, extent.added
                self._compare(key, 0)
        return {self._partitions[key]: to_offset(extent.end or self._next[key]) for key, extent in extents.items()}

    def clock(self) -> BrokerTime | None:
        def ask(client: Any) -> BrokerTime | None:
            try:
                seconds, micros = client.time()
            except redis_errors().ResponseError as error:  # a login without the right to ask
                if not isinstance(error, redis_errors().NoPermissionError) and "unknown command" not in str(error):
                    raise
                return None
            newest = max((extent.end >> 64 for extent in self._extents(client).values()), default=0)
            return BrokerTime(int(seconds) * 1000 + int(micros) // 1000, newest)

        return self._link.run(ask)

    def behind(self, ends: Mapping[str, int]) -> bool:
        found = {key: of_offset(ends[name]) for key, name in self._partitions.items() if name in ends}
        spans = {key: (self._next[key], end) for key, end in found.items() if self._next[key] < end}

        def ask(client: Any) -> bool:
            return any(client.xrange(key, write_id(start), write_id(end - 1), 1) for key, (start, end) in spans.items())

        return bool(spans) and self._link.run(ask)

    def seek(self, positions: Mapping[str, int]) -> None:
        self._next = {key: of_offset(offset) for key, offset in positions.items()}
        self._ranges, self._partitions = True, {key: key for key in positions}
        for known in (self._last, self._ranks, self._marks):
            known.clear()

    def reach(self, partition: str, start: int, count: int) -> int:
        def ask(client: Any) -> tuple[int, bytes]:
            try:
                number, last = client.eval(_REACH, 1, partition, write_id(of_offset(start)), count)
                return number, last
            except redis_errors().ResponseError as error:  # a login without the right to run scripts
                if not isinstance(error, redis_errors().NoPermissionError) and "unknown command" not in str(error):
                    raise
                entries = client.xrange(partition, write_id(of_offset(start)), "+", count)
                return len(entries), entries[-1][0] if entries else b""

        number, last = self._link.run(ask)
        return to_offset(parse_id(last)) + 1 if number == count else MS_LIMIT << SEQ_BITS

    def commit(self, positions: Mapping[str, int]) -> None:
        named = self._partitions.items()
        found = {key: of_offset(positions[name]) for key, name in named if name in positions}
        later = {key: number for key, number in found.items() if number > self._committed[key]}
        if later:
            ids = {key: write_id(number) for key, number in later.items()}
            self._link.run(lambda client: client.hset(self._positions_key, mapping=ids))
            self._committed |= later

    def close(self) -> None:
        self._link.close()

    def _reset_partition(self, key: str, since_ms: int | None) -> None:
        """Give the partition another name, because ids start again; what was handed out before stays valid."""
        LOG.warning("stream %s was made anew: it is read from its beginning", key)
        self.note_gap(f"stream {key} was made anew", since_ms)
        self._next[key] = self._committed[key] = 0
        self._times_made[key] = self._times_made.get(key, 1) + 1
        self._partitions[key] = f"{key} ({self._times_made[key]})"
        for known in (self._last, self._ranks, self._marks, self._warned):
            known.pop(key, None)

    def _count(self, key: str, extent: _Extent) -> None:
        """Begin to count entries, where none can lie between the position and the first entry."""
        if extent.added is not None and (self._next[key] <= extent.first or not extent.length):
            self._ranks[key] = extent.added - extent.length  # removed entries come before those that are left

    def _advance(self, key: str, chunk: Chunk) -> None:
        """Move the position behind what was read."""
        last = of_offset(int(chunk.offsets[-1]))
        mark, _ = self._marks.get(key, (0, 0))
        self._next[key] = last + 1
        self._last[key] = last
        if key in self._ranks:
            self._ranks[key] += len(chunk.offsets)
        if 0 < mark <= last + 1:
            self._compare(
                key, len(chunk.offsets) - bisect_left(chunk.offsets, mark, key=lambda each: of_offset(int(each)))
            )

    def _compare(self, key: str, after: int) -> None:
        """Compare, once everything before a mark was read, the number of entries read with the number added.

        `after` of the entries read came after the mark.
        """
        end, added = self._marks[key]
        if self._next[key] < end:
            return
        del self._marks[key]
        missed = added + after - self._ranks.get(key, added + after)
        if missed > 0:
            self.note_gap(f"entries of stream {key} were trimmed or deleted unread", self._sound.get(key))
            LOG.warning(
                "stream %s: %d entries were trimmed or deleted unread, before id %s", key, missed, write_id(end)
            )
        self._ranks[key] = added + after
        self._sound[key] = end >> 64

    def _warn_trimmed(self, key: str, extent: _Extent) -> None:
        """Warn of entries that may have been trimmed, where nothing was counted; counted ones are reported exactly."""
        position = self._next[key]
        if key not in self._ranks and 0 < position < extent.first and self._warned.get(key) != position:
            LOG.warning(
                "stream %s begins at id %s: older entries may have been trimmed unread", key, write_id(extent.first)
            )
            self.note_gap(f"entries of stream {key} may have been trimmed unread", position >> 64)
            self._warned[key] = position

    def _is_same_stream(self, key: str, extent: _Extent) -> bool:
        """Return whether a stream still holds the entry that was read last, if it holds an older one.

        If it does not, it was made anew and has grown past that position, or its server lost entries.
        """
        last = self._last.get(key)
        if last is None or extent.deleted is None or not 0 < extent.first <= last or last <= extent.deleted:
            return True

        def ask(client: Any) -> bool:
            if client.xrange(key, write_id(last), write_id(last)):
                return True
            now = self._extents(client)[key]  # it may have been trimmed in between
            return not 0 < now.first <= last or last <= (now.deleted or 0)

        return self._link.run(ask)

    def _extents(self, client: Any) -> dict[str, _Extent]:
        extents = {}
        for key in self._next:
            try:
                info = client.xinfo_stream(key)
            except redis_errors().ResponseError as error:
                if "no such key" not in str(error):
                    raise
                extents[key] = _Extent()
                continue
            first, deleted = info["first-entry"], info.get("max-deleted-entry-id")
            last = parse_id(info["last-generated-id"])
            extents[key] = _Extent(
                parse_id(first[0]) if first else 0,
                last + 1 if last else 0,
                info["length"],
                info.get("entries-added"),
                parse_id(deleted) if deleted else None,
            )
        return extents

    def _gather(self, client: Any, room: int, wait_s: float) -> list[tuple[str, Chunk]]:
        """Read chunks by key until there is nothing more, or enough; positions do not change."""
        found: dict[str, tuple[list[int], list[bytes], list[Envelope]]] = {key: ([], [], []) for key in self._next}
        budget, is_first = float(POLL_BYTES), True
        while room > 0 and budget > 0:
            fit = min(room, self._step, int(budget / self._entry_bytes) + 1)
            count = max(1, fit // len(found))
            starts = [write_id(max(0, (f[0][-1] if f[0] else self._next[key] - 1))) for key, f in found.items()]
            block = ("BLOCK", max(1, int(wait_s * 1000))) if wait_s > 0 else ()
            command = ("XREAD", "COUNT", count, *block, "STREAMS", *found, *starts)
            reply = self._first(client, command) if is_first else client.execute_command(*command)
            is_first = False
            taken = size = 0
            for key, entries in reply or ():
                numbers, bodies, envelopes = found[key.decode()]
                numbers += [parse_id(entry_id) for entry_id, _ in entries]
                bodies += [self._body(fields) for _, fields in entries]
                if self._asked.from_source:
                    envelopes += [self._envelope(key.decode(), fields) for _, fields in entries]
                taken += len(entries)
                size += sum(len(value) for _, fields in entries for value in fields)
            if not taken:
                break
            self._entry_bytes = max(64.0, size / taken)
            self._step = min(_STEP, 2 * max(_FEW // 2, taken))
            room, budget, wait_s = room - taken, budget - size, 0.0
            if taken < count:
                break
        return [(key, self._chunk(key, *parts)) for key, parts in found.items() if parts[0]]

    def _envelope(self, key: str, fields: list[bytes]) -> Envelope:
        """Return what an entry has besides its body: the name of its stream, and its other fields."""
        names = (name.decode("utf-8", "surrogateescape") for name in fields[::2])
        return self._asked.envelope(key, headers=zip(names, fields[1::2], strict=False))

    def _chunk(self, key: str, numbers: list[int], bodies: list[bytes], envelopes: list[Envelope]) -> Chunk:
        """Make a chunk. After an id that does not fit an int64, all later ones of its stream stay parsed ids, to keep
        the order.
        """
        if numbers[-1] >> 64 >= MS_LIMIT or any(number & HIGH_COUNTERS for number in numbers):
            if self._ranges:
                raise SourceError(
                    f"entry ids must be below {MS_LIMIT}-0 with counters below {1 << SEQ_BITS}, "
                    f"stream {key} has others",
                    remedy="let the server choose them, and make the stream anew",
                )
            self._marked.add(key)
        besides = envelopes if self._asked.from_source else None
        if key in self._marked:
            timestamps = [min(number >> 64, MS_LIMIT) for number in numbers]
            return Chunk(
                *(
                    self._partitions[key],
                    np.array([number | MARKED for number in numbers]),
                    np.array(timestamps),
                    bodies,
                ),
                envelopes=besides,
            )
        identity = np.array([number >> 44 | number & LOW_COUNTERS for number in numbers], np.int64)
        return Chunk(self._partitions[key], identity, identity >> SEQ_BITS, bodies, envelopes=besides)

    def _first(self, client: Any, command: tuple[Any, ...]) -> Any:
        """Make a poll's first reading.

        Where entries are not counted yet, it also looks for the entry that was read last: if it is still there, nothing
        after it was trimmed.
        """
        unsure = [key for key, position in self._next.items() if key not in self._ranks and position]
        if not unsure:
            return client.execute_command(*command)
        pipe = client.pipeline(transaction=False)
        for key in unsure:
            pipe.xrange(key, write_id(self._next[key] - 1), write_id(self._next[key] - 1))
        pipe.execute_command(*command)
        *there, reply = answers_of(pipe)
        if not all(there):  # trimmed, or a stored position that is not an entry's
            extents = self._extents(client)
            for key, entries in zip(unsure, there, strict=True):
                if not entries:
                    self._warn_trimmed(key, extents[key])
        return reply

    def _body(self, fields: list[bytes]) -> bytes:
        if fields[0] == self._field:
            return fields[1]
        names = fields[::2]
        return fields[2 * names.index(self._field) + 1] if self._field in names else b""


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a stream holds, as ``XINFO STREAM`` reports it.

    Attributes
    ----------
    first : int
        Id of the first entry; 0 if there is none.
    end : int
        Id after the last entry that was ever added; 0 if there never was one.
    length : int
    added : int or None
        How many entries were ever added; None if the server does not count.
    deleted : int or None
        The highest id of the deleted entries (trimmed ones do not count); 0 if there is none.
    """

    first: int = 0
    end: int = 0
    length: int = 0
    added: int | None = None
    deleted: int | None = None
