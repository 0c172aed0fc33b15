"""Private files that are written atomically: certificates, kubeconfigs and other secrets.

Errors are raised as `FileProblem`. Its message is meant for the operator; the CLI prints it as it is.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileProblem(Exception):
    """A file or folder that the operator has to fix. The message names the path, the problem and what to do."""


class MissingFile(FileProblem):
    """A file that the operator named and that does not exist, which is a usage error."""


def ensure_private_folder(path: Path) -> Path:
    """Create the folder and its parents with mode 0700. Existing folders keep their mode."""
    with _translate_os_errors(path):
        file = next((each for each in (path, *path.parents) if each.is_file()), None)
        if file is not None:
            raise FileProblem(f"{path}: {'this' if file == path else file} is a file, not a folder; use another path")
        for above in reversed(path.parents):
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file atomically and durably, also if the machine crashes."""
    with _translate_os_errors(path):
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
    """The content, or None if the file does not exist."""
    with _translate_os_errors(path, "readable"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def choose_path(folder: Path, name: str, former_name: str) -> Path:
    """The path of a file that had another name in earlier versions: the former one if only that file exists.

    It is not renamed, so that an earlier version finds it after a rollback.
    """
    path, former_path = folder / name, folder / former_name
    return former_path if os.path.exists(former_path) and not os.path.exists(path) else path


def _sync_folder(path: Path) -> None:
    """fsync the folder, which makes the rename durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translate_os_errors(path: Path, access: str = "writable") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = f"make it {access} for the user that runs fairlead, or use another path"
        raise FileProblem(f"{path}: {error.strerror or error}; {advice}") from error
