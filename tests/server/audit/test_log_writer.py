"""server.audit.log_writer: events are written in order and in batches, and none is lost."""

import asyncio
import errno
import threading

import pytest
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Unavailable
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.server.audit import log_writer, stage
from fairlead.server.audit.log_writer import AuditLogWriter
from tests.harness.audit import MOUNT, OK, AuditFixture, MemoryLog, object_path, open_audit
from tests.harness.eventually import eventually

CONFIGMAPS, SECRETS = object_path(CONFIGMAP), object_path(SECRET)


class FakeSink(MemoryLog):
    """A sink that can block, fail, or accept only a few bytes per write."""

    def __init__(self) -> None:
        super().__init__()
        self.unblocked, self.failed = threading.Event(), threading.Event()
        self.unblocked.set()
        self.error: OSError | None = None
        self.max_bytes = 1 << 30
        self.batches = 0

    def prepare_write(self, size: int) -> None:
        self.batches += 1

    def write(self, data: memoryview) -> int:
        self.unblocked.wait()
        if self.error is not None:
            self.failed.set()
            raise self.error
        return super().write(data[: self.max_bytes])


class LateEvent:
    """An event that is rendered by the writer thread."""

    size = 10

    def __init__(self, text: bytes) -> None:
        self.text = text

    def render(self) -> bytes:
        assert threading.current_thread().name == "fairlead-audit"
        return self.text


@pytest.fixture(autouse=True)
def _short_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)


async def test_events_are_written_in_order() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    for number in range(1_000):
        text = b"%d\n" % number
        writer.add(LateEvent(text) if number % 7 == 0 else text)
    await writer.close()
    assert sink.data == b"".join(b"%d\n" % number for number in range(1_000))


class LazyEvent:
    """A lazy event, rendered in a batch."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def render(self) -> bytes:
        return self.text


async def test_lazy_events_are_written_in_order() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    for number in range(1_000):
        text = b"%d\n" % number
        if number % 100 == 99:
            writer.add(text)
        else:
            writer.add_lazy(LazyEvent(text))
    assert writer.total_events == 1_000
    await writer.close()
    assert sink.data == b"".join(b"%d\n" % number for number in range(1_000))


async def test_an_event_that_cannot_be_rendered_does_not_affect_others() -> None:
    class BrokenEvent:
        def render(self) -> bytes:
            raise ValueError("not renderable")

    sink = MemoryLog()
    with structlog.testing.capture_logs():
        writer = AuditLogWriter(sink)
        for entry in (LazyEvent(b"one\n"), BrokenEvent(), LazyEvent(b"two\n")):
            writer.add_lazy(entry)
        await writer.close()
    first, unreadable, last = sink.data.splitlines()
    assert (first, last) == (b"one", b"two") and b"unreadable" in unreadable


async def test_a_single_lazy_event_is_written_soon() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    writer.add_lazy(LazyEvent(b"one\n"))
    await eventually(lambda: sink.data == b"one\n")
    await writer.close()


async def test_lazy_events_of_other_threads_are_written() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    await asyncio.gather(*(asyncio.to_thread(writer.add_lazy, LazyEvent(b"line\n")) for _ in range(100)))
    await eventually(lambda: sink.data == b"line\n" * 100)
    assert writer.total_events == 100
    await writer.close()


async def test_an_event_is_written_soon_without_a_flush() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    writer.add(b"one\n")
    await eventually(lambda: sink.data == b"one\n")
    writer.add(b"two\n")
    await eventually(lambda: sink.data == b"one\ntwo\n")
    await writer.close()


async def test_simultaneous_events_are_written_in_one_batch() -> None:
    sink = FakeSink()
    writer = AuditLogWriter(sink)
    for number in range(500):
        writer.add(b"%d\n" % number)
    await writer.close()
    assert sink.batches <= 2


async def test_a_line_that_is_written_in_parts_is_complete() -> None:
    sink = FakeSink()
    sink.max_bytes = 3
    writer = AuditLogWriter(sink)
    writer.add(b"a line that takes a while\n")
    await writer.close()
    assert sink.data == b"a line that takes a while\n"


class FlakySink(MemoryLog):
    """A sink that fails on every other write and accepts at most five bytes per write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def write(self, data: memoryview) -> int:
        self.calls += 1
        if self.calls % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data[:5])


