"""What the server requests over streams: tasks with their logs, status, cancel, state, and sessions."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.requests import OpenRequest, Refused, ResponseHead
from fairlead.links.streams import Data, Eof, Exit
from fairlead.runner.actions import RunnerActions
from fairlead.runner.decisions import FORCE
from fairlead.runner.engines.contract import EngineError, ExecOptions, Process, Reason, Snapshot, TaskContext
from fairlead.runner.status import find_condition
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.fake_engine import FakeEngine
from tests.runner.test_workspaces import RUNS, SOURCE


class FakeStream:
    """The runner's end of a stream, and what it has sent. `feed` is what the server sends; None ends the stream."""

    def __init__(self, *messages: Data | Eof | Exit | None) -> None:
        self.incoming: asyncio.Queue[Data | Eof | Exit | None] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.output: dict[int, bytes] = {STDOUT: b"", STDERR: b""}
        self.closed: list[int] = []
        self.details: dict[str, Any] = {}
        self.exit_code: int | None = None
        self.reset_reason = ""

    async def accept(self, details: dict[str, Any]) -> None:
        self.details = details

    async def receive(self) -> Data | Eof | Exit | None:
        return await self.incoming.get()

    async def send(self, channel: int, data: bytes) -> None:
        self.output[channel] += data

    async def send_head(self, head: ResponseHead) -> None:
        raise NotImplementedError

    async def send_eof(self, channel: int) -> None:
        self.closed.append(channel)

    async def send_exit(self, code: int) -> None:
        self.exit_code = code

    async def reset(self, reason: str) -> None:
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        self.reset_reason = reason

    def decode(self) -> Any:
        return json.loads(self.output[STDOUT])


@pytest.fixture
async def actions(runner: RunnerFixture) -> AsyncIterator[RunnerActions]:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    yield RunnerActions(runner.services, runner.workspaces)


async def request(actions: RunnerActions, action: str, **fields: Any) -> FakeStream:
    stream = FakeStream(*fields.pop("messages", ()))
    await actions.handle_open(OpenRequest(action, **{"uid": "u", "user": "ada"} | fields), stream)
    return stream


async def test_an_up_streams_its_log_and_exits_with_0(actions: RunnerActions, runner: RunnerFixture) -> None:
    stream = await request(actions, "up")
    assert stream.exit_code == 0
    assert stream.details["taskId"] == runner.record().tasks[0].id
    assert b"Clone of u" in stream.output[STDOUT] and b"up succeeded" in stream.output[STDOUT]
    assert runner.record().tasks[0].user == "ada"
    status = await request(actions, "status")
    assert status.decode() == {"id": "u", "context": "default", "provider": "fake", "state": "Running"}


async def test_ups_that_join_one_under_way_get_its_whole_log(actions: RunnerActions, runner: RunnerFixture) -> None:
    first = asyncio.create_task(request(actions, "up"))
    await asyncio.sleep(2)
    second = await request(actions, "up")
    assert (await first).output == second.output
    assert runner.engine.calls == [("up", "u")]


async def test_a_failed_up_exits_with_1(actions: RunnerActions, runner: RunnerFixture) -> None:
    runner.engine.failures["Build"] = EngineError(Reason.BUILD_FAILED, "no such image")
    stream = await request(actions, "up")
    assert stream.exit_code == 1
    assert b"no such image" in stream.output[STDOUT]


async def test_an_up_goes_on_without_its_stream(actions: RunnerActions, runner: RunnerFixture) -> None:
    following = asyncio.create_task(request(actions, "up"))
    await asyncio.sleep(1.5)
    following.cancel()
    await eventually(lambda: runner.api.summary("u") == RUNS)


