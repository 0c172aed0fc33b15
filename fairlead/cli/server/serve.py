"""`fairlead serve`: runs the server as a service. Every setting is a flag; logs go to stderr, without secrets.

`up` starts its server with `start_server`, too: in this process, or as the supervisor of several workers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.server.event_loop import load_settings, report_start_errors, run_until_signal
from fairlead.cli.server.setting_flags import settings_signature
from fairlead.client.admin_kubeconfig import write_admin_kubeconfig
from fairlead.settings import Settings

if TYPE_CHECKING:
    from fairlead.app import StartedServer


def start_server(settings: Settings, on_ready: "Callable[[StartedServer], None]") -> None:
    """Serves until the first SIGINT or SIGTERM."""
    if settings.worker_count == 1:
        from fairlead.app import run

        run_until_signal(run, settings, on_ready)
        return
    from fairlead.app.workers.supervisor import supervise
    from fairlead.core.machine.service_manager import notify_ready

    def announce(started: "StartedServer") -> None:
        on_ready(started)
        notify_ready()

    with report_start_errors():
        supervise(settings, announce)


def command(**flags: str | None) -> None:
    """Run the server as a service.

    Precedence of settings: flags, FAIRLEAD_* variables, the file, the defaults. The first start writes the
    administrator's key to admin.kubeconfig in the data folder.
    """
    settings = load_settings(flags)
    start_server(settings, lambda started: announce(started, settings.data / "admin.kubeconfig"))


# Typer reads the flags from the signature, which is generated from the settings.
command.__signature__ = settings_signature()  # type: ignore[attr-defined]


def announce(started: "StartedServer", kubeconfig: Path) -> None:
    import structlog

    key = write_admin_kubeconfig(kubeconfig, started.url, started.ca_file, started.new_key)
    log = structlog.get_logger()
    if key is None:
        advice = "use another access key, or run `fairlead admin reset`"
        log.warning("no kubeconfig", missing=str(kubeconfig), advice=advice)
    elif started.is_key_rejected:
        advice = "use another access key, or run `fairlead admin reset`"
        log.warning(
            "the access key in the kubeconfig does not work any more", kubeconfig=str(kubeconfig), advice=advice
        )
    log.info("ready", url=started.url, kubeconfig=str(kubeconfig) if key else None, first_start=bool(started.new_key))
