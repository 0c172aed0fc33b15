"""server.audit.intake: quotas. Events over a quota are counted and summarized, separately for each source."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fairlead.core.call import DRY_RUN_ANNOTATION, Call, Decision, Handler, Reply
from fairlead.core.errors import Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from fairlead.core.user import User
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.kinds.rbac.access_reviews import SELF_SUBJECT_ACCESS_REVIEW
from fairlead.server.audit import intake
from fairlead.server.audit.intake import AuditLogs, AuditQuotas, source_network
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import METADATA, Policy, PolicyRule
from fairlead.server.audit.stage import AuditStage
from tests.harness.audit import (
    ALICE,
    BASICS,
    CATALOG,
    MOUNT,
    OK,
    Event,
    MemoryLog,
    authenticate_as,
    build_audited_pipeline,
    object_path,
)
from tests.harness.calls import always_raise, call
from tests.harness.clock import ManualClock

CONFIGMAPS, SECRETS, REVIEWS = object_path(CONFIGMAP), object_path(SECRET), object_path(SELF_SUBJECT_ACCESS_REVIEW)
LOGIN = "/auth/password/login"


@dataclass
class QuotaFixture:
    """A server with one log for authenticated users and one for all others, and small quotas."""

    logs: AuditLogs
    clock: ManualClock
    authenticated: MemoryLog
    unauthenticated: MemoryLog
    policy: Policy = BASICS
    user: User | None = ALICE
    audit: AuditStage = field(init=False)

    def __post_init__(self) -> None:
        self.audit = AuditStage(self.policy, self.logs, CATALOG, self.clock, MOUNT)

    async def send(
        self,
        serve: Handler,
        path: str = CONFIGMAPS,
        query: str = "",
        *,
        method: str = "GET",
        client: str = "192.0.2.7:1",
    ) -> Reply:
        request = call(path, query, method=method, headers={"user-agent": "flood"})
        request.client = client
        return await build_audited_pipeline(self.audit, authenticate_as(self.user), serve)(request)


@asynccontextmanager
async def open_quotas(policy: Policy = BASICS, *, events: int = 10_000) -> AsyncIterator[QuotaFixture]:
    authenticated, unauthenticated = MemoryLog(), MemoryLog()
    writers = AuditLogWriter(authenticated), AuditLogWriter(unauthenticated, events)
    fixture = QuotaFixture(
        AuditLogs(*writers, writers[1], AuditQuotas(rejected_per_minute=3, reads_per_minute=5)),
        ManualClock(),
        authenticated,
        unauthenticated,
        policy,
    )
    try:
        yield fixture
    finally:
        fixture.audit.finish()
        for writer in writers:
            await writer.close()


def split_summaries(log: MemoryLog) -> tuple[list[Event], list[Event]]:
    """The events recorded in full, and the summaries."""
    events = log.events
    summaries = [event for event in events if "service.sh/summary-count" in event["annotations"]]
    return [event for event in events if event not in summaries], summaries


def read_count(event: Event) -> int:
    return int(event["annotations"]["service.sh/summary-count"])


async def test_unauthenticated_requests_are_not_written_to_the_log_of_users() -> None:
    async with open_quotas() as fixture:
        fixture.user = None
        for number in range(50):
            assert (await fixture.send(OK, f"/made-up-{number}")).status == 401
    assert fixture.authenticated.events == []
    full_events, (summary,) = split_summaries(fixture.unauthenticated)
    assert len(full_events) == 3 and read_count(summary) == 47
    assert summary["sourceIPs"] == ["192.0.2.7"] and summary["responseStatus"]["code"] == 401
    assert summary["annotations"]["service.sh/summary-of"] == "unauthenticated"
    assert "1 x get /made-up-3 401" in summary["annotations"]["service.sh/summary-requests"]
    assert fixture.audit.suppressed_counts["unauthenticated"] == 47


async def test_each_address_has_its_own_quota_per_minute() -> None:
    async with open_quotas() as fixture:
        fixture.user = None
        for client in ("192.0.2.7:1", "192.0.2.8:1"):
            for _ in range(10):
                await fixture.send(OK, client=client)
        fixture.clock.tick(intake.WINDOW_SECONDS)
        await fixture.send(OK)
    full_events, summaries = split_summaries(fixture.unauthenticated)
    assert [event["sourceIPs"] for event in full_events] == [["192.0.2.7"]] * 3 + [["192.0.2.8"]] * 3 + [["192.0.2.7"]]
    assert {(summary["sourceIPs"][0], read_count(summary)) for summary in summaries} == {
        ("192.0.2.7", 7),
        ("192.0.2.8", 7),
    }


async def test_a_summary_has_the_times_of_its_first_and_last_event() -> None:
    async with open_quotas() as fixture:
        fixture.clock.jump(0.000_001)
        fixture.user = None
        for _ in range(10):
            await fixture.send(OK)
            fixture.clock.tick(1)
    _, (summary,) = split_summaries(fixture.unauthenticated)
    timestamps = summary["requestReceivedTimestamp"], summary["stageTimestamp"]
    assert timestamps == ("2026-01-02T03:04:08.000001Z", "2026-01-02T03:04:14.000001Z")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_addresses_of_one_network_are_one_source(one: str, other: str, is_same: bool) -> None:
    assert (source_network(one) == source_network(other)) is is_same


async def test_more_sources_than_are_tracked_share_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_SOURCES", 10)
    async with open_quotas() as fixture:
        fixture.user = None
        for number in range(100):
            await fixture.send(OK, client=f"192.0.2.{number}:1")
    full_events, summaries = split_summaries(fixture.unauthenticated)
    # One event of each tracked source, and three of the bucket that the others share.
    assert len(full_events) == 13 and sum(map(read_count, summaries)) == 87
    assert [summary["sourceIPs"] for summary in summaries] == [[]]


async def test_all_sources_together_have_a_quota_and_a_limit_on_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_SUMMARIES", 4)
    async with open_quotas() as fixture:
        fixture.user = None
        for number in range(100):
            for _ in range(1 + (number < 4)):
                await fixture.send(OK, client=f"192.0.2.{number}:1")
    full_events, summaries = split_summaries(fixture.unauthenticated)
    assert len(full_events) == 60 and sum(map(read_count, summaries)) == 44
    *_, others = summaries
    assert len(summaries) == 5 and others["annotations"]["service.sh/summary-sources"] == "40"


async def test_login_attempts_are_not_hidden_by_other_requests() -> None:
    async with open_quotas() as fixture:
        fixture.user = None
        for _ in range(20):
            await fixture.send(OK, "/nowhere")
        await fixture.send(always_raise(Unauthorized("wrong")), LOGIN, method="POST")
    full_events, _ = split_summaries(fixture.unauthenticated)
    assert full_events[-1]["requestURI"] == LOGIN


async def test_successful_logins_are_written_to_the_log_of_users() -> None:
    async def log_in(call: Call) -> Reply:
        call.user = ALICE
        return Reply(200, b"{}")

    async with open_quotas() as fixture:
        for _ in range(20):
            await fixture.send(log_in, LOGIN, method="POST")
    assert len(fixture.authenticated.events) == 20 and fixture.unauthenticated.events == []


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("no"), TooManyRequests("slow down")])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_rejections_have_a_quota_per_user(error: Exception, method: str) -> None:
    async with open_quotas() as fixture:
        for _ in range(50):
            await fixture.send(always_raise(error), method=method)
        fixture.user = User("bob")
        await fixture.send(always_raise(error), method=method)
    full_events, (summary,) = split_summaries(fixture.authenticated)
    assert [event["user"]["username"] for event in full_events] == ["alice"] * 3 + ["bob"]
    assert summary["user"] == {"username": "alice"} and read_count(summary) == 47


async def test_rejections_count_toward_the_quota_of_the_impersonator() -> None:
    async with open_quotas() as fixture:
        for number in range(50):
            fixture.user = User(f"user-{number}", impersonator=ALICE)
            await fixture.send(always_raise(Forbidden("no")))
    full_events, (summary,) = split_summaries(fixture.authenticated)
    assert len(full_events) == 3 and summary["user"] == {"username": "alice"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_writes_that_may_have_succeeded_are_always_recorded_in_full(method: str) -> None:
    path = CONFIGMAPS if method == "POST" else f"{CONFIGMAPS}/a"
    async with open_quotas() as fixture:
        for _ in range(50):
            await fixture.send(OK, path, method=method)
            await fixture.send(always_raise(Unavailable("unknown result")), path, method=method)
    full_events, summaries = split_summaries(fixture.authenticated)
    assert len(full_events) == 100 and summaries == []


def as_dry_run(handler: Handler) -> Handler:
    """A handler that stores nothing, and says so as the API does."""

    async def handle(call: Call) -> Reply:
        call.annotations[DRY_RUN_ANNOTATION] = "All"
        return await handler(call)

    return handle


async def test_reads_dry_runs_and_access_reviews_share_a_quota() -> None:
    async with open_quotas() as fixture:
        for _ in range(4):
            await fixture.send(OK)
        for _ in range(4):
            await fixture.send(as_dry_run(OK), query="dryRun=All", method="POST")
        for _ in range(4):
            await fixture.send(OK, REVIEWS, method="POST")
    full_events, (summary,) = split_summaries(fixture.authenticated)
    assert len(full_events) == 5 and read_count(summary) == 7


@pytest.mark.parametrize("query", ["dryRun=", "dryRun=None", "dryRun=All&dryRun=x", "dryRun=All"])
async def test_a_write_with_dry_run_in_its_query_that_stored_something_is_recorded_in_full(query: str) -> None:
    """A delete with a body ignores its query."""
    async with open_quotas() as fixture:
        for _ in range(20):
            await fixture.send(OK, query=query, method="POST")
    assert len(fixture.authenticated.events) == 20


@pytest.mark.parametrize("error", [Forbidden("one of them"), NotFound("one of them")])
async def test_a_failed_deletecollection_is_recorded_in_full_because_it_may_have_deleted_some(error: Exception) -> None:
    async with open_quotas() as fixture:
        for _ in range(20):
            await fixture.send(always_raise(error), method="DELETE")
        for _ in range(20):
            await fixture.send(as_dry_run(always_raise(error)), query="dryRun=All", method="DELETE")
    full_events, (summary,) = split_summaries(fixture.authenticated)
    assert len(full_events) == 20 + 3 and read_count(summary) == 17


async def test_a_forbidden_deletecollection_counts_toward_the_quota() -> None:
    async def deny(call: Call) -> Reply:
        call.decision = Decision(False, "no")
        raise Forbidden("no")

    async with open_quotas() as fixture:
        for _ in range(20):
            await fixture.send(deny, method="DELETE")
    assert len(split_summaries(fixture.authenticated)[0]) == 3


async def test_dry_run_is_ignored_for_paths_that_are_not_resources() -> None:
    """A logout with `dryRun` still ends the session."""
    async with open_quotas() as fixture:
        for _ in range(20):
            await fixture.send(OK, "/auth/logout", query="dryRun=All", method="POST")
    assert len(fixture.authenticated.events) == 20


async def test_many_reads_do_not_hide_reads_of_secrets() -> None:
    async with open_quotas() as fixture:
        for _ in range(100):
            await fixture.send(OK)
        for number in range(30):
            await fixture.send(OK, f"{SECRETS}/s{number}")
        for _ in range(30):
            await fixture.send(OK, f"{SECRETS}/s0")
    full_events, summaries = split_summaries(fixture.authenticated)
    names = [event["objectRef"].get("name", "") for event in full_events]
    assert {f"s{number}" for number in range(30)} <= set(names) and names.count("s0") == 10
    assert sum(map(read_count, summaries)) == 95 + 21


async def test_reads_of_more_secrets_than_are_tracked_are_recorded_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_SOURCES", 10)
    async with open_quotas() as fixture:
        for number in range(100):
            await fixture.send(OK, f"{SECRETS}/s{number}")
    assert {event["objectRef"]["name"] for event in split_summaries(fixture.authenticated)[0]} == {
        f"s{n}" for n in range(100)
    }


async def test_a_full_queue_of_unauthenticated_events_does_not_delay_other_requests() -> None:
    async with open_quotas(events=1) as fixture:
        fixture.logs.unauthenticated.add(b"{}\n")
        assert fixture.logs.unauthenticated.is_full
        fixture.user = None
        await fixture.send(OK)
        fixture.user = ALICE
        assert (await fixture.send(OK)).status == 200
        assert fixture.audit.suppressed_counts["unauthenticated"] == 1


async def test_a_request_over_the_quota_has_no_received_event_either() -> None:
    async with open_quotas(Policy((PolicyRule(METADATA),))) as fixture:
        for _ in range(20):
            await fixture.send(OK)
    full_events, _ = split_summaries(fixture.authenticated)
    stages = [event["stage"] for event in full_events]
    assert stages.count("RequestReceived") == stages.count("ResponseComplete") == 5


async def test_a_stream_over_the_quota_is_counted_once() -> None:
    async def watch(call: Call) -> Reply:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"{}"

        return Reply(200, stream=chunks())

    async with open_quotas() as fixture:
        for _ in range(20):
            reply = await fixture.send(watch, query="watch=1")
            assert reply.stream is not None
            assert [chunk async for chunk in reply.stream] == [b"{}"]
    full_events, (summary,) = split_summaries(fixture.authenticated)
    stages = [event["stage"] for event in full_events]
    assert stages.count("ResponseStarted") == stages.count("ResponseComplete") == 5 and read_count(summary) == 15


async def test_without_quotas_everything_is_recorded_in_full() -> None:
    async with open_quotas() as fixture:
        writer = fixture.logs.authenticated
        fixture.logs = AuditLogs(writer, writer, writer, AuditQuotas(0, 0))
        fixture.__post_init__()
        for _ in range(50):
            await fixture.send(OK)
            await fixture.send(always_raise(Forbidden("no")))
    assert len(fixture.authenticated.events) == 100


async def test_a_summary_contains_no_credentials_and_no_long_paths() -> None:
    key = "aB3" * 20
    async with open_quotas() as fixture:
        fixture.user = None
        for _ in range(5):
            await fixture.send(OK, f"/{key}")
            await fixture.send(OK, "/x" * 5_000)
    _, (summary,) = split_summaries(fixture.unauthenticated)
    assert key not in str(summary) and len(str(summary)) < 3_000
