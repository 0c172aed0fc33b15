"""Well-behaved clients that watch every resource during the fuzzing and check the events that they receive."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.harness.server_process import Server
from tests.requests.api_resources import ApiCatalog, Resource
from tests.requests.headers import build_bearer_header
from tests.requests.raw_http import RawRequest, open_connection

_FORMS = (
    "application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)
_SELECTORS = ("", "labelSelector=protected=yes", "fieldSelector=metadata.name!=b")
_TYPES = ("ADDED", "MODIFIED", "DELETED")


async def run_watch(server: Server, catalog: ApiCatalog, number: int, faults: list[str]) -> None:
    """Watches one resource in one form until cancelled, and records events that no watch may deliver."""
    watched_resources = [resource for resource in catalog.resources if resource.is_stored]
    resource = watched_resources[number % len(watched_resources)]
    form, selector = _FORMS[number % len(_FORMS)], _SELECTORS[number // 2 % len(_SELECTORS)]
    query = tuple(each for each in ("watch=1", selector) if each)
    request = RawRequest(
        "GET", f"{resource.root}/{resource.plural}", query, (build_bearer_header(catalog.key), ("Accept", form))
    )
    try:
        async for event in _read_events(server, request):
            faults.extend(_find_faults(event, resource, form))
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        faults.append(f"the watch of {resource.plural} as {form} ended: {error!r}")


def _find_faults(event: Any, resource: Resource, form: str) -> list[str]:
    expected = {_FORMS[0]: resource.kind, _FORMS[1]: "Table", _FORMS[2]: "PartialObjectMetadata"}[form]
    if event["type"] in _TYPES and event["object"]["kind"] == expected:
        return []
    return [f"the watch of {resource.plural} as {form} delivered {json.dumps(event)[:500]}"]


async def _read_events(server: Server, request: RawRequest) -> AsyncIterator[Any]:
    reader, writer = await open_connection(server)
    try:
        writer.write(request.to_bytes())
        await reader.readuntil(b"\r\n\r\n")
        buffer = b""
        while size := int(await reader.readline(), 16):
            buffer += (await reader.readexactly(size + 2))[:-2]
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                yield json.loads(line)
    finally:
        writer.transport.abort()
