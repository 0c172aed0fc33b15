"""Aggregates ClusterRoles: sets the rules of a role with an `aggregationRule` to the union of the selected roles.

A change of any ClusterRole may affect any aggregated one. If a role selects another aggregated role, the selection of
that one is used, not its current rules: so roles that select each other converge in one step, and rules whose source
was deleted do not survive in them.
"""

from collections.abc import Iterable, Iterator, Mapping

from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object, deep_copy, labels_of
from fairlead.kinds.rbac.roles import CLUSTERROLE, GROUP
from fairlead.registry.informer import Derived, Informer
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Requirement
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}


class RoleAggregationController:
    name, workers = "clusterrole-aggregation", 1
    watches = ((GROUP, CLUSTERROLE.plural),)

    def __init__(self, registry: Registry) -> None:
        self._resource = registry.resource(GROUP, CLUSTERROLE.plural)
        self._informer = Informer(registry.view, GROUP, CLUSTERROLE.plural)
        self._roles = Derived(registry.view, (self._informer.refresh,), self._build_snapshot)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """All aggregated roles. At the start and after bursts this is called once for every role."""
        return (self._resource.kind.key("", name) for name in self._roles.get().aggregated)

    async def reconcile(self, key: Key) -> float | None:
        roles, name = self._roles.get(), key[3]
        if name not in roles.aggregated:
            return None
        role, rules = roles.by_name[name], roles.aggregate_rules(name)
        if rules == (role.get("rules") or []):
            return None

        def edit(current: Object) -> Object:
            # If the selectors were changed or removed meanwhile, that change triggers the next reconcile.
            is_unchanged = current.get("aggregationRule") == role["aggregationRule"]
            return deep_copy({**current, "rules": rules} if is_unchanged else current)

        await self._resource.modify("", name, edit, server_write_options())
        return None

    def _build_snapshot(self) -> "RoleSnapshot":
        return RoleSnapshot({name: role for (_, name), role in self._informer.objects.items()})


class RoleSnapshot:
    """A snapshot of all ClusterRoles, and which of them select which."""

    def __init__(self, by_name: Mapping[str, Object]) -> None:
        self.by_name = by_name
        self.aggregated = {name for name, role in by_name.items() if role.get("aggregationRule")}
        self._selection_cache: dict[str, list[str]] = {}

    def aggregate_rules(self, name: str) -> list[Object]:
        """The rules of all roles that this one selects, directly or not: in order of role name, without duplicates."""
        visited, pending = {name}, [name]
        while pending:
            new = [each for each in self._select(pending.pop()) if each not in visited]
            visited.update(new)
            pending.extend(each for each in new if each in self.aggregated)
        sources = [self.by_name[each] for each in sorted(visited - self.aggregated)]
        rules = {encode_sorted(rule): rule for role in sources for rule in role.get("rules") or ()}
        return list(rules.values())

    def _select(self, name: str) -> list[str]:
        if name not in self._selection_cache:
            selectors = self.by_name[name]["aggregationRule"].get("clusterRoleSelectors") or ()
            requirements = [tuple(_requirements(selector)) for selector in selectors]
            self._selection_cache[name] = [
                each for each, role in self.by_name.items() if _matches_any(requirements, role)
            ]
        return self._selection_cache[name]


def _matches_any(selectors: Iterable[Iterable[Requirement]], role: Object) -> bool:
    labels = labels_of(role)
    return any(all(requirement.matches(labels) for requirement in each) for each in selectors)


def _requirements(selector: Object) -> Iterator[Requirement]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield Requirement(key, "in", frozenset({value}))
    for each in selector.get("matchExpressions") or ():
        yield Requirement(each["key"], _OPERATORS[each["operator"]], frozenset(each.get("values") or ()))
