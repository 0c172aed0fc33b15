"""`up`: from a specification to a running container.

The steps before the CLI's own `up` are short, or repeated at no cost, so a runner that is killed meanwhile just begins
again. The CLI builds and starts in its own session (`detached.py`), and the next runner goes on with it.
"""

import asyncio
import contextlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlead.core.validators import format_size
from fairlead.core.waiting import background_task
from fairlead.runner.engines.contract import (
    COMMANDS_STEP,
    GIT_CREDENTIALS,
    EngineError,
    GitSource,
    Reason,
    TaskContext,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.adaptation import MAX_WARNINGS
from fairlead.runner.engines.devcontainer.build_keys import read_key, receive_key
from fairlead.runner.engines.devcontainer.configuration import (
    Configuration,
    cli_options,
    describe_cli_error,
    describe_override,
    find_configuration,
    list_base_images,
    place_configuration,
    raise_refusals,
    read_configuration,
    read_omissions,
)
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.former import copy_former_volumes, find_former_volumes
from fairlead.runner.engines.devcontainer.git_config import build_git_config
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.inside.home import USER as USER_OF_HOME
from fairlead.runner.engines.devcontainer.inside.home import VOLUME as HOME_VOLUME
from fairlead.runner.engines.devcontainer.isolation.disk import describe_full_disk, read_usage, says_disk_is_full
from fairlead.runner.engines.devcontainer.isolation.holder import (
    ENVIRONMENT,
    Bind,
    Holder,
    ImageStore,
    find_holder,
    save_holder,
)
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import BLOCKING_OUTPUT, HolderFactory, resolve_cli
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_file, write_json
from fairlead.runner.engines.devcontainer.preparation import build_grant, check_free_disk, encode_spec, prepare
from fairlead.runner.engines.devcontainer.private_images import (
    list_missing,
    private_store,
    pull_private,
    select_private,
)
from fairlead.runner.engines.devcontainer.programs import last_line, parse_large_object, parse_object
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.recovery import start_recovery
from fairlead.runner.engines.devcontainer.services import (
    PREPARE_SERVICES,
    describe_failed,
    explain_end,
    note_services,
)
from fairlead.runner.engines.devcontainer.session_environment import (
    choose_secret_variables,
    read_container_environment,
    resolve_variables,
    select_session_properties,
)
from fairlead.runner.engines.devcontainer.settings import Deadlines, Settings
from fairlead.runner.engines.devcontainer.shared_images import BuildTurn, SharedImages
from fairlead.runner.engines.devcontainer.snapshots import discard_snapshots, take_snapshot
from fairlead.runner.engines.devcontainer.sources import SCRIPT as SCRIPT_OF_CLONE
from fairlead.runner.engines.devcontainer.sources import dotfiles_options, find_dotfiles_problem, plan_fetch
from fairlead.runner.engines.masking import Masker, StreamMasker

NO_DISK = b"""this workspace has no limit on its disk space: it began with an earlier version of the runner, or with
--workspace-disk 0; create it anew for one
"""
BUILD, START, COMMANDS = "Build", "Start", COMMANDS_STEP
TURN_SECONDS = 60.0
"""How long a workspace waits for another one of its repository that builds: it has a slot meanwhile, and the other one
may never end."""
FORGET_SECONDS = 30.0
DOTFILES = "Installing Dotfiles"
"""The CLI's name for a step that may fail: a workspace is of use without them."""
WRITING = (
    Reason.ENGINE_UNAVAILABLE,
    Reason.CLONE_FAILED,
    Reason.CONFIGURATION_INVALID,
    Reason.BUILD_FAILED,
    Reason.START_FAILED,
    Reason.COMMAND_FAILED,
)
"""What may fail because the disk is full, also if no message says so."""
PIECE_BYTES = 4096
"""Of the log, which are passed on at a time."""
FILL_PRIVATE = """
chmod 711 /private
find /private -mindepth 1 -delete
rm -f /ws/owned /ws/omissions
exec tar -C / --no-same-owner -xpf -
"""
"""Secrets are readable for the user of sessions only; the configuration of git is there for all users."""
SHOWN_LEVEL = 3
"""Lines of the CLI below this level are for its developers, and contain environments."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What users see of a line of the CLI's log."""

    text: str
    is_message: bool = False
    """It is one or more lines of the CLI itself. Else it is what a command has printed: any part of a line."""


class CliLog:
    """Passes the log of the CLI on. The output of commands comes in chunks, which may have parts of secrets, and with
    messages in between."""

    def __init__(self, task: TaskContext, secrets: Iterable[str]) -> None:
        self._task = task
        self._masker = Masker(secrets)
        self._output = StreamMasker(self._masker)
        self._is_within_line = False

    def write(self, shown: Shown) -> Iterator[None]:
        """In pieces, and so that others can have their turn in between: each line of text becomes one of the log, which
        costs far more than its bytes."""
        data = shown.text.encode(errors="replace")
        if shown.is_message:
            if self._is_within_line:
                self._log(b"\n")
            data = self._masker.mask(data)
        for position in range(0, len(data), PIECE_BYTES):
            piece = data[position : position + PIECE_BYTES]
            self._log(piece if shown.is_message else self._output.feed(piece))
            yield

    def end(self) -> None:
        self._log(self._output.end())
        if self._is_within_line:
            self._log(b"\n")

    def _log(self, data: bytes) -> None:
        if data:
            self._is_within_line = not data.endswith(b"\n")
            self._task.log(data)


@dataclass(slots=True)
class Progress:
    """What the log of the CLI says about how far it is."""

    step: str = BUILD
    command: str = ""
    is_disk_full: bool = False
    """A program said that it could not write."""
    has_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def read_line(self, line: bytes) -> Shown:
        """Takes one line of the log in; returns what users should see of it."""
        entry = parse_object(line)
        if entry is None:
            return Shown(line.decode(errors="replace"))
        text = str(entry.get("text", ""))
        self.is_disk_full = self.is_disk_full or says_disk_is_full(text)
        if entry.get("type") == "progress" and entry.get("status") == "running":
            self.command = str(entry.get("name", "")).removeprefix("Running ").removesuffix("...")
            self._enter(COMMANDS)
        elif entry.get("type") == "progress" and entry.get("status") == "failed" and entry.get("name") == DOTFILES:
            return Shown("the dotfiles could not be installed; the workspace comes up without them\n", is_message=True)
        elif entry.get("type") == "start" and text == "Starting container":
            self._enter(START)
        if entry.get("type") == "raw" and _read_level(entry) >= SHOWN_LEVEL:
            return Shown(text)
        if entry.get("type") == "text" and _read_level(entry) >= SHOWN_LEVEL:
            return Shown(text.removesuffix("\n") + "\n", is_message=True)
        return Shown("")

    def _enter(self, step: str) -> None:
        order = (BUILD, START, COMMANDS)
        if order.index(step) > order.index(self.step):
            self.step = step
            self.has_changed.set()


@dataclass(frozen=True, slots=True)
class Creation:
    """One `up` of one workspace."""

    settings: Settings
    images: SharedImages
    pulled: PulledImages
    folder: WorkspaceFolder
    spec: WorkspaceSpec
    task: TaskContext
    grant: Grant

    @property
    def deadlines(self) -> Deadlines:
        return self.settings.deadlines

    @property
    def command(self) -> DetachedCommand:
        return DetachedCommand(self.folder.task)

    async def run(self, has_container: bool) -> None:
        try:
            await self._run(has_container)
        except EngineError as error:
            if error.reason == Reason.WORKSPACE_DISK_FULL:
                raise
            raise self._explain(error, says_disk_is_full(error.message)) from error

    async def _run(self, has_container: bool) -> None:
        async with self.task.step("Prepare", self.deadlines.prepare):
            factory = await self._prepare()
            if self.grant.disk_bytes and not self.folder.disk.exists():
                self.task.log(NO_DISK)
        if not has_container and self.spec.takes_snapshot:
            async with self.task.step("Snapshot", self.deadlines.snapshot):
                await take_snapshot(self.settings, self.folder, await self._start_holder(factory), self.task)
        await self._fetch(factory)
        secrets = [name for name in self.spec.secrets if name not in GIT_CREDENTIALS]
        session_secrets = choose_secret_variables(self.spec.options, secrets)
        async with self.task.step("Configure", self.deadlines.configure):
            holder = await self._start_holder(factory)
            if not has_container:
                await self._remove_containers(holder)
            write_file(self.folder.spec, json.dumps(encode_spec(self.spec)).encode())
            await self._write_secrets(holder)
            configuration = await find_configuration(holder, self.spec, self.grant)
            checked = (read_json(self.folder.checked) or {}) if has_container else {}
            is_checked = checked.get("digest") == configuration.digest
            if is_checked:
                await place_configuration(holder, configuration)
                merged = checked.get("merged") or {}
            else:
                holder, merged = await self._check(factory, holder, configuration)
        if is_checked:  # the container that is there starts: nothing has to be read or built
            self._start_cli(holder, configuration, merged, session_secrets)
            await self.finish(first_step=START)
            return
        repository = self.grant.repository if configuration.has_build else ""
        turn = await self.images.take_turn(repository, TURN_SECONDS)
        try:
            async with receive_key(self.folder, holder, is_wanted=bool(repository)):
                self._start_cli(holder, configuration, merged, session_secrets)
                await self.finish(turn)
        finally:
            turn.release()

    async def _remove_containers(self, holder: Holder) -> None:
        """From here on, the container of before is given up. Volumes stay. Only what an owner has kept in the home
        folder, and in snapshots, is not for the next owner."""
        self.folder.container.unlink(missing_ok=True)
        await holder.expect(self.grant.podman, "rm", "--all", "--force", "--time=0")
        if self.spec.discards_home:
            await holder.expect(self.grant.podman, "volume", "rm", "--force", HOME_VOLUME)
            await discard_snapshots(self.folder, holder)

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        for warning in warnings[:MAX_WARNINGS]:
            self.task.log(f"warning: {' '.join(warning.split())}\n".encode(errors="replace"))

    async def _check(
        self, factory: HolderFactory, holder: Holder, configuration: Configuration
    ) -> tuple[Holder, dict[str, Any]]:
        """Pulls the images, and reads and checks what the configuration says with them. Returns the holder, which may
        be another one then, and what sessions need."""
        holder = await self._pull_images(factory, holder, configuration)
        await place_configuration(holder, configuration)
        read = await read_configuration(self.settings, holder, self.grant, configuration)
        merged = select_session_properties(read.get("mergedConfiguration"))
        self._log_warnings(configuration.warnings)
        await asyncio.to_thread(write_json, self.folder.checked, {"digest": configuration.digest, "merged": merged})
        if self.grant.keeps_home:
            user = str(merged.get("remoteUser") or merged.get("containerUser") or "")
            await holder.expect("/bin/sh", "-c", f"cat >{USER_OF_HOME}", stdin=user.encode())
        return holder, merged

    async def finish(self, turn: BuildTurn | None = None, first_step: str = BUILD) -> None:
        """Follows the CLI up to its end, which may have been started by an earlier runner."""
        try:
            await self._follow(turn, first_step)
        except EngineError as error:
            await self._forget_secrets()
            if error.reason == Reason.STEP_TIMED_OUT and error.step in (BUILD, START):
                await self._recover()
            raise
        except asyncio.CancelledError:
            if self.task.is_cancelled:  # else the next runner goes on
                await self._forget_secrets()
            raise
        await self._forget_secrets()
        if (holder := find_holder(self.folder.holder)) is not None:
            failed = await describe_failed(self.settings, self.folder, holder)
            self._log_warnings([*await read_omissions(holder), *failed])
        await self._save_session(self.command.read_output())

    def _end_build(self, turn: BuildTurn | None) -> None:
        """Lets what was built be saved, for the next workspace that waits for it."""
        if (holder := find_holder(self.folder.holder)) is not None:
            handed = turn.hand_over() if turn is not None else None
            self.images.save_in_background(holder, self.grant.repository, read_key(self.folder), handed)

    async def _prepare(self) -> HolderFactory:
        network = await prepare(self.settings, self.folder, self.grant)
        return HolderFactory(self.settings, self.folder, self.grant, network, self._list_stores())

    def _list_stores(self) -> list[ImageStore]:
        return [*self.pulled.store(), *private_store(self.folder, self.grant)]

    async def _pull_images(self, factory: HolderFactory, holder: Holder, configuration: Configuration) -> Holder:
        """Pulls what the workspace begins with, once for all, or with credentials for it alone. The first time, a store
        appears with a new holder."""
        had_store = bool(self.pulled.store())
        wanted = await list_base_images(holder, configuration)
        private = select_private(wanted, self.spec.registries)
        public = [each for each in wanted if each not in private]
        images = await self.pulled.ensure(public, is_fresh=self.grant.pulls_always)
        await asyncio.to_thread(write_json, self.folder.images, images)
        missing = list_missing(self.folder, private, self.grant)
        if missing:
            await holder.kill()
            await pull_private(factory, missing)
        elif had_store or not images:
            return holder
        holder = await self._start_holder(replace(factory, pulled=self._list_stores()))
        await self._write_secrets(holder)
        return holder

    async def _start_holder(self, factory: HolderFactory) -> Holder:
        """In place of an earlier one: what it still ran has no use any more."""
        if (former := find_holder(self.folder.holder)) is not None:
            await former.kill()
        self.images.note_use(self.grant.repository)
        volumes = await find_former_volumes(self.settings.former_podman, self.folder)
        holder = await factory.start(describe_override(self.spec), volumes)
        await asyncio.to_thread(save_holder, self.folder.holder, holder)
        await copy_former_volumes(self.settings.former_podman, self.folder, volumes, holder)
        return holder

    async def _fetch(self, factory: HolderFactory) -> None:
        fetched = self.folder.root / "fetched.json"
        has_run = (self.folder.root / "session.json").exists()  # else nothing in the work folder is the user's
        if fetched.exists() and has_run and not self.spec.reset:
            return
        async with self.task.step("Clone", self.deadlines.clone):
            check_free_disk(self.settings)
            fetch = plan_fetch(self.spec.source, self.settings, self.spec.secrets, self.spec.clone_strategy)
            if isinstance(self.spec.source, GitSource):
                self.task.log(f"Cloning {self.spec.source.url}\n".encode())
            binds = [factory.bind_work_folder("/work")]
            if fetch.folder:
                binds.append(Bind(fetch.folder, "/source"))
            fetched.unlink(missing_ok=True)
            result = await factory.run_alone(("/bin/sh", "-c", SCRIPT_OF_CLONE), binds, fetch.script_input)
            masker = Masker(self.spec.secrets.values())
            self.task.log(masker.mask(result.errors.encode()))
            if result.code != 0:
                message = masker.mask(last_line(result.errors).encode()).decode(errors="replace")
                error = EngineError(Reason.CLONE_FAILED, f"the source could not be fetched: {message}")
                raise self._explain(error, says_disk_is_full(result.errors))
            await asyncio.to_thread(write_json, fetched, {"task": self.task.task_id})

    async def _write_secrets(self, holder: Holder) -> None:
        """As files inside, one per secret, and as one file for the CLI, in memory. They go through a pipe: root of the
        machine writes nothing in folders of a workspace."""
        secrets = {name: value for name, value in self.spec.secrets.items() if name not in GIT_CREDENTIALS}
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            _add_file(archive, "run/secrets.json", json.dumps(secrets).encode())
            _add_folder(archive, "private/git", mode=0o755)
            _add_file(archive, "private/git/config", build_git_config(self.spec).encode(), mode=0o444)
            _add_folder(archive, "private/secrets")
            for name, value in secrets.items():
                if "/" not in name and name not in ("", ".", ".."):
                    _add_file(archive, f"private/secrets/{name}", value.encode())
        await holder.expect("/bin/sh", "-c", FILL_PRIVATE, stdin=content.getvalue())

    # --- the CLI ------------------------------------------------------------------------------------------------------

    def _start_cli(
        self, holder: Holder, configuration: Configuration, merged: Mapping[str, Any], session_secrets: Sequence[str]
    ) -> None:
        self.command.remove()
        self.folder.task.mkdir(mode=0o700)
        secrets = {name: value for name, value in self.spec.secrets.items() if name not in GIT_CREDENTIALS}
        write_file(self.folder.task / "secrets.json", json.dumps(secrets).encode())
        write_file(self.folder.task / "merged.json", json.dumps(merged).encode())
        note_services(self.folder, configuration.services)
        write_file(self.folder.task / "session-secrets.json", json.dumps(session_secrets).encode())
        spec = self.spec
        if spec.dotfiles and (problem := find_dotfiles_problem(spec.dotfiles, self.settings)):
            self._log_warnings([f"the profile of the owner is left out: {problem}"])
            spec = replace(spec, dotfiles="")
        gpus = "all" if self.grant.allows("gpu") else "none"
        command = [
            *(*resolve_cli(self.settings.cli), "up", *cli_options(self.grant, configuration)),
            *("--update-remote-user-uid-default", "never", "--buildkit", "never", "--gpu-availability", gpus),
            *("--skip-post-attach", "--omit-config-remote-env-from-metadata"),
            *("--secrets-file", "/run/secrets.json"),
            *(("--skip-post-create",) if self.spec.is_prebuild else ()),
            *dotfiles_options(spec, self.settings),
        ]
        if configuration.services is not None:
            command = [*PREPARE_SERVICES, *command]
        environment = {**ENVIRONMENT, "NODE_OPTIONS": f"--require={BLOCKING_OUTPUT}"}
        self.command.start(self.task.task_id, holder.enter(command), environment)

    async def _follow(self, turn: BuildTurn | None, first_step: str) -> None:
        secrets: dict[str, str] = read_json(self.folder.task / "secrets.json") or {}
        progress = Progress(first_step)
        log = CliLog(self.task, secrets.values())
        follower = asyncio.create_task(self.command.follow(lambda line: log.write(progress.read_line(line))))
        seconds = {BUILD: self.deadlines.build, START: self.deadlines.start, COMMANDS: self.deadlines.commands}
        try:
            has_ended = False
            while not has_ended:
                step = progress.step
                async with self.task.step(step, seconds[step]):
                    try:
                        await _wait_for_either(follower, progress)
                        has_ended = follower.done()
                        if has_ended and follower.result() != 0:
                            await self._fail(progress, follower.result())
                    except asyncio.CancelledError:
                        if self.task.is_cancelled:
                            await self.command.kill()
                        raise
                # Not during the start of the container, which would have to share the processors with it.
                if first_step == BUILD and step != COMMANDS and (has_ended or progress.step == COMMANDS):
                    self._end_build(turn)
        except EngineError as error:
            if error.reason == Reason.STEP_TIMED_OUT and progress.command:
                await self._save_session(b"{}")
                raise EngineError(error.reason, f"{progress.command}: {error.message}", error.step) from error
            raise
        finally:
            follower.cancel()
            log.end()

    async def _fail(self, progress: Progress, code: int | None) -> None:
        """Raises the error that the CLI ended with. It does not say that the container has ended, which is why most of
        what it does fails then."""
        ended = ""
        if (holder := find_holder(self.folder.holder)) is not None:
            await raise_refusals(holder)
            ended = await explain_end(self.settings, self.folder, holder) if progress.step != BUILD else ""
        if code is None:
            raise EngineError(Reason.START_FAILED, "the dev container CLI was killed, or the machine restarted")
        message = describe_cli_error(self.command.read_output().decode(errors="replace"), "", code)
        message = f"{ended}. What failed: {message}" if ended else message
        if progress.step == COMMANDS:
            await self._save_session(self.command.read_output())
            error = EngineError(Reason.COMMAND_FAILED, f"{progress.command} failed: {message}")
            raise self._explain(error, progress.is_disk_full)
        reason = Reason.BUILD_FAILED if progress.step == BUILD else Reason.START_FAILED
        error = self._explain(EngineError(reason, message), progress.is_disk_full or says_disk_is_full(message))
        if await self._recover():
            error.message += "; a container with the sources runs in its place, to repair them"
        raise error

    def _explain(self, error: EngineError, says_full: bool) -> EngineError:
        """The error that users should see if it is their disk that is full. `says_full`: programs said that; what they
        wrote may be gone again."""
        if not self.folder.disk.exists() or not (says_full or error.reason in WRITING):
            return error
        holder = find_holder(self.folder.holder)
        usage = read_usage(holder.pid) if holder is not None else None
        shortage = usage.describe_shortage() if usage is not None else ""
        if says_full and not shortage:
            shortage = f"{format_size(self.folder.disk.stat().st_size)} were not enough"
        if not shortage:
            return error
        message = f"{describe_full_disk(shortage)}. What failed: {error.message}"
        return EngineError(Reason.WORKSPACE_DISK_FULL, message, error.step)

    async def _recover(self) -> bool:
        """Whether a container with the sources runs now."""
        if self.spec.is_prebuild:
            return False
        try:
            async with asyncio.timeout(self.deadlines.start):
                return await self._start_recovery()
        except TimeoutError:
            return False

    async def _start_recovery(self) -> bool:
        """In a new holder: nothing of the build goes on."""
        try:
            holder = await self._start_holder(await self._prepare())
            await self._write_secrets(holder)
        except EngineError as error:  # on a full disk, for example
            self.task.log(f"no container runs in its place: {error.message}\n".encode())
            return False
        result = await start_recovery(holder, self.grant)
        if result.code == 0:
            session = {"remoteUser": "root", "remoteWorkspaceFolder": self.grant.work_folder}
            await self._save_session(json.dumps(session).encode())
        return result.code == 0

    async def _forget_secrets(self) -> None:
        """The CLI has ended, and the container has its own files."""
        (self.folder.task / "secrets.json").unlink(missing_ok=True)
        if (holder := find_holder(self.folder.holder)) is not None:
            with contextlib.suppress(TimeoutError):  # root of the holder can freeze it; the file is in memory
                await asyncio.wait_for(holder.run("/bin/rm", "-f", "/run/secrets.json"), FORGET_SECONDS)

    async def _save_session(self, output: bytes) -> None:
        """User, folder and variables of sessions. When a command failed, the CLI does not say them, but the
        configuration may; without a user there, podman chooses that of the image."""
        result = await asyncio.to_thread(parse_large_object, output)
        if result is None:
            return
        merged = await asyncio.to_thread(parse_large_object, _read_bytes(self.folder.task / "merged.json")) or {}
        user = result.get("remoteUser") or merged.get("remoteUser") or merged.get("containerUser") or ""
        subfolder = getattr(self.spec.source, "subfolder", "")
        folder = str(result.get("remoteWorkspaceFolder") or self.grant.work_folder)
        session = {
            "user": str(user),
            "folder": f"{folder}/{subfolder}".rstrip("/"),
            "variables": await self._resolve_variables(merged.get("remoteEnv")),
            "secrets": read_json(self.folder.task / "session-secrets.json") or [],
        }
        await asyncio.to_thread(write_json, self.folder.root / "session.json", session)

    async def _resolve_variables(self, remote: Any) -> dict[str, str]:
        holder = find_holder(self.folder.holder)
        if not remote or holder is None:
            return {}
        container = await read_container_environment(holder, self.grant.podman)
        return await asyncio.to_thread(resolve_variables, remote, container)


def _read_bytes(path: Path) -> bytes:
    """Empty if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _read_level(entry: Mapping[str, Any]) -> int:
    level = entry.get("level")
    return level if isinstance(level, int) else 0


async def _wait_for_either(follower: asyncio.Task[int | None], progress: Progress) -> None:
    """Waits until the CLI has ended or entered the next step."""
    progress.has_changed.clear()
    async with background_task(progress.has_changed.wait()) as changed:
        await asyncio.wait((follower, changed), return_when=asyncio.FIRST_COMPLETED)


def _add_folder(archive: tarfile.TarFile, name: str, mode: int = 0o700) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o400) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def plan_creation(
    images: SharedImages, pulled: PulledImages, folder: WorkspaceFolder, spec: WorkspaceSpec, task: TaskContext
) -> Creation:
    settings = images.settings
    return Creation(
        settings=settings,
        images=images,
        pulled=pulled,
        folder=folder,
        spec=spec,
        task=task,
        grant=build_grant(settings, spec, folder, task.task_id),
    )
