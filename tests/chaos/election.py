"""Who leads, going by what replicas have logged. They must log in JSON, and everything from `info` on."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.chaos.deployment import Replica, World
from tests.chaos.timeouts import answered, eventually
from tests.harness.replicas import LEADING, LEASE

TALKATIVE = {"log_level": "info", "log_format": "json"}
RESTING = "lost leadership"
LOOK_SECONDS = 0.05


def led_as(replica: Replica) -> str:
    """The name under which it leads, empty if it does not say so."""
    if replica.process is None:
        return ""
    with replica.log.open("rb") as log:
        log.seek(replica.logged)
        lines = [line for line in log.read().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
    for told in map(_event, reversed(lines)):
        if str(told.get("event", "")).startswith(RESTING):
            return ""
        if told.get("event") == LEADING:
            return str(told["identity"])
    return ""


def _event(line: bytes) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(line)
    return told


async def leader_of(world: World) -> Replica:
    """Whoever the lease names, once it names a replica that says so, too. Alone there is no lease."""
    if len(world.replicas) == 1:
        return world.replicas[0]

    async def look() -> Replica | None:
        for client in world.clients:
            answer = await answered(client, "GET", LEASE)
            holder = answer.json()["spec"]["holderIdentity"] if answer.status_code == 200 else ""
            return next((each for each in world.replicas if holder and led_as(each) == holder), None)
        return None

    return await eventually(look, "a replica that leads")


class Jealousy:
    """Looks all the time whether two replicas lead at once. Who stands still is excused: it cannot know."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._excused: set[int] = set()

    async def run(self) -> None:
        while True:
            # Who has stopped leading says so before the next one begins. So if the same ones still say that they lead
            # after all of them have said so, they did at once.
            first = self._leading()
            if len(first) > 1 and (both := first & self._leading()) and len(both) > 1:
                self._world.odd.append(f"{len(both)} replicas lead at once: {sorted(both)}")
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _leading(self) -> set[str]:
        replicas = (each for each in self._world.replicas if each.port not in self._excused)
        return {name for name in map(led_as, replicas) if name}

    @asynccontextmanager
    async def standing_still(self, replica: Replica) -> AsyncIterator[None]:
        """Stops it meanwhile, and waits afterwards until it has noticed that it does not lead any more."""
        before = led_as(replica)
        self._excused.add(replica.port)
        replica.send(signal.SIGSTOP)
        try:
            yield
        finally:
            replica.send(signal.SIGCONT)

        async def look() -> bool | None:
            return True if led_as(replica) != before or not before else None

        await eventually(look, f"{before} to notice that it does not lead any more")
        self._excused.discard(replica.port)


@asynccontextmanager
async def jealous(world: World) -> AsyncIterator[Jealousy]:
    made = Jealousy(world)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
