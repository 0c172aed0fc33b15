"""`fairlead cluster`: lists, shows, checks and removes connected clusters, and prints agent keys.

`cluster_add.py`, `cluster_role.py` and `cluster_export.py` have the other subcommands.

`remove` fails while spaces, virtual clusters, deployed apps or deployed runners exist in the cluster; they must be
deleted first. `--abandon` leaves them behind. `--keep` also leaves the server's ClusterRoleBinding, so the cluster need
not be reachable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.resources import cluster_add, cluster_export, cluster_role
from fairlead.cli.resources.cluster_add import CLUSTERS, SYSTEM_NAMESPACE, is_managed_secret, secret_name, secret_path
from fairlead.cli.resources.cluster_agent import removal_commands
from fairlead.cli.resources.cluster_status import (
    BAD,
    COLUMNS,
    GOOD,
    READY,
    advice,
    is_healthy,
    probe_lines,
    summary_line,
    table_row,
)
from fairlead.cli.resources.runner import print_key
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import find_condition, text_of
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, TimeoutFlag, YesFlag, options_from
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import Output, escape_control, print_data, print_note
from fairlead.cli.ui.resource_commands import (
    COMMON_DETAILS,
    Resource,
    abandon,
    add_list_command,
    add_show_command,
    join_names,
    list_dependents,
    print_dependents,
    refuse_deletion,
)
from fairlead.cli.ui.session import open_session, project_namespace_prefix
from fairlead.cli.ui.wait import VerboseFlag, object_ref, wait_deleted
from fairlead.client import ApiStatusError, Client
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER, deployed_runner_name
from fairlead.core.objects import Object, get_path, name_of

INSTANCE_RESOURCES = {
    "spaceinstances": ("space", "spaceInstance"),
    "virtualclusterinstances": ("virtual cluster", "virtualClusterInstance"),
}
"""By plural: the noun, and the field of apps that are deployed into one."""
APP_INSTANCES = "appinstances"
RUNNERS = "runners"

NameArgument = Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=complete_names(CLUSTERS))]

group = create_group("Connect, list, show, check and remove clusters, and print the keys of their agents.")
group.command("add")(cluster_add.command)
group.command("role")(cluster_role.command)
group.command("export")(cluster_export.command)

RESOURCE = Resource(
    plural=CLUSTERS,
    kind="Cluster",
    noun="cluster",
    columns=COLUMNS,
    row=table_row,
    empty_message="no clusters; connect one with `fairlead cluster add`",
    details=(
        *COMMON_DETAILS,
        ("nodes", "status.nodes"),
        ("secret", "spec.config.secretName"),
        ("unusable", "spec.unusable"),
        ("last probe", "status.lastProbeTime"),
        ("message", "status.message"),
    ),
)


@dataclass(frozen=True, slots=True)
class ClusterRemoveOptions:
    name: NameArgument
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave spaces, virtual clusters, apps and runners in the cluster."),
    ] = False
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave everything that the server created, even if the cluster is unreachable."),
    ] = False
    yes: YesFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None


@group.command("remove")
@options_from(ClusterRemoveOptions)
def remove(options: ClusterRemoveOptions) -> None:
    """Disconnect a cluster: delete what the server created in it, and the stored kubeconfig.

    Fails while there are spaces, virtual clusters, apps or runners in it that the server has deployed: delete them
    first, or leave them behind with --abandon or --keep.
    """
    with open_session(options.context) as session:
        client = session.client
        cluster = client.get(CLUSTERS, options.name)
        instances = list(_list_instances(client, options.name))
        if instances and not (options.abandon or options.keep):
            raise refuse_deletion(
                f"in the cluster {options.name}",
                "instance",
                instances,
                "delete them first; or leave their namespaces in the cluster with --abandon;",
                "or leave everything that the server created there, including its ClusterRoleBinding, with --keep",
            )
        if options.yes and instances:
            print_note("these instances lose their cluster, and their namespaces stay in it:")
            print_dependents(instances)
        elif not options.yes:
            prompts.confirm(f"Remove the cluster {options.name}?{_describe_leftovers(instances, options.keep)}")
        if options.keep:
            abandon(client, CLUSTERS, options.name)
        client.delete(CLUSTERS, options.name)
        wait_deleted(client, object_ref(client, CLUSTERS, cluster), _describe_wait, options.timeout)
        print_note(f"the cluster {options.name} is removed{_delete_secret(client, cluster, options.name)}")
        for message in _leftover_messages(client, cluster):
            print_note(f"warning: {message}")
        if get_path(cluster, "spec.networkPeer"):
            _print_agent_removal(options.name)


def _print_agent_removal(name: str) -> None:
    """The server never deletes the agent: it is what the server reaches the cluster by, and not the server's own."""
    print_note(
        f"the agent of {name}, its key and its permissions stay in the cluster, and it can no longer connect. "
        "Delete them there, with a CONTEXT of an administrator of that cluster:"
    )
    for line in removal_commands():
        print_note(f"  {line}")
    print_note(
        "If Helm installed it, uninstall that release. If it runs beside the cluster, stop it; delete its --state."
    )


