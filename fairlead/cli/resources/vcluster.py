"""`fairlead vcluster`: lists, imports, deletes and migrates the virtual clusters of projects."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.resources import instance
from fairlead.cli.resources.instance import Removal, Sort, remove_instance, show_instances
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, filled, print_made
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, InProjectFlag, NamedOutputFlag, takes
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import connected, namespace_of
from fairlead.core.objects import Object

PLURAL = "virtualclusterinstances"
VIRTUAL_CLUSTERS = Sort(
    PLURAL,
    "VirtualClusterInstance",
    ("CLUSTER", "spec.clusterRef.cluster"),
    "no virtual clusters",
    "virtual cluster",
)

group = typer.Typer(help="List, import, migrate and delete virtual clusters.", no_args_is_help=True)


@group.command("list")
@takes(instance.Asked)
def list_virtual_clusters(asked: instance.Asked) -> None:
    """List virtual clusters."""
    show_instances(VIRTUAL_CLUSTERS, asked)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the new instance.")]
    project: InProjectFlag
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Connected cluster that it runs in.",
            metavar="C",
            show_default=False,
            autocompletion=names_of("clusters"),
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
@takes(Asked)
def import_external(asked: Asked) -> None:
    """Import an externally deployed virtual cluster into a project.

    The server provides access to it, but never deploys, changes or deletes it.
    """
    with connected(asked.context) as session:
        created = session.client.create(PLURAL, body(asked), namespace=namespace_of(session, asked.project))
        message = f"imported the external virtual cluster {asked.name} into the project {asked.project}"
        print_made(created, asked.output, message)


def body(asked: Asked) -> Object:
    cluster_ref = {"cluster": asked.cluster, "namespace": asked.namespace, "virtualCluster": asked.virtual_cluster}
    spec = {
        "displayName": asked.display_name,
        "description": asked.description,
        "external": True,
        "clusterRef": filled(cluster_ref) or None,
    }
    return body_of("VirtualClusterInstance", asked.name, spec)


@dataclass(frozen=True, slots=True)
class Going:
    name: Annotated[
        str, typer.Argument(help="Name of the virtual cluster.", autocompletion=names_of(PLURAL, project="project"))
    ]
    project: InProjectFlag
    removal: Removal = field(default_factory=Removal)


@group.command("delete")
@takes(Going)
def delete(asked: Going) -> None:
    """Delete a virtual cluster.

    If the server deployed it, its namespace and all objects in it are deleted. If it was imported, the virtual cluster
    itself is kept and only the server's role bindings in it are deleted.
    """
    remove_instance(VIRTUAL_CLUSTERS, asked.name, asked.project, asked.removal)


@group.command("migrate")
def migrate(
    name: Annotated[
        str, typer.Argument(help="Name of the virtual cluster.", autocompletion=names_of(PLURAL, project="source"))
    ],
    source: Annotated[
        str, typer.Option("--from", help="Project that it is in.", metavar="P", autocompletion=names_of("projects"))
    ],
    target: Annotated[
        str, typer.Option("--to", help="Project that it moves to.", metavar="Q", autocompletion=names_of("projects"))
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check whether the migration is possible.")] = False,
    context: ContextFlag = None,
) -> None:
    """Move a virtual cluster to another project, with all dependent objects.

    The move is atomic.
    """
    with connected(context) as session:
        instance_ref = {"name": name, "namespace": namespace_of(session, source)}
        request = {"kind": "ProjectMigrateVirtualClusterInstance", "sourceVirtualClusterInstance": instance_ref}
        session.client.act("projects", target, "migratevirtualclusterinstance", request, dry_run=dry_run)
        result = "can be moved" if dry_run else "was moved"
        note(f"the virtual cluster {name} {result} from the project {source} to {target}")
