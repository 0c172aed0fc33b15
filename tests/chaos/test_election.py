"""Two replicas that lead at once are found out; one after the other is how it should be."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.chaos.deployment import Replica, World
from tests.chaos.election import RESTING, jealous, led_as
from tests.harness.replicas import LEADING


@pytest.fixture
def pair(tmp_path: Path) -> World:
    made = [Replica(tmp_path / name, port, {}) for port, name in enumerate("ab")]
    for replica in made:
        replica.log.write_text("not JSON\n")
        replica.process = subprocess.Popen(["true"])
        replica.process.wait()
    return World(made)


def say(replica: Replica, event: str) -> None:
    with replica.log.open("a") as log:
        log.write(json.dumps({"event": event, "identity": replica.folder.name}) + "\n")


async def found(world: World) -> list[str]:
    async with jealous(world):
        await asyncio.sleep(0.2)
    return world.odd


async def test_two_that_lead_at_once_are_found_out(pair: World) -> None:
    for replica in pair.replicas:
        say(replica, LEADING)
    assert await found(pair) == ["2 replicas lead at once: ['a', 'b']"]


async def test_one_after_the_other_is_fine(pair: World) -> None:
    first, second = pair.replicas
    say(first, LEADING)
    assert led_as(first) == "a"
    say(first, f"{RESTING}: controllers are stopped in this replica")
    say(second, LEADING)
    assert (led_as(first), led_as(second)) == ("", "b")
    assert await found(pair) == []


async def test_who_was_killed_does_not_lead(pair: World) -> None:
    first, second = pair.replicas
    say(first, LEADING)
    say(second, LEADING)
    first.kill()
    assert await found(pair) == []
