"""`fairlead logout`: revokes the key of a login and deletes the stored login.

Only keys of type Login are revoked, which were issued for the login. Other keys may be in use elsewhere.
"""

from fairlead.cli.ui.flags import ContextFlag
from fairlead.cli.ui.output import note
from fairlead.cli.ui.session import WrongUsage, chosen_login, failures_told
from fairlead.client import ApiProblem, ClientError
from fairlead.client.contexts import Login, contexts_path, load, save

KEYS = "ownedaccesskeys"
LOGIN_TYPE = "Login"


def command(context: ContextFlag = None) -> None:
    """Log out: revoke the login's key on the server, and delete the stored login."""
    with failures_told():
        selected = chosen_login(context)
        if not selected.name:
            raise WrongUsage("this login comes from the environment; unset FAIRLEAD_URL and FAIRLEAD_KEY instead")
        try:
            note(end_login_key(selected.login))
        except ClientError as problem:
            note(f"warning: the key was not revoked on the server ({problem})")
        path = contexts_path()
        save(path, load(path).without(selected.name))
        note(f"deleted the login {selected.name!r}")


def end_login_key(login: Login) -> str:
    """Revokes the key if it was issued by a login. Returns a message about the result."""
    with login.client() as client:
        try:
            status = client.whoami()
        except ApiProblem as problem:
            if problem.code == 401:
                return "the key was no longer valid"
            raise
        name = status.get("accessKey") or ""
        if status.get("accessKeyType") != LOGIN_TYPE:
            return f"the key {name} stays valid; revoke it with `fairlead key revoke {name}`"
        client.delete(KEYS, name)
        return f"the key {name} is revoked"
