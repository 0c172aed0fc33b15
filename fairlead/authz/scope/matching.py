"""The deprecated rules of a scope, compiled to sets: the cost of a match must not depend on the length of the lists.

A request must match a rule in every dimension; an empty dimension matches everything. A rule with resources, object
names or namespaces matches resource requests only, one with paths matches paths only. `rule_index.py` matches many
rules.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairlead.authz.scope.names import CLUSTER, REQUEST_TARGETS, VIRTUAL_CLUSTER
from fairlead.core.call import Target
from fairlead.core.scope import ANY, Resources, ScopeRule

Names = frozenset[str] | None
"""The allowed values of a dimension; None if it is unrestricted."""
Resource = tuple[str, str]
"""An API group, and a resource name as it may be written in a rule."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """One rule. `entries` maps each resource to the allowed object names; None for all resources."""

    verbs: Names
    entries: dict[Resource, list[Names]] | None
    object_names: Names
    namespaces: Names
    paths: tuple[str, ...]
    targets: Names
    cluster: str
    virtual_clusters: frozenset[tuple[str, str]]

    @property
    def anything_goes(self) -> bool:
        """Whether the rule restricts neither resources nor paths, only verbs."""
        return not self.is_about_resources and not self.paths

    @property
    def is_about_resources(self) -> bool:
        return not (self.entries is None and self.object_names is None and self.namespaces is None)

    def has_verb(self, verb: str) -> bool:
        return self.verbs is None or verb in self.verbs


def compile_rule(rule: ScopeRule) -> CompiledRule:
    return CompiledRule(
        verbs=None if ANY in rule.verbs else _names(rule.verbs),
        entries=_entries(rule.resources),
        object_names=_names(rule.object_names),
        namespaces=_names(rule.namespaces),
        paths=rule.paths,
        targets=_names(rule.targets),
        cluster=rule.cluster,
        virtual_clusters=frozenset(rule.virtual_clusters),
    )


def _names(names: Iterable[str]) -> Names:
    return frozenset(names) or None


def _entries(resources: Iterable[Resources]) -> dict[Resource, list[Names]] | None:
    found: dict[Resource, list[Names]] = {}
    for each in resources:
        names = (ANY,) if not each.names or ANY in each.names else each.names
        objects = _names(each.object_names)
        for name in names:
            found.setdefault((each.group, name), []).append(objects)
    return found or None


def spellings(target: Target) -> Iterator[Resource]:
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


def for_root(rule: CompiledRule, root: str) -> bool:
    """Whether the rule applies to the management API or the platform's own paths, and not only to gateways."""
    return _is_target(rule, root) and not rule.cluster and not rule.virtual_clusters


def for_entrance(rule: CompiledRule, entrance: Target) -> bool:
    """Whether the rule applies to this gateway. A rule with a cluster applies to no virtual cluster, and vice versa."""
    if not _is_target(rule, entrance.root):
        return False
    if rule.cluster and (entrance.root, entrance.name) != (CLUSTER, rule.cluster):
        return False
    if not rule.virtual_clusters:
        return True
    return entrance.root == VIRTUAL_CLUSTER and has_pair(rule.virtual_clusters, entrance.name, entrance.namespace)


def has_pair(pairs: frozenset[tuple[str, str]], name: str, namespace: str) -> bool:
    """Whether one of the pairs matches a virtual cluster; an empty part of a pair matches everything."""
    return not pairs.isdisjoint(((name, namespace), (name, ""), ("", namespace), ("", "")))


def _is_target(rule: CompiledRule, root: str) -> bool:
    return rule.targets is None or not REQUEST_TARGETS.get(root, frozenset()).isdisjoint(rule.targets)
