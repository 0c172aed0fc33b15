"""`fairlead cluster add`: connects the cluster of a kubeconfig context, or one by an agent that dials out.

The kubeconfig is stored in a Secret, encrypted at rest, and the Cluster refers to it. If the cluster does not become
ready, both are kept: the server keeps probing, and the cause can often be fixed in the remote cluster.
"""

import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fairlead.cli.resources.cluster_agent import JOIN_SECRET, AgentManifest, build_manifest
from fairlead.cli.resources.cluster_role import (
    ACCOUNT,
    ACCOUNT_NAMESPACE,
    AGENT_PARTS,
    DEFAULT_CLUSTER_ROLES,
    RolePart,
    print_roles,
)
from fairlead.cli.resources.cluster_status import advice, failure, is_healthy, is_probed, probe_lines, summary_line
from fairlead.cli.ui.describe import build_object, print_created
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, format_duration
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    ObjectOutputFlag,
    TimeoutFlag,
    flag,
    options_from,
)
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.session import UsageError, exit_with_error, open_session
from fairlead.cli.ui.wait import VerboseFlag, changed_conditions, object_ref, show_progress, watch_object
from fairlead.client import ApiStatusError, Client, ClientError, DeadlineExceeded
from fairlead.client.client import MERGE_PATCH
from fairlead.client.kubeconfig_export import (
    ExportedKubeconfig,
    NotExportable,
    export_context,
    kubeconfig_paths,
    paths_with_context,
)
from fairlead.core.addresses import is_loopback
from fairlead.core.objects import Object, get_path, labels_of

