"""``check``, ``plan``, ``doctor``: what a configuration would do, before it runs."""

from __future__ import annotations

import json
import sys

import click

from ..errors import ConfigError
from ..runtime.compile_cache import watching_compilation
from .base import at_delta, guarded, load, main


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
    from ..service.checking import check_lines

    found = check_lines(load(config, source=source), lines)
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
    """Look at everything that CONFIG names, and say what to correct.

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
