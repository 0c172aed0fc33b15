"""The Upstreams of connected clusters and virtual clusters, derived from the object and its kubeconfig secret only.

Gateways and controllers look up an Upstream for every request, so it is cached until the object or its secret changes.
Cache entries belong to the object's uid: a recreated object gets new connections. When the secret changes, the old
Upstream is closed once it is idle; when the object is deleted, immediately. Failures are cached, too, so that a
request for an object with an invalid secret is cheap.
"""

import asyncio
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from fairlead.core.objects import Object, dig, metadata
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.access import Access
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.errors import FailureNotifier, Untrusted, UpstreamError
from fairlead.upstream.kubeconfig import BadKubeconfig, parse
from fairlead.upstream.upstream import Limits, Upstream

CLUSTERS, VIRTUAL_CLUSTERS = "clusters", "virtualclusterinstances"
CONFIG_KEY: Final = "config"
"""Key of the secret that holds the kubeconfig, unless the object names another one."""
OWN = Limits(requests=8, sockets=1, waiting=8, connect_seconds=3, head_seconds=10)
"""For requests of the controllers. A separate pool, so they never queue behind requests of users."""
HEALTH = Limits(requests=2, sockets=1, waiting=2, connect_seconds=3, head_seconds=10)
"""For health probes. A separate pool, so they never queue behind other requests."""
WATCHING = Limits(requests=80, sockets=1, waiting=80, connect_seconds=5, head_seconds=30)
"""For watches of the controllers. A separate pool, so long-lived watches do not block short requests."""
IDLE_CHECK_SECONDS = 1.0


class NotConnected(UpstreamError):
    """The object has no usable kubeconfig, or is deleted. `reason` says which, for conditions and Events."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reference:
    """The secret and key that hold an object's kubeconfig.

    `owner_uid`: uid that must be among the secret's ownerReferences; empty if any secret will do.
    """

    namespace: str
    name: str
    key: str
    owner: str = ""


def kubeconfig_secret(instance_name: str) -> str:
    """Name of the secret, in the instance's namespace, with the kubeconfig of a virtual cluster created by us."""
    return f"vc-{instance_name}-kubeconfig"


def cluster_reference(cluster: Object, system_namespace: str) -> Reference | None:
    config = dig(cluster, "spec.config") or {}
    if not config.get("secretName"):
        return None
    return Reference(
        config.get("secretNamespace") or system_namespace, config["secretName"], config.get("key") or CONFIG_KEY
    )


def virtual_cluster_reference(instance: Object) -> Reference:
    """The secret of an imported virtual cluster, or the generated one, which must be owned by this very instance."""
    meta, config = metadata(instance), dig(instance, "spec.config") or {}
    if config.get("secretName"):
        return Reference(meta["namespace"], config["secretName"], config.get("key") or CONFIG_KEY)
    return Reference(meta["namespace"], kubeconfig_secret(meta["name"]), CONFIG_KEY, meta["uid"])


@dataclass(frozen=True, slots=True)
class _Ways:
    """The Upstreams of one cluster, by purpose. Each has its own connections and limits."""

    people: Upstream
    own: Upstream
    health: Upstream
    watching: Upstream


@dataclass(frozen=True, slots=True)
class _Kept:
    """Upstreams, or the error, for a revision of the object and of its secret (0: the secret does not exist)."""

    uid: str
    revision: int
    reference: Reference
    secret_revision: int
    outcome: _Ways | NotConnected


