"""`fairlead space`: manages spaces, which are namespaces in connected clusters that belong to projects."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.resources import instance
from fairlead.cli.resources.instance import (
    TIMEOUT,
    Ending,
    ParameterFlag,
    Removal,
    Sort,
    TimeoutFlag,
    WaitFlag,
    make_instance,
    parameters,
    remove_instance,
    show_instances,
    template_ref,
)
from fairlead.cli.resources.kubeconfig import Written, in_space, write_context
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, filled
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, InProjectFlag, NamedOutputFlag, takes
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import connected
from fairlead.core.objects import Object

PLURAL = "spaceinstances"
SPACES = Sort(
    PLURAL,
    "SpaceInstance",
    ("CLUSTER", "spec.clusterRef.cluster"),
    "no spaces; create one with `fairlead space create`",
    "space",
)

NameArgument = Annotated[
    str, typer.Argument(help="Name of the space.", autocompletion=names_of(PLURAL, project="project"))
]

group = typer.Typer(help="List, create and delete spaces, and write kubectl contexts for them.", no_args_is_help=True)


@group.command("list")
@takes(instance.Asked)
def list_spaces(asked: instance.Asked) -> None:
    """List spaces."""
    show_instances(SPACES, asked)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the space.")]
    project: InProjectFlag
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", help="Connected cluster to create it in.", metavar="C", autocompletion=names_of("clusters")
        ),
    ]
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Its namespace in that cluster.",
            metavar="NS",
            show_default="chosen by the server",
        ),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            help="Template of the space; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            show_default=False,
            autocompletion=names_of("spacetemplates"),
        ),
    ] = None
    parameter: ParameterFlag = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    wait: WaitFlag = False
    timeout: TimeoutFlag = TIMEOUT
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a space: a namespace in a connected cluster, for a project."""
    with connected(asked.context) as session:
        make_instance(session, SPACES, body(asked), asked.project, Ending(asked.wait, asked.timeout, asked.output))
        note(f"`fairlead space kubeconfig {asked.name} --project {asked.project}` writes a kubectl context for it")


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "description": asked.description,
        "clusterRef": filled({"cluster": asked.cluster, "namespace": asked.namespace}),
        "templateRef": template_ref(asked.template) if asked.template else None,
        "parameters": parameters(asked.parameter or ()),
    }
    return body_of("SpaceInstance", asked.name, spec)


@dataclass(frozen=True, slots=True)
class Context:
    name: NameArgument
    project: InProjectFlag
    written: Written = field(default_factory=Written)


@group.command("kubeconfig")
@takes(Context)
def kubeconfig(asked: Context) -> None:
    """Write a kubectl context for a space, like `fairlead kubeconfig --space`."""
    with connected(asked.written.context) as session:
        write_context(session, in_space(session, asked.project, asked.name), asked.written)


@dataclass(frozen=True, slots=True)
class Going:
    name: NameArgument
    project: InProjectFlag
    removal: Removal = field(default_factory=Removal)


@group.command("delete")
@takes(Going)
def delete(asked: Going) -> None:
    """Delete a space with its namespace and all objects in it."""
    remove_instance(SPACES, asked.name, asked.project, asked.removal)
