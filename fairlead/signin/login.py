"""Password login, logout and the list of login methods: the platform's paths below `/auth`.

`server/api/routing.py` calls the handlers from `endpoints` by verb and path. Login and the list of methods need no
authentication; logout does. A wrong password, an unknown user, a disabled user and a user without a password get the
same response, in the same time. No part of a body is quoted or logged, not even the user name: users sometimes type
their password there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from fairlead.authn.credentials import check_same_origin, clear_cookie_header, set_cookie_header
from fairlead.authz.name_index import is_user
from fairlead.authz.self_access import LOGOUT
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.errors import (
    SCOPE,
    BadRequest,
    Forbidden,
    TooManyRequests,
    Unauthorized,
)
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.refusals import LOGIN, TOO_MANY_ATTEMPTS, note_refused_login
from fairlead.core.user import User
from fairlead.kinds.access.access_key import MAX_LOGINS
from fairlead.server.api.content import JSON
from fairlead.server.api.routing import read_flag
from fairlead.server.flow.attempts import Throttle
from fairlead.signin.login_sessions import IssuedKey, LoginSessions
from fairlead.signin.oauth import json_reply, read_small_body
from fairlead.signin.passwords import PasswordStore
from fairlead.signin.sso.service import ProviderLogout

LOGIN_ENDPOINT, METHODS_ENDPOINT = ("post", "/auth/password/login"), ("get", "/auth/methods")
"""Verb and path, as authorizers see them."""
MAX_BODY_BYTES = 64 * 1024
WRONG_CREDENTIALS = "user name or password is wrong"
_BODY_FORMAT = 'the body must be a JSON object {"username": "...", "password": "..."} with two non-empty strings'

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password of a login request."""

    username: str = field(repr=False)
    password: str = field(repr=False)


class SignOnMethods(Protocol):
    """Single sign-on, as far as the list of methods and the logout need it. Implemented in `sso/endpoints.py`."""

    def list_methods(self) -> list[Object]:
        """The connectors, for the sign-in page."""

    def prepare_logout(self, key: str, return_url: str) -> ProviderLogout | None:
        """The logout of a login at its provider; None if it has none. Raises BadRequest for a foreign `return_url`."""

    async def logout_url(self, logout: ProviderLogout) -> str:
        """The address that ends the session at the provider. Empty if there is none, or it cannot be asked."""