CLUSTERS = "clusters"
SECRETS = "secrets"
SYSTEM_NAMESPACE = "service-system"
KUBECONFIG_KEY = "config"
HTTPS_PORT = 443
NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS subdomain, as names of Clusters and Secrets are."""
MAX_NAME_LENGTH = 253
FIRST_TOKEN_DURATION = "168h"
"""Of the token of a service account. The server renews it after half of that."""
AGENT_STATE = "fairlead-agent"
"""Folder of an agent outside of its cluster, before the name of the cluster: two agents must not share one."""
CLUSTER_LABEL = "service.sh/cluster-kubeconfig"
"""Label on Secrets that this command creates: the name of the cluster. Other Secrets are never changed."""


def _print_role(enabled: bool) -> None:
    """Eager callback of --print-role, which needs neither a name nor a server."""
    if enabled:
        print_roles(AGENT_PARTS, DEFAULT_CLUSTER_ROLES, ACCOUNT, ACCOUNT_NAMESPACE)
        raise typer.Exit


@dataclass(frozen=True, slots=True)
class ClusterAddOptions:
    name: Annotated[str, typer.Argument(help="Name of the new Cluster.")]
    kubeconfig: Annotated[
        Path | None,
        flag(
            "--kubeconfig",
            help="Kubeconfig of the cluster.",
            metavar="FILE",
            default="$KUBECONFIG, else ~/.kube/config",
        ),
    ] = None
    kube_context: Annotated[
        str | None,
        flag("--kube-context", help="Context in that file.", metavar="CONTEXT", default="the file's current one"),
    ] = None
    agent: Annotated[
        bool,
        typer.Option(
            "--agent",
            help="For a cluster that cannot be dialled: print the manifest of an agent that dials out. For a cluster "
            "that has one, let it join again.",
        ),
    ] = False
    part: Annotated[
        list[RolePart] | None,
        flag(
            "--part",
            help="With --agent: what the cluster is used for, as in `fairlead cluster role`. Repeatable.",
            metavar="PART",
            default="spaces",
        ),
    ] = None
    image: Annotated[
        str | None,
        flag(
            "--image",
            help="With --agent: its image, which you build and push to a registry of yours.",
            metavar="IMAGE",
            default="fairlead of this version",
        ),
    ] = None
    server_url: Annotated[
        str | None,
        flag(
            "--server-url",
            help="With --agent: the URL of the server for the agent.",
            metavar="URL",
            default="the server's own",
        ),
    ] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the server has probed the cluster.")] = True
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
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
    output: ObjectOutputFlag = TABLE


@options_from(ClusterAddOptions)
def command(options: ClusterAddOptions) -> None:
    """Connect a cluster, with the credentials of a kubeconfig context, or by an agent that dials out."""
    with open_session(options.context) as session:
        _check_name(options.name)
        if options.agent:
            _print_agent(session.client, options)
            return
        options = _choose_file(options)
        config = _export_kubeconfig(options)
        _reject_own_server(config, session.client)
        warn_loopback(config, session.client)
        cluster = _create_cluster(session.client, options, config)
        message = f"created the cluster {options.name} from the context {config.context!r}"
        if options.wait:
            cluster = _wait_probed(session.client, cluster, options.timeout)
            message = summary_line(cluster)
            if not is_healthy(cluster):
                raise _report_unhealthy(cluster)
        next_step = f"`fairlead kubeconfig --cluster {options.name}` writes a kubectl context for it"
        print_created(cluster, options.output, f"{message}; {next_step}")


def _print_agent(client: Client, options: ClusterAddOptions) -> None:
    from fairlead import __version__
    from fairlead.core import yaml

    if options.kubeconfig is not None or options.kube_context is not None:
        raise UsageError("--agent needs no kubeconfig: omit --kubeconfig and --kube-context")
    if RolePart.RENEWAL in (options.part or ()):
        raise UsageError("--agent needs no --part renewal: the cluster itself renews the token of the agent")
    is_new = _ensure_agent_cluster(client, options)
    created = client.send("POST", client.path(CLUSTERS, options.name, "agenttoken"), {})["status"]
    server = (options.server_url or created["serviceHost"]).rstrip("/")
    manifest = AgentManifest(
        server=server,
        token=created["token"],
        authority=created.get("caCert") or "",
        image=options.image or f"fairlead:{__version__}",
        parts=options.part or (RolePart.SPACES,),
        cluster_roles=DEFAULT_CLUSTER_ROLES,
    )
    print("---\n".join(yaml.encode(each).decode() for each in build_manifest(manifest)), end="")
    done = f"created the cluster {options.name}" if is_new else f"the agent of {options.name} may join again"
    print_note(
        f"{done}; pipe this manifest into `kubectl apply -f -` in the cluster within an hour: its token works once"
    )
    if options.image is None:
        print_note(
            f"warning: its image {manifest.image} is in no public registry; build it (Containerfile, docs/install.md), "
            "push it to a registry of yours, and name it with --image"
        )
    print_note(
        f"beside the cluster instead, with the token of the Secret {JOIN_SECRET}, base64-decoded, in the file token: "
        f"fairlead agent --server {shlex.quote(server)} --token-file token --kubeconfig FILE "
        f"--state {AGENT_STATE}-{options.name}"
    )
    if is_loopback(urlsplit(server).hostname or ""):
        print_note(f"warning: {server} is a loopback address, which agents elsewhere cannot reach; set --server-url")


def _ensure_agent_cluster(client: Client, options: ClusterAddOptions) -> bool:
    """Creates the Cluster, unless there is one. Returns whether it is new."""
    try:
        cluster = client.get(CLUSTERS, options.name)
    except ApiStatusError as problem:
        if problem.code != 404:
            raise
        spec = {"displayName": options.display_name, "description": options.description, "networkPeer": True}
        client.create(CLUSTERS, build_object("Cluster", options.name, spec))
        return True
    if not get_path(cluster, "spec.networkPeer"):
        raise ClientError(
            f"the cluster {options.name} is reached with a kubeconfig; to let its agent dial out instead, set "
            f"spec.networkPeer to true first: kubectl patch cluster {options.name} --type merge "
            '-p \'{"spec":{"networkPeer":true}}\''
        )
    return False


def _check_name(name: str) -> None:
    """Checks the name before the Secret is created, whose errors would be about the Secret."""
    if len(secret_name(name)) > MAX_NAME_LENGTH or not NAME_PATTERN.fullmatch(name):
        near = name.lower().replace("_", "-")
        example = f", such as {near}" if near != name and NAME_PATTERN.fullmatch(near) else ""
        raise UsageError(
            f"{name!r} is not a name for a cluster; use lower-case letters, digits, - and .{example}, at most "
            f"{MAX_NAME_LENGTH - len(secret_name(''))} characters, the first and the last a letter or digit"
        )


def _export_kubeconfig(options: ClusterAddOptions) -> ExportedKubeconfig:
    try:
        return export_context(kubeconfig_paths(options.kubeconfig), options.kube_context)
    except NotExportable as problem:
        error = exit_with_error(str(problem))
        if problem.needs_token:
            print_note("Use the token of a service account instead. These commands create one, and a context with it:")
            for line in account_commands(options, problem):
                print_note(f"  {line}")
            print_note("Or let an agent dial out, with no credential stored at the server:")
            print_note(f"  {agent_command(options, problem)}")
        raise error from None


def _choose_file(options: ClusterAddOptions) -> ClusterAddOptions:
    """The options, with ~/.kube/config as the file if only that has the context."""
    if options.kubeconfig is not None:
        return options
    chosen = paths_with_context(options.kube_context)
    if chosen == kubeconfig_paths(None):
        return options
    print_note(f"the context {options.kube_context!r} is not in $KUBECONFIG; using {chosen[0]}")
    return replace(options, kubeconfig=chosen[0])


def _reject_own_server(config: ExportedKubeconfig, client: Client) -> None:
    """A new user has $KUBECONFIG set to the kubeconfig of the server. The server as its own cluster would show its own
    objects as those of a cluster."""
    if _address_of(config.server) == _address_of(client.url):
        raise ClientError(
            f"the context {config.context!r} is this Fairlead server itself ({config.server}), not a cluster; name "
            "the kubeconfig of the cluster with --kubeconfig FILE, or its context with --kube-context NAME"
        )


def _address_of(url: str) -> tuple[str, int]:
    """Host and port. All names of the loopback interface are one host."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return "localhost" if is_loopback(host) else host, parts.port or HTTPS_PORT


