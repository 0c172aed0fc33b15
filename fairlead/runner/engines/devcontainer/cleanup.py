"""Removes what workspaces leave: in every state, also when a task was killed half-way."""

import asyncio
import shutil
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.build_limits import end_build
from fairlead.runner.engines.devcontainer.images import OWN
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.podman import Podman
from fairlead.runner.engines.devcontainer.preparation import network_name


async def remove_container(podman: Podman, folder: WorkspaceFolder) -> None:
    """Removes the containers of a workspace, and keeps its files and volumes."""
    ids = [str(each["Id"]) for each in await podman.find_containers(folder.uid)]
    names = [f"fairlead-{folder.uid}", f"fairlead-{folder.uid}-sandbox"]
    await podman.remove(("rm", "--force", "--ignore", "--time=0"), [*ids, *names])
    folder.container_id.unlink(missing_ok=True)


async def remove_everything(podman: Podman, folder: WorkspaceFolder) -> None:
    """The folder goes last: as long as it exists, the number of the workspace is not given to another one."""
    uid = folder.uid
    end_build(uid)
    await remove_container(podman, folder)
    if left := await podman.find_containers(uid):
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"podman did not remove the container {left[0]['Id'][:12]}")
    await podman.remove(("volume", "rm", "--force"), await _list_volumes(podman, uid))
    await podman.remove(("rmi", "--force", "--ignore"), await _list_images(podman, uid))
    await podman.remove(("network", "rm", "--force"), [network_name(uid)])
    await asyncio.to_thread(remove_tree, folder.root)


def remove_tree(root: Path) -> None:
    """Works on open folders, so links in the tree lead nowhere. The identity is in the root, and goes last."""
    if root.exists():
        for entry in list(root.iterdir()):
            if entry.name != "identity.json":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(root)


async def _list_volumes(podman: Podman, uid: str) -> list[str]:
    listed = await podman.expect("volume", "ls", "--format", "{{.Name}}")
    return [name for name in listed.split() if name.startswith(f"fairlead-{uid}-")]


async def _list_images(podman: Podman, uid: str) -> list[str]:
    listed = await podman.expect("images", "--format", "{{.Repository}}:{{.Tag}}")
    return [name for name in listed.split() if name.startswith(f"{OWN}{uid}/")]
