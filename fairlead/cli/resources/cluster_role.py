"""`fairlead cluster role`: prints the minimal permissions of the server in a cluster, as YAML for `kubectl apply`.

Works offline. The roles cover the requests of the server: `gateway/headers.py` impersonates users,
`controllers/clusters/probe.py` probes, and `controllers/instances/` creates namespaces and the objects in them.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.ui.flags import flag
from fairlead.core.objects import Object
from fairlead.core.user import IMPERSONATOR_EXTRA_KEY

ACCOUNT, ACCOUNT_NAMESPACE = "fairlead", "kube-system"
IDENTITIES, IDENTITIES_NAMESPACE = "fairlead-identities", "kube-system"
"""The ConfigMap in which each installation records itself."""
DEFAULT_CLUSTER_ROLES = ("admin", "edit", "view")
"""The cluster roles that spaces grant to users, unless templates name others."""
RBAC, AUTHENTICATION, AUTHORIZATION = "rbac.authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io"
MANAGE_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
"""Verbs for objects that the server creates, watches and reconciles."""

TOKEN_WARNING = """\
# The token of this service account can impersonate all users and groups of the cluster, including system:masters.
# It is equivalent to cluster-admin: protect it like an administrator's credential.
"""


class RolePart(StrEnum):
    GATEWAYS = "gateways"
    SPACES = "spaces"
    VIRTUAL_CLUSTERS = "virtual-clusters"
    RUNNERS = "runners"
    SLEEP = "sleep"
    APPS = "apps"
    RENEWAL = "renewal"


AGENT_PARTS = tuple(each for each in RolePart if each is not RolePart.RENEWAL)
"""Those of an agent, for which no credential is stored."""


def command(
    parts: Annotated[
        list[RolePart] | None,
        typer.Argument(help="What the cluster is used for. Gateways are always included.", show_default="gateways"),
    ] = None,
    cluster_role: Annotated[
        list[str] | None,
        flag(
            "--cluster-role",
            help="ClusterRole that spaces may grant to users. Repeatable.",
            metavar="NAME",
            default=", ".join(DEFAULT_CLUSTER_ROLES),
        ),
    ] = None,
    account: Annotated[str, typer.Option("--account", help="Name of the service account.", metavar="NAME")] = ACCOUNT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the service account.", metavar="NS")
    ] = ACCOUNT_NAMESPACE,
) -> None:
    """Print a service account with the minimal permissions that the server needs in a cluster, as YAML.

    `fairlead cluster role spaces | kubectl apply -f -`. Templates with objects or charts need additional
    permissions. The service account can impersonate all users and groups, including system:masters:
    its token is equivalent to cluster-admin. Protect it like an administrator's credential.
    """
    print_roles(parts or (), tuple(cluster_role or DEFAULT_CLUSTER_ROLES), account, namespace)


def print_roles(parts: Sequence[RolePart], cluster_roles: Sequence[str], account: str, namespace: str) -> None:
    from fairlead.core import yaml

    objects = build_objects(parts, cluster_roles, account, namespace)
    print(TOKEN_WARNING, end="")
    print("---\n".join(yaml.encode(each).decode() for each in objects), end="")


def build_objects(
    parts: Sequence[RolePart], cluster_roles: Sequence[str], account: str, namespace: str
) -> list[Object]:
    """The service account, a Secret with its token, a Role to record the installation, and a ClusterRole with its
    binding for each part. For an account that renews its token, there is no Secret, whose token would never expire, and
    a Role for that."""
    metadata = {"name": account, "namespace": namespace}
    token = {**metadata, "annotations": {"kubernetes.io/service-account.name": account}}
    objects: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}]
    if RolePart.RENEWAL in parts:
        rules = [_rule("", ("serviceaccounts/token",), ("create",), (account,))]
        objects += _namespaced_role(f"{account}:renewal", namespace, rules, metadata)
    else:
        objects.append(
            {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": token}
        )
    objects += _identity_role(f"{account}:installation", metadata)
    for part in AGENT_PARTS:
        if part is RolePart.GATEWAYS or part in parts:
            objects += _role_with_binding(f"{account}:{part.value}", list(_rules(part, cluster_roles)), metadata)
    return objects


def _identity_role(name: str, subject: Object) -> Iterator[Object]:
    """The Role to record in the cluster which installation uses it. It has to create the ConfigMap, which RBAC cannot
    restrict to a name."""
    rules = [
        _rule("", ("configmaps",), ("create",)),
        _rule("", ("configmaps",), ("get", "update"), (IDENTITIES,)),
    ]
    yield from _namespaced_role(name, IDENTITIES_NAMESPACE, rules, subject)


def _namespaced_role(name: str, namespace: str, rules: list[Object], subject: Object) -> Iterator[Object]:
    meta = {"name": name, "namespace": namespace}
    yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


def _role_with_binding(name: str, rules: list[Object], subject: Object) -> Iterator[Object]:
    yield {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


def _rules(part: RolePart, cluster_roles: Sequence[str]) -> Iterator[Object]:
    if part is RolePart.GATEWAYS:
        yield _rule("", ("users", "groups"), ("impersonate",))
        yield _rule(AUTHENTICATION, ("uids", f"userextras/{IMPERSONATOR_EXTRA_KEY}"), ("impersonate",))
        yield _rule(AUTHORIZATION, ("selfsubjectaccessreviews",), ("create",))
        yield _rule("", ("namespaces",), ("get",), ("kube-system",))
        yield _rule("", ("nodes",), ("list",))
        yield {"nonResourceURLs": ["/version", "/readyz"], "verbs": ["get"]}
        return
    if part is RolePart.SLEEP:
        yield from _sleep_rules()
        return
    yield _rule("", ("namespaces",), MANAGE_VERBS)
    yield _rule(RBAC, ("rolebindings",), MANAGE_VERBS)
    if part is RolePart.RUNNERS:
        yield from _runner_rules()
        return
    yield _rule(RBAC, ("clusterroles",), ("bind",), cluster_roles)
    if part is RolePart.VIRTUAL_CLUSTERS:
        yield from _chart_rules()
    if part is RolePart.APPS:
        yield from _app_rules()


def _chart_rules() -> Iterator[Object]:
    """Rules for objects that charts of virtual clusters usually create, and for the roles that they grant."""
    pods = ("attach", "ephemeralcontainers", "exec", "log", "portforward", "resize", "status")
    core = ("configmaps", "endpoints", "events", "persistentvolumeclaims", "secrets", "serviceaccounts", "services")
    yield _rule("", (*core, "pods", *(f"pods/{each}" for each in pods)), MANAGE_VERBS)
    yield _rule("events.k8s.io", ("events",), MANAGE_VERBS)
    yield _rule("discovery.k8s.io", ("endpointslices",), MANAGE_VERBS)
    yield _rule("coordination.k8s.io", ("leases",), MANAGE_VERBS)
    yield _rule("apps", ("deployments", "replicasets", "statefulsets"), MANAGE_VERBS)
    yield _rule("batch", ("jobs",), MANAGE_VERBS)
    yield _rule("networking.k8s.io", ("ingresses", "networkpolicies"), MANAGE_VERBS)
    yield _rule("policy", ("poddisruptionbudgets",), MANAGE_VERBS)
    yield _rule(RBAC, ("roles",), MANAGE_VERBS)


def _app_rules() -> Iterator[Object]:
    """Rules for the releases of apps, and for scripts with their Jobs. In a space, the impersonated deployer has its
    role for that; in a namespace of the cluster, what the chart of an app creates is needed in addition."""
    yield _rule("", ("secrets", "serviceaccounts"), MANAGE_VERBS)
    yield _rule("batch", ("jobs",), MANAGE_VERBS)
    yield _rule("", ("pods",), ("get", "list", "watch"))
    yield _rule("", ("pods/log",), ("get",))
    yield _rule(RBAC, ("clusterrolebindings",), MANAGE_VERBS)


def _runner_rules() -> Iterator[Object]:
    """Rules for the objects of a runner that the server deploys, and for what the Role of the runner grants: a cluster
    refuses a Role with more permissions than its creator has."""
    yield _rule(RBAC, ("roles",), MANAGE_VERBS)
    yield _rule("", ("serviceaccounts", "secrets", "persistentvolumeclaims"), MANAGE_VERBS)
    yield _rule("apps", ("deployments",), MANAGE_VERBS)
    yield _rule("", ("pods",), ("get", "list", "create", "delete"))
    yield _rule("", ("pods/log",), ("get",))
    yield _rule("", ("pods/exec", "pods/portforward"), ("get", "create"))
    yield _rule("", ("events",), ("list",))
    yield _rule("networking.k8s.io", ("networkpolicies",), ("get", "list", "create", "delete"))


def _sleep_rules() -> Iterator[Object]:
    """Rules to stop and start what runs in spaces and virtual clusters."""
    yield _rule("", ("namespaces",), ("get",))
    yield _rule("", ("resourcequotas",), ("get", "create", "patch", "delete"))
    yield _rule("", ("pods",), ("list", "delete"))
    yield _rule("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), ("get", "list", "patch"))
    yield _rule("batch", ("cronjobs", "jobs"), ("get", "list", "patch"))


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Object:
    rule: Object = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule
