"""A document of a provider: fetched when needed, shared by all that wait for it, and kept while the provider is down.

A document is fetched again when it is older than `max_age`. If that fails, the last good one is used for up to `keep`
seconds, and further attempts are `retry` seconds apart. `refresh` fetches a document that seems to be outdated; clients
can provoke that with forged tokens, so it happens at most `BURST` times, and then once in `refill` seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairlead.signin.oidc.reasons import ProviderError

T = TypeVar("T")
BURST = 3


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds."""

    max_age: float
    keep: float = 24 * 3600.0
    retry: float = 5.0
    refill: float = 30.0


class CachedDocument(Generic[T]):
    """One document. `load` fetches and checks it, and raises ProviderError."""

    def __init__(self, load: Callable[[], Awaitable[T]], monotonic: Callable[[], float], lifetimes: Lifetimes) -> None:
        self._load = load
        self._monotonic = monotonic
        self._lifetimes = lifetimes
        self._value: T | None = None
        self._loaded_at = 0.0
        self._error: ProviderError | None = None
        self._failed_at = 0.0
        self._task: asyncio.Task[T] | None = None
        self._allowance = float(BURST)
        self._allowance_at = monotonic()

    async def get(self) -> T:
        """Returns the document. Raises ProviderError if there is none."""
        now = self._monotonic()
        value, age = self._value, now - self._loaded_at
        if value is not None and age < self._lifetimes.max_age:
            return value
        if self._error is not None and now - self._failed_at < self._lifetimes.retry:
            return self._last_good(self._error)
        try:
            return await self._fetch()
        except ProviderError as error:
            return self._last_good(error)

    async def get_recent(self, seconds: float) -> T:
        """Returns a document of at most that age. Raises ProviderError if there is only an older one."""
        now = self._monotonic()
        if self._value is not None and now - self._loaded_at < seconds:
            return self._value
        if self._error is not None and now - self._failed_at < self._lifetimes.retry:
            raise _copy(self._error)
        return await self._fetch()

    async def refresh(self) -> T:
        """Returns a document that was just fetched, or the last good one if that failed or would be too often."""
        if self._task is None and not self._take_allowance():
            return await self.get()
        try:
            return await self._fetch()
        except ProviderError as error:
            return self._last_good(error)

    def _take_allowance(self) -> bool:
        now = self._monotonic()
        gained = (now - self._allowance_at) / self._lifetimes.refill
        self._allowance, self._allowance_at = min(float(BURST), self._allowance + gained), now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _last_good(self, error: ProviderError) -> T:
        if self._value is None or self._monotonic() - self._loaded_at >= self._lifetimes.keep:
            raise _copy(error)
        return self._value

    async def _fetch(self) -> T:
        """Joins the running fetch, or starts one. It goes on if this caller is cancelled."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_mark_retrieved)
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        try:
            self._value = await self._load()
            self._loaded_at, self._error = self._monotonic(), None
            return self._value
        except ProviderError as error:
            self._error, self._failed_at = error, self._monotonic()
            raise
        finally:
            self._task = None


def _copy(error: ProviderError) -> ProviderError:
    """A new exception for each caller: a traceback grows with each raise."""
    return ProviderError(error.reason, str(error), status=error.status, oauth_error=error.oauth_error)


def _mark_retrieved(task: "asyncio.Task[T]") -> None:
    if not task.cancelled():
        task.exception()
