"""``local``: devices that hold their own budget, and the analyst who asks them."""

from __future__ import annotations

import json

import click

from .base import guarded, main


@main.group()
def local() -> None:
    """Devices that hold their own budget, and the analyst who asks them."""


@local.command()
@click.argument("config", type=click.Path())
@guarded
def device(config: str) -> None:
    """Answer for the devices of CONFIG until SIGTERM: over MQTT or HTTP, each within its own budget."""
    from ..local.commands import serve
    from ..local.settings import Settings

    serve(Settings.load(config), lambda line: click.echo(line, err=True))


@local.command()
@click.argument("config", type=click.Path())
@guarded
def query(config: str) -> None:
    """Ask the devices the query of CONFIG, or the next one of its series, and print the answer as JSON.

    After a crash, run it again under the same name: devices repeat their replies and charge nothing. With [ledger] the
    query is recorded, and `fcstream budget show` reads the record.
    """
    from ..local.commands import ask
    from ..local.settings import Settings

    ask(Settings.load(config), lambda record: click.echo(json.dumps(record)))


@local.command("simulate")
@click.argument("config", type=click.Path())
@click.option("--devices", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@guarded
def local_simulate(config: str, devices: int, seed: int) -> None:
    """Ask made-up devices the query of CONFIG; the true answer is printed too."""
    from ..local.commands import simulate
    from ..local.settings import Settings

    click.echo(json.dumps(simulate(Settings.load(config), devices, seed)))


@local.command("plan")
@click.argument("config", type=click.Path())
@click.option("--devices", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@guarded
def local_plan(config: str, devices: int, as_json: bool) -> None:
    """Say how precise the query of CONFIG can be expected to be, and what it saves. No device is asked."""
    from ..local.commands import plan
    from ..local.settings import Settings

    found = plan(Settings.load(config), devices)
    click.echo(json.dumps(found.as_dict()) if as_json else "\n".join(found.lines()))
