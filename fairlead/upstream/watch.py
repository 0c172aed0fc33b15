"""Lists and watches the labelled objects of one resource in a remote cluster, for as long as somebody wants to know.

`controllers/runtime/remote_informers.py` runs one for each resource that it follows. Only metadata is asked for; a server that
cannot cut objects down sends whole ones, of which nothing else is looked at. A list says where the watch begins, and
the watch is resumed where it broke off. A new list is made where that cannot be relied on: the version is too old
(410), the credential now leads to another server, or the server was silent for longer than its bookmarks are apart.
The last happens with a version that the server does not have yet, as after a backup was restored: it answers 200, and
sends nothing.

Whatever the server sends is bounded: the size of a page and of an event, the length of names, the number of pages and
objects, the time, and how often a watch that does not last is begun again.
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
"""Not the List: asked for that, a server answers a watch with 200 and never sends an event."""
PAGE, MAX_OBJECTS = 100, 20_000
MAX_PAGE, MAX_EVENT = 2 * 2**20, 2 * 2**20
"""Bytes. They are parsed on the event loop, and the worst that fits in here takes about a quarter of a second. A page
that is larger is asked for again with fewer objects."""
MAX_CONTINUE, MAX_NAME = 4_096, 253
LIST_SECONDS, WHOLE_LIST_SECONDS = 30.0, 120.0
"""For one page, and for all of them."""
WATCH_SECONDS = 300.0
"""How long a server is asked to keep a watch open, give or take a fifth."""
SILENT_SECONDS = 150.0
"""Bookmarks come every minute. Whoever sends nothing for so long does not know the version that was asked for."""
STEADY_SECONDS = 5.0
"""A watch that ends earlier has failed, whatever was sent on it: the next one waits, longer each time."""
FIRST_DELAY, LAST_DELAY = 0.25, 5.0
"""Seconds between attempts: a cluster that is back is followed again soon."""
REFUSED_SECONDS = 60.0
"""Until the next attempt where the server has said no: rights are seldom given within seconds."""
_GONE = 410
_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 422})

log = structlog.get_logger(__name__)


class Listener(Protocol):
    """Who is told. `meta` is the metadata of an object, with a name that is a text."""

    def saw(self, meta: Object) -> None:
        """It is there, and is as its metadata says."""

    def lost(self, meta: Object) -> None:
        """It is gone, or does not have the labels any more."""

    def listed(self, names: set[tuple[str, str]]) -> None:
        """These are all that there are, by namespace and name. Each was told before."""

    def became(self, following: bool, refusal: str = "") -> None:
        """Whether changes are told from now on; where the server refuses to, in its words."""


class Expired(Exception):
    """The server does not have the version any more that the watch should go on from."""


class RemoteWatch:
    """`sender` hands out the way to the cluster, a new one when the credential has changed. It raises UpstreamError."""

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
        """Until it is cancelled."""
        while True:
            delay = await self._attempt()
            await asyncio.sleep(delay)

    async def _attempt(self) -> float:
        """Follows for as long as it works. Returns the seconds to wait before the next attempt."""
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
            log.debug("a remote watch broke off", path=self._path, reason=error.message)
            if isinstance(error, TimedOut):
                self._version = ""
        except Exception:  # a fault of ours, perhaps brought about by what this one cluster sent
            log.exception("a remote watch failed unexpectedly", path=self._path)
            self._version, self._failures = "", 20
        self._listener.became(False)
        self._failures += 1
        return min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 1, 20)) * random.uniform(0.5, 1.0)

    async def _follow(self) -> None:
        """Lists where it has to, then watches, again and again."""
        while True:
            way = self._sender()
            if way is not self._way:
                self._way, self._version = way, ""
            if not self._version:
                self._version = await self._list(way)
            if await self._watch(way) < STEADY_SECONDS:
                raise Broken("the server ended a watch right away")

    async def _list(self, way: Sender) -> str:
        """Tells of all that there is. Returns the version to watch from."""
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
                    raise FarError(422, "TooMany", f"there are more than {MAX_OBJECTS} objects with our labels")
                self._listener.saw(meta)
            going_on = dig(page, "metadata.continue")
            if not going_on:
                self._listener.listed(names)
                return _version(page)
            if not isinstance(going_on, str) or len(going_on) > MAX_CONTINUE:
                raise Broken(f"metadata.continue of the cluster's list is no text of at most {MAX_CONTINUE} characters")
            query["continue"] = going_on
        raise FarError(422, "TooMany", "the cluster's list has more pages than its objects can need")

    async def _page(self, way: Sender, query: dict[str, str]) -> Object:
        headers = [("accept", LIST_ACCEPT)]
        response = await way.send(Request("GET", f"{self._path}?{urlencode(query)}", headers), seconds=LIST_SECONDS)
        try:
            return _object(await _content(response))
        except TooLarge:
            self._limit = max(1, self._limit // 4)
            raise

    async def _watch(self, way: Sender) -> float:
        """Tells of every change until the server ends the watch. Returns how many seconds it has lasted."""
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
        told, began = False, clock()
        try:
            self._listener.became(True)
            async for line in _lines(response):
                self._hear(_object(line))
                told = True
        finally:
            if clock() - began >= STEADY_SECONDS:
                self._failures = 0
            await response.close()
        lasted = clock() - began
        if not told and lasted > SILENT_SECONDS / 2:
            raise Expired
        return lasted

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
            tell = self._listener.lost if kind == "DELETED" else self._listener.saw
            tell(meta)
        self._version = _version({"metadata": meta})


async def _content(response: Response) -> bytes:
    """The body of an answer that should be a success. Raises FarError, or Expired."""
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
    """Each byte is looked at once, however small the pieces are that a line comes in."""
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
        await asyncio.sleep(0)  # a server that always has something to send leaves room for others


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
        raise Broken("the cluster's answer is no JSON object; see that the server is a Kubernetes API server")
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
        raise Broken("the cluster sent an object whose namespace is no text")
    return meta


def _is_name_bounded(meta: Object) -> bool:
    """Nothing of ours has longer names. Others may: Kubernetes does not limit the names of RoleBindings."""
    return len(meta["name"]) <= MAX_NAME and len(meta.get("namespace") or "") <= MAX_NAME


def _version(obj: Object) -> str:
    version = dig(obj, "metadata.resourceVersion")
    if not isinstance(version, str) or not 0 < len(version) <= 128:
        raise Broken("the cluster sent no resourceVersion to go on from")
    return version
