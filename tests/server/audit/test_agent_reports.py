"""server.audit.agent_reports: events reported by agents are written to their own log, within a quota."""

from typing import Any

import orjson
import pytest
import structlog

from fairlead.core.errors import TooManyRequests
from fairlead.server.audit import agent_reports
from fairlead.server.audit.agent_reports import MAX_LINE_BYTES, AgentReports, render_remote_event
from fairlead.server.audit.log_writer import AuditLogWriter
from tests.harness.audit import MemoryLog
from tests.harness.clock import ManualClock

TIMESTAMP = "2026-01-02T03:04:05.000001Z"
EVENT: dict[str, Any] = {
    "auditID": "1",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/pods",
    "verb": "list",
    "requestReceivedTimestamp": TIMESTAMP,
    "stageTimestamp": TIMESTAMP,
}


async def test_a_cluster_over_its_quota_gets_429_and_other_clusters_do_not() -> None:
    sink, clock = MemoryLog(), ManualClock()
    writer = AuditLogWriter(sink)
    reports = AgentReports(writer, clock)
    recorded = 0
    with pytest.raises(TooManyRequests, match="keep the events and report them later") as error:
        while True:
            recorded += await reports.record("oslo", {"events": [EVENT] * 500})
    assert recorded == 5_500 and 1 <= error.value.details.retry_after <= 60
    assert reports.rejected_events == 501
    assert await reports.record("paris", {"events": [EVENT]}) == 1
    clock.tick(agent_reports.WINDOW_SECONDS)
    assert await reports.record("oslo", {"events": [EVENT]}) == 1
    await writer.close()
    assert len(sink.events) == 5_502


async def test_reports_without_events_count_toward_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_reports, "MAX_CLUSTER_EVENTS", 10)
    reports = AgentReports(None, ManualClock())
    with structlog.testing.capture_logs() as lines, pytest.raises(TooManyRequests):
        for _ in range(20):
            await reports.record("oslo", {"dropped": 1})
    assert len(lines) == 10


async def test_a_cluster_has_a_quota_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_reports, "MAX_CLUSTER_BYTES", 1_000)
    reports = AgentReports(None, ManualClock())
    await reports.record("oslo", {"events": [EVENT] * 10})
    with pytest.raises(TooManyRequests):
        await reports.record("oslo", {"events": [EVENT]})


async def test_the_number_of_events_dropped_by_an_agent_is_logged() -> None:
    sink = MemoryLog()
    writer = AuditLogWriter(sink)
    with structlog.testing.capture_logs():
        await AgentReports(writer, ManualClock()).record("oslo", {"events": [{"no": "event"}], "dropped": 41})
    await writer.close()
    (event,) = sink.events
    annotations = event["annotations"]
    assert (annotations["service.sh/summary-count"], annotations["service.sh/agent"]) == ("42", "oslo")


async def test_the_server_log_has_a_limited_number_of_lines_per_report() -> None:
    uses = [{"user": "u" * 100_000, "token": str(number)} for number in range(1_000)]
    with structlog.testing.capture_logs() as lines:
        await AgentReports(None, ManualClock()).record("oslo", {"activity": uses})
    assert len(lines) == agent_reports.MAX_LOGGED_USES + 1 and lines[-1]["more_tokens"] == 900
    assert all(len(line.get("user", "")) < 1_100 for line in lines)


def test_an_event_that_is_too_long_is_truncated() -> None:
    annotations = {f"key-{number}": "v" * 1_000 for number in range(1_000)}
    user = {"username": "ada", "groups": ["g" * 1_000] * 1_000, "extra": {key: [key] * 1_000 for key in annotations}}
    line = render_remote_event(
        {**EVENT, "user": user, "annotations": annotations, "sourceIPs": ["192.0.2.7"] * 1_000}, "oslo"
    )
    assert line is not None and len(line) <= MAX_LINE_BYTES
    event = orjson.loads(line)
    assert event["user"] == {"username": "ada"} and event["sourceIPs"] == ["192.0.2.7"]
    assert event["annotations"].keys() == {"service.sh/agent", "service.sh/truncated"}
