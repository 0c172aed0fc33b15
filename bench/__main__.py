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

from bench.chart import chart
from bench.failure import Failure
from bench.lines import document, lines, missed_fairness
from bench.run import Asked, Result, Say, measure
from bench.scale import FULL, QUICK
from bench.servers import Server, peer
from bench.table import table

WIDTH = 240
"""Where nobody looks at a terminal, rows stay on one line."""

RESULT, CHART = Path("build/bench.json"), Path("build/bench.svg")


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Small and short; no figure of it counts.")] = False,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peer", metavar="NAME=ROOT_URL,TOKEN", help="Measure this server too. Can be repeated."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Only rows with this in their names, or growth, or fairness."),
    ] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Where all readings go.")] = RESULT,
    chart_file: Annotated[Path, typer.Option("--chart", help="Where the chart goes.")] = CHART,
) -> None:
    """Measure a server on this machine under load, each figure beside its ceiling and its aim."""
    asked = Asked(QUICK if quick else FULL, _peers(peers or []), only or [])
    _allow_many_connections()
    result = _measured(asked)
    found = lines(result)
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    console.print(table(result, found))
    _write(console, json_file, orjson.dumps(document(result, found), option=orjson.OPT_INDENT_2))
    _write(console, chart_file, chart(result, found).encode())
    if missed := missed_fairness(result, found):
        console.print(f"bench: neighbours are noticed more than they may be: {'; '.join(missed)}", style="red")
        raise typer.Exit(1)


def _write(console: Console, file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    console.print(f"written: {file}")


def _peers(texts: list[str]) -> list[Server]:
    try:
        found = [peer(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--peer") from None
    if len({each.name for each in found}) < len(found):
        raise typer.BadParameter("two peers have the same name; give each its own", param_hint="--peer")
    return found


def _allow_many_connections() -> None:
    """Thousands of watches are thousands of open files, here and in the servers that are started from here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _measured(asked: Asked) -> Result:
    progress = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, progress.status("starting") as status:

        def say(what: str) -> None:
            status.update(what)
            if not progress.is_terminal:
                progress.print(what)

        try:
            return runner.run(_stoppable(asked, say))
        except Failure as failure:
            progress.print(f"bench: {failure}", style="red")
            raise typer.Exit(1) from None
        except asyncio.CancelledError:
            progress.print("bench: stopped before there was a result")
            raise typer.Exit(1) from None


async def _stoppable(asked: Asked, say: Say) -> Result:
    """SIGTERM ends the run as Ctrl-C does: what was started is stopped first."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await measure(asked, say)


def main() -> None:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(command)
    app()


if __name__ == "__main__":
    main()
