"""Empties a project's namespace in order: what runs goes first, while the secrets that it needs are still there.

`projects.py` asks until nothing is left. What holds something back is told each time, so that people see whom to ask.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fairlead.core.errors import NotFound
from fairlead.core.objects import metadata
from fairlead.core.slices import in_slices
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.writing import Deleting, by_the_server

ORDER = ("devpodworkspaceinstances", "virtualclusterinstances", "spaceinstances")
"""Workspaces may run in virtual clusters, and those in spaces."""
AT_ONCE = 20
"""So many deletes are done before others get their turn."""


class Emptying:
    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        by_plural = {each.kind.plural: each for each in registry.namespaced() if each.kind.group == api_group}
        self._first = [by_plural[plural] for plural in ORDER if plural in by_plural]
        self._all = [each for each in registry.namespaced() if each.kind.stored]

    async def go_on(self, namespace: str) -> str | None:
        """Deletes what is next in order. What is being waited for, in words; None once the namespace is gone."""
        for resource in self._first:
            for count, name in enumerate(self._names(resource, namespace)):
                if count % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)  # what finalizers hold is not written again, so nothing is waited for
                with suppress(NotFound):  # somebody was faster
                    deleting = Deleting(propagation="Background")
                    await resource.delete(namespace, name, deleting, by_the_server())
            if self._names(resource, namespace):
                return await self._remaining(namespace)
        try:
            namespaces = self._registry.resource("", "namespaces")
            await namespaces.delete("", namespace, Deleting(), by_the_server())
        except NotFound:
            return None
        return await self._remaining(namespace)

    def _names(self, resource: Resource, namespace: str) -> list[str]:
        kind = resource.kind
        return [entry.key[3] for entry in self._registry.view.entries(kind.group, kind.plural, namespace)]

    async def _remaining(self, namespace: str) -> str:
        found = [each async for each in self._counted(namespace)]
        if not found:
            return f"waiting for the namespace {namespace}"
        return "waiting for " + ", ".join(found)

    async def _counted(self, namespace: str) -> AsyncIterator[str]:
        """How many there are of each kind, and the finalizers that hold them."""
        for resource in self._all:
            kind, finalizers = resource.kind, dict[str, None]()
            entries = self._registry.view.entries(kind.group, kind.plural, namespace)
            async for some in in_slices(entries, lambda entry: len(entry.body)):
                for entry in some:
                    if b'"finalizers":' in entry.body:
                        finalizers.update(dict.fromkeys(metadata(decode(entry)).get("finalizers") or ()))
            if entries:
                held = f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
                yield f"{len(entries)} {kind.singular if len(entries) == 1 else kind.plural}{held}"
