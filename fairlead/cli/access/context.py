"""`fairlead context`: manages the logins stored on this machine. Works offline and never prints keys."""

import os
from dataclasses import replace
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_logins
from fairlead.cli.ui.flags import ObjectOutputFlag, YesFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Format, print_name, print_note, print_table, print_value
from fairlead.cli.ui.session import report_errors
from fairlead.client.contexts import (
    CONTEXT_ENV,
    KEY_ENV,
    URL_ENV,
    Contexts,
    contexts_path,
    load_contexts,
    save_contexts,
    select_login,
)
from fairlead.client.login_sessions import delete_session

NameArgument = Annotated[
    str, typer.Argument(help="Name of the login, as `fairlead context list` shows it.", autocompletion=complete_logins)
]

group = create_group("List, switch and delete stored logins.")


@group.command("list")
def list_contexts(output: ObjectOutputFlag = TABLE) -> None:
    """List the stored logins; a star marks the current one."""
    with report_errors():
        stored = load_contexts(contexts_path())
        current = os.environ.get(CONTEXT_ENV) or stored.current
        if output.format is Format.NAME:
            for name in sorted(stored.contexts):
                print_name("context", name)
        elif not output.is_table:
            print_value(_to_data(stored, current), output)
        else:
            items = sorted(stored.contexts.items())
            rows = [("*" if name == current else "", name, login.url) for name, login in items]
            print_table(("CURRENT", "NAME", "SERVER"), rows, "no logins; log in with `fairlead login URL`")


def _to_data(stored: Contexts, current: str) -> list[dict[str, object]]:
    items = sorted(stored.contexts.items())
    return [{"name": name, "server": login.url, "current": name == current} for name, login in items]


@group.command("use")
def use(name: NameArgument) -> None:
    """Set the current login."""
    with report_errors():
        login = select_login(name).login
        path = contexts_path()
        save_contexts(path, replace(load_contexts(path), current=name))
        print_note(f"the current login is now {name!r}, for {login.url}")
        for variable in (URL_ENV, KEY_ENV, CONTEXT_ENV):
            if os.environ.get(variable):
                print_note(f"warning: {variable} is set and takes precedence; unset it")


@group.command("forget")
def forget(name: NameArgument, yes: YesFlag = False) -> None:
    """Delete a stored login. Its key stays valid: `fairlead logout --context NAME` revokes it too."""
    with report_errors():
        login = select_login(name).login
        if not yes:
            prompts.confirm(f"Delete the login {name}, with its key?")
        path = contexts_path()
        stored = load_contexts(path)
        save_contexts(path, stored.without_login(name))
        if login.session:
            delete_session(login.session)
        print_note(f"deleted the login {name!r}; its key stays valid until it is revoked")
        if stored.current == name:
            print_note("no login is current now; set one with `fairlead context use NAME`")
