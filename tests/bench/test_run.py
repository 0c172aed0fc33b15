"""Tests of `bench/run.py`: a run at the smallest scale, with real servers and load, without checks of figures."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from bench.chart import draw_chart
from bench.failure import Failure
from bench.lines import build_document, lines
from bench.run import RunOptions, measure
from bench.scale import Scale
from bench.servers import run_fairlead
from bench.table import build_tables

TINY = Scale(1, 1, objects=100, audiences=(3,), changes_per_second=20, few=0, many=0, workers=(1, 2))


async def test_requests_and_watches_are_measured_and_the_result_is_rendered(
    component: Callable[[str], Path],
) -> None:
    component("wrk")
    messages: list[str] = []
    result = await measure(RunOptions(TINY, only=("server-side apply", "by 3, delivered")), messages.append)
    result_lines = lines(result)
    assert [line.name for line in result_lines] == ["server-side apply", "WATCH by 3, delivered"]
    assert all(line.figure > 0 and line.ceiling for line in result_lines)
    assert "server-side apply" in messages

    page = StringIO()
    for table in build_tables(result, result_lines):
        Console(file=page, width=240).print(table)
    assert "none of its figures count" in page.getvalue()
    assert orjson.loads(orjson.dumps(build_document(result, result_lines)))["lines"][0]["name"] == "server-side apply"
    assert draw_chart(result, result_lines).startswith("<svg ")


@pytest.mark.long
async def test_updates_and_deletions_are_measured_beside_a_peer(
    component: Callable[[str], Path], tmp_path: Path
) -> None:
    component("wrk")
    async with run_fairlead(tmp_path) as server:
        peer = replace(server, name="peer", ca_file=None)
        options = RunOptions(TINY, [peer], only=("UPDATE", "DELETE", "beside LIST all"))
        result_lines = lines(await measure(options, lambda message: None))
    assert [line.name for line in result_lines] == ["GET one object beside LIST all 100", "UPDATE", "DELETE"]
    for line in result_lines:
        assert line.p50_ms and line.p99_ms and line.max_ms
        assert line.p50_ms <= line.p99_ms <= line.max_ms
        assert line.peers["peer"].figure > 0 and line.peers["peer"].p99_ms
    assert all(line.cpu_us and line.peers["peer"].cpu_us and line.peers["peer"].cpu_times for line in result_lines[1:])


async def test_updates_need_more_objects_than_connections(component: Callable[[str], Path], tmp_path: Path) -> None:
    component("wrk")
    with pytest.raises(Failure, match="fairlead has 3 objects, but updates need at least"):
        await measure(RunOptions(replace(TINY, objects=3), only=("UPDATE",)), lambda message: None)


@pytest.mark.long
async def test_growth_is_measured_beside_a_server_with_few_objects(component: Callable[[str], Path]) -> None:
    component("wrk")
    options = RunOptions(replace(TINY, few=10, many=60), only=("growth",))
    result_lines = lines(await measure(options, lambda message: None))
    assert [line.name for line in result_lines] == [
        "GET one object with 60 objects, of the rate with 10",
        "CREATE with 60 objects, of the rate with 10",
        "GET one object beside CREATE with 60 objects, of that with 10",
        "start with 60 objects",
        "from there to rest with 60 objects",
        "memory per object beyond its bytes, of 60",
    ]
    beside = result_lines[2]
    assert beside.p50_ms and beside.max_ms and beside.ceiling and beside.target == beside.ceiling + 5


@pytest.mark.long
async def test_requests_and_memory_of_several_workers_are_measured(component: Callable[[str], Path]) -> None:
    component("wrk")
    result_lines = lines(await measure(RunOptions(TINY, only=("workers",)), lambda message: None))
    figures = {line.name: line for line in result_lines}
    requests = ("GET one object", "CREATE", "UPDATE", "JSON PATCH")
    assert [*figures] == [
        *(f"{workers}: {name}" for name in requests for workers in ("1 worker", "2 workers")),
        *(f"memory with 100 objects, {workers}" for workers in ("1 worker", "2 workers")),
    ]
    one, two = figures["1 worker: GET one object"], figures["2 workers: GET one object"]
    assert one.figure > 0 and one.ceiling is None and one.aim == ""
    assert two.ceiling == one.figure and two.cpu_share and two.met is (two.cpu_share * 1.1 >= 1)
    one, two = (figures[f"memory with 100 objects, {workers}"] for workers in ("1 worker", "2 workers"))
    assert two.figure > 1.3 * one.figure  # all processes count
