"""What things are called on this server, and how a gateway says what it is asked for.

`app` makes one ScopeNames from the settings and the catalog, so that nothing about a vendor's names is fixed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.authz.scope.path_patterns import is_plain
from fairlead.core.call import MANAGEMENT, NAMESPACES, Target
from fairlead.registry.catalog import Catalog

CLUSTER, SPACE, VIRTUAL_CLUSTER = "cluster", "project-space", "project-virtualcluster"
"""The roots of Targets that stand for the entrance to a gateway."""

REQUEST_TARGETS: Mapping[str, frozenset[str]] = {
    MANAGEMENT: frozenset({"Management"}),
    CLUSTER: frozenset({"Cluster"}),
    SPACE: frozenset({"ProjectSpace"}),
    VIRTUAL_CLUSTER: frozenset({"ProjectVirtualCluster", "VirtualCluster"}),
}
"""What a rule's `requestTargets` calls each root; the platform's own paths have no word there."""

GATEWAYS = frozenset({CLUSTER, SPACE, VIRTUAL_CLUSTER})


@dataclass(frozen=True, slots=True, eq=False)
class ScopeNames:
    """One for each server. `namespaced` says of each of its kinds, by group and plural, whether it is in namespaces."""

    api_group: str
    namespace_prefix: str
    namespaced: Mapping[tuple[str, str], bool]

    @staticmethod
    def of(catalog: Catalog, api_group: str, namespace_prefix: str) -> "ScopeNames":
        namespaced = {(kind.group, kind.plural): kind.namespaced for kind in catalog.kinds}
        return ScopeNames(api_group, namespace_prefix, namespaced)

    def project(self, namespace: str) -> str:
        """The project that a namespace belongs to, by its name alone; empty if it is none of a project's."""
        prefix = self.namespace_prefix
        return namespace.removeprefix(prefix) if namespace.startswith(prefix) else ""

    def places(self, target: Target) -> tuple[str, ...]:
        """The namespaces that a rule may call a request's place by: any of them will do.

        Nothing for a request over all namespaces, which only a rule without namespaces allows. A kind outside of
        namespaces stays outside whatever the path says. The kinds behind a gateway are not known here, so whatever is
        not about one object there is taken to be about all namespaces.
        """
        kind = target.group, target.resource
        if kind == NAMESPACES:
            return ("", target.name) if target.name else ("",)
        if target.root == MANAGEMENT:
            outside = self.namespaced.get(kind) is False
        else:
            outside = not target.namespace and (bool(target.name) or target.verb == "create")
        if outside:
            return ("",)
        return (target.namespace,) if target.namespace else ()


def gateway_target(root: str, name: str, namespace: str = "", verb: str = "use") -> Target:
    """The entrance to a gateway as authorizers see it: a connected cluster, or an instance in a project's namespace.

    It stands for everything behind it. What is asked behind it is a second Target, made from the rest of the path as
    for any Kubernetes API; `inside_gateway` looks at both.
    """
    if root not in GATEWAYS or not name or bool(namespace) == (root == CLUSTER):
        raise ValueError(f"no entrance to a gateway: {root!r} {namespace!r} {name!r}")
    return Target(verb, "/", root, namespace=namespace, name=name)


# DOC-MERGED authz/scope/basics
# What every client asks of a cluster, whatever it does then: discovery documents, and questions about oneself.
#
# No client can do without, and nobody learns or changes anything by it that is not theirs to know. So it is inside every
# scope that reaches the cluster, space or virtual cluster (`compiled.py`), and inside every space (`gateway/`).


HEALTH = frozenset({"version", "healthz", "livez", "readyz"})
QUESTIONS = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
"""`kubectl auth whoami`, `kubectl auth can-i` and `kubectl auth can-i --list`, by group and resource."""


def is_basic(target: Target) -> bool:
    """Whether a request behind a gateway is one of these."""
    if target.resource:
        plain = not (target.name or target.subresource or target.namespace)
        return plain and target.verb == "create" and (target.group, target.resource) in QUESTIONS
    return target.verb == "get" and is_plain(target.path) and is_document(target.path.strip("/").split("/"))


def is_document(steps: Sequence[str]) -> bool:
    """Discovery, schemas, the version and whether the cluster is well. `steps` are those of a path."""
    match steps:
        case [""] | ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] | ["openapi", *_]:
            return True
        case [only]:
            return only in HEALTH
        case _:
            return False
