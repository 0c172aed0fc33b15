"""Tests of `fairlead.upstream.watch`: list and watch of a remote cluster over real sockets, with invalid responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.upstream import watch
from fairlead.upstream.access import Request
from fairlead.upstream.messages import Response
from fairlead.upstream.watch import MAX_NAME, RETRY, RemoteWatch
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response, build_status_response
from tests.fake_cluster.kube_watch import EXPIRED, build_bookmark, build_partial_metadata
from tests.fake_cluster.server import FakeCluster
from tests.harness.virtual_time import on_virtual_time
from tests.upstream.upstreams import connect_upstream

PATH = "/api/v1/configmaps"
RESPONSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


class RecordingListener:
    """A listener that records its calls, and can be waited for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._changed = asyncio.Event()

    def on_object(self, metadata: Object) -> None:
        self._record("object", metadata["name"])

    def on_deleted(self, metadata: Object) -> None:
        self._record("deleted", metadata["name"])

    def on_list_complete(self, names: set[tuple[str, str]]) -> None:
        self._record("listed", names)

    def on_watch_state(self, is_watching: bool, error: str = "") -> None:
        self._record("state", (is_watching, error))

    def _record(self, method: str, value: Any) -> None:
        self.calls.append((method, value))
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def count(self, method: str) -> int:
        return sum(recorded == method for recorded, _ in self.calls)


class ScriptedCluster:
    """Serves these pages as lists; each watch gets the next of these event lists, and the last one stays open."""

    def __init__(self, *watches: list[Object | bytes], pages: list[Object] | None = None) -> None:
        self.requests: list[RecordedRequest] = []
        self._watches = list(watches)
        self._pages = pages or [build_page("one", version=10)]
        self._lists = 0

    async def __call__(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.requests.append(request)
        if request.query.get("watch") != "true":
            content = self._pages[self._lists % len(self._pages)]
            self._lists += 1
            writer.write(build_json_response(content).encode("GET"))
            return True
        writer.write(RESPONSE_HEAD)
        for event in self._watches.pop(0) if self._watches else ():
            line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        if self._watches:
            writer.write(b"0\r\n\r\n")
            return True
        await reader.read()
        return False


def build_page(*names: str, version: int, continue_token: Any = "") -> Object:
    metadata = {"resourceVersion": str(version), **({"continue": continue_token} if continue_token else {})}
    items = [build_partial_metadata({"name": name, "namespace": "n", "resourceVersion": "1"}) for name in names]
    return {"kind": "PartialObjectMetadataList", "metadata": metadata, "items": items}


def build_event(type: str, name: str, version: int) -> Object:
    return {
        "type": type,
        "object": build_partial_metadata({"name": name, "namespace": "n", "resourceVersion": str(version)}),
    }


@asynccontextmanager
async def run_watch(fake_cluster: FakeCluster, cluster: Any) -> AsyncIterator[RecordingListener]:
    fake_cluster.set_behaviour(PATH, cluster)
    listener = RecordingListener()
    async with connect_upstream(fake_cluster) as upstream:
        task = asyncio.create_task(RemoteWatch(lambda: upstream, PATH, "a=b,c", listener).run())
        try:
            yield listener
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def requested_versions(cluster: ScriptedCluster) -> list[str]:
    """The resourceVersion of each request: empty for a list."""
    return [request.query.get("resourceVersion", "") for request in cluster.requests]


async def test_objects_are_listed_and_then_watched(fake_cluster: FakeCluster) -> None:
    cluster = ScriptedCluster(
        [build_event("ADDED", "two", 11), build_event("MODIFIED", "one", 12), build_event("DELETED", "two", 13)]
    )
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: ("deleted", "two") in listener.calls)
    assert listener.calls == [
        ("object", "one"),
        ("listed", {("n", "one")}),
        ("state", (True, "")),
        ("object", "two"),
        ("object", "one"),
        ("deleted", "two"),
    ]
    list_request, watch_request = cluster.requests
    assert list_request.query["labelSelector"] == watch_request.query["labelSelector"] == "a=b,c"
    assert "as=PartialObjectMetadataList;" in list_request.header("accept")
    assert "as=PartialObjectMetadata;" in watch_request.header("accept")
    assert watch_request.query["allowWatchBookmarks"] == "true"


async def test_lists_are_requested_in_pages(fake_cluster: FakeCluster) -> None:
    cluster = ScriptedCluster([], pages=[build_page("one", version=10, continue_token="next"), build_page(version=10)])
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: ("state", (True, "")) in listener.calls)
    assert ("listed", {("n", "one")}) in listener.calls
    assert [request.query.get("continue", "") for request in cluster.requests] == ["", "next", ""]


