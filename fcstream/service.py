"""A live stream as a service: signals, health, metrics, logs, and one line of status on a terminal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .arrays import warm_up
from .config import Config, Job, ServiceSection
from .connectors import open_dead_letter, open_live, open_sink
from .engine import Engine
from .errors import ConfigError
from .live import Service
from .payloads import decoder_for
from .runner import Progress

if TYPE_CHECKING:
    from .connectors.base import AckSource, LiveSource
    from .sinks import Sink

_SLOWEST_BEAT_S = 60.0


def serve(config: Config) -> Service:
    """Run a live configuration until SIGTERM or SIGINT; returns what it did.

    Raises
    ------
    ConfigError, LedgerDamaged, LedgerMismatch
        What trying again would not mend.
    """
    service = build(config)
    section = config.service or ServiceSection()
    progress = Progress()
    with logging_as(section.log), signals(service), status(service, section):
        warm_up()  # not between a charge and its seal, where a process that dies twice gives a window up
        try:
            service.run(lambda it: progress.show(_line(it)))
        finally:
            progress.clear()
    return service


def build(config: Config) -> Service:
    """The service of a configuration; nothing is opened yet."""
    if config.source is None or config.sink is None or config.ledger is None:
        missing = next(name for name in ("source", "sink", "ledger") if getattr(config, name) is None)
        raise ConfigError("is required for a live stream", f"{missing}.url")
    source, sink_url = config.source, config.sink.url
    decoder = decoder_for(source.format, Job.of(config).schema)
    name = source.name or f"fcstream-{config.stream.name}"
    letters = open_dead_letter(config.dead_letter.url) if config.dead_letter else None

    def engine() -> Engine:
        return Engine(config, on_rejection=None if letters is None else letters.write)

    def opened() -> LiveSource:
        found: Any = open_live(source.url, name)
        return found if hasattr(found, "poll") else _spooled(found, source.spool, source.spool_bytes)

    def sink() -> Sink:
        return open_sink(sink_url)

    return Service(engine, opened, sink, decoder)


def _spooled(queue: AckSource, folder: str | None, most: int) -> LiveSource:
    if folder is None:
        queue.close()
        raise ConfigError(
            "is required for this source: its broker forgets what is acknowledged, so records wait in a local folder "
            "until their windows are sealed",
            "source.spool",
        )
    from .connectors.spool import Spool, SpooledSource

    return SpooledSource(queue, Spool(Path(folder), most))


@contextmanager
def signals(service: Service) -> Iterator[None]:
    """SIGTERM and SIGINT finish the step under way; a second SIGINT interrupts it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        if service.stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        service.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def logging_as(kind: str) -> Iterator[None]:
    """Our log on standard error, as text or as one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if kind == "json" else logging.Formatter("fcstream: %(message)s"))
    logger = logging.getLogger("fcstream")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            }
        ).decode()


@contextmanager
def status(service: Service, section: ServiceSection) -> Iterator[None]:
    """``/live``, ``/ready`` and ``/metrics`` on ``service.listen``, for as long as the block runs."""
    if section.listen is None:
        yield
        return
    host, _, port = section.listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"must be HOST:PORT, got {section.listen!r}", "service.listen")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = _answer(service, section, self.path)
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    except OSError as error:
        raise ConfigError(f"cannot be used: {error.strerror}", "service.listen") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="fcstream-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(service: Service, section: ServiceSection, path: str) -> tuple[int, str]:
    late = time.monotonic() - service.beat
    if path == "/live":
        return (200, "alive\n") if late < _SLOWEST_BEAT_S or service.trouble else (503, f"stuck for {late:.0f} s\n")
    if path == "/ready":
        return (200, "ready\n") if service.trouble is None else (503, f"{service.trouble}\n")
    if path == "/metrics":
        return 200, metrics(service, section.counters)
    return 404, "try /live, /ready or /metrics\n"


def metrics(service: Service, exact: bool) -> str:
    """Prometheus text. Without `exact` only what is public: windows answered, restarts, readiness.

    Privacy
    -------
    How many messages and records came, and how many were rejected and why, are exact functions of the data: they are
    told only if ``service.counters`` says so, and then to whoever may see the raw data.

    Source
    ------
    Ours; see PRIVACY.md.
    """
    counters = service.counters
    values: list[tuple[str, str, str, float]] = [
        ("fcstream_ready", "gauge", "", 0 if service.trouble else 1),
        ("fcstream_windows_released_total", "counter", "", counters.released),
        *(
            ("fcstream_windows_refused_total", "counter", f'{{reason="{reason}"}}', n)
            for reason, n in sorted(counters.refused.items())
        ),
        ("fcstream_restarts_total", "counter", "", counters.restarts),
        ("fcstream_last_window_close_seconds", "gauge", "", counters.last_close_ms / 1000),
    ]
    if exact:
        values += [
            ("fcstream_messages_total", "counter", "", counters.messages),
            ("fcstream_records_total", "counter", "", counters.records),
            ("fcstream_duplicates_total", "counter", "", counters.duplicates),
            *(
                ("fcstream_rejected_total", "counter", f'{{reason="{reason}"}}', n)
                for reason, n in sorted(counters.rejected.items())
            ),
        ]
    lines, told = [], set()
    for name, kind, labels, value in values:
        if name not in told:
            lines.append(f"# TYPE {name} {kind}")
            told.add(name)
        lines.append(f"{name}{labels} {value}")
    return "\n".join(lines) + "\n"


def _line(service: Service) -> str:
    counters = service.counters
    refused = sum(counters.refused.values())
    return f"{counters.messages:,} messages, {counters.released:,} windows released, {refused:,} refused" + (
        f"; {service.trouble}" if service.trouble else ""
    )
