"""The namespace of an instance in a connected cluster, and its role bindings: applied and deleted.

A namespace belongs to an instance only by its labels. Without them it is never changed or deleted, whatever its name.
`namespace_contents.py` applies it, for the controllers of spaces and virtual clusters, which also delete it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fairlead.controllers.instances.remote_errors import (
    ERROR,
    INFO,
    NAMESPACE_TERMINATING,
    WARNING,
    InstanceError,
    quote_remote,
    unexpected_response,
)
from fairlead.controllers.instances.remote_names import (
    MANAGED_LABEL,
    MANAGED_VALUE,
    RUNNER_LABEL,
    SPACE_LABEL,
    UID_LABEL,
    VIRTUAL_CLUSTER_LABEL,
)
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.upstream.kube_client import FIELD_MANAGER, KubeApi, RemoteApiError

NAMESPACES_PATH = "/api/v1/namespaces"
CLUSTER_ROLE_BINDINGS_PATH = f"/apis/{RBAC}/v1/clusterrolebindings"
NAMESPACE_CONFLICT, DELETING = "NamespaceConflict", "Deleting"
_BLOCKING_CONDITIONS = (
    *("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"),
    *("NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"),
)
_CONTENT_REMAINING = "NamespaceContentRemaining"
"""Conditions of a terminating namespace: those that block its deletion, and that some content remains."""
ADMINISTRATORS_BINDING = "service.sh:admins"
"""The binding of the administrators in connected clusters; see `controllers/clusters/admin_binding.py`."""
_NOT_FOUND, _INVALID = 404, 422
_OUR_DOMAIN = "service.sh/"
POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
_KIND_LABELS = frozenset({SPACE_LABEL, VIRTUAL_CLUSTER_LABEL, RUNNER_LABEL})


@dataclass(frozen=True, slots=True)
class RemoteNamespace:
    """The location of an instance: cluster, namespace, and the ownership labels of its objects."""

    cluster: str
    namespace: str
    labels: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"{NAMESPACES_PATH}/{url_segment(self.namespace)}"

    def with_ownership_labels(self, other_labels: Mapping[str, str] | None) -> dict[str, str]:
        """Adds the ownership labels, which watches select by. Other labels of our domain are dropped."""
        return {**_without_own_domain(other_labels), **self.labels}

    def owns(self, existing: Object) -> bool:
        """Whether an object in the namespace was applied for this instance, by its labels."""
        labels = get_path(existing, "metadata.labels")
        return isinstance(labels, dict) and labels.get(UID_LABEL) == self.labels[UID_LABEL]


async def get_or_none(api: KubeApi, path: str) -> Object | None:
    """Gets an object; None if it does not exist."""
    try:
        return await api.get(path)
    except RemoteApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return None


async def ensure_namespace(
    api: KubeApi, target: RemoteNamespace, template: Object, *, pod_security: str = "", leave_as_is: bool = False
) -> bool:
    """Creates or updates the namespace, with the labels and annotations of a template. Returns whether it is active.
    `pod_security` is the enforced pod security level, unless another field manager has set one. With `leave_as_is`, an
    existing namespace is not changed."""
    existing = await get_or_none(api, target.path)
    if existing is None:
        # With the ownership labels only: the rest is applied below, so that apply can remove it again later.
        await api.create(NAMESPACES_PATH, _build_namespace(target, {}, {}))
    elif not is_owned_by(existing, target):
        message = (
            f'namespace "{target.namespace}" in cluster "{target.cluster}" exists and does not belong to this '
            "instance; "
            "delete it there, or delete this instance and create one with another spec.clusterRef.namespace"
        )
        raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
    elif "deletionTimestamp" in metadata(existing):
        location, blocker = (
            f'namespace "{target.namespace}" in cluster "{target.cluster}"',
            find_deletion_blocker(existing).message,
        )
        message = f"{location} is terminating{f' ({blocker})' if blocker else ''}; it will be created again after that"
        raise InstanceError(NAMESPACE_TERMINATING, message, INFO)
    if leave_as_is and existing is not None:
        return get_path(existing, "status.phase") in (None, "", "Active")
    level = {POD_SECURITY_LABEL: pod_security} if pod_security and not _is_set_by_others(existing) else {}
    applied = await api.apply(target.path, _build_namespace(target, template, level))
    return get_path(applied, "status.phase") in (None, "", "Active")


def is_owned_by(namespace: Object, target: RemoteNamespace) -> bool:
    """Compares the labels for the uid and for the kind of the instance: a uid is never valid for another kind."""
    labels = get_path(namespace, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise unexpected_response("the labels of a namespace are not a map")
    is_same = labels.get(MANAGED_LABEL) == MANAGED_VALUE and labels.get(UID_LABEL) == target.labels[UID_LABEL]
    return is_same and _KIND_LABELS & labels.keys() == _KIND_LABELS & target.labels.keys()


def _is_set_by_others(existing: Object | None) -> bool:
    """Whether another field manager has set the pod security level of a namespace."""
    if POD_SECURITY_LABEL not in (get_path(existing, "metadata.labels") or {}):
        return False
    managers = get_path(existing, "metadata.managedFields")
    server_owned = (
        each.get("fieldsV1")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and (each.get("manager"), each.get("operation")) == (FIELD_MANAGER, "Apply")
    )
    labels = (get_path(fields, "f:metadata.f:labels") for fields in server_owned)
    return not any(isinstance(each, dict) and f"f:{POD_SECURITY_LABEL}" in each for each in labels)


def _build_namespace(target: RemoteNamespace, template: Object, labels: Mapping[str, str]) -> Object:
    """Labels and annotations of our domain in a template are ignored: they identify the owner of a namespace."""
    meta: Object = {
        "name": target.namespace,
        "labels": {**target.with_ownership_labels(get_path(template, "metadata.labels")), **labels},
    }
    if annotations := _without_own_domain(get_path(template, "metadata.annotations")):
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _without_own_domain(values: Mapping[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (values or {}).items() if not key.startswith(_OUR_DOMAIN)}


async def bind_roles(api: KubeApi, target: RemoteNamespace, bindings: Sequence[Object]) -> None:
    """Applies the RoleBindings of a namespace, and deletes obsolete ones."""
    labelled = [_with_labels(binding, target.labels) for binding in bindings]
    path = f"/apis/{RBAC}/v1/namespaces/{url_segment(target.namespace)}/rolebindings"
    await _sync_bindings(api, path, labelled, target.labels, await _list_bindings(api, path))


async def bind_cluster_roles(
    api: KubeApi, bindings: Sequence[Object], instance_labels: Mapping[str, str], instance_exists: Callable[[str], bool]
) -> None:
    """Applies the ClusterRoleBindings of a virtual cluster, with the labels of its instance. `instance_exists` checks
    a uid: two instances for the same virtual cluster must not overwrite each other's bindings."""
    if any(name_of(each) == ADMINISTRATORS_BINDING for each in bindings):
        message = (
            f'the ClusterRoleBinding "{ADMINISTRATORS_BINDING}" is reserved for the administrators of connected '
            "clusters; rename the ClusterRole, and use the new name in the access rules"
        )
        raise InstanceError("BindingReserved", message, ERROR)
    existing = await _list_bindings(api, CLUSTER_ROLE_BINDINGS_PATH)
    labels_of_existing = (get_path(existing.get(name_of(each)), "metadata.labels") or {} for each in bindings)
    uids = {labels.get(UID_LABEL) for labels in labels_of_existing if isinstance(labels, dict)} - {
        None,
        instance_labels[UID_LABEL],
    }
    if any(isinstance(uid, str) and instance_exists(uid) for uid in uids):
        message = (
            "another virtual cluster instance is the same cluster, and has bound the roles of its users there; delete "
            "one of the two, and use the other"
        )
        raise InstanceError("AccessConflict", message, ERROR)
    for name in map(name_of, bindings):
        if (
            name not in existing
            and await get_or_none(api, f"{CLUSTER_ROLE_BINDINGS_PATH}/{url_segment(name)}") is not None
        ):
            message = (
                f'a ClusterRoleBinding "{name}" exists without the labels of this server, and is not changed; '
                "delete or rename it"
            )
            raise InstanceError("BindingConflict", message, ERROR)
    await _sync_bindings(
        api,
        CLUSTER_ROLE_BINDINGS_PATH,
        [_with_labels(binding, instance_labels) for binding in bindings],
        instance_labels,
        existing,
    )


