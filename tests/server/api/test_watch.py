"""server.api.watch: framing, bookmarks, timeouts and the end of watch streams. On virtual time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

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
from tests.server.api.watch_streams import LIMITS, describe_events, parse_events, read_all

# On virtual time nothing takes long, unless a stream loops forever.
pytestmark = pytest.mark.timeout(30)

WATCH_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def open_watch(
    api: RegistryFixture,
    query: str = "",
    view: str = "",
    limits: WatchLimits = LIMITS,
    resource: Resource | None = None,
) -> AsyncIterator[bytes]:
    resource = resource or api.resource("Gadget")
    watch_query = query_options.watch_query(call(query=query), resource.kind)
    return await WatchService(limits, api.clock, StreamLimiter(100, 10)).open(
        WatchRequest(resource, "", watch_query, view), User("ada")
    )


async def read_while_creating(api: RegistryFixture, stream: AsyncIterator[bytes], *names: str) -> list[bytes]:
    """All chunks of the stream, while gadgets are created, one per second."""
    reading = asyncio.ensure_future(read_all(stream))
    for name in names:
        await asyncio.sleep(1)
        await api.create("Gadget", name)
    return await reading


@on_virtual_time
async def test_initial_events_come_before_changes() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        chunks = await read_while_creating(api, await open_watch(api, "timeoutSeconds=60"), "b", "c")
    assert describe_events(chunks) == ["ADDED a", "ADDED b", "ADDED c"]


@on_virtual_time
async def test_an_event_is_sent_when_it_happens() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, "timeoutSeconds=60")
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(5)
        await api.create("Gadget", "a")
        assert describe_events([await reading]) == ["ADDED a"]
        assert api.clock.monotonic() < 6


@on_virtual_time
async def test_a_watch_from_a_resource_version_gets_only_later_events() -> None:
    async with open_registry() as api:
        version = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        stream = await open_watch(api, f"resourceVersion={version}&timeoutSeconds=9")
        assert describe_events(await read_while_creating(api, stream, "c")) == ["ADDED b", "ADDED c"]


@on_virtual_time
async def test_a_watch_gets_changes_that_are_made_before_its_stream_is_read() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=9")
        await api.create("Gadget", "a")
        assert describe_events(await read_all(stream)) == ["ADDED a"]


@on_virtual_time
async def test_all_watches_get_the_same_events() -> None:
    async with open_registry() as api:
        streams = [await open_watch(api, "timeoutSeconds=9") for _ in range(3)]
        readers = [asyncio.ensure_future(read_all(stream)) for stream in streams]
        await api.create("Gadget", "a")
        await api.delete("Gadget", "a")
        assert [describe_events(await reader) for reader in readers] == [["ADDED a", "DELETED a"]] * 3


# --- timeouts


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 7200])
@on_virtual_time
async def test_a_watch_ends_after_its_timeout(seconds: int) -> None:
    async with open_registry() as api:
        started_at = api.clock.monotonic()
        assert await read_all(await open_watch(api, f"timeoutSeconds={seconds}")) == []
        assert api.clock.monotonic() - started_at == pytest.approx(seconds)


@on_virtual_time
async def test_a_watch_without_a_timeout_lasts_between_once_and_twice_the_minimum() -> None:
    durations = []
    async with open_registry() as api:
        for _ in range(20):
            started_at = api.clock.monotonic()
            await read_all(await open_watch(api))
            durations.append(api.clock.monotonic() - started_at)
    assert all(1800 <= duration <= 3601 for duration in durations)
    assert len(set(durations)) > 1, "clients that connected together would all reconnect together"


@pytest.mark.parametrize("text", ["-1", "-100000"])
@on_virtual_time
async def test_a_watch_with_a_negative_timeout_ends_after_the_initial_events(text: str) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        assert describe_events(await read_all(await open_watch(api, f"timeoutSeconds={text}"))) == ["ADDED a"]
        assert api.clock.monotonic() < 1


@on_virtual_time
async def test_events_that_are_queued_at_the_timeout_are_still_sent() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, f"resourceVersion={api.view.revision}&timeoutSeconds=1")
        await api.create("Gadget", "a")
        await asyncio.sleep(5)
        assert describe_events(await read_all(stream)) == ["ADDED a"]


# --- bookmarks


@on_virtual_time
async def test_bookmarks_are_sent_every_minute_and_at_the_end_if_requested() -> None:
    async with open_registry() as api:
        query = f"resourceVersion={api.view.revision}&allowWatchBookmarks=true&timeoutSeconds=150"
        chunks = await read_all(await open_watch(api, query))
    assert describe_events(chunks) == ["BOOKMARK", "BOOKMARK", "BOOKMARK"]


@pytest.mark.parametrize("query", ["", "&resourceVersion=0"])
@on_virtual_time
async def test_a_watch_without_a_version_marks_the_end_of_its_initial_events(query: str) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        stream = await open_watch(api, f"allowWatchBookmarks=true&timeoutSeconds=1{query}")
        (added, _), (bookmark, marked), _ = parse_events(await read_all(stream))
    assert (added, bookmark) == ("ADDED", "BOOKMARK")
    assert marked["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


@pytest.mark.parametrize("query", ["", "&allowWatchBookmarks=false", f"&{WATCH_LIST}"])
@on_virtual_time
async def test_bookmarks_are_not_sent_unless_requested(query: str) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        chunks = await read_all(await open_watch(api, f"timeoutSeconds=150{query}"))
    assert describe_events(chunks) == ["ADDED a"]


@on_virtual_time
async def test_a_bookmark_is_an_almost_empty_object_with_a_resource_version() -> None:
    async with open_registry() as api:
        *_, (_, obj) = parse_events(await read_all(await open_watch(api, "allowWatchBookmarks=1&timeoutSeconds=1")))
        version = str(api.view.revision)
    assert obj == {
        "kind": "Gadget",
        "apiVersion": "management.service.sh/v1",
        "metadata": {"resourceVersion": version, "creationTimestamp": None},
    }


@on_virtual_time
async def test_the_version_of_a_bookmark_includes_changes_of_other_kinds() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, "allowWatchBookmarks=1&timeoutSeconds=9")
        await api.create("ConfigMap", "other")
        *_, (_, obj) = parse_events(await read_all(stream))
        assert obj["metadata"]["resourceVersion"] == str(api.view.revision)


@on_virtual_time
async def test_a_bookmark_is_never_ahead_of_the_sent_events() -> None:
    """A watch that resumes from any bookmark misses no later event."""
    async with open_registry() as api:
        stream = await open_watch(api, "allowWatchBookmarks=1&timeoutSeconds=600")
        reading = asyncio.ensure_future(read_all(stream))
        for number in range(40):
            await asyncio.sleep(BOOKMARK_SECONDS / 4)
            await api.create("Gadget", f"g{number}")
        latest = 0
        types = set()
        for type, obj in parse_events(await reading):
            version = int(obj["metadata"]["resourceVersion"])
            assert version >= latest if type == "BOOKMARK" else version > latest
            latest = version
            types.add(type)
    assert types == {"ADDED", "BOOKMARK"}


@on_virtual_time
async def test_a_watch_can_resume_from_a_bookmark() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        *_, (_, last) = parse_events(await read_all(await open_watch(api, "allowWatchBookmarks=1&timeoutSeconds=1")))
        await api.create("Gadget", "b")
        version = last["metadata"]["resourceVersion"]
        assert describe_events(
            await read_all(await open_watch(api, f"resourceVersion={version}&timeoutSeconds=1"))
        ) == ["ADDED b"]


# --- initial events


@on_virtual_time
async def test_a_bookmark_marks_the_end_of_the_initial_events_if_requested() -> None:
    async with open_registry() as api:
        for name in ("a", "b"):
            await api.create("Gadget", name)
        version = str(api.view.revision)
        stream = await open_watch(api, f"{WATCH_LIST}&allowWatchBookmarks=true&timeoutSeconds=9")
        chunks = await read_while_creating(api, stream, "c")
        assert describe_events(chunks) == ["ADDED a", "ADDED b", "BOOKMARK", "ADDED c", "BOOKMARK"]
        marker, last = (obj["metadata"] for type, obj in parse_events(chunks) if type == "BOOKMARK")
        assert (marker["annotations"], marker["resourceVersion"]) == ({INITIAL_EVENTS_END: "true"}, version)
        assert "annotations" not in last


@on_virtual_time
async def test_the_bookmark_after_the_initial_events_comes_at_once_if_there_are_none() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, f"{WATCH_LIST}&allowWatchBookmarks=true&timeoutSeconds=9")
        (marker,) = parse_events([await anext(stream)])
        assert marker[1]["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


@on_virtual_time
async def test_initial_events_can_be_requested_with_a_resource_version() -> None:
    async with open_registry() as api:
        version = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        stream = await open_watch(api, f"{WATCH_LIST}&resourceVersion={version}&timeoutSeconds=1")
        assert describe_events(await read_all(stream)) == ["ADDED a", "ADDED b"]


@on_virtual_time
async def test_without_initial_events_a_watch_gets_only_changes() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=9"
        assert describe_events(await read_while_creating(api, await open_watch(api, query), "b")) == ["ADDED b"]


@on_virtual_time
async def test_initial_events_are_not_older_than_the_requested_version() -> None:
    """The server waits for a future version, and rejects the request if it is not reached."""
    async with open_registry() as api:
        with pytest.raises(ApiError) as error:
            await open_watch(api, f"{WATCH_LIST}&resourceVersion={api.view.revision + 1000}")
        assert error.value.code == 504


# --- errors and shutdown


@on_virtual_time
async def test_an_expired_version_is_an_error_event_and_ends_the_watch() -> None:
    async with open_registry() as api:
        version = (await api.create("Gadget", "a"))["metadata"]["resourceVersion"]
        await api.create("Gadget", "b")
        api.view.discard_before(api.view.revision)
        ((type, status),) = parse_events(await read_all(await open_watch(api, f"resourceVersion={version}")))
    assert (type, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")


@on_virtual_time
async def test_a_watch_that_cannot_keep_up_gets_an_error_event_and_ends() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, limits=WatchLimits(1800, queue_size=3))
        await api.create("Gadget", "a")
        assert describe_events([await anext(stream)]) == ["ADDED a"]
        for number in range(10):
            await api.create("Gadget", f"g{number}")
        ((type, status),) = parse_events(await read_all(stream))
    assert (type, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert "list again" in status["message"]


@on_virtual_time
async def test_queued_events_are_sent_in_one_chunk() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, "timeoutSeconds=9", limits=WatchLimits(1800, queue_size=3))
        await api.create("Gadget", "a")
        await anext(stream)
        for name in ("b", "c", "d"):
            await api.create("Gadget", name)
        assert describe_events([await anext(stream)]) == ["ADDED b", "ADDED c", "ADDED d"]


@on_virtual_time
async def test_at_shutdown_watches_end_after_their_queued_events() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, f"resourceVersion={api.view.revision}")
        await api.create("Gadget", "a")
        api.view.end_watches()
        assert describe_events(await read_all(stream)) == ["ADDED a"]
        assert api.clock.monotonic() < 1


@on_virtual_time
async def test_at_shutdown_a_last_bookmark_is_sent_if_requested() -> None:
    async with open_registry() as api:
        stream = await open_watch(api, "allowWatchBookmarks=1")
        reading = asyncio.ensure_future(read_all(stream))
        await asyncio.sleep(1)
        api.view.end_watches()
        assert describe_events(await reading) == ["BOOKMARK", "BOOKMARK"]


@on_virtual_time
async def test_a_watch_that_begins_during_shutdown_ends_at_once() -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        api.view.end_watches()
        assert describe_events(await read_all(await open_watch(api))) == ["ADDED a"]


@on_virtual_time
async def test_a_closed_stream_is_unsubscribed() -> None:
    async with open_registry() as api:
        kind = api.resource("Gadget").kind
        stream = await open_watch(api)
        await api.create("Gadget", "a")
        await anext(stream)
        watchers = api.view._collection(kind.group, kind.plural).watchers
        assert len(watchers._watchers) == 1
        await stream.aclose()  # type: ignore[attr-defined]
        assert len(watchers._watchers) == 0


@on_virtual_time
async def test_an_internal_error_ends_the_stream_with_an_error_event() -> None:
    def raise_zero_division(obj: object) -> str:
        raise ZeroDivisionError("only for the log")

    async with open_registry() as api:
        resource = api.resource("Gadget")
        resource.kind = replace(resource.kind, columns=(Column("Broken", raise_zero_division),))
        await api.create("Gadget", "a")
        ((type, status),) = parse_events(await read_all(await open_watch(api, view="Table", resource=resource)))
    assert (type, status["code"], status["reason"]) == ("ERROR", 500, "InternalError")
    assert "only for the log" not in orjson.dumps(status).decode()


# --- views


@on_virtual_time
async def test_events_can_be_tables_of_one_row() -> None:
    async with open_registry() as api:
        gadget = await api.create("Gadget", "a")
        chunks = await read_while_creating(api, await open_watch(api, "timeoutSeconds=9", view="Table"), "b")
    first, second = (obj for _, obj in parse_events(chunks))
    assert first["kind"] == second["kind"] == "Table"
    assert [row["cells"][0] for table in (first, second) for row in table["rows"]] == ["a", "b"]
    assert first["metadata"]["resourceVersion"] == gadget["metadata"]["resourceVersion"]
    assert first["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@on_virtual_time
async def test_events_can_be_partial_metadata() -> None:
    async with open_registry() as api:
        gadget = await api.create("Gadget", "a")
        ((_, obj),) = parse_events(
            await read_all(await open_watch(api, "timeoutSeconds=1", view="PartialObjectMetadata"))
        )
    assert obj == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": gadget["metadata"]}


@pytest.mark.parametrize(
    ("include", "kind"),
    [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "Gadget"), ("None", None)],
)
@on_virtual_time
async def test_the_rows_of_a_table_include_the_requested_object(include: str, kind: str | None) -> None:
    async with open_registry() as api:
        await api.create("Gadget", "a")
        stream = await open_watch(api, f"timeoutSeconds=1&includeObject={include}", view="Table")
        ((_, table),) = parse_events(await read_all(stream))
        assert (table["rows"][0]["object"] or {}).get("kind") == kind
