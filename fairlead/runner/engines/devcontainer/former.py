"""Containers and volumes of version 0.2 and earlier, which root of the machine ran with its own podman.

They end with the next `up`, `stop` or `delete` of their workspace. The files of the workspace stay where they are; `up`
copies the volumes into the store of the workspace. The programs here get names that the engine itself gave.
"""

from collections.abc import Mapping

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.cleanup import remove_paths
from fairlead.runner.engines.devcontainer.isolation.holder import Bind, Holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program

MARK = "grant.json"
"""A file that only those versions kept."""
FOLDERS = ("home", "tmp", "staging", "rootfs")
TARGET = "/former"
STOP_SECONDS = 10
COPY = """
set -e
for folder in /former/*; do
    name=${folder#/former/}
    podman volume exists "$name" || podman volume create "$name" >/dev/null
    cp -a "$folder/." "$(podman volume inspect --format '{{.Mountpoint}}' "$name")"
done
"""


def is_former(folder: WorkspaceFolder) -> bool:
    return (folder.root / MARK).exists()


async def end_former_container(podman: str, folder: WorkspaceFolder) -> None:
    if is_former(folder):
        name = f"fairlead-{folder.uid}"
        await _run(podman, "stop", "--ignore", f"--time={STOP_SECONDS}", name)
        await _run(podman, "rm", "--force", "--ignore", name, f"{name}-sandbox")
        await run_program([podman, "network", "rm", "--force", name], {"PATH": PATH})


async def find_former_volumes(podman: str, folder: WorkspaceFolder) -> list[Bind]:
    """Their folders, by the name that the repository knows."""
    if not is_former(folder):
        return []
    prefix = f"fairlead-{folder.uid}-"
    listed = await _run(podman, "volume", "ls", "--format", "{{.Name}} {{.Mountpoint}}")
    volumes: Mapping[str, str] = dict(line.split(maxsplit=1) for line in listed.splitlines())
    return [
        Bind(path, f"{TARGET}/{name.removeprefix(prefix)}") for name, path in volumes.items() if name.startswith(prefix)
    ]


async def copy_former_volumes(podman: str, folder: WorkspaceFolder, volumes: list[Bind], holder: Holder) -> None:
    """The user ids are the same in the holder. What was copied is removed at last."""
    if volumes:
        await holder.expect("/bin/sh", "-c", COPY)
    await forget_former(podman, folder)


async def forget_former(podman: str, folder: WorkspaceFolder) -> None:
    """Removes the volumes, and everything else that those versions kept."""
    if not is_former(folder):
        return
    for volume in await find_former_volumes(podman, folder):
        name = f"fairlead-{folder.uid}-{volume.target.removeprefix(TARGET + '/')}"
        await _run(podman, "volume", "rm", "--force", name)
    await remove_paths(folder.root / name for name in FOLDERS)
    (folder.root / MARK).unlink(missing_ok=True)


async def _run(podman: str, *arguments: str) -> str:
    result = await run_program([podman, *arguments], {"PATH": PATH, "HOME": "/root"})
    if result.code != 0:
        message = f"podman {arguments[0]} failed for a container of an earlier version: {last_line(result.errors)}"
        raise EngineError(Reason.ENGINE_UNAVAILABLE, message)
    return result.output
