"""Commands ``clock``: what a person does after this machine's clock has jumped."""

from __future__ import annotations

import click

from .base import guarded, load, main


@main.group()
def clock() -> None:
    """Say that this machine's clock is right, after it has jumped."""


@clock.command()
@click.argument("config", type=click.Path())
@click.option("--yes", is_flag=True, help="Do not ask.")
@guarded
def accept(config: str, yes: bool) -> None:
    """Let the windows of CONFIG close by this machine's clock as it is now, which holds them open after a jump.

    Says first what will happen. A clock that is wrong is set right instead: then windows close again by themselves. The
    running service takes it within a second, one that is not running at its next start, unless the clock has changed
    again or the machine was started anew.
    """
    from ..service.clock_command import accept as write
    from ..service.clock_command import clock_state, consequences

    loaded = load(config)
    state = clock_state(loaded)
    for line in consequences(state, loaded):
        click.echo(line, err=True)
    if not yes:
        click.confirm("Is this time right?", abort=True, err=True)
    write(state)
    click.echo("accepted", err=True)
