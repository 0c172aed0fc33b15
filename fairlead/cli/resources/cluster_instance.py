"""`fairlead space` and `fairlead vcluster`: what the server deploys into connected clusters, for projects.

Spaces are namespaces in clusters. Virtual clusters can also be imported, and migrated to another project.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fairlead.cli.resources import vcluster_import
from fairlead.cli.resources.instance import (
    ClusterNamespaceFlag,
    ParameterFlag,
    WaitFlag,
    WaitOptions,
    choose_template,
    create_instance,
    delete_with_namespace,
    encode_parameters,
    instance_resource,
    new_instance,
    wait_until_final,
)
from fairlead.cli.resources.instance_hold import add_hold_command
from fairlead.cli.resources.instance_share import add_share_command
from fairlead.cli.resources.instance_sleep import add_sleep_commands
from fairlead.cli.resources.kubeconfig import KubeconfigOptions, space_target, virtual_cluster_target, write_context
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import drop_none
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, parse_duration
from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    RequiredProjectFlag,
    TimeoutFlag,
    flag,
    options_from,
)
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import (
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
)
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace
from fairlead.core.objects import Object, get_path, name_of

SPACES = instance_resource(
    "spaceinstances",
    "SpaceInstance",
    "space",
    "no spaces; create one with `fairlead space create`",
    ("CLUSTER", "spec.clusterRef.cluster"),
)
VIRTUAL_CLUSTERS = vcluster_import.VIRTUAL_CLUSTERS
SLEEP_AFTER_ANNOTATION = "sleepmode.service.sh/sleep-after"
HOLD_LIMITS = "A schedule puts it to sleep nevertheless, and so does `sleep`."

space_group = create_group("List, show, create and delete spaces, and write kubectl contexts for them.")
vcluster_group = create_group("Create, import, list, show, migrate and delete virtual clusters, and connect to them.")


def _cluster_flag(help: str, default: str | bool = False) -> Any:
    return flag("--cluster", help=help, metavar="C", default=default, complete="clusters")


def _template_flag(noun: str, plural: str) -> Any:
    return flag(
        "--template",
        help=f"Template of the {noun}; the version may contain x as a wildcard, as in 1.x.x.",
        metavar="T[@VERSION]",
        default="the default of the project",
        complete=plural,
    )


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The last flags of both commands."""

    sleep_after: Annotated[
        int | None,
        flag(
            "--sleep-after",
            help="Put it to sleep after that time without requests, like 2h.",
            metavar="TIME",
            default="as its template says",
            parser=parse_duration,
        ),
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    waiting: WaitOptions = field(default_factory=WaitOptions)


@dataclass(frozen=True, slots=True)
class SpaceCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the space.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str | None, _cluster_flag("Connected cluster to create it in.", default="the only one of the project")
    ] = None
    namespace: ClusterNamespaceFlag = None
    template: Annotated[str | None, _template_flag("space", "spacetemplates")] = None
    parameter: ParameterFlag = None
    user: Annotated[
        list[str] | None, flag("--user", help="Another user who may use it. Repeatable.", metavar="U", complete="users")
    ] = None
    common: CommonOptions = field(default_factory=CommonOptions)


@dataclass(frozen=True, slots=True)
class VirtualClusterCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the virtual cluster.")]
    project: RequiredProjectFlag
    cluster: Annotated[
        str | None, _cluster_flag("Connected cluster to run it in.", default="the only one of the project")
    ] = None
    namespace: ClusterNamespaceFlag = None
    template: Annotated[str | None, _template_flag("virtual cluster", "virtualclustertemplates")] = None
    parameter: ParameterFlag = None
    common: CommonOptions = field(default_factory=CommonOptions)


def choose_cluster(session: Session, project: str) -> str:
    """The only cluster of a project that accepts instances. Raises UsageError if there are several, or none."""
    with name_project(session.client, project):
        listed = session.client.get("projects", project, "clusters").get("clusters") or ()
    names = sorted(name_of(each) for each in listed if _accepts_instances(each))
    if len(names) == 1:
        print_note(f"in the cluster {names[0]}, the only one of the project {project}")
        return names[0]
    if names:
        raise UsageError(f"the project {project} has several clusters; choose one with --cluster: {', '.join(names)}")
    unusable = f" of its {len(listed)} clusters, none is connected and accepts instances;" if listed else ""
    advice = "connects one with `fairlead cluster add`, and lets the members use it with"
    command = f"`fairlead project allow-cluster {project} CLUSTER`"
    raise UsageError(
        f"the project {project} has no cluster to run it in:{unusable} an administrator {advice} {command}"
    )


def _accepts_instances(cluster: Object) -> bool:
    is_connected = any(get_path(cluster, f"spec.{each}") for each in ("config.secretName", "networkPeer", "local"))
    return is_connected and not get_path(cluster, "spec.unusable")


def _create(
    resource: Resource, options: SpaceCreateOptions | VirtualClusterCreateOptions, template_kind: str, hint: str
) -> None:
    users = options.user if isinstance(options, SpaceCreateOptions) else None
    with open_session(options.common.waiting.context) as session:
        cluster = options.cluster or choose_cluster(session, options.project)
        spec = {
            "displayName": options.common.display_name,
            "description": options.common.description,
            "clusterRef": drop_none({"cluster": cluster, "namespace": options.namespace}),
            "templateRef": choose_template(session, options.project, options.template, template_kind),
            "parameters": encode_parameters(options.parameter or ()),
            "access": [{"users": users, "verbs": ["get", "use"]}] if users else None,
        }
        new = new_instance(resource, options.name, options.project, spec, hint)
        if options.common.sleep_after is not None:
            new.body["metadata"]["annotations"] = {SLEEP_AFTER_ANNOTATION: str(options.common.sleep_after)}
        create_instance(session, resource, new, options.common.waiting)


