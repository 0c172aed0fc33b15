"""`fairlead version`: prints the version, for bug reports."""

import json
import platform
from typing import Annotated

import typer

from fairlead import __version__


def command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show the version."""
    if as_json:
        print(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        print(f"fairlead {__version__}")


def show_and_exit(enabled: bool) -> None:
    if enabled:
        command()
        raise typer.Exit
