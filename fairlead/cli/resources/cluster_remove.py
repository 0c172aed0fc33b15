"""`fairlead cluster remove`: disconnects a cluster, cleans up in it, and lists what is left behind.

By default the command fails while spaces, virtual clusters or deployed runners exist in the cluster; they must be
deleted first.
`--abandon` leaves their namespaces behind. `--keep` also leaves the server's ClusterRoleBinding, so the cluster need
not be reachable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources.cluster_add import CLUSTERS, SYSTEM_NAMESPACE, is_managed_secret, secret_name, secret_path
from fairlead.cli.resources.cluster_status import READY
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import find_condition
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.flags import ContextFlag, TimeoutFlag, YesFlag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import ABANDON_ANNOTATION
from fairlead.cli.ui.session import exit_with_error, open_session, project_namespace_prefix
from fairlead.cli.ui.wait import VerboseFlag, object_ref, wait_deleted
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.workspaces import DEPLOYMENT_FINALIZER, deployed_runner_name

INSTANCE_RESOURCES = (("spaceinstances", "space"), ("virtualclusterinstances", "virtual cluster"))
RUNNERS = "runners"
MAX_LISTED = 20
"""Maximum number of instances to list."""


@dataclass(frozen=True, slots=True)
class ClusterRemoveOptions:
    name: Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=complete_names(CLUSTERS))]
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave the namespaces of spaces, virtual clusters and runners in the cluster."),
    ] = False
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave everything that the server created, even if the cluster is unreachable."),
    ] = False
    yes: YesFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None


@options_from(ClusterRemoveOptions)
def command(options: ClusterRemoveOptions) -> None:
    """Disconnect a cluster: delete what the server created in it, and the stored kubeconfig.

    Fails while there are spaces, virtual clusters or runners in it that the server has deployed: delete them first, or
    leave them behind with --abandon or --keep.
    """
    with open_session(options.context) as session:
        client = session.client
        cluster = client.get(CLUSTERS, options.name)
        instances = list(_list_instances(client, options.name))
        if instances and not (options.abandon or options.keep):
            raise _report_not_empty(options.name, instances)
        if options.yes:
            _print_abandoned(instances)
        else:
            prompts.confirm(f"Remove the cluster {options.name}?{_describe_leftovers(instances, options.keep)}")
        if options.keep:
            client.patch(CLUSTERS, options.name, {"metadata": {"annotations": {ABANDON_ANNOTATION: "true"}}})
        client.delete(CLUSTERS, options.name)
        wait_deleted(client, object_ref(client, CLUSTERS, cluster), _describe_wait, options.timeout)
        print_note(f"the cluster {options.name} is removed{_delete_secret(client, cluster, options.name)}")
        for message in _leftover_messages(client, cluster):
            print_note(f"warning: {message}")


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
    """The instances and deployed runners in the cluster that the user may list."""
    prefix: str | None = None
    for plural, word in INSTANCE_RESOURCES:
        for each in _list_in_cluster(client, plural, cluster):
            prefix = project_namespace_prefix(client) if prefix is None else prefix
            project = str(get_path(each, "metadata.namespace") or "").removeprefix(prefix)
            yield Instance(word, project, name_of(each), str(get_path(each, "spec.clusterRef.namespace") or ""))
    for each in _list_in_cluster(client, RUNNERS, cluster):
        if DEPLOYMENT_FINALIZER in (get_path(each, "metadata.finalizers") or ()):
            namespace = get_path(each, "spec.clusterRef.namespace") or deployed_runner_name(name_of(each))
            yield Instance("runner", "", name_of(each), str(namespace))


def _list_in_cluster(client: Client, plural: str, cluster: str) -> list[Object]:
    """Those that name the cluster; none if the user may not list them."""
    try:
        return list(client.list(plural, fields=f"spec.clusterRef.cluster={cluster}"))
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return []


def _report_not_empty(cluster: str, instances: Sequence[Instance]) -> typer.Exit:
    count = "is 1 instance" if len(instances) == 1 else f"are {len(instances)} instances"
    error = exit_with_error(f"there {count} in the cluster {cluster}:")
    _print_instances(instances)
    print_note(
        "delete them first; or leave their namespaces in the cluster with --abandon; or leave everything that the"
    )
    print_note("server created there, including its ClusterRoleBinding, with --keep")
    return error


def _print_abandoned(instances: Sequence[Instance]) -> None:
    """Prints what `--yes` confirms: the instances that lose their cluster."""
    if instances:
        print_note("these instances lose their cluster, and their namespaces stay in it:")
        _print_instances(instances)


def _print_instances(instances: Sequence[Instance]) -> None:
    for each in instances[:MAX_LISTED]:
        print_note(f"  {each}")
    if len(instances) > MAX_LISTED:
        print_note(f"  and {len(instances) - MAX_LISTED} more")


def _describe_leftovers(instances: Sequence[Instance], keep: bool) -> str:
    namespaces = [each.namespace for each in instances if each.namespace]
    parts = []
    if namespaces:
        more = f" and {len(namespaces) - MAX_LISTED} more" if len(namespaces) > MAX_LISTED else ""
        parts.append(f" These namespaces are left in it: {', '.join(namespaces[:MAX_LISTED])}{more}.")
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
