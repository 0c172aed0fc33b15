"""Keeps cluster Secrets of Argo CD in the clusters that declare it by annotations, with a key in each.

The Cluster in which Argo CD runs is the destination. There is one Secret for each Cluster that its selector matches.
Its key is replaced at half of its life: a new one is written first, and the former one ends an hour later. What the
server wrote is known by the annotation with the installation, and nothing else is changed or deleted there. The access
keys record what was written where, so nothing is stored beside them and the condition `Exported`: a destination that is
none any more, as its annotation was removed while no controller ran, is found by either.

A change of a Cluster leads to a look at its Secrets alone. All Secrets of a destination are compared when its export
changes, and every few minutes.

Keys of a Cluster that no longer exists are deleted, also those that `fairlead cluster export` made.
"""

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import structlog

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.core.addresses import is_loopback
from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.cluster_exports import (
    ARGOCD_ANNOTATION,
    CLUSTER_UID_ANNOTATION,
    DESTINATION_LABEL,
    EXPORT_CLUSTER_LABEL,
    EXPORT_LABEL,
    INSTALLATION_ANNOTATION,
    KEY_NAME_ANNOTATION,
    NAMESPACE_ANNOTATION,
    SELECTOR_ANNOTATION,
    USER_ANNOTATION,
    DeclaredExport,
    ExportFormat,
    ExportKey,
    Gateways,
    build_argocd_secret,
    build_stored_key,
    find_connection_problem,
    gateway_scope,
    is_due,
    secret_name,
)
from fairlead.core.errors import ApiError, BadRequest, NotFound
from fairlead.core.objects import Object, get_path, json_equal, metadata, name_of
from fairlead.core.truncation import truncate_with_hash
from fairlead.domain.key_lifetime import expires_at, ttl_seconds
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.principal_fields import is_disabled
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.codec import decode
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    condition,
    find_condition,
    record_event,
    with_condition,
    without_conditions,
)
from fairlead.registry.informer import OwnerUsageIndex, UsageEntry
from fairlead.registry.names import dns_label_errors
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Selector, parse_labels
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import CLUSTERS
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeApi, RemoteApiError

KEY_SECONDS = 7 * 24 * 3600
OVERLAP_SECONDS = 3600.0
"""How long a former key stays valid after its Secret was written with another one."""
RESYNC_SECONDS = 300.0
"""How often the Secrets are compared without a reason: others may change or delete them."""
RETRY = BackoffPolicy(first_seconds=30.0, max_seconds=RESYNC_SECONDS)
"""How soon all Secrets are compared again while not all is written."""
MAX_KEYS = 3
"""How many keys a Secret has at most: former ones are valid for a while, and others may restore an older Secret."""
PAGE_ITEMS, MAX_PAGES = 250, 1_000
"""Secrets in one response, and responses that are read."""
MAX_NAMED = 5
"""How many Secrets a message names."""

log = structlog.get_logger(__name__)

EXPORTED: Final = "Exported"
"""The condition, and its reason if all is well."""


@dataclass(frozen=True, slots=True)
class _Result:
    """What becomes of an export: the reason, the message, and when to look again at the latest."""

    reason: str
    message: str
    requeue: float = RESYNC_SECONDS

    @property
    def is_done(self) -> bool:
        return self.reason == EXPORTED


@dataclass(slots=True)
class _Destination:
    """What is known about the Secrets in a Cluster."""

    changed: set[str] = field(default_factory=set)
    """The Clusters whose Secrets may have to change."""
    is_due: bool = True
    """Whether the export itself has changed, so that all Secrets are compared now."""
    full_at: float = 0.0
    """When they are compared anyway, by the monotonic clock."""
    is_listed: bool = False
    """Whether that has succeeded the last time: until then, it is no use to look at single ones."""
    failures: int = 0
    """How many times in a row not all was as it should be."""
    wanted: set[str] = field(default_factory=set)
    """The names of the Secrets that there should be, and of those among them that are not as they should be."""
    foreign: set[str] = field(default_factory=set)
    overwritten: set[str] = field(default_factory=set)
    refused: dict[str, RemoteApiError] = field(default_factory=dict)

    def forget(self, clusters: Iterable[str] | None) -> None:
        """What was found out about the Secrets of these Clusters, or of all."""
        names = {*self.wanted, *self.refused} if clusters is None else set(map(secret_name, clusters))
        for found in (self.wanted, self.foreign, self.overwritten):
            found -= names
        for each in names:
            self.refused.pop(each, None)


