"""Requests of the runner to its server, and the watch of its workspaces.

The client is synchronous: each request runs in a thread, one of its own pool, so that nothing that a workspace makes
slow delays a heartbeat. The watch has a thread of its own, which ends with the process. Tests replace all methods of
`RunnerApi`.
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fairlead.client import ApiStatusError, Client, ClientError, Event
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object, metadata
from fairlead.runner.answers import check_config, check_credentials, check_lease, check_runner, check_workspace

WORKSPACES, RUNNERS = "devpodworkspaceinstances", "runners"
RUNNER_FIELD = "spec.runnerRef.runner"
HEARTBEAT_NAMESPACE = "service-system"
LEASES_PATH = f"/kubernetes/management/apis/coordination.k8s.io/v1/namespaces/{HEARTBEAT_NAMESPACE}/leases"
REQUEST_SECONDS = 20.0
"""Shorter than the silence after which the server gives up on a runner, so that a heartbeat is tried again in time."""
MAX_REQUESTS = 16
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Of one response, and of one event of the watch. An object of the server has at most a few megabytes."""
MAX_RESPONSE_SECONDS = 60.0
"""How long a response may take as a whole, however regularly a part of it arrives."""
MAX_WAITING_EVENTS = 16
"""Events of the watch that wait for the event loop. The thread that reads them waits, too."""
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


@dataclass(slots=True)
class SharedClient:
    """A client for the requests with one key."""

    key: str
    client: Client
    requests: int = 0
    is_current: bool = True


class ClientSource:
    """Connects with the current key: a rotated one gets a new client, and the former is closed after its requests."""

    def __init__(self, build_client: Callable[[str], Client], read_key: Callable[[], str]) -> None:
        self._build_client = build_client
        self._read_key = read_key
        self._current: SharedClient | None = None
        self._seconds = REQUEST_SECONDS
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        """The client for one request. Threads share it."""
        shared = self._begin_request(self._read_key())
        try:
            yield shared.client
        finally:
            with self._lock:
                shared.requests -= 1
                _close_if_unused(shared)

    def limit_requests(self, seconds: float) -> None:
        self._seconds = seconds

    def create(self) -> Client:
        """A client of the caller's own."""
        return self._build_client(self._read_key())

    def close(self) -> None:
        """Closes the connections; those of requests that have begun, after them."""
        with self._lock:
            self._retire_current()

    def _begin_request(self, key: str) -> SharedClient:
        with self._lock:
            if self._current is None or self._current.key != key:
                self._retire_current()
                self._current = SharedClient(key, self._build_client(key))
            self._current.client.timeout = self._seconds
            self._current.requests += 1
            return self._current

    def _retire_current(self) -> None:
        if self._current is not None:
            self._current.is_current = False
            _close_if_unused(self._current)
            self._current = None


def _close_if_unused(shared: SharedClient) -> None:
    if not shared.is_current and shared.requests == 0:
        shared.client.close()


