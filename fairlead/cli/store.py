"""`fairlead store copy`: from one store to another, of whichever sorts. No server runs on either."""

import asyncio
from typing import Annotated

import typer

from fairlead.cli.moving_words import Force, needs, plural, problems

group = typer.Typer(no_args_is_help=True, help="Move what a store holds to another one.")


@group.callback()
def root() -> None:
    """Move what a store holds to another one."""


@group.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read: sqlite:PATH, postgres://...")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to fill, which is empty.")],
    force: Force = False,
) -> None:
    """Write everything that one store holds into another one, as a backup and a restore would.

    Stop the servers first: what they write afterwards would be missing, so a source that is in use is refused.
    """
    from fairlead.app import moving

    with problems():
        moved = asyncio.run(moving.copy(source, target, force=force))
    typer.echo(
        f"{plural(moved.filled.count)} of revision {moved.revision} copied; the store is at revision "
        f"{moved.filled.revision} now\nBefore a server starts on it, its data folder needs {needs(())}"
    )
