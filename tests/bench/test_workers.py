"""Tests of `bench/workers.py`: a run at the smallest scale, without checks of figures."""

from collections.abc import Callable
from pathlib import Path

from bench.workers import build_table


async def test_requests_and_memory_of_all_processes_are_measured(component: Callable[[str], Path]) -> None:
    component("wrk")
    table = await build_table([2], "", 1, 20)
    workers, get_rate, _, create_rate, _, empty, filled = [next(iter(column.cells)) for column in table.columns]
    assert workers == "2"
    assert get_rate != "0" and create_rate != "0"
    for memory in (str(empty), str(filled)):
        assert "fairlead-owner" in memory and memory.count("fairlead-worker") == 2
