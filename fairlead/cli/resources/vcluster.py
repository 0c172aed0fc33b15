"""`fairlead vcluster`: creates, imports, lists, shows, deletes and migrates the virtual clusters of projects."""

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
from fairlead.cli.resources.kubeconfig import KubeconfigOptions, virtual_cluster_target, write_context
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
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.resource_commands import (
    NewObject,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, open_session, project_namespace
from fairlead.cli.ui.wait import VerboseFlag
from fairlead.core.objects import Object

VIRTUAL_CLUSTERS = instance_resource(
    "virtualclusterinstances",
    "VirtualClusterInstance",
    "virtual cluster",
    "no virtual clusters; create one with `fairlead vcluster create`",
    ("CLUSTER", "spec.clusterRef.cluster"),
)

group = create_group("Create, import, list, show, migrate and delete virtual clusters, and connect to them.")


add_list_command(group, VIRTUAL_CLUSTERS)
add_show_command(group, VIRTUAL_CLUSTERS)


@dataclass(frozen=True, slots=True)
class VirtualClusterCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the virtual cluster.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", help="Connected cluster to run it in.", metavar="C", autocompletion=complete_names("clusters")
        ),
    ]
    namespace: ClusterNamespaceFlag = None
    template: Annotated[
        str | None,
        flag(
            "--template",
            help="Template of the virtual cluster; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            default="the default of the project",
            complete="virtualclustertemplates",
        ),
    ] = None
    parameter: ParameterFlag = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    wait: WaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_instance_command(
    group,
    VIRTUAL_CLUSTERS,
    VirtualClusterCreateOptions,
    hint="`fairlead vcluster connect {name} --project {project}` writes a kubectl context for it",
)
def build_virtual_cluster(session: Session, options: VirtualClusterCreateOptions) -> Object:
    """Create a virtual cluster in a connected cluster, for a project. The server deploys it with Helm."""
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "clusterRef": drop_none({"cluster": options.cluster, "namespace": options.namespace}),
        "templateRef": choose_template(session, options.project, options.template, "VirtualClusterTemplate"),
        "parameters": encode_parameters(options.parameter or ()),
    }
    return build_object(VIRTUAL_CLUSTERS.kind, options.name, spec)


@dataclass(frozen=True, slots=True)
class VirtualClusterConnectOptions:
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the virtual cluster.",
            autocompletion=complete_names(VIRTUAL_CLUSTERS.plural, project="project"),
        ),
    ]
    project: RequiredProjectFlag
    kubeconfig: KubeconfigOptions = field(default_factory=KubeconfigOptions)


@group.command("connect")
@options_from(VirtualClusterConnectOptions)
def connect(options: VirtualClusterConnectOptions) -> None:
    """Write a kubectl context for a virtual cluster, like `fairlead kubeconfig --virtual-cluster`."""
    with open_session(options.kubeconfig.context) as session:
        write_context(session, virtual_cluster_target(session, options.project, options.name), options.kubeconfig)


@dataclass(frozen=True, slots=True)
class VirtualClusterImportOptions:
    name: Annotated[str, typer.Argument(help="Name of the new instance.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str | None, flag("--cluster", help="Connected cluster that it runs in.", metavar="C", complete="clusters")
    ] = None
    namespace: Annotated[str | None, flag("--namespace", "-n", help="Its namespace in that cluster.", metavar="NS")] = (
        None
    )
    virtual_cluster: Annotated[
        str | None, flag("--virtual-cluster", help="Its name in that namespace.", metavar="V")
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_command(group, VIRTUAL_CLUSTERS, VirtualClusterImportOptions, name="import")
def build_external(session: Session, options: VirtualClusterImportOptions) -> NewObject:
    """Import an externally deployed virtual cluster into a project.

    The server provides access to it, but never deploys, changes or deletes it.
    """
    cluster_ref = {
        "cluster": options.cluster,
        "namespace": options.namespace,
        "virtualCluster": options.virtual_cluster,
    }
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "external": True,
        "clusterRef": drop_none(cluster_ref) or None,
    }
    message = (
        f"imported the external virtual cluster {options.name} into the project {options.project}; "
        f"`fairlead vcluster show {options.name} --project {options.project}` shows whether it can be reached"
    )
    return NewObject(build_object(VIRTUAL_CLUSTERS.kind, options.name, spec), message, options.project)


DELETE_HELP = """Delete a virtual cluster.

If the server deployed it, its namespace and all objects in it are deleted. If it was imported, the virtual cluster
itself is kept and only the server's role bindings in it are deleted.
"""
add_delete_command(group, VIRTUAL_CLUSTERS, delete_with_namespace(VIRTUAL_CLUSTERS, DELETE_HELP))


@group.command("migrate")
def migrate(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the virtual cluster.",
            autocompletion=complete_names(VIRTUAL_CLUSTERS.plural, project="source"),
        ),
    ],
    source: Annotated[
        str,
        typer.Option("--from", help="Project that it is in.", metavar="P", autocompletion=complete_names("projects")),
    ],
    target: Annotated[
        str,
        typer.Option("--to", help="Project that it moves to.", metavar="Q", autocompletion=complete_names("projects")),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check whether the migration is possible.")] = False,
    context: ContextFlag = None,
) -> None:
    """Move a virtual cluster to another project, with all dependent objects.

    The move is atomic.
    """
    with open_session(context) as session:
        instance_ref = {"name": name, "namespace": project_namespace(session, source)}
        request = {"kind": "ProjectMigrateVirtualClusterInstance", "sourceVirtualClusterInstance": instance_ref}
        session.client.invoke_action("projects", target, "migratevirtualclusterinstance", request, dry_run=dry_run)
        result = "can be moved" if dry_run else "was moved"
        print_note(f"the virtual cluster {name} {result} from the project {source} to {target}")
