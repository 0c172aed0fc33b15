"""`fairlead vcluster`: lists, imports, deletes and migrates the virtual clusters of projects."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.resources import instance
from fairlead.cli.resources.instance import InstanceType, RemovalOptions, delete_instance, print_instances
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object, drop_none, print_created
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    NamedOutputFlag,
    RequiredProjectFlag,
    options_from,
)
from fairlead.cli.ui.output import NamedOutput, print_note
from fairlead.cli.ui.session import open_session, project_namespace
from fairlead.core.objects import Object

PLURAL = "virtualclusterinstances"
VIRTUAL_CLUSTERS = InstanceType(
    PLURAL,
    "VirtualClusterInstance",
    ("CLUSTER", "spec.clusterRef.cluster"),
    "no virtual clusters",
    "virtual cluster",
)

group = typer.Typer(help="List, import, migrate and delete virtual clusters.", no_args_is_help=True)


@group.command("list")
@options_from(instance.InstanceListOptions)
def list_virtual_clusters(options: instance.InstanceListOptions) -> None:
    """List virtual clusters."""
    print_instances(VIRTUAL_CLUSTERS, options)


@dataclass(frozen=True, slots=True)
class VirtualClusterImportOptions:
    name: Annotated[str, typer.Argument(help="Name of the new instance.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Connected cluster that it runs in.",
            metavar="C",
            show_default=False,
            autocompletion=complete_names("clusters"),
        ),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Its namespace in that cluster.", metavar="NS", show_default=False),
    ] = None
    virtual_cluster: Annotated[
        str | None,
        typer.Option("--virtual-cluster", help="Its name in that namespace.", metavar="V", show_default=False),
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("import")
@options_from(VirtualClusterImportOptions)
def import_external(options: VirtualClusterImportOptions) -> None:
    """Import an externally deployed virtual cluster into a project.

    The server provides access to it, but never deploys, changes or deletes it.
    """
    with open_session(options.context) as session:
        created = session.client.create(
            PLURAL, build_body(options), namespace=project_namespace(session, options.project)
        )
        message = f"imported the external virtual cluster {options.name} into the project {options.project}"
        print_created(created, options.output, message)


def build_body(options: VirtualClusterImportOptions) -> Object:
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
    return build_object("VirtualClusterInstance", options.name, spec)


@dataclass(frozen=True, slots=True)
class VirtualClusterDeleteOptions:
    name: Annotated[
        str,
        typer.Argument(help="Name of the virtual cluster.", autocompletion=complete_names(PLURAL, project="project")),
    ]
    project: RequiredProjectFlag
    removal: RemovalOptions = field(default_factory=RemovalOptions)


@group.command("delete")
@options_from(VirtualClusterDeleteOptions)
def delete(options: VirtualClusterDeleteOptions) -> None:
    """Delete a virtual cluster.

    If the server deployed it, its namespace and all objects in it are deleted. If it was imported, the virtual cluster
    itself is kept and only the server's role bindings in it are deleted.
    """
    delete_instance(VIRTUAL_CLUSTERS, options.name, options.project, options.removal)


@group.command("migrate")
def migrate(
    name: Annotated[
        str,
        typer.Argument(help="Name of the virtual cluster.", autocompletion=complete_names(PLURAL, project="source")),
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
