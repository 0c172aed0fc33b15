"""The noisy neighbour, as small as it gets: every attack is made and answered, and no figure is looked at."""

from datetime import UTC, datetime

import pytest

from bench.aims import ENOUGH_MS, of_alone
from bench.fairness.attacks import ATTACKS
from bench.fairness.run import row_names, wanted_attacks
from bench.figures import Compared, Reading
from bench.lines import lines, missed_fairness
from bench.run import Asked, Result, measure
from bench.scale import FULL, QUICK, Scale

TINY = Scale(1, 1, objects=20, resting=20, audiences=(3,), changes_per_second=20, few=0, many=0)


def result(scale: Scale, alone: float, beside: float) -> Result:
    row = Compared(
        "fairness: GET beside lists",
        "ms, p99",
        True,
        [Reading(beside, None, None)],
        [Reading(alone, None, None)],
        of_alone(),
    )
    return Result(datetime(2026, 1, 1, tzinfo=UTC), "a machine", scale, 0, [], [], [], [row])


@pytest.mark.parametrize(
    ("alone", "beside", "met"), [(1.0, ENOUGH_MS, True), (1.0, 51.0, False), (30.0, 90.0, True), (30.0, 91.0, False)]
)
def test_a_neighbour_may_cost_three_times_or_what_nobody_notices(alone: float, beside: float, met: bool) -> None:
    found = result(FULL, alone, beside)
    (line,) = lines(found)
    assert line.met is met and line.aim == "3 times alone, or 50 ms" and line.target == max(3 * alone, ENOUGH_MS)
    assert missed_fairness(found, [line]) == ([] if met else ["fairness: GET beside lists"])


def test_a_quick_run_misses_nothing() -> None:
    found = result(QUICK, 1.0, 1000.0)
    assert missed_fairness(found, lines(found)) == []


def test_attacks_are_chosen_by_the_names_of_their_rows() -> None:
    assert wanted_attacks(Asked(QUICK).wants) == wanted_attacks(Asked(QUICK, only=("fairness",)).wants) == [*ATTACKS]
    assert wanted_attacks(Asked(QUICK, only=("beside YAML", "create beside lists")).wants) == ["YAML", "lists"]
    assert wanted_attacks(Asked(QUICK, only=("LIST 500",)).wants) == []


async def test_every_attack_is_made_and_answered() -> None:
    told: list[str] = []
    found = await measure(Asked(TINY, only=("fairness",)), told.append)
    assert [row.name for row in found.beside] == [name for attack in ATTACKS for name in row_names(attack)]
    assert all(row.ours[0].figure > 0 and row.ceiling[0].figure > 0 for row in found.beside)
    for attack, line in zip(ATTACKS, told, strict=True):
        assert line.startswith(f"fairness: {attack}: ") and " x " in line
