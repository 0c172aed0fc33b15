"""A store's address -> the store. Called by the composition root; a new store is one more line in SCHEMES.

Drivers are imported with the first store that needs them: whoever runs on a file starts without them. An address may
hold a password, so no message repeats one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from fairlead.storage.contract import FIRST_REVISION, Store
from fairlead.storage.copy import Snapshot, refuse_unfinished, scanned
from fairlead.storage.memory import MemoryStore
from fairlead.storage.sqlite import SqliteStore
from fairlead.storage.sqlite.reader import snapshot


async def _open_memory(rest: str, first: int) -> Store:
    if rest:
        raise ValueError("nothing may follow the colon")
    return MemoryStore(first)


async def _open_sqlite(path: str, first: int) -> Store:
    return await SqliteStore.open(_sqlite_path(path), first)


def _sqlite_path(path: str) -> str:
    if path in ("", ":memory:"):
        raise ValueError("the path of a file must follow the colon")
    return path


async def _open_postgres(rest: str, first: int) -> Store:
    from fairlead.storage.postgres import PostgresStore

    return await PostgresStore.open(f"postgres:{rest}", first)


async def _open_etcd(rest: str, first: int) -> Store:
    from fairlead.storage.etcd import EtcdStore, parse_address

    return await EtcdStore.open(parse_address(rest), first)


POSTGRES_FORM = "postgres://user@host:5432/database"


@dataclass(frozen=True, slots=True)
class Scheme:
    """A sort of store: the form of its addresses, for people, and what opens one, given the rest of the address."""

    form: str
    opened: Callable[[str, int], Awaitable[Store]]
    """Also given the revision at which it shall stand at least."""
    shared: bool
    """Whether several servers can have it open at once. If not, it belongs to one process."""
    beside: Callable[[str], AbstractAsyncContextManager[Snapshot]] | None = None
    """What reads one that belongs to a server meanwhile, where there is a way."""


SCHEMES: dict[str, Scheme] = {
    "memory": Scheme("memory:", _open_memory, shared=False),
    "sqlite": Scheme(
        "sqlite:/path/to/file or sqlite:relative/path",
        _open_sqlite,
        shared=False,
        beside=lambda path: snapshot(_sqlite_path(path)),
    ),
    "postgres": Scheme(POSTGRES_FORM, _open_postgres, shared=True),
    "postgresql": Scheme(POSTGRES_FORM, _open_postgres, shared=True),
    "etcd": Scheme("etcd://host1:2379,host2:2379/prefix", _open_etcd, shared=True),
}


async def open_store(url: str) -> Store:
    """ValueError where the address is none of those we know, Unavailable where the store cannot be opened."""
    store = await open_to_fill(url)
    try:
        await refuse_unfinished(store)
    except BaseException:
        await store.close()
        raise
    return store


async def open_to_fill(url: str, first: int = FIRST_REVISION) -> Store:
    """The same for whoever is going to replace what is in there. It then stands at `first` at least."""
    known, rest = _known(url)
    try:
        return await known.opened(rest, first)
    except ValueError as error:
        raise ValueError(f"this is no {scheme_of(url)} store's address: {error}; use {known.form}") from error


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """What the store holds now, also while servers use it. Raises ValueError and Unavailable like `open_store`."""
    known, rest = _known(url)
    if known.beside is not None:
        async with known.beside(rest) as found:
            yield found
        return
    if not known.shared:
        raise ValueError(f"what a {scheme_of(url)} store holds, only the server that has it can see")
    store = await open_store(url)
    try:
        yield await scanned(store)
    finally:
        await store.close()


def is_shared(url: str) -> bool:
    """Whether other servers may have the same store open."""
    known = SCHEMES.get(scheme_of(url))
    return known is not None and known.shared


def scheme_of(url: str) -> str:
    return url.partition(":")[0]


def _known(url: str) -> tuple[Scheme, str]:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"this is no store's address; use {_forms()}")
    return SCHEMES[scheme], rest


def _forms() -> str:
    return ", ".join(dict.fromkeys(scheme.form for scheme in SCHEMES.values()))
