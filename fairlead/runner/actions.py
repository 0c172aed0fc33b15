"""What the server requests of the runner: tasks, logs and sessions.

Tasks do not depend on their stream: when it ends, the task goes on, and its log can be read again by offset. Sessions
end with their stream, and leave no process behind.
"""

import shlex
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from posixpath import basename, dirname, normpath
from typing import Any

from fairlead.core import json
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.core.workspaces import DISCARD, MOVE_LOSSES, RETAIN
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Eof
from fairlead.runner.activity import KEEPALIVE_BYTES, MeteredStream
from fairlead.runner.desired import parse_source
from fairlead.runner.engines.contract import (
    ContainerState,
    Engine,
    EngineError,
    ExecOptions,
    Process,
    ServiceEngine,
    Snapshot,
    SnapshotEngine,
    describe_missing_snapshot,
    is_variable_name,
)
from fairlead.runner.git.service import GitCredentials
from fairlead.runner.journal import DELETE, FAILED, RESTORE, RUNNING, STOP, UP, TaskRecord
from fairlead.runner.move_losses import find_losses
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices
from fairlead.runner.sessions import run_port, run_process
from fairlead.runner.task_log import TaskLog
from fairlead.runner.web_ide import WebIdes
from fairlead.runner.work import require_snapshots
from fairlead.runner.workspaces import WorkspaceSet

MAX_STATE_BYTES = 1536 * 1024
"""As much as the server accepts."""
MAX_TERMINAL = 4096
MAX_RESTORED_PATH = 4096
"""Characters. No longer path can be opened."""
SESSIONS = ("exec", "ssh")
"""Actions in which a user may run git."""
Action = Callable[[WorkspaceReconciler, OpenRequest, Stream], Awaitable[None]]


