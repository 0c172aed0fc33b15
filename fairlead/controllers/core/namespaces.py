"""Deletes the content of a terminating namespace, then removes its finalizer. Conditions show what remains."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from fairlead.controllers.runtime.loop import same_key
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, deep_copy, metadata
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key

REQUEUE_SECONDS, REQUEUE_SECONDS_PER_OBJECT, MAX_REQUEUE_SECONDS = 0.2, 0.005, 30.0
"""Requeue delay while objects with finalizers remain, plus so much for each of them: checking one takes about 20 µs, so
this bounds the CPU time that is spent."""
DELETE_BATCH_SIZE = 20
"""How many deletes are done before yielding to the event loop."""
FINALIZER = "kubernetes"
_CONTENT_CONDITIONS = ("NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining")


@dataclass(slots=True)
class RemainingContent:
    """What remains in a namespace after deleting everything that could be deleted."""

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


class NamespaceController:
    name, workers = "namespaces", 1
    watches = (("", "namespaces"),)
    keys_for = staticmethod(same_key)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._namespaces = registry.resource("", "namespaces")

    async def reconcile(self, key: Key) -> float | None:
        entry = self._namespaces.get_cached("", key[3])
        if entry is None:
            return None
        namespace = decode(entry)
        if "deletionTimestamp" not in metadata(namespace) or FINALIZER not in namespace["spec"].get("finalizers", ()):
            return None
        remaining = await self._delete_content(key[3])
        if remaining.resources:
            await self._write_conditions(namespace, remaining)
            return min(REQUEUE_SECONDS + remaining.resources.total() * REQUEUE_SECONDS_PER_OBJECT, MAX_REQUEUE_SECONDS)
        options = server_write_options("finalize")
        await self._namespaces.modify("", key[3], _without_finalizer, options)
        return None

    async def _delete_content(self, namespace: str) -> RemainingContent:
        """Deletes all objects. Those with finalizers remain."""
        remaining = RemainingContent()
        for resource in self._registry.namespaced_resources():
            kind = resource.kind
            for count, entry in enumerate(self._registry.view.entries(kind.group, kind.plural, namespace)):
                if count % DELETE_BATCH_SIZE == DELETE_BATCH_SIZE - 1:
                    await asyncio.sleep(
                        0
                    )  # deleting an object that waits for finalizers writes nothing, so nothing is awaited
                options = DeleteOptions(propagation="Background")
                deleted = await resource.delete(namespace, entry.key[3], options, server_write_options())
                if not deleted.is_removed:
                    remaining.resources[f"{kind.plural}.{kind.group}"] += 1
                    remaining.finalizers.update(metadata(decode(entry)).get("finalizers") or ())
        return remaining

    async def _write_conditions(self, namespace: Object, remaining: RemainingContent) -> None:
        """Writes the conditions if they have changed."""
        desired = remaining.conditions(timestamp(self._registry.clock.now()))
        known = {each["type"]: each.get("message") for each in (namespace.get("status") or {}).get("conditions") or ()}
        if all(known.get(each["type"]) == each["message"] for each in desired):
            return

        def edit(current: Object) -> Object:
            status = current.get("status") or {}
            others = [each for each in status.get("conditions") or () if each["type"] not in _CONTENT_CONDITIONS]
            return {**current, "status": {**status, "conditions": [*others, *desired]}}

        options = server_write_options("status")
        await self._namespaces.modify("", metadata(namespace)["name"], edit, options)


def _without_finalizer(namespace: Object) -> Object:
    finalizers = namespace["spec"].get("finalizers") or ()
    return {**deep_copy(namespace), "spec": {"finalizers": [each for each in finalizers if each != FINALIZER]}}
