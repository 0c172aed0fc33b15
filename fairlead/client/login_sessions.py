"""Logins through the console: a short-lived key and a refresh token, in a file for each login.

`current_key` returns a key that is valid, and refreshes it if needed. Many processes may need one at the same time, so
a lock file for each login lets one of them refresh, and the others use its result. The lock is not the file itself,
which is replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fairlead.client.client import Client
from fairlead.client.errors import ClientError, Unreachable
from fairlead.core.files import FileProblem, ensure_private_folder, write_file
from fairlead.exec_credential import is_fresh, read_session, refresh_time, session_file, sessions_folder

TOKEN_PATH, REVOKE_PATH, DEVICE_PATH = "/auth/token", "/auth/revoke", "/auth/device"
CLIENT_ID = "fairlead-cli"
LOCK_SECONDS = 60.0
REFRESH_SECONDS = 20.0
"""How long to wait for the lock, and for the server."""


class Login(Protocol):
    """What is needed of a stored login (`contexts.py`, which uses this module)."""

    @property
    def url(self) -> str: ...

    @property
    def session(self) -> str: ...

    def create_client(self, key: str | None = None) -> Client: ...


class LoginEnded(ClientError):
    """The login cannot be refreshed any more. The text says what to run."""


class OAuthRejected(ClientError):
    """An error response of OAuth, such as `invalid_grant`."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description or error)
        self.error = error


@dataclass(frozen=True, slots=True)
class LoginSession:
    """The content of a file. Times are in seconds since the epoch, by the clock of this machine."""

    url: str
    key: str = field(repr=False)
    refresh: str = field(repr=False)
    issued: float
    expires: float

    @staticmethod
    def from_reply(url: str, reply: Mapping[str, Any], now: float) -> LoginSession:
        """The session from a response of the token endpoint."""
        key, refresh, seconds = (reply.get(name) for name in ("access_token", "refresh_token", "expires_in"))
        if not isinstance(key, str) or not isinstance(refresh, str) or not isinstance(seconds, int) or not key:
            raise ClientError(f"{url} did not return a key for the login; is it a Fairlead server of this version?")
        return LoginSession(url, key, refresh, now, now + seconds)

    @property
    def refresh_time(self) -> float:
        return refresh_time(asdict(self))


def session_path(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    return Path(session_file(sessions_folder(environment), name))


def load_session(name: str) -> LoginSession | None:
    content = read_session(str(session_path(name)))
    return None if content is None else LoginSession(**{each: content[each] for each in LoginSession.__slots__})


def save_session(name: str, session: LoginSession) -> None:
    path = session_path(name)
    ensure_private_folder(path.parent)
    write_file(path, json.dumps(asdict(session)).encode())


def delete_session(name: str) -> None:
    session_path(name).unlink(missing_ok=True)


def post_form(login: Login, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Posts a form without a key. Raises OAuthRejected for an error of OAuth, and ClientError for all others."""
    with login.create_client(key="") as client:
        client.timeout = REFRESH_SECONDS
        reply = client.send_form(path, fields)
    if isinstance(error := reply.get("error"), str):
        raise OAuthRejected(error, str(reply.get("error_description") or ""))
    return reply


def current_session(login: Login) -> LoginSession:
    """The session of a login with a key that is valid now. Raises LoginEnded or another ClientError."""
    session = load_session(login.session)
    if session is not None and session.url == login.url and is_fresh(asdict(session), time.time()):
        return session
    with _lock(login.session):
        session = load_session(login.session)  # another process may have refreshed it meanwhile
        if session is None or session.url != login.url:
            raise LoginEnded(f"the login {login.session!r} is not complete; {_advice(login)}")
        if is_fresh(asdict(session), time.time()):
            return session
        return _refresh(login, session)


def fresh_session(login: Login) -> LoginSession:
    """The session of a login as it is stored. Raises ClientError if its key has to be refreshed."""
    session = load_session(login.session)
    if session is None or session.url != login.url or not is_fresh(asdict(session), time.time()):
        raise ClientError(f"the key of the login {login.session!r} has to be refreshed")
    return session


def _refresh(login: Login, session: LoginSession) -> LoginSession:
    fields = {"grant_type": "refresh_token", "refresh_token": session.refresh, "client_id": CLIENT_ID}
    try:
        reply = post_form(login, TOKEN_PATH, fields)
    except OAuthRejected as error:
        if error.error != "invalid_grant":
            raise
        raise LoginEnded(f"the login {login.session!r} has ended; {_advice(login)}") from None
    except Unreachable:
        if session.issued <= time.time() < session.expires:  # the key is still valid, so try again later
            return session
        raise
    renewed = LoginSession.from_reply(login.url, reply, time.time())
    save_session(login.session, renewed)
    return renewed


def _advice(login: Login) -> str:
    return f"log in again with `fairlead login {login.url.removeprefix('https://')} --name {login.session}`"


def revoke_session(login: Login) -> str:
    """Ends the login on the server. Returns a message about the result."""
    session = load_session(login.session)
    if session is None or session.url != login.url:
        return "the login was no longer valid"
    post_form(login, REVOKE_PATH, {"token": session.refresh, "client_id": CLIENT_ID})
    return "the login has ended on the server"


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Holds the lock of a login."""
    path = session_path(name).with_suffix(".lock")
    ensure_private_folder(path.parent)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror}; make the directory writable") from error
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise ClientError(f"another process refreshes the login {name!r} since a minute; try again")
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
