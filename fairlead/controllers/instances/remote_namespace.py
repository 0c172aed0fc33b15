"""The namespace of an instance in a connected cluster, and its role bindings: applied and deleted.

A namespace belongs to an instance only by its labels. Without them it is never changed or deleted, whatever its name.
Called by `spaces.py` and `virtual_clusters.py` inside `translate_errors`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from fairlead.controllers.instances.remote_errors import (
    ERROR,
    INFO,
    NAMESPACE_TERMINATING,
    WARNING,
    Trouble,
    odd_answer,
    quoted,
)
from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED, SPACE, UID, VIRTUAL_CLUSTER
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.upstream.kube_client import FIELD_MANAGER, FarError

NAMESPACES = "/api/v1/namespaces"
CLUSTER_ROLE_BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"
NAMESPACE_TAKEN, DELETING = "NamespaceTaken", "Deleting"
_HOLDING = (
    *("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"),
    *("NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"),
)
_REMAINING = "NamespaceContentRemaining"
"""Conditions of a terminating namespace: those that block its deletion, and that some content remains."""
ADMINISTRATORS_BINDING = "service.sh:admins"
"""The binding of the administrators in connected clusters; see `controllers/clusters/admin_binding.py`."""
_NOT_FOUND, _INVALID = 404, 422
_OUR_DOMAIN = "service.sh/"
POD_SECURITY = "pod-security.kubernetes.io/enforce"
_KINDS = frozenset({SPACE, VIRTUAL_CLUSTER})


class Api(Protocol):
    """The needed requests to a cluster's API server. Error responses are raised as RemoteApiError."""

    async def get(self, path: str, /) -> Object: ...

    async def create(self, path: str, body: Object, /) -> Object: ...

    async def apply(self, path: str, body: Object, /) -> Object: ...

    async def delete(self, path: str, body: Object | None = None, /) -> Object: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an instance: cluster, namespace, and the ownership labels of its objects."""

    cluster: str
    namespace: str
    marks: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"{NAMESPACES}/{step(self.namespace)}"

    def marked(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        """Adds the ownership labels, which watches select by. Other labels of our domain are dropped."""
        return {**_foreign(labels), **self.marks}

    def has_marked(self, existing: Object) -> bool:
        """Whether an object in the namespace was applied for this instance, by its labels."""
        labels = dig(existing, "metadata.labels")
        return isinstance(labels, dict) and labels.get(UID) == self.marks[UID]


async def found_at(api: Api, path: str) -> Object | None:
    """Gets an object; None if it does not exist."""
    try:
        return await api.get(path)
    except FarError as error:
        if error.status != _NOT_FOUND:
            raise
        return None


async def make_namespace(
    api: Api, place: Place, template: Object, *, pod_security: str = "", leave_as_is: bool = False
) -> bool:
    """Creates or updates the namespace, with the labels and annotations of a template. Returns whether it is active.
    `pod_security` is the enforced pod security level, unless another field manager has set one. With `leave_as_is`, an
    existing namespace is not changed."""
    existing = await found_at(api, place.path)
    if existing is None:
        # With the ownership labels only: the rest is applied below, so that apply can remove it again later.
        await api.create(NAMESPACES, _namespace(place, {}, {}))
    elif not is_ours(existing, place):
        message = (
            f'namespace "{place.namespace}" in cluster "{place.cluster}" exists and does not belong to this instance; '
            "delete it there, or delete this instance and create one with another spec.clusterRef.namespace"
        )
        raise Trouble(NAMESPACE_TAKEN, message, ERROR)
    elif "deletionTimestamp" in metadata(existing):
        location, blocker = f'namespace "{place.namespace}" in cluster "{place.cluster}"', find_holdup(existing).message
        message = f"{location} is terminating{f' ({blocker})' if blocker else ''}; it will be created again after that"
        raise Trouble(NAMESPACE_TERMINATING, message, INFO)
    if leave_as_is and existing is not None:
        return dig(existing, "status.phase") in (None, "", "Active")
    level = {POD_SECURITY: pod_security} if pod_security and not _is_set_by_others(existing) else {}
    applied = await api.apply(place.path, _namespace(place, template, level))
    return dig(applied, "status.phase") in (None, "", "Active")


def is_ours(namespace: Object, place: Place) -> bool:
    """Compares the labels for the uid and for the kind of the instance: a uid is never valid for another kind."""
    labels = dig(namespace, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise odd_answer("the labels of a namespace are not a map")
    is_same = labels.get(MANAGED) == FAIRLEAD and labels.get(UID) == place.marks[UID]
    return is_same and _KINDS & labels.keys() == _KINDS & place.marks.keys()


def _is_set_by_others(existing: Object | None) -> bool:
    """Whether another field manager has set the pod security level of a namespace."""
    if POD_SECURITY not in (dig(existing, "metadata.labels") or {}):
        return False
    managers = dig(existing, "metadata.managedFields")
    ours = (
        each.get("fieldsV1")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and (each.get("manager"), each.get("operation")) == (FIELD_MANAGER, "Apply")
    )
    labels = (dig(fields, "f:metadata.f:labels") for fields in ours)
    return not any(isinstance(each, dict) and f"f:{POD_SECURITY}" in each for each in labels)


def _namespace(place: Place, template: Object, labels: Mapping[str, str]) -> Object:
    """Labels and annotations of our domain in a template are ignored: they identify the owner of a namespace."""
    meta: Object = {
        "name": place.namespace,
        "labels": {**place.marked(dig(template, "metadata.labels")), **labels},
    }
    if annotations := _foreign(dig(template, "metadata.annotations")):
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _foreign(texts: Mapping[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (texts or {}).items() if not key.startswith(_OUR_DOMAIN)}


async def bind_roles(api: Api, place: Place, bindings: Sequence[Object]) -> None:
    """Applies the RoleBindings of a namespace, and deletes obsolete ones."""
    labelled = [_marked(binding, place.marks) for binding in bindings]
    path = f"/apis/{RBAC}/v1/namespaces/{step(place.namespace)}/rolebindings"
    await _bind(api, path, labelled, place.marks, await _bindings(api, path))


async def bind_cluster_roles(
    api: Api, bindings: Sequence[Object], marks: Mapping[str, str], is_living: Callable[[str], bool]
) -> None:
    """Applies the ClusterRoleBindings of a virtual cluster, with the labels of its instance. `instance_exists` checks
    a uid: two instances for the same virtual cluster must not overwrite each other's bindings."""
    if any(name_of(each) == ADMINISTRATORS_BINDING for each in bindings):
        message = (
            f'the ClusterRoleBinding "{ADMINISTRATORS_BINDING}" is reserved for the administrators of connected '
            "clusters; rename the ClusterRole, and use the new name in the access rules"
        )
        raise Trouble("BindingReserved", message, ERROR)
    existing = await _bindings(api, CLUSTER_ROLE_BINDINGS)
    labels_of_existing = (dig(existing.get(name_of(each)), "metadata.labels") or {} for each in bindings)
    uids = {labels.get(UID) for labels in labels_of_existing if isinstance(labels, dict)} - {None, marks[UID]}
    if any(isinstance(uid, str) and is_living(uid) for uid in uids):
        message = (
            "another virtual cluster instance is the same cluster, and has bound the roles of its users there; delete "
            "one of the two, and use the other"
        )
        raise Trouble("AccessTaken", message, ERROR)
    for name in map(name_of, bindings):
        if name not in existing and await found_at(api, f"{CLUSTER_ROLE_BINDINGS}/{step(name)}") is not None:
            message = (
                f'a ClusterRoleBinding "{name}" exists without the labels of this server, and is not changed; '
                "delete or rename it"
            )
            raise Trouble("BindingTaken", message, ERROR)
    await _bind(api, CLUSTER_ROLE_BINDINGS, [_marked(binding, marks) for binding in bindings], marks, existing)


