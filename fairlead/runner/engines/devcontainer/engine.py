"""`DevcontainerEngine`: dev containers on this machine, one per workspace."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from fairlead.core.machine.findings import Finding
from fairlead.runner.engines.contract import (
    ActivitySample,
    ByteStream,
    Capacity,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    ListeningPort,
    ListeningSocket,
    Process,
    Reason,
    Snapshot,
    TaskContext,
    TerminalSample,
    WorkspaceSpec,
    is_variable_name,
)
from fairlead.runner.engines.devcontainer.cleanup import end_holder, remove_everything
from fairlead.runner.engines.devcontainer.connections import count_connection_bytes
from fairlead.runner.engines.devcontainer.creation import plan_creation
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.diagnosis import diagnose
from fairlead.runner.engines.devcontainer.former import end_former_container, forget_former
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.isolation.cgroups import find_box
from fairlead.runner.engines.devcontainer.isolation.firewall import keep_firewall
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT, Holder
from fairlead.runner.engines.devcontainer.isolation.ranges import claim_existing
from fairlead.runner.engines.devcontainer.isolation.socket_memory import watch_socket_memory
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, open_folder, read_json
from fairlead.runner.engines.devcontainer.observation import Container, Observer
from fairlead.runner.engines.devcontainer.ports import connect, list_listening
from fairlead.runner.engines.devcontainer.prebuilds import Prebuild
from fairlead.runner.engines.devcontainer.preparation import decode_spec
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.services import read_log, stop_services
from fairlead.runner.engines.devcontainer.session_environment import read_secrets
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shared_images import SharedImages
from fairlead.runner.engines.devcontainer.snapshots import delete_snapshot, list_snapshots, restore_snapshot
from fairlead.runner.engines.devcontainer.sockets import listen_inside, listen_on_port
from fairlead.runner.engines.measurement import (
    ProcessSample,
    Scans,
    WriteScanner,
    list_cgroup_pids,
    read_cgroup_cpu,
    read_process,
    sample_terminals,
)
from fairlead.runner.engines.process_trees import (
    MARK,
    EndRequests,
    ListPids,
    Members,
    read_members,
)
from fairlead.runner.engines.sessions import (
    end_trees,
    find_session,
    find_stale_sessions,
    new_mark,
    request_end,
    start_session,
)

VARIABLES_OF_PODMAN = ("PATH", "HOME", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK")
PREFIXES_OF_PODMAN = ("CONTAINER", "XDG_", "TMP", "LD_", "DBUS_", "STORAGE_", "_CONT", "PODMAN_", "BUILDAH_", "SSL_")
"""Variables that configure podman, or the programs that it starts."""
SHELL = ("/bin/sh", "-c", 'exec "$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7 | grep . || echo /bin/sh)" -l')
GRACE_SECONDS, MAIN_GRACE_SECONDS = 30, 10
"""Between TERM and KILL: for what users have started, and then for the main process, with which everything ends."""
STOP_SHARE = 0.9
"""Of the time for a stop, what podman gets: then all is killed."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class DevcontainerEngine:
    settings: Settings
    name: str = "devcontainer"
    observer: Observer = field(init=False)
    images: SharedImages = field(init=False)
    pulled: PulledImages = field(init=False)
    writes: WriteScanner = field(default_factory=WriteScanner)
    port_scans: Scans[list[ListeningPort]] = field(default_factory=Scans)
    process_scans: Scans[tuple[float, dict[str, TerminalSample]]] = field(default_factory=Scans)

    def __post_init__(self) -> None:
        self.observer = Observer(self.settings)
        self.images = SharedImages(self.settings)
        self.pulled = PulledImages(self.settings)

    async def check(self) -> Sequence[Finding]:
        return await diagnose(self.settings)

    def capacity(self) -> Capacity:
        return Capacity(
            cpus=len(os.sched_getaffinity(0)),
            memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            disk_bytes=shutil.disk_usage(self.settings.state_folder).total,
        )

    async def maintain(self) -> None:
        """Notes which user ids and networks are in use, for other runners of the machine, removes images of earlier
        versions, keeps the firewall, and ends workspaces that take memory beside their limits."""
        try:
            await asyncio.to_thread(claim_existing, self.settings)
        except (EngineError, OSError) as error:  # no workspace starts then, and each says why
            log.error("the user ids and networks of this runner cannot be noted", error=str(error))
        try:
            await self.images.remove_former()
        except (EngineError, OSError) as error:  # they take space, and are not used
            log.warning("images of an earlier version cannot be removed", error=str(error))
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_firewall(self.settings), name="firewall of workspaces")
            group.create_task(watch_socket_memory(self.settings), name="memory of sockets")

    async def close(self) -> None:
        await self.pulled.close()

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        folder = self._folder(spec.uid)
        if spec.is_prebuild:
            self.observer.forget(spec.uid)
            await Prebuild(self.settings, self.images, self.pulled, folder, spec, task).run()
            return
        try:
            status = await self.observer.observe(spec.uid)
        except EngineError:
            if not spec.recreate and not spec.reset:
                raise
            status = EngineStatus(ContainerState.NOT_FOUND)
        is_reused = spec.accepts(status.template_hash) and not status.is_recovery
        if status.state is ContainerState.RUNNING and is_reused:
            return
        await DetachedCommand(folder.task).kill()
        await end_former_container(self.settings.former_podman, folder)
        await end_holder(folder)
        self.observer.forget(spec.uid)
        folder.stopped.unlink(missing_ok=True)
        folder.overuse.unlink(missing_ok=True)
        if self.images.is_disk_low():
            self.images.collect()
            await self.pulled.collect()
        has_container = is_reused and status.state is not ContainerState.NOT_FOUND and bool(status.task_id)
        if has_container and status.template_hash != spec.template_hash:
            spec = _use_former_spec(folder, spec)
        creation = await asyncio.to_thread(plan_creation, self.images, self.pulled, folder, spec, task)
        await creation.run(has_container)

    async def restore(self, uid: str, snapshot: str, path: str, task: TaskContext) -> None:
        await self._running(uid)
        async with task.step("Restore", self.settings.deadlines.snapshot):
            await restore_snapshot(self.settings, self._folder(uid), self._holder(uid), snapshot, path)
            task.log(f"restored {path} of the snapshot {snapshot}\n".encode())

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        folder = self._folder(uid)
        await end_trees(find_stale_sessions(uid, list_box(folder)))
        command = DetachedCommand(folder.task)
        fields = read_json(folder.spec)
        is_under_way = command.find_leader() is not None or command.read_exit_code() is not None
        if fields is None or fields.get("is_prebuild") or not is_under_way or command.read_task_id() != task.task_id:
            return False
        creation = await asyncio.to_thread(plan_creation, self.images, self.pulled, folder, decode_spec(fields), task)
        await creation.finish()
        return True

    async def stop(self, uid: str, task: TaskContext) -> None:
        folder = self._folder(uid)
        async with task.step("Stop", self.settings.deadlines.stop):
            await DetachedCommand(folder.task).kill()
            await end_former_container(self.settings.former_podman, folder)
            try:
                async with asyncio.timeout(self.settings.deadlines.stop * STOP_SHARE):
                    await self._stop_container(uid)
            except (EngineError, TimeoutError) as error:  # podman does not answer: all ends without it
                task.log(f"the container is not stopped, but killed: {error}\n".encode())
            self.observer.forget(uid)
            await end_holder(folder)

    async def _stop_container(self, uid: str) -> None:
        folder = self._folder(uid)
        container = await self.observer.find_container(uid)
        holder = self.observer.find_holder(uid)
        if container is not None:
            folder.stopped.touch()
        if container is not None and holder is not None:
            requests = EndRequests(list_box(folder, container), partial(_select_sessions, container))
            await request_end(uid, requests, GRACE_SECONDS)
            await holder.run(self.settings.podman, "stop", "--ignore", f"--time={MAIN_GRACE_SECONDS}", CONTAINER)
            await stop_services(self.settings, folder, holder)
            self.observer.forget(uid)
            await self.observer.find_container(uid)  # how it ended is not known without the holder

    async def delete(self, uid: str, task: TaskContext) -> None:
        folder = self._folder(uid)
        async with task.step("Delete", self.settings.deadlines.delete):
            await DetachedCommand(folder.task).kill()
            self.observer.forget(uid)
            await end_former_container(self.settings.former_podman, folder)
            await forget_former(self.settings.former_podman, folder)
            await remove_everything(self.settings, folder)
            self.images.collect()

    # --- status -------------------------------------------------------------------------------------------------------

    async def status(self, uid: str) -> EngineStatus:
        return await self.observer.observe(uid)

    async def measure(self, uid: str) -> ActivitySample | None:
        container = await self.observer.find_container(uid)
        if container is None or not container.is_alive():
            self.writes.forget(uid)
            return None
        holder = self._holder(uid)
        cpu_seconds, terminals = await self.process_scans.run(uid, partial(_sample_processes, self._folder(uid)))
        return ActivitySample(
            started_at=container.started_at,
            cpu_seconds=cpu_seconds,
            terminals=terminals,
            connections=await count_connection_bytes(holder.pid),
            newest_write=await self.writes.find_newest(uid, Path(f"/proc/{holder.pid}/root/workspaces")),
        )

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        uids = [folder.uid for folder in list_folders(self.settings.state_folder)]
        return {uid: await self._observe_known(uid) for uid in uids}

    async def _observe_known(self, uid: str) -> EngineStatus:
        """One workspace whose podman does not answer does not hide the others."""
        try:
            return await self.observer.observe(uid)
        except EngineError:
            return EngineStatus(ContainerState.STOPPED)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        container = await self._running(uid)
        holder = self._holder(uid)
        session = read_json(self._folder(uid).root / "session.json") or {}
        user = options.user or session.get("user")
        mark = new_mark(uid)
        processes = find_session(mark, list_box(self._folder(uid)))
        secrets = await read_secrets(holder, session.get("secrets") or [])
        named, values = pass_variables({**(session.get("variables") or {}), **secrets, **options.environment})
        arguments = [
            *(self.settings.podman, "exec", "--interactive", *(["--tty"] if options.tty else [])),
            *(("--user", user) if user else ()),
            *("--workdir", options.folder or session.get("folder") or "/"),
            *named,
            *("--env", f"{MARK}={mark}"),
            *(container.id, *(command or SHELL)),
        ]
        size = (options.columns, options.rows) if options.tty else None
        if not values:
            return await start_session(
                holder.enter(arguments), processes=processes, environment=ENVIRONMENT, size=size, is_passed_on=True
            )
        with open_variables({**ENVIRONMENT, **values}) as descriptor:
            return await start_session(
                holder.launch(arguments, descriptor),
                processes=processes,
                environment=ENVIRONMENT,
                size=size,
                descriptors=(descriptor,),
                is_passed_on=True,
            )

    async def listen(self, uid: str, name: str) -> ListeningSocket:
        await self._running(uid)
        try:
            return await listen_inside(self._holder(uid), name)
        except OSError as error:
            message = f"no socket can be created in the workspace: {error.strerror}"
            raise EngineError(Reason.NOT_RUNNING, message) from error

    async def listen_port(self, uid: str, port: int) -> socket.socket:
        await self._running(uid)
        return await listen_on_port(self._holder(uid), port)

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        await self._running(uid)
        scan = partial(list_listening, self._holder(uid).pid, list_box(self._folder(uid)))
        return await self.port_scans.run(uid, scan)

    async def open_port(self, uid: str, port: int) -> ByteStream:
        await self._running(uid)
        return await connect(self._holder(uid).pid, port)

    async def read_service_log(self, uid: str, service: str) -> bytes:
        return await read_log(self.settings, self._folder(uid), self._holder(uid), service)

    async def list_snapshots(self, uid: str) -> Sequence[Snapshot]:
        return list_snapshots(self._folder(uid))

    async def delete_snapshot(self, uid: str, snapshot: str) -> None:
        await delete_snapshot(self._folder(uid), self.observer.find_holder(uid), snapshot)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _folder(self, uid: str) -> WorkspaceFolder:
        return open_folder(self.settings.state_folder, uid)

    def _holder(self, uid: str) -> Holder:
        holder = self.observer.find_holder(uid)
        if holder is None:
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running")
        return holder

    async def _running(self, uid: str) -> Container:
        container = await self.observer.find_container(uid)
        if container is None or not container.is_alive():
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running")
        return container


