"""`python -m bench.fleet`: a table. `--quick` takes a minute, with a few clusters."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.failure import Failure
from bench.fleet.run import Plan, measure_fleet


def command(
    quick: Annotated[bool, typer.Option("--quick", help="10 clusters of each kind.")] = False,
    clusters: Annotated[int, typer.Option("--clusters", help="Clusters whose agents dial out.")] = 1000,
    dialled: Annotated[int, typer.Option("--dialled", help="Clusters that the server dials.")] = 2000,
    seconds: Annotated[float, typer.Option("--seconds", help="How long nothing happens.")] = 60.0,
) -> None:
    """Measure what connected clusters cost, and what happens when agents or the server are lost."""
    plan = Plan(10, 10, 3.0) if quick else Plan(clusters, dialled, seconds)
    console = Console(width=140)
    table = Table("", "measured", "aim")
    console.print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            for row in measure_fleet(Path(folder), plan):
                table.add_row(row.name, row.value, row.aim)
                console.print(f"{row.name}: {row.value}")
    except Failure as failure:
        console.print(table)
        console.print(f"bench: {failure}", style="red")
        raise typer.Exit(1) from None
    console.print(table)
    console.print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    typer.run(command)
