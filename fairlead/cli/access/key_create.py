"""`fairlead key create`: a key for a person or a machine, cut down to what it is needed for."""

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
SCOPE_PANEL = "Scope: without any of these, the key has all the rights of its owner"


def _scope_flag(flag: str, help: str, metavar: str) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(
        flag, help=help, metavar=metavar, rich_help_panel=SCOPE_PANEL, show_default=False
    )
    return made


@dataclass(frozen=True, slots=True)
class Scoped:
    project: Annotated[
        list[str] | None, _scope_flag("--project", "A project and all in it; * for all. Repeatable.", "P")
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
        typer.Option("--allow-cli", help="Also what command-line tools need to read.", rich_help_panel=SCOPE_PANEL),
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
            "--ttl", help="Life of the key, like 30d.", parser=seconds, metavar="TIME", show_default="for ever"
        ),
    ] = None
    ttl_after_activity: Annotated[
        bool, typer.Option("--ttl-after-activity", help="Count that life from the last use.")
    ] = False
    disabled: Annotated[bool, typer.Option("--disabled", help="Make a key that does not work yet.")] = False


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str | None, typer.Option("--name", help="Name of the key.", show_default="a new one")] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    user: Annotated[str | None, typer.Option("--user", help="Whose key it is.", show_default="you")] = None
    team: Annotated[
        str | None, typer.Option("--team", help="A team whose key it is, instead of a user.", show_default=False)
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
    """Make an access key and print its value, once.

    The value goes to stdout and everything else to stderr: [bold]KEY=$(fairlead key create --ttl 12h)[/bold]
    """
    with connected(asked.context) as session:
        try:
            made = session.client.create(KEYS, body(asked))
        except ApiProblem as problem:
            raise ClientError(f"{problem}{_advice(problem, asked)}") from None
        print_value(made, asked.output)


def _advice(problem: ApiProblem, asked: Asked) -> str:
    """The server speaks of fields; here they are flags, and lines of a file."""
    if TTL_FIELD in problem.message:
        return f"; {TTL_FIELD} is --ttl here, like `--ttl 12h`"
    if asked.scoped.scope_file and "spec.scope" in problem.message:
        return f"; spec.scope is what {asked.scoped.scope_file} holds"
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
    """The value of a new key: alone on stdout, or in the whole object."""
    value = dig(made, "spec.key")
    if not isinstance(value, str) or not value:
        raise ClientError(f"the server made {name_of(made)} and kept its value to itself; rotate it to get another one")
    if output is Output.TABLE:
        print(value)
    else:
        print_data(made, output)
    note(f"this is the value of the key {name_of(made)}; it is shown this once only")
