"""What a service has done and stands at, for Prometheus: what is public always, exact counts of records if asked."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import __version__
from .config import ServiceSection
from .connectors.urls import need
from .errors import FcstreamError
from .ledgers.base import TOTAL_BLOCK

if TYPE_CHECKING:
    from .engine import Engine
    from .live import Service
    from .zcdp import PrivacyLoss


class Standing(NamedTuple):
    """The budget of a stream's most charged filter (`block`: the unit), or of its total; public."""

    block: str
    guarantee: PrivacyLoss
    spent: PrivacyLoss


@dataclass(slots=True)
class Watched:
    """One stream's service, as those who watch it see it.

    Attributes
    ----------
    stream : str
    service : Service
    section : ServiceSection
        What may be told; a reload exchanges it.
    standings : dict of str to tuple of Standing
        By the name of an engine's stream.
    reloads : dict of str to int
        How often the configuration was read again: ``taken``, ``refused``.
    """

    stream: str
    service: Service
    section: ServiceSection = field(default_factory=ServiceSection)
    standings: dict[str, tuple[Standing, ...]] = field(default_factory=dict)
    reloads: dict[str, int] = field(default_factory=lambda: {"taken": 0, "refused": 0})
    _noted: tuple[object, ...] = ()

    def note(self, engines: Mapping[str, Engine]) -> None:
        """Look how much is spent, if windows were answered since; on the thread that steps the engines, because a
        ledger may be slow to ask."""
        counters = self.service.counters
        state = (counters.released, sum(counters.refused.values()), *map(id, engines.values()))
        if state != self._noted:
            with suppress(FcstreamError):  # the next charge will tell
                self.standings = {name: _standings(engine) for name, engine in engines.items()}
                self._noted = state


def _standings(engine: Engine) -> tuple[Standing, ...]:
    terms = engine.job.terms
    found = [Standing(terms.unit, terms.capacity, engine.spent)]
    if terms.total is not None:
        found.append(Standing(TOTAL_BLOCK, terms.total, engine.spent_total))
    return tuple(found)


def exposition(watched: Sequence[Watched], accept: str = "") -> tuple[bytes, str]:
    """The metrics in the format that an Accept header asks for (Prometheus text, or OpenMetrics), and its media type.

    Raises
    ------
    ConfigError
        The client library is missing; the message names the extra.

    Privacy
    -------
    How many messages and records came, how many were rejected and why, and what the process uses of the machine are
    exact functions of the data: they are told only if ``service.counters`` says so, and then to whoever may see the
    raw data. All else is public: configuration, answers, and what they cost.

    Source
    ------
    Ours; see PRIVACY.md.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(_Streams(watched))
    if any(each.section.counters for each in watched):
        client.ProcessCollector(registry=registry)  # of memory and processor: they follow the load
    encode, kind = client.exposition.choose_encoder(accept)
    return encode(registry), kind


def client_is_missing() -> str | None:
    """What to say where metrics were asked for and cannot be told; None if they can."""
    try:
        _client()
    except FcstreamError as error:
        return str(error)
    return None


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
        import prometheus_client.exposition
    except ImportError:
        raise need("prometheus_client", "service", "service.listen") from None
    return prometheus_client


class _Streams:
    """Made anew for every scrape: what it tells stands in the services' own counters."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Any]:
        core = _client().core
        build = {"version": __version__, "python": platform.python_version()}
        yield core.InfoMetricFamily("fcstream_build", "What runs", value=build)
        yield from self._public(core)
        yield from self._budgets(core)
        exact = [each for each in self._watched if each.section.counters]
        if exact:
            yield from _exact(core, exact)

    def _public(self, core: Any) -> Iterator[Any]:
        ready = core.GaugeMetricFamily("fcstream_ready", "1 if the stream is served now", labels=["stream"])
        released = _counter(core, "windows_released", "Windows answered with a value")
        refused = _counter(core, "windows_refused", "Windows answered with a refusal", "reason")
        restarts = _counter(core, "restarts", "Times that everything was opened again after an error")
        reloads = _counter(core, "reloads", "Times that the configuration was read again (SIGHUP)", "result")
        closed = core.GaugeMetricFamily(
            "fcstream_last_window_close_seconds", "End of the last window answered, Unix time", labels=["stream"]
        )
        for each in self._watched:
            counters, stream = each.service.counters, each.stream
            ready.add_metric([stream], 0 if each.service.trouble else 1)
            released.add_metric([stream], counters.released)
            _by_label(refused, stream, counters.refused)
            restarts.add_metric([stream], counters.restarts)
            _by_label(reloads, stream, each.reloads)
            closed.add_metric([stream], counters.last_close_ms / 1000)
        yield from (ready, released, refused, restarts, reloads, closed)

    def _budgets(self, core: Any) -> Iterator[Any]:
        said = {
            "guarantee": "Cap of a filter, for ever",
            "spent": "Sum so far on the most charged filter; as an epsilon it bounds nothing",
            "remaining": "Room left in the most charged filter",
        }
        for part in ("rho", "delta"):
            families = {
                name: core.GaugeMetricFamily(f"fcstream_budget_{name}_{part}", text, labels=["stream", "block"])
                for name, text in said.items()
            }
            for each in self._watched:
                for stream, standings in each.standings.items():
                    for block, guarantee, spent in standings:
                        values = {"guarantee": guarantee, "spent": spent, "remaining": guarantee - spent}
                        for name, loss in values.items():
                            families[name].add_metric([stream, block], getattr(loss, part))
            yield from families.values()


def _exact(core: Any, watched: Sequence[Watched]) -> Iterator[Any]:
    """What only those may see who may see the records."""
    said = {
        "messages": "Messages read, redelivered ones too",
        "records": "Records read from them",
        "duplicates": "Messages that had been counted before",
    }
    families = {name: _counter(core, name, f"{text}; exact, not private") for name, text in said.items()}
    rejected = _counter(core, "rejected", "Records that were not taken; exact, not private", "reason")
    for each in watched:
        for name, family in families.items():
            family.add_metric([each.stream], getattr(each.service.counters, name))
        _by_label(rejected, each.stream, each.service.counters.rejected)
    yield from (*families.values(), rejected)


def _counter(core: Any, name: str, text: str, label: str | None = None) -> Any:
    return core.CounterMetricFamily(f"fcstream_{name}", text, labels=["stream", *([label] if label else [])])


def _by_label(family: Any, stream: str, counts: Mapping[str, int]) -> None:
    for name, n in sorted(dict(counts).items()):
        family.add_metric([stream, name], n)
