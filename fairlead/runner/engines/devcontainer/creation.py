"""`up`: from a specification to a running container.

The steps before the CLI's own `up` are short, or repeated at no cost, so a runner that is killed meanwhile just begins
again. The CLI builds and starts in its own session (`detached.py`), and the next runner goes on with it.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import (
    GIT_CREDENTIALS,
    EngineError,
    GitSource,
    Reason,
    TaskContext,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.configuration import (
    cli_environment,
    cli_options,
    describe_cli_error,
    find_configuration,
    raise_refusals,
    read_configuration,
)
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_file, write_json
from fairlead.runner.engines.devcontainer.podman import Podman, last_line
from fairlead.runner.engines.devcontainer.preparation import (
    build_grant,
    check_free_disk,
    encode_spec,
    make_source_folders,
    prepare,
)
from fairlead.runner.engines.devcontainer.sandbox import run_in_sandbox, start_recovery
from fairlead.runner.engines.devcontainer.settings import Deadlines, Settings
from fairlead.runner.engines.devcontainer.sources import (
    SCRIPT_OF_CLONE,
    SCRIPT_OF_COPY,
    dotfiles_options,
    plan_fetch,
)
from fairlead.runner.engines.masking import Masker

BUILD, START, COMMANDS = "Build", "Start", "LifecycleCommands"
DOTFILES = "Installing Dotfiles"
"""The CLI's name for a step that may fail: a workspace is of use without them."""
SHOWN_LEVEL = 3
"""Lines of the CLI below this level are for its developers, and contain environments."""


@dataclass(slots=True)
class Progress:
    """What the log of the CLI says about how far it is."""

    step: str = BUILD
    command: str = ""
    has_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def read_line(self, line: bytes) -> str:
        """Takes one line of the log in; returns what users should see of it."""
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            return line.decode(errors="replace")
        text = str(entry.get("text", ""))
        if entry.get("type") == "progress" and entry.get("status") == "running":
            self.command = str(entry.get("name", "")).removeprefix("Running ").removesuffix("...")
            self._enter(COMMANDS)
        elif entry.get("type") == "progress" and entry.get("status") == "failed" and entry.get("name") == DOTFILES:
            return "the dotfiles could not be installed; the workspace comes up without them\n"
        elif entry.get("type") == "start" and text == "Starting container":
            self._enter(START)
        if entry.get("type") in ("raw", "text") and entry.get("level", 0) >= SHOWN_LEVEL:
            return text if text.endswith("\n") else text + "\n"
        return ""

    def _enter(self, step: str) -> None:
        order = (BUILD, START, COMMANDS)
        if order.index(step) > order.index(self.step):
            self.step = step
            self.has_changed.set()


