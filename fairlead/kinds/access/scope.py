"""The scope of access keys and direct cluster endpoint tokens: its schema, and what a schema cannot say about it.

`kinds/access/access_key.py` and whoever else has a `scope` field put these into their own declarations. What a scope allows is
told in docs/access-keys.md and decided in `authz/scope`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairlead.core.objects import Object
from fairlead.core.scope import ANY, CLI_FLAG
from fairlead.registry import limits
from fairlead.registry.kind import Problem
from fairlead.registry.names import label_faults, subdomain_faults
from fairlead.registry.schema import array, boolean, obj, string

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
                "Resources in plural, such as `configmaps` or `clusters/status`. `*` means all of them with their "
                "subresources, `clusters/*` all subresources of one, `*/status` one subresource of all. They must not "
                "overlap. Empty means everything in the group.",
            ),
            resourceNames=array(
                string(), "Names of the objects that match. Empty means every object.", most=limits.NAMES_IN_A_RULE
            ),
        ),
        "Resources that match, group by group. Empty means all resources of all groups.",
        most=limits.SCOPE_ENTRIES,
    ),
    resourceNames=array(
        string(),
        "Names of the objects that match; needs `resources`. Empty means every object.",
        most=limits.NAMES_IN_A_RULE,
    ),
    namespaces=array(
        string(),
        "Namespaces that match. An empty text means what is in no namespace. Empty means all namespaces.",
        most=limits.NAMES_IN_A_RULE,
    ),
    nonResourceURLs=array(
        string(),
        "Paths that match, for requests that are not about resources. A `*` as the last step means everything below. "
        "Either this or resources.",
        most=limits.SCOPE_ENTRIES,
    ),
    requestTargets=array(
        string(), f"What the request must be sent to: {', '.join(REQUEST_TARGETS[:-1])}. Empty means all of them."
    ),
    cluster=string("Connected cluster that the request must be sent to. Empty means that this does not matter."),
    virtualClusters=array(
        obj(
            name=string("Name of the virtual cluster. Empty means all of them."),
            namespace=string("Namespace of the virtual cluster. Empty means all of them."),
        ),
        "Virtual clusters that the request must be sent to. Empty means that this does not matter.",
    ),
)

_CLI: Mapping[str, Any] = {
    CLI_FLAG: boolean(
        "Allow the read-only requests that the command-line tool needs. They show nothing outside of the other "
        "entries. Defaults to false."
    )
}

SCOPE = obj(
    "What is left of the owner's rights. Every entry allows something; what no entry allows is refused.",
    **_CLI,
    projects=array(
        obj(project=string("Name of the project. `*` means all of them.")),
        "Projects that can be read, with everything in them.",
        most=limits.SCOPE_ENTRIES,
    ),
    spaces=array(
        obj(
            project=string("Project of the space."),
            space=string("Name of the space. `*` means all of the project."),
        ),
        "Single spaces.",
        most=limits.SCOPE_ENTRIES,
    ),
    virtualClusters=array(_VIRTUAL_CLUSTERS, "Single virtual clusters.", most=limits.SCOPE_ENTRIES),
    clusters=array(
        obj(cluster=string("Name of the connected cluster. `*` means all of them.")),
        "Connected clusters that can be read and reached.",
        most=limits.SCOPE_ENTRIES,
    ),
    roles=array(
        obj(
            role=string(f"Name of the role: {', '.join(ROLES)}."),
            projects=array(string(), "Projects that the role is for. Empty means that this does not matter."),
            virtualClusters=array(
                _VIRTUAL_CLUSTERS, "Virtual clusters that the role is for. Empty means that this does not matter."
            ),
        ),
        f"Bundles of rights for components of the platform. `service-cli` is the same as {CLI_FLAG}.",
    ),
    rules=array(
        _RULE,
        "DEPRECATED: use projects, spaces and virtualClusters. A request is allowed that matches one rule in all of "
        "its fields.",
        most=limits.SCOPE_ENTRIES,
    ),
)

Faults = Callable[[str], Iterator[str]]


def scope_problems(scope: Object | None, path: str) -> Iterable[Problem]:
    """What is wrong with a scope that fits the schema; `path` is where it stands. None is a key without a scope."""
    scope = scope or {}
    for index, each in _listed(scope, "projects"):
        yield from _named(f"{path}.projects[{index}].project", each.get("project"), any_allowed=True)
    for field, name in (("spaces", "space"), ("virtualClusters", "virtualCluster")):
        for index, each in _listed(scope, field):
            yield from _named(f"{path}.{field}[{index}].project", each.get("project"))
            yield from _named(f"{path}.{field}[{index}].{name}", each.get(name), any_allowed=True)
    for index, each in _listed(scope, "clusters"):
        yield from _named(f"{path}.clusters[{index}].cluster", each.get("cluster"), any_allowed=True)
    for index, each in _listed(scope, "roles"):
        if each.get("role") not in ROLES:
            yield Problem.unsupported(f"{path}.roles[{index}].role", each.get("role") or "", ROLES)
    for index, rule in _listed(scope, "rules"):
        yield from _rule_problems(rule, f"{path}.rules[{index}]")


def _listed(obj: Object, field: str) -> Iterator[tuple[int, Any]]:
    return enumerate(obj.get(field) or ())


def _named(path: str, name: str | None, *, any_allowed: bool = False) -> Iterator[Problem]:
    """A name is there and could be one. `*` only where it has a meaning: elsewhere it would silently allow nothing."""
    if not name:
        yield Problem.required(path, "name one, or use `*` for all of them" if any_allowed else "name one")
    elif not (any_allowed and name == ANY):
        yield from (Problem.invalid(path, name, fault) for fault in subdomain_faults(name))


def _rule_problems(rule: Object, path: str) -> Iterator[Problem]:
    for index, verb in _listed(rule, "verbs"):
        if verb != ANY and not (verb.isalpha() and verb.islower()):
            yield Problem.invalid(f"{path}.verbs[{index}]", verb, "must be a verb in lower case, such as `get`")
    yield from _resources_problems(rule, path)
    yield from _path_problems(rule, path)
    for index, namespace in _listed(rule, "namespaces"):
        if namespace:
            yield from _free_when_empty(f"{path}.namespaces[{index}]", namespace, label_faults)
    for index, target in _listed(rule, "requestTargets"):
        if target not in REQUEST_TARGETS:
            yield Problem.unsupported(f"{path}.requestTargets[{index}]", target, REQUEST_TARGETS)
    if rule.get("cluster"):
        yield from _free_when_empty(f"{path}.cluster", rule["cluster"], subdomain_faults)
    for index, each in _listed(rule, "virtualClusters"):
        for field, faults in (("name", subdomain_faults), ("namespace", label_faults)):
            if each.get(field):
                yield from _free_when_empty(f"{path}.virtualClusters[{index}].{field}", each[field], faults)


def _free_when_empty(path: str, text: str, faults: Faults) -> Iterator[Problem]:
    """In rules, empty means all; who writes `*` instead would allow nothing."""
    if text == ANY:
        yield Problem.invalid(path, text, "there is no wildcard here; leave it empty to allow all of them")
        return
    yield from (Problem.invalid(path, text, fault) for fault in faults(text))


def _resources_problems(rule: Object, path: str) -> Iterator[Problem]:
    if rule.get("resourceNames") and not rule.get("resources"):
        yield Problem.forbidden(f"{path}.resourceNames", f"say which resources they are names of, in {path}.resources")
    seen: dict[str, _NamesSeen] = {}
    for index, entry in _listed(rule, "resources"):
        here = f"{path}.resources[{index}]"
        group = entry.get("group") or ""
        if group == ANY:
            yield Problem.invalid(f"{here}.group", group, f"leave {path}.resources empty to allow all groups")
        if entry.get("resourceNames") and not entry.get("resources"):
            yield Problem.forbidden(
                f"{here}.resourceNames", f"say which resources they are names of, in {here}.resources"
            )
        others = seen.setdefault(group, _NamesSeen())
        for number, name in _listed(entry, "resources"):
            yield from _resource_problems(f"{here}.resources[{number}]", name, others)


def _resource_problems(path: str, name: str, others: "_NamesSeen") -> Iterator[Problem]:
    resource, slash, subresource = name.partition("/")
    steps = (resource, subresource) if slash else (resource,)
    if not all(step == ANY or (step and not set(step) & set("*/")) for step in steps) or name == "*/*":
        why = "must be a resource, resource/subresource, resource/*, */subresource or *"
        yield Problem.invalid(path, name, why)
        return
    other = others.overlapping(name)
    if other == name:
        yield Problem.duplicate(path, name)
    elif other is not None:
        yield Problem.invalid(path, name, f'overlaps with "{other}"; what a wildcard includes must not be repeated')
    others.add(name)


class _NamesSeen:
    """The resources that entries of one group have named so far, by what another name could have in common with them.

    Two names overlap if they stand for some resource in common: the same name, or one of them by a wildcard. Only the
    first name of each sort is kept, so that a name is compared with a few others however many there are.
    """

    __slots__ = ("_first", "_names")

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._first: dict[tuple[str, str], str] = {}

    def overlapping(self, name: str) -> str | None:
        """A name seen before that overlaps with this one: the same one, if it is there."""
        if name in self._names:
            return name
        if name == ANY:
            return self._first.get(("", ""))
        resource, slash, subresource = name.partition("/")
        sorts = [(ANY, "")]
        if slash:
            sorts += _meeting(resource, subresource)
        return next((self._first[sort] for sort in sorts if sort in self._first), None)

    def add(self, name: str) -> None:
        self._names.add(name)
        resource, slash, subresource = name.partition("/")
        sorts = [("", ""), (resource, subresource)]
        if slash:  # and every subresource of this resource, and this subresource of every resource
            sorts += [(resource, "/"), ("/", subresource)]
        for sort in sorts:
            self._first.setdefault(sort, name)


def _meeting(resource: str, subresource: str) -> list[tuple[str, str]]:
    """The sorts of names that `resource/subresource`, of which one may be `*`, has something in common with."""
    if resource == ANY:
        return [("/", subresource), ("/", ANY)]
    if subresource == ANY:
        return [(resource, "/"), (ANY, "/")]
    return [(resource, ANY), (ANY, subresource)]


def _path_problems(rule: Object, path: str) -> Iterator[Problem]:
    if not rule.get("nonResourceURLs"):
        return
    for field in ("resources", "resourceNames", "namespaces"):
        if rule.get(field):
            why = f"{path}.nonResourceURLs is set too, and no request is about both; make two rules of it"
            yield Problem.forbidden(f"{path}.{field}", why)
    for index, url in _listed(rule, "nonResourceURLs"):
        here, steps = f"{path}.nonResourceURLs[{index}]", url.split("/")
        if url != ANY and not url.startswith("/"):
            yield Problem.invalid(here, url, "must be a path that begins with `/`, or `*` for all paths")
        elif ANY in "".join(steps[:-1]) or (ANY in steps[-1] and steps[-1] != ANY):
            yield Problem.invalid(here, url, "`*` can only be the whole last step of a path, as in /apis/*")
        elif {".", ".."} & set(steps) or "" in steps[1:-1]:
            yield Problem.invalid(here, url, "must be a plain path, without empty steps, `.` and `..`")
