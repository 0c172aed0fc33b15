"""A store's address -> the store. Called by the composition root; a new store is one more line in SCHEMES."""

from collections.abc import Awaitable, Callable

from fairlead.storage.contract import Store
from fairlead.storage.memory import MemoryStore
from fairlead.storage.sqlite import SqliteStore


async def _open_memory(rest: str) -> Store:
    if rest:
        raise ValueError("nothing may follow the colon")
    return MemoryStore()


async def _open_sqlite(path: str) -> Store:
    if path in ("", ":memory:"):
        raise ValueError("the path of a file must follow the colon")
    return await SqliteStore.open(path)


SCHEMES: dict[str, tuple[str, Callable[[str], Awaitable[Store]]]] = {
    "memory": ("memory:", _open_memory),
    "sqlite": ("sqlite:/path/to/file or sqlite:relative/path", _open_sqlite),
}
"""For each scheme its form, for people, and what opens it, given the rest of the address."""


async def open_store(url: str) -> Store:
    """ValueError where the address is none of those we know, Unavailable where the store cannot be opened."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"{url!r} is no store's address; use {_forms()}")
    form, opened = SCHEMES[scheme]
    try:
        return await opened(rest)
    except ValueError as error:
        raise ValueError(f"{url!r} is no store's address: {error}; use {form}") from error


def _forms() -> str:
    return ", ".join(form for form, _ in SCHEMES.values())
