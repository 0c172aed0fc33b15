"""The agent's report queue: bounded and ordered, retried while the server is down, dropped events are counted."""

from fairlead.agent.control_plane import ControlPlaneError, ReportRejected
from fairlead.agent.reports import MAX_BATCH_EVENTS, ReportQueue, TeeSink
from tests.harness.agent import FakeControlPlane
from tests.harness.clock import ManualClock


def build_event(number: int) -> bytes:
    return b'{"auditID":"%d"}' % number


def list_reported_ids(control_plane: FakeControlPlane) -> list[str]:
    return [event["auditID"] for spec in control_plane.reports for event in spec["events"]]


async def test_events_are_reported_in_order_and_in_batches() -> None:
    reports, control_plane = ReportQueue(ManualClock()), FakeControlPlane()
    for number in range(MAX_BATCH_EVENTS + 3):
        reports.add(build_event(number))
    reports.record_use("t", "ada")
    await reports.flush(control_plane)
    assert list_reported_ids(control_plane) == [str(number) for number in range(MAX_BATCH_EVENTS + 3)]
    assert [len(spec["events"]) for spec in control_plane.reports] == [MAX_BATCH_EVENTS, 3]
    assert control_plane.reports[0]["activity"] == [{"token": "t", "user": "ada", "lastUse": "2026-01-02T03:04:05Z"}]
    await reports.flush(control_plane)
    assert len(control_plane.reports) == 2


async def test_a_failed_report_is_sent_again() -> None:
    reports, control_plane = ReportQueue(ManualClock()), FakeControlPlane()
    control_plane.error = ControlPlaneError("down")
    reports.add(build_event(1))
    reports.record_use("t", "ada")
    await reports.flush(control_plane)
    reports.add(build_event(2))
    control_plane.error = None
    await reports.flush(control_plane)
    assert list_reported_ids(control_plane) == ["1", "2"] and control_plane.reports[0]["activity"]


async def test_events_over_the_limit_are_dropped_and_counted() -> None:
    reports, control_plane = ReportQueue(ManualClock(), max_events=2), FakeControlPlane()
    for number in range(5):
        reports.add(build_event(number))
    await reports.flush(control_plane)
    assert list_reported_ids(control_plane) == ["0", "1"] and control_plane.reports[0]["dropped"] == 3
    small_queue = ReportQueue(ManualClock(), max_bytes=40)
    for number in range(5):
        small_queue.add(build_event(number))
    await small_queue.flush(control_plane)
    assert control_plane.reports[-1]["dropped"] == 3


async def test_a_rejected_report_does_not_block_later_ones() -> None:
    reports, control_plane = ReportQueue(ManualClock()), FakeControlPlane()
    control_plane.error = ReportRejected("the server responded with status 422")
    reports.add(build_event(1))
    await reports.flush(control_plane)
    control_plane.error = None
    reports.add(build_event(2))
    await reports.flush(control_plane)
    assert list_reported_ids(control_plane) == ["2"] and control_plane.reports[0]["dropped"] == 1


class PartialSink:
    """A sink that accepts at most `count` bytes per write."""

    def __init__(self, count: int) -> None:
        self.count, self.data = count, b""

    def prepare_write(self, size: int) -> None:
        return None

    def write(self, data: memoryview) -> int:
        self.data += bytes(data[: self.count])
        return min(self.count, len(data))

    def end_write(self) -> None:
        return None

    def close(self) -> None:
        return None


async def test_only_events_written_to_the_log_are_reported() -> None:
    reports, control_plane, sink = ReportQueue(ManualClock()), FakeControlPlane(), PartialSink(7)
    tee, data = TeeSink(sink, reports), memoryview(build_event(1) + b"\n" + build_event(2) + b"\n")
    while data:
        data = data[tee.write(data) :]
    tee.write(memoryview(build_event(3)[:5]))
    await reports.flush(control_plane)
    assert list_reported_ids(control_plane) == ["1", "2"]