def account_commands(options: ClusterAddOptions, problem: NotExportable) -> Iterator[str]:
    """Commands that create a service account and a context that the server can use."""
    file = f" --kubeconfig {shlex.quote(str(options.kubeconfig))}" if options.kubeconfig else ""
    config = f"kubectl{file} config"
    kubectl = f"kubectl{file} --context {shlex.quote(problem.context.name)}"
    token = f"{kubectl} -n {ACCOUNT_NAMESPACE} create token {ACCOUNT} --duration {FIRST_TOKEN_DURATION}"
    cluster = shlex.quote(problem.context.cluster_name)
    name = shlex.quote(options.name)
    yield f"fairlead cluster role {RolePart.SPACES} {RolePart.RENEWAL} | {kubectl} apply -f -"
    yield f'{config} set-credentials {ACCOUNT}-{name} --token "$({token})"'
    yield f"{config} set-context {ACCOUNT}-{name} --cluster {cluster} --user {ACCOUNT}-{name}"
    yield f"fairlead cluster add {name}{file} --kube-context {ACCOUNT}-{name}"


def agent_command(options: ClusterAddOptions, problem: NotExportable) -> str:
    file = f" --kubeconfig {shlex.quote(str(options.kubeconfig))}" if options.kubeconfig else ""
    apply = f"kubectl{file} --context {shlex.quote(problem.context.name)} apply -f -"
    return f"fairlead cluster add {shlex.quote(options.name)} --agent | {apply}"


def warn_loopback(config: ExportedKubeconfig, client: Client) -> None:
    """Warns about a loopback address in the kubeconfig, which the server would resolve to itself."""
    cluster_host, server_host = (urlsplit(each).hostname or "" for each in (config.server, client.url))
    if is_loopback(cluster_host) and not is_loopback(server_host):
        print_note(f"warning: {config.server} is a loopback address; the server would connect to itself instead")


def secret_name(cluster: str) -> str:
    return f"cluster-{cluster}"


def secret_path(client: Client, cluster: str) -> str:
    return client.core_path(SECRETS, secret_name(cluster), namespace=SYSTEM_NAMESPACE)


def is_managed_secret(secret: Object, cluster: str) -> bool:
    return labels_of(secret).get(CLUSTER_LABEL) == cluster


