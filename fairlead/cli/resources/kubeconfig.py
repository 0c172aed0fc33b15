"""`fairlead kubeconfig`: adds a kubectl context for the server's own API or for a gateway to a cluster.

`fairlead space kubeconfig` uses it too. For a login through the console, kubectl runs `fairlead credential`, so the
file holds no secret. A key that does not change is embedded, so that any client can use it; with `--exec`, kubectl runs
`fairlead credential` instead, and later logins and key rotations take effect automatically.

A gateway is a path on the server that proxies the API of a cluster. The target is looked up first, so that a mistyped
name fails here and not in kubectl. A scoped key may be able to use a cluster without reading it; the lookup is then
skipped.
"""

import os
import shutil
import sys
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.resources.instance import describe_phase, phase_of
from fairlead.cli.ui.completion import SCOPE_COMPLETERS
from fairlead.cli.ui.field_flags import require_project
from fairlead.cli.ui.flags import ContextFlag, flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.admin_kubeconfig import is_server_file
from fairlead.client.client import MANAGEMENT, quote_segment
from fairlead.client.contexts import replace_separators
from fairlead.client.kubeconfig import KubeconfigEntry, cluster_entry, merge_entry, merge_into_file
from fairlead.client.kubeconfig_export import kubeconfig_paths
from fairlead.core.objects import Object, get_path

GATEWAY_ROOT = "/kubernetes"
ACCESS_POINT_SECONDS = 5.0
"""How long the access point of a virtual cluster may take to answer before its gateway is used."""
USABLE_PHASES = ("Ready", "Sleeping")
"""Phases of a virtual cluster that can be connected to: one that sleeps wakes up when it is used."""


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """A Kubernetes API behind the server: its path, the default namespace, and a label for the context name."""

    path: str
    namespace: str = ""
    label: str = ""
    access_point: Object | None = None
    """Where it is reached without the server: the field `status.accessPoint` of a virtual cluster."""


def management_target(session: Session, project: str) -> ApiTarget:
    """The server's own API, with the namespace of a project if one is set."""
    return ApiTarget(MANAGEMENT, project_namespace(session, project) if project else "", project)


def cluster_target(session: Session, cluster: str) -> ApiTarget:
    _find(session, "clusters", cluster)
    return ApiTarget(f"{GATEWAY_ROOT}/cluster/{quote_segment(cluster)}", label=f"cluster-{cluster}")


def space_target(session: Session, project: str, space: str) -> ApiTarget:
    """The gateway of a space. Its namespace is set in the context, because no other can be accessed."""
    instance = session.client.get("spaceinstances", space, namespace=project_namespace(session, project))
    namespace = get_path(instance, "spec.clusterRef.namespace")
    if not namespace:
        advice = f"`fairlead space list --project {project}` shows its phase"
        raise ClientError(f"the space {space} has no namespace in a cluster yet; {advice}")
    return ApiTarget(_instance_path(project, "space", space), str(namespace), f"space-{project}-{space}")


def virtual_cluster_target(session: Session, project: str, name: str) -> ApiTarget:
    """The gateway of a virtual cluster. Raises ClientError unless it can be used, or wakes up when it is."""
    instance = _find(session, "virtualclusterinstances", name, project_namespace(session, project))
    if instance is not None and phase_of(instance) not in USABLE_PHASES:
        raise ClientError(
            f"the virtual cluster {name} is {describe_phase(instance)}; `fairlead vcluster connect {name} --project "
            f"{project} --wait` waits until it is ready"
        )
    return ApiTarget(
        _instance_path(project, "virtualcluster", name),
        label=f"virtualcluster-{project}-{name}",
        access_point=_find_access_point(session, instance or {}),
    )


def _find_access_point(session: Session, instance: Object) -> Object | None:
    """The access point of a virtual cluster, if it accepts the credential of this session; else the gateway is used."""
    access_point = get_path(instance, "status.accessPoint") or {}
    if not access_point.get("acceptsTokens") or not access_point.get("certificateAuthority"):
        return None
    url = access_point["url"]
    try:
        with Client(url, session.login.current_key(), authority=access_point["certificateAuthority"]) as client:
            client.timeout = ACCESS_POINT_SECONDS
            client.send("GET", "/api")
    except ClientError as problem:
        print_note(f"the context leads through the server: the virtual cluster is not reached at {url}: {problem}")
        return None
    print_note(f"the context leads to the virtual cluster itself, at {url}")
    return access_point


def _instance_path(project: str, kind: str, name: str) -> str:
    return f"{GATEWAY_ROOT}/project/{quote_segment(project)}/{kind}/{quote_segment(name)}"


def _find(session: Session, plural: str, name: str, namespace: str = "") -> Object | None:
    """The object; None if the user may not read it. Raises ApiStatusError if it does not exist."""
    try:
        return session.client.get(plural, name, namespace=namespace)
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return None


