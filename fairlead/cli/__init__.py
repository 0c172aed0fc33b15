"""The command line: one file per command, and COMMANDS is all of them, in the order in which `--help` shows them.

`main` is the console script `fairlead`. A command either starts a server (`up`, `serve`; they alone import
`fairlead.app`), talks to one through `fairlead.client`, or works on files beside one (`seal`). Heavy imports wait
inside the commands, so that help and completion are quick. A file that has several commands to say about one thing
(`fairlead seal rotate`) hands over a `typer.Typer` of its own, a group, in place of a function.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from fairlead.cli import key, kubeconfig, login, logout, runner, seal, serve, token, up, user, version, who_can, whoami

COMMANDS: tuple[tuple[str, Callable[..., None] | typer.Typer], ...] = (
    ("up", up.command),
    ("serve", serve.command),
    ("login", login.command),
    ("logout", logout.command),
    ("whoami", whoami.command),
    ("kubeconfig", kubeconfig.command),
    ("key", key.group),
    ("user", user.group),
    ("runner", runner.group),
    ("who-can", who_can.command),
    ("token", token.group),
    ("seal", seal.group),
    ("version", version.command),
)


def main() -> None:
    make_app()()


def make_app() -> typer.Typer:
    # Python's own tracebacks: the pretty ones may show values, and a value may be a secret.
    app = typer.Typer(name="fairlead", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(root)
    for name, command in COMMANDS:
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
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
