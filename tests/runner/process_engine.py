"""`ProcessEngine`: workspaces as folders and processes of the runner's own user, for tests that need a workspace with
real processes and no container. Nothing separates it from the machine.

`create_engine` makes it usable by a real `fairlead runner start --engine tests.runner.process_engine:create_engine`;
providers of templates name it `process`.

A workspace runs from `up` to `stop`, also while it has no process. Its processes carry its uid in their environment, by
which `stop` finds them, also those that detached themselves, and those that an earlier runner started. They also carry
the runner and the installation: so they are found if the state folder is gone, and not taken for those of another
runner of this machine. After a restart
of the machine it is stopped, because all its processes are gone.
"""

import asyncio
import json
import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fairlead.core.machine.findings import Finding
from fairlead.runner.engines.contract import (
    GIT_CREDENTIALS,
    ActivitySample,
    ByteStream,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    FolderSource,
    GitSource,
    ListeningPort,
    Process,
    Reason,
    TaskContext,
    WorkspaceSpec,
)
from fairlead.runner.engines.measurement import ProcessSample, Scans, WriteScanner, sample_terminals
from fairlead.runner.engines.process_trees import (
    MARK,
    EndRequests,
    MarkedProcesses,
    Members,
    read_mark,
    read_members,
)
from fairlead.runner.engines.sessions import end_trees, find_session, new_mark, request_end, start_session
from fairlead.runner.engines.specification import clone_options
from fairlead.runner.registry import EngineSettings
from tests.runner.harness.processes import list_pids

