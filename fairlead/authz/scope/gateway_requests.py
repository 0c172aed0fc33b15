"""Requests through gateways: their authorization targets, and the basic requests that every scope allows."""

from collections.abc import Sequence

from fairlead.core.call import RequestInfo

CLUSTER, SPACE, VIRTUAL_CLUSTER = "cluster", "project-space", "project-virtualcluster"
"""The roots of gateway targets."""

GATEWAY_ROOTS = frozenset({CLUSTER, SPACE, VIRTUAL_CLUSTER})


def gateway_target(root: str, name: str, namespace: str = "", verb: str = "use") -> RequestInfo:
    """The authorization target of a gateway: a connected cluster, or an instance in a project's namespace.

    It represents everything behind the gateway. The inner request is a second target, parsed from the rest of the path
    as for any Kubernetes API; `inside_gateway` checks both.
    """
    if root not in GATEWAY_ROOTS or not name or bool(namespace) == (root == CLUSTER):
        raise ValueError(f"not a gateway: {root!r} {namespace!r} {name!r}")
    return RequestInfo(verb, "/", root, namespace=namespace, name=name)


HEALTH_PATHS = frozenset({"version", "healthz", "livez", "readyz"})
SELF_REVIEWS = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
"""`kubectl auth whoami`, `kubectl auth can-i` and `kubectl auth can-i --list`, by group and resource."""


def is_basic_request(target: RequestInfo) -> bool:
    """Whether a request behind a gateway is for discovery, or a review of the user's own identity or permissions.

    Every client needs these and they disclose nothing confidential. So they are within every scope that allows anything
    of the cluster, space or virtual cluster (`compiled.py`), and within every space (`gateway/`).
    """
    if target.resource:
        plain = not (target.name or target.subresource or target.namespace)
        return plain and target.verb == "create" and (target.group, target.resource) in SELF_REVIEWS
    return target.verb == "get" and is_unambiguous(target.path) and is_discovery_path(target.path.strip("/").split("/"))


def is_discovery_path(segments: Sequence[str]) -> bool:
    """Whether path segments are those of discovery, OpenAPI, the version or a health check."""
    match segments:
        case [""] | ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] | ["openapi", *_]:
            return True
        case [only]:
            return only in HEALTH_PATHS
        case _:
            return False


def is_unambiguous(path: str) -> bool:
    """Whether a path is unambiguous: servers behind a gateway might resolve `..` or decode percent-encoding."""
    return "//" not in path and "%" not in path and "\\" not in path and {".", ".."}.isdisjoint(path.split("/"))
