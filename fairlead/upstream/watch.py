"""List and watch of the labelled objects of one resource in a remote cluster, like client-go's Reflector.

`controllers.instances.remote_informers.py` runs one for each watched resource. It requests PartialObjectMetadata; if a
server sends whole objects, only their metadata is used. The watch starts at the list's resourceVersion and is resumed
after an interruption. A new list is needed if the resourceVersion is too old (410), if the credential has changed and
may lead to another server, or if the server sent nothing for longer than its bookmark interval. The last happens if
the resourceVersion is in the server's future, as after the restore of a backup: the server responds with 200 and sends
nothing.

All input is bounded: sizes of pages and events, length of names, number of pages and objects, time, and the rate at
which short-lived watches are restarted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol
from urllib.parse import urlencode

import structlog

from fairlead.core.backoff import Backoff, BackoffPolicy, add_jitter
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import Request
from fairlead.upstream.errors import ProtocolError, ResponseTooLarge, TimedOut, UpstreamError
from fairlead.upstream.kube_client import RemoteApiError, RequestSender, decode_object, response_error
from fairlead.upstream.messages import Response

LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
WATCH_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Not PartialObjectMetadataList: with that, a server responds to a watch with 200 and never sends an event."""
PAGE_SIZE, MAX_OBJECTS = 100, 20_000
MAX_PAGE_BYTES, MAX_EVENT_BYTES = 2 * 2**20, 2 * 2**20
"""Bytes. Parsing blocks the event loop: about a quarter of a second in the worst case for this size. A larger page is
requested again with fewer objects."""
MAX_CONTINUE_CHARS, MAX_NAME = 4_096, 253
LIST_SECONDS, FULL_LIST_SECONDS = 30.0, 120.0
"""Timeouts for one page, and for the whole list."""
WATCH_SECONDS = 300.0
"""The `timeoutSeconds` of a watch, with 20 % jitter."""
MAX_SILENCE_SECONDS = 150.0
"""Bookmarks arrive every minute. A server that is silent for longer does not have the requested resourceVersion."""
MIN_WATCH_SECONDS = 5.0
"""A watch that ends earlier counts as failed, whatever it sent. The next one is delayed by exponential backoff."""
RETRY = BackoffPolicy(first_seconds=0.25, max_seconds=5.0, jitter=0.5)
"""Short, so that a recovered cluster is watched again soon."""
REJECTED_RETRY_SECONDS = 60.0
"""Delay after the server rejected the request: permissions are rarely granted within seconds."""
_GONE = 410
_REJECTED_STATUSES = frozenset({400, 401, 403, 404, 405, 406, 422})

log = structlog.get_logger(__name__)


class WatchListener(Protocol):
    """Receives the events. `meta` is the metadata of an object; its name is a non-empty string."""

    def on_object(self, meta: Object) -> None:
        """The object exists: listed, added or modified."""

    def on_deleted(self, meta: Object) -> None:
        """The object was deleted, or no longer matches the selector."""

    def on_list_complete(self, names: set[tuple[str, str]]) -> None:
        """A list is complete: these are all objects, by namespace and name. `on_object` was called for each before."""

    def on_watch_state(self, is_watching: bool, error: str = "") -> None:
        """The watch has started or stopped. `error` is the server's message if it rejected the request."""


class ResourceVersionExpired(Exception):
    """The watch cannot be resumed at its resourceVersion; a new list is needed."""


