"""The process behind ``fcstream run`` with brokers: one or more live streams until a signal ends them."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..config import Config, ServiceSection
from ..errors import ConfigError, FcstreamError, UnusablePlan
from ..planning.plan import quick_warnings
from ..planning.warmup import warm_up
from ..runtime.compile_cache import VARIABLE, compiled, watching_compilation
from ..runtime.undo import on_error
from .batch import ProgressLine
from .build import build
from .guard import guarded
from .logs import Logs, logging_as, stream_context
from .metrics import StreamStatus
from .reload import ActiveConfig, Reloader
from .signals import signals
from .status import StatusServer, stuck
from .supervisor import Supervisor
from .systemd import SystemdNotifier

LOG = logging.getLogger("fcstream.service")


class StreamSpec(NamedTuple):
    """A configuration to run, and how SIGHUP reads it again, if it may."""

    config: Config
    reread: Callable[[], Config] | None = None


def plan_warnings(streams: Sequence[StreamSpec]) -> list[list[str]]:
    """Collect the warnings of `plan` for every stream.

    Raises
    ------
    UnusablePlan
        A stream's windows would hardly ever give a release (`size_hint`).
    """
    found = []
    for each in streams:
        try:
            found.append(quick_warnings(each.config))
        except UnusablePlan as error:
            if len(streams) > 1:
                error.where = f"stream {each.config.stream.name!r}"
            raise
    return found


def serve(
    streams: Sequence[StreamSpec], make: Callable[[Config, ActiveConfig], Supervisor] | None = None
) -> list[Supervisor]:
    """Run live configurations until SIGTERM or SIGINT; returns their supervisors, which `make` makes (`build`).

    Each of several streams runs on a thread of its own, whatever becomes of the others. The first configuration with a
    ``[service]`` section decides for all where status is served and how logs look.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch, OutputClosed
        An error that a new try would not remove; with several streams it is raised when all have ended.
    UnusablePlan
        See `plan_warnings`; nothing is opened.
    """
    _check_names(streams)
    warnings = plan_warnings(streams)
    served = [ServedStream.of(spec, texts, make or build) for spec, texts in zip(streams, warnings, strict=True)]
    App(served, compiles_first=make is not None).run()
    return [each.supervisor for each in served]


def _check_names(streams: Sequence[StreamSpec]) -> None:
    names = [each.config.stream.name for each in streams]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"must be another one for each configuration, {name!r} comes twice", "stream.name")


@dataclass(frozen=True, slots=True)
class ServedStream:
    """One of the process's streams.

    Attributes
    ----------
    spec : StreamSpec
    active : ActiveConfig
    supervisor : Supervisor
    status : StreamStatus
    warnings : list of str
        Warnings of its plan.
    """

    spec: StreamSpec
    active: ActiveConfig
    supervisor: Supervisor
    status: StreamStatus
    warnings: list[str]

    @classmethod
    def of(
        cls, spec: StreamSpec, warnings: list[str], make: Callable[[Config, ActiveConfig], Supervisor]
    ) -> ServedStream:
        """Make a stream that does not run yet; `make` makes its supervisor."""
        active = ActiveConfig(spec.config)
        supervisor = make(spec.config, active)
        status = StreamStatus(spec.config.stream.name, supervisor, spec.config.service or ServiceSection())
        return cls(spec, active, supervisor, status, warnings)


class App:
    """A process that runs streams, and what they share, such as logs and signals.

    Parameters
    ----------
    streams : sequence of ServedStream
    compiles_first : bool
        Compile before the streams begin, for those that do not wait for it themselves.
    """

    def __init__(self, streams: Sequence[ServedStream], *, compiles_first: bool = False) -> None:
        self._streams, self._compiles_first = streams, compiles_first
        self._supervisors = [each.supervisor for each in streams]
        self._statuses = [each.status for each in streams]
        # The first stream with a [service] section configures the process.
        self._speaker = next((each for each in streams if each.spec.config.service is not None), streams[0])
        self._server = StatusServer(self._statuses)
        self._progress, self._notifier = ProgressLine(), SystemdNotifier()

    def run(self) -> None:
        """Run until all streams have ended."""
        section = self._speaker.status.section
        with ExitStack() as stack:
            name = self._streams[0].status.stream if len(self._streams) == 1 else None
            logs = stack.enter_context(logging_as(section.log, name))
            stack.enter_context(_last_words(logs))
            server = self._server
            stack.callback(server.close)
            server.listen(section.listen, section.hosts)
            reloaders = self._reloaders(logs, server)
            reload = partial(self._reload, reloaders) if reloaders else None
            compiler = _Compiler(
                self._supervisors, [options.kind for each in self._streams for options in each.spec.config.releases]
            )
            stack.enter_context(guarded())
            stack.enter_context(signals(self._supervisors, reload, self._notifier.stopping, compiler.is_alive))
            stack.enter_context(self._notifier.watching(self._is_up, lambda: not stuck(self._statuses)))
            stack.callback(self._progress.clear)
            stack.enter_context(watching_compilation(self._progress.compiling))
            compiled.clear()
            compiler.start()
            stack.callback(compiler.finish)
            if self._compiles_first:
                compiler.finish()
            _run_all([partial(self._run, each, logs) for each in self._streams], self._supervisors)

    def _is_up(self) -> bool:
        return not any(supervisor.is_starting for supervisor in self._supervisors)

    def _reloaders(self, logs: Logs, server: StatusServer) -> list[Reloader]:
        """Make what reads each configuration again; for the first stream with a [service] section also logs and status
        server.
        """

        def apply(fresh: ServiceSection) -> None:
            logs.set_format(fresh.log)
            try:
                server.listen(fresh.listen, fresh.hosts)
            except ConfigError:
                logs.set_format(self._speaker.status.section.log)
                raise

        return [
            Reloader(each.spec.reread, each.active, each.status, apply if each is self._speaker else lambda _: None)
            for each in self._streams
            if each.spec.reread is not None
        ]

    def _reload(self, reloaders: Sequence[Reloader]) -> None:
        self._notifier.reloading()
        for reloader in reloaders:
            reloader()
        self._notifier.ready()

    def _run(self, stream: ServedStream, logs: Logs) -> None:
        """Run one stream to its end."""

        def on_step(_: Supervisor) -> None:
            stream.status.note(stream.active.engines)
            self._server.page.note(stream.status, stream.active.engines)
            if logs.kind == "text" and sys.stderr.isatty():  # elsewhere, /metrics reports it
                self._progress.show("; ".join(map(_line, self._statuses)))

        with stream_context(stream.status.stream):
            for text in stream.warnings:
                LOG.warning("%s", text)
            stream.supervisor.run(on_step)
            self._progress.clear()
            LOG.info("stopped; %s", _windows(stream.status))


class _Compiler(threading.Thread):
    """Compiles all kernels before any window is closed, since whoever dies twice between a charge and its seal loses a
    window. The streams begin meanwhile: their first window is that of the start, and what comes is kept for it.
    """

    def __init__(self, supervisors: Sequence[Supervisor], kinds: Sequence[str]) -> None:
        super().__init__(name="fcstream-kernels", daemon=True)
        self._supervisors, self._kinds = supervisors, kinds
        self._error: BaseException | None = None
        self._is_reported = False

    def run(self) -> None:
        started = time.monotonic()
        try:
            with watching_compilation(self._tell):
                warm_up(*self._kinds)
        except BaseException as error:  # `finish` raises it
            self._error = error
            for supervisor in self._supervisors:
                supervisor.stop()
            return
        if self._is_reported:
            where = f"{os.environ[VARIABLE]} ({VARIABLE})" if os.environ.get(VARIABLE) else "this user's cache"
            LOG.info(
                "compiled in %.0f s; the next start takes it from %s, if that is kept",
                time.monotonic() - started,
                where,
            )
        compiled.set()

    def finish(self) -> None:
        """Wait for the end, and raise what went wrong."""
        self.join()
        compiled.set()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _tell(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            LOG.info(
                "what windows need is compiled for this processor, once, in up to a minute: no window is closed "
                "meanwhile, and what comes is kept"
            )


def _run_all(runs: Sequence[Callable[[], None]], supervisors: Sequence[Supervisor]) -> None:
    """Run all to their ends, one on this thread, several on a thread each; then raise the first error."""
    if len(runs) == 1:
        runs[0]()
        return
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None], supervisor: Supervisor) -> None:
        try:
            run()
        except BaseException as error:  # the main thread raises it when all have ended
            errors.append(error)
            supervisor.fail(error)

    def stop_all() -> None:
        for supervisor in supervisors:
            supervisor.stop()

    threads = [
        threading.Thread(target=guarded, args=pair, name="fcstream-stream")
        for pair in zip(runs, supervisors, strict=True)
    ]
    for thread in threads:
        thread.start()
    with on_error(stop_all):
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # signals are handled between two waits
    if errors:
        raise errors[0]


@contextmanager
def _last_words(logs: Logs) -> Iterator[None]:
    """Log the error that ends a service, if the log is JSON, so that every line of it is JSON."""
    try:
        yield
    except FcstreamError as error:
        if logs.kind == "json" and not error.is_logged:
            LOG.error("%s", error)
            error.is_logged = True
        raise


def _windows(watched: StreamStatus) -> str:
    """Format public numbers, because a log may be read by people who may not see the records."""
    counters = watched.service.counters
    released, refused = counters.released, sum(counters.refused.values())
    if counters.windows == released + refused:
        return f"{released:,} windows released, {refused:,} refused"
    return f"{counters.windows:,} windows, {released:,} of their answers released, {refused:,} refused"


def _line(watched: StreamStatus) -> str:
    """Format a line for the operator's terminal; the number of messages is exact."""
    service = watched.service
    trouble = service.trouble or service.standby
    text = f"{watched.stream}: {service.counters.messages:,} messages, {_windows(watched)}"
    return text + (f"; {trouble}" if trouble else "")
