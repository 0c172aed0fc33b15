"""Keeps the rules of aggregated ClusterRoles equal to those of all the ClusterRoles that their selectors choose.

Any ClusterRole that comes, changes or goes may concern any aggregated one. Where one chooses another that aggregates
itself, what counts is what that one chooses, not the rules that it happens to have: so roles that choose each other
come to rest at once, and rules whose source is gone do not live on between them.
"""

from collections.abc import Iterable, Iterator, Mapping

import orjson

from fairlead.core.objects import Object, copied, metadata
from fairlead.kinds.rbac.roles import GROUP
from fairlead.registry.informer import Following
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Requirement
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

CLUSTER_ROLES = "clusterroles"
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}


class Aggregation:
    name, workers = "aggregation", 1
    watches = ((GROUP, CLUSTER_ROLES),)

    def __init__(self, registry: Registry) -> None:
        self._resource = registry.resource(GROUP, CLUSTER_ROLES)
        self._following = Following(registry.view, GROUP, CLUSTER_ROLES)
        self._seen = 0
        self._roles = Roles({})

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """All aggregated roles. At the start, and after a burst, this is asked once for every role there is."""
        return (self._resource.kind.key("", name) for name in self._now().aggregated)

    async def reconcile(self, key: Key) -> float | None:
        roles, name = self._now(), key[3]
        if name not in roles.aggregated:
            return None
        role, rules = roles.by_name[name], roles.gathered(name)
        if rules == (role.get("rules") or []):
            return None

        def gathered(current: Object) -> Object:
            # Whoever has changed the selectors meanwhile, or has taken them away, will be heard of next.
            wanted = current.get("aggregationRule") == role["aggregationRule"]
            return copied({**current, "rules": rules} if wanted else current)

        await self._resource.modify("", name, gathered, by_the_server())
        return None

    def _now(self) -> "Roles":
        seen = self._following.refresh()
        if seen != self._seen:
            self._seen = seen
            self._roles = Roles({name: role for (_, name), role in self._following.objects.items()})
        return self._roles


class Roles:
    """All ClusterRoles as they stand between two changes, and which of them choose which."""

    def __init__(self, by_name: Mapping[str, Object]) -> None:
        self.by_name = by_name
        self.aggregated = {name for name, role in by_name.items() if role.get("aggregationRule")}
        self._chosen: dict[str, list[str]] = {}

    def gathered(self, name: str) -> list[Object]:
        """The rules of all roles that this one chooses, directly or not: in order of their names, each rule once."""
        met, waiting = {name}, [name]
        while waiting:
            new = [each for each in self._choose(waiting.pop()) if each not in met]
            met.update(new)
            waiting.extend(each for each in new if each in self.aggregated)
        sources = [self.by_name[each] for each in sorted(met - self.aggregated)]
        rules = {_text(rule): rule for role in sources for rule in role.get("rules") or ()}
        return list(rules.values())

    def _choose(self, name: str) -> list[str]:
        if name not in self._chosen:
            selectors = self.by_name[name]["aggregationRule"].get("clusterRoleSelectors") or ()
            wanted = [tuple(_requirements(selector)) for selector in selectors]
            self._chosen[name] = [each for each, role in self.by_name.items() if _chooses(wanted, role)]
        return self._chosen[name]


def _text(rule: Object) -> bytes:
    return orjson.dumps(rule, option=orjson.OPT_SORT_KEYS)


def _chooses(selectors: Iterable[Iterable[Requirement]], role: Object) -> bool:
    labels = metadata(role).get("labels") or {}
    return any(all(requirement.accepts(labels) for requirement in each) for each in selectors)


def _requirements(selector: Object) -> Iterator[Requirement]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield Requirement(key, "in", frozenset({value}))
    for each in selector.get("matchExpressions") or ():
        yield Requirement(each["key"], _OPERATORS[each["operator"]], frozenset(each.get("values") or ()))
