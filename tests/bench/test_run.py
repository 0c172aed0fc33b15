"""A run from end to end, as small as it gets: real servers, real load, and no figure is looked at."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import orjson
from rich.console import Console

from bench.chart import chart
from bench.lines import document, lines
from bench.run import Asked, measure
from bench.scale import Scale
from bench.table import table

TINY = Scale(1, 1, objects=20, resting=20, audiences=(3,), changes_per_second=20, few=0, many=0)


async def test_requests_and_watches_are_measured_at_both_servers_and_the_result_can_be_shown(
    component: Callable[[str], Path],
) -> None:
    component("wrk")
    told: list[str] = []
    result = await measure(Asked(TINY, only=("server-side apply", "by 3, delivered")), told.append)
    found = lines(result)
    assert [line.name for line in found] == ["server-side apply", "WATCH by 3, delivered"]
    assert all(line.figure > 0 and line.ceiling for line in found)
    assert "server-side apply" in told

    page = StringIO()
    Console(file=page, width=240).print(table(result, found))
    assert "none of its figures count" in page.getvalue()
    assert orjson.loads(orjson.dumps(document(result, found)))["lines"][0]["name"] == "server-side apply"
    assert chart(result, found).startswith("<svg ")
