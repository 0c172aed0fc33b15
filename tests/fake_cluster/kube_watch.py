"""List and watch of the in-memory Kubernetes, with metadata only, as kube-apiserver 1.35 does it.

A watch sends every change after its resource version. An object that no longer matches the selector is DELETED,
with its old labels. Bookmarks come every minute and have only a version. A version that is too old
gets 200 and an ERROR event with a Status of 410 as its only line; a future one gets 200 and no events.
`timeoutSeconds` ends the stream without an event.
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
    """The change of one object by one write: its metadata before and after."""

    version: int
    path: str
    before: Object | None
    after: Object | None


@dataclass
class History:
    """All changes and the open watches. Changes up to version `oldest` are compacted."""

    version: int = 100
    oldest: int = 0
    changes: list[Change] = field(default_factory=list)
    watchers: list[Callable[[Change], None]] = field(default_factory=list)

    def increment_version(self) -> str:
        self.version += 1
        return str(self.version)

    def record(self, path: str, before: Object | None, after: Object | None) -> None:
        change = Change(self.version, path, before and deep_copy(before), after and deep_copy(after))
        self.changes.append(change)
        for watcher in list(self.watchers):
            watcher(change)


def is_within(path: str, collection: str) -> bool:
    """Whether an object is in a collection of its namespace or of all namespaces."""
    parent, _, _ = path.rpartition("/")
    root, _, rest = parent.partition("/namespaces/")
    return collection in (parent, f"{root}/{rest.partition('/')[2]}" if rest else parent)


def matches_selector(selector: str, meta: Object | None) -> bool:
    """Supports equality, inequality and existence."""
    labels = (meta or {}).get("labels") or {}
    return meta is not None and all(_matches_term(each, labels) for each in selector.split(",") if each)


def _matches_term(term: str, labels: Object) -> bool:
    key, equals, value = term.partition("=")
    if key.endswith("!"):
        return bool(labels.get(key[:-1]) != value)
    return labels.get(key) == value if equals else key in labels


def build_watch_event(change: Change, collection: str, selector: str) -> Object | None:
    """The event of a change, or None if it concerns another collection or selector."""
    if not is_within(change.path, collection):
        return None
    had_match, has_match = matches_selector(selector, change.before), matches_selector(selector, change.after)
    if has_match:
        return _build_event("MODIFIED" if had_match else "ADDED", change.after or {})
    return (
        _build_event("DELETED", {**(change.before or {}), "resourceVersion": str(change.version)})
        if had_match
        else None
    )


def build_partial_metadata(meta: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}


def _build_event(type: str, meta: Object) -> Object:
    return {"type": type, "object": build_partial_metadata(meta)}


def build_bookmark(version: int) -> Object:
    return _build_event("BOOKMARK", {"resourceVersion": str(version)})


class InMemoryUpstream:
    """An `Upstream` to the in-memory Kubernetes, for lists and watches."""

    def __init__(self, kube: Any) -> None:
        self.kube = kube
        self.error: Exception | None = None
        self.requests: list[Request] = []
        self.streams: list[WatchStream] = []

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        accept = dict(request.headers)["accept"]
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if query.get("watch") != "true":
            assert "as=PartialObjectMetadataList;" in accept
            status, content = self.kube.handle_request("GET", request.target)
            return _build_response(status, _build_partial_list(content) if status == 200 else content)
        assert "as=PartialObjectMetadata;" in accept
        status, failure = self.kube.find_failure(unquote(parts.path))
        if status:
            return _build_response(status, failure)
        return self._open_stream(unquote(parts.path), query)

    def _open_stream(self, collection: str, query: dict[str, str]) -> Response:
        version, history = int(query["resourceVersion"]), self.kube.history
        if version < history.oldest:
            return _build_response(200, {"type": "ERROR", "object": EXPIRED})
        stream = WatchStream(self, collection, query.get("labelSelector", ""), float(query["timeoutSeconds"]))
        if version <= history.version:
            for change in history.changes:
                if change.version > version:
                    stream.send_change(change)
            stream.start()
        return stream.response

    def end_streams(self) -> None:
        """Ends all watches at once, as when a server stops."""
        for stream in list(self.streams):
            stream.end()


class WatchStream:
    """One open watch."""

    def __init__(self, upstream: InMemoryUpstream, collection: str, selector: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.response = Response(self, loop.create_future())
        self.response.status = 200
        self.response.head_received.set_result(None)
        self.collection = collection
        self._upstream = upstream
        self._selector = selector
        self._end_timer = loop.call_later(seconds, self.end)
        self._bookmark_timer: asyncio.TimerHandle | None = None
        upstream.streams.append(self)

    def start(self) -> None:
        self._upstream.kube.history.watchers.append(self.send_change)
        self._bookmark_timer = asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._send_bookmark)

    def send_change(self, change: Change) -> None:
        event = build_watch_event(change, self.collection, self._selector)
        if event is not None:
            self.response.feed(json.dumps(event).encode() + b"\n")

    def _send_bookmark(self) -> None:
        self.response.feed(json.dumps(build_bookmark(self._upstream.kube.history.version)).encode() + b"\n")
        self._bookmark_timer = asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._send_bookmark)

    def end(self) -> None:
        self._clean_up()
        self.response.finish()

    def _clean_up(self) -> None:
        self._end_timer.cancel()
        if self._bookmark_timer is not None:
            self._bookmark_timer.cancel()
        if self in self._upstream.streams:
            self._upstream.streams.remove(self)
        if self.send_change in self._upstream.kube.history.watchers:
            self._upstream.kube.history.watchers.remove(self.send_change)

    def pause(self) -> None:
        """Nothing is read ahead here."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        self._clean_up()


def _build_partial_list(content: Object) -> Object:
    items = [build_partial_metadata(each["metadata"]) for each in content["items"]]
    meta = {"resourceVersion": content["metadata"]["resourceVersion"]}
    return {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items}


class _NoFlowControl:
    def pause(self) -> None:
        """The whole response is available already."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        """See `pause`."""


def _build_response(status: int, body: Object) -> Response:
    response = Response(_NoFlowControl(), asyncio.get_running_loop().create_future())
    response.status = status
    response.head_received.set_result(None)
    response.feed(json.dumps(body).encode() + b"\n")
    response.finish()
    return response
