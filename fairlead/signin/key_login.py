"""`POST /auth/key/login`: exchanges an access key for a login of a browser.

The console does so for users who have a key and no password yet, as after the first start. The login has the rights of
the key, ends with it, and is only ever set as a cookie: who sends a key has a value for the `Authorization` header
already. Other sites cannot sign a browser in, as for passwords. No part of a body is quoted or logged.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from fairlead.authn.credentials import check_same_origin, set_cookie_header
from fairlead.authz.name_index import is_user
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.errors import BadRequest, Forbidden, TooManyRequests, Unauthorized
from fairlead.core.refusals import LOGIN, TOO_MANY_ATTEMPTS, note_refused_login
from fairlead.core.user import User
from fairlead.kinds.access.access_key import MAX_LOGINS
from fairlead.server.api.content import JSON
from fairlead.server.flow.attempts import Throttle
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.oauth import json_reply, read_small_body
from fairlead.signin.passwords import PasswordStore

KEY_LOGIN_ENDPOINT = ("post", "/auth/key/login")
MAX_BODY_BYTES = 4 * 1024
MAX_KEY_LENGTH = 512
WRONG_KEY = "the access key is wrong, has expired, or was revoked"
NOT_OF_A_USER = "the access key belongs to no user, and only users sign in; use the key of a user"
KEY_OF_A_LOGIN = "this is the key of a login, which cannot start another one; use an access key of your own"
_BODY_FORMAT = 'the body must be a JSON object {"accessKey": "..."} with a non-empty string'

log = structlog.get_logger(__name__)


class TokenAuthenticator(Protocol):
    """Implemented in `authn/access_keys.py`."""

    def authenticate_token(self, token: str) -> User:
        """The user of an access key. Raises Unauthorized if it is unknown, disabled or expired."""


@dataclass(frozen=True, slots=True)
class KeyLoginHandlers:
    """The handler. `public_url` is the origin of our own pages if the server is behind a proxy."""

    keys: TokenAuthenticator
    sessions: LoginSessions
    passwords: PasswordStore
    throttle: Throttle
    is_password_enabled: Callable[[], bool] = lambda: True
    public_url: str = ""

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {KEY_LOGIN_ENDPOINT: self.sign_in}

    async def sign_in(self, call: Call) -> Reply:
        check_same_origin(call, self.public_url)
        value = await _read_key(call)
        try:
            user = await self._authenticate(call, value)
        except TooManyRequests:
            note_refused_login(call, LOGIN, TOO_MANY_ATTEMPTS)
            raise
        if not is_user(user, (user.name,)):
            raise Forbidden(NOT_OF_A_USER)
        if self.sessions.is_login(user.key):
            raise Forbidden(KEY_OF_A_LOGIN)
        issued = await self.sessions.create_from_key(user, call.headers.get("user-agent", ""))
        await self.sessions.revoke_all(user.name, keep=issued.key.name, newest=MAX_LOGINS - 1)
        call.user = User(user.name, uid=user.uid, key=issued.key.name)
        cookie = set_cookie_header(issued.key.value, issued.ttl)
        answer = {"user": user.name, "canSetPassword": self._can_set_password(user)}
        return json_reply(answer, headers=[("set-cookie", cookie)])

    def _can_set_password(self, user: User) -> bool:
        """Whether the user has no password yet, and may set one with this key: `profile.py` decides it the same way."""
        if not self.is_password_enabled() or user.scope is not None or not self.passwords.lacks_password(user.name):
            return False
        return user.is_admin or not self.passwords.would_outlive(user.key)

    async def _authenticate(self, call: Call, value: str) -> User:
        """Failures count for the network of the client. Those of one key count for all networks: the value of a key
        that an administrator has chosen may be short. Only a hash of it stays in memory."""
        name = f"access key {hashlib.sha256(value.encode()).hexdigest()}"
        async with self.throttle.attempt(name, call.source) as attempt:
            try:
                user = self.keys.authenticate_token(value)
            except Unauthorized:
                user = None
            else:
                attempt.succeed()
        if user is None:
            log.info("a login with an access key failed", client=call.source, audit_id=call.audit_id)
            raise Unauthorized(WRONG_KEY)
        return user


async def _read_key(call: Call) -> str:
    # A page of another origin cannot send this type without a CORS preflight.
    body = await read_small_body(call, JSON, MAX_BODY_BYTES)
    try:
        value = json.decode(body)
    except Malformed:  # its message could quote a part of the key
        raise BadRequest(_BODY_FORMAT) from None
    key = value.get("accessKey") if isinstance(value, dict) else None
    if not isinstance(key, str) or not key.strip():
        raise BadRequest(_BODY_FORMAT)
    if len(key.strip()) > MAX_KEY_LENGTH:
        raise Unauthorized(WRONG_KEY)
    return key.strip()
