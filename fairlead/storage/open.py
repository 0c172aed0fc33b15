"""Opens a store by its URL. To add a store, add an entry to SCHEMES.

Database drivers are imported only by the stores that need them, as they are optional dependencies. A URL may contain a
password, so no message quotes it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

from fairlead import __version__
from fairlead.storage.contract import FIRST_REVISION, Key, Record, Store, StoreUnavailable
from fairlead.storage.copy import Snapshot, check_complete, take_snapshot
from fairlead.storage.memory import MemoryStore
from fairlead.storage.sqlite import SqliteStore
from fairlead.storage.sqlite.reader import check_file_exists, open_file_snapshot, read_file_record


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


async def _check_sqlite_exists(path: str) -> None:
    check_file_exists(_sqlite_path(path))


@contextmanager
def _optional_driver(module: str, extra: str) -> Iterator[None]:
    """Says what to do if the driver is missing, or cannot be loaded. `extra` is a name in `optional-dependencies`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise StoreUnavailable(
            f"the driver of this store, {module}, is not installed; install the package with the extra {extra}, for "
            f"example with: pipx install --force './fairlead-{__version__}-py3-none-any.whl[{extra}]'"
        ) from error
    except ImportError as error:
        # A shared library is missing, as in a minimal container, or the driver is not for this Python or machine.
        raise StoreUnavailable(
            f"the driver of this store, {module}, cannot be loaded ({error}); install the shared library that it names "
            f"(Debian: libstdc++6), or install the driver again for this Python"
        ) from error


async def _open_postgres(rest: str, first: int) -> Store:
    with _optional_driver("asyncpg", "postgres"):
        from fairlead.storage.postgres import PostgresStore

    return await PostgresStore.open(f"postgres:{rest}", first)


async def _check_postgres_exists(rest: str) -> None:
    with _optional_driver("asyncpg", "postgres"):
        from fairlead.storage.postgres import check_store_exists

    await check_store_exists(f"postgres:{rest}")


async def _open_etcd(rest: str, first: int) -> Store:
    with _optional_driver("grpc", "etcd"):
        from fairlead.storage.etcd import EtcdStore, parse_address

    return await EtcdStore.open(parse_address(rest), first)


async def _check_etcd_exists(rest: str) -> None:
    with _optional_driver("grpc", "etcd"):
        from fairlead.storage.etcd import check_store_exists, parse_address

    await check_store_exists(parse_address(rest))


POSTGRES_URL_FORMAT = "postgres://user@host:5432/database"


@dataclass(frozen=True, slots=True)
class StoreScheme:
    """A type of store: the format of its URLs, and the function that opens one, given the URL without its scheme."""

    url_format: str
    open: Callable[[str, int], Awaitable[Store]]
    """The second argument is the minimum revision of the store."""
    check_exists: Callable[[str], Awaitable[None]] | None
    """Raises StoreUnavailable if there is no store, for stores that are created when they are opened."""
    is_shared: bool
    """Whether several servers can use it at the same time. Otherwise it belongs to one process."""
    snapshot: Callable[[str], AbstractAsyncContextManager[Snapshot]] | None = None
    """Takes a snapshot while a server has the store open, if that is possible."""
    read: Callable[[str, Key], Awaitable[Record | None]] | None = None
    """Reads a record while a server has the store open, if that is possible."""


SCHEMES: dict[str, StoreScheme] = {
    "memory": StoreScheme("memory:", _open_memory, None, is_shared=False),
    "sqlite": StoreScheme(
        "sqlite:/path/to/file or sqlite:relative/path",
        _open_sqlite,
        _check_sqlite_exists,
        is_shared=False,
        snapshot=lambda path: open_file_snapshot(_sqlite_path(path)),
        read=lambda path, key: read_file_record(_sqlite_path(path), key),
    ),
    "postgres": StoreScheme(POSTGRES_URL_FORMAT, _open_postgres, _check_postgres_exists, is_shared=True),
    "postgresql": StoreScheme(POSTGRES_URL_FORMAT, _open_postgres, _check_postgres_exists, is_shared=True),
    "etcd": StoreScheme("etcd://host1:2379,host2:2379/prefix", _open_etcd, _check_etcd_exists, is_shared=True),
}


async def open_store(url: str) -> Store:
    """Open a store. Raises ValueError for an invalid URL, StoreUnavailable if the store cannot be opened."""
    store = await open_for_restore(url)
    try:
        await check_complete(store)
    except BaseException:
        await store.close()
        raise
    return store


async def open_existing_store(url: str) -> Store:
    """Open a store to read it. One that does not exist is not created. Raises like `open_store`."""
    known, rest = _parse_url(url)
    if known.check_exists is not None:
        with _explain_url_errors(url):
            await known.check_exists(rest)
    return await open_store(url)


async def open_for_restore(url: str, first: int = FIRST_REVISION) -> Store:
    """Open a store whose content will be replaced. Its revision is then at least `first`."""
    known, rest = _parse_url(url)
    with _explain_url_errors(url):
        return await known.open(rest, first)


@contextmanager
def _explain_url_errors(url: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        form = SCHEMES[scheme_of(url)].url_format
        raise ValueError(f"this is not a valid {scheme_of(url)} store URL: {error}; use {form}") from error


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """A snapshot of the store, also while servers use it. Raises ValueError and StoreUnavailable like `open_store`."""
    known, rest = _parse_url(url)
    if known.snapshot is not None:
        async with known.snapshot(rest) as found:
            yield found
        return
    if not known.is_shared:
        raise ValueError(f"a {scheme_of(url)} store can only be read by the server that uses it")
    store = await open_existing_store(url)
    try:
        yield await take_snapshot(store)
    finally:
        await store.close()


async def read_stored(url: str, key: Key) -> Record | None:
    """A record of the store, also while servers use it. Raises ValueError and StoreUnavailable like `open_store`."""
    known, rest = _parse_url(url)
    if known.read is not None:
        return await known.read(rest, key)
    if not known.is_shared:
        raise ValueError(f"a {scheme_of(url)} store can only be read by the server that uses it")
    store = await open_existing_store(url)
    try:
        return await store.read(key)
    finally:
        await store.close()


def is_shared(url: str) -> bool:
    """Whether other servers can use the same store."""
    known = SCHEMES.get(scheme_of(url))
    return known is not None and known.is_shared


def scheme_of(url: str) -> str:
    return url.partition(":")[0]


def _parse_url(url: str) -> tuple[StoreScheme, str]:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"this is not a store URL; use {_url_formats()}")
    return SCHEMES[scheme], rest


def _url_formats() -> str:
    return ", ".join(dict.fromkeys(scheme.url_format for scheme in SCHEMES.values()))
