"""Images from registries: pulled once for all workspaces of a runner, which see them without a copy.

They are in a store that belongs to ids of its own. Podman pulls them in a holder that nothing else runs in, and
workspaces see the store read-only, with its files as if they were theirs. Only what a registry gives to everyone is
pulled here: nothing has credentials. An image that cannot be pulled here is left to the workspace, which reports why.

Repositories choose what is pulled, and registries how they answer. So an image can get no other name here than the one
of the registry that it comes from, and a registry that does not answer holds up only those who want its images.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.cleanup import end_holder
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE, Grant
from fairlead.runner.engines.devcontainer.image_names import is_pulled_here
from fairlead.runner.engines.devcontainer.isolation.cgroups import renew_cgroups
from fairlead.runner.engines.devcontainer.isolation.disk import says_disk_is_full
from fairlead.runner.engines.devcontainer.isolation.holder import (
    Holder,
    HolderPlan,
    ImageStore,
    find_holder,
    save_holder,
    start_holder,
)
from fairlead.runner.engines.devcontainer.isolation.ranges import claim_number
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import bind_own, describe_podman
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, read_json
from fairlead.runner.engines.devcontainer.preparation import prepare
from fairlead.runner.engines.devcontainer.programs import MAX_OUTPUT_BYTES, Result
from fairlead.runner.engines.devcontainer.settings import Settings

PULL_SECONDS = 1800.0
END_SECONDS = 15.0
MAX_PULLS = 4
"""At the same time."""
WAIT_SECONDS = 15.0
"""For the end of other pulls. Then the workspace pulls its image itself."""
ENSURE_SHARE = 0.8
"""Of the time for the step that waits for all images, whatever it is that takes so long."""
COLLECT_SECONDS = 120.0
TEMPORARY = "/var/tmp"
CLEAN = """
folder=$1; shift
cd "$folder" || exit 1
for path in *; do
    for kept; do [ "$path" = "$kept" ] && continue 2; done
    rm -rf -- "./$path"
