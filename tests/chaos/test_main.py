"""`python -m tests.chaos`: what it makes of scenarios that cannot be set up."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import __main__ as program
from tests.chaos import stores
from tests.chaos.scenarios import Plan, Scenario, ScenarioRunner, Store
from tests.chaos.schedule import Outcome
from tests.harness.postgres_server import require_postgres


async def complete(folder: Path, plan: Plan) -> Outcome:
    return Outcome()


async def fail_to_set_up(folder: Path, plan: Plan) -> Outcome:
    raise subprocess.CalledProcessError(1, ["/usr/bin/initdb"], stderr=b"no\nspace\n")


async def break_off(folder: Path, plan: Plan) -> Outcome:
    async def fault(deployment: object) -> None:
        raise RuntimeError("it does not start")

    for _, run_fault in plan([("fault", fault)]):
        await run_fault(None)  # type: ignore[arg-type]
    raise AssertionError("no round broke off")


async def skip(folder: Path, plan: Plan) -> Outcome:
    pytest.skip("no disk")


ROUNDS = {"fault": 2}


@pytest.mark.parametrize(
    ("runner", "row", "code"),
    [
        (fail_to_set_up, "| first | cannot be set up: /usr/bin/initdb failed: no space |", 1),
        (break_off, "| first | broke off in round 1: RuntimeError: it does not start |", 1),
        (skip, "| first | skipped: no disk |", 0),
    ],
)
def test_other_scenarios_are_run_when_one_is_not(
    runner: ScenarioRunner,
    row: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenarios = (Scenario("first", runner, ROUNDS), Scenario("second", complete, ROUNDS))
    monkeypatch.setattr(program, "SCENARIOS", scenarios)
    monkeypatch.setattr(sys, "argv", ["chaos", "--full"])
    assert program.main() == code
    printed = capsys.readouterr().out
    assert row in printed.splitlines()
    assert any(line.startswith("| second | 0 |") for line in printed.splitlines())
    counts = "0 not set up or broken off, 1 skipped" if runner is skip else "1 not set up or broken off, 0 skipped"
    assert printed.endswith(f"scenarios: 1 run, 0 of them with violations; {counts}\n")


@pytest.mark.parametrize("store", [stores.create_postgres_with_small_disk, stores.create_postgres_with_small_log])
async def test_postgres_runs_on_a_small_disk(store: Store, tmp_path: Path) -> None:
    require_postgres()
    async with store(tmp_path, 1) as setup:
        assert [name for name, _ in setup.faults] == ["disk full"]
