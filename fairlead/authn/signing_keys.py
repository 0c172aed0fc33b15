"""The signing keys of direct tokens: created with the first token, and rotated on request.

A rotation takes effect with the next token. Deleting the Secret (`server_keys.py`) invalidates all direct tokens.
"""

import asyncio
from datetime import UTC, datetime

import structlog

from fairlead.authn.server_keys import KeyFormat, ServerKeys
from fairlead.core.clock import Clock, timestamp
from fairlead.core.concurrency import HASHING_POOL
from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import SigningKey, SigningKeys
from fairlead.core.errors import TooManyRequests
from fairlead.core.objects import Object
from fairlead.kinds.core.server_objects import SIGNING_KEYS
from fairlead.registry.registry import Registry

HOUR_SECONDS = 3_600
MAX_ROTATIONS_PER_HOUR = 4
MAX_RETIRED_KEYS = 16
"""Maximum number of retired keys that are still published. All of them are in the Secret and in the JWKS."""

FORMAT = KeyFormat(
    secret=SIGNING_KEYS,
    description="the signing keys",
    advice="restore it from a backup, or delete it, which invalidates all direct tokens",
    encode=signing.encode,
    decode=signing.decode,
)

log = structlog.get_logger(__name__)


class SigningKeyStore:
    """The signing keys of this installation."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._keys = ServerKeys(registry, namespace, FORMAT)
        self._clock: Clock = registry.clock
        self._rotation_lock = asyncio.Lock()

    async def active_key(self, max_ttl: int) -> SigningKeys:
        """The keys, created if there are none. Records that the active key signs tokens that are valid this long."""
        keys = await self._ensure_keys(max_ttl)
        if keys.active.longest >= max_ttl:
            return keys
        return await self._keys.update(lambda old: signing.with_max_ttl(old, max_ttl))

    async def jwks(self) -> list[Object]:
        """The public keys for verifiers; empty before the first token."""
        keys = await self._keys.load()
        return [] if keys is None else signing.build_jwks(keys, self._clock.now())

    async def rotate(self, max_ttl: int) -> SigningKeys:
        """Replaces the active key. Retired keys stay published until their tokens have expired, so their number is
        limited. Raises TooManyRequests before generating a key, which takes a second of CPU time."""
        if await self._keys.load() is None:
            return await self._ensure_keys(max_ttl)
        async with self._rotation_lock:
            known = await self._keys.load()
            if known is not None:
                self._check_rotation_limits(known)
            fresh = await self._generate_key(max_ttl)

            def rotated(old: SigningKeys) -> SigningKeys:
                self._check_rotation_limits(old)
                return signing.rotate(old, fresh, self._clock.now())

            keys = await self._keys.update(rotated)
        log.info("the signing key of direct tokens was rotated", key=keys.active.id)
        return keys

    def _check_rotation_limits(self, keys: SigningKeys) -> None:
        """Raises TooManyRequests without Retry-After: clients would wait for it, and it may be weeks."""
        moment = int(self._clock.now().timestamp())
        published = [each for each in keys.retired if each.until > moment]
        lately = [each.since for each in published if each.since > moment - HOUR_SECONDS]
        if len(lately) >= MAX_ROTATIONS_PER_HOUR:
            wait = sorted(lately)[-MAX_ROTATIONS_PER_HOUR] + HOUR_SECONDS - moment
            why = f"the signing key was rotated {len(lately)} times within an hour, which is the limit"
            raise TooManyRequests(f"{why}; try again in {wait} seconds")
        if len(published) >= MAX_RETIRED_KEYS:
            until = min(each.until for each in published)
            why = f"{len(published)} retired keys are published until their tokens have expired, which is the limit"
            advice = f"delete the Secret {self._keys.secret_path}, which invalidates all direct tokens"
            when = timestamp(datetime.fromtimestamp(until, UTC))
            raise TooManyRequests(f"{why}; try again after {when}, or {advice}")

    async def _ensure_keys(self, max_ttl: int) -> SigningKeys:
        async def create() -> SigningKeys:
            return SigningKeys(await self._generate_key(max_ttl))

        return await self._keys.ensure(create)

    async def _generate_key(self, max_ttl: int) -> SigningKey:
        return await HASHING_POOL.run(0, signing.generate_signing_key, self._clock.now(), max_ttl)
