"""What every command needs: errors on one line, configurations, ledgers to read, files that must not be overwritten."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..errors import ConfigError, FcstreamError, Shown

if TYPE_CHECKING:
    from ..config import Config
    from ..ledgers import LedgerReader


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Report errors on one line of standard error, with the exit codes of `fcstream.errors`."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        failure: BaseException
        try:
            return command(*args, **kwargs)
        except FcstreamError as error:
            if error.is_logged:
                sys.exit(error.exit_code)
            failure, message, code = error, str(error), error.exit_code
            if isinstance(error.__context__, BrokenPipeError):
                _flush_to_nowhere()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            failure, (message, code) = error, _outcome(error)
        if click.get_current_context().find_root().params.get("traceback"):
            import traceback

            traceback.print_exception(failure)
        click.echo(f"fcstream: {message}", err=True)
        sys.exit(code)

    return wrapper


def _outcome(error: BaseException) -> tuple[str, int]:
    """Return message and exit code of an error that is none of ours."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; what was sealed is in the ledger", 130
    if isinstance(error, BrokenPipeError):
        _flush_to_nowhere()
        return "standard output was closed by its reader", 1
    if isinstance(error, OSError):
        return f"the system refused: {error.strerror or type(error).__name__}", 1
    if isinstance(error, MemoryError):
        return "out of memory: use shorter windows or a shorter schedule", 1
    # The text of an unexpected error could quote a record: only its kind is shown.
    return f"internal error ({type(error).__name__}); run again with --traceback for where it happened", 1


def _flush_to_nowhere() -> None:
    """Keep the interpreter from reporting an error when it flushes standard output, whose reader went away."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fcstream")
@click.option("--traceback", is_flag=True, help="Show where an error comes from (it may quote data).")
def main(traceback: bool) -> None:
    """Differentially private averages and counts of streams, per window, with a ledger of what was spent.

    Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 budget exhausted, 4 ledger damaged.
    """


def load(path: str, **urls: str | None) -> Config:
    """Read a configuration, with URLs from the command line in place of its own."""
    import msgspec

    from ..config import Config, DeadLetterSection, LedgerSection, SourceSection, UrlSection

    config = Config.load(path)
    kinds = {"source": SourceSection, "dead_letter": DeadLetterSection, "ledger": LedgerSection}
    changes: dict[str, Any] = {}
    for name, url in urls.items():
        if url is not None:
            fresh = kinds.get(name, UrlSection)(url=url)
            found = getattr(config, name)
            changes[name] = fresh if found is None else msgspec.structs.replace(found, url=url)
    return msgspec.structs.replace(config, **changes)


def at_delta(delta: float | None, spent: float) -> float:
    """Return the delta at which epsilons are reported."""
    if delta is None:
        return max(1e-6, 2 * spent)
    if not 0 < delta < 1:
        raise ConfigError("must be in (0, 1)", "--delta", got=delta)
    return delta


@contextmanager
def ending_like_an_interrupt() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: files are closed, what was sealed stays, and the exit code says so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ledger_readers(ledger: str, stream: str | None) -> Iterator[Iterator[LedgerReader]]:
    """Open the streams of a ledger for reading; nothing is changed, whoever holds it.

    No copy stays behind if this process is terminated.
    """
    from ..ledgers import each_reader, open_reader
    from ..local.device.journal_reader import DeviceJournalReader, is_journal

    if is_journal(ledger_path(ledger)):
        yield iter([DeviceJournalReader(ledger_path(ledger), stream)])
        return
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)) if is_main else None
    try:
        with ExitStack() as stack:
            if stream is None:
                shelf = each_reader(ledger)
                yield stack.enter_context(closing(shelf))
            else:
                yield iter([stack.enter_context(closing(open_reader(ledger, stream)))])
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def public(ledger: str) -> str:
    """A ledger's location without secrets."""
    from ..ledgers import is_shared

    if not is_shared(ledger):
        return ledger_path(ledger)
    from ..ledgers.postgres.connection import ServerAddress

    return ServerAddress.of(ledger).location(None)


def read_lines(path: str, out: str) -> Iterator[bytes]:
    """Read a file of lines, which the picture must not replace."""
    from ..reporting.text_files import bounded_lines, read_lines

    if path == "-":
        return bounded_lines(sys.stdin.buffer, "standard input")
    if os.path.realpath(path) == os.path.realpath(out):
        raise ConfigError(f"must not be the file that is read: {out}", "--out")
    return read_lines(path)


def refuse_overwriting_ledger(ledger: str, out: str, key: str) -> None:
    """Refuse to write over a ledger."""
    path = ledger_path(ledger)
    real = os.path.realpath(path)
    if os.path.realpath(out) in (real, *(f"{real}-{part}" for part in ("wal", "witness", "lock"))):
        raise ConfigError(f"must not be a file of the ledger: {out}", key)


def ledger_path(text: str) -> str:
    """Return the path of ``sqlite:PATH`` or a bare path."""
    from ..ledgers import is_shared

    if not is_shared(text) and not os.path.exists(text.removeprefix("sqlite:")):
        from ..connectors.urls import mask

        if mask(text) != text:  # it is a mistyped URL, which may hold a password
            raise ConfigError(
                "must be a file, 'sqlite:PATH' or 'postgresql://host/database'", "LEDGER", got=Shown(mask(text))
            )
    return text.removeprefix("sqlite:")
