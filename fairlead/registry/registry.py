"""The `Registry`: all resources, for verbs, admission rules and controllers to find each other's objects."""

from collections.abc import Iterator

from fairlead.core.clock import Clock
from fairlead.registry.kind import Catalog, Kind
from fairlead.registry.quota.enforcement import StorageQuota
from fairlead.registry.resource import Admission, Resource
from fairlead.storage.contract import Store
from fairlead.storage.view.view import View


class Registry:
    """The served kinds, each with its `Resource`. Without `quota`, any amount can be stored."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        view: View,
        admit: Admission,
        clock: Clock,
        quota: StorageQuota | None = None,
    ) -> None:
        self.catalog = catalog
        self.view = view
        self.clock = clock
        self.quota = quota
        self._resources = {
            (kind.group, kind.plural): Resource(kind, store, view, admit, clock, quota) for kind in catalog.kinds
        }

    def resource(self, group: str, plural: str) -> Resource:
        """The resource of a kind that is known to be served."""
        return self._resources[group, plural]

    def resource_for(self, kind: Kind) -> Resource:
        return self._resources[kind.group, kind.plural]

    def namespaced_resources(self) -> Iterator[Resource]:
        """All namespaced resources. A kind that is served in two groups occurs once, as it is stored."""
        resources = self._resources.values()
        return (each for each in resources if each.kind.namespaced and each.kind.conversion is None)
