"""`fairlead token`: the key of a login, in the form in which kubectl asks a program for it.

`fairlead kubeconfig --exec` writes a file that calls this. No server is asked. Below it stand the commands about direct
tokens, which the server makes: `token.py`.
"""

import json
import os
from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.access import token
from fairlead.cli.access.key_create import Scoped
from fairlead.cli.ui.durations import duration, seconds
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, takes
from fairlead.cli.ui.output import Output, note, print_data
from fairlead.cli.ui.session import chosen_login, connected, failures_told
from fairlead.client import ClientError
from fairlead.core.objects import dig

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

group = typer.Typer(invoke_without_command=True)
group.command("create")(token.create)
group.command("rotate-keys")(token.rotate)


@group.callback()
def command(
    asked: typer.Context,
    context: ContextFlag = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the key alone.")] = False,
) -> None:
    """Print the login's key for kubectl, as an ExecCredential; below, make direct tokens for clusters."""
    if asked.invoked_subcommand is not None:
        return
    with failures_told():
        key = chosen_login(context).login.key
        if plain:
            print(key)
        else:
            print(json.dumps({"apiVersion": _version(), "kind": "ExecCredential", "status": {"token": key}}))


def _version() -> str:
    """The version that the caller named: kubectl takes no other one for an answer."""
    try:
        asked = dig(json.loads(os.environ.get("KUBERNETES_EXEC_INFO", "")), "apiVersion")
    except ValueError:
        asked = None
    return asked if asked in VERSIONS else VERSIONS[0]


# DOC-MERGED cli/token_keys
# `fairlead token create` and `fairlead token rotate-keys`: direct tokens for clusters, and the key that signs them.


TOKENS, ROTATIONS = "directclusterendpointtokens", "tokenkeyrotations"


@dataclass(frozen=True, slots=True)
class Asked:
    ttl: Annotated[
        int | None,
        typer.Option(
            "--ttl", help="Life of the token, like 12h.", parser=seconds, metavar="TIME", show_default="a day"
        ),
    ] = None
    scoped: Scoped = field(default_factory=Scoped)
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(Asked)
def create(asked: Asked) -> None:
    """Make a direct token for connected clusters and print it, once.

    The token goes to stdout and everything else to stderr: [bold]TOKEN=$(fairlead token create --ttl 1h)[/bold]
    """
    wanted = {"ttl": asked.ttl, "scope": asked.scoped.scope()}
    body = {
        "kind": "DirectClusterEndpointToken",
        "spec": {name: value for name, value in wanted.items() if value is not None},
    }
    with connected(asked.context) as session:
        made = session.client.create(TOKENS, body)
        token, ttl = dig(made, "status.token"), dig(made, "spec.ttl")
        if not isinstance(token, str) or not token:
            raise ClientError("the server answered without a token; ask its administrator which version it is")
        if asked.output is Output.TABLE:
            print(token)
        else:
            print_data(made, asked.output)
        lasting = f" for {duration(ttl)}" if isinstance(ttl, int) else ""
        note(f"this token is valid{lasting}; it is shown this once only")


def rotate(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Sign direct tokens with a new key from now on. Tokens that are about stay valid."""
    with connected(context) as session:
        made = session.client.create(ROTATIONS, {"kind": "TokenKeyRotation"})
        if output is not Output.TABLE:
            print_data(made, output)
            return
        print(dig(made, "status.keyID"))
        until = dig(made, "status.retiredUntil")
        if until:
            note(f"the key before stays published until {until}, when its last token has ended")
