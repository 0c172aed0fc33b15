"""Schema and validation of the scope of access keys and direct cluster endpoint tokens.

docs/access-keys.md describes what a scope allows; `authz/scope` enforces it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairlead.core.objects import Object
from fairlead.core.scope import ANY, CLI_FIELD, CLI_ROLE
from fairlead.registry import limits
from fairlead.registry.kind import Problem
from fairlead.registry.names import dns_label_errors, dns_subdomain_errors
from fairlead.registry.schema import array, boolean, obj, string, without_effect

REQUEST_TARGETS = ("Management", "Cluster", "ProjectSpace", "ProjectVirtualCluster", "VirtualCluster")
ROLES = (
    "agent",
    "metrics-reader",
    "metrics-writer",
    "network-peer",
    "runner",
    "service-cli",
    "virtual-cluster",
    "workspace",
)

_VIRTUAL_CLUSTERS = obj(
    project=string("Project of the virtual cluster."),
    virtualCluster=string("Name of the virtual cluster. `*` means all of the project."),
)

_RULE = obj(
    verbs=array(string(), "Verbs that match, such as `get`. Empty means every verb."),
    resources=array(
        obj(
            group=string("API group of the resources. Empty means the core group."),
            resources=array(
                string(),
                "Plural names of resources, such as `configmaps` or `clusters/status`. `*` means all resources and "
                "subresources, `clusters/*` all subresources of one, `*/status` one subresource of all. They must not "
                "overlap. Empty means everything in the group.",
            ),
            resourceNames=array(
                string(),
                "Names of the objects that match. Empty means every object.",
                max_items=limits.SCOPE_RULE_NAMES,
            ),
        ),
        "Resources that match, by API group. Empty means all resources of all groups.",
        max_items=limits.SCOPE_ENTRIES,
    ),
    resourceNames=array(
        string(),
        "Names of the objects that match; requires `resources`. Empty means every object.",
        max_items=limits.SCOPE_RULE_NAMES,
    ),
    namespaces=array(
        string(),
        "Namespaces that match. An empty string matches cluster-scoped objects. An empty list means all namespaces.",
        max_items=limits.SCOPE_RULE_NAMES,
    ),
    nonResourceURLs=array(
        string(),
        "Non-resource paths that match. A `*` as the last segment means everything below. Mutually exclusive with "
        "resources.",
        max_items=limits.SCOPE_ENTRIES,
    ),
    requestTargets=array(
        string(), f"APIs that the request may target: {', '.join(REQUEST_TARGETS[:-1])}. Empty means all of them."
    ),
    cluster=string("Connected cluster that the request must target. Empty means any."),
    virtualClusters=array(
        obj(
            name=string("Name of the virtual cluster. Empty means all of them."),
            namespace=string("Namespace of the virtual cluster. Empty means all of them."),
        ),
        "Virtual clusters that the request may target. Empty means any.",
    ),
)

_CLI: Mapping[str, Any] = {
    CLI_FIELD: boolean(
        "Allow the read-only requests that the command-line tool needs. They return only objects that the other "
        "entries allow. Defaults to false."
    )
}

SCOPE = obj(
    "Restricts the owner's permissions. A request must be allowed by at least one entry; all others are denied.",
    **_CLI,
    projects=array(
        obj(project=string("Name of the project. `*` means all of them.")),
        "Projects that can be read, with all objects in them.",
        max_items=limits.SCOPE_ENTRIES,
    ),
    spaces=array(
        obj(
            project=string("Project of the space."),
            space=string("Name of the space. `*` means all of the project."),
        ),
        "Individual spaces.",
        max_items=limits.SCOPE_ENTRIES,
    ),
    virtualClusters=array(_VIRTUAL_CLUSTERS, "Individual virtual clusters.", max_items=limits.SCOPE_ENTRIES),
    clusters=array(
        obj(cluster=string("Name of the connected cluster. `*` means all of them.")),
        "Connected clusters that can be read, and accessed through their gateway.",
        max_items=limits.SCOPE_ENTRIES,
    ),
    roles=array(
        obj(
            role=string(f"Name of the role: {', '.join(ROLES)}."),
            projects=without_effect(array(string(), "Projects that the role applies to.")),
            virtualClusters=without_effect(array(_VIRTUAL_CLUSTERS, "Virtual clusters that the role applies to.")),
        ),
        f"Names of platform components. `{CLI_ROLE}` is the same as {CLI_FIELD}; other roles allow nothing.",
    ),
    rules=array(
        _RULE,
        "DEPRECATED: use projects, spaces and virtualClusters. A request is allowed if it matches all fields of one "
        "rule.",
        max_items=limits.SCOPE_ENTRIES,
    ),
)


def scope_warnings(scope: Object | None, path: str) -> Iterator[str]:
    """Warnings about the entries of a scope at `path` that are deprecated, or allow nothing."""
    scope = scope or {}
    if scope.get("rules"):
        yield f"{path}.rules is deprecated: name projects, spaces and virtualClusters instead"
    for index, each in enumerate(scope.get("roles") or ()):
        if each.get("role") != CLI_ROLE:
            yield f"{path}.roles[{index}] has no effect: only the role {CLI_ROLE} allows anything; name what to allow"
            return


NameValidator = Callable[[str], Iterator[str]]


def scope_problems(scope: Object | None, path: str, before: Object | None = None) -> Iterable[Problem]:
    """Validation errors of a scope at `path` that the schema cannot express. None means a key without a scope.

    `before` is the stored scope: one that was stored with more names than are allowed now must not grow.
    """
    scope = scope or {}
    names = _count_rule_names(scope)
    if names > limits.SCOPE_NAMES and names > _count_rule_names(before or {}):
        yield Problem.too_many(f"{path}.rules", names, limits.SCOPE_NAMES, "names in all rules together")
        return
    for index, each in _enumerate_field(scope, "projects"):
        yield from _name_problems(f"{path}.projects[{index}].project", each.get("project"), any_allowed=True)
    for field, name in (("spaces", "space"), ("virtualClusters", "virtualCluster")):
        for index, each in _enumerate_field(scope, field):
            yield from _name_problems(f"{path}.{field}[{index}].project", each.get("project"))
            yield from _name_problems(f"{path}.{field}[{index}].{name}", each.get(name), any_allowed=True)
    for index, each in _enumerate_field(scope, "clusters"):
        yield from _name_problems(f"{path}.clusters[{index}].cluster", each.get("cluster"), any_allowed=True)
    for index, each in _enumerate_field(scope, "roles"):
        if each.get("role") not in ROLES:
            yield Problem.unsupported(f"{path}.roles[{index}].role", each.get("role") or "", ROLES)
    for index, rule in _enumerate_field(scope, "rules"):
        yield from _rule_problems(rule, f"{path}.rules[{index}]")


def _count_rule_names(scope: Object) -> int:
    """The number of strings in the rules of a scope, which lookups are compiled from."""
    count = 0
    for rule in scope.get("rules") or ():
        for part in (rule, *(rule.get("resources") or ())):
            count += sum(len(value) for value in part.values() if isinstance(value, list))
    return count


def _enumerate_field(obj: Object, field: str) -> Iterator[tuple[int, Any]]:
    return enumerate(obj.get(field) or ())


def _name_problems(path: str, name: str | None, *, any_allowed: bool = False) -> Iterator[Problem]:
    """Reports a missing or invalid name. Rejects `*` where it is no wildcard, since it would silently match nothing."""
    if not name:
        yield Problem.required(path, "set a name, or `*` for all of them" if any_allowed else "set a name")
    elif not (any_allowed and name == ANY):
        yield from (Problem.invalid(path, name, fault) for fault in dns_subdomain_errors(name))


def _rule_problems(rule: Object, path: str) -> Iterator[Problem]:
    for index, verb in _enumerate_field(rule, "verbs"):
        if verb != ANY and not (verb.isalpha() and verb.islower()):
            yield Problem.invalid(f"{path}.verbs[{index}]", verb, "must be a lowercase verb, such as `get`")
    yield from _resource_list_problems(rule, path)
    yield from _non_resource_url_problems(rule, path)
    for index, namespace in _enumerate_field(rule, "namespaces"):
        if namespace:
            yield from _no_wildcard_problems(f"{path}.namespaces[{index}]", namespace, dns_label_errors)
    for index, target in _enumerate_field(rule, "requestTargets"):
        if target not in REQUEST_TARGETS:
            yield Problem.unsupported(f"{path}.requestTargets[{index}]", target, REQUEST_TARGETS)
    if rule.get("cluster"):
        yield from _no_wildcard_problems(f"{path}.cluster", rule["cluster"], dns_subdomain_errors)
    for index, each in _enumerate_field(rule, "virtualClusters"):
        for field, faults in (("name", dns_subdomain_errors), ("namespace", dns_label_errors)):
            if each.get(field):
                yield from _no_wildcard_problems(f"{path}.virtualClusters[{index}].{field}", each[field], faults)


def _no_wildcard_problems(path: str, text: str, validate: NameValidator) -> Iterator[Problem]:
    """Rejects `*` in rule fields where an empty value means all: it would be a literal and match nothing."""
    if text == ANY:
        yield Problem.invalid(path, text, "wildcards are not supported here; leave it empty to allow all of them")
        return
    yield from (Problem.invalid(path, text, fault) for fault in validate(text))


def _resource_list_problems(rule: Object, path: str) -> Iterator[Problem]:
    if rule.get("resourceNames") and not rule.get("resources"):
        yield Problem.forbidden(
            f"{path}.resourceNames", f"set the resources that the names belong to in {path}.resources"
        )
    seen: dict[str, _ResourceNameIndex] = {}
    for index, entry in _enumerate_field(rule, "resources"):
        here = f"{path}.resources[{index}]"
        group = entry.get("group") or ""
        if group == ANY:
            yield Problem.invalid(f"{here}.group", group, f"leave {path}.resources empty to allow all groups")
        if entry.get("resourceNames") and not entry.get("resources"):
            yield Problem.forbidden(
                f"{here}.resourceNames", f"set the resources that the names belong to in {here}.resources"
            )
        others = seen.setdefault(group, _ResourceNameIndex())
        for number, name in _enumerate_field(entry, "resources"):
            yield from _resource_problems(f"{here}.resources[{number}]", name, others)


def _resource_problems(path: str, name: str, index: "_ResourceNameIndex") -> Iterator[Problem]:
    resource, slash, subresource = name.partition("/")
    steps = (resource, subresource) if slash else (resource,)
    if not all(step == ANY or (step and not set(step) & set("*/")) for step in steps) or name == "*/*":
        reason = "must be a resource, resource/subresource, resource/*, */subresource or *"
        yield Problem.invalid(path, name, reason)
        return
    other = index.find_overlap(name)
    if other == name:
        yield Problem.duplicate(path, name)
    elif other is not None:
        yield Problem.invalid(path, name, f'overlaps with "{other}"; do not repeat what a wildcard includes')
    index.add(name)


class _ResourceNameIndex:
    """Index of the resource names that the entries of one API group have used so far, to detect overlaps.

    Two names overlap if they match a common resource: they are equal, or one of them has a wildcard. The index keeps
    the first name for each pattern, so the cost of a lookup does not depend on the number of names.
    """

    __slots__ = ("_first", "_names")

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._first: dict[tuple[str, str], str] = {}

    def find_overlap(self, name: str) -> str | None:
        """An earlier name that overlaps with this one; preferably the same name."""
        if name in self._names:
            return name
        if name == ANY:
            return self._first.get(("", ""))
        resource, slash, subresource = name.partition("/")
        patterns = [(ANY, "")]
        if slash:
            patterns += _overlapping_patterns(resource, subresource)
        return next((self._first[pattern] for pattern in patterns if pattern in self._first), None)

    def add(self, name: str) -> None:
        self._names.add(name)
        resource, slash, subresource = name.partition("/")
        patterns = [("", ""), (resource, subresource)]
        if slash:  # and every subresource of this resource, and this subresource of every resource
            patterns += [(resource, "/"), ("/", subresource)]
        for pattern in patterns:
            self._first.setdefault(pattern, name)


def _overlapping_patterns(resource: str, subresource: str) -> list[tuple[str, str]]:
    """The patterns that overlap with `resource/subresource`, one of which may be `*`."""
    if resource == ANY:
        return [("/", subresource), ("/", ANY)]
    if subresource == ANY:
        return [(resource, "/"), (ANY, "/")]
    return [(resource, ANY), (ANY, subresource)]


def _non_resource_url_problems(rule: Object, path: str) -> Iterator[Problem]:
    if not rule.get("nonResourceURLs"):
        return
    for field in ("resources", "resourceNames", "namespaces"):
        if rule.get(field):
            reason = f"{path}.nonResourceURLs is set too, and no request matches both; split it into two rules"
            yield Problem.forbidden(f"{path}.{field}", reason)
    for index, url in _enumerate_field(rule, "nonResourceURLs"):
        here, steps = f"{path}.nonResourceURLs[{index}]", url.split("/")
        if url != ANY and not url.startswith("/"):
            yield Problem.invalid(here, url, "must be a path that starts with `/`, or `*` for all paths")
        elif ANY in "".join(steps[:-1]) or (ANY in steps[-1] and steps[-1] != ANY):
            yield Problem.invalid(here, url, "`*` can only be the whole last segment of a path, as in /apis/*")
        elif {".", ".."} & set(steps) or "" in steps[1:-1]:
            yield Problem.invalid(here, url, "must be a normalized path, without empty segments, `.` and `..`")
