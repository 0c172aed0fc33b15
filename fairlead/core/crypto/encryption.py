"""Encryption at rest: AES-256-GCM envelopes, bound to the key they are stored under.

`storage/encrypted.py` encrypts values with it.

An envelope has these parts, all but the last in plain text:

    magic   5 bytes   starts with NUL, which JSON never does, so that encrypted and plain values can coexist
    length  1 byte    of the key id
    id      ASCII     of the key that encrypted it
    nonce   12 bytes  random
    rest              AES-256-GCM ciphertext with its 16-byte tag

Everything before the nonce, followed by the caller's associated data, is authenticated. So an envelope that was
modified, moved to another object or relabelled with another key id does not decrypt.

A nonce must never repeat under one key. Random 96-bit nonces are safe for 2**32 values (NIST SP 800-38D, with a
probability of repetition of 2**-32): a hundred writes of credentials per second for sixteen months. With a yearly
rotation no server comes near that, so no counter is needed.

The keys come from a file in the data folder, or from an environment variable. `app` reads them before it opens the
store. `fairlead encryption-key` modifies the file, also while a server is running, which polls it for changes. In both
places they are pairs of an id and 256 random bits in base64, the active key first.

A second file in the data folder records the last key with which a server has re-encrypted everything.
`fairlead encryption-key` uses it to tell whether the older keys are still needed. Losing that file loses nothing else.

Both files had other names in earlier versions. A data folder with the former names continues to use them.
"""

import base64
import binascii
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.core.files import FileProblem, choose_path, read_file, write_file

MAGIC = b"\x00FLS1"
KEY_BYTES = 32
NONCE_BYTES = 12
KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")


class DecryptionError(Exception):
    """An encrypted value that cannot be decrypted. The message says why and what to do, and shows nothing of the
    value.

        DecryptionError
        ├── UnknownKey       the keyring does not have the key that encrypted it
        └── IntegrityError   it was modified or moved, or the key is a different one with the same id
    """


class UnknownKey(DecryptionError):
    def __init__(self, id: str, source: str) -> None:
        super().__init__(f"encrypted with key {id}, which is not in {source}; restore that key from a backup")
        self.id = id


class IntegrityError(DecryptionError):
    def __init__(self, id: str, source: str) -> None:
        super().__init__(
            f"encrypted with key {id} and cannot be decrypted: the stored value was changed or moved, or key {id} in "
            f"{source} is not the one that encrypted it; restore what was changed from a backup"
        )
        self.id = id


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """One key with its id. The secret is excluded from `repr`, and so from logs and tracebacks."""

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not KEY_ID.fullmatch(self.id):
            raise ValueError("an id is 1 to 32 letters, digits, dots, hyphens or underscores")
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"the key must be {KEY_BYTES} bytes long, not {len(self.secret)}")


class Keyring:
    """A set of keys. The first encrypts, all of them decrypt. `source` names their origin in messages."""

    def __init__(self, keys: Sequence[EncryptionKey], source: str) -> None:
        if not keys:
            raise ValueError("there must be at least one key")
        if len({key.id for key in keys}) != len(keys):
            raise ValueError("two keys have the same id")
        self.keys = tuple(keys)
        self.source = source
        self._ciphers = {key.id: AESGCM(key.secret) for key in keys}
        self._header = _header(self.active_key_id)

    @property
    def active_key_id(self) -> str:
        """The id of the key that encrypts."""
        return self.keys[0].id

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return (
            self._header
            + nonce
            + self._ciphers[self.active_key_id].encrypt(nonce, plaintext, self._header + associated_data)
        )

    def decrypt(self, envelope: bytes, associated_data: bytes) -> bytes:
        """The plaintext. Raises DecryptionError, or ValueError if the value is not encrypted at all."""
        id = key_id_of(envelope)
        cipher = self._ciphers.get(id)
        if cipher is None:
            raise UnknownKey(id, self.source)
        start = len(MAGIC) + 1 + len(id)
        nonce, rest = envelope[start : start + NONCE_BYTES], envelope[start + NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, rest, envelope[:start] + associated_data)
        except (InvalidTag, ValueError):  # ValueError: truncated within the nonce
            raise IntegrityError(id, self.source) from None

    def with_fallback(self, other: "Keyring") -> "Keyring":
        """This keyring, followed by the keys that only the other one has."""
        known = {key.id for key in self.keys}
        return Keyring([*self.keys, *(key for key in other.keys if key.id not in known)], self.source)


def is_encrypted(value: bytes) -> bool:
    return value.startswith(MAGIC)


def key_id_of(envelope: bytes) -> str:
    """The key id in the envelope; ValueError if the value is not encrypted."""
    if not is_encrypted(envelope):
        raise ValueError("this value is not encrypted")
    start = len(MAGIC) + 1
    length = envelope[len(MAGIC)] if len(envelope) >= start else 0
    # Render a damaged id completely, whatever bytes it contains.
    return envelope[start : start + length].decode("ascii", "backslashreplace")


def _header(id: str) -> bytes:
    return MAGIC + bytes([len(id)]) + id.encode()


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
