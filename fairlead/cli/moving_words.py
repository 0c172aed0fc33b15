"""What `backup`, `restore` and `store` have in common: which store is meant, and how they tell what they did."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from fairlead.cli.options import config_option, option
from fairlead.core.files import FileProblem
from fairlead.core.seal_keys import FILE_NAME, VARIABLE
from fairlead.settings import Settings, StartError, load

Config = Annotated[str | None, config_option()]
Data = Annotated[str | None, option("data")]
Store = Annotated[str | None, option("store")]
Force = Annotated[bool, typer.Option("--force", help="Replace all that the store holds. Stop its servers first.")]

PEPPER_FILE = "pepper.key"
PEPPER_VARIABLE = "FAIRLEAD_PEPPER"


def settings_of(config: str | None, data: str | None, store: str | None) -> Settings:
    """As a server on this machine would read them."""
    return load({"config": config, "data": data, "store": store}, os.environ)


@contextmanager
def problems() -> Iterator[None]:
    """Around all that a command does. What the stores log meanwhile goes to stderr: stdout may be a backup's."""
    from fairlead.core.log import set_up_logging

    set_up_logging("warning", "console")
    try:
        yield
    except (StartError, FileProblem) as error:
        for line in str(error).splitlines():
            typer.echo(f"fairlead: {line}", err=True)
        raise typer.Exit(1) from None


def plural(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def needs(seal_keys: Sequence[str]) -> str:
    """The secrets without which what is in a backup is worth little."""
    sealed = f"{FILE_NAME} with {', '.join(seal_keys)}" if seal_keys else FILE_NAME
    return f"{sealed}, and {PEPPER_FILE} (or the variables {VARIABLE} and {PEPPER_VARIABLE})"
