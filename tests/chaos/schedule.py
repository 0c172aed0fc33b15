"""Runs rounds of faults under load and checks the recorded history."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.chaos.checker import Violation, find_violations
from tests.chaos.clients import Watcher, Workload, list_objects, list_repeatedly, run_operations
from tests.chaos.deployment import Deployment
from tests.chaos.faults import Fault
from tests.chaos.history import DONE, GET, UNKNOWN

WORKERS = 6
CHECK_EVERY = 10
CATCH_UP_SECONDS = 30.0
MAX_SHOWN = 10


@dataclass
class Outcome:
    rounds: int = 0
    operations: int = 0
    writes: int = 0
    """Acknowledged writes."""
    unknown: int = 0
    """Writes with an unknown outcome."""
    events: int = 0
    resumed: int = 0
    expired: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


async def run(deployment: Deployment, faults: Iterable[tuple[str, Fault]]) -> Outcome:
    """Runs one round for each fault, until there is a violation."""
    workload, outcome, start = Workload(deployment.clients), Outcome(), time.monotonic()
    watchers = [Watcher(workload), Watcher(workload)]
    watch_tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    watch_tasks.append(asyncio.create_task(Watcher(workload).watch_from_the_past()))
    try:
        queue = list(faults)
        while queue and not outcome.violations:
            batch, queue = queue[:CHECK_EVERY], queue[CHECK_EVERY:]
            async with _run_load(workload):
                for name, fault in batch:
                    await _run_round(deployment, fault, name, outcome)
            await _wait_for_watchers(deployment, workload, watchers)
            anomalies = [Violation("responses", each) for each in (*workload.anomalies, *deployment.anomalies)]
            outcome.violations = find_violations(workload.history) + anomalies
    finally:
        await _cancel(watch_tasks)
    _count(outcome, workload, time.monotonic() - start)
    return outcome


async def _run_round(deployment: Deployment, fault: Fault, name: str, outcome: Outcome) -> None:
    await asyncio.sleep(random.uniform(0.2, 0.8))
    await fault(deployment)
    outcome.faults[name] += 1
    await deployment.wait_until_ready()
    outcome.rounds += 1


@asynccontextmanager
async def _run_load(workload: Workload) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run_operations(workload, stop)) for _ in range(WORKERS)]
    tasks.append(asyncio.create_task(list_repeatedly(workload, stop)))
    try:
        yield
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def _wait_for_watchers(deployment: Deployment, workload: Workload, watchers: list[Watcher]) -> None:
    """Lists from every replica, and waits until the watchers have reached the newest revision."""
    newest = 0
    for client in deployment.clients:
        listing = None
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while listing is None:
                listing = await list_objects(workload, client)
        newest = max(newest, listing.revision)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while any(watcher.chain is None or watcher.chain.position < newest for watcher in watchers):
        if time.monotonic() > deadline:
            positions = [watcher.chain and watcher.chain.position for watcher in watchers]
            workload.anomalies.append(f"watches reached {positions} and not {newest}")
            return
        await asyncio.sleep(0.02)


def _count(outcome: Outcome, workload: Workload, seconds: float) -> None:
    history = workload.history
    outcome.operations = len(history.operations) + len(history.listings)
    outcome.writes = sum(each.verb != GET and each.outcome == DONE for each in history.operations)
    outcome.unknown = sum(each.outcome == UNKNOWN for each in history.operations)
    outcome.events = sum(len(chain.events) for chain in history.chains)
    outcome.resumed, outcome.expired, outcome.seconds = workload.resumed, workload.expired, seconds


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, httpx.HTTPError):
            await task
