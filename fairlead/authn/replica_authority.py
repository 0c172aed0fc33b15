"""The CA by which replicas recognise each other, which `server_keys.py` stores.

No response contains it, so a process is a replica if it has the store and its encryption keys. Every handshake uses the
current CA, at both ends: when it is replaced, because of its age or because its Secret was deleted, certificates of the
former one are rejected at once.
"""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from fairlead.authn.server_keys import KeyFormat, ServerKeys
from fairlead.core.clock import Clock
from fairlead.core.crypto.peer_certificates import (
    InvalidPeerAuthority,
    PeerAuthority,
    PeerContexts,
    build_peer_contexts,
    create_peer_authority,
)
from fairlead.kinds.core.server_objects import REPLICA_AUTHORITY
from fairlead.registry.registry import Registry

AUTHORITY_LIFETIME = timedelta(days=365)
REPLACE_AFTER = timedelta(days=90)
LEAF_LIFETIME = timedelta(days=2)
RENEW_LEAF_AFTER = timedelta(hours=12)


class _Stored(msgspec.Struct, frozen=True):
    certificate: str
    key: str
    created: int


FORMAT: KeyFormat[_Stored] = KeyFormat(
    secret=REPLICA_AUTHORITY,
    description="the CA of the replicas",
    advice="delete it, and the server creates another one",
    encode=msgspec.json.encode,
    decode=partial(msgspec.json.decode, type=_Stored),
    field="authority.json",
)


class ReplicaAuthority:
    """Certificates for this process, which is named `identity`. `folder` is private to this server."""

    def __init__(self, registry: Registry, namespace: str, identity: str, folder: Path) -> None:
        self._keys = ServerKeys(registry, namespace, FORMAT)
        self._clock: Clock = registry.clock
        self._identity = identity
        self._folder = folder
        self._cached: tuple[_Stored, datetime, PeerContexts] | None = None
        """The CA, and when it issued the certificate of these contexts."""

    async def contexts(self) -> PeerContexts:
        """TLS with a certificate of the current CA. Raises ApiError if the store is not available."""
        stored = await self._keys.ensure_current(self._create, self._is_due)
        now = self._clock.now()
        cached = self._cached
        if cached is not None and cached[0] == stored and now - cached[1] < RENEW_LEAF_AFTER:
            return cached[2]
        contexts = self._build(stored, now)
        self._cached = stored, now, contexts
        return contexts

    def _is_due(self, stored: _Stored) -> bool:
        return self._clock.now().timestamp() - stored.created >= REPLACE_AFTER.total_seconds()

    def _build(self, stored: _Stored, now: datetime) -> PeerContexts:
        authority = PeerAuthority(stored.certificate, stored.key)
        try:
            return build_peer_contexts(authority, self._identity, now, LEAF_LIFETIME, self._folder)
        except (InvalidPeerAuthority, OSError) as error:
            raise self._keys.unusable(str(error)) from None

    async def _create(self, _: _Stored | None) -> _Stored:
        now = self._clock.now()
        created = create_peer_authority(now, AUTHORITY_LIFETIME)
        return _Stored(created.certificate, created.key, int(now.timestamp()))
