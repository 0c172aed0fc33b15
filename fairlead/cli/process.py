"""One server in this process: event loop, signals, and errors as the one line that helps.

`up` and `serve` hand over `app.run`, which only they may import.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import typer

from fairlead.core.files import FileProblem
from fairlead.core.log import set_up_logging
from fairlead.settings import Settings, StartError, load

Started = TypeVar("Started")
Run = Callable[[Settings, asyncio.Event, Callable[[Started], None]], Coroutine[Any, Any, None]]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def load_settings(flags: Mapping[str, str | None], defaults: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process, with its log set up accordingly."""
    try:
        settings = load(flags, os.environ, defaults)
    except (StartError, FileProblem) as error:
        raise _failed(error) from None
    set_up_logging(settings.log_level, settings.log_format)
    return settings


def run_until_signal(run: Run[Started], settings: Settings, ready: Callable[[Started], None]) -> None:
    """Returns after the first SIGINT or SIGTERM, once the server has let go of everything."""
    import uvloop

    async def running() -> None:
        stop = asyncio.Event()
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(settings, stop, ready)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(running())
    except (StartError, FileProblem) as error:
        raise _failed(error) from None


def _failed(error: Exception) -> typer.Exit:
    for line in str(error).splitlines():
        typer.echo(f"fairlead: {line}", err=True)
    return typer.Exit(1)
