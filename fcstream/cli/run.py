"""``run``: release the windows of a configuration, of files to their end or of brokers until a signal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..errors import BudgetExhausted, ConfigError
from ..runtime.compile_cache import watching_compilation
from .base import ending_like_an_interrupt, guarded, load, main
from .terminal import say

if TYPE_CHECKING:
    from ..config import Config
    from ..engine.first_records import InputCheck
    from ..formats.batch import Rejection
    from ..service.batch import ProgressLine, Summary


@main.command()
@click.argument("configs", metavar="CONFIG...", nargs=-1, required=True, type=click.Path())
@click.option("--source", metavar="URL", help="Instead of [source] url: jsonl:PATH or csv:PATH, .gz too, - for stdin.")
@click.option("--sink", metavar="URL", help="Instead of [sink] url: jsonl:PATH, - for stdout.")
@click.option("--ledger", metavar="URL", help="Instead of [ledger] url: sqlite:PATH or postgresql://...")
@click.option("--dead-letter", metavar="URL", help="Instead of [dead_letter] url: jsonl:PATH, or a broker's.")
@click.option(
    "--runner", type=click.Choice(["local", "spark"]), default="local", show_default=True, help="What reads and counts."
)
@click.option("--master", metavar="URL", help="With --runner spark: instead of [spark] master.")
@click.option("--json", "as_json", is_flag=True, help="At the end a summary object on standard error, for programs.")
@click.option("--unchecked", is_flag=True, help="Do not look first whether any of the first 1000 lines can be used.")
@guarded
def run(
    configs: Sequence[str], runner: str, master: str | None, as_json: bool, unchecked: bool, **urls: str | None
) -> None:
    """Release every window of the schedule in CONFIG, once and for ever.

    A window that was answered by an earlier run is not charged and not drawn again. With a broker as its source it
    stays up until SIGTERM or SIGINT; SIGHUP reads CONFIG again. Several such configurations are served beside each
    other.
    """
    from ..connectors import is_live

    loads = [partial(_load, path, **urls) for path in configs]
    loaded = [load_one() for load_one in loads]
    live = [is_live(_source_url(config)) for config in loaded]
    if master is not None and runner != "spark":
        raise ConfigError("belongs to --runner spark", "--master")
    if all(live):
        _serve(loaded, loads, runner, master, as_json)
    elif len(loaded) > 1:
        raise ConfigError("must be a broker's when several configurations are given: files end", "source.url")
    else:
        report = RunReport(loaded[0], as_json)
        report.finish(_run_to_end(loaded[0], report, runner, master, unchecked))


def _source_url(config: Config) -> str:
    """Return the URL of the source; the sink must be given too."""
    if config.source is None or config.sink is None:
        missing = "source" if config.source is None else "sink"
        raise ConfigError(f"is required, in the file or as --{missing}", f"{missing}.url")
    return config.source.url


def _serve(
    configs: Sequence[Config], loads: Sequence[Callable[[], Config]], runner: str, master: str | None, as_json: bool
) -> None:
    """Serve live streams until a signal; exit with code 3 if windows were refused for lack of room."""
    from ..engine.exhaustion import REASON
    from ..service.app import StreamSpec, serve

    streams = [StreamSpec(config, reread) for config, reread in zip(configs, loads, strict=True)]
    if runner == "spark":
        from ..spark.service import serve_on_spark

        supervisors = serve_on_spark(streams, master)
    else:
        supervisors = serve(streams)
    if as_json:
        for config, supervisor in zip(configs, supervisors, strict=True):
            click.echo(json.dumps({"stream": config.stream.name, **supervisor.counters.as_dict()}), err=True)
    if any(REASON in supervisor.counters.refused for supervisor in supervisors):
        sys.exit(BudgetExhausted.exit_code)


class RunReport:
    """What a run of files prints, for a reader or for programs.

    Parameters
    ----------
    config : Config
    as_json : bool
        Print one object at the end, instead of lines.

    Attributes
    ----------
    makes_ledger : bool
        Whether this run makes the ledger's file.
    """

    def __init__(self, config: Config, as_json: bool) -> None:
        from .progress import progress_line

        self._config, self._as_json = config, as_json
        self._warnings: list[str] = []
        self.makes_ledger = False
        self.progress = progress_line()

    def warn(self, text: str) -> None:
        self._warnings.append(text)
        if not self._as_json:
            say(f"warning: {text}")

    def check(self, found: InputCheck) -> None:
        """Stop a run that can use none of its first lines, and warn of settings that may be mistaken."""
        found.check_usable()
        for text in found.warnings():
            self.warn(text)

    def finish(self, summary: Summary) -> None:
        """Print what was done; exit with code 3 if the budget is exhausted."""
        is_exhausted = bool(summary.stopped or summary.refused.get("budget_exhausted"))
        if self._as_json:
            self._print_object(summary)
        else:
            self._print_lines(summary)
            if summary.stopped:
                raise summary.stopped
            if is_exhausted:
                click.echo("fcstream: some windows were refused: the budget is exhausted", err=True)
        if is_exhausted:
            sys.exit(BudgetExhausted.exit_code)

    def _print_object(self, summary: Summary) -> None:
        warnings = list(dict.fromkeys([*self._warnings, *summary.warnings]))
        more = {"stream": self._config.stream.name, "new_ledger": self.makes_ledger, "warnings": warnings}
        click.echo(json.dumps(more | summary.as_dict()), err=True)

    def _print_lines(self, summary: Summary) -> None:
        if self.makes_ledger and self._config.ledger:
            click.echo(f"made a new ledger: {self._config.ledger.url}", err=True)
        self.progress.tell()
        for line in summary.lines():
            say(line)
        if summary.rejected and not self._config.dead_letter:
            click.echo("to see why records were rejected, add [dead_letter] or --dead-letter", err=True)


def _run_to_end(config: Config, report: RunReport, runner: str, master: str | None, unchecked: bool) -> Summary:
    """Release all windows of files."""
    from ..connectors import check_file
    from ..engine.batch_budget import check_unopened
    from ..planning.plan import quick_warnings

    check_unopened(config)
    for text in quick_warnings(config):
        report.warn(text)
    if runner == "local":
        check_file(_source_url(config))
    if config.window.clock != "eof":
        raise ConfigError("must be 'eof' for files and pipes", "window.clock", got=config.window.clock)
    report.makes_ledger = config.ledger is not None and _is_new_file(config.ledger.url)
    progress = report.progress
    with ending_like_an_interrupt(), watching_compilation(progress.compiling):
        if runner == "spark":
            return _run_on_spark(config, report, master, unchecked)
        return _run_here(config, report, progress, unchecked)


def _run_on_spark(config: Config, report: RunReport, master: str | None, unchecked: bool) -> Summary:
    from ..service.checking import check_lines
    from ..spark.files import run_files

    if not unchecked and os.path.isfile(_source_url(config).partition(":")[2]):  # a folder or a pattern is Spark's
        report.check(check_lines(config))
    return run_files(config, master)


def _run_here(config: Config, report: RunReport, progress: ProgressLine, unchecked: bool) -> Summary:
    from ..connectors import open_dead_letter, open_sink, open_source
    from ..engine.opening import open_engine
    from ..planning.warmup import warm_first_window
    from ..service.batch import run as run_job
    from ..service.checking import SampledSource

    rejections: list[Callable[[Sequence[Rejection]], object]] = []
    dead_letters = None
    with ExitStack() as stack:
        assert config.source is not None
        reader = SampledSource(open_source(_source_url(config), config.job.schema, config.source.csv_dialect()))
        stack.callback(reader.close)
        if not unchecked:  # checked before a ledger is made, which would be bound to a mistaken configuration
            report.check(reader.sample(config.job))
        warm_first_window(config.releases)
        # The ledger is opened first, so that a file which another run writes is not touched.
        engine = open_engine(config, on_rejection=lambda found: [write(found) for write in rejections])
        stack.callback(engine.abort)
        if unchecked:
            engine.first_records.ignore()
        assert config.sink is not None
        writer = open_sink(config.sink.url)
        stack.callback(writer.close)
        if config.dead_letter:
            dead_letters = open_dead_letter(config.dead_letter.url, config.dead_letter.max_bytes)
            stack.callback(dead_letters.close)
            rejections.append(dead_letters.write)
        summary = run_job(engine, reader, writer, progress=progress)
    if dead_letters is not None and dead_letters.lost:
        report.warn(f"{dead_letters.lost} rejections could not be written to the dead letters")
    return summary


def _load(path: str, **urls: Any) -> Config:
    """Read a configuration, also again while a service runs, and check that its files are different ones."""
    config = load(path, **urls)
    _keep_apart(config)
    return config


def _keep_apart(config: Config) -> None:
    """Refuse one file in two roles: a sink on the ledger would destroy it."""
    from ..connectors.urls import mask

    roles: dict[str, str] = {}
    for role in ("source", "sink", "ledger", "dead_letter"):
        section = getattr(config, role)
        path = section.url.partition(":")[2] if section else ""
        if path and path != "-" and not path.startswith("//"):  # a server may have several roles
            for name in (path, f"{path}-wal") if role == "ledger" else (path,):
                other = roles.setdefault(os.path.realpath(name), role)
                if other != role:
                    raise ConfigError(f"must not be the file of `{other}`: {mask(section.url)}", f"{role}.url")


def _is_new_file(ledger: str) -> bool:
    from ..ledgers import check_scheme

    scheme, location = check_scheme(ledger)
    return scheme == "sqlite" and not os.path.exists(location)
