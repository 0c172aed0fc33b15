"""Authorization of impersonated users, with the messages of kube-apiserver 1.35: RBAC with its check against granting
permissions that the user does not hold, and pod security.

The roles are the default ClusterRoles. Only requests in namespaces are checked; reading needs the role for writing.
"""

import re
from collections.abc import Mapping

from fairlead.core.objects import Object

EDITABLE_RESOURCES = frozenset({"configmaps", "secrets", "pods", "services", "serviceaccounts", "jobs", "ingresses"})
WRITABLE_RESOURCES: Mapping[str, frozenset[str]] = {
    "view": frozenset(),
    "edit": EDITABLE_RESOURCES,
    "admin": EDITABLE_RESOURCES | {"roles", "rolebindings"},
    "cluster-admin": EDITABLE_RESOURCES | {"roles", "rolebindings", "resourcequotas", "limitranges", "namespaces"},
}
"""The resources in a namespace that each role can write."""
ROLES_IN_ORDER = ("view", "edit", "admin", "cluster-admin")
"""Each role includes those before it."""

_PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/[^/]+/namespaces/(?P<namespace>[^/]+)(?:/(?P<plural>[^/]+)(?:/(?P<name>.+))?)?"
)


def build_impersonation_error(user: str) -> str:
    reason = 'User "stored" cannot impersonate resource "users" in API group "" at the cluster scope'
    return f'users "{user}" is forbidden: {reason}'


def find_rbac_violation(objects: Mapping[str, Object], user: str, method: str, path: str, body: Object) -> str:
    """The message of the 403 for a user, or an empty text if the write is allowed."""
    match = _PATH.fullmatch(path)
    assert match is not None, path
    namespace, plural, name = match["namespace"], match["plural"] or "namespaces", match["name"] or match["namespace"]
    group = match["group"] or ""
    user_roles = _list_roles(objects, user, namespace)
    resource = f"{plural}.{group}" if group else plural
    if not any(plural in WRITABLE_RESOURCES.get(role, ()) for role in user_roles):
        verb = {"PATCH": "patch", "DELETE": "delete", "POST": "create", "GET": "list"}[method]
        reason = (
            f'User "{user}" cannot {verb} resource "{plural}" in API group "{group}" in the namespace "{namespace}"'
        )
        return f'{resource} "{name}" is forbidden: {reason}'
    if (
        plural == "rolebindings"
        and method not in ("DELETE", "GET")
        and not _has_role(user_roles, body["roleRef"]["name"])
    ):
        reason = (
            f'user "{user}" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently'
        )
        return f'{resource} "{name}" is forbidden: {reason} held:\n{{APIGroups:["*"], Resources:["*"], Verbs:["*"]}}'
    return ""


def find_pod_security_violation(objects: Mapping[str, Object], path: str, body: Object) -> str:
    """The message of the 403 of pod security for a pod, or an empty text if the pod is allowed."""
    match = _PATH.fullmatch(path)
    if match is None or match["plural"] != "pods":
        return ""
    labels = objects[f"/api/v1/namespaces/{match['namespace']}"]["metadata"].get("labels") or {}
    level = labels.get("pod-security.kubernetes.io/enforce", "privileged")
    names = [
        each["name"] for each in body["spec"]["containers"] if (each.get("securityContext") or {}).get("privileged")
    ]
    if level == "privileged" or not names:
        return ""
    reason = f'privileged (container "{names[0]}" must not set securityContext.privileged=true)'
    return f'pods "{match["name"]}" is forbidden: violates PodSecurity "{level}:latest": {reason}'


def _list_roles(objects: Mapping[str, Object], user: str, namespace: str) -> set[str]:
    prefix = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/"
    bindings = [obj for path, obj in objects.items() if path.startswith(prefix)]
    return {
        each["roleRef"]["name"]
        for each in bindings
        if any((subject["kind"], subject["name"]) == ("User", user) for subject in each.get("subjects") or ())
    }


def _has_role(user_roles: set[str], role: str) -> bool:
    return role in ROLES_IN_ORDER and any(
        ROLES_IN_ORDER.index(each) >= ROLES_IN_ORDER.index(role) for each in user_roles if each in ROLES_IN_ORDER
    )
