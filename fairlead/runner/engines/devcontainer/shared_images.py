"""Archives of images that were built: the next workspace of the same repository in the same project loads them.

A folder for each repository, and in it a file for each image, with the digest of everything that it depends on, which
was known before the build (`build_keys.py`). The machine's root writes and removes them, and never reads what is in
them: podman saves and loads them in the holders.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import structlog

from fairlead.core.waiting import start_task
from fairlead.runner.engines.devcontainer.cleanup import remove_paths
from fairlead.runner.engines.devcontainer.inside.builds import SHARED
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT, Holder
from fairlead.runner.engines.devcontainer.layout import FORMER_SHARED_IMAGES, SHARED_IMAGES
from fairlead.runner.engines.devcontainer.settings import Settings

SAVE_SECONDS = 900.0
LOW_PRIORITY = ("/usr/bin/nice", "--adjustment=19")
"""No workspace waits for what is saved, but for a later one of the same repository."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SharedImages:
    settings: Settings
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _saves: set[asyncio.Task[None]] = field(default_factory=set)
    _partial: set[Path] = field(default_factory=set)
    """Files that are being written."""

    @property
    def folder(self) -> Path:
        return self.settings.state_folder / SHARED_IMAGES

    def is_disk_low(self) -> bool:
        existing = next(each for each in (self.folder, *self.folder.parents) if each.exists())
        return shutil.disk_usage(existing).free < 2 * self.settings.min_free_bytes

    async def take_turn(self, repository: str, seconds: float) -> "BuildTurn":
        """Workspaces of one repository build one after the other: the next one then finds what it needs. One that has
        waited for so long builds all the same."""
        turn = BuildTurn(self._turns.setdefault(repository, asyncio.Lock()) if repository else None)
        try:
            async with asyncio.timeout(seconds):
                await turn.take()
        except TimeoutError:
            return BuildTurn(None)
        return turn

    def save_in_background(self, holder: Holder, repository: str, key: str, turn: "BuildTurn | None") -> None:
        """Saves what was built in this holder, for the next workspace, which waits for the turn. The one that built it
        does not wait."""

        async def save_and_release() -> None:
            try:
                await self.save(holder, repository, key)
            except OSError as error:  # a disk that is full, for example: the workspace runs all the same
                log.warning("an image is not kept for other workspaces", reason=error.strerror)
            finally:
                if turn is not None:
                    turn.release()

        start_task(self._saves, save_and_release(), "save an image")

    async def save(self, holder: Holder, repository: str, key: str) -> None:
        """Saves the image with this key, which the holder had to name before it built (`build_keys.py`). What it writes
        is no more than its disk has, and takes no longer than this."""
        if not repository or not key or self.is_disk_low():
            return
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                await self._save(holder, repository, key)
        except TimeoutError:
            return

    async def _save(self, holder: Holder, repository: str, key: str) -> None:
        target = self.folder / repository / f"{key}.tar"
        if target.exists():
            return
        partial = target.with_name(f"{key}.{secrets.token_hex(8)}.new")
        self._partial.add(partial)
        command = (self.settings.podman, "save", "--quiet", "--format=docker-archive", f"{SHARED}:{key}")
        max_bytes = self.settings.workspace_disk_bytes or shutil.disk_usage(self.folder).total
        free = min(max_bytes, shutil.disk_usage(self.folder).free - 2 * self.settings.min_free_bytes)
        try:
            has_succeeded = await _copy_output([*LOW_PRIORITY, *holder.enter(command)], partial, max(free, 0))
            size = partial.stat().st_size
            if has_succeeded and 0 < size < free:
                partial.chmod(0o644)
                partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
            self._partial.discard(partial)

    def note_use(self, repository: str) -> None:
        """The time of a file is that of its last use. A holder of the repository can use them all."""
        if repository:
            for path in (self.folder / repository).glob("*.tar"):
                os.utime(path)

    async def remove_former(self) -> None:
        """Archives of earlier versions: what is in them was chosen by the holders that built it."""
        await remove_paths([self.settings.state_folder / FORMER_SHARED_IMAGES])

    def collect(self) -> None:
        """Removes what was not used for long, the oldest of what is too much, and everything when the disk is low."""
        uses = {path: path.stat().st_mtime for path in self.folder.glob("*/*.tar")}
        removed = (
            uses
            if self.is_disk_low()
            else choose_expired(uses, time.time(), self.settings.unused_image_seconds, self.settings.max_unused_images)
        )
        left = (path for path in self.folder.glob("*/*.new") if path not in self._partial)
        for path in (*removed, *left):  # what a runner that was killed left is of no use
            path.unlink(missing_ok=True)


async def _copy_output(command: list[str], target: Path, max_bytes: int) -> bool:
    """Whether the command succeeded. Its output is in the file, up to this number of bytes.

    It goes through a pipe and another process: with the file itself, a process in the holder could change it later."""
    source, sink = _open_pipe()
    async with contextlib.AsyncExitStack() as processes:
        with source, sink, target.open("wb") as file:
            podman = await asyncio.create_subprocess_exec(
                *command,
                env=dict(ENVIRONMENT),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # else /dev/tty in the holder is the terminal of the runner
            )
            processes.push_async_callback(_kill, podman)
            copy = await asyncio.create_subprocess_exec(
                "/usr/bin/head",
                f"--bytes={max_bytes}",
                stdin=source,
                stdout=file,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            processes.push_async_callback(_kill, copy)
        has_succeeded = await podman.wait() == 0
        has_succeeded = await copy.wait() == 0 and has_succeeded
    return has_succeeded


def _open_pipe() -> tuple[BinaryIO, BinaryIO]:
    reader, writer = os.pipe()
    return open(reader, "rb"), open(writer, "wb")


async def _kill(process: asyncio.subprocess.Process) -> None:
    """What does not end, or is no longer waited for, is killed: others wait for their turn."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@dataclass(slots=True)
class BuildTurn:
    lock: asyncio.Lock | None
    is_taken: bool = False

    async def take(self) -> None:
        if self.lock is not None:
            await self.lock.acquire()
            self.is_taken = True

    def hand_over(self) -> "BuildTurn":
        """The turn for another owner, which releases it."""
        handed = BuildTurn(self.lock, self.is_taken)
        self.is_taken = False
        return handed

    def release(self) -> None:
        if self.lock is not None and self.is_taken:
            self.is_taken = False
            self.lock.release()


def choose_expired(last_uses: Mapping[Path, float], now: float, max_seconds: float, max_number: int) -> list[Path]:
    """The ones that were not used for too long, and the oldest of those that are too many."""
    newest_first = sorted(last_uses, key=lambda path: last_uses[path], reverse=True)
    return [
        path for index, path in enumerate(newest_first) if index >= max_number or now - last_uses[path] >= max_seconds
    ]
