"""A live stream as a service: signals, health, metrics, logs, and one line of status on a terminal."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..config import Config, ServiceSection
from ..config.durations import duration_ms
from ..connectors import is_queue, open_dead_letter, open_live, open_sink
from ..connectors.base import AckSource, GroupedSource
from ..connectors.partitioners import partition_of
from ..connectors.retry import close_quietly
from ..engine.keyed import KeyedEngine, open_engine
from ..errors import ConfigError, FcstreamError, UnusablePlan
from ..formats.payloads import decoder_for
from ..ledgers import is_shared
from ..planning.plan import quick_warnings
from ..planning.warmup import warm_up
from ..runtime.compile_cache import watching_compilation
from .batch import ProgressLine
from .logs import Logs, logging_as, stream_context
from .metrics import StreamStatus
from .reload import ActiveConfig, Reloader
from .session import SessionContext
from .status import StatusServer, stuck
from .supervisor import Supervisor, now_ms
from .systemd import SystemdNotifier

if TYPE_CHECKING:
    from ..config import DeadLetterSection, SourceSection
    from ..connectors.base import AckSource, LiveSource
    from ..connectors.dead_letters import QueuedDeadLetters
    from ..connectors.files import DeadLetters
    from ..connectors.sinks import Sink
    from ..engine.engine import Engine
    from ..formats.batch import Rejection
    from ..ledgers.postgres.leader import PostgresLease

LOG = logging.getLogger("fcstream.service")
_LAST_WAIT_S = {"kernels": 0.0, "source": 5.0, "sink": 5.0, "ledger": 5.0}
"""Seconds that a process which is to end waits for an answer."""


class StreamSpec(NamedTuple):
    """A configuration to serve, and, if SIGHUP is to read it anew, how."""

    config: Config
    reread: Callable[[], Config] | None = None


def plan_warnings(streams: Sequence[StreamSpec]) -> list[list[str]]:
    """The warnings of `plan` for every stream.

    Raises
    ------
    UnusablePlan
        A stream's windows would all but never release (`size_hint`).
    """
    found = []
    for each in streams:
        try:
            found.append(quick_warnings(each.config))
        except UnusablePlan as error:
            if len(streams) == 1:
                raise
            raise UnusablePlan(f"of stream {each.config.stream.name!r}: {error.message}", error.key) from None
    return found


def serve(
    streams: Sequence[StreamSpec], make: Callable[[Config, ActiveConfig], Supervisor] | None = None
) -> list[Supervisor]:
    """Run live configurations until SIGTERM or SIGINT; returns what they did. `make` makes their services (`build`).

    Several run beside each other, each on a thread of its own, whatever becomes of the others. The first one that has a
    ``[service]`` section says for all where status is served and how logs look.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch
        What trying again would not mend; of several streams when all have ended.
    UnusablePlan
        See `plan_warnings`; nothing is opened.
    """
    names = [each.config.stream.name for each in streams]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"must be another one for each configuration, {name!r} comes twice", "stream.name")
    warnings = plan_warnings(streams)
    currents = [ActiveConfig(each.config) for each in streams]
    services = [(make or build)(each.config, current) for each, current in zip(streams, currents, strict=True)]
    watched = [
        StreamStatus(each.config.stream.name, service, each.config.service or ServiceSection())
        for each, service in zip(streams, services, strict=True)
    ]
    speaker = next((i for i, each in enumerate(streams) if each.config.service is not None), 0)
    section, progress, notifier = watched[speaker].section, ProgressLine(), SystemdNotifier()
    with ExitStack() as stack:
        logs = stack.enter_context(logging_as(section.log, names[0] if len(names) == 1 else None))
        stack.enter_context(_last_words(logs))
        status = StatusServer(watched)
        stack.callback(status.close)
        status.listen(section.listen)

        def apply(fresh: ServiceSection) -> None:
            logs.set_format(fresh.log)
            try:
                status.listen(fresh.listen)
            except ConfigError:
                logs.set_format(watched[speaker].section.log)
                raise

        reloaders = [
            Reloader(each.reread, currents[i], watched[i], apply if i == speaker else lambda _: None)
            for i, each in enumerate(streams)
            if each.reread is not None
        ]

        def reload() -> None:
            notifier.reloading()
            for reloader in reloaders:
                reloader()
            notifier.ready()

        def run(i: int) -> None:
            def on_step(_: Supervisor) -> None:
                currents[i].confirm()
                watched[i].note(currents[i].engines)
                if logs.kind == "text" and sys.stderr.isatty():  # elsewhere, /metrics tell it
                    progress.show("; ".join(map(_line, watched)))

            with stream_context(names[i]):
                for text in warnings[i]:
                    LOG.warning("%s", text)
                services[i].run(on_step)
                progress.clear()
                LOG.info("stopped; %s", _windows(watched[i]))

        stack.enter_context(signals(services, reload if reloaders else None, notifier.stopping))
        is_up = lambda: not any(service.is_starting for service in services)  # noqa: E731
        stack.enter_context(notifier.watching(is_up, lambda: not stuck(watched)))
        stack.callback(progress.clear)
        stack.enter_context(watching_compilation(progress.compiling))
        kinds = [served.config.release.kind for served in streams]
        with ExitStack() as waits:
            for service in services:
                waits.enter_context(service.external_calls.calling("kernels"))
            warm_up(*kinds)  # not between a charge and its seal, where a process that dies twice gives a window up
        if len(streams) == 1:
            run(0)
        else:
            _run_all([partial(run, i) for i in range(len(streams))], services)
    return services


def _run_all(runs: Sequence[Callable[[], None]], services: Sequence[Supervisor]) -> None:
    """Run all to their ends; raise the first error then."""
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None], service: Supervisor) -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)
            service.fail(error)

    threads = [
        threading.Thread(target=guarded, args=pair, name="fcstream-stream") for pair in zip(runs, services, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # signals are heard between two waits
    except BaseException:
        for service in services:
            service.stop()
        raise
    if errors:
        raise errors[0]


def build(config: Config, current: ActiveConfig | None = None) -> Supervisor:
    """The service of a configuration, or of what `current` holds when a session begins; of all that it names, only the
    dead letters are opened yet."""
    if config.source is None or config.sink is None or config.ledger is None:
        missing = next(name for name in ("source", "sink", "ledger") if getattr(config, name) is None)
        raise ConfigError("is required for a live stream", f"{missing}.url")
    _downtime_ms(config.source)
    now = current or ActiveConfig(config)
    dead_letters = DeadLetterWriter()
    dead_letters.follow(config)
    job, partitioner = config.job, config.source.partitioner
    name, leases = config.stream.name, SessionLeases(config.ledger.url, config.stream.name)
    if partitioner is not None and not leases.is_shared:
        raise ConfigError(
            "must be left out with this ledger: several processes share one in PostgreSQL only", "source.partitioner"
        )

    def engine(config: Config, keys: Collection[str] | None) -> Engine | KeyedEngine:
        dead_letters.follow(config)
        on_rejection = dead_letters.write if config.dead_letter else None
        return open_engine(leases.bind(config), keys=keys, on_rejection=on_rejection)

    def opened(config: Config) -> LiveSource:
        source = config.source
        assert source is not None
        found = open_live(source.url, source.name or f"fcstream-{name}")
        if partitioner is not None and not isinstance(found, GroupedSource):
            close_quietly(found.close)
            raise ConfigError(
                "must be left out for this source: its consumers do not divide partitions among them",
                "source.partitioner",
            )
        return _spooled(found, source) if isinstance(found, AckSource) else found

    def sink(config: Config) -> Sink:
        assert config.sink is not None
        return open_sink(config.sink.url)

    where = None if partitioner is None else partial(partition_of, partitioner)
    service = Supervisor(
        lambda keys: now.engine(lambda config: engine(config, keys)),
        lambda: now.open(opened, "source"),
        lambda: now.open(sink, "sink"),
        SessionContext(decoder_for(config.source.format, job.schema), now_ms, where),
        job.keys,
        leases.open if leases.is_shared and partitioner is None else None,
    )
    service.lost_dead_letters = lambda: dead_letters.lost
    return service


class SessionLeases:
    """The leases of one service, one for each session: only a ledger that several processes can share has any.

    Parameters
    ----------
    url : str
        Of the ledger.
    stream : str
    """

    def __init__(self, url: str, stream: str) -> None:
        self.is_shared = is_shared(url)
        self._url, self._stream = url, stream
        self._lead: PostgresLease | None = None

    def open(self) -> PostgresLease:
        """A lease to be taken, the service's own from now on."""
        from ..ledgers.postgres.leader import PostgresLease

        self._lead = PostgresLease(self._url, self._stream)
        return self._lead

    def bind(self, config: Config) -> Config:
        """The configuration with a ledger that writes nothing once another process has taken the lease."""
        if self._lead is None or config.ledger is None:
            return config
        return replace(config, ledger=replace(config.ledger, url=self._lead.bind(config.ledger.url)))


