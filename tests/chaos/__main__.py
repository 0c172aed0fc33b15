"""`python -m tests.chaos --full`: every scenario in full, and a table at the end. Exit code 1 if anything is violated.

The short form is what `make test` runs; here it is for trying something out, as are `--only` and `--times`.
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

from tests.chaos.deployment import World
from tests.chaos.faults import Fault
from tests.chaos.scenarios import SCENARIOS, Plan, Scenario, rounds
from tests.chaos.schedule import SHOWN, Outcome

FIGURES = ("rounds", "operations", "writes", "unknown", "events", "resumed", "expired")
HEAD = ("scenario", *FIGURES, "faults", "violations", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all rounds, not just a few")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--times", type=float, default=1.0, help="so many times the rounds")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="which faults come when")
    given = parser.parse_args()
    random.seed(given.seed)
    print(f"seed {given.seed}", flush=True)
    rows: list[tuple[str, Outcome | str]] = []
    for scenario in SCENARIOS:
        counts = scenario.full if given.full else scenario.short
        if given.only in scenario.name and counts:
            rows.append((scenario.name, _played(scenario, _times(counts, given.times))))
    print(table(rows))
    return int(any(isinstance(outcome, Outcome) and outcome.violations for _, outcome in rows))


def _times(counts: Mapping[str, int], factor: float) -> dict[str, int]:
    return {name: max(1, round(count * factor)) for name, count in counts.items()}


def _played(scenario: Scenario, counts: Mapping[str, int]) -> Outcome | str:
    print(f"{scenario.name}: {sum(counts.values())} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-faults-") as folder:
        try:
            outcome = asyncio.run(scenario.play(Path(folder), told(rounds(counts))))
        except pytest.skip.Exception as reason:
            return str(reason)
    for violation in outcome.violations[:SHOWN]:
        print(f"  {violation.rule}: {violation.what}", file=sys.stderr, flush=True)
    return outcome


def told(plan: Plan) -> Plan:
    """The same, with a word about each round as it begins."""

    def telling(name: str, fault: Fault, number: int, of: int) -> tuple[str, Fault]:
        async def tell(world: World) -> None:
            print(f"  {number}/{of} {name}", flush=True)
            await fault(world)

        return name, tell

    def made(offered: Sequence[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
        chosen = list(plan(offered))
        return [telling(name, fault, number, len(chosen)) for number, (name, fault) in enumerate(chosen, 1)]

    return made


def table(rows: list[tuple[str, Outcome | str]]) -> str:
    """In Markdown, for notes."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    total: Counter[str] = Counter()
    for scenario, each in rows:
        if isinstance(each, str):
            lines.append(f"| {scenario} | skipped: {each} |")
            continue
        total.update(each.faults)
        cells = (
            *(getattr(each, name) for name in FIGURES),
            each.faults.total(),
            len(each.violations),
            f"{each.seconds:.0f}",
        )
        lines.append(f"| {scenario} | {' | '.join(map(str, cells))} |")
    causes = ", ".join(f"{name} {count}" for name, count in total.most_common())
    return "\n".join([*lines, "", f"faults: {causes}"])


if __name__ == "__main__":
    sys.exit(main())
