"""`python -m bench`: a table, the readings behind it in a file, and a chart. `--quick` only shows that it works."""

import asyncio
import resource
import signal
from pathlib import Path
from typing import Annotated

import orjson
import typer
import uvloop
from rich.console import Console

from bench.chart import draw_chart
from bench.failure import Failure
from bench.lines import build_document, lines, list_missed_fairness
from bench.run import ReportProgress, Result, RunOptions, measure
from bench.scale import FULL, QUICK
from bench.servers import Server, parse_peer
from bench.table import build_tables

WIDTH = 240
"""The width of the output without a terminal, so that rows stay on one line."""

RESULT = Path("build/bench.json")
CHART = Path("build/bench.svg")


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Small and short; no figure of it counts.")] = False,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            "--peer",
            metavar="NAME=ROOT_URL,TOKEN[,PID[+PID...]]",
            help="Measure this server too; with its processes, also their CPU time and memory. Can be repeated.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="TEXT", help="Only rows with this in their names, or workers, growth or fairness."
        ),
    ] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Where all readings go.")] = RESULT,
    chart_file: Annotated[Path, typer.Option("--chart", help="Where the chart goes.")] = CHART,
) -> None:
    """Measure a server on this machine under load, each figure beside its ceiling and its aim."""
    options = RunOptions(QUICK if quick else FULL, _parse_peers(peers or []), only or [])
    _allow_many_connections()
    result = _run(options)
    result_lines = lines(result)
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    for table in build_tables(result, result_lines):
        console.print(table)
    _write(console, json_file, orjson.dumps(build_document(result, result_lines), option=orjson.OPT_INDENT_2))
    _write(console, chart_file, draw_chart(result, result_lines).encode())
    if missed := list_missed_fairness(result, result_lines):
        console.print(f"bench: other users are affected more than allowed: {'; '.join(missed)}", style="red")
        raise typer.Exit(1)


def _write(console: Console, file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    console.print(f"written: {file}")


def _parse_peers(texts: list[str]) -> list[Server]:
    try:
        result_lines = [parse_peer(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--peer") from None
    if len({each.name for each in result_lines}) < len(result_lines):
        raise typer.BadParameter("two peers have the same name", param_hint="--peer")
    return result_lines


def _allow_many_connections() -> None:
    """Raises the limit of open files for thousands of watches, here and in the started servers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(options: RunOptions) -> Result:
    progress = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, progress.status("starting") as status:

        def report_progress(message: str) -> None:
            status.update(message)
            if not progress.is_terminal:
                progress.print(message)

        try:
            return runner.run(_run_until_stopped(options, report_progress))
        except Failure as failure:
            progress.print(f"bench: {failure}", style="red")
            raise typer.Exit(1) from None
        except asyncio.CancelledError:
            progress.print("bench: stopped without a result")
            raise typer.Exit(1) from None


async def _run_until_stopped(options: RunOptions, report_progress: ReportProgress) -> Result:
    """SIGTERM ends the run like Ctrl-C: the started servers are stopped first."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await measure(options, report_progress)


def main() -> None:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(command)
    app()


if __name__ == "__main__":
    main()