class RemoteWatch:
    """`get_sender` returns the cluster's Upstream, another one if the credential has changed. Raises UpstreamError."""

    def __init__(
        self, get_sender: Callable[[], RequestSender], path: str, selector: str, listener: WatchListener
    ) -> None:
        self._get_sender = get_sender
        self._path = path
        self._selector = selector
        self._listener = listener
        self._current_sender: RequestSender | None = None
        self._resource_version = ""
        self._backoff = Backoff(RETRY)
        self._page_size = PAGE_SIZE

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            delay = await self._attempt()
            await asyncio.sleep(delay)

    async def _attempt(self) -> float:
        """Lists and watches until an error occurs. Returns the delay before the next attempt, in seconds."""
        try:
            await self._list_and_watch()
        except ResourceVersionExpired:
            self._resource_version = ""
        except RemoteApiError as error:
            self._resource_version = ""
            if error.status in _REJECTED_STATUSES:
                self._listener.on_watch_state(False, error.message)
                return add_jitter(REJECTED_RETRY_SECONDS)
        except UpstreamError as error:
            log.debug("remote watch interrupted", path=self._path, reason=error.message)
            if isinstance(error, TimedOut):
                self._resource_version = ""
        except Exception:  # a bug of ours, perhaps triggered by the data of this one cluster
            log.exception("remote watch failed unexpectedly", path=self._path)
            self._resource_version = ""
            self._listener.on_watch_state(False)
            return add_jitter(RETRY.max_seconds)
        self._listener.on_watch_state(False)
        return self._backoff.next_delay()

    async def _list_and_watch(self) -> None:
        """Lists if needed, then watches, repeatedly."""
        while True:
            sender = self._get_sender()
            if sender is not self._current_sender:
                self._current_sender, self._resource_version = sender, ""
            if not self._resource_version:
                self._resource_version = await self._list(sender)
            if await self._watch(sender) < MIN_WATCH_SECONDS:
                raise ProtocolError("the server closed a watch immediately")

    async def _list(self, sender: RequestSender) -> str:
        """Lists all objects. Returns the resourceVersion to watch from."""
        try:
            async with asyncio.timeout(FULL_LIST_SECONDS):
                return await self._list_pages(sender)
        except TimeoutError:
            raise TimedOut(f"the cluster did not list its objects within {FULL_LIST_SECONDS:.0f} seconds") from None

    async def _list_pages(self, sender: RequestSender) -> str:
        names: set[tuple[str, str]] = set()
        query = {"labelSelector": self._selector, "limit": str(self._page_size)}
        for _ in range(2 * MAX_OBJECTS // self._page_size + 1):
            page = await self._list_page(sender, query)
            for meta in filter(_has_bounded_name, map(_object_metadata, _list_items(page))):
                names.add((meta.get("namespace") or "", meta["name"]))
                if len(names) > MAX_OBJECTS:
                    raise RemoteApiError(422, "TooMany", f"more than {MAX_OBJECTS} objects match the label selector")
                self._listener.on_object(meta)
            continue_token = get_path(page, "metadata.continue")
            if not continue_token:
                self._listener.on_list_complete(names)
                return _resource_version(page)
            if not isinstance(continue_token, str) or len(continue_token) > MAX_CONTINUE_CHARS:
                raise ProtocolError(
                    f"metadata.continue of the cluster's list is not a string of up to {MAX_CONTINUE_CHARS} characters"
                )
            query["continue"] = continue_token
        raise RemoteApiError(422, "TooMany", "the cluster's list has too many pages")

    async def _list_page(self, sender: RequestSender, query: dict[str, str]) -> Object:
        headers = [("accept", LIST_ACCEPT)]
        response = await sender.send(Request("GET", f"{self._path}?{urlencode(query)}", headers), seconds=LIST_SECONDS)
        try:
            return await decode_object(await _read_success(response))
        except ResponseTooLarge:
            self._page_size = max(1, self._page_size // 4)
            raise

    async def _watch(self, sender: RequestSender) -> float:
        """Watches until the server closes the watch. Returns its duration in seconds."""
        seconds = add_jitter(WATCH_SECONDS)
        query = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        request = Request("GET", f"{self._path}?{urlencode(query)}", [("accept", WATCH_ACCEPT)])
        response = await sender.send(request, seconds=seconds + LIST_SECONDS)
        if response.status != 200:
            await _read_success(response)
        clock = asyncio.get_running_loop().time
        has_events, began = False, clock()
        try:
            self._listener.on_watch_state(True)
            async for line in iter_lines(response):
                self._handle_event(await decode_object(line))
                has_events = True
        finally:
            if clock() - began >= MIN_WATCH_SECONDS:
                self._backoff.reset()
            await response.close()
        duration = clock() - began
        if not has_events and duration > MAX_SILENCE_SECONDS / 2:
            raise ResourceVersionExpired
        return duration

    def _handle_event(self, event: Object) -> None:
        kind = event.get("type")
        obj = event.get("object")
        if kind == "ERROR":
            raise ResourceVersionExpired
        if kind == "BOOKMARK" and isinstance(obj, dict):
            self._resource_version = _resource_version(obj)
            return
        meta = _object_metadata(obj)
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            raise ProtocolError("the cluster sent a watch event of an unknown type")
        if _has_bounded_name(meta):
            notify = self._listener.on_deleted if kind == "DELETED" else self._listener.on_object
            notify(meta)
        self._resource_version = _resource_version({"metadata": meta})


async def _read_success(response: Response) -> bytes:
    """Reads the body of a response. Raises RemoteApiError or ResourceVersionExpired unless its status is 200."""
    try:
        content = await response.read(MAX_PAGE_BYTES)
    finally:
        await response.close()
    if response.status == 200:
        return content
    if response.status == _GONE:
        raise ResourceVersionExpired
    raise response_error(response.status, content)


async def iter_lines(response: Response) -> AsyncIterator[bytes]:
    """Splits the body into lines. Linear in its size, however small the chunks of a line are."""
    line = bytearray()
    while chunk := await _read_chunk(response):
        first, *others = chunk.split(b"\n")
        line += first
        for other in others:
            _check_event_size(line)
            if line:
                yield bytes(line)
            line = bytearray(other)
        _check_event_size(line)
        await asyncio.sleep(0)  # yield to the event loop, even if the server always has more data


def _check_event_size(line: bytearray) -> None:
    if len(line) > MAX_EVENT_BYTES:
        raise ProtocolError(f"a watch event of the cluster is larger than {MAX_EVENT_BYTES} bytes")


async def _read_chunk(response: Response) -> bytes:
    try:
        async with asyncio.timeout(MAX_SILENCE_SECONDS):
            return await response.read_chunk()
    except TimeoutError:
        raise ResourceVersionExpired from None


def _list_items(page: Object) -> list[Any]:
    items = page.get("items") or []
    if not isinstance(items, list):
        raise ProtocolError("the cluster's list has no items")
    return items


def _object_metadata(obj: Any) -> Object:
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ProtocolError("the cluster sent an object without a name")
    if not isinstance(meta.get("namespace", ""), str):
        raise ProtocolError("the cluster sent an object whose namespace is not a string")
    return meta


def _has_bounded_name(meta: Object) -> bool:
    """Our own objects have shorter names. Others may not: Kubernetes does not limit the names of RoleBindings."""
    return len(meta["name"]) <= MAX_NAME and len(meta.get("namespace") or "") <= MAX_NAME


def _resource_version(obj: Object) -> str:
    version = get_path(obj, "metadata.resourceVersion")
    if not isinstance(version, str) or not 0 < len(version) <= 128:
        raise ProtocolError("the cluster sent no valid resourceVersion")
    return version
