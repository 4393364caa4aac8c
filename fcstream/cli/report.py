"""``report``: what a deployment promises and costs, as a document for people who never saw the program."""

from __future__ import annotations

import os
import time

import click

from ..errors import ConfigError, FcstreamError
from .base import guarded, ledger_path, ledger_readers, load, main, public, refuse_overwriting_ledger


@main.command()
@click.argument("config", type=click.Path())
@click.argument("ledger", required=False)
@click.option(
    "--format",
    "form",
    default="html",
    show_default=True,
    type=click.Choice(["html", "md", "registry"]),
    help="One HTML file with pictures, Markdown, or a record for the OpenDP Deployments Registry (YAML).",
)
@click.option("--out", default="-", show_default=True, metavar="FILE", help="File to write, - for stdout.")
@guarded
def report(config: str, ledger: str | None, form: str, out: str) -> None:
    """Say what CONFIG promises to the people in the data, and what it costs; with LEDGER also what was spent.

    For data protection officers and everybody else who asks: what is released, who is protected and how strongly, in
    words, epsilon (how far odds can move) and delta (the chance that this fails); mechanisms and their papers, settings
    and their origin, noise and bias, the hazards of NIST SP 800-226 one by one, what is not covered, hashes, proofs.

    No record is read, and nothing is spent. LEDGER (a path, sqlite:PATH, postgresql://...) may be in use. The HTML file
    loads nothing from elsewhere; print it for a PDF. It needs the extra 'plot'.
    """
    from ..config.conversion import read_toml
    from ..deployment.facts import collect, read_ledger
    from ..deployment.report import report_of

    job, spent = load(config), None
    if out != "-":
        _check_out(config, ledger, out)
    if ledger is not None:
        with ledger_readers(ledger, None) as streams:
            spent = read_ledger(job, public(ledger), streams)
    facts = collect(job, read_toml(config), int(time.time() * 1000), spent)
    if form == "registry":
        from ..deployment.registry_record import to_registry

        text = to_registry(facts)
    elif form == "md":
        from ..deployment.markdown import to_markdown

        text = to_markdown(report_of(facts))
    else:
        from ..deployment.html import to_html

        text = to_html(report_of(facts))
    if out == "-":
        click.echo(text, nl=False)
        return
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FcstreamError(f"{out} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {out}", err=True)


def _check_out(config: str, ledger: str | None, out: str) -> None:
    """Refuse to write over what is read."""
    if os.path.realpath(out) == os.path.realpath(config):
        raise ConfigError(f"must not be the configuration: {out}", "--out")
    from ..ledgers import is_shared

    if ledger is not None and not is_shared(ledger):
        refuse_overwriting_ledger(ledger_path(ledger), out, "--out")