def _use_former_spec(folder: WorkspaceFolder, spec: WorkspaceSpec) -> WorkspaceSpec:
    """What the container was created with: limits and permissions of a changed template are applied with the next
    container, too. Secrets are always those of now; they are not stored."""
    fields = read_json(folder.spec)
    if fields is None:
        return spec
    return replace(
        decode_spec(fields),
        secrets=spec.secrets,
        secret_options=spec.secret_options,
        registries=spec.registries,
    )


def list_box(folder: WorkspaceFolder, container: Container | None = None) -> ListPids:
    """Lists the processes of the workspace, or those of its container alone, without services beside it."""
    box = find_box(folder, "pids")
    own = box / f"libpod-{container.id}" if container is not None else box
    return partial(list_cgroup_pids, own if own.is_dir() else box)


def _select_sessions(container: Container, members: Members) -> list[ProcessSample]:
    """Processes of a running container outside of the session of its main process."""
    main = read_process(container.pid) if container.is_alive() else None
    return [each for each in members.values() if each.session != main.session] if main is not None else []


def _sample_processes(folder: WorkspaceFolder) -> tuple[float, dict[str, TerminalSample]]:
    """CPU seconds and terminals."""
    processes = list(read_members(list_box(folder)).values())
    used = read_cgroup_cpu(find_box(folder, "cpuacct"))
    return used if used is not None else sum(each.cpu_seconds for each in processes), sample_terminals(processes)


def pass_variables(variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Options of `podman exec` that name variables, and the environment with their values. The options have the values
    of those that podman itself would act upon, and of unusual names: `*` alone would be all of podman's variables."""
    options: list[str] = []
    environment: dict[str, str] = {}
    for name, value in variables.items():
        is_of_podman = name in VARIABLES_OF_PODMAN or name.startswith(PREFIXES_OF_PODMAN)
        if is_of_podman or not is_variable_name(name):
            options += ["-e", f"{name}={value}"]
        else:
            options += ["-e", name]
            environment[name] = value
    return options, environment


@contextmanager
def open_variables(environment: Mapping[str, str]) -> Iterator[int]:
    """A file in memory with variables, for `Holder.launch`."""
    descriptor = os.memfd_create("environment", 0)
    try:
        os.write(descriptor, json.dumps(dict(environment)).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
