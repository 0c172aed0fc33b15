"""The Upstream of each connected cluster and virtual cluster: found from the object, by nothing that a request says.

The gateways and the controllers ask here, at each request, so the answer is kept for as long as neither the object nor
its secret has changed. It belongs to the object's uid: a new object of an old name starts with connections of its own.
An Upstream whose secret was changed is closed when nothing is under way on it any more; one whose object is gone, at
once. An object whose secret is bad is remembered, too, so that it costs nothing to be asked for it.
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
"""Where a secret has the kubeconfig, unless the object names another key."""
OWN = Limits(requests=8, sockets=1, waiting=8, connect_seconds=3, head_seconds=10)
"""For our own questions: few, and never behind those of people, whose number says nothing about the cluster."""
HEALTH = Limits(requests=2, sockets=1, waiting=2, connect_seconds=3, head_seconds=10)
"""For the probes of a cluster's health: one after the other, and never behind anything else."""
WATCHING = Limits(requests=80, sockets=1, waiting=80, connect_seconds=5, head_seconds=30)
"""For our own watches, which last: they must not take the place of questions that are over soon."""
IDLE_CHECK_SECONDS = 1.0


class NotConnected(UpstreamError):
    """There is nothing to talk to yet; `reason` says which part is missing."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reference:
    """Where the kubeconfig of an object is. `owner`: the uid of which the secret must say that it belongs to it."""

    namespace: str
    name: str
    key: str
    owner: str = ""


def kubeconfig_secret(instance_name: str) -> str:
    """The secret that holds the kubeconfig of a virtual cluster which was made here, beside the instance."""
    return f"vc-{instance_name}-kubeconfig"


def cluster_reference(cluster: Object, system_namespace: str) -> Reference | None:
    config = dig(cluster, "spec.config") or {}
    if not config.get("secretName"):
        return None
    return Reference(
        config.get("secretNamespace") or system_namespace, config["secretName"], config.get("key") or CONFIG_KEY
    )


def virtual_cluster_reference(instance: Object) -> Reference:
    """The secret of an imported one, else the one that was made with it: not that of a predecessor of its name."""
    meta, config = metadata(instance), dig(instance, "spec.config") or {}
    if config.get("secretName"):
        return Reference(meta["namespace"], config["secretName"], config.get("key") or CONFIG_KEY)
    return Reference(meta["namespace"], kubeconfig_secret(meta["name"]), CONFIG_KEY, meta["uid"])


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to the same cluster, with connections and limits of their own."""

    people: Upstream
    own: Upstream
    health: Upstream
    watching: Upstream


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of an object at a revision of it and of its secret (0: there is none)."""

    uid: str
    revision: int
    reference: Reference
    secret_revision: int
    outcome: _Ways | NotConnected


class Connected:
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
        """Notified of requests that fail, except for those of the health probes themselves."""
        self._kept: dict[Key, _Kept] = {}
        self._retired: dict[Upstream, asyncio.Task[None]] = {}

    def cluster(self, name: str) -> Upstream:
        """The way to a cluster. Raises NotConnected."""
        return self._cluster(name).people

    def probing(self, name: str) -> Upstream:
        """The way to the same cluster for our own requests: open however busy the other is."""
        return self._cluster(name).own

    def health(self, name: str) -> Upstream:
        """The way to the same cluster for the probes of its health: open however busy the others are."""
        return self._cluster(name).health

    def watching(self, name: str) -> Upstream:
        """The way to the same cluster for our own watches. It is closed as soon as the credential has changed."""
        return self._cluster(name).watching

    def open_departing(self, name: str) -> Upstream:
        """A way of its own to a cluster whose object is being deleted, for what has to be removed there. Whoever asks
        for it closes it. Raises NotConnected."""
        entry = self._registry.view.get((self._group, CLUSTERS, "", name))
        reference = cluster_reference(decode(entry), self._system_namespace) if entry is not None else None
        if reference is None:
            raise NotConnected("NoConfig", f'"{name}" names no secret in spec.config')
        try:
            return Upstream(self._access(reference), self._policy.resolve, HEALTH)
        except Untrusted as error:
            raise NotConnected("BadKubeconfig", error.message) from error

    def _cluster(self, name: str) -> _Ways:
        key = (self._group, CLUSTERS, "", name)
        return self._ways(key, lambda obj: cluster_reference(obj, self._system_namespace))

    def virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """The way to a virtual cluster, by the namespace of its project. Raises NotConnected."""
        return self._ways((self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_reference).people

    def probing_virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """The way to the same virtual cluster for our own questions."""
        return self._ways((self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_reference).own

    def leaving_virtual_cluster(self, namespace: str, name: str) -> Upstream:
        """A way to a virtual cluster whose object is being deleted, which nobody else gets any more. The caller closes
        it. Raises NotConnected."""
        key = (self._group, VIRTUAL_CLUSTERS, namespace, name)
        entry = self._registry.view.get(key)
        if entry is None:
            raise NotConnected("NotFound", f'there is no "{name}" any more; see which there are')
        return Upstream(self._access(virtual_cluster_reference(decode(entry))), self._policy.resolve, OWN)

    def forget_virtual_cluster(self, namespace: str, name: str) -> None:
        """Ends the connections to one that is gone or being deleted, also if nobody asks for it any more."""
        key = (self._group, VIRTUAL_CLUSTERS, namespace, name)
        kept, entry = self._kept.get(key), self._registry.view.get(key)
        current = metadata(decode(entry)) if entry is not None else {}
        if kept is not None and (current.get("uid") != kept.uid or "deletionTimestamp" in current):
            self._drop(key)

    async def close_all(self) -> None:
        """Ends everything, when the server does."""
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
        kept = self._kept.get(key)
        if entry is None or kept is None or not self._holds(kept, entry):
            try:
                kept = self._look(key, entry, kept, refer)
            except NotConnected:
                self._drop(key)
                raise
            self._kept[key] = kept
        if isinstance(kept.outcome, NotConnected):
            # A new one each time: an exception that is raised again carries where it has been.
            raise NotConnected(kept.outcome.reason, kept.outcome.message)
        return kept.outcome

    def _holds(self, kept: _Kept, entry: Entry) -> bool:
        return kept.revision == entry.revision and kept.secret_revision == self._revision_of(kept.reference)

    def _revision_of(self, reference: Reference) -> int:
        secret = self._secrets.peek(reference.namespace, reference.name)
        return secret.revision if secret is not None else 0

    def _look(
        self, key: Key, entry: Entry | None, kept: _Kept | None, refer: Callable[[Object], Reference | None]
    ) -> _Kept:
        """What holds now. Where only other parts of the object have changed, its connections stay."""
        if entry is None:
            raise NotConnected("NotFound", f'there is no "{key[3]}" any more; see which there are')
        obj = decode(entry)
        reference = refer(obj)
        if "deletionTimestamp" in metadata(obj):
            raise NotConnected("Terminating", f'"{key[3]}" is being deleted')
        if reference is None:
            raise NotConnected("NoConfig", f'"{key[3]}" is not connected; name a secret in spec.config')
        uid, revision = metadata(obj)["uid"], self._revision_of(reference)
        if kept is not None and (kept.uid, kept.reference, kept.secret_revision) == (uid, reference, revision):
            return replace(kept, revision=entry.revision)
        if kept is not None and kept.uid == uid:
            self._end(kept, at_once=False)
        else:
            self._drop(key)
        self._forget_the_gone()
        return _Kept(uid, entry.revision, reference, revision, self._made(key, reference))

    def _made(self, key: Key, reference: Reference) -> _Ways | NotConnected:
        try:
            access = self._access(reference)
            resolve, on_failure = self._policy.resolve, partial(self.failures.notify, key)
            people = Upstream(access, resolve, self._limits, on_failure)
            own, watching = (Upstream(access, resolve, each, on_failure) for each in (OWN, WATCHING))
            return _Ways(people, own, Upstream(access, resolve, HEALTH), watching)
        except NotConnected as error:
            return error
        except Untrusted as error:  # keys that are well-formed, and that OpenSSL does not take
            return NotConnected("BadKubeconfig", error.message)

    def _access(self, reference: Reference) -> Access:
        try:
            return parse(self.kubeconfig(reference))
        except BadKubeconfig as error:
            why = f"the kubeconfig cannot be used: {'; '.join(error.problems)}"
            raise NotConnected("BadKubeconfig", why) from error

    def kubeconfig(self, reference: Reference) -> bytes:
        """What the secret holds. Raises NotConnected."""
        where = f'"{reference.name}" in the namespace "{reference.namespace}"'
        entry = self._secrets.peek(reference.namespace, reference.name)
        secret = decode(entry) if entry is not None else {}
        owners = metadata(secret).get("ownerReferences") or ()
        if entry is None or (reference.owner and all(each.get("uid") != reference.owner for each in owners)):
            raise NotConnected("SecretNotFound", f"there is no secret {where}; create it with the kubeconfig")
        content = (secret.get("data") or {}).get(reference.key)
        if not content:
            raise NotConnected("KeyNotFound", f'the secret {where} has no key "{reference.key}"; store it there')
        return b64decode(content)

    def _forget_the_gone(self) -> None:
        """Virtual clusters come and go, and nobody asks for one that has gone."""
        for key in [key for key in self._kept if self._registry.view.get(key) is None]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Nobody may use it any more."""
        if kept := self._kept.pop(key, None):
            self._end(kept, at_once=True)

    def _end(self, kept: _Kept, at_once: bool) -> None:
        """Nobody new gets it. Unless it is to end `at_once`, what is under way may go on."""
        if isinstance(kept.outcome, _Ways):
            ways = kept.outcome
            for upstream in (ways.people, ways.own, ways.health, ways.watching):
                hurries = at_once or upstream is ways.watching
                task = asyncio.create_task(_end_of(upstream, hurries), name="closing a cluster's connections")
                self._retired[upstream] = task
                task.add_done_callback(partial(self._closed, upstream))

    def _closed(self, upstream: Upstream, task: "asyncio.Task[None]") -> None:
        self._retired.pop(upstream, None)


async def _end_of(upstream: Upstream, at_once: bool) -> None:
    while upstream.in_use and not at_once:  # noqa: ASYNC110  # nobody is in a hurry, and requests need no further duty
        await asyncio.sleep(IDLE_CHECK_SECONDS)
    await upstream.close()
