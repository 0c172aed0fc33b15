"""The command line: one file per command, and COMMANDS is all of them, in the order in which `--help` shows them.

`main` is the console script `fairlead`. A command either starts a server (`up`, `serve` and `agent`), talks to one
through `fairlead.client`, or works on files and stores beside one (`seal`, `backup`, `restore`, `store`). Few import
`fairlead.app`; a contract names them. Heavy imports wait inside the commands, so that help and completion are quick.
A file that has several commands to say about one thing (`fairlead seal rotate`) hands over a `typer.Typer` of its own,
a group, in place of a function.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from fairlead.cli import (
    agent,
    app,
    backup,
    cluster,
    context,
    export,
    key,
    kubeconfig,
    login,
    logout,
    project,
    restore,
    runner,
    seal,
    serve,
    space,
    store,
    team,
    token,
    up,
    user,
    vcluster,
    version,
    who_can,
    whoami,
    workspace,
)

COMMANDS: tuple[tuple[str, Callable[..., None] | typer.Typer], ...] = (
    ("up", up.command),
    ("serve", serve.command),
    ("agent", agent.command),
    ("login", login.command),
    ("logout", logout.command),
    ("whoami", whoami.command),
    ("context", context.group),
    ("kubeconfig", kubeconfig.command),
    ("cluster", cluster.group),
    ("project", project.group),
    ("workspace", workspace.group),
    ("vcluster", vcluster.group),
    ("space", space.group),
    ("app", app.group),
    ("key", key.group),
    ("user", user.group),
    ("team", team.group),
    ("runner", runner.group),
    ("who-can", who_can.command),
    ("token", token.group),
    ("seal", seal.group),
    ("backup", backup.group),
    ("restore", restore.command),
    ("store", store.group),
    ("export", export.group),
    ("version", version.command),
)


def main() -> None:
    make_app()()


def make_app() -> typer.Typer:
    # Python's own tracebacks: the pretty ones may show values, and a value may be a secret.
    made = typer.Typer(name="fairlead", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    made.callback()(root)
    for name, command in COMMANDS:
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    return made


def root(
    version_only: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=version.show_and_exit, is_eager=True),
    ] = False,
) -> None:
    """A Kubernetes-style management API for clusters, projects, workspaces and apps, in one process.

    Start with [bold]fairlead up[/bold]; it prints what to type next.
    """
