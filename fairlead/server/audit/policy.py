"""The audit policy: which requests are recorded, and at which level. The first matching rule wins, as in Kubernetes.

`stage.py` looks up the rule once per request. `load_policy` reads an `audit.k8s.io/v1` Policy file. A policy that is
misread would silently leave requests unrecorded. So unknown fields are errors, and all errors are reported at startup.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.console.build import ASSETS_PATH
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.call import CONSOLE, RequestInfo
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
class GroupResources:
    """Resources of one API group. Empty `resources` match all resources, empty `names` all objects.

    As in Kubernetes, `*` matches every resource and subresource, `apps/*` apps and their subresources, and `*/status`
    the status subresource of every resource.
    """

    group: str
    resources: frozenset[str] = _ANY
    names: frozenset[str] = _ANY

    def matches(self, target: RequestInfo) -> bool:
        if target.group != self.group:
            return False
        if not self.resources:
            return True
        return (not self.names or target.name in self.names) and not self.resources.isdisjoint(
            _resource_patterns(target)
        )


def _resource_patterns(target: RequestInfo) -> Iterable[str]:
    """All patterns of a policy that match the target's resource."""
    resource, subresource = target.resource, target.subresource
    if not subresource:
        return resource, "*", f"{resource}/*"
    return f"{resource}/{subresource}", "*", f"*/{subresource}", f"{resource}/*"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """The level for requests that match every field; an empty field matches all. `omit` are the `omitStages`.

    `root`, if set, is the API root that the path belongs to. Policy files cannot set it.
    """

    level: int
    users: frozenset[str] = _ANY
    groups: frozenset[str] = _ANY
    verbs: frozenset[str] = _ANY
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = _ANY
    paths: tuple[str, ...] = ()
    omit_stages: frozenset[str] = _ANY
    root: str = ""

    def matches(self, user: User | None, target: RequestInfo) -> bool:
        if (self.verbs and target.verb not in self.verbs) or (self.root and target.root != self.root):
            return False
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.resources or self.namespaces:
            return target.is_resource and self._matches_resource(target)
        if self.paths:
            return not target.is_resource and any(_path_matches(path, target.path) for path in self.paths)
        return True

    @property
    def matches_all(self) -> bool:
        conditions = self.users, self.groups, self.verbs, self.resources, self.namespaces, self.paths, self.root
        return not any(conditions)

    def _matches_resource(self, target: RequestInfo) -> bool:
        if self.namespaces and target.namespace not in self.namespaces:
            return False
        return not self.resources or any(each.matches(target) for each in self.resources)


def _path_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


