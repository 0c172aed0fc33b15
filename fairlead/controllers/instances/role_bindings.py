"""Computes the role bindings of the users of a space or virtual cluster. Pure.

The access rules of the template and of the instance add up. Users with access to the instance that are in no rule get
the default role: its owner, those that it is shared with for use, and the administrators of its project. In a space,
these are RoleBindings in its namespace; in a virtual cluster, ClusterRoleBindings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.remote_names import MANAGED_LABEL, MANAGED_VALUE
from fairlead.core.objects import Object, get_path
from fairlead.core.user import RESERVED_PREFIX, SERVICE_ACCOUNT_PREFIXES, TEAM_GROUP_PREFIX, USER_GROUP_PREFIX
from fairlead.domain.cluster_identity import ClusterIdentityMapper

RBAC = "rbac.authorization.k8s.io"
DEFAULT_ROLE, DEFAULT_CLUSTER_ROLE = "admin", "cluster-admin"
"""In a space, and in a virtual cluster."""
BINDING_PREFIX = "service.sh:"
"""Name prefix of our bindings. Templates may not create bindings with it."""
ALL_USERS = "*"
_USE_VERBS = frozenset({"use", "*"})


@dataclass(frozen=True, order=True, slots=True)
class Principal:
    """A user or a team, by name; `*` means all users."""

    kind: str
    name: str


def build_role_bindings(
    names: ClusterIdentityMapper,
    instance: Object,
    rendered: Object,
    project: Object,
    namespace: str = "",
    deployer: str = "",
) -> list[Object]:
    """One binding for each role, in order; ClusterRoleBindings if there is no `namespace`. `names` maps identities to
    their names in the cluster. `deployer` is a user of the cluster that gets the same roles as the owner."""
    default = get_path(rendered, "access.defaultClusterRole") or (DEFAULT_ROLE if namespace else DEFAULT_CLUSTER_ROLE)
    rules = [*(get_path(rendered, "access.rules") or ()), *(get_path(instance, "spec.extraAccessRules") or ())]
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


def _owners_of(*owned: Object) -> Iterator[Principal]:
    owners = ((kind, get_path(obj, f"spec.owner.{kind}")) for obj in owned for kind in ("user", "team"))
    # `*` is not an owner. Our service accounts are skipped, too: the cluster may have an account of its own with the
    # same name.
    candidates = ((kind, name) for kind, name in owners if name and name != ALL_USERS)
    yield from (Principal(kind, name) for kind, name in candidates if not name.startswith(SERVICE_ACCOUNT_PREFIXES))


def _entitled_principals(instance: Object, project: Object) -> Iterator[Principal]:
    yield from _owners_of(instance, project)
    for entry in get_path(instance, "spec.access") or ():
        if _USE_VERBS.intersection(entry.get("verbs") or ()):
            yield from _principals_of(entry)
    for member in get_path(project, "spec.members") or ():
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
