"""`fairlead space`: manages spaces, which are namespaces in connected clusters that belong to projects."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.resources.instance import (
    ClusterNamespaceFlag,
    ParameterFlag,
    WaitFlag,
    choose_template,
    create_instance_command,
    delete_with_namespace,
    encode_parameters,
    instance_resource,
)
from fairlead.cli.resources.kubeconfig import KubeconfigOptions, space_target, write_context
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object, drop_none
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    ObjectOutputFlag,
    RequiredProjectFlag,
    TimeoutFlag,
    flag,
    options_from,
)
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE
from fairlead.cli.ui.resource_commands import add_delete_command, add_list_command, add_show_command
from fairlead.cli.ui.session import Session, open_session
from fairlead.cli.ui.wait import VerboseFlag
from fairlead.core.objects import Object

SPACES = instance_resource(
    "spaceinstances",
    "SpaceInstance",
    "space",
    "no spaces; create one with `fairlead space create`",
    ("CLUSTER", "spec.clusterRef.cluster"),
)

NameArgument = Annotated[
    str, typer.Argument(help="Name of the space.", autocompletion=complete_names(SPACES.plural, project="project"))
]

group = create_group("List, show, create and delete spaces, and write kubectl contexts for them.")


add_list_command(group, SPACES)
add_show_command(group, SPACES)


@dataclass(frozen=True, slots=True)
class SpaceCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the space.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            help="Connected cluster to create it in.",
            metavar="C",
            autocompletion=complete_names("clusters"),
        ),
    ]
    namespace: ClusterNamespaceFlag = None
    template: Annotated[
        str | None,
        flag(
            "--template",
            help="Template of the space; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            default="the default of the project",
            complete="spacetemplates",
        ),
    ] = None
    parameter: ParameterFlag = None
    user: Annotated[
        list[str] | None, flag("--user", help="Another user who may use it. Repeatable.", metavar="U", complete="users")
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    wait: WaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_instance_command(
    group,
    SPACES,
    SpaceCreateOptions,
    hint="`fairlead space kubeconfig {name} --project {project}` writes a kubectl context for it",
)
def build_space(session: Session, options: SpaceCreateOptions) -> Object:
    """Create a space: a namespace in a connected cluster, for a project."""
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "clusterRef": drop_none({"cluster": options.cluster, "namespace": options.namespace}),
        "templateRef": choose_template(session, options.project, options.template, "SpaceTemplate"),
        "parameters": encode_parameters(options.parameter or ()),
        "access": [{"users": options.user, "verbs": ["get", "use"]}] if options.user else None,
    }
    return build_object(SPACES.kind, options.name, spec)


@dataclass(frozen=True, slots=True)
class SpaceKubeconfigOptions:
    name: NameArgument
    project: RequiredProjectFlag
    kubeconfig: KubeconfigOptions = field(default_factory=KubeconfigOptions)


@group.command("kubeconfig")
@options_from(SpaceKubeconfigOptions)
def kubeconfig(options: SpaceKubeconfigOptions) -> None:
    """Write a kubectl context for a space, like `fairlead kubeconfig --space`."""
    with open_session(options.kubeconfig.context) as session:
        write_context(session, space_target(session, options.project, options.name), options.kubeconfig)


add_delete_command(
    group, SPACES, delete_with_namespace(SPACES, "Delete a space with its namespace and all objects in it.")
)
