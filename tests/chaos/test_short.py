"""The short form of the fault scenarios: a few rounds on every durable store. `make test-faults` runs the full form."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.chaos.deployment import Deployment, run_deployment
from tests.chaos.scenarios import SCENARIOS, Scenario, plan_rounds
from tests.chaos.schedule import Outcome, run

SHORT = [pytest.param(scenario, id=scenario.name) for scenario in SCENARIOS if scenario.short]


@pytest.mark.parametrize("scenario", SHORT)
def test_faults_cause_no_violations(scenario: Scenario, tmp_path: Path) -> None:
    outcome = asyncio.run(scenario.run_scenario(tmp_path, plan_rounds(scenario.short)))
    assert outcome.violations == []
    assert outcome.rounds == outcome.faults.total() == sum(scenario.short.values())
    # Without operations there would be no violations.
    assert outcome.writes and outcome.events and outcome.resumed


def test_a_database_that_lost_its_last_second_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite can fail: here a killed server restarts with an old copy of its disk."""
    monkeypatch.setattr("tests.chaos.schedule.CATCH_UP_SECONDS", 1.0)
    backup = tmp_path / "kept"

    async def lose_a_second(deployment: Deployment) -> None:
        (replica,) = deployment.replicas
        replica.kill()
        shutil.copytree(tmp_path / "store", backup)
        replica.start()
        await deployment.wait_until_ready()
        await asyncio.sleep(1.0)
        replica.kill()
        shutil.rmtree(tmp_path / "store")
        backup.rename(tmp_path / "store")
        replica.start()

    async def run_scenario() -> Outcome:
        (tmp_path / "store").mkdir()
        async with run_deployment(tmp_path, [f"sqlite:{tmp_path / 'store' / 'fairlead.db'}"]) as running:
            return await run(running, [("lost", lose_a_second)])

    broken_rules = {violation.rule for violation in asyncio.run(run_scenario()).violations}
    assert {"revisions rise", "linearizable"} <= broken_rules
