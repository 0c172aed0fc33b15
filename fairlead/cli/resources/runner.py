"""`fairlead runner`: manages runners, which execute workspaces, and their access keys.

`runner_process.py` has the commands that run on the machine of a runner. Without its key, the process of a runner can
remove nothing any more. So `delete` fails while there are workspaces on the runner, and lists them; `--abandon` leaves
what the runner has of them on its machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.resources.runner_process import doctor, install, start
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import age_cell, build_object, cell, drop_none
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, format_duration
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    NoWaitFlag,
    ObjectOutputFlag,
    OutputFlag,
    TimeoutFlag,
    YesFlag,
    flag,
    options_from,
    overlap_flag,
)
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Output, print_data, print_note
from fairlead.cli.ui.resource_commands import (
    COMMON_DETAILS,
    NewObject,
    Resource,
    abandon,
    add_list_command,
    add_show_command,
    create_command,
    describe_nothing,
    list_dependents,
    print_dependents,
    refuse_deletion,
)
from fairlead.cli.ui.session import Session, UsageError, exit_with_error, open_session, project_namespace_prefix
from fairlead.cli.ui.wait import VerboseFlag, abandoned_messages, object_ref, wait_deleted
from fairlead.client import Client, ClientError
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.workspaces import runner_status


def _table_row(runner: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(runner),
        cell(runner, "status.phase"),
        runner_status(runner) or "-",
        cell(runner, "spec.endpoint"),
        "true" if get_path(runner, "spec.unusable") else "false",
        age_cell(runner, now),
    )


WORKSPACES = "devpodworkspaceinstances"

RUNNERS = Resource(
    plural="runners",
    kind="Runner",
    noun="runner",
    columns=("NAME", "PHASE", "STATUS", "ENDPOINT", "UNUSABLE", "AGE"),
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
        str | None, flag("--endpoint", help="Address for direct connections of clients.", metavar="HOST:PORT")
    ] = None
    cluster: Annotated[
        str | None,
        flag(
            "--cluster",
            help="Connected cluster that the server deploys the runner into; for administrators.",
            metavar="NAME",
            complete="clusters",
        ),
    ] = None
    namespace: Annotated[
        str | None,
        flag(
            "--namespace",
            help="Namespace in that cluster, for the runner and its workspaces.",
            metavar="NAME",
            default="fairlead-runner-NAME",
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


@dataclass(frozen=True, slots=True)
class RunnerDeleteOptions:
    name: NameArgument
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave containers, networks and files of its workspaces on its machine."),
    ] = False
    yes: YesFlag = False
    no_wait: NoWaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None


@group.command("delete")
@options_from(RunnerDeleteOptions)
def delete(options: RunnerDeleteOptions) -> None:
    """Delete a runner and its access key.

    Fails while there are workspaces on it: delete them first, or leave what it has of them on its machine with
    --abandon.
    """
    with open_session(options.context) as session:
        client, name = session.client, options.name
        runner = client.get(RUNNERS.plural, name)
        workspaces = _list_workspaces(client, name)
        if workspaces and not options.abandon:
            raise refuse_deletion(
                f"on the runner {name}",
                "workspace",
                workspaces,
                "delete them first, with `fairlead workspace delete`, so that the runner removes what it has of them; "
                "or leave that on its machine with --abandon",
            )
        if workspaces:
            print_note("these workspaces lose their runner, and their containers, networks and files stay on it:")
            print_dependents(workspaces)
        if not options.yes:
            prompts.confirm(f"Delete the runner {name} and its access key?")
        if options.abandon:
            abandon(client, RUNNERS.plural, name)
        client.delete(RUNNERS.plural, name)
        last: Object = {}
        if not options.no_wait:
            ref = object_ref(client, RUNNERS.plural, runner)
            last = wait_deleted(client, ref, describe_nothing, options.timeout)
        if not options.abandon and (left := abandoned_messages(last)):
            raise exit_with_error(f"the runner {name} is deleted, but not what it has deployed: {'; '.join(left)}")
        print_note(f"the runner {name} is {'being ' if options.no_wait else ''}deleted")
        if workspaces:
            print_note(
                "what it has of these workspaces goes on running there; a new runner of that name, started on the same "
                "machine, goes on with those that still exist and removes the others"
            )


def _list_workspaces(client: Client, runner: str) -> list[str]:
    """Those on the runner that the user may list, with their states. The server knows all, and refuses as well."""
    found = list_dependents(client, WORKSPACES, f"spec.runnerRef.runner={runner}")
    prefix = project_namespace_prefix(client) if found else ""
    return [
        f"workspace {name_of(each)} of the project {str(get_path(each, 'metadata.namespace')).removeprefix(prefix)}: "
        f"{get_path(each, 'status.lastWorkspaceStatus') or 'never started'}"
        for each in found
    ]


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the access key of a runner. It does not change until it is rotated."""
    with open_session(context) as session:
        print_key(session.client.get(RUNNERS.plural, name, "accesskey"), output)


@group.command("rotate-key")
def rotate_key(
    name: NameArgument,
    overlap: Annotated[int | None, overlap_flag("How long the old key stays valid, like 1h.")] = None,
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