class DeadLetterWriter:
    """Where rejections go; opened once, and again when it moves."""

    def __init__(self) -> None:
        self._section: DeadLetterSection | None = None
        self._file: DeadLetters | QueuedDeadLetters | None = None
        self._lost = 0

    @property
    def lost(self) -> int:
        """How many could not be written anywhere; exact, not private."""
        return self._lost + (0 if self._file is None else self._file.lost)

    def follow(self, config: Config) -> None:
        section = config.dead_letter
        # A file that the URL names may hold another password now.
        if section != self._section or (section is not None and "${file:" in section.url):
            fresh = None if section is None else open_dead_letter(section.url, section.max_bytes)
            if self._file is not None:
                self._file.close()
                self._lost += self._file.lost
            self._section, self._file = section, fresh

    def write(self, rejections: Sequence[Rejection]) -> None:
        if self._file is not None:
            self._file.write(rejections)


def _downtime_ms(source: SourceSection) -> int:
    downtime_ms = duration_ms(source.downtime, "source.downtime")
    if downtime_ms and not is_queue(source.url):
        raise ConfigError("must be left out for this source: its broker stamps messages", "source.downtime")
    return downtime_ms


def _spooled(queue: AckSource, source: SourceSection) -> LiveSource:
    if source.spool is None:
        queue.close()
        raise ConfigError(
            "is required for this source: its broker forgets what is acknowledged, so records wait in a local folder "
            "until their windows are sealed",
            "source.spool",
        )
    from ..connectors.spool import Spool
    from ..connectors.spooled import SpooledSource

    try:
        return SpooledSource(queue, Spool(Path(source.spool), source.spool_bytes), _downtime_ms(source))
    except BaseException:
        queue.close()  # it has messages, which others could have
        raise


