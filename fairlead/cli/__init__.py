"""The command line: one file per command, and COMMANDS is all of them, in the order in which `--help` shows them.

`main` is the console script `fairlead`. A command either starts a server (`up`, `serve`; they alone import
`fairlead.app`) or talks to one through `fairlead.client`. Heavy imports wait inside the commands, so that help and
completion are quick.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from fairlead.cli import serve, up, version

COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("up", up.command),
    ("serve", serve.command),
    ("version", version.command),
)


def main() -> None:
    make_app()()


def make_app() -> typer.Typer:
    # Python's own tracebacks: the pretty ones may show values, and a value may be a secret.
    app = typer.Typer(name="fairlead", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(root)
    for name, command in COMMANDS:
        app.command(name)(command)
    return app


def root(
    version_only: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=version.show_and_exit, is_eager=True),
    ] = False,
) -> None:
    """A Kubernetes-style management API for clusters, projects, workspaces and apps, in one process.

    Start with [bold]fairlead up[/bold]; it prints what to type next.
    """
