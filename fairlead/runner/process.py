"""Builds a runner from its settings, and runs it until it is stopped.

When the process ends, what it runs goes on running. The next process on the same state folder takes it over again.
"""

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from fairlead.client import Client, ClientError
from fairlead.client.client import read_ca_file
from fairlead.client.tls import build_ssl_context
from fairlead.core.clock import SystemClock
from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file
from fairlead.core.waiting import background_task, wait_until_stopped
from fairlead.links.contract import OpenHandler
from fairlead.links.dialing import DialError, LinkAddress, Superseded, keep_link
from fairlead.runner.actions import RunnerActions
from fairlead.runner.activity import ActivityLedger
from fairlead.runner.activity_monitor import ActivityMonitor
from fairlead.runner.api import MAX_RESPONSE_BYTES, MAX_RESPONSE_SECONDS, ClientSource, RunnerApi
from fairlead.runner.conditions import DiskGuard, report_disk, report_orphans
from fairlead.runner.engines.contract import MaintainedEngine
from fairlead.runner.git.service import GitCredentials
from fairlead.runner.heartbeat import Heartbeat, Replaced, RunnerIdentity
from fairlead.runner.journal import Journal
from fairlead.runner.registry import load_engines
from fairlead.runner.report import report_runner
from fairlead.runner.services import RunnerServices, TaskSlots
from fairlead.runner.settings import RunnerSettings, key_reader
from fairlead.runner.ssh.actions import create_ssh_actions
from fairlead.runner.task_log import TaskLogs
from fairlead.runner.workspaces import WorkspaceSet

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5.0
INSTALLATION_FILE = "installation-id"
HOST_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class StartedRunner:
    """A runner that holds its Lease."""

    name: str
    server: str
    boot: str


async def run(settings: RunnerSettings, stop: asyncio.Event, ready: Callable[[StartedRunner], None]) -> None:
    """Runs until `stop` is set. Raises FileProblem if it cannot start, or if another process takes over."""
    clock = SystemClock()
    with closing(connect(settings)) as api, lock_folder(ensure_private_folder(settings.state_folder)):
        identity = RunnerIdentity(settings.name, _machine_id(settings.state_folder), secrets.token_hex(8))
        engines = load_engines(settings, settings.engines)
        heartbeat = Heartbeat(api, identity, clock)
        if not await _finish_before(stop, heartbeat.acquire()):
            return
        try:
            if await _finish_before(stop, _require_same_server(api, settings.state_folder)):
                installation = (read_file(settings.state_folder / INSTALLATION_FILE) or b"").decode().strip()
                services = RunnerServices(
                    api=api,
                    fence=heartbeat,
                    journal=Journal(settings.state_folder / "workspaces"),
                    logs=TaskLogs(settings.state_folder / "logs"),
                    engines=engines,
                    slots=TaskSlots(),
                    clock=clock,
                    host_boot=(read_file(HOST_BOOT_FILE) or b"").decode().strip(),
                    activity=ActivityLedger(clock),
                    disk=DiskGuard(settings.state_folder, settings.disk.min_free_bytes),
                    installation=installation,
                    orphan_retention=settings.orphan_retention,
                    allowed_permissions=frozenset(settings.allowed_permissions),
                )
                await _serve(settings, services, heartbeat, identity, stop, ready)
        finally:
            for engine in engines.values():
                await engine.close()
            await heartbeat.release()


