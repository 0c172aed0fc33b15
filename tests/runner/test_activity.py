"""Tests of `fairlead.runner.activity`: what counts as activity, in samples of half a minute."""

from collections.abc import Callable
from datetime import UTC, datetime

from fairlead.runner.activity import (
    IDLE_SECONDS,
    KEEPALIVE_BYTES,
    SAMPLE_SECONDS,
    ActivityTracker,
    Cause,
    SessionTraffic,
    TrafficSample,
)
from fairlead.runner.decisions import ACTIVE, IDLE, UNKNOWN
from fairlead.runner.engines.contract import ActivitySample, TerminalSample

MINUTE = 60.0
STARTED = datetime(2026, 1, 2, tzinfo=UTC)
QUIET = TrafficSample()


class Timeline:
    """Feeds a tracker with samples, and remembers when it was active."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tracker = ActivityTracker(self.now)

    def run(
        self,
        seconds: float,
        sample: Callable[[float], ActivitySample | None],
        traffic: Callable[[], TrafficSample] = lambda: QUIET,
        is_busy: bool = False,
    ) -> str:
        """Samples for so long. The function gets the seconds since the beginning. Returns the state at the end."""
        began = self.now
        while self.now < began + seconds:
            self.now += SAMPLE_SECONDS
            self.tracker.observe(sample(self.now - began), traffic(), is_busy, self.now)
        return self.tracker.state(self.now)

    @property
    def idle_seconds(self) -> float:
        return self.now - self.tracker.last_at


def idle(elapsed: float) -> ActivitySample:
    return ActivitySample(STARTED)


def with_terminal(input_at: float = 0.0, output_at: float = 0.0, has_job: bool = False) -> ActivitySample:
    return ActivitySample(STARTED, terminals={"1": TerminalSample(input_at, output_at, has_job)})


def test_a_workspace_without_activity_is_idle_after_five_minutes() -> None:
    timeline = Timeline()
    assert timeline.run(IDLE_SECONDS, idle) == ACTIVE
    assert timeline.run(MINUTE, idle) == IDLE
    assert timeline.tracker.cause is Cause.STARTED


def test_a_silent_compile_of_forty_minutes_is_activity() -> None:
    timeline = Timeline()
    states = {timeline.run(MINUTE, lambda elapsed: compile_at(timeline.now)) for _ in range(40)}
    assert states == {ACTIVE}
    assert timeline.tracker.cause is Cause.CPU
    assert timeline.idle_seconds == 0


def compile_at(now: float) -> ActivitySample:
    """One process that uses 80 % of a core, and neither reads nor writes."""
    return ActivitySample(STARTED, cpu_seconds=now * 0.8)


def test_the_cpu_time_of_an_idle_editor_is_not_activity() -> None:
    timeline = Timeline()
    assert timeline.run(60 * MINUTE, lambda elapsed: ActivitySample(STARTED, cpu_seconds=elapsed * 0.05)) == IDLE
    assert timeline.idle_seconds == 60 * MINUTE - SAMPLE_SECONDS


def test_a_short_burst_of_cpu_time_is_activity_only_for_a_while() -> None:
    timeline = Timeline()
    timeline.run(10 * MINUTE, lambda elapsed: ActivitySample(STARTED, cpu_seconds=min(elapsed, 120.0)))
    assert timeline.tracker.cause is Cause.CPU
    assert timeline.run(15 * MINUTE, lambda elapsed: ActivitySample(STARTED, cpu_seconds=120.0)) == IDLE


def test_typing_is_activity_and_an_open_terminal_is_not() -> None:
    timeline = Timeline()
    assert timeline.run(10 * MINUTE, lambda elapsed: with_terminal(input_at=timeline.now)) == ACTIVE
    assert timeline.tracker.cause is Cause.TERMINAL_INPUT
    last = timeline.now
    assert timeline.run(30 * MINUTE, lambda elapsed: with_terminal(input_at=last)) == IDLE
    assert timeline.idle_seconds == 30 * MINUTE


def test_output_counts_with_a_program_in_the_foreground_only() -> None:
    timeline = Timeline()
    assert timeline.run(10 * MINUTE, lambda elapsed: with_terminal(output_at=elapsed, has_job=True)) == ACTIVE
    assert timeline.tracker.cause is Cause.TERMINAL_OUTPUT
    assert timeline.run(10 * MINUTE, lambda elapsed: with_terminal(output_at=1e6 + elapsed)) == IDLE


def test_a_session_whose_client_was_killed_does_not_keep_a_workspace_active() -> None:
    timeline, traffic = Timeline(), SessionTraffic()
    with traffic.measure("u", KEEPALIVE_BYTES) as meter:

        def send_keepalives() -> TrafficSample:
            meter.add(2 * 100)
            return traffic.collect("u")

        def type_text() -> TrafficSample:
            meter.add(2 * KEEPALIVE_BYTES)
            return traffic.collect("u")

        assert timeline.run(10 * MINUTE, idle, type_text) == ACTIVE
        assert timeline.tracker.cause is Cause.SESSION_INPUT
        typed_at = timeline.now
        assert timeline.run(10 * MINUTE, idle, send_keepalives) == IDLE
        assert timeline.run(10 * MINUTE, idle, lambda: traffic.collect("u")) == IDLE
        assert timeline.tracker.last_at == typed_at


def test_a_new_session_is_activity_and_its_end_delays_the_sleep_by_five_minutes_only() -> None:
    timeline, traffic = Timeline(), SessionTraffic()
    with traffic.measure("u", KEEPALIVE_BYTES):
        timeline.run(MINUTE, idle, lambda: traffic.collect("u"))
        connected_at = timeline.tracker.last_at
        assert timeline.tracker.cause is Cause.SESSION_STARTED
        assert timeline.run(55 * MINUTE, idle, lambda: traffic.collect("u")) == IDLE
    assert timeline.run(IDLE_SECONDS, idle, lambda: traffic.collect("u")) == ACTIVE
    assert timeline.run(MINUTE, idle, lambda: traffic.collect("u")) == IDLE
    assert timeline.tracker.last_at == connected_at  # how long it was not used does not change


def test_input_of_a_session_that_ended_between_two_samples_counts() -> None:
    traffic = SessionTraffic()
    with traffic.measure("u") as meter:
        traffic.collect("u")
        meter.add(1)
    assert traffic.collect("u") == TrafficSample(has_ended=True, has_input=True)
    assert traffic.collect("u") == QUIET


def test_the_output_of_a_session_is_no_input_but_that_of_a_download_is_use() -> None:
    traffic = SessionTraffic()
    for is_download in (False, True):
        with traffic.measure("u", KEEPALIVE_BYTES, is_download) as meter:
            meter.add_output(1_000_000)
            assert traffic.collect("u").has_input is is_download


def test_bytes_on_a_port_count_above_the_level_of_keepalives() -> None:
    timeline = Timeline()

    def poll(rate: float) -> Callable[[float], ActivitySample]:
        return lambda elapsed: ActivitySample(STARTED, connections={"8080": int(timeline.now * rate)})

    assert timeline.run(30 * MINUTE, poll(20.0)) == IDLE
    assert timeline.run(MINUTE, poll(2000.0)) == ACTIVE
    assert timeline.tracker.cause is Cause.PORT_TRAFFIC


def test_writes_and_tasks_are_activity() -> None:
    timeline = Timeline()
    timeline.run(20 * MINUTE, idle)
    timeline.run(MINUTE, lambda elapsed: ActivitySample(STARTED, newest_write=1.0))
    assert timeline.tracker.cause == "FilesWritten"
    assert timeline.run(20 * MINUTE, idle, is_busy=True) == ACTIVE
    assert timeline.tracker.cause == "Task"


def test_a_clock_that_jumps_is_at_most_one_activity() -> None:
    """Times of the kernel are compared, not interpreted."""
    timeline = Timeline()
    timeline.run(20 * MINUTE, lambda elapsed: with_terminal(input_at=5.0))
    for jump in (1e9, 1.0, 1e9 + 1):
        timeline.run(20 * MINUTE, lambda elapsed, at=jump: with_terminal(input_at=at))  # type: ignore[misc]
        assert timeline.tracker.state(timeline.now) == IDLE


def test_a_workspace_that_cannot_be_measured_is_neither_active_nor_idle() -> None:
    timeline = Timeline()
    timeline.run(20 * MINUTE, idle)
    timeline.run(SAMPLE_SECONDS, lambda elapsed: None)
    assert timeline.tracker.state(timeline.now) == IDLE  # once is a coincidence
    assert timeline.run(20 * MINUTE, lambda elapsed: None) == UNKNOWN
    assert timeline.run(SAMPLE_SECONDS, idle) == ACTIVE  # what happened meanwhile is not known
    assert timeline.run(6 * MINUTE, idle) == IDLE


def test_a_restarted_container_starts_anew() -> None:
    timeline = Timeline()
    timeline.run(20 * MINUTE, lambda elapsed: ActivitySample(STARTED, cpu_seconds=10_000.0))
    later = datetime(2026, 1, 3, tzinfo=UTC)
    assert timeline.run(SAMPLE_SECONDS, lambda elapsed: ActivitySample(later, cpu_seconds=1.0)) == ACTIVE
    assert timeline.tracker.cause is Cause.STARTED
    assert timeline.run(6 * MINUTE, lambda elapsed: ActivitySample(later, cpu_seconds=1.0)) == IDLE
