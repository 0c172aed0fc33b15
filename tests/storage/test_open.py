"""storage/open.py: store URLs."""

from pathlib import Path

import pytest

from fairlead.storage.contract import Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import SCHEMES, is_shared, open_store
from fairlead.storage.sqlite import SqliteStore


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
