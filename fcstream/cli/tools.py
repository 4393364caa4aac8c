"""Commands ``plot``, ``score``, ``simulate`` and ``init``."""

from __future__ import annotations

import json

import click

from ..errors import ConfigError, FcstreamError
from .base import guarded, ledger_readers, main, read_lines, refuse_overwriting_ledger
from .terminal import say


@main.command("plot")
@click.argument("releases")
@click.option("--truth", metavar="FILE", help="JSON lines with window_open_ms and value: shown beside; NOT private.")
@click.option("--out", default="releases.svg", show_default=True, metavar="FILE", help="Ends in .svg or .png.")
@click.option("--stream", metavar="NAME", help="If RELEASES holds several: a stream, or that of one key.")
@click.option("--key", metavar="NAME", help="One key of several; all of them by default, a panel each.")
@click.option("--answer", metavar="NAME", help="One of several [[release]]; all of them by default.")
@guarded
def plot_command(
    releases: str, truth: str | None, out: str, stream: str | None, key: str | None, answer: str | None
) -> None:
    """Draw RELEASES over time: JSON lines (- for stdin, .gz too), or a ledger (sqlite:PATH, postgresql://...).

    Values with the uncertainty of their noise, refusals with their reasons; several keys or answers in one picture, of
    at most 24 panels. Features named as longitude and latitude make a map. Needs the extra 'plot'.
    """
    from ..plots import plot_all
    from ..reporting.series import read_all, read_truth

    if releases.partition(":")[0] in ("sqlite", "postgresql", "postgres"):
        refuse_overwriting_ledger(releases, out, "--out")
        lines, stream = _released(releases, stream)
        found = read_all(lines, stream, key, answer)
    else:
        found = read_all(read_lines(releases.removeprefix("jsonl:"), out), stream, key, answer)
    if truth is not None:
        if len(found) > 1:
            option = "--answer" if len({one.key for one in found}) == 1 else "--key"
            raise ConfigError("is required: true values belong to one key and one answer", option)
        found = [read_truth(read_lines(truth, out), found[0])]
        if not found[0].truth:
            say("warning: --truth holds no value for a window of these releases: look at its `window_open_ms`")
    plot_all(found, out)
    click.echo(f"wrote {out}", err=True)


def _released(ledger: str, stream: str | None) -> tuple[list[bytes], str | None]:
    """Read the releases of a stream of a ledger, of all its keys, or of all streams, and return which stream to draw.

    Those of retired streams, which have budgets of their own, are read only if they are named. They have the name that
    their stream had, so all that is read is drawn then.
    """
    lines: list[bytes] = []
    names: list[str] = []
    retired: list[str] = []
    wanted = stream
    with ledger_readers(ledger, None) as streams:
        for reader in streams:
            name = reader.terms.stream
            if reader.is_retired and stream != name:
                retired.append(name)
            elif stream is None or stream in (name, reader.terms.root):
                names.append(name)
                lines += reader.releases()
                wanted = None if reader.is_retired else stream
    if stream is None and retired and not lines:
        raise ConfigError(f"is required: all that was released is of {', '.join(map(repr, retired))}", "--stream")
    if stream is not None and not names:
        with ledger_readers(ledger, stream):  # says which streams there are
            pass
    return lines, wanted


@main.command()
@click.option("--devices", default=50, show_default=True, help="Devices in the fleet.")
@click.option("--start", default="2016-03-15T00:00:00Z", show_default=True, help="First moment, ISO 8601.")
@click.option("--duration", default="1d", show_default=True, help="Like 6h or 1d.")
@click.option("--interval", default="50s", show_default=True, help="Between two readings of a device.")
@click.option("--faults", default=0.004, show_default=True, help="Chance of each kind of fault per reading.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", default="-", show_default=True, type=click.Path(), help="File to write, - for stdout.")
@guarded
def simulate(devices: int, start: str, duration: str, interval: str, faults: float, seed: int, out: str) -> None:
    """Write telemetry of a fleet of room sensors as JSON lines, in order of arrival.

    Sensors drift, burst, get stuck and go wild; some records are late, duplicate or malformed.
    """
    import gzip

    from ..config import duration_ms
    from ..formats.batch import parse_iso8601
    from ..planning.simulation import SensorFleet

    try:
        start_ms = parse_iso8601(start)
    except (ValueError, OverflowError):
        raise ConfigError("must be ISO 8601", "--start", got=start) from None
    fleet = SensorFleet(
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


@main.command()
@click.argument("path", type=click.Path(), default="rooms.toml")
@click.option("--kind", default="mean", show_default=True, metavar="KIND", help="What is released, such as histogram.")
@click.option(
    "--source", default="jsonl", show_default=True, metavar="SCHEME", help="Where records come from, such as kafka."
)
@guarded
def init(path: str, kind: str, source: str) -> None:
    """Write a commented sample configuration to PATH (rooms.toml).

    There is one for every kind of release and every source. One for JSON lines runs on simulated telemetry.
    """
    from .templates import next_command, template

    text = template(kind, source, path)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is there already", remedy="remove it, or name another PATH") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}; next: {next_command(source, path)}", err=True)


@main.command()
@click.argument("real", type=click.Path())
@click.argument("synthetic", type=click.Path())
@click.option("--target", metavar="COLUMN", help="What a classifier learns to tell; by default the last column.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--plot", "picture", metavar="FILE", help="Draw two-way marginals against each other, .svg or .png.")
@guarded
def score(real: str, synthetic: str, target: str | None, as_json: bool, picture: str | None) -> None:
    """Say how near SYNTHETIC rows are to REAL ones: .csv, .jsonl or .parquet files.

    For the owner of the data: the figures are exact, so not private. Errors of marginals, distances of columns, and a
    classifier that learns from synthetic rows (needs the extra 'score').
    """
    from ..reporting.scoring import score as compare

    found = compare(real, synthetic, target)
    if picture is not None:
        from ..plots import plot_marginals

        plot_marginals(found, picture)
        click.echo(f"wrote {picture}", err=True)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()))
