"""`fairlead backup`: everything that a store holds, as one file. A server may run meanwhile; none is asked.

`fairlead backup FILE` is short for `fairlead backup create FILE`.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead.cli.server.setting_flags import config_option, option
from fairlead.core.crypto.key_file import FILE_NAME, VARIABLE
from fairlead.core.files import FileProblem
from fairlead.settings import Settings, StartError, load

# DOC-MERGED cli/moving_words
# What `backup`, `restore` and `store` have in common: which store is meant, and how they tell what they did.


Config = Annotated[str | None, config_option()]
Data = Annotated[str | None, option("data")]
Store = Annotated[str | None, option("store")]
Force = Annotated[bool, typer.Option("--force", help="Replace all that the store holds. Stop its servers first.")]

PEPPER_FILE = "pepper.key"
PEPPER_VARIABLE = "FAIRLEAD_PEPPER"


def settings_of(config: str | None, data: str | None, store: str | None) -> Settings:
    """As a server on this machine would read them."""
    return load({"config": config, "data": data, "store": store}, os.environ)


@contextmanager
def problems() -> Iterator[None]:
    """Around all that a command does. What the stores log meanwhile goes to stderr: stdout may be a backup's."""
    from fairlead.core.log import set_up_logging

    set_up_logging("warning", "console")
    try:
        yield
    except (StartError, FileProblem) as error:
        for line in str(error).splitlines():
            typer.echo(f"fairlead: {line}", err=True)
        raise typer.Exit(1) from None


def plural(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def needs(seal_keys: Sequence[str]) -> str:
    """The secrets without which what is in a backup is worth little."""
    sealed = f"{FILE_NAME} with {', '.join(seal_keys)}" if seal_keys else FILE_NAME
    return f"{sealed}, and {PEPPER_FILE} (or the variables {VARIABLE} and {PEPPER_VARIABLE})"


class Group(TyperGroup):
    """What is no command's name is a file's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["create", *args]
        return super().parse_args(ctx, args)


backup_group = typer.Typer(
    cls=Group, no_args_is_help=True, help="Write everything that the store holds into a file, or check such a file."
)


@backup_group.command("create")
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
    from fairlead.app import maintenance

    with problems():
        if file == maintenance.PIPE and sys.stdout.isatty():
            typer.echo("fairlead: a backup is no text; send it into a file or a program", err=True)
            raise typer.Exit(1)
        made = asyncio.run(maintenance.back_up(settings_of(config, data, store).store_url, file, force=force))
    where = "standard output" if file == maintenance.PIPE else file
    typer.echo(
        f"{where}: {plural(made.count)} at revision {made.header.revision}, {made.bytes:,} bytes, "
        f"digest {made.digest}\nKeep apart from it: {needs(made.seal_keys)}",
        err=file == maintenance.PIPE,
    )


@backup_group.command("verify")
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for the standard input.")],
) -> None:
    """Read a backup from beginning to end and see that nothing is damaged or missing. Needs no store and no key."""
    from fairlead.app import maintenance

    with problems():
        found = maintenance.verified(file)
    typer.echo(
        f"{file}: sound; {plural(found.count)} of a {found.header.store} store at revision {found.header.revision}, "
        f"taken {found.header.made}, digest {found.digest}\nTo be used it needs {needs(found.seal_keys)}"
    )


# DOC-MERGED cli/restore
# `fairlead restore`: what `fairlead backup` has written, into a store that is empty. Its servers are not running.


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for the standard input.")],
    config: Config = None,
    data: Data = None,
    store: Store = None,
    force: Force = False,
) -> None:
    """Write what a backup holds into an empty store.

    Objects keep their uids. Their resourceVersions become larger than any that a client can have seen, so that clients
    that come back list again. Access keys stay valid with the same pepper, and credentials open with the same keys.
    """
    from fairlead.app import maintenance
    from fairlead.core.files import private_folder

    with problems():
        settings = settings_of(config, data, store)
        if not settings.store:
            private_folder(settings.data)
        moved = asyncio.run(maintenance.restore(file, settings.store_url, force=force))
    typer.echo(
        f"{plural(moved.filled.count)} of revision {moved.revision} restored; the store is at revision "
        f"{moved.filled.revision} now\nBefore a server starts on it, its data folder needs {needs(moved.seal_keys)}"
    )


# DOC-MERGED cli/store
# `fairlead store copy`: from one store to another, of whichever sorts. No server runs on either.


store_group = typer.Typer(no_args_is_help=True, help="Move what a store holds to another one.")


@store_group.callback()
def root() -> None:
    """Move what a store holds to another one."""


@store_group.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read: sqlite:PATH, postgres://...")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to fill, which is empty.")],
    force: Force = False,
) -> None:
    """Write everything that one store holds into another one, as a backup and a restore would.

    Stop the servers first: what they write afterwards would be missing, so a source that is in use is refused.
    """
    from fairlead.app import maintenance

    with problems():
        moved = asyncio.run(maintenance.copy(source, target, force=force))
    typer.echo(
        f"{plural(moved.filled.count)} of revision {moved.revision} copied; the store is at revision "
        f"{moved.filled.revision} now\nBefore a server starts on it, its data folder needs {needs(())}"
    )
