"""`fairlead cluster remove`: disconnects a cluster, cleans up in it, and lists what is left behind.

By default the command fails while spaces or virtual clusters exist in the cluster; they must be deleted first.
`--abandon` leaves their namespaces behind. `--keep` also leaves the server's ClusterRoleBinding, so the cluster need
not be reachable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.resources.cluster_add import CLUSTERS, SYSTEM_NAMESPACE, is_own, secret_name, secret_path
from fairlead.cli.resources.cluster_status import READY
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import condition_of
from fairlead.cli.ui.flags import ContextFlag, YesFlag, takes
from fairlead.cli.ui.output import note
from fairlead.cli.ui.session import connected, failed, namespace_prefix
from fairlead.cli.ui.wait import awaited, until_gone
from fairlead.client import ApiProblem, Client
from fairlead.core.objects import Object, dig, name_of

INSIDE = (("spaceinstances", "space"), ("virtualclusterinstances", "virtual cluster"))
ABANDON = "service.sh/abandon"
"""Annotation that makes the server skip the cleanup in the cluster."""
SHOWN = 20
"""Maximum number of instances to list."""


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=names_of(CLUSTERS))]
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave the namespaces of spaces and virtual clusters in the cluster."),
    ] = False
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave everything that the server created, even if the cluster is unreachable."),
    ] = False
    yes: YesFlag = False
    context: ContextFlag = None


@takes(Asked)
def command(asked: Asked) -> None:
    """Disconnect a cluster: delete what the server created in it, and the stored kubeconfig.

    Fails while there are spaces or virtual clusters in it: delete them first, or leave them behind with --abandon or
    --keep.
    """
    with connected(asked.context) as session:
        client = session.client
        cluster = client.get(CLUSTERS, asked.name)
        instances = list(_inside(client, asked.name))
        if instances and not (asked.abandon or asked.keep):
            raise _refusal(asked.name, instances)
        if not asked.yes:
            prompts.sure(f"Remove the cluster {asked.name}?{_left(instances, asked.keep)}")
        if asked.keep:
            client.patch(CLUSTERS, asked.name, {"metadata": {"annotations": {ABANDON: "true"}}})
        client.delete(CLUSTERS, asked.name)
        until_gone(client, awaited(CLUSTERS, cluster), _waits_for)
        note(f"the cluster {asked.name} is removed{_secret_removed(client, cluster, asked.name)}")
        for message in _told_left(client, cluster):
            note(f"warning: {message}")


@dataclass(frozen=True, slots=True)
class Instance:
    word: str
    project: str
    name: str
    namespace: str

    def __str__(self) -> str:
        location = f"namespace {self.namespace}" if self.namespace else "no namespace yet"
        return f"{self.word} {self.name} of the project {self.project}: {location}"


def _inside(client: Client, cluster: str) -> Iterator[Instance]:
    """The instances in the cluster that the user may list."""
    prefix: str | None = None
    for plural, word in INSIDE:
        try:
            for each in client.list(plural, fields=f"spec.clusterRef.cluster={cluster}"):
                prefix = namespace_prefix(client) if prefix is None else prefix
                project = str(dig(each, "metadata.namespace") or "").removeprefix(prefix)
                yield Instance(word, project, name_of(each), str(dig(each, "spec.clusterRef.namespace") or ""))
        except ApiProblem as problem:
            if problem.code != 403:
                raise


def _refusal(cluster: str, inside: Sequence[Instance]) -> typer.Exit:
    count = "is 1 instance" if len(inside) == 1 else f"are {len(inside)} instances"
    error = failed(f"there {count} in the cluster {cluster}:")
    for each in inside[:SHOWN]:
        note(f"  {each}")
    if len(inside) > SHOWN:
        note(f"  and {len(inside) - SHOWN} more")
    note("delete them first; or leave their namespaces in the cluster with --abandon; or leave everything that the")
    note("server created there, including its ClusterRoleBinding, with --keep")
    return error


def _left(inside: Sequence[Instance], keep: bool) -> str:
    namespaces = [each.namespace for each in inside if each.namespace]
    parts = []
    if namespaces:
        more = f" and {len(namespaces) - SHOWN} more" if len(namespaces) > SHOWN else ""
        parts.append(f" These namespaces are left in it: {', '.join(namespaces[:SHOWN])}{more}.")
    if keep:
        parts.append(" The ClusterRoleBinding of administrators is left too.")
    return "".join(parts)


def _waits_for(cluster: Object) -> str:
    ready = condition_of(cluster, READY)
    if ready.get("reason") == "Deleting":
        return f"{ready.get('message')}, as `fairlead cluster remove {name_of(cluster)} --keep` does"
    finalizers = ", ".join(dig(cluster, "metadata.finalizers") or ())
    return f"being deleted: waiting for the finalizers {finalizers}" if finalizers else ""


def _told_left(client: Client, cluster: Object) -> Iterator[str]:
    """Messages of the Events about objects left in the cluster; none if the user may not read Events."""
    fields = f"involvedObject.uid={dig(cluster, 'metadata.uid')},reason=LeftBehind"
    try:
        events = client.send("GET", client.core_path("events", namespace="default"), query={"fieldSelector": fields})
    except ApiProblem as problem:
        if problem.code != 403:
            raise
        return
    for event in events.get("items") or ():
        yield str(event.get("message") or "")


def _secret_removed(client: Client, cluster: Object, name: str) -> str:
    """Deletes the kubeconfig Secret if `cluster add` created it. Returns a suffix for the final message."""
    config = dig(cluster, "spec.config") or {}
    if (config.get("secretNamespace"), config.get("secretName")) != (SYSTEM_NAMESPACE, secret_name(name)):
        return ""
    path = secret_path(client, name)
    try:
        if not is_own(client.send("GET", path), name):
            return f"; the Secret {secret_name(name)} was not created by `fairlead cluster add` and is kept"
        client.send("DELETE", path)
    except ApiProblem as problem:
        if problem.code != 404:
            raise
        return ""
    return ", and its kubeconfig is deleted"
