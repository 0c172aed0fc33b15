"""Starts a server for `up` and `serve`: in this process, or as the supervisor of several workers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlead.cli.server.event_loop import exit_with_error, run_until_signal
from fairlead.core.files import FileProblem
from fairlead.settings import Settings, StartError

if TYPE_CHECKING:
    from fairlead.app import StartedServer


def start_server(settings: Settings, on_ready: "Callable[[StartedServer], None]") -> None:
    """Serves until the first SIGINT or SIGTERM."""
    if settings.worker_count == 1:
        from fairlead.app import run

        run_until_signal(run, settings, on_ready)
        return
    from fairlead.app.workers.supervisor import supervise
    from fairlead.core.machine import notify_ready

    def announce(started: "StartedServer") -> None:
        on_ready(started)
        notify_ready()

    try:
        supervise(settings, announce)
    except (StartError, FileProblem) as error:
        raise exit_with_error(error) from None