async def unbind_cluster_roles(api: Api, marks: Mapping[str, str]) -> tuple[Sequence[str], Mapping[str, str]]:
    """Deletes the bindings of the instance. Returns the deleted names, and those that were kept, with the reason."""
    removed, others = [], {}
    for name, binding in (await _bindings(api, CLUSTER_ROLE_BINDINGS)).items():
        if message := _claim_of_others(name, binding, marks):
            others[name] = message
        else:
            await remove(api, f"{CLUSTER_ROLE_BINDINGS}/{step(name)}", only(binding))
            removed.append(name)
    return removed, others


async def _bind(
    api: Api, path: str, bindings: Sequence[Object], marks: Mapping[str, str], there: Mapping[str, Object]
) -> None:
    """Applies the bindings, and deletes existing ones of the instance that are not desired any more."""
    for binding in bindings:
        await _apply_binding(api, f"{path}/{step(name_of(binding))}", binding)
    desired = {name_of(binding) for binding in bindings}
    for name, binding in there.items():
        if name not in desired and not _claim_of_others(name, binding, marks):
            await remove(api, f"{path}/{step(name)}")


async def _bindings(api: Api, path: str) -> dict[str, Object]:
    """The existing bindings with our labels and our name prefix."""
    response = await api.get(f"{path}?labelSelector={MANAGED}%3D{FAIRLEAD}")
    by_name = {name_of(each): each for each in listed(response, "items")}
    return {name: by_name[name] for name in sorted(by_name) if name.startswith(BINDING_PREFIX)}