class RunnerActions:
    """`others` are actions that other modules serve."""

    def __init__(
        self,
        services: RunnerServices,
        workspaces: WorkspaceSet,
        others: Mapping[str, Action] | None = None,
        git: GitCredentials | None = None,
    ) -> None:
        self._services = services
        self._git = git
        self._workspaces = workspaces
        self._web_ides = WebIdes()
        self._terminals: dict[tuple[str, str], Process] = {}
        """Processes with a terminal, by the uid of the workspace and the name that the server gave the session."""
        self._actions: Mapping[str, Action] = {
            **dict.fromkeys((UP, STOP, DELETE), self._run_task),
            **{"status": self._send_status, "tasks": self._send_tasks, "cancel": self._cancel, "log": self._send_log},
            **{"service-log": self._send_service_log, RESTORE: self._restore},
            **{"snapshots": self._send_snapshots, "delete-snapshot": self._delete_snapshot},
            MOVE_LOSSES: self._send_losses,
            **{"exec": self._exec, "resize": self._resize},
            **{"port": self._forward_port, "download": self._download},
            **{"state": self._send_state, "set-state": self._store_state, "troubleshoot": self._troubleshoot},
            **(others or {}),
        }

    async def close(self) -> None:
        await self._web_ides.close()

    async def handle_open(self, request: OpenRequest, stream: Stream) -> None:
        """Serves one stream to its end. Raises Refused before it is accepted."""
        if request.action in (RETAIN, DISCARD):  # what is no workspace of this runner any more
            await self._handle_orphan(request, stream)
            return
        action = self._actions.get(request.action)
        if action is None:
            raise Refused(501, f"this runner does not support {request.action}; update it")
        workspace = self._workspaces.find(request.uid)
        if workspace is None or workspace.record is None:
            raise Refused(503, "the runner has not taken this workspace yet; try again in a moment")
        if self._git is not None and request.action in SESSIONS:
            await self._git.offer(workspace)
        try:
            await action(workspace, request, stream)
        except EngineError as error:
            await stream.send(STDERR, f"{error.message}\n".encode())
            await stream.send_exit(1)

    # --- tasks ------------------------------------------------------------------------------------------------------

    async def _run_task(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        if request.action == UP:
            await workspace.wait_for_version(request.resource_version)
            await self._require_disk(workspace)
            try:
                task_id = workspace.request_up(request.options, request.user)
            except EngineError as error:
                raise Refused(409, error.message) from error
        elif request.action == STOP:
            task_id = workspace.request_stop(request.user)
        else:
            task_id = workspace.request_delete(request.user)
        await self._send_task(workspace, task_id, request, stream)

    async def _send_task(
        self, workspace: WorkspaceReconciler, task_id: str, request: OpenRequest, stream: Stream
    ) -> None:
        """The task that was requested: its ID, or its log up to its end."""
        if request.detach:
            await send_json(stream, {"taskId": task_id})
            return
        await stream.accept({"taskId": task_id})
        await self._follow_log(workspace, task_id, 0, stream)

    async def _require_disk(self, workspace: WorkspaceReconciler) -> None:
        """Refuses to create a workspace without space for it. What exists may start: that needs little."""
        shortage = self._services.disk.find_shortage()
        if not shortage or workspace.is_busy:
            return
        engine = self._find_engine(workspace)
        if engine is None or (await engine.status(workspace.uid)).state is ContainerState.NOT_FOUND:
            raise Refused(409, shortage)

    async def _send_log(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        task = _find_task(workspace, request.task_id)
        offset = int(request.options.get("offset") or 0)
        log = self._find_log(workspace, task.id)
        offset = min(max(offset, log.start), log.end)
        await stream.accept({"offset": offset, "taskId": task.id})
        if request.options.get("follow"):
            await self._follow_log(workspace, task.id, offset, stream)
            return
        while (chunk := log.read(offset)).data:
            await stream.send(STDOUT, chunk.data)
            offset = chunk.offset + len(chunk.data)
        await stream.send_exit(_exit_code(workspace, task.id))

    async def _follow_log(self, workspace: WorkspaceReconciler, task_id: str, offset: int, stream: Stream) -> None:
        """Sends the log up to the end of the task, and exits with 1 if the task failed."""
        async for chunk in self._find_log(workspace, task_id).follow(offset):
            if chunk.offset > offset and offset:
                await stream.reset(f"the log before offset {chunk.offset} is deleted; read on from there")
                return
            await stream.send(STDOUT, chunk.data)
            offset = chunk.offset + len(chunk.data)
        await stream.send_exit(_exit_code(workspace, task_id))

    def _find_log(self, workspace: WorkspaceReconciler, task_id: str) -> TaskLog:
        """The log of a task. It is followed to the end of the task, also if no process works on the task yet."""
        record, logs = workspace.record, self._services.logs
        task = record.find_task(task_id) if record is not None else None
        is_running = task is not None and task.status == RUNNING
        return (logs.open if is_running else logs.get)(workspace.uid, task_id)

    async def _send_service_log(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        engine = self._require_engine(workspace)
        if not isinstance(engine, ServiceEngine):
            raise Refused(404, "workspaces of this engine have no services")
        try:
            log = await engine.read_service_log(workspace.uid, str(request.options.get("service") or ""))
        except EngineError as error:
            raise Refused(409, error.message) from error
        await stream.send(STDOUT, log)
        await stream.send_exit(0)

    async def _send_tasks(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        record = workspace.record
        tasks = [each for each in (record.tasks if record else ()) if request.task_id in ("", each.id)]
        await send_json(stream, {"tasks": [_describe_task(each) for each in reversed(tasks)]})

    async def _cancel(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        if not workspace.request_cancel(request.task_id):
            raise Refused(404, f"there is no task {request.task_id} under way")
        await stream.send_exit(0)

    # --- moves --------------------------------------------------------------------------------------------------------

    async def _send_losses(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        """What is lost when the workspace moves to another runner, and the source that it has here."""
        record, engine = workspace.record, self._find_engine(workspace)
        state = (await engine.status(workspace.uid)).state if engine is not None else ContainerState.NOT_FOUND
        if workspace.is_busy:
            raise Refused(409, "a task of the workspace is under way; wait until it has ended")
        losses: list[str] = []
        if record is None or engine is None or state is ContainerState.NOT_FOUND:
            await send_json(stream, {"losses": losses, "source": ""})
            return
        if state is not ContainerState.RUNNING:
            raise Refused(409, "the workspace does not run; start it, so that git in it can say what is not pushed")
        try:
            losses = await find_losses(engine, workspace.uid, parse_source(record.source))
        except EngineError as error:
            raise Refused(409, error.message) from error
        await send_json(stream, {"losses": losses, "source": record.source})

    async def _handle_orphan(self, request: OpenRequest, stream: Stream) -> None:
        """Another runner has the workspace now: what is here is kept until it runs there, and then removed."""
        if not self._workspaces.is_synced:
            raise Refused(503, "the runner does not know its workspaces yet; try again in a moment")
        if self._workspaces.find(request.uid) is not None:
            raise Refused(409, "the workspace is one of this runner; it was not moved away")
        orphan = self._workspaces.find_orphan(request.uid)
        if orphan is not None and orphan.record is not None and request.action == DISCARD:
            orphan.request_discard()
        elif orphan is not None and orphan.record is not None:
            orphan.request_retain()
        await stream.send_exit(0)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    async def _restore(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        snapshot = _read_snapshot(request.options)
        path = request.options.get("path")
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise Refused(400, "path: must be an absolute path, such as /usr/local")
        if len(path) > MAX_RESTORED_PATH:
            raise Refused(400, f"path: has {len(path)} characters; it can have {MAX_RESTORED_PATH}")
        engine = self._find_snapshots(workspace)
        status = await engine.status(workspace.uid) if engine is not None else None
        if not workspace.is_busy and (status is None or status.state is not ContainerState.RUNNING):
            raise Refused(409, "the workspace is not running, and a restore does not start it; run `up` first")
        try:
            task_id = workspace.request_restore(snapshot, path, request.user)
        except EngineError as error:
            raise Refused(409, error.message) from error
        await self._send_task(workspace, task_id, request, stream)

    async def _send_snapshots(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        found = await self._list_snapshots(workspace)
        shown = [{"id": each.id, "createdAt": timestamp(each.created_at), "bytes": each.size} for each in found]
        await send_json(stream, {"snapshots": shown})

    async def _delete_snapshot(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        snapshot = _read_snapshot(request.options)
        names = [each.id for each in await self._list_snapshots(workspace)]
        engine = self._find_snapshots(workspace)
        if engine is None or snapshot not in names:
            raise Refused(404, describe_missing_snapshot(snapshot, names))
        await engine.delete_snapshot(workspace.uid, snapshot)
        await stream.send_exit(0)

    async def _list_snapshots(self, workspace: WorkspaceReconciler) -> Sequence[Snapshot]:
        """Those that the owner of now may have."""
        engine = self._find_snapshots(workspace)
        is_for_other_owner = workspace.record is not None and workspace.record.is_for_other_owner
        return await engine.list_snapshots(workspace.uid) if engine is not None and not is_for_other_owner else ()

    def _find_snapshots(self, workspace: WorkspaceReconciler) -> SnapshotEngine | None:
        """The engine of a workspace; None if it has not come up yet. Raises Refused."""
        engine = self._find_engine(workspace)
        try:
            return require_snapshots(engine) if engine is not None else None
        except EngineError as error:
            raise Refused(409, error.message) from error

    # --- the workspace ------------------------------------------------------------------------------------------------

    async def _send_status(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        record, engine = workspace.record, self._find_engine(workspace)
        observed = await engine.status(workspace.uid) if engine is not None else None
        state = "Busy" if workspace.is_busy else str(observed.state) if observed is not None else "NotFound"
        provider = record.engine if record else ""
        await send_json(stream, {"id": workspace.uid, "context": "default", "provider": provider, "state": state})

    async def _troubleshoot(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        record, engine = workspace.record, self._find_engine(workspace)
        findings = await engine.check() if engine is not None else ()
        observed = await engine.status(workspace.uid) if engine is not None else None
        report = {
            "engine": record.engine if record else "",
            "container": {
                **{"state": str(observed.state), "cause": observed.cause},
                **{"user": observed.user, "folder": observed.folder},  # those of sessions, which editors need
            }
            if observed
            else None,
            "tasks": [_describe_task(each) for each in (record.tasks if record else ())],
            "problems": [f"{each.subject}: {each.problem}; {each.remedy}" for each in findings if each.problem],
        }
        await send_json(stream, report)

    async def _send_state(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        record = workspace.record
        await send_json(stream, {"state": record.client_state if record else ""})

    async def _store_state(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        await stream.accept({})
        content = bytearray()
        while (message := await stream.receive()) is not None and not isinstance(message, Eof):
            content += message.content if isinstance(message, Data) and message.channel == STDIN else b""
            if len(content) > MAX_STATE_BYTES:
                raise EngineError("StateTooLarge", f"the state has more than {MAX_STATE_BYTES} bytes")
        workspace.store_client_state(content.decode(errors="replace"))
        await stream.send_exit(0)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _exec(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        options = request.options
        command = options.get("command") or ()
        parts = shlex.split(command) if isinstance(command, str) else [str(each) for each in command]
        environment = {str(name): str(value) for name, value in (options.get("environment") or {}).items()}
        if not all(is_variable_name(name) for name in environment):
            raise Refused(400, "environment: names must consist of letters, digits and underscores")
        columns, rows = _read_size(options.get("columns") or 80, options.get("rows") or 24)
        exec_options = ExecOptions(
            user=str(options.get("user") or ""),
            tty=bool(options.get("tty")),
            columns=columns,
            rows=rows,
            environment=environment,
            folder=str(options.get("folder") or ""),
        )
        process = await self._require_engine(workspace).exec(workspace.uid, parts, exec_options)
        terminal = workspace.uid, str(options.get("session") or "")
        if exec_options.tty and terminal[1]:
            self._terminals[terminal] = process
        try:
            with self._services.activity.traffic.measure(workspace.uid) as meter:
                await run_process(process, MeteredStream(stream, meter))
        finally:
            self._terminals.pop(terminal, None)

    async def _resize(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        options = request.options
        process = self._terminals.get((workspace.uid, str(options.get("session") or "")))
        if process is None:
            raise Refused(404, "there is no session with a terminal of this name")
        columns, rows = _read_size(options.get("columns"), options.get("rows"))
        await process.resize(columns, rows)
        await stream.send_exit(0)

    async def _download(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        """A tar archive, made inside: the host does not follow links of a workspace."""
        path = normpath(str(request.options.get("path") or "."))
        command = ("tar", "-cf", "-", "-C", dirname(path) or ".", "--", basename(path) or ".")
        process = await self._require_engine(workspace).exec(workspace.uid, command, ExecOptions())
        with self._services.activity.traffic.measure(workspace.uid, is_download=True) as meter:
            await run_process(process, MeteredStream(stream, meter))

    async def _forward_port(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        port = request.options.get("port")
        if not isinstance(port, int) or not 0 < port < 65536:
            raise Refused(400, "port: must be a number from 1 to 65535")
        engine = self._require_engine(workspace)
        connection = await self._web_ides.open(engine, workspace.uid, workspace.workspace, port)
        with self._services.activity.traffic.measure(workspace.uid, KEEPALIVE_BYTES) as meter:
            await run_port(connection, MeteredStream(stream, meter))

    def _find_engine(self, workspace: WorkspaceReconciler) -> Engine | None:
        record = workspace.record
        return self._services.engines.get(record.engine) if record is not None else None

    def _require_engine(self, workspace: WorkspaceReconciler) -> Engine:
        """A session does not start a workspace: one that was stopped by a user stays so."""
        engine = self._find_engine(workspace)
        if engine is None:
            raise Refused(409, "the workspace is not running; start it with `up`")
        return engine


def _read_size(columns: object, rows: object) -> tuple[int, int]:
    """The size of a terminal. Raises Refused."""
    if not isinstance(columns, int) or not isinstance(rows, int):
        raise Refused(400, "columns, rows: must be numbers")
    if not 0 < min(columns, rows) <= max(columns, rows) <= MAX_TERMINAL:
        raise Refused(400, f"columns, rows: must be numbers from 1 to {MAX_TERMINAL}")
    return columns, rows


def _read_snapshot(options: Mapping[str, Any]) -> str:
    """The ID of a snapshot. Raises Refused."""
    snapshot = options.get("snapshot")
    if not isinstance(snapshot, str) or not snapshot:
        raise Refused(400, "snapshot: must be the ID of a snapshot")
    return snapshot


def _find_task(workspace: WorkspaceReconciler, task_id: str) -> TaskRecord:
    record = workspace.record
    task = None if record is None else record.find_task(task_id) if task_id else record.last_task
    if task is None:
        raise Refused(404, f"there is no task {task_id}" if task_id else "the workspace has had no task")
    return task


def _exit_code(workspace: WorkspaceReconciler, task_id: str) -> int:
    """1 if the task has failed."""
    record = workspace.record
    task = record.find_task(task_id) if record is not None else None
    return 1 if task is not None and task.status == FAILED else 0


def _describe_task(task: TaskRecord) -> Object:
    result: Object = {"step": task.step, "reason": task.reason, "message": task.message, "endedAt": task.ended_at}
    shown: dict[str, Any] = {"id": task.id, "type": task.type, "status": task.status, "createdAt": task.created_at}
    return shown | {"result": b64encode(json.encode({name: each for name, each in result.items() if each})).decode()}


async def send_json(stream: Stream, value: Object) -> None:
    await stream.send(STDOUT, json.encode(value) + b"\n")
    await stream.send_exit(0)
