"""`fairlead vcluster`: lists, shows, imports, deletes and migrates the virtual clusters of projects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources.instance import delete_with_namespace, instance_resource
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import build_object, drop_none
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    NamedOutputFlag,
    RequiredProjectFlag,
)
from fairlead.cli.ui.output import NamedOutput, print_note
from fairlead.cli.ui.resource_commands import (
    NewObject,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, open_session, project_namespace

VIRTUAL_CLUSTERS = instance_resource(
    "virtualclusterinstances",
    "VirtualClusterInstance",
    "virtual cluster",
    "no virtual clusters",
    ("CLUSTER", "spec.clusterRef.cluster"),
)

group = typer.Typer(help="List, show, import, migrate and delete virtual clusters.", no_args_is_help=True)


add_list_command(group, VIRTUAL_CLUSTERS)
add_show_command(group, VIRTUAL_CLUSTERS)


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
    message = f"imported the external virtual cluster {options.name} into the project {options.project}"
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