async def unbind_cluster_roles(
    api: KubeApi, instance_labels: Mapping[str, str]
) -> tuple[Sequence[str], Mapping[str, str]]:
    """Deletes the bindings of the instance. Returns the deleted names, and those that were kept, with the reason."""
    removed, others = [], {}
    for name, binding in (await _list_bindings(api, CLUSTER_ROLE_BINDINGS_PATH)).items():
        if message := _foreign_owner_reason(name, binding, instance_labels):
            others[name] = message
        else:
            await delete_if_exists(api, f"{CLUSTER_ROLE_BINDINGS_PATH}/{url_segment(name)}", uid_precondition(binding))
            removed.append(name)
    return removed, others


async def _sync_bindings(
    api: KubeApi,
    path: str,
    bindings: Sequence[Object],
    instance_labels: Mapping[str, str],
    existing: Mapping[str, Object],
) -> None:
    """Applies the bindings, and deletes existing ones of the instance that are not desired any more."""
    for binding in bindings:
        await _apply_binding(api, f"{path}/{url_segment(name_of(binding))}", binding)
    desired = {name_of(binding) for binding in bindings}
    for name, binding in existing.items():
        if name not in desired and not _foreign_owner_reason(name, binding, instance_labels):
            await delete_if_exists(api, f"{path}/{url_segment(name)}")


