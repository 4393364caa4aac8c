"""A live stream as a service: signals, health, metrics, logs, and one line of status on a terminal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from .config import Config, Job, ServiceSection
from .connectors import open_dead_letter, open_live, open_sink
from .connectors.places import place
from .connectors.retry import close_quietly
from .errors import ConfigError, UnusablePlan
from .keyed import KeyedEngine, open_engine
from .live import Lead, Service, now_ms
from .logs import about, logging_as
from .metrics import Watched
from .notify import Notifier
from .payloads import decoder_for
from .planning import doubts
from .reloading import Current, Reloader
from .runner import Progress
from .session import Setting
from .status import Status, stuck
from .warming import warm_up

if TYPE_CHECKING:
    from .connectors.base import AckSource, LiveSource
    from .connectors.files import DeadLetters
    from .connectors.letters import QueuedDeadLetters
    from .engine import Engine
    from .records import Rejection
    from .sinks import Sink

LOG = logging.getLogger("fcstream.service")


class Served(NamedTuple):
    """A configuration to serve, and, if SIGHUP is to read it anew, how."""

    config: Config
    again: Callable[[], Config] | None = None


def look_at(streams: Sequence[Served]) -> list[list[str]]:
    """The warnings of `plan` for every stream.

    Raises
    ------
    UnusablePlan
        A stream's windows would all but never release (`size_hint`).
    """
    found = []
    for each in streams:
        try:
            found.append(doubts(each.config))
        except UnusablePlan as error:
            if len(streams) == 1:
                raise
            raise UnusablePlan(f"of stream {each.config.stream.name!r}: {error.message}", error.place) from None
    return found


def serve(streams: Sequence[Served], make: Callable[[Config, Current], Service] | None = None) -> list[Service]:
    """Run live configurations until SIGTERM or SIGINT; returns what they did. `make` makes their services (`build`).

    Several run beside each other, each on a thread of its own, whatever becomes of the others. The first one that has a
    ``[service]`` section says for all where status is told and how logs look.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch
        What trying again would not mend; of several streams when all have ended.
    UnusablePlan
        See `look_at`; nothing is opened.
    """
    names = [each.config.stream.name for each in streams]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"must be another one for each configuration, {name!r} comes twice", "stream.name")
    warnings = look_at(streams)
    currents = [Current(each.config) for each in streams]
    services = [(make or build)(each.config, current) for each, current in zip(streams, currents, strict=True)]
    watched = [
        Watched(each.config.stream.name, service, each.config.service or ServiceSection())
        for each, service in zip(streams, services, strict=True)
    ]
    speaker = next((i for i, each in enumerate(streams) if each.config.service is not None), 0)
    section, progress, notifier = watched[speaker].section, Progress(), Notifier()
    with ExitStack() as stack:
        logs = stack.enter_context(logging_as(section.log, names[0] if len(names) == 1 else None))
        status = Status(watched)
        stack.callback(status.close)
        status.listen(section.listen)

        def apply(fresh: ServiceSection) -> None:
            logs.speak(fresh.log)
            try:
                status.listen(fresh.listen)
            except ConfigError:
                logs.speak(watched[speaker].section.log)
                raise

        reloaders = [
            Reloader(each.again, currents[i], watched[i], apply if i == speaker else lambda _: None)
            for i, each in enumerate(streams)
            if each.again is not None
        ]

        def reload() -> None:
            notifier.reloading()
            for reloader in reloaders:
                reloader()
            notifier.ready()

        def run(i: int) -> None:
            def on_step(_: Service) -> None:
                currents[i].proven()
                watched[i].note(currents[i].engines)
                progress.show("; ".join(map(_line, watched)))

            with about(names[i]):
                for text in warnings[i]:
                    LOG.warning("%s", text)
                services[i].run(on_step)
                progress.clear()
                LOG.info("stopped; %s", _told(watched[i]) if len(streams) == 1 else _line(watched[i]))

        stack.enter_context(signals(services, reload if reloaders else None, notifier.stopping))
        is_up = lambda: all(service.trouble != "starting" for service in services)  # noqa: E731
        stack.enter_context(notifier.watching(is_up, lambda: not stuck(watched)))
        stack.callback(progress.clear)
        kinds = [served.config.release.kind for served in streams]
        warm_up(*kinds)  # not between a charge and its seal, where a process that dies twice gives a window up
        if len(streams) == 1:
            run(0)
        else:
            _beside_each_other([partial(run, i) for i in range(len(streams))], services)
    return services


def _beside_each_other(runs: Sequence[Callable[[], None]], services: Sequence[Service]) -> None:
    """Run all to their ends; raise the first error then."""
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None], service: Service) -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)
            service.give_up(error)

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


def build(config: Config, current: Current | None = None) -> Service:
    """The service of a configuration, or of what `current` holds when a session begins; of all that it names, only the
    dead letters are opened yet."""
    if config.source is None or config.sink is None or config.ledger is None:
        missing = next(name for name in ("source", "sink", "ledger") if getattr(config, name) is None)
        raise ConfigError("is required for a live stream", f"{missing}.url")
    now = current or Current(config)
    letters = Letters()
    letters.follow(config)
    job, partitioner = Job.of(config), config.source.partitioner
    ledger_url, name = config.ledger.url, config.stream.name
    is_shared = ledger_url.startswith(("postgresql:", "postgres:"))
    if partitioner is not None and not is_shared:
        raise ConfigError(
            "must be left out with this ledger: several processes share one in PostgreSQL only", "source.partitioner"
        )

    def engine(config: Config, keys: Collection[str] | None) -> Engine | KeyedEngine:
        letters.follow(config)
        return open_engine(config, keys=keys, on_rejection=letters.write if config.dead_letter else None)

    def opened(config: Config) -> LiveSource:
        source = config.source
        assert source is not None
        found: Any = open_live(source.url, source.name or f"fcstream-{name}")
        if partitioner is not None and not hasattr(found, "share"):
            close_quietly(found.close)
            raise ConfigError(
                "must be left out for this source: its consumers do not divide partitions among them",
                "source.partitioner",
            )
        return found if hasattr(found, "poll") else _spooled(found, source.spool, source.spool_bytes)

    def sink(config: Config) -> Sink:
        assert config.sink is not None
        return open_sink(config.sink.url)

    def lead() -> Lead:
        from .ledgers.lead import PostgresLead

        return PostgresLead(ledger_url, name)

    where = None if partitioner is None else partial(place, partitioner)
    return Service(
        lambda keys: now.engine(lambda config: engine(config, keys)),
        lambda: now.open(opened),
        lambda: now.open(sink),
        Setting(decoder_for(config.source.format, job.schema), now_ms, where),
        job.keys,
        lead if is_shared and partitioner is None else None,
    )


class Letters:
    """Where rejections go; opened once, and again when it moves."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._file: DeadLetters | QueuedDeadLetters | None = None

    def follow(self, config: Config) -> None:
        url = config.dead_letter.url if config.dead_letter else None
        # A file that the URL names may hold another password now.
        if url != self._url or (url is not None and "${file:" in url):
            fresh = None if url is None else open_dead_letter(url)
            if self._file is not None:
                self._file.close()
            self._url, self._file = url, fresh

    def write(self, rejections: Sequence[Rejection]) -> None:
        if self._file is not None:
            self._file.write(rejections)


