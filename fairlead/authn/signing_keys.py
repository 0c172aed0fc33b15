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
from fairlead.core.concurrency import HASHING_POOL
from fairlead.core.crypto import signing
from fairlead.core.crypto.signing import InvalidSigningKeys, SigningKey, SigningKeys
from fairlead.core.errors import AlreadyExists, NotFound, TooManyRequests, Unavailable
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.kinds.core.server_objects import SIGNING_KEYS
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions, server_write_options

SECRET_NAME = SIGNING_KEYS.name
SECRET_FIELD = "keys.json"
MAX_ATTEMPTS = 5
HOUR_SECONDS = 3_600
MAX_ROTATIONS_PER_HOUR = 4
MAX_RETIRED_KEYS = 16
"""Maximum number of retired keys that are still published. All of them are in the Secret and in the JWKS."""

log = structlog.get_logger(__name__)


class SigningKeyStore:
    """The signing keys of this installation."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._secrets = registry.resource("", "secrets")
        self._clock: Clock = registry.clock
        self._namespace = namespace
        self._creation_lock = asyncio.Lock()
        self._cached_keys: tuple[int, SigningKeys] | None = None

    async def active_key(self, max_ttl: int) -> SigningKeys:
        """The keys, created if there are none. Records that the active key signs tokens that are valid this long."""
        keys = await self._ensure_keys(max_ttl)
        if keys.active.longest >= max_ttl:
            return keys
        return await self._update_keys(lambda old: signing.with_max_ttl(old, max_ttl))

    async def jwks(self) -> list[Object]:
        """The public keys for verifiers; empty before the first token."""
        keys = await self._load_keys()
        return [] if keys is None else signing.build_jwks(keys, self._clock.now())

    async def rotate(self, max_ttl: int) -> SigningKeys:
        """Replaces the active key. Retired keys stay published until their tokens have expired, so their number is
        limited. Raises TooManyRequests before generating a key, which takes a second of CPU time."""
        if await self._load_keys() is None:
            return await self._ensure_keys(max_ttl)
        async with self._creation_lock:
            known = await self._load_keys()
            if known is not None:
                self._check_rotation_limits(known)
            fresh = await self._generate_key(max_ttl)

            def rotated(old: SigningKeys) -> SigningKeys:
                self._check_rotation_limits(old)
                return signing.rotate(old, fresh, self._clock.now())

            keys = await self._update_keys(rotated)
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
            advice = f"delete the Secret {self._secret_path}, which invalidates all direct tokens"
            when = timestamp(datetime.fromtimestamp(until, UTC))
            raise TooManyRequests(f"{why}; try again after {when}, or {advice}")

    async def _ensure_keys(self, max_ttl: int) -> SigningKeys:
        for _ in range(MAX_ATTEMPTS):
            keys = await self._load_keys()
            if keys is not None:
                return keys
            async with self._creation_lock:  # generating a key is expensive: concurrent first requests share one
                if await self._load_keys() is None:
                    await self._create_secret(await self._generate_key(max_ttl))
        raise Unavailable(
            f"the Secret {self._secret_path} is being deleted repeatedly; stop deleting it, and try again"
        )

    async def _generate_key(self, max_ttl: int) -> SigningKey:
        return await HASHING_POOL.run(0, signing.generate_signing_key, self._clock.now(), max_ttl)

    async def _create_secret(self, key: SigningKey) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
            "type": SIGNING_KEYS.type,
            "data": _encode_keys(SigningKeys(key)),
        }
        try:
            await self._secrets.create(body, self._namespace, _server_write_options())
        except AlreadyExists:  # another replica created it first
            return
        log.info("a signing key for direct tokens was created", key=key.id)

    async def _load_keys(self) -> SigningKeys | None:
        try:
            entry = await self._secrets.get(self._namespace, SECRET_NAME)
        except NotFound:
            return None
        if self._cached_keys is None or self._cached_keys[0] != entry.revision:
            self._cached_keys = entry.revision, self._decode_keys(decode(entry))
        return self._cached_keys[1]

    async def _update_keys(self, edit_keys: Callable[[SigningKeys], SigningKeys]) -> SigningKeys:
        new: SigningKeys | None = None

        def edit(secret: Object) -> Object:
            nonlocal new
            new = edit_keys(self._decode_keys(secret))
            edited = deep_copy(secret)
            edited["data"] = _encode_keys(new)
            return edited

        await self._secrets.modify(self._namespace, SECRET_NAME, edit, _server_write_options())
        assert new is not None  # modify calls edit at least once, or raises
        return new

    def _decode_keys(self, secret: Object) -> SigningKeys:
        try:
            if not SIGNING_KEYS.is_own(secret):
                raise ValueError
            return signing.decode(b64decode((get_path(secret, "data") or {}).get(SECRET_FIELD) or ""))
        except (InvalidSigningKeys, ValueError):
            advice = f"restore it from a backup, or delete it, which invalidates all direct tokens: {self._secret_path}"
            raise Unavailable(f"the Secret with the signing keys cannot be used; {advice}") from None

    @property
    def _secret_path(self) -> str:
        return f"{self._namespace}/{SECRET_NAME}"


def _encode_keys(keys: SigningKeys) -> Object:
    return {SECRET_FIELD: b64encode(signing.encode(keys)).decode()}


def _server_write_options() -> WriteOptions:
    return server_write_options()
