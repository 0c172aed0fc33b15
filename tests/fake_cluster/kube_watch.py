"""List and watch of a Kubernetes in memory, with metadata only, as kube-apiserver 1.35 was seen to do it.

A watch tells of everything after the version that it names. An object that ceases to match the selector is DELETED,
with the labels that it had. Bookmarks come every minute and have a version and nothing else. A version that is too old
gets 200 and an ERROR event with a Status of 410 as its only line; one that is not there yet gets 200 and silence.
`timeoutSeconds` ends the stream without a word.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fairlead.core.objects import Object, deep_copy
from fairlead.upstream.access import Request
from fairlead.upstream.messages import Response

BOOKMARK_SECONDS = 60.0
EXPIRED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version",
    "reason": "Expired",
    "code": 410,
}


@dataclass(frozen=True, slots=True)
class Change:
    """What one write did to one object: its metadata before and after it."""

    version: int
    path: str
    before: Object | None
    after: Object | None


@dataclass
class History:
    """Every change, and who waits for more. `oldest`: changes up to this version are forgotten."""

    version: int = 100
    oldest: int = 0
    changes: list[Change] = field(default_factory=list)
    watchers: list[Callable[[Change], None]] = field(default_factory=list)

    def next(self) -> str:
        self.version += 1
        return str(self.version)

    def note(self, path: str, before: Object | None, after: Object | None) -> None:
        change = Change(self.version, path, before and deep_copy(before), after and deep_copy(after))
        self.changes.append(change)
        for watcher in list(self.watchers):
            watcher(change)


def is_within(path: str, collection: str) -> bool:
    """Whether an object is in a collection: of its namespace, or of all."""
    parent, _, _ = path.rpartition("/")
    root, _, rest = parent.partition("/namespaces/")
    return collection in (parent, f"{root}/{rest.partition('/')[2]}" if rest else parent)


def matches(selector: str, meta: Object | None) -> bool:
    """Equality and existence, which is all that is asked for here."""
    labels = (meta or {}).get("labels") or {}
    parts = [each.partition("=") for each in selector.split(",") if each]
    return meta is not None and all(
        labels.get(key) == value if equals else key in labels for key, equals, value in parts
    )


def event_of(change: Change, collection: str, selector: str) -> Object | None:
    """What a watch tells of a change."""
    if not is_within(change.path, collection):
        return None
    was, is_now = matches(selector, change.before), matches(selector, change.after)
    if is_now:
        return _event("MODIFIED" if was else "ADDED", change.after or {})
    return _event("DELETED", {**(change.before or {}), "resourceVersion": str(change.version)}) if was else None


def partial(meta: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}


def _event(type: str, meta: Object) -> Object:
    return {"type": type, "object": partial(meta)}


def bookmark(version: int) -> Object:
    return _event("BOOKMARK", {"resourceVersion": str(version)})


class MemoryWay:
    """The way to a Kubernetes in memory for lists and watches: what an Upstream is to a real one."""

    def __init__(self, kube: Any) -> None:
        self.kube = kube
        self.broken: Exception | None = None
        self.asked: list[Request] = []
        self.open: list[Stream] = []

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        if self.broken is not None:
            raise self.broken
        self.asked.append(request)
        accept = dict(request.headers)["accept"]
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if query.get("watch") != "true":
            assert "as=PartialObjectMetadataList;" in accept
            status, found = self.kube.asked("GET", request.target)
            return _answer(status, _partial_list(found) if status == 200 else found)
        assert "as=PartialObjectMetadata;" in accept
        status, refusal = self.kube.refusal(unquote(parts.path))
        if status:
            return _answer(status, refusal)
        return self._stream(unquote(parts.path), query)

    def _stream(self, collection: str, query: dict[str, str]) -> Response:
        version, history = int(query["resourceVersion"]), self.kube.history
        if version < history.oldest:
            return _answer(200, {"type": "ERROR", "object": EXPIRED})
        stream = Stream(self, collection, query.get("labelSelector", ""), float(query["timeoutSeconds"]))
        if version <= history.version:
            for change in history.changes:
                if change.version > version:
                    stream.tell(change)
            stream.begin()
        return stream.response

    def break_off(self) -> None:
        """Every watch ends at once, as with a server that goes down."""
        for stream in list(self.open):
            stream.end()


class Stream:
    """One open watch."""

    def __init__(self, way: MemoryWay, collection: str, selector: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.response = Response(self, loop.create_future())
        self.response.status = 200
        self.response.head_received.set_result(None)
        self.collection = collection
        self._way = way
        self._selector = selector
        self._end = loop.call_later(seconds, self.end)
        self._bookmark: asyncio.TimerHandle | None = None
        way.open.append(self)

    def begin(self) -> None:
        self._way.kube.history.watchers.append(self.tell)
        self._bookmark = asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._mark)

    def tell(self, change: Change) -> None:
        event = event_of(change, self.collection, self._selector)
        if event is not None:
            self.response.feed(json.dumps(event).encode() + b"\n")

    def _mark(self) -> None:
        self.response.feed(json.dumps(bookmark(self._way.kube.history.version)).encode() + b"\n")
        self._bookmark = asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._mark)

    def end(self) -> None:
        self._clean_up()
        self.response.finish()

    def _clean_up(self) -> None:
        self._end.cancel()
        if self._bookmark is not None:
            self._bookmark.cancel()
        if self in self._way.open:
            self._way.open.remove(self)
        if self.tell in self._way.kube.history.watchers:
            self._way.kube.history.watchers.remove(self.tell)

    def pause(self) -> None:
        """Nothing is read ahead here."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        self._clean_up()


def _partial_list(found: Object) -> Object:
    items = [partial(each["metadata"]) for each in found["items"]]
    meta = {"resourceVersion": found["metadata"]["resourceVersion"]}
    return {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items}


class _Nobody:
    def pause(self) -> None:
        """All of it is there already."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        """See `pause`."""


def _answer(status: int, body: Object) -> Response:
    response = Response(_Nobody(), asyncio.get_running_loop().create_future())
    response.status = status
    response.head_received.set_result(None)
    response.feed(json.dumps(body).encode() + b"\n")
    response.finish()
    return response