class Connected:
    """Looks up, caches and closes the Upstreams of clusters and virtual clusters."""

    def __init__(
        self, registry: Registry, api_group: str, system_namespace: str, policy: AddressPolicy, limits: Limits
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._system_namespace = system_namespace
        self._policy = policy
        self._limits = limits
        self._secrets = registry.resource("", "secrets")
        self.failures = FailureNotifier()
        """Notified of failed requests, except those of health probes."""
        self._kept: dict[Key, _Kept] = {}
        self._retired: dict[Upstream, asyncio.Task[None]] = {}

    def cluster(self, name: str) -> Upstream:
        """The Upstream for requests of users. Raises NotConnected."""
        return self._cluster(name).people

    def probing(self, name: str) -> Upstream:
        """The Upstream for requests of controllers. Raises NotConnected."""
        return self._cluster(name).own

    def health(self, name: str) -> Upstream:
        """The Upstream for health probes. Raises NotConnected."""
        return self._cluster(name).health

    def watching(self, name: str) -> Upstream:
        """The Upstream for watches of controllers, closed as soon as the credential changes. Raises NotConnected."""
        return self._cluster(name).watching

    def open_departing(self, name: str) -> Upstream:
        """Opens an Upstream for cleanup in a cluster whose object is being deleted. The caller closes it.

        Raises NotConnected.
        """
        entry = self._registry.view.get((self._group, CLUSTERS, "", name))
        ref = cluster_reference(decode(entry), self._system_namespace) if entry is not None else None
        if ref is None:
            raise NotConnected("NoConfig", f'"{name}" is not connected; set spec.config.secretName')
        try:
            return Upstream(self._access(ref), self._policy.resolve, HEALTH)
        except Untrusted as error:
            raise NotConnected("BadKubeconfig", error.message) from error

    def _cluster(self, name: str) -> _Ways:
        key = (self._group, CLUSTERS, "", name)
        return self._ways(key, lambda obj: cluster_reference(obj, self._system_namespace))

    def virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """The Upstream for requests of users. `namespace` is that of the project. Raises NotConnected."""
        return self._ways((self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_reference).people

    def probing_virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """The Upstream for requests of controllers. Raises NotConnected."""
        return self._ways((self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_reference).own

    def leaving_virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """Opens an Upstream to a virtual cluster whose object is being deleted. The caller closes it.

        Raises NotConnected.
        """
        key = (self._group, VIRTUAL_CLUSTERS, namespace, name)
        entry = self._registry.view.get(key)
        if entry is None:
            raise NotConnected("NotFound", f'"{name}" no longer exists')
        return Upstream(self._access(virtual_cluster_reference(decode(entry))), self._policy.resolve, OWN)

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        """Closes the connections to a virtual cluster whose object is deleted or being deleted."""
        key = (self._group, VIRTUAL_CLUSTERS, namespace, name)
        cached, entry = self._kept.get(key), self._registry.view.get(key)
        current = metadata(decode(entry)) if entry is not None else {}
        if cached is not None and (current.get("uid") != cached.uid or "deletionTimestamp" in current):
            self._drop(key)

    async def close_all(self) -> None:
        """Closes all connections, on shutdown."""
        for key in list(self._kept):
            self._drop(key)
        retired = dict(self._retired)
        for task in retired.values():
            task.cancel()
        await asyncio.gather(*retired.values(), return_exceptions=True)
        for upstream in retired:
            await upstream.close()
        self._retired.clear()

    def _ways(self, key: Key, refer: Callable[[Object], Reference | None]) -> _Ways:
        entry = self._registry.view.get(key)
        cached = self._kept.get(key)
        if entry is None or cached is None or not self._holds(cached, entry):
            try:
                cached = self._look(key, entry, cached, refer)
            except NotConnected:
                self._drop(key)
                raise
            self._kept[key] = cached
        if isinstance(cached.outcome, NotConnected):
            # A new exception each time: raising the cached one again would extend its traceback.
            raise NotConnected(cached.outcome.reason, cached.outcome.message)
        return cached.outcome

    def _holds(self, kept: _Kept, entry: Entry) -> bool:
        return kept.revision == entry.revision and kept.secret_revision == self._revision_of(kept.reference)

    def _revision_of(self, reference: Reference) -> int:
        secret = self._secrets.peek(reference.namespace, reference.name)
        return secret.revision if secret is not None else 0

    def _look(
        self, key: Key, entry: Entry | None, kept: _Kept | None, refer: Callable[[Object], Reference | None]
    ) -> _Kept:
        """Builds the current cache entry. Keeps the connections if the kubeconfig has not changed."""
        if entry is None:
            raise NotConnected("NotFound", f'"{key[3]}" no longer exists')
        obj = decode(entry)
        ref = refer(obj)
        if "deletionTimestamp" in metadata(obj):
            raise NotConnected("Terminating", f'"{key[3]}" is being deleted')
        if ref is None:
            raise NotConnected("NoConfig", f'"{key[3]}" is not connected; set spec.config.secretName')
        uid, revision = metadata(obj)["uid"], self._revision_of(ref)
        if kept is not None and (kept.uid, kept.reference, kept.secret_revision) == (uid, ref, revision):
            return replace(kept, revision=entry.revision)
        if kept is not None and kept.uid == uid:
            self._end(kept, at_once=False)
        else:
            self._drop(key)
        self._forget_the_gone()
        return _Kept(uid, entry.revision, ref, revision, self._made(key, ref))

    def _made(self, key: Key, reference: Reference) -> _Ways | NotConnected:
        try:
            endpoint = self._access(reference)
            resolve, on_failure = self._policy.resolve, partial(self.failures.notify, key)
            user = Upstream(endpoint, resolve, self._limits, on_failure)
            system, watch = (Upstream(endpoint, resolve, each, on_failure) for each in (OWN, WATCHING))
            return _Ways(user, system, Upstream(endpoint, resolve, HEALTH), watch)
        except NotConnected as error:
            return error
        except Untrusted as error:  # well-formed PEM that OpenSSL rejects
            return NotConnected("BadKubeconfig", error.message)

    def _access(self, reference: Reference) -> Access:
        try:
            return parse(self.kubeconfig(reference))
        except BadKubeconfig as error:
            message = f"the kubeconfig cannot be used: {'; '.join(error.problems)}"
            raise NotConnected("BadKubeconfig", message) from error

    def kubeconfig(self, reference: Reference) -> bytes:
        """Reads the kubeconfig from its secret. Raises NotConnected."""
        where = f'"{reference.name}" in namespace "{reference.namespace}"'
        entry = self._secrets.peek(reference.namespace, reference.name)
        secret = decode(entry) if entry is not None else {}
        owners = metadata(secret).get("ownerReferences") or ()
        if entry is None or (reference.owner and all(each.get("uid") != reference.owner for each in owners)):
            raise NotConnected("SecretNotFound", f"secret {where} not found; create it with the kubeconfig")
        content = (secret.get("data") or {}).get(reference.key)
        if not content:
            raise NotConnected(
                "KeyNotFound", f'secret {where} has no key "{reference.key}"; store the kubeconfig under that key'
            )
        return b64decode(content)

    def _forget_the_gone(self) -> None:
        """Evicts entries of deleted objects, which no request would look up again."""
        for key in [key for key in self._kept if self._registry.view.get(key) is None]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Removes the entry and closes its connections immediately."""
        if cached := self._kept.pop(key, None):
            self._end(cached, at_once=True)

    def _end(self, kept: _Kept, at_once: bool) -> None:
        """Closes the entry's connections, `immediately` or once they are idle. Watches are closed immediately."""
        if isinstance(kept.outcome, _Ways):
            upstreams = kept.outcome
            for upstream in (upstreams.people, upstreams.own, upstreams.health, upstreams.watching):
                is_immediate = at_once or upstream is upstreams.watching
                task = asyncio.create_task(_end_of(upstream, is_immediate), name="closing a cluster's connections")
                self._retired[upstream] = task
                task.add_done_callback(partial(self._closed, upstream))

    def _closed(self, upstream: Upstream, task: "asyncio.Task[None]") -> None:
        self._retired.pop(upstream, None)


async def _end_of(upstream: Upstream, at_once: bool) -> None:
    while upstream.in_use and not at_once:  # noqa: ASYNC110  # polling keeps the request path free of an idle event
        await asyncio.sleep(IDLE_CHECK_SECONDS)
    await upstream.close()
