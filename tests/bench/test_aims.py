"""Tests of `bench/aims.py`, `lines.py` and `chart.py`: lines are compared to their aims."""

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from bench.aims import (
    PEER_CPU,
    PEER_MEMORY,
    PEER_RATE,
    Aim,
    PeerAim,
    above_ceiling,
    at_least,
    at_most,
    of_ceiling,
    of_get_ceiling,
    times_cpu,
)
from bench.chart import draw_chart
from bench.figures import Compared, Reading, Single
from bench.lines import Line, lines
from bench.rows import GET
from bench.run import Result, RunOptions
from bench.scale import FULL, QUICK


def build_row(name: str, ours: float, ceiling: float, aim: Aim | None, **peers: float) -> Compared:
    others = {peer: [Reading(figure, None, None)] for peer, figure in peers.items()}
    return Compared(name, "requests/s", False, [Reading(ours, 1, 1)], [Reading(ceiling, 1, 1, 0.5)], aim, others)


def build_result(*rows: Compared, grown: tuple[Compared, ...] = (), singles: tuple[Single, ...] = ()) -> Result:
    return Result(datetime(2026, 1, 1, tzinfo=UTC), "a <machine>", FULL, 700, rows, grown, singles)


def build_lines(*rows: Compared, singles: tuple[Single, ...] = ()) -> list[Line]:
    return lines(build_result(*rows, singles=singles))


@pytest.mark.parametrize(("ours", "met"), [(50, True), (49, False)])
def test_an_aim_can_be_a_share_of_the_ceiling(ours: float, met: bool) -> None:
    (line,) = build_lines(build_row("LIST", ours, 100, of_ceiling(0.5)))
    assert (line.met, line.target, line.aim) == (met, 50, "50% of its ceiling")


@pytest.mark.parametrize(("ours", "met"), [(200, True), (199, False)])
def test_a_share_of_the_ceiling_of_get_scales_with_the_machine(ours: float, met: bool) -> None:
    _, line = build_lines(build_row(GET.name, 900, 1_000, GET.aim), build_row("CREATE", ours, 700, of_get_ceiling(0.2)))
    assert (line.met, line.target) == (met, 200)


def test_without_the_ceiling_of_get_the_verdict_is_unknown() -> None:
    (line,) = build_lines(build_row("CREATE", 100, 700, of_get_ceiling(0.2)))
    assert (line.met, line.target) == (None, None)


def test_limits_can_be_minimum_or_maximum() -> None:
    singles = (Single("memory", "MiB", 191, at_most(190)), Single("events", "events/s", 191, at_least(190)))
    assert [line.met for line in build_lines(singles=singles)] == [False, True]


def test_a_row_without_an_aim_has_no_verdict() -> None:
    (line,) = build_lines(build_row("GET scoped", 1, 2, None))
    assert (line.aim, line.met) == ("", None)


def test_a_ceiling_limited_by_the_load_generator_is_marked() -> None:
    busy = Compared("GET", "requests/s", False, [Reading(1, 1, 1)], [Reading(2, 1, 1, 0.97)])
    assert [line.limited for line in build_lines(busy, build_row("LIST", 1, 2, None))] == [True, False]


@pytest.mark.parametrize(("ours", "met"), [(6, True), (6.1, False)])
def test_a_latency_can_be_bounded_by_milliseconds_above_the_ceiling(ours: float, met: bool) -> None:
    (line,) = build_lines(
        Compared("GET beside", "ms", True, [Reading(ours, 1, 1)], [Reading(1, 1, 1)], above_ceiling(5))
    )
    assert (line.met, line.target, line.aim) == (met, 6, "at most 5 ms above it")


def test_milliseconds_above_the_ceiling_are_the_median_of_the_pairs() -> None:
    ours, ceiling = [Reading(figure, 1, 1) for figure in (14, 30, 3)], [Reading(figure, 1, 1) for figure in (10, 1, 1)]
    (line,) = build_lines(Compared("GET beside", "ms", True, ours, ceiling, above_ceiling(5)))
    assert (line.figure, line.target, line.met) == (14, 6, True)


@pytest.mark.parametrize(("cpu_us", "met"), [(110, True), (111, False), (None, None)])
def test_an_aim_can_bound_the_processor_time(cpu_us: float | None, met: bool | None) -> None:
    row = Compared("GET", "requests/s", False, [Reading(1, 1, cpu_us)], [Reading(9, 1, 100)], times_cpu(1.1))
    (line,) = build_lines(row)
    assert (line.met, line.target, line.aim) == (met, None, "at most 1.1 times the CPU")


@pytest.mark.parametrize(
    ("aim", "peer", "met"),
    [
        (PEER_RATE, Reading(10, None, 1), True),
        (PEER_RATE, Reading(11, None, 100), True),
        (PEER_RATE, Reading(11, None, 99), False),
        (PEER_RATE, Reading(11, None, None), None),
        (PEER_RATE, Reading(10, None, None), True),
        (PEER_CPU, Reading(1, None, 120), True),
        (PEER_CPU, Reading(1, None, 119), False),
        (PEER_CPU, Reading(1, None, None), None),
        (None, Reading(1, None, 1), None),
    ],
)
def test_a_row_beside_a_peer_has_an_aim_in_rate_or_processor_time(
    aim: PeerAim | None, peer: Reading, met: bool | None
) -> None:
    ours, ceiling = [Reading(100, None, 10)], [Reading(100, None, 10)]
    (line,) = build_lines(Compared("GET", "requests/s", False, ours, ceiling, None, {"kube": [peer]}, aim))
    assert line.peers["kube"].met is met


@pytest.mark.parametrize(("memory", "met"), [(500, True), (499, False)])
def test_memory_is_at_most_a_fifth_of_a_peers(memory: float, met: bool) -> None:
    (line,) = build_lines(singles=(Single("memory", "MiB", 100, None, {"kube": memory}, PEER_MEMORY),))
    assert (line.peers["kube"].met, line.peers["kube"].times, line.peer_aim) == (met, memory / 100, "1/5")


def test_a_peer_is_compared_pair_by_pair() -> None:
    ours, peer = [Reading(50, 1, 8), Reading(5, 1, 1), Reading(40, 1, 5)], [Reading(10, 1, 80), Reading(1, 1, 30)]
    row = Compared("GET", "requests/s", False, ours, ours, None, {"kube": [*peer, Reading(10, 1, 100)]}, PEER_RATE)
    (line,) = build_lines(row)
    assert (line.peers["kube"].times, line.peers["kube"].cpu_times, line.peers["kube"].met) == (5, 20, True)
    assert line.peer_aim == "10 times or 1/10 of its CPU"


def test_the_chart_draws_our_figure_the_ceiling_the_aim_and_peers() -> None:
    run_result = build_result(
        build_row("LIST & more", 25, 100, of_ceiling(0.5), other=10),
        grown=(build_row("GET grown", 1, 2, of_ceiling(0.8)),),
    )
    svg = draw_chart(run_result, lines(run_result))
    assert "LIST &amp; more" in svg and "a &lt;machine&gt;" in svg
    assert "other: 10.0" in svg
    assert "GET grown" not in svg
    assert svg.count('class="aim"') == 2
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_only_selected_rows_are_measured() -> None:
    assert RunOptions(QUICK).wants("GET one object")
    assert RunOptions(QUICK, only=("list", "get")).wants("GET one object")
    assert not RunOptions(QUICK, only=("watch",)).wants("GET one object")
