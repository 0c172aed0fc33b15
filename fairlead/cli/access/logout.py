"""`fairlead logout`: revokes the key of a login and deletes the stored login.

Only keys of type Login are revoked, which were issued for the login. Other keys may be in use elsewhere.
"""

from typing import Annotated

import typer

from fairlead.cli.ui.flags import ContextFlag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import UsageError, report_errors, resolve_login
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.contexts import Login, contexts_path, load_contexts, save_contexts
from fairlead.client.login_sessions import delete_session, revoke_session

KEYS = "ownedaccesskeys"
LOGIN_TYPE = "Login"


def command(
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
