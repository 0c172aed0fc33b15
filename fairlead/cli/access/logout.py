"""`fairlead logout`: end the key that a login was given, and forget it.

Only a key of type Login goes: it was made for this login. One that somebody made and pasted may be in use elsewhere.
"""

from fairlead.cli.ui.flags import ContextFlag
from fairlead.cli.ui.output import note
from fairlead.cli.ui.session import WrongUsage, chosen_login, failures_told
from fairlead.client import ApiProblem, ClientError
from fairlead.client.contexts import Login, contexts_path, load, save

KEYS = "ownedaccesskeys"
LOGIN_TYPE = "Login"


def command(context: ContextFlag = None) -> None:
    """Log out: end the login's key on the server, and forget the login."""
    with failures_told():
        found = chosen_login(context)
        if not found.name:
            raise WrongUsage("this login comes from the environment; unset FAIRLEAD_URL and FAIRLEAD_KEY instead")
        try:
            note(end_login_key(found.login))
        except ClientError as problem:
            note(f"warning: the key was not ended on the server ({problem})")
        path = contexts_path()
        save(path, load(path).without(found.name))
        note(f"forgot the login {found.name!r}")


def end_login_key(login: Login) -> str:
    """Makes the server forget a key that was made by logging in; says what became of it."""
    with login.client() as client:
        try:
            status = client.whoami()
        except ApiProblem as problem:
            if problem.code == 401:
                return "the key was no longer valid"
            raise
        name = status.get("accessKey") or ""
        if status.get("accessKeyType") != LOGIN_TYPE:
            return f"the key {name} stays valid; `fairlead key revoke {name}` would end it"
        client.delete(KEYS, name)
        return f"the key {name} is no longer valid"
