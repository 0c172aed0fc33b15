"""The deprecated rules of a scope, compiled to sets: the cost of a match must not depend on the length of the lists.

A request must match a rule in every dimension; an empty dimension matches everything. A rule with resources, object
names or namespaces matches resource requests only, one with paths matches paths only. `rule_index.py` matches many
rules.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairlead.authz.scope.names import CLUSTER, REQUEST_TARGETS, VIRTUAL_CLUSTER
from fairlead.core.call import RequestInfo
from fairlead.core.scope import ANY, ScopeResources, ScopeRule

AllowedValues = frozenset[str] | None
"""The allowed values of a dimension; None if it is unrestricted."""
ResourcePattern = tuple[str, str]
"""An API group, and a resource name as it may be written in a rule."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """One rule. `entries` maps each resource to the allowed object names; None for all resources."""

    verbs: AllowedValues
    entries: dict[ResourcePattern, list[AllowedValues]] | None
    object_names: AllowedValues
    namespaces: AllowedValues
    paths: tuple[str, ...]
    request_targets: AllowedValues
    cluster: str
    virtual_clusters: frozenset[tuple[str, str]]

    @property
    def is_unrestricted(self) -> bool:
        """Whether the rule restricts neither resources nor paths, only verbs."""
        return not self.restricts_resources and not self.paths

    @property
    def restricts_resources(self) -> bool:
        return not (self.entries is None and self.object_names is None and self.namespaces is None)

    def has_verb(self, verb: str) -> bool:
        return self.verbs is None or verb in self.verbs


def compile_rule(rule: ScopeRule) -> CompiledRule:
    return CompiledRule(
        verbs=None if ANY in rule.verbs else _allowed_values(rule.verbs),
        entries=_resource_entries(rule.resources),
        object_names=_allowed_values(rule.object_names),
        namespaces=_allowed_values(rule.namespaces),
        paths=rule.paths,
        request_targets=_allowed_values(rule.targets),
        cluster=rule.cluster,
        virtual_clusters=frozenset(rule.virtual_clusters),
    )


def _allowed_values(names: Iterable[str]) -> AllowedValues:
    return frozenset(names) or None


def _resource_entries(resources: Iterable[ScopeResources]) -> dict[ResourcePattern, list[AllowedValues]] | None:
    found: dict[ResourcePattern, list[AllowedValues]] = {}
    for each in resources:
        names = (ANY,) if not each.names or ANY in each.names else each.names
        objects = _allowed_values(each.object_names)
        for name in names:
            found.setdefault((each.group, name), []).append(objects)
    return found or None


def resource_patterns(target: RequestInfo) -> Iterator[ResourcePattern]:
    """The resource names in a rule that match the request; `*` matches everything in the group."""
    group, resource, subresource = target.group, target.resource, target.subresource
    yield group, ANY
    if not subresource:
        yield group, resource
        return
    yield group, f"{resource}/{subresource}"
    if subresource != ANY:
        yield group, f"{resource}/*"
    if resource != ANY:
        yield group, f"*/{subresource}"


def applies_to_root(rule: CompiledRule, root: str) -> bool:
    """Whether the rule applies to the management API or the platform's own paths, and not only to gateways."""
    return _matches_root(rule, root) and not rule.cluster and not rule.virtual_clusters


def applies_to_gateway(rule: CompiledRule, gateway: RequestInfo) -> bool:
    """Whether the rule applies to this gateway. A rule with a cluster applies to no virtual cluster, and vice versa."""
    if not _matches_root(rule, gateway.root):
        return False
    if rule.cluster and (gateway.root, gateway.name) != (CLUSTER, rule.cluster):
        return False
    if not rule.virtual_clusters:
        return True
    return gateway.root == VIRTUAL_CLUSTER and matches_pair(rule.virtual_clusters, gateway.name, gateway.namespace)


def matches_pair(pairs: frozenset[tuple[str, str]], name: str, namespace: str) -> bool:
    """Whether one of the pairs matches a virtual cluster; an empty part of a pair matches everything."""
    return not pairs.isdisjoint(((name, namespace), (name, ""), ("", namespace), ("", "")))


def _matches_root(rule: CompiledRule, root: str) -> bool:
    return rule.request_targets is None or not REQUEST_TARGETS.get(root, frozenset()).isdisjoint(rule.request_targets)
