"""Opens a store by its URL. To add a store, add an entry to SCHEMES.

Database drivers are imported only by the stores that need them. A URL may contain a password, so no message quotes
it.
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
        raise ValueError("nothing is allowed after the colon")
    return MemoryStore(first)


async def _open_sqlite(path: str, first: int) -> Store:
    return await SqliteStore.open(_sqlite_path(path), first)


def _sqlite_path(path: str) -> str:
    if path in ("", ":memory:"):
        raise ValueError("the path of a file is required after the colon")
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
    """A type of store: the format of its URLs, and the function that opens one, given the URL without its scheme."""

    form: str
    opened: Callable[[str, int], Awaitable[Store]]
    """The second argument is the minimum revision of the store."""
    shared: bool
    """Whether several servers can use it at the same time. Otherwise it belongs to one process."""
    beside: Callable[[str], AbstractAsyncContextManager[Snapshot]] | None = None
    """Takes a snapshot while a server has the store open, if that is possible."""


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
    """Open a store. Raises ValueError for an invalid URL, StoreUnavailable if the store cannot be opened."""
    store = await open_to_fill(url)
    try:
        await refuse_unfinished(store)
    except BaseException:
        await store.close()
        raise
    return store


async def open_to_fill(url: str, first: int = FIRST_REVISION) -> Store:
    """Open a store whose content will be replaced. Its revision is then at least `first`."""
    known, rest = _known(url)
    try:
        return await known.opened(rest, first)
    except ValueError as error:
        raise ValueError(f"this is not a valid {scheme_of(url)} store URL: {error}; use {known.form}") from error


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """A snapshot of the store, also while servers use it. Raises ValueError and StoreUnavailable like `open_store`."""
    known, rest = _known(url)
    if known.beside is not None:
        async with known.beside(rest) as found:
            yield found
        return
    if not known.shared:
        raise ValueError(f"a {scheme_of(url)} store can only be read by the server that uses it")
    store = await open_store(url)
    try:
        yield await scanned(store)
    finally:
        await store.close()


def is_shared(url: str) -> bool:
    """Whether other servers can use the same store."""
    known = SCHEMES.get(scheme_of(url))
    return known is not None and known.shared


def scheme_of(url: str) -> str:
    return url.partition(":")[0]


def _known(url: str) -> tuple[Scheme, str]:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"this is not a store URL; use {_forms()}")
    return SCHEMES[scheme], rest


def _forms() -> str:
    return ", ".join(dict.fromkeys(scheme.form for scheme in SCHEMES.values()))
