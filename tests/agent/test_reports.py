"""Reports: bounded, in order, told once the server listens, and nothing lost in silence."""

from fairlead.agent.control_plane import ControlPlaneError, ReportRejected
from fairlead.agent.reports import MAX_BATCH_EVENTS, ReportQueue, TeeSink
from tests.harness.agent import FakeHome
from tests.harness.clock import ManualClock


def line(number: int) -> bytes:
    return b'{"auditID":"%d"}' % number


def told(home: FakeHome) -> list[str]:
    return [event["auditID"] for spec in home.reported for event in spec["events"]]


async def test_everything_is_told_in_order_and_in_batches() -> None:
    reports, home = ReportQueue(ManualClock()), FakeHome()
    for number in range(MAX_BATCH_EVENTS + 3):
        reports.add(line(number))
    reports.record_use("t", "ada")
    await reports.flush(home)
    assert told(home) == [str(number) for number in range(MAX_BATCH_EVENTS + 3)]
    assert [len(spec["events"]) for spec in home.reported] == [MAX_BATCH_EVENTS, 3]
    assert home.reported[0]["activity"] == [{"token": "t", "user": "ada", "lastUse": "2026-01-02T03:04:05Z"}]
    await reports.flush(home)
    assert len(home.reported) == 2


async def test_what_could_not_be_told_is_told_later() -> None:
    reports, home = ReportQueue(ManualClock()), FakeHome()
    home.problem = ControlPlaneError("down")
    reports.add(line(1))
    reports.record_use("t", "ada")
    await reports.flush(home)
    reports.add(line(2))
    home.problem = None
    await reports.flush(home)
    assert told(home) == ["1", "2"] and home.reported[0]["activity"]


async def test_what_does_not_fit_is_counted_and_said() -> None:
    reports, home = ReportQueue(ManualClock(), max_events=2), FakeHome()
    for number in range(5):
        reports.add(line(number))
    await reports.flush(home)
    assert told(home) == ["0", "1"] and home.reported[0]["dropped"] == 3
    large = ReportQueue(ManualClock(), max_bytes=40)
    for number in range(5):
        large.add(line(number))
    await large.flush(home)
    assert home.reported[-1]["dropped"] == 3


async def test_a_report_that_is_never_taken_does_not_hold_up_others() -> None:
    reports, home = ReportQueue(ManualClock()), FakeHome()
    home.problem = ReportRejected("the server responded with status 422")
    reports.add(line(1))
    await reports.flush(home)
    home.problem = None
    reports.add(line(2))
    await reports.flush(home)
    assert told(home) == ["2"] and home.reported[0]["dropped"] == 1


class Piecemeal:
    """A sink that takes so many bytes at a time."""

    def __init__(self, count: int) -> None:
        self.count, self.data = count, b""

    def prepare_write(self, size: int) -> None:
        return None

    def write(self, data: memoryview) -> int:
        self.data += bytes(data[: self.count])
        return min(self.count, len(data))

    def close(self) -> None:
        return None


async def test_only_lines_that_are_in_the_log_are_told() -> None:
    reports, home, sink = ReportQueue(ManualClock()), FakeHome(), Piecemeal(7)
    copied, data = TeeSink(sink, reports), memoryview(line(1) + b"\n" + line(2) + b"\n")
    while data:
        data = data[copied.write(data) :]
    copied.write(memoryview(line(3)[:5]))
    await reports.flush(home)
    assert told(home) == ["1", "2"]
