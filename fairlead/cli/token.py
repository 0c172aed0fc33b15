"""`fairlead token`: the key of a login, in the form in which kubectl asks a program for it.

`fairlead kubeconfig --exec` writes a file that calls this. No server is asked. Below it stand the commands about direct
tokens, which the server makes: `token_keys.py`.
"""

import json
import os
from typing import Annotated

import typer

from fairlead.cli import token_keys
from fairlead.cli.flags import ContextFlag
from fairlead.cli.session import chosen_login, failures_told
from fairlead.core.objects import dig

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

group = typer.Typer(invoke_without_command=True)
group.command("create")(token_keys.create)
group.command("rotate-keys")(token_keys.rotate)


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
