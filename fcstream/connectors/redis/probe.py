"""What `fcstream doctor` asks a Redis server."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import Any

from ...errors import SinkError, SourceError
from ..probes import Checkup, ClockOffset, Probe
from ..urls import Address
from .connection import RedisConnection, error_text
from .sink import RedisSink
from .source import RedisSource

_AHEAD_S = 1.0


class RedisProbe(Probe):
    """Checks streams, where positions are kept, what was trimmed, and the clock."""

    def source(self, checkup: Checkup, address: Address, name: str) -> None:
        with closing(RedisSource(address, name)) as source:
            link = source._link
            checkup.clocks.append(ClockOffset.read("Redis", lambda: link.run(_time)))
            told = source.clock()
            ahead_s = 0 if told is None else (told.newest_ms - told.now_ms) / 1000
            if ahead_s > _AHEAD_S:
                checkup.problem(
                    "clock",
                    f"the broker's timestamps run {ahead_s:.0f} s ahead of its clock: a client chose an id, "
                    "all later ids follow it, and so the times of arrival are not known",
                    "let the server choose ids (XADD KEY *), and make the stream anew",
                )
            for key in source.ends():
                if link.run(partial(_kind, key=key)) == "none":
                    checkup.warn(
                        "source", f"stream {key} does not exist yet", "check its name, or start what writes to it"
                    )
                    continue
                checkup.ok("source", f"stream {key} can be read up to id {link.run(partial(_last_id, key=key))}")
                _trimming(checkup, link.run(partial(_info, key=key)), key)
            # Deleting a field that is not there changes nothing, and is refused to logins that may not write.
            link.run(lambda client: client.hdel(source._positions_key, "fcstream doctor"))
            checkup.ok("source", f"the consumer is {name!r}; its positions can be written")
            _durability(checkup, link, "source")

    def sink(self, checkup: Checkup, address: Address) -> None:
        where = address.masked

        def add(client: Any) -> str:
            # An invalid id: a server that would accept another one refuses it for that reason alone.
            try:
                client.execute_command("XADD", sink._key, "0-0", "data", "")
            except Exception as error:
                return "" if "greater than 0-0" in str(error) else error_text(error)
            return "it accepted an id that is not valid"

        with closing(RedisSink(address)) as sink:
            checkup.clocks.append(ClockOffset.read("the sink's Redis", lambda: sink._link.run(_time)))
            refusal = sink._link.run(add)
            kind = sink._link.run(partial(_kind, key=sink._key))
            if refusal and kind in ("none", "stream"):
                checkup.problem(
                    "sink",
                    f"{where} does not take entries: {refusal}",
                    "correct the login's rights, or the server's memory and replication",
                )
            elif kind not in ("none", "stream"):
                checkup.problem("sink", f"{where}: its key holds a {kind}", "name another key as `stream`")
            else:
                if address.key == "sink.url":
                    sink.last()
                checkup.ok("sink", f"{where} takes entries; none was added")


def _last_id(client: Any, key: str) -> str:
    last = client.xrevrange(key, count=1)
    return str(last[0][0].decode()) if last else "0-0 (it is empty)"


def _kind(client: Any, key: str) -> str:
    return str(client.type(key).decode())


def _info(client: Any, key: str) -> dict[str, Any]:
    return dict(client.xinfo_stream(key))


def _time(client: Any) -> float:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) / 1000


def _trimming(checkup: Checkup, info: dict[str, Any], key: str) -> None:
    """Look for traces of trimming, which is decided by those who add entries."""
    first, added = info.get("first-entry"), info.get("entries-added")
    if added is None or not first or added <= info["length"]:
        return
    kept_ms = time.time_ns() // 1_000_000 - int(first[0].partition(b"-")[0])
    if kept_ms < checkup.need_ms:
        checkup.warn(
            "source",
            f"entries of stream {key} were removed, and the oldest left is {kept_ms / 1000:.0f} s old, while a window "
            f"and its lateness take {checkup.need_ms / 1000:.0f} s",
            "trim it later (MAXLEN, MINID): a restart could not read the open window again",
        )


def _durability(checkup: Checkup, link: RedisConnection, check: str) -> None:
    try:
        info = link.run(lambda client: client.info("persistence"))
    except (SourceError, SinkError):
        return  # this login may not read the configuration
    if not info.get("aof_enabled"):
        checkup.warn(
            check,
            "the server does not write entries to disk at once (appendonly no)",
            "switch it on, or a failure loses the newest entries",
        )
