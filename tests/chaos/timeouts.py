"""Polls until a condition holds or a request is served, for faults that wait for their effect."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from tests.harness.eventually import poll_until_found

TIMEOUT_SECONDS = 90.0
"""Seconds. Only a busy machine needs nearly as long."""

T = TypeVar("T")


async def wait_for(poll: Callable[[], Awaitable[T | None]], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Returns the first result of `poll` that is not None. HTTP errors are tried again."""
    return await poll_until_found(poll, what, seconds, httpx.HTTPError)


async def request_until_served(client: httpx.AsyncClient, method: str, path: str, **arguments: Any) -> httpx.Response:
    """Repeats a request until the response is neither a server error nor 429."""

    async def poll() -> httpx.Response | None:
        response = await client.request(method, path, **arguments)
        return None if response.status_code >= 500 or response.status_code == 429 else response

    return await wait_for(poll, f"a response to {method} {path}")
