"""`fairlead context`: the logins that are kept on this machine. No server is asked, and no key is shown."""

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

group = typer.Typer(help="List and forget logins, and switch between them.", no_args_is_help=True)


@group.command("list")
def list_contexts(output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """List the logins that are kept; a star marks the current one."""
    with failures_told():
        kept = load(contexts_path())
        current = os.environ.get(CONTEXT) or kept.current
        if output is NamedOutput.NAME:
            for name in sorted(kept.contexts):
                print_name("context", name)
        elif output is not NamedOutput.TABLE:
            print_data(_for_programs(kept, current), Output(output))
        else:
            rows = [("*" if name == current else "", name, login.url) for name, login in sorted(kept.contexts.items())]
            print_table(("CURRENT", "NAME", "SERVER"), rows, "no logins; log in with `fairlead login URL`")


def _for_programs(kept: Contexts, current: str) -> list[dict[str, object]]:
    found = sorted(kept.contexts.items())
    return [{"name": name, "server": login.url, "current": name == current} for name, login in found]


@group.command("use")
def use(name: NameArgument) -> None:
    """Make another login the current one."""
    with failures_told():
        login = chosen(name).login
        path = contexts_path()
        save(path, replace(load(path), current=name))
        note(f"commands talk to {login.url} from now on, with the login {name!r}")
        for variable in (URL, KEY, CONTEXT):
            if os.environ.get(variable):
                note(f"warning: {variable} is set and wins over it; unset it")


@group.command("forget")
def forget(name: NameArgument) -> None:
    """Forget a login. Its key stays valid: [bold]fairlead logout --context NAME[/bold] would end it, too."""
    with failures_told():
        chosen(name)
        path = contexts_path()
        kept = load(path)
        save(path, kept.without(name))
        note(f"forgot the login {name!r}; its key stays valid until somebody ends it")
        if kept.current == name:
            note("no login is the current one now; `fairlead context use NAME` chooses another")
