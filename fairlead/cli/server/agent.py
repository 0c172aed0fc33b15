"""`fairlead agent`: runs the direct endpoint next to a connected cluster. Logs go to stderr, without secrets."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.server.event_loop import run_until_signal
from fairlead.cli.ui.flags import takes

if TYPE_CHECKING:
    from fairlead.app.agent import AgentSettings, Started

SERVER = "The server"
CLUSTER = "The cluster"
LISTENING = "Listening"


@dataclass(frozen=True, slots=True)
class Given:
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the Cluster object.", rich_help_panel=SERVER)]
    server: Annotated[
        str, typer.Option("--server", help="Base URL of the server.", metavar="URL", rich_help_panel=SERVER)
    ]
    key_file: Annotated[
        Path,
        typer.Option(
            "--key-file",
            help="File with the agent's access key: accessKey of `clusters/<name>/accesskey`.",
            metavar="FILE",
            rich_help_panel=SERVER,
        ),
    ]
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            help="PEM file with the server's CA, unless this machine already trusts it.",
            metavar="FILE",
            rich_help_panel=SERVER,
            show_default=False,
        ),
    ] = None
    api_group: Annotated[
        str, typer.Option("--api-group", help="The server's setting api_group.", rich_help_panel=SERVER)
    ] = "management.service.sh"
    offline_hours: Annotated[
        int,
        typer.Option(
            "--offline-hours",
            help="How long to keep serving while the server is unreachable. Revocations take no effect meanwhile.",
            min=0,
            max=2160,
            metavar="N",
            rich_help_panel=SERVER,
        ),
    ] = 24
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Kubeconfig of the cluster, with a token or certificate that may impersonate.",
            metavar="FILE",
            rich_help_panel=CLUSTER,
            show_default=False,
        ),
    ] = None
    in_cluster: Annotated[
        bool,
        typer.Option(
            "--in-cluster", help="Use the service account of this pod and its cluster.", rich_help_panel=CLUSTER
        ),
    ] = False
    listen: Annotated[
        str, typer.Option("--listen", help="Address to listen on.", metavar="IP", rich_help_panel=LISTENING)
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", help="Port, 0 for a free one.", min=0, max=65535, rich_help_panel=LISTENING)
    ] = 8444
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            help="PEM file with the certificate. Without one, a self-signed certificate is generated.",
            metavar="FILE",
            rich_help_panel=LISTENING,
            show_default=False,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key",
            help="PEM file with the private key.",
            metavar="FILE",
            rich_help_panel=LISTENING,
            show_default=False,
        ),
    ] = None
    tls_name: Annotated[
        list[str] | None,
        typer.Option(
            "--tls-name",
            help="Additional DNS name or IP address of the generated certificate. Repeatable.",
            metavar="NAME",
            rich_help_panel=LISTENING,
            show_default=False,
        ),
    ] = None
    state: Annotated[
        Path, typer.Option("--state", help="Folder for the cached configuration, certificate and audit log.")
    ] = Path("fairlead-agent")
    audit_path: Annotated[
        str | None,
        typer.Option(
            "--audit-path",
            help="File for audit events, - for stdout.",
            metavar="PATH",
            show_default="audit.log in the folder",
        ),
    ] = None
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info"
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready, for scripts.")] = False


@takes(Given)
def command(given: Given) -> None:
    """Run the direct endpoint next to a connected cluster.

    Clients connect to it with direct tokens, even while the server is down.
    """
    _refuse_contradictions(given)
    from fairlead.app.agent import run
    from fairlead.core.log import set_up_logging

    set_up_logging(given.log_level, "json")
    run_until_signal(run, settings(given), lambda started: announce(started, given.as_json))


def settings(given: Given) -> "AgentSettings":
    from fairlead.app.agent import AgentSettings

    return AgentSettings(
        cluster=given.cluster,
        server=given.server.rstrip("/"),
        api_group=given.api_group,
        key_file=given.key_file,
        ca_file=given.ca_file,
        kubeconfig=given.kubeconfig,
        listen=given.listen,
        port=given.port,
        state=given.state.absolute(),
        certificate=(given.tls_cert, given.tls_key) if given.tls_cert and given.tls_key else None,
        names=tuple(given.tls_name or ()),
        audit=given.audit_path or "",
        offline_hours=given.offline_hours,
    )


def announce(started: "Started", as_json: bool) -> None:
    import structlog

    ca_file = str(started.ca_file) if started.ca_file else None
    if as_json:
        print(json.dumps({"url": started.url, "caFile": ca_file}), flush=True)
    structlog.get_logger().info("ready", url=started.url, ca_file=ca_file)


def _refuse_contradictions(given: Given) -> None:
    from fairlead.core.validators import check_base_url, check_ip_address

    if bool(given.kubeconfig) == given.in_cluster:
        raise typer.BadParameter("set how to connect to the cluster: --kubeconfig FILE, or --in-cluster in a pod")
    if bool(given.tls_cert) != bool(given.tls_key):
        raise typer.BadParameter("--tls-cert and --tls-key must be used together; set both or neither")
    if given.log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"--log-level {given.log_level}: must be debug, info, warning or error")
    for flag, error in (
        ("--server", check_base_url(given.server.rstrip("/"))),
        ("--listen", check_ip_address(given.listen)),
    ):
        if error:
            raise typer.BadParameter(f"{flag} {error}")
