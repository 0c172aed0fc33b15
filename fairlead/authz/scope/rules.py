"""Whether a request matches one of a scope's rules: in every dimension, where an empty one is free.

A rule that names resources, objects or namespaces is about resources only, one that names paths is about paths only.
"""

from collections.abc import Collection

from fairlead.authz.scope.names import CLUSTER, REQUEST_TARGETS, VIRTUAL_CLUSTER
from fairlead.core.call import Target
from fairlead.core.scope import ANY, Resources, ScopeRule


def for_root(rule: ScopeRule, root: str) -> bool:
    """Whether the rule is about requests of the management API or the platform, and not about gateways alone."""
    return _is_target(rule, root) and not rule.cluster and not rule.virtual_clusters


def for_entrance(rule: ScopeRule, entrance: Target) -> bool:
    """Whether the rule is about this gateway. One that names a cluster is about no virtual cluster, and vice versa."""
    if not _is_target(rule, entrance.root):
        return False
    if rule.cluster and (entrance.root, entrance.name) != (CLUSTER, rule.cluster):
        return False
    if not rule.virtual_clusters:
        return True
    return entrance.root == VIRTUAL_CLUSTER and any(
        name in ("", entrance.name) and namespace in ("", entrance.namespace)
        for name, namespace in rule.virtual_clusters
    )


def _is_target(rule: ScopeRule, root: str) -> bool:
    return not rule.targets or not REQUEST_TARGETS.get(root, frozenset()).isdisjoint(rule.targets)


def matches(rule: ScopeRule, verbs: Collection[str], target: Target, places: Collection[str]) -> bool:
    """Whether the rule allows one of `verbs`. `places` are the namespaces that the request may count as being in."""
    if not _has_verb(rule, verbs):
        return False
    if not target.resource:
        return _has_path(rule, target.path)
    return (
        not rule.paths
        and (not rule.object_names or target.name in rule.object_names)
        and (not rule.namespaces or _meet(places, rule.namespaces))
        and (not rule.resources or _has_object(rule.resources, target))
    )


def could_get(rule: ScopeRule, target: Target, places: Collection[str] | None) -> bool:
    """Whether the rule lets some object of the resource be read. Without `places` it may be in any namespace."""
    if rule.paths or not _has_verb(rule, ("get",)):
        return False
    somewhere = any(rule.namespaces) if places is None else _meet(places, rule.namespaces)
    if rule.namespaces and not somewhere:
        return False
    return not rule.resources or any(_has_resource(each, target) for each in rule.resources)


def anything_goes(rule: ScopeRule) -> bool:
    """Whether the rule looks neither at resources nor at paths, so that its verbs are all there is to it."""
    return not (rule.resources or rule.object_names or rule.namespaces or rule.paths)


def _has_verb(rule: ScopeRule, verbs: Collection[str]) -> bool:
    return not rule.verbs or _meet(verbs, rule.verbs) or ANY in rule.verbs


def _meet(few: Collection[str], many: Collection[str]) -> bool:
    """Loops instead of `any(...)` here and below: with many rules it is this that a request waits for."""
    for each in few:  # noqa: SIM110
        if each in many:
            return True
    return False


def _has_object(entries: Collection[Resources], target: Target) -> bool:
    for entry in entries:
        if _has_resource(entry, target) and (not entry.object_names or target.name in entry.object_names):
            return True
    return False


def _has_resource(entry: Resources, target: Target) -> bool:
    if entry.group != target.group:
        return False
    names, resource, subresource = entry.names, target.resource, target.subresource
    if not names or ANY in names:
        return True
    if not subresource:
        return resource in names
    return any(each in names for each in (f"{resource}/{subresource}", f"{resource}/*", f"*/{subresource}"))


def _has_path(rule: ScopeRule, path: str) -> bool:
    if anything_goes(rule):
        return True
    if not rule.paths or rule.resources or rule.object_names or rule.namespaces:
        return False
    path = path.removesuffix("/") or "/"
    return any(path_matches(pattern, path) for pattern in rule.paths)


def path_matches(pattern: str, path: str) -> bool:
    """A `*` is the last step of a pattern and stands for whatever is below, at any depth."""
    if pattern != ANY and not pattern.endswith("/*"):
        return (pattern.removesuffix("/") or "/") == path
    return path.startswith(pattern.removesuffix(ANY)) and is_plain(path)


def is_plain(path: str) -> bool:
    """Whether a path says where it leads: somebody behind a gateway might follow `..`, or decode what is encoded."""
    return "//" not in path and "%" not in path and "\\" not in path and {".", ".."}.isdisjoint(path.split("/"))
