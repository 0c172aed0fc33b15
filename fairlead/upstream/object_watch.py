"""List and watch of one object by its name. For a few objects that this server depends on.

Reads the object again whenever a watch ends, so a missed event has no effect for longer than that. Everything that the
cluster sends is bounded, as in `watch.py`.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urlencode

import structlog

from fairlead.core.backoff import Backoff, BackoffPolicy, add_jitter
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import Request
from fairlead.upstream.errors import ProtocolError, UpstreamError
from fairlead.upstream.kube_client import (
    JSON,
    KubeClient,
    RemoteApiError,
    RequestSender,
    decode_object,
    response_error,
)
from fairlead.upstream.watch import MAX_EVENT_BYTES, ResourceVersionExpired, iter_lines

LIST_SECONDS, WATCH_SECONDS = 10.0, 300.0
RETRY = BackoffPolicy(first_seconds=0.25, max_seconds=10.0, jitter=0.5)
MIN_WATCH_SECONDS = 5.0
"""A watch that ends earlier counts as failed: the next one is delayed more."""

log = structlog.get_logger(__name__)


class ObjectWatch:
    """`path` is that of the collection. `on_object` is called with each state; None if there is no such object.

    `on_error` is called with each failure to read or watch it: an UpstreamError, or a RemoteApiError.
    """

    def __init__(
        self,
        get_sender: Callable[[], RequestSender],
        path: str,
        name: str,
        on_object: Callable[[Object | None], None],
        on_error: Callable[[UpstreamError | RemoteApiError], None],
    ) -> None:
        self._get_sender = get_sender
        self._path = path
        self._name = name
        self._on_object = on_object
        self._on_error = on_error
        self._backoff = Backoff(RETRY)

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            try:
                await self._attempt()
            except Exception:  # a bug of ours: the next attempt may succeed
                log.exception("the watch of an object failed unexpectedly", path=self._path, name=self._name)
            await asyncio.sleep(self._backoff.next_delay())

    async def _attempt(self) -> None:
        """Lists and watches until it fails."""
        try:
            while True:
                sender = self._get_sender()
                version = await self._list(sender)
                if await self._watch(sender, version) < MIN_WATCH_SECONDS:
                    return
        except ResourceVersionExpired:
            return
        except (UpstreamError, RemoteApiError) as error:
            self._on_error(error)

    async def _list(self, sender: RequestSender) -> str:
        """Reads the object. Returns the resourceVersion to watch from."""
        client = KubeClient(sender, LIST_SECONDS, MAX_EVENT_BYTES)
        found = await client.list(self._path, fieldSelector=f"metadata.name={self._name}")
        items = found.get("items")
        version = get_path(found, "metadata.resourceVersion")
        if not isinstance(items, list) or not isinstance(version, str):
            raise ProtocolError("the cluster's list has no items or no resourceVersion")
        objects = [each for each in items if isinstance(each, dict) and get_path(each, "metadata.name") == self._name]
        self._on_object(objects[0] if objects else None)
        return version

    async def _watch(self, sender: RequestSender, version: str) -> float:
        """Watches until the server closes the watch. Returns its duration in seconds."""
        seconds = add_jitter(WATCH_SECONDS)
        query = {
            "fieldSelector": f"metadata.name={self._name}",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        request = Request("GET", f"{self._path}?{urlencode(query)}", [("accept", JSON)])
        response = await sender.send(request, seconds=seconds + LIST_SECONDS)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            if response.status != 200:
                raise response_error(response.status, await response.read(MAX_EVENT_BYTES))
            async for line in iter_lines(response):
                self._handle_event(await decode_object(line))
        finally:
            if response.status == 200 and clock() - began >= MIN_WATCH_SECONDS:
                self._backoff.reset()
            await response.close()
        return clock() - began

    def _handle_event(self, event: Object) -> None:
        kind = event.get("type")
        obj = event.get("object")
        if kind == "ERROR":
            raise ResourceVersionExpired
        if kind == "BOOKMARK" or not isinstance(obj, dict) or get_path(obj, "metadata.name") != self._name:
            return
        self._on_object(None if kind == "DELETED" else obj)
