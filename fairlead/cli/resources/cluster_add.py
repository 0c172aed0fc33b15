"""`fairlead cluster add`: connects the cluster of a kubeconfig context.

The kubeconfig is stored in a Secret, encrypted at rest, and the Cluster refers to it. If the cluster does not become
ready, both are kept: the server keeps probing, and the cause can often be fixed in the remote cluster.
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
"""Label on Secrets that this command creates: the name of the cluster. Other Secrets are never changed."""


def _print_role(is_asked: bool) -> None:
    """Eager callback of --print-role, which needs neither a name nor a server."""
    if is_asked:
        print_roles(tuple(Part), GRANTED, ACCOUNT, ACCOUNT_NAMESPACE)
        raise typer.Exit


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the new Cluster.")]
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Kubeconfig of the cluster.",
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
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the server has probed the cluster.")] = True
    print_role: Annotated[
        bool,
        typer.Option(
            "--print-role",
            help="Only print the manifests of a service account with the minimal permissions that the server needs. "
            "`fairlead cluster role` prints parts of it.",
            is_eager=True,
            callback=_print_role,
        ),
    ] = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@takes(Asked)
def command(asked: Asked) -> None:
    """Connect a cluster, with the credentials of a kubeconfig context."""
    with connected(asked.context) as session:
        config = _config(asked)
        remark(config, session.client)
        cluster = _made(session.client, asked, config)
        message = f"created the cluster {asked.name} from the context {config.context!r}"
        if asked.wait:
            note(message)
            cluster = _until_settled(session.client, cluster)
            message = standing(cluster)
            if not is_healthy(cluster):
                raise _not_well(cluster)
        print_made(cluster, asked.output, message)
        note(f"`fairlead kubeconfig --cluster {asked.name}` writes a kubectl context for it")


def _config(asked: Asked) -> Portable:
    try:
        return portable(kubeconfig_paths(asked.kubeconfig), asked.kube_context)
    except NotPortable as problem:
        error = failed(str(problem))
        if problem.needs_token:
            note("Use the token of a service account instead. These commands create one, and a context with it:")
            for line in account_commands(asked, problem):
                note(f"  {line}")
        raise error from None


def account_commands(asked: Asked, problem: NotPortable) -> Iterator[str]:
    """Commands that create a service account and a context that the server can use."""
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
    """Warns about a loopback address in the kubeconfig, which the server would resolve to itself."""
    cluster_host, server_host = (urlsplit(each).hostname or "" for each in (config.server, client.url))
    if is_loopback(cluster_host) and not is_loopback(server_host):
        note(f"warning: {config.server} is a loopback address; the server would connect to itself instead")


def secret_name(cluster: str) -> str:
    return f"cluster-{cluster}"


def secret_path(client: Client, cluster: str) -> str:
    return client.core_path(SECRETS, secret_name(cluster), namespace=SYSTEM_NAMESPACE)


def is_own(secret: Object, cluster: str) -> bool:
    return (dig(secret, "metadata.labels") or {}).get(LABEL) == cluster


def _made(client: Client, asked: Asked, config: Portable) -> Object:
    """Creates the Secret and the Cluster. If the Cluster is rejected, a new Secret is deleted again."""
    if _is_taken(client, asked.name):
        raise _taken(asked.name)
    is_new = _keep(client, asked.name, config)
    try:
        return client.create(CLUSTERS, _body(asked))
    except ApiProblem as problem:
        if is_new:
            # Best effort: the next attempt overwrites the Secret, and the original error is the one to report.
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
    advice = f"choose another name; `fairlead cluster check {name}` shows the status of the existing one"
    return ClientError(f"the cluster {name} already exists; {advice}")


def _keep(client: Client, cluster: str, config: Portable) -> bool:
    """Stores the kubeconfig in a Secret. Returns False if it overwrites the Secret of an earlier attempt."""
    data = {KEY: b64encode(config.content).decode()}
    metadata = {"name": secret_name(cluster), "labels": {LABEL: cluster}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    try:
        client.send("POST", client.core_path(SECRETS, namespace=SYSTEM_NAMESPACE), body)
    except ApiProblem as problem:
        if problem.reason != "AlreadyExists":
            raise
    else:
        return True
    path = secret_path(client, cluster)
    if not is_own(client.send("GET", path), cluster):
        command = f"kubectl -n {SYSTEM_NAMESPACE} delete secret {secret_name(cluster)}"
        raise ClientError(
            f"the Secret {secret_name(cluster)} already exists and was not created by this command; choose another "
            f"name for the cluster, or, if the Secret is not needed, `{command}`"
        )
    client.send("PATCH", path, {"data": data}, media_type=MERGE_PATCH)
    return False


def _body(asked: Asked) -> Object:
    config = {"secretName": secret_name(asked.name), "secretNamespace": SYSTEM_NAMESPACE, "key": KEY}
    spec = {"displayName": asked.display_name, "description": asked.description, "config": config}
    return body_of("Cluster", asked.name, spec)


def _until_settled(client: Client, made: Object) -> Object:
    ref = awaited(CLUSTERS, made)
    with progress(f"waiting for the server to connect to {ref.name}") as update:
        for state in states(client, ref):
            if is_settled(state):
                return state
            if message := ": ".join(part for part in trouble(state) if part):
                update(f"{ref.name}: {message}")
    raise ClientError(f"the cluster {ref.name} was deleted while waiting; add it again")


def _not_well(cluster: Object) -> typer.Exit:
    """Prints the failed probes and advice on stderr, and returns the exception to raise."""
    error = failed(standing(cluster))
    for line in (*probe_lines(cluster), *advice(cluster, datetime.now(UTC))):
        note(f"  {line}")
    name = dig(cluster, "metadata.name")
    note(f"  to use another kubeconfig, run `fairlead cluster remove {name}`, then add it again")
    return error
