"""Encryption at rest: AES-256-GCM envelopes, bound to the key they are stored under.

`storage/encrypted.py` encrypts values with it; `key_file.py` manages the keys.

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
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
