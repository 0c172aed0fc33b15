"""`fairlead context` and `fairlead logout`: manage the logins stored on this machine. Keys are never printed.

`context` works offline. `logout` revokes only keys of type Login, which were issued for the login: others may be in use
elsewhere.
"""

import os
from dataclasses import replace
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_logins
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag, YesFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Format, print_name, print_note, print_table, print_value
from fairlead.cli.ui.session import UsageError, report_errors, resolve_login
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.contexts import (
    CONTEXT_ENV,
    KEY_ENV,
    URL_ENV,
    Contexts,
    Login,
    contexts_path,
    load_contexts,
    save_contexts,
    select_login,
)
from fairlead.client.login_sessions import delete_session, revoke_session

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


KEYS = "ownedaccesskeys"
LOGIN_TYPE = "Login"


def logout(
    context: ContextFlag = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Revoke all logins of the user, on all machines and in browsers.")
    ] = False,
) -> None:
    """Log out: revoke the login's key on the server, and delete the stored login."""
    with report_errors():
        selected = resolve_login(context)
        if not selected.name:
            raise UsageError("this login comes from the environment; unset FAIRLEAD_URL and FAIRLEAD_KEY instead")
        try:
            print_note(revoke_all_logins(selected.login) if everywhere else revoke_login(selected.login))
        except ClientError as problem:
            print_note(f"warning: the key was not revoked on the server ({problem})")
        path = contexts_path()
        save_contexts(path, load_contexts(path).without_login(selected.name))
        if selected.login.session:
            delete_session(selected.login.session)
        print_note(f"deleted the login {selected.name!r}")


def revoke_all_logins(login: Login) -> str:
    """Revokes all logins of the user. Returns the message of the server."""
    with login.create_client() as client:
        return str(client.send("POST", "/auth/logout", query={"all": "true"}).get("message") or "")


def revoke_login(login: Login) -> str:
    """Revokes what was issued for the login: its session, or its key. Returns a message about the result."""
    return revoke_session(login) if login.session else revoke_login_key(login)


def revoke_login_key(login: Login) -> str:
    """Revokes the key if it was issued by a login. Returns a message about the result."""
    with login.create_client() as client:
        try:
            status = client.whoami()
        except ApiStatusError as problem:
            if problem.code == 401:
                return "the key was no longer valid"
            raise
        name = status.get("accessKey") or ""
        if status.get("accessKeyType") != LOGIN_TYPE:
            return f"the key {name} stays valid; revoke it with `fairlead key revoke {name}`"
        client.delete(KEYS, name)
        return f"the key {name} is revoked"
