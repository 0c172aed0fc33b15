"""Removes what workspaces leave: in every state, also when a task was killed half-way."""

import asyncio
import fcntl
import json
import os
import shutil
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.build_limits import end_build
from fairlead.runner.engines.devcontainer.images import OWN
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.podman import Podman
from fairlead.runner.engines.devcontainer.preparation import network_name

STORE = "CONTAINERS_STORAGE_CONF"
"""The variable that gives the engine an image store of its own."""


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


async def remove_build_leftovers(podman: Podman) -> None:
    """Removes containers and images of builds that were killed. They carry no label, so this waits until no build runs;
    it happens after each deletion. In a store that others may use, too, nothing is touched."""
    if STORE not in podman.settings.podman_environment:
        return
    state = podman.settings.state_folder
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / "builds.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        listed = await podman.run("ps", "--all", "--external", "--format", "json")
        external = [each for each in json.loads(listed.output or "[]") or [] if _is_working_container(each)]
        await podman.remove(("rm", "--force"), [str(each["Id"]) for each in external])
        await podman.run("image", "prune", "--force")
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def remove_tree(root: Path) -> None:
    """Works on open folders, so links in the tree lead nowhere. The identity is in the root, and goes last."""
    if root.exists():
        for entry in list(root.iterdir()):
            if entry.name != "identity.json":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(root)


def _is_working_container(container: dict[str, object]) -> bool:
    """Containers of a build are known to the storage, not to podman."""
    return container.get("Status") == "storage" or container.get("State") == "storage"


async def _list_volumes(podman: Podman, uid: str) -> list[str]:
    listed = await podman.expect("volume", "ls", "--format", "{{.Name}}")
    return [name for name in listed.split() if name.startswith(f"fairlead-{uid}-")]


async def _list_images(podman: Podman, uid: str) -> list[str]:
    listed = await podman.expect("images", "--format", "{{.Repository}}:{{.Tag}}")
    return [name for name in listed.split() if name.startswith(f"{OWN}{uid}/")]
