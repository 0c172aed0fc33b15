"""Rounds of faults under load, and what came of them."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.chaos.checker import Violation, judge
from tests.chaos.clients import Traffic, Watcher, list_all, look, work
from tests.chaos.deployment import World
from tests.chaos.faults import Fault
from tests.chaos.history import DONE, GET, UNKNOWN

WORKERS = 6
JUDGE_EVERY = 10
CATCH_UP_SECONDS = 30.0
SHOWN = 10


@dataclass
class Outcome:
    rounds: int = 0
    operations: int = 0
    writes: int = 0
    """Of the operations, those that were acknowledged and changed something."""
    unknown: int = 0
    """Of the operations, writes whose outcome their client never learnt."""
    events: int = 0
    resumed: int = 0
    expired: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


async def run(world: World, faults: Iterable[tuple[str, Fault]]) -> Outcome:
    """One round for each fault, until something is violated."""
    traffic, outcome, begun = Traffic(world.clients), Outcome(), time.monotonic()
    watchers = [Watcher(traffic), Watcher(traffic)]
    following = [asyncio.create_task(watcher.run()) for watcher in watchers]
    following.append(asyncio.create_task(Watcher(traffic).come_late()))
    try:
        queue = list(faults)
        while queue and not outcome.violations:
            batch, queue = queue[:JUDGE_EVERY], queue[JUDGE_EVERY:]
            async with _load(traffic):
                for name, fault in batch:
                    await _round(world, fault, name, outcome)
            await _settle(world, traffic, watchers)
            odd = [Violation("answers", each) for each in (*traffic.odd, *world.odd)]
            outcome.violations = judge(traffic.history) + odd
    finally:
        await _end(following)
    _count(outcome, traffic, time.monotonic() - begun)
    return outcome


async def _round(world: World, fault: Fault, name: str, outcome: Outcome) -> None:
    await asyncio.sleep(random.uniform(0.2, 0.8))
    await fault(world)
    outcome.faults[name] += 1
    await world.ready()
    outcome.rounds += 1


@asynccontextmanager
async def _load(traffic: Traffic) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(work(traffic, stop)) for _ in range(WORKERS)]
    tasks.append(asyncio.create_task(look(traffic, stop)))
    try:
        yield
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _settle(world: World, traffic: Traffic, watchers: list[Watcher]) -> None:
    """A list from every replica, and watchers that have come at least as far."""
    newest = 0
    for client in world.clients:
        listing = None
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while listing is None:
                listing = await list_all(traffic, client)
        newest = max(newest, listing.revision)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while any(watcher.chain is None or watcher.chain.position < newest for watcher in watchers):
        if time.monotonic() > deadline:
            where = [watcher.chain and watcher.chain.position for watcher in watchers]
            traffic.odd.append(f"watches came to {where} and not to {newest}")
            return
        await asyncio.sleep(0.02)


def _count(outcome: Outcome, traffic: Traffic, seconds: float) -> None:
    history = traffic.history
    outcome.operations = len(history.operations) + len(history.listings)
    outcome.writes = sum(each.verb != GET and each.outcome == DONE for each in history.operations)
    outcome.unknown = sum(each.outcome == UNKNOWN for each in history.operations)
    outcome.events = sum(len(chain.events) for chain in history.chains)
    outcome.resumed, outcome.expired, outcome.seconds = traffic.resumed, traffic.expired, seconds


async def _end(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, httpx.HTTPError):
            await task
