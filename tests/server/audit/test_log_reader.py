"""Watches of the audit log: following files, rotation, catching up, and bounded queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fairlead.core.errors import Expired, MethodNotAllowed, TooManyRequests
from fairlead.server.audit import log_reader
from fairlead.server.audit.log_query import EventQuery, Requester
from fairlead.server.audit.log_reader import AuditLogReader, FollowedLine, Subscription
from fairlead.server.audit.log_search import decode_positions
from tests.server.audit.log_lines import LogFiles, build_line

SECONDS = 10.0


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path)


@pytest.fixture(autouse=True)
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "POLL_SECONDS", 0.005)


async def receive(subscription: Subscription, count: int) -> list[FollowedLine]:
    found: list[FollowedLine] = []
    async with asyncio.timeout(SECONDS):
        while len(found) < count:
            found += await subscription.wait(1.0)
    return found


def names(lines: list[FollowedLine]) -> list[str]:
    return [each.event.auditID for each in lines]


@asynccontextmanager
async def watching(files: LogFiles, query: EventQuery | None = None) -> AsyncIterator[Subscription]:
    async with AuditLogReader(files.logs).subscribe(query or EventQuery()) as (subscription, _):
        yield subscription


async def test_a_watch_gets_new_events_in_order_also_after_a_rotation(files: LogFiles) -> None:
    files.write(build_line(0))
    async with watching(files) as subscription:
        files.write(build_line(1))
        assert names(await receive(subscription, 1)) == ["id-1"]
        files.write(build_line(2))
        files.rotate(3, compress=True)
        files.write(build_line(4))
        files.rotate(5)
        files.write(build_line(6))
        assert names(await receive(subscription, 3)) == ["id-2", "id-4", "id-6"]


async def test_a_watch_of_a_log_without_files_gets_the_first_event(files: LogFiles) -> None:
    async with watching(files) as subscription:
        files.write(build_line(0))
        assert names(await receive(subscription, 1)) == ["id-0"]


async def test_watches_only_get_what_they_select(files: LogFiles) -> None:
    reader = AuditLogReader(files.logs)
    own = EventQuery(own=Requester("bob", "u-bob"))
    async with reader.subscribe(EventQuery()) as (everything, _), reader.subscribe(own) as (of_bob, _):
        files.write(build_line(0), build_line(1, user={"username": "bob", "uid": "u-bob"}))
        files.write(build_line(2, user={"username": "bob", "uid": "u-bob"}), log=2)
        assert names(await receive(of_bob, 1)) == ["id-1"]
        assert names(await receive(everything, 3)) == ["id-0", "id-1", "id-2"]
        assert await of_bob.wait(0.05) == []


async def test_a_damaged_line_does_not_end_a_watch(files: LogFiles) -> None:
    async with watching(files) as subscription:
        files.write(b"not json\n", build_line(1), build_line(2)[:30])
        assert names(await receive(subscription, 1)) == ["id-1"]
        files.write(build_line(2)[30:])
        assert names(await receive(subscription, 1)) == ["id-2"]


async def test_a_watch_catches_up_from_the_position_of_a_list_or_an_event(files: LogFiles) -> None:
    reader = AuditLogReader(files.logs)
    files.write(build_line(0))
    listed = files.page().snapshot
    files.write(build_line(1), build_line(2))
    files.rotate(3, compress=True)
    files.write(build_line(4))
    files.write(build_line(5), log=1)
    async with reader.subscribe(EventQuery()) as (_, now):
        found = [each async for lines in reader.catch_up(EventQuery(), listed, now) for each in lines]
        assert sorted(names(found)) == ["id-1", "id-2", "id-4", "id-5"]
        after = decode_positions(found[1].version)
        assert after is not None
        rest = [each async for lines in reader.catch_up(EventQuery(), after, now) for each in lines]
        assert names(found)[:2] == ["id-1", "id-2"]
        assert sorted(names(rest)) == ["id-4", "id-5"]


async def test_a_position_too_far_back_has_expired(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MAX_CATCH_UP_BYTES", 1_000)
    monkeypatch.setattr(log_reader, "MAX_FOLLOW_BYTES", 400)
    reader = AuditLogReader(files.logs)
    files.write(build_line(0))
    start = files.page().snapshot
    files.write(*(build_line(number) for number in range(1, 20)))
    async with reader.subscribe(EventQuery()) as (_, now):
        with pytest.raises(Expired, match="too old"):
            [lines async for lines in reader.catch_up(EventQuery(), start, now)]


async def test_a_watch_that_does_not_keep_up_ends_with_expired(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "MAX_QUEUED_EVENTS", 3)
    async with watching(files) as subscription:
        files.write(*(build_line(number) for number in range(5)))
        with pytest.raises(Expired, match="could not keep up"):
            await receive(subscription, 5)


async def test_a_watch_whose_files_are_removed_ends_with_expired(files: LogFiles) -> None:
    files.write(build_line(0))
    async with watching(files) as subscription:
        files.write(build_line(1))
        assert names(await receive(subscription, 1)) == ["id-1"]
        files.rotate(2).unlink()
        files.write(build_line(3))
        with pytest.raises(Expired, match="files were removed"):
            await receive(subscription, 1)


def test_a_file_is_listed_while_it_is_compressed(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(build_line(0))
    rotated = files.rotate(1)
    (log, *_) = files.logs
    (segment,) = LogFiles(rotated.parent).logs[0].iter_segments()
    damaged = rotated.with_name(f"{rotated.name}.gz")
    damaged.write_bytes(b"")  # while it is written
    assert [each.fingerprint for each in log.iter_segments()] == [segment.fingerprint]
    retention = files.retentions[0]
    listed = [each for each in retention.list_files() if each[1] == rotated]
    monkeypatch.setattr(type(retention), "list_files", lambda self: listed)
    files.compress(rotated)  # after it was listed
    found = list(LogFiles(rotated.parent).logs[0].iter_segments())
    assert [each.fingerprint for each in found] == [segment.fingerprint]


async def test_the_number_of_watches_is_limited(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MAX_WATCHES", 1)
    reader = AuditLogReader(files.logs)
    async with reader.subscribe(EventQuery()):
        with pytest.raises(TooManyRequests):
            reader.require_room(EventQuery())
    reader.require_room(EventQuery())


async def test_watches_end_when_the_server_stops(files: LogFiles) -> None:
    reader = AuditLogReader(files.logs)
    async with reader.subscribe(EventQuery()) as (subscription, _):
        reader.end_watches()
        assert await asyncio.wait_for(subscription.wait(60), SECONDS) == []
        assert subscription.is_ended


async def test_a_server_without_log_files_says_so() -> None:
    reader = AuditLogReader(())
    with pytest.raises(MethodNotAllowed, match="audit_path"):
        await reader.search(None, EventQuery(), 10)
    with pytest.raises(MethodNotAllowed, match="audit_path"):
        reader.require_room(EventQuery())


async def test_users_who_see_only_their_own_requests_leave_room_for_auditors(files: LogFiles) -> None:
    reader, bob = AuditLogReader(files.logs), EventQuery(own=Requester("bob", "u1"))
    async with AsyncExitStack() as stack:
        for _ in range(log_reader.MAX_WATCHES_PER_USER):
            await stack.enter_async_context(reader.subscribe(bob))
        with pytest.raises(TooManyRequests):
            reader.require_room(bob)
        for number in range(log_reader.MAX_OWN_WATCHES - log_reader.MAX_WATCHES_PER_USER):
            own = EventQuery(own=Requester(f"user-{number}", "u2"))
            await stack.enter_async_context(reader.subscribe(own))
        with pytest.raises(TooManyRequests):
            reader.require_room(EventQuery(own=Requester("carol", "u3")))
        reader.require_room(EventQuery())
