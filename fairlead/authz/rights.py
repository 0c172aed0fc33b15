"""The rules of one role, arranged so that a request meets only those that could allow it.

`authz/rbac.py` makes a Rights of each role that somebody has, and asks it on every request. Rules are arranged by
resource and not by all that they combine: what that would multiply out to is up to whoever writes roles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.call import Target
from fairlead.core.objects import Object

ANY = "*"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule about resources, but for the resources themselves. Without names it is about all objects."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def allows(self, target: Target) -> bool:
        if target.verb not in self.verbs and ANY not in self.verbs:
            return False
        if target.group not in self.groups and ANY not in self.groups:
            return False
        return not self.names or target.name in self.names


@dataclass(frozen=True, slots=True)
class _PathRule:
    """A rule about paths that are no resources: whole ones, and beginnings."""

    verbs: frozenset[str]
    paths: frozenset[str]
    beginnings: tuple[str, ...]

    def allows(self, target: Target) -> bool:
        if target.verb not in self.verbs and ANY not in self.verbs:
            return False
        return target.path in self.paths or target.path.startswith(self.beginnings)


class Rights:
    """What one role allows. Whether it does so in one namespace or everywhere is a matter of its binding."""

    __slots__ = ("_by_resource", "_path_rules", "rules")

    def __init__(self, rules: Sequence[Object]) -> None:
        self.rules = rules
        self._by_resource: dict[str, list[_Rule]] = {}
        self._path_rules = [_path_rule(rule) for rule in rules if rule.get("nonResourceURLs")]
        for rule in rules:
            made = _Rule(_set(rule, "verbs"), _set(rule, "apiGroups"), _set(rule, "resourceNames"))
            for resource in _set(rule, "resources"):
                self._by_resource.setdefault(resource, []).append(made)

    def allow(self, target: Target, spelled: Sequence[str]) -> bool:
        """Whether a rule allows it; `spelled` are the `spellings` of the target, worked out once for all roles."""
        # Plain loops: this is asked for every role of the user on every request.
        for resource in spelled:
            for rule in self._by_resource.get(resource, ()):
                if rule.allows(target):
                    return True
        return not spelled and any(rule.allows(target) for rule in self._path_rules)


def spellings(target: Target) -> tuple[str, ...]:
    """How a rule may name the resource of a request; nothing for paths that are no resources.

    A subresource is a resource of its own: `r` does not stand for `r/s`.
    """
    if target.subresource:
        return (f"{target.resource}/{target.subresource}", ANY, f"{ANY}/{target.subresource}")
    return (target.resource, ANY) if target.is_resource else ()


def _path_rule(rule: Object) -> _PathRule:
    paths = _set(rule, "nonResourceURLs")
    beginnings = tuple(path.rstrip(ANY) for path in paths if path.endswith(ANY))
    return _PathRule(_set(rule, "verbs"), paths, beginnings)


def _set(rule: Object, field: str) -> frozenset[str]:
    return frozenset(rule.get(field) or ())
