"""`fairlead token`: prints the login's key as an ExecCredential for kubectl, and manages direct tokens.

`fairlead kubeconfig --exec` writes a kubeconfig that runs `fairlead token`, which works offline. `token create` and
`token rotate-keys` issue direct tokens for clusters and rotate their signing key.
"""

import json
import os
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.access.key_create import Scoped
from fairlead.cli.ui.durations import duration, seconds
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, takes
from fairlead.cli.ui.output import Output, note, print_data
from fairlead.cli.ui.session import chosen_login, connected, failures_told
from fairlead.client import ClientError
from fairlead.core.objects import dig

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TOKENS, ROTATIONS = "directclusterendpointtokens", "tokenkeyrotations"

group = typer.Typer(invoke_without_command=True)


@group.callback()
def command(
    asked: typer.Context,
    context: ContextFlag = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the key alone.")] = False,
) -> None:
    """Print the login's key as an ExecCredential for kubectl; subcommands manage direct tokens for clusters."""
    if asked.invoked_subcommand is not None:
        return
    with failures_told():
        key = chosen_login(context).login.key
        if plain:
            print(key)
        else:
            print(json.dumps({"apiVersion": _version(), "kind": "ExecCredential", "status": {"token": key}}))


def _version() -> str:
    """The API version that kubectl requested; it rejects any other."""
    try:
        requested = dig(json.loads(os.environ.get("KUBERNETES_EXEC_INFO", "")), "apiVersion")
    except ValueError:
        requested = None
    return requested if requested in VERSIONS else VERSIONS[0]


@dataclass(frozen=True, slots=True)
class Asked:
    ttl: Annotated[
        int | None,
        typer.Option(
            "--ttl", help="Lifetime of the token, like 12h.", parser=seconds, metavar="TIME", show_default="a day"
        ),
    ] = None
    scoped: Scoped = field(default_factory=Scoped)
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Issue a direct token for connected clusters and print it. It is shown only once.

    The token goes to stdout and everything else to stderr: [bold]TOKEN=$(fairlead token create --ttl 1h)[/bold]
    """
    spec = {"ttl": asked.ttl, "scope": asked.scoped.scope()}
    body = {
        "kind": "DirectClusterEndpointToken",
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    with connected(asked.context) as session:
        response = session.client.create(TOKENS, body)
        token, ttl = dig(response, "status.token"), dig(response, "spec.ttl")
        if not isinstance(token, str) or not token:
            raise ClientError("the server did not return a token; check that it supports direct tokens")
        if asked.output is Output.TABLE:
            print(token)
        else:
            print_data(response, asked.output)
        lifetime = f" for {duration(ttl)}" if isinstance(ttl, int) else ""
        note(f"this token is valid{lifetime}; it is shown only once")


@group.command("rotate-keys")
def rotate(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Rotate the signing key of direct tokens. Existing tokens stay valid."""
    with connected(context) as session:
        rotation = session.client.create(ROTATIONS, {"kind": "TokenKeyRotation"})
        if output is not Output.TABLE:
            print_data(rotation, output)
            return
        print(dig(rotation, "status.keyID"))
        until = dig(rotation, "status.retiredUntil")
        if until:
            note(f"the previous key stays published until {until}, when its last token expires")
