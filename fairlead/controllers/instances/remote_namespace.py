"""The namespace of an instance in a connected cluster: made, kept as it should be, and removed.

A namespace is ours only by its marks. One that is not is never changed, and never deleted, whatever it is called.
`spaces.py` and `virtual_clusters.py` call this inside `troubles`.
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
"""Conditions of a namespace that is being deleted: those that hold it up, and that there is something in it still."""
ADMINISTRATORS_BINDING = "service.sh:admins"
"""Of connected clusters; `controllers/clusters/admin_binding.py` makes it."""
_NOT_FOUND, _INVALID = 404, 422
_OUR_DOMAIN = "service.sh/"
POD_SECURITY = "pod-security.kubernetes.io/enforce"
_KINDS = frozenset({SPACE, VIRTUAL_CLUSTER})


class Api(Protocol):
    """What is asked of a cluster's API server. Answers that are no success are raised as FarError."""

    async def get(self, path: str, /) -> Object: ...

    async def create(self, path: str, body: Object, /) -> Object: ...

    async def apply(self, path: str, body: Object, /) -> Object: ...

    async def delete(self, path: str, body: Object | None = None, /) -> Object: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance is: the cluster and the namespace, and the labels that the namespace has for it."""

    cluster: str
    namespace: str
    marks: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"{NAMESPACES}/{step(self.namespace)}"

    def marked(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        """Labels with our marks among them, by which watches find an object. Nobody else sets those of our domain."""
        return {**_foreign(labels), **self.marks}

    def has_marked(self, existing: Object) -> bool:
        """Whether an object in the namespace was applied for this instance."""
        labels = dig(existing, "metadata.labels")
        return isinstance(labels, dict) and labels.get(UID) == self.marks[UID]


async def found_at(api: Api, path: str) -> Object | None:
    """What is there, or None."""
    try:
        return await api.get(path)
    except FarError as error:
        if error.status != _NOT_FOUND:
            raise
        return None


async def make_namespace(
    api: Api, place: Place, template: Object, *, pod_security: str = "", leave_as_is: bool = False
) -> bool:
    """Makes the namespace or mends it, with the labels and annotations of a template. Tells whether it can be used.
    `pod_security` is the level that pods in it are held to, unless the cluster's own people have set another. With
    `leave_as_is`, one that is there keeps what it has."""
    existing = await found_at(api, place.path)
    if existing is None:
        # Only with what makes it ours: what is applied afterwards can be taken back when the template drops it.
        await api.create(NAMESPACES, _namespace(place, {}, {}))
    elif not is_ours(existing, place):
        why = (
            f'namespace "{place.namespace}" in cluster "{place.cluster}" exists and is not of this instance; delete '
            "it there, or delete this instance and make one with another spec.clusterRef.namespace"
        )
        raise Trouble(NAMESPACE_TAKEN, why, ERROR)
    elif "deletionTimestamp" in metadata(existing):
        where, held = f'namespace "{place.namespace}" in cluster "{place.cluster}"', find_holdup(existing).message
        why = f"{where} is being deleted{f' ({held})' if held else ''}; it is made again after that"
        raise Trouble(NAMESPACE_TERMINATING, why, INFO)
    if leave_as_is and existing is not None:
        return dig(existing, "status.phase") in (None, "", "Active")
    level = {POD_SECURITY: pod_security} if pod_security and not _is_set_by_others(existing) else {}
    applied = await api.apply(place.path, _namespace(place, template, level))
    return dig(applied, "status.phase") in (None, "", "Active")


def is_ours(namespace: Object, place: Place) -> bool:
    """By the uid, and by the kind of thing that it is for: a uid of one kind never serves another."""
    labels = dig(namespace, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise odd_answer("the labels of a namespace are no map")
    is_same = labels.get(MANAGED) == FAIRLEAD and labels.get(UID) == place.marks[UID]
    return is_same and _KINDS & labels.keys() == _KINDS & place.marks.keys()


def _is_set_by_others(existing: Object | None) -> bool:
    """Whether somebody else than this server has set the pod security level of a namespace."""
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
    """A template cannot set labels and annotations of our domain: they say whose a namespace is."""
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
    """The RoleBindings of a namespace."""
    marked = [_marked(binding, place.marks) for binding in bindings]
    path = f"/apis/{RBAC}/v1/namespaces/{step(place.namespace)}/rolebindings"
    await _bind(api, path, marked, place.marks, await _bindings(api, path))


async def bind_cluster_roles(
    api: Api, bindings: Sequence[Object], marks: Mapping[str, str], is_living: Callable[[str], bool]
) -> None:
    """The ClusterRoleBindings of a whole virtual cluster, with the marks of its instance. `is_living` tells whether
    there is another instance of a uid: two that stand for the same cluster must not take turns in it."""
    if any(name_of(each) == ADMINISTRATORS_BINDING for each in bindings):
        why = (
            f'the ClusterRoleBinding "{ADMINISTRATORS_BINDING}" is reserved for the administrators of connected '
            "clusters; give the ClusterRole another name, and name that one in the access rules"
        )
        raise Trouble("BindingReserved", why, ERROR)
    there = await _bindings(api, CLUSTER_ROLE_BINDINGS)
    held = (dig(there.get(name_of(each)), "metadata.labels") or {} for each in bindings)
    uids = {labels.get(UID) for labels in held if isinstance(labels, dict)} - {None, marks[UID]}
    if any(isinstance(uid, str) and is_living(uid) for uid in uids):
        why = (
            "another virtual cluster instance stands for the same cluster, and has bound the roles of its users there; "
            "delete one of the two, and let its users use the other"
        )
        raise Trouble("AccessTaken", why, ERROR)
    for name in map(name_of, bindings):
        if name not in there and await found_at(api, f"{CLUSTER_ROLE_BINDINGS}/{step(name)}") is not None:
            why = (
                f'a ClusterRoleBinding "{name}" is there that is not labelled as one of this server, and is left '
                "alone; delete it, or give it another name"
            )
            raise Trouble("BindingTaken", why, ERROR)
    await _bind(api, CLUSTER_ROLE_BINDINGS, [_marked(binding, marks) for binding in bindings], marks, there)


async def unbind_cluster_roles(api: Api, marks: Mapping[str, str]) -> tuple[Sequence[str], Mapping[str, str]]:
    """Removes them. Returns which were removed, and which of our names stay, with the reason."""
    removed, others = [], {}
    for name, binding in (await _bindings(api, CLUSTER_ROLE_BINDINGS)).items():
        if why := _claim_of_others(name, binding, marks):
            others[name] = why
        else:
            await remove(api, f"{CLUSTER_ROLE_BINDINGS}/{step(name)}", only(binding))
            removed.append(name)
    return removed, others


async def _bind(
    api: Api, path: str, bindings: Sequence[Object], marks: Mapping[str, str], there: Mapping[str, Object]
) -> None:
    """Makes the bindings as they should be, and removes ours of those that are there and should not be any more."""
    for binding in bindings:
        await _apply_binding(api, f"{path}/{step(name_of(binding))}", binding)
    wanted = {name_of(binding) for binding in bindings}
    for name, binding in there.items():
        if name not in wanted and not _claim_of_others(name, binding, marks):
            await remove(api, f"{path}/{step(name)}")


async def _bindings(api: Api, path: str) -> dict[str, Object]:
    """Those with our labels and of our names, whatever the cluster lists."""
    there = await api.get(f"{path}?labelSelector={MANAGED}%3D{FAIRLEAD}")
    by_name = {name_of(each): each for each in listed(there, "items")}
    return {name: by_name[name] for name in sorted(by_name) if name.startswith(BINDING_PREFIX)}


def _claim_of_others(name: str, binding: Object, marks: Mapping[str, str]) -> str:
    """Why a binding of our names is not that of the instance with these marks; empty if it is."""
    if name == ADMINISTRATORS_BINDING:
        return "the same cluster is connected as a Cluster, too"
    labels = dig(binding, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise odd_answer("the labels of a binding are no map")
    is_of_another = labels.get(UID) not in (None, marks[UID])
    return "it is of another instance that stands for the same cluster" if is_of_another else ""


def _marked(binding: Object, marks: Mapping[str, str]) -> Object:
    meta = metadata(binding)
    return {**binding, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **marks}}}


async def _apply_binding(api: Api, path: str, binding: Object) -> None:
    """A binding to another role cannot be changed into ours: the role of a binding is immutable. So it is replaced."""
    try:
        await api.apply(path, binding)
    except FarError as error:
        existing = await found_at(api, path) if error.status == _INVALID else None
        if existing is None or existing.get("roleRef") == binding["roleRef"]:
            raise
        await remove(api, path, only(existing))
        await api.apply(path, binding)


def only(existing: Object) -> Object:
    """Options of a deletion on condition that it is the very object that was looked at."""
    uid = dig(existing, "metadata.uid")
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def listed(document: Object, part: str) -> list[Object]:
    """The objects in a part of a cluster's answer. Raises Trouble where it holds something else."""
    found = document.get(part) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise odd_answer(f"{part} is no list of objects")
    return found


