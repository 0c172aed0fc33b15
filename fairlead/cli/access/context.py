"""`fairlead context`: manages the logins stored on this machine. Works offline and never prints keys."""

import os
from dataclasses import replace
from typing import Annotated

import typer

from fairlead.cli.ui.completion import logins
from fairlead.cli.ui.flags import NamedOutputFlag
from fairlead.cli.ui.output import NamedOutput, Output, note, print_data, print_name, print_table
from fairlead.cli.ui.session import failures_told
from fairlead.client.contexts import CONTEXT, KEY, URL, Contexts, chosen, contexts_path, load, save

NameArgument = Annotated[
    str, typer.Argument(help="Name of the login, as `fairlead context list` shows it.", autocompletion=logins)
]

group = typer.Typer(help="List, switch and delete stored logins.", no_args_is_help=True)


@group.command("list")
def list_contexts(output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """List the stored logins; a star marks the current one."""
    with failures_told():
        stored = load(contexts_path())
        current = os.environ.get(CONTEXT) or stored.current
        if output is NamedOutput.NAME:
            for name in sorted(stored.contexts):
                print_name("context", name)
        elif output is not NamedOutput.TABLE:
            print_data(_for_programs(stored, current), Output(output))
        else:
            items = sorted(stored.contexts.items())
            rows = [("*" if name == current else "", name, login.url) for name, login in items]
            print_table(("CURRENT", "NAME", "SERVER"), rows, "no logins; log in with `fairlead login URL`")


def _for_programs(stored: Contexts, current: str) -> list[dict[str, object]]:
    items = sorted(stored.contexts.items())
    return [{"name": name, "server": login.url, "current": name == current} for name, login in items]


@group.command("use")
def use(name: NameArgument) -> None:
    """Set the current login."""
    with failures_told():
        login = chosen(name).login
        path = contexts_path()
        save(path, replace(load(path), current=name))
        note(f"the current login is now {name!r}, for {login.url}")
        for variable in (URL, KEY, CONTEXT):
            if os.environ.get(variable):
                note(f"warning: {variable} is set and takes precedence; unset it")


@group.command("forget")
def forget(name: NameArgument) -> None:
    """Delete a stored login. Its key stays valid: [bold]fairlead logout --context NAME[/bold] revokes it too."""
    with failures_told():
        chosen(name)
        path = contexts_path()
        stored = load(path)
        save(path, stored.without(name))
        note(f"deleted the login {name!r}; its key stays valid until it is revoked")
        if stored.current == name:
            note("no login is current now; set one with `fairlead context use NAME`")
