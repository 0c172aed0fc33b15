"""Scopes compared and matched in the plainest way: everything with everything. What the quick ways are held against."""

from collections.abc import Collection

from fairlead.authz.scope.compiled import ScopeNaming
from fairlead.authz.scope.gateway_requests import CLUSTER, VIRTUAL_CLUSTER
from fairlead.authz.scope.rules import REQUEST_TARGETS
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import ANY, Scope, ScopeResources, ScopeRule

# --- names of resources that overlap ---


def overlap(one: str, other: str) -> bool:
    """Whether two names stand for some resource in common."""
    if one == other or ANY in (one, other):
        return True
    (a, _, b), (c, _, d) = one.partition("/"), other.partition("/")
    return bool(b and d) and (a == c or ANY in (a, c)) and (b == d or ANY in (b, d))


# --- a request and a rule ---


def plain(path: str) -> bool:
    return not any(each in path for each in ("//", "%", "\\")) and not {".", ".."} & set(path.split("/"))


def path_matches(pattern: str, path: str) -> bool:
    if pattern != ANY and not pattern.endswith("/*"):
        return (pattern.removesuffix("/") or "/") == path
    return path.startswith(pattern.removesuffix(ANY)) and plain(path)


def anything_goes(rule: ScopeRule) -> bool:
    return not (rule.resources or rule.object_names or rule.namespaces or rule.paths)


def matches(rule: ScopeRule, target: RequestInfo, places: Collection[str]) -> bool:
    if rule.verbs and target.verb not in rule.verbs and ANY not in rule.verbs:
        return False
    if not target.resource:
        about_resources = rule.resources or rule.object_names or rule.namespaces
        path = target.path.removesuffix("/") or "/"
        return anything_goes(rule) or (not about_resources and any(path_matches(each, path) for each in rule.paths))
    return (
        not rule.paths
        and (not rule.object_names or target.name in rule.object_names)
        and (not rule.namespaces or any(place in rule.namespaces for place in places))
        and (not rule.resources or any(_has_object(each, target) for each in rule.resources))
    )


def _has_object(entry: ScopeResources, target: RequestInfo) -> bool:
    return has_resource(entry, target) and (not entry.object_names or target.name in entry.object_names)


def has_resource(entry: ScopeResources, target: RequestInfo) -> bool:
    if entry.group != target.group:
        return False
    if not entry.names or ANY in entry.names:
        return True
    resource, subresource = target.resource, target.subresource
    if not subresource:
        return resource in entry.names
    return any(each in entry.names for each in (f"{resource}/{subresource}", f"{resource}/*", f"*/{subresource}"))


def is_target(rule: ScopeRule, root: str) -> bool:
    return not rule.targets or bool(set(REQUEST_TARGETS.get(root, ())) & set(rule.targets))


def ruled(scope: Scope, target: RequestInfo, names: ScopeNaming) -> bool:
    """Whether a rule allows a request of the management API or the platform."""
    rules = [rule for rule in scope.rules if is_target(rule, target.root) and not rule.cluster]
    rules = [rule for rule in rules if not rule.virtual_clusters]
    return target.root in (MANAGEMENT, "") and any(
        matches(rule, target, names.matching_namespaces(target)) for rule in rules
    )


def for_entrance(rule: ScopeRule, entrance: RequestInfo) -> bool:
    if not is_target(rule, entrance.root):
        return False
    if rule.cluster and (entrance.root, entrance.name) != (CLUSTER, rule.cluster):
        return False
    return not rule.virtual_clusters or (
        entrance.root == VIRTUAL_CLUSTER
        and any(a in ("", entrance.name) and b in ("", entrance.namespace) for a, b in rule.virtual_clusters)
    )


# --- a scope and a scope ---


def covers(outer: Scope | None, inner: Scope | None) -> bool:
    if outer is None:
        return True
    if inner is None or not all(role in outer.roles for role in inner.roles):
        return False
    if any(_is_total(rule) for rule in outer.rules):
        return True
    return (
        (outer.allow_cli or not inner.allow_cli)
        and all(_has(outer.projects, project) for project in inner.projects)
        and all(_has(outer.clusters, cluster) for cluster in inner.clusters)
        and all(_has_instance(outer, outer.spaces, each) for each in inner.spaces)
        and all(_has_instance(outer, outer.virtual_clusters, each) for each in inner.virtual_clusters)
        and all(any(rule_covers(wide, narrow) for wide in outer.rules) for narrow in inner.rules)
    )


def _has(names: Collection[str], name: str) -> bool:
    return name in names or (ANY in names and bool(name))


def _has_instance(outer: Scope, entries: Collection[tuple[str, str]], pair: tuple[str, str]) -> bool:
    project, name = pair
    if pair in entries:
        return True
    in_entries = bool(name) and (project, ANY) in entries
    return project not in ("", ANY) and (_has(outer.projects, project) or in_entries)


def _is_total(rule: ScopeRule) -> bool:
    free = not (rule.targets or rule.cluster or rule.virtual_clusters)
    return free and anything_goes(rule) and (not rule.verbs or ANY in rule.verbs)


def rule_covers(wide: ScopeRule, narrow: ScopeRule) -> bool:
    return wide == narrow or (
        (ANY in wide.verbs or _within(wide.verbs, narrow.verbs))
        and _within(wide.targets, narrow.targets)
        and wide.cluster in ("", narrow.cluster)
        and _virtual_clusters_cover(wide, narrow)
        and (anything_goes(wide) or _paths_cover(wide, narrow) or _resources_cover(wide, narrow))
    )


def _within(wide: Collection[str], narrow: Collection[str]) -> bool:
    return not wide or (bool(narrow) and all(each in wide for each in narrow))


def _virtual_clusters_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if not wide.virtual_clusters:
        return True
    return bool(narrow.virtual_clusters) and all(
        any(a in ("", name) and b in ("", namespace) for a, b in wide.virtual_clusters)
        for name, namespace in narrow.virtual_clusters
    )


def _about_resources(rule: ScopeRule) -> bool:
    return bool(rule.resources or rule.object_names or rule.namespaces)


def _paths_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if not wide.paths or not narrow.paths or _about_resources(wide) or _about_resources(narrow):
        return False
    return all(any(_path_covers(each, path) for each in wide.paths) for path in narrow.paths)


def _path_covers(wide: str, narrow: str) -> bool:
    return wide == narrow or path_matches(wide, narrow if narrow.endswith(ANY) else narrow.removesuffix("/") or "/")


def _resources_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if wide.paths or narrow.paths or not _about_resources(narrow):
        return False
    if not _within(wide.namespaces, narrow.namespaces) or not _within(wide.object_names, narrow.object_names):
        return False
    if not wide.resources:
        return True
    return bool(narrow.resources) and all(
        any(_entry_covers(each, entry, narrow.object_names) for each in wide.resources) for entry in narrow.resources
    )


def _entry_covers(wide: ScopeResources, narrow: ScopeResources, object_names: Collection[str]) -> bool:
    if wide.group != narrow.group:
        return False
    if not (_within(wide.object_names, narrow.object_names) or _within(wide.object_names, object_names)):
        return False
    if not wide.names or ANY in wide.names:
        return True
    return bool(narrow.names) and all(_name_covered(wide.names, name) for name in narrow.names)


def _name_covered(wide: Collection[str], name: str) -> bool:
    resource, slash, subresource = name.partition("/")
    return name in wide or (bool(slash) and (f"{resource}/*" in wide or f"*/{subresource}" in wide))
