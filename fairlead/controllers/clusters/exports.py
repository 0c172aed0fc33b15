"""Keeps cluster Secrets of Argo CD in the clusters that declare it by annotations, with a key in each.

The Cluster in which Argo CD runs is the destination. There is one Secret for each Cluster that its selector matches.
Its key is replaced at half of its life: a new one is written first, and the former one ends an hour later. What the
server wrote is known by the annotation with the installation, and nothing else is changed or deleted there. The access
keys record what was written where, so nothing is stored beside them and the condition `Exported`.

Keys of a Cluster that no longer exists are deleted, also those that `fairlead cluster export` made.
"""

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

import structlog

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.core.addresses import is_loopback
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
    is_due,
    secret_name,
)
from fairlead.core.errors import BadRequest, NotFound
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
RETRY_SECONDS = 30.0
MAX_NAMED = 5
"""How many Secrets a message names."""

log = structlog.get_logger(__name__)

EXPORTED: Final = "Exported"
"""The condition, and its reason if all is well."""


@dataclass(frozen=True, slots=True)
class _Result:
    """What becomes of an export: the reason, the message, and when to look again."""

    reason: str
    message: str
    requeue: float = RESYNC_SECONDS

    @property
    def is_done(self) -> bool:
        return self.reason == EXPORTED


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
        self._destinations: set[Key] = set()
        self._seen: dict[Key, tuple[str, Mapping[str, str], bool]] = {}
        """What decides about the export of each Cluster: its uid and labels, and whether it is being deleted."""
        self._exported_keys: dict[Key, tuple[str, str]] = {}
        """The destination and the exported cluster of access keys, as their labels have them."""
        self._deleted_keys: set[str] = set()
        """Keys that this controller deletes: without this, a Secret that is refused would be tried again at once."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The destination itself; all destinations if a Cluster is new, gone or labelled otherwise."""
        if key[1] != CLUSTERS:
            yield from self._keys_for_access_key(key, entry)
            return
        if entry is None:
            self._seen.pop(key, None)
            label = truncate_with_hash(key[3])
            yield from (each for each, (_, cluster) in self._exported_keys.items() if cluster == label)
            yield from {key, *self._destinations}
            return
        cluster = decode(entry)
        meta = metadata(cluster)
        is_destination = DeclaredExport.of(cluster) is not None
        if is_destination or key in self._destinations:
            self._destinations.add(key)
            yield key
        facts = (meta["uid"], dict(meta.get("labels") or {}), "deletionTimestamp" in meta)
        if self._seen.get(key) != facts:
            self._seen[key] = facts
            yield from self._destinations - {key}

    def _keys_for_access_key(self, key: Key, entry: Entry | None) -> Iterator[Key]:
        if entry is None:
            destination, _ = self._exported_keys.pop(key, ("", ""))
            if key[3] in self._deleted_keys:
                self._deleted_keys.remove(key[3])
                return
            yield from (each for each in self._destinations if truncate_with_hash(each[3]) == destination)
        elif key not in self._exported_keys and entry.labels.get(EXPORT_LABEL) == ExportFormat.ARGOCD.value:
            labels = entry.labels
            self._exported_keys[key] = labels.get(DESTINATION_LABEL, ""), labels.get(EXPORT_CLUSTER_LABEL, "")
            yield key

    async def reconcile(self, key: Key) -> float | None:
        if key[1] != CLUSTERS:
            await self._delete_orphan(key[3])
            return None
        entry = self._clusters.get_cached("", key[3])
        if entry is None:
            self._destinations.discard(key)
            for each in list(self._keys_at(key[3])):
                await self._delete_key(each)
            return None
        destination = decode(entry)
        export = DeclaredExport.of(destination)
        try:
            result = await self._keep(destination, export)
        except (UpstreamError, RemoteApiError) as error:
            result = _failure(error, export)
        if export is None and result is None:
            self._destinations.discard(key)
        await self._report(destination, result)
        return result.requeue if result is not None else None

    async def _delete_orphan(self, name: str) -> None:
        """Deletes an exported key whose Cluster is gone, or whose destination is."""
        entry = self._keys.get_cached("", name)
        if entry is None:
            return
        key = decode(entry)
        uid = _annotations(key).get(CLUSTER_UID_ANNOTATION)
        cluster = self._clusters.get_cached("", _cluster_of(key) or "-")
        is_current = cluster is not None and metadata(decode(cluster))["uid"] == uid
        if uid and not (is_current and self._has_destination(entry.labels.get(DESTINATION_LABEL))):
            await self._delete_key(key)

    def _has_destination(self, label: str | None) -> bool:
        if label is None or self._clusters.get_cached("", label) is not None:
            return True
        entries = self._registry.view.entries(self._clusters.kind.group, CLUSTERS)
        return any(truncate_with_hash(each.key[3]) == label for each in entries)

    async def _keep(self, destination: Object, export: DeclaredExport | None) -> _Result | None:
        """Makes the Secrets what they should be, after former keys are revoked. Raises UpstreamError and
        RemoteApiError."""
        name = name_of(destination)
        keys = list(self._keys_at(name))
        if export is None:
            await self._remove_former(name, keys)
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
            each: cluster for each, cluster in self._all_clusters() if selector.matches_values(_labels(cluster), {})
        }
        former = [each for each in keys if not _is_wanted(each, export, wanted)]
        await self._remove_former(name, former)
        sync = _Sync(self._access.cluster_api(name), export, truncate_with_hash(name), self._gateways())
        remaining = [each for each in keys if each not in former]
        return await self._write_secrets(sync, wanted, remaining)

    async def _write_secrets(self, sync: "_Sync", wanted: Mapping[str, Object], keys: Iterable[Object]) -> _Result:
        """Tries each Secret, and raises the first RemoteApiError at the end: the cluster may refuse a single one."""
        path = _secrets_path(sync.export.namespace)
        failure: RemoteApiError | None = None
        listed = await sync.api.get(f"{path}?labelSelector={EXPORT_LABEL}%3D{ExportFormat.ARGOCD.value}")
        secrets = {name_of(each): each for each in listed.get("items") or ()}
        for name, cluster in wanted.items():
            own_keys = [each for each in keys if _annotations(each)[CLUSTER_UID_ANNOTATION] == metadata(cluster)["uid"]]
            secret = secrets.pop(secret_name(name), None)
            try:
                await self._keep_secret(sync, cluster, secret, own_keys)
            except RemoteApiError as error:
                failure = failure or error
        for secret in secrets.values():  # of clusters that are gone, with their keys
            if sync.is_own(secret):
                try:
                    await _delete(sync.api, f"{path}/{name_of(secret)}", secret)
                except RemoteApiError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return sync.result(len(wanted))

    async def _keep_secret(self, sync: "_Sync", cluster: Object, secret: Object | None, keys: list[Object]) -> None:
        path = _secret_path(sync.export.namespace, name_of(cluster))
        secret = secret or await _get(sync.api, path)
        if secret is not None and not sync.is_own(secret):
            sync.foreign.append(name_of(secret))
            for key in keys:
                await self._delete_key(key)
            return
        token = _token_of(secret)
        current = next((each for each in keys if self._is_usable(each, sync, secret, token)), None)
        if current is None:
            current, token = await self._create_key(sync, cluster)
            try:
                await self._write(sync, cluster, secret, _export_key(current, token))
            except (UpstreamError, RemoteApiError) as error:
                if not await _may_contain(sync.api, path, token, error):
                    await self._delete_key(current)
                raise
        else:
            await self._write(sync, cluster, secret, _export_key(current, token))
        await self._end_former(sync, current, keys)

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
        body = build_argocd_secret(cluster, sync.gateways, key, sync.export.namespace, "")
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
        created = parse_rfc3339(metadata(current)["creationTimestamp"]) or self._registry.clock.now()
        left = OVERLAP_SECONDS - (self._registry.clock.now() - created).total_seconds()
        if former and left > 0:
            sync.requeue = min(sync.requeue, left)
            return
        for key in former:
            await self._delete_key(key)

    def _all_clusters(self) -> Iterator[tuple[str, Object]]:
        for entry in self._registry.view.entries(self._clusters.kind.group, CLUSTERS):
            cluster = decode(entry)
            if "deletionTimestamp" not in metadata(cluster):
                yield entry.key[3], cluster

    def _keys_at(self, destination: str) -> Iterator[Object]:
        """The access keys whose Secrets are in this cluster."""
        label = truncate_with_hash(destination)
        for entry in self._registry.view.entries(self._keys.kind.group, OWNED_ACCESS_KEY.plural):
            if entry.labels.get(DESTINATION_LABEL) == label and entry.labels.get(EXPORT_LABEL):
                key = decode(entry)
                if _annotations(key).get(CLUSTER_UID_ANNOTATION):
                    yield key

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
    foreign: list[str] = field(default_factory=list)
    requeue: float = RESYNC_SECONDS

    def is_own(self, secret: Object) -> bool:
        """Whether this installation has written a Secret."""
        return bool(_annotations(secret).get(INSTALLATION_ANNOTATION) == self.gateways.installation)

    def result(self, count: int) -> _Result:
        place = f"the namespace {self.export.namespace}"
        if not self.foreign:
            message = f"{count} clusters are exported to {place}{self._reachability()}"
            return _Result(EXPORTED, message, self.requeue)
        names = ", ".join(self.foreign[:MAX_NAMED]) + (", ..." if len(self.foreign) > MAX_NAMED else "")
        message = (
            f"{count - len(self.foreign)} of {count} clusters are exported; in {place}, others have created the "
            f"Secrets {names}: delete them there, and the server writes its own"
        )
        return _Result("ForeignSecret", message, min(self.requeue, RETRY_SECONDS))

    def _reachability(self) -> str:
        """What the message adds if only this machine reaches the gateways. A tool that runs on it may use them."""
        if not is_loopback(urlsplit(self.gateways.url).hostname or ""):
            return ""
        return f", but {self.gateways.url} is a loopback address, which pods do not reach; set public_url"


def _failure(error: UpstreamError | RemoteApiError, export: DeclaredExport | None) -> _Result:
    place = f"the namespace {export.namespace}" if export else "its namespace"
    if isinstance(error, UpstreamError):
        return _Result("NotConnected", "the cluster is not reached; see its condition Connected", RETRY_SECONDS)
    if error.status == 403:
        message = f"the credential of the cluster may not get, list, create, patch and delete Secrets in {place}"
        return _Result("Forbidden", f"{message}; bind a Role with these verbs", RETRY_SECONDS)
    if error.status == 404:
        message = f"{place} does not exist in the cluster; install Argo CD there, or correct {ARGOCD_ANNOTATION}"
        return _Result("NamespaceNotFound", message, RETRY_SECONDS)
    message = f"the cluster refuses a Secret in {place} with status {error.status}; look there for a policy or a quota"
    return _Result("ExportFailed", message, RETRY_SECONDS)


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
