"""The sandbox: a container without an image, which runs programs of the machine on the files of a workspace.

Cloning a repository runs much code on data that its author chose. So does everything that follows paths in a work
folder. Both happen in a container with the user namespace, limits and network of the workspace. Its root file system is
an empty skeleton, with the machine's /usr mounted read-only: no image is needed, and nothing else of the machine shows.
The same container, with a shell, is what a workspace gets whose image cannot be built.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.runner.engines.devcontainer.grant import PRIVATE_FOLDER, RECOVERY_LABEL, Grant
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.podman import Podman, Result

FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "run", "var/tmp", "usr", "root", "home", "work", "staging", "source")
MACHINE_FILES = ("ssl", "ca-certificates", "alternatives", "protocols", "services", "ld.so.cache", "nsswitch.conf")
"""What programs of /usr need from /etc. None of it is secret; private keys of the machine are left out."""
KEEP_RUNNING = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def build_rootfs(folder: WorkspaceFolder, first_uid: int) -> None:
    """Creates the skeleton, owned by the root user of the workspace's user namespace."""
    root = folder.rootfs
    shutil.rmtree(root, ignore_errors=True)
    for name in (*FOLDERS, PRIVATE_FOLDER.lstrip("/")):
        (root / name).mkdir(parents=True)
    for entry in Path("/").iterdir():
        if entry.is_symlink() and (target := os.readlink(entry)).startswith("usr/"):
            (root / entry.name).symlink_to(target)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    for name in ("resolv.conf", "hosts", "hostname"):
        (root / "etc" / name).touch()
    for name in MACHINE_FILES:
        _copy_machine_file(Path("/etc") / name, root / "etc" / name)
    for parent, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(Path(parent, name), first_uid, first_uid, follow_symlinks=False)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)


async def run_in_sandbox(
    podman: Podman,
    folder: WorkspaceFolder,
    grant: Grant,
    command: Sequence[str],
    volumes: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Runs a program to its end. `environment` does not show on the command line of podman."""
    names = [f"--env={name}" for name in environment or {}]
    return await podman.run(
        "run",
        "--rm",
        "--replace",
        f"--name=fairlead-{grant.uid}-sandbox",
        "--cap-drop=ALL",
        "--cap-add=DAC_OVERRIDE,CHOWN,FOWNER",
        *grant.confinement,
        *grant.labels,
        "--volume=/usr:/usr:ro",
        *(f"--volume={volume}" for volume in volumes),
        *names,
        "--rootfs",
        str(folder.rootfs),
        *command,
        environment=environment,
    )


async def start_recovery(podman: Podman, folder: WorkspaceFolder, grant: Grant, target: str) -> Result:
    """Starts a container with a shell and the sources, in place of one that cannot be built."""
    mount_point = folder.rootfs / target.lstrip("/")
    mount_point.mkdir(parents=True, exist_ok=True)
    folder.container_id.unlink(missing_ok=True)
    return await podman.run(
        "run",
        "--detach",
        "--replace",
        f"--name=fairlead-{grant.uid}",
        f"--cidfile={folder.container_id}",
        *grant.confinement,
        *grant.labels,
        f"--label={RECOVERY_LABEL}=true",
        "--volume=/usr:/usr:ro",
        f"--volume={folder.private}:{PRIVATE_FOLDER}:ro,nosuid,nodev",
        f"--volume={folder.work / grant.project}:{target}",
        "--rootfs",
        str(folder.rootfs),
        *("/bin/sh", "-c", KEEP_RUNNING),
    )


def _copy_machine_file(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("private"))
    elif source.is_file():
        shutil.copyfile(source, target)