class ClusterExportController:
    name, workers = "cluster-exports", 4

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        clusters: ClusterAccess,
        gateways: Callable[[], Gateways],
        digest: Callable[[str], str],
        max_ttl: Callable[[], int] = lambda: 0,
    ) -> None:
        """`digest` is that of stored access keys, and `max_ttl` the longest life of keys in seconds, 0 for no limit."""
        self.watches = ((api_group, CLUSTERS), (api_group, OWNED_ACCESS_KEY.plural))
        self._registry = registry
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._keys = registry.resource(api_group, OWNED_ACCESS_KEY.plural)
        self._users = registry.resource(api_group, "users")
        self._access = clusters
        self._gateways = gateways
        self._digest = digest
        self._max_ttl = max_ttl
        self._destinations: dict[Key, _Destination] = {}
        """Those that declare an export, and those that have something of a former one."""
        self._seen: dict[Key, tuple[object, object]] = {}
        """What decides about the Secrets of each Cluster, and about those in it."""
        self._by_label: dict[str, Key] = {}
        """The Clusters by what labels call them."""
        self._index = OwnerUsageIndex(registry.view, api_group, OWNED_ACCESS_KEY.plural, _read_marks)
        self._exported_keys: dict[Key, tuple[str, str]] = {}
        """The destination and the exported cluster of access keys, as their labels have them."""
        self._deleted_keys: set[str] = set()
        """Keys that this controller deletes: without this, a Secret that is refused would be tried again at once."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] != CLUSTERS:
            return [*self._keys_for_access_key(key, entry)]
        return [*self._keys_for_cluster(key, entry)]

    def _keys_for_cluster(self, key: Key, entry: Entry | None) -> Iterator[Key]:
        """The Cluster, if the export to it has changed, and the destinations, if what decides about its Secrets has."""
        label = truncate_with_hash(key[3])
        if entry is None:
            self._seen.pop(key, None)
            self._by_label.pop(label, None)
            yield key
            yield from self._index.get((None, label))
            yield from self._mark_changed(key[3])
            return
        self._by_label[label] = key
        cluster = decode(entry)
        meta = metadata(cluster)
        export = DeclaredExport.of(cluster)
        about = meta["uid"], dict(_labels(cluster)), "deletionTimestamp" in meta
        within = meta["uid"], export, meta.get("generation"), get_path(cluster, "status.online")
        before = self._seen.get(key)
        self._seen[key] = about, within
        had_export = key in self._destinations or find_condition(cluster.get("status"), EXPORTED) is not None
        if (export is not None or had_export) and (before is None or before[1] != within):
            self._destinations.setdefault(key, _Destination()).is_due = True
            yield key
        if before is None or before[0] != about:
            yield from self._mark_changed(key[3])

    def _mark_changed(self, cluster: str) -> Iterator[Key]:
        for key, destination in self._destinations.items():
            destination.changed.add(cluster)
            yield key

    def _keys_for_access_key(self, key: Key, entry: Entry | None) -> Iterator[Key]:
        """An exported key that is new here, and its destination if nothing is known of that; if it was deleted, its
        destination."""
        if entry is None:
            destination, cluster = map(self._by_label.get, self._exported_keys.pop(key, ("", "")))
            if key[3] in self._deleted_keys:
                self._deleted_keys.remove(key[3])
            elif destination in self._destinations and cluster is not None:
                self._destinations[destination].changed.add(cluster[3])
                yield destination
        elif key not in self._exported_keys and EXPORT_LABEL in entry.labels:
            labels = entry.labels
            self._exported_keys[key] = labels.get(DESTINATION_LABEL, ""), labels.get(EXPORT_CLUSTER_LABEL, "")
            yield key
            destination = self._by_label.get(labels.get(DESTINATION_LABEL, ""))
            if destination is not None and destination not in self._destinations:
                self._destinations[destination] = _Destination()
                yield destination

    async def reconcile(self, key: Key) -> float | None:
        if key[1] != CLUSTERS:
            await self._delete_orphan(key[3])
            return None
        entry = self._clusters.get_cached("", key[3])
        if entry is None:
            self._destinations.pop(key, None)
            for each in self._keys_at(key[3]):
                await self._delete_key(each)
            return None
        now = self._registry.clock.monotonic()
        state = self._destinations.setdefault(key, _Destination())
        is_full = state.is_due or state.full_at <= now
        if not (is_full or state.is_listed):
            return state.full_at - now
        changed, state.changed, state.is_due = state.changed, set(), False
        destination = decode(entry)
        try:
            result = await self._keep(destination, state, None if is_full else changed)
            await self._report(destination, result)
        except ApiError:
            state.is_due = True
            raise
        if result is None:
            self._destinations.pop(key, None)
            return None
        return self._schedule(state, result, is_full=is_full)

    def _schedule(self, state: _Destination, result: _Result, *, is_full: bool) -> float:
        """Returns the seconds until all Secrets are compared again."""
        now = self._registry.clock.monotonic()
        if is_full:
            state.failures = 0 if result.is_done else state.failures + 1
            state.full_at = now + RESYNC_SECONDS
        delay = RESYNC_SECONDS if result.is_done else RETRY.delay(state.failures or 1)
        state.full_at = min(state.full_at, now + delay, now + result.requeue)
        return state.full_at - now

    async def _delete_orphan(self, name: str) -> None:
        """Deletes an exported key whose Cluster is gone, or whose destination is."""
        entry = self._keys.get_cached("", name)
        if entry is None:
            return
        key = decode(entry)
        name = _cluster_of(key)
        if not name:  # it passes no gateway: others have changed its scope
            return
        cluster = self._clusters.get_cached("", name)
        is_current = cluster is not None and _is_for(key, decode(cluster))
        if not (is_current and self._has_destination(entry.labels.get(DESTINATION_LABEL))):
            await self._delete_key(key)

    def _has_destination(self, label: str | None) -> bool:
        key = self._by_label.get(label) if label is not None else None
        return label is None or (key is not None and self._clusters.get_cached("", key[3]) is not None)

    async def _keep(self, destination: Object, state: _Destination, changed: set[str] | None) -> _Result | None:
        """Makes the Secrets what they should be, those of all Clusters or of these, after former keys are revoked."""
        export = DeclaredExport.of(destination)
        was_listed, state.is_listed = state.is_listed, False
        name = name_of(destination)
        if export is None:
            await self._remove_former(name, self._keys_at(name))
            return None
        try:
            selector = Selector(parse_labels(export.selector))
        except BadRequest as error:
            return _Result("InvalidExport", f"{SELECTOR_ANNOTATION} is not valid: {error.message}")
        if problem := find_connection_problem(destination, SYSTEM_NAMESPACE):
            return _Result("InvalidExport", f"the server writes no access keys into this cluster: {problem}")
        user = self._users.get_cached("", export.user) if export.user else None
        if user is None or is_disabled(decode(user)):
            message = f'there is no active user "{export.user}"; name one that Argo CD acts as in {USER_ANNOTATION}'
            return _Result("UserNotFound", message)
        wanted = {
            name_of(each): each for each in self._read_clusters(changed) if selector.matches_values(_labels(each), {})
        }
        keys = self._keys_at(name, changed)
        former = [each for each in keys if not _is_wanted(each, export, wanted)]
        await self._remove_former(name, former)
        removed = {name_of(each) for each in former}
        own = defaultdict[str, list[Object]](list)
        for key in keys:
            if name_of(key) not in removed:
                own[_cluster_of(key)].append(key)
        state.forget(changed)
        state.wanted.update(map(secret_name, wanted))
        try:
            sync = _Sync(self._access.cluster_api(name), export, truncate_with_hash(name), self._gateways(), state)
            secrets = await _list_secrets(sync.api, export.namespace) if changed is None else {}
            for each, cluster in wanted.items():
                await self._keep_secret(sync, cluster, secrets.pop(secret_name(each), None), own[each])
            for secret in secrets.values():  # of clusters that are gone, with their keys
                await sync.delete(secret)
        except (UpstreamError, RemoteApiError) as error:
            return _failure(error, export)
        state.is_listed = was_listed or changed is None
        return sync.result()

    async def _keep_secret(self, sync: "_Sync", cluster: Object, secret: Object | None, keys: list[Object]) -> None:
        """The cluster may refuse a single Secret: the others do not wait for it."""
        try:
            await self._write_secret(sync, cluster, secret, keys)
        except RemoteApiError as error:
            sync.state.refused[secret_name(name_of(cluster))] = error

    async def _write_secret(self, sync: "_Sync", cluster: Object, secret: Object | None, keys: list[Object]) -> None:
        path = _secret_path(sync.export.namespace, name_of(cluster))
        secret = secret or await _get(sync.api, path)
        if secret is not None and not sync.is_own(secret):
            sync.state.foreign.add(name_of(secret))
            for key in keys:
                await self._delete_key(key)
            return
        token = _token_of(secret)
        scope = gateway_scope(name_of(cluster))
        current = next(
            (each for each in keys if self._is_usable(each, sync, secret, token) and _scope_of(each) == scope), None
        )
        if current is not None:
            await self._write(sync, cluster, secret, _export_key(current, token))
        elif not await self._make_room(sync, cluster, keys):
            return
        else:
            # Without a key at first: no keys are made for a cluster that refuses the Secret.
            await sync.api.check_apply(path, sync.build_secret(cluster, ExportKey("", "")))
            current, token = await self._create_key(sync, cluster)
            try:
                await self._write(sync, cluster, secret, _export_key(current, token))
            except (UpstreamError, RemoteApiError) as error:
                if not await _may_contain(sync.api, path, token, error):
                    await self._delete_key(current)
                raise
        await self._end_former(sync, current, keys)

    async def _make_room(self, sync: "_Sync", cluster: Object, keys: Sequence[Object]) -> bool:
        """Whether the Secret may have another key. Where others restore an older copy of it again and again, one is
        made each hour."""
        if len(keys) < MAX_KEYS:
            return True
        newest, *former = sorted(keys, key=_creation, reverse=True)
        left = self._overlap_left(newest)
        if left > 0:
            sync.state.overwritten.add(secret_name(name_of(cluster)))
            sync.requeue = min(sync.requeue, left)
            return False
        for key in former[MAX_KEYS - 2 :]:
            await self._delete_key(key)
        return True

    def _overlap_left(self, key: Object) -> float:
        """Seconds until the keys before this one end."""
        now = self._registry.clock.now()
        return OVERLAP_SECONDS - (now - (parse_rfc3339(_creation(key)) or now)).total_seconds()

    def _is_usable(self, key: Object, sync: "_Sync", secret: Object | None, token: str) -> bool:
        """Whether the Secret contains the value of this key, the key is accepted, and it is not due."""
        return (
            secret is not None
            and _annotations(secret).get(KEY_NAME_ANNOTATION) == name_of(key)
            and bool(token)
            and self._digest(token) == get_path(key, "spec.key")
            and get_path(key, "spec.user") == sync.export.user
            and not is_disabled(key)
            and not get_path(key, "status.expired")
            and not is_due(expires_at(key), ttl_seconds(key), self._registry.clock.now())
        )

    async def _create_key(self, sync: "_Sync", cluster: Object) -> tuple[Object, str]:
        limit = self._max_ttl()
        spec = {"user": sync.export.user, "ttl": min(KEY_SECONDS, limit) if limit else KEY_SECONDS}
        body = build_stored_key(cluster, spec, (DESTINATION_LABEL, sync.destination))
        metadata(body)["annotations"][NAMESPACE_ANNOTATION] = sync.export.namespace
        body["apiVersion"] = self._keys.kind.api_version
        created: Object = json.loads(await self._keys.create(body, "", server_write_options()))
        return created, str(get_path(created, "spec.key"))

    async def _write(self, sync: "_Sync", cluster: Object, secret: Object | None, key: ExportKey) -> None:
        """Creates the Secret, or changes what differs. What others have added to its data stays."""
        body = sync.build_secret(cluster, key)
        collection = _secrets_path(sync.export.namespace)
        if secret is None:
            await sync.api.create(collection, body)
        elif not _has(secret, body):
            former: Object = dict.fromkeys(metadata(secret).get("labels") or {})
            meta = {**metadata(body), "labels": {**former, **metadata(body)["labels"]}}
            meta["resourceVersion"] = metadata(secret).get("resourceVersion")
            await sync.api.patch(f"{collection}/{name_of(secret)}", {"metadata": meta, "data": body["data"]})

    async def _end_former(self, sync: "_Sync", current: Object, keys: Iterable[Object]) -> None:
        """Deletes other keys of the same Secret, once it has been written for a while."""
        former = [each for each in keys if name_of(each) != name_of(current)]
        left = self._overlap_left(current)
        if former and left > 0:
            sync.requeue = min(sync.requeue, left)
            return
        for key in former:
            await self._delete_key(key)

    def _read_clusters(self, names: Iterable[str] | None) -> Iterator[Object]:
        """The Clusters of these names, or all, without those that are being deleted."""
        if names is None:
            entries = self._registry.view.entries(self._clusters.kind.group, CLUSTERS)
        else:
            entries = [each for name in names if (each := self._clusters.get_cached("", name)) is not None]
        for cluster in map(decode, entries):
            if "deletionTimestamp" not in metadata(cluster):
                yield cluster

    def _keys_at(self, destination: str, clusters: Iterable[str] | None = None) -> list[Object]:
        """The access keys whose Secrets are in this cluster: those for these Clusters, or all."""
        label = truncate_with_hash(destination)
        labels = [None] if clusters is None else map(truncate_with_hash, clusters)
        names = [key[3] for each in labels for key in self._index.get((label, each))]
        entries = [entry for name in names if (entry := self._keys.get_cached("", name)) is not None]
        return [key for key in map(decode, entries) if _annotations(key).get(CLUSTER_UID_ANNOTATION)]

    async def _remove_former(self, destination: str, keys: Sequence[Object]) -> None:
        """Revokes keys that are no longer wanted, whatever the cluster says, and then deletes their Secrets there.

        A Secret that cannot be deleted stays, with a key that is not accepted: what is to be exported does not wait.
        """
        for key in keys:
            await self._delete_key(key)
        for key in keys:
            try:
                await self._remove_secret(destination, key)
            except RemoteApiError as error:
                log.warning("a former export is not removed", **_place(destination, key), status=error.status)
            except UpstreamError as error:
                log.warning("former exports are not removed", **_place(destination, key), reason=error.reason)
                return

    async def _remove_secret(self, destination: str, key: Object) -> None:
        """Deletes the Secret with this key. Raises UpstreamError and RemoteApiError."""
        namespace = _annotations(key).get(NAMESPACE_ANNOTATION, "")
        if any(dns_label_errors(namespace)):  # the server has written no Secret there
            return
        api = self._access.cluster_api(destination)
        path = _secret_path(namespace, _cluster_of(key))
        secret = await _get(api, path)
        if secret is None:
            return
        found = _annotations(secret)
        written = found.get(INSTALLATION_ANNOTATION), found.get(KEY_NAME_ANNOTATION)
        if written == (self._gateways().installation, name_of(key)):
            await _delete(api, path, secret)

    async def _delete_key(self, key: Object) -> None:
        self._deleted_keys.add(name_of(key))
        try:
            await self._keys.delete("", name_of(key), DeleteOptions(metadata(key)["uid"]), server_write_options())
        except NotFound:
            self._deleted_keys.discard(name_of(key))

    async def _report(self, destination: Object, result: _Result | None) -> None:
        """Writes the condition, and records an Event when its reason changes."""
        now = timestamp(self._registry.clock.now())
        generation = metadata(destination).get("generation")

        def edit(current: Object) -> Object:
            if result is None:
                return {**current, "status": without_conditions(current.get("status"), EXPORTED)}
            found = condition(EXPORTED, TRUE if result.is_done else FALSE, result.reason, result.message)
            return {**current, "status": with_condition(current.get("status"), found, now, generation)}

        before = find_condition(destination.get("status"), EXPORTED) or {}
        if json_equal(edit(destination)["status"], destination.get("status") or {}):
            return
        with suppress(NotFound):
            await self._clusters.modify("", name_of(destination), edit, server_write_options("status"))
            if result is not None and before.get("reason") != result.reason:
                type = "Normal" if result.is_done else "Warning"
                await record_event(self._registry, destination, result.reason, result.message, type=type)


@dataclass(slots=True)
class _Sync:
    """One pass over the Secrets of a destination, and what was found."""

    api: KubeApi
    export: DeclaredExport
    destination: str
    """Its label on access keys."""
    gateways: Gateways
    state: _Destination
    requeue: float = RESYNC_SECONDS

    def is_own(self, secret: Object) -> bool:
        """Whether this installation has written a Secret."""
        return bool(_annotations(secret).get(INSTALLATION_ANNOTATION) == self.gateways.installation)

    def build_secret(self, cluster: Object, key: ExportKey) -> Object:
        return build_argocd_secret(cluster, self.gateways, key, self.export.namespace, "")

    async def delete(self, secret: Object) -> None:
        """Deletes a Secret that this installation has written."""
        if self.is_own(secret):
            try:
                await _delete(self.api, f"{_secrets_path(self.export.namespace)}/{name_of(secret)}", secret)
            except RemoteApiError as error:
                self.state.refused[name_of(secret)] = error

    def result(self) -> _Result:
        state = self.state
        place = f"the namespace {self.export.namespace}"
        count = len(state.wanted)
        problems = state.wanted & {*state.refused, *state.foreign, *state.overwritten}
        written = f"{count - len(problems)} of {count} clusters are exported"
        if state.refused:
            name = min(state.refused)
            reason, message = _refusal(name, state.refused[name], self.export)
            return _Result(reason, f"{written}; {message}", self.requeue)
        if state.foreign:
            message = (
                f"{written}; in {place}, others have created the Secrets {_enumerate(state.foreign)}: delete them "
                "there, and the server writes its own"
            )
            return _Result("ForeignSecret", message, self.requeue)
        if state.overwritten:
            message = (
                f"{written}; in {place}, others put older copies in the place of the Secrets "
                f"{_enumerate(state.overwritten)}: leave these out of what they restore or deploy there"
            )
            return _Result("SecretOverwritten", message, self.requeue)
        message = f"{count} clusters are exported to {place}{self._reachability()}"
        return _Result(EXPORTED, message, self.requeue)

    def _reachability(self) -> str:
        """What the message adds if only this machine reaches the gateways. A tool that runs on it may use them."""
        if not is_loopback(urlsplit(self.gateways.url).hostname or ""):
            return ""
        return f", but {self.gateways.url} is a loopback address, which pods do not reach; set public_url"


def _failure(error: UpstreamError | RemoteApiError, export: DeclaredExport) -> _Result:
    """Why the Secrets of a destination cannot be listed."""
    place = f"the namespace {export.namespace}"
    if isinstance(error, UpstreamError):
        return _Result("NotConnected", "the cluster is not reached; see its condition Connected")
    if error.status == 403:
        message = f"the credential of the cluster may not get, list, create, patch and delete Secrets in {place}"
        return _Result("Forbidden", f"{message}; bind a Role with these verbs")
    if error.status == 404:
        return _Result("NamespaceNotFound", _missing_namespace(export))
    message = f"the cluster does not list the Secrets in {place}: HTTP status {error.status}; {_advice(error)}"
    return _Result("ExportFailed", message)


def _refusal(name: str, error: RemoteApiError, export: DeclaredExport) -> tuple[str, str]:
    """The reason and the message of a Secret that is refused."""
    if error.status == 404 and not error.message.startswith("secrets "):
        return "NamespaceNotFound", _missing_namespace(export)
    place = f"the Secret {name} in the namespace {export.namespace}"
    if error.status == 403:
        message = (
            f"the cluster forbids {place}: its credential needs the verbs get, list, create, patch and delete on "
            "Secrets there, and no admission policy there may be against it; bind a Role, or change the policy"
        )
        return "Forbidden", message
    return "ExportFailed", f"the cluster refuses {place} with HTTP status {error.status}; {_advice(error)}"


def _advice(error: RemoteApiError) -> str:
    if error.status in (404, 409, 410):
        return "another program has changed it at the same time, and the server tries again"
    if error.status == 401:
        return "its API server rejects the stored credential; store a valid one"
    if error.status == 429 or error.status >= 500:
        return "check its API server; this server tries again"
    return "look there for a policy or a quota"


def _missing_namespace(export: DeclaredExport) -> str:
    return (
        f"the namespace {export.namespace} does not exist in the cluster; install Argo CD there, or correct "
        f"{ARGOCD_ANNOTATION}"
    )


def _enumerate(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:MAX_NAMED]) + (", ..." if len(found) > MAX_NAMED else "")


def _read_marks(entry: Entry) -> Sequence[UsageEntry]:
    """Indexes exported keys by their destination, by the cluster in it, and by the cluster."""
    if EXPORT_LABEL not in entry.labels:
        return ()
    destination = entry.labels.get(DESTINATION_LABEL)
    cluster = entry.labels.get(EXPORT_CLUSTER_LABEL)
    places = [(None, cluster), *([(destination, None), (destination, cluster)] if destination else [])]
    return [UsageEntry(each) for each in places]


async def _list_secrets(api: KubeApi, namespace: str) -> dict[str, Object]:
    """The exported Secrets by name, page by page. Raises UpstreamError and RemoteApiError."""
    query = {"labelSelector": f"{EXPORT_LABEL}={ExportFormat.ARGOCD.value}", "limit": str(PAGE_ITEMS)}
    found = dict[str, Object]()
    for _ in range(MAX_PAGES):
        page = await api.get(f"{_secrets_path(namespace)}?{urlencode(query)}")
        found.update((name_of(each), each) for each in page.get("items") or ())
        more = get_path(page, "metadata.continue")
        if not isinstance(more, str) or not more:
            break
        query["continue"] = more
    return found


def _is_wanted(key: Object, export: DeclaredExport, wanted: Mapping[str, Object]) -> bool:
    cluster = wanted.get(_cluster_of(key))
    found = _annotations(key)
    return (
        cluster is not None
        and found.get(CLUSTER_UID_ANNOTATION) == metadata(cluster)["uid"]
        and found.get(NAMESPACE_ANNOTATION) == export.namespace
    )


def _has(secret: Object, body: Object) -> bool:
    """Whether a Secret has all that it should."""
    data = secret.get("data") or {}
    has_data = bool(body["data"].items() <= data.items())
    has_annotations = bool(metadata(body)["annotations"].items() <= _annotations(secret).items())
    return has_data and has_annotations and _labels(secret) == metadata(body)["labels"]


def _is_for(key: Object, cluster: Object) -> bool:
    """Whether a key is for this Cluster, and not for a former one of its name. Keys of the credential plugin, which may
    not read Clusters, have no uid."""
    uid = _annotations(key).get(CLUSTER_UID_ANNOTATION)
    return bool(uid == metadata(cluster)["uid"] if uid else _creation(cluster) <= _creation(key))


def _scope_of(key: Object) -> object:
    return get_path(key, "spec.scope")


def _cluster_of(key: Object) -> str:
    """The cluster whose gateway an exported key passes."""
    rules = get_path(key, "spec.scope.rules") or [{}]
    return str(rules[0].get("cluster") or "")


def _token_of(secret: Object | None) -> str:
    """The access key in a Secret; empty if others have changed it to something else."""
    try:
        config = json.loads(b64decode(str(get_path(secret, "data.config") or "")))
    except (NotBase64, ValueError):
        return ""
    token = config.get("bearerToken") if isinstance(config, dict) else None
    return token if isinstance(token, str) else ""


def _export_key(key: Object, value: str) -> ExportKey:
    return ExportKey(name_of(key), value, expires_at(key))


def _secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"


def _secret_path(namespace: str, cluster: str) -> str:
    return f"{_secrets_path(namespace)}/{secret_name(cluster)}"


def _place(destination: str, key: Object) -> dict[str, str]:
    """Where the Secret of a key is, for the log."""
    namespace = _annotations(key).get(NAMESPACE_ANNOTATION, "")
    return {"destination": destination, "namespace": namespace, "secret": secret_name(_cluster_of(key))}


def _creation(key: Object) -> str:
    return str(metadata(key).get("creationTimestamp") or "")


def _annotations(obj: Object) -> Mapping[str, str]:
    return metadata(obj).get("annotations") or {}


def _labels(obj: Object) -> Mapping[str, str]:
    return metadata(obj).get("labels") or {}


async def _get(api: KubeApi, path: str) -> Object | None:
    """None if it does not exist in the cluster."""
    try:
        return await api.get(path)
    except RemoteApiError as error:
        if error.status == 404:
            return None
        raise


async def _may_contain(api: KubeApi, path: str, token: str, error: UpstreamError | RemoteApiError) -> bool:
    """Whether the Secret may have this key although writing it failed: only the answer may have been lost."""
    if isinstance(error, RemoteApiError) and error.status < 500:
        return False
    try:
        return _token_of(await _get(api, path)) == token
    except (UpstreamError, RemoteApiError):
        return True


async def _delete(api: KubeApi, path: str, secret: Object) -> None:
    """Deletes this Secret, and no later one of its name."""
    try:
        await api.delete(path, {"preconditions": {"uid": metadata(secret).get("uid")}})
    except RemoteApiError as error:
        if error.status not in (404, 409):
            raise
