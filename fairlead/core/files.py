"""Files that only their owner may read, and that are never half written.

For certificates, kubeconfigs and whatever else holds a secret. What goes wrong is a FileProblem, whose message is for
the person who started the server; the commands print it and nothing more.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileProblem(Exception):
    """A file or folder that the user has to mend. The message says which, what is wrong and what to do."""


def private_folder(path: Path) -> Path:
    """Makes the folder and those above it, closed to everyone else. What is there already keeps its mode."""
    with _refusals(path):
        for above in reversed(path.parents):
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """The file holds all of the new content or all of the old, even if the machine stops in the middle."""
    with _refusals(path):
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        _sync_folder(path.parent)


def read_file(path: Path) -> bytes | None:
    """The content, or None where there is no such file."""
    with _refusals(path, "readable"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _sync_folder(path: Path) -> None:
    """A new name is only safe on the disk once its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _refusals(path: Path, wanted: str = "writable") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = f"make it {wanted} for the user that runs fairlead, or name another path"
        raise FileProblem(f"{path}: {error.strerror or error}; {advice}") from error
