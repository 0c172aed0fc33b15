"""`fairlead space`: namespaces in connected clusters that belong to projects."""

import typer

from fairlead.cli.flags import takes
from fairlead.cli.instances import Asked, Sort, show_instances

SPACES = Sort("spaceinstances", "SpaceInstance", ("CLUSTER", "spec.clusterRef.cluster"), "no spaces")

group = typer.Typer(help="List the spaces of projects.", no_args_is_help=True)


@group.callback()
def spaces() -> None:
    """Without this, Typer takes a group of one command for the command itself."""


@group.command("list")
@takes(Asked)
def list_spaces(asked: Asked) -> None:
    """List spaces."""
    show_instances(SPACES, asked)
