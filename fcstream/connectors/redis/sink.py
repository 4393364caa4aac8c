"""Redis sink: releases as entries of a stream of their own, each under the end of its window as id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import SinkError
from ...releases.base import Release
from ..retry import PendingMessages
from ..sinks import Sink, read_release
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .connection import RedisConnection, answers_of, raise_first, redis_errors

_WAIT_S = 5.0  # for the replicas' confirmation
_MARK = "fcstream-wait"
_STREAM = UrlOption("stream", "Key of the stream that releases are added to.")
_REPLICAS = UrlOption(
    "replicas", "Replicas that must have a release before it counts as written.", otherwise="not asked"
)


class RedisSink(Sink):
    """Adds releases to a stream of their own, each exactly once.

    The id of an entry is ``CLOSE-0``, the end of its window in milliseconds (of several answers ``CLOSE-PLACE``):
    ``XRANGE`` finds windows by time, and a release that is written again is recognized. A release that was trimmed away
    or deleted counts as written if the stream holds, or held, later ones. The fields are ``data`` (the JSON),
    ``stream`` and ``window`` (its opening). Releases that are written together are added together or not at all. A
    login needs ``EXISTS``, ``XADD``, ``XRANGE``, ``XREVRANGE``, ``XINFO``, ``MULTI`` and ``EXEC``; with `replicas` also
    ``WAIT`` and ``XGROUP``.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; one key for each fcstream stream.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
    """

    url: ClassVar = "redis://[user:password@]host[:port]/[db]?stream=KEY"
    url_options: ClassVar = (_STREAM, _REPLICAS, PATIENCE, *TLS)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._key = address.take(_STREAM)
        self._replicas = int(address.take_number(_REPLICAS)) if _REPLICAS.name in address.options else 0
        self._unsent: PendingMessages[bytes | None] = PendingMessages()
        self._link = RedisConnection(address, patience_s, SinkError)
        self._link.open(lambda client: client.exists(self._key))

    def write(self, releases: Sequence[Release]) -> None:
        self._link.run(lambda client: self._add(client, releases))

    def send(self, bodies: Sequence[bytes]) -> None:
        waiting = self._unsent.of([*bodies, None])  # None stands for the replicas' confirmation

        def add(client: Any) -> None:
            waiting_bodies = [body for body in waiting if body is not None]
            if waiting_bodies:
                added, having = self._transact(
                    client, [("XADD", self._key, "*", "data", body) for body in waiting_bodies]
                )
                raise_first(added)
                while len(waiting) > 1:
                    waiting.popleft()
                self._check_replicas(having)
            else:
                self._confirm(client)

        if bodies:
            self._link.run(add)
            waiting.clear()

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._link.run(lambda client: self._held(client, releases))
        return [release for release, found in zip(releases, held, strict=True) if found != release.to_bytes()]

    def last(self) -> Release | None:
        entries = self._link.run(lambda client: client.xrevrange(self._key, count=1))
        if not entries:
            return None
        wrong = f"{self._key} holds something else than releases: choose another stream"
        return read_release(entries[0][1].get(b"data", b""), wrong)

    def close(self) -> None:
        self._link.close()

    def _add(self, client: Any, releases: Sequence[Release]) -> None:
        if not releases:
            return
        commands = [
            (
                *("XADD", self._key, _window_id(release), "data", release.to_bytes()),
                *("stream", release.stream, "window", release.window_open_ms),
            )
            for release in releases
        ]
        added, having = self._transact(client, commands)
        not_added = []
        for release, answer in zip(releases, added, strict=True):
            if isinstance(answer, Exception):
                if "equal or smaller" not in str(answer):
                    raise answer
                not_added.append(release)
        self._check(client, not_added)
        self._check_replicas(having)
        if not_added:
            self._confirm(client)

    def _transact(self, client: Any, commands: Sequence[tuple[Any, ...]]) -> tuple[list[Any], int]:
        """Run all commands or none, and return their responses and how many replicas have them.

        A server that refuses one command could accept the next one, so they are one transaction. WAIT covers the writes
        of its own connection only, and does not wait within a transaction.
        """
        pipe = client.pipeline(transaction=False)
        for command in (("MULTI",), *commands, ("EXEC",)):
            pipe.execute_command(*command)
        if self._replicas:
            pipe.execute_command("WAIT", self._replicas, int(_WAIT_S * 1000))
        answers = answers_of(pipe)
        return answers[len(commands) + 1], answers[-1] if self._replicas else 0

    def _confirm(self, client: Any) -> None:
        """Have the replicas confirm what was added before, perhaps on another connection.

        Only a write makes WAIT wait, so this writes something that leaves no trace.
        """
        if self._replicas:
            commands = [
                ("XGROUP", "CREATE", self._key, _MARK, "$", "MKSTREAM"),
                ("XGROUP", "DESTROY", self._key, _MARK),
            ]
            done, having = self._transact(client, commands)
            raise_first(done)
            self._check_replicas(having)

    def _check_replicas(self, replicas: int) -> None:
        if replicas < self._replicas:
            raise SinkError(
                f"{self._key} must reach {self._replicas} replicas, they did not confirm in {_WAIT_S:g} s",
                remedy="repair them, or lower `replicas`",
            )

    def _check(self, client: Any, releases: list[Release]) -> None:
        """Check that entries which could not be added are in the stream, or were."""
        held = self._held(client, releases)
        info: Mapping[str, Any] = {} if all(held) else self._info(client)
        was_added = False
        for release, found in zip(reversed(releases), reversed(held), strict=True):
            # An entry that was added shows that those before it were.
            was_added = (was_added or _was_removed(info, release)) if found is None else found == release.to_bytes()
            if not was_added:
                raise SinkError(
                    f"{self._key} holds other entries at or after id {_window_id(release)}",
                    remedy="give every stream of releases a key of its own",
                )

    def _info(self, client: Any) -> Mapping[str, Any]:
        try:
            return dict(client.xinfo_stream(self._key))
        except redis_errors().ResponseError as error:
            if "no such key" not in str(error):
                raise
            return {}

    def _held(self, client: Any, releases: Sequence[Release]) -> list[bytes | None]:
        """Read the data under each release's id."""
        pipe = client.pipeline(transaction=False)
        for release in releases:
            pipe.xrange(self._key, _window_id(release), _window_id(release))
        return [entries[0][1].get(b"data", b"") if entries else None for entries in answers_of(pipe)]


def _window_id(release: Release) -> str:
    return f"{release.window_close_ms}-{release.place or 0}"


def _was_removed(info: Mapping[str, Any], release: Release) -> bool:
    """Return whether a release that is not there was there before, as ``XINFO STREAM`` shows it."""
    first, last = info.get("first-entry"), info.get("last-entry")
    if any(entry and entry[1].get(b"stream") != release.stream.encode() for entry in (first, last)):
        return False
    ours = (release.window_close_ms, release.place or 0)
    oldest, latest, deleted = (
        tuple(int(part) for part in entry_id.split(b"-"))
        for entry_id in (
            first[0] if first else b"0-0",
            info.get("last-generated-id", b"0-0"),
            info.get("max-deleted-entry-id", b"0-0"),  # absent before Redis 7
        )
    )
    return oldest > ours or latest == ours or deleted >= ours
