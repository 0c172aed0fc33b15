"""`python -m tests.chaos --full`: runs every fault scenario and prints a table.

The exit code is 1 if there is a violation, or if a scenario cannot be set up or breaks off; the others are still run.

`make test-more` runs the short form. Here it is for experiments, like `--only` and `--times`.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.deployment import Deployment
from tests.chaos.faults import Fault
from tests.chaos.scenarios import SCENARIOS, Plan, Scenario, plan_rounds
from tests.chaos.schedule import MAX_SHOWN, Outcome

COLUMNS = ("rounds", "operations", "writes", "unknown", "events", "resumed", "expired")
HEAD = ("scenario", *COLUMNS, "faults", "violations", "seconds")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that the scenario needs is missing on this machine."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The scenario could not be set up, or broke off: it says nothing about the server."""

    reason: str


@dataclass(slots=True)
class Progress:
    rounds: int = 0
    """How many rounds have begun."""


Result = Outcome | Skipped | Broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all rounds, not just a few")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--times", type=float, default=1.0, help="factor for the number of rounds")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="seed of the order of faults")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    rows: list[tuple[str, Result]] = []
    for scenario in SCENARIOS:
        counts = scenario.full if options.full else scenario.short
        if options.only in scenario.name and counts:
            rows.append((scenario.name, run_scenario(scenario, _multiply(counts, options.times))))
    print(format_table(rows))
    return int(any(isinstance(result, Broken) or has_violations(result) for _, result in rows))


def has_violations(result: Result) -> bool:
    return isinstance(result, Outcome) and bool(result.violations)


def _multiply(counts: Mapping[str, int], factor: float) -> dict[str, int]:
    return {name: max(1, round(count * factor)) for name, count in counts.items()}


def run_scenario(scenario: Scenario, counts: Mapping[str, int]) -> Result:
    print(f"{scenario.name}: {sum(counts.values())} rounds", flush=True)
    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="fairlead-faults-") as folder:
        plan = log_rounds(plan_rounds(counts), progress)
        try:
            outcome = asyncio.run(scenario.run_scenario(Path(folder), plan))
        except pytest.skip.Exception as reason:
            return Skipped(str(reason))
        except Exception as error:  # noqa: BLE001  # whatever a scenario breaks off with, the next one is run
            traceback.print_exc()
            place = f"broke off in round {progress.rounds}" if progress.rounds else "cannot be set up"
            return Broken(f"{place}: {_describe_error(error)}")
    for violation in outcome.violations[:MAX_SHOWN]:
        print(f"  {violation.rule}: {violation.what}", file=sys.stderr, flush=True)
    return outcome


def _describe_error(error: Exception) -> str:
    """In one line. A program that failed has given its reason on stderr."""
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
        print(said, file=sys.stderr, flush=True)
        return f"{error.cmd[0]} failed: {' '.join(said.split())}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def log_rounds(plan: Plan, progress: Progress) -> Plan:
    """Wraps a plan so that the start of each round is printed and counted."""

    def log_fault(name: str, fault: Fault, number: int, of: int) -> tuple[str, Fault]:
        async def run_fault(deployment: Deployment) -> None:
            progress.rounds = number
            print(f"  {number}/{of} {name}", flush=True)
            await fault(deployment)

        return name, run_fault

    def plan_with_log(available: Sequence[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
        chosen = list(plan(available))
        return [log_fault(name, fault, number, len(chosen)) for number, (name, fault) in enumerate(chosen, 1)]

    return plan_with_log


def format_table(rows: list[tuple[str, Result]]) -> str:
    """Formats the results as a Markdown table, and counts them."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    total: Counter[str] = Counter()
    for scenario, each in rows:
        if isinstance(each, Skipped | Broken):
            prefix = "skipped: " if isinstance(each, Skipped) else ""
            lines.append(f"| {scenario} | {prefix}{each.reason} |")
            continue
        total.update(each.faults)
        cells = (
            *(getattr(each, name) for name in COLUMNS),
            each.faults.total(),
            len(each.violations),
            f"{each.seconds:.0f}",
        )
        lines.append(f"| {scenario} | {' | '.join(map(str, cells))} |")
    causes = ", ".join(f"{name} {count}" for name, count in total.most_common())
    results = [result for _, result in rows]
    completed = sum(isinstance(result, Outcome) for result in results)
    violated = sum(map(has_violations, results))
    broken = sum(isinstance(result, Broken) for result in results)
    skipped = sum(isinstance(result, Skipped) for result in results)
    counts = (
        f"{completed} run, {violated} of them with violations; {broken} not set up or broken off, {skipped} skipped"
    )
    return "\n".join([*lines, "", f"faults: {causes}", f"scenarios: {counts}"])


if __name__ == "__main__":
    sys.exit(main())