def _claim_of_others(name: str, binding: Object, marks: Mapping[str, str]) -> str:
    """Why a binding with our name prefix does not belong to the instance with these labels; empty if it does."""
    if name == ADMINISTRATORS_BINDING:
        return "the same cluster is also connected as a Cluster"
    labels = dig(binding, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise odd_answer("the labels of a binding are not a map")
    is_of_another = labels.get(UID) not in (None, marks[UID])
    return "it belongs to another instance of the same cluster" if is_of_another else ""


def _marked(binding: Object, marks: Mapping[str, str]) -> Object:
    meta = metadata(binding)
    return {**binding, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **marks}}}


async def _apply_binding(api: Api, path: str, binding: Object) -> None:
    """The roleRef of a binding is immutable, so a binding with another roleRef is deleted and created again."""
    try:
        await api.apply(path, binding)
    except FarError as error:
        existing = await found_at(api, path) if error.status == _INVALID else None
        if existing is None or existing.get("roleRef") == binding["roleRef"]:
            raise
        await remove(api, path, only(existing))
        await api.apply(path, binding)


def only(existing: Object) -> Object:
    """DeleteOptions with the uid of the object as a precondition."""
    uid = dig(existing, "metadata.uid")
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def listed(document: Object, part: str) -> list[Object]:
    """A list of objects in a response. Raises InstanceError if it is anything else."""
    found = document.get(part) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise odd_answer(f"{part} is not a list of objects")
    return found


def step(name: str) -> str:
    """Percent-encodes a name as one path segment."""
    return quote(name, safe=":")


async def remove(api: Api, path: str, options: Object | None = None) -> None:
    """Deletes an object, if it exists."""
    try:
        await api.delete(path, options)
    except FarError as error:
        if error.status != _NOT_FOUND:
            raise


async def remove_namespace(api: Api, place: Place) -> Trouble | None:
    """Deletes the namespace if it belongs to the instance. Returns None when done; otherwise what that waits for."""
    existing = await found_at(api, place.path)
    if existing is None or not is_ours(existing, place):
        return None
    if "deletionTimestamp" not in metadata(existing):
        await remove(api, place.path, only(existing))
    return find_holdup(existing)


def find_holdup(namespace: Object) -> Trouble:
    """What a terminating namespace waits for, from its conditions."""
    conditions = dig(namespace, "status.conditions")
    valid = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    messages = {str(each.get("type")): each.get("message") or "" for each in valid if each.get("status") == "True"}
    found = [type for type in (*_HOLDING, _REMAINING) if type in messages]
    message = "; ".join(f"{type}: {quoted(messages[type])}" for type in found)
    if found and found[0] in _HOLDING:
        return Trouble(found[0], message, WARNING)
    return Trouble(DELETING, message, INFO)
