"""Large writes, made by whoever fills up a store, until they are refused or accepted as they should be.

They go beside the recorded load, to an object of their own: with its small writes it can take a store long to notice.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial

import httpx

from tests.chaos.clients import is_clean_refusal
from tests.chaos.deployment import World
from tests.chaos.timeouts import answered, eventually
from tests.harness.server_process import CONFIGMAPS, configmap

PROBE = f"{CONFIGMAPS}/probe"
PROBE_BYTES = 100_000
ANSWER_SECONDS = 40.0
"""Longer than a server asks a store that does not answer: what it says then is what is looked at here."""


async def until_refused(world: World, why: str = "") -> None:
    """Writes until every replica has refused to. `why` is in what it says."""

    async def refused(client: httpx.AsyncClient) -> bool | None:
        answer = await _write(client)
        if answer.status_code < 500:
            return None
        if not is_clean_refusal(answer):
            world.odd.append(f"a write that there was no room for was answered with {answer.text[:300]}")
        return True if why in answer.text else None

    await _everywhere(world, refused, f"a write to be refused: {why}")


async def until_accepted(world: World) -> None:
    """Writes until every replica has acknowledged one."""

    async def accepted(client: httpx.AsyncClient) -> bool | None:
        return True if (await _write(client)).status_code in (200, 201) else None

    await _everywhere(world, accepted, "a write to be accepted")


async def _everywhere(world: World, look: Callable[[httpx.AsyncClient], Awaitable[bool | None]], what: str) -> None:
    await asyncio.gather(
        *(eventually(partial(look, client), f"{what} at {client.base_url}") for client in world.clients)
    )


async def until(world: World, come: Callable[[], bool], what: str) -> None:
    """Writes, whatever becomes of it, until something has come about."""

    async def look() -> bool | None:
        if come():
            return True
        await _write(world.clients[0])
        return None

    await eventually(look, what)


async def reads_go_on(world: World) -> None:
    """At once: what cannot be written can be read."""
    for client in world.clients:
        answer = await answered(client, "GET", CONFIGMAPS)
        if answer.status_code != 200:
            world.odd.append(f"a list was answered with {answer.status_code}: {answer.text[:300]}")


async def _write(client: httpx.AsyncClient) -> httpx.Response:
    body = configmap("probe", text=os.urandom(PROBE_BYTES // 2).hex())
    answer = await client.put(PROBE, json=body, timeout=ANSWER_SECONDS)
    return await client.post(CONFIGMAPS, json=body, timeout=ANSWER_SECONDS) if answer.status_code == 404 else answer