async def test_a_detached_up_returns_its_task_whose_log_is_read_by_offset(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    started = await request(actions, "up", detach=True)
    task_id = started.decode()["taskId"]
    assert started.exit_code == 0
    await asyncio.sleep(1.5)
    part = await request(actions, "log", task_id=task_id)
    rest = await request(actions, "log", task_id=task_id, options={"offset": len(part.output[STDOUT]), "follow": True})
    whole = await request(actions, "log", task_id=task_id)
    assert part.output[STDOUT] + rest.output[STDOUT] == whole.output[STDOUT]
    assert rest.details["offset"] == len(part.output[STDOUT])
    assert b"Start of u" not in part.output[STDOUT] and b"Start of u" in rest.output[STDOUT]
    (listed,) = (await request(actions, "tasks", task_id=task_id)).decode()["tasks"]
    assert (listed["id"], listed["type"], listed["status"]) == (task_id, "up", "Succeeded")
    assert json.loads(b64decode(listed["result"]))["step"] == "Start"


async def test_the_log_of_a_service_is_that_of_the_engine(
    actions: RunnerActions, runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_service_log(uid: str, service: str) -> bytes:
        if service != "db":
            raise EngineError(Reason.NOT_RUNNING, f"the workspace has no service {service!r}; it has db")
        return f"{service} of {uid}".encode()

    await request(actions, "up")
    with pytest.raises(Refused, match="workspaces of this engine have no services"):
        await request(actions, "service-log", options={"service": "db"})
    monkeypatch.setattr(runner.engine, "read_service_log", read_service_log, raising=False)
    stream = await request(actions, "service-log", options={"service": "db"})
    assert (stream.output[STDOUT], stream.exit_code) == (b"db of u", 0)
    with pytest.raises(Refused, match="has no service 'other'") as refused:
        await request(actions, "service-log", options={"service": "other"})
    assert refused.value.code == 409


class SnapshotStore:
    """The snapshots of the fake engine. A restore lasts until `finish` is set."""

    def __init__(self, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = [Snapshot("s1", datetime(2026, 1, 2, tzinfo=UTC), 5)]
        self.restored: list[tuple[str, str, str]] = []
        self.finish = asyncio.Event()
        for name, method in {
            "list_snapshots": self.list,
            "restore": self.restore,
            "delete_snapshot": self.delete,
        }.items():
            monkeypatch.setattr(engine, name, method, raising=False)

    async def list(self, uid: str) -> Sequence[Snapshot]:
        return self.found

    async def restore(self, uid: str, snapshot: str, path: str, task: TaskContext) -> None:
        async with task.step("Restore", 60):
            await self.finish.wait()
        self.restored.append((uid, snapshot, path))

    async def delete(self, uid: str, snapshot: str) -> None:
        self.found = [each for each in self.found if each.id != snapshot]


@pytest.fixture
def snapshots(runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch) -> SnapshotStore:
    return SnapshotStore(runner.engine, monkeypatch)


WANTED = {"snapshot": "s1", "path": "/opt"}


async def test_snapshots_are_taken_listed_restored_and_deleted(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    assert (await request(actions, "snapshots")).decode() == {"snapshots": []}
    await request(actions, "up", options={"recreate": True, "snapshot": True})
    await request(actions, "up")
    assert [each.takes_snapshot for each in runner.engine.specs] == [True, False]
    listed = (await request(actions, "snapshots")).decode()
    assert listed == {"snapshots": [{"id": "s1", "createdAt": "2026-01-02T00:00:00Z", "bytes": 5}]}
    snapshots.finish.set()
    restored = await request(actions, "restore", options=WANTED)
    assert (restored.exit_code, snapshots.restored) == (0, [("u", "s1", "/opt")])
    assert b"restore succeeded" in restored.output[STDOUT]
    assert (await request(actions, "delete-snapshot", options={"snapshot": "s1"})).exit_code == 0
    assert (await request(actions, "snapshots")).decode() == {"snapshots": []}
    with pytest.raises(Refused, match="the workspace has no snapshot 's1'; it has none") as refused:
        await request(actions, "delete-snapshot", options={"snapshot": "s1"})
    assert refused.value.code == 404
    assert len(runner.engine.specs) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "/opt"}, "snapshot: must be the ID"),
        ({"snapshot": 1, "path": "/opt"}, "snapshot: must be the ID"),
        ({"snapshot": "s1"}, "path: must be an absolute path"),
        ({"snapshot": "s1", "path": "opt"}, "path: must be an absolute path"),
        ({"snapshot": "s1", "path": "/a\0b"}, "path: must be an absolute path"),
        ({"snapshot": "s1", "path": "/" * 4097}, "path: has 4097 characters; it can have 4096"),
    ],
)
async def test_what_a_restore_copies_is_checked(
    actions: RunnerActions, snapshots: SnapshotStore, options: dict[str, Any], problem: str
) -> None:
    await request(actions, "up")
    with pytest.raises(Refused, match=problem) as refused:
        await request(actions, "restore", options=options)
    assert refused.value.code == 400


