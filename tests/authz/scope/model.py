"""A simple model of scopes that compares everything with everything. The indexes are tested against it."""

from collections.abc import Collection

from fairlead.authz.scope.compiled import ScopeNaming
from fairlead.authz.scope.gateway_requests import CLUSTER, VIRTUAL_CLUSTER
from fairlead.authz.scope.rules import REQUEST_TARGETS
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import ANY, Scope, ScopeResources, ScopeRule

# --- overlapping resource names ---


def names_overlap(one: str, other: str) -> bool:
    """Whether two names match a common resource."""
    if one == other or ANY in (one, other):
        return True
    (a, _, b), (c, _, d) = one.partition("/"), other.partition("/")
    return bool(b and d) and (a == c or ANY in (a, c)) and (b == d or ANY in (b, d))


# --- rules and requests ---


def is_plain_path(path: str) -> bool:
    return not any(each in path for each in ("//", "%", "\\")) and not {".", ".."} & set(path.split("/"))


def path_matches(pattern: str, path: str) -> bool:
    if pattern != ANY and not pattern.endswith("/*"):
        return (pattern.removesuffix("/") or "/") == path
    return path.startswith(pattern.removesuffix(ANY)) and is_plain_path(path)


def matches_everything(rule: ScopeRule) -> bool:
    return not (rule.resources or rule.object_names or rule.namespaces or rule.paths)


def rule_matches(rule: ScopeRule, target: RequestInfo, namespaces: Collection[str]) -> bool:
    if rule.verbs and target.verb not in rule.verbs and ANY not in rule.verbs:
        return False
    if not target.resource:
        has_resource_fields = rule.resources or rule.object_names or rule.namespaces
        path = target.path.removesuffix("/") or "/"
        return matches_everything(rule) or (
            not has_resource_fields and any(path_matches(each, path) for each in rule.paths)
        )
    return (
        not rule.paths
        and (not rule.object_names or target.name in rule.object_names)
        and (not rule.namespaces or any(namespace in rule.namespaces for namespace in namespaces))
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


def rules_allow(scope: Scope, target: RequestInfo, names: ScopeNaming) -> bool:
    """Whether a rule allows a request to the management API or the platform."""
    rules = [rule for rule in scope.rules if is_target(rule, target.root) and not rule.cluster]
    rules = [rule for rule in rules if not rule.virtual_clusters]
    return target.root in (MANAGEMENT, "") and any(
        rule_matches(rule, target, names.matching_namespaces(target)) for rule in rules
    )


def applies_to_gateway(rule: ScopeRule, gateway: RequestInfo) -> bool:
    if not is_target(rule, gateway.root):
        return False
    if rule.cluster and (gateway.root, gateway.name) != (CLUSTER, rule.cluster):
        return False
    return not rule.virtual_clusters or (
        gateway.root == VIRTUAL_CLUSTER
        and any(a in ("", gateway.name) and b in ("", gateway.namespace) for a, b in rule.virtual_clusters)
    )


# --- scopes and scopes ---


def scope_covers(outer: Scope | None, inner: Scope | None) -> bool:
    if outer is None:
        return True
    if inner is None or not all(role in outer.roles for role in inner.roles):
        return False
    if any(_is_total(rule) for rule in outer.rules):
        return True
    return (
        (outer.allow_cli or not inner.allow_cli)
        and all(_has_name(outer.projects, project) for project in inner.projects)
        and all(_has_name(outer.clusters, cluster) for cluster in inner.clusters)
        and all(_has_instance(outer, outer.spaces, each) for each in inner.spaces)
        and all(_has_instance(outer, outer.virtual_clusters, each) for each in inner.virtual_clusters)
        and all(any(rule_covers(wide, narrow) for wide in outer.rules) for narrow in inner.rules)
    )


def _has_name(names: Collection[str], name: str) -> bool:
    return name in names or (ANY in names and bool(name))


def _has_instance(outer: Scope, entries: Collection[tuple[str, str]], pair: tuple[str, str]) -> bool:
    project, name = pair
    if pair in entries:
        return True
    in_entries = bool(name) and (project, ANY) in entries
    return project not in ("", ANY) and (_has_name(outer.projects, project) or in_entries)


def _is_total(rule: ScopeRule) -> bool:
    is_unrestricted = not (rule.targets or rule.cluster or rule.virtual_clusters)
    return is_unrestricted and matches_everything(rule) and (not rule.verbs or ANY in rule.verbs)


def rule_covers(wide: ScopeRule, narrow: ScopeRule) -> bool:
    return wide == narrow or (
        (ANY in wide.verbs or _includes(wide.verbs, narrow.verbs))
        and _includes(wide.targets, narrow.targets)
        and wide.cluster in ("", narrow.cluster)
        and _virtual_clusters_cover(wide, narrow)
        and (matches_everything(wide) or _paths_cover(wide, narrow) or _resources_cover(wide, narrow))
    )


def _includes(wide: Collection[str], narrow: Collection[str]) -> bool:
    return not wide or (bool(narrow) and all(each in wide for each in narrow))


def _virtual_clusters_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if not wide.virtual_clusters:
        return True
    return bool(narrow.virtual_clusters) and all(
        any(a in ("", name) and b in ("", namespace) for a, b in wide.virtual_clusters)
        for name, namespace in narrow.virtual_clusters
    )


def _has_resource_fields(rule: ScopeRule) -> bool:
    return bool(rule.resources or rule.object_names or rule.namespaces)


def _paths_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if not wide.paths or not narrow.paths or _has_resource_fields(wide) or _has_resource_fields(narrow):
        return False
    return all(any(_path_covers(each, path) for each in wide.paths) for path in narrow.paths)


def _path_covers(wide: str, narrow: str) -> bool:
    return wide == narrow or path_matches(wide, narrow if narrow.endswith(ANY) else narrow.removesuffix("/") or "/")


def _resources_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if wide.paths or narrow.paths or not _has_resource_fields(narrow):
        return False
    if not _includes(wide.namespaces, narrow.namespaces) or not _includes(wide.object_names, narrow.object_names):
        return False
    if not wide.resources:
        return True
    return bool(narrow.resources) and all(
        any(_entry_covers(each, entry, narrow.object_names) for each in wide.resources) for entry in narrow.resources
    )


def _entry_covers(wide: ScopeResources, narrow: ScopeResources, object_names: Collection[str]) -> bool:
    if wide.group != narrow.group:
        return False
    if not (_includes(wide.object_names, narrow.object_names) or _includes(wide.object_names, object_names)):
        return False
    if not wide.names or ANY in wide.names:
        return True
    return bool(narrow.names) and all(_covers_name(wide.names, name) for name in narrow.names)


def _covers_name(wide: Collection[str], name: str) -> bool:
    resource, slash, subresource = name.partition("/")
    return name in wide or (bool(slash) and (f"{resource}/*" in wide or f"*/{subresource}" in wide))
