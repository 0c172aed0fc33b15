"""Removes what workspaces leave: in every state, also when a task was killed half-way."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.isolation.cgroups import end_cgroups
from fairlead.runner.engines.devcontainer.isolation.disk_limits import forget_devices
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.isolation.network import remove_network
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings


async def end_holder(folder: WorkspaceFolder) -> None:
    """Ends everything that runs of a workspace. Its files stay."""
    if (holder := find_holder(folder.holder)) is not None:
        await holder.kill()
    folder.holder.unlink(missing_ok=True)
    await end_cgroups(folder)
    await asyncio.to_thread(forget_devices)


async def remove_everything(settings: Settings, folder: WorkspaceFolder) -> None:
    """The folder goes last: as long as it exists, the number of the workspace is not given to another one."""
    await end_holder(folder)
    identity = read_json(folder.identity)
    if identity is not None:
        first_uid = settings.first_uid + int(identity["number"]) * IDS_PER_WORKSPACE
        await remove_network(settings, first_uid)
    await remove_tree(folder.root)


async def remove_tree(root: Path) -> None:
    """The identity is in the root, and goes last."""
    await remove_paths(_list_entries(root))
    await remove_paths([root])


def _list_entries(root: Path) -> list[Path]:
    return [entry for entry in root.iterdir() if entry.name != "identity.json"] if root.exists() else []


async def remove_paths(paths: Iterable[Path]) -> None:
    """By a program that follows no links, and needs neither memory nor an open file for each level: Python does, and a
    workspace can make its tree as deep as it likes. A caller that is cancelled does not leave it running."""
    existing = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if not existing:
        return
    result = await run_program(["/bin/rm", "-rf", "--", *existing], {"PATH": PATH})
    if result.code != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"files cannot be removed: {last_line(result.errors)}")