@dataclass(frozen=True, slots=True)
class Instance:
    singular: str
    project: str
    name: str
    namespace: str

    def __str__(self) -> str:
        location = f"namespace {self.namespace}" if self.namespace else "no namespace yet"
        project = f" of the project {self.project}" if self.project else ""
        return f"{self.singular} {self.name}{project}: {location}"


def _list_instances(client: Client, cluster: str) -> Iterator[Instance]:
    """The instances, and the apps and runners that are deployed, in the cluster that the user may list. Apps that are
    deployed into one of the instances are in the cluster, too."""
    fields = f"spec.clusterRef.cluster={cluster}"
    found: list[tuple[str, Object, str]] = []
    targets = {("cluster", "", cluster)}
    for plural, (word, target) in INSTANCE_RESOURCES.items():
        for each in list_dependents(client, plural, fields):
            found.append((word, each, text_of(each, "spec.clusterRef.namespace")))
            targets.add((target, text_of(each, "metadata.namespace"), name_of(each)))
    for each in list_dependents(client, APP_INSTANCES, ""):
        if get_path(each, "status.release.name") and _target_of(each) in targets:
            found.append(("app", each, text_of(each, "status.release.namespace")))
    prefix = project_namespace_prefix(client) if found else ""
    for word, each, namespace in found:
        yield Instance(word, text_of(each, "metadata.namespace").removeprefix(prefix), name_of(each), namespace)
    for each in list_dependents(client, RUNNERS, fields):
        if DEPLOYMENT_FINALIZER in (get_path(each, "metadata.finalizers") or ()):
            namespace = get_path(each, "spec.clusterRef.namespace") or deployed_runner_name(name_of(each))
            yield Instance("runner", "", name_of(each), str(namespace))


def _target_of(app: Object) -> tuple[str, str, str]:
    """The field of its target, and the namespace and name of the object that it names there."""
    for field, place in (get_path(app, "spec.target") or {}).items():
        if place:
            namespace = "" if field == "cluster" else text_of(app, "metadata.namespace")
            return field, namespace, str(place.get("name") or "")
    return "", "", ""


def _describe_leftovers(instances: Sequence[Instance], keep: bool) -> str:
    namespaces = [each.namespace for each in instances if each.namespace]
    parts = []
    if namespaces:
        parts.append(f" These namespaces are left in it: {join_names(namespaces)}.")
    if keep:
        parts.append(" The ClusterRoleBinding of administrators is left too.")
    return "".join(parts)


def _describe_wait(cluster: Object) -> str:
    ready = find_condition(cluster, READY)
    if ready.get("reason") == "Deleting":
        return f"{ready.get('message')}, as `fairlead cluster remove {name_of(cluster)} --keep` does"
    return ""


def _leftover_messages(client: Client, cluster: Object) -> Iterator[str]:
    """Messages of the Events about objects left in the cluster; none if the user may not read Events."""
    fields = f"involvedObject.uid={get_path(cluster, 'metadata.uid')},reason=LeftBehind"
    try:
        events = client.send("GET", client.core_path("events", namespace="default"), query={"fieldSelector": fields})
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return
    for event in events.get("items") or ():
        yield str(event.get("message") or "")


def _delete_secret(client: Client, cluster: Object, name: str) -> str:
    """Deletes the kubeconfig Secret if `cluster add` created it. Returns a suffix for the final message."""
    config = get_path(cluster, "spec.config") or {}
    if (config.get("secretNamespace"), config.get("secretName")) != (SYSTEM_NAMESPACE, secret_name(name)):
        return ""
    path = secret_path(client, name)
    try:
        if not is_managed_secret(client.send("GET", path), name):
            return f"; the Secret {secret_name(name)} was not created by `fairlead cluster add` and is kept"
        client.send("DELETE", path)
    except ApiStatusError as problem:
        if problem.code != 404:
            raise
        return ""
    return ", and its kubeconfig is deleted"


add_list_command(group, RESOURCE, "List connected clusters.")
add_show_command(group, RESOURCE)


@group.command("check")
def check(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show the results of the last probe of a cluster, and how to fix failures.

    The exit code is 1 if the cluster is not healthy.
    """
    with open_session(context) as session:
        cluster = session.client.get(CLUSTERS, name)
        if output is Output.TABLE:
            _print_check(cluster)
        else:
            print_data(cluster, output)
        if not is_healthy(cluster):
            raise typer.Exit(1)


def _print_check(cluster: Object) -> None:
    mark = GOOD if is_healthy(cluster) else BAD
    for line in (*probe_lines(cluster), f"{mark} {summary_line(cluster)}"):
        print(escape_control(line))
    for line in advice(cluster, datetime.now(UTC)):
        print_note(line)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the access key of a cluster's agent. It does not change between calls."""
    with open_session(context) as session:
        print_key(session.client.get(CLUSTERS, name, "accesskey"), output)