async def test_failures_within_a_line_neither_lose_nor_repeat_bytes() -> None:
    sink = FlakySink()
    with structlog.testing.capture_logs():
        writer = AuditLogWriter(sink)
        writer.add(b"one line\n")
        writer.add(b"another line\n")
        await eventually(lambda: sink.data == b"one line\nanother line\n")
        await writer.close()
    assert sink.data == b"one line\nanother line\n"


class FailOnceSink(FakeSink):
    """A sink that fails once, after it is unblocked."""

    def __init__(self) -> None:
        super().__init__()
        self.unblocked.clear()
        self.entered = threading.Event()

    def write(self, data: memoryview) -> int:
        self.entered.set()
        self.unblocked.wait()
        if not self.failed.is_set():
            self.failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


async def test_closing_the_writer_retries_a_failed_write() -> None:
    sink = FailOnceSink()
    with structlog.testing.capture_logs():
        writer = AuditLogWriter(sink)
        writer.add(b"one line\n")
        await eventually(sink.entered.is_set)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        writer.add(b"another line\n")
        sink.unblocked.set()
        await closing
    assert sink.data == b"one line\nanother line\n"


async def test_a_failure_is_logged_once_and_so_is_the_recovery() -> None:
    sink = FakeSink()
    with structlog.testing.capture_logs() as lines:
        writer = AuditLogWriter(sink)
        await writer.check_writable()
        sink.error = OSError(errno.ENOSPC, "No space left on device")
        writer.add(b"one\n")
        await eventually(lambda: bool(writer.failure))
        await asyncio.sleep(0.1)
        with pytest.raises(Unavailable, match="No space left on device"):
            await writer.check_writable()
        sink.error = None
        await eventually(lambda: not writer.failure)
        await writer.check_writable()
        await writer.close()
    assert [line["log_level"] for line in lines] == ["error", "info"]
    assert sink.data == b"one\n"


async def test_events_that_cannot_be_written_at_close_are_counted() -> None:
    sink = FakeSink()
    sink.error = OSError(errno.EROFS, "Read-only file system")
    with structlog.testing.capture_logs() as lines:
        writer = AuditLogWriter(sink)
        writer.add(b"one\n")
        writer.add(b"two\n")
        await writer.close()
    assert lines[-1]["events"] == 2


async def test_a_blocked_sink_does_not_block_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "CLOSE_TIMEOUT_SECONDS", 0.05)
    sink = FakeSink()
    sink.unblocked.clear()
    with structlog.testing.capture_logs() as lines:
        writer = AuditLogWriter(sink)
        writer.add(b"one\n")
        await writer.close()
    assert lines[-1]["events"] == 1
    sink.unblocked.set()


@pytest.mark.parametrize(("events", "size"), [(3, 1_000), (1_000, 12)])
async def test_there_is_space_up_to_the_limits_and_again_when_everything_is_written(events: int, size: int) -> None:
    sink = FakeSink()
    sink.unblocked.clear()
    writer = AuditLogWriter(sink, events, size)
    for _ in range(3):
        assert not writer.is_full and await writer.wait_for_space(0)
        writer.add(b"abc\n")
    assert writer.is_full
    assert not await writer.wait_for_space(0.01)
    waiters = [asyncio.create_task(writer.wait_for_space(60)) for _ in range(5)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiters)
    sink.unblocked.set()
    assert all(await asyncio.gather(*waiters))
    await writer.close()


# --- the effect on requests


