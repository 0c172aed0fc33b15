"""`fairlead backup`: everything that a store holds, as one file. A server may run meanwhile; none is asked.

`fairlead backup FILE` is short for `fairlead backup create FILE`.
"""

import asyncio
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead.cli.moving_words import Config, Data, Store, needs, plural, problems, settings_of


class Group(TyperGroup):
    """What is no command's name is a file's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["create", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    cls=Group, no_args_is_help=True, help="Write everything that the store holds into a file, or check such a file."
)


@group.command("create")
def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write it; - for the standard output.")],
    config: Config = None,
    data: Data = None,
    store: Store = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Write everything that the store holds into a file: [bold]fairlead backup FILE[/bold].

    Servers may go on working. The file shows one moment of the store. What is sealed in there stays sealed.
    """
    from fairlead.app import moving

    with problems():
        if file == moving.PIPE and sys.stdout.isatty():
            typer.echo("fairlead: a backup is no text; send it into a file or a program", err=True)
            raise typer.Exit(1)
        made = asyncio.run(moving.back_up(settings_of(config, data, store).store_url, file, force=force))
    where = "standard output" if file == moving.PIPE else file
    typer.echo(
        f"{where}: {plural(made.count)} at revision {made.header.revision}, {made.bytes:,} bytes, "
        f"digest {made.digest}\nKeep apart from it: {needs(made.seal_keys)}",
        err=file == moving.PIPE,
    )


@group.command("verify")
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for the standard input.")],
) -> None:
    """Read a backup from beginning to end and see that nothing is damaged or missing. Needs no store and no key."""
    from fairlead.app import moving

    with problems():
        found = moving.verified(file)
    typer.echo(
        f"{file}: sound; {plural(found.count)} of a {found.header.store} store at revision {found.header.revision}, "
        f"taken {found.header.made}, digest {found.digest}\nTo be used it needs {needs(found.seal_keys)}"
    )
