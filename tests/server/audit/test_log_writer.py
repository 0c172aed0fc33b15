"""The way to the file: in order, in batches, and never less than was handed over."""

import asyncio
import errno
import threading
from collections.abc import Callable

import pytest
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Unavailable
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.server.audit import log_writer, stage
from fairlead.server.audit.log_writer import AuditLogWriter
from tests.harness.audit import MOUNT, OK, AuditFixture, MemoryLog, open_audit, place

CONFIGMAPS, SECRETS = place(CONFIGMAP), place(SECRET)


class Stubborn(MemoryLog):
    """A sink that waits while it is held, fails while it is broken, and takes a few bytes at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.failed = threading.Event(), threading.Event()
        self.free.set()
        self.broken: OSError | None = None
        self.most = 1 << 30
        self.batches = 0

    def prepare_write(self, size: int) -> None:
        self.batches += 1

    def write(self, data: memoryview) -> int:
        self.free.wait()
        if self.broken is not None:
            self.failed.set()
            raise self.broken
        return super().write(data[: self.most])


class Note:
    """An event that is finished late."""

    size = 10

    def __init__(self, text: bytes) -> None:
        self.text = text

    def render(self) -> bytes:
        assert threading.current_thread().name == "fairlead-audit"
        return self.text


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came true")


async def test_what_is_added_is_written_in_order() -> None:
    notebook = MemoryLog()
    log = AuditLogWriter(notebook)
    for number in range(1_000):
        text = b"%d\n" % number
        log.add(Note(text) if number % 7 == 0 else text)
    await log.close()
    assert notebook.data == b"".join(b"%d\n" % number for number in range(1_000))


class Words:
    """A lazy event, rendered in a batch."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def render(self) -> bytes:
        return self.text


async def test_what_is_gathered_is_written_in_its_turn() -> None:
    notebook = MemoryLog()
    log = AuditLogWriter(notebook)
    for number in range(1_000):
        text = b"%d\n" % number
        if number % 100 == 99:
            log.add(text)
        else:
            log.add_lazy(Words(text))
    assert log.total_events == 1_000
    await log.close()
    assert notebook.data == b"".join(b"%d\n" % number for number in range(1_000))


async def test_an_event_without_words_takes_no_other_along() -> None:
    class Speechless:
        def render(self) -> bytes:
            raise ValueError("no words")

    notebook = MemoryLog()
    with structlog.testing.capture_logs():
        log = AuditLogWriter(notebook)
        for entry in (Words(b"one\n"), Speechless(), Words(b"two\n")):
            log.add_lazy(entry)
        await log.close()
    first, unreadable, last = notebook.data.splitlines()
    assert (first, last) == (b"one", b"two") and b"unreadable" in unreadable


async def test_what_is_gathered_is_written_soon_however_little_it_is() -> None:
    notebook = MemoryLog()
    log = AuditLogWriter(notebook)
    log.add_lazy(Words(b"one\n"))
    await until(lambda: notebook.data == b"one\n")
    await log.close()


async def test_what_is_gathered_in_another_thread_is_written_too() -> None:
    notebook = MemoryLog()
    log = AuditLogWriter(notebook)
    await asyncio.gather(*(asyncio.to_thread(log.add_lazy, Words(b"line\n")) for _ in range(100)))
    await until(lambda: notebook.data == b"line\n" * 100)
    assert log.total_events == 100
    await log.close()


async def test_what_is_added_is_written_soon_and_without_being_asked() -> None:
    notebook = MemoryLog()
    log = AuditLogWriter(notebook)
    log.add(b"one\n")
    await until(lambda: notebook.data == b"one\n")
    log.add(b"two\n")
    await until(lambda: notebook.data == b"one\ntwo\n")
    await log.close()


async def test_events_of_a_moment_are_written_at_once() -> None:
    sink = Stubborn()
    log = AuditLogWriter(sink)
    for number in range(500):
        log.add(b"%d\n" % number)
    await log.close()
    assert sink.batches <= 2


