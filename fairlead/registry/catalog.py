"""The served kinds by group, version and plural: the source of routes, discovery, OpenAPI and authorization."""

from collections.abc import Iterable
from dataclasses import replace

from fairlead.registry.kind import MANAGEMENT_GROUP, Kind


class Catalog:
    """The kinds that this server serves, in the order they were declared.

    `api_group` replaces the group of the management kinds, for installations that serve them under their own domain.
    """

    def __init__(self, kinds: Iterable[Kind], api_group: str = MANAGEMENT_GROUP) -> None:
        self.kinds: tuple[Kind, ...] = tuple(_with_group(kind, api_group) for kind in kinds)
        self._by_plural = {(kind.group, kind.version, kind.plural): kind for kind in self.kinds}
        self._by_resource = {(kind.group, kind.plural): kind for kind in self.kinds}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a URL, if it is served."""
        return self._by_plural.get((group, version, plural))

    def resource(self, group: str, plural: str) -> Kind | None:
        """The kind behind a storage key, which starts with group and plural."""
        return self._by_resource.get((group, plural))

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group -> version -> kinds, in order of declaration."""
        found: dict[str, dict[str, list[Kind]]] = {}
        for kind in self.kinds:
            found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return found


def _with_group(kind: Kind, api_group: str) -> Kind:
    """The kind, and the kinds of its actions, with the management group replaced."""
    group = api_group if kind.group == MANAGEMENT_GROUP else kind.group
    if group == kind.group:
        return kind
    actions = tuple(
        replace(action, kind=_with_group(action.kind, api_group)) if action.kind is not None else action
        for action in kind.actions
    )
    return replace(kind, group=group, actions=actions)
