"""What tests look for: a file of the machine that only root can read, in a folder that only root can write to."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PARENT = "/srv"
"""Holders have a folder of their own in place of /var, and nothing here."""
CANARY = "canary-that-only-root-can-read"
"""In lower case: programs that do not understand it print it in upper case, too. The file has it again, with a
bracket, so that it is no pattern: a program says so that takes the file for a list of patterns."""
ENVIRONMENT_CANARY = "canary-of-the-machine"


@dataclass(frozen=True, slots=True)
class Closed:
    """The folder, which has nothing but the file."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "key"

    def take_names(self) -> list[str]:
        """What is in the folder, which has only the file afterwards."""
        names = sorted(path.name for path in self.folder.rglob("*"))
        for path in self.folder.iterdir():
            if path != self.key:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return names


@contextmanager
def open_closed() -> Iterator[Closed]:
    Path(PARENT).mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="workspaces-canary-", dir=PARENT))  # mode 0700
    closed = Closed(folder)
    closed.key.write_text(f"{CANARY}\n{CANARY}[\n")
    closed.key.chmod(0o600)
    try:
        yield closed
    finally:
        shutil.rmtree(folder)
