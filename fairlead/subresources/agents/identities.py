"""The identity of a cluster's agent: a join token, of which only the digest is stored, and public keys.

They are in a Secret in the system namespace that only the server writes, owned by the Cluster, so they end with it.
Every change is a compare-and-swap, so replicas agree: of two that use a token, one does.

    join       burns the token and replaces all keys. For five minutes, the same key may do so again: its response may
               have been lost
    offer      a key that proves itself by the current one is pending
    confirm    the first use of the pending key makes it the current one. The former is valid for ten more minutes
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from hmac import compare_digest

import msgspec

from fairlead.core.cluster_exports import DeclaredExport
from fairlead.core.crypto.agent_keys import JoinToken, generate_token, key_id
from fairlead.core.errors import AlreadyExists, Conflict, Forbidden, NotFound, Unauthorized
from fairlead.core.objects import Object, get_path, metadata
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.core.server_objects import CLUSTER_AGENT_SECRET_TYPE, cluster_agent_secret_name
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

TOKEN_LIFETIME = timedelta(hours=1)
REPEAT_SECONDS = 300
"""How long after its use a token works for the key that has used it."""
OVERLAP_SECONDS = 600
"""How long a former key is valid after its successor was confirmed."""
FIELD = "identity.json"
CURRENT, PENDING, FORMER = "current", "pending", "former"
REJECTED = (
    "the join token is not valid: it was used, has expired, or is for another cluster or server; create another one"
)


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    digest: str
    expires: int
    used_by: str = ""
    """The ID of the key."""
    used_at: int = 0
    is_from_admin: bool = False
    """Whether an administrator has created it. Only such a token lets an agent join a cluster that gets exported
    keys."""


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    public: str
    state: str
    until: int = 0
    """When a former key ends; 0 for others."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`cluster_uid`: a Cluster that was created anew with the same name has another agent."""

    cluster_uid: str
    token: StoredToken | None = None
    keys: tuple[StoredKey, ...] = ()

    def find(self, key: str, now: int) -> StoredKey | None:
        for each in self.keys:
            if key_id(each.public) == key and (each.state != FORMER or now < each.until):
                return each
        return None