@dataclass(frozen=True, slots=True)
class Creation:
    """One `up` of one workspace."""

    podman: Podman
    folder: WorkspaceFolder
    spec: WorkspaceSpec
    task: TaskContext
    grant: Grant

    @property
    def settings(self) -> Settings:
        return self.podman.settings

    @property
    def deadlines(self) -> Deadlines:
        return self.settings.deadlines

    @property
    def command(self) -> DetachedCommand:
        return DetachedCommand(self.folder.task)

    async def run(self, has_container: bool) -> None:
        async with self.task.step("Prepare", self.deadlines.prepare):
            await prepare(self.podman, self.folder, self.grant)
            write_file(self.folder.spec, json.dumps(encode_spec(self.spec)).encode())
            self._write_secrets()
        is_fresh = await self._fetch()
        async with self.task.step("Configure", self.deadlines.configure):
            if not is_fresh and not has_container:
                await self._copy_to_staging()
            config = find_configuration(self.spec, self.grant)
            merged = await read_configuration(self.settings, self.folder, self.grant, config)
            self.command.remove()
            self.folder.task.mkdir(mode=0o700)
            secrets = {name: value for name, value in self.spec.secrets.items() if name not in GIT_CREDENTIALS}
            write_file(self.folder.task / "secrets.json", json.dumps(secrets).encode())
            write_file(self.folder.task / "merged.json", json.dumps(merged).encode())
            options = cli_options(self.settings, self.folder, self.grant, config)
            gpus = "all" if self.grant.allows("gpu") else "none"
            self.command.start(
                self.task.task_id,
                [
                    *(*self.settings.cli, "up", *options),
                    *("--update-remote-user-uid-default", "never", "--buildkit", "never", "--gpu-availability", gpus),
                    *("--skip-post-attach", "--omit-config-remote-env-from-metadata"),
                    *("--secrets-file", str(self.folder.task / "secrets.json")),
                    *dotfiles_options(self.spec, self.settings),
                ],
                cli_environment(self.folder),
            )
        await self.finish()

    async def finish(self) -> None:
        """Follows the CLI up to its end, which may have been started by an earlier runner."""
        try:
            await self._follow()
        except EngineError as error:
            self._forget_secrets()
            if error.reason == Reason.STEP_TIMED_OUT and error.step in (BUILD, START):
                await self._recover()
            raise
        except asyncio.CancelledError:
            if self.task.is_cancelled:  # else the next runner goes on
                self._forget_secrets()
            raise
        self._forget_secrets()
        self._save_session(self.command.read_output())

    # --- the source ---------------------------------------------------------------------------------------------------

    @property
    def _work(self) -> Path:
        """What is mounted in the sandbox, and not the folder above: nothing inside can replace it by a link, which the
        host would follow at the next mount."""
        return self.folder.work / self.grant.project

    @property
    def _staging(self) -> Path:
        return self.folder.staging / self.grant.project

    async def _fetch(self) -> bool:
        """Whether the source was fetched just now, and is in the staging folder as well."""
        fetched = self.folder.root / "fetched.json"
        if fetched.exists():
            return False
        async with self.task.step("Clone", self.deadlines.clone):
            check_free_disk(self.settings)
            fetch = plan_fetch(self.spec.source, self.settings, self.spec.secrets)
            for parent in (self.folder.work, self.folder.staging):  # what a clone that was interrupted left
                await asyncio.to_thread(shutil.rmtree, parent, True)
            make_source_folders(self.folder, self.grant)
            if isinstance(self.spec.source, GitSource):
                self.task.log(f"Cloning {self.spec.source.url}\n".encode())
            result = await run_in_sandbox(
                self.podman,
                self.folder,
                self.grant,
                ("/bin/sh", "-c", SCRIPT_OF_CLONE),
                (f"{self._work}:/work", f"{self._staging}:/staging", *fetch.volumes),
                fetch.script_input,
            )
            masker = Masker(self.spec.secrets.values())
            self.task.log(masker.mask(result.errors.encode()))
            if result.code != 0:
                message = masker.mask(last_line(result.errors).encode()).decode(errors="replace")
                raise EngineError(Reason.CLONE_FAILED, f"the source could not be fetched: {message}")
            write_json(fetched, {"task": self.task.task_id})
        return True

    async def _copy_to_staging(self) -> None:
        """The user may have changed the devcontainer.json in the work folder."""
        await asyncio.to_thread(shutil.rmtree, self.folder.staging, True)
        make_source_folders(self.folder, self.grant)
        result = await run_in_sandbox(
            self.podman,
            self.folder,
            self.grant,
            ("/bin/sh", "-c", SCRIPT_OF_COPY),
            (f"{self._work}:/work:ro", f"{self._staging}:/staging"),
        )
        if result.code != 0:
            raise EngineError(
                Reason.CONFIGURATION_INVALID, f"the work folder cannot be read: {last_line(result.errors)}"
            )

    def _write_secrets(self) -> None:
        """As files inside, one per secret. Before the first session, the shim gives them to its user."""
        folder = self.folder.private / "secrets"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for name, value in self.spec.secrets.items():
            if name not in GIT_CREDENTIALS and "/" not in name and name not in ("", ".", ".."):
                write_file(folder / name, value.encode(), mode=0o400)
                os.chown(folder / name, self.grant.first_uid, self.grant.first_uid)
        os.chown(folder, self.grant.first_uid, self.grant.first_uid)
        (self.folder.root / "owned").unlink(missing_ok=True)

    # --- the CLI ------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        secrets: dict[str, str] = read_json(self.folder.task / "secrets.json") or {}
        masker, progress = Masker(secrets.values()), Progress()
        follower = asyncio.create_task(self.command.follow(self._log_lines(masker, progress)))
        seconds = {BUILD: self.deadlines.build, START: self.deadlines.start, COMMANDS: self.deadlines.commands}
        try:
            while not follower.done():
                step = progress.step
                async with self.task.step(step, seconds[step]):
                    try:
                        await _wait_for_either(follower, progress)
                        if follower.done() and follower.result() != 0:
                            await self._fail(progress, follower.result())
                    except asyncio.CancelledError:
                        if self.task.is_cancelled:
                            await self.command.kill()
                        raise
        except EngineError as error:
            if error.reason == Reason.STEP_TIMED_OUT and progress.command:
                self._save_session(b"{}")
                raise EngineError(error.reason, f"{progress.command}: {error.message}", error.step) from error
            raise
        finally:
            follower.cancel()

    def _log_lines(self, masker: Masker, progress: Progress) -> Callable[[bytes], None]:
        def log_line(line: bytes) -> None:
            if text := progress.read_line(masker.mask(line)):
                self.task.log(masker.mask(text.encode()))

        return log_line

    async def _fail(self, progress: Progress, code: int | None) -> None:
        """Raises the error that the CLI ended with."""
        raise_refusals(self.folder)
        if code is None:
            raise EngineError(Reason.START_FAILED, "the dev container CLI was killed, or the machine restarted")
        message = describe_cli_error(self.command.read_output(), b"")
        if progress.step == COMMANDS:
            self._save_session(self.command.read_output())
            raise EngineError(Reason.COMMAND_FAILED, f"{progress.command} failed: {message}")
        reason = Reason.BUILD_FAILED if progress.step == BUILD else Reason.START_FAILED
        if await self._recover():
            message += "; a container with the sources runs in its place, to repair them"
        raise EngineError(reason, message)

    async def _recover(self) -> bool:
        target = self.grant.work_folder
        result = await start_recovery(self.podman, self.folder, self.grant, target)
        if result.code == 0:
            self._save_session(json.dumps({"remoteUser": "root", "remoteWorkspaceFolder": target}).encode())
        return result.code == 0

    def _forget_secrets(self) -> None:
        """The CLI has ended, and the container has its own files."""
        (self.folder.task / "secrets.json").unlink(missing_ok=True)

    def _save_session(self, output: bytes) -> None:
        """The user and folder of sessions. When a command failed, the CLI does not say them, but the configuration may;
        without a user there, podman chooses that of the image."""
        try:
            result: dict[str, Any] = json.loads(output)
        except ValueError:
            return
        merged: dict[str, Any] = read_json(self.folder.task / "merged.json") or {}
        user = result.get("remoteUser") or merged.get("remoteUser") or merged.get("containerUser") or ""
        subfolder = getattr(self.spec.source, "subfolder", "")
        folder = str(result.get("remoteWorkspaceFolder") or self.grant.work_folder)
        session = {"user": user, "folder": f"{folder}/{subfolder}".rstrip("/")}
        write_json(self.folder.root / "session.json", session)


async def _wait_for_either(follower: asyncio.Task[int | None], progress: Progress) -> None:
    """Waits until the CLI has ended or entered the next step."""
    progress.has_changed.clear()
    changed = asyncio.create_task(progress.has_changed.wait())
    try:
        await asyncio.wait((follower, changed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()


def plan_creation(podman: Podman, folder: WorkspaceFolder, spec: WorkspaceSpec, task: TaskContext) -> Creation:
    return Creation(podman, folder, spec, task, build_grant(podman.settings, spec, folder, task.task_id))
