"""Which requests are recorded, and how much of each: Kubernetes' audit policy as values. The first rule that fits wins.

`recorder.py` asks once per request. `policy_file.py` makes these out of a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.core.call import Target
from fairlead.core.user import User
from fairlead.server.health import HEALTH_PATHS

NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
"""The names of the levels; a larger one holds more."""

RECEIVED, STARTED, COMPLETE, PANIC = STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")

_ANY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one group. No `resources` are all of them, no `names` all objects.

    `*` stands for every resource and subresource, `apps/*` for apps and all below them, `*/status` for that of every
    resource: just as Kubernetes matches them.
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
    """Every way in which a policy can name what is asked for."""
    resource, subresource = target.resource, target.subresource
    if not subresource:
        return resource, "*", f"{resource}/*"
    return f"{resource}/{subresource}", "*", f"*/{subresource}", f"{resource}/*"


@dataclass(frozen=True, slots=True)
class Rule:
    """A level for the requests that fit in every respect; an empty respect fits all. `omit` are stages left out."""

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
"""What holds where no rule fits, as in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[Rule, ...]
    highest: int = field(init=False)
    """The highest level of any rule: below REQUEST, no body needs to be kept."""
    announces: bool = field(init=False)
    """Whether any rule wants to hear of requests before they are answered."""
    _for_resources: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    """Those that a resource could fit: the others only name paths."""
    _for_every_resource: Rule | None = field(init=False, repr=False, compare=False)
    """The first of those, if it fits all of them."""

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
"""Who did what to which object, for everything but health checks."""
