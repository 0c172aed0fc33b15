"""`python -m tests.chaos --full`: runs every fault scenario and prints a table. The exit code is 1 on any violation.

`make test` runs the short form. Here it is for experiments, like `--only` and `--times`.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.chaos.deployment import Deployment
from tests.chaos.faults import Fault
from tests.chaos.scenarios import SCENARIOS, Plan, Scenario, plan_rounds
from tests.chaos.schedule import MAX_SHOWN, Outcome

COLUMNS = ("rounds", "operations", "writes", "unknown", "events", "resumed", "expired")
HEAD = ("scenario", *COLUMNS, "faults", "violations", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all rounds, not just a few")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--times", type=float, default=1.0, help="factor for the number of rounds")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="seed of the order of faults")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    rows: list[tuple[str, Outcome | str]] = []
    for scenario in SCENARIOS:
        counts = scenario.full if options.full else scenario.short
        if options.only in scenario.name and counts:
            rows.append((scenario.name, _run_scenario(scenario, _multiply(counts, options.times))))
    print(format_table(rows))
    return int(any(isinstance(outcome, Outcome) and outcome.violations for _, outcome in rows))


def _multiply(counts: Mapping[str, int], factor: float) -> dict[str, int]:
    return {name: max(1, round(count * factor)) for name, count in counts.items()}


def _run_scenario(scenario: Scenario, counts: Mapping[str, int]) -> Outcome | str:
    print(f"{scenario.name}: {sum(counts.values())} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-faults-") as folder:
        try:
            outcome = asyncio.run(scenario.run_scenario(Path(folder), log_rounds(plan_rounds(counts))))
        except pytest.skip.Exception as reason:
            return str(reason)
    for violation in outcome.violations[:MAX_SHOWN]:
        print(f"  {violation.rule}: {violation.what}", file=sys.stderr, flush=True)
    return outcome


def log_rounds(plan: Plan) -> Plan:
    """Wraps a plan so that the start of each round is printed."""

    def log_fault(name: str, fault: Fault, number: int, of: int) -> tuple[str, Fault]:
        async def run_fault(deployment: Deployment) -> None:
            print(f"  {number}/{of} {name}", flush=True)
            await fault(deployment)

        return name, run_fault

    def plan_with_log(available: Sequence[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
        chosen = list(plan(available))
        return [log_fault(name, fault, number, len(chosen)) for number, (name, fault) in enumerate(chosen, 1)]

    return plan_with_log


def format_table(rows: list[tuple[str, Outcome | str]]) -> str:
    """Formats the results as a Markdown table."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    total: Counter[str] = Counter()
    for scenario, each in rows:
        if isinstance(each, str):
            lines.append(f"| {scenario} | skipped: {each} |")
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
    return "\n".join([*lines, "", f"faults: {causes}"])


if __name__ == "__main__":
    sys.exit(main())
