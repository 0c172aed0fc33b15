"""storage/open.py: store URLs."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.storage.contract import Record, Store, StoreUnavailable, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import SCHEMES, is_shared, open_existing_store, open_store, read_stored
from fairlead.storage.sqlite import SqliteStore
from tests.harness.durable_stores import ADDRESSES


async def test_memory_is_a_valid_url() -> None:
    store = await open_store("memory:")
    assert isinstance(store, MemoryStore)
    await store.close()


@pytest.mark.parametrize("form", ["sqlite:{}/x.db", "sqlite://{}/x.db"])
async def test_an_absolute_path_is_a_valid_url(form: str, tmp_path: Path) -> None:
    store = await open_store(form.format(tmp_path))
    assert isinstance(store, SqliteStore)
    await store.commit([Write(("k",), b"x", 0)])
    await store.close()
    assert (tmp_path / "x.db").exists()


async def test_a_relative_path_is_a_valid_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("sqlite:x.db")
    await store.close()
    assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize("url", ["", "memory", "sqlite", "/var/lib/x.db", "mongodb://host", "Memory:", ":"])
async def test_an_unknown_scheme_is_rejected_with_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        await open_store(url)
    for form in (scheme.url_format for scheme in SCHEMES.values()):
        assert form in str(caught.value)


@pytest.mark.parametrize("url", ["memory:x", "sqlite:", "sqlite::memory:"])
async def test_an_invalid_url_is_rejected_with_the_correct_form(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        await open_store(url)
    assert SCHEMES[url.partition(":")[0]].url_format in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shared"),
    [
        ("memory:", False),
        ("sqlite:x.db", False),
        ("postgres://h/d", True),
        ("postgresql://h/d", True),
        ("etcd://h", True),
    ],
)
def test_some_stores_can_be_shared_by_several_servers(url: str, shared: bool) -> None:
    assert is_shared(url) is shared


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgres://127.0.0.1:1/none", "asyncpg", "postgres"), ("etcd://127.0.0.1:1/none", "grpc", "etcd")],
)
@pytest.mark.parametrize("open_any", [open_store, open_existing_store])
async def test_without_its_optional_driver_a_store_says_what_to_install(
    url: str, module: str, extra: str, open_any: Callable[[str], Awaitable[Store]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith(f"fairlead.storage.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        StoreUnavailable,
        match=rf"{module}, is not installed; .* pipx install --force './fairlead-\S+\.whl\[{extra}\]'$",
    ):
        await open_any(url)


async def test_a_driver_that_cannot_be_loaded_is_an_error_that_names_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith(("fairlead.storage.etcd", "grpc"))]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "grpc.py").write_text("raise ImportError('libstdc++.so.6: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        StoreUnavailable, match=r"grpc, cannot be loaded \(libstdc\+\+\.so\.6: .*\); install the shared"
    ):
        await open_store("etcd://127.0.0.1:1/none")


@pytest.mark.parametrize("backend", ADDRESSES)
async def test_a_record_can_be_read_while_a_server_uses_the_store(backend: str, tmp_path: Path) -> None:
    url = await ADDRESSES[backend](tmp_path / "store")
    store = await open_store(url)
    revision = await store.commit([Write(("a",), b"1", 0), Write(("b",), b"2", 0)])
    assert await read_stored(url, ("b",)) == Record(("b",), b"2", revision)
    assert await read_stored(url, ("c",)) is None
    await store.close()


async def test_a_store_in_memory_cannot_be_read_by_others() -> None:
    with pytest.raises(ValueError, match="can only be read by the server that uses it"):
        await read_stored("memory:", ("a",))
