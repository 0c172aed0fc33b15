"""What agents report: into a log of their own, and no more than their quota."""

from typing import Any

import orjson
import pytest
import structlog

from fairlead.core.errors import TooManyRequests
from fairlead.server.audit import agent_reports
from fairlead.server.audit.agent_reports import MAX_LINE_BYTES, AgentReports, render_remote_event
from fairlead.server.audit.log_writer import AuditLogWriter
from tests.harness.audit import MemoryLog
from tests.server.audit.test_intake import Turned

MOMENT = "2026-01-02T03:04:05.000001Z"
EVENT: dict[str, Any] = {
    "auditID": "1",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/pods",
    "verb": "list",
    "requestReceivedTimestamp": MOMENT,
    "stageTimestamp": MOMENT,
}


async def test_a_cluster_over_its_quota_is_told_to_come_again_and_the_others_are_not() -> None:
    notebook, clock = MemoryLog(), Turned()
    trail = AuditLogWriter(notebook)
    reports = AgentReports(trail, clock)
    taken = 0
    with pytest.raises(TooManyRequests, match="keep the events and report them later") as refused:
        while True:
            taken += reports.record("oslo", {"events": [EVENT] * 500})
    assert taken == 5_500 and 1 <= refused.value.details.retry_after <= 60
    assert reports.rejected_events == 501
    assert reports.record("paris", {"events": [EVENT]}) == 1
    clock.seconds += agent_reports.WINDOW_SECONDS
    assert reports.record("oslo", {"events": [EVENT]}) == 1
    await trail.close()
    assert len(notebook.events) == 5_502


async def test_reports_without_events_have_a_quota_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_reports, "MAX_CLUSTER_EVENTS", 10)
    reports = AgentReports(None, Turned())
    with structlog.testing.capture_logs() as lines, pytest.raises(TooManyRequests):
        for _ in range(20):
            reports.record("oslo", {"dropped": 1})
    assert len(lines) == 10


async def test_a_cluster_has_a_quota_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_reports, "MAX_CLUSTER_BYTES", 1_000)
    reports = AgentReports(None, Turned())
    reports.record("oslo", {"events": [EVENT] * 10})
    with pytest.raises(TooManyRequests):
        reports.record("oslo", {"events": [EVENT]})


async def test_what_an_agent_has_lost_is_in_the_log_as_a_number() -> None:
    notebook = MemoryLog()
    trail = AuditLogWriter(notebook)
    with structlog.testing.capture_logs():
        AgentReports(trail, Turned()).record("oslo", {"events": [{"no": "event"}], "dropped": 41})
    await trail.close()
    (event,) = notebook.events
    told = event["annotations"]
    assert (told["service.sh/summary-count"], told["service.sh/agent"]) == ("42", "oslo")


async def test_the_servers_own_log_takes_few_lines_of_one_report() -> None:
    uses = [{"user": "u" * 100_000, "token": str(number)} for number in range(1_000)]
    with structlog.testing.capture_logs() as lines:
        AgentReports(None, Turned()).record("oslo", {"activity": uses})
    assert len(lines) == agent_reports.MAX_LOGGED_USES + 1 and lines[-1]["more_tokens"] == 900
    assert all(len(line.get("user", "")) < 1_100 for line in lines)


def test_an_event_that_is_too_long_is_cut_to_what_matters() -> None:
    many = {f"key-{number}": "v" * 1_000 for number in range(1_000)}
    user = {"username": "ada", "groups": ["g" * 1_000] * 1_000, "extra": {key: [key] * 1_000 for key in many}}
    made = render_remote_event({**EVENT, "user": user, "annotations": many, "sourceIPs": ["192.0.2.7"] * 1_000}, "oslo")
    assert made is not None and len(made) <= MAX_LINE_BYTES
    event = orjson.loads(made)
    assert event["user"] == {"username": "ada"} and event["sourceIPs"] == ["192.0.2.7"]
    assert event["annotations"].keys() == {"service.sh/agent", "service.sh/truncated"}
