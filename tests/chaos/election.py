"""Determines the leader from the logs of replicas, which must be in JSON and at level `info`."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.chaos.deployment import Deployment, Replica
from tests.chaos.timeouts import request_until_served, wait_for
from tests.harness.replicas import BECAME_LEADER, LEASE

JSON_LOG = {"log_level": "info", "log_format": "json"}
END_OF_LEADERSHIP = ("lost leadership", "gave up leadership")
POLL_SECONDS = 0.05


def read_leader_identity(replica: Replica) -> str:
    """The identity under which a replica leads, or an empty text if it does not."""
    if replica.process is None:
        return ""
    with replica.log.open("rb") as log:
        log.seek(replica.log_offset)
        lines = [line for line in log.read().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
    for entry in map(_parse_entry, reversed(lines)):
        if str(entry.get("event", "")).startswith(END_OF_LEADERSHIP):
            return ""
        if entry.get("event") == BECAME_LEADER:
            return str(entry["identity"])
    return ""


def _parse_entry(line: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(line)
    return entry


async def find_leader(deployment: Deployment) -> Replica:
    """Waits for the replica that holds the lease and has logged that it leads. A single replica has no lease."""
    if len(deployment.replicas) == 1:
        return deployment.replicas[0]

    async def poll() -> Replica | None:
        for client in deployment.clients:
            response = await request_until_served(client, "GET", LEASE)
            holder = response.json()["spec"]["holderIdentity"] if response.status_code == 200 else ""
            return next((each for each in deployment.replicas if holder and read_leader_identity(each) == holder), None)
        return None

    return await wait_for(poll, "a replica that leads")


class LeaderMonitor:
    """Checks continuously whether two replicas lead at once. A frozen replica is exempt: it cannot know."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._exempt_ports: set[int] = set()

    async def run(self) -> None:
        while True:
            # A replica logs that it lost or gave up leadership before the next one starts. So replicas that lead in two
            # consecutive reads of the logs led at once.
            first = self._read_leaders()
            if len(first) > 1 and (both := first & self._read_leaders()) and len(both) > 1:
                self._deployment.anomalies.append(f"{len(both)} replicas lead at once: {sorted(both)}")
                return
            await asyncio.sleep(POLL_SECONDS)

    def _read_leaders(self) -> set[str]:
        replicas = (each for each in self._deployment.replicas if each.port not in self._exempt_ports)
        return {name for name in map(read_leader_identity, replicas) if name}

    @asynccontextmanager
    async def freeze(self, replica: Replica) -> AsyncIterator[None]:
        """Freezes a replica, and waits afterwards until it has noticed that it no longer leads."""
        before = read_leader_identity(replica)
        self._exempt_ports.add(replica.port)
        replica.send(signal.SIGSTOP)
        try:
            yield
        finally:
            replica.send(signal.SIGCONT)

        async def poll() -> bool | None:
            return True if read_leader_identity(replica) != before or not before else None

        await wait_for(poll, f"{before} to notice that it no longer leads")
        self._exempt_ports.discard(replica.port)


@asynccontextmanager
async def monitor_leaders(deployment: Deployment) -> AsyncIterator[LeaderMonitor]:
    monitor = LeaderMonitor(deployment)
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