def build_blocked_sink() -> FakeSink:
    sink = FakeSink()
    sink.unblocked.clear()
    return sink


async def test_requests_wait_while_the_queue_is_full_and_no_event_is_lost() -> None:
    sink = build_blocked_sink()
    served = []

    async def serve(call: Call) -> Reply:
        served.append(call.path)
        return Reply(200, b"{}")

    async with open_audit(serve, sink=sink, events=3) as audit:
        for number in range(3):
            await audit("GET", f"{CONFIGMAPS}/{number}")
        queued = [asyncio.create_task(audit("GET", f"{CONFIGMAPS}/{number}")) for number in range(3, 10)]
        await asyncio.sleep(0.05)
        assert len(served) == 3 and not any(task.done() for task in queued)
        sink.unblocked.set()
        assert {reply.status for reply in await asyncio.gather(*queued)} == {200}
    assert len(audit.completed_events()) == len(served) == 10


async def test_a_request_that_waited_too_long_gets_503_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "QUEUE_TIMEOUT_SECONDS", 0.01)
    sink = build_blocked_sink()
    async with open_audit(OK, sink=sink, events=1) as audit:
        assert (await audit("GET", CONFIGMAPS)).status == 200
        reply = await audit("GET", CONFIGMAPS)
        assert reply.status == 503
        assert ("retry-after", "5") in reply.headers
        assert b"the audit log cannot be written (the disk is too slow for the request rate)" in reply.body
        sink.unblocked.set()
    assert len(audit.completed_events()) == 1


@pytest.mark.parametrize("path", ["/readyz", "/healthz", f"{MOUNT}/livez"])
async def test_health_checks_are_served_while_the_queue_is_full(path: str) -> None:
    sink = build_blocked_sink()
    async with open_audit(OK, sink=sink, events=1) as audit:
        await audit("GET", CONFIGMAPS)
        assert (await audit("GET", path)).status == 200
        sink.unblocked.set()


@pytest.mark.parametrize("path", [f"{SECRETS}/healthz", "/x/readyz", f"{MOUNT}/api/v1/namespaces/livez"])
async def test_a_path_similar_to_a_health_check_does_not_bypass_the_log(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "QUEUE_TIMEOUT_SECONDS", 0.01)
    sink = build_blocked_sink()
    async with open_audit(OK, sink=sink, events=1) as audit:
        await audit("GET", CONFIGMAPS)
        assert (await audit("GET", path)).status == 503
        sink.unblocked.set()


async def break_sink(audit: AuditFixture, sink: FakeSink) -> None:
    sink.error = OSError(errno.ENOSPC, "No space left on device")
    await audit("GET", CONFIGMAPS)
    await eventually(lambda: bool(audit.writer.failure))


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
async def test_writes_and_secret_reads_are_rejected_while_the_log_is_not_writable(method: str, path: str) -> None:
    served = []

    async def serve(call: Call) -> Reply:
        served.append(call.path)
        return Reply(200, b"{}")

    sink = FakeSink()
    async with open_audit(serve, sink=sink) as audit:
        await break_sink(audit, sink)
        reply = await audit(method, path, {})
        assert (reply.status, served) == (503, [CONFIGMAPS])
        assert b"No space left on device" in reply.body
        assert ("retry-after", "5") in reply.headers
        sink.error = None
        await eventually(lambda: not audit.writer.failure)
        assert (await audit(method, path, {})).status == 200
    assert [event["responseStatus"]["code"] for event in audit.completed_events()] == [200, 503, 200]


async def test_other_reads_continue_while_the_log_is_not_writable_and_are_recorded_later() -> None:
    sink = FakeSink()
    async with open_audit(OK, sink=sink) as audit:
        await break_sink(audit, sink)
        for _ in range(5):
            assert (await audit("GET", f"{CONFIGMAPS}/a")).status == 200
        sink.error = None
    assert len(audit.completed_events()) == 6
