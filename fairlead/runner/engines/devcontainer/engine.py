"""`DevcontainerEngine`: dev containers on this machine, one per workspace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fairlead.core.findings import Finding
from fairlead.runner.engines.contract import (
    ActivitySample,
    ByteStream,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    ListeningPort,
    Process,
    Reason,
    TaskContext,
    TerminalSample,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.cleanup import remove_container, remove_everything
from fairlead.runner.engines.devcontainer.collection import ImageCollector
from fairlead.runner.engines.devcontainer.command_lines import pass_variables
from fairlead.runner.engines.devcontainer.connections import count_connection_bytes
from fairlead.runner.engines.devcontainer.creation import plan_creation
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.diagnosis import diagnose
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, open_folder, read_json
from fairlead.runner.engines.devcontainer.observation import Container, Observer
from fairlead.runner.engines.devcontainer.podman import Podman
from fairlead.runner.engines.devcontainer.ports import connect, list_listening
from fairlead.runner.engines.devcontainer.preparation import decode_spec
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.measurement import (
    ProcessSample,
    WriteScanner,
    find_cgroup,
    list_cgroup_pids,
    read_cgroup_cpu,
    read_process,
    sample_terminals,
)
from fairlead.runner.engines.scans import Scans
from fairlead.runner.engines.sessions import (
    MARK,
    end_trees,
    find_stale_sessions,
    new_mark,
    request_end,
    start_session,
    start_terminal_session,
)

SHELL = ("/bin/sh", "-c", 'exec "$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7 | grep . || echo /bin/sh)" -l')
GRACE_SECONDS, MAIN_GRACE_SECONDS = 30, 10
"""Between TERM and KILL: for what users have started, and then for the main process, with which everything ends."""


@dataclass(slots=True)
class DevcontainerEngine:
    settings: Settings
    name: str = "devcontainer"
    podman: Podman = field(init=False)
    observer: Observer = field(init=False)
    images: ImageCollector = field(init=False)
    writes: WriteScanner = field(default_factory=WriteScanner)
    port_scans: Scans[list[ListeningPort]] = field(default_factory=Scans)
    process_scans: Scans[tuple[float, dict[str, TerminalSample]]] = field(default_factory=Scans)

    def __post_init__(self) -> None:
        self.podman = Podman(self.settings)
        self.observer = Observer(self.podman)
        self.images = ImageCollector(self.podman)

    async def check(self) -> Sequence[Finding]:
        return await diagnose(self.podman)

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        folder = self._folder(spec.uid)
        status = await self.observer.observe(spec.uid)
        is_current = status.template_hash == spec.template_hash and not status.is_recovery
        is_reused = is_current and not spec.recreate and not spec.reset
        if status.state is ContainerState.RUNNING and is_reused:
            return
        await DetachedCommand(folder.task).kill()
        self.observer.forget(spec.uid)
        folder.stopped.unlink(missing_ok=True)
        if not is_reused:
            await remove_container(self.podman, folder)
        if self.images.is_disk_low():
            await self.images.collect()
        has_run = (folder.root / "session.json").exists()
        if spec.reset or not has_run:  # without a session, nothing in the work folder is the user's
            (folder.root / "fetched.json").unlink(missing_ok=True)
        has_container = is_reused and status.state is not ContainerState.NOT_FOUND and bool(status.task_id)
        async with self.images.keep_images():
            await plan_creation(self.podman, folder, spec, task).run(has_container)

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        folder = self._folder(uid)
        await end_trees(lambda: find_stale_sessions(uid))
        command = DetachedCommand(folder.task)
        fields = read_json(folder.spec)
        is_under_way = command.find_leader() is not None or command.read_exit_code() is not None
        if fields is None or not is_under_way or command.read_task_id() != task.task_id:
            return False
        async with self.images.keep_images():
            await plan_creation(self.podman, folder, decode_spec(fields), task).finish()
        return True

    async def stop(self, uid: str, task: TaskContext) -> None:
        folder = self._folder(uid)
        async with task.step("Stop", self.settings.deadlines.stop):
            await DetachedCommand(folder.task).kill()
            container = await self.observer.find_container(uid)
            if container is not None:
                folder.stopped.touch()
                await request_end(partial(_list_sessions, container), GRACE_SECONDS)
                await self.podman.run("stop", "--ignore", f"--time={MAIN_GRACE_SECONDS}", f"fairlead-{uid}")
            self.observer.forget(uid)

    async def delete(self, uid: str, task: TaskContext) -> None:
        folder = self._folder(uid)
        async with task.step("Delete", self.settings.deadlines.delete):
            await DetachedCommand(folder.task).kill()
            self.observer.forget(uid)
            await remove_everything(self.podman, folder)
            await self.images.collect()

    # --- status -------------------------------------------------------------------------------------------------------

    async def status(self, uid: str) -> EngineStatus:
        return await self.observer.observe(uid)

    async def measure(self, uid: str) -> ActivitySample | None:
        container = await self.observer.find_container(uid)
        if container is None or not container.is_alive():
            self.writes.forget(uid)
            return None
        cpu_seconds, terminals = await self.process_scans.run(uid, partial(_sample_processes, container))
        return ActivitySample(
            started_at=container.started_at,
            cpu_seconds=cpu_seconds,
            terminals=terminals,
            connections=await count_connection_bytes(container.pid),
            newest_write=await self.writes.find_newest(uid, self._folder(uid).work),
        )

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        uids = {folder.uid for folder in list_folders(self.settings.state_folder)}
        containers = await self.podman.find_containers()
        uids |= {str(each["Names"][0]).removeprefix("fairlead-") for each in containers if each.get("Names")}
        return {uid: await self.observer.observe(uid) for uid in sorted(uids) if not uid.endswith("-sandbox")}

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        container = await self._running(uid)
        session = read_json(self._folder(uid).root / "session.json") or {}
        user = options.user or session.get("user")
        mark = new_mark(uid)
        named, values = pass_variables(options.environment)
        arguments = [
            *(self.settings.podman, "exec", "--interactive", *(["--tty"] if options.tty else [])),
            *(("--user", user) if user else ()),
            *("--workdir", options.folder or session.get("folder") or "/"),
            *named,
            *("--env", f"{MARK}={mark}"),
            *(container.id, *(command or SHELL)),
        ]
        environment = {**values, **self.podman.environment}
        if options.tty:
            size = (options.columns, options.rows)
            return await start_terminal_session(arguments, mark, environment, *size, self._folder(uid).root)
        return await start_session(arguments, mark, environment, self._folder(uid).root)

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        container = await self._running(uid)
        return await self.port_scans.run(uid, partial(list_listening, container.pid))

    async def open_port(self, uid: str, port: int) -> ByteStream:
        container = await self._running(uid)
        return await connect(container.pid, port)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _folder(self, uid: str) -> WorkspaceFolder:
        return open_folder(self.settings.state_folder, uid)

    async def _running(self, uid: str) -> Container:
        container = await self.observer.find_container(uid)
        if container is None or not container.is_alive():
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running")
        return container


def _list_processes(container: Container) -> list[ProcessSample]:
    pids = list_cgroup_pids(find_cgroup(container.pid, "pids", container.id))
    return [found for pid in pids if (found := read_process(pid)) is not None]


def _list_sessions(container: Container) -> list[int]:
    """Processes of a running container outside of the session of its main process."""
    main = read_process(container.pid) if container.is_alive() else None
    if main is None:
        return []
    return [each.pid for each in _list_processes(container) if each.session != main.session]


def _sample_processes(container: Container) -> tuple[float, dict[str, TerminalSample]]:
    """CPU seconds and terminals."""
    processes = _list_processes(container)
    used = read_cgroup_cpu(find_cgroup(container.pid, "cpuacct", container.id))
    return used if used is not None else sum(each.cpu_seconds for each in processes), sample_terminals(processes)
