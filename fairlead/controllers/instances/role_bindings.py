"""The role bindings of the users of a space or virtual cluster: computed, applied and deleted.

The access rules of the template and of the instance add up. Users with access to the instance that are in no rule get
the default role: its owner, those that it is shared with for use, and the administrators of its project. In a space,
these are RoleBindings in its namespace; in a virtual cluster, ClusterRoleBindings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError, unexpected_response
from fairlead.controllers.instances.remote_namespace import (
    MANAGED_LABEL,
    MANAGED_VALUE,
    UID_LABEL,
    RemoteNamespace,
    list_items,
    uid_precondition,
    url_segment,
)
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import RESERVED_PREFIX, SERVICE_ACCOUNT_PREFIXES, TEAM_GROUP_PREFIX, USER_GROUP_PREFIX
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.domain.typed_objects import Project, RemoteInstance, TypedObject
from fairlead.upstream.kube_client import KubeApi, RemoteApiError, delete_if_exists, get_or_none

RBAC = "rbac.authorization.k8s.io"
DEFAULT_ROLE, DEFAULT_CLUSTER_ROLE = "admin", "cluster-admin"
"""In a space, and in a virtual cluster."""
BINDING_PREFIX = "service.sh:"
"""Name prefix of our bindings. Templates may not create bindings with it."""
CLUSTER_ROLE_BINDINGS_PATH = f"/apis/{RBAC}/v1/clusterrolebindings"
ADMINISTRATORS_BINDING = "service.sh:admins"
"""The binding of the administrators in connected clusters; see `controllers/clusters/admin_binding.py`."""
ALL_USERS = "*"
_INVALID = 422
_USE_VERBS = frozenset({"use", "*"})


@dataclass(frozen=True, order=True, slots=True)
class Principal:
    """A user or a team, by name; `*` means all users."""

    kind: str
    name: str


def build_role_bindings(
    names: ClusterIdentityMapper,
    instance: RemoteInstance,
    access: Object,
    project: Project,
    namespace: str = "",
    deployer: str = "",
) -> list[Object]:
    """One binding for each role, in order; ClusterRoleBindings if there is no `namespace`. `names` maps identities to
    their names in the cluster, and `access` is that of the template. `deployer` is a user of the cluster that gets the
    same roles as the owner."""
    default = access.get("defaultClusterRole") or (DEFAULT_ROLE if namespace else DEFAULT_CLUSTER_ROLE)
    rules = [*(access.get("rules") or ()), *instance.extra_access_rules]
    by_role: dict[str, set[Principal]] = {}
    for rule in rules:
        if role := rule.get("clusterRole"):
            by_role.setdefault(role, set()).update(_principals_of(rule))
    in_rules = set().union(*by_role.values())
    others = set(_entitled_principals(instance, project)) - in_rules
    if others and Principal("user", ALL_USERS) not in in_rules:
        by_role.setdefault(default, set()).update(others)
    owners = {Principal("user", ALL_USERS), *_owners_of(instance)}
    subjects_by_role = []
    for role, principals in sorted(by_role.items()):
        deploying = [_build_subject("User", deployer)] if deployer and owners & principals else []
        subjects_by_role.append((role, [*_build_subjects(names, sorted(principals)), *deploying]))
    return [_build_binding(role, subjects, namespace) for role, subjects in subjects_by_role if subjects]


def _principals_of(entry: Object) -> Iterator[Principal]:
    yield from (Principal("user", name) for name in entry.get("users") or ())
    yield from (Principal("team", name) for name in entry.get("teams") or ())


def _owners_of(*owned: TypedObject) -> Iterator[Principal]:
    owners = ((kind, each.owner.get(kind)) for each in owned for kind in ("user", "team"))
    # `*` is not an owner. Our service accounts are skipped, too: the cluster may have an account of its own with the
    # same name.
    candidates = ((kind, name) for kind, name in owners if name and name != ALL_USERS)
    yield from (Principal(kind, name) for kind, name in candidates if not name.startswith(SERVICE_ACCOUNT_PREFIXES))


def _entitled_principals(instance: RemoteInstance, project: Project) -> Iterator[Principal]:
    yield from _owners_of(instance, project)
    for entry in instance.access:
        if _USE_VERBS.intersection(entry.get("verbs") or ()):
            yield from _principals_of(entry)
    for member in project.members:
        if member.get("clusterRole") == "admin":
            yield Principal(member["kind"].lower(), member["name"])


def _build_binding(role: str, subjects: Sequence[Object], namespace: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": _binding_meta(f"{BINDING_PREFIX}{role}", namespace),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def build_deployer_binding(name: str, namespace: str, role: str, user: str) -> Object:
    """A RoleBinding that grants a user of the cluster, who deploys something, a role in a namespace."""
    return {
        **_build_binding(role, [_build_subject("User", user)], namespace),
        "metadata": _binding_meta(name, namespace),
    }


def _binding_meta(name: str, namespace: str) -> Object:
    meta: Object = {"name": name, "labels": {MANAGED_LABEL: MANAGED_VALUE}}
    return {**meta, "namespace": namespace} if namespace else meta


def _build_subjects(names: ClusterIdentityMapper, principals: Iterable[Principal]) -> Iterator[Object]:
    """A user is bound by name and by the group for this one user, since access keys may use another user name. Names
    that are reserved by Kubernetes are not users of this server, and are never bound by name."""
    for person in principals:
        if person.kind == "team":
            yield _build_subject("Group", names.map_name(f"{TEAM_GROUP_PREFIX}{person.name}"))
            continue
        if person.name != ALL_USERS and not person.name.startswith(RESERVED_PREFIX):
            yield _build_subject("User", names.map_name(person.name))
        yield _build_subject("Group", names.map_name(f"{USER_GROUP_PREFIX}{person.name}"))


def _build_subject(kind: str, name: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": name}


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