async def _list_bindings(api: KubeApi, path: str) -> dict[str, Object]:
    """The existing bindings with our labels and our name prefix."""
    response = await api.get(f"{path}?labelSelector={MANAGED_LABEL}%3D{MANAGED_VALUE}")
    by_name = {name_of(each): each for each in list_items(response, "items")}
    return {name: by_name[name] for name in sorted(by_name) if name.startswith(BINDING_PREFIX)}


def _foreign_owner_reason(name: str, binding: Object, instance_labels: Mapping[str, str]) -> str:
    """Why a binding with our name prefix does not belong to the instance with these labels; empty if it does."""
    if name == ADMINISTRATORS_BINDING:
        return "the same cluster is also connected as a Cluster"
    labels = get_path(binding, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise unexpected_response("the labels of a binding are not a map")
    is_of_another = labels.get(UID_LABEL) not in (None, instance_labels[UID_LABEL])
    return "it belongs to another instance of the same cluster" if is_of_another else ""


def _with_labels(binding: Object, instance_labels: Mapping[str, str]) -> Object:
    meta = metadata(binding)
    return {**binding, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **instance_labels}}}


async def _apply_binding(api: KubeApi, path: str, binding: Object) -> None:
    """The roleRef of a binding is immutable, so a binding with another roleRef is deleted and created again."""
    try:
        await api.apply(path, binding)
    except RemoteApiError as error:
        existing = await get_or_none(api, path) if error.status == _INVALID else None
        if existing is None or existing.get("roleRef") == binding["roleRef"]:
            raise
        await delete_if_exists(api, path, uid_precondition(existing))
        await api.apply(path, binding)


def uid_precondition(existing: Object) -> Object:
    """DeleteOptions with the uid of the object as a precondition."""
    uid = get_path(existing, "metadata.uid")
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def list_items(document: Object, field: str) -> list[Object]:
    """A list of objects in a response. Raises InstanceError if it is anything else."""
    found = document.get(field) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise unexpected_response(f"{field} is not a list of objects")
    return found


def url_segment(name: str) -> str:
    """Percent-encodes a name as one path segment."""
    return quote(name, safe=":")


async def delete_if_exists(api: KubeApi, path: str, options: Object | None = None) -> None:
    """Deletes an object, if it exists."""
    try:
        await api.delete(path, options)
    except RemoteApiError as error:
        if error.status != _NOT_FOUND:
            raise


async def delete_namespace(api: KubeApi, target: RemoteNamespace) -> InstanceError | None:
    """Deletes the namespace if it belongs to the instance. Returns None when done; otherwise what that waits for."""
    existing = await get_or_none(api, target.path)
    if existing is None or not is_owned_by(existing, target):
        return None
    if "deletionTimestamp" not in metadata(existing):
        await delete_if_exists(api, target.path, uid_precondition(existing))
    return find_deletion_blocker(existing)


def find_deletion_blocker(namespace: Object) -> InstanceError:
    """What a terminating namespace waits for, from its conditions."""
    conditions = get_path(namespace, "status.conditions")
    valid = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    messages = {str(each.get("type")): each.get("message") or "" for each in valid if each.get("status") == "True"}
    found = [type for type in (*_BLOCKING_CONDITIONS, _CONTENT_REMAINING) if type in messages]
    message = "; ".join(f"{type}: {quote_remote(messages[type])}" for type in found)
    if found and found[0] in _BLOCKING_CONDITIONS:
        return InstanceError(found[0], message, WARNING)
    return InstanceError(DELETING, message, INFO)
