"""`fairlead agent`: runs in or beside a cluster, dials out to the server, and serves direct tokens.

Logs go to stderr, without secrets."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.server.event_loop import run_until_signal
from fairlead.cli.ui.flags import flag, options_from

if TYPE_CHECKING:
    from fairlead.app.agent import AgentSettings, StartedAgent

SERVER_PANEL = "The server"
CLUSTER_PANEL = "The cluster"
LISTEN_PANEL = "Listening"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    server: Annotated[
        str, typer.Option("--server", help="Base URL of the server.", metavar="URL", rich_help_panel=SERVER_PANEL)
    ]
    token: Annotated[
        str | None,
        flag(
            "--token",
            help="Join token of `fairlead cluster add NAME --agent`: dial out, and join with it.",
            metavar="TOKEN",
            envvar="FAIRLEAD_JOIN_TOKEN",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        flag("--token-file", help="File with that token.", metavar="FILE", rich_help_panel=SERVER_PANEL),
    ] = None
    dial_out: Annotated[
        bool,
        typer.Option("--dial-out", help="Dial out as an agent that has joined before.", rich_help_panel=SERVER_PANEL),
    ] = False
    identity_secret: Annotated[
        str | None,
        flag(
            "--identity-secret",
            help="Secret in the namespace of this pod for the agent's key.",
            metavar="NAME",
            default="a file in the state folder",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        flag("--cluster", help="Name of the Cluster object, for direct tokens.", rich_help_panel=SERVER_PANEL),
    ] = None
    key_file: Annotated[
        Path | None,
        flag(
            "--key-file",
            help="Serve direct tokens. File with the agent's access key: accessKey of `clusters/<name>/accesskey`.",
            metavar="FILE",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        flag(
            "--ca-file",
            help="PEM file with the server's CA, unless this machine already trusts it.",
            metavar="FILE",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    api_group: Annotated[
        str, typer.Option("--api-group", help="The server's setting api_group.", rich_help_panel=SERVER_PANEL)
    ] = "management.service.sh"
    offline_hours: Annotated[
        int,
        typer.Option(
            "--offline-hours",
            help="How long to keep serving while the server is unreachable. Revocations take no effect meanwhile.",
            min=0,
            max=2160,
            metavar="N",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = 24
    kubeconfig: Annotated[
        Path | None,
        flag(
            "--kubeconfig",
            help="Kubeconfig of the cluster, with a token or certificate that may impersonate.",
            metavar="FILE",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    in_cluster: Annotated[
        bool,
        typer.Option(
            "--in-cluster", help="Use the service account of this pod and its cluster.", rich_help_panel=CLUSTER_PANEL
        ),
    ] = False
    listen: Annotated[
        str, typer.Option("--listen", help="Address to listen on.", metavar="IP", rich_help_panel=LISTEN_PANEL)
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", help="Port, 0 for a free one.", min=0, max=65535, rich_help_panel=LISTEN_PANEL)
    ] = 8444
    tls_cert: Annotated[
        Path | None,
        flag(
            "--tls-cert",
            help="PEM file with the certificate. Without one, a self-signed certificate is generated.",
            metavar="FILE",
            rich_help_panel=LISTEN_PANEL,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        flag("--tls-key", help="PEM file with the private key.", metavar="FILE", rich_help_panel=LISTEN_PANEL),
    ] = None
    tls_name: Annotated[
        list[str] | None,
        flag(
            "--tls-name",
            help="Additional DNS name or IP address of the generated certificate. Repeatable.",
            metavar="NAME",
            rich_help_panel=LISTEN_PANEL,
        ),
    ] = None
    state: Annotated[
        Path, typer.Option("--state", help="Folder for the cached configuration, certificate and audit log.")
    ] = Path("fairlead-agent")
    audit_path: Annotated[
        str | None,
        flag(
            "--audit-path",
            help="File for audit events, - for stdout.",
            metavar="PATH",
            default="audit.log in the folder",
        ),
    ] = None
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info"
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready, for scripts.")] = False


@options_from(AgentOptions)
def command(options: AgentOptions) -> None:
    """Run the agent of a cluster: in it, or beside it.

    With a join token, it dials out to the server and carries requests to the cluster. With --key-file, it serves direct
    tokens, even while the server is down. It can do both.
    """
    _check_options(options)
    from fairlead.app.agent import run
    from fairlead.core.log import configure_logging

    configure_logging(options.log_level, "json")
    run_until_signal(run, build_settings(options), lambda started: announce(started, options.as_json))


def build_settings(options: AgentOptions) -> "AgentSettings":
    from fairlead.app.agent import AgentSettings
    from fairlead.app.agent_sessions import SessionSettings

    sessions = None
    if dials_out(options):
        sessions = SessionSettings(
            server=options.server.rstrip("/"),
            token=options.token or "",
            token_file=options.token_file,
            ca_file=options.ca_file,
            identity_secret=options.identity_secret or "",
            state_folder=options.state.absolute(),
        )
    return AgentSettings(
        cluster=options.cluster or "",
        server=options.server.rstrip("/"),
        api_group=options.api_group,
        key_file=options.key_file,
        ca_file=options.ca_file,
        kubeconfig=options.kubeconfig,
        listen=options.listen,
        port=options.port,
        state_folder=options.state.absolute(),
        certificate=(options.tls_cert, options.tls_key) if options.tls_cert and options.tls_key else None,
        certificate_names=tuple(options.tls_name or ()),
        audit_path=options.audit_path or "",
        offline_hours=options.offline_hours,
        sessions=sessions,
    )


def dials_out(options: AgentOptions) -> bool:
    return bool(options.token or options.token_file or options.dial_out)


def announce(started: "StartedAgent", as_json: bool) -> None:
    import structlog

    ca_file = str(started.ca_file) if started.ca_file else None
    if as_json:
        print(json.dumps({"url": started.url, "caFile": ca_file}))
    structlog.get_logger().info("ready", url=started.url, ca_file=ca_file)


def _check_options(options: AgentOptions) -> None:
    from fairlead.core.validators import check_base_url, check_ip_address

    if not dials_out(options) and options.key_file is None:
        raise typer.BadParameter(
            "set what the agent does: --token TOKEN or --dial-out for the server, --key-file FILE for direct tokens"
        )
    if options.key_file is not None and not options.cluster:
        raise typer.BadParameter("--key-file needs --cluster NAME")
    if bool(options.kubeconfig) == options.in_cluster:
        raise typer.BadParameter("set how to connect to the cluster: --kubeconfig FILE, or --in-cluster in a pod")
    if bool(options.tls_cert) != bool(options.tls_key):
        raise typer.BadParameter("--tls-cert and --tls-key must be used together; set both or neither")
    if options.log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"--log-level {options.log_level}: must be debug, info, warning or error")
    for name, error in (
        ("--server", check_base_url(options.server.rstrip("/"))),
        ("--listen", check_ip_address(options.listen)),
    ):
        if error:
            raise typer.BadParameter(f"{name} {error}")
