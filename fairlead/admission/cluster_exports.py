"""Exports of clusters to the cluster in which Argo CD runs: who may declare them, and what is valid.

The server writes access keys into that cluster, which act as the user that the annotations name. So only administrators
set the annotations, and only they lead a Cluster that has them to another cluster: its kubeconfig is in the system
namespace, or its agent has joined with a token of theirs (`subresources/agents/identities.py`). The server finds its
own keys by marks on them, which only it sets or changes.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.cluster_exports import (
    ARGOCD_ANNOTATION,
    CLUSTER_UID_ANNOTATION,
    DESTINATION_LABEL,
    EXPORT_ANNOTATIONS,
    EXPORT_CLUSTER_LABEL,
    EXPORT_LABEL,
    NAMESPACE_ANNOTATION,
    SELECTOR_ANNOTATION,
    USER_ANNOTATION,
    DeclaredExport,
    find_connection_problem,
)
from fairlead.core.errors import BadRequest, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.registry.kind import Change
from fairlead.registry.names import dns_label_errors
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import parse_labels

_CONNECTION_FIELDS = ("spec.config", "spec.networkPeer", "spec.local")


def protect_cluster_exports(api_group: str, system_namespace: str) -> Rule:
    """Leaves the annotations for exports, and the connection of a Cluster that has them, to administrators."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, CLUSTER.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.new is None or change.subresource:
            return
        before = _export_annotations(change.old)
        after = _export_annotations(change.obj)
        moved = [path for path in _CONNECTION_FIELDS if get_path(change.old, path) != get_path(change.obj, path)]
        if before == after and not (before and moved):
            return
        if not change.user.is_unscoped_admin:
            fields = ", ".join(moved)
            why = f"the server writes access keys into this cluster, so only administrators may change {fields}"
            if before != after:
                names = ", ".join(EXPORT_ANNOTATIONS)
                why = f"only administrators, with a key without a scope, may set or change the annotations {names}"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
        if problems := list(_problems(change.obj, system_namespace)):
            raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)

    return rule


def protect_exported_keys(api_group: str) -> Rule:
    """Leaves to the server what says of an access key in which cluster and namespace its Secret is.

    The other marks of an exported key stay as they are: a key without them would not end with its cluster.
    """

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.new is None or change.subresource:
            return
        changed = [
            f"{field}[{name}]"
            for field, name in (*_PLACE_MARKS, *(_EXPORT_MARKS if change.old is not None else ()))
            if _entry(change.old, field, name) != _entry(change.obj, field, name)
        ]
        if changed:
            why = (
                f"only the server sets or changes metadata.{changed[0]}, which marks exported keys; leave it as it "
                "is, or out of a new key"
            )
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


_PLACE_MARKS = (("labels", DESTINATION_LABEL), ("annotations", NAMESPACE_ANNOTATION))
"""Where a Secret is. Only the server writes these."""
_EXPORT_MARKS = (("labels", EXPORT_LABEL), ("labels", EXPORT_CLUSTER_LABEL), ("annotations", CLUSTER_UID_ANNOTATION))
"""What a key was exported for. The command line sets these on new keys."""


def _entry(obj: Object | None, field: str, name: str) -> object:
    """None also if the field is no mapping, which the schema rejects later."""
    found = get_path(obj, f"metadata.{field}")
    return found.get(name) if isinstance(found, dict) else None


def _export_annotations(obj: Object | None) -> Object:
    found = get_path(obj, "metadata.annotations")
    return {name: found[name] for name in EXPORT_ANNOTATIONS if name in found} if isinstance(found, dict) else {}


def _problems(cluster: Object, system_namespace: str) -> Iterator[Problem]:
    found = _export_annotations(cluster)
    export = DeclaredExport.of(cluster)
    if export is None:
        if found:
            yield Problem.required(
                f"metadata.annotations[{ARGOCD_ANNOTATION}]", "name the namespace in which Argo CD runs"
            )
        return
    for error in dns_label_errors(export.namespace):
        yield Problem.invalid(f"metadata.annotations[{ARGOCD_ANNOTATION}]", export.namespace, error)
    if not export.user:
        yield Problem.required(f"metadata.annotations[{USER_ANNOTATION}]", "name the user that Argo CD acts as")
    try:
        parse_labels(export.selector)
    except BadRequest as error:
        yield Problem.invalid(f"metadata.annotations[{SELECTOR_ANNOTATION}]", export.selector, error.message)
    if problem := find_connection_problem(cluster, system_namespace):
        yield Problem.forbidden("spec.config.secretNamespace", problem)
