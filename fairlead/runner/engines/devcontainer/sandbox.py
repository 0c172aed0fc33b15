"""The sandbox: a container without an image, which runs programs of the machine on the files of a workspace.

Cloning a repository runs much code on data that its author chose. So does everything that follows paths in a work
folder. Both happen in a container with the user namespace, limits and network of the workspace. Its root file system is
an empty skeleton, with the machine's /usr mounted read-only: no image is needed, and nothing else of the machine shows.
The same container, with a shell, is what a workspace gets whose image cannot be built.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fairlead.runner.engines.devcontainer.grant import PRIVATE_FOLDER, RECOVERY_LABEL, Grant
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.podman import Podman, Result

FOLDERS = ("proc", "sys", "dev", "tmp", "var/tmp", "root", "home", "work", "staging", "source")
MACHINE_FOLDERS = ("/usr", "/etc/ssl/certs", "/etc/alternatives")
"""What programs need of the machine, mounted read-only. None of it is secret: private keys are elsewhere."""
LIMIT_ERRORS = """
{ { "$@" 3>&-; echo $? >/tmp/code; } 2>&1 >&3 | tail -c 65536 >&2; } 3>&1
read -r code </tmp/code && exit "$code"
exit 1
"""
"""Passes on the last of the messages of a command, and its exit code. Servers of repositories send messages, too, which
may have no end."""
KEEP_RUNNING = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def build_rootfs(folder: WorkspaceFolder, first_uid: int) -> None:
    """Creates the skeleton, owned by the root user of the workspace's user namespace. It gets its name when it is
    complete: the runner may be killed meanwhile."""
    root = folder.rootfs.with_name("rootfs.new")
    shutil.rmtree(root, ignore_errors=True)
    for name in (*FOLDERS, *MACHINE_FOLDERS, PRIVATE_FOLDER):
        (root / name.lstrip("/")).mkdir(parents=True)
    for entry in Path("/").iterdir():
        if entry.is_symlink() and (target := os.readlink(entry)).startswith("usr/"):
            (root / entry.name).symlink_to(target)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    for name in ("resolv.conf", "hosts", "hostname"):
        (root / "etc" / name).touch()
    for parent, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            os.chown(Path(parent, name), first_uid, first_uid, follow_symlinks=False)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    root.rename(folder.rootfs)


def mount_machine() -> list[str]:
    return [f"--volume={name}:{name}:ro" for name in MACHINE_FOLDERS if Path(name).is_dir()]


async def run_in_sandbox(
    podman: Podman,
    folder: WorkspaceFolder,
    grant: Grant,
    command: Sequence[str],
    volumes: Sequence[str] = (),
    stdin: bytes = b"",
) -> Result:
    """Runs a program to its end."""
    return await podman.run(
        "run",
        "--rm",
        "--interactive",
        "--replace",
        f"--name=fairlead-{grant.uid}-sandbox",
        "--cap-drop=ALL",
        "--cap-add=DAC_OVERRIDE,CHOWN,FOWNER",
        "--tmpfs=/tmp:size=64m",  # keys of the clone are written there; the recovery container gets the rest
        *grant.confinement,
        *grant.labels,
        *mount_machine(),
        *(f"--volume={volume}" for volume in volumes),
        "--rootfs",
        str(folder.rootfs),
        *("/bin/sh", "-c", LIMIT_ERRORS, "sh", *command),
        stdin=stdin,
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
        *mount_machine(),
        f"--volume={folder.private}:{PRIVATE_FOLDER}:ro,nosuid,nodev",
        f"--volume={folder.work / grant.project}:{target}",
        "--rootfs",
        str(folder.rootfs),
        *("/bin/sh", "-c", KEEP_RUNNING),
    )
