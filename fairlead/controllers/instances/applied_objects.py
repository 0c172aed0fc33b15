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

from fairlead.controllers.instances.remote_namespace import NAMESPACES, Api, step
from fairlead.core.objects import Object, dig, name_of
from fairlead.upstream.kube_client import FIELD_MANAGER

MOST_TOLD = 10
"""How many objects one message lists."""
_NAME_LENGTH = 100
_NAMESPACES = NAMESPACES.strip("/").split("/")


@dataclass(frozen=True, slots=True)
class Trace:
    """An applied object: its identity, a digest of the applied body, and its state on the server."""

    kind: str
    name: str
    wanted: str
    uid: str
    time: str
    """When our field manager last changed it, according to `managedFields`."""
    state: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Drift:
    """The changes of others that a reconcile has undone."""

    namespace_lost: bool = False
    is_elsewhere: bool = False
    """Whether the namespace may still exist in another cluster, which the old credential pointed to."""
    restored: Mapping[str, str] = field(default_factory=dict)
    """Objects that had been deleted: titles by path."""
    repaired: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.namespace_lost or bool(self.restored or self.repaired)


def state_of(meta: Mapping[str, Any]) -> str:
    """A digest of the relevant state of an object, from its metadata alone.

    If the object has a generation, status changes are ignored; otherwise every resourceVersion counts.
    """
    generation = meta.get("generation")
    parts: list[Any] = [meta.get("uid"), "deletionTimestamp" in meta]
    parts += [generation, meta.get("labels"), meta.get("annotations")] if generation else [meta.get("resourceVersion")]
    return _digest(parts)


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _trace(body: Object, answer: Object) -> Trace:
    meta = answer.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    managers = meta.get("managedFields")
    times = [
        str(each.get("time") or "")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
    ]
    kind, name = str(body.get("kind"))[:_NAME_LENGTH], name_of(body)[:_NAME_LENGTH]
    return Trace(kind, name, _digest(body), str(meta.get("uid") or ""), max(times, default=""), state_of(meta))


@dataclass(slots=True)
class TrackedApi:
    """A KubeApi that records the writes of one reconcile. `namespace_path` is the path of the instance's namespace. It
    is applied only after its ownership is verified: `on_namespace_owned` is called then."""

    api: Api
    namespace: str
    claim: Callable[[], None]
    applied: dict[str, Trace] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    made_namespace: bool = False

    def through(self, api: Api) -> "TrackedApi":
        """Shares the records, but sends requests through another KubeApi."""
        return TrackedApi(api, self.namespace, self.claim, self.applied, self.removed, self.made_namespace)

    async def get(self, path: str, /) -> Object:
        return await self.api.get(path)

    async def create(self, path: str, body: Object, /) -> Object:
        answer = await self.api.create(path, body)
        self.made_namespace = self.made_namespace or f"{path}/{step(name_of(body))}" == self.namespace
        return answer

    async def apply(self, path: str, body: Object, /) -> Object:
        answer = await self.api.apply(path, body)
        self.applied[path] = _trace(body, answer)
        self.removed.discard(path)
        if path == self.namespace:
            self.claim()
        return answer

    async def delete(self, path: str, body: Object | None = None, /) -> Object:
        self.removed.add(path)
        return await self.api.delete(path, body)


def compare(before: Mapping[str, Trace], tracked: TrackedApi, known: bool) -> Drift:
    """The drift that a reconcile has repaired. `namespace_known`: the namespace existed before."""
    previous = before.get(tracked.namespace)
    current = tracked.applied.get(tracked.namespace)
    replaced = previous is not None and current is not None and current.uid != previous.uid
    if replaced or (tracked.made_namespace and known):
        return Drift(namespace_lost=True)
    restored, repaired = {}, {}
    for path, trace in tracked.applied.items():
        previous_object = before.get(path)
        if previous_object is None:
            continue
        if trace.uid != previous_object.uid:
            restored[path] = trace.title
        elif trace.wanted == previous_object.wanted and trace.time and trace.time != previous_object.time:
            repaired[path] = trace.title
    return Drift(restored=restored, repaired=repaired)


def remember(before: Mapping[str, Trace], tracked: TrackedApi) -> dict[str, Trace]:
    """The applied objects after a reconcile. Earlier ones are dropped if the namespace was created anew."""
    known = {} if tracked.made_namespace else dict(before)
    known.update(tracked.applied)
    for path in tracked.removed:
        known.pop(path, None)
    return known


def collection_of(path: str) -> str:
    """The list path of an object's resource, across all namespaces."""
    parts = path.strip("/").split("/")
    if parts[:-1] == _NAMESPACES:
        return NAMESPACES
    *root, _, _, plural, _ = parts
    return f"/{'/'.join(root)}/{plural}"


def path_of(collection: str, namespace: str, name: str) -> str:
    """The path of an object; the inverse of `collection_path`."""
    if collection == NAMESPACES:
        return f"{NAMESPACES}/{step(name)}"
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{step(namespace)}/{plural}/{step(name)}"


def last_manager(meta: Mapping[str, Any]) -> str:
    """The other field manager that last changed an object; empty if unknown."""
    managers = meta.get("managedFields")
    others = [
        (str(each.get("time") or ""), str(each.get("manager") or ""))
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") != FIELD_MANAGER and not each.get("subresource")
    ]
    name = max(others, default=("", ""))[1][:_NAME_LENGTH]
    return name if name.isprintable() else ""


def in_words(titles: Iterable[str]) -> str:
    """A sorted, comma-separated list of limited length."""
    ordered = sorted(titles)
    more = f" and {len(ordered) - MOST_TOLD} more" if len(ordered) > MOST_TOLD else ""
    return ", ".join(ordered[:MOST_TOLD]) + more


def uid_of(obj: Object) -> str:
    return str(dig(obj, "metadata.uid") or "")
