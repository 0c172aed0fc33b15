"""A lock on the data folder, in which the processes of a server have the sockets through which they talk.

All processes that the supervisor forks inherit the lock, so it is free when the last of them has ended. If only the
supervisor was killed, the kernel is just killing the others, and the next server waits for that.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.settings import StartError

LOCK_NAME = "workers.lock"
WAIT_SECONDS = 10.0
INTERVAL_SECONDS = 0.02


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Raises StartError if another server with several workers uses the folder. The lock file itself stays."""
    path = folder / LOCK_NAME
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        advice = "make the folder writable for the server's user, or use another one"
        raise StartError(f"{path}: cannot be opened for writing ({error.strerror}); {advice}") from None
    try:
        _acquire(path, lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _acquire(path: Path, lock: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            if _is_running(holder) or time.monotonic() > deadline:
                advice = "stop that one, or use another data folder"
                raise StartError(
                    f"{path}: in use by another server (process {holder or 'unknown'}); {advice}"
                ) from None
        time.sleep(INTERVAL_SECONDS)


def _is_running(process: str) -> bool:
    return process.isdigit() and os.path.exists(f"/proc/{process}")
