"""Sleeping workspaces over a real server: what wakes them, and what does not."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.harness.fake_runner import FakeRunner, connected_runner
from tests.harness.server_process import Server, running_server
from tests.live.workspace_setup import WORKSPACE, create_workspace, open_socket, wait_for_runner

PREFIX = "sleepmode.service.sh/"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("waking") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def runner_key(server: Server) -> str:
    with server.client() as admin:
        return create_workspace(admin)


@pytest.fixture
async def runner(server: Server, runner_key: str) -> AsyncIterator[FakeRunner]:
    async with connected_runner(server, "local", runner_key) as runner:
        await wait_for_runner(server)
        runner.requests.clear()
        yield runner


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.async_client() as client:
        yield client


async def annotate(admin: httpx.AsyncClient, **annotations: str | None) -> None:
    named = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()}
    response = await admin.patch(WORKSPACE, json={"metadata": {"annotations": named}}, headers=MERGE)
    assert response.status_code == 200, response.text


async def put_to_sleep(admin: httpx.AsyncClient, sleep_type: str = "inactivitySleep") -> None:
    """What the server writes when it decides."""
    await annotate(admin, sleep_type=sleep_type, sleeping_since=str(int(time.time())), last_activity="1")


async def read_annotations(admin: httpx.AsyncClient) -> dict[str, Any]:
    notes = (await admin.get(WORKSPACE)).json()["metadata"].get("annotations") or {}
    return {name.removeprefix(PREFIX): value for name, value in notes.items()}


def actions(runner: FakeRunner) -> list[str]:
    return [each.action for each in runner.requests]


async def test_a_session_wakes_what_was_idle_and_shows_the_progress(
    server: Server, runner: FakeRunner, admin: httpx.AsyncClient
) -> None:
    await put_to_sleep(admin)
    async with open_socket(server, "ssh", options='{"wake": true}') as socket:
        await socket.send_stdin(b"hello")  # it arrives after the start
        assert await socket.receive() == b"\x02waking the workspace up\n"
        assert await socket.receive() == b"\x02building\n"
        assert [(each.action, each.options) for each in runner.requests] == [("up", {"keepContainer": True})]
        runner.finish_up.set()
        assert await socket.receive() == b"\x02a warning\n"
        assert await socket.receive() == b"\x00hello"
        await socket.close_stdin()
        assert (await socket.read_all()).exit_message == bytes((14,))
    notes = await read_annotations(admin)
    assert "sleep-type" not in notes
    assert json.loads(notes["last-activity-info"]) == {"reason": "Ssh", "message": "woken up by admin", "user": "admin"}
    version = (await admin.get(WORKSPACE)).json()["metadata"]["resourceVersion"]
    assert runner.requests[0].resource_version
    assert int(runner.requests[0].resource_version) <= int(version)


async def test_an_editor_that_reconnects_does_not_wake_a_workspace(
    server: Server, runner: FakeRunner, admin: httpx.AsyncClient
) -> None:
    await annotate(admin, sleep_type=None, sleeping_since=None)
    async with open_socket(server, "ssh") as socket:
        await socket.close_stdin()
        await socket.read_all()
    await put_to_sleep(admin)
    for _ in range(3):
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(server, "ssh"):
                pass
        assert refused.value.response.status_code == 409
        assert b"reconnects by itself" in refused.value.response.body
    assert actions(runner) == ["ssh"]
    assert (await read_annotations(admin))["sleep-type"] == "inactivitySleep"


@pytest.mark.parametrize("sleep_type", ["scheduledSleep", "forcedSleep"])
async def test_a_session_wakes_nothing_that_did_not_fall_asleep_by_idleness(
    server: Server, runner: FakeRunner, admin: httpx.AsyncClient, sleep_type: str
) -> None:
    await put_to_sleep(admin, sleep_type)
    await annotate(admin, force="true" if sleep_type == "forcedSleep" else None)
    with pytest.raises(InvalidStatus) as refused:
        async with open_socket(server, "ssh", options='{"wake": true}'):
            pass
    assert refused.value.response.status_code == 409
    assert actions(runner) == []


async def test_an_up_wakes_from_every_sleep(server: Server, runner: FakeRunner, admin: httpx.AsyncClient) -> None:
    await annotate(admin, force="true", force_duration="3600")
    response = await admin.post(f"{WORKSPACE}/up", json={"kind": "DevPodWorkspaceInstanceUp", "spec": {}})
    assert response.status_code == 201, response.text
    notes = await read_annotations(admin)
    assert not {"force", "force-duration", "sleep-type", "sleeping-since"} & notes.keys()
    assert json.loads(notes["last-activity-info"])["reason"] == "Up"


async def test_what_a_user_stops_is_not_asleep_and_no_session_starts_it(
    server: Server, runner: FakeRunner, admin: httpx.AsyncClient
) -> None:
    await put_to_sleep(admin)
    async with open_socket(server, "stop") as socket:
        await socket.read_all()
    assert "sleep-type" not in await read_annotations(admin)
    async with open_socket(server, "ssh", options='{"wake": true}') as socket:
        await socket.close_stdin()
        await socket.read_all()
    assert actions(runner) == ["stop", "ssh"]  # the runner says that it does not run


async def test_a_client_that_disconnects_while_a_workspace_wakes_up_ends_only_its_session(
    server: Server, runner: FakeRunner, admin: httpx.AsyncClient
) -> None:
    await put_to_sleep(admin)
    async with open_socket(server, "ssh", options='{"wake": true}') as socket:
        await socket.receive()
        await socket.receive()
    async with asyncio.timeout(20):
        await runner.was_reset.wait()
    assert actions(runner) == ["up"]
    assert "sleep-type" not in await read_annotations(admin)
