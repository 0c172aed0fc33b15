"""`fairlead workspace`: lists, creates and deletes the developer workspaces of projects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources import instance
from fairlead.cli.resources.instance import (
    DEFAULT_TIMEOUT,
    InstanceType,
    ParameterFlag,
    TimeoutFlag,
    WaitFlag,
    WaitOptions,
    create_instance,
    encode_parameters,
    parse_template_ref,
    print_instances,
)
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object
from fairlead.cli.ui.flags import (
    ContextFlag,
    DisplayNameFlag,
    NamedOutputFlag,
    NoWaitFlag,
    RequiredProjectFlag,
    options_from,
)
from fairlead.cli.ui.output import NamedOutput, print_note
from fairlead.cli.ui.session import open_session, project_namespace
from fairlead.cli.ui.wait import object_ref, wait_deleted
from fairlead.core.objects import Object, get_path

PLURAL = "devpodworkspaceinstances"
WORKSPACES = InstanceType(
    PLURAL,
    "DevPodWorkspaceInstance",
    ("RUNNER", "spec.runnerRef.runner"),
    "no workspaces; create one with `fairlead workspace create`",
    "workspace",
)

group = typer.Typer(help="List, create and delete workspaces.", no_args_is_help=True)


@group.command("list")
@options_from(instance.InstanceListOptions)
def list_workspaces(options: instance.InstanceListOptions) -> None:
    """List workspaces."""
    print_instances(WORKSPACES, options)


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


@group.command("create")
@options_from(WorkspaceCreateOptions)
def create(options: WorkspaceCreateOptions) -> None:
    """Create a workspace from a template."""
    with open_session(options.context) as session:
        create_instance(
            session,
            WORKSPACES,
            build_body(options),
            options.project,
            WaitOptions(options.wait, options.timeout, options.output),
        )


def build_body(options: WorkspaceCreateOptions) -> Object:
    spec = {
        "displayName": options.display_name,
        "templateRef": parse_template_ref(options.template),
        "parameters": encode_parameters(options.parameter or ()),
        "runnerRef": {"runner": options.runner} if options.runner else None,
    }
    return build_object("DevPodWorkspaceInstance", options.name, spec)


@group.command("delete")
def delete(
    name: Annotated[
        str, typer.Argument(help="Name of the workspace.", autocompletion=complete_names(PLURAL, project="project"))
    ],
    project: RequiredProjectFlag,
    no_wait: NoWaitFlag = False,
    context: ContextFlag = None,
) -> None:
    """Delete a workspace with its data."""
    with open_session(context) as session:
        namespace = project_namespace(session, project)
        found = session.client.get(PLURAL, name, namespace=namespace)
        session.client.delete(PLURAL, name, namespace=namespace)
        if no_wait:
            print_note(f"the workspace {name} is being deleted")
            return
        wait_deleted(session.client, object_ref(PLURAL, found), _describe_wait)
        print_note(f"the workspace {name} is deleted")


def _describe_wait(workspace: Object) -> str:
    runner = get_path(workspace, "spec.runnerRef.runner")
    return f"waiting for the runner {runner} to delete it" if runner else ""
