"""Measures searches of a large audit log: `python -m bench.audit_log [--events 1000000] [--folder build/audit-log]`.

The log is written with the server's own writer: rendered, queued, rotated and compressed. It is kept in the folder, and
the next run uses it again. Times are CPU seconds of the whole search, over all of its pages.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fairlead.core.call import Call, Decision, RequestInfo
from fairlead.core.user import User
from fairlead.registry.selectors import parse_fields
from fairlead.server.audit.events import AuditedRequest, MetadataEvent
from fairlead.server.audit.log_file import LogRetention, RotatingFile
from fairlead.server.audit.log_query import FIELDS, VIRTUAL_FIELDS, EventQuery, build_query, query_by_id
from fairlead.server.audit.log_search import find_request, parse_continue_token, search_page
from fairlead.server.audit.log_segments import SegmentedLog
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import COMPLETE, METADATA, PolicyRule
from tests.harness.calls import call

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENT_INTERVAL = timedelta(seconds=0.8)
USERS, NAMESPACES, OBJECTS = 10_000, 300, 50_000
DENIED_SHARE = 0.01
FILE_BYTES = 100 * 1024 * 1024
LOG_FILES = ("audit.log", "audit.unauthenticated.log", "audit.agents.log")
RESOURCES = ("projects", "ownedaccesskeys", "spaceinstances", "virtualclusterinstances", "teams", "apps")
GROUP = "management.service.sh"
METHODS = (("GET", "get", 200), ("GET", "list", 200), ("PUT", "update", 200), ("DELETE", "delete", 200))
ALL_PAGES = 10**9
WAIT_SECONDS = 60.0
"""How long to wait for the disk."""
SEARCHES = {
    "newest 100": ("", 100),
    "100 denied": ("refusedBy!=", 100),
    "20 of one user": ("user.username=user-9000", 20),
    "all of one user": ("user.username=user-9000", ALL_PAGES),
    "all of one object": ("objectRef.resource=teams,objectRef.name=object-77", ALL_PAGES),
    "an hour in the middle": ("since=2026-01-05T12:00:00Z,until=2026-01-05T13:00:00Z", ALL_PAGES),
}
"""The selector of each search, and how many events it wants."""


class EventClock:
    """The time of the event that is written, so that the names of rotated files fit the events."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return time.monotonic()


def build_calls(count: int) -> Iterator[tuple[Call, int]]:
    """Requests that are the same in each run, with their status codes."""
    source = random.Random(1)
    users = [
        User(f"user-{number}", ("developers", "system:authenticated"), str(uuid.UUID(int=number)), "laptop")
        for number in range(USERS)
    ]
    for _ in range(count):
        method, verb, code = source.choice(METHODS)
        resource = source.choice(RESOURCES)
        namespace = f"service-p-{source.randrange(NAMESPACES)}"
        name = f"object-{source.randrange(OBJECTS)}" if verb != "list" else ""
        path = f"/kubernetes/management/apis/{GROUP}/v1/namespaces/{namespace}/{resource}/{name}".rstrip("/")
        target = RequestInfo(verb=verb, group=GROUP, version="v1", resource=resource, namespace=namespace, name=name)
        request = call(path, method=method, headers={"user-agent": "kubectl/v1.33.1 (linux/amd64)"}, target=target)
        request.client = f"10.1.{source.randrange(256)}.{source.randrange(256)}:4711"
        request.user = users[int(USERS * source.random() ** 2)]
        request.audit_id = str(uuid.UUID(int=source.getrandbits(128)))
        is_denied = source.random() < DENIED_SHARE
        request.decision = Decision(not is_denied, "no role allows it" if is_denied else f"role in {namespace}")
        yield request, 403 if is_denied else code


async def write_log(path: Path, count: int) -> None:
    clock = EventClock()
    retention = LogRetention(path, 0, 0, compress=True)
    writer = AuditLogWriter(RotatingFile(retention, FILE_BYTES, clock))
    rule = PolicyRule(METADATA)
    for request, code in build_calls(count):
        clock.moment += EVENT_INTERVAL
        audited = AuditedRequest(request, clock.moment, rule)
        writer.add_lazy(
            MetadataEvent(request=audited, stage=COMPLETE, code=code, kinds=(), ended_at=clock.moment, seconds=0.001)
        )
        if writer.is_full:
            await writer.wait_for_space(WAIT_SECONDS)
    await writer.close()
    retention.clean_up(clock.now())


def measure_search(logs: list[SegmentedLog], query: EventQuery, wanted: int) -> str:
    begin = time.process_time()
    worst = 0.0
    found = pages = 0
    start = None
    while found < wanted:
        page_begin = time.process_time()
        page = search_page(logs, start, query, min(wanted - found, 500))
        worst = max(worst, time.process_time() - page_begin)
        found += len(page.lines)
        pages += 1
        if page.next_page is None:
            break
        start = parse_continue_token(page.next_page.encode())
    seconds = time.process_time() - begin
    return f"{seconds:8.3f} s, {found} events, {pages} pages, the longest {worst:.3f} s"


def measure_lookup(logs: list[SegmentedLog], audit_id: str) -> str:
    query = query_by_id(audit_id, None)
    assert query is not None
    begin = time.process_time()
    page, is_complete = find_request(logs, query)
    seconds = time.process_time() - begin
    return f"{seconds:8.3f} s, {len(page.lines)} events, {'all' if is_complete else 'only a part'} searched"


def main(
    events: Annotated[int, typer.Option(help="How many events to write.")] = 1_000_000,
    folder: Annotated[Path, typer.Option(help="Where the log is.")] = Path("build/audit-log"),
) -> None:
    """Write an audit log, unless it is there, and search it."""
    retentions = [LogRetention(folder / name, 0, 0, compress=True) for name in LOG_FILES]
    if not retentions[0].path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(write_log(retentions[0].path, events))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{'files':>24} {size / 1024 / 1024:8.1f} MiB")
    for name, (selector, wanted) in SEARCHES.items():
        logs = [SegmentedLog(retention) for retention in retentions]  # without the checkpoints of the search before
        query = build_query(parse_fields(selector, (*FIELDS, *VIRTUAL_FIELDS)), None, datetime.now(UTC))
        print(f"{name:>24} {measure_search(logs, query, wanted)}", flush=True)
    ids = [request.audit_id for request, _ in build_calls(events)]
    for name, index in {"id of the newest": -1, "id of the oldest": 0}.items():
        logs = [SegmentedLog(retention) for retention in retentions]
        print(f"{name:>24} {measure_lookup(logs, ids[index])}", flush=True)


if __name__ == "__main__":
    typer.run(main)
