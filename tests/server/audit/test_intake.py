"""Floods: what is beyond a quota is counted and summed up, and nobody can push out what others have done."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.core.call import Call, Decision, Handler, Reply
from fairlead.core.errors import Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from fairlead.core.user import User
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.kinds.rbac.access_reviews import SELF_SUBJECT_ACCESS_REVIEW
from fairlead.server.audit import quotas
from fairlead.server.audit.intake import AuditLogs, AuditQuotas, source_network
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import METADATA, Policy, PolicyRule
from fairlead.server.audit.stage import AuditStage
from tests.harness.audit import ALICE, BASICS, CATALOG, MOUNT, OK, Event, MemoryLog, build_audited, place, signed_in
from tests.harness.calls import always_raise, call

CONFIGMAPS, SECRETS, REVIEWS = place(CONFIGMAP), place(SECRET), place(SELF_SUBJECT_ACCESS_REVIEW)
LOGIN = "/auth/password/login"


@dataclass
class Turned:
    """A clock that the test turns."""

    seconds: float = 1_000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC) + timedelta(seconds=self.seconds - 1_000.0)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Flood:
    """A server with a log for people and one for everybody else, and small quotas."""

    logs: AuditLogs
    clock: Turned
    people: MemoryLog
    unauthenticated: MemoryLog
    policy: Policy = BASICS
    user: User | None = ALICE
    audit: AuditStage = field(init=False)

    def __post_init__(self) -> None:
        self.audit = AuditStage(self.policy, self.logs, CATALOG, self.clock, MOUNT)

    async def ask(
        self,
        serve: Handler,
        path: str = CONFIGMAPS,
        query: str = "",
        *,
        method: str = "GET",
        client: str = "192.0.2.7:1",
    ) -> Reply:
        asked = call(path, query, method=method, headers={"user-agent": "flood"})
        asked.client = client
        return await build_audited(self.audit, signed_in(self.user), serve)(asked)


@asynccontextmanager
async def flooded(policy: Policy = BASICS, *, events: int = 10_000) -> AsyncIterator[Flood]:
    people, unauthenticated = MemoryLog(), MemoryLog()
    trails = AuditLogWriter(people), AuditLogWriter(unauthenticated, events)
    flood = Flood(
        AuditLogs(*trails, trails[1], AuditQuotas(rejected_per_minute=3, reads_per_minute=5)),
        Turned(),
        people,
        unauthenticated,
        policy,
    )
    try:
        yield flood
    finally:
        flood.audit.finish()
        for trail in trails:
            await trail.close()


def parted(notebook: MemoryLog) -> tuple[list[Event], list[Event]]:
    """The whole records, and the summaries."""
    events = notebook.events
    summaries = [event for event in events if "service.sh/summary-count" in event["annotations"]]
    return [event for event in events if event not in summaries], summaries


def counted(event: Event) -> int:
    return int(event["annotations"]["service.sh/summary-count"])


async def test_strangers_do_not_write_into_the_log_of_people() -> None:
    async with flooded() as flood:
        flood.user = None
        for number in range(50):
            assert (await flood.ask(OK, f"/made-up-{number}")).status == 401
    assert flood.people.events == []
    whole, (summary,) = parted(flood.unauthenticated)
    assert len(whole) == 3 and counted(summary) == 47
    assert summary["sourceIPs"] == ["192.0.2.7"] and summary["responseStatus"]["code"] == 401
    assert summary["annotations"]["service.sh/summary-of"] == "unauthenticated"
    assert "1 x get /made-up-3 401" in summary["annotations"]["service.sh/summary-requests"]
    assert flood.audit.suppressed_counts["unauthenticated"] == 47


async def test_each_address_has_a_quota_of_its_own_and_the_next_minute_another() -> None:
    async with flooded() as flood:
        flood.user = None
        for client in ("192.0.2.7:1", "192.0.2.8:1"):
            for _ in range(10):
                await flood.ask(OK, client=client)
        flood.clock.seconds += quotas.WINDOW_SECONDS
        await flood.ask(OK)
    whole, summaries = parted(flood.unauthenticated)
    assert [event["sourceIPs"] for event in whole] == [["192.0.2.7"]] * 3 + [["192.0.2.8"]] * 3 + [["192.0.2.7"]]
    assert {(summary["sourceIPs"][0], counted(summary)) for summary in summaries} == {
        ("192.0.2.7", 7),
        ("192.0.2.8", 7),
    }


async def test_a_summary_says_when_it_began_and_ended() -> None:
    async with flooded() as flood:
        flood.user = None
        for _ in range(10):
            await flood.ask(OK)
            flood.clock.seconds += 1
    _, (summary,) = parted(flood.unauthenticated)
    moments = summary["requestReceivedTimestamp"], summary["stageTimestamp"]
    assert moments == ("2026-01-02T03:04:08.000001Z", "2026-01-02T03:04:14.000001Z")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_addresses_of_one_site_are_one_source(one: str, other: str, same: bool) -> None:
    assert (source_network(one) == source_network(other)) is same


async def test_more_sources_than_are_tracked_share_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_SOURCES", 10)
    async with flooded() as flood:
        flood.user = None
        for number in range(100):
            await flood.ask(OK, client=f"192.0.2.{number}:1")
    whole, summaries = parted(flood.unauthenticated)
    # One of each tracked source, and three of the bucket that the others share.
    assert len(whole) == 13 and sum(map(counted, summaries)) == 87
    assert [summary["sourceIPs"] for summary in summaries] == [[]]


async def test_all_sources_together_have_a_quota_and_few_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_SUMMARIES", 4)
    async with flooded() as flood:
        flood.user = None
        for number in range(100):
            for _ in range(1 + (number < 4)):
                await flood.ask(OK, client=f"192.0.2.{number}:1")
    whole, summaries = parted(flood.unauthenticated)
    assert len(whole) == 60 and sum(map(counted, summaries)) == 44
    *_, others = summaries
    assert len(summaries) == 5 and others["annotations"]["service.sh/summary-sources"] == "40"


async def test_who_tries_passwords_is_not_hidden_by_other_requests() -> None:
    async with flooded() as flood:
        flood.user = None
        for _ in range(20):
            await flood.ask(OK, "/nowhere")
        await flood.ask(always_raise(Unauthorized("wrong")), LOGIN, method="POST")
    whole, _ = parted(flood.unauthenticated)
    assert whole[-1]["requestURI"] == LOGIN


async def test_who_signs_in_is_recorded_with_people() -> None:
    async def sign_in(call: Call) -> Reply:
        call.user = ALICE
        return Reply(200, b"{}")

    async with flooded() as flood:
        for _ in range(20):
            await flood.ask(sign_in, LOGIN, method="POST")
    assert len(flood.people.events) == 20 and flood.unauthenticated.events == []


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("no"), TooManyRequests("slow down")])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_refusals_of_one_user_have_a_quota(error: Exception, method: str) -> None:
    async with flooded() as flood:
        for _ in range(50):
            await flood.ask(always_raise(error), method=method)
        flood.user = User("bob")
        await flood.ask(always_raise(error), method=method)
    whole, (summary,) = parted(flood.people)
    assert [event["user"]["username"] for event in whole] == ["alice"] * 3 + ["bob"]
    assert summary["user"] == {"username": "alice"} and counted(summary) == 47


async def test_refusals_count_for_who_really_asks() -> None:
    async with flooded() as flood:
        for number in range(50):
            flood.user = User(f"user-{number}", impersonator=ALICE)
            await flood.ask(always_raise(Forbidden("no")))
    whole, (summary,) = parted(flood.people)
    assert len(whole) == 3 and summary["user"] == {"username": "alice"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_writes_that_may_have_been_done_are_always_recorded_whole(method: str) -> None:
    path = CONFIGMAPS if method == "POST" else f"{CONFIGMAPS}/a"
    async with flooded() as flood:
        for _ in range(50):
            await flood.ask(OK, path, method=method)
            await flood.ask(always_raise(Unavailable("nobody knows")), path, method=method)
    whole, summaries = parted(flood.people)
    assert len(whole) == 100 and summaries == []


async def test_reads_have_a_quota_and_so_has_what_changes_nothing() -> None:
    async with flooded() as flood:
        for _ in range(4):
            await flood.ask(OK)
        for _ in range(4):
            await flood.ask(OK, query="dryRun=All", method="POST")
        for _ in range(4):
            await flood.ask(OK, REVIEWS, method="POST")
    whole, (summary,) = parted(flood.people)
    assert len(whole) == 5 and counted(summary) == 7


@pytest.mark.parametrize("query", ["dryRun=", "dryRun=None", "dryRun=All&dryRun=x"])
async def test_a_write_that_only_claims_to_be_a_dry_run_is_recorded_whole(query: str) -> None:
    async with flooded() as flood:
        for _ in range(20):
            await flood.ask(OK, query=query, method="POST")
    assert len(flood.people.events) == 20


@pytest.mark.parametrize("error", [Forbidden("one of them"), NotFound("one of them")])
async def test_a_deletion_of_many_that_was_refused_may_have_deleted_some(error: Exception) -> None:
    async with flooded() as flood:
        for _ in range(20):
            await flood.ask(always_raise(error), method="DELETE")
        for _ in range(20):
            await flood.ask(always_raise(error), query="dryRun=All", method="DELETE")
    whole, (summary,) = parted(flood.people)
    assert len(whole) == 20 + 3 and counted(summary) == 17


async def test_a_deletion_of_many_without_the_right_has_deleted_none() -> None:
    async def refuse(call: Call) -> Reply:
        call.decision = Decision(False, "no")
        raise Forbidden("no")

    async with flooded() as flood:
        for _ in range(20):
            await flood.ask(refuse, method="DELETE")
    assert len(parted(flood.people)[0]) == 3


async def test_what_is_no_resource_has_no_dry_run() -> None:
    """Whoever signs out with it is signed out."""
    async with flooded() as flood:
        for _ in range(20):
            await flood.ask(OK, "/auth/logout", query="dryRun=All", method="POST")
    assert len(flood.people.events) == 20


async def test_a_flood_of_reads_does_not_hide_who_reads_a_secret() -> None:
    async with flooded() as flood:
        for _ in range(100):
            await flood.ask(OK)
        for number in range(30):
            await flood.ask(OK, f"{SECRETS}/s{number}")
        for _ in range(30):
            await flood.ask(OK, f"{SECRETS}/s0")
    whole, summaries = parted(flood.people)
    names = [event["objectRef"].get("name", "") for event in whole]
    assert {f"s{number}" for number in range(30)} <= set(names) and names.count("s0") == 10
    assert sum(map(counted, summaries)) == 95 + 21


async def test_more_secrets_than_are_tracked_are_all_recorded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_SOURCES", 10)
    async with flooded() as flood:
        for number in range(100):
            await flood.ask(OK, f"{SECRETS}/s{number}")
    assert {event["objectRef"]["name"] for event in parted(flood.people)[0]} == {f"s{n}" for n in range(100)}


async def test_a_full_queue_of_strangers_keeps_nobody_else_waiting() -> None:
    async with flooded(events=1) as flood:
        flood.logs.unauthenticated.add(b"{}\n")
        assert flood.logs.unauthenticated.is_full
        flood.user = None
        await flood.ask(OK)
        flood.user = ALICE
        assert (await flood.ask(OK)).status == 200
        assert flood.audit.suppressed_counts["unauthenticated"] == 1


async def test_a_request_over_the_quota_is_not_announced_either() -> None:
    async with flooded(Policy((PolicyRule(METADATA),))) as flood:
        for _ in range(20):
            await flood.ask(OK)
    whole, _ = parted(flood.people)
    stages = [event["stage"] for event in whole]
    assert stages.count("RequestReceived") == stages.count("ResponseComplete") == 5


async def test_a_stream_over_the_quota_is_counted_once() -> None:
    async def watch(call: Call) -> Reply:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"{}"

        return Reply(200, stream=chunks())

    async with flooded() as flood:
        for _ in range(20):
            reply = await flood.ask(watch, query="watch=1")
            assert reply.stream is not None
            assert [chunk async for chunk in reply.stream] == [b"{}"]
    whole, (summary,) = parted(flood.people)
    stages = [event["stage"] for event in whole]
    assert stages.count("ResponseStarted") == stages.count("ResponseComplete") == 5 and counted(summary) == 15


async def test_without_a_limit_everything_is_recorded_whole() -> None:
    async with flooded() as flood:
        trail = flood.logs.authenticated
        flood.logs = AuditLogs(trail, trail, trail, AuditQuotas(0, 0))
        flood.__post_init__()
        for _ in range(50):
            await flood.ask(OK)
            await flood.ask(always_raise(Forbidden("no")))
    assert len(flood.people.events) == 100


async def test_a_summary_shows_no_credential_and_no_long_path() -> None:
    key = "aB3" * 20
    async with flooded() as flood:
        flood.user = None
        for _ in range(5):
            await flood.ask(OK, f"/{key}")
            await flood.ask(OK, "/x" * 5_000)
    _, (summary,) = parted(flood.unauthenticated)
    assert key not in str(summary) and len(str(summary)) < 3_000
