"""`bench.fleet` with a few clusters: each row is measured."""

from collections.abc import Callable
from pathlib import Path

from bench.fleet.run import Plan, measure_fleet


def test_a_small_fleet_is_measured(tmp_path: Path, component: Callable[[str], Path]) -> None:
    component("wrk")
    rows = {row.name: row.value for row in measure_fleet(tmp_path, Plan(clusters=2, dialled=2, seconds=1.0))}
    assert "2 agents have joined" in rows
    assert "server killed: all reached again" in rows
    assert "1 agents lost at once: noticed" in rows
