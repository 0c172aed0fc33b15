"""Removes what workspaces leave: in every state, also when a task was killed half-way."""

import asyncio
import shutil
from pathlib import Path

from fairlead.runner.engines.devcontainer.cgroups import remove_cgroups
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.holder import find_holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json
from fairlead.runner.engines.devcontainer.network import network_name, remove_network
from fairlead.runner.engines.devcontainer.settings import Settings


async def end_holder(folder: WorkspaceFolder) -> None:
    """Ends everything that runs of a workspace. Its files stay."""
    if (holder := find_holder(folder.holder)) is not None:
        await holder.kill()
    folder.holder.unlink(missing_ok=True)
    remove_cgroups(folder.uid)


async def remove_everything(settings: Settings, folder: WorkspaceFolder) -> None:
    """The folder goes last: as long as it exists, the number of the workspace is not given to another one."""
    await end_holder(folder)
    identity = read_json(folder.identity)
    if identity is not None:
        first_uid = settings.first_uid + int(identity["number"]) * IDS_PER_WORKSPACE
        await remove_network(network_name(first_uid))
    await asyncio.to_thread(remove_tree, folder.root)


def remove_tree(root: Path) -> None:
    """Works on open folders, so links in the tree lead nowhere. The identity is in the root, and goes last."""
    if root.exists():
        for entry in list(root.iterdir()):
            if entry.name != "identity.json":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(root)
