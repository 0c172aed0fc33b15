"""Where signing keys live: a Secret in the server's own namespace, made when the first token is asked for.

Being a Secret, it is sealed at rest, backed up with everything else and shared by all replicas. Every change is a
compare-and-swap, so replicas that make or rotate keys at once agree on the outcome; every use looks at the Secret as of
now, so a rotation takes effect with the next token. Deleting the Secret ends every direct token there is.
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
"""Keys that are published beside the active one. All of them are read with each look at the Secret, and sent to whoever
verifies tokens."""

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
        """The keys, made if there are none. The active one is noted to sign tokens that live so many seconds."""
        keys = await self._ensured(longest)
        if keys.active.longest >= longest:
            return keys
        return await self._changed(lambda old: signing.lasting(old, longest))

    async def published(self) -> list[Object]:
        """The public keys for those who verify; none before the first token."""
        keys = await self._current()
        return [] if keys is None else signing.published(keys, self._clock.now())

    async def rotate(self, longest: int) -> SigningKeys:
        """Puts a new key to use. Those before stay published until their tokens have ended, so there may not be too
        many. Raises TooManyRequests, before a key is made: that takes a second of a processor."""
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
        log.info("direct tokens are signed with a new key", key=keys.active.id)
        return keys

    def _require_room(self, keys: SigningKeys) -> None:
        """Without Retry-After, for which clients would sit and wait, and it may be weeks."""
        moment = int(self._clock.now().timestamp())
        published = [each for each in keys.retired if each.until > moment]
        lately = [each.since for each in published if each.since > moment - HOUR]
        if len(lately) >= ROTATIONS_PER_HOUR:
            wait = sorted(lately)[-ROTATIONS_PER_HOUR] + HOUR - moment
            why = f"the signing key was changed {len(lately)} times within an hour, which is the limit"
            raise TooManyRequests(f"{why}; try again in {wait} seconds")
        if len(published) >= MOST_RETIRED:
            until = min(each.until for each in published)
            why = f"{len(published)} earlier keys are published until their tokens have ended, which is the limit"
            advice = f"to end all direct tokens at once, delete the Secret {self._where}"
            when = timestamp(datetime.fromtimestamp(until, UTC))
            raise TooManyRequests(f"{why}; try again after {when}, or {advice}")

    async def _ensured(self, longest: int) -> SigningKeys:
        for _ in range(ATTEMPTS):
            keys = await self._current()
            if keys is not None:
                return keys
            async with self._making:  # making a key is work: of many who need the first one, one does it
                if await self._current() is None:
                    await self._create(await self._new_key(longest))
        raise Unavailable(f"the Secret {self._where} is deleted again and again; let it be, and ask again")

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
        except AlreadyExists:  # another replica was faster, and its key is the one
            return
        log.info("a key for signing direct tokens was made", key=key.id)

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
            advice = f"restore it from a backup, or delete it, which ends all direct tokens: {self._where}"
            raise Unavailable(f"the Secret with the signing keys cannot be used; {advice}") from None

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{NAME}"


def _data(keys: SigningKeys) -> Object:
    return {FIELD: b64encode(signing.encode(keys)).decode()}


def _as_server() -> Writing:
    return by_the_server()
