"""`fairlead serve`: runs the server as a service. Every setting is a flag; logs go to stderr, without secrets."""

from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.server.event_loop import load_settings
from fairlead.cli.server.setting_flags import settings_signature
from fairlead.cli.server.start import start_server
from fairlead.client.admin_kubeconfig import write_admin_kubeconfig

if TYPE_CHECKING:
    from fairlead.app import StartedServer


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
