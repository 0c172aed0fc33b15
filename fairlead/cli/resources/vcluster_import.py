"""`fairlead vcluster import`: an instance for a virtual cluster that already runs.

By a kubeconfig file, or by the Secret in which its chart stored the kubeconfig: that is read through the gateway of the
cluster with the permissions of the user, so the cluster decides. The kubeconfig is stored in a Secret of the project
that is deleted together with the instance. The virtual cluster itself is never deployed, changed or deleted.
"""

from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.resources.instance import WaitOptions, finish_creation, instance_resource
from fairlead.cli.ui.describe import build_object, drop_none
from fairlead.cli.ui.flags import DescriptionFlag, DisplayNameFlag, RequiredProjectFlag, flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import NewObject, create_object
from fairlead.cli.ui.session import Session, UsageError, exit_with_error, open_session, project_namespace
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.client import MERGE_PATCH, quote_segment
from fairlead.client.kubeconfig_export import NotExportable, export_context, kubeconfig_paths
from fairlead.core.objects import Object, get_path

VIRTUAL_CLUSTERS = instance_resource(
    "virtualclusterinstances",
    "VirtualClusterInstance",
    "virtual cluster",
    "no virtual clusters; create one with `fairlead vcluster create`",
    ("CLUSTER", "spec.clusterRef.cluster"),
)
KUBECONFIG_KEY = "config"
SOURCE_ANNOTATION = "service.sh/import-source"
"""CLUSTER/NAMESPACE/RELEASE: the server reaches the virtual cluster through that cluster."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    name: Annotated[str, typer.Argument(help="Name of the new instance.")]
    project: RequiredProjectFlag
    kubeconfig: Annotated[
        Path | None, flag("--kubeconfig", help="Kubeconfig of the virtual cluster.", metavar="FILE")
    ] = None
    kube_context: Annotated[
        str | None,
        flag("--kube-context", help="Context in that file.", metavar="CONTEXT", default="the file's current one"),
    ] = None
    cluster: Annotated[
        str | None, flag("--cluster", help="Connected cluster that it runs in.", metavar="C", complete="clusters")
    ] = None
    namespace: Annotated[str | None, flag("--namespace", "-n", help="Its namespace in that cluster.", metavar="NS")] = (
        None
    )
    virtual_cluster: Annotated[
        str | None, flag("--virtual-cluster", help="Its name in that namespace: that of the release.", metavar="V")
    ] = None
    external: Annotated[
        bool, typer.Option("--external", help="Only list it: another tool gives access to it and reports its status.")
    ] = False
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    waiting: WaitOptions = field(default_factory=WaitOptions)


@options_from(ImportOptions)
def command(options: ImportOptions) -> None:
    """Import a virtual cluster that already runs into a project.

    Name its kubeconfig, or where it runs: --cluster, --namespace and --virtual-cluster. The server provides access to
    it, but never deploys, changes or deletes it.
    """
    with open_session(options.waiting.context) as session:
        source = _source_of(options)
        if options.external:
            new = _new_instance(options, {"external": True, "clusterRef": _cluster_ref(options)}, {})
            created = create_object(session, VIRTUAL_CLUSTERS, new)
        else:
            content = _read_secret(session, options) if source else _read_file(options)
            annotations = {SOURCE_ANNOTATION: source} if source else {}
            config = {"secretName": secret_name(options.name), "key": KUBECONFIG_KEY}
            new = _new_instance(options, {"config": config}, annotations)
            created = _create_with_secret(session, new, secret_name(options.name), content)
        finish_creation(session, VIRTUAL_CLUSTERS, created, new, options.waiting)


def secret_name(instance: str) -> str:
    return f"vcluster-{instance}"


def _source_of(options: ImportOptions) -> str:
    """The import source; empty for a file and for one that another tool manages. Raises UsageError."""
    place = {
        "--cluster": options.cluster,
        "--namespace": options.namespace,
        "--virtual-cluster": options.virtual_cluster,
    }
    missing = [name for name, value in place.items() if not value]
    if options.external:
        if options.kubeconfig or options.kube_context:
            raise UsageError("--external and --kubeconfig are mutually exclusive; choose one")
        return ""
    if options.kubeconfig is not None:
        if len(missing) < len(place):
            raise UsageError("--kubeconfig and --cluster, --namespace, --virtual-cluster are mutually exclusive")
        return ""
    if options.kube_context:
        raise UsageError("--kube-context is a context of a file; name that with --kubeconfig")
    if missing:
        advice = "name its kubeconfig with --kubeconfig FILE, or where it runs with --cluster, --namespace and"
        absent = f"; {', '.join(missing)} is missing" if len(missing) < len(place) else ""
        raise UsageError(f"{advice} --virtual-cluster{absent}")
    return "/".join(str(value) for value in place.values())


def _cluster_ref(options: ImportOptions) -> Object | None:
    reference = {
        "cluster": options.cluster,
        "namespace": options.namespace,
        "virtualCluster": options.virtual_cluster,
    }
    return drop_none(reference) or None


def _new_instance(options: ImportOptions, parts: Object, annotations: Object) -> NewObject:
    spec = {"displayName": options.display_name, "description": options.description, **parts}
    body = build_object(VIRTUAL_CLUSTERS.kind, options.name, spec)
    if annotations:
        body["metadata"]["annotations"] = annotations
    which = "the external virtual cluster" if options.external else "the virtual cluster"
    message = f"imported {which} {options.name} into the project {options.project}"
    command = "show" if options.external else "connect"
    does = "shows its status" if options.external else "writes a kubectl context for it"
    hint = f"`fairlead vcluster {command} {options.name} --project {options.project}` {does}"
    return NewObject(body, message, options.project, hint)


def _read_file(options: ImportOptions) -> bytes:
    try:
        return export_context(kubeconfig_paths(options.kubeconfig), options.kube_context).content
    except NotExportable as problem:
        raise exit_with_error(str(problem)) from None


def _read_secret(session: Session, options: ImportOptions) -> bytes:
    """The kubeconfig that the chart wrote, read as the user through the gateway of the cluster."""
    name = f"vc-{options.virtual_cluster}"
    where = f"the Secret {name} in the namespace {options.namespace} of the cluster {options.cluster}"
    parts = ("kubernetes", "cluster", options.cluster or "", "api", "v1", "namespaces", options.namespace or "")
    path = "/".join(("", *map(quote_segment, (*parts, "secrets", name))))
    try:
        secret = session.client.send("GET", path)
    except ApiStatusError as problem:
        if problem.code == 404:
            advice = "check the names; the chart of a virtual cluster stores its kubeconfig there"
            raise ClientError(f"{where} does not exist; {advice}") from None
        if problem.code == 403:
            advice = "ask for that permission in the cluster, or for the kubeconfig, to import it with --kubeconfig"
            raise ClientError(f"you may not read {where}: {problem.message}; {advice}") from None
        raise
    try:
        return b64decode(str(get_path(secret, "data")[KUBECONFIG_KEY]), validate=True)
    except (KeyError, TypeError, ValueError):
        raise ClientError(
            f"{where} has no kubeconfig in its key {KUBECONFIG_KEY}; is it of a virtual cluster?"
        ) from None


def _create_with_secret(session: Session, new: NewObject, secret: str, content: bytes) -> Object:
    """Creates the Secret, then the instance, which becomes its owner. If the instance is rejected, the Secret is
    deleted again."""
    client = session.client
    namespace = project_namespace(session, new.project)
    data = {KUBECONFIG_KEY: b64encode(content).decode()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "type": "Opaque", "data": data}
    try:
        client.send("POST", client.core_path("secrets", namespace=namespace), body)
    except ApiStatusError as problem:
        if problem.reason == "AlreadyExists":
            advice = "choose another name, or delete it, if it is of an earlier import"
            raise ClientError(f"the Secret {secret} already exists in the project {new.project}; {advice}") from None
        raise
    path = client.core_path("secrets", secret, namespace=namespace)
    try:
        created = create_object(session, VIRTUAL_CLUSTERS, new)
    except ClientError:
        with suppress(ClientError):  # the original error is the one to report
            client.send("DELETE", path)
        raise
    owner = {"apiVersion": created.get("apiVersion"), "kind": VIRTUAL_CLUSTERS.kind}
    owner |= {"name": get_path(created, "metadata.name"), "uid": get_path(created, "metadata.uid")}
    try:
        client.send("PATCH", path, {"metadata": {"ownerReferences": [owner]}}, media_type=MERGE_PATCH)
    except ApiStatusError as problem:
        print_note(f"warning: the Secret {secret} stays when the instance is deleted: {problem.message}")
    return created
