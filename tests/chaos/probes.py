"""Probes for faults that fill a store: large writes until they are rejected or accepted, and reads.

They write to an object of their own, because the small writes of the recorded load would take long to fill a store.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial

import httpx

from tests.chaos.clients import is_well_formed_error
from tests.chaos.deployment import Deployment
from tests.chaos.timeouts import request_until_served, wait_for
from tests.harness.server_process import CONFIGMAPS, configmap

PROBE = f"{CONFIGMAPS}/probe"
PROBE_BYTES = 100_000
RESPONSE_SECONDS = 40.0
"""Longer than a server waits for its store, so that its error response arrives."""


async def write_until_rejected(deployment: Deployment, reason: str = "") -> None:
    """Writes until every replica has rejected a write with `reason` in the message."""

    async def is_rejected(client: httpx.AsyncClient) -> bool | None:
        response = await _write(client)
        if response.status_code < 500:
            return None
        if not is_well_formed_error(response):
            deployment.anomalies.append(f"a write without space got {response.text[:300]}")
        return True if reason in response.text else None

    await _poll_every_replica(deployment, is_rejected, f"a rejected write: {reason}")


async def write_until_accepted(deployment: Deployment) -> None:
    """Writes until every replica has accepted a write."""

    async def is_accepted(client: httpx.AsyncClient) -> bool | None:
        return True if (await _write(client)).status_code in (200, 201) else None

    await _poll_every_replica(deployment, is_accepted, "an accepted write")


async def _poll_every_replica(
    deployment: Deployment, poll: Callable[[httpx.AsyncClient], Awaitable[bool | None]], what: str
) -> None:
    await asyncio.gather(
        *(wait_for(partial(poll, client), f"{what} at {client.base_url}") for client in deployment.clients)
    )


async def write_until(deployment: Deployment, has_happened: Callable[[], bool], what: str) -> None:
    """Writes until a condition holds, whatever the results."""

    async def poll() -> bool | None:
        if has_happened():
            return True
        await _write(deployment.clients[0])
        return None

    await wait_for(poll, what)


async def check_reads(deployment: Deployment) -> None:
    """Checks that reads still work."""
    for client in deployment.clients:
        response = await request_until_served(client, "GET", CONFIGMAPS)
        if response.status_code != 200:
            deployment.anomalies.append(f"a list got {response.status_code}: {response.text[:300]}")


async def _write(client: httpx.AsyncClient) -> httpx.Response:
    body = configmap("probe", text=os.urandom(PROBE_BYTES // 2).hex())
    response = await client.put(PROBE, json=body, timeout=RESPONSE_SECONDS)
    return (
        await client.post(CONFIGMAPS, json=body, timeout=RESPONSE_SECONDS) if response.status_code == 404 else response
    )
