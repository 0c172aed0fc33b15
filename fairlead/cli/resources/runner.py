"""`fairlead runner`: manages runners, which execute workspaces, and their access keys. `runner_process.py` has the
commands that run on the machine of a runner."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.resources import runner_delete
from fairlead.cli.resources.runner_process import doctor, install, start
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object, cell, drop_none
from fairlead.cli.ui.durations import age, format_duration, parse_duration
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, ObjectOutputFlag, OutputFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Output, print_data, print_note
from fairlead.cli.ui.resource_commands import (
    COMMON_DETAILS,
    NewObject,
    Resource,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, UsageError, open_session
from fairlead.client import ClientError
from fairlead.core.objects import Object, get_path, name_of


def _table_row(runner: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(runner),
        cell(runner, "status.phase"),
        cell(runner, "spec.endpoint"),
        "true" if get_path(runner, "spec.unusable") else "false",
        age(get_path(runner, "metadata.creationTimestamp"), now),
    )


RUNNERS = Resource(
    plural="runners",
    kind="Runner",
    noun="runner",
    columns=("NAME", "PHASE", "ENDPOINT", "UNUSABLE", "AGE"),
    row=_table_row,
    empty_message="no runners; create one with `fairlead runner create`",
    details=(
        *COMMON_DETAILS,
        ("owner", "spec.owner.user"),
        ("team", "spec.owner.team"),
        ("cluster", "spec.clusterRef.cluster"),
        ("namespace", "spec.clusterRef.namespace"),
        ("reason", "status.reason"),
        ("message", "status.message"),
    ),
)

NameArgument = Annotated[str, typer.Argument(help="Name of the runner.", autocompletion=complete_names(RUNNERS.plural))]

group = create_group("Create, list, show, delete and run runners, and print and rotate their keys.")
group.command("start")(start)
group.command("doctor")(doctor)
group.command("install")(install)


@dataclass(frozen=True, slots=True)
class RunnerCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the runner.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", help="Address for direct connections of clients.", metavar="HOST:PORT", show_default=False
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Connected cluster that the server deploys the runner into; for administrators.",
            metavar="NAME",
            show_default=False,
            autocompletion=complete_names("clusters"),
        ),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            help="Namespace in that cluster, for the runner and its workspaces.",
            metavar="NAME",
            show_default="fairlead-runner-NAME",
        ),
    ] = None
    unusable: Annotated[bool, typer.Option("--unusable", help="Schedule no workspaces to it yet.")] = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_command(group, RUNNERS, RunnerCreateOptions)
def build_runner(session: Session, options: RunnerCreateOptions) -> NewObject:
    """Create a runner. It becomes active when a runner process authenticates with its key."""
    if options.namespace and not options.cluster:
        raise UsageError("--namespace is in the cluster that --cluster names; add --cluster, or leave --namespace out")
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "endpoint": options.endpoint,
        "clusterRef": drop_none({"cluster": options.cluster, "namespace": options.namespace}) or None,
        "unusable": options.unusable or None,
    }
    if options.cluster:
        message = (
            f"created the runner {options.name}; the server deploys it into the cluster {options.cluster}: `fairlead "
            f"runner show {options.name}` says how far it is"
        )
    else:
        message = (
            f"created the runner {options.name}; `fairlead runner start {options.name}` runs it on this machine, with "
            f"this login; for another machine, `fairlead runner key {options.name}` prints its access key"
        )
    return NewObject(build_object(RUNNERS.kind, options.name, spec), message)


add_list_command(group, RUNNERS)
add_show_command(group, RUNNERS)
group.command("delete")(runner_delete.command)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the access key of a runner. It does not change until it is rotated."""
    with open_session(context) as session:
        print_key(session.client.get(RUNNERS.plural, name, "accesskey"), output)


@group.command("rotate-key")
def rotate_key(
    name: NameArgument,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            help="How long the old key stays valid, like 1h.",
            parser=parse_duration,
            metavar="TIME",
            show_default="revoked at once",
        ),
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Rotate the access key of a runner and print the new one.

    With `--overlap`, the runner has time to switch.
    """
    with open_session(context) as session:
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        with name_flags(session.client):
            rotated = session.client.invoke_action(RUNNERS.plural, name, "rotatekey", {"spec": spec})
        print_key(rotated, output)
        print_note(f"the old key stays valid for {format_duration(overlap)}" if overlap else "the old key is revoked")


def print_key(response: Object, output: Output) -> None:
    """Prints the key alone on stdout, or the whole response."""
    value = response.get("accessKey")
    if not isinstance(value, str) or not value:
        raise ClientError("the server did not return a key; is it a Fairlead server?")
    if output is Output.TABLE:
        print(value)
    else:
        print_data(response, output)
