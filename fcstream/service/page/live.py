"""What the live page knows of all streams, as the documents that browsers get."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ... import __version__
from ...engine.engine import Engine
from ...errors import FcstreamError
from ...ledgers.base import root_of
from ...releases.base import Release
from ...releases.reasons import HINTS
from ..metrics import StreamStatus
from .history import FreshWindows, PageHistory, SeriesName
from .outlook import StreamTerms

LOG = logging.getLogger("fcstream.service")
_FRESH_S = 0.25
"""How long documents about all streams are given again unchanged, so that many browsers cost as much as one."""


@dataclass(slots=True)
class _ShownStream:
    """One stream's service with its history."""

    status: StreamStatus
    history: PageHistory
    terms: dict[str, StreamTerms] = field(default_factory=dict)


class LivePage:
    """All streams of a process, for the page.

    Parameters
    ----------
    watched : sequence of StreamStatus
        Those with ``[service] page`` are shown; each decides for itself.

    Privacy
    -------
    Shows the configuration's names, releases, what they cost, and the state of the service, which are public. Exact
    numbers of records are in it only for streams with ``service.counters``, as in `fcstream.service.metrics`.

    Source
    ------
    Specification 13.4; ours; see PRIVACY.md.
    """

    def __init__(self, watched: Sequence[StreamStatus]) -> None:
        epoch = time.time_ns()
        self._streams = {id(status): _ShownStream(status, PageHistory(epoch)) for status in watched}
        for shown in self._streams.values():
            shown.status.service.counters.listeners.append(self._listener(shown))
        self._kept: dict[str, tuple[float, bytes]] = {}

    @property
    def is_on(self) -> bool:
        """Whether any stream is to be shown."""
        return any(shown.status.section.page for shown in self._streams.values())

    # -- on the thread of a stream -----------------------------------------------------------------------------------

    def note(self, status: StreamStatus, engines: Mapping[str, Engine]) -> None:
        """Read the last windows of engines that are new from their ledgers.

        It is called on the thread that steps the engines, because a ledger may be slow to respond.
        """
        shown = self._streams[id(status)]
        if not status.section.page:
            if shown.terms:
                shown.terms = {}
                shown.history.clear()
            return
        new = [
            name for name, engine in engines.items() if name not in shown.terms or not shown.terms[name].are_of(engine)
        ]
        if not new and len(shown.terms) == len(engines):
            return
        shown.history.keep(engines)
        shown.terms = {name: terms for name, terms in shown.terms.items() if name in engines}
        for name in new:
            try:
                shown.history.load(name, engines[name].recent(shown.history.limit))
            except FcstreamError as error:  # the next charge raises it again, if it lasts
                LOG.warning("the page lacks earlier windows of %s: %s", name, error)
            shown.terms[name] = StreamTerms(engines[name])

    def _listener(self, shown: _ShownStream) -> Any:
        def add(releases: list[Release]) -> None:
            if shown.status.section.page:
                shown.history.add(releases)

        return add

    # -- for browsers ------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """Return how each stream is, as JSON."""
        return self._fresh("state", lambda: {"version": __version__, "streams": [*map(_state, self._shown())]})

    def index(self) -> bytes:
        """Return the series that have windows, as JSON."""
        return self._fresh("index", lambda: {"series": [row for shown in self._shown() for row in _series(shown)]})

    def windows(self, name: SeriesName, cursor: str) -> FreshWindows | None:
        """Return what is new of a series since a cursor; None if nothing is."""
        shown = self._of(name[0])
        return None if shown is None else shown.history.read(name, cursor)

    def about(self, stream: str) -> bytes:
        """Return the budget of one stream and what helps against its refusals, as JSON."""
        shown = self._of(stream)
        terms = None if shown is None else shown.terms.get(stream)
        if shown is None or terms is None:
            return b"{}"
        return self._fresh(f"about {stream}", lambda: _about(shown, stream, terms))

    def _shown(self) -> list[_ShownStream]:
        return [shown for shown in self._streams.values() if shown.status.section.page]

    def _of(self, stream: str) -> _ShownStream | None:
        root = root_of(stream)
        return next((shown for shown in self._shown() if shown.status.stream in (stream, root)), None)

    def _fresh(self, name: str, make: Any) -> bytes:
        now = time.monotonic()
        at, body = self._kept.get(name, (-1.0, b""))
        if at < 0 or now > at + _FRESH_S:
            body = msgspec.json.encode(make())
            # Without those of streams that nobody asks for any more: keys that are found come and go.
            self._kept = {one: kept for one, kept in self._kept.items() if now <= kept[0] + _FRESH_S}
            self._kept[name] = now, body
        return body


def _state(shown: _ShownStream) -> dict[str, Any]:
    status, service, counters = shown.status, shown.status.service, shown.status.service.counters
    answers = dict(counters.answers)  # a copy, since the thread of the stream goes on
    released = sum(number for (_, reason), number in answers.items() if reason is None)
    return {
        "name": status.stream,
        "state": service.state,
        "trouble": service.trouble,
        "standby": service.standby,
        "warnings": [text for _, text in sorted(service.warnings.items())],
        "due_ms": counters.due_ms,
        "last_close_ms": counters.last_close_ms,
        "released": released,
        "refused": sum(answers.values()) - released,
        "restarts": counters.restarts,
        "exact": _exact(status) if status.section.counters else None,
    }


def _about(shown: _ShownStream, stream: str, terms: StreamTerms) -> dict[str, Any]:
    gauges = shown.status.standings.get(stream, ())
    reasons = {*HINTS, *(reason for _, reason in [*shown.status.service.counters.answers] if reason is not None)}
    return {
        "stream": stream,
        "budget": terms.budget(gauges, shown.history.costs(stream)),
        "hints": {reason: terms.hint(reason) for reason in sorted(reasons)},
    }


def _exact(status: StreamStatus) -> dict[str, int]:
    """Return what only those may see who may see the records."""
    counters = status.service.counters
    numbers = {
        "messages read, redelivered ones too": counters.messages,
        "records read from them": counters.records,
        "messages that had come before": counters.duplicates,
        "rejections that no dead letter reports": status.service.lost_dead_letters(),
    }
    if counters.spool_bytes is not None:
        numbers["bytes of the spool"] = counters.spool_bytes
    numbers |= {f"records rejected: {reason}": n for reason, n in sorted(dict(counters.rejected).items())}
    return numbers | {f"bodies refused: {reason}": n for reason, n in sorted(dict(counters.bodies_refused).items())}


def _series(shown: _ShownStream) -> list[dict[str, Any]]:
    return [
        {"of": shown.status.stream, "stream": stream, "answer": answer, "kind": kind}
        for (stream, answer), kind in shown.history.names().items()
    ]
