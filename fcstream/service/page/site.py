"""Paths of the live page: the page itself, and the events that keep it fresh; everything is read only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from .history import FreshWindows, SeriesName
from .live import LivePage

_ASSETS = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/forms.js": ("forms.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
EVENTS_PATH = "/events"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every answer of the page says: nothing is loaded from elsewhere, framed, sent elsewhere or kept."""
_LOOK_EVERY_S = 0.25
_SAY_EVERY_S = 10.0
"""Seconds after which something is sent in any case, so that both sides notice a lost connection."""
_PART_BYTES = 2**15


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    media_type: str


def asset(path: str) -> Asset | None:
    """Return the file of a path; None if there is none."""
    found = _ASSETS.get(path)
    return None if found is None else Asset(_read(found[0]), found[1])


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath("assets", name).read_bytes()


def wanted(query: Mapping[str, str]) -> tuple[SeriesName, str]:
    """Return the series that a request asks for, and what its sender has seen of it."""
    return (query.get("stream", ""), query.get("answer") or None), query.get("after", "")


async def events(page: LivePage, name: SeriesName, cursor: str) -> AsyncIterator[bytes]:
    """Yield server-sent events about all streams, and about one series from a cursor on, while the page is on.

    ``state``: how each stream is, with the time. ``index``: the series there are. ``about``: budget of the series'
    stream, and what helps against refusals. ``windows``: new windows of the series, in parts; what comes with ``whole``
    replaces what was known.
    """
    last: dict[str, bytes] = {}
    said = 0.0
    yield b"retry: 2000\n\n"
    while page.is_on:
        now = time.monotonic()
        bodies = {"index": page.index(), "state": page.state(), "about": page.about(name[0])}
        is_due = now > said + _SAY_EVERY_S
        for kind, body in bodies.items():
            if last.get(kind) != body or (kind == "state" and is_due):
                last[kind], said = body, now
                yield _event(kind, body if kind != "state" else _timed(body))
        fresh = page.windows(name, cursor)
        if fresh is not None:
            cursor = fresh.cursor
            for part in _parts(fresh):
                yield _event("windows", part)
        await asyncio.sleep(_LOOK_EVERY_S)


def _event(kind: str, body: bytes) -> bytes:
    """Write an event; JSON has no line feed outside of its texts, where it is escaped."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def _timed(state: bytes) -> bytes:
    """Add the present time, in Unix milliseconds, which would make every state a new one."""
    return b'{"now_ms":%d,%s' % (time.time_ns() // 1_000_000, state[1:])


def _parts(fresh: FreshWindows) -> Iterator[bytes]:
    """Write windows as documents of a limited size, the last one with the newest window's details and the cursor.

    Each is made when the one before was read, so that a reader does not hold all of them.
    """
    groups: list[list[bytes]] = [[]]
    size = 0
    for point in fresh.points:
        if size > _PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(point)
        size += len(point)
    for i, points in enumerate(groups):
        is_last = i == len(groups) - 1
        head = {"kind": fresh.kind, "names": fresh.names, "whole": fresh.is_whole and i == 0, "last": is_last}
        head |= {"cursor": fresh.cursor} if is_last else {}
        newest = fresh.newest if is_last and fresh.newest is not None else b"null"
        yield b'%s,"points":[%s],"newest":%s}' % (msgspec.json.encode(head)[:-1], b",".join(points), newest)
