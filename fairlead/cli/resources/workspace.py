"""`fairlead workspace`: lists, creates and deletes the developer workspaces of projects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources import instance
from fairlead.cli.resources.instance import (
    TIMEOUT,
    Ending,
    ParameterFlag,
    Sort,
    TimeoutFlag,
    WaitFlag,
    make_instance,
    parameters,
    show_instances,
    template_ref,
)
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of
from fairlead.cli.ui.flags import ContextFlag, DisplayNameFlag, InProjectFlag, NamedOutputFlag, NoWaitFlag, takes
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import connected, namespace_of
from fairlead.cli.ui.wait import awaited, until_gone
from fairlead.core.objects import Object, dig

PLURAL = "devpodworkspaceinstances"
WORKSPACES = Sort(
    PLURAL,
    "DevPodWorkspaceInstance",
    ("RUNNER", "spec.runnerRef.runner"),
    "no workspaces; create one with `fairlead workspace create`",
    "workspace",
)

group = typer.Typer(help="List, create and delete workspaces.", no_args_is_help=True)


@group.command("list")
@takes(instance.Asked)
def list_workspaces(asked: instance.Asked) -> None:
    """List workspaces."""
    show_instances(WORKSPACES, asked)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the workspace.")]
    project: InProjectFlag
    template: Annotated[
        str,
        typer.Option(
            "--template",
            help="Template of the workspace; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            autocompletion=names_of("devpodworkspacetemplates"),
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
            autocompletion=names_of("runners"),
        ),
    ] = None
    display_name: DisplayNameFlag = None
    wait: WaitFlag = False
    timeout: TimeoutFlag = TIMEOUT
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a workspace from a template."""
    with connected(asked.context) as session:
        make_instance(session, WORKSPACES, body(asked), asked.project, Ending(asked.wait, asked.timeout, asked.output))


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "templateRef": template_ref(asked.template),
        "parameters": parameters(asked.parameter or ()),
        "runnerRef": {"runner": asked.runner} if asked.runner else None,
    }
    return body_of("DevPodWorkspaceInstance", asked.name, spec)


@group.command("delete")
def delete(
    name: Annotated[
        str, typer.Argument(help="Name of the workspace.", autocompletion=names_of(PLURAL, project="project"))
    ],
    project: InProjectFlag,
    no_wait: NoWaitFlag = False,
    context: ContextFlag = None,
) -> None:
    """Delete a workspace with its data."""
    with connected(context) as session:
        namespace = namespace_of(session, project)
        found = session.client.get(PLURAL, name, namespace=namespace)
        session.client.delete(PLURAL, name, namespace=namespace)
        if no_wait:
            note(f"the workspace {name} is being deleted")
            return
        until_gone(session.client, awaited(PLURAL, found), _held_by)
        note(f"the workspace {name} is deleted")


def _held_by(workspace: Object) -> str:
    runner = dig(workspace, "spec.runnerRef.runner")
    return f"waiting for the runner {runner} to delete it" if runner else ""
