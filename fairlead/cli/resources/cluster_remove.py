"""`fairlead cluster remove`: a cluster is let go, with what the server made in it, and what stays there is listed.

Three ways for what spaces and virtual clusters have in the cluster: they are deleted first, which is the default and
hence a refusal while there are any; `--abandon` leaves their namespaces; `--keep` leaves the server's own binding, too,
and so needs no cluster that can be reached.
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
"""The annotation that has the server leave in the cluster what it made there."""
SHOWN = 20
"""How many instances are listed."""


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=names_of(CLUSTERS))]
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave the namespaces of spaces and virtual clusters in the cluster."),
    ] = False
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave everything there that the server made, also where it cannot be reached."),
    ] = False
    yes: YesFlag = False
    context: ContextFlag = None


@takes(Asked)
def command(asked: Asked) -> None:
    """Let go of a cluster: remove what the server made in it, and forget the kubeconfig that it was added with.

    While there are spaces or virtual clusters in it, it is refused: delete them first, or leave them with --abandon or
    --keep.
    """
    with connected(asked.context) as session:
        client = session.client
        found = client.get(CLUSTERS, asked.name)
        inside = list(_inside(client, asked.name))
        if inside and not (asked.abandon or asked.keep):
            raise _refusal(asked.name, inside)
        if not asked.yes:
            prompts.sure(f"Remove the cluster {asked.name}?{_left(inside, asked.keep)}")
        if asked.keep:
            client.patch(CLUSTERS, asked.name, {"metadata": {"annotations": {ABANDON: "true"}}})
        client.delete(CLUSTERS, asked.name)
        until_gone(client, awaited(CLUSTERS, found), _waits_for)
        note(f"the cluster {asked.name} is removed{_secret_removed(client, found, asked.name)}")
        for message in _told_left(client, found):
            note(f"warning: {message}")


@dataclass(frozen=True, slots=True)
class Instance:
    word: str
    project: str
    name: str
    namespace: str

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "no namespace yet"
        return f"{self.word} {self.name} of the project {self.project}: {where}"


def _inside(client: Client, cluster: str) -> Iterator[Instance]:
    """What is in the cluster; as much of it as whoever asks may see."""
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
    are = "is 1 instance" if len(inside) == 1 else f"are {len(inside)} instances"
    ending = failed(f"there {are} in the cluster {cluster}:")
    for each in inside[:SHOWN]:
        note(f"  {each}")
    if len(inside) > SHOWN:
        note(f"  and {len(inside) - SHOWN} more")
    note("delete them first; or leave their namespaces in the cluster with --abandon; or leave everything that the")
    note("server made there, its ClusterRoleBinding included, with --keep")
    return ending


def _left(inside: Sequence[Instance], keep: bool) -> str:
    namespaces = [each.namespace for each in inside if each.namespace]
    parts = []
    if namespaces:
        more = f" and {len(namespaces) - SHOWN} more" if len(namespaces) > SHOWN else ""
        parts.append(f" These namespaces stay in it: {', '.join(namespaces[:SHOWN])}{more}.")
    if keep:
        parts.append(" So does the ClusterRoleBinding of administrators.")
    return "".join(parts)


def _waits_for(cluster: Object) -> str:
    ready = condition_of(cluster, READY)
    if ready.get("reason") == "Deleting":
        return f"{ready.get('message')}, as `fairlead cluster remove {name_of(cluster)} --keep` does"
    held = ", ".join(dig(cluster, "metadata.finalizers") or ())
    return f"being removed: held by {held}" if held else ""


def _told_left(client: Client, cluster: Object) -> Iterator[str]:
    """What the server says that it left in the cluster. Who may not read Events goes without."""
    fields = f"involvedObject.uid={dig(cluster, 'metadata.uid')},reason=LeftBehind"
    try:
        found = client.send("GET", client.core_path("events", namespace="default"), query={"fieldSelector": fields})
    except ApiProblem as problem:
        if problem.code != 403:
            raise
        return
    for each in found.get("items") or ():
        yield str(each.get("message") or "")


def _secret_removed(client: Client, cluster: Object, name: str) -> str:
    """Forgets the kubeconfig if `cluster add` has stored it; other Secrets belong to others."""
    config = dig(cluster, "spec.config") or {}
    if (config.get("secretNamespace"), config.get("secretName")) != (SYSTEM_NAMESPACE, secret_name(name)):
        return ""
    path = secret_path(client, name)
    try:
        if not is_own(client.send("GET", path), name):
            return f"; the Secret {secret_name(name)} is not of `fairlead cluster add`, and stays"
        client.send("DELETE", path)
    except ApiProblem as problem:
        if problem.code != 404:
            raise
        return ""
    return ", and its kubeconfig is forgotten"
