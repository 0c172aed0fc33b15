"""The rules of one role, arranged so that a request meets only those that could allow it.

`authz/rbac.py` makes a Rights of each role that somebody has, and asks it on every request. Rules are arranged by
resource and not by all that they combine: what that would multiply out to is up to whoever writes roles.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.core.call import Target
from fairlead.core.objects import Object
from fairlead.core.prefixes import begins_with_one, outermost

ANY = "*"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule about resources, but for the resources themselves. Without names it is about all objects."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def is_about(self, target: Target) -> bool:
        if target.verb not in self.verbs and ANY not in self.verbs:
            return False
        return target.group in self.groups or ANY in self.groups


Names = frozenset[str] | None
"""The objects that a right is about, by name; None for all of them."""

KEPT, KEPT_NAMES = 256, 100_000
"""How many answers a role keeps, and how many names all of them may have. More than that only cost time."""


class Rights:
    """What one role allows. Whether it does so in one namespace or everywhere is a matter of its binding.

    What its rules add up to for a verb and a resource is kept: a list that is cut asks that for each of its objects, so
    the answer must not depend on how many rules there are.
    """

    __slots__ = ("_by_resource", "_extents", "_path_rules", "_paths", "_weight", "rules")

    def __init__(self, rules: Sequence[Object]) -> None:
        self.rules = rules
        self._by_resource: dict[str, list[_Rule]] = {}
        self._path_rules = [rule for rule in rules if rule.get("nonResourceURLs")]
        self._extents: dict[tuple[str, ...], Names] = {}
        self._paths: dict[str, tuple[frozenset[str], list[str]]] = {}
        self._weight = 0
        for rule in rules:
            made = _Rule(_set(rule, "verbs"), _set(rule, "apiGroups"), _set(rule, "resourceNames"))
            for resource in _set(rule, "resources"):
                self._by_resource.setdefault(resource, []).append(made)

    def allow(self, target: Target, spelled: Sequence[str]) -> bool:
        """Whether a rule allows it; `spelled` are the `spellings` of the target, worked out once for all roles."""
        if not spelled:
            return bool(self._path_rules) and self._allow_path(target)
        names = self.extent(target, spelled)
        return names is None or target.name in names

    def extent(self, target: Target, spelled: Sequence[str]) -> Names:
        """The objects of the target's resource that its verb is allowed on, whatever the target's own name is."""
        key = (target.verb, target.group, *spelled)
        try:
            return self._extents[key]
        except KeyError:
            names = self._add_up(target, spelled)
        self._weight += len(names or ()) + 1
        if self._weight > KEPT_NAMES or len(self._extents) >= KEPT:
            self._extents.clear()
            self._weight = len(names or ()) + 1
        self._extents[key] = names
        return names

    def _add_up(self, target: Target, spelled: Sequence[str]) -> Names:
        found = []
        for resource in spelled:
            for rule in self._by_resource.get(resource, ()):
                if rule.is_about(target):
                    if not rule.names:
                        return None
                    found.append(rule.names)
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def _allow_path(self, target: Target) -> bool:
        if target.verb not in self._paths:
            if len(self._paths) >= KEPT:
                self._paths.clear()
            self._paths[target.verb] = _paths_of(self._path_rules, target.verb)
        paths, beginnings = self._paths[target.verb]
        return target.path in paths or begins_with_one(target.path, beginnings)


def spellings(target: Target) -> tuple[str, ...]:
    """How a rule may name the resource of a request; nothing for paths that are no resources.

    A subresource is a resource of its own: `r` does not stand for `r/s`.
    """
    if target.subresource:
        return (f"{target.resource}/{target.subresource}", ANY, f"{ANY}/{target.subresource}")
    return (target.resource, ANY) if target.is_resource else ()


def _paths_of(rules: Iterable[Object], verb: str) -> tuple[frozenset[str], list[str]]:
    """The paths that rules allow a verb on: whole ones, and beginnings."""
    allowed = (rule for rule in rules if not {verb, ANY}.isdisjoint(rule.get("verbs") or ()))
    paths = frozenset(path for rule in allowed for path in rule["nonResourceURLs"])
    return paths, outermost(path.rstrip(ANY) for path in paths if path.endswith(ANY))


def _set(rule: Object, field: str) -> frozenset[str]:
    return frozenset(rule.get(field) or ())