done
mkdir -p -- "$1"
"""
"""Removes what pulls have left that were killed, all but the folders of those that run, and makes the first of them."""
PULLED = "pulled"
"""A file that exists when there are images on the disk."""
GIGABYTE = 1 << 30

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PulledImages:
    settings: Settings
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PULLS))
    _names: dict[str, asyncio.Lock] = field(default_factory=dict)
    """Of the images that are wanted now: each is pulled once."""
    _found: Counter[str] = field(default_factory=Counter)
    """IDs that are not yet noted by the workspaces that want them."""
    _folders: list[str] = field(default_factory=list)
    """Temporary folders of the pulls that run."""
    _pulls: int = 0

    @property
    def folder(self) -> WorkspaceFolder:
        digest = hashlib.sha256(str(self.settings.state_folder).encode()).hexdigest()[:12]
        return WorkspaceFolder(self.settings.state_folder / "pulled" / f"images-{digest}")

    @property
    def first_uid(self) -> int:
        """Of a number of its own, one of the highest: those of workspaces are the lowest that are free."""
        number = claim_number(self.settings, self.folder, is_highest=True)
        return self.settings.first_uid + number * IDS_PER_WORKSPACE

    def store(self) -> list[ImageStore]:
        """For the holders of workspaces; empty as long as nothing was pulled."""
        try:
            return self._find_store()
        except EngineError as error:
            log.warning("pulled images cannot be used", error=error.message)
            return []

    def _find_store(self) -> list[ImageStore]:
        if not self.folder.root.exists():
            return []
        first_uid = self.first_uid  # first of all: a store that belongs to other ids is removed with that
        if (self.folder.root / PULLED).exists():
            return [ImageStore("ws", "/images/pulled", first_uid, str(self.folder.disk))]
        has_images = (self.folder.store / "overlay-images").is_dir()
        return [ImageStore(str(self.folder.store), "/images/pulled", first_uid)] if has_images else []

    async def ensure(self, references: Iterable[str], is_fresh: bool = False) -> dict[str, str]:
        """Pulls images that are missing, or all of them (`is_fresh`). Returns the IDs of those that are there."""
        wanted = [each for each in dict.fromkeys(references) if is_pulled_here(each)]
        found: dict[str, str] = {}
        try:
            async with asyncio.timeout(self.settings.deadlines.configure * ENSURE_SHARE):
                for each in wanted:
                    found[each] = await self._ensure_one(each, is_fresh)
                    self._found[found[each]] += 1
        except TimeoutError:
            log.info("images are left to a workspace: they, or others, take too long", missing=wanted[len(found) :])
        except EngineError as error:
            log.warning("images cannot be pulled for all workspaces", error=error.message)
            return {}
        finally:
            self._found -= Counter(found.values())
        return {reference: id for reference, id in found.items() if id}

    async def _ensure_one(self, reference: str, is_fresh: bool) -> str:
        """The ID of the image; empty if it cannot be pulled. Raises TimeoutError if others are pulled for too long."""
        lock = self._names.setdefault(reference, asyncio.Lock())
        try:
            async with lock:
                holder = await self._start()
                found = await self._find(holder, reference)
                if found and not is_fresh:
                    return found
                async with self._take_slot():
                    return await self._pull(holder, reference) or found
        finally:
            if not lock.locked():
                self._names.pop(reference, None)

    @asynccontextmanager
    async def _take_slot(self) -> AsyncIterator[None]:
        """Raises TimeoutError if none is free in time."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _find(self, holder: Holder, reference: str) -> str:
        found = await holder.run(self.settings.podman, "image", "inspect", "--format", "{{.Id}}", reference)
        return found.output.strip() if found.code == 0 else ""

    async def _pull(self, holder: Holder, reference: str) -> str:
        """On a full disk, images that no workspace uses make room for it."""
        self._pulls += 1
        folder = f"pull{self._pulls}"
        self._folders.append(folder)
        try:
            async with asyncio.timeout(PULL_SECONDS):
                pulled = await self._run_pull(holder, reference, folder)
                if says_disk_is_full(pulled.errors) and await self._remove_unused(holder):
                    pulled = await self._run_pull(holder, reference, folder)
        except TimeoutError:
            return ""
        finally:
            self._folders.remove(folder)
        found = await self._find(holder, reference) if pulled.code == 0 else ""
        if found and self.folder.disk.exists():
            (self.folder.root / PULLED).touch()
        return found

    async def _run_pull(self, holder: Holder, reference: str, folder: str) -> Result:
        others = [each for each in self._folders if each != folder]
        await holder.run("/bin/sh", "-c", CLEAN, "clean", TEMPORARY, folder, *others)
        pull = (self.settings.podman, "pull", "--quiet", reference)
        return await holder.run("/usr/bin/env", f"TMPDIR={TEMPORARY}/{folder}", *pull)

    async def collect(self) -> None:
        """Removes the images that no workspace uses."""
        if not self.store():
            return
        try:
            async with asyncio.timeout(COLLECT_SECONDS):
                await self._remove_unused(await self._start())
        except TimeoutError:
            log.warning("unused images are not removed: podman takes too long")

    async def close(self) -> None:
        """Ends the holder in which images are pulled. Workspaces have the images mounted on their own, and the next
        pull starts another one."""
        try:
            async with asyncio.timeout(END_SECONDS), self._starting:
                await end_holder(self.folder)
        except (EngineError, TimeoutError) as error:
            log.warning("the holder of pulled images does not end", error=str(error) or "timed out")

    async def _remove_unused(self, holder: Holder) -> bool:
        """Whether there were any."""
        used = set(self._found)
        for folder in list_folders(self.settings.state_folder):
            used |= set((read_json(folder.images) or {}).values())
        command = [self.settings.podman, "images", "--all", "--format", "json", "--no-trunc"]
        listed = await holder.run(*command, max_output_bytes=MAX_OUTPUT_BYTES)
        unused = [id for id in _list_ids(listed.output) if id not in used]
        for id in unused:
            await holder.run(self.settings.podman, "rmi", "--force", id)
        return bool(unused)

    async def _start(self) -> Holder:
        async with self._starting:
            return find_holder(self.folder.holder) or await self._start_holder()

    async def _start_holder(self) -> Holder:
        settings, folder, grant = self.settings, self.folder, self._grant()
        network = await prepare(settings, folder, grant)
        plan = HolderPlan(
            first_uid=grant.first_uid,
            network=network,
            cgroups=await renew_cgroups(folder, grant),
            root=str(folder.mount_point),
            hostname="images",
            binds=(
                bind_own(folder, "ws", "/ws/store"),
                bind_own(folder, "private", "/ws/home"),
                bind_own(folder, "var", "/var"),
            ),
            files=describe_podman(settings, ()),
            disk_limits=settings.disk_limits,
        )
        holder = await start_holder(plan)
        await holder.expect("/bin/mkdir", "-p", "/var/tmp", "/var/cache", "/run/user")
        await asyncio.to_thread(save_holder, folder.holder, holder)
        return holder

    def _grant(self) -> Grant:
        return Grant(
            uid=self.folder.uid,
            task_id="",
            runner=self.settings.runner,
            template_hash="",
            podman=self.settings.podman,
            permissions=(),
            environment={},
            project="images",
            first_uid=self.first_uid,
            memory_bytes=GIGABYTE,
            cpus=2.0,
            processes=512,
            disk_bytes=self.settings.image_disk_bytes if self.settings.workspace_disk_bytes else 0,
        )


def _list_ids(output: str) -> list[str]:
    try:
        return [str(each["Id"]) for each in json.loads(output or "[]") or ()]
    except (ValueError, KeyError, TypeError):
        return []