@contextmanager
def signals(
    services: Sequence[Supervisor],
    reload: Callable[[], object] | None = None,
    on_stop: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """SIGTERM and SIGINT finish the step under way, a second SIGINT interrupts it; SIGHUP calls `reload`.

    A step that waits for something outside is given some seconds more (`_end_in_time`).

    The handlers only note the signal: what it asks for is done on a thread, because a lock that the main thread holds
    when it is interrupted would never be let go of.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: SimpleQueue[int] = SimpleQueue()
    over = threading.Event()

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and all(service.stopping.is_set() for service in services):
            raise KeyboardInterrupt
        came.put(number)

    def act() -> None:
        while number := came.get():
            if number != signal.SIGHUP:
                on_stop()
                for service in services:
                    service.stop()
                threading.Thread(target=_end_in_time, args=(services, over), daemon=True).start()
            elif reload is not None:
                try:
                    reload()
                except Exception as error:  # without this thread, nothing would stop the service
                    LOG.error("the configuration could not be read again (%s)", type(error).__name__)

    numbers = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if reload is not None else [])]
    worker = threading.Thread(target=act, name="fcstream-signals", daemon=True)
    worker.start()
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(0)
        worker.join()


def _end_in_time(services: Sequence[Supervisor], over: threading.Event) -> None:
    """End the process once all that is left of it waits for what does not answer: whatever counts is in the broker, the
    ledger or the spool. Windows that are being answered are not interrupted."""
    stopped = time.monotonic()
    while not over.wait(0.1):
        if all(service.has_ended for service in services):
            continue  # the main thread leaves by itself, with the exit code of whatever ended them
        waits = [(service.has_ended, service.external_calls.longest(stopped)) for service in services]
        if not all(has_ended or (wait is not None and wait[1] > _LAST_WAIT_S[wait[0]]) for has_ended, wait in waits):
            continue
        for _, wait in waits:
            if wait is not None:
                LOG.warning("ended without waiting any longer for: %s", wait[0])
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def _last_words(logs: Logs) -> Iterator[None]:
    """What ends a service is part of its log: every line of it is JSON, or none."""
    try:
        yield
    except FcstreamError as error:
        if logs.kind == "json" and not error.is_logged:
            LOG.error("%s", error)
            error.is_logged = True
        raise


def _windows(watched: StreamStatus) -> str:
    """Public, as a log may be read by others than the records."""
    counters = watched.service.counters
    refused = sum(counters.refused.values())
    return f"{counters.released:,} windows released, {refused:,} refused"


def _line(watched: StreamStatus) -> str:
    """For whoever sits at the terminal: the number of messages is exact."""
    service = watched.service
    trouble = service.trouble or service.standby
    text = f"{watched.stream}: {service.counters.messages:,} messages, {_windows(watched)}"
    return text + (f"; {trouble}" if trouble else "")
