"""The command: ``fcstream run | plan | doctor | budget | plot | score | simulate | init | local``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial, wraps
from importlib import resources
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .errors import BudgetExhausted, ConfigError, FcstreamError, SourceError

if TYPE_CHECKING:
    from .config import Config
    from .ledgers import Books
    from .records import Rejection
    from .runner import Summary


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors as one line on standard error, with the exit codes of `fcstream.errors`."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except FcstreamError as error:
            message, code = str(error), error.exit_code
        except KeyboardInterrupt:
            message, code = "interrupted; what was sealed is in the ledger", 130
        except BrokenPipeError:
            # The reader went away; keep the interpreter from complaining when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            message, code = "standard output was closed by its reader", 1
        except OSError as error:
            message, code = f"the system refused: {error.strerror or type(error).__name__}", 1
        except MemoryError:
            message, code = "out of memory: use shorter windows or a shorter schedule", 1
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            # The text of an unexpected error could quote a record: only its kind is told.
            message, code = f"internal error ({type(error).__name__}); run again with --traceback for the place", 1
            if click.get_current_context().find_root().params.get("traceback"):
                raise
        if click.get_current_context().find_root().params.get("traceback"):
            import traceback

            traceback.print_exc()
        click.echo(f"fcstream: {message}", err=True)
        sys.exit(code)

    return wrapper


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fcstream")
@click.option("--traceback", is_flag=True, help="Show where an error comes from (it may quote data).")
def main(traceback: bool) -> None:
    """Differentially private averages and counts of streams, per window, with a ledger of what was spent.

    Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 budget exhausted, 4 ledger damaged.
    """


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
@_guarded
def run(
    configs: Sequence[str],
    source: str | None,
    sink: str | None,
    ledger: str | None,
    dead_letter: str | None,
    runner: str,
    master: str | None,
) -> None:
    """Release every window of the schedule in CONFIG, once and for ever.

    A window that was answered by an earlier run is not charged and not drawn again. With a broker as its source it
    stays up until SIGTERM or SIGINT; SIGHUP reads CONFIG again. Several such configurations are served beside each
    other.
    """
    from .connectors import is_live, open_dead_letter, open_sink, open_source
    from .keyed import open_engine
    from .runner import run as run_job

    def load(path: str) -> Config:
        return _load(path, source=source, sink=sink, ledger=ledger, dead_letter=dead_letter)

    jobs = [load(path) for path in configs]
    for job in jobs:
        if job.source is None or job.sink is None:
            missing = "source" if job.source is None else "sink"
            raise ConfigError(f"is required, in the file or as --{missing}", f"{missing}.url")
    live = [job.source is not None and is_live(job.source.url) for job in jobs]
    if master is not None and runner != "spark":
        raise ConfigError("belongs to --runner spark", "--master")
    if all(live):
        from .service import Served, serve

        streams = [Served(job, partial(load, path)) for job, path in zip(jobs, configs, strict=True)]
        if runner == "spark":
            from .spark.service import serve_on_spark

            serve_on_spark(streams, master)
        else:
            serve(streams)
        return
    if len(jobs) > 1:
        raise ConfigError("must be a broker's when several configurations are given: files end", "source.url")
    job = jobs[0]
    assert job.source is not None
    assert job.sink is not None
    _tell_doubts(job)
    _keep_apart(job)
    if job.window.clock != "eof":
        raise ConfigError(f"must be 'eof' for files and pipes, got {job.window.clock!r}", "window.clock")
    is_new = job.ledger is not None and _is_new_file(job.ledger.url)
    if runner == "spark":
        from .spark.files import run_files

        _tell(job, run_files(job, master), is_new)
        return
    with ExitStack() as stack:
        rejections: list[Callable[[Sequence[Rejection]], object]] = []
        # The ledger first: without it nothing is read, and a file that another run writes is not touched.
        engine = open_engine(job, on_rejection=lambda found: [write(found) for write in rejections])
        stack.callback(engine.abort)
        reader = open_source(job.source.url, engine.job.schema)
        stack.callback(reader.close)
        writer = open_sink(job.sink.url)
        stack.callback(writer.close)
        if job.dead_letter:
            letters = open_dead_letter(job.dead_letter.url)
            stack.callback(letters.close)
            rejections.append(letters.write)
        summary = run_job(engine, reader, writer)
    _tell(job, summary, is_new)


def _tell(job: Config, summary: Summary, is_new: bool) -> None:
    """What a run has done, and exit code 3 if the budget is exhausted."""
    if is_new and job.ledger:
        click.echo(f"made a new ledger: {job.ledger.url}", err=True)
    for line in summary.lines():
        click.echo(line, err=True)
    if summary.rejected and not job.dead_letter:
        click.echo("to see why records were rejected, add [dead_letter] or --dead-letter", err=True)
    if summary.refused.get("budget_exhausted"):
        click.echo("fcstream: some windows were refused: the budget is exhausted", err=True)
        sys.exit(BudgetExhausted.exit_code)


@main.command()
@click.argument("config", type=click.Path())
@click.option("--delta", type=float, help="At which epsilons are told.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_guarded
def plan(config: str, delta: float | None, as_json: bool) -> None:
    """Say what CONFIG will give and cost. No data are read.

    Refuses (exit 2) a configuration that would release with a probability below 1%.
    """
    from .planning import plan as forecast

    job = _load(config)
    found = forecast(job, _at_delta(delta, job.budget.delta))
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()))


@main.command()
@click.argument("config", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_guarded
def doctor(config: str, as_json: bool) -> None:
    """Look at everything that CONFIG names, and say what to mend.

    Connections, permissions, clocks, folders, the ledger and its budget. Nothing is read, written, committed or spent,
    and a service that runs is not disturbed. Exit code 2 if there is a problem.
    """
    from .doctor import examine

    findings = examine(lambda: _load(config))
    if as_json:
        names = ("check", "level", "what", "remedy")
        click.echo(json.dumps([{name: getattr(found, name) for name in names} for found in findings], indent=2))
    else:
        for found in findings:
            click.echo(str(found))
    if any(found.level == "problem" for found in findings):
        sys.exit(ConfigError.exit_code)


@main.group()
def budget() -> None:
    """Look at a ledger."""


_STREAM = click.option("--stream", metavar="NAME", help="Of a ledger of several streams; all of them by default.")


@budget.command()
@click.argument("ledger")
@_STREAM
@click.option("--delta", type=float, help="At which epsilons are told.")
@click.option("--failure", type=float, help="Probability that the realized loss ever exceeds its bound; else delta.")
@click.option("--odometer", default="mixture", show_default=True, help="mixture or ladder.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--plot", "picture", metavar="FILE", help="Draw it too, as .svg or .png (needs fcstream[plot]).")
@_guarded
def show(
    ledger: str,
    stream: str | None,
    delta: float | None,
    failure: float | None,
    odometer: str,
    as_json: bool,
    picture: str | None,
) -> None:
    """Print the guarantee, what is spent, and what remains, also while it is in use.

    LEDGER is an engine's, an analyst's who asks devices, or a journal of devices (--stream is one of them then).

    Three readings that are never mixed: `guarantee`, the cap, for ever; `spent`, sums that are no guarantee;
    `realized_loss_bound`, what the loss so far exceeds with a small probability only.
    """
    from .reports import Report

    with _shelf(ledger, stream) as shelf:
        reports = [Report.of(books, delta, failure, odometer) for books in shelf]
    if picture is not None:
        from .plots import plot as draw

        if len(reports) > 1:
            names = [repr(report.terms.stream) for report in reports]
            raise ConfigError(f"is required with --plot: the ledger holds {', '.join(names)}", "--stream")
        _spare(ledger, picture, "--plot")
        draw(reports[0], picture)
    if as_json:
        told = [report.as_dict() for report in reports]
        click.echo(json.dumps(told[0] if len(told) == 1 else told, indent=2))
    else:
        click.echo("\n\n".join("\n".join(report.lines()) for report in reports))


@budget.command()
@click.argument("ledger")
@_STREAM
@_guarded
def verify(ledger: str, stream: str | None) -> None:
    """Check a ledger against itself; exit 4 and the first bad row if it is damaged."""
    with _shelf(ledger, stream) as shelf:
        rows = [books.verify() for books in shelf]
    of = f" of {len(rows)} streams" if len(rows) != 1 else ""
    click.echo(f"{_public(ledger)}: {sum(rows)} journal rows{of}, all in order")


@budget.command()
@click.argument("ledger")
@_STREAM
@_guarded
def releases(ledger: str, stream: str | None) -> None:
    """Print every release that was sealed, byte for byte as it was published; costs nothing."""
    with _shelf(ledger, stream) as shelf:
        for books in shelf:
            for line in books.releases():
                click.echo(line)


@budget.command()
@click.argument("ledger")
@click.option("--stream", metavar="NAME", help="Of a ledger of several streams.")
@click.option(
    "--format",
    "form",
    default="json",
    show_default=True,
    type=click.Choice(["json", "dp-accounting"]),
    help="See above.",
)
@click.option("--out", default="-", show_default=True, metavar="FILE", help="File to write, - for stdout.")
@click.option("--delta", type=float, help="At which epsilons are told.")
@click.option("--block", metavar="NAME", help="dp-accounting: instead of the most charged one, for instance total.")
@_guarded
def export(ledger: str, stream: str | None, form: str, out: str, delta: float | None, block: str | None) -> None:
    """Write a ledger for other programs.

    json: its terms, its readings, and every row of its journal. dp-accounting: what the most charged block was charged,
    for Google's accountant to reprice; the file holds the lines of Python that do it.
    """
    from .reports import Report, events_document, journal_document, to_json

    if out != "-":
        _spare(ledger, out, "--out")
    with _shelf(ledger, stream) as shelf:
        documents = [
            journal_document(books, Report.of(books, delta)) if form == "json" else events_document(books, delta, block)
            for books in shelf
        ]
    if len(documents) > 1:
        names = [repr(document["stream"]) for document in documents]
        raise ConfigError(f"is required: the ledger holds {', '.join(names)}", "--stream")
    document = documents[0]
    text = to_json(document)
    if out == "-":
        click.echo(text)
        return
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise FcstreamError(f"{out} cannot be written: {error.strerror}") from None


@main.command("plot")
@click.argument("releases")
@click.option("--truth", metavar="FILE", help="JSON lines with window_open_ms and value: shown beside; NOT private.")
@click.option("--out", default="releases.svg", show_default=True, metavar="FILE", help="Ends in .svg or .png.")
@click.option("--stream", metavar="NAME", help="If RELEASES holds several.")
@_guarded
def plot_command(releases: str, truth: str | None, out: str, stream: str | None) -> None:
    """Draw RELEASES over time: JSON lines (- for stdin, .gz too), or a ledger (sqlite:PATH, postgresql://...).

    Values with the uncertainty of their noise, refusals with their reasons. Needs fcstream[plot].
    """
    from .plots import plot_releases
    from .series import read_series, read_truth

    if releases.partition(":")[0] in ("sqlite", "postgresql", "postgres"):
        _spare(releases, out, "--out")
        with _shelf(releases, stream) as shelf:
            series = read_series([line for books in shelf for line in books.releases()], stream)
    else:
        series = read_series(_lines(releases.removeprefix("jsonl:"), out), stream)
    if truth is not None:
        series = read_truth(_lines(truth, out), series)
    plot_releases(series, out)
    click.echo(f"wrote {out}", err=True)


@main.command()
@click.option("--devices", default=50, show_default=True, help="Devices in the fleet.")
@click.option("--start", default="2016-03-15T00:00:00Z", show_default=True, help="First moment, ISO 8601.")
@click.option("--duration", default="1d", show_default=True, help="Like 6h or 1d.")
@click.option("--interval", default="50s", show_default=True, help="Between two readings of a device.")
@click.option("--faults", default=0.004, show_default=True, help="Chance of each kind of fault per reading.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", default="-", show_default=True, type=click.Path(), help="File to write, - for stdout.")
@_guarded
def simulate(devices: int, start: str, duration: str, interval: str, faults: float, seed: int, out: str) -> None:
    """Write telemetry of a fleet of room sensors as JSON lines, in order of arrival.

    Sensors drift, burst, get stuck and go wild; some records are late, duplicate or malformed.
    """
    import gzip

    from .config import duration_ms
    from .records import parse_iso8601
    from .simulate import Fleet

    try:
        start_ms = parse_iso8601(start)
    except (ValueError, OverflowError):
        raise ConfigError(f"must be ISO 8601, got {start!r}", "--start") from None
    fleet = Fleet(
        devices, start_ms, duration_ms(duration, "--duration"), duration_ms(interval, "--interval"), seed, faults
    )
    try:
        with gzip.open(out, "wt") if out.endswith(".gz") else click.open_file(out, "w", encoding="utf-8") as file:
            for line in fleet.lines():
                file.write(line + "\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FcstreamError(f"{out} cannot be written: {error.strerror}") from None


@main.group()
def local() -> None:
    """Devices that hold their own budget, and the analyst who asks them."""


@local.command()
@click.argument("config", type=click.Path())
@_guarded
def device(config: str) -> None:
    """Answer for the devices of CONFIG until SIGTERM: over MQTT or HTTP, each within its own budget."""
    from .local.settings import Settings, serve

    serve(Settings.load(config), lambda line: click.echo(line, err=True))


@local.command()
@click.argument("config", type=click.Path())
@_guarded
def query(config: str) -> None:
    """Ask the devices the query of CONFIG, or the next one of its series, and print the answer as JSON.

    Run again under the same name after a crash: devices that answered say the same again and charge nothing. With
    [ledger] the query is kept on record: see `fcstream budget show`.
    """
    from .local.settings import Settings, ask

    ask(Settings.load(config), lambda record: click.echo(json.dumps(record)))


@local.command("simulate")
@click.argument("config", type=click.Path())
@click.option("--devices", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@_guarded
def local_simulate(config: str, devices: int, seed: int) -> None:
    """Ask made-up devices the query of CONFIG; the truth is told beside the answer."""
    from .local.settings import Settings, simulate

    click.echo(json.dumps(simulate(Settings.load(config), devices, seed)))


@local.command("plan")
@click.argument("config", type=click.Path())
@click.option("--devices", default=10_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_guarded
def local_plan(config: str, devices: int, as_json: bool) -> None:
    """Say what the query of CONFIG can be expected to give and to save. No device is asked."""
    from .local.settings import Settings, plan

    found = plan(Settings.load(config), devices)
    click.echo(json.dumps(found.as_dict()) if as_json else "\n".join(found.lines()))


@main.command()
@click.argument("path", type=click.Path(), default="rooms.toml")
@_guarded
def init(path: str) -> None:
    """Write a commented sample configuration to PATH (rooms.toml), to run on simulated telemetry."""
    sample = resources.files("fcstream").joinpath("sample.toml").read_text(encoding="utf-8")
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(sample)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: remove it, or name another PATH") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}; next: fcstream simulate --out telemetry.jsonl && fcstream run {path}", err=True)


@main.command()
@click.argument("real", type=click.Path())
@click.argument("synthetic", type=click.Path())
@click.option("--target", metavar="COLUMN", help="What a classifier learns to tell; by default the last column.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--plot", "picture", metavar="FILE", help="Draw two-way marginals against each other, .svg or .png.")
@_guarded
def score(real: str, synthetic: str, target: str | None, as_json: bool, picture: str | None) -> None:
    """Say how near SYNTHETIC rows are to REAL ones: .csv, .jsonl or .parquet files.

    For the owner of the data: the figures are exact, so not private. Errors of marginals, distances of columns, and a
    classifier that learns from synthetic rows (needs fcstream[score]).
    """
    from .scoring import score as compare

    found = compare(real, synthetic, target)
    if picture is not None:
        from .plots import plot_marginals

        plot_marginals(found, picture)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()))


def _load(path: str, **urls: str | None) -> Config:
    """A configuration with URLs from the command line on top."""
    import msgspec

    from .config import Config, SourceSection, UrlSection

    config = Config.load(path)
    changes: dict[str, Any] = {}
    for name, url in urls.items():
        if url is not None:
            fresh = SourceSection(url=url) if name == "source" else UrlSection(url=url)
            found = getattr(config, name)
            changes[name] = fresh if found is None else msgspec.structs.replace(found, url=url)
    return msgspec.structs.replace(config, **changes)


def _tell_doubts(config: Config) -> None:
    from .planning import doubts

    for text in doubts(config):
        click.echo(f"warning: {text}", err=True)


def _keep_apart(config: Config) -> None:
    """Refuse one file in two roles: a sink on the ledger would destroy it."""
    from .connectors.urls import mask

    roles: dict[str, str] = {}
    for role in ("source", "sink", "ledger", "dead_letter"):
        section = getattr(config, role)
        place = section.url.partition(":")[2] if section else ""
        if place and place != "-":
            for name in (place, f"{place}-wal") if role == "ledger" else (place,):
                other = roles.setdefault(os.path.realpath(name), role)
                if other != role:
                    raise ConfigError(f"must not be the file of `{other}`: {mask(section.url)}", f"{role}.url")


def _at_delta(delta: float | None, spent: float) -> float:
    """At which delta epsilons are told."""
    if delta is None:
        return max(1e-6, 2 * spent)
    if not 0 < delta < 1:
        raise ConfigError(f"must be in (0, 1), got {delta}", "--delta")
    return delta


@contextmanager
def _shelf(ledger: str, stream: str | None) -> Iterator[Iterator[Books]]:
    """The streams of a ledger to look at; nothing is changed, whoever holds it. No copy stays behind if this process is
    terminated."""
    from .ledgers import each_book, open_books
    from .local.books import DeviceBooks, is_journal

    if is_journal(_ledger_path(ledger)):
        yield iter([DeviceBooks(_ledger_path(ledger), stream)])
        return
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)) if is_main else None
    try:
        with ExitStack() as stack:
            if stream is None:
                shelf = each_book(ledger)
                yield stack.enter_context(closing(shelf))
            else:
                yield iter([stack.enter_context(closing(open_books(ledger, stream)))])
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def _public(ledger: str) -> str:
    """A ledger's place without secrets."""
    if "://" not in ledger:
        return _ledger_path(ledger)
    from .ledgers.sessions import Address

    return Address.of(ledger).place(None)


def _lines(path: str, out: str) -> list[bytes]:
    """A file of lines, which the picture must not replace."""
    import gzip
    import zlib

    if path == "-":
        return sys.stdin.buffer.readlines()
    if os.path.realpath(path) == os.path.realpath(out):
        raise ConfigError(f"must not be the file that is read: {out}", "--out")
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            return file.readlines()
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}") from None


def _is_new_file(ledger: str) -> bool:
    return ledger.startswith("sqlite:") and not os.path.exists(_ledger_path(ledger))


def _spare(ledger: str, out: str, place: str) -> None:
    """Refuse to write over a ledger."""
    path = _ledger_path(ledger)
    taken = {os.path.realpath(path + part) for part in ("", "-wal")}
    if os.path.realpath(out) in taken or os.path.realpath(out).startswith(os.path.realpath(f"{path}-witness")):
        raise ConfigError(f"must not be a file of the ledger: {out}", place)


def _ledger_path(text: str) -> str:
    """``sqlite:PATH`` or a bare path."""
    return text.removeprefix("sqlite:")
