"""The exec credential of kubectl, from the file of a login that refreshes its key.

kubectl runs `fairlead credential` before nearly every command. As long as the key in the file is fresh, only this
module runs: it imports just the standard library, and little of it. `client/login_sessions.py` writes the files, and
`cli/access/token.py` does the rest.

The file is `$XDG_CONFIG_HOME/fairlead/logins/login-NAME.json`, else in `~/.config`, readable by its owner only.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MAX_MARGIN_SECONDS = 60.0
"""A key counts as expired this long before it does, so that it does not expire during a request."""
CLOCK_SKEW_SECONDS = 5.0


def sessions_folder(environment: Mapping[str, str]) -> str:
    """The folder with the files. As in `client/contexts.py`, a relative XDG_CONFIG_HOME is ignored."""
    home = environment.get("XDG_CONFIG_HOME", "")
    return os.path.join(home if home.startswith("/") else os.path.expanduser("~/.config"), "fairlead", "logins")


def session_file(folder: str, name: str) -> str:
    """The file of a login. Other characters than those of host names are encoded."""
    safe = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else f"%{ord(each):x}" for each in name)
    return os.path.join(folder, f"login-{safe}.json")


def read_session(path: str) -> dict[str, Any] | None:
    """The content of a file; None if there is none, or it is not complete."""
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    texts, numbers = ("url", "key", "refresh"), ("issued", "expires")
    complete = (
        isinstance(content, dict)
        and all(isinstance(content.get(each), str) for each in texts)
        and all(isinstance(content.get(each), int | float) for each in numbers)
    )
    return content if complete else None


def refresh_time(session: Mapping[str, Any]) -> float:
    """When the key is to be replaced: a minute before it expires, or earlier for a key that lasts a few minutes."""
    lifetime = session["expires"] - session["issued"]
    return float(session["expires"] - min(MAX_MARGIN_SECONDS, lifetime / 5))


def is_fresh(session: Mapping[str, Any], now: float) -> bool:
    """Whether the key can be used as it is. Not if the clock was set back since: then its expiry is not known."""
    return bool(session["issued"] - CLOCK_SKEW_SECONDS <= now < refresh_time(session))


def requested_version(environment: Mapping[str, str]) -> str:
    """The API version that kubectl requested; it rejects any other."""
    try:
        info = json.loads(environment.get("KUBERNETES_EXEC_INFO") or "null")
    except ValueError:
        info = None
    version = info.get("apiVersion") if isinstance(info, dict) else None
    return version if version in VERSIONS else VERSIONS[0]


def render_credential(key: str, expires: float | None, environment: Mapping[str, str]) -> str:
    """The JSON for kubectl. `expires` is when it has to ask again; None for never."""
    status: dict[str, str] = {"token": key}
    if expires is not None:
        status["expirationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires))
    return json.dumps({"apiVersion": requested_version(environment), "kind": "ExecCredential", "status": status})


def serve_fresh_credential(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Prints the credential for `credential --context NAME [--server URL]`, if the key is fresh and of that server.

    Returns whether it did. If not, the command itself runs, and says what is wrong.
    """
    if len(arguments) not in (3, 5) or list(arguments[:2]) != ["credential", "--context"]:
        return False
    if len(arguments) == 5 and arguments[3] != "--server":
        return False
    session = read_session(session_file(sessions_folder(environment), arguments[2]))
    if session is None or (len(arguments) == 5 and session["url"] != arguments[4]):
        return False
    if not is_fresh(session, time.time()):
        return False
    sys.stdout.write(render_credential(session["key"], refresh_time(session), environment) + "\n")
    sys.stdout.flush()
    return True