async def test_a_watch_that_ends_is_resumed_after_the_last_bookmark(fake_cluster: FakeCluster) -> None:
    cluster = ScriptedCluster(
        [build_event("ADDED", "two", 11), build_bookmark(15)], [build_event("ADDED", "three", 16)]
    )
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: ("object", "three") in listener.calls)
    assert requested_versions(cluster) == ["", "10", "15"]
    assert listener.count("listed") == 1


async def test_an_expired_version_in_an_event_leads_to_a_new_list(fake_cluster: FakeCluster) -> None:
    cluster = ScriptedCluster([{"type": "ERROR", "object": EXPIRED}], [build_event("ADDED", "two", 11)])
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: ("object", "two") in listener.calls)
    assert requested_versions(cluster) == ["", "10", "", "10"]
    assert ("state", (False, "")) in listener.calls


async def test_a_410_leads_to_a_new_list(fake_cluster: FakeCluster) -> None:
    cluster, expired_count = ScriptedCluster([build_event("ADDED", "two", 11)]), 0

    async def respond(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal expired_count
        if request.query.get("watch") == "true" and not expired_count:
            expired_count += 1
            writer.write(build_status_response(410, "Expired", "too old resource version").encode("GET"))
            return True
        return await cluster(request, reader, writer)

    async with run_watch(fake_cluster, respond) as listener:
        await listener.wait_until(lambda: ("object", "two") in listener.calls)
    assert listener.count("listed") == 2


async def test_a_watch_is_resumed_after_an_interrupted_connection(fake_cluster: FakeCluster) -> None:
    cluster = ScriptedCluster([build_event("ADDED", "two", 11)], [])

    async def respond(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await cluster(request, reader, writer)
        return request.query.get("watch") != "true"

    cluster._watches.append([build_event("ADDED", "three", 12)])
    async with run_watch(fake_cluster, respond) as listener:
        await listener.wait_until(lambda: ("object", "three") in listener.calls)
    assert listener.count("listed") == 1
    assert set(requested_versions(cluster)) == {"", "10", "11"}


async def test_a_watch_without_events_is_listed_again_after_a_timeout(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a server that does not have that version yet."""
    monkeypatch.setattr(watch, "MAX_SILENCE_SECONDS", 0.2)
    async with run_watch(fake_cluster, ScriptedCluster([])) as listener:
        await listener.wait_until(lambda: listener.count("listed") == 2)


@pytest.mark.parametrize("status", [401, 403, 404, 406])
async def test_a_rejection_is_reported_and_not_retried_soon(fake_cluster: FakeCluster, status: int) -> None:
    fake_cluster.set_response(PATH, build_status_response(status, "Refused", "not allowed"))
    async with run_watch(fake_cluster, ScriptedCluster()) as listener:
        await listener.wait_until(lambda: bool(listener.calls))
        await asyncio.sleep(0)
    assert listener.calls == [("state", (False, "not allowed"))]
    assert len(fake_cluster.requests) == 1


@pytest.mark.parametrize(
    "invalid_event",
    [
        b"no json\n",
        b"[]\n",
        {"type": "ADDED"},
        {"type": "ADDED", "object": {"metadata": []}},
        {"type": "ADDED", "object": {"metadata": {"name": 7, "resourceVersion": "1"}}},
        {"type": "ADDED", "object": {"metadata": {"name": "x", "namespace": {}, "resourceVersion": "1"}}},
        {"type": "ADDED", "object": {"metadata": {"name": "x"}}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1" * 1000}}},
        {"type": "ODD", "object": {"metadata": {"name": "x", "resourceVersion": "1"}}},
        b"x" * 5000,
    ],
)
async def test_an_invalid_event_ends_the_watch_and_not_the_server(
    fake_cluster: FakeCluster, invalid_event: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_EVENT_BYTES", 4000)
    cluster = ScriptedCluster([invalid_event], [build_event("ADDED", "two", 11)])
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: ("object", "two") in listener.calls)
    assert ("state", (False, "")) in listener.calls


@pytest.mark.parametrize(
    "response",
    [
        CannedResponse(200, b"no json"),
        build_json_response({"items": "x", "metadata": {"resourceVersion": "1"}}),
        build_json_response({"items": [7], "metadata": {"resourceVersion": "1"}}),
        build_json_response({"items": []}),
        CannedResponse(200, b" " * 5000),
    ],
)
async def test_an_invalid_list_is_retried(
    fake_cluster: FakeCluster, response: CannedResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_PAGE_BYTES", 4000)
    fake_cluster.set_response(PATH, response)
    async with run_watch(fake_cluster, ScriptedCluster()) as listener:
        await listener.wait_until(lambda: len(fake_cluster.requests) >= 2)
        await listener.wait_until(lambda: listener.count("state") >= 2)
    assert all(value == (False, "") for method, value in listener.calls if method == "state")


async def test_more_objects_than_the_limit_are_not_watched(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_OBJECTS", 2)
    async with run_watch(fake_cluster, ScriptedCluster(pages=[build_page("a", "b", "c", version=1)])) as listener:
        await listener.wait_until(lambda: listener.count("state") == 1)
    assert "more than 2 objects" in listener.calls[-1][1][1]


LONG_NAME = "x" * (MAX_NAME + 1)


async def test_objects_with_names_over_the_limit_are_ignored_and_do_not_end_the_watch(
    fake_cluster: FakeCluster,
) -> None:
    """Users who can create RoleBindings can give them such names."""
    long_namespace_event = {
        "type": "ADDED",
        "object": build_partial_metadata({"name": "x", "namespace": LONG_NAME, "resourceVersion": "13"}),
    }
    events: list[Object | bytes] = [
        build_event("ADDED", LONG_NAME, 11),
        build_event("DELETED", LONG_NAME, 12),
        long_namespace_event,
        build_event("ADDED", "two", 14),
    ]
    async with run_watch(
        fake_cluster, ScriptedCluster(events, pages=[build_page("one", LONG_NAME, version=10)])
    ) as listener:
        await listener.wait_until(lambda: ("object", "two") in listener.calls)
    expected = [("object", "one"), ("listed", {("n", "one")}), ("state", (True, "")), ("object", "two")]
    assert listener.calls == expected


async def test_the_number_of_pages_is_limited(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_OBJECTS", 300)
    cluster = ScriptedCluster(pages=[build_page(version=1, continue_token="more")])
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: listener.count("state") == 1)
    assert "too many pages" in listener.calls[-1][1][1]
    assert len(cluster.requests) == 2 * 300 // watch.PAGE_SIZE + 1


async def test_a_list_has_a_timeout(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if each page arrives in time."""
    monkeypatch.setattr(watch, "FULL_LIST_SECONDS", 0.2)
    cluster = ScriptedCluster(pages=[build_page(version=1, continue_token="more")])

    async def respond(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.05)
        return await cluster(request, reader, writer)

    async with run_watch(fake_cluster, respond) as listener:
        await listener.wait_until(lambda: listener.count("state") == 1)
    assert listener.calls == [("state", (False, ""))]


@pytest.mark.parametrize("continue_token", ["x" * 4097, 7, ["x"]])
async def test_an_invalid_continue_token_is_not_sent_back(fake_cluster: FakeCluster, continue_token: Any) -> None:
    cluster = ScriptedCluster(
        [], pages=[build_page(version=1, continue_token=continue_token), build_page("one", version=2)]
    )
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: listener.count("listed") == 1)
    assert [request.query.get("continue", "") for request in cluster.requests[:2]] == ["", ""]


async def test_a_page_over_the_limit_is_requested_again_with_fewer_objects(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_PAGE_BYTES", 4000)
    large = build_page(*(f"name-{number}" for number in range(100)), version=1)
    cluster = ScriptedCluster([], pages=[large, large, build_page("one", version=2)])
    async with run_watch(fake_cluster, cluster) as listener:
        await listener.wait_until(lambda: listener.count("listed") == 1)
    assert [request.query.get("limit") for request in cluster.requests[:3]] == ["100", "25", "6"]


class NullSource:
    """The source of a response whose chunks come from the test."""

    def pause(self) -> None:
        """There is nothing to pause."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        """See `pause`."""


def build_response(*chunks: bytes) -> Response:
    response = Response(NullSource(), asyncio.get_running_loop().create_future())
    response.status = 200
    response.head_received.set_result(None)
    for chunk in chunks:
        response.feed(chunk)
    return response


async def test_a_line_is_not_scanned_again_for_each_of_its_chunks() -> None:
    """Thirty thousand chunks of one byte after two million bytes: copying the line for each of them takes minutes."""
    response = build_response(b" " * 2_000_000)
    lines = aiter(watch.iter_lines(response))
    line = asyncio.ensure_future(anext(lines))
    async with asyncio.timeout(20):
        for _ in range(30_000):
            response.feed(b" ")
            await asyncio.sleep(0)
        response.feed(b"{}\n\n{")
        assert len(await line) == 2_030_002
        response.feed(b"}\n")
        assert await anext(lines) == b"{}"


class ShortWatchServer:
    """A server whose watches send one bookmark and end."""

    def __init__(self) -> None:
        self.watches = 0

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        is_watch = "watch=true" in request.target
        self.watches += is_watch
        response = build_response(
            json.dumps(build_bookmark(11) if is_watch else build_page(version=10)).encode() + b"\n"
        )
        response.finish()
        return response


@on_virtual_time
async def test_watches_that_end_at_once_are_restarted_with_growing_delays() -> None:
    server = ShortWatchServer()
    task = asyncio.create_task(RemoteWatch(lambda: server, PATH, "a=b", RecordingListener()).run())
    await asyncio.sleep(600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 600 / RETRY.max_seconds / 2 < server.watches < 3 * 600 / RETRY.max_seconds
