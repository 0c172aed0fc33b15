"""Wall clocks that jump by hours, with Debian's libfaketime. Monotonic clocks go on as they do when people set a clock.

What may follow from a jump: objects with odd dates, and the end of keys whose life is over by the wrong clock. What
may not: a key that has ended and works again, two leaders, a leader that does nothing, anything lost.
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

from tests.chaos.deployment import Replica, World
from tests.chaos.election import Jealousy, leader_of
from tests.chaos.faults import LEASE_SECONDS, Fault
from tests.chaos.timeouts import answered, eventually
from tests.harness.replicas import NAMESPACES
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT

MISSING = "no libfaketime; install it (Debian: apt-get install faketime)"
KEYS = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
HOUR = 3600
SHORT_LIFE, LONG_LIFE = 4, 600
UNAUTHORIZED = 401
AGAIN = 5
SHARED_MEMORY = Path("/dev/shm")


def library() -> str:
    """libfaketime's path. Without one the scenario is skipped, on a developer's machine only."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found and os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    if not found:
        pytest.skip(MISSING)
    return str(found[0])


@dataclass(frozen=True, slots=True)
class WallClock:
    """Of one replica, which reads the file each time that it looks at the clock."""

    file: Path
    library: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: int) -> None:
        """So many seconds ahead of the true time, or behind it. At once: nobody reads half of it."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{ahead:+d}\n")
        new.replace(self.file)


@contextmanager
def wall_clocks(folder: Path, count: int) -> Iterator[list[WallClock]]:
    found = library()
    clocks = [WallClock(folder / f"clock{number}", found) for number in range(count)]
    for clock in clocks:
        clock.set(0)
    try:
        yield clocks
    finally:
        _tidy()


def _tidy() -> None:
    """Removes what the library leaves behind of processes that were killed."""
    for left in SHARED_MEMORY.glob("*faketime_s*_*"):
        if not Path(f"/proc/{left.name.rpartition('_')[2]}").exists():
            left.unlink(missing_ok=True)


class Clocks:
    """The faults. Half of the time it is the leader's clock, otherwise anybody's."""

    def __init__(self, clocks: Sequence[WallClock], jealousy: Jealousy) -> None:
        self._clocks = clocks
        self._jealousy = jealousy

    @property
    def faults(self) -> tuple[tuple[str, Fault], ...]:
        return (
            ("clock forwards", self.forwards),
            ("clock backwards", self.backwards),
            ("clock wrong at the start", self.wrong_at_the_start),
            ("clock back while it stands still", self.back_while_it_stands_still),
        )

    async def forwards(self, world: World) -> None:
        """A key whose life is over by that clock has ended, and stays so when the clock is set right."""
        await self._jump(world, random.randint(1, 9) * HOUR, LONG_LIFE)

    async def backwards(self, world: World) -> None:
        """A short life ends in its time, though that clock says that there are hours left."""
        await self._jump(world, -random.randint(1, 9) * HOUR, SHORT_LIFE)

    async def _jump(self, world: World, ahead: int, life: int) -> None:
        number = await self._victim(world)
        client = world.clients[number]
        ending, lasting = await _new_key(world, life), await _new_key(world, 30 * 24 * HOUR)
        if ahead > 0:
            await _expect(client, ending, 200)
        self._clocks[number].set(ahead)
        await _believed(client, ahead)
        await _expect(client, ending, UNAUTHORIZED)
        await _controllers_work(world)
        self._clocks[number].set(0)
        await self._right_again(world, client, ending, lasting)

    async def wrong_at_the_start(self, world: World) -> None:
        """kill -9, and a start with a clock that is hours off."""
        number, ahead = await self._victim(world), random.choice((-5, 5)) * HOUR
        replica = world.replicas[number]
        replica.kill()
        self._clocks[number].set(ahead)
        replica.start()
        await world.ready()
        await _believed(world.clients[number], ahead)
        await _controllers_work(world)
        self._clocks[number].set(0)

    async def back_while_it_stands_still(self, world: World) -> None:
        """For longer than the lease; by its wall clock no time has passed when it wakes up."""
        replica = await leader_of(world)
        number, seconds = world.replicas.index(replica), LEASE_SECONDS + 3.0
        async with self._jealousy.standing_still(replica):
            await self._led_by_another(world, replica)
            self._clocks[number].set(-int(seconds))
        await _controllers_work(world)
        self._clocks[number].set(0)

    async def _led_by_another(self, world: World, replica: Replica) -> None:
        others = World(
            [each for each in world.replicas if each is not replica],
            [client for each, client in zip(world.replicas, world.clients, strict=True) if each is not replica],
        )
        await _controllers_work(others)

    async def _victim(self, world: World) -> int:
        leads = random.random() < 0.5
        return world.replicas.index(await leader_of(world) if leads else random.choice(world.replicas))

    async def _right_again(self, world: World, client: httpx.AsyncClient, ending: str, lasting: str) -> None:
        for _ in range(AGAIN):
            if (code := await _code(client, ending)) != UNAUTHORIZED:
                world.odd.append(f"a key that had ended was answered with {code} when the clock was set right")
        for each in world.clients:
            if (code := await _code(each, lasting)) != 200:
                world.odd.append(f"a key with days left was answered with {code}")


async def _new_key(world: World, ttl: int) -> str:
    body: dict[str, Any] = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey"}
    body |= {"metadata": {"generateName": "clock-"}, "spec": {"user": "admin", "ttl": ttl}}
    answer = await answered(random.choice(world.clients), "POST", KEYS, json=body)
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["spec"]["key"]
    return key


async def _code(client: httpx.AsyncClient, key: str) -> int:
    answer = await answered(client, "GET", CONFIGMAPS, headers={"Authorization": f"Bearer {key}"})
    return answer.status_code


async def _expect(client: httpx.AsyncClient, key: str, code: int) -> None:
    async def look() -> bool | None:
        return True if await _code(client, key) == code else None

    await eventually(look, f"{code} for a key")


async def _believed(client: httpx.AsyncClient, ahead: int) -> None:
    """The jump has happened: what is made there is dated so."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "dated-"}}
    answer = await answered(client, "POST", CONFIGMAPS, json=body)
    made = answer.json()["metadata"]
    off = datetime.fromisoformat(made["creationTimestamp"]) - datetime.now(UTC) - timedelta(seconds=ahead)
    assert abs(off) < timedelta(minutes=20), f"a clock that is {ahead} s ahead has dated {made}"
    await answered(client, "DELETE", f"{CONFIGMAPS}/{made['name']}")


async def _controllers_work(world: World) -> None:
    """A namespace that is deleted goes only where controllers work."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "clock-"}}
    client = random.choice(world.clients)
    path = f"{NAMESPACES}/{(await answered(client, 'POST', NAMESPACES, json=body)).json()['metadata']['name']}"
    await answered(client, "DELETE", path)

    async def look() -> bool | None:
        return True if (await answered(client, "GET", path)).status_code == 404 else None

    await eventually(look, f"{path} to go")
