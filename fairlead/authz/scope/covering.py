"""Whether one scope allows nothing that another does not: a key makes only keys that reach no further than itself.

The answer is no where it is not plain to see. Each entry must be inside one entry of the other scope; what several
of them would allow together is not added up.
"""

from collections.abc import Collection

from fairlead.authz.scope.rules import anything_goes, path_matches
from fairlead.core.scope import ANY, Resources, Scope, ScopeRule

Pairs = Collection[tuple[str, str]]


def covers(outer: Scope | None, inner: Scope | None) -> bool:
    """None is no scope at all: everything, also what no scope ever allows."""
    if outer is None:
        return True
    if inner is None or not set(inner.roles) <= set(outer.roles):
        return False
    if any(_is_total(rule) for rule in outer.rules):
        return True
    return (
        (outer.allow_cli or not inner.allow_cli)
        and all(_has(outer.projects, project) for project in inner.projects)
        and all(_has(outer.clusters, cluster) for cluster in inner.clusters)
        and all(_has_instance(outer, outer.spaces, each) for each in inner.spaces)
        and all(_has_instance(outer, outer.virtual_clusters, each) for each in inner.virtual_clusters)
        and all(any(_rule_covers(wide, narrow) for wide in outer.rules) for narrow in inner.rules)
    )


def _has(names: Collection[str], name: str) -> bool:
    return name in names or (ANY in names and bool(name))


def _has_instance(outer: Scope, entries: Pairs, pair: tuple[str, str]) -> bool:
    project, name = pair
    named = bool(project) and project != ANY
    return pair in entries or (named and (_has(outer.projects, project) or (bool(name) and (project, ANY) in entries)))


def _is_total(rule: ScopeRule) -> bool:
    """Whether the rule allows all that any scope could."""
    free = not (rule.targets or rule.cluster or rule.virtual_clusters)
    return free and anything_goes(rule) and (not rule.verbs or ANY in rule.verbs)


def _rule_covers(wide: ScopeRule, narrow: ScopeRule) -> bool:
    return wide == narrow or (
        _verbs_cover(wide.verbs, narrow.verbs)
        and _within(wide.targets, narrow.targets)
        and wide.cluster in ("", narrow.cluster)
        and _virtual_clusters_cover(wide.virtual_clusters, narrow.virtual_clusters)
        and (anything_goes(wide) or _paths_cover(wide, narrow) or _resources_cover(wide, narrow))
    )


def _within(wide: Collection[str], narrow: Collection[str]) -> bool:
    """In a dimension where an empty list is free."""
    return not wide or (bool(narrow) and set(narrow) <= set(wide))


def _verbs_cover(wide: Collection[str], narrow: Collection[str]) -> bool:
    return ANY in wide or _within(wide, narrow)


def _virtual_clusters_cover(wide: Pairs, narrow: Pairs) -> bool:
    if not wide:
        return True
    return bool(narrow) and all(
        any(a in ("", name) and b in ("", namespace) for a, b in wide) for name, namespace in narrow
    )


def _paths_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if not wide.paths or not narrow.paths or _is_about_resources(wide) or _is_about_resources(narrow):
        return False
    return all(any(_path_covers(each, path) for each in wide.paths) for path in narrow.paths)


def _path_covers(wide: str, narrow: str) -> bool:
    """A pattern is read as a path whose last step happens to be `*`: whatever is below the one is below the other."""
    return wide == narrow or path_matches(wide, narrow if narrow.endswith(ANY) else narrow.removesuffix("/") or "/")


def _is_about_resources(rule: ScopeRule) -> bool:
    return bool(rule.resources or rule.object_names or rule.namespaces)


def _resources_cover(wide: ScopeRule, narrow: ScopeRule) -> bool:
    if wide.paths or narrow.paths or not _is_about_resources(narrow):
        return False
    if not _within(wide.namespaces, narrow.namespaces) or not _within(wide.object_names, narrow.object_names):
        return False
    if not wide.resources:
        return True
    return bool(narrow.resources) and all(
        any(_entry_covers(each, entry, narrow.object_names) for each in wide.resources) for entry in narrow.resources
    )


def _entry_covers(wide: Resources, narrow: Resources, object_names: Collection[str]) -> bool:
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
