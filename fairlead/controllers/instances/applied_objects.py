"""What was applied in a remote cluster, and what was found changed or missing there since. Pure but for `TrackedApi`.

Nobody has to ask for an object before it is applied to know whether that repaired anything. Server-side apply answers
with the object: another uid means that it had been deleted, and another time of our own field manager that our values
had been changed. An apply that changes nothing leaves that time as it was, whatever others have done to other fields.
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
"""How many objects one message names."""
_NAME_LENGTH = 100
_NAMESPACES = NAMESPACES.strip("/").split("/")


@dataclass(frozen=True, slots=True)
class Trace:
    """What is remembered of an applied object: what it is, what was wanted, and how the server has it."""

    kind: str
    name: str
    wanted: str
    uid: str
    time: str
    """When our field manager last changed it, as the server says."""
    state: str

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Drift:
    """What was put right in a pass that others had changed."""

    namespace_lost: bool = False
    is_elsewhere: bool = False
    """Whether the namespace may just be in another cluster, which the credential led to before."""
    restored: Mapping[str, str] = field(default_factory=dict)
    """What had been deleted: titles by path."""
    repaired: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.namespace_lost or bool(self.restored or self.repaired)


def state_of(meta: Mapping[str, Any]) -> str:
    """Tells two states of an object apart, as far as they matter, by its metadata alone.

    Where the server counts generations, changes of the status are none of ours; elsewhere every version counts.
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
    """An Api that writes down what is done with it in one pass. `namespace` is the path of the instance's namespace.
    Nobody applies that before it is known to be the instance's own: `claim` is called then."""

    api: Api
    namespace: str
    claim: Callable[[], None]
    applied: dict[str, Trace] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    made_namespace: bool = False

    def through(self, api: Api) -> "TrackedApi":
        """The same notes about what is done through another way."""
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
    """What a pass has put right. `known`: the namespace had been made before, as far as anybody remembers."""
    existing = before.get(tracked.namespace)
    now = tracked.applied.get(tracked.namespace)
    replaced = existing is not None and now is not None and now.uid != existing.uid
    if replaced or (tracked.made_namespace and known):
        return Drift(namespace_lost=True)
    restored, repaired = {}, {}
    for path, trace in tracked.applied.items():
        earlier = before.get(path)
        if earlier is None:
            continue
        if trace.uid != earlier.uid:
            restored[path] = trace.title
        elif trace.wanted == earlier.wanted and trace.time and trace.time != earlier.time:
            repaired[path] = trace.title
    return Drift(restored=restored, repaired=repaired)


def remember(before: Mapping[str, Trace], tracked: TrackedApi) -> dict[str, Trace]:
    """What is there after a pass. What had been in a namespace that is new is not."""
    kept = {} if tracked.made_namespace else dict(before)
    kept.update(tracked.applied)
    for path in tracked.removed:
        kept.pop(path, None)
    return kept


def collection_of(path: str) -> str:
    """The path below which a server lists all objects of the same resource, in all namespaces."""
    parts = path.strip("/").split("/")
    if parts[:-1] == _NAMESPACES:
        return NAMESPACES
    *root, _, _, plural, _ = parts
    return f"/{'/'.join(root)}/{plural}"


def path_of(collection: str, namespace: str, name: str) -> str:
    """The other way round."""
    if collection == NAMESPACES:
        return f"{NAMESPACES}/{step(name)}"
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{step(namespace)}/{plural}/{step(name)}"


def last_manager(meta: Mapping[str, Any]) -> str:
    """Who else has changed an object last, by the name of the field manager; empty where nobody can tell."""
    managers = meta.get("managedFields")
    others = [
        (str(each.get("time") or ""), str(each.get("manager") or ""))
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and each.get("manager") != FIELD_MANAGER and not each.get("subresource")
    ]
    name = max(others, default=("", ""))[1][:_NAME_LENGTH]
    return name if name.isprintable() else ""


def in_words(titles: Iterable[str]) -> str:
    """A list of bounded length."""
    told = sorted(titles)
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return ", ".join(told[:MOST_TOLD]) + more


def uid_of(obj: Object) -> str:
    return str(dig(obj, "metadata.uid") or "")
