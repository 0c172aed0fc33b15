"""Asking until there is an answer worth having. For whoever breaks things and has to see what that does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

PATIENCE = 90.0
"""Seconds. What should happen happens much sooner, unless the machine is busy with other things."""

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T | None]], what: str, seconds: float = PATIENCE) -> T:
    """What `look` finds, as soon as it finds something. No answer at all is nothing found."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if (found := await look()) is not None:
                return found
        except httpx.HTTPError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain: {what}")
        await asyncio.sleep(0.05)


async def answered(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response:
    """The first answer that is not a refusal to answer now."""

    async def look() -> httpx.Response | None:
        answer = await client.request(method, path, **more)
        return None if answer.status_code >= 500 or answer.status_code == 429 else answer

    return await eventually(look, f"an answer to {method} {path}")
