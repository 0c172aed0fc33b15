"""List and watch of the labelled objects of one resource in a remote cluster, like client-go's Reflector.

`controllers/runtime/remote_informers.py` runs one for each watched resource. It requests PartialObjectMetadata; if a
server sends whole objects, only their metadata is used. The watch starts at the list's resourceVersion and is resumed
after an interruption. A new list is needed if the resourceVersion is too old (410), if the credential has changed and
may lead to another server, or if the server sent nothing for longer than its bookmark interval. The last happens if
the resourceVersion is in the server's future, as after the restore of a backup: the server responds with 200 and sends
nothing.

All input is bounded: sizes of pages and events, length of names, number of pages and objects, time, and the rate at
which short-lived watches are restarted.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol
from urllib.parse import urlencode

import structlog

from fairlead.core.json import Malformed, decode
from fairlead.core.objects import Object, dig
from fairlead.upstream.access import Request
from fairlead.upstream.errors import Broken, TimedOut, TooLarge, UpstreamError
from fairlead.upstream.kube_client import FarError, Sender, failure
from fairlead.upstream.messages import Response

LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
WATCH_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Not PartialObjectMetadataList: with that, a server responds to a watch with 200 and never sends an event."""
PAGE, MAX_OBJECTS = 100, 20_000
MAX_PAGE, MAX_EVENT = 2 * 2**20, 2 * 2**20
"""Bytes. Parsing blocks the event loop: about a quarter of a second in the worst case for this size. A larger page is
requested again with fewer objects."""
MAX_CONTINUE, MAX_NAME = 4_096, 253
LIST_SECONDS, WHOLE_LIST_SECONDS = 30.0, 120.0
"""Timeouts for one page, and for the whole list."""
WATCH_SECONDS = 300.0
"""The `timeoutSeconds` of a watch, with 20 % jitter."""
SILENT_SECONDS = 150.0
"""Bookmarks arrive every minute. A server that is silent for longer does not have the requested resourceVersion."""
STEADY_SECONDS = 5.0
"""A watch that ends earlier counts as failed, whatever it sent. The next one is delayed by exponential backoff."""
FIRST_DELAY, LAST_DELAY = 0.25, 5.0
"""Bounds of the backoff. Short, so that a recovered cluster is watched again soon."""
REFUSED_SECONDS = 60.0
"""Delay after the server rejected the request: permissions are rarely granted within seconds."""
_GONE = 410
_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 422})

log = structlog.get_logger(__name__)


class Listener(Protocol):
    """Receives the events. `meta` is the metadata of an object; its name is a non-empty string."""

    def saw(self, meta: Object) -> None:
        """The object exists: listed, added or modified."""

    def lost(self, meta: Object) -> None:
        """The object was deleted, or no longer matches the selector."""

    def listed(self, names: set[tuple[str, str]]) -> None:
        """A list is complete: these are all objects, by namespace and name. `on_object` was called for each before."""

    def became(self, following: bool, refusal: str = "") -> None:
        """The watch has started or stopped. `error` is the server's message if it rejected the request."""


class Expired(Exception):
    """The watch cannot be resumed at its resourceVersion; a new list is needed."""


