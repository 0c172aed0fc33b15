"""The cgroup of builds.

Podman limits the memory and CPU of a build, but not its number of processes, and builds run as the root user of the
machine, whom other limits on processes do not concern. So builds of a workspace run in a cgroup that the shim creates.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def build_cgroup(uid: str) -> str:
    return f"/fairlead-{uid}"


def limit_processes(uid: str, processes: int) -> None:
    """Works with both versions of cgroups, and with both at once."""
    parent = ROOT / "pids" if (ROOT / "pids").is_dir() else ROOT
    folder = parent / build_cgroup(uid).lstrip("/")
    folder.mkdir(exist_ok=True)
    (folder / "pids.max").write_text(str(processes))


def end_build(uid: str) -> None:
    """Kills what is left of a build that was interrupted, and removes the cgroup."""
    for folder in _list_folders(uid):
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
    for folder in _list_folders(uid):
        with contextlib.suppress(OSError):  # the kernel removes processes a little later; the next deletion tries again
            folder.rmdir()


def _list_folders(uid: str) -> Iterator[Path]:
    name = build_cgroup(uid).lstrip("/")
    yield from (path for path in (ROOT / name, *ROOT.glob(f"*/{name}")) if path.is_dir())
