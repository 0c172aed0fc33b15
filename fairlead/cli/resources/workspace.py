"""`fairlead workspace`: lists, shows, creates and deletes the developer workspaces of projects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources.instance import (
    ParameterFlag,
    WaitFlag,
    create_instance_command,
    encode_parameters,
    instance_resource,
    parse_template_ref,
)
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.flags import ContextFlag, DisplayNameFlag, ObjectOutputFlag, RequiredProjectFlag, TimeoutFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE
from fairlead.cli.ui.resource_commands import Deletion, add_delete_command, add_list_command, add_show_command
from fairlead.cli.ui.session import Session
from fairlead.client import ApiStatusError
from fairlead.core.objects import Object, get_path

WORKSPACES = instance_resource(
    "devpodworkspaceinstances",
    "DevPodWorkspaceInstance",
    "workspace",
    "no workspaces; create one with `fairlead workspace create`",
    ("RUNNER", "spec.runnerRef.runner"),
)

group = create_group("List, show, create and delete workspaces.")


add_list_command(group, WORKSPACES)
add_show_command(group, WORKSPACES)


@dataclass(frozen=True, slots=True)
class WorkspaceCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the workspace.")]
    project: RequiredProjectFlag
    template: Annotated[
        str,
        typer.Option(
            "--template",
            help="Template of the workspace; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            autocompletion=complete_names("devpodworkspacetemplates"),
        ),
    ]
    parameter: ParameterFlag = None
    runner: Annotated[
        str | None,
        typer.Option(
            "--runner",
            help="Runner to run it on.",
            metavar="R",
            show_default="chosen by the server",
            autocompletion=complete_names("runners"),
        ),
    ] = None
    display_name: DisplayNameFlag = None
    wait: WaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


def find_missing_runner(session: Session, workspace: Object) -> str:
    """Why nothing will run a workspace: there is no runner. Empty if there is one, or the user may not list them."""
    try:
        if get_path(workspace, "spec.runnerRef.runner") or any(session.client.list("runners")):
            return ""
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return ""
    return (
        "there is no runner, so nothing will happen to it; create one with `fairlead runner create`, and start it with "
        "its key (`fairlead runner key`)"
    )


@create_instance_command(group, WORKSPACES, WorkspaceCreateOptions, find_obstacle=find_missing_runner)
def build_workspace(options: WorkspaceCreateOptions) -> Object:
    """Create a workspace from a template."""
    spec = {
        "displayName": options.display_name,
        "templateRef": parse_template_ref(options.template),
        "parameters": encode_parameters(options.parameter or ()),
        "runnerRef": {"runner": options.runner} if options.runner else None,
    }
    return build_object(WORKSPACES.kind, options.name, spec)


def _describe_wait(workspace: Object) -> str:
    runner = get_path(workspace, "spec.runnerRef.runner")
    return f"waiting for the runner {runner} to delete it" if runner else ""


add_delete_command(
    group,
    WORKSPACES,
    Deletion(
        "Delete a workspace with its data.",
        question="Delete the workspace {name} with its data?",
        describe_wait=_describe_wait,
    ),
)
