"""`python -m bench`: a table, and with `--json FILE` the readings behind it. It takes about three minutes."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import orjson
import typer
import uvloop
from rich.console import Console

from bench.compare import Pace
from bench.failure import Failure
from bench.run import Result, measure
from bench.table import document, table

ROUNDS = 3
SECONDS = 3
WIDTH = 160
"""Where nobody looks at a terminal, rows stay on one line."""


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Rounds of one second: a first look in one minute.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all readings to this file.")] = None,
) -> None:
    """Measure a server on this machine under load, each figure beside its ceiling."""
    pace = Pace(ROUNDS, 1 if quick else SECONDS)
    progress = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, progress.status("starting") as status:
        try:
            result = runner.run(_stoppable(pace, status.update))
        except Failure as failure:
            progress.print(f"bench: {failure}", style="red")
            raise typer.Exit(1) from None
        except asyncio.CancelledError:
            progress.print("bench: stopped before there was a result")
            raise typer.Exit(1) from None
    show(result)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(document(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


async def _stoppable(pace: Pace, say: Callable[[str], None]) -> Result:
    """SIGTERM ends the run as Ctrl-C does: what was started is stopped first."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await measure(pace, say)


def show(result: Result) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(table(result))


def main() -> None:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(command)
    app()


if __name__ == "__main__":
    main()
