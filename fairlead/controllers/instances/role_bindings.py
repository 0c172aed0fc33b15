"""Who gets which role in a space or in a virtual cluster: the bindings that stand there. Pure.

Rules of the template and of the instance add up. Whoever has a right to the instance and is in no rule gets the default
role: its owner, those that it is shared with for use, and the administrators of its project. In a space, roles hold in
its namespace; in a virtual cluster, everywhere.
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
"""How the names of our RoleBindings begin; templates may not make any of such names."""
EVERYBODY = "*"
_USING = frozenset({"use", "*"})


@dataclass(frozen=True, order=True, slots=True)
class Person:
    """A user or a team, by name; `*` is every user."""

    kind: str
    name: str


def role_bindings(
    names: ClusterNames, instance: Object, rendered: Object, project: Object, namespace: str = "", deployer: str = ""
) -> list[Object]:
    """One for each role, in order: in a namespace, or for all of a virtual cluster. `names` say what their subjects are
    called there. `deployer` is a user of the cluster that gets what the owner gets."""
    default = dig(rendered, "access.defaultClusterRole") or (DEFAULT_ROLE if namespace else DEFAULT_CLUSTER_ROLE)
    rules = [*(dig(rendered, "access.rules") or ()), *(dig(instance, "spec.extraAccessRules") or ())]
    holders: dict[str, set[Person]] = {}
    for rule in rules:
        if role := rule.get("clusterRole"):
            holders.setdefault(role, set()).update(_people(rule))
    ruled = set().union(*holders.values())
    others = set(_entitled(instance, project)) - ruled
    if others and Person("user", EVERYBODY) not in ruled:
        holders.setdefault(default, set()).update(others)
    owners = {Person("user", EVERYBODY), *_owners(instance)}
    found = []
    for role, people in sorted(holders.items()):
        deploying = [_subject("User", deployer)] if deployer and owners & people else []
        found.append((role, [*_subjects(names, sorted(people)), *deploying]))
    return [_binding(role, subjects, namespace) for role, subjects in found if subjects]


def _people(entry: Object) -> Iterator[Person]:
    yield from (Person("user", name) for name in entry.get("users") or ())
    yield from (Person("team", name) for name in entry.get("teams") or ())


def _owners(*owned: Object) -> Iterator[Person]:
    owners = ((kind, dig(whose, f"spec.owner.{kind}")) for whose in owned for kind in ("user", "team"))
    # An owner is somebody: `*` is nobody here. A service account of ours is nobody in a cluster, and an account of the
    # cluster's own may have its name.
    named = ((kind, name) for kind, name in owners if name and name != EVERYBODY)
    yield from (Person(kind, name) for kind, name in named if not name.startswith(SERVICE_ACCOUNT))


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
    """A user comes by name, and as the group of his own: keys that act for him may have another name. Names of parts of
    Kubernetes are no users of this server, and get nothing, with no prefix either."""
    for person in people:
        if person.kind == "team":
            yield _subject("Group", names.name(f"{TEAM_GROUP}{person.name}"))
            continue
        if person.name != EVERYBODY and not person.name.startswith(RESERVED):
            yield _subject("User", names.name(person.name))
        yield _subject("Group", names.name(f"{USER_GROUP}{person.name}"))


def _subject(kind: str, name: str) -> Object:
    return {"apiGroup": RBAC, "kind": kind, "name": name}
