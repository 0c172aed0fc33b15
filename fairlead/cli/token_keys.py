"""`fairlead token create` and `fairlead token rotate-keys`: direct tokens for clusters, and the key that signs them."""

from dataclasses import dataclass, field
from typing import Annotated

import typer

from fairlead.cli.durations import duration, seconds
from fairlead.cli.flags import ContextFlag, OutputFlag, takes
from fairlead.cli.key_create import Scoped
from fairlead.cli.output import Output, note, print_data
from fairlead.cli.session import connected
from fairlead.client import ClientError
from fairlead.core.objects import dig

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
