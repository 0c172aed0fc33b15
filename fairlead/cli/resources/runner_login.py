"""Connects a runner process with the login of the command line: for a runner on the machine of its administrator.

The URL and the CA of the server come from the login. The key of the runner is requested from the server, and written to
a private file in the state folder; it is neither printed nor part of a command line.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from fairlead.cli.ui.session import Session, open_session
from fairlead.client import ApiStatusError, ClientError
from fairlead.core.files import ensure_private_folder, write_file

RUNNERS = "runners"
KEY_VARIABLE = "FAIRLEAD_RUNNER_KEY"
KEY_FILE, CA_FILE = "key", "ca.crt"
SYSTEM_STATE = Path("/var/lib/fairlead-runner")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a runner reaches its server. Without a key file, the key is in the environment."""

    server: str
    key_file: Path | None
    ca_file: Path | None
    api_group: str


def default_state_folder() -> Path:
    """That of the system for root, else one of the user."""
    if os.geteuid() == 0:
        return SYSTEM_STATE
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "fairlead-runner"


def connect_with_login(name: str, state: Path, key_file: Path | None, context: str | None) -> Connection:
    """Requests the key, unless there is one, and writes it and the CA to the state folder."""
    with open_session(context) as session:
        login = session.login
        if login.insecure:
            raise ClientError(
                f"the login for {login.url} does not verify the server's certificate, and a runner has to; log in "
                "with --ca-file, or use --server and --ca-file"
            )
        ensure_private_folder(state)
        if key_file is None and not os.environ.get(KEY_VARIABLE):
            key_file = state / KEY_FILE
            write_file(key_file, f"{request_key(session, name)}\n".encode())
        ca_file = state / CA_FILE if login.authority else None
        if ca_file is not None:
            write_file(ca_file, login.authority.encode(), mode=0o644)
        return Connection(login.url, key_file, ca_file, login.group)


def request_key(session: Session, name: str) -> str:
    try:
        response = session.client.get(RUNNERS, name, "accesskey")
    except ApiStatusError as problem:
        if problem.code == 404:
            raise ClientError(f"there is no runner {name!r}; create it with `fairlead runner create {name}`") from None
        if problem.code == 403:
            advice = "only its owner and administrators may; use their login, or --server and --key-file"
            raise ClientError(f"you may not read the key of the runner {name} ({problem.message}); {advice}") from None
        raise
    key = response.get("accessKey")
    if not isinstance(key, str) or not key:
        raise ClientError("the server did not return a key; is it a Fairlead server?")
    return key
