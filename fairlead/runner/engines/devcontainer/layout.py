"""Where the engine keeps what it knows of a workspace: one folder per uid, and in it one file or folder per purpose.

    identity.json   number of the workspace, from which its user ids and its network follow. Written first, removed last
    spec.json       what `up` was called with, without secrets
    grant.json      what the shim in front of podman allows
    work/           the work folder; processes of the workspace write to it, so the host never follows paths in it
    staging/        copy of the work folder that the dev container CLI reads. The workspace cannot reach it
    private/        mounted at /run/fairlead inside, read-only: secrets as files
    rootfs/         root file system of the sandbox that clones and copies
    task/           log, result and exit code of the CLI, which runs in its own session
    home/, tmp/     home folder and temporary files of the CLI

Writes replace whole files, as the runner may be killed at any time. What could not be made again after a failure of the
machine reaches the disk before the next act.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED_IMAGES = "images"
"""The folder beside those of the workspaces with a record for each image that workspaces share."""
UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
"""Object uids are UUIDs. Anything else that could be a path is refused."""


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    root: Path

    @property
    def uid(self) -> str:
        return self.root.name

    @property
    def identity(self) -> Path:
        return self.root / "identity.json"

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def grant(self) -> Path:
        return self.root / "grant.json"

    @property
    def shim(self) -> Path:
        return self.root / "podman"

    @property
    def container_id(self) -> Path:
        return self.root / "container.id"

    @property
    def denials(self) -> Path:
        """What the shim refused, one line per attempt."""
        return self.root / "denied"

    @property
    def stopped(self) -> Path:
        """Exists while the workspace is to be stopped."""
        return self.root / "stopped"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def private(self) -> Path:
        return self.root / "private"

    @property
    def rootfs(self) -> Path:
        return self.root / "rootfs"

    @property
    def task(self) -> Path:
        return self.root / "task"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"


def open_folder(state: Path, uid: str) -> WorkspaceFolder:
    if not UID.fullmatch(uid):
        raise ValueError(f"{uid!r} is not a uid")
    return WorkspaceFolder(state / "workspaces" / uid)


def list_folders(state: Path) -> Iterator[WorkspaceFolder]:
    parent = state / "workspaces"
    if parent.is_dir():
        yield from (WorkspaceFolder(path) for path in sorted(parent.iterdir()) if UID.fullmatch(path.name))


def write_json(path: Path, value: Any) -> None:
    """Reaches the disk at once."""
    write_file(path, json.dumps(value, indent=1).encode(), is_durable=True)


def write_file(path: Path, data: bytes, mode: int = 0o600, is_durable: bool = False) -> None:
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if is_durable:
            os.fsync(file.fileno())
    temporary.replace(path)
    if is_durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path) -> Any:
    """None if there is no such file, or none that is complete."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
