"""Sealing: what is written to a disk can be read back only with a key, and only at the place it was written for.

`storage/encrypted.py` seals values with it. Where the keys come from is `key_file.py`'s matter.

A sealed value is an envelope, all in the clear but the last part:

    magic   5 bytes   begins with NUL, which no JSON does, so that sealed and plain values can lie side by side
    length  1 byte    of the key's id
    id      ASCII     of the key that it is sealed under
    nonce   12 bytes  random
    rest              AES-256-GCM: as long as the plain value, and 16 bytes that notice any change

What comes before the nonce, and then whatever the value is bound to, is authenticated along with it: an envelope that
is altered, moved to another object or said to be under another key does not open.

A nonce must never be used twice under one key. Random ones of 96 bits are safe for 2**32 values (NIST SP 800-38D allows
a chance of one in 2**32 for a repetition): a hundred writes of credentials per second for sixteen months. A key that is
replaced once a year therefore stays far below that on any server that one process can be, and needs no counter.
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


class Unsealable(Exception):
    """A sealed value that cannot be opened. The message says why and what to do, and shows nothing of the value.

    Unsealable
    ├── UnknownKey   the keyring does not have the key that it is sealed under
    └── Tampered     it is not what was sealed, or not at its place, or the key is another one of the same id
    """


class UnknownKey(Unsealable):
    def __init__(self, id: str, source: str) -> None:
        super().__init__(f"sealed under key {id}, which is not in {source}; put that key back from a backup")
        self.id = id


class Tampered(Unsealable):
    def __init__(self, id: str, source: str) -> None:
        super().__init__(
            f"sealed under key {id} and does not open: the stored value was changed or moved, or key {id} in {source} "
            "is not the one that sealed it; restore what was changed from a backup"
        )
        self.id = id


@dataclass(frozen=True, slots=True)
class SealKey:
    """One key with its id. The secret never shows in a representation, and so in no log or traceback."""

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not KEY_ID.fullmatch(self.id):
            raise ValueError("an id is 1 to 32 letters, digits, dots, hyphens or underscores")
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"the key must be {KEY_BYTES} bytes long, not {len(self.secret)}")


class Keyring:
    """A few keys. The first one seals, all of them open. `source` says, in messages, where they come from."""

    def __init__(self, keys: Sequence[SealKey], source: str) -> None:
        if not keys:
            raise ValueError("there must be at least one key")
        if len({key.id for key in keys}) != len(keys):
            raise ValueError("two keys have the same id")
        self.keys = tuple(keys)
        self.source = source
        self._ciphers = {key.id: AESGCM(key.secret) for key in keys}
        self._header = _header(self.active)

    @property
    def active(self) -> str:
        """The id of the key that seals."""
        return self.keys[0].id

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return self._header + nonce + self._ciphers[self.active].encrypt(nonce, plain, self._header + bound_to)

    def unseal(self, sealed: bytes, bound_to: bytes) -> bytes:
        """What was sealed. Raises Unsealable; ValueError where the value is not sealed at all."""
        id = key_id_of(sealed)
        cipher = self._ciphers.get(id)
        if cipher is None:
            raise UnknownKey(id, self.source)
        start = len(MAGIC) + 1 + len(id)
        nonce, rest = sealed[start : start + NONCE_BYTES], sealed[start + NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, rest, sealed[:start] + bound_to)
        except (InvalidTag, ValueError):  # ValueError: cut off within the nonce
            raise Tampered(id, self.source) from None

    def with_older(self, other: "Keyring") -> "Keyring":
        """This keyring, and behind it the keys that only the other one has."""
        known = {key.id for key in self.keys}
        return Keyring([*self.keys, *(key for key in other.keys if key.id not in known)], self.source)


def is_sealed(value: bytes) -> bool:
    return value.startswith(MAGIC)


def key_id_of(sealed: bytes) -> str:
    """The id of the key that a value says it is sealed under; ValueError where it is not sealed."""
    if not is_sealed(sealed):
        raise ValueError("this value is not sealed")
    start = len(MAGIC) + 1
    length = sealed[len(MAGIC)] if len(sealed) >= start else 0
    # A damaged id is told in full and as text, whatever bytes it has become.
    return sealed[start : start + length].decode("ascii", "backslashreplace")


def _header(id: str) -> bytes:
    return MAGIC + bytes([len(id)]) + id.encode()