EXEC_VERSION = "client.authentication.k8s.io/v1"
STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class KubeconfigOptions:
    """Flags for the kubeconfig file and the authentication of the context."""

    context: ContextFlag = None
    context_name: Annotated[
        str | None, flag("--context-name", help="Name of the context in the file.", default="fairlead-LOGIN[-TARGET]")
    ] = None
    use_exec: Annotated[
        bool | None,
        flag(
            "--exec/--embed",
            help="Let kubectl run `fairlead credential`, or embed the key in the file.",
            default="exec for a login through the console, else embed",
        ),
    ] = None
    file: Annotated[
        Path | None,
        flag("--output", "-o", help="File to write; - for stdout.", default="$KUBECONFIG, else ~/.kube/config"),
    ] = None
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Do not change the file's current context.")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class KubeconfigTargetOptions:
    project: Annotated[
        str | None,
        flag("--project", help="Project whose namespace the context uses.", metavar="P", complete="projects"),
    ] = None
    cluster: Annotated[
        str | None, flag("--cluster", help="Connected cluster for the context.", metavar="C", complete="clusters")
    ] = None
    space: Annotated[
        str | None, flag("--space", help="Space for the context.", metavar="P/S", complete=SCOPE_COMPLETERS["--space"])
    ] = None
    virtual_cluster: Annotated[
        str | None,
        flag(
            "--virtual-cluster",
            help="Virtual cluster for the context.",
            metavar="P/V",
            complete=SCOPE_COMPLETERS["--virtual-cluster"],
        ),
    ] = None
    kubeconfig: KubeconfigOptions = field(default_factory=KubeconfigOptions)


@options_from(KubeconfigTargetOptions)
def command(options: KubeconfigTargetOptions) -> None:
    """Write a kubectl context for the server's own API, or for a cluster behind it.

    Other contexts in the file are kept, and the previous version is saved next to it as a .bak file.
    """
    with open_session(options.kubeconfig.context) as session:
        write_context(session, _resolve_target(session, options), options.kubeconfig)


def _resolve_target(session: Session, options: KubeconfigTargetOptions) -> ApiTarget:
    targets = [
        each for each in (options.project, options.cluster, options.space, options.virtual_cluster) if each is not None
    ]
    if len(targets) > 1:
        raise UsageError("--project, --cluster, --space and --virtual-cluster are mutually exclusive; choose one")
    if options.cluster is not None:
        return cluster_target(session, options.cluster)
    if options.space is not None:
        return space_target(session, *_split_pair(options.space, "--space P/S"))
    if options.virtual_cluster is not None:
        return virtual_cluster_target(session, *_split_pair(options.virtual_cluster, "--virtual-cluster P/V"))
    if options.project:
        require_project(session.client, options.project)
    return management_target(session, options.project or "")


def _split_pair(text: str, form: str) -> tuple[str, str]:
    project, slash, name = text.partition("/")
    if not project or not slash or not name or "/" in name:
        raise UsageError(f"{text!r} does not include the project; use the format {form}")
    return project, name


def write_context(session: Session, target: ApiTarget, options: KubeconfigOptions) -> None:
    """Writes the context for `target` into the requested file."""
    from fairlead.core import yaml

    entry = _build_entry(session, target, options)
    if options.file == STDOUT:
        sys.stdout.write(yaml.encode(merge_entry({}, entry, make_current=True)).decode())
        return
    path = options.file.expanduser() if options.file else default_kubeconfig()
    keeps_current = options.keep_current or is_server_file(path)
    backup = merge_into_file(path, entry, make_current=not keeps_current)
    saved = f"; the previous version is {backup}" if backup else ""
    print_note(f"wrote the context {entry.name!r} to {path}{saved}")
    if keeps_current and not options.keep_current:
        print_note("its current context is unchanged: the file is that of a server, for its administrator")
    _print_usage_hint(options.file, path, entry.name, keeps_current=keeps_current)


def _build_entry(session: Session, target: ApiTarget, options: KubeconfigOptions) -> KubeconfigEntry:
    parts = ("fairlead", session.name, target.label)
    name = options.context_name or replace_separators("-".join(part for part in parts if part))
    use_exec = bool(session.login.session) if options.use_exec is None else options.use_exec
    if session.login.session and not use_exec:
        advice = "omit --embed, or create a key with `fairlead key create` and log in with it"
        raise UsageError(f"the key of this login lasts a few minutes and cannot be embedded; {advice}")
    user = {"exec": _exec_config(session.name, session.login.url)} if use_exec else {"token": session.login.key}
    cluster = cluster_entry(session.login, target.path)
    if target.access_point is not None:
        authority = b64encode(target.access_point["certificateAuthority"].encode()).decode()
        cluster = {"server": target.access_point["url"], "certificate-authority-data": authority}
    return KubeconfigEntry(name, cluster, user, target.namespace)


def _exec_config(login: str, server: str) -> Object:
    executable = shutil.which("fairlead")
    command_line = [executable] if executable else [sys.executable, "-m", "fairlead"]
    context = ["--context", login] if login else []
    return {
        "apiVersion": EXEC_VERSION,
        "command": command_line[0],
        "args": [*command_line[1:], "credential", *context, "--server", server],
        "interactiveMode": "IfAvailable",
        "installHint": "install Fairlead, and log in with `fairlead login`",
        "provideClusterInfo": False,
    }


def default_kubeconfig() -> Path:
    """The file that kubectl would change: the first one that exists, else the last."""
    paths = kubeconfig_paths(None)
    return next((each for each in paths if os.path.exists(each)), paths[-1])


def _print_usage_hint(file: Path | None, path: Path, name: str, *, keeps_current: bool) -> None:
    if file is not None:
        print_note(f"use it with `kubectl --kubeconfig {path} --context {name}`")
    elif keeps_current:
        print_note(f"use it with `kubectl --context {name}`")