UID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OWNER = "FAIRLEAD_SESSION_OWNER"
"""The variable of processes with the name of the runner, a slash and the ID of the installation."""
CLONE_SECONDS, STOP_SECONDS, GRACE_SECONDS = 900.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class ProcessEngine:
    state_folder: Path
    name: str = "process"
    runner: str = ""
    writes: WriteScanner = field(default_factory=WriteScanner)
    process_scans: Scans[list[ProcessSample]] = field(default_factory=Scans)

    async def check(self) -> Sequence[Finding]:
        has_git = shutil.which("git") is not None
        isolation = "workspaces of the engine `process` are not separated from this machine"
        return [
            Finding("git", "" if has_git else "there is no git", "apt-get install git"),
            Finding("isolation", isolation, "use the engine `devcontainer` for others' code", is_fatal=False),
        ]

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        if spec.dev_container:
            raise EngineError(
                Reason.CONFIGURATION_INVALID,
                "the engine `process` has no environments; remove spec.environmentRef, or use a template with another",
            )
        folder = self._folder(spec.uid)
        status = await self.status(spec.uid)
        if status.state is ContainerState.RUNNING and spec.accepts(status.template_hash):
            return
        await self._end_processes(spec.uid)
        if spec.reset:
            await asyncio.to_thread(shutil.rmtree, folder, True)
        async with task.step("Clone", CLONE_SECONDS):
            if not (folder / "work").exists():
                await self._fetch(spec, folder, task)
        async with task.step("Start", STOP_SECONDS):
            self._write_secrets(spec, folder)
            subfolder = getattr(spec.source, "subfolder", "")
            running = {
                "boot": read_boot_id(),
                "started": datetime.now(UTC).isoformat(),
                "folder": str(folder / "work" / subfolder),
                "environment": dict(spec.environment),
                "template": spec.template_hash,
                "task": task.task_id,
                "installation": spec.installation,
            }
            _replace_file(folder / "running.json", json.dumps(running))

    async def stop(self, uid: str, task: TaskContext) -> None:
        async with task.step("Stop", STOP_SECONDS):
            (self._folder(uid) / "running.json").unlink(missing_ok=True)
            await request_end(uid, EndRequests(list_pids, partial(_select_processes, uid)), GRACE_SECONDS)
            await self._end_processes(uid)

    async def delete(self, uid: str, task: TaskContext) -> None:
        async with task.step("Delete", STOP_SECONDS):
            folder = self._folder(uid)
            (folder / "running.json").unlink(missing_ok=True)
            await self._end_processes(uid)
            if folder.exists():
                await asyncio.to_thread(shutil.rmtree, folder)

    async def close(self) -> None:
        """It runs nothing for itself."""

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        """Nothing of `up` outlives the runner."""
        return False

    # --- status -------------------------------------------------------------------------------------------------------

    async def status(self, uid: str) -> EngineStatus:
        running = self._read_running(uid)
        if running is None:
            has_files = (self._folder(uid) / "work").exists()
            return EngineStatus(ContainerState.STOPPED if has_files else ContainerState.NOT_FOUND)
        return EngineStatus(
            ContainerState.RUNNING,
            started_at=datetime.fromisoformat(str(running["started"])),
            user=pwd.getpwuid(os.geteuid()).pw_name,
            folder=str(running["folder"]),
            template_hash=str(running["template"]),
            task_id=str(running["task"]),
        )

    async def measure(self, uid: str) -> ActivitySample | None:
        running = self._read_running(uid)
        if running is None:
            self.writes.forget(uid)
            return None
        processes = await self.process_scans.run(uid, partial(_list_processes, uid))
        return ActivitySample(
            started_at=datetime.fromisoformat(str(running["started"])),
            cpu_seconds=sum(each.cpu_seconds for each in processes),
            terminals=sample_terminals(processes),
            newest_write=await self.writes.find_newest(uid, self._folder(uid) / "work"),
        )

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        parent = self.state_folder / "processes"
        uids = sorted(path.name for path in parent.iterdir()) if parent.is_dir() else []
        known = {uid: await self.status(uid) for uid in uids if not uid.endswith(".new")}
        return await asyncio.to_thread(self._find_without_folder) | known

    def _find_without_folder(self) -> dict[str, EngineStatus]:
        """Workspaces of which nothing but processes is left."""
        found: dict[str, EngineStatus] = {}
        for pid in list_pids():
            uid, _, session = read_mark(pid).partition(".")
            runner, slash, installation = read_mark(pid, OWNER).partition("/")
            if session and slash and runner == self.runner and UID_CHARACTERS.issuperset(uid):
                found[uid] = EngineStatus(ContainerState.NOT_FOUND, installation=installation)
        return found

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        running = self._require_running(uid)
        user = pwd.getpwuid(os.geteuid())
        if options.user not in ("", user.pw_name):
            raise EngineError(Reason.NOT_RUNNING, f"processes of this workspace run as {user.pw_name} only")
        mark = new_mark(uid)
        given = running["environment"]
        environment = {
            "PATH": os.defpath,
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "SHELL": user.pw_shell,
            "TERM": "xterm",
            **(given if isinstance(given, dict) else {}),
            **options.environment,
            MARK: mark,
            OWNER: f"{self.runner}/{running.get('installation') or ''}",
        }
        folder = options.folder or str(running["folder"])
        arguments = ["/usr/bin/env", "--chdir", folder, "--", *(command or [user.pw_shell, "-l"])]
        size = (options.columns, options.rows) if options.tty else None
        return await start_session(arguments, find_session(mark, list_pids), environment, size)

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        """Ports of the machine cannot be told apart by workspace."""
        self._require_running(uid)
        return []

    async def open_port(self, uid: str, port: int) -> ByteStream:
        """Refused: it would open every service of the machine to users of the workspace."""
        raise EngineError(Reason.NOT_RUNNING, "workspaces of the engine `process` have no ports of their own")

    # --- parts --------------------------------------------------------------------------------------------------------

    def _folder(self, uid: str) -> Path:
        if not uid or not UID_CHARACTERS.issuperset(uid) or uid.startswith("-"):
            raise ValueError(f"{uid!r} is not a uid")
        return self.state_folder / "processes" / uid

    async def _fetch(self, spec: WorkspaceSpec, folder: Path, task: TaskContext) -> None:
        """Into a folder that gets its name at the end: a clone that was interrupted does not count."""
        new = folder / "work.new"
        await asyncio.to_thread(shutil.rmtree, new, True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        match spec.source:
            case GitSource(url, branch, commit) as source:
                if url.startswith("-") or branch.startswith("-") or commit.startswith("-"):
                    raise EngineError(Reason.SOURCE_REFUSED, f"{url!r} is not the URL of a repository")
                chosen = ["--branch", branch] if branch else []
                part = clone_options(source, spec.clone_strategy)
                await _run_git(["clone", "--quiet", *part, *chosen, "--", url, str(new)], task)
                if commit and part:
                    await _run_git(["-C", str(new), "fetch", "--quiet", *part, "origin", commit], task)
                if commit:
                    await _run_git(["-C", str(new), "checkout", "--quiet", "--detach", commit, "--"], task)
            case FolderSource(path):
                await asyncio.to_thread(shutil.copytree, path, new, symlinks=True)
            case _:
                raise EngineError(Reason.SOURCE_REFUSED, "the engine `process` needs a repository or a folder")
        new.rename(folder / "work")

    def _write_secrets(self, spec: WorkspaceSpec, folder: Path) -> None:
        secrets = folder / "secrets"
        shutil.rmtree(secrets, ignore_errors=True)
        secrets.mkdir(mode=0o700)
        for name, value in spec.secrets.items():
            if name not in GIT_CREDENTIALS and "/" not in name and name not in ("", ".", ".."):
                _replace_file(secrets / name, value)

    async def _end_processes(self, uid: str) -> None:
        processes = MarkedProcesses(uid, list_pids, lambda mark: mark.startswith(f"{uid}."), has_detached=True)
        await end_trees(processes)

    def _read_running(self, uid: str) -> dict[str, object] | None:
        try:
            running: dict[str, object] = json.loads((self._folder(uid) / "running.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return running if running.get("boot") == read_boot_id() else None

    def _require_running(self, uid: str) -> dict[str, object]:
        running = self._read_running(uid)
        if running is None:
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running")
        return running


def _select_processes(uid: str, members: Members) -> list[ProcessSample]:
    return [each for each in members.values() if read_mark(each.pid).startswith(f"{uid}.")]


def _list_processes(uid: str) -> list[ProcessSample]:
    return _select_processes(uid, read_members(list_pids))


async def _run_git(arguments: Sequence[str], task: TaskContext) -> None:
    environment = {
        "PATH": os.defpath,
        "HOME": str(Path.home()),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    }
    process = await asyncio.create_subprocess_exec(
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    task.log(errors)
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or ["no message"]
        raise EngineError(Reason.CLONE_FAILED, f"the source could not be fetched: {lines[-1]}")


def read_boot_id() -> str:
    """Another one after each start of the machine."""
    return BOOT_ID.read_text()


def _replace_file(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def create_engine(settings: EngineSettings) -> ProcessEngine:
    return ProcessEngine(settings.state_folder, runner=settings.runner)
