"""The subresources of a workspace over a real server, with a runner that has dialed it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.harness.fake_runner import LOG, FakeRunner, connected_runner
from tests.harness.server_process import Server, running_server
from tests.live.workspace_setup import WORKSPACE, M, create_object, create_workspace, open_socket, wait_for_runner


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("sessions") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def runner_key(server: Server) -> str:
    with server.client() as admin:
        return create_workspace(admin)


@pytest.fixture
async def runner(server: Server, runner_key: str) -> AsyncIterator[FakeRunner]:
    async with connected_runner(server, "local", runner_key) as runner:
        await wait_for_runner(server)
        yield runner


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.async_client() as client:
        yield client


async def test_getstatus_has_the_json_of_the_runner_and_the_exit_code(server: Server, runner: FakeRunner) -> None:
    for name in ("getstatus", "get-status"):
        async with open_socket(server, name, options='{"containerStatus":true}') as socket:
            output = await socket.read_all()
        assert json.loads(output.stdout)["state"] == "Running"
        assert (output.exit_message, sorted(output.closed), output.code) == (b"\x00", [1, 3], 1000)
    request = runner.requests[-1]
    assert (request.action, request.name, request.namespace, request.user) == (
        "status",
        "dev",
        "service-p-web",
        "admin",
    )
    assert request.options == {"containerStatus": True}
    assert request.uid


async def test_up_streams_the_log_until_the_task_ends(server: Server, runner: FakeRunner) -> None:
    async with open_socket(server, "up", options='{"ide":"none"}', cliMode="true", debug="true") as socket:
        assert await socket.receive() == b'\x00{"message":"building"}\n'
        runner.finish_up.set()
        output = await socket.read_all()
    assert output.stderr == b'{"message":"a warning"}\n'
    assert output.exit_message == b"\x00"
    assert runner.requests[-1].options == {"ide": "none", "cliMode": True}
    assert runner.requests[-1].debug


async def test_a_negative_exit_code_is_zig_zag_encoded(server: Server, runner: FakeRunner) -> None:
    async with open_socket(server, "stop") as socket:
        assert (await socket.read_all()).exit_message == b"\x05"


async def test_ssh_carries_megabytes_both_ways_and_half_closes(server: Server, runner: FakeRunner) -> None:
    content = b"".join(sha256(b"%d" % index).digest() for index in range(100_000))
    async with open_socket(server, "ssh") as socket:

        async def write() -> None:
            for start in range(0, len(content), 32_000):
                await socket.send_stdin(content[start : start + 32_000])
            await socket.close_stdin()

        writing = asyncio.create_task(write())
        output = await socket.read_all()
        await writing
    assert sha256(output.stdout).digest() == sha256(content).digest()
    assert output.exit_message == bytes((14,))
    assert 1 in output.closed


async def test_a_client_that_disconnects_resets_its_stream_at_the_runner(server: Server, runner: FakeRunner) -> None:
    async with open_socket(server, "ssh") as socket:
        await socket.send_stdin(b"x")
        await socket.receive()
    async with asyncio.timeout(20):
        await runner.was_reset.wait()


@pytest.mark.long
async def test_a_client_that_reads_nothing_does_not_delay_others(server: Server, runner: FakeRunner) -> None:
    async with open_socket(server, "ssh") as stalled:

        async def write() -> None:
            while True:
                await stalled.send_stdin(bytes(32_000))

        writing = asyncio.create_task(write())
        try:
            for _ in range(50):
                async with open_socket(server, "getstatus") as socket:
                    assert (await socket.read_all()).exit_message == b"\x00"
        finally:
            writing.cancel()


@pytest.mark.parametrize(
    ("message", "code"),
    [(b"\x00x", 1002), (b"", 1002), (b"\x04" + bytes(32 * 1024), 1009), ("text", 1003)],
)
async def test_invalid_messages_of_clients_end_the_session(
    server: Server, runner: FakeRunner, message: bytes | str, code: int
) -> None:
    async with open_socket(server, "ssh") as socket:
        await socket.connection.send(message)
        assert (await socket.read_all()).code == code


async def test_a_session_ends_when_its_permission_is_revoked(server: Server, runner: FakeRunner) -> None:
    with server.client() as admin:
        create_object(admin, f"{M}/users", "User", "guest")
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "spec": {"user": "guest"}}
        created = admin.post(f"{M}/ownedaccesskeys", json={**body, "metadata": {"name": "guest-key"}})
        assert created.status_code == 201, created.text
        key = created.json()["spec"]["key"]
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(server, "ssh", key):
                pass
        assert refused.value.response.status_code == 403
        assert json.loads(refused.value.response.body or b"")["kind"] == "Status"
        share = [{"name": "guest", "users": ["guest"], "verbs": ["use"]}]
        merge = {"Content-Type": "application/merge-patch+json"}
        assert admin.patch(WORKSPACE, json={"spec": {"access": share}}, headers=merge).status_code == 200
        async with open_socket(server, "ssh", key) as socket:
            await socket.send_stdin(b"x")
            assert await socket.receive() == b"\x00x"
            assert admin.patch(WORKSPACE, json={"spec": {"access": []}}, headers=merge).status_code == 200
            output = await socket.read_all()
        assert output.code == 1008


async def test_reading_a_workspace_is_not_enough_for_its_subresources(server: Server, runner: FakeRunner) -> None:
    with server.client() as admin:
        create_object(admin, f"{M}/users", "User", "reader")
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "spec": {"user": "reader"}}
        created = admin.post(f"{M}/ownedaccesskeys", json={**body, "metadata": {"name": "reader-key"}})
        entry = {"name": "reader", "users": ["reader"], "verbs": ["get", "create"], "subresources": ["*"]}
        merge = {"Content-Type": "application/merge-patch+json"}
        assert admin.patch(WORKSPACE, json={"spec": {"access": [entry]}}, headers=merge).status_code == 200
        with server.client(created.json()["spec"]["key"]) as reader:
            assert reader.get(WORKSPACE).status_code == 200
            for name in ("tasks", "log", "state", "troubleshoot", "download?path=/etc", "ports", "port", "snapshots"):
                assert reader.get(f"{WORKSPACE}/{name}").status_code == 403
            for name in ("up", "restore", "deletesnapshot", "move", "sshcertificate"):
                assert reader.post(f"{WORKSPACE}/{name}", json={}).status_code == 403
            entry["verbs"] = ["get", "use"]
            assert admin.patch(WORKSPACE, json={"spec": {"access": [entry]}}, headers=merge).status_code == 200
            assert (await asyncio.to_thread(reader.get, f"{WORKSPACE}/ports")).status_code == 200
            assert reader.post(f"{WORKSPACE}/move", json={"spec": {"runner": "other"}}).status_code == 403


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        ({"projects": [{"project": "web"}]}, 200),
        ({"projects": [{"project": "other"}]}, 403),
        ({"allowServiceCli": True}, 403),
        ({}, 403),
    ],
)
async def test_the_scope_of_a_key_restricts_the_subresources(
    server: Server, runner: FakeRunner, scope: dict[str, object], status: int
) -> None:
    with server.client() as admin:
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "k-"}}
        created = admin.post(f"{M}/ownedaccesskeys", json={**body, "spec": {"user": "admin", "scope": scope}})
        assert created.status_code == 201, created.text
        with server.client(created.json()["spec"]["key"]) as scoped:
            assert (await asyncio.to_thread(scoped.get, f"{WORKSPACE}/tasks")).status_code == status


async def test_open_streams_of_a_user_are_limited(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", watches_per_user=3) as server:
        with server.client() as admin:
            key = create_workspace(admin)
        async with connected_runner(server, "local", key), AsyncExitStack() as stack:
            await wait_for_runner(server)
            for _ in range(3):
                socket = await stack.enter_async_context(open_socket(server, "ssh"))
                await socket.send_stdin(b"x")
                await socket.receive()
            with pytest.raises(InvalidStatus) as refused:
                await stack.enter_async_context(open_socket(server, "ssh"))
            assert refused.value.response.status_code == 429


async def test_tasks_are_started_listed_and_cancelled(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    started = await admin.post(f"{WORKSPACE}/up", json={"spec": {"options": '{"recreate":true}', "debug": True}})
    assert started.status_code == 201, started.text
    assert started.json()["status"] == {"taskId": "task-1"}
    assert (runner.requests[-1].options, runner.requests[-1].detach) == ({"recreate": True}, True)
    assert (await admin.post(f"{WORKSPACE}/stop", json={})).json()["status"] == {"taskId": "task-2"}
    tasks = (await admin.get(f"{WORKSPACE}/tasks")).json()["tasks"]
    assert tasks == [{"id": "task-1", "type": "up", "status": "Running"}]
    assert (await admin.post(f"{WORKSPACE}/cancel", json={"taskId": "task-1"})).status_code == 201
    missing = await admin.post(f"{WORKSPACE}/cancel", json={"taskId": "task-9"})
    assert (missing.status_code, missing.json()["message"]) == (404, "there is no task task-9")


async def test_the_log_is_replayed_from_any_offset_without_a_gap(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    lines = (await admin.get(f"{WORKSPACE}/log?taskID=task-1")).text.splitlines()
    entries = [json.loads(line) for line in lines]
    assert b"".join(base64.b64decode(entry["bytes"]) for entry in entries if entry["type"] == 0) == LOG
    assert entries[-1] == {"type": 6, "exitCode": 0}
    middle = entries[1]["offset"]
    rest = (await admin.get(f"{WORKSPACE}/log?taskID=task-1&offset={middle}")).text.splitlines()
    replayed = b"".join(base64.b64decode(entry["bytes"]) for entry in map(json.loads, rest) if entry["type"] == 0)
    assert replayed == LOG[middle:]
    assert (await admin.get(f"{WORKSPACE}/log?taskID=no")).status_code == 404


async def test_the_log_of_a_service_is_the_same_stream(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    first, last = map(json.loads, (await admin.get(f"{WORKSPACE}/log?service=db")).text.splitlines())
    assert base64.b64decode(first["bytes"]) == b"log of db\n" and last == {"type": 6, "exitCode": 0}


async def test_the_state_is_stored_by_the_runner(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    state = "x" * 500_000
    stored = await admin.post(f"{WORKSPACE}/state", json={"state": state})
    assert stored.status_code == 201, stored.text
    assert (await admin.get(f"{WORKSPACE}/state")).json()["state"] == state


async def test_snapshots_are_those_of_the_runner(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    found = (await admin.get(f"{WORKSPACE}/snapshots")).json()
    assert found["snapshots"] == [{"id": "s1", "createdAt": "2026-01-02T00:00:00Z", "bytes": 5}]
    wanted = {"snapshot": "s1", "path": "/opt"}
    restored = await admin.post(f"{WORKSPACE}/restore", json={"spec": wanted})
    assert (restored.status_code, restored.json()["status"]) == (201, {"taskId": "task-3"})
    deleted = await admin.post(f"{WORKSPACE}/deletesnapshot", json={"spec": {"snapshot": "s1"}})
    assert deleted.status_code == 201
    sent = [(each.action, each.options, each.user) for each in runner.requests[-2:]]
    assert sent == [("restore", wanted, "admin"), ("delete-snapshot", {"snapshot": "s1"}, "admin")]
    missing = await admin.post(f"{WORKSPACE}/deletesnapshot", json={"spec": {"snapshot": "s2"}})
    assert (missing.status_code, missing.json()["message"]) == (404, "there is no snapshot s2")


async def test_troubleshoot_has_the_workspace_and_the_report(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    found = (await admin.get(f"{WORKSPACE}/troubleshoot")).json()
    assert found["workspace"]["metadata"]["name"] == "dev"
    assert (found["report"], found["errors"], found["runner"]["name"]) == ({"engine": "fake"}, [], "local")


async def test_a_download_is_complete_or_fails(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    whole = await admin.get(f"{WORKSPACE}/download?path=/whole")
    assert (whole.headers["content-type"], whole.content) == ("application/x-tar", bytes(3_000_000))
    missing = await admin.get(f"{WORKSPACE}/download?path=/missing")
    assert (missing.status_code, missing.json()["message"]) == (400, "tar: /missing: no such file")
    with pytest.raises(httpx.HTTPError):
        await admin.get(f"{WORKSPACE}/download?path=/part")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("ssh", "Upgrade request required"),
        ("log?offset=-1", "offset:"),
        ("log?service=db&follow=true", "service:"),
        ("download", "path:"),
        (f"log?{urlencode({'taskID': 'x' * 200})}", "taskID:"),
    ],
)
async def test_invalid_requests_are_rejected(
    admin: httpx.AsyncClient, runner: FakeRunner, path: str, message: str
) -> None:
    response = await admin.get(f"{WORKSPACE}/{path}")
    assert response.status_code == 400
    assert message in response.json()["message"]


@pytest.mark.parametrize("options", ["[]", "{", '{"x":"' + "x" * 9000 + '"}'])
async def test_invalid_options_are_rejected_before_the_upgrade(
    server: Server, runner: FakeRunner, options: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with open_socket(server, "up", options=options):
            pass
    assert refused.value.response.status_code == 400
    assert b"options:" in (refused.value.response.body or b"")


async def test_without_its_runner_a_workspace_answers_503_with_the_time(
    server: Server, runner_key: str, admin: httpx.AsyncClient
) -> None:
    async with connected_runner(server, "local", runner_key):
        await wait_for_runner(server)
        assert (await admin.get(f"{WORKSPACE}/tasks")).status_code == 200
    async with asyncio.timeout(20):
        while (response := await admin.get(f"{WORKSPACE}/tasks")).status_code == 200:
            pass
    assert response.status_code == 503
    assert 'runner "local" is not connected since 20' in response.json()["message"]
    assert response.headers["retry-after"]
    found = (await admin.get(f"{WORKSPACE}/troubleshoot")).json()
    assert "is not connected" in found["errors"][0]["message"]


async def test_only_the_key_of_the_runner_opens_its_link(server: Server, runner_key: str) -> None:
    with server.client() as admin:
        create_object(admin, f"{M}/runners", "Runner", "other")
        other = admin.get(f"{M}/runners/other/accesskey").json()["accessKey"]
    for key in (server.key, other):
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(server, "link", key, f"{M}/runners/local"):
                pass
        assert refused.value.response.status_code == 403


async def test_a_second_process_with_the_same_key_takes_over_for_good(server: Server, runner_key: str) -> None:
    async with (
        connected_runner(server, "local", runner_key, "old") as old,
        connected_runner(server, "local", runner_key, "new") as new,
    ):
        async with asyncio.timeout(20):
            await old.superseded.wait()
            again = FakeRunner("old")
            await again.run(lambda: server, "local", runner_key)
        assert again.superseded.is_set()
        assert new.connected.is_set()
        assert new.link_count == 1