class AgentIdentities:
    def __init__(self, registry: Registry, api_group: str, namespace: str) -> None:
        self._clusters = registry.resource(api_group, CLUSTER.plural)
        self._secrets = registry.resource("", "secrets")
        self._clock = registry.clock
        self._namespace = namespace

    async def issue_token(self, name: str, authority: str, *, is_admin: bool = False) -> JoinToken:
        """A token with which an agent may join a cluster once. Earlier ones end. Raises NotFound, Conflict and
        Forbidden. `is_admin`: whether an administrator asks for it."""
        cluster = decode(await self._clusters.get("", name))
        if not get_path(cluster, "spec.networkPeer"):
            raise Conflict.of(
                CLUSTER.plural,
                self._clusters.kind.group,
                name,
                "it is reached with a kubeconfig; set spec.networkPeer to true first, then only its agent reaches it",
            )
        if DeclaredExport.of(cluster) is not None and not is_admin:
            why = (
                "the server writes access keys into this cluster, so only administrators, with a key without a scope, "
                "may let an agent join it; ask one of them for the token"
            )
            raise Forbidden.of(CLUSTER.plural, self._clusters.kind.group, name, why)
        token = generate_token(name, authority)
        expires = self._now() + int(TOKEN_LIFETIME.total_seconds())
        stored = StoredToken(token.digest, expires, is_from_admin=is_admin)
        uid = metadata(cluster)["uid"]
        await self._change(cluster, lambda old: Identity(uid, stored, old.keys if old.cluster_uid == uid else ()))
        return token

    async def join(self, token: JoinToken, public_key: str) -> None:
        """Burns the token, and makes this key the only one of the cluster. Raises Unauthorized."""
        try:
            cluster = decode(await self._clusters.get("", token.cluster))
        except NotFound:
            raise Unauthorized(REJECTED) from None
        own = key_id(public_key)

        def use(old: Identity) -> Identity:
            stored, now = old.token, self._now()
            if stored is None or old.cluster_uid != metadata(cluster)["uid"]:
                raise Unauthorized(REJECTED)
            if not compare_digest(stored.digest, token.digest):
                raise Unauthorized(REJECTED)
            if stored.used_by:
                if stored.used_by != own or now - stored.used_at > REPEAT_SECONDS or old.find(own, now) is None:
                    raise Unauthorized(REJECTED)
                return old
            if now >= stored.expires:
                raise Unauthorized(REJECTED)
            if not stored.is_from_admin and DeclaredExport.of(cluster) is not None:  # it was declared since
                raise Unauthorized(REJECTED)
            used = StoredToken(stored.digest, stored.expires, own, now, stored.is_from_admin)
            return Identity(old.cluster_uid, used, (StoredKey(public_key, CURRENT),))

        if self.find(token.cluster) is None:
            raise Unauthorized(REJECTED)
        await self._change(cluster, use)

    async def offer(self, cluster: str, key: str, new_public_key: str) -> None:
        """Stores a pending key. Raises Unauthorized unless `key` is the current one."""

        def add(old: Identity) -> Identity:
            current = old.find(key, self._now())
            if current is None or current.state != CURRENT:
                raise Unauthorized
            remaining = tuple(each for each in old.keys if each.state != PENDING)
            return Identity(old.cluster_uid, old.token, (*remaining, StoredKey(new_public_key, PENDING)))

        await self._change(await self._get_cluster(cluster), add)

    async def confirm(self, cluster: str, key: str) -> None:
        """Makes the pending key the current one. Has no effect if it is that already."""

        def promote(old: Identity) -> Identity:
            pending = old.find(key, self._now())
            if pending is None or pending.state != PENDING:
                return old
            until = self._now() + OVERLAP_SECONDS
            former = tuple(StoredKey(each.public, FORMER, until) for each in old.keys if each.state == CURRENT)
            return Identity(old.cluster_uid, old.token, (StoredKey(pending.public, CURRENT), *former))

        await self._change(await self._get_cluster(cluster), promote)

    def find_key(self, cluster: str, key: str) -> StoredKey | None:
        """A key that is valid now, of a cluster that its agent connects to."""
        entry = self._clusters.get_cached("", cluster)
        found = self.find(cluster)
        if entry is None or found is None:
            return None
        current = decode(entry)
        if metadata(current)["uid"] != found.cluster_uid or not get_path(current, "spec.networkPeer"):
            return None
        return found.find(key, self._now())

    def find(self, cluster: str) -> Identity | None:
        entry = self._secrets.get_cached(self._namespace, cluster_agent_secret_name(cluster))
        return _decode_identity(decode(entry)) if entry is not None else None

    async def _get_cluster(self, name: str) -> Object:
        try:
            return decode(await self._clusters.get("", name))
        except NotFound:
            raise Unauthorized from None

    async def _change(self, cluster: Object, change: Callable[[Identity], Identity]) -> None:
        """Applies a function of the stored identity, which is called again after every lost race."""
        name = cluster_agent_secret_name(metadata(cluster)["name"])

        def edit(secret: Object) -> Object:
            old = _decode_identity(secret)
            if old is None:
                raise Conflict.of("secrets", "", name, "it was not created by the server; delete it")
            new = change(old)
            return secret if new == old else {**secret, "data": _encode_identity(new)}

        try:
            await self._secrets.modify(self._namespace, name, edit, server_write_options())
        except NotFound:
            body = self._build_secret(name, cluster, change(Identity(metadata(cluster)["uid"])))
            with suppress(AlreadyExists):
                await self._secrets.create(body, self._namespace, server_write_options())
                return
            await self._secrets.modify(self._namespace, name, edit, server_write_options())

    def _build_secret(self, name: str, cluster: Object, identity: Identity) -> Object:
        owner = {
            "apiVersion": cluster["apiVersion"],
            "kind": cluster["kind"],
            "name": metadata(cluster)["name"],
            "uid": metadata(cluster)["uid"],
        }
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self._namespace, "ownerReferences": [owner]},
            "type": CLUSTER_AGENT_SECRET_TYPE,
            "data": _encode_identity(identity),
        }

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _encode_identity(identity: Identity) -> Object:
    return {FIELD: b64encode(msgspec.json.encode(identity)).decode()}


def _decode_identity(secret: Object) -> Identity | None:
    """None for a Secret that the server has not written."""
    if secret.get("type") != CLUSTER_AGENT_SECRET_TYPE:
        return None
    try:
        return msgspec.json.decode(b64decode((secret.get("data") or {}).get(FIELD) or ""), type=Identity)
    except (ValueError, msgspec.MsgspecError):
        return None
