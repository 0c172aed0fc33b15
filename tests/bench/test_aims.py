"""Each line is held against its aim, in its own unit."""

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from bench.aims import Aim, at_least, at_most, of_ceiling, of_get_ceiling
from bench.chart import chart
from bench.figures import Compared, Reading, Single
from bench.lines import Line, lines
from bench.rows import GET
from bench.run import Asked, Result
from bench.scale import FULL, QUICK


def row(name: str, ours: float, ceiling: float, aim: Aim | None, **peers: float) -> Compared:
    others = {peer: [Reading(figure, None, None)] for peer, figure in peers.items()}
    return Compared(name, "requests/s", False, [Reading(ours, 1, 1)], [Reading(ceiling, 1, 1, 0.5)], aim, others)


def result(*rows: Compared, grown: tuple[Compared, ...] = (), singles: tuple[Single, ...] = ()) -> Result:
    return Result(datetime(2026, 1, 1, tzinfo=UTC), "a <machine>", FULL, 700, rows, grown, singles)


def found(*rows: Compared, singles: tuple[Single, ...] = ()) -> list[Line]:
    return lines(result(*rows, singles=singles))


@pytest.mark.parametrize(("ours", "met"), [(50, True), (49, False)])
def test_a_share_of_its_own_ceiling(ours: float, met: bool) -> None:
    (line,) = found(row("LIST", ours, 100, of_ceiling(0.5)))
    assert (line.met, line.target, line.aim) == (met, 50, "50% of its ceiling")


@pytest.mark.parametrize(("ours", "met"), [(200, True), (199, False)])
def test_a_share_of_the_ceiling_of_get_scales_with_the_machine(ours: float, met: bool) -> None:
    _, line = found(row(GET.name, 900, 1_000, GET.aim), row("CREATE", ours, 700, of_get_ceiling(0.2)))
    assert (line.met, line.target) == (met, 200)


def test_without_the_ceiling_of_get_nobody_can_tell() -> None:
    (line,) = found(row("CREATE", 100, 700, of_get_ceiling(0.2)))
    assert (line.met, line.target) == (None, None)


def test_plain_limits_run_both_ways() -> None:
    singles = (Single("memory", "MiB", 191, at_most(190)), Single("events", "events/s", 191, at_least(190)))
    assert [line.met for line in found(singles=singles)] == [False, True]


def test_a_row_without_an_aim_is_not_judged() -> None:
    (line,) = found(row("GET scoped", 1, 2, None))
    assert (line.aim, line.met) == ("", None)


def test_a_ceiling_that_kept_the_load_generator_busy_is_marked() -> None:
    busy = Compared("GET", "requests/s", False, [Reading(1, 1, 1)], [Reading(2, 1, 1, 0.97)])
    assert [line.limited for line in found(busy, row("LIST", 1, 2, None))] == [True, False]


def test_the_chart_draws_ours_the_ceiling_the_aim_and_peers_and_nothing_that_has_another_ceiling() -> None:
    told = result(
        row("LIST & more", 25, 100, of_ceiling(0.5), other=10), grown=(row("GET grown", 1, 2, of_ceiling(0.8)),)
    )
    drawn = chart(told, lines(told))
    assert "LIST &amp; more" in drawn and "a &lt;machine&gt;" in drawn
    assert "other: 10.0" in drawn
    assert "GET grown" not in drawn
    assert drawn.count('class="aim"') == 2
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_only_rows_that_were_asked_for_are_measured() -> None:
    assert Asked(QUICK).wants("GET one object")
    assert Asked(QUICK, only=("list", "get")).wants("GET one object")
    assert not Asked(QUICK, only=("watch",)).wants("GET one object")
