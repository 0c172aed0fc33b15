"""The command line: one file per command, and COMMANDS is all of them, in the order in which `--help` shows them.

`main` is the console script `fairlead`. A command either starts a server (`up`, `serve` and `agent`), talks to one
through `fairlead.client`, or works on files and stores beside one (`seal`, `backup`, `restore`, `store`). Few import
`fairlead.app`; a contract names them. COMMANDS says where each is found, and only the one that was typed is imported;
what is heavy waits inside the commands, besides. So help, completion and the credential that kubectl asks for are
quick. A file that has several commands to say about one thing (`fairlead seal rotate`) hands over a `typer.Typer` of
its own, a group, in place of a function.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer

from fairlead.cli.server import version

COMMANDS: tuple[tuple[str, str], ...] = (
    ("up", "fairlead.cli.server.up:command"),
    ("serve", "fairlead.cli.server.serve:command"),
    ("agent", "fairlead.cli.server.agent:command"),
    ("login", "fairlead.cli.access.login:command"),
    ("logout", "fairlead.cli.access.logout:command"),
    ("whoami", "fairlead.cli.access.whoami:command"),
    ("context", "fairlead.cli.access.context:group"),
    ("kubeconfig", "fairlead.cli.resources.kubeconfig:command"),
    ("cluster", "fairlead.cli.resources.cluster:group"),
    ("project", "fairlead.cli.resources.project:group"),
    ("workspace", "fairlead.cli.resources.workspace:group"),
    ("vcluster", "fairlead.cli.resources.vcluster:group"),
    ("space", "fairlead.cli.resources.space:group"),
    ("app", "fairlead.cli.resources.app:group"),
    ("key", "fairlead.cli.access.key:group"),
    ("user", "fairlead.cli.access.user:group"),
    ("team", "fairlead.cli.access.team:group"),
    ("runner", "fairlead.cli.resources.runner:group"),
    ("who-can", "fairlead.cli.access.permissions:command"),
    ("token", "fairlead.cli.access.token:group"),
    ("seal", "fairlead.cli.storage.encryption_keys:group"),
    ("backup", "fairlead.cli.storage.backup:group"),
    ("restore", "fairlead.cli.storage.backup:command"),
    ("store", "fairlead.cli.storage.backup:group"),
    ("export", "fairlead.cli.storage.export:group"),
    ("version", "fairlead.cli.server.version:command"),
)
"""What is typed, and the module and the name in it that it stands for."""


def main() -> None:
    make_app(typed(sys.argv[1:], os.environ))()


def typed(arguments: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """The command that a command line begins with, None if any may be meant.

    A shell that completes hands over what was typed so far in a variable, which one depends on the shell.
    """
    words = variables.get("COMP_WORDS") or variables.get("_TYPER_COMPLETE_ARGS") or ""
    given = words.split()[1:] if "_FAIRLEAD_COMPLETE" in variables else arguments
    return given[0] if given and given[0] in dict(COMMANDS) else None


def make_app(only: str | None = None) -> typer.Typer:
    """With all commands, or with the one that is going to be called."""
    # Python's own tracebacks: the pretty ones may show values, and a value may be a secret.
    made = typer.Typer(name="fairlead", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    made.callback()(root)
    for name, place in COMMANDS:
        if only not in (None, name):
            continue
        module, _, found = place.partition(":")
        command = getattr(import_module(module), found)
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
