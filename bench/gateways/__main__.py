"""`python -m bench.gateways`: a table. `--quick` takes a minute, with fewer clusters."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.failure import Failure
from bench.gateways.reference import measure_reference
from bench.gateways.run import Row, measure_among_many, measure_throughput


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Rounds of one second and 40 clusters.")] = False,
    clusters: Annotated[int, typer.Option("--clusters", help="Clusters that are connected at once.")] = 200,
    failing: Annotated[int, typer.Option("--bad", help="How many of them are dead or never respond.")] = 20,
    kubeconfig: Annotated[Path | None, typer.Option("--reference", help="Only this real cluster as upstream.")] = None,
) -> None:
    """Measure what gateways cost, and a fleet of clusters of which some are dead."""
    seconds, clusters, failing = (1, 40, 4) if quick else (5, clusters, failing)
    console = Console(width=140)
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            if kubeconfig is not None:
                rows += measure_reference(Path(folder), seconds, kubeconfig)
            else:
                rows += measure_throughput(Path(folder), seconds)
                rows += measure_among_many(Path(folder), seconds, clusters, failing)
    except Failure as failure:
        console.print(f"bench: {failure}", style="red")
        raise typer.Exit(1) from None
    table = Table("", "measured", "aim")
    for row in rows:
        table.add_row(row.name, row.value, row.aim)
    console.print(table)


if __name__ == "__main__":
    typer.run(command)
