"""The disk of a workspace: a sparse file with a file system of its own, which bounds bytes and files.

Only holders mount it (`namespaces.py`), each in its own mount namespace. So it is unmounted, and its loop device is
free again, when the last process of the holder is gone: also after a runner was killed. No other process sees what is
on it, and root deletes a workspace without a look at its files.

The file system has a journal, because a machine may lose its power and nothing repairs the disk then. It is small: it
counts towards the size. Inode tables are not written before they are used. What is reserved is for the root user of the
holder: on a disk that a user has filled, podman can still start the container, in which the user can delete files.
"""

import errno
import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.core.validators import format_size
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program

MKFS = "mkfs.ext4"
MIN_DISK_BYTES = 256 << 20
BLOCK_BYTES = 4096
BYTES_PER_INODE = 16384
JOURNAL_MIB = 32
SMALL_JOURNAL_MIB = 4
RESERVED_BYTES = 64 << 20
MAX_RESERVED_SHARE = 0.05
FULL_BYTES, FULL_FILES = 4 << 20, 16
"""A disk with less than this counts as full."""

LOOP_CONTROL = "/dev/loop-control"
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_GET_STATUS64 = 0x4C82, 0x4C0A, 0x4C05
LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO = 4, 16
LOOP_INFO = struct.Struct("5Q4I64s64s32s2Q")
"""`struct loop_info64`: device and inode of the file, three numbers, number, encryption and flags, names, a key."""
LOOP_CONFIG = struct.Struct(f"2I{LOOP_INFO.size}s8Q")
"""`struct loop_config`: file descriptor and block size, `loop_info64`, and what is reserved."""
ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Of the file system, as those see it who are in it."""

    total_bytes: int
    free_bytes: int
    files: int
    free_files: int

    def describe_shortage(self) -> str:
        """What has run out; empty if nothing has."""
        if self.free_bytes < FULL_BYTES:
            return f"its {self.total_bytes >> 20} MiB are used"
        if self.free_files < FULL_FILES:
            return f"it has {self.files} files, which is as many as it can have"
        return ""


def read_usage(holder_pid: int) -> DiskUsage | None:
    """Of the disk that a holder has mounted; None if it has ended. What is mounted there is the workspace's choice, so
    the numbers are for messages only."""
    try:
        descriptor = os.open(f"/proc/{holder_pid}/root/ws", os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        found = os.fstatvfs(descriptor)
    finally:
        os.close(descriptor)
    return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)


def says_disk_is_full(text: str) -> bool:
    """Whether it has the message of the error ENOSPC."""
    return "no space left on device" in text.lower()


def describe_full_disk(shortage: str) -> str:
    return (
        f"the disk of the workspace is full: {shortage}; delete files in it, or create a workspace with more (option "
        "`storage` of the template's provider, up to `--workspace-disk` of the runner)"
    )


async def create_disk(path: Path, size: int) -> None:
    """A runner that is killed meanwhile leaves no half of one."""
    new = _create_file(path.with_name(f"{path.name}.new"), size)
    made = await run_program(describe_mkfs(new, size), {"PATH": PATH})
    if made.code != 0:
        raise _unavailable(f"cannot be made: {MKFS}: {last_line(made.errors)}")
    new.replace(path)


def _create_file(path: Path, size: int) -> Path:
    """Of this size, and without content: it takes up no space yet."""
    try:
        path.unlink(missing_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.truncate(path, size)
    except OSError as error:
        raise _unavailable(f"of {format_size(size)} cannot be made in {path.parent}: {error.strerror}") from error
    return path


def describe_mkfs(path: Path, size: int) -> list[str]:
    reserved = min(RESERVED_BYTES / size, MAX_RESERVED_SHARE)
    journal = JOURNAL_MIB if size >= 2 * MIN_DISK_BYTES else SMALL_JOURNAL_MIB
    return [
        *(MKFS, "-q", "-F", "-b", str(BLOCK_BYTES), "-i", str(BYTES_PER_INODE), "-I", "256"),
        *("-m", f"{100 * reserved:.4f}", "-J", f"size={journal}"),
        *("-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", str(path)),
    ]


@contextmanager
def attach(path: Path) -> Iterator[str]:
    """The loop device of a disk. It stays as long as the disk is mounted, or this block lasts."""
    name, device = _open_device(path)
    try:
        yield name
    finally:
        os.close(device)


def _open_device(path: Path) -> tuple[str, int]:
    """One file must never have two loop devices, which would know nothing of each other's writes. A device that is
    still there, because a holder has just been killed, is used again; and while it is open, it does not go away."""
    try:
        with path.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _find_device(path) or _add_device(path)
    except OSError as error:
        problem = f"cannot be used without a loop device: {error}; `fairlead runner doctor` says what to do"
        raise _unavailable(problem) from error


def find_loop_problem() -> str:
    """Why this machine cannot have disks for workspaces; empty if it can."""
    if shutil.which(MKFS, path=PATH) is None:
        return f"there is no {MKFS}"
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 20)
        try:
            _, device = _open_device(Path(file.name))
        except EngineError as error:
            return str(error.__cause__)
        os.close(device)
    return ""


def _find_device(path: Path) -> tuple[str, int] | None:
    """The device that the file has, open."""
    wanted = path.stat()
    for entry in Path("/sys/block").glob("loop*"):
        if not (entry / "loop").exists():
            continue
        try:
            device = os.open(f"/dev/{entry.name}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            status = LOOP_INFO.unpack(fcntl.ioctl(device, LOOP_GET_STATUS64, bytes(LOOP_INFO.size)))
        except OSError:  # it has just been given back
            os.close(device)
            continue
        if status[:2] == (wanted.st_dev, wanted.st_ino):
            return f"/dev/{entry.name}", device
        os.close(device)
    return None


def _add_device(path: Path) -> tuple[str, int]:
    """Between the two steps, another program may take the device; then there is another one."""
    with open(LOOP_CONTROL, "rb") as control, path.open("r+b") as file:
        for _ in range(ATTEMPTS):
            name = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, _describe_device(file.fileno(), path))
                return name, device
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise
    raise OSError(errno.EBUSY, "other programs take all of them")


def _describe_device(descriptor: int, path: Path) -> bytes:
    """Direct I/O: pages of the file are not in memory a second time."""
    flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO
    name = os.fsencode(path)[-63:]
    info = LOOP_INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    return LOOP_CONFIG.pack(descriptor, BLOCK_BYTES, info, *[0] * 8)


def _unavailable(problem: str) -> EngineError:
    return EngineError(Reason.ENGINE_UNAVAILABLE, f"the disk of the workspace {problem}")
