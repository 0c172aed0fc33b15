"""Encrypts refresh tokens, and the state of a sign-on in a browser's cookie.

The keys are created with the first sign-on (`authn/server_keys.py`). Every value is bound to what it belongs to, such
as the name of an access key: copied elsewhere, it does not decrypt. Deleting the Secret ends all sessions by single
sign-on at their next refresh.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import orjson

from fairlead.authn.server_keys import KeyFormat, ServerKeys
from fairlead.core.crypto.encryption import KEY_BYTES, DecryptionError, EncryptionKey, Keyring
from fairlead.core.objects import Object
from fairlead.kinds.core.server_objects import SIGN_ON_KEYS
from fairlead.registry.registry import Registry

MAX_ENCRYPTED_LENGTH = 16 * 1024


class Undecryptable(Exception):
    """A value that was not encrypted by this installation for this purpose, or was changed."""


class _Stored(msgspec.Struct, frozen=True):
    keys: tuple[EncryptionKey, ...]


def _decode_keyring(content: bytes) -> Keyring:
    return Keyring(msgspec.json.decode(content, type=_Stored).keys, f"the Secret {SIGN_ON_KEYS.name}")


FORMAT: KeyFormat[Keyring] = KeyFormat(
    secret=SIGN_ON_KEYS,
    description="the keys of single sign-on",
    advice="delete it, which ends all sessions by single sign-on",
    encode=lambda keyring: msgspec.json.encode(_Stored(tuple(keyring.keys))),
    decode=_decode_keyring,
)


class SignOnEncryption:
    def __init__(self, registry: Registry, namespace: str) -> None:
        self._keys = ServerKeys(registry, namespace, FORMAT)

    async def encrypt(self, value: Object, purpose: str) -> str:
        """The encrypted value as URL-safe text. `purpose` says what it belongs to."""
        keyring = await self._keys.ensure(_create_keyring)
        return urlsafe_b64encode(keyring.encrypt(orjson.dumps(value), purpose.encode())).decode().rstrip("=")

    async def decrypt(self, text: str, purpose: str) -> Object:
        """The value. Raises Undecryptable."""
        keyring = await self._keys.load()
        if keyring is None or len(text) > MAX_ENCRYPTED_LENGTH or not text.isascii():
            raise Undecryptable
        try:
            envelope = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            value: Object = orjson.loads(keyring.decrypt(envelope, purpose.encode()))
        except (DecryptionError, ValueError):
            raise Undecryptable from None
        return value


async def _create_keyring() -> Keyring:
    key = EncryptionKey(f"k{secrets.token_hex(4)}", secrets.token_bytes(KEY_BYTES))
    return Keyring([key], SIGN_ON_KEYS.name)
