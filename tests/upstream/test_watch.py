"""List and watch of a remote cluster over real sockets: what is told, what is resumed, and what is not believed."""

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
from fairlead.upstream.watch import MAX_NAME, MAX_RETRY_SECONDS, RemoteWatch
from tests.fake_cluster.exchange import Answer, RecordedRequest, as_json, status_object
from tests.fake_cluster.kube_watch import EXPIRED, bookmark, partial
from tests.fake_cluster.server import FakeCluster
from tests.harness.virtual_time import on_virtual_time
from tests.upstream.upstreams import reaching

PATH = "/api/v1/configmaps"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


class Heard:
    """A listener that writes down what it is told, and can be waited for."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self._news = asyncio.Event()

    def on_object(self, meta: Object) -> None:
        self._note("saw", meta["name"])

    def on_deleted(self, meta: Object) -> None:
        self._note("lost", meta["name"])

    def on_list_complete(self, names: set[tuple[str, str]]) -> None:
        self._note("listed", names)

    def on_watch_state(self, following: bool, refusal: str = "") -> None:
        self._note("became", (following, refusal))

    def _note(self, what: str, value: Any) -> None:
        self.told.append((what, value))
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def count(self, what: str) -> int:
        return sum(each == what for each, _ in self.told)


class Script:
    """Lists with these pages; each watch gets the next of these lines, and then the silence of an open stream."""

    def __init__(self, *watches: list[Object | bytes], pages: list[Object] | None = None) -> None:
        self.asked: list[RecordedRequest] = []
        self._watches = list(watches)
        self._pages = pages or [page("one", version=10)]
        self._lists = 0

    async def __call__(
        self, asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.asked.append(asked)
        if asked.query.get("watch") != "true":
            content = self._pages[self._lists % len(self._pages)]
            self._lists += 1
            writer.write(as_json(content).wire("GET"))
            return True
        writer.write(HEAD)
        for event in self._watches.pop(0) if self._watches else ():
            line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        if self._watches:
            writer.write(b"0\r\n\r\n")
            return True
        await reader.read()
        return False


def page(*names: str, version: int, going_on: Any = "") -> Object:
    meta = {"resourceVersion": str(version), **({"continue": going_on} if going_on else {})}
    items = [partial({"name": name, "namespace": "n", "resourceVersion": "1"}) for name in names]
    return {"kind": "PartialObjectMetadataList", "metadata": meta, "items": items}


def event(type: str, name: str, version: int) -> Object:
    return {"type": type, "object": partial({"name": name, "namespace": "n", "resourceVersion": str(version)})}


@asynccontextmanager
async def following(far: FakeCluster, script: Any) -> AsyncIterator[Heard]:
    far.behave(PATH, script)
    heard = Heard()
    async with reaching(far) as upstream:
        task = asyncio.create_task(RemoteWatch(lambda: upstream, PATH, "a=b,c", heard).run())
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def versions(script: Script) -> list[str]:
    """What each request began at: nothing for a list."""
    return [each.query.get("resourceVersion", "") for each in script.asked]


async def test_what_is_there_is_listed_and_then_followed(fake_cluster: FakeCluster) -> None:
    script = Script([event("ADDED", "two", 11), event("MODIFIED", "one", 12), event("DELETED", "two", 13)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: ("lost", "two") in heard.told)
    assert heard.told == [
        ("saw", "one"),
        ("listed", {("n", "one")}),
        ("became", (True, "")),
        ("saw", "two"),
        ("saw", "one"),
        ("lost", "two"),
    ]
    listing, watching = script.asked
    assert listing.query["labelSelector"] == watching.query["labelSelector"] == "a=b,c"
    assert "as=PartialObjectMetadataList;" in listing.header("accept")
    assert "as=PartialObjectMetadata;" in watching.header("accept")
    assert watching.query["allowWatchBookmarks"] == "true"


async def test_lists_come_in_pages(fake_cluster: FakeCluster) -> None:
    script = Script([], pages=[page("one", version=10, going_on="next"), page(version=10)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: ("became", (True, "")) in heard.told)
    assert ("listed", {("n", "one")}) in heard.told
    assert [each.query.get("continue", "") for each in script.asked] == ["", "next", ""]


async def test_a_watch_that_ends_is_resumed_after_the_last_bookmark(fake_cluster: FakeCluster) -> None:
    script = Script([event("ADDED", "two", 11), bookmark(15)], [event("ADDED", "three", 16)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: ("saw", "three") in heard.told)
    assert versions(script) == ["", "10", "15"]
    assert heard.count("listed") == 1


async def test_a_version_that_is_too_old_is_answered_with_a_new_list(fake_cluster: FakeCluster) -> None:
    script = Script([{"type": "ERROR", "object": EXPIRED}], [event("ADDED", "two", 11)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: ("saw", "two") in heard.told)
    assert versions(script) == ["", "10", "", "10"]
    assert ("became", (False, "")) in heard.told


async def test_so_is_an_answer_of_410(fake_cluster: FakeCluster) -> None:
    script, answers = Script([event("ADDED", "two", 11)]), 0

    async def behaving(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal answers
        if asked.query.get("watch") == "true" and not answers:
            answers += 1
            writer.write(status_object(410, "Expired", "too old resource version").wire("GET"))
            return True
        return await script(asked, reader, writer)

    async with following(fake_cluster, behaving) as heard:
        await heard.until(lambda: ("saw", "two") in heard.told)
    assert heard.count("listed") == 2


async def test_a_connection_that_breaks_is_made_again_and_goes_on_where_it_was(fake_cluster: FakeCluster) -> None:
    script = Script([event("ADDED", "two", 11)], [])

    async def behaving(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await script(asked, reader, writer)
        return asked.query.get("watch") != "true"

    script._watches.append([event("ADDED", "three", 12)])
    async with following(fake_cluster, behaving) as heard:
        await heard.until(lambda: ("saw", "three") in heard.told)
    assert heard.count("listed") == 1
    assert set(versions(script)) == {"", "10", "11"}


async def test_a_server_that_says_nothing_is_asked_anew(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that does not have the version yet."""
    monkeypatch.setattr(watch, "MAX_SILENCE_SECONDS", 0.2)
    async with following(fake_cluster, Script([])) as heard:
        await heard.until(lambda: heard.count("listed") == 2)


