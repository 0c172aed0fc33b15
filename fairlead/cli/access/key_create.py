"""`fairlead key create`: creates an access key, optionally restricted by a scope."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.access.scope_flags import scope_of
from fairlead.cli.ui.describe import filled
from fairlead.cli.ui.durations import seconds
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, OutputFlag, takes
from fairlead.cli.ui.output import Output, note, print_data
from fairlead.cli.ui.session import connected
from fairlead.client import ApiProblem, ClientError
from fairlead.core.objects import Object, dig, name_of

KEYS = "ownedaccesskeys"
TTL_FIELD = "spec.ttl"
SCOPE_PANEL = "Scope: without any of these, the key has all permissions of its owner"


def _scope_flag(flag: str, help: str, metavar: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        flag, help=help, metavar=metavar, rich_help_panel=SCOPE_PANEL, show_default=False
    )
    return option


@dataclass(frozen=True, slots=True)
class Scoped:
    project: Annotated[
        list[str] | None, _scope_flag("--project", "A project with all its objects; * for all. Repeatable.", "P")
    ] = None
    space: Annotated[list[str] | None, _scope_flag("--space", "A space of a project. Repeatable.", "P/S")] = None
    virtual_cluster: Annotated[
        list[str] | None, _scope_flag("--virtual-cluster", "A virtual cluster of a project. Repeatable.", "P/V")
    ] = None
    cluster: Annotated[
        list[str] | None, _scope_flag("--cluster", "A connected cluster; * for all. Repeatable.", "C")
    ] = None
    allow_cli: Annotated[
        bool,
        typer.Option("--allow-cli", help="Also the read requests of command-line tools.", rich_help_panel=SCOPE_PANEL),
    ] = False
    scope_file: Annotated[
        Path | None, _scope_flag("--scope-file", "YAML or JSON file with the whole scope.", "FILE")
    ] = None

    def scope(self) -> Object | None:
        entries: dict[str, Sequence[str]] = {
            "projects": self.project or (),
            "spaces": self.space or (),
            "virtualClusters": self.virtual_cluster or (),
            "clusters": self.cluster or (),
        }
        return scope_of(entries, self.allow_cli, self.scope_file)


@dataclass(frozen=True, slots=True)
class Lasting:
    ttl: Annotated[
        int | None,
        typer.Option(
            "--ttl", help="Lifetime of the key, like 30d.", parser=seconds, metavar="TIME", show_default="no expiry"
        ),
    ] = None
    ttl_after_activity: Annotated[
        bool, typer.Option("--ttl-after-activity", help="Count the lifetime from the last use.")
    ] = False
    disabled: Annotated[bool, typer.Option("--disabled", help="Create the key disabled.")] = False


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str | None, typer.Option("--name", help="Name of the key.", show_default="generated")] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    user: Annotated[str | None, typer.Option("--user", help="Owner of the key.", show_default="you")] = None
    team: Annotated[
        str | None, typer.Option("--team", help="Team that owns the key, instead of a user.", show_default=False)
    ] = None
    type: Annotated[
        str | None, typer.Option("--type", help="User, Login or Other.", metavar="TYPE", show_default="User")
    ] = None
    lasting: Lasting = Lasting()
    scoped: Scoped = Scoped()
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(Asked)
def command(asked: Asked) -> None:
    """Create an access key and print its value. The value is shown only once.

    The value goes to stdout and everything else to stderr: [bold]KEY=$(fairlead key create --ttl 12h)[/bold]
    """
    with connected(asked.context) as session:
        try:
            created = session.client.create(KEYS, body(asked))
        except ApiProblem as problem:
            raise ClientError(f"{problem}{_advice(problem, asked)}") from None
        print_value(created, asked.output)


def _advice(problem: ApiProblem, asked: Asked) -> str:
    """Maps the fields in the server's message to the flags of this command."""
    if TTL_FIELD in problem.message:
        return f"; set {TTL_FIELD} with --ttl, like `--ttl 12h`"
    if asked.scoped.scope_file and "spec.scope" in problem.message:
        return f"; spec.scope is the content of {asked.scoped.scope_file}"
    return ""


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "description": asked.description,
        "user": asked.user,
        "team": asked.team,
        "type": asked.type,
        "ttl": asked.lasting.ttl,
        "ttlAfterLastActivity": asked.lasting.ttl_after_activity or None,
        "disabled": asked.lasting.disabled or None,
        "scope": asked.scoped.scope(),
    }
    return {
        "kind": "OwnedAccessKey",
        "metadata": {"name": asked.name} if asked.name else {"generateName": "key-"},
        "spec": filled(spec),
    }


def print_value(made: Object, output: Output) -> None:
    """Prints the value of a new key: alone on stdout, or with the whole object."""
    value = dig(made, "spec.key")
    if not isinstance(value, str) or not value:
        raise ClientError(f"the server created {name_of(made)} but did not return its value; rotate it to get one")
    if output is Output.TABLE:
        print(value)
    else:
        print_data(made, output)
    note(f"this is the value of the key {name_of(made)}; it is shown only once")
