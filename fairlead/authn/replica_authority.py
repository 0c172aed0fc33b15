"""The CA by which replicas recognise each other. It is in a Secret in the system namespace, created with the first use.

As a Secret it is encrypted at rest, and no response contains it. So a process is a replica if it has the store and its
encryption keys. Every handshake uses the current Secret, at both ends: when it is replaced, because of its age or
because it was deleted, certificates of the former CA are rejected at once.
"""

from base64 import b64decode, b64encode
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from fairlead.core.clock import Clock
from fairlead.core.crypto.peer_certificates import (
    InvalidPeerAuthority,
    PeerAuthority,
    PeerContexts,
    build_peer_contexts,
    create_peer_authority,
)
from fairlead.core.errors import AlreadyExists, Conflict, NotFound, Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.kinds.core.server_objects import REPLICA_AUTHORITY
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

SECRET_NAME = REPLICA_AUTHORITY.name
SECRET_FIELD = "authority.json"
AUTHORITY_LIFETIME = timedelta(days=365)
REPLACE_AFTER = timedelta(days=90)
LEAF_LIFETIME = timedelta(days=2)
RENEW_LEAF_AFTER = timedelta(hours=12)
MAX_ATTEMPTS = 5

log = structlog.get_logger(__name__)


class _Stored(msgspec.Struct, frozen=True):
    certificate: str
    key: str
    created: int


class ReplicaAuthority:
    """Certificates for this process, which is named `identity`. `folder` is private to this server."""

    def __init__(self, registry: Registry, namespace: str, identity: str, folder: Path) -> None:
        self._secrets = registry.resource("", "secrets")
        self._clock: Clock = registry.clock
        self._namespace = namespace
        self._identity = identity
        self._folder = folder
        self._cached: tuple[int, datetime, PeerContexts] | None = None
        """The revision of the Secret, and when the certificate was issued."""

    async def contexts(self) -> PeerContexts:
        """TLS with a certificate of the current CA. Raises ApiError if the store is not available."""
        for _ in range(MAX_ATTEMPTS):
            try:
                entry = await self._secrets.get(self._namespace, SECRET_NAME)
            except NotFound:
                await self._create()
                continue
            now = self._clock.now()
            cached = self._cached
            if cached is not None and cached[0] == entry.revision and now - cached[1] < RENEW_LEAF_AFTER:
                return cached[2]
            stored = self._decode(decode(entry))
            if self._is_due(stored):
                await self._replace(entry.revision)
                continue
            contexts = self._build(stored, now)
            self._cached = entry.revision, now, contexts
            return contexts
        raise Unavailable(f"the Secret {self._secret_path} is being changed repeatedly; stop that, and try again")

    def _is_due(self, stored: _Stored) -> bool:
        return self._clock.now().timestamp() - stored.created >= REPLACE_AFTER.total_seconds()

    def _build(self, stored: _Stored, now: datetime) -> PeerContexts:
        authority = PeerAuthority(stored.certificate, stored.key)
        try:
            return build_peer_contexts(authority, self._identity, now, LEAF_LIFETIME, self._folder)
        except (InvalidPeerAuthority, OSError) as error:
            raise self._unusable(str(error)) from None

    async def _create(self) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
            "type": REPLICA_AUTHORITY.type,
            "data": self._new_data(),
        }
        try:
            await self._secrets.create(body, self._namespace, server_write_options())
        except AlreadyExists:  # another replica created it first
            return
        log.info("a CA for the replicas was created")

    async def _replace(self, revision: int) -> None:
        """Has no effect if another replica was faster."""

        def edit(secret: Object) -> Object:
            pinned = {**secret["metadata"], "resourceVersion": str(revision)}
            return {**secret, "metadata": pinned, "data": self._new_data()}

        try:
            await self._secrets.modify(self._namespace, SECRET_NAME, edit, server_write_options())
        except (Conflict, NotFound):
            return
        log.info("the CA of the replicas was replaced, because of its age")

    def _new_data(self) -> Object:
        now = self._clock.now()
        created = create_peer_authority(now, AUTHORITY_LIFETIME)
        stored = _Stored(created.certificate, created.key, int(now.timestamp()))
        return {SECRET_FIELD: b64encode(msgspec.json.encode(stored)).decode()}

    def _decode(self, secret: Object) -> _Stored:
        try:
            if not REPLICA_AUTHORITY.is_own(secret):
                raise ValueError("it has another type")
            content = b64decode((get_path(secret, "data") or {}).get(SECRET_FIELD) or "")
            return msgspec.json.decode(content, type=_Stored)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._unusable(str(error)) from None

    def _unusable(self, reason: str) -> Unavailable:
        advice = f"delete it, and the server creates another one: {self._secret_path}"
        return Unavailable(f"the Secret with the CA of the replicas cannot be used ({reason}); {advice}")

    @property
    def _secret_path(self) -> str:
        return f"{self._namespace}/{SECRET_NAME}"