@dataclass(frozen=True, slots=True)
class LoginHandlers:
    """The login handlers. `public_url` is the origin of our own pages if the server is behind a proxy."""

    passwords: PasswordStore
    sessions: LoginSessions
    throttle: Throttle
    is_enabled: Callable[[], bool] = lambda: True
    public_url: str = ""
    cli_login: bool = False
    """Whether the command line can log in through the console."""
    sign_on: SignOnMethods | None = None

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        """Handlers by verb and path below the platform root."""
        return {LOGIN_ENDPOINT: self.sign_in, METHODS_ENDPOINT: self.list_methods}

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {LOGOUT: self.sign_out}

    async def list_methods(self, call: Call) -> Reply:
        """The login methods of this server."""
        cli = {"enabled": self.cli_login, "url": self.public_url}
        connectors = self.sign_on.list_methods() if self.sign_on is not None else []
        password = {"enabled": self.is_enabled(), "used": self.passwords.is_used()}
        methods = {"sso": connectors, "password": password, "cli": cli}
        return json_reply({"methods": methods})

    async def sign_in(self, call: Call) -> Reply:
        """Verifies user name and password; returns an access key in the body, or only as a cookie (`?cookie=true`)."""
        if not self.is_enabled():
            raise Forbidden("password login is disabled on this server; use an access key instead")
        as_cookie = read_flag(call, "cookie")
        if as_cookie:  # login CSRF: another site must not sign a browser in as a different user
            check_same_origin(call, self.public_url)
        credentials = await _read_credentials(call)
        try:
            user, key = await self._log_in(call, credentials)
        except TooManyRequests:
            note_refused_login(call, LOGIN, TOO_MANY_ATTEMPTS)
            raise
        answer = {"user": name_of(user), "username": get_path(user, "spec.username") or name_of(user)}
        call.user = User(answer["user"], uid=metadata(user)["uid"], key=key.name)
        if as_cookie:
            cookie = set_cookie_header(key.value, self.sessions.ttl())
            return json_reply(answer, headers=[("set-cookie", cookie)])
        return json_reply({**answer, "accessKey": key.value})

    async def _log_in(self, call: Call, credentials: Credentials) -> tuple[Object, IssuedKey]:
        user = await self.passwords.find_by_username(credentials.username)
        # Throttled by the submitted name, whether it exists or not: otherwise the delay would reveal valid names.
        async with self.throttle.attempt(credentials.username, call.source) as attempt:
            verified = await self.passwords.verify(user, credentials.password)
            if verified is not None:
                attempt.succeed()
        if user is None or verified is None:
            log.info("a login failed", user=name_of(user) if user else "", client=call.source, audit_id=call.audit_id)
            raise Unauthorized(WRONG_CREDENTIALS)
        name = name_of(user)
        key = await self.sessions.create(name, call.headers.get("user-agent", ""))
        # The password may have changed since it was verified; that change could not revoke the login created here.
        if not await self.passwords.recheck(name, credentials.password, verified):
            await self.sessions.revoke(key.name)
            raise Unauthorized(WRONG_CREDENTIALS)
        await self.sessions.revoke_all(name, keep=key.name, newest=MAX_LOGINS - 1)
        await self.passwords.rehash_if_outdated(user, credentials.password, verified)
        return user, key

    async def sign_out(self, call: Call) -> Reply:
        """Revokes the login of the request, and clears the cookie. Access keys from other sources stay valid.

        With `?all=true`, revokes all logins of the user. If the login was by single sign-on, `providerLogoutURL` in the
        response is the address that ends the session at the provider, too.
        """
        key = call.user.key if call.user is not None else ""
        sign_on, return_url = self.sign_on, call.parameter("postLogoutURL")
        logout = sign_on.prepare_logout(key, return_url) if sign_on is not None else None
        if read_flag(call, "all"):
            message = await self._revoke_all(call.user)
        else:
            revoked = await self.sessions.revoke(call.user.key) if call.user is not None else False
            message = "signed out" if revoked else "this access key was not created by a login and stays valid"
        # Last: a slow provider, or a client that does not wait for it, must not prevent the logout here.
        provider_url = await sign_on.logout_url(logout) if sign_on is not None and logout is not None else ""
        status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
        if provider_url:
            status["providerLogoutURL"] = provider_url
        return json_reply(status, headers=[("set-cookie", clear_cookie_header())])

    async def _revoke_all(self, user: User | None) -> str:
        """Revokes all logins of a user, and returns a message. A key with a scope must not affect others."""
        if user is None:
            raise Unauthorized
        if user.impersonator is not None:
            raise Forbidden("impersonation cannot sign out the user everywhere; delete the access keys instead")
        if user.scope is not None:
            reason = "a key with a scope cannot sign out its user everywhere; use one without a scope"
            raise Forbidden(reason, refused_by=SCOPE)
        # The name of another credential, such as a key with a subject, may equal that of a user.
        count = await self.sessions.revoke_all(user.name) if is_user(user, (user.name,)) else 0
        return f"signed out everywhere: {count} login{'' if count == 1 else 's'} revoked; other access keys stay valid"


async def _read_credentials(call: Call) -> Credentials:
    # A page of another origin cannot send this type without a CORS preflight.
    body = await read_small_body(call, JSON, MAX_BODY_BYTES)
    try:
        value = json.decode(body)
    except Malformed:  # its message could quote a part of the password
        raise BadRequest(_BODY_FORMAT) from None
    username, password = (value.get(name) if isinstance(value, dict) else None for name in ("username", "password"))
    if not isinstance(username, str) or not isinstance(password, str) or not username or not password:
        raise BadRequest(_BODY_FORMAT)
    return Credentials(username, password)
