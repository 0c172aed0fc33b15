"""Requests for a new key of the administrator: files in the data folder of a server.

Who may write to that folder has all secrets of the server anyway, so a file there needs no other credential. It works
the same with every store, and whether the server is running or not: a running one looks for the file every second, and
others at their start.
"""

import os
from pathlib import Path

from fairlead.core.files import FileProblem, ensure_private_folder, write_file

REQUEST_NAME, RUNNING_NAME = "admin.reset", "admin.reset.running"
NOW, IF_EXPIRED = "now", "if-expired"
"""What is requested: a new key, or one only if the first key has expired."""


def request_reset(folder: Path, mode: str) -> None:
    """Other users may read the file, which is no secret: root may write it for a server that runs as another user."""
    write_file(ensure_private_folder(folder) / REQUEST_NAME, mode.encode(), mode=0o644)


def is_pending(folder: Path) -> bool:
    return any((folder / name).exists() for name in (REQUEST_NAME, RUNNING_NAME))


def claim_request(folder: Path, *, after_crash: bool = False) -> str | None:
    """Takes the request, and returns what is requested; None if there is none. Of several processes one gets it.

    `after_crash`: also takes one that an earlier process has not finished. Raises FileProblem if there is something
    else in its place.
    """
    request, running = folder / REQUEST_NAME, folder / RUNNING_NAME
    try:
        for path in (request, running):
            if path.exists() and not path.is_file():
                raise FileProblem(f"{path}: not a file; remove it")
        if request.exists() and _rename(request, running):
            return _read_mode(running)
        return _read_mode(running) if after_crash and running.exists() else None
    except OSError as error:
        raise FileProblem(f"{error.filename or folder}: {error.strerror or error}; remove it") from error


def _rename(source: Path, target: Path) -> bool:
    """False if another process was faster."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def _read_mode(path: Path) -> str:
    """A request that cannot be read is one of the command: the server can read what it writes itself."""
    try:
        text = path.read_bytes()[:32].decode(errors="replace").strip()
    except OSError:
        return NOW
    return IF_EXPIRED if text == IF_EXPIRED else NOW


def finish_request(folder: Path) -> None:
    """Raises FileProblem if the request cannot be removed."""
    path = folder / RUNNING_NAME
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror or error}; remove it") from error
