"""Tests of `bench/run.py`: a run at the smallest scale, with real servers and load, without checks of figures."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import orjson
from rich.console import Console

from bench.chart import draw_chart
from bench.lines import build_document, lines
from bench.run import RunOptions, measure
from bench.scale import Scale
from bench.table import build_table

TINY = Scale(1, 1, objects=20, resting=20, audiences=(3,), changes_per_second=20, few=0, many=0)


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
    Console(file=page, width=240).print(build_table(result, result_lines))
    assert "none of its figures count" in page.getvalue()
    assert orjson.loads(orjson.dumps(build_document(result, result_lines)))["lines"][0]["name"] == "server-side apply"
    assert draw_chart(result, result_lines).startswith("<svg ")
