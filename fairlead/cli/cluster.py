"""`fairlead cluster`: connected clusters, from connecting one to letting it go. The largest part: `cluster_add.py`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli import cluster_add, cluster_role, prompts
from fairlead.cli.cluster_add import CLUSTERS, SYSTEM_NAMESPACE, is_own, secret_name, secret_path
from fairlead.cli.cluster_words import BAD, COLUMNS, GOOD, advice, is_healthy, probe_lines, row, standing
from fairlead.cli.completion import names_of
from fairlead.cli.flags import ContextFlag, OutputFlag, YesFlag, takes
from fairlead.cli.listing import Listing, Shown, show_all
from fairlead.cli.output import Output, note, plain, print_data
from fairlead.cli.runner import print_key
from fairlead.cli.session import connected
from fairlead.cli.waiting import awaited, until_gone
from fairlead.client import ApiProblem, Client
from fairlead.core.objects import Object, dig

INSIDE = (("spaceinstances", "space"), ("virtualclusterinstances", "virtual cluster"))

NameArgument = Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=names_of(CLUSTERS))]

group = typer.Typer(
    help="Connect, list, check and remove clusters, and read the keys of their agents.", no_args_is_help=True
)
group.command("add")(cluster_add.command)
group.command("role")(cluster_role.command)

LISTING = Listing(CLUSTERS, "Cluster", COLUMNS, row, "no clusters; `fairlead cluster add` connects one")


@group.command("list")
@takes(Shown)
def list_clusters(shown: Shown) -> None:
    """List connected clusters."""
    show_all(LISTING, shown)


@group.command("check")
def check(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Tell what the server found when it last looked at a cluster, and what to do about it.

    The exit code is 1 where something is wrong.
    """
    with connected(context) as session:
        found = session.client.get(CLUSTERS, name)
        if output is Output.TABLE:
            _explain(found)
        else:
            print_data(found, output)
        if not is_healthy(found):
            raise typer.Exit(1)


def _explain(cluster: Object) -> None:
    mark = GOOD if is_healthy(cluster) else BAD
    for line in (*probe_lines(cluster), f"{mark} {standing(cluster)}"):
        print(plain(line))
    for line in advice(cluster, datetime.now(UTC)):
        note(line)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the key that the agent of a cluster signs in with. It is the same one each time."""
    with connected(context) as session:
        print_key(session.client.get(CLUSTERS, name, "accesskey"), output)


@group.command("remove")
def remove(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Let go of a cluster, and forget the kubeconfig that it was added with. The cluster itself stays as it is."""
    with connected(context) as session:
        client = session.client
        found = client.get(CLUSTERS, name)
        if not yes:
            prompts.sure(f"Remove the cluster {name}?{_inside(client, name)}")
        client.delete(CLUSTERS, name)
        until_gone(client, awaited(CLUSTERS, found), _held_by)
        note(f"the cluster {name} is removed{_secret_removed(client, found, name)}")


def _held_by(cluster: Object) -> str:
    held = ", ".join(dig(cluster, "metadata.finalizers") or ())
    return f"being removed: held by {held}" if held else ""


def _inside(client: Client, cluster: str) -> str:
    """What would be left behind; as much of it as whoever asks may see."""
    counted = []
    for plural, word in INSIDE:
        try:
            count = sum(1 for _ in client.list(plural, fields=f"spec.clusterRef.cluster={cluster}"))
        except ApiProblem as problem:
            if problem.code != 403:
                raise
            count = 0
        if count:
            counted.append(f"{count} {word}{'' if count == 1 else 's'}")
    return f" Nobody will reach what is in it from here: {' and '.join(counted)}." if counted else ""


def _secret_removed(client: Client, cluster: Object, name: str) -> str:
    """Forgets the kubeconfig if `cluster add` has stored it; other Secrets are somebody else's to keep."""
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