async def _serve(
    settings: RunnerSettings,
    services: RunnerServices,
    heartbeat: Heartbeat,
    identity: RunnerIdentity,
    stop: asyncio.Event,
    ready: Callable[[StartedRunner], None],
) -> None:
    build_address = address_builder(settings)
    ready(StartedRunner(settings.name, settings.server, identity.boot))
    ssh = create_ssh_actions(services, settings)
    workspaces = WorkspaceSet(services)
    git = GitCredentials(services)
    actions = RunnerActions(services, workspaces, ssh.actions(), git)

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(heartbeat.run(), name="heartbeat")
            group.create_task(workspaces.run(), name="workspaces")
            group.create_task(ActivityMonitor(services, workspaces).run(), name="activity")
            group.create_task(report_runner(services.api, services.engines), name="report")
            group.create_task(report_disk(services.api, services.disk, services.clock), name="disk")
            group.create_task(
                report_orphans(services.api, services.journal, services.clock, services.orphan_retention),
                name="orphans",
            )
            for name, engine in services.engines.items():
                if isinstance(engine, MaintainedEngine):
                    group.create_task(engine.maintain(), name=f"engine {name}")
            group.create_task(serve_link(build_address, identity, actions.handle_open), name="link")

    try:
        async with background_task(run_all(), "runner") as work:
            await wait_until_stopped(stop, work)
    except BaseExceptionGroup as group:
        if (replaced := group.subgroup(Replaced)) is None:
            raise
        raise FileProblem(_first_message(replaced)) from None
    finally:
        await actions.close()
        await ssh.close()
        await git.close()


def _first_message(error: BaseException) -> str:
    return _first_message(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else str(error)


def connect(settings: RunnerSettings) -> RunnerApi:
    """Raises FileProblem or ClientError if the key or the CA is not usable."""
    authority = read_ca_file(settings.ca_file) if settings.ca_file is not None else ""
    build = partial(_build_client, settings.server, authority, settings.api_group)
    return RunnerApi(ClientSource(build, key_reader(settings)), settings.name, SystemClock())


def _build_client(server: str, authority: str, api_group: str, key: str) -> Client:
    client = Client(server, key, authority=authority, group=api_group)
    client.max_response_bytes, client.max_response_seconds = MAX_RESPONSE_BYTES, MAX_RESPONSE_SECONDS
    return client


def address_builder(settings: RunnerSettings) -> Callable[[], LinkAddress]:
    """Returns the function that builds the address for each attempt to connect, because the key may have been rotated.
    Raises FileProblem or ClientError if the key or the CA is not usable."""
    base = settings.server.replace("http", "ws", 1)
    name = quote(settings.name, safe="")
    url = f"{base}/kubernetes/management/apis/{settings.api_group}/v1/runners/{name}/link"
    authority = read_ca_file(settings.ca_file) if settings.ca_file is not None else ""
    tls = build_ssl_context(authority)
    read_key = key_reader(settings)

    def build_address() -> LinkAddress:
        try:
            return LinkAddress(url, read_key(), tls)
        except FileProblem as error:  # so that the runner tries again
            raise DialError(str(error)) from None

    return build_address


async def serve_link(build_address: Callable[[], LinkAddress], identity: RunnerIdentity, on_open: OpenHandler) -> None:
    """Serves the streams that the server opens, for ever. Nothing else depends on it: tasks and workspaces go on
    without a connection. Raises Replaced if another process has taken over."""
    try:
        await keep_link(build_address, on_open, identity.boot)
    except Superseded as error:
        raise Replaced(str(error)) from None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keeps other processes of this machine off the state folder. The kernel releases the lock when the process ends,
    also after kill -9."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileProblem(f"{folder}: another runner process uses this folder; stop it first") from None
        yield
    finally:
        os.close(descriptor)


def _machine_id(folder: Path) -> str:
    """Identifies the state folder in the Lease."""
    path = folder / "machine-id"
    known = (read_file(path) or b"").decode(errors="replace").strip()
    if not known:
        known = secrets.token_hex(8)
        write_file(path, known.encode())
    return known


async def _require_same_server(api: RunnerApi, folder: Path) -> None:
    """Refuses to work with another installation: it does not have these workspaces, so they would be stopped."""
    path = folder / INSTALLATION_FILE
    while True:
        try:
            config = await api.get_config()
            break
        except ClientError as error:
            log.warning("the server cannot be reached", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
    installation = str(config.get("serviceInstanceID") or "")
    known = (read_file(path) or b"").decode(errors="replace").strip()
    if known and installation and known != installation:
        raise FileProblem(
            f"{folder}: belongs to a runner of another installation ({known}, not {installation}); use another --state"
        )
    if installation and not known:
        write_file(path, installation.encode())


async def _finish_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work ended before `stop` was set; else it is cancelled."""
    async with background_task(work) as working, background_task(stop.wait()) as stopping:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