async def test_a_line_that_is_written_in_parts_is_whole_in_the_end() -> None:
    sink = Stubborn()
    sink.most = 3
    log = AuditLogWriter(sink)
    log.add(b"a line that takes a while\n")
    await log.close()
    assert sink.data == b"a line that takes a while\n"


class Hiccup(MemoryLog):
    """A sink that fails after every few bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def write(self, data: memoryview) -> int:
        self.calls += 1
        if self.calls % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data[:5])


async def test_failures_in_the_middle_of_a_line_neither_lose_nor_repeat_a_byte() -> None:
    sink = Hiccup()
    with structlog.testing.capture_logs():
        log = AuditLogWriter(sink)
        log.add(b"one line\n")
        log.add(b"another line\n")
        await until(lambda: sink.data == b"one line\nanother line\n")
        await log.close()
    assert sink.data == b"one line\nanother line\n"


class Once(Stubborn):
    """A sink that fails once, when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free.clear()
        self.entered = threading.Event()

    def write(self, data: memoryview) -> int:
        self.entered.set()
        self.free.wait()
        if not self.failed.is_set():
            self.failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


async def test_the_end_of_the_server_is_one_more_attempt() -> None:
    sink = Once()
    with structlog.testing.capture_logs():
        log = AuditLogWriter(sink)
        log.add(b"one line\n")
        await until(sink.entered.is_set)
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        log.add(b"another line\n")
        sink.free.set()
        await closing
    assert sink.data == b"one line\nanother line\n"


async def test_a_failure_is_told_once_and_so_is_its_end() -> None:
    sink = Stubborn()
    with structlog.testing.capture_logs() as lines:
        log = AuditLogWriter(sink)
        await log.check_writable()
        sink.broken = OSError(errno.ENOSPC, "No space left on device")
        log.add(b"one\n")
        await until(lambda: bool(log.failure))
        await asyncio.sleep(0.1)
        with pytest.raises(Unavailable, match="No space left on device"):
            await log.check_writable()
        sink.broken = None
        await until(lambda: not log.failure)
        await log.check_writable()
        await log.close()
    assert [line["log_level"] for line in lines] == ["error", "info"]
    assert sink.data == b"one\n"


async def test_what_cannot_be_written_in_the_end_is_counted() -> None:
    sink = Stubborn()
    sink.broken = OSError(errno.EROFS, "Read-only file system")
    with structlog.testing.capture_logs() as lines:
        log = AuditLogWriter(sink)
        log.add(b"one\n")
        log.add(b"two\n")
        await log.close()
    assert lines[-1]["events"] == 2


async def test_a_reader_that_takes_nothing_does_not_keep_the_server_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "CLOSE_TIMEOUT_SECONDS", 0.05)
    sink = Stubborn()
    sink.free.clear()
    with structlog.testing.capture_logs() as lines:
        log = AuditLogWriter(sink)
        log.add(b"one\n")
        await log.close()
    assert lines[-1]["events"] == 1
    sink.free.set()


