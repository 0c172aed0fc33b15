"""Keys that the server keeps for itself, each in a Secret in the system namespace that is created with the first use.

As a Secret it is encrypted at rest, included in backups and shared by all workers and replicas. Every write is a
compare-and-swap, so replicas that create or replace keys concurrently agree. Every use reads the current Secret, so
a replaced or deleted one takes effect at once.

A user who controls one of these keys can sign in as another user, or be taken for a replica. So no one else may write
these Secrets (`admission/protected_fields.py`), and one that the server did not create is not used, whatever it
contains.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from fairlead.core.errors import AlreadyExists, NotFound, Unavailable
from fairlead.core.objects import Object, deep_copy
from fairlead.kinds.core.server_objects import ServerSecret
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

MAX_ATTEMPTS = 5

Keys = TypeVar("Keys")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeyFormat(Generic[Keys]):
    """How keys are stored. `decode` raises ValueError for anything that `encode` has not produced."""

    secret: ServerSecret
    description: str
    """Completes "the Secret with ..."."""
    advice: str
    """What to do about a Secret that cannot be used. Its name follows."""
    encode: Callable[[Keys], bytes]
    decode: Callable[[bytes], Keys]
    field: str = "keys.json"
    """The key in the data of the Secret."""


class ServerKeys(Generic[Keys]):
    """The keys of one Secret."""

    def __init__(self, registry: Registry, namespace: str, format: KeyFormat[Keys]) -> None:
        self.secret_path = f"{namespace}/{format.secret.name}"
        self._secrets = registry.resource("", "secrets")
        self._namespace = namespace
        self._format = format
        self._creation_lock = asyncio.Lock()
        self._cached_keys: tuple[int, Keys] | None = None

    async def load(self) -> Keys | None:
        """The current keys, or None if there are none yet. The same value until the Secret changes. Raises Unavailable
        if the Secret cannot be used."""
        try:
            entry = await self._secrets.get(self._namespace, self._format.secret.name)
        except NotFound:
            return None
        if self._cached_keys is None or self._cached_keys[0] != entry.revision:
            self._cached_keys = entry.revision, self._decode(decode(entry))
        return self._cached_keys[1]

    async def ensure(self, create: Callable[[], Awaitable[Keys]]) -> Keys:
        """The current keys, created if there are none. Concurrent first requests share what `create` returns."""
        for _ in range(MAX_ATTEMPTS):
            keys = await self.load()
            if keys is not None:
                return keys
            async with self._creation_lock:
                if await self.load() is None:
                    await self._create_secret(await create())
        raise Unavailable(f"the Secret {self.secret_path} is being deleted repeatedly; stop deleting it, and try again")

    async def ensure_current(
        self, create: Callable[[Keys | None], Awaitable[Keys]], is_due: Callable[[Keys], bool]
    ) -> Keys:
        """The current keys, created if there are none, and replaced if they are due. `create` gets the former ones."""
        keys = await self.ensure(lambda: create(None))
        if not is_due(keys):
            return keys
        new = await create(keys)
        try:
            keys = await self.update(lambda old: new if is_due(old) else old)
        except NotFound:  # deleted meanwhile
            return await self.ensure(lambda: create(None))
        if keys is new:  # and no other replica was faster
            log.info("keys of the server were replaced, because of their age", secret=self.secret_path)
        return keys

    async def update(self, edit_keys: Callable[[Keys], Keys]) -> Keys:
        """Replaces the keys by a function of the stored ones, which is called again after every lost race. Raises
        NotFound if there are none."""
        new: list[Keys] = []

        def edit(secret: Object) -> Object:
            new[:] = [edit_keys(self._decode(secret))]
            edited = deep_copy(secret)
            edited["data"] = self._encode(new[0])
            return edited

        await self._secrets.modify(self._namespace, self._format.secret.name, edit, server_write_options())
        return new[0]

    def unusable(self, reason: str) -> Unavailable:
        """The error about a Secret that cannot be used."""
        what = f"the Secret with {self._format.description} cannot be used ({reason})"
        return Unavailable(f"{what}; {self._format.advice}: {self.secret_path}")

    async def _create_secret(self, keys: Keys) -> None:
        secret = self._format.secret
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret.name, "namespace": self._namespace},
            "type": secret.type,
            "data": self._encode(keys),
        }
        with suppress(AlreadyExists):  # another replica created it first
            await self._secrets.create(body, self._namespace, server_write_options())
            log.info("keys of the server were created", secret=self.secret_path)

    def _encode(self, keys: Keys) -> Object:
        return {self._format.field: b64encode(self._format.encode(keys)).decode()}

    def _decode(self, secret: Object) -> Keys:
        if not self._format.secret.is_own(secret):
            raise self.unusable("it has another type, so the server did not create it")
        try:
            return self._format.decode(b64decode((secret.get("data") or {}).get(self._format.field) or ""))
        except ValueError:
            raise self.unusable("its content is damaged") from None
