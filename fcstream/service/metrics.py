"""Metrics of services for Prometheus: public ones always, exact counts of records if configured."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import __version__
from ..accounting.losses import PrivacyLoss
from ..config import ServiceSection
from ..engine.engine import Engine
from ..errors import ConfigError, FcstreamError, needs_package
from ..ledgers.base import TOTAL_BLOCK
from ..releases.long_form import long_form
from .alarms import USUAL
from .supervisor import REASONS, STATES, Supervisor

_OUTSIDE = ("source", "sink", "ledger")


class BudgetGauge(NamedTuple):
    """The budget of a stream's most charged privacy filter (`block`: the unit), or of its total; public.

    `guarantee` is what one unit can lose under all keys together, `cap` the part of it that this filter may spend.
    """

    block: str
    guarantee: PrivacyLoss
    cap: PrivacyLoss
    spent: PrivacyLoss


@dataclass(slots=True)
class StreamStatus:
    """One stream's service, as those who watch it see it.

    Attributes
    ----------
    stream : str
    service : Supervisor
    section : ServiceSection
        Decides what may be exported; a reload replaces it.
    standings : dict of str to tuple of BudgetGauge
        Gauges by the name of an engine's stream.
    reloads : dict of str to int
        How often the configuration was read again: ``taken``, ``refused``; and ``undone``, where what had been taken
        could not be opened.
    """

    stream: str
    service: Supervisor
    section: ServiceSection = field(default_factory=ServiceSection)
    standings: dict[str, tuple[BudgetGauge, ...]] = field(default_factory=dict)
    reloads: dict[str, int] = field(default_factory=lambda: {"taken": 0, "refused": 0, "undone": 0})
    _noted: tuple[object, ...] = ()

    def note(self, engines: Mapping[str, Engine]) -> None:
        """Read how much is spent, if windows were released since.

        It is called on the thread that steps the engines, because a ledger may be slow to respond.
        """
        counters = self.service.counters
        state = (sum(counters.answers.values()), *map(id, engines.values()))
        if state != self._noted:
            with suppress(FcstreamError):  # the next charge raises it again
                self.standings = {name: _standings(engine) for name, engine in engines.items()}
                self._noted = state


def _standings(engine: Engine) -> tuple[BudgetGauge, ...]:
    terms = engine.job.terms
    found = [BudgetGauge(terms.unit, terms.guarantee, terms.capacity, engine.spent)]
    if terms.total is not None:
        found.append(BudgetGauge(TOTAL_BLOCK, terms.promised(TOTAL_BLOCK), terms.total, engine.spent_total))
    return tuple(found)


def exposition(watched: Sequence[StreamStatus], accept: str = "") -> tuple[bytes, str]:
    """Return the metrics in the format that an Accept header asks for (Prometheus text, or OpenMetrics), and its media
    type.

    Raises
    ------
    ConfigError
        The client library is missing; the message names the extra.

    Privacy
    -------
    How many messages and records came, how many were rejected and why, and what the process uses of the machine are
    exact functions of the data: they are exported only if ``service.counters`` says so, and then to whoever may see the
    raw data. All other metrics are public: configuration, releases, and what they cost.

    Source
    ------
    Specification 13.4; ours; see PRIVACY.md.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(_Streams(watched))
    if any(each.section.counters for each in watched):
        client.ProcessCollector(registry=registry)  # memory and processor time, which depend on the load
    encode, kind = client.exposition.choose_encoder(accept)
    return encode(registry), kind


def client_is_missing() -> ConfigError | None:
    """Return the error for metrics that cannot be exported; None if they can."""
    try:
        _client()
    except ConfigError as error:
        return error
    return None


def _client() -> Any:
    with needs_package("prometheus_client", "service", "service.listen"):
        import prometheus_client
        import prometheus_client.core
        import prometheus_client.exposition
    return prometheus_client


