"""`fairlead cluster role`: prints the minimal permissions of the server in a cluster, as YAML for `kubectl apply`.

Works offline. The roles cover the requests of the server: `gateway/headers.py` impersonates users,
`controllers/clusters/probe.py` probes, and `controllers/instances/` creates namespaces and the objects in them.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from fairlead.core import yaml
from fairlead.core.cluster_identity import IMPERSONATOR
from fairlead.core.objects import Object

ACCOUNT, ACCOUNT_NAMESPACE = "fairlead", "kube-system"
GRANTED = ("admin", "edit", "view")
"""The cluster roles that spaces grant to users, unless templates name others."""
RBAC, AUTHENTICATION, AUTHORIZATION = "rbac.authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io"
KEEPING = ("get", "list", "watch", "create", "update", "patch", "delete")
"""Verbs for objects that the server creates, watches and reconciles."""

STRENGTH = """\
# The token of this service account can impersonate all users and groups of the cluster, including system:masters.
# It is equivalent to cluster-admin: protect it like an administrator's credential.
"""


class Part(StrEnum):
    GATEWAYS = "gateways"
    SPACES = "spaces"
    VIRTUAL_CLUSTERS = "virtual-clusters"


def command(
    parts: Annotated[
        list[Part] | None,
        typer.Argument(help="What the cluster is used for. Gateways are always included.", show_default="gateways"),
    ] = None,
    cluster_role: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster-role",
            help="ClusterRole that spaces may grant to users. Repeatable.",
            metavar="NAME",
            show_default=", ".join(GRANTED),
        ),
    ] = None,
    account: Annotated[str, typer.Option("--account", help="Name of the service account.", metavar="NAME")] = ACCOUNT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the service account.", metavar="NS")
    ] = ACCOUNT_NAMESPACE,
) -> None:
    """Print a service account with the minimal permissions that the server needs in a cluster, as YAML.

    [bold]fairlead cluster role spaces | kubectl apply -f -[/bold]. Templates with objects or charts need additional
    permissions. The service account can impersonate all users and groups, including [bold]system:masters[/bold]:
    its token is equivalent to cluster-admin. Protect it like an administrator's credential.
    """
    print_roles(parts or (), tuple(cluster_role or GRANTED), account, namespace)


def print_roles(parts: Sequence[Part], granted: Sequence[str], account: str, namespace: str) -> None:
    objects = build_objects(parts, granted, account, namespace)
    print(STRENGTH, end="")
    print("---\n".join(yaml.encode(each).decode() for each in objects), end="")


def build_objects(parts: Sequence[Part], granted: Sequence[str], account: str, namespace: str) -> list[Object]:
    """The service account, a Secret with its token, and a ClusterRole with its binding for each part."""
    metadata = {"name": account, "namespace": namespace}
    token = {**metadata, "annotations": {"kubernetes.io/service-account.name": account}}
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": token},
    ]
    for part in Part:
        if part is Part.GATEWAYS or part in parts:
            objects += _bound_role(f"{account}:{part.value}", list(_rules(part, granted)), metadata)
    return objects


def _bound_role(name: str, rules: list[Object], subject: Object) -> Iterator[Object]:
    yield {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


def _rules(part: Part, granted: Sequence[str]) -> Iterator[Object]:
    if part is Part.GATEWAYS:
        yield _rule("", ("users", "groups"), ("impersonate",))
        yield _rule(AUTHENTICATION, ("uids", f"userextras/{IMPERSONATOR}"), ("impersonate",))
        yield _rule(AUTHORIZATION, ("selfsubjectaccessreviews",), ("create",))
        yield _rule("", ("namespaces",), ("get",), ("kube-system",))
        yield _rule("", ("nodes",), ("list",))
        yield {"nonResourceURLs": ["/version", "/readyz"], "verbs": ["get"]}
        return
    yield _rule("", ("namespaces",), KEEPING)
    yield _rule(RBAC, ("rolebindings",), KEEPING)
    yield _rule(RBAC, ("clusterroles",), ("bind",), granted)
    if part is Part.VIRTUAL_CLUSTERS:
        yield from _chart_rules()


def _chart_rules() -> Iterator[Object]:
    """Rules for objects that charts of virtual clusters usually create, and for the roles that they grant."""
    pods = ("pods", *(f"pods/{each}" for each in ("attach", "ephemeralcontainers", "exec", "log", "portforward")))
    core = ("configmaps", "endpoints", "events", "persistentvolumeclaims", "secrets", "serviceaccounts", "services")
    yield _rule("", (*core, *pods, "pods/status"), KEEPING)
    yield _rule("apps", ("deployments", "replicasets", "statefulsets"), KEEPING)
    yield _rule("batch", ("jobs",), KEEPING)
    yield _rule("networking.k8s.io", ("ingresses", "networkpolicies"), KEEPING)
    yield _rule("policy", ("poddisruptionbudgets",), KEEPING)
    yield _rule(RBAC, ("roles",), KEEPING)


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Object:
    rule: Object = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule
