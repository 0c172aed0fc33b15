"""Where the keys for sealing live: a file in the data folder, or a variable in the environment.

The composition root reads them before it opens anything sealed; `fairlead seal` changes the file, also under a running
server, which looks at it now and then. Either way they are pairs of an id and 256 random bits in base64, the active
key first.

In the data folder also lies the mark of the last key under which a server has sealed everything it has. It is what
tells `fairlead seal` that nobody needs the older keys any more; losing it costs nothing but that knowledge.
"""

import base64
import binascii
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fairlead.core.crypto.encryption import KEY_BYTES, Keyring, SealKey
from fairlead.core.files import FileProblem, read_file, write_file

FILE_NAME = "seal.keys"
MARK_NAME = "seal.done"
VARIABLE = "FAIRLEAD_SEAL_KEYS"
HEADER = """\
# The keys that credentials in the database are sealed with: an id and 256 random bits each, the active key first.
# Keep a copy of this file, but not beside a copy of the database. `fairlead seal` adds and removes keys.
"""


class SealKeys:
    """The keys of one installation. `variable` is what the environment says; where it is empty, the file counts."""

    def __init__(self, folder: Path, variable: str = "") -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._variable = variable.strip()
        self._seen: tuple[int, ...] | None = None

    @property
    def source(self) -> str:
        return f"the variable {VARIABLE}" if self._variable else str(self._path)

    def read(self) -> Keyring | None:
        """The keys, None where there is no file. Raises FileProblem, without a word of what is in there."""
        if self._variable:
            return Keyring(parse(self._variable, self.source), self.source)
        # Seen before it is read: a change in between is one that is still to be noticed.
        self._seen = self._look()
        content = read_file(self._path)
        return None if content is None else Keyring(parse(content.decode(errors="replace"), self.source), self.source)

    def make(self) -> Keyring:
        """A file with a first key, or what somebody else has written meanwhile."""
        with changing(self._folder):
            keys = self.read()
            if keys is None:
                keys = Keyring([new_key()], self.source)
                write_keys(self._path, keys.keys)
                self._seen = self._look()
        return keys

    def changed(self) -> bool:
        """Whether the file is another one than was last read. The environment never changes."""
        return not self._variable and self._look() != self._seen

    @property
    def marked(self) -> str:
        return resealed_under(self._folder)

    def mark(self, id: str) -> None:
        """Notes that everything is sealed under this key; empty: that something is not."""
        if self.marked != id:
            write_file(self._folder / MARK_NAME, f"{id}\n".encode())

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except OSError:  # reading it says why
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def parse(text: str, source: str) -> list[SealKey]:
    words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
    if not words or len(words) % 2:
        raise FileProblem(f"{source}: must hold pairs of an id and a key; restore it from a backup")
    keys: list[SealKey] = []
    for id, secret in zip(words[::2], words[1::2], strict=True):
        place = len(keys) + 1
        if any(key.id == id for key in keys):
            raise FileProblem(f"{source}: the id of key {place} is there twice; remove one of the two, or rename it")
        try:
            keys.append(SealKey(id, base64.b64decode(secret, validate=True)))
        except (binascii.Error, ValueError) as error:
            # Not what is there: whoever has left out the id has put a secret in its place.
            advice = "an id and 32 bytes in base64 belong there; restore it from a backup"
            raise FileProblem(f"{source}: key {place} is unusable ({error}); {advice}") from None
    return keys


def write_keys(path: Path, keys: Sequence[SealKey]) -> None:
    lines = [f"{key.id} {base64.b64encode(key.secret).decode()}\n" for key in keys]
    write_file(path, (HEADER + "".join(lines)).encode())


def new_key(taken: Sequence[SealKey] = ()) -> SealKey:
    """The id begins with the day, because people ask keys for their age."""
    ids = {key.id for key in taken}
    while (id := f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(2)}") in ids:
        continue
    return SealKey(id, secrets.token_bytes(KEY_BYTES))


def rotate(folder: Path) -> list[SealKey]:
    """Puts a new key in front of the others and returns all of them."""
    with changing(folder):
        keys = existing(folder)
        keys.insert(0, new_key(keys))
        write_keys(folder / FILE_NAME, keys)
    return keys


def forget(folder: Path, id: str, *, force: bool = False) -> list[SealKey]:
    """Removes a key that is not needed any more and returns those that stay."""
    path = folder / FILE_NAME
    with changing(folder):
        keys = existing(folder)
        if id not in [key.id for key in keys]:
            raise FileProblem(f"{path}: has no key {id}; it has {', '.join(key.id for key in keys)}")
        if id == keys[0].id:
            raise FileProblem(f"{path}: {id} is the active key; make another one with `fairlead seal rotate` first")
        if not force and resealed_under(folder) != keys[0].id:
            raise FileProblem(
                f"{path}: {id} may still be needed, because no server has sealed everything under {keys[0].id} yet; "
                "run the server until `fairlead seal status` says so, or use --force if what it seals may be lost"
            )
        kept = [key for key in keys if key.id != id]
        write_keys(path, kept)
    return kept


def existing(folder: Path) -> list[SealKey]:
    path = folder / FILE_NAME
    content = read_file(path)
    if content is None:
        raise FileProblem(f"{path}: no such file; name the server's data folder, or start the server, which makes it")
    return parse(content.decode(errors="replace"), str(path))


def resealed_under(folder: Path) -> str:
    """The id of the key under which a server has sealed everything it has; empty where none has."""
    return (read_file(folder / MARK_NAME) or b"").decode(errors="replace").strip()


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Only one process at a time changes the keys: two that rotate at once would each drop the other's new key."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FileProblem(f"{folder}: {error.strerror}; name the server's data folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
