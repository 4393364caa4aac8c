"""Redis Streams: entries are read by id, and the ids are their identity, so a stream replays from anywhere.

An id is ``ms-seq``: the server's clock when the entry was added, and a counter within that millisecond. Those who add
entries may choose ids themselves; then the stamps are theirs too, and `lateness` means what they make of it: let the
server choose. How much a server keeps when it stops is its own configuration (``appendonly``).
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ..errors import ConfigError, FcstreamError, SinkError, SourceError
from ..releases.base import Release
from .base import Chunk
from .retry import close_quietly, with_patience
from .tls import distrust, tls_context
from .urls import need

if TYPE_CHECKING:
    from .urls import Address

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.redis")
POLL_BYTES = 1 << 24
"""A poll stops gathering here; it exceeds it by one reading at most."""
_STEP = 250  # entries per reading: more is no faster, and a sudden run of huge ones is read whole
_WAIT_S = 5.0  # of one blocking command
_SOCKET_S = 15.0
_SEQ_BITS = 20
_MS_LIMIT = 1 << (63 - _SEQ_BITS)
_REACH = """
local found = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
return {#found, #found > 0 and found[#found][1] or ''}
"""


def to_offset(entry_id: bytes) -> int:
    """The offset of an id: ``ms << 20 | seq``.

    Raises
    ------
    SourceError
        The id does not fit: more than a million entries in a millisecond, or a time after 2248.
    """
    ms, _, seq = entry_id.partition(b"-")
    time_ms, count = int(ms), int(seq)
    if count >> _SEQ_BITS or time_ms >= _MS_LIMIT:
        raise SourceError(
            f"entry ids must be below {_MS_LIMIT}-0 with counters below {1 << _SEQ_BITS}, got {entry_id.decode()}: let "
            "the server choose them"
        )
    return time_ms << _SEQ_BITS | count


def to_id(offset: int) -> str:
    """The inverse of `to_offset`."""
    return f"{offset >> _SEQ_BITS}-{offset & ((1 << _SEQ_BITS) - 1)}"


class RedisSource:
    """Reads one or more streams, each a partition, with ``XREAD``; a `LiveSource`.

    Parameters
    ----------
    address : Address
        ``redis://[user:password@]host[:port]/[db]?stream=KEY[,KEY...]``, ``rediss`` for TLS. Options: ``group`` (the
        consumer's name), ``field`` (of an entry: its body; ``data``), ``patience`` (seconds), and with TLS ``ca``,
        ``cert``, ``key`` (files in PEM).
    name : str
        The consumer's: positions are kept in the hash ``fcstream:NAME:positions`` of the same database, as ids.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        The server is asked at once, and not twice.

    Notes
    -----
    An entry without the field has the empty body. A stream that does not exist is empty. If entries were trimmed away
    before they were read, reading goes on from the oldest there is, and a warning is logged. A stream that ends before
    what was read of it was made anew, with older ids: `ends` raises then, and a source that is opened later reads it
    from its beginning.
    """

    receipt_is_durable = False
    generation = 0

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        keys = list(dict.fromkeys(key for key in address.take("stream").split(",") if key))
        if not keys:
            raise ConfigError(f"must name a stream, got {address.masked}", address.place)
        self._positions_key = f"fcstream:{address.take('group', name)}:positions"
        self._field = address.take("field", "data").encode()
        self._link = _Link(address, patience_s, SourceError)
        self._entry_bytes = POLL_BYTES / _STEP
        self._warned: dict[str, int] = {}
        stored = self._link.open(lambda client: client.hgetall(self._positions_key))
        self._next = {key: to_offset(stored.get(key.encode(), b"0-0")) for key in keys}
        for key, (_, end) in self._link.do(self._extents).items():
            if 0 < end < self._next[key]:
                LOG.warning("stream %s was made anew: it is read from its beginning", key)
                self._next[key] = 0
        self._committed = dict(self._next)
        self.ends()

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until = time.monotonic() + timeout_s
        while True:
            wait_s = min(until - time.monotonic(), _WAIT_S)
            chunks = self._link.do(partial(self._gather, room=max_messages, wait_s=wait_s))
            for chunk in chunks:
                self._next[chunk.partition] = int(chunk.offsets[-1]) + 1
            if chunks or time.monotonic() >= until:
                return chunks

    def ends(self) -> dict[str, int]:
        extents = self._link.do(self._extents)
        for key, (first, end) in extents.items():
            position = self._next[key]
            if 0 < end < position:
                raise SourceError(
                    f"stream {key} must go on after id {to_id(position - 1)}, it ends at {to_id(end - 1)}: it was made "
                    "anew; open the source again to read it from its beginning"
                )
            if 0 < position < first and self._warned.get(key) != position:
                LOG.warning("stream %s begins at id %s: older entries may have been trimmed unread", key, to_id(first))
                self._warned[key] = position
        return {key: end or self._next[key] for key, (_, end) in extents.items()}

    def behind(self, ends: Mapping[str, int]) -> bool:
        spans = {key: (self._next[key], end) for key, end in ends.items() if self._next[key] < end}

        def ask(client: Any) -> bool:
            return any(client.xrange(key, to_id(start), to_id(end - 1), 1) for key, (start, end) in spans.items())

        return bool(spans) and self._link.do(ask)

    def seek(self, positions: Mapping[str, int]) -> None:
        self._next = dict(positions)

    def reach(self, partition: str, start: int, count: int) -> int:
        def ask(client: Any) -> tuple[int, bytes]:
            try:
                number, last = client.eval(_REACH, 1, partition, to_id(start), count)
                return number, last
            except _errors().ResponseError:  # scripts are not allowed to everybody
                entries = client.xrange(partition, to_id(start), "+", count)
                return len(entries), entries[-1][0] if entries else b""

        number, last = self._link.do(ask)
        return to_offset(last) + 1 if number == count else _MS_LIMIT << _SEQ_BITS

    def commit(self, positions: Mapping[str, int]) -> None:
        later = {key: offset for key, offset in positions.items() if offset > self._committed[key]}
        if later:
            ids = {key: to_id(offset) for key, offset in later.items()}
            self._link.do(lambda client: client.hset(self._positions_key, mapping=ids))
            self._committed |= later

    def close(self) -> None:
        self._link.close()

    def _extents(self, client: Any) -> dict[str, tuple[int, int]]:
        """Offset of the first entry (0: none) and after the last one (0: there never was one) of every stream."""
        extents = {}
        for key in self._next:
            try:
                info = client.xinfo_stream(key)
            except _errors().ResponseError as error:
                if "no such key" not in str(error):
                    raise
                extents[key] = (0, 0)
                continue
            first = info["first-entry"]
            last = to_offset(info["last-generated-id"])
            extents[key] = (to_offset(first[0]) if first else 0, last + 1 if last else 0)
        return extents

    def _gather(self, client: Any, room: int, wait_s: float) -> list[Chunk]:
        """Readings until there is nothing more, or enough; no position moves."""
        found: dict[str, tuple[list[int], list[bytes]]] = {key: ([], []) for key in self._next}
        budget = float(POLL_BYTES)
        while room > 0 and budget > 0:
            fit = min(room, _STEP, int(budget / self._entry_bytes) + 1)
            count = max(1, fit // len(found))
            starts = [to_id(max(0, (f[0][-1] if f[0] else self._next[key] - 1))) for key, f in found.items()]
            block = ("BLOCK", max(1, int(wait_s * 1000))) if wait_s > 0 else ()
            reply = client.execute_command("XREAD", "COUNT", count, *block, "STREAMS", *found, *starts)
            taken = size = 0
            for key, entries in reply or ():
                offsets, bodies = found[key.decode()]
                offsets += [to_offset(entry_id) for entry_id, _ in entries]
                bodies += [self._body(fields) for _, fields in entries]
                taken += len(entries)
                size += sum(len(value) for _, fields in entries for value in fields)
            if not taken:
                break
            self._entry_bytes = max(64.0, size / taken)
            room, budget, wait_s = room - taken, budget - size, 0.0
            if taken < count:
                break
        return [_chunk(key, offsets, bodies) for key, (offsets, bodies) in found.items() if offsets]

    def _body(self, fields: list[bytes]) -> bytes:
        if fields[0] == self._field:
            return fields[1]
        names = fields[::2]
        return fields[2 * names.index(self._field) + 1] if self._field in names else b""


class RedisSink:
    """Adds releases to a stream of their own, once each; a `Sink`.

    The id of an entry is ``CLOSE-0``, the end of its window in milliseconds: ``XRANGE`` finds windows by time, and a
    release that is written again is recognized, if it was not trimmed away: then it is taken as written when later ones
    are there. The fields are ``data`` (the JSON), ``stream`` and ``window`` (its opening).

    Parameters
    ----------
    address : Address
        ``redis://[user:password@]host[:port]/[db]?stream=KEY``, one key for each fcstream stream. Options: ``replicas``
        (how many must have it before it counts as written), ``patience``, and those of TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._key = address.take("stream")
        self._replicas = int(address.take_number("replicas", 1)) if "replicas" in address.options else 0
        self._link = _Link(address, patience_s, SinkError)
        self._link.open(lambda client: client.exists(self._key))

    def write(self, releases: Sequence[Release]) -> None:
        self._link.do(lambda client: self._add(client, releases))

    def send(self, bodies: Sequence[bytes]) -> None:
        def add(client: Any) -> None:
            pipe = client.pipeline(transaction=False)
            for body in bodies:
                pipe.xadd(self._key, {"data": body})
            pipe.execute()
            self._wait(client)

        self._link.do(add)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._link.do(lambda client: self._held(client, releases))
        return [release for release, found in zip(releases, held, strict=True) if found != release.to_bytes()]

    def last(self) -> Release | None:
        entries = self._link.do(lambda client: client.xrevrange(self._key, count=1))
        if not entries:
            return None
        try:
            return Release.from_bytes(entries[0][1].get(b"data", b""))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SinkError(f"{self._key} holds something else than releases: choose another stream") from None

    def close(self) -> None:
        self._link.close()

    def _add(self, client: Any, releases: Sequence[Release]) -> None:
        pipe = client.pipeline(transaction=False)
        for release in releases:
            window = release.window_open_ms
            fields = {"data": release.to_bytes(), "stream": release.stream, "window": str(window)}
            pipe.xadd(self._key, fields, id=_window_id(release))
        not_added = []
        for release, answer in zip(releases, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(answer, Exception):
                if "equal or smaller" not in str(answer):
                    raise answer
                not_added.append(release)
        self._check(client, not_added)
        self._wait(client)

    def _wait(self, client: Any) -> None:
        """For the replicas, if it is to be."""
        if self._replicas and client.wait(self._replicas, int(_WAIT_S * 1000)) < self._replicas:
            raise SinkError(
                f"{self._key} must reach {self._replicas} replicas, they did not answer in {_WAIT_S:g} s: mend them, "
                "or lower `replicas`"
            )

    def _check(self, client: Any, releases: list[Release]) -> None:
        """What could not be added must be there, or have been trimmed away."""
        for release, held in zip(releases, self._held(client, releases), strict=True):
            if held != release.to_bytes() and (held is not None or not self._is_trimmed(client, release)):
                raise SinkError(
                    f"{self._key} holds other entries at or after id {_window_id(release)}: give every stream of "
                    "releases a key of its own"
                )

    def _is_trimmed(self, client: Any, release: Release) -> bool:
        """Whether the oldest entry is a later window of the same stream."""
        return any(
            fields.get(b"stream") == release.stream.encode()
            and to_offset(entry_id) > to_offset(_window_id(release).encode())
            for entry_id, fields in client.xrange(self._key, count=1)
        )

    def _held(self, client: Any, releases: Sequence[Release]) -> list[bytes | None]:
        """The data under each release's id."""
        pipe = client.pipeline(transaction=False)
        for release in releases:
            pipe.xrange(self._key, _window_id(release), _window_id(release))
        return [entries[0][1].get(b"data", b"") if entries else None for entries in pipe.execute()]


def _window_id(release: Release) -> str:
    return f"{release.window_close_ms}-0"


class _Link:
    """A client that comes back after its connection was lost, and whose errors tell no secrets."""

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise need("redis", "redis", address.place) from None
        self._error = error
        self._where = address.masked
        self._patience_s = address.take_number("patience", patience_s)
        options = _options(address)
        address.finish()
        self._client: Any = redis.Redis(
            **options,
            decode_responses=False,
            protocol=2,  # answers as lists, which are three times as fast to read
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_SOCKET_S,
            socket_connect_timeout=_WAIT_S,
            socket_keepalive=True,
        )
        self._client.set_response_callback("XREAD", lambda reply, **_: reply)

    def open(self, action: Callable[[Any], T]) -> T:
        """The first thing to do: one try, so that a wrong address is told at once."""
        return self._repeat(action, 0.0)

    def do(self, action: Callable[[Any], T]) -> T:
        """Do something that is safe to repeat."""
        return self._repeat(action, self._patience_s)

    def close(self) -> None:
        close_quietly(self._client.close)

    def _repeat(self, action: Callable[[Any], T], patience_s: float) -> T:
        def lost(error: BaseException) -> FcstreamError:
            return self._error(f"{self._where} cannot be reached: {error}; start the server, or correct the address")

        return with_patience(lambda: self._once(action), lambda: None, (_Lost,), patience_s, lost)

    def _once(self, action: Callable[[Any], T]) -> T:
        errors = _errors()
        try:
            return action(self._client)
        except (errors.AuthenticationError, errors.AuthorizationError) as error:
            raise self._refused(error) from None
        except (errors.ConnectionError, errors.TimeoutError, OSError) as error:
            raise _Lost(_kind(error)) from None
        except (errors.ReadOnlyError, errors.MasterDownError, errors.TryAgainError) as error:  # a failover goes on
            raise _Lost(_kind(error)) from None
        except errors.RedisError as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> FcstreamError:
        return self._error(f"{self._where} refuses: {_kind(error)}; correct the address, or the server's rules")


class _Lost(Exception):
    """The connection, or a server that is about to come back."""


def _kind(error: BaseException) -> str:
    """What is safe to tell: the server's error code, or the system's words, or the class."""
    if why := distrust(error):
        return why
    code = re.match(r"[A-Z]{3,20}\b", str(error))
    cause: Any = error if isinstance(error, OSError) else error.__context__
    words = cause.strerror if isinstance(cause, OSError) else None
    return (code[0] if code else None) or words or type(error).__name__


def _errors() -> Any:
    import redis.exceptions

    return redis.exceptions


def _options(address: Address) -> dict[str, Any]:
    """Of the client."""
    if len(address.hosts) > 1 or not re.fullmatch(r"\d{0,4}", address.path):
        raise ConfigError(f"must be redis://host:port/number, got {address.masked}", address.place)
    host, port = address.host(6379)
    options: dict[str, Any] = {"host": host, "port": port, "db": int(address.path or 0)}
    options |= {"username": address.user, "password": address.password}
    if address.scheme == "rediss":
        files = {name: address.options.get(name) or None for name in ("ca", "cert", "key")}
        tls_context(address)  # the client reads them with every connection, when it is too late to say what is wrong
        options |= {"ssl": True, "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
        options |= {"ssl_ca_certs": files["ca"], "ssl_certfile": files["cert"], "ssl_keyfile": files["key"]}
    return options


def _chunk(key: str, offsets: list[int], bodies: list[bytes]) -> Chunk:
    identity = np.array(offsets, np.int64)
    return Chunk(key, identity, identity >> _SEQ_BITS, bodies)
