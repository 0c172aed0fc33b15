"""Empties a namespace that is being deleted, then lets it go. Until then its conditions say what it waits for."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from fairlead.controllers.runtime.loop import itself
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, copied, metadata
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Deleting, by_the_server
from fairlead.storage.contract import Key

LOOK_AGAIN, LOOK_AGAIN_EACH, LOOK_AGAIN_LAST = 0.2, 0.005, 30.0
"""Seconds until what finalizers hold is looked at again, and how many more for each such object: to look at one takes
some twenty microseconds, so that this never takes more than a small part of a processor."""
AT_ONCE = 20
"""So many deletes are done before others get their turn."""
FINALIZER = "kubernetes"
_OURS = ("NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining")


@dataclass(slots=True)
class Remains:
    """What is still in a namespace after everything has been deleted that could be."""

    resources: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)

    def conditions(self, now: str) -> list[Object]:
        resources = ", ".join(f"{name} has {count} resource instances" for name, count in self.resources.items())
        finalizers = ", ".join(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
        deleted = "All content successfully deleted, may be waiting on finalization"
        return [
            _condition("NamespaceDeletionContentFailure", "False", "ContentDeleted", deleted, now),
            _condition(
                "NamespaceContentRemaining",
                "True",
                "SomeResourcesRemain",
                f"Some resources are remaining: {resources}",
                now,
            ),
            _condition(
                "NamespaceFinalizersRemaining",
                "True",
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {finalizers}",
                now,
            ),
        ]


def _condition(type: str, status: str, reason: str, message: str, now: str) -> Object:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


class Namespaces:
    name, workers = "namespaces", 1
    watches = (("", "namespaces"),)
    concerned = staticmethod(itself)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._namespaces = registry.resource("", "namespaces")

    async def reconcile(self, key: Key) -> float | None:
        entry = self._namespaces.peek("", key[3])
        if entry is None:
            return None
        namespace = decode(entry)
        if "deletionTimestamp" not in metadata(namespace) or FINALIZER not in namespace["spec"].get("finalizers", ()):
            return None
        remains = await self._empty(key[3])
        if remains.resources:
            await self._tell(namespace, remains)
            return min(LOOK_AGAIN + remains.resources.total() * LOOK_AGAIN_EACH, LOOK_AGAIN_LAST)
        writing = by_the_server("finalize")
        await self._namespaces.modify("", key[3], _finalized, writing)
        return None

    async def _empty(self, namespace: str) -> Remains:
        """Deletes everything; what finalizers hold remains."""
        remains = Remains()
        for resource in self._registry.namespaced():
            kind = resource.kind
            for count, entry in enumerate(self._registry.view.entries(kind.group, kind.plural, namespace)):
                if count % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)  # what finalizers hold is not written again, so nothing is waited for
                deleting = Deleting(propagation="Background")
                deleted = await resource.delete(namespace, entry.key[3], deleting, by_the_server())
                if not deleted.gone:
                    remains.resources[f"{kind.plural}.{kind.group}"] += 1
                    remains.finalizers.update(metadata(decode(entry)).get("finalizers") or ())
        return remains

    async def _tell(self, namespace: Object, remains: Remains) -> None:
        """Writes the conditions, if they say something new."""
        wanted = remains.conditions(timestamp(self._registry.clock.now()))
        known = {each["type"]: each.get("message") for each in (namespace.get("status") or {}).get("conditions") or ()}
        if all(known.get(each["type"]) == each["message"] for each in wanted):
            return

        def told(current: Object) -> Object:
            status = current.get("status") or {}
            others = [each for each in status.get("conditions") or () if each["type"] not in _OURS]
            return {**current, "status": {**status, "conditions": [*others, *wanted]}}

        writing = by_the_server("status")
        await self._namespaces.modify("", metadata(namespace)["name"], told, writing)


def _finalized(namespace: Object) -> Object:
    kept = namespace["spec"].get("finalizers") or ()
    return {**copied(namespace), "spec": {"finalizers": [each for each in kept if each != FINALIZER]}}