def step(name: str) -> str:
    """A name as one step of a path, whatever is in it."""
    return quote(name, safe=":")


async def remove(api: Api, path: str, options: Object | None = None) -> None:
    """Deletes something that may be gone already."""
    try:
        await api.delete(path, options)
    except FarError as error:
        if error.status != _NOT_FOUND:
            raise


async def remove_namespace(api: Api, place: Place) -> Trouble | None:
    """Has the namespace deleted if it is ours. None when it is gone; else what it waits for: ask again."""
    existing = await found_at(api, place.path)
    if existing is None or not is_ours(existing, place):
        return None
    if "deletionTimestamp" not in metadata(existing):
        await remove(api, place.path, only(existing))
    return find_holdup(existing)


def find_holdup(namespace: Object) -> Trouble:
    """What a namespace that is being deleted waits for, in the words of the cluster's own controller."""
    conditions = dig(namespace, "status.conditions")
    told = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    held = {str(each.get("type")): each.get("message") or "" for each in told if each.get("status") == "True"}
    found = [type for type in (*_HOLDING, _REMAINING) if type in held]
    message = "; ".join(f"{type}: {quoted(held[type])}" for type in found)
    if found and found[0] in _HOLDING:
        return Trouble(found[0], message, WARNING)
    return Trouble(DELETING, message, INFO)