@pytest.mark.parametrize("state", ["new", "stopped", "asleep"])
async def test_a_restore_starts_and_wakes_nothing(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore, state: str
) -> None:
    if state != "new":
        await request(actions, "up")
    if state == "stopped":
        await request(actions, "stop")
    elif state == "asleep":
        runner.api.annotate("u", **{FORCE: "true"})
        await eventually(lambda: runner.api.summary("u")[:2] == ("Sleeping", "Stopped"))
    before = runner.record()
    with pytest.raises(Refused, match="not running, and a restore does not start it") as refused:
        await request(actions, "restore", options=WANTED)
    assert refused.value.code == 409
    assert runner.record() == before
    assert runner.containers() == ([] if state == "new" else ["u"]) and snapshots.restored == []


async def test_a_restore_changes_nothing_that_is_wanted(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    await request(actions, "up", options={"devContainerPath": "a.json"})
    before = runner.record()
    snapshots.finish.set()
    await request(actions, "restore", options=WANTED)
    after = runner.record()
    assert [each.type for each in after.tasks] == ["up", "restore"]
    assert msgspec.structs.replace(after, tasks=before.tasks) == before


async def test_an_up_does_not_join_a_restore_but_follows_it(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    await request(actions, "up")
    restore = asyncio.create_task(request(actions, "restore", options=WANTED))
    await asyncio.sleep(1)
    up = asyncio.create_task(request(actions, "up", options={"recreate": True}))
    await asyncio.sleep(1)
    assert [(each.type, each.status) for each in runner.record().tasks[1:]] == [
        ("restore", "Running"),
        ("up", "Running"),
    ]
    assert len(runner.engine.specs) == 1
    snapshots.finish.set()
    assert ((await restore).exit_code, (await up).exit_code) == (0, 0)
    assert snapshots.restored == [("u", "s1", "/opt")] and runner.engine.specs[1].recreate


@pytest.mark.parametrize("type", ["up", "restore"])
async def test_a_restore_does_not_join_another_task(
    actions: RunnerActions, snapshots: SnapshotStore, type: str
) -> None:
    await request(actions, "up")
    options = WANTED if type == "restore" else {"recreate": True}
    first = asyncio.create_task(request(actions, type, options=options))
    await asyncio.sleep(1.5)
    with pytest.raises(Refused, match=rf"another task \({type}\) is under way; wait") as refused:
        await request(actions, "restore", options={**WANTED, "path": "/usr"})
    assert refused.value.code == 409
    snapshots.finish.set()
    assert (await first).exit_code == 0


async def test_a_stop_cancels_a_restore(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    await request(actions, "up")
    restore = asyncio.create_task(request(actions, "restore", options=WANTED))
    await asyncio.sleep(1)
    assert (await request(actions, "stop")).exit_code == 0
    assert (await restore).exit_code == 1
    await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    assert snapshots.restored == []


async def test_a_restore_goes_on_after_a_restart_of_the_runner(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    await request(actions, "up")
    following = asyncio.create_task(request(actions, "restore", options=WANTED))
    await asyncio.sleep(1)
    following.cancel()
    await runner.kill()
    snapshots.finish.set()
    runner.start()
    await eventually(lambda: runner.record().tasks[-1].status == "Succeeded")
    assert snapshots.restored == [("u", "s1", "/opt")]
    assert runner.api.summary("u")[:2] == ("Ready", "Running")


@pytest.mark.parametrize(
    ("under_way", "options", "difference"),
    [
        ({"recreate": True}, {"snapshot": True}, "without snapshot"),
        ({}, {"recreate": True}, "without recreate"),
        ({}, {"workspaceEnv": ["A=1"]}, "without workspaceEnv"),
        ({"devContainerPath": "a.json"}, {"devContainerPath": "b.json"}, "with another devContainerPath"),
        ({"reset": True, "source": "image:a"}, {"reset": True, "source": "image:b"}, "with another source"),
    ],
)
async def test_an_up_that_does_something_else_is_not_joined(
    actions: RunnerActions, under_way: dict[str, Any], options: dict[str, Any], difference: str
) -> None:
    first = asyncio.create_task(request(actions, "up", options=under_way))
    await asyncio.sleep(2)
    with pytest.raises(Refused, match=f"another `up` is under way, {difference}; wait") as refused:
        await request(actions, "up", options=options)
    assert refused.value.code == 409
    assert (await request(actions, "up", options=under_way)).exit_code == 0
    assert (await first).exit_code == 0


async def test_an_up_for_a_changed_template_does_not_join_one_that_keeps_the_container(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    await request(actions, "up")
    await request(actions, "stop")
    change = {"provider": {"name": "fake", "options": {"a": {"value": "b"}}}}
    runner.api.change("u", status={"instance": change})
    await eventually(lambda: find_condition(runner.api.workspaces["u"], "TemplateApplied").get("status") == "False")
    first = asyncio.create_task(request(actions, "up", options={"keepContainer": True}))
    await asyncio.sleep(1)
    with pytest.raises(Refused, match="which keeps the container although the template has changed"):
        await request(actions, "up")
    assert (await request(actions, "up", options={"keepContainer": True})).exit_code == 0
    assert (await first).exit_code == 0


async def test_snapshots_of_the_earlier_owner_are_not_for_the_new_one(
    actions: RunnerActions, runner: RunnerFixture, snapshots: SnapshotStore
) -> None:
    await request(actions, "up")
    assert len((await request(actions, "snapshots")).decode()["snapshots"]) == 1
    runner.api.change("u", spec={"owner": {"user": "grace"}})
    await eventually(lambda: runner.record().is_for_other_owner)
    assert (await request(actions, "snapshots")).decode() == {"snapshots": []}
    with pytest.raises(Refused, match="has no snapshot 's1'"):
        await request(actions, "delete-snapshot", options={"snapshot": "s1"})
    assert len(snapshots.found) == 1


async def test_an_engine_without_snapshots_says_so(actions: RunnerActions, runner: RunnerFixture) -> None:
    await request(actions, "up")
    for action in ("snapshots", "restore", "delete-snapshot"):
        with pytest.raises(Refused, match="the engine fake has no snapshots") as refused:
            await request(actions, action, options=WANTED)
        assert refused.value.code == 409
    failed = await request(actions, "up", options={"recreate": True, "snapshot": True})
    assert failed.exit_code == 1 and b"the engine fake has no snapshots" in failed.output[STDOUT]
    assert len(runner.engine.specs) == 1


async def test_stop_and_delete_run_to_their_end(actions: RunnerActions, runner: RunnerFixture) -> None:
    await request(actions, "up")
    assert (await request(actions, "stop")).exit_code == 0
    assert (await request(actions, "status")).decode()["state"] == "Stopped"
    assert (await request(actions, "stop")).exit_code == 0
    assert (await request(actions, "delete")).exit_code == 0
    assert (await request(actions, "status")).decode()["state"] == "NotFound"
    assert (runner.containers(), runner.data()) == ([], "")
    assert "u" in runner.api.workspaces
    assert (await request(actions, "up")).exit_code == 0


async def test_a_task_is_cancelled_by_its_id(actions: RunnerActions, runner: RunnerFixture) -> None:
    task_id = (await request(actions, "up", detach=True)).decode()["taskId"]
    await asyncio.sleep(1.5)
    assert (await request(actions, "cancel", task_id=task_id)).exit_code == 0
    await eventually(lambda: runner.api.summary("u")[2] == "Cancelled")
    with pytest.raises(Refused) as refused:
        await request(actions, "cancel", task_id=task_id)
    assert refused.value.code == 404


async def test_the_state_of_clients_is_stored(actions: RunnerActions, runner: RunnerFixture) -> None:
    assert (await request(actions, "state")).decode() == {"state": ""}
    await request(actions, "set-state", messages=(Data(STDIN, b"a"), Data(STDIN, b"b"), Eof(STDIN)))
    await runner.kill()
    runner.start()
    await asyncio.sleep(0.1)
    again = RunnerActions(runner.services, runner.workspaces)
    assert (await request(again, "state")).decode() == {"state": "ab"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"action": "up", "uid": "missing"}, 503),
        ({"action": "dance"}, 501),
        ({"action": "log"}, 404),
        ({"action": "log", "task_id": "missing"}, 404),
        ({"action": "exec"}, 409),
        ({"action": "port", "options": {"port": 0}}, 400),
    ],
)
async def test_what_cannot_be_served_is_refused(actions: RunnerActions, fields: dict[str, Any], code: int) -> None:
    with pytest.raises(Refused) as refused:
        await request(actions, **fields)
    assert refused.value.code == code


# --- sessions ---------------------------------------------------------------------------------------------------------


class FakeProcess:
    """Echoes its input, and ends with it. Implements `Process`, and its own stdin and stdout."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self
        self.stderr = _Empty()
        self.events: list[object] = []
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._ended = asyncio.Event()
        self.is_killed = False

    async def write(self, data: bytes, /) -> None:
        self._chunks.put_nowait(data)

    async def close(self) -> None:
        self._chunks.put_nowait(b"")
        self._ended.set()

    async def read(self, n: int = -1, /) -> bytes:
        return await self._chunks.get()

    async def resize(self, columns: int, rows: int) -> None:
        self.events.append((columns, rows))

    async def send_signal(self, name: str) -> None:
        self.events.append(name)

    async def wait(self) -> int:
        await self._ended.wait()
        return 137 if self.is_killed else 7

    async def kill(self) -> None:
        self.is_killed = self.is_killed or not self._ended.is_set()
        await self.close()


class _Empty:
    async def read(self, n: int = -1, /) -> bytes:
        return b""


@pytest.fixture
async def process(actions: RunnerActions, runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    """The process that each exec starts, in a workspace that runs."""
    await request(actions, "up")
    found = FakeProcess()

    async def start(uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        found.events.append((tuple(command), options.tty))
        return found

    monkeypatch.setattr(runner.engine, "exec", start)
    return found


async def test_a_session_passes_on_input_output_and_the_exit_code(actions: RunnerActions, process: FakeProcess) -> None:
    messages = (
        Data(STDIN, b"hello"),
        Eof(STDIN),
    )
    stream = await request(actions, "exec", options={"command": ["cat"], "tty": True}, messages=messages)
    assert (stream.output[STDOUT], stream.exit_code) == (b"hello", 7)
    assert sorted(stream.closed) == [STDOUT, STDERR]
    assert process.events == [(("cat",), True)]


async def test_a_session_whose_stream_ends_leaves_no_process(actions: RunnerActions, process: FakeProcess) -> None:
    await request(actions, "exec", options={"command": "sleep 1000"}, messages=(Data(STDIN, b"x"), None))
    assert process.is_killed
    assert process.events == [(("sleep", "1000"), False)]


async def test_a_terminal_is_resized_by_the_name_of_its_session(actions: RunnerActions, process: FakeProcess) -> None:
    stream = FakeStream()
    options = {"command": ["sh"], "tty": True, "session": "s1"}
    session = asyncio.create_task(actions.handle_open(OpenRequest("exec", uid="u", options=options), stream))
    await asyncio.sleep(0.1)
    size = {"session": "s1", "columns": 100, "rows": 30}
    assert (await request(actions, "resize", options=size)).exit_code == 0
    for options, code in (({**size, "session": "s2"}, 404), ({**size, "rows": 0}, 400), ({**size, "rows": "x"}, 400)):
        with pytest.raises(Refused) as refused:
            await request(actions, "resize", options=options)
        assert refused.value.code == code
    stream.incoming.put_nowait(Eof(STDIN))
    await session
    with pytest.raises(Refused) as refused:
        await request(actions, "resize", options=size)
    assert refused.value.code == 404
    assert process.events[1:] == [(100, 30)]


@pytest.mark.parametrize("name", ["A;id;B", "$(id)", "A B", "", "1A", "A\n", "\u00c4"])
async def test_a_session_with_an_unsafe_name_of_a_variable_is_refused(
    actions: RunnerActions, process: FakeProcess, name: str
) -> None:
    with pytest.raises(Refused) as refused:
        await request(actions, "exec", options={"command": ["env"], "environment": {"GOOD": "1", name: "x"}})
    assert (refused.value.code, process.events) == (400, [])


async def test_a_download_is_an_archive_made_inside(actions: RunnerActions, process: FakeProcess) -> None:
    await request(actions, "download", options={"path": "/work/a b/"}, messages=(Eof(STDIN),))
    assert process.events == [(("tar", "-cf", "-", "-C", "/work", "--", "a b"), False)]


async def test_without_disk_no_workspace_is_created_and_those_that_exist_start(
    actions: RunnerActions, runner: RunnerFixture
) -> None:
    runner.free_bytes = 99
    with pytest.raises(Refused, match="free disk, and needs") as refused:
        await request(actions, "up")
    assert refused.value.code == 409 and runner.engine.calls == []
    runner.free_bytes = 100
    assert (await request(actions, "up")).exit_code == 0
    assert (await request(actions, "stop")).exit_code == 0
    runner.free_bytes = 0
    assert (await request(actions, "up")).exit_code == 0
    recreated = await request(actions, "up", options={"recreate": True})
    assert recreated.exit_code == 1 and b"free disk" in recreated.output[STDOUT]
    assert runner.record().last_task is not None
    assert (await request(actions, "delete")).exit_code == 0
