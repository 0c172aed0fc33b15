"""`fairlead runner`: manages runners, which execute workspaces, and their access keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, print_made, text
from fairlead.cli.ui.durations import duration, seconds, since
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, NamedOutputFlag, OutputFlag, takes
from fairlead.cli.ui.list import Listing, Shown, show_all
from fairlead.cli.ui.output import NamedOutput, Output, note, print_data
from fairlead.cli.ui.session import connected
from fairlead.client import ClientError
from fairlead.core.objects import Object, dig, name_of

RUNNERS = "runners"

NameArgument = Annotated[str, typer.Argument(help="Name of the runner.", autocompletion=names_of(RUNNERS))]

group = typer.Typer(help="Create and list runners, and print and rotate their keys.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the runner.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", help="Address for direct connections of clients.", metavar="HOST:PORT", show_default=False
        ),
    ] = None
    unusable: Annotated[bool, typer.Option("--unusable", help="Schedule no workspaces to it yet.")] = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a runner. It becomes active when a runner process authenticates with its key."""
    with connected(asked.context) as session:
        created = session.client.create(RUNNERS, body(asked))
        message = f"created the runner {asked.name}; `fairlead runner key {asked.name}` prints its access key"
        print_made(created, asked.output, message)


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "description": asked.description,
        "endpoint": asked.endpoint,
        "unusable": asked.unusable or None,
    }
    return body_of("Runner", asked.name, spec)


def _row(runner: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(runner),
        text(runner, "status.phase"),
        text(runner, "spec.endpoint"),
        "true" if dig(runner, "spec.unusable") else "false",
        since(dig(runner, "metadata.creationTimestamp"), now),
    )


COLUMNS = ("NAME", "PHASE", "ENDPOINT", "UNUSABLE", "AGE")
LISTING = Listing(RUNNERS, "Runner", COLUMNS, _row, "no runners; create one with `fairlead runner create`")


@group.command("list")
@takes(Shown)
def list_runners(shown: Shown) -> None:
    """List runners."""
    show_all(LISTING, shown)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the access key of a runner. It does not change until it is rotated."""
    with connected(context) as session:
        print_key(session.client.get(RUNNERS, name, "accesskey"), output)


@group.command("rotate-key")
def rotate_key(
    name: NameArgument,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            help="How long the old key stays valid, like 1h.",
            parser=seconds,
            metavar="TIME",
            show_default="revoked at once",
        ),
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Rotate the access key of a runner and print the new one.

    With [bold]--overlap[/bold], the runner has time to switch.
    """
    with connected(context) as session:
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        print_key(session.client.act(RUNNERS, name, "rotatekey", {"spec": spec}), output)
        note(f"the old key stays valid for {duration(overlap)}" if overlap else "the old key is revoked")


def print_key(told: Object, output: Output) -> None:
    """Prints the key alone on stdout, or the whole response."""
    value = told.get("accessKey")
    if not isinstance(value, str) or not value:
        raise ClientError("the server did not return a key; is it a Fairlead server?")
    if output is Output.TABLE:
        print(value)
    else:
        print_data(told, output)
