"""Images from registries: pulled once for all workspaces of a runner, which see them without a copy.

They are in a store that belongs to ids of its own. Podman pulls them in a holder that nothing else runs in, and
workspaces see the store read-only, with its files as if they were theirs. Only what a registry gives to everyone is
pulled here: nothing has credentials. An image that cannot be pulled here is left to the workspace, which reports why.
"""

import asyncio
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.cgroups import renew_cgroups
from fairlead.runner.engines.devcontainer.cleanup import end_holder
from fairlead.runner.engines.devcontainer.disk import says_disk_is_full
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE, Grant
from fairlead.runner.engines.devcontainer.holder import (
    Holder,
    HolderPlan,
    ImageStore,
    find_holder,
    save_holder,
    start_holder,
)
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, read_json, write_json
from fairlead.runner.engines.devcontainer.network import ADDRESSES_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.preparation import prepare
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.workspace_holder import bind_own, describe_podman

REFERENCE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]{0,254}")
PULL_SECONDS = 1800.0
END_SECONDS = 15.0
PULLED = "pulled"
"""A file that exists when there are images on the disk."""
GIGABYTE = 1 << 30

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PulledImages:
    settings: Settings
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def folder(self) -> WorkspaceFolder:
        digest = hashlib.sha256(str(self.settings.state_folder).encode()).hexdigest()[:12]
        return WorkspaceFolder(self.settings.state_folder / "pulled" / f"images-{digest}")

    @property
    def number(self) -> int:
        """That of the last workspace that the network pool has room for."""
        pool = ipaddress.IPv4Network(self.settings.network_pool)
        return pool.num_addresses // ADDRESSES_PER_WORKSPACE - 1

    @property
    def first_uid(self) -> int:
        return self.settings.first_uid + self.number * IDS_PER_WORKSPACE

    def store(self) -> list[ImageStore]:
        """For the holders of workspaces; empty as long as nothing was pulled."""
        if (self.folder.root / PULLED).exists():
            return [ImageStore("ws", "/images/pulled", self.first_uid, str(self.folder.disk))]
        has_images = (self.folder.store / "overlay-images").is_dir()
        return [ImageStore(str(self.folder.store), "/images/pulled", self.first_uid)] if has_images else []

    async def ensure(self, references: Iterable[str]) -> dict[str, str]:
        """Pulls images that are missing. Returns the IDs of those that are there."""
        wanted = [each for each in dict.fromkeys(references) if is_pulled_here(each)]
        if not wanted:
            return {}
        async with self._lock:
            try:
                holder = await self._start()
                found: dict[str, str] = {}
                for each in wanted:
                    found[each] = await self._pull(holder, each, found.values())
            except EngineError as error:
                log.warning("images cannot be pulled for all workspaces", error=error.message)
                return {}
        return {reference: id for reference, id in found.items() if id}

    async def _pull(self, holder: Holder, reference: str, wanted: Iterable[str]) -> str:
        """The ID of the image; empty if it cannot be pulled. On a full disk, images that no workspace uses make room
        for it, apart from the wanted ones."""
        podman = self.settings.podman
        inspect = (podman, "image", "inspect", "--format", "{{.Id}}", reference)
        found = await holder.run(*inspect)
        if found.code != 0:
            try:
                async with asyncio.timeout(PULL_SECONDS):
                    pulled = await holder.run(podman, "pull", "--quiet", reference)
                    if says_disk_is_full(pulled.errors) and await self._remove_unused(holder, wanted):
                        pulled = await holder.run(podman, "pull", "--quiet", reference)
            except TimeoutError:
                return ""
            found = await holder.run(*inspect) if pulled.code == 0 else pulled
        if found.code != 0:
            return ""
        if self.folder.disk.exists():
            (self.folder.root / PULLED).touch()
        return found.output.strip()

    async def collect(self) -> None:
        """Removes the images that no workspace uses."""
        if not self.store():
            return
        async with self._lock:
            await self._remove_unused(await self._start(), ())

    async def close(self) -> None:
        """Ends the holder in which images are pulled. Workspaces have the images mounted on their own, and the next
        pull starts another one."""
        try:
            async with asyncio.timeout(END_SECONDS), self._lock:
                await end_holder(self.folder)
        except (EngineError, TimeoutError) as error:
            log.warning("the holder of pulled images does not end", error=str(error) or "timed out")

    async def _remove_unused(self, holder: Holder, wanted: Iterable[str]) -> bool:
        """Whether there were any."""
        used = set(wanted)
        for folder in list_folders(self.settings.state_folder):
            used |= set((read_json(folder.images) or {}).values())
        listed = await holder.run(self.settings.podman, "images", "--all", "--format", "json", "--no-trunc")
        unused = [id for id in _list_ids(listed.output) if id not in used]
        for id in unused:
            await holder.run(self.settings.podman, "rmi", "--force", id)
        return bool(unused)

    async def _start(self) -> Holder:
        if (holder := find_holder(self.folder.holder)) is not None:
            return holder
        settings, folder, grant = self.settings, self.folder, self._grant()
        folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(folder.identity, {"number": self.number})
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
        )
        holder = await start_holder(plan)
        await holder.expect("/bin/mkdir", "-p", "/var/tmp", "/var/cache", "/run/user")
        save_holder(folder.holder, holder)
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


def is_pulled_here(reference: str) -> bool:
    """Names of registries, and no images that are built on this machine."""
    return REFERENCE.fullmatch(reference) is not None and not reference.startswith("localhost/")


def _list_ids(output: str) -> list[str]:
    try:
        return [str(each["Id"]) for each in json.loads(output or "[]") or ()]
    except (ValueError, KeyError, TypeError):
        return []
