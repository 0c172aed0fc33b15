"""`fairlead credential`: the exec credential plugin of kubectl, which `fairlead kubeconfig` writes into kubeconfigs.

Only JSON goes to stdout. It refreshes the key of the login if needed, and never prompts: when the login has ended, the
error says what to run. With `--server`, a kubeconfig never gets the key of a later login of the same name to another
server. kubectl runs it often, so `__main__.py` serves keys that need no refresh without this module.
"""

import os
from typing import Annotated

import typer

from fairlead.cli.ui.flags import ContextFlag
from fairlead.cli.ui.session import report_errors, resolve_login
from fairlead.client import ClientError
from fairlead.client.login_sessions import current_session
from fairlead.exec_credential import render_credential

ServerFlag = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="URL of the server that gets the key. If the login is for another one, the command fails.",
        metavar="URL",
        show_default=False,
    ),
]


def command(context: ContextFlag = None, server: ServerFlag = None) -> None:
    """Print a key of the login as an ExecCredential, for kubectl."""
    with report_errors():
        login = resolve_login(context).login
        if server is not None and server != login.url:
            advice = "run `fairlead kubeconfig` to write the context again, or log in to that server"
            raise ClientError(f"this context is for {server}, but the login is for {login.url}; {advice}")
        if not login.session:
            print(render_credential(login.key, None, os.environ))
            return
        session = current_session(login)
        print(render_credential(session.key, session.refresh_time, os.environ))
