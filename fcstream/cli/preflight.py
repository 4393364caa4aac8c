"""``check``, ``plan``, ``rehearse``, ``doctor``, ``warm``: what a configuration would do and needs, before it runs."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError, FcstreamError
from ..runtime.compile_cache import watching_compilation
from .base import at_delta, ending_like_an_interrupt, guarded, load, main

if TYPE_CHECKING:
    from ..config import Config


@main.command()
@click.argument("config", type=click.Path())
@click.option("--source", metavar="URL", help="Instead of [source] url: jsonl:PATH or csv:PATH, .gz too, - for stdin.")
@click.option("--lines", type=click.IntRange(min=1), default=1000, show_default=True, help="How many to look at.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def check(config: str, source: str | None, lines: int, as_json: bool) -> None:
    """Say how many of the first lines of a file CONFIG can use, and why it cannot use others.

    Nothing is charged, released or written. The counts are exact: they are for whoever may see the records. Exit code 2
    if there are lines and none of them can be used; a file without records is 0.
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
@click.option(
    "--public",
    metavar="FILE",
    help="Public records: .csv, .jsonl (both also .gz), .parquet, .arrow, or SCHEME:PATH. Left out: made-up ones.",
)
@click.option("--output", metavar="FOLDER", help="Write table.json, table.txt, picture.svg and picture.png there.")
@click.option("--runs", default=10, show_default=True, help="How many seeds, at least 2.")
@click.option("--seed", default=1, show_default=True, help="The first one; those after it follow.")
@click.option("--windows", default=24, show_default=True, help="Most windows, from the first one of the data on.")
@click.option("--no-curves", is_flag=True, help="Only the configuration as it is: rho, length and radius stay.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def rehearse(
    config: str,
    public: str | None,
    output: str | None,
    runs: int,
    seed: int,
    windows: int,
    no_curves: bool,
    as_json: bool,
) -> None:
    """Say how far releases of CONFIG lie from the truth, on PUBLIC or made-up records. The answer is NOT private.

    Runs CONFIG in memory with several seeds. Noise, bias and refusals are told apart, and again with rho, the windows'
    length and the radius times 1/4 to 4. The ledger, the source and the sink of CONFIG are not touched; nothing is
    spent. Use records that may be published, never those that you protect. Pictures need the extra 'plot'.
    """
    from ..connectors.urls import mask
    from ..planning.records import read_records
    from ..planning.rehearsal import RehearsalPlan
    from ..planning.rehearsal import rehearse as run_rehearsal
    from ..service.batch import ProgressLine

    plan, loaded, progress = RehearsalPlan(runs, seed, windows, not no_curves), load(config), ProgressLine()
    if output is not None:
        _check_folder(output, config, loaded)
    records = None if public is None else read_records(loaded, public)
    with ending_like_an_interrupt(), watching_compilation(progress.compiling):
        found = run_rehearsal(
            loaded, records, "" if public is None else mask(public), plan, lambda text, part: progress.show(text, part)
        )
    progress.clear()
    table, text = json.dumps(found.as_dict(), indent=2), "\n".join(found.lines())
    if output is not None:
        from ..plots.rehearsal import plot_rehearsal

        try:
            os.makedirs(output, exist_ok=True)
            for name, content in (("table.json", table), ("table.txt", text)):
                with open(os.path.join(output, name), "w", encoding="utf-8") as file:
                    file.write(f"{content}\n")
        except OSError as error:
            raise FcstreamError(f"{output} cannot be written: {error.strerror}") from None
        for name in _PICTURES:
            plot_rehearsal(found, os.path.join(output, name))
        click.echo(f"wrote {output}", err=True)
    click.echo(table if as_json else text)


_PICTURES = ("picture.svg", "picture.png")


def _check_folder(output: str, config: str, loaded: Config) -> None:
    """Refuse to write over the configuration, or over a file that it names."""
    urls = [getattr(loaded, name) for name in ("source", "sink", "ledger", "dead_letter")]
    named = [config, *(section.url.partition(":")[2] for section in urls if section is not None)]
    for name in ("table.json", "table.txt", *_PICTURES):
        path = os.path.realpath(os.path.join(output, name))
        if path in map(os.path.realpath, named):
            raise ConfigError(f"must not be a folder with a file that the configuration names: {name}", "--output")


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


@main.command()
@click.argument("configs", metavar="[CONFIG]...", nargs=-1, type=click.Path())
@guarded
def warm(configs: tuple[str, ...]) -> None:
    """Compile what the streams of CONFIG need, or all streams without one, so that their first windows need not wait.

    Nothing is read, charged or written but the compiled code, which is kept beside the package, in the user's cache
    folder or in NUMBA_CACHE_DIR, for one kind of processor. For images, and before a service starts.
    """
    from ..planning.warmup import warm_up
    from ..service.batch import ProgressLine

    kinds = {options.kind for path in configs for options in load(path).releases}
    progress = ProgressLine()
    with watching_compilation(progress.compiling):
        warm_up(*sorted(kinds))
    progress.clear()
