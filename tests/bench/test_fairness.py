"""Tests of `bench/fairness`: every attack runs at the smallest scale, without checks of figures."""

from datetime import UTC, datetime

import pytest

from bench.aims import ENOUGH_MS, times_alone
from bench.fairness.attacks import ATTACKS
from bench.fairness.run import row_names, select_attacks
from bench.figures import Compared, Reading
from bench.lines import lines, list_missed_fairness
from bench.run import Result, RunOptions, measure
from bench.scale import FULL, QUICK, Scale

TINY = Scale(1, 1, objects=20, audiences=(3,), changes_per_second=20, few=0, many=0, workers=())


def build_result(scale: Scale, alone: float, beside: float) -> Result:
    row = Compared(
        "fairness: GET beside lists",
        "ms, p99",
        True,
        [Reading(beside, None, None)],
        [Reading(alone, None, None)],
        times_alone(),
    )
    return Result(datetime(2026, 1, 1, tzinfo=UTC), "a machine", scale, 0, [], [], [], [row])


@pytest.mark.parametrize(
    ("alone", "beside", "met"), [(1.0, ENOUGH_MS, True), (1.0, 51.0, False), (30.0, 90.0, True), (30.0, 91.0, False)]
)
def test_latency_under_attack_may_be_three_times_or_not_noticeable(alone: float, beside: float, met: bool) -> None:
    measured = build_result(FULL, alone, beside)
    (line,) = lines(measured)
    assert line.met is met and line.aim == "3 times alone, or 50 ms" and line.target == max(3 * alone, ENOUGH_MS)
    assert list_missed_fairness(measured, [line]) == ([] if met else ["fairness: GET beside lists"])


def test_a_quick_run_has_no_missed_aims() -> None:
    measured = build_result(QUICK, 1.0, 1000.0)
    assert list_missed_fairness(measured, lines(measured)) == []


def test_attacks_are_selected_by_the_names_of_their_rows() -> None:
    assert (
        select_attacks(RunOptions(QUICK).wants)
        == select_attacks(RunOptions(QUICK, only=("fairness",)).wants)
        == [*ATTACKS]
    )
    assert select_attacks(RunOptions(QUICK, only=("beside YAML", "create beside lists")).wants) == ["YAML", "lists"]
    assert select_attacks(RunOptions(QUICK, only=("LIST 500",)).wants) == []


@pytest.mark.long
async def test_every_attack_runs_and_gets_responses() -> None:
    messages: list[str] = []
    measured = await measure(RunOptions(TINY, only=("fairness",)), messages.append)
    assert [row.name for row in measured.beside] == [name for attack in ATTACKS for name in row_names(attack)]
    assert all(row.ours[0].figure > 0 and row.ceiling[0].figure > 0 for row in measured.beside)
    for attack, line in zip(ATTACKS, messages, strict=True):
        assert line.startswith(f"fairness: {attack}: ") and " x " in line