class RemoteWatch:
    """`get_sender` returns the cluster's Upstream, another one if the credential has changed. Raises UpstreamError."""

    def __init__(self, sender: Callable[[], Sender], path: str, selector: str, listener: Listener) -> None:
        self._sender = sender
        self._path = path
        self._selector = selector
        self._listener = listener
        self._way: Sender | None = None
        self._version = ""
        self._failures = 0
        self._limit = PAGE

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            delay = await self._attempt()
            await asyncio.sleep(delay)

    async def _attempt(self) -> float:
        """Lists and watches until an error occurs. Returns the delay before the next attempt, in seconds."""
        try:
            await self._follow()
        except Expired:
            self._version = ""
        except FarError as error:
            self._version = ""
            if error.status in _REFUSALS:
                self._listener.became(False, error.message)
                return REFUSED_SECONDS * random.uniform(0.8, 1.2)
        except UpstreamError as error:
            log.debug("remote watch interrupted", path=self._path, reason=error.message)
            if isinstance(error, TimedOut):
                self._version = ""
        except Exception:  # a bug of ours, perhaps triggered by the data of this one cluster
            log.exception("remote watch failed unexpectedly", path=self._path)
            self._version, self._failures = "", 20
        self._listener.became(False)
        self._failures += 1
        return min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 1, 20)) * random.uniform(0.5, 1.0)

    async def _follow(self) -> None:
        """Lists if needed, then watches, repeatedly."""
        while True:
            sender = self._sender()
            if sender is not self._way:
                self._way, self._version = sender, ""
            if not self._version:
                self._version = await self._list(sender)
            if await self._watch(sender) < STEADY_SECONDS:
                raise Broken("the server closed a watch immediately")

    async def _list(self, way: Sender) -> str:
        """Lists all objects. Returns the resourceVersion to watch from."""
        try:
            async with asyncio.timeout(WHOLE_LIST_SECONDS):
                return await self._list_pages(way)
        except TimeoutError:
            raise TimedOut(f"the cluster did not list its objects within {WHOLE_LIST_SECONDS:.0f} seconds") from None

    async def _list_pages(self, way: Sender) -> str:
        names: set[tuple[str, str]] = set()
        query = {"labelSelector": self._selector, "limit": str(self._limit)}
        for _ in range(2 * MAX_OBJECTS // self._limit + 1):
            page = await self._page(way, query)
            for meta in filter(_is_name_bounded, map(_metadata, _items(page))):
                names.add((meta.get("namespace") or "", meta["name"]))
                if len(names) > MAX_OBJECTS:
                    raise FarError(422, "TooMany", f"more than {MAX_OBJECTS} objects match the label selector")
                self._listener.saw(meta)
            continue_token = dig(page, "metadata.continue")
            if not continue_token:
                self._listener.listed(names)
                return _version(page)
            if not isinstance(continue_token, str) or len(continue_token) > MAX_CONTINUE:
                raise Broken(
                    f"metadata.continue of the cluster's list is not a string of up to {MAX_CONTINUE} characters"
                )
            query["continue"] = continue_token
        raise FarError(422, "TooMany", "the cluster's list has too many pages")

    async def _page(self, way: Sender, query: dict[str, str]) -> Object:
        headers = [("accept", LIST_ACCEPT)]
        response = await way.send(Request("GET", f"{self._path}?{urlencode(query)}", headers), seconds=LIST_SECONDS)
        try:
            return _object(await _content(response))
        except TooLarge:
            self._limit = max(1, self._limit // 4)
            raise

    async def _watch(self, way: Sender) -> float:
        """Watches until the server closes the watch. Returns its duration in seconds."""
        seconds = WATCH_SECONDS * random.uniform(0.8, 1.2)
        query = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        request = Request("GET", f"{self._path}?{urlencode(query)}", [("accept", WATCH_ACCEPT)])
        response = await way.send(request, seconds=seconds + LIST_SECONDS)
        if response.status != 200:
            await _content(response)
        clock = asyncio.get_running_loop().time
        has_events, began = False, clock()
        try:
            self._listener.became(True)
            async for line in _lines(response):
                self._hear(_object(line))
                has_events = True
        finally:
            if clock() - began >= STEADY_SECONDS:
                self._failures = 0
            await response.close()
        duration = clock() - began
        if not has_events and duration > SILENT_SECONDS / 2:
            raise Expired
        return duration

    def _hear(self, event: Object) -> None:
        kind, obj = event.get("type"), event.get("object")
        if kind == "ERROR":
            raise Expired
        if kind == "BOOKMARK" and isinstance(obj, dict):
            self._version = _version(obj)
            return
        meta = _metadata(obj)
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            raise Broken("the cluster sent a watch event of an unknown type")
        if _is_name_bounded(meta):
            notify = self._listener.lost if kind == "DELETED" else self._listener.saw
            notify(meta)
        self._version = _version({"metadata": meta})


async def _content(response: Response) -> bytes:
    """Reads the body of a response. Raises RemoteApiError or ResourceVersionExpired unless its status is 200."""
    try:
        content = await response.read(MAX_PAGE)
    finally:
        await response.close()
    if response.status == 200:
        return content
    if response.status == _GONE:
        raise Expired
    raise failure(response.status, content)


async def _lines(response: Response) -> AsyncIterator[bytes]:
    """Splits the body into lines. Linear in its size, however small the chunks of a line are."""
    line = bytearray()
    while chunk := await _next(response):
        first, *others = chunk.split(b"\n")
        line += first
        for other in others:
            _check_size(line)
            if line:
                yield bytes(line)
            line = bytearray(other)
        _check_size(line)
        await asyncio.sleep(0)  # yield to the event loop, even if the server always has more data


def _check_size(line: bytearray) -> None:
    if len(line) > MAX_EVENT:
        raise Broken(f"a watch event of the cluster is larger than {MAX_EVENT} bytes")


async def _next(response: Response) -> bytes:
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            return await response.next()
    except TimeoutError:
        raise Expired from None


def _object(content: bytes) -> Object:
    try:
        value = decode(content)
    except Malformed:
        value = None
    if not isinstance(value, dict):
        raise Broken("the cluster's response is not a JSON object; check that it is a Kubernetes API server")
    return value


def _items(page: Object) -> list[Any]:
    items = page.get("items") or []
    if not isinstance(items, list):
        raise Broken("the cluster's list has no items")
    return items


def _metadata(obj: Any) -> Object:
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise Broken("the cluster sent an object without a name")
    if not isinstance(meta.get("namespace", ""), str):
        raise Broken("the cluster sent an object whose namespace is not a string")
    return meta


def _is_name_bounded(meta: Object) -> bool:
    """Our own objects have shorter names. Others may not: Kubernetes does not limit the names of RoleBindings."""
    return len(meta["name"]) <= MAX_NAME and len(meta.get("namespace") or "") <= MAX_NAME


def _version(obj: Object) -> str:
    version = dig(obj, "metadata.resourceVersion")
    if not isinstance(version, str) or not 0 < len(version) <= 128:
        raise Broken("the cluster sent no valid resourceVersion")
    return version
