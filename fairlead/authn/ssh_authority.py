"""Signs SSH certificates for workspaces, with a key that `server_keys.py` stores.

The key is replaced when it is three months old. The former one is trusted for as long as its certificates are valid,
which is minutes. Deleting the Secret has the same effect at once: runners get the public keys with each SSH connection.
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from fairlead.authn.server_keys import KeyFormat, ServerKeys
from fairlead.core.clock import Clock
from fairlead.core.crypto.ssh_certificates import (
    CertificateFields,
    PublicKey,
    find_public_key,
    generate_private_key,
    sign_user_certificate,
)
from fairlead.kinds.core.server_objects import SSH_AUTHORITY
from fairlead.registry.registry import Registry

CERTIFICATE_LIFETIME = timedelta(minutes=5)
CLOCK_SKEW = timedelta(minutes=1)
"""Certificates are valid from this long ago: the clock of a runner may be behind."""
KEY_LIFETIME = timedelta(days=90)
RETIREMENT = CERTIFICATE_LIFETIME + timedelta(minutes=5)


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


def _decode_keys(content: bytes) -> AuthorityKeys:
    keys = msgspec.json.decode(content, type=AuthorityKeys)
    find_public_key(keys.private)
    return keys


FORMAT: KeyFormat[AuthorityKeys] = KeyFormat(
    secret=SSH_AUTHORITY,
    description="the key for SSH certificates",
    advice="restore it from a backup, or delete it",
    encode=msgspec.json.encode,
    decode=_decode_keys,
)


class SshAuthority:
    """The SSH certificate authority of this installation."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._keys = ServerKeys(registry, namespace, FORMAT)
        self._clock: Clock = registry.clock

    async def issue(self, public_key: PublicKey, principal: str, user: str) -> IssuedCertificate:
        """Signs a certificate for a key of this user. SSH servers accept it for this principal."""
        keys = await self._current_keys()
        now = self._clock.now()
        serial, expires_at = secrets.randbits(63), now + CERTIFICATE_LIFETIME
        fields = CertificateFields(principal, user, serial, now - CLOCK_SKEW, expires_at)
        return IssuedCertificate(sign_user_certificate(keys.private, public_key, fields), serial, expires_at)

    async def public_keys(self) -> list[str]:
        """The keys whose certificates are valid now, the current one first."""
        keys = await self._current_keys()
        former = [keys.former] if keys.former_until > self._now() else []
        return [find_public_key(keys.private), *former]

    async def _current_keys(self) -> AuthorityKeys:
        return await self._keys.ensure_current(self._create_keys, self._is_due)

    async def _create_keys(self, old: AuthorityKeys | None) -> AuthorityKeys:
        private = generate_private_key()
        if old is None:
            return AuthorityKeys(private, self._now())
        until = self._now() + int(RETIREMENT.total_seconds())
        return AuthorityKeys(private, self._now(), find_public_key(old.private), until)

    def _is_due(self, keys: AuthorityKeys) -> bool:
        return self._now() - keys.created >= KEY_LIFETIME.total_seconds()

    def _now(self) -> int:
        return int(self._clock.now().timestamp())
