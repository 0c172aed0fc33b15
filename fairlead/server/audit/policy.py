"""The audit policy: which requests are recorded, and at which level. The first matching rule wins, as in Kubernetes.

`stage.py` looks up the rule once per request. `load_policy` reads an `audit.k8s.io/v1` Policy file. A policy that is
misread would silently leave requests unrecorded. So unknown fields are errors, and all errors are reported at startup.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Target
from fairlead.core.files import read_file
from fairlead.core.user import User
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.settings import StartError

NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
"""The names of the levels, in ascending order of detail."""

RECEIVED, STARTED, COMPLETE, PANIC = STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")

_ANY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one API group. Empty `resources` match all resources, empty `names` all objects.

    As in Kubernetes, `*` matches every resource and subresource, `apps/*` apps and their subresources, and `*/status`
    the status subresource of every resource.
    """

    group: str
    resources: frozenset[str] = _ANY
    names: frozenset[str] = _ANY

    def cover(self, target: Target) -> bool:
        if target.group != self.group:
            return False
        if not self.resources:
            return True
        return (not self.names or target.name in self.names) and not self.resources.isdisjoint(_spellings(target))


def _spellings(target: Target) -> Iterable[str]:
    """All patterns of a policy that match the target's resource."""
    resource, subresource = target.resource, target.subresource
    if not subresource:
        return resource, "*", f"{resource}/*"
    return f"{resource}/{subresource}", "*", f"*/{subresource}", f"{resource}/*"


@dataclass(frozen=True, slots=True)
class Rule:
    """The level for requests that match every field; an empty field matches all. `omit` are the `omitStages`."""

    level: int
    users: frozenset[str] = _ANY
    groups: frozenset[str] = _ANY
    verbs: frozenset[str] = _ANY
    resources: tuple[Resources, ...] = ()
    namespaces: frozenset[str] = _ANY
    paths: tuple[str, ...] = ()
    omit: frozenset[str] = _ANY

    def fits(self, user: User | None, target: Target) -> bool:
        if self.verbs and target.verb not in self.verbs:
            return False
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.resources or self.namespaces:
            return target.is_resource and self._fits_resource(target)
        if self.paths:
            return not target.is_resource and any(_reaches(path, target.path) for path in self.paths)
        return True

    @property
    def fits_all(self) -> bool:
        return not (self.users or self.groups or self.verbs or self.resources or self.namespaces or self.paths)

    def _fits_resource(self, target: Target) -> bool:
        if self.namespaces and target.namespace not in self.namespaces:
            return False
        return not self.resources or any(each.cover(target) for each in self.resources)


def _reaches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


