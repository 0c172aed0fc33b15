"""Records of applied objects in a remote cluster, and drift detection. Pure except for `RecordingApi`.

Drift is detected from the response of server-side apply, without a read before: another uid means that the object had
been deleted, and another time of our field manager that our fields had been changed. An apply without changes keeps
that time, whatever others have done to other fields.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, url_segment
from fairlead.core.objects import Object, name_of
from fairlead.upstream.kube_client import FIELD_MANAGER, KubeApi

MAX_LISTED_OBJECTS = 10
"""How many objects one message lists."""
_MAX_NAME_LENGTH = 100
_NAMESPACES_SEGMENTS = NAMESPACES_PATH.strip("/").split("/")


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """An applied object: its identity, a digest of the applied body, and its state on the server."""

    kind: str
    name: str
    desired_digest: str
    uid: str
    applied_at: str
    """When our field manager last changed it, according to `managedFields`."""
    state: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Drift:
    """The changes of others that a reconcile has undone."""

    namespace_lost: bool = False
    may_be_other_cluster: bool = False
    """Whether the namespace may still exist in another cluster, which the old credential pointed to."""
    restored: Mapping[str, str] = field(default_factory=dict)
    """Objects that had been deleted: titles by path."""
    repaired: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.namespace_lost or bool(self.restored or self.repaired)


def state_digest(meta: Mapping[str, Any]) -> str:
    """A digest of the relevant state of an object, from its metadata alone.

    If the object has a generation, status changes are ignored; otherwise every resourceVersion counts.
    """
    generation = meta.get("generation")
    parts: list[Any] = [meta.get("uid"), "deletionTimestamp" in meta]
    parts += [generation, meta.get("labels"), meta.get("annotations")] if generation else [meta.get("resourceVersion")]
    return _digest(parts)


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _build_applied_object(body: Object, response: Object) -> AppliedObject:
    meta = response.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    managers = meta.get("managedFields")
    times = [
        str(each.get("time") or "")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
    ]
    kind = str(body.get("kind"))[:_MAX_NAME_LENGTH]
    name = name_of(body)[:_MAX_NAME_LENGTH]
    return AppliedObject(
        kind=kind,
        name=name,
        desired_digest=_digest(body),
        uid=str(meta.get("uid") or ""),
        applied_at=max(times, default=""),
        state=state_digest(meta),
    )


@dataclass(slots=True)
class RecordingApi:
    """A KubeApi that records the writes of one reconcile. `namespace_path` is the path of the instance's namespace. It
    is applied only after its ownership is verified: `on_namespace_owned` is called then."""

    api: KubeApi
    namespace_path: str
    on_namespace_owned: Callable[[], None]
    applied: dict[str, AppliedObject] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    has_created_namespace: bool = False

    def with_api(self, api: KubeApi) -> "RecordingApi":
        """Shares the records, but sends requests through another KubeApi."""
        return RecordingApi(
            api=api,
            namespace_path=self.namespace_path,
            on_namespace_owned=self.on_namespace_owned,
            applied=self.applied,
            removed=self.removed,
            has_created_namespace=self.has_created_namespace,
        )

    async def get(self, path: str, /) -> Object:
        return await self.api.get(path)

    async def create(self, path: str, body: Object, /) -> Object:
        answer = await self.api.create(path, body)
        self.has_created_namespace = (
            self.has_created_namespace or f"{path}/{url_segment(name_of(body))}" == self.namespace_path
        )
        return answer

    async def apply(self, path: str, body: Object, /) -> Object:
        answer = await self.api.apply(path, body)
        self.applied[path] = _build_applied_object(body, answer)
        self.removed.discard(path)
        if path == self.namespace_path:
            self.on_namespace_owned()
        return answer

    async def delete(self, path: str, body: Object | None = None, /) -> Object:
        self.removed.add(path)
        return await self.api.delete(path, body)


def detect_drift(
    previous_objects: Mapping[str, AppliedObject], recording: RecordingApi, namespace_known: bool
) -> Drift:
    """The drift that a reconcile has repaired. `namespace_known`: the namespace existed before."""
    previous = previous_objects.get(recording.namespace_path)
    current = recording.applied.get(recording.namespace_path)
    replaced = previous is not None and current is not None and current.uid != previous.uid
    if replaced or (recording.has_created_namespace and namespace_known):
        return Drift(namespace_lost=True)
    restored, repaired = {}, {}
    for path, trace in recording.applied.items():
        previous_object = previous_objects.get(path)
        if previous_object is None:
            continue
        if trace.uid != previous_object.uid:
            restored[path] = trace.title
        elif (
            trace.desired_digest == previous_object.desired_digest
            and trace.applied_at
            and trace.applied_at != previous_object.applied_at
        ):
            repaired[path] = trace.title
    return Drift(restored=restored, repaired=repaired)


def merge_applied(previous_objects: Mapping[str, AppliedObject], recording: RecordingApi) -> dict[str, AppliedObject]:
    """The applied objects after a reconcile. Earlier ones are dropped if the namespace was created anew."""
    known = {} if recording.has_created_namespace else dict(previous_objects)
    known.update(recording.applied)
    for path in recording.removed:
        known.pop(path, None)
    return known


def collection_path(path: str) -> str:
    """The list path of an object's resource, across all namespaces."""
    parts = path.strip("/").split("/")
    if parts[:-1] == _NAMESPACES_SEGMENTS:
        return NAMESPACES_PATH
    *root, _, _, plural, _ = parts
    return f"/{'/'.join(root)}/{plural}"


def object_path(collection: str, namespace: str, name: str) -> str:
    """The path of an object; the inverse of `collection_path`."""
    if collection == NAMESPACES_PATH:
        return f"{NAMESPACES_PATH}/{url_segment(name)}"
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{url_segment(namespace)}/{plural}/{url_segment(name)}"


def last_field_manager(meta: Mapping[str, Any]) -> str:
    """The other field manager that last changed an object; empty if unknown."""
    managers = meta.get("managedFields")
    others = [
        (str(each.get("time") or ""), str(each.get("manager") or ""))
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") != FIELD_MANAGER and not each.get("subresource")
    ]
    name = max(others, default=("", ""))[1][:_MAX_NAME_LENGTH]
    return name if name.isprintable() else ""


def format_titles(titles: Iterable[str]) -> str:
    """A sorted, comma-separated list of limited length."""
    ordered = sorted(titles)
    more = f" and {len(ordered) - MAX_LISTED_OBJECTS} more" if len(ordered) > MAX_LISTED_OBJECTS else ""
    return ", ".join(ordered[:MAX_LISTED_OBJECTS]) + more
