"""Logs on standard error: text, or one JSON object on each line, without anything that may be data.

Messages of this package hold no record's content; a library's messages might. So of a library's record only its
template is logged (with ``%s`` where values belong). If the logging module inserted no values, nothing of the text is
logged, because values may have been inserted before. Of exceptions only the class is logged.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import ConfigError, needs_package

LOG = logging.getLogger("fcstream.service")
WINDOWS = "fcstream.windows"
"""Logger of what became of each window; it is logged in JSON only, because a terminal has its status line."""
_EXTRAS = ("stream", "window", "answer", "status", "reason", "incomplete")
_STREAM: ContextVar[str | None] = ContextVar("stream", default=None)


@contextmanager
def stream_context(stream: str) -> Iterator[None]:
    """Mark what this thread logs inside the block as being about a stream."""
    token = _STREAM.set(stream)
    try:
        yield
    finally:
        _STREAM.reset(token)


class Logs:
    """The handler of the root logger, whose format can be exchanged."""

    def __init__(self, stream: str | None) -> None:
        self.handler = logging.StreamHandler(sys.stderr)
        self.kind = ""
        self._stream = stream

    def set_format(self, kind: str) -> None:
        """Set the format, ``text`` or ``json``.

        Raises
        ------
        ConfigError
            ``json`` without structlog; the message names the extra.
        """
        formatter = _json(self._stream) if kind == "json" else _Text()
        self.kind = kind
        self.handler.setFormatter(formatter)
        self.handler.filters = [] if kind == "json" else [lambda record: record.name != WINDOWS]


@contextmanager
def logging_as(kind: str, stream: str | None = None) -> Iterator[Logs]:
    """Log everything while the block runs: this package's messages from INFO on, libraries' from WARNING on.

    Parameters
    ----------
    kind : str
        ``text`` or ``json``.
    stream : str, optional
        The stream of what is logged outside of `stream_context`.
    """
    logs = Logs(stream)
    logs.set_format(kind)
    root, ours = logging.getLogger(), logging.getLogger("fcstream")
    level, hook, raises = ours.level, threading.excepthook, logging.raiseExceptions

    def tell(args: threading.ExceptHookArgs) -> None:  # by default the whole error is printed, with its text
        LOG.error("a thread ended: %s", args.exc_type.__name__)

    root.addHandler(logs.handler)
    ours.setLevel(logging.INFO)
    logging.captureWarnings(True)  # otherwise they would be printed with a line of code
    threading.excepthook, logging.raiseExceptions = tell, False  # else arguments are printed when one does not fit
    try:
        yield logs
    finally:
        logging.captureWarnings(False)
        root.removeHandler(logs.handler)
        ours.setLevel(level)
        threading.excepthook, logging.raiseExceptions = hook, raises


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == "fcstream"


def safe_event(record: logging.LogRecord, message: str, args: object, kind: type[BaseException] | None) -> str:
    """Return what a log may say: of the whole message, the values inserted into it, and the class of its exception."""
    if not _is_ours(record):
        where = f"{record.module}:{record.lineno}"
        is_template = bool(args) and isinstance(record.msg, str)
        message = f"{record.msg} ({where})" if is_template else f"a message of {where}, whose text may hold data"
    return message + (f" ({kind.__name__})" if kind else "")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name = "" if _is_ours(record) else f"{record.name}: "
        kind = record.exc_info[0] if record.exc_info else None
        return f"fcstream: {name}{safe_event(record, record.getMessage(), record.args, kind)}"


def client_is_missing() -> ConfigError | None:
    """Return the error for JSON logs that cannot be written; None if they can."""
    try:
        _structlog()
    except ConfigError as error:
        return error
    return None


def _structlog() -> Any:
    with needs_package("structlog", "service", "service.log"):
        import structlog
    return structlog


def _json(stream: str | None) -> logging.Formatter:
    structlog = _structlog()

    def say(_logger: Any, _method: str, given: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """All but what is known to be safe is left out."""
        record, error = given["_record"], given.get("exc_info")
        event = {name: given[name] for name in ("time", "level", "logger")}
        kind = error[0] if isinstance(error, tuple) else None
        event["event"] = safe_event(record, str(given["event"]), given.get("positional_args"), kind)
        event["stream"] = _STREAM.get() or stream
        if _is_ours(record):  # a library may use the same names with another meaning
            event |= {name: vars(record)[name] for name in _EXTRAS if name in vars(record)}
        return {name: value for name, value in event.items() if value is not None}

    formatter: logging.Formatter = structlog.stdlib.ProcessorFormatter(
        pass_foreign_args=True,
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            say,
            structlog.processors.JSONRenderer(),
        ],
    )
    return formatter
