"""Empties a namespace that is being deleted, then lets it go."""

from fairlead.core.objects import metadata
from fairlead.core.user import CONTROLLER
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.writing import Deleting, Writing
from fairlead.storage.contract import Key

LOOK_AGAIN = 0.2
FINALIZER = "kubernetes"


class Namespaces:
    name, group, plural = "namespaces", "", "namespaces"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def reconcile(self, key: Key) -> float | None:
        namespaces = self._registry.resource("", "namespaces")
        entry = namespaces.peek("", key[3])
        if entry is None or "deletionTimestamp" not in metadata(decode(entry)):
            return None
        if await self._empty(key[3]):
            await namespaces.modify("", key[3], _finalized, Writing(CONTROLLER, "fairlead", subresource="finalize"))
            return None
        return LOOK_AGAIN

    async def _empty(self, namespace: str) -> bool:
        """Deletes what is left; whether nothing is."""
        left = False
        writing = Writing(CONTROLLER, "fairlead")
        for resource in self._registry.namespaced():
            kind = resource.kind
            for entry in list(self._registry.view.entries(kind.group, kind.plural, namespace)):
                deleted = await resource.delete(namespace, entry.key[3], Deleting(propagation="Background"), writing)
                left = left or not deleted.gone
        return not left


def _finalized(namespace: dict[str, object]) -> dict[str, object]:
    spec = namespace.get("spec")
    kept = spec.get("finalizers", []) if isinstance(spec, dict) else []
    return {**namespace, "spec": {"finalizers": [each for each in kept if each != FINALIZER]}}
