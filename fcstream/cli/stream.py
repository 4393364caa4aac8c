"""``run``, ``plan``, ``doctor``: what is done with a configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from ..errors import BudgetExhausted, ConfigError
from ..runtime.compile_cache import watching_compilation
from .base import at_delta, ending_like_an_interrupt, guarded, ledger_path, load, main

if TYPE_CHECKING:
    from ..config import Config
    from ..formats.batch import Rejection
    from ..service.batch import Summary
    from ..service.checking import InputCheck


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
    configs: Sequence[str],
    source: str | None,
    sink: str | None,
    ledger: str | None,
    dead_letter: str | None,
    runner: str,
    master: str | None,
    as_json: bool,
    unchecked: bool,
) -> None:
    """Release every window of the schedule in CONFIG, once and for ever.

    A window that was answered by an earlier run is not charged and not drawn again. With a broker as its source it
    stays up until SIGTERM or SIGINT; SIGHUP reads CONFIG again. Several such configurations are served beside each
    other.
    """
    from ..connectors import check_file, is_live, open_dead_letter, open_sink, open_source
    from ..engine.keyed import open_engine
    from ..planning.plan import quick_warnings
    from ..service.batch import ProgressLine
    from ..service.batch import run as run_job
    from ..service.checking import LINES, SampledSource

    def read(path: str) -> Config:
        return load(path, source=source, sink=sink, ledger=ledger, dead_letter=dead_letter)

    jobs = [read(path) for path in configs]
    for job in jobs:
        if job.source is None or job.sink is None:
            missing = "source" if job.source is None else "sink"
            raise ConfigError(f"is required, in the file or as --{missing}", f"{missing}.url")
    live = [job.source is not None and is_live(job.source.url) for job in jobs]
    if master is not None and runner != "spark":
        raise ConfigError("belongs to --runner spark", "--master")
    if all(live):
        from ..service.app import StreamSpec, serve

        streams = [StreamSpec(job, partial(read, path)) for job, path in zip(jobs, configs, strict=True)]
        if runner == "spark":
            from ..spark.service import serve_on_spark

            services = serve_on_spark(streams, master)
        else:
            services = serve(streams)
        if as_json:
            for stream, service in zip(jobs, services, strict=True):
                document = {"stream": stream.stream.name, **asdict(service.counters)}
                click.echo(json.dumps(document), err=True)
        return
    if len(jobs) > 1:
        raise ConfigError("must be a broker's when several configurations are given: files end", "source.url")
    job = jobs[0]
    assert job.source is not None
    assert job.sink is not None
    warnings = quick_warnings(job)
    if not as_json:
        for text in warnings:
            click.echo(f"warning: {text}", err=True)
    if not live[0] and runner == "local":
        check_file(job.source.url)
    _keep_apart(job)
    if job.window.clock != "eof":
        raise ConfigError(f"must be 'eof' for files and pipes, got {job.window.clock!r}", "window.clock")
    is_new = job.ledger is not None and _is_new_file(job.ledger.url)
    progress = ProgressLine()
    with ExitStack() as stack:
        stack.enter_context(ending_like_an_interrupt())
        stack.enter_context(watching_compilation(progress.compiling))
        if runner == "spark":
            from ..spark.files import run_files

            if not unchecked and os.path.isfile(job.source.url.partition(":")[2]):  # a folder or a pattern is Spark's
                _look(_check(job, LINES), warnings, as_json)
            _tell(job, run_files(job, master), _RunReport(is_new, as_json, warnings))
            return
        rejections: list[Callable[[Sequence[Rejection]], object]] = []
        meaning = job.job
        reader = SampledSource(open_source(job.source.url, meaning.schema))
        stack.callback(reader.close)
        if not unchecked:
            _look(
                reader.sample(meaning), warnings, as_json
            )  # before there is a ledger that is bound to what is mistaken
        # The ledger before the rest: a file that another run writes is not touched.
        engine = open_engine(job, on_rejection=lambda found: [write(found) for write in rejections])
        stack.callback(engine.abort)
        writer = open_sink(job.sink.url)
        stack.callback(writer.close)
        dead_letters = None
        if job.dead_letter:
            dead_letters = open_dead_letter(job.dead_letter.url, job.dead_letter.max_bytes)
            stack.callback(dead_letters.close)
            rejections.append(dead_letters.write)
        summary = run_job(engine, reader, writer, progress=progress)
    if dead_letters is not None and dead_letters.lost:
        warnings.append(f"{dead_letters.lost} rejections could not be written to the dead letters")
        if not as_json:
            click.echo(f"warning: {warnings[-1]}", err=True)
    _tell(job, summary, _RunReport(is_new, as_json, warnings))


def _look(found: InputCheck, warnings: list[str], as_json: bool) -> None:
    """Stop a run that could use nothing, and warn of one that might not be meant."""
    found.check_usable()
    for text in found.warnings():
        warnings.append(text)
        if not as_json:
            click.echo(f"warning: {text}", err=True)


class _RunReport(NamedTuple):
    """How a run is summed up, and what else is to be said of it."""

    is_new: bool
    as_json: bool
    warnings: list[str]


def _tell(job: Config, summary: Summary, report: _RunReport) -> None:
    """What a run has done, and exit code 3 if the budget is exhausted."""
    is_exhausted = bool(summary.stopped or summary.refused.get("budget_exhausted"))
    if report.as_json:
        warnings = list(dict.fromkeys([*report.warnings, *summary.warnings]))
        more = {"stream": job.stream.name, "new_ledger": report.is_new, "warnings": warnings}
        click.echo(json.dumps(more | summary.as_dict()), err=True)
        if is_exhausted:
            sys.exit(BudgetExhausted.exit_code)
        return
    if report.is_new and job.ledger:
        click.echo(f"made a new ledger: {job.ledger.url}", err=True)
    for line in summary.lines():
        click.echo(line, err=True)
    if summary.rejected and not job.dead_letter:
        click.echo("to see why records were rejected, add [dead_letter] or --dead-letter", err=True)
    if summary.stopped:
        raise summary.stopped
    if is_exhausted:
        click.echo("fcstream: some windows were refused: the budget is exhausted", err=True)
        sys.exit(BudgetExhausted.exit_code)


@main.command()
@click.argument("config", type=click.Path())
@click.option("--source", metavar="URL", help="Instead of [source] url: jsonl:PATH or csv:PATH, .gz too, - for stdin.")
@click.option("--lines", type=click.IntRange(min=1), default=1000, show_default=True, help="How many to look at.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def check(config: str, source: str | None, lines: int, as_json: bool) -> None:
    """Say how many of the first lines of a file CONFIG can use, and why it cannot use others.

    Nothing is charged, released or written. The counts are exact: they are for whoever may see the records. Exit code 2
    if none of the lines can be used.
    """
    found = _check(load(config, source=source), lines)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.text()))
    if found.lines and not found.usable:
        sys.exit(ConfigError.exit_code)


@main.command()
@click.argument("config", type=click.Path())
@click.option("--delta", type=float, help="The delta at which epsilons are reported.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def plan(config: str, delta: float | None, as_json: bool) -> None:
    """Say what CONFIG will give and cost. No data are read.

    Refuses (exit 2) a configuration that would release with a probability below 1%.
    """
    from ..planning.plan import plan as forecast
    from ..service.batch import ProgressLine

    job, progress = load(config), ProgressLine()
    with watching_compilation(progress.compiling):
        found = forecast(job, at_delta(delta, job.budget.delta))
    progress.clear()
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()))


@main.command()
@click.argument("config", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def doctor(config: str, as_json: bool) -> None:
    """Look at everything that CONFIG names, and say what to mend.

    Connections, permissions, clocks, folders, the ledger and its budget. Nothing is read, written, committed or spent,
    and a service that runs is not disturbed. Exit code 2 if there is a problem.
    """
    from ..service.doctor import examine

    findings = examine(lambda: load(config))
    if as_json:
        names = ("check", "level", "what", "remedy")
        click.echo(json.dumps([{name: getattr(found, name) for name in names} for found in findings], indent=2))
    else:
        for found in findings:
            click.echo(str(found))
    if any(found.level == "problem" for found in findings):
        sys.exit(ConfigError.exit_code)


def _check(config: Config, lines: int) -> InputCheck:
    from ..connectors import is_live, open_source
    from ..service.checking import SampledSource

    if config.source is None:
        raise ConfigError("is required, in the file or as --source", "source.url")
    if is_live(config.source.url):
        raise ConfigError(
            "must be a file's: a live stream says by itself (/ready, log) what it cannot use", "source.url"
        )
    job = config.job
    with closing(SampledSource(open_source(config.source.url, job.schema))) as source:
        return source.sample(job, lines)


def _keep_apart(config: Config) -> None:
    """Refuse one file in two roles: a sink on the ledger would destroy it."""
    from ..connectors.urls import mask

    roles: dict[str, str] = {}
    for role in ("source", "sink", "ledger", "dead_letter"):
        section = getattr(config, role)
        path = section.url.partition(":")[2] if section else ""
        if path and path != "-":
            for name in (path, f"{path}-wal") if role == "ledger" else (path,):
                other = roles.setdefault(os.path.realpath(name), role)
                if other != role:
                    raise ConfigError(f"must not be the file of `{other}`: {mask(section.url)}", f"{role}.url")


def _is_new_file(ledger: str) -> bool:
    return ledger.startswith("sqlite:") and not os.path.exists(ledger_path(ledger))
