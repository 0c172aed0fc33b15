"""What a Kubernetes lets an impersonated user do, as a kube-apiserver 1.35 was seen to answer: RBAC with its check
against granting what one does not hold, and pod security.

Roles are those that every cluster has. Only writes are looked at, and only in namespaces.
"""

import re
from collections.abc import Mapping

from fairlead.core.objects import Object

EDITED = frozenset({"configmaps", "secrets", "pods", "services", "serviceaccounts"})
ROLES: Mapping[str, frozenset[str]] = {
    "view": frozenset(),
    "edit": EDITED,
    "admin": EDITED | {"roles", "rolebindings"},
    "cluster-admin": EDITED | {"roles", "rolebindings", "resourcequotas", "limitranges", "namespaces"},
}
"""What each lets its holder write in a namespace."""
ORDER = ("view", "edit", "admin", "cluster-admin")
"""Each holds what those before it hold."""

_PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/[^/]+/namespaces/(?P<namespace>[^/]+)(?:/(?P<plural>[^/]+)/(?P<name>.+))?"
)


def refuse_impersonation(user: str) -> str:
    why = 'User "stored" cannot impersonate resource "users" in API group "" at the cluster scope'
    return f'users "{user}" is forbidden: {why}'


def find_refusal(objects: Mapping[str, Object], user: str, method: str, path: str, body: Object) -> str:
    """The message of the 403 that a user gets; empty where the write goes through."""
    found = _PATH.fullmatch(path)
    assert found is not None, path
    namespace, plural, name = found["namespace"], found["plural"] or "namespaces", found["name"] or found["namespace"]
    group = found["group"] or ""
    held = _roles(objects, user, namespace)
    resource = f"{plural}.{group}" if group else plural
    if not any(plural in ROLES.get(role, ()) for role in held):
        verb = {"PATCH": "patch", "DELETE": "delete", "POST": "create"}[method]
        why = f'User "{user}" cannot {verb} resource "{plural}" in API group "{group}" in the namespace "{namespace}"'
        return f'{resource} "{name}" is forbidden: {why}'
    if plural == "rolebindings" and method != "DELETE" and not _holds(held, body["roleRef"]["name"]):
        why = f'user "{user}" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently'
        return f'{resource} "{name}" is forbidden: {why} held:\n{{APIGroups:["*"], Resources:["*"], Verbs:["*"]}}'
    return ""


def find_insecurity(objects: Mapping[str, Object], path: str, body: Object) -> str:
    """What pod security says about a pod, whoever sends it."""
    found = _PATH.fullmatch(path)
    if found is None or found["plural"] != "pods":
        return ""
    labels = objects[f"/api/v1/namespaces/{found['namespace']}"]["metadata"].get("labels") or {}
    level = labels.get("pod-security.kubernetes.io/enforce", "privileged")
    names = [
        each["name"] for each in body["spec"]["containers"] if (each.get("securityContext") or {}).get("privileged")
    ]
    if level == "privileged" or not names:
        return ""
    why = f'privileged (container "{names[0]}" must not set securityContext.privileged=true)'
    return f'pods "{found["name"]}" is forbidden: violates PodSecurity "{level}:latest": {why}'


def _roles(objects: Mapping[str, Object], user: str, namespace: str) -> set[str]:
    below = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/"
    bindings = [obj for path, obj in objects.items() if path.startswith(below)]
    return {
        each["roleRef"]["name"]
        for each in bindings
        if any((subject["kind"], subject["name"]) == ("User", user) for subject in each.get("subjects") or ())
    }


def _holds(held: set[str], role: str) -> bool:
    return role in ORDER and any(ORDER.index(each) >= ORDER.index(role) for each in held if each in ORDER)
