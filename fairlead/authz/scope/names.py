"""What things are called on this server, and how a gateway says what it is asked for.

`app` makes one ScopeNames from the settings and the catalog, so that nothing about a vendor's names is fixed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
