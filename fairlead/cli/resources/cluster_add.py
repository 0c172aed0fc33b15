"""`fairlead cluster add`: a context of a kubeconfig becomes a connected cluster.

The kubeconfig goes into a Secret of the server, which seals it, and the Cluster names that Secret. What does not come
up stays as it is, since the server goes on trying, and since what is wrong can often be mended at the other end.
"""

import shlex
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fairlead.cli.resources.cluster_role import ACCOUNT, ACCOUNT_NAMESPACE, GRANTED, Part, print_roles
from fairlead.cli.resources.cluster_status import advice, is_healthy, is_settled, probe_lines, standing, trouble
from fairlead.cli.ui.describe import body_of, print_made
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, NamedOutputFlag, takes
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import connected, failed
from fairlead.cli.ui.wait import awaited, progress, states
from fairlead.client import ApiProblem, Client, ClientError
from fairlead.client.client import MERGE_PATCH, is_loopback
from fairlead.client.kubeconfig_export import NotPortable, Portable, kubeconfig_paths, portable
from fairlead.core.objects import Object, dig

CLUSTERS = "clusters"
SECRETS = "secrets"
SYSTEM_NAMESPACE = "service-system"
KEY = "config"
LABEL = "service.sh/cluster-kubeconfig"
"""On Secrets that this command has made: the cluster that they are for. Others are never touched."""