UNRECORDED = Rule(NONE)
"""Applies where no rule matches: not recorded, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[Rule, ...]
    highest: int = field(init=False)
    """The highest level of any rule: below REQUEST, no body needs to be captured."""
    announces: bool = field(init=False)
    """Whether any rule records the RequestReceived stage."""
    _for_resources: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    """Rules that can match a resource request; the others only have `nonResourceURLs`."""
    _for_every_resource: Rule | None = field(init=False, repr=False, compare=False)
    """The first of these, if it matches every resource request."""

    def __post_init__(self) -> None:
        fitting = tuple(rule for rule in self.rules if rule.resources or rule.namespaces or not rule.paths)
        object.__setattr__(self, "_for_resources", fitting)
        first = fitting[0] if fitting and fitting[0].fits_all else None
        object.__setattr__(self, "_for_every_resource", first)
        object.__setattr__(self, "highest", max((rule.level for rule in self.rules), default=NONE))
        announces = any(rule.level and RECEIVED not in rule.omit for rule in self.rules)
        object.__setattr__(self, "announces", announces)

    def rule_for(self, user: User | None, target: Target) -> Rule:
        if target.resource and self._for_every_resource is not None:
            return self._for_every_resource
        for rule in self._for_resources if target.resource else self.rules:
            if rule.fits(user, target):
                return rule
        return UNRECORDED


DEFAULT = Policy((Rule(NONE, paths=HEALTH_PATHS), Rule(METADATA, omit=frozenset({RECEIVED}))))
"""Metadata of every request except health checks."""


API_VERSION, KIND = "audit.k8s.io/v1", "Policy"
_TOP = ("apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields")
_RULE = (
    *("level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs"),
    *("omitStages", "omitManagedFields"),
)
_RESOURCES = ("group", "resources", "resourceNames")


def load_policy(path: Path) -> Policy:
    """Reads a policy file. Raises StartError with one line for each problem."""
    content = read_file(path)
    if content is None:
        raise StartError(f"{path}: no such file; write an audit policy there, or leave out audit_policy")
    try:
        value, duplicates = yaml.decode(content)
    except Malformed as error:
        raise StartError(f"{path}: not an audit policy: {error}") from None
    reader = _Reader()
    policy = reader.policy(value)
    problems = [*(f"{key}: duplicate field; remove one" for key in duplicates), *reader.problems]
    if problems:
        raise StartError("\n".join(f"{path}: {problem}" for problem in problems))
    return policy


class _Reader:
    """Parses a decoded policy file and collects all problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def policy(self, value: Any) -> Policy:
        top = self._structure(value, "", _TOP)
        if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
            self._wrong("apiVersion", f"must be {API_VERSION}, with `kind: {KIND}`")
        if not top.get("rules"):
            self._wrong("rules", "must not be empty: nothing would be recorded; add a rule, such as `level: Metadata`")
        omit = self._stages(top, "")
        return Policy(tuple(self._rule(each, where, omit) for each, where in self._entries(top, "rules", "")))

    def _rule(self, value: Any, where: str, omit: frozenset[str]) -> Rule:
        rule = self._structure(value, where, _RULE)
        self._check_kind_of_request(rule, where)
        return Rule(
            level=self._level(rule, where),
            users=self._texts(rule, "users", where),
            groups=self._texts(rule, "userGroups", where),
            verbs=self._texts(rule, "verbs", where),
            resources=tuple(self._resources(*each) for each in self._entries(rule, "resources", where)),
            namespaces=self._texts(rule, "namespaces", where),
            paths=tuple(sorted(self._paths(rule, where))),
            omit=omit | self._stages(rule, where),
        )

    def _resources(self, value: Any, where: str) -> Resources:
        entry = self._structure(value, where, _RESOURCES)
        group = entry.get("group") or ""
        if not isinstance(group, str) or "/" in group:
            self._wrong(f"{where}.group", "must be the name of an API group without a version")
            group = ""
        names = self._texts(entry, "resourceNames", where)
        resources = self._texts(entry, "resources", where)
        if names and not resources:
            self._wrong(f"{where}.resourceNames", "requires resources in the same entry")
        return Resources(group, resources, names)

    def _check_kind_of_request(self, rule: dict[str, Any], where: str) -> None:
        if rule.get("nonResourceURLs") and (rule.get("resources") or rule.get("namespaces")):
            self._wrong(where, "nonResourceURLs cannot be combined with resources or namespaces; use two rules")

    def _level(self, rule: dict[str, Any], where: str) -> int:
        level = rule.get("level")
        if level in LEVELS:
            return LEVELS.index(level)
        self._wrong(f"{where}.level", f"must be one of {', '.join(LEVELS)}")
        return 0

    def _stages(self, holder: dict[str, Any], where: str) -> frozenset[str]:
        if holder.get("omitManagedFields") not in (None, True):
            self._wrong(_inside(where, "omitManagedFields"), "managedFields are never recorded; remove this field")
        stages = self._texts(holder, "omitStages", where)
        if not stages <= set(STAGES):
            self._wrong(_inside(where, "omitStages"), f"may only contain {', '.join(STAGES)}")
        return stages

    def _paths(self, rule: dict[str, Any], where: str) -> frozenset[str]:
        paths = self._texts(rule, "nonResourceURLs", where)
        for path in sorted(paths):
            if (path != "*" and not path.startswith("/")) or "*" in path[:-1]:
                self._wrong(f"{where}.nonResourceURLs", f'"{path}" must start with `/`; `*` is only allowed at the end')
        return paths

    def _texts(self, holder: dict[str, Any], name: str, where: str) -> frozenset[str]:
        value = holder.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._wrong(_inside(where, name), "must be a list of strings")
            return frozenset()
        return frozenset(value)

    def _entries(self, holder: dict[str, Any], name: str, where: str) -> Iterable[tuple[Any, str]]:
        value = holder.get(name)
        if value is not None and not isinstance(value, list):
            self._wrong(_inside(where, name), "must be a list")
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield entry, f"{_inside(where, name)}[{index}]"

    def _structure(self, value: Any, where: str, known: Iterable[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(where or "the file", "must be a mapping")
            return {}
        for name in value:
            if name not in known:
                self._wrong(_inside(where, str(name)), f"unknown field; expected one of {', '.join(known)}")
        return value

    def _wrong(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
