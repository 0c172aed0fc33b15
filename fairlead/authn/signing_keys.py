"""Stores the signing keys of direct tokens in a Secret in the system namespace, created with the first token.

As a Secret it is encrypted at rest, included in backups and shared by all replicas. Every change is a compare-and-swap,
so replicas that create or rotate keys concurrently agree. Every use reads the current Secret, so a rotation takes
effect with the next token. Deleting the Secret invalidates all direct tokens.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from fairlead.core.clock import Clock, timestamp
from fairlead.core.concurrency import HASHING
from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import BadKeys, SigningKey, SigningKeys
from fairlead.core.errors import AlreadyExists, NotFound, TooManyRequests, Unavailable
from fairlead.core.objects import Object, copied, dig
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Writing, by_the_server

NAME = "signing-keys"
TYPE = "service.sh/signing-keys"
FIELD = "keys.json"
ATTEMPTS = 5
HOUR = 3_600
ROTATIONS_PER_HOUR = 4
MOST_RETIRED = 16
"""Maximum number of retired keys that are still published. All of them are in the Secret and in the JWKS."""

log = structlog.get_logger(__name__)


class SigningKeyStore:
    """The signing keys of this installation."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._secrets = registry.resource("", "secrets")
        self._clock: Clock = registry.clock
        self._namespace = namespace
        self._making = asyncio.Lock()
        self._read: tuple[int, SigningKeys] | None = None

    async def for_signing(self, longest: int) -> SigningKeys:
        """The keys, created if there are none. Records that the active key signs tokens that are valid this long."""
        keys = await self._ensured(longest)
        if keys.active.longest >= longest:
            return keys
        return await self._changed(lambda old: signing.lasting(old, longest))

    async def published(self) -> list[Object]:
        """The public keys for verifiers; empty before the first token."""
        keys = await self._current()
        return [] if keys is None else signing.published(keys, self._clock.now())

    async def rotate(self, longest: int) -> SigningKeys:
        """Replaces the active key. Retired keys stay published until their tokens have expired, so their number is
        limited. Raises TooManyRequests before generating a key, which takes a second of CPU time."""
        if await self._current() is None:
            return await self._ensured(longest)
        async with self._making:
            known = await self._current()
            if known is not None:
                self._require_room(known)
            fresh = await self._new_key(longest)

            def rotated(old: SigningKeys) -> SigningKeys:
                self._require_room(old)
                return signing.rotated(old, fresh, self._clock.now())

            keys = await self._changed(rotated)
        log.info("the signing key of direct tokens was rotated", key=keys.active.id)
        return keys

    def _require_room(self, keys: SigningKeys) -> None:
        """Raises TooManyRequests without Retry-After: clients would wait for it, and it may be weeks."""
        moment = int(self._clock.now().timestamp())
        published = [each for each in keys.retired if each.until > moment]
        lately = [each.since for each in published if each.since > moment - HOUR]
        if len(lately) >= ROTATIONS_PER_HOUR:
            wait = sorted(lately)[-ROTATIONS_PER_HOUR] + HOUR - moment
            why = f"the signing key was rotated {len(lately)} times within an hour, which is the limit"
            raise TooManyRequests(f"{why}; try again in {wait} seconds")
        if len(published) >= MOST_RETIRED:
            until = min(each.until for each in published)
            why = f"{len(published)} retired keys are published until their tokens have expired, which is the limit"
            advice = f"delete the Secret {self._where}, which invalidates all direct tokens"
            when = timestamp(datetime.fromtimestamp(until, UTC))
            raise TooManyRequests(f"{why}; try again after {when}, or {advice}")

    async def _ensured(self, longest: int) -> SigningKeys:
        for _ in range(ATTEMPTS):
            keys = await self._current()
            if keys is not None:
                return keys
            async with self._making:  # generating a key is expensive: concurrent first requests share one
                if await self._current() is None:
                    await self._create(await self._new_key(longest))
        raise Unavailable(f"the Secret {self._where} is being deleted repeatedly; stop deleting it, and try again")

    async def _new_key(self, longest: int) -> SigningKey:
        return await HASHING.run(0, signing.new_signing_key, self._clock.now(), longest)

    async def _create(self, key: SigningKey) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "type": TYPE,
            "data": _data(SigningKeys(key)),
        }
        try:
            await self._secrets.create(body, self._namespace, _as_server())
        except AlreadyExists:  # another replica created it first
            return
        log.info("a signing key for direct tokens was created", key=key.id)

    async def _current(self) -> SigningKeys | None:
        try:
            entry = await self._secrets.get(self._namespace, NAME)
        except NotFound:
            return None
        if self._read is None or self._read[0] != entry.revision:
            self._read = entry.revision, self._keys(decode(entry))
        return self._read[1]

    async def _changed(self, change: Callable[[SigningKeys], SigningKeys]) -> SigningKeys:
        new: SigningKeys | None = None

        def edit(secret: Object) -> Object:
            nonlocal new
            new, edited = change(self._keys(secret)), copied(secret)
            edited["data"] = _data(new)
            return edited

        await self._secrets.modify(self._namespace, NAME, edit, _as_server())
        assert new is not None  # modify calls edit at least once, or raises
        return new

    def _keys(self, secret: Object) -> SigningKeys:
        try:
            return signing.decode(b64decode((dig(secret, "data") or {}).get(FIELD) or ""))
        except (BadKeys, ValueError):
            advice = f"restore it from a backup, or delete it, which invalidates all direct tokens: {self._where}"
            raise Unavailable(f"the Secret with the signing keys cannot be used; {advice}") from None

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{NAME}"


def _data(keys: SigningKeys) -> Object:
    return {FIELD: b64encode(signing.encode(keys)).decode()}


def _as_server() -> Writing:
    return by_the_server()
