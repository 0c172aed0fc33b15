"""Removes images that no workspace uses: shared ones by age and number, all kinds when the disk gets full.

An `up` looks for images and uses them a little later. So nothing is removed while one is under way, and none starts
meanwhile. One of an earlier runner shows by its detached command.
"""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.images import OWN, SHARED
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES, list_folders
from fairlead.runner.engines.devcontainer.podman import Podman

STORE = "CONTAINERS_STORAGE_CONF"
"""The variable that gives the engine an image store of its own. In one that others may use, too, only what has a name
of the engine is removed."""


@dataclass(slots=True)
class ImageCollector:
    podman: Podman
    _gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    _users: int = 0

    @asynccontextmanager
    async def keep_images(self) -> AsyncIterator[None]:
        """Nothing is removed within the block."""
        async with self._gate:
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    def is_disk_low(self) -> bool:
        settings = self.podman.settings
        existing = next(each for each in (settings.state_folder, *settings.state_folder.parents) if each.exists())
        return shutil.disk_usage(existing).free < 2 * settings.min_free_bytes

    async def collect(self) -> None:
        async with self._gate:
            if self._users or self._is_building():
                return
            if has_own_store := STORE in self.podman.settings.podman_environment:
                await self._remove_build_leftovers()
            await self._remove_shared()
            if has_own_store and self.is_disk_low():
                await self._remove_pulled()

    def _is_building(self) -> bool:
        folders = list_folders(self.podman.settings.state_folder)
        return any(DetachedCommand(folder.task).find_leader() is not None for folder in folders)

    async def _remove_build_leftovers(self) -> None:
        """Containers and images of builds that were killed. They carry no label."""
        listed = await self.podman.run("ps", "--all", "--external", "--format", "json")
        external = [each for each in json.loads(listed.output or "[]") or [] if _is_working_container(each)]
        await self.podman.remove(("rm", "--force"), [str(each["Id"]) for each in external])
        await self.podman.run("image", "prune", "--force")

    async def _remove_shared(self) -> None:
        settings = self.podman.settings
        records = settings.state_folder / SHARED_IMAGES
        unused = list_unused_shared(await self._list_images(), read_last_uses(records))
        removed = choose_expired(unused, time.time(), settings.unused_image_seconds, settings.max_unused_images)
        for name in unused if self.is_disk_low() else removed:
            await self.podman.run("rmi", name)
        existing = {record_name(name) for name in await self._list_shared()}
        for record in set(read_last_uses(records)) - existing:  # also those of builds that failed
            (records / record).unlink(missing_ok=True)

    async def _remove_pulled(self) -> None:
        """Podman refuses those that a container uses."""
        for image in await self._list_images():
            names = image.get("Names") or ()
            if not image.get("ReadOnly") and not any(name.startswith(OWN) for name in names):
                await self.podman.run("rmi", str(image["Id"]))

    async def _list_shared(self) -> list[str]:
        names = [str(name) for image in await self._list_images() for name in image.get("Names") or ()]
        return [name for name in names if name.startswith(SHARED)]

    async def _list_images(self) -> list[dict[str, Any]]:
        return [dict(each) for each in json.loads(await self.podman.expect("images", "--format", "json") or "[]")]


def list_unused_shared(images: Sequence[Mapping[str, Any]], last_uses: Mapping[str, float]) -> dict[str, float]:
    """Names of shared images that no workspace has a name for, with the time of their last use."""
    unused: dict[str, float] = {}
    for image in images:
        names = [str(name) for name in image.get("Names") or ()]
        if not image.get("Containers") and all(name.startswith(SHARED) for name in names):
            unused |= {name: last_uses.get(record_name(name), 0.0) for name in names}
    return unused


def choose_expired(last_uses: Mapping[str, float], now: float, max_seconds: float, max_number: int) -> list[str]:
    """The ones that were not used for too long, and the oldest of those that are too many."""
    newest_first = sorted(last_uses, key=lambda name: last_uses[name], reverse=True)
    return [
        name for index, name in enumerate(newest_first) if index >= max_number or now - last_uses[name] >= max_seconds
    ]


def read_last_uses(records: Path) -> dict[str, float]:
    return {path.name: path.stat().st_mtime for path in records.iterdir()} if records.is_dir() else {}


def record_name(image: str) -> str:
    return image.removeprefix(SHARED).replace(":", "-")


def _is_working_container(container: Mapping[str, object]) -> bool:
    """Containers of a build are known to the storage, not to podman."""
    return container.get("Status") == "storage" or container.get("State") == "storage"
