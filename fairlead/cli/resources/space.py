"""`fairlead space`: namespaces in connected clusters that belong to projects."""

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
    "no spaces; `fairlead space create` makes one",
    "space",
)

NameArgument = Annotated[
    str, typer.Argument(help="Name of the space.", autocompletion=names_of(PLURAL, project="project"))
]

group = typer.Typer(help="List, make and delete spaces, and write contexts for them.", no_args_is_help=True)


@group.command("list")
@takes(instance.Asked)
def list_spaces(asked: instance.Asked) -> None:
    """List spaces."""
    show_instances(SPACES, asked)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="What to call it.")]
    project: InProjectFlag
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", help="Connected cluster to make it in.", metavar="C", autocompletion=names_of("clusters")
        ),
    ]
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Its namespace in that cluster.",
            metavar="NS",
            show_default="the server names it",
        ),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            help="Template to make it from; a version may have x for parts of it, as in 1.x.x.",
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
    """Make a space: a namespace in a connected cluster, for a project."""
    with connected(asked.context) as session:
        make_instance(session, SPACES, body(asked), asked.project, Ending(asked.wait, asked.timeout, asked.output))
        note(f"`fairlead space kubeconfig {asked.name} --project {asked.project}` gives kubectl a context for it")


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
    """Write a context for kubectl that leads into a space, as `fairlead kubeconfig --space` does."""
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
    """Delete a space with its namespace, and all that is in that."""
    remove_instance(SPACES, asked.name, asked.project, asked.removal)