def _create_cluster(client: Client, options: ClusterAddOptions, config: ExportedKubeconfig) -> Object:
    """Creates the Secret and the Cluster. If the Cluster is rejected, a new Secret is deleted again."""
    if _cluster_exists(client, options.name):
        raise _already_exists_error(options.name)
    is_new = _store_kubeconfig(client, options.name, config)
    try:
        return client.create(CLUSTERS, _build_body(options))
    except ApiStatusError as problem:
        if is_new:
            # Best effort: the next attempt overwrites the Secret, and the original error is the one to report.
            with suppress(ClientError):
                client.send("DELETE", secret_path(client, options.name))
        if problem.reason == "AlreadyExists":
            raise _already_exists_error(options.name) from None
        raise


def _cluster_exists(client: Client, name: str) -> bool:
    try:
        client.get(CLUSTERS, name)
    except ApiStatusError as problem:
        if problem.code not in (403, 404):
            raise
        return False
    return True


def _already_exists_error(name: str) -> ClientError:
    advice = f"choose another name; `fairlead cluster check {name}` shows the status of the existing one"
    return ClientError(f"the cluster {name} already exists; {advice}")


def _store_kubeconfig(client: Client, cluster: str, config: ExportedKubeconfig) -> bool:
    """Stores the kubeconfig in a Secret. Returns False if it overwrites the Secret of an earlier attempt."""
    data = {KUBECONFIG_KEY: b64encode(config.content).decode()}
    metadata = {"name": secret_name(cluster), "labels": {CLUSTER_LABEL: cluster}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    try:
        client.send("POST", client.core_path(SECRETS, namespace=SYSTEM_NAMESPACE), body)
    except ApiStatusError as problem:
        if problem.reason != "AlreadyExists":
            raise
    else:
        return True
    path = secret_path(client, cluster)
    if not is_managed_secret(client.send("GET", path), cluster):
        command = f"kubectl -n {SYSTEM_NAMESPACE} delete secret {secret_name(cluster)}"
        raise ClientError(
            f"the Secret {secret_name(cluster)} already exists and was not created by this command; choose another "
            f"name for the cluster, or, if the Secret is not needed, `{command}`"
        )
    client.send("PATCH", path, {"data": data}, media_type=MERGE_PATCH)
    return False


def _build_body(options: ClusterAddOptions) -> Object:
    config = {"secretName": secret_name(options.name), "secretNamespace": SYSTEM_NAMESPACE, "key": KUBECONFIG_KEY}
    spec = {"displayName": options.display_name, "description": options.description, "config": config}
    return build_object("Cluster", options.name, spec)


def _wait_probed(client: Client, cluster: Object, timeout: int) -> Object:
    """Waits until the server has probed the cluster, for at most `timeout` seconds. Shows each new condition."""
    ref, last = object_ref(client, CLUSTERS, cluster), cluster
    try:
        with show_progress(f"waiting for the server to connect to {ref.name}") as update:
            for state in watch_object(client, ref, timeout):
                for line in changed_conditions(last, state) or _describe_failure(state):
                    update(f"{ref.name}: {line}")
                if is_probed(state):
                    return state
                last = state
    except DeadlineExceeded:
        reason = "".join(_describe_failure(last)) or "the server has not probed it yet"
        raise ClientError(
            f"the cluster {ref.name} is not connected after {format_duration(timeout)}: {reason}; the server "
            f"continues; `fairlead cluster check {ref.name}` shows the status"
        ) from None
    raise ClientError(f"the cluster {ref.name} was deleted while waiting; add it again")


def _describe_failure(cluster: Object) -> list[str]:
    """The first failure in a line; empty if there is none."""
    text = ": ".join(part for part in failure(cluster) if part)
    return [text] if text else []


def _report_unhealthy(cluster: Object) -> typer.Exit:
    """Prints the failed probes and advice on stderr, and returns the exception to raise."""
    error = exit_with_error(summary_line(cluster))
    _, cause = failure(cluster)
    probes = [line for line in probe_lines(cluster) if not cause or cause not in line]  # the summary has it already
    for line in (*probes, *advice(cluster, datetime.now(UTC))):
        print_note(f"  {line}")
    name = get_path(cluster, "metadata.name")
    print_note(f"  to use another kubeconfig, run `fairlead cluster remove {name}`, then add it again")
    return error
