"""Computes the role bindings of the users of a space or virtual cluster. Pure.

The access rules of the template and of the instance add up. Users with access to the instance that are in no rule get
the default role: its owner, those that it is shared with for use, and the administrators of its project. In a space,
these are RoleBindings in its namespace; in a virtual cluster, ClusterRoleBindings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED
from fairlead.core.cluster_identity import RESERVED, ClusterNames
from fairlead.core.objects import Object, dig
from fairlead.core.user import SERVICE_ACCOUNT, TEAM_GROUP, USER_GROUP

RBAC = "rbac.authorization.k8s.io"
DEFAULT_ROLE, DEFAULT_CLUSTER_ROLE = "admin", "cluster-admin"
"""In a space, and in a virtual cluster."""
BINDING_PREFIX = "service.sh:"
"""Name prefix of our bindings. Templates may not create bindings with it."""
EVERYBODY = "*"
_USING = frozenset({"use", "*"})


@dataclass(frozen=True, order=True, slots=True)
class Person:
    """A user or a team, by name; `*` means all users."""

    kind: str
    name: str


def role_bindings(
    names: ClusterNames, instance: Object, rendered: Object, project: Object, namespace: str = "", deployer: str = ""
) -> list[Object]:
    """One binding for each role, in order; ClusterRoleBindings if there is no `namespace`. `names` maps identities to
    their names in the cluster. `deployer` is a user of the cluster that gets the same roles as the owner."""
    default = dig(rendered, "access.defaultClusterRole") or (DEFAULT_ROLE if namespace else DEFAULT_CLUSTER_ROLE)
    rules = [*(dig(rendered, "access.rules") or ()), *(dig(instance, "spec.extraAccessRules") or ())]
    by_role: dict[str, set[Person]] = {}
    for rule in rules:
        if role := rule.get("clusterRole"):
            by_role.setdefault(role, set()).update(_people(rule))
    in_rules = set().union(*by_role.values())
    others = set(_entitled(instance, project)) - in_rules
    if others and Person("user", EVERYBODY) not in in_rules:
        by_role.setdefault(default, set()).update(others)
    owners = {Person("user", EVERYBODY), *_owners(instance)}
    subjects_by_role = []
    for role, principals in sorted(by_role.items()):
        deploying = [_subject("User", deployer)] if deployer and owners & principals else []
        subjects_by_role.append((role, [*_subjects(names, sorted(principals)), *deploying]))
    return [_binding(role, subjects, namespace) for role, subjects in subjects_by_role if subjects]


def _people(entry: Object) -> Iterator[Person]:
    yield from (Person("user", name) for name in entry.get("users") or ())
    yield from (Person("team", name) for name in entry.get("teams") or ())


def _owners(*owned: Object) -> Iterator[Person]:
    owners = ((kind, dig(obj, f"spec.owner.{kind}")) for obj in owned for kind in ("user", "team"))
    # `*` is not an owner. Our service accounts are skipped, too: the cluster may have an account of its own with the
    # same name.
    candidates = ((kind, name) for kind, name in owners if name and name != EVERYBODY)
    yield from (Person(kind, name) for kind, name in candidates if not name.startswith(SERVICE_ACCOUNT))


def _entitled(instance: Object, project: Object) -> Iterator[Person]:
    yield from _owners(instance, project)
    for entry in dig(instance, "spec.access") or ():
        if _USING.intersection(entry.get("verbs") or ()):
            yield from _people(entry)
    for member in dig(project, "spec.members") or ():
        if member.get("clusterRole") == "admin":
            yield Person(member["kind"].lower(), member["name"])


def _binding(role: str, subjects: Sequence[Object], namespace: str) -> Object:
    meta: Object = {"name": f"{BINDING_PREFIX}{role}", "labels": {MANAGED: FAIRLEAD}}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {**meta, "namespace": namespace} if namespace else meta,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def _subjects(names: ClusterNames, people: Iterable[Person]) -> Iterator[Object]:
    """A user is bound by name and by the group for this one user, since access keys may use another user name. Names
    that are reserved by Kubernetes are not users of this server, and are never bound by name."""
    for person in people:
        if person.kind == "team":
            yield _subject("Group", names.name(f"{TEAM_GROUP}{person.name}"))
            continue
        if person.name != EVERYBODY and not person.name.startswith(RESERVED):
            yield _subject("User", names.name(person.name))
        yield _subject("Group", names.name(f"{USER_GROUP}{person.name}"))


def _subject(kind: str, name: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": name}