UNMATCHED_RULE = PolicyRule(NONE)
"""Applies where no rule matches: not recorded, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[PolicyRule, ...]
    max_level: int = field(init=False)
    """The highest level of any rule: below REQUEST, no body needs to be captured."""
    records_received: bool = field(init=False)
    """Whether any rule records the RequestReceived stage."""
    catch_all_resource_rule: PolicyRule | None = field(init=False, repr=False, compare=False)
    """The rule of all resource requests, if they have the same."""
    _resource_rules: tuple[PolicyRule, ...] = field(init=False, repr=False, compare=False)
    """Rules that can match a resource request; the others only have `nonResourceURLs`."""

    def __post_init__(self) -> None:
        fitting = tuple(rule for rule in self.rules if rule.resources or rule.namespaces or not rule.paths)
        object.__setattr__(self, "_resource_rules", fitting)
        first = fitting[0] if fitting and fitting[0].matches_all else None
        object.__setattr__(self, "catch_all_resource_rule", first)
        object.__setattr__(self, "max_level", max((rule.level for rule in self.rules), default=NONE))
        announces = any(rule.level and RECEIVED not in rule.omit_stages for rule in self.rules)
        object.__setattr__(self, "records_received", announces)

    def rule_for(self, user: User | None, target: RequestInfo) -> PolicyRule:
        if target.resource and self.catch_all_resource_rule is not None:
            return self.catch_all_resource_rule
        for rule in self._resource_rules if target.resource else self.rules:
            if rule.matches(user, target):
                return rule
        return UNMATCHED_RULE


DEFAULT_POLICY = Policy(
    (
        PolicyRule(NONE, paths=HEALTH_PATHS),
        PolicyRule(NONE, verbs=frozenset({"get"}), paths=(f"{ASSETS_PATH}*",), root=CONSOLE),
        PolicyRule(METADATA, omit_stages=frozenset({RECEIVED})),
    )
)
"""Metadata of every request except health checks and assets of the console. The latter are public at this root only: at
other ones, or if the console is disabled, the same path needs a credential, and then every attempt is recorded."""


API_VERSION, KIND = "audit.k8s.io/v1", "Policy"
_POLICY_FIELDS = ("apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields")
_RULE_FIELDS = (
    *("level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs"),
    *("omitStages", "omitManagedFields"),
)
_RESOURCE_FIELDS = ("group", "resources", "resourceNames")


def load_policy(path: Path) -> Policy:
    """Reads a policy file. Raises StartError with one line for each problem."""
    content = read_file(path)
    if content is None:
        raise StartError(f"{path}: no such file; write an audit policy there, or leave out audit_policy")
    try:
        value, duplicates = yaml.decode(content)
    except Malformed as error:
        raise StartError(f"{path}: not an audit policy: {error}") from None
    reader = _PolicyParser()
    policy = reader.parse_policy(value)
    problems = [*(f"{key}: duplicate field; remove one" for key in duplicates), *reader.problems]
    if problems:
        raise StartError("\n".join(f"{path}: {problem}" for problem in problems))
    return policy


class _PolicyParser:
    """Parses a decoded policy file and collects all problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def parse_policy(self, value: Any) -> Policy:
        top = self._parse_mapping(value, "", _POLICY_FIELDS)
        if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
            self._add_problem("apiVersion", f"must be {API_VERSION}, with `kind: {KIND}`")
        if not top.get("rules"):
            self._add_problem(
                "rules", "must not be empty: nothing would be recorded; add a rule, such as `level: Metadata`"
            )
        omit = self._parse_omit_stages(top, "")
        return Policy(
            tuple(self._parse_rule(each, where, omit) for each, where in self._iter_entries(top, "rules", ""))
        )

    def _parse_rule(self, value: Any, location: str, omit: frozenset[str]) -> PolicyRule:
        rule = self._parse_mapping(value, location, _RULE_FIELDS)
        self._check_rule_target(rule, location)
        return PolicyRule(
            level=self._parse_level(rule, location),
            users=self._parse_strings(rule, "users", location),
            groups=self._parse_strings(rule, "userGroups", location),
            verbs=self._parse_strings(rule, "verbs", location),
            resources=tuple(self._parse_resources(*each) for each in self._iter_entries(rule, "resources", location)),
            namespaces=self._parse_strings(rule, "namespaces", location),
            paths=tuple(sorted(self._parse_paths(rule, location))),
            omit_stages=omit | self._parse_omit_stages(rule, location),
        )

    def _parse_resources(self, value: Any, location: str) -> GroupResources:
        entry = self._parse_mapping(value, location, _RESOURCE_FIELDS)
        group = entry.get("group") or ""
        if not isinstance(group, str) or "/" in group:
            self._add_problem(f"{location}.group", "must be the name of an API group without a version")
            group = ""
        names = self._parse_strings(entry, "resourceNames", location)
        resources = self._parse_strings(entry, "resources", location)
        if names and not resources:
            self._add_problem(f"{location}.resourceNames", "requires resources in the same entry")
        return GroupResources(group, resources, names)

    def _check_rule_target(self, rule: dict[str, Any], location: str) -> None:
        if rule.get("nonResourceURLs") and (rule.get("resources") or rule.get("namespaces")):
            self._add_problem(
                location, "nonResourceURLs cannot be combined with resources or namespaces; use two rules"
            )

    def _parse_level(self, rule: dict[str, Any], location: str) -> int:
        level = rule.get("level")
        if level in LEVELS:
            return LEVELS.index(level)
        self._add_problem(f"{location}.level", f"must be one of {', '.join(LEVELS)}")
        return 0

    def _parse_omit_stages(self, mapping: dict[str, Any], location: str) -> frozenset[str]:
        if mapping.get("omitManagedFields") not in (None, True):
            self._add_problem(
                _join_location(location, "omitManagedFields"), "managedFields are never recorded; remove this field"
            )
        stages = self._parse_strings(mapping, "omitStages", location)
        if not stages <= set(STAGES):
            self._add_problem(_join_location(location, "omitStages"), f"may only contain {', '.join(STAGES)}")
        return stages

    def _parse_paths(self, rule: dict[str, Any], location: str) -> frozenset[str]:
        paths = self._parse_strings(rule, "nonResourceURLs", location)
        for path in sorted(paths):
            if (path != "*" and not path.startswith("/")) or "*" in path[:-1]:
                self._add_problem(
                    f"{location}.nonResourceURLs", f'"{path}" must start with `/`; `*` is only allowed at the end'
                )
        return paths

    def _parse_strings(self, mapping: dict[str, Any], name: str, location: str) -> frozenset[str]:
        value = mapping.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._add_problem(_join_location(location, name), "must be a list of strings")
            return frozenset()
        return frozenset(value)

    def _iter_entries(self, mapping: dict[str, Any], name: str, location: str) -> Iterable[tuple[Any, str]]:
        value = mapping.get(name)
        if value is not None and not isinstance(value, list):
            self._add_problem(_join_location(location, name), "must be a list")
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield entry, f"{_join_location(location, name)}[{index}]"

    def _parse_mapping(self, value: Any, location: str, allowed: Iterable[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._add_problem(location or "the file", "must be a mapping")
            return {}
        for name in value:
            if name not in allowed:
                self._add_problem(
                    _join_location(location, str(name)), f"unknown field; expected one of {', '.join(allowed)}"
                )
        return value

    def _add_problem(self, location: str, message: str) -> None:
        self.problems.append(f"{location}: {message}")


def _join_location(location: str, name: str) -> str:
    return f"{location}.{name}" if location else name
