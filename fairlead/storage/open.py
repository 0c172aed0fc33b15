"""A store's address -> the store. Called by the composition root; a new store is one more line in SCHEMES.

Drivers are imported with the first store that needs them: whoever runs on a file starts without them. An address may
hold a password, so no message repeats one.
"""

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


async def _open_postgres(rest: str) -> Store:
    from fairlead.storage.postgres import PostgresStore

    return await PostgresStore.open(f"postgres:{rest}")


async def _open_etcd(rest: str) -> Store:
    from fairlead.storage.etcd import EtcdStore, parse_address

    return await EtcdStore.open(parse_address(rest))


POSTGRES_FORM = "postgres://user@host:5432/database"

SCHEMES: dict[str, tuple[str, Callable[[str], Awaitable[Store]]]] = {
    "memory": ("memory:", _open_memory),
    "sqlite": ("sqlite:/path/to/file or sqlite:relative/path", _open_sqlite),
    "postgres": (POSTGRES_FORM, _open_postgres),
    "postgresql": (POSTGRES_FORM, _open_postgres),
    "etcd": ("etcd://host1:2379,host2:2379/prefix", _open_etcd),
}
"""For each scheme its form, for people, and what opens it, given the rest of the address."""


async def open_store(url: str) -> Store:
    """ValueError where the address is none of those we know, Unavailable where the store cannot be opened."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"this is no store's address; use {_forms()}")
    form, opened = SCHEMES[scheme]
    try:
        return await opened(rest)
    except ValueError as error:
        raise ValueError(f"this is no {scheme} store's address: {error}; use {form}") from error


def _forms() -> str:
    return ", ".join(dict.fromkeys(form for form, _ in SCHEMES.values()))
