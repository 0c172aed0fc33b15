"""Reads and manages the keys for encryption at rest: a file in the data folder, or an environment variable.

`app` reads them before it opens the store. `fairlead encryption-key` modifies the file, also while a server is running,
which polls it for changes. In both places they are pairs of an id and 256 random bits in base64, the active key first.

A second file in the data folder records the last key with which a server has re-encrypted everything.
`fairlead encryption-key` uses it to tell whether the older keys are still needed. Losing that file loses nothing else.

Both files had other names in earlier versions. A data folder with the former names continues to use them.
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

from fairlead.core.crypto.encryption import KEY_BYTES, EncryptionKey, Keyring
from fairlead.core.files import FileProblem, choose_path, read_file, write_file

KEY_FILE_NAME, FORMER_KEY_FILE_NAME = "encryption.keys", "seal.keys"
REENCRYPTED_FILE_NAME, FORMER_REENCRYPTED_FILE_NAME = "encryption.complete", "seal.done"
KEYS_VARIABLE = "FAIRLEAD_ENCRYPTION_KEYS"
KEY_FILE_HEADER = """\
# The keys that encrypt credentials in the database: an id and 256 random bits each, the active key first.
# Keep a copy of this file, but not beside a copy of the database. `fairlead encryption-key` adds and removes keys.
"""


class EncryptionKeyFile:
    """The keys of one installation. `text` is the value of the environment variable `variable`; if it is empty, the
    file is used."""

    def __init__(self, folder: Path, text: str = "", variable: str = KEYS_VARIABLE) -> None:
        self._folder = folder
        self._text = text.strip()
        self._variable = variable
        self._last_signature: tuple[int, ...] | None = None

    @property
    def source(self) -> str:
        return f"the variable {self._variable}" if self._text else str(key_file_path(self._folder))

    def read(self) -> Keyring | None:
        """The keys; None if there is no file. Raises FileProblem, whose message never contains file content."""
        if self._text:
            return Keyring(parse_keys(self._text, self.source), self.source)
        # Taken before reading, so that a change in between is still detected.
        self._last_signature = self._file_signature()
        content = read_file(key_file_path(self._folder))
        return (
            None if content is None else Keyring(parse_keys(content.decode(errors="replace"), self.source), self.source)
        )

    def create(self) -> Keyring:
        """Create the file with a first key, unless another process has created it meanwhile."""
        with lock_keys(self._folder):
            keys = self.read()
            if keys is None:
                keys = Keyring([generate_key()], self.source)
                write_keys(key_file_path(self._folder), keys.keys)
                self._last_signature = self._file_signature()
        return keys

    def has_changed(self) -> bool:
        """Whether the file has changed since it was last read. The environment never changes."""
        return not self._text and self._file_signature() != self._last_signature

    @property
    def reencrypted_id(self) -> str:
        return reencrypted_key_id(self._folder)

    def set_reencrypted(self, id: str) -> None:
        """Record that everything is encrypted with this key; an empty id means that something is not."""
        if self.reencrypted_id != id:
            write_file(_reencrypted_path(self._folder), f"{id}\n".encode())

    def _file_signature(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(key_file_path(self._folder))
        except OSError:  # reading the file reports why
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def key_file_path(folder: Path) -> Path:
    """The path of the key file in a data folder, whether it exists or not."""
    return choose_path(folder, KEY_FILE_NAME, FORMER_KEY_FILE_NAME)


def _reencrypted_path(folder: Path) -> Path:
    return choose_path(folder, REENCRYPTED_FILE_NAME, FORMER_REENCRYPTED_FILE_NAME)


def parse_keys(text: str, source: str) -> list[EncryptionKey]:
    words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
    if not words or len(words) % 2:
        raise FileProblem(f"{source}: must contain pairs of an id and a key; restore it from a backup")
    keys: list[EncryptionKey] = []
    for id, secret in zip(words[::2], words[1::2], strict=True):
        number = len(keys) + 1
        if any(key.id == id for key in keys):
            raise FileProblem(f"{source}: the id of key {number} is a duplicate; remove or rename one of the two")
        try:
            keys.append(EncryptionKey(id, base64.b64decode(secret, validate=True)))
        except (binascii.Error, ValueError) as error:
            # Never quote the content: if the id is missing, a secret is in its place.
            advice = "an id and 32 bytes in base64 are expected; restore it from a backup"
            raise FileProblem(f"{source}: key {number} is invalid ({error}); {advice}") from None
    return keys


def write_keys(path: Path, keys: Sequence[EncryptionKey]) -> None:
    lines = [f"{key.id} {base64.b64encode(key.secret).decode()}\n" for key in keys]
    write_file(path, (KEY_FILE_HEADER + "".join(lines)).encode())


def generate_key(existing_keys: Sequence[EncryptionKey] = ()) -> EncryptionKey:
    """Generate a key. Its id starts with the date, so that its age is visible."""
    ids = {key.id for key in existing_keys}
    while (id := f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(2)}") in ids:
        continue
    return EncryptionKey(id, secrets.token_bytes(KEY_BYTES))


def rotate_key(folder: Path) -> list[EncryptionKey]:
    """Insert a new key before the others and return all of them."""
    with lock_keys(folder):
        keys = read_keys(folder)
        keys.insert(0, generate_key(keys))
        write_keys(key_file_path(folder), keys)
    return keys


def remove_key(folder: Path, id: str, *, force: bool = False) -> list[EncryptionKey]:
    """Remove a key that is no longer needed and return the remaining ones."""
    path = key_file_path(folder)
    with lock_keys(folder):
        keys = read_keys(folder)
        if id not in [key.id for key in keys]:
            raise FileProblem(f"{path}: has no key {id}; it has {', '.join(key.id for key in keys)}")
        if id == keys[0].id:
            advice = "create another one with `fairlead encryption-key rotate` first"
            raise FileProblem(f"{path}: {id} is the active key; {advice}")
        if not force and reencrypted_key_id(folder) != keys[0].id:
            raise FileProblem(
                f"{path}: {id} may still be needed, because not everything is encrypted with {keys[0].id} yet; "
                "run the server until `fairlead encryption-key status` says so, or use --force if what it encrypts may "
                "be lost"
            )
        remaining = [key for key in keys if key.id != id]
        write_keys(path, remaining)
    return remaining


def read_keys(folder: Path) -> list[EncryptionKey]:
    path = key_file_path(folder)
    content = read_file(path)
    if content is None:
        raise FileProblem(f"{path}: no such file; pass the server's data folder, or start the server, which creates it")
    return parse_keys(content.decode(errors="replace"), str(path))


def reencrypted_key_id(folder: Path) -> str:
    """The id of the key with which a server has re-encrypted everything; empty if none has."""
    return (read_file(_reencrypted_path(folder)) or b"").decode(errors="replace").strip()


@contextmanager
def lock_keys(folder: Path) -> Iterator[None]:
    """Lock the keys: two processes that rotate at the same time would each lose the other's new key."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FileProblem(f"{folder}: {error.strerror}; pass the server's data folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