add_list_command(space_group, SPACES)
add_show_command(space_group, SPACES)


@space_group.command("create")
@options_from(SpaceCreateOptions)
def create_space(options: SpaceCreateOptions) -> None:
    """Create a space: a namespace in a connected cluster, for a project."""
    hint = f"`fairlead space kubeconfig {options.name} --project {options.project}` writes a kubectl context for it"
    _create(SPACES, options, "SpaceTemplate", hint)


@dataclass(frozen=True, slots=True)
class SpaceKubeconfigOptions:
    name: Annotated[
        str, typer.Argument(help="Name of the space.", autocompletion=complete_names(SPACES.plural, project="project"))
    ]
    project: RequiredProjectFlag
    kubeconfig: KubeconfigOptions = field(default_factory=KubeconfigOptions)


@space_group.command("kubeconfig")
@options_from(SpaceKubeconfigOptions)
def write_space_context(options: SpaceKubeconfigOptions) -> None:
    """Write a kubectl context for a space, like `fairlead kubeconfig --space`."""
    with open_session(options.kubeconfig.context) as session:
        write_context(session, space_target(session, options.project, options.name), options.kubeconfig)


add_delete_command(
    space_group, SPACES, delete_with_namespace(SPACES, "Delete a space with its namespace and all objects in it.")
)

add_share_command(space_group, SPACES)
add_sleep_commands(space_group, SPACES)
add_hold_command(space_group, SPACES, wake_command="space wake", limits=HOLD_LIMITS)

add_list_command(vcluster_group, VIRTUAL_CLUSTERS)
add_show_command(vcluster_group, VIRTUAL_CLUSTERS)


@vcluster_group.command("create")
@options_from(VirtualClusterCreateOptions)
def create_virtual_cluster(options: VirtualClusterCreateOptions) -> None:
    """Create a virtual cluster in a connected cluster, for a project. The server deploys it with Helm."""
    hint = f"`fairlead vcluster connect {options.name} --project {options.project}` writes a kubectl context for it"
    _create(VIRTUAL_CLUSTERS, options, "VirtualClusterTemplate", hint)


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
    wait: WaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    kubeconfig: KubeconfigOptions = field(default_factory=KubeconfigOptions)


@vcluster_group.command("connect")
@options_from(VirtualClusterConnectOptions)
def connect(options: VirtualClusterConnectOptions) -> None:
    """Write a kubectl context for a virtual cluster that is ready, like `fairlead kubeconfig --virtual-cluster`."""
    with open_session(options.kubeconfig.context) as session:
        if options.wait:
            namespace = project_namespace(session, options.project)
            instance = session.client.get(VIRTUAL_CLUSTERS.plural, options.name, namespace=namespace)
            wait_until_final(session.client, VIRTUAL_CLUSTERS, instance, options.timeout)
        write_context(session, virtual_cluster_target(session, options.project, options.name), options.kubeconfig)


vcluster_group.command("import")(vcluster_import.command)

DELETE_HELP = """Delete a virtual cluster.

If the server deployed it, its namespace and all objects in it are deleted. If it was imported, the virtual cluster
itself is kept and only the server's role bindings in it are deleted.
"""
add_delete_command(vcluster_group, VIRTUAL_CLUSTERS, delete_with_namespace(VIRTUAL_CLUSTERS, DELETE_HELP))


add_share_command(vcluster_group, VIRTUAL_CLUSTERS)
add_sleep_commands(vcluster_group, VIRTUAL_CLUSTERS)
add_hold_command(vcluster_group, VIRTUAL_CLUSTERS, wake_command="vcluster wake", limits=HOLD_LIMITS)


@vcluster_group.command("migrate")
def migrate(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the virtual cluster.",
            autocompletion=complete_names(VIRTUAL_CLUSTERS.plural, project="source"),
        ),
    ],
    source: Annotated[str, flag("--from", help="Project that it is in.", metavar="P", complete="projects")],
    target: Annotated[str, flag("--to", help="Project that it moves to.", metavar="Q", complete="projects")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check whether the migration is possible.")] = False,
    context: ContextFlag = None,
) -> None:
    """Move a virtual cluster to another project, with its apps and all that belongs to it.

    The move is atomic. With --dry-run, lists what would move and what would change, or everything that prevents it.
    """
    with open_session(context) as session:
        instance_ref = {"name": name, "namespace": project_namespace(session, source)}
        request = {"kind": "ProjectMigrateVirtualClusterInstance", "sourceVirtualClusterInstance": instance_ref}
        action = "migratevirtualclusterinstance"
        response = session.client.invoke_action("projects", target, action, request, dry_run=dry_run)
        result = "can be moved" if dry_run else "was moved"
        print_note(f"the virtual cluster {name} {result} from the project {source} to {target}")
        details = response.get("result") or {}
        moves = details.get("moves") or ()
        for each in moves[1:]:
            print_note(f"  with it: {each.get('kind')} {each.get('name')}")
        if (details.get("count") or 0) > len(moves):
            print_note(f"  and {details['count'] - len(moves)} more objects")
        for change in details.get("changes") or ():
            print_note(f"  {change}")