def _print_role(is_asked: bool) -> None:
    """Before anything else is looked at: it takes neither a name nor a server."""
    if is_asked:
        print_roles(tuple(Part), GRANTED, ACCOUNT, ACCOUNT_NAMESPACE)
        raise typer.Exit


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="What to call it here.")]
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Kubeconfig to take it from.",
            metavar="FILE",
            show_default="$KUBECONFIG, else ~/.kube/config",
        ),
    ] = None
    kube_context: Annotated[
        str | None,
        typer.Option(
            "--kube-context", help="Context in that file.", metavar="CONTEXT", show_default="the file's current one"
        ),
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the server has reached it, or not.")] = True
    print_role: Annotated[
        bool,
        typer.Option(
            "--print-role",
            help="Print a service account with the least rights that the server needs, for kubectl apply, and do "
            "nothing else. `fairlead cluster role` prints parts of it.",
            is_eager=True,
            callback=_print_role,
        ),
    ] = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@takes(Asked)
def command(asked: Asked) -> None:
    """Connect a cluster, with the access that a context of a kubeconfig has."""
    with connected(asked.context) as session:
        config = _config(asked)
        remark(config, session.client)
        made = _made(session.client, asked, config)
        told = f"made the cluster {asked.name} from the context {config.context!r}"
        if asked.wait:
            note(told)
            made = _until_settled(session.client, made)
            told = standing(made)
            if not is_healthy(made):
                raise _not_well(made)
        print_made(made, asked.output, told)
        note(f"`fairlead kubeconfig --cluster {asked.name}` gives kubectl a context for it")


def _config(asked: Asked) -> Portable:
    try:
        return portable(kubeconfig_paths(asked.kubeconfig), asked.kube_context)
    except NotPortable as problem:
        ending = failed(str(problem))
        if problem.needs_token:
            note("A token of a service account works everywhere. These commands make one, and a context with it:")
            for line in account_commands(asked, problem):
                note(f"  {line}")
        raise ending from None


def account_commands(asked: Asked, problem: NotPortable) -> Iterator[str]:
    """What to type for a context that the server can use."""
    file = f" --kubeconfig {shlex.quote(str(asked.kubeconfig))}" if asked.kubeconfig else ""
    config = f"kubectl{file} config"
    kubectl = f"kubectl{file} --context {shlex.quote(problem.found.name)}"
    token = f"{kubectl} -n {ACCOUNT_NAMESPACE} get secret {ACCOUNT} -o jsonpath='{{.data.token}}' | base64 -d"
    cluster = shlex.quote(problem.found.cluster_name)
    name = shlex.quote(asked.name)
    yield f"fairlead cluster role {Part.SPACES} | {kubectl} apply -f -"
    yield f'{config} set-credentials {ACCOUNT}-{name} --token "$({token})"'
    yield f"{config} set-context {ACCOUNT}-{name} --cluster {cluster} --user {ACCOUNT}-{name}"
    yield f"fairlead cluster add {name}{file} --kube-context {ACCOUNT}-{name}"


def remark(config: Portable, client: Client) -> None:
    """`localhost` in a kubeconfig means whichever machine reads it."""
    host, own = (urlsplit(each).hostname or "" for each in (config.server, client.url))
    if is_loopback(host) and not is_loopback(own):
        note(f"warning: {config.server} is an address of this machine, and the server will look for it on its own")


def secret_name(cluster: str) -> str:
    return f"cluster-{cluster}"


def secret_path(client: Client, cluster: str) -> str:
    return client.core_path(SECRETS, secret_name(cluster), namespace=SYSTEM_NAMESPACE)


def is_own(secret: Object, cluster: str) -> bool:
    return (dig(secret, "metadata.labels") or {}).get(LABEL) == cluster


def _made(client: Client, asked: Asked, config: Portable) -> Object:
    """Secret and Cluster, or neither."""
    if _is_taken(client, asked.name):
        raise _taken(asked.name)
    new = _keep(client, asked.name, config)
    try:
        return client.create(CLUSTERS, _body(asked))
    except ApiProblem as problem:
        if new:
            # Where it stays, the next try writes it over; what is worth telling is why there is no cluster.
            with suppress(ClientError):
                client.send("DELETE", secret_path(client, asked.name))
        if problem.reason == "AlreadyExists":
            raise _taken(asked.name) from None
        raise


def _is_taken(client: Client, name: str) -> bool:
    try:
        client.get(CLUSTERS, name)
    except ApiProblem as problem:
        if problem.code not in (403, 404):
            raise
        return False
    return True


def _taken(name: str) -> ClientError:
    advice = f"choose another name; `fairlead cluster check {name}` tells how that one stands"
    return ClientError(f"there is a cluster {name} already; {advice}")


def _keep(client: Client, cluster: str, config: Portable) -> bool:
    """Stores the kubeconfig. False where an earlier try had left a Secret, which is then written over."""
    data = {KEY: b64encode(config.content).decode()}
    name = {"name": secret_name(cluster), "labels": {LABEL: cluster}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": name, "type": "Opaque", "data": data}
    try:
        client.send("POST", client.core_path(SECRETS, namespace=SYSTEM_NAMESPACE), body)
    except ApiProblem as problem:
        if problem.reason != "AlreadyExists":
            raise
    else:
        return True
    path = secret_path(client, cluster)
    if not is_own(client.send("GET", path), cluster):
        place = f"-n {SYSTEM_NAMESPACE} delete secret {secret_name(cluster)}"
        raise ClientError(
            f"the Secret {secret_name(cluster)} is there already, and is not of this command; choose another name for "
            f"the cluster, or, if nobody needs it, `kubectl {place}`"
        )
    client.send("PATCH", path, {"data": data}, media_type=MERGE_PATCH)
    return False


def _body(asked: Asked) -> Object:
    place = {"secretName": secret_name(asked.name), "secretNamespace": SYSTEM_NAMESPACE, "key": KEY}
    spec = {"displayName": asked.display_name, "description": asked.description, "config": place}
    return body_of("Cluster", asked.name, spec)


def _until_settled(client: Client, made: Object) -> Object:
    what = awaited(CLUSTERS, made)
    with progress(f"waiting for the server to reach {what.name}") as tell:
        for state in states(client, what):
            if is_settled(state):
                return state
            if news := ": ".join(part for part in trouble(state) if part):
                tell(f"{what.name}: {news}")
    raise ClientError(f"the cluster {what.name} was removed meanwhile; add it again")


def _not_well(cluster: Object) -> typer.Exit:
    """What is wrong and how to go on, all on stderr."""
    ending = failed(standing(cluster))
    for line in (*probe_lines(cluster), *advice(cluster, datetime.now(UTC))):
        note(f"  {line}")
    name = dig(cluster, "metadata.name")
    note(f"  to try another kubeconfig, `fairlead cluster remove {name}`, then add it again")
    return ending
