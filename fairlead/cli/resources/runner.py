"""`fairlead runner`: what executes workspaces, and the keys that runners sign in with."""

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

group = typer.Typer(help="Make and list runners, and read and rotate their keys.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the runner.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", help="Where clients reach it directly.", metavar="HOST:PORT", show_default=False),
    ] = None
    unusable: Annotated[bool, typer.Option("--unusable", help="Schedule no workspaces to it yet.")] = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Make a runner. It comes to life when something signs in with its key."""
    with connected(asked.context) as session:
        made = session.client.create(RUNNERS, body(asked))
        told = f"made the runner {asked.name}; `fairlead runner key {asked.name}` prints the key that it signs in with"
        print_made(made, asked.output, told)


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
LISTING = Listing(RUNNERS, "Runner", COLUMNS, _row, "no runners; make one with `fairlead runner create`")


@group.command("list")
@takes(Shown)
def list_runners(shown: Shown) -> None:
    """List runners."""
    show_all(LISTING, shown)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the key that a runner signs in with. It is the same one each time, until it is rotated."""
    with connected(context) as session:
        print_key(session.client.get(RUNNERS, name, "accesskey"), output)


@group.command("rotate-key")
def rotate_key(
    name: NameArgument,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            help="How long the key before stays valid, like 1h.",
            parser=seconds,
            metavar="TIME",
            show_default="it ends at once",
        ),
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Give a runner another key, and print that.

    With [bold]--overlap[/bold], the runner has time to change over.
    """
    with connected(context) as session:
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        print_key(session.client.act(RUNNERS, name, "rotatekey", {"spec": spec}), output)
        note(f"the key before stays valid for {duration(overlap)}" if overlap else "the key before has ended")


def print_key(told: Object, output: Output) -> None:
    """The key alone on stdout, or in the whole answer."""
    value = told.get("accessKey")
    if not isinstance(value, str) or not value:
        raise ClientError("the server answered without a key; is it a Fairlead server?")
    if output is Output.TABLE:
        print(value)
    else:
        print_data(told, output)