class _Streams:
    """Made anew for every scrape: it reads the services' own counters."""

    def __init__(self, watched: Sequence[StreamStatus]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Any]:
        core = _client().core
        build = {"version": __version__, "python": platform.python_version()}
        yield core.InfoMetricFamily("fcstream_build", "What runs", value=build)
        yield from self._public(core)
        yield from self._budgets(core)
        yield from self._numbers(core)
        exact = [each for each in self._watched if each.section.counters]
        if exact:
            yield from _exact(core, exact)

    def _public(self, core: Any) -> Iterator[Any]:
        ready = _gauge(core, "ready", "1 if the stream is served now, by this process or another one")
        state = _gauge(core, "state", "1 for the state it is in", "state")
        errors = _counter(core, "errors", "Failed attempts to use an external system", "part")
        lag = _gauge(core, "lag_seconds", "For how long the next window has been due; 0 if it is not")
        released = _counter(core, "windows_released", "Windows released with a value, each answer by itself", "answer")
        refused = _counter(core, "windows_refused", "Windows released as refused, likewise", "reason", "answer")
        restarts = _counter(core, "restarts", "Times that a new session began after an error")
        late = _counter(core, "late_alarms", f"Times that about {USUAL} records had come too late; noisy")
        reloads = _counter(core, "reloads", "Times that the configuration was read again (SIGHUP)", "result")
        warning = _gauge(core, "warning", "1 for each warning of /ready, by its kind", "kind")
        used = _gauge(core, "budget_exhausted", "1 if the newest windows were refused because the budget is used up")
        gaps = _counter(core, "gaps", "Times that the broker had dropped what nobody had read")
        incomplete = _counter(core, "incomplete_windows", "Releases of windows that may be incomplete for that reason")
        gap = _gauge(core, "clock_gap_seconds", "This machine's clock minus the broker's, if that is known")
        unready = _gauge(core, "unready", "1 for each reason why the stream is not ready though it runs", "reason")
        jump = _gauge(
            core, "clock_jump_seconds", "By how much this machine's clock has jumped ahead; 0 if it is followed"
        )
        closed = _gauge(core, "last_window_close_seconds", "End of the last window released, Unix time")
        for each in self._watched:
            counters, stream = each.service.counters, each.stream
            ready.add_metric([stream], 0 if each.service.trouble else 1)
            _by_label(state, stream, {name: int(name == each.service.state) for name in STATES})
            _by_label(errors, stream, dict.fromkeys(_OUTSIDE, 0) | each.service.external_calls.errors)
            if (lag_s := each.service.lag_s) is not None:
                lag.add_metric([stream], lag_s)
            _by_label(unready, stream, dict.fromkeys(REASONS, 0) | dict.fromkeys(each.service.reasons, 1))
            if each.service.clock_jump_ms is not None:
                jump.add_metric([stream], each.service.clock_jump_ms / 1000)
            for name in sorted({name for name, _ in counters.answers}, key=str) or [None]:
                named = [] if name is None else [name]
                released.add_metric([stream, *named], counters.answers.get((name, None), 0))
                for (other, reason), number in sorted(counters.answers.items(), key=str):
                    if other == name and reason is not None:
                        refused.add_metric([stream, reason, *named], number)
            restarts.add_metric([stream], counters.restarts)
            late.add_metric([stream], counters.late_alarms)
            _by_label(reloads, stream, each.reloads)
            if counters.last_close_ms is not None:
                closed.add_metric([stream], counters.last_close_ms / 1000)
            gaps.add_metric([stream], each.service.gaps.found)
            incomplete.add_metric([stream], each.service.gaps.answered)
            if each.service.clock_gap_ms is not None:
                gap.add_metric([stream], each.service.clock_gap_ms / 1000)
            _by_label(warning, stream, dict.fromkeys(each.service.warnings, 1))
            used.add_metric([stream], int("budget" in each.service.warnings))
        yield from (ready, state, lag, errors, released, refused, restarts, late, reloads, closed, warning, used)
        yield from (gap, gaps, incomplete, unready, jump)

    def _numbers(self, core: Any) -> Iterator[Any]:
        labels = ("key", "answer", "kind", "name")
        value = _gauge(core, "value", "Released number of the newest window; absent if that was refused", *labels)
        sigma = _gauge(core, "sigma", "Standard deviation of the noise in it", *labels)
        for each in self._watched:
            if each.section.values:
                # A copy, since the thread of the stream goes on.
                for row in long_form(list(each.service.counters.newest.values())):
                    about = [row.stream, row.key or "", row.answer, row.kind, row.name or ""]
                    if row.value is not None:
                        value.add_metric(about, row.value)
                    if row.sigma is not None:
                        sigma.add_metric(about, row.sigma)
        yield from (value, sigma)

    def _budgets(self, core: Any) -> Iterator[Any]:
        said = {
            "guarantee": "What one unit can lose for ever, under all keys together",
            "cap": "Part of the guarantee that the filter may spend: less where keys divide it",
            "spent": "Sum so far on the most charged filter, in all streams of its group; no bound as an epsilon",
            "remaining": "Room left in the most charged filter",
        }
        for part in ("rho", "delta"):
            families = {name: _gauge(core, f"budget_{name}_{part}", text, "block") for name, text in said.items()}
            for each in self._watched:
                for stream, standings in each.standings.items():
                    for block, guarantee, cap, spent in standings:
                        values = {"guarantee": guarantee, "cap": cap, "spent": spent, "remaining": cap - spent}
                        for name, loss in values.items():
                            families[name].add_metric([stream, block], getattr(loss, part))
            yield from families.values()


def _exact(core: Any, watched: Sequence[StreamStatus]) -> Iterator[Any]:
    """What only those may see who may see the records."""
    said = {
        "messages": "Messages read, redelivered ones too",
        "records": "Records read from them",
        "duplicates": "Messages that had come before",
    }
    families = {name: _counter(core, name, f"{text}; exact, not private") for name, text in said.items()}
    refused = _counter(core, "bodies_refused", "Bodies that a receiver refused; exact, not private", "reason")
    rejected = _counter(core, "rejected", "Records that were not taken; exact, not private", "reason")
    spool = _gauge(core, "spool_bytes", "Size of the spool; exact, not private")
    held = _gauge(core, "quarantined", "Messages at which the process died twice; exact, not private")
    lost = _counter(core, "dead_letters_lost", "Rejections that no dead letter reports; exact, not private")
    for each in watched:
        lost.add_metric([each.stream], each.service.lost_dead_letters())
        held.add_metric([each.stream], each.service.quarantined)
        if each.service.counters.spool_bytes is not None:
            spool.add_metric([each.stream], each.service.counters.spool_bytes)
        for name, family in families.items():
            family.add_metric([each.stream], getattr(each.service.counters, name))
        _by_label(rejected, each.stream, each.service.counters.rejected)
        _by_label(refused, each.stream, each.service.counters.bodies_refused)
    yield from (*families.values(), rejected, refused, lost, held, spool)


def _counter(core: Any, name: str, text: str, *labels: str) -> Any:
    return core.CounterMetricFamily(f"fcstream_{name}", text, labels=["stream", *labels])


def _gauge(core: Any, name: str, text: str, *labels: str) -> Any:
    return core.GaugeMetricFamily(f"fcstream_{name}", text, labels=["stream", *labels])


def _by_label(family: Any, stream: str, counts: Mapping[str, int]) -> None:
    for name, n in sorted(dict(counts).items()):
        family.add_metric([stream, name], n)