def _spooled(queue: AckSource, folder: str | None, most: int) -> LiveSource:
    if folder is None:
        queue.close()
        raise ConfigError(
            "is required for this source: its broker forgets what is acknowledged, so records wait in a local folder "
            "until their windows are sealed",
            "source.spool",
        )
    from .connectors.spool import Spool, SpooledSource

    try:
        return SpooledSource(queue, Spool(Path(folder), most))
    except BaseException:
        queue.close()  # it has messages, which others could have
        raise


@contextmanager
def signals(
    services: Sequence[Service],
    reload: Callable[[], object] | None = None,
    on_stop: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """SIGTERM and SIGINT finish the step under way, a second SIGINT interrupts it; SIGHUP calls `reload`.

    The handlers only note the signal: what it asks for is done on a thread, because a lock that the main thread holds
    when it is interrupted would never be let go of.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: SimpleQueue[int] = SimpleQueue()

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
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(0)
        worker.join()


def _told(watched: Watched) -> str:
    counters = watched.service.counters
    refused = sum(counters.refused.values())
    return f"{counters.messages:,} messages, {counters.released:,} windows released, {refused:,} refused"


def _line(watched: Watched) -> str:
    trouble = watched.service.trouble
    return f"{watched.stream}: {_told(watched)}" + (f"; {trouble}" if trouble else "")
