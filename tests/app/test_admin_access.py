"""app/admin_access.py: requests for a new key of the administrator, at the start and while the server runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from fairlead.app import admin_access
from fairlead.app.admin_access import BAD_REQUEST, NOT_REPLACED, POLL_SECONDS, AdminAccess
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, read_key
from fairlead.client.admin_reset import NOW, is_pending, request_reset
from fairlead.features.auth import Auth
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.login import open_login
from tests.harness.virtual_time import on_virtual_time


@asynccontextmanager
async def open_access(folder: Path) -> AsyncIterator[AdminAccess]:
    """Of a server that has started for the first time."""
    async with open_login() as login:
        auth = cast(Auth, SimpleNamespace(pepper=login.pepper, other_admin_access=lambda key: False))
        view = login.registry.view
        access = AdminAccess(login.store, view, auth, login.clock, GROUP, folder, "https://127.0.0.1:8443", None)
        assert (await access.start(True))[0] is not None
        yield access


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of root with mode 0600, which earlier versions wrote."""
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name.startswith("admin.reset"):
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)


@pytest.mark.usefixtures("unreadable")
@on_virtual_time
async def test_a_request_that_cannot_be_read_is_served_while_the_server_runs(tmp_path: Path) -> None:
    async with open_access(tmp_path) as access, access.serving_requests():
        for _ in range(2):
            before = read_key(tmp_path / KUBECONFIG_NAME)
            request_reset(tmp_path, NOW)
            await asyncio.sleep(POLL_SECONDS * 2)
            assert read_key(tmp_path / KUBECONFIG_NAME) not in (None, before)
            assert not is_pending(tmp_path)


@pytest.mark.usefixtures("unreadable")
async def test_a_request_that_cannot_be_read_is_served_at_the_start(tmp_path: Path) -> None:
    async with open_access(tmp_path) as access:
        (tmp_path / "admin.reset.running").write_text(NOW)
        key, is_replaced = await access.start(True)
        assert key is not None and is_replaced
        assert not is_pending(tmp_path)


async def test_a_folder_in_the_place_of_a_request_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    async with open_access(tmp_path) as access:
        (tmp_path / "admin.reset.running").mkdir()
        with capture_logs() as logs:
            assert await access.start(True) == (None, False)
    assert BAD_REQUEST in [each["event"] for each in logs]


@on_virtual_time
async def test_a_bad_request_is_logged_once_and_later_ones_are_served(tmp_path: Path) -> None:
    async with open_access(tmp_path) as access, access.serving_requests():
        (tmp_path / "admin.reset").mkdir()
        with capture_logs() as logs:
            await asyncio.sleep(POLL_SECONDS * 5)
        assert [(each["event"], each["why"]) for each in logs] == [
            (BAD_REQUEST, f"{tmp_path / 'admin.reset'}: not a file; remove it")
        ]
        (tmp_path / "admin.reset").rmdir()
        request_reset(tmp_path, NOW)
        await asyncio.sleep(POLL_SECONDS * 2)
        assert read_key(tmp_path / KUBECONFIG_NAME) is not None


@on_virtual_time
async def test_an_unexpected_error_does_not_end_the_serving_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    async with open_access(tmp_path) as access, access.serving_requests():
        with monkeypatch.context() as broken, capture_logs() as logs:
            broken.setattr(admin_access, "write_admin_kubeconfig", fail)
            request_reset(tmp_path, NOW)
            await asyncio.sleep(POLL_SECONDS * 2)
        assert [each["exc_info"] for each in logs if each["event"] == NOT_REPLACED] == [True]
        request_reset(tmp_path, NOW)
        await asyncio.sleep(POLL_SECONDS * 2)
        assert read_key(tmp_path / KUBECONFIG_NAME) is not None
