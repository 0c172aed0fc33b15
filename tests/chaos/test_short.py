"""The fault suite's short form: a few rounds on every durable store. `make test-faults` is the full one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.chaos.deployment import World, world
from tests.chaos.scenarios import SCENARIOS, Scenario, rounds
from tests.chaos.schedule import Outcome, run

SHORT = [pytest.param(scenario, id=scenario.name) for scenario in SCENARIOS if scenario.short]


@pytest.mark.parametrize("scenario", SHORT)
def test_nothing_is_violated_under_faults(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(scenario.play(tmp_path, rounds(scenario.short)))
    assert outcome.violations == []
    assert outcome.rounds == outcome.faults.total() == sum(scenario.short.values())
    # Nobody is wronged where nobody does anything.
    assert outcome.writes and outcome.events and outcome.resumed


def test_a_database_that_lost_its_last_second_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite can fail: here a server that was killed starts with what its disk held a while ago."""
    monkeypatch.setattr("tests.chaos.schedule.CATCH_UP_SECONDS", 1.0)
    kept = tmp_path / "kept"

    async def lose_a_second(world: World) -> None:
        (replica,) = world.replicas
        replica.kill()
        shutil.copytree(tmp_path / "store", kept)
        replica.start()
        await world.ready()
        await asyncio.sleep(1.0)
        replica.kill()
        shutil.rmtree(tmp_path / "store")
        kept.rename(tmp_path / "store")
        replica.start()

    async def play() -> Outcome:
        (tmp_path / "store").mkdir()
        async with world(tmp_path, [f"sqlite:{tmp_path / 'store' / 'fairlead.db'}"]) as made:
            return await run(made, [("lost", lose_a_second)])

    broken = {violation.rule for violation in asyncio.run(play()).violations}
    assert {"revisions rise", "linearizable"} <= broken
