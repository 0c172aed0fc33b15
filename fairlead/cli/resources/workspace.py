"""`fairlead workspace`: lists, shows, creates and deletes the developer workspaces of projects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources.instance import (
    DEFAULT_TIMEOUT,
    ParameterFlag,
    TimeoutFlag,
    WaitFlag,
    create_instance_command,
    encode_parameters,
    instance_resource,
    parse_template_ref,
)
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object
from fairlead.cli.ui.flags import ContextFlag, DisplayNameFlag, NamedOutputFlag, RequiredProjectFlag
from fairlead.cli.ui.output import NamedOutput
from fairlead.cli.ui.resource_commands import Deletion, add_delete_command, add_list_command, add_show_command
from fairlead.core.objects import Object, get_path

WORKSPACES = instance_resource(
    "devpodworkspaceinstances",
    "DevPodWorkspaceInstance",
    "workspace",
    "no workspaces; create one with `fairlead workspace create`",
    ("RUNNER", "spec.runnerRef.runner"),
)

group = typer.Typer(help="List, show, create and delete workspaces.", no_args_is_help=True)


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
    timeout: TimeoutFlag = DEFAULT_TIMEOUT
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@create_instance_command(group, WORKSPACES, WorkspaceCreateOptions)
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
    group, WORKSPACES, Deletion("Delete a workspace with its data.", question="", describe_wait=_describe_wait)
)
