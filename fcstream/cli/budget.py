"""Commands ``budget``: read a ledger, and end a stream of it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ..errors import ConfigError, FcstreamError
from ..runtime.words import many
from .base import guarded, ledger_path, ledger_readers, main, public, refuse_overwriting_ledger


@main.group()
def budget() -> None:
    """Look at a ledger, or end a stream of it."""


STREAM = click.option("--stream", metavar="NAME", help="Of a ledger of several streams; all of them by default.")


@budget.command()
@click.argument("ledger")
@STREAM
@click.option("--delta", type=float, help="The delta at which epsilons are reported.")
@click.option("--failure", type=float, help="Probability that the realized loss ever exceeds its bound; else delta.")
@click.option("--odometer", default="mixture", show_default=True, help="mixture or ladder.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--plot", "picture", metavar="FILE", help="Draw it too, as .svg or .png (needs the extra 'plot').")
@guarded
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

    Below them, of several streams: what somebody with records in all of them can lose.
    """
    from ..ledgers.groups import Together
    from ..reporting.budget import Report, standing, together_dict, together_rows
    from .terminal import console_of, print_reports

    reports, held = [], []
    with ledger_readers(ledger, stream) as streams:
        for reader in streams:
            reports.append(Report.of(reader, delta, failure, odometer))
            held.append(standing(reader))
    if stream is not None:
        with ledger_readers(ledger, None) as streams:
            held = [standing(reader) for reader in streams]
    together = Together.of(held)
    if picture is not None:
        from ..plots import plot as draw

        if len(reports) > 1:
            names = [repr(report.terms.stream) for report in reports]
            raise ConfigError(f"is required with --plot: the ledger holds {', '.join(names)}", "--stream")
        refuse_overwriting_ledger(ledger, picture, "--plot")
        draw(reports[0], picture)
        click.echo(f"wrote {picture}", err=True)
    if as_json:
        documents = [report.as_dict() | {"together": together_dict(together, delta)} for report in reports]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
        return
    below, console = together_rows(together, delta), console_of(sys.stdout)
    if console is not None:
        print_reports(console, reports, below)
        return
    blocks = [report.lines() for report in reports] + [list(map(str, below))]
    click.echo("\n\n".join("\n".join(lines) for lines in blocks if lines))


@budget.command()
@click.argument("ledger")
@STREAM
@guarded
def verify(ledger: str, stream: str | None) -> None:
    """Check a ledger against itself; exit 4 and the first bad row if it is damaged."""
    with ledger_readers(ledger, stream) as streams:
        rows = [reader.verify() for reader in streams]
    of = f" of {len(rows)} streams" if len(rows) != 1 else ""
    click.echo(f"{public(ledger)}: {many(sum(rows), 'journal row')}{of}, all in order")


@budget.command()
@click.argument("ledger")
@STREAM
@guarded
def releases(ledger: str, stream: str | None) -> None:
    """Print every release that was sealed, byte for byte as it was published; costs nothing."""
    with ledger_readers(ledger, stream) as streams:
        for reader in streams:
            for line in filter(None, reader.releases()):  # windows of an account have none
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
@click.option("--delta", type=float, help="The delta at which epsilons are reported.")
@click.option("--block", metavar="NAME", help="dp-accounting: instead of the most charged one, for instance total.")
@guarded
def export(ledger: str, stream: str | None, form: str, out: str, delta: float | None, block: str | None) -> None:
    """Write a ledger for other programs.

    json: its terms, its readings, and every row of its journal. dp-accounting: what the most charged block was charged,
    for Google's accountant to reprice; the file holds the lines of Python that do it.
    """
    from ..reporting.budget import Report, events_document, journal_document, to_json

    if out != "-":
        refuse_overwriting_ledger(ledger, out, "--out")
    with ledger_readers(ledger, stream) as streams:
        documents = [
            journal_document(reader, Report.of(reader, delta))
            if form == "json"
            else events_document(reader, delta, block)
            for reader in streams
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


@budget.command()
@click.argument("ledger")
@click.argument("stream")
@click.option("--yes", is_flag=True, help="Do not ask.")
@guarded
def retire(ledger: str, stream: str, yes: bool) -> None:
    """Give up what is left of a stream's budget, of all its keys, so that STREAM can start with another specification.

    The new one has a whole budget of its own, unless both are in one group: whoever has records in both can lose both
    together. The old rows stay in the ledger under another name. This cannot be undone.
    """
    from ..ledgers.retired_streams import retire as end
    from ..local.device.journal_reader import is_journal

    if is_journal(ledger_path(ledger)):
        raise ConfigError("must be an engine's ledger: a journal of devices has no streams", "LEDGER")
    with ledger_readers(ledger, None) as streams:
        found = [(line, reader.terms.group) for reader in streams if (line := _forfeited(reader, stream))]
    for line, _ in found:
        click.echo(line, err=True)
    if found:
        group = next((group for _, group in found if group is not None), None)
        rest = (
            "A new specification starts with a whole budget on top: whoever has records in both can lose the sum of "
            "both guarantees."
        )
        if group is not None:
            rest = (
                f"What they spent stays spent in group {group!r}: a new specification in it has what the group has "
                "left, one outside it a whole budget on top."
            )
        click.echo(f"Their guarantees stand for what they released. {rest}", err=True)
        if not yes:
            click.confirm(f"Retire stream {stream!r} for ever?", abort=True, err=True)
    for name in end(ledger, stream):
        click.echo(name)


def _forfeited(reader: Any, stream: str) -> str | None:
    """Describe what retiring a stream gives up in one of its ledger's streams; None if it is another stream."""
    terms = reader.terms
    if terms.root != stream or reader.is_retired:
        return None
    waiting = len(reader.unacknowledged())
    undelivered = f"; {waiting} sealed releases were not delivered and will not be" if waiting else ""
    return f"stream {terms.stream!r}: spent {reader.spent()} of {terms.capacity}, for ever{undelivered}"
