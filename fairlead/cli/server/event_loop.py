"""Runs a server in this process: event loop, signal handling, and startup errors.

`serve.py` passes `app.run`, for `up` and `serve`; `agent` passes `app.agent.run`.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import typer

from fairlead.core.files import FileProblem, MissingFile
from fairlead.settings import Settings, StartError, load, load_credentials

StartedT = TypeVar("StartedT")
SettingsT = TypeVar("SettingsT")
RunServer = Callable[[SettingsT, asyncio.Event, Callable[[StartedT], None]], Coroutine[Any, Any, None]]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def load_settings(flags: Mapping[str, str | None], defaults: Mapping[str, Any] | None = None) -> Settings:
    """Loads the settings and configures logging."""
    from fairlead.core.log import configure_logging

    with report_start_errors():
        # Not visible in /proc, unlike variables that the process was started with.
        os.environ.update(load_credentials(os.environ))
        settings = load(flags, os.environ, defaults)
    configure_logging(settings.log_level, settings.log_format)
    return settings


def run_until_signal(
    run: RunServer[SettingsT, StartedT], settings: SettingsT, on_ready: Callable[[StartedT], None]
) -> None:
    """Runs the server until the first SIGINT or SIGTERM, and returns after a graceful shutdown."""
    import uvloop

    from fairlead.core.machine.service_manager import notify_ready

    def announce(started: StartedT) -> None:
        on_ready(started)
        notify_ready()

    stop = asyncio.Event()
    with report_start_errors(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _stop_on_signals(runner.get_loop(), stop)
        runner.run(run(settings, stop, announce))
        # At exit Python restores the default handlers, which would kill the process; ignored signals stay ignored.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """The first signal starts the shutdown; later signals are ignored.

    `loop.add_signal_handler` is not used: closing the loop removes its handlers, and a signal during the close would
    then kill the process.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    for number in STOP_SIGNALS:
        signal.signal(number, handle)


@contextmanager
def report_start_errors() -> Iterator[None]:
    """Prints errors of settings, files and the start, and exits with code 1, or 2 for a missing file."""
    try:
        yield
    except (StartError, FileProblem) as error:
        raise exit_with_error(error, code=2 if isinstance(error, MissingFile) else 1) from None


def exit_with_error(error: Exception, code: int = 1) -> typer.Exit:
    for line in str(error).splitlines():
        typer.echo(f"fairlead: {line}", err=True)
    return typer.Exit(code)