@pytest.mark.parametrize(("events", "size"), [(3, 1_000), (1_000, 12)])
async def test_there_is_room_until_the_bounds_are_reached_and_again_when_all_is_written(events: int, size: int) -> None:
    sink = Stubborn()
    sink.free.clear()
    log = AuditLogWriter(sink, events, size)
    for _ in range(3):
        assert not log.is_full and await log.wait_for_space(0)
        log.add(b"abc\n")
    assert log.is_full
    assert not await log.wait_for_space(0.01)
    waiting = [asyncio.create_task(log.wait_for_space(60)) for _ in range(5)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    sink.free.set()
    assert all(await asyncio.gather(*waiting))
    await log.close()


# --- what requests notice of it


def held() -> Stubborn:
    sink = Stubborn()
    sink.free.clear()
    return sink


async def test_when_the_queue_is_full_requests_wait_and_nothing_is_lost() -> None:
    sink = held()
    done = []

    async def serve(call: Call) -> Reply:
        done.append(call.path)
        return Reply(200, b"{}")

    async with open_audit(serve, sink=sink, events=3) as desk:
        for number in range(3):
            await desk("GET", f"{CONFIGMAPS}/{number}")
        late = [asyncio.create_task(desk("GET", f"{CONFIGMAPS}/{number}")) for number in range(3, 10)]
        await asyncio.sleep(0.05)
        assert len(done) == 3 and not any(task.done() for task in late)
        sink.free.set()
        assert {reply.status for reply in await asyncio.gather(*late)} == {200}
    assert len(desk.completed()) == len(done) == 10


async def test_who_has_waited_long_enough_is_sent_away_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "QUEUE_TIMEOUT_SECONDS", 0.01)
    sink = held()
    async with open_audit(OK, sink=sink, events=1) as desk:
        assert (await desk("GET", CONFIGMAPS)).status == 200
        refused = await desk("GET", CONFIGMAPS)
        assert refused.status == 503
        assert ("retry-after", "5") in refused.headers
        assert b"the audit log cannot be written (the disk is too slow for the request rate)" in refused.body
        sink.free.set()
    assert len(desk.completed()) == 1


@pytest.mark.parametrize("path", ["/readyz", "/healthz", f"{MOUNT}/livez"])
async def test_a_full_queue_does_not_keep_anybody_from_asking_how_the_server_is(path: str) -> None:
    sink = held()
    async with open_audit(OK, sink=sink, events=1) as desk:
        await desk("GET", CONFIGMAPS)
        assert (await desk("GET", path)).status == 200
        sink.free.set()


@pytest.mark.parametrize("path", [f"{SECRETS}/healthz", "/x/readyz", f"{MOUNT}/api/v1/namespaces/livez"])
async def test_being_called_like_a_health_check_is_no_way_around_the_log(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "QUEUE_TIMEOUT_SECONDS", 0.01)
    sink = held()
    async with open_audit(OK, sink=sink, events=1) as desk:
        await desk("GET", CONFIGMAPS)
        assert (await desk("GET", path)).status == 503
        sink.free.set()


async def broken(desk: AuditFixture, sink: Stubborn) -> None:
    sink.broken = OSError(errno.ENOSPC, "No space left on device")
    await desk("GET", CONFIGMAPS)
    await until(lambda: bool(desk.trail.failure))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CONFIGMAPS),
        ("PUT", f"{CONFIGMAPS}/a"),
        ("PATCH", f"{CONFIGMAPS}/a"),
        ("DELETE", f"{CONFIGMAPS}/a"),
        ("GET", f"{SECRETS}/a"),
        ("GET", SECRETS),
        ("POST", "/auth/password/login"),
    ],
)
async def test_what_cannot_be_recorded_is_not_done(method: str, path: str) -> None:
    done = []

    async def serve(call: Call) -> Reply:
        done.append(call.path)
        return Reply(200, b"{}")

    sink = Stubborn()
    async with open_audit(serve, sink=sink) as desk:
        await broken(desk, sink)
        refused = await desk(method, path, {})
        assert (refused.status, done) == (503, [CONFIGMAPS])
        assert b"No space left on device" in refused.body
        assert ("retry-after", "5") in refused.headers
        sink.broken = None
        await until(lambda: not desk.trail.failure)
        assert (await desk(method, path, {})).status == 200
    assert [event["responseStatus"]["code"] for event in desk.completed()] == [200, 503, 200]


async def test_ordinary_reads_go_on_meanwhile_and_are_recorded_later() -> None:
    sink = Stubborn()
    async with open_audit(OK, sink=sink) as desk:
        await broken(desk, sink)
        for _ in range(5):
            assert (await desk("GET", f"{CONFIGMAPS}/a")).status == 200
        sink.broken = None
    assert len(desk.completed()) == 6
