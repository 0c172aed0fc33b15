"""Signs SSH certificates for workspaces. Its key is in a Secret in the system namespace, created with the first one.

As a Secret it is encrypted at rest, included in backups and shared by all workers and replicas. The key is replaced
when it is three months old. The former one is trusted for as long as its certificates are valid, which is minutes.
Deleting the Secret has the same effect at once: runners get the public keys with each SSH connection.
"""

import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec
import structlog

from fairlead.core.clock import Clock
from fairlead.core.crypto.ssh_certificates import (
    CertificateFields,
    InvalidSshKey,
    PublicKey,
    find_public_key,
    generate_private_key,
    sign_user_certificate,
)
from fairlead.core.errors import AlreadyExists, NotFound, Unavailable
from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.kinds.core.server_objects import SSH_AUTHORITY
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

SECRET_NAME = SSH_AUTHORITY.name
SECRET_FIELD = "keys.json"
CERTIFICATE_LIFETIME = timedelta(minutes=5)
CLOCK_SKEW = timedelta(minutes=1)
"""Certificates are valid from this long ago: the clock of a runner may be behind."""
KEY_LIFETIME = timedelta(days=90)
RETIREMENT = CERTIFICATE_LIFETIME + timedelta(minutes=5)
MAX_ATTEMPTS = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuthorityKeys:
    """The private key that signs, when it was created, and the public key before it with the time it is trusted until,
    all as Unix times."""

    private: str = field(repr=False)
    created: int
    former: str = ""
    former_until: int = 0


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    text: str
    serial: int
    expires_at: datetime


_decoder = msgspec.json.Decoder(AuthorityKeys)


class SshAuthority:
    """The SSH certificate authority of this installation."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._secrets = registry.resource("", "secrets")
        self._clock: Clock = registry.clock
        self._namespace = namespace
        self._cached_keys: tuple[int, AuthorityKeys] | None = None

    async def issue(self, public_key: PublicKey, principal: str, user: str) -> IssuedCertificate:
        """Signs a certificate for a key of this user. SSH servers accept it for this principal."""
        keys = await self._ensure_keys()
        now = self._clock.now()
        serial, expires_at = secrets.randbits(63), now + CERTIFICATE_LIFETIME
        fields = CertificateFields(principal, user, serial, now - CLOCK_SKEW, expires_at)
        return IssuedCertificate(sign_user_certificate(keys.private, public_key, fields), serial, expires_at)

    async def public_keys(self) -> list[str]:
        """The keys whose certificates are valid now, the current one first."""
        keys = await self._ensure_keys()
        former = [keys.former] if keys.former_until > self._now() else []
        return [find_public_key(keys.private), *former]

    async def _ensure_keys(self) -> AuthorityKeys:
        for _ in range(MAX_ATTEMPTS):
            keys = await self._load_keys()
            if keys is None:
                await self._create_secret()
            elif self._is_due(keys):
                await self._replace_key()
            else:
                return keys
        raise Unavailable(f"the Secret {self._secret_path} is being changed repeatedly; stop that, and try again")

    def _is_due(self, keys: AuthorityKeys) -> bool:
        return self._now() - keys.created >= KEY_LIFETIME.total_seconds()

    async def _create_secret(self) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
            "type": SSH_AUTHORITY.type,
            "data": _encode_keys(AuthorityKeys(generate_private_key(), self._now())),
        }
        try:
            await self._secrets.create(body, self._namespace, server_write_options())
        except AlreadyExists:  # another replica created it first
            return
        log.info("a key for SSH certificates was created")

    async def _replace_key(self) -> None:
        """Has no effect if another replica was faster."""

        def edit(secret: Object) -> Object:
            old = self._decode_keys(secret)
            if not self._is_due(old):
                return secret
            until = self._now() + int(RETIREMENT.total_seconds())
            new = AuthorityKeys(generate_private_key(), self._now(), find_public_key(old.private), until)
            edited = deep_copy(secret)
            edited["data"] = _encode_keys(new)
            return edited

        await self._secrets.modify(self._namespace, SECRET_NAME, edit, server_write_options())
        log.info("the key for SSH certificates was replaced, because of its age")

    async def _load_keys(self) -> AuthorityKeys | None:
        try:
            entry = await self._secrets.get(self._namespace, SECRET_NAME)
        except NotFound:
            return None
        if self._cached_keys is None or self._cached_keys[0] != entry.revision:
            self._cached_keys = entry.revision, self._decode_keys(decode(entry))
        return self._cached_keys[1]

    def _decode_keys(self, secret: Object) -> AuthorityKeys:
        try:
            if not SSH_AUTHORITY.is_own(secret):
                raise ValueError
            keys = _decoder.decode(b64decode((get_path(secret, "data") or {}).get(SECRET_FIELD) or ""))
            find_public_key(keys.private)
        except (InvalidSshKey, msgspec.DecodeError, ValueError):
            advice = f"restore it from a backup, or delete it: {self._secret_path}"
            raise Unavailable(f"the Secret with the key for SSH certificates cannot be used; {advice}") from None
        return keys

    def _now(self) -> int:
        return int(self._clock.now().timestamp())

    @property
    def _secret_path(self) -> str:
        return f"{self._namespace}/{SECRET_NAME}"


def _encode_keys(keys: AuthorityKeys) -> Object:
    return {SECRET_FIELD: b64encode(msgspec.json.encode(keys)).decode()}
