"""Faults of wall clocks that jump by hours, with Debian's libfaketime. Monotonic clocks are not affected.

Allowed consequences of a jump: objects with wrong dates, and the expiry of keys by the wrong clock. Not
allowed: an expired key that works again, two leaders, a leader that does nothing, lost data.
"""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.deployment import Deployment, Replica
from tests.chaos.election import LeaderMonitor, find_leader
from tests.chaos.faults import LEASE_SECONDS, Fault
from tests.chaos.timeouts import request_until_served, wait_for
from tests.harness.replicas import NAMESPACES
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT

MISSING_LIBRARY = "no libfaketime; install it (Debian: apt-get install faketime)"
KEYS = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
HOUR = 3600
SHORT_LIFETIME, LONG_LIFETIME = 4, 600
UNAUTHORIZED = 401
REPEATS = 5
SHARED_MEMORY = Path("/dev/shm")


def find_library() -> str:
    """Finds libfaketime. Without it the scenario is skipped, but fails in CI."""
    library_path = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not library_path and os.environ.get("CI") == "true":
        pytest.fail(MISSING_LIBRARY)
    if not library_path:
        pytest.skip(MISSING_LIBRARY)
    return str(library_path[0])


@dataclass(frozen=True, slots=True)
class WallClock:
    """The wall clock of one replica, which reads the file each time that it reads the clock."""

    file: Path
    library_path: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self.library_path,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: int) -> None:
        """Sets the clock this many seconds ahead of the true time, or behind it, atomically."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{ahead:+d}\n")
        new.replace(self.file)


@contextmanager
def create_wall_clocks(folder: Path, count: int) -> Iterator[list[WallClock]]:
    library_path = find_library()
    clocks = [WallClock(folder / f"clock{number}", library_path) for number in range(count)]
    for clock in clocks:
        clock.set(0)
    try:
        yield clocks
    finally:
        _remove_shared_memory()


def _remove_shared_memory() -> None:
    """Removes the shared memory that the library leaves behind of killed processes."""
    for file in SHARED_MEMORY.glob("*faketime_s*_*"):
        if not Path(f"/proc/{file.name.rpartition('_')[2]}").exists():
            file.unlink(missing_ok=True)


class ClockFaults:
    """The faults of clocks. Half of the time they affect the leader, otherwise any replica."""

    def __init__(self, clocks: Sequence[WallClock], leader_monitor: LeaderMonitor) -> None:
        self._clocks = clocks
        self._leader_monitor = leader_monitor

    @property
    def faults(self) -> tuple[tuple[str, Fault], ...]:
        return (
            ("clock forwards", self.jump_forwards),
            ("clock backwards", self.jump_backwards),
            ("clock wrong at the start", self.start_with_wrong_time),
            ("clock back during SIGSTOP", self.jump_back_while_frozen),
        )

    async def jump_forwards(self, deployment: Deployment) -> None:
        """A key that has expired by that clock stays expired when the clock is corrected."""
        await self._jump(deployment, random.randint(1, 9) * HOUR, LONG_LIFETIME)

    async def jump_backwards(self, deployment: Deployment) -> None:
        """A key with a short lifetime expires in time, though by that clock hours are left."""
        await self._jump(deployment, -random.randint(1, 9) * HOUR, SHORT_LIFETIME)

    async def _jump(self, deployment: Deployment, ahead: int, lifetime: int) -> None:
        number = await self._choose_replica(deployment)
        client = deployment.clients[number]
        expiring_key, lasting_key = (
            await _create_key(deployment, lifetime),
            await _create_key(deployment, 30 * 24 * HOUR),
        )
        if ahead > 0:
            await _wait_for_status(client, expiring_key, 200)
        self._clocks[number].set(ahead)
        await _assert_time(client, ahead)
        await _wait_for_status(client, expiring_key, UNAUTHORIZED)
        await _assert_controllers_work(deployment)
        self._clocks[number].set(0)
        await self._check_keys(deployment, client, expiring_key, lasting_key)

    async def start_with_wrong_time(self, deployment: Deployment) -> None:
        """kill -9, and a start with a clock that is hours off."""
        number, ahead = await self._choose_replica(deployment), random.choice((-5, 5)) * HOUR
        replica = deployment.replicas[number]
        replica.kill()
        self._clocks[number].set(ahead)
        replica.start()
        await deployment.wait_until_ready()
        await _assert_time(deployment.clients[number], ahead)
        await _assert_controllers_work(deployment)
        self._clocks[number].set(0)

    async def jump_back_while_frozen(self, deployment: Deployment) -> None:
        """Freezes the leader for longer than the lease. By its wall clock no time has passed when it continues."""
        replica = await find_leader(deployment)
        number, seconds = deployment.replicas.index(replica), LEASE_SECONDS + 3.0
        async with self._leader_monitor.freeze(replica):
            await self._wait_for_another_leader(deployment, replica)
            self._clocks[number].set(-int(seconds))
        await _assert_controllers_work(deployment)
        self._clocks[number].set(0)

    async def _wait_for_another_leader(self, deployment: Deployment, replica: Replica) -> None:
        others = Deployment(
            [each for each in deployment.replicas if each is not replica],
            [
                client
                for each, client in zip(deployment.replicas, deployment.clients, strict=True)
                if each is not replica
            ],
        )
        await _assert_controllers_work(others)

    async def _choose_replica(self, deployment: Deployment) -> int:
        affects_leader = random.random() < 0.5
        return deployment.replicas.index(
            await find_leader(deployment) if affects_leader else random.choice(deployment.replicas)
        )

    async def _check_keys(
        self, deployment: Deployment, client: httpx.AsyncClient, expiring_key: str, lasting_key: str
    ) -> None:
        for _ in range(REPEATS):
            if (code := await _get_status(client, expiring_key)) != UNAUTHORIZED:
                deployment.anomalies.append(f"an expired key got {code} after the clock was corrected")
        for each in deployment.clients:
            if (code := await _get_status(each, lasting_key)) != 200:
                deployment.anomalies.append(f"a valid key got {code}")


async def _create_key(deployment: Deployment, ttl: int) -> str:
    body: dict[str, Any] = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey"}
    body |= {"metadata": {"generateName": "clock-"}, "spec": {"user": "admin", "ttl": ttl}}
    response = await request_until_served(random.choice(deployment.clients), "POST", KEYS, json=body)
    assert response.status_code == 201, response.text
    key: str = response.json()["spec"]["key"]
    return key


async def _get_status(client: httpx.AsyncClient, key: str) -> int:
    response = await request_until_served(client, "GET", CONFIGMAPS, headers={"Authorization": f"Bearer {key}"})
    return response.status_code


async def _wait_for_status(client: httpx.AsyncClient, key: str, code: int) -> None:
    async def poll() -> bool | None:
        return True if await _get_status(client, key) == code else None

    await wait_for(poll, f"{code} for a key")


async def _assert_time(client: httpx.AsyncClient, ahead: int) -> None:
    """Asserts that the clock has jumped: new objects have its time."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "dated-"}}
    response = await request_until_served(client, "POST", CONFIGMAPS, json=body)
    metadata = response.json()["metadata"]
    error = datetime.fromisoformat(metadata["creationTimestamp"]) - datetime.now(UTC) - timedelta(seconds=ahead)
    assert abs(error) < timedelta(minutes=20), f"a clock that is {ahead} s ahead gave {metadata}"
    await request_until_served(client, "DELETE", f"{CONFIGMAPS}/{metadata['name']}")


async def _assert_controllers_work(deployment: Deployment) -> None:
    """Asserts that controllers work: they remove a deleted namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "clock-"}}
    client = random.choice(deployment.clients)
    path = (
        f"{NAMESPACES}/{(await request_until_served(client, 'POST', NAMESPACES, json=body)).json()['metadata']['name']}"
    )
    await request_until_served(client, "DELETE", path)

    async def poll() -> bool | None:
        return True if (await request_until_served(client, "GET", path)).status_code == 404 else None

    await wait_for(poll, f"the removal of {path}")
