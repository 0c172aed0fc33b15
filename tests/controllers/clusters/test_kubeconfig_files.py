"""Tests of `fairlead.controllers.clusters.kubeconfig_files`: Secrets of administrators that follow files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from fairlead.controllers.clusters.kubeconfig_files import (
    FILE_ANNOTATION,
    INTERVAL_SECONDS,
    KubeconfigFileController,
    UnusableFile,
    read_kubeconfig_file,
)
from fairlead.registry.codec import decode
from tests.controllers.clusters.test_credentials import build_kubeconfig, encode_secret, stored_kubeconfig
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

FIRST, SECOND = build_kubeconfig(token="first"), build_kubeconfig(token="second")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfigs"
    path.mkdir()
    return path


@asynccontextmanager
async def following(api: RegistryFixture, folder: Path, namespace: str = NAMESPACE) -> AsyncIterator[None]:
    """Threads do not run on virtual time."""

    async def read(function: object, folder: Path, name: str) -> bytes:
        return read_kubeconfig_file(folder, name)

    with patch.object(asyncio, "to_thread", read):
        async with running_controllers(api, KubeconfigFileController(api.registry, namespace, folder)):
            yield


async def create_secret(api: RegistryFixture, file: str) -> None:
    await api.create("Secret", "s", metadata={"annotations": {FILE_ANNOTATION: file}}, data=encode_secret(b"old"))


async def test_a_secret_follows_its_file(api: RegistryFixture, folder: Path) -> None:
    (folder / "berlin").write_bytes(FIRST)
    async with following(api, folder):
        await create_secret(api, "berlin")
        await eventually(lambda: stored_kubeconfig(api) == FIRST)
        (folder / "berlin").write_bytes(SECOND)
        await asyncio.sleep(INTERVAL_SECONDS + 1)
        assert stored_kubeconfig(api) == SECOND
        secret = api.get("Secret", "s")
        assert secret is not None and set(secret["data"]) == {"config", "note"}
        revision = await api.store.revision()
        await asyncio.sleep(10 * INTERVAL_SECONDS)
        assert await api.store.revision() == revision


async def test_a_file_that_cannot_be_used_changes_nothing_and_is_reported_once(
    api: RegistryFixture, folder: Path
) -> None:
    (folder / "berlin").write_bytes(FIRST)
    async with following(api, folder):
        await create_secret(api, "berlin")
        await eventually(lambda: stored_kubeconfig(api) == FIRST)
        (folder / "berlin").write_text("half")
        await asyncio.sleep(10 * INTERVAL_SECONDS)
        assert stored_kubeconfig(api) == FIRST
        (event,) = [decode(entry) for entry in api.view.entries("", "events")]
        assert (event["type"], event["reason"]) == ("Warning", "KubeconfigFileNotUsed")
        (folder / "berlin").write_bytes(SECOND)
        await eventually(lambda: stored_kubeconfig(api) == SECOND)


async def test_the_annotation_has_no_effect_in_other_namespaces(api: RegistryFixture, folder: Path) -> None:
    (folder / "berlin").write_bytes(FIRST)
    async with following(api, folder, "service-system"):
        await create_secret(api, "berlin")
        await asyncio.sleep(10 * INTERVAL_SECONDS)
        assert stored_kubeconfig(api) == b"old"


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ".", "link", "folder/../../outside"])
def test_a_file_outside_of_the_folder_is_not_read(folder: Path, name: str) -> None:
    (folder.parent / "outside").write_bytes(FIRST)
    (folder / "link").symlink_to(folder.parent / "outside")
    with pytest.raises(UnusableFile, match="is not in the folder"):
        read_kubeconfig_file(folder, name)


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    """As in a mounted Secret."""
    (folder / "data").mkdir()
    (folder / "data" / "berlin").write_bytes(FIRST)
    (folder / "berlin").symlink_to("data/berlin")
    assert read_kubeconfig_file(folder, "berlin") == FIRST


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "there is no file"),
        ("data", "cannot be read"),
        ("loop", "cannot be (found|read)"),
        ("a\0b", "cannot be found"),
        ("x" * 5000, "cannot be (found|read)"),
    ],
    ids=["missing", "folder", "loop", "NUL", "too long"],
)
def test_a_missing_or_unreadable_file_is_named_without_its_path(folder: Path, name: str, message: str) -> None:
    (folder / "data").mkdir()
    (folder / "loop").symlink_to("loop")
    with pytest.raises(UnusableFile, match=message) as caught:
        read_kubeconfig_file(folder, name)
    assert str(folder) not in str(caught.value)
