"""The command line. `main` is the console script `fairlead`; `COMMANDS` maps each command to its function or group.

- `server`: commands that start a server (`up`, `serve`, `agent`), and `version`
- `access`: login and contexts, access keys, tokens, users, teams, permissions
- `resources`: clusters, projects, instances, apps, runners, kubeconfigs
- `storage`: backup, restore, copy, export and encryption keys; they work on files and stores, not on a server
- `ui`: shared flags, output, prompts, sessions, waiting

For a fast start (help, completion, exec credentials for kubectl), only the requested command is imported, and commands
import heavy modules inside their functions. Only a few may import `fairlead.app`; an import contract lists them.
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
    ("who-can", "fairlead.cli.access.permissions:who_can"),
    ("token", "fairlead.cli.access.token:group"),
    ("encryption-key", "fairlead.cli.storage.encryption_keys:group"),
    ("backup", "fairlead.cli.storage.backup:backup_group"),
    ("restore", "fairlead.cli.storage.backup:restore"),
    ("store", "fairlead.cli.storage.backup:store_group"),
    ("export", "fairlead.cli.storage.export:group"),
    ("demo", "fairlead.cli.resources.demo:command"),
    ("version", "fairlead.cli.server.version:command"),
)
"""Command names in the order of `--help`, with `module:attribute` of a function or a `typer.Typer` group."""
FORMER_NAMES = {"seal": "encryption-key"}
"""Former names of commands, with the current ones. They work, but are hidden in `--help`."""


def main() -> None:
    make_app(requested_command(sys.argv[1:], os.environ))()


def requested_command(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The command name on the command line, or None if there is none or it is unknown.

    During completion, the shell passes the command line in an environment variable that depends on the shell.
    """
    words = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS") or ""
    line = words.split()[1:] if "_FAIRLEAD_COMPLETE" in environ else arguments
    return line[0] if line and (line[0] in dict(COMMANDS) or line[0] in FORMER_NAMES) else None


def make_app(only: str | None = None) -> typer.Typer:
    """Builds the Typer application with all commands, or with only one of them."""
    # No pretty exceptions: they print the values of locals, which may be secrets.
    app = typer.Typer(name="fairlead", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(root)
    targets = dict(COMMANDS)
    for name in (*targets, *FORMER_NAMES):
        if only not in (None, name):
            continue
        module, _, attribute = targets[FORMER_NAMES.get(name, name)].partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, hidden=name in FORMER_NAMES)
        else:
            app.command(name, hidden=name in FORMER_NAMES)(command)
    return app


def root(
    version_only: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=version.show_and_exit, is_eager=True),
    ] = False,
) -> None:
    """A Kubernetes-style management API for clusters, projects, workspaces and apps, in one process.

    Start with [bold]fairlead up[/bold]; it prints the next commands.
    """
