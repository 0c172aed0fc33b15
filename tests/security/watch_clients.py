"""Honest clients that watch every resource while the storm goes on: they hear of all that happens to come through."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.harness.server_process import Server
from tests.security.api_resources import Resource, World
from tests.security.headers import bearer
from tests.security.raw_http import Ask, connected

_FORMS = (
    "application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)
_SELECTORS = ("", "labelSelector=kept=yes", "fieldSelector=metadata.name!=b")
_TYPES = ("ADDED", "MODIFIED", "DELETED")


async def watch(server: Server, world: World, number: int, faults: list[str]) -> None:
    """Watches one resource in one form until it is cancelled, and notes what no watch may deliver."""
    watched = [resource for resource in world.resources if resource.stored]
    resource = watched[number % len(watched)]
    form, selector = _FORMS[number % len(_FORMS)], _SELECTORS[number // 2 % len(_SELECTORS)]
    query = tuple(each for each in ("watch=1", selector) if each)
    ask = Ask("GET", f"{resource.root}/{resource.plural}", query, (bearer(world.key), ("Accept", form)))
    try:
        async for event in _events(server, ask):
            faults.extend(_faults(event, resource, form))
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        faults.append(f"the watch of {resource.plural} as {form} broke off: {error!r}")


def _faults(event: Any, resource: Resource, form: str) -> list[str]:
    expected = {_FORMS[0]: resource.kind, _FORMS[1]: "Table", _FORMS[2]: "PartialObjectMetadata"}[form]
    if event["type"] in _TYPES and event["object"]["kind"] == expected:
        return []
    return [f"the watch of {resource.plural} as {form} has delivered {json.dumps(event)[:500]}"]


async def _events(server: Server, ask: Ask) -> AsyncIterator[Any]:
    reader, writer = await connected(server)
    try:
        writer.write(ask.wire())
        await reader.readuntil(b"\r\n\r\n")
        arrived = b""
        while size := int(await reader.readline(), 16):
            arrived += (await reader.readexactly(size + 2))[:-2]
            *lines, arrived = arrived.split(b"\n")
            for line in lines:
                yield json.loads(line)
    finally:
        writer.transport.abort()
