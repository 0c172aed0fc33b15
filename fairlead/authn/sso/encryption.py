"""Encrypts refresh tokens, and the state of a sign-on in a browser's cookie.

The keys are in a Secret in the system namespace, created with the first sign-on and shared by all replicas. Every value
is bound to what it belongs to, such as the name of an access key: copied elsewhere, it does not decrypt. Deleting the
Secret ends all sessions by single sign-on at their next refresh.
"""

import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress

import orjson

from fairlead.core.crypto.encryption import KEY_BYTES, DecryptionError, EncryptionKey, Keyring
from fairlead.core.errors import AlreadyExists, NotFound, Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.kinds.core.server_objects import SIGN_ON_KEYS
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

SECRET_NAME = SIGN_ON_KEYS.name
SECRET_FIELD = "keys.json"
MAX_ATTEMPTS = 5
MAX_ENCRYPTED_LENGTH = 16 * 1024


class Undecryptable(Exception):
    """A value that was not encrypted by this installation for this purpose, or was changed."""


class SignOnEncryption:
    def __init__(self, registry: Registry, namespace: str) -> None:
        self._secrets = registry.resource("", "secrets")
        self._namespace = namespace
        self._cached: tuple[int, Keyring] | None = None

    async def encrypt(self, value: Object, purpose: str) -> str:
        """The encrypted value as URL-safe text. `purpose` says what it belongs to."""
        keyring = await self._load() or await self._create()
        return urlsafe_b64encode(keyring.encrypt(orjson.dumps(value), purpose.encode())).decode().rstrip("=")

    async def decrypt(self, text: str, purpose: str) -> Object:
        """The value. Raises Undecryptable."""
        keyring = await self._load()
        if keyring is None or len(text) > MAX_ENCRYPTED_LENGTH or not text.isascii():
            raise Undecryptable
        try:
            envelope = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            value: Object = orjson.loads(keyring.decrypt(envelope, purpose.encode()))
        except (DecryptionError, ValueError):
            raise Undecryptable from None
        return value

    async def _load(self) -> Keyring | None:
        try:
            entry = await self._secrets.get(self._namespace, SECRET_NAME)
        except NotFound:
            return None
        if self._cached is None or self._cached[0] != entry.revision:
            self._cached = entry.revision, self._read(decode(entry))
        return self._cached[1]

    async def _create(self) -> Keyring:
        key = {"id": f"k{secrets.token_hex(4)}", "secret": b64encode(secrets.token_bytes(KEY_BYTES)).decode()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
            "type": SIGN_ON_KEYS.type,
            "data": {SECRET_FIELD: b64encode(orjson.dumps({"keys": [key]})).decode()},
        }
        for _ in range(MAX_ATTEMPTS):
            with suppress(AlreadyExists):  # another replica created it first
                await self._secrets.create(body, self._namespace, server_write_options())
            keyring = await self._load()
            if keyring is not None:
                return keyring
        raise Unavailable(f"the Secret {self._path} is being deleted repeatedly; stop deleting it, and try again")

    def _read(self, secret: Object) -> Keyring:
        try:
            if not SIGN_ON_KEYS.is_own(secret):
                raise ValueError
            content = orjson.loads(b64decode((get_path(secret, "data") or {}).get(SECRET_FIELD) or ""))
            keys = [EncryptionKey(each["id"], b64decode(each["secret"])) for each in content["keys"]]
            return Keyring(keys, self._path)
        except (ValueError, KeyError, TypeError):
            advice = f"delete it, which ends all sessions by single sign-on: {self._path}"
            raise Unavailable(f"the Secret with the keys of single sign-on cannot be used; {advice}") from None

    @property
    def _path(self) -> str:
        return f"{self._namespace}/{SECRET_NAME}"
