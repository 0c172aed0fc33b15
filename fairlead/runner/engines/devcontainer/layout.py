"""Where the engine keeps what it knows of a workspace: one folder per uid, and in it one file or folder per purpose.

    identity.json   number of the workspace, from which its user ids and its network follow. Written first, removed last
    spec.json       what `up` was called with, without secrets
    holder.json     the first process of its holder
    container.json  the container, as it was last seen
    images.json     the pulled images that it uses
    private-images.json  the images that were pulled with credentials of the project
    services.json   the containers of services of Compose files
    snapshots.json  what there is in the folder `snapshots` of podman's store
    unused          there is nothing of the repository on the disk that has run
    overuse         why the engine has ended the workspace
    build-key.json  the digest of what its image is built from (`build_keys.py`)
    disk.img        the disk of the workspace (`isolation/disk.py`), with the folders
        work/       the work folder, below it with the name of the project
        images/     images that were pulled with credentials of the project, images-var/ temporary files of that
        ws/, var/   podman's store, home folder and temporary files of the tools
        private/    mounted at /run/fairlead inside, read-only: secrets as files
    task/           log, result and exit code of the CLI, which runs in its own session

`work`, `ws`, `var` and `private` belong to the ids of the workspace, and are mounted in its holder. The machine's root
never follows paths below them, and creates nothing there. A workspace without a disk, because an earlier version
created it or its runner has no limit, has them beside the other files.

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

SHARED_IMAGES = "images-2"
"""The folder beside those of the workspaces with the archives of images that workspaces share."""
FORMER_SHARED_IMAGES = "images"
"""That of earlier versions, in which holders said themselves what they had built: it is removed, not used."""
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
    def holder(self) -> Path:
        return self.root / "holder.json"

    @property
    def mount_point(self) -> Path:
        """Where the root file system of a holder is mounted, in its own mount namespace only."""
        return self.root / "holder"

    @property
    def container(self) -> Path:
        return self.root / "container.json"

    @property
    def images(self) -> Path:
        """The IDs of pulled images that the workspace uses, by name."""
        return self.root / "images.json"

    @property
    def private_images(self) -> Path:
        """The names of the images that were pulled for this workspace alone."""
        return self.root / "private-images.json"

    @property
    def services(self) -> Path:
        """The containers of the services of Compose files."""
        return self.root / "services.json"

    @property
    def snapshots(self) -> Path:
        """The snapshots on the disk of the workspace, the oldest first."""
        return self.root / "snapshots.json"

    @property
    def checked(self) -> Path:
        """The digest of the configuration that was checked, and what sessions need of it."""
        return self.root / "checked.json"

    @property
    def unused(self) -> Path:
        """Exists as long as nothing of the repository has run on the disk."""
        return self.root / "unused"

    @property
    def build_key(self) -> Path:
        """Which image of the workspace others may use."""
        return self.root / "build-key.json"

    @property
    def stopped(self) -> Path:
        """Exists while the workspace is to be stopped."""
        return self.root / "stopped"

    @property
    def overuse(self) -> Path:
        """Why the engine has ended the workspace, until it is started again."""
        return self.root / "overuse"

    @property
    def disk(self) -> Path:
        return self.root / "disk.img"

    @property
    def work(self) -> Path:
        """Of a workspace without a disk, as the following ones."""
        return self.root / "work"

    @property
    def store(self) -> Path:
        return self.root / "ws"

    @property
    def var(self) -> Path:
        return self.root / "var"

    @property
    def private(self) -> Path:
        return self.root / "private"

    @property
    def task(self) -> Path:
        return self.root / "task"


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
