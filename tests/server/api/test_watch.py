"""Watches as streams of lines: framing, bookmarks, time limits, and an honest end. On virtual time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from fairlead.core.errors import ApiError
from fairlead.core.user import User
from fairlead.registry.kind import Column
from fairlead.registry.resource import Resource
from fairlead.server.api import query_options
from fairlead.server.api.watch import BOOKMARK_SECONDS, INITIAL_EVENTS_END, WatchLimits, WatchRequest, WatchService
from fairlead.server.flow.streams import StreamLimiter
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import on_virtual_time

# On virtual time nothing takes long, unless a stream runs in circles.
pytestmark = pytest.mark.timeout(5)

LIMITS = WatchLimits(default_seconds=1800, queue_size=100)
WATCH_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def opened(
    api: RegistryFixture,
    query: str = "",
    view: str = "",
    limits: WatchLimits = LIMITS,
    resource: Resource | None = None,
) -> AsyncIterator[bytes]:
    resource = resource or api.of("Gadget")
    asked = query_options.watch_query(call(query=query), resource.kind)
    return await WatchService(limits, api.clock, StreamLimiter(100, 10)).open(
        WatchRequest(resource, "", asked, view), User("ada")
    )


def events(chunks: list[bytes]) -> list[tuple[str, Any]]:
    """Type and object of each event. Chunks hold whole lines, each of them one JSON text."""
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    parsed = [orjson.loads(line) for chunk in chunks for line in chunk.splitlines()]
    assert all(set(event) == {"type", "object"} for event in parsed)
    return [(event["type"], event["object"]) for event in parsed]


def told(chunks: list[bytes]) -> list[str]:
    """`ADDED a` and so on; bookmarks and errors by their type alone."""
    return [f"{type} {obj['metadata'].get('name', '')}".strip() for type, obj in events(chunks)]


async def everything(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in stream]


async def meanwhile(api: RegistryFixture, stream: AsyncIterator[bytes], *names: str) -> list[bytes]:
    """What the stream says until its end while gadgets are created, each a second after the other."""
    reading = asyncio.ensure_future(everything(stream))
    for name in names:
        await asyncio.sleep(1)
        await api.create("Gadget", name)
    return await reading


@on_virtual_time
async def test_what_exists_comes_first_and_then_what_happens() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        chunks = await meanwhile(api, await opened(api, "timeoutSeconds=60"), "b", "c")
    assert told(chunks) == ["ADDED a", "ADDED b", "ADDED c"]


@on_virtual_time
async def test_an_event_is_told_when_it_happens() -> None:
    async with open_registry() as api:
        stream = await opened(api, "timeoutSeconds=60")
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(5)
        await api.create("Gadget", "a")
        assert told([await reading]) == ["ADDED a"]
        assert api.clock.monotonic() < 6


@on_virtual_time
async def test_who_knows_a_version_hears_only_what_came_after_it() -> None:
    async with open_registry() as api:
        known = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        stream = await opened(api, f"resourceVersion={known}&timeoutSeconds=9")
        assert told(await meanwhile(api, stream, "c")) == ["ADDED b", "ADDED c"]


@on_virtual_time
async def test_every_watcher_hears_the_same() -> None:
    async with open_registry() as api:
        streams = [await opened(api, "timeoutSeconds=9") for _ in range(3)]
        readers = [asyncio.ensure_future(everything(stream)) for stream in streams]
        await api.create("Gadget", "a")
        await api.delete("Gadget", "a")
        assert [told(await reader) for reader in readers] == [["ADDED a", "DELETED a"]] * 3


# --- time


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 7200])
@on_virtual_time
async def test_a_watch_ends_when_its_time_is_over(seconds: int) -> None:
    async with open_registry() as api:
        begun = api.clock.monotonic()
        assert await everything(await opened(api, f"timeoutSeconds={seconds}")) == []
        assert api.clock.monotonic() - begun == pytest.approx(seconds)


@on_virtual_time
async def test_a_watch_that_does_not_say_lasts_between_once_and_twice_the_minimum() -> None:
    lengths = []
    async with open_registry() as api:
        for _ in range(20):
            begun = api.clock.monotonic()
            await everything(await opened(api))
            lengths.append(api.clock.monotonic() - begun)
    assert all(1800 <= length <= 3601 for length in lengths)
    assert len(set(lengths)) > 1, "clients that connected together would all come back together"


@pytest.mark.parametrize("text", ["-1", "-100000"])
@on_virtual_time
async def test_a_time_that_is_already_over_is_over(text: str) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        assert told(await everything(await opened(api, f"timeoutSeconds={text}"))) == ["ADDED a"]
        assert api.clock.monotonic() < 1


@on_virtual_time
async def test_events_that_wait_when_the_time_is_over_are_still_told() -> None:
    async with open_registry() as api:
        stream = await opened(api, f"resourceVersion={api.view.revision}&timeoutSeconds=1")
        await api.create("Gadget", "a")
        await asyncio.sleep(5)
        assert told(await everything(stream)) == ["ADDED a"]


# --- bookmarks


@on_virtual_time
async def test_bookmarks_come_every_minute_and_at_the_end_for_those_who_asked() -> None:
    async with open_registry() as api:
        chunks = await everything(await opened(api, "allowWatchBookmarks=true&timeoutSeconds=150"))
    assert told(chunks) == ["BOOKMARK", "BOOKMARK", "BOOKMARK"]


@pytest.mark.parametrize("query", ["", "&allowWatchBookmarks=false", f"&{WATCH_LIST}"])
@on_virtual_time
async def test_who_did_not_ask_for_bookmarks_gets_none(query: str) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        chunks = await everything(await opened(api, f"timeoutSeconds=150{query}"))
    assert told(chunks) == ["ADDED a"]


@on_virtual_time
async def test_a_bookmark_is_an_almost_empty_object_with_a_version() -> None:
    async with open_registry() as api:
        ((_, obj),) = events(await everything(await opened(api, "allowWatchBookmarks=1&timeoutSeconds=1")))
        version = str(api.view.revision)
    assert obj == {
        "kind": "Gadget",
        "apiVersion": "management.service.sh/v1",
        "metadata": {"resourceVersion": version, "creationTimestamp": None},
    }


@on_virtual_time
async def test_a_bookmark_moves_on_with_what_happens_to_other_kinds() -> None:
    async with open_registry() as api:
        stream = await opened(api, "allowWatchBookmarks=1&timeoutSeconds=9")
        await api.create("ConfigMap", "other")
        ((_, obj),) = events(await everything(stream))
        assert obj["metadata"]["resourceVersion"] == str(api.view.revision)


@on_virtual_time
async def test_a_bookmark_is_never_ahead_of_what_was_told() -> None:
    """Resumed from any bookmark, nothing that comes after it in the stream is missing."""
    async with open_registry() as api:
        stream = await opened(api, "allowWatchBookmarks=1&timeoutSeconds=600")
        reading = asyncio.ensure_future(everything(stream))
        for number in range(40):
            await asyncio.sleep(BOOKMARK_SECONDS / 4)
            await api.create("Gadget", f"g{number}")
        seen = 0
        kinds = set()
        for type, obj in events(await reading):
            version = int(obj["metadata"]["resourceVersion"])
            assert version >= seen if type == "BOOKMARK" else version > seen
            seen = version
            kinds.add(type)
    assert kinds == {"ADDED", "BOOKMARK"}


@on_virtual_time
async def test_a_watcher_can_go_on_from_a_bookmark() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        *_, (_, last) = events(await everything(await opened(api, "allowWatchBookmarks=1&timeoutSeconds=1")))
        await api.create("Gadget", "b")
        version = last["metadata"]["resourceVersion"]
        assert told(await everything(await opened(api, f"resourceVersion={version}&timeoutSeconds=1"))) == ["ADDED b"]


# --- initial events


@on_virtual_time
async def test_the_end_of_what_exists_is_marked_for_those_who_asked() -> None:
    async with open_registry() as api:
        for name in ("a", "b"):
            await api.create("Gadget", name)
        version = str(api.view.revision)
        stream = await opened(api, f"{WATCH_LIST}&allowWatchBookmarks=true&timeoutSeconds=9")
        chunks = await meanwhile(api, stream, "c")
        assert told(chunks) == ["ADDED a", "ADDED b", "BOOKMARK", "ADDED c", "BOOKMARK"]
        mark, last = (obj["metadata"] for type, obj in events(chunks) if type == "BOOKMARK")
        assert (mark["annotations"], mark["resourceVersion"]) == ({INITIAL_EVENTS_END: "true"}, version)
        assert "annotations" not in last


@on_virtual_time
async def test_the_mark_comes_at_once_where_nothing_exists() -> None:
    async with open_registry() as api:
        stream = await opened(api, f"{WATCH_LIST}&allowWatchBookmarks=true&timeoutSeconds=9")
        (mark,) = events([await anext(stream)])
        assert mark[1]["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


@on_virtual_time
async def test_what_exists_comes_first_even_for_who_knows_a_version_if_that_is_asked_for() -> None:
    async with open_registry() as api:
        known = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        stream = await opened(api, f"{WATCH_LIST}&resourceVersion={known}&timeoutSeconds=1")
        assert told(await everything(stream)) == ["ADDED a", "ADDED b"]


@on_virtual_time
async def test_who_wants_no_initial_events_hears_only_what_is_new() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=9"
        assert told(await meanwhile(api, await opened(api, query), "b")) == ["ADDED b"]


@on_virtual_time
async def test_initial_events_are_not_older_than_was_asked_for() -> None:
    """A version of the future is waited for, and refused when it does not come, here as everywhere."""
    async with open_registry() as api:
        with pytest.raises(ApiError) as caught:
            await opened(api, f"{WATCH_LIST}&resourceVersion={api.view.revision + 1000}")
        assert caught.value.code == 504


# --- errors and other ends


@on_virtual_time
async def test_a_version_that_is_too_old_is_an_error_event_and_the_end() -> None:
    async with open_registry() as api:
        known = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        api.view.discard_before(api.view.revision)
        ((type, status),) = events(await everything(await opened(api, f"resourceVersion={known}")))
    assert (type, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")


@on_virtual_time
async def test_a_watcher_that_cannot_keep_up_is_told_so_and_let_go() -> None:
    async with open_registry() as api:
        stream = await opened(api, limits=WatchLimits(1800, queue_size=3))
        await api.create("Gadget", "a")
        assert told([await anext(stream)]) == ["ADDED a"]
        for number in range(10):
            await api.create("Gadget", f"g{number}")
        ((type, status),) = events(await everything(stream))
    assert (type, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert "list again" in status["message"]


@on_virtual_time
async def test_what_waits_is_told_in_one_piece_as_long_as_it_fits() -> None:
    async with open_registry() as api:
        stream = await opened(api, "timeoutSeconds=9", limits=WatchLimits(1800, queue_size=3))
        await api.create("Gadget", "a")
        await anext(stream)
        for name in ("b", "c", "d"):
            await api.create("Gadget", name)
        assert told([await anext(stream)]) == ["ADDED b", "ADDED c", "ADDED d"]


@on_virtual_time
async def test_a_server_that_stops_ends_its_watches_after_what_waits() -> None:
    async with open_registry() as api:
        stream = await opened(api, f"resourceVersion={api.view.revision}")
        await api.create("Gadget", "a")
        api.view.end_watches()
        assert told(await everything(stream)) == ["ADDED a"]
        assert api.clock.monotonic() < 1


@on_virtual_time
async def test_a_server_that_stops_leaves_a_last_bookmark_to_those_who_asked() -> None:
    async with open_registry() as api:
        stream = await opened(api, "allowWatchBookmarks=1")
        reading = asyncio.ensure_future(everything(stream))
        await asyncio.sleep(1)
        api.view.end_watches()
        assert told(await reading) == ["BOOKMARK"]


@on_virtual_time
async def test_a_watch_that_begins_while_the_server_stops_ends_at_once() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        api.view.end_watches()
        assert told(await everything(await opened(api))) == ["ADDED a"]


@on_virtual_time
async def test_a_stream_that_is_closed_no_longer_listens() -> None:
    async with open_registry() as api:
        kind = api.of("Gadget").kind
        stream = await opened(api)
        await api.create("Gadget", "a")
        await anext(stream)
        watchers = api.view._collection(kind.group, kind.plural).watchers
        assert len(watchers._watchers) == 1
        await stream.aclose()  # type: ignore[attr-defined]
        assert len(watchers._watchers) == 0


@on_virtual_time
async def test_a_fault_of_ours_ends_the_stream_with_an_error_and_not_as_if_all_were_well() -> None:
    def surprise(obj: object) -> str:
        raise ZeroDivisionError("what only the log may know")

    async with open_registry() as api:
        resource = api.of("Gadget")
        resource.kind = replace(resource.kind, columns=(Column("Broken", surprise),))
        await api.create("Gadget", "a")
        ((type, status),) = events(await everything(await opened(api, view="Table", resource=resource)))
    assert (type, status["code"], status["reason"]) == ("ERROR", 500, "InternalError")
    assert "only the log" not in orjson.dumps(status).decode()


# --- views


@on_virtual_time
async def test_events_can_come_as_tables_of_one_row() -> None:
    async with open_registry() as api:
        made = await api.create("Gadget", "a")
        chunks = await meanwhile(api, await opened(api, "timeoutSeconds=9", view="Table"), "b")
    first, second = (obj for _, obj in events(chunks))
    assert first["kind"] == second["kind"] == "Table"
    assert [row["cells"][0] for table in (first, second) for row in table["rows"]] == ["a", "b"]
    assert first["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert first["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@on_virtual_time
async def test_events_can_come_as_metadata_alone() -> None:
    async with open_registry() as api:
        made = await api.create("Gadget", "a")
        ((_, obj),) = events(await everything(await opened(api, "timeoutSeconds=1", view="PartialObjectMetadata")))
    assert obj == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}


@pytest.mark.parametrize(
    ("include", "carried"),
    [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "Gadget"), ("None", None)],
)
@on_virtual_time
async def test_the_rows_of_a_table_carry_along_what_was_asked_for(include: str, carried: str | None) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        stream = await opened(api, f"timeoutSeconds=1&includeObject={include}", view="Table")
        ((_, shown),) = events(await everything(stream))
        assert shown["rows"][0].get("object", {}).get("kind") == carried
