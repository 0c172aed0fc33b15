"""Serves the credential requests of `git` in workspaces.

Before the first session, a socket appears in the workspace, which only the user of sessions can connect to. Each
request becomes one of the runner to its server, for the owner of the workspace: nothing is stored or remembered here,
so what is revoked on the server is revoked at once. Each is in the audit log of the server.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from fairlead.client import ClientError
from fairlead.core.objects import Object, get_path
from fairlead.core.waiting import end_tasks
from fairlead.runner.engines.contract import GIT_SOCKET, Engine, EngineError, SocketEngine, find_sockets
from fairlead.runner.git.cache import GET, MAX_REQUEST_BYTES, InvalidRequest, format_response, parse_request
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices
from fairlead.runner.ssh.limits import RequestRate
from fairlead.runner.ssh.stopping import RUNNING_STATES

HTTPS = "https"
"""Credentials for http would pass the network in the clear."""
MAX_REQUESTS = 8
"""Under way at a time, of one workspace. Further ones wait in the queue of the socket."""
REQUEST_BURST, REQUESTS_PER_SECOND = 32.0, 2.0
READ_SECONDS, SEND_SECONDS = 5.0, 5.0
CHECK_SECONDS = 5.0
"""How often it is checked that the container still runs."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class OfferedSocket:
    """The socket of one workspace, for as long as its container runs."""

    started_at: datetime | None
    serving: "asyncio.Task[None]"


@dataclass(slots=True)
class GitCredentials:
    services: RunnerServices
    _offered: dict[str, OfferedSocket] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def offer(self, workspace: WorkspaceReconciler) -> None:
        """Makes credentials available in a workspace, if its template allows it and its engine can. A session works
        without them, too, so nothing is raised."""
        record = workspace.record
        engine = self.services.engines.get(record.engine) if record is not None else None
        sockets = find_sockets(engine)
        if engine is None or sockets is None or not is_offered(workspace.workspace):
            return
        async with self._locks.setdefault(workspace.uid, asyncio.Lock()):
            try:
                await self._open(engine, sockets, workspace)
            except (EngineError, OSError) as error:
                log.warning("git in a workspace gets no credentials", uid=workspace.uid, error=str(error))

    async def close(self) -> None:
        tasks = [each.serving for each in self._offered.values()]
        await end_tasks(*tasks)

    async def _open(self, engine: Engine, sockets: SocketEngine, workspace: WorkspaceReconciler) -> None:
        uid = workspace.uid
        status = await engine.status(uid)
        known = self._offered.get(uid)
        if known is not None and known.started_at == status.started_at and not known.serving.done():
            return
        if known is not None:
            known.serving.cancel()
        opened = await sockets.listen(uid, GIT_SOCKET)
        serving = asyncio.create_task(self._serve(engine, workspace, opened.socket, status.started_at))
        self._offered[uid] = OfferedSocket(status.started_at, serving)

    async def _serve(
        self, engine: Engine, workspace: WorkspaceReconciler, listening: socket.socket, started_at: datetime | None
    ) -> None:
        """Until the container has stopped."""
        uid = workspace.uid
        try:
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(self._accept(workspace, listening))
                await _wait_stopped(engine, uid, started_at)
                accepting.cancel()
        finally:
            listening.close()
            if (known := self._offered.get(uid)) is not None and known.serving is asyncio.current_task():
                del self._offered[uid]
                self._locks.pop(uid, None)

    async def _accept(self, workspace: WorkspaceReconciler, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        rate = RequestRate(burst=REQUEST_BURST, per_second=REQUESTS_PER_SECOND)
        slots = asyncio.Semaphore(MAX_REQUESTS)
        async with asyncio.TaskGroup() as group:
            while True:
                await rate.wait()
                await slots.acquire()
                try:
                    connected, _ = await loop.sock_accept(listening)
                except OSError as error:  # too many open files; the client waits
                    slots.release()
                    log.warning("a request for credentials of git is not accepted", uid=workspace.uid, error=str(error))
                    continue
                task = group.create_task(self._answer(workspace, connected))
                task.add_done_callback(lambda _: slots.release())

    async def _answer(self, workspace: WorkspaceReconciler, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connected:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    content = await _read(connected)
                response = await self._find_credentials(workspace, content)
                async with asyncio.timeout(SEND_SECONDS):
                    await loop.sock_sendall(connected, response)
            except InvalidRequest as error:
                log.warning("a request for credentials of git is refused", uid=workspace.uid, reason=str(error))
            except ClientError as error:
                log.warning("the server gave no credentials for git", uid=workspace.uid, error=str(error))
            except (OSError, TimeoutError):
                return  # the client has gone, or does not read

    async def _find_credentials(self, workspace: WorkspaceReconciler, content: bytes) -> bytes:
        """The response to a request. Raises InvalidRequest and ClientError."""
        request = parse_request(content)
        found = workspace.workspace
        if request.action != GET or request.protocol != HTTPS or found is None:
            return b""
        git = await self.services.api.get_git_credentials(found, request.host, request.path)
        return format_response(request, str(git.get("username") or ""), str(git.get("password") or ""))


def is_offered(workspace: Object | None) -> bool:
    """Whether sessions may have credentials at all. The server decides about each of them."""
    template = get_path(workspace or {}, "status.instance") or {}
    are_own_disabled = get_path(template, "credentialForwarding.git.disabled") is True
    return not are_own_disabled or template.get("useProjectGitCredentials") is True


async def _wait_stopped(engine: Engine, uid: str, started_at: datetime | None) -> None:
    """Until the container that started then does not run any more."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            status = await engine.status(uid)
        except EngineError:
            return
        if status.started_at != started_at or status.state not in RUNNING_STATES:
            return


async def _read(connected: socket.socket) -> bytes:
    """Up to the end, or somewhat more than is allowed."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    size = 0
    while size <= MAX_REQUEST_BYTES and (data := await loop.sock_recv(connected, MAX_REQUEST_BYTES + 1)):
        parts.append(data)
        size += len(data)
    return b"".join(parts)
