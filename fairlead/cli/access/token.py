"""`fairlead credential` and `fairlead token`: the key of the login for kubectl; and direct tokens for clusters.

`credential` is the exec credential plugin that `fairlead kubeconfig` writes into kubeconfigs. Only JSON goes to stdout.
It refreshes the key of the login if needed, and never prompts: when the login has ended, the error says what to run.
With `--server`, a kubeconfig never gets the key of a later login of the same name to another server. kubectl runs it
often, so `__main__.py` serves keys that need no refresh without this module. Kubeconfigs of earlier versions run
`fairlead token`. With `--cluster-info` it is the plugin of ClusterProfiles (`cluster_credential.py`).

`token create` and `token rotate-keys` issue direct tokens for clusters and rotate their signing key.
"""

import os
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.access.keys import ScopeOptions
from fairlead.cli.ui.describe import drop_none
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, flag, options_from
from fairlead.cli.ui.groups import CommandGroup
from fairlead.cli.ui.output import Output, print_data, print_note
from fairlead.cli.ui.session import open_session, report_errors, resolve_login
from fairlead.client import ClientError
from fairlead.client.login_sessions import current_session
from fairlead.core.objects import get_path
from fairlead.exec_credential import render_credential

TOKENS, ROTATIONS = "directclusterendpointtokens", "tokenkeyrotations"

group = typer.Typer(cls=CommandGroup, invoke_without_command=True)


@group.callback()
def command(
    ctx: typer.Context,
    context: ContextFlag = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the key alone.")] = False,
) -> None:
    """Print the login's key as an ExecCredential for kubectl; subcommands manage direct tokens for clusters."""
    if ctx.invoked_subcommand is not None:
        return
    with report_errors():
        key = resolve_login(context).login.current_key()
        print(key if plain else render_credential(key, None, os.environ))


@dataclass(frozen=True, slots=True)
class TokenCreateOptions:
    ttl: Annotated[
        int | None,
        flag("--ttl", help="Lifetime of the token, like 12h.", parser=parse_duration, metavar="TIME", default="a day"),
    ] = None
    scope: ScopeOptions = field(default_factory=ScopeOptions)
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@group.command("create")
@options_from(TokenCreateOptions)
def create(options: TokenCreateOptions) -> None:
    """Issue a direct token for connected clusters and print it. It is shown only once.

    The token goes to stdout and everything else to stderr: `TOKEN=$(fairlead token create --ttl 1h)`
    """
    with open_session(options.context) as session:
        spec = drop_none({"ttl": options.ttl, "scope": options.scope.build()})
        with options.scope.name_flags(session.client):
            response = session.client.create(TOKENS, {"kind": "DirectClusterEndpointToken", "spec": spec})
        token = get_path(response, "status.token")
        ttl = get_path(response, "spec.ttl")
        if not isinstance(token, str) or not token:
            raise ClientError("the server did not return a token; check that it supports direct tokens")
        if options.output is Output.TABLE:
            print(token)
        else:
            print_data(response, options.output)
        lifetime = f" for {format_duration(ttl)}" if isinstance(ttl, int) else ""
        print_note(f"this token is valid{lifetime}; it is shown only once")


@group.command("rotate-keys")
def rotate_keys(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Rotate the signing key of direct tokens. Existing tokens stay valid."""
    with open_session(context) as session:
        rotation = session.client.create(ROTATIONS, {"kind": "TokenKeyRotation"})
        if output is not Output.TABLE:
            print_data(rotation, output)
            return
        print(get_path(rotation, "status.keyID"))
        until = get_path(rotation, "status.retiredUntil")
        if until:
            print_note(f"the previous key stays published until {until}, when its last token expires")


ServerFlag = Annotated[
    str | None,
    flag(
        "--server",
        help="URL of the server that gets the key. If the login is for another one, the command fails.",
        metavar="URL",
    ),
]


def credential(
    context: ContextFlag = None,
    server: ServerFlag = None,
    cluster_info: Annotated[
        bool,
        typer.Option(
            "--cluster-info",
            help="Print a new key for the gateway of the cluster that KUBERNETES_EXEC_INFO names, and nothing else.",
        ),
    ] = False,
) -> None:
    """Print a key of the login as an ExecCredential, for kubectl."""
    with report_errors():
        login = resolve_login(context).login
        if server is not None and server != login.url:
            advice = "run `fairlead kubeconfig` to write the context again, or log in to that server"
            raise ClientError(f"this context is for {server}, but the login is for {login.url}; {advice}")
        if cluster_info:
            from fairlead.cli.access.cluster_credential import cluster_credential

            print(cluster_credential(login, os.environ))
            return
        if not login.session:
            print(render_credential(login.key, None, os.environ))
            return
        session = current_session(login)
        print(render_credential(session.key, session.refresh_time, os.environ))