@pytest.mark.parametrize("status", [401, 403, 404, 406])
async def test_a_refusal_is_told_and_not_repeated_soon(fake_cluster: FakeCluster, status: int) -> None:
    fake_cluster.answer(PATH, status_object(status, "Refused", "you may not"))
    async with following(fake_cluster, Script()) as heard:
        await heard.until(lambda: bool(heard.told))
        await asyncio.sleep(0)
    assert heard.told == [("became", (False, "you may not"))]
    assert len(fake_cluster.seen) == 1


@pytest.mark.parametrize(
    "bad",
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
async def test_an_event_that_no_kubernetes_sends_ends_the_watch_and_not_the_server(
    fake_cluster: FakeCluster, bad: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_EVENT_BYTES", 4000)
    script = Script([bad], [event("ADDED", "two", 11)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: ("saw", "two") in heard.told)
    assert ("became", (False, "")) in heard.told


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"no json"),
        as_json({"items": "x", "metadata": {"resourceVersion": "1"}}),
        as_json({"items": [7], "metadata": {"resourceVersion": "1"}}),
        as_json({"items": []}),
        Answer(200, b" " * 5000),
    ],
)
async def test_a_list_that_no_kubernetes_sends_is_tried_again(
    fake_cluster: FakeCluster, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_PAGE_BYTES", 4000)
    fake_cluster.answer(PATH, answer)
    async with following(fake_cluster, Script()) as heard:
        await heard.until(lambda: len(fake_cluster.seen) >= 2)
        await heard.until(lambda: heard.count("became") >= 2)
    assert all(value == (False, "") for what, value in heard.told if what == "became")


async def test_more_objects_than_anybody_needs_are_not_followed(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_OBJECTS", 2)
    async with following(fake_cluster, Script(pages=[page("a", "b", "c", version=1)])) as heard:
        await heard.until(lambda: heard.count("became") == 1)
    assert "more than 2 objects" in heard.told[-1][1][1]


LONG = "x" * (MAX_NAME + 1)


async def test_names_longer_than_any_of_ours_are_passed_over_and_end_no_watch(fake_cluster: FakeCluster) -> None:
    """Whoever may make RoleBindings can give them such names."""
    stray = {"type": "ADDED", "object": partial({"name": "x", "namespace": LONG, "resourceVersion": "13"})}
    events: list[Object | bytes] = [
        event("ADDED", LONG, 11),
        event("DELETED", LONG, 12),
        stray,
        event("ADDED", "two", 14),
    ]
    async with following(fake_cluster, Script(events, pages=[page("one", LONG, version=10)])) as heard:
        await heard.until(lambda: ("saw", "two") in heard.told)
    told = [("saw", "one"), ("listed", {("n", "one")}), ("became", (True, "")), ("saw", "two")]
    assert heard.told == told


async def test_pages_without_end_are_not_read_without_end(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_OBJECTS", 300)
    script = Script(pages=[page(version=1, going_on="more")])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: heard.count("became") == 1)
    assert "too many pages" in heard.told[-1][1][1]
    assert len(script.asked) == 2 * 300 // watch.PAGE_SIZE + 1


async def test_a_list_that_takes_too_long_is_given_up(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if each page comes in time."""
    monkeypatch.setattr(watch, "FULL_LIST_SECONDS", 0.2)
    script = Script(pages=[page(version=1, going_on="more")])

    async def behaving(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.05)
        return await script(asked, reader, writer)

    async with following(fake_cluster, behaving) as heard:
        await heard.until(lambda: heard.count("became") == 1)
    assert heard.told == [("became", (False, ""))]


@pytest.mark.parametrize("going_on", ["x" * 4097, 7, ["x"]])
async def test_a_continue_token_that_no_kubernetes_sends_is_not_sent_back(
    fake_cluster: FakeCluster, going_on: Any
) -> None:
    script = Script([], pages=[page(version=1, going_on=going_on), page("one", version=2)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: heard.count("listed") == 1)
    assert [each.query.get("continue", "") for each in script.asked[:2]] == ["", ""]


async def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_PAGE_BYTES", 4000)
    large = page(*(f"name-{number}" for number in range(100)), version=1)
    script = Script([], pages=[large, large, page("one", version=2)])
    async with following(fake_cluster, script) as heard:
        await heard.until(lambda: heard.count("listed") == 1)
    assert [each.query.get("limit") for each in script.asked[:3]] == ["100", "25", "6"]


class Connection:
    """Where an answer comes from that the test feeds itself."""

    def pause(self) -> None:
        """Nothing is read ahead."""

    def resume(self) -> None:
        """See `pause`."""

    def abort(self) -> None:
        """See `pause`."""


def fed(*chunks: bytes) -> Response:
    response = Response(Connection(), asyncio.get_running_loop().create_future())
    response.status = 200
    response.head_received.set_result(None)
    for chunk in chunks:
        response.feed(chunk)
    return response


async def test_a_line_is_not_gone_through_again_for_each_of_its_pieces() -> None:
    """Thirty thousand pieces of a byte after two million: it takes minutes to copy the line for each."""
    response = fed(b" " * 2_000_000)
    lines = aiter(watch._iter_lines(response))
    line = asyncio.ensure_future(anext(lines))
    async with asyncio.timeout(20):
        for _ in range(30_000):
            response.feed(b" ")
            await asyncio.sleep(0)
        response.feed(b"{}\n\n{")
        assert len(await line) == 2_030_002
        response.feed(b"}\n")
        assert await anext(lines) == b"{}"


class Hasty:
    """A server whose every watch sends one bookmark and ends."""

    def __init__(self) -> None:
        self.watches = 0

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        is_watch = "watch=true" in request.target
        self.watches += is_watch
        response = fed(json.dumps(bookmark(11) if is_watch else page(version=10)).encode() + b"\n")
        response.finish()
        return response


@on_virtual_time
async def test_watches_that_end_right_away_are_begun_less_and_less_often() -> None:
    hasty = Hasty()
    task = asyncio.create_task(RemoteWatch(lambda: hasty, PATH, "a=b", Heard()).run())
    await asyncio.sleep(600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 600 / MAX_RETRY_SECONDS / 2 < hasty.watches < 3 * 600 / MAX_RETRY_SECONDS
