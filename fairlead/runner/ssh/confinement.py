"""What a process for SSH gives up before it reads the first byte of a client, where the runner is root.

It has a control group (`groups.py`) and namespaces of its own: no network, an empty file system that is read-only, no
other process in sight. It becomes a user that owns nothing, and can start no process. All it has are the descriptors
that the runner passes to it.
"""

import ctypes
import hashlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.runner.engines.devcontainer.isolation.holder import JOIN
from fairlead.runner.engines.devcontainer.isolation.namespaces import (
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    check,
    enter_root,
    mount,
)

MODULE = "fairlead.runner.ssh.server"
PROCESS_NAME = "fairlead-ssh"
"""From when it serves connections on."""
FIRST_UID, UIDS = 2_000_000_000, 1 << 20
"""Ids that nothing else uses: those of workspaces are lower."""
CAP_SYS_ADMIN = 21
NEW_NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child")
FIRST_PROCESS = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""Of its pid namespace. The process for SSH is not the first one itself: it could disregard the end of its parent, and
of the runner. The first one cannot be reached from inside, and with it the kernel ends what is left."""
COVERED = "/usr"
"""Any folder that every machine has: the empty file system is mounted on it, in the namespace of the process."""
MAX_MEMORY_BYTES = 2 << 30
MAX_ADDRESS_BYTES = 4 << 30
MAX_FILES = 4096
"""256 commands have four descriptors each."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_NO_NEW_PRIVS = 1, 4, 15, 38
INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
"""What Python needs to start. All else stays with the runner: its key among it."""

_libc = ctypes.CDLL(None, use_errno=True)


def describe_command(uid: str, descriptor: int, groups: Sequence[str] = ()) -> list[str]:
    """The command line of the process for this workspace, which joins these control groups first. Its arguments are the
    control socket and the user id that it becomes; 0: it stays what it is."""
    python = [sys.executable, "-m", MODULE, str(descriptor)]
    if os.geteuid() != 0:
        return [*python, "0"]
    owner = str(choose_owner(uid))
    if not can_create_namespaces():
        return [*python, owner]
    joined = ("/bin/sh", "-c", JOIN, "join", " ".join(f"{folder}/cgroup.procs" for folder in groups))
    unshare = ("/usr/bin/unshare", *NEW_NAMESPACES, "--")
    return [*joined, "/usr/bin/setpriv", "--pdeathsig=KILL", *unshare, *FIRST_PROCESS, *python, owner]


def describe_environment() -> dict[str, str]:
    """asyncssh wants a home folder, and finds nothing there."""
    return {"HOME": "/", **{name: os.environ[name] for name in INHERITED if name in os.environ}}


def choose_owner(uid: str) -> int:
    """The user id for this workspace."""
    return FIRST_UID + int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4], "big") % UIDS


def confine(owner: int) -> None:
    """Called when everything is imported: there are no files afterwards."""
    limit_resources()
    if owner:
        if can_create_namespaces():
            enter_empty_root()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    set_process(PR_SET_NO_NEW_PRIVS, 1)
    set_process(PR_SET_DUMPABLE, 0)
    set_process(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of the user, which clears it
    name = ctypes.create_string_buffer(PROCESS_NAME.encode())
    set_process(PR_SET_NAME, ctypes.addressof(name))


def limit_resources() -> None:
    limits = {
        resource.RLIMIT_DATA: MAX_MEMORY_BYTES,
        resource.RLIMIT_AS: MAX_ADDRESS_BYTES,
        resource.RLIMIT_NOFILE: MAX_FILES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, wanted in limits.items():
        _, hard = resource.getrlimit(kind)
        limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(kind, (limit, limit))


def enter_empty_root() -> None:
    """The process has a mount namespace of its own, from which nothing comes back to the machine. The kernel creates no
    user namespaces for one whose root is not that of its mounts: there, it would have every capability again."""
    mount("none", COVERED, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=555,size=4k,nr_inodes=2")
    os.mkdir(f"{COVERED}/old")
    enter_root(COVERED)
    os.chroot("/old")
    os.chdir("/")


def set_process(option: int, value: int) -> None:
    check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def can_create_namespaces() -> bool:
    """Root of a container without this capability cannot; there, another user id has to be enough."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)