class RunnerApi:
    """The server, as the runner uses it. Methods raise ClientError."""

    def __init__(self, clients: ClientSource, runner: str, clock: Clock) -> None:
        self._clients = clients
        self._runner = runner
        self._clock = clock
        self._threads = ThreadPoolExecutor(MAX_REQUESTS, "request")

    def close(self) -> None:
        """Ends the threads and connections. Requests that have begun are finished."""
        self._threads.shutdown(wait=False)
        self._clients.close()

    async def get_runner(self) -> Object:
        return check_runner(await self._call(lambda client: client.get(RUNNERS, self._runner)))

    async def get_config(self) -> Object:
        return check_config(await self._call(lambda client: client.get(RUNNERS, self._runner, "config")))

    async def report_runner(self, status: Object) -> None:
        """Changes these fields of the status. Conditions replace those of the same type."""

        def send(client: Client) -> Object:
            path = client.path(RUNNERS, self._runner, "status")
            return client.send("PATCH", path, {"status": status}, media_type=STRATEGIC_PATCH)

        await self._call(send)

    async def get_lease(self) -> Object | None:
        try:
            return check_lease(await self._call(lambda client: client.send("GET", self._lease_path())))
        except ApiStatusError as error:
            if error.code == 404:
                return None
            raise

    async def put_lease(self, lease: Object) -> Object:
        return check_lease(await self._call(lambda client: client.send("PUT", self._lease_path(), lease)))

    def limit_requests(self, seconds: float) -> None:
        """Later requests fail after this time. The process cannot end before them: threads are not cancelled."""
        self._clients.limit_requests(seconds)

    async def patch_workspace(self, workspace: Object, patch: Object) -> Object:
        meta = metadata(workspace)

        def send(client: Client) -> Object:
            path = client.path(WORKSPACES, meta["name"], "status", namespace=meta["namespace"])
            return client.send("PATCH", path, patch, media_type=STRATEGIC_PATCH)

        return check_workspace(await self._call(send))

    async def record_event(self, workspace: Object, reason: str, message: str, type: str) -> None:
        event = build_event(workspace, reason, message, type, timestamp(self._clock.now()))
        namespace = metadata(workspace)["namespace"]
        await self._call(lambda client: client.send("POST", client.core_path("events", namespace=namespace), event))

    async def get_credentials(self, workspace: Object, git_host: str, git_protocol: str, git_path: str = "") -> Object:
        """The secrets for an `up`. They are not to be stored. The host is empty if there is no repository."""
        return await self._get_credentials(
            workspace, {"gitHost": git_host, "gitProtocol": git_protocol, "gitPath": git_path}
        )

    async def get_git_credentials(self, workspace: Object, host: str, path: str) -> Object:
        """User and password for a repository that `git` in a workspace asks for, if there are any."""
        query = {"gitHost": host, "gitProtocol": "https", "gitPath": path, "gitUse": "session"}
        found = (await self._get_credentials(workspace, query)).get("gitCredentials")
        return found if isinstance(found, dict) else {}

    async def _get_credentials(self, workspace: Object, parameters: Mapping[str, str]) -> Object:
        meta = metadata(workspace)
        query = urlencode(parameters)

        def send(client: Client) -> Object:
            path = client.path(WORKSPACES, meta["name"], "credentials", namespace=meta["namespace"])
            return client.send("GET", f"{path}?{query}")

        return check_credentials(await self._call(send))

    async def watch_workspaces(self) -> AsyncIterator[Event]:
        """All workspaces of the runner as ADDED, then SYNCED, then changes. Raises ClientError when it breaks off."""
        events: asyncio.Queue[Event | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        is_over = threading.Event()
        room = threading.Semaphore(MAX_WAITING_EVENTS)

        def forward(item: Event | Exception) -> None:
            room.acquire()
            if not is_over.is_set():
                loop.call_soon_threadsafe(events.put_nowait, item)

        def run() -> None:
            try:
                with self._clients.create() as client:
                    for event in client.watch(WORKSPACES, fields=f"{RUNNER_FIELD}={self._runner}"):
                        forward(event)
                        if is_over.is_set():
                            return
            except Exception as error:  # noqa: BLE001  # raised by the task that reads the queue
                forward(error)

        # A daemon thread: it may wait for the next event when the process ends.
        threading.Thread(target=run, name="watch", daemon=True).start()
        try:
            while True:
                item = await events.get()
                room.release()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            is_over.set()
            room.release()  # the thread may wait for room

    def _lease_path(self) -> str:
        return f"{LEASES_PATH}/runner-{self._runner}"

    async def _call(self, send: Callable[[Client], Object]) -> Object:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, send)

    def _send(self, send: Callable[[Client], Object]) -> Object:
        with self._clients.borrow() as client:
            return send(client)


def build_event(workspace: Object, reason: str, message: str, type: str, now: str) -> Object:
    """A core Event about a workspace."""
    meta = metadata(workspace)
    involved: dict[str, Any] = {"apiVersion": workspace.get("apiVersion", ""), "kind": workspace.get("kind", "")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name'][:236].rstrip('-.')}.{secrets.token_hex(8)}",
            "namespace": meta["namespace"],
        },
        "involvedObject": involved | {name: meta.get(name, "") for name in ("name", "namespace", "uid")},
        "type": type,
        "reason": reason,
        "message": message[:1024],
        "source": {"component": "fairlead-runner"},
        "reportingComponent": "fairlead-runner",
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def is_gone(error: ClientError) -> bool:
    """Whether the object does not exist any more, or its name belongs to another one."""
    return isinstance(error, ApiStatusError) and error.code in (404, 409, 422)
