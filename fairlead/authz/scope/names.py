"""Names of this installation, authorization targets of gateways, and the basic requests that every scope allows.

`app/auth.py` creates one `ScopeNaming` from the settings and the catalog, so that no API group is hard-coded here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.authz.scope.path_patterns import is_unambiguous
from fairlead.core.call import MANAGEMENT, NAMESPACE_RESOURCE, RequestInfo
from fairlead.registry.catalog import Catalog

CLUSTER, SPACE, VIRTUAL_CLUSTER = "cluster", "project-space", "project-virtualcluster"
"""The roots of gateway targets."""

REQUEST_TARGETS: Mapping[str, frozenset[str]] = {
    MANAGEMENT: frozenset({"Management"}),
    CLUSTER: frozenset({"Cluster"}),
    SPACE: frozenset({"ProjectSpace"}),
    VIRTUAL_CLUSTER: frozenset({"ProjectVirtualCluster", "VirtualCluster"}),
}
"""The values of a rule's `requestTargets` for each root; there is none for the platform's own paths."""

GATEWAY_ROOTS = frozenset({CLUSTER, SPACE, VIRTUAL_CLUSTER})


@dataclass(frozen=True, slots=True, eq=False)
class ScopeNaming:
    """One per server. `namespaced` says for each group and plural whether the kind is namespaced."""

    api_group: str
    namespace_prefix: str
    namespaced: Mapping[tuple[str, str], bool]

    @staticmethod
    def from_catalog(catalog: Catalog, api_group: str, namespace_prefix: str) -> "ScopeNaming":
        namespaced = {(kind.group, kind.plural): kind.namespaced for kind in catalog.kinds}
        return ScopeNaming(api_group, namespace_prefix, namespaced)

    def project_of(self, namespace: str) -> str:
        """The project of a namespace, derived from its name; empty if it does not belong to a project."""
        prefix = self.namespace_prefix
        return namespace.removeprefix(prefix) if namespace.startswith(prefix) else ""

    def matching_namespaces(self, target: RequestInfo) -> tuple[str, ...]:
        """The values of a rule's namespaces that match the request; one of them is enough.

        Empty for a request across all namespaces, which only a rule without namespaces allows. A cluster-scoped kind
        stays cluster-scoped, whatever the path says. The kinds behind a gateway are unknown here, so a request there
        without a namespace counts as one across all namespaces, unless it names an object or creates one.
        """
        kind = target.group, target.resource
        if kind == NAMESPACE_RESOURCE:
            return ("", target.name) if target.name else ("",)
        if target.root == MANAGEMENT:
            outside = self.namespaced.get(kind) is False
        else:
            outside = not target.namespace and (bool(target.name) or target.verb == "create")
        if outside:
            return ("",)
        return (target.namespace,) if target.namespace else ()


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
