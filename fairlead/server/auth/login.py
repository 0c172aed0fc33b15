"""Signing in with a password, signing out, and what ways there are: the platform's paths below `/auth`.

`endpoints` gives the handlers that `server/api/routing.py` calls by verb and path. Signing in and asking for the ways are for
everybody, signing out for those who are signed in. A wrong password, a user that does not exist, one that is disabled
and one without a password are answered alike and at the same cost. Nothing of a body is ever quoted or logged, not even
the user name: people type their password there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson
import structlog

from fairlead.authn.credentials import FORMER_COOKIE, clear_cookie, refuse_foreign, set_cookie
from fairlead.authn.login_sessions import MOST_LOGINS, LoginKeys, NewKey
from fairlead.authn.login_throttle import Throttle
from fairlead.authn.password_store import PasswordStore
from fairlead.authz.self_access import LOGOUT
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, Forbidden, TooLarge, Unauthorized, UnsupportedMediaType
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import User
from fairlead.server.api.content import JSON, media_type_of, read_raw
from fairlead.server.api.routing import Handler, truthy

LOGIN, METHODS = ("post", "/auth/password/login"), ("get", "/auth/methods")
"""What is there for those who are not signed in yet: verb and path, as authorizers see them."""
BODY_LIMIT = 64 * 1024
WRONG = "user name or password is wrong"
_SHAPE = 'the body must be a JSON object {"username": "...", "password": "..."} with two texts that are not empty'
_NO_FORMER_COOKIE = ("set-cookie", clear_cookie(FORMER_COOKIE))

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What somebody signs in with."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """The handlers. `public_url` is the origin of our own pages where a proxy stands before the server."""

    passwords: PasswordStore
    keys: LoginKeys
    throttle: Throttle
    enabled: Callable[[], bool] = lambda: True
    public_url: str = ""

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        """By verb and path, both below the platform's root."""
        return {
            LOGIN: self.sign_in,
            LOGOUT: self.sign_out,
            METHODS: self.methods,
        }

    async def methods(self, call: Call) -> Reply:
        """The ways to sign in."""
        return _answer({"methods": {"sso": [], "password": {"enabled": self.enabled()}}})

    async def sign_in(self, call: Call) -> Reply:
        """User name and password in, a new access key out: in the body, or with `?cookie=true` as a cookie alone."""
        if not self.enabled():
            raise Forbidden("signing in with a password is turned off on this server; use an access key instead")
        as_cookie = truthy(call.parameter("cookie"), present="cookie" in call.query)
        if as_cookie:  # nobody shall be signed in as somebody else by a page that he happens to look at
            refuse_foreign(call, self.public_url)
        credentials = await _credentials(call)
        user, key = await self._new_login(call, credentials)
        answer = {"user": name_of(user), "username": dig(user, "spec.username") or name_of(user)}
        call.user = User(answer["user"], uid=metadata(user)["uid"], key=key.name)
        if as_cookie:
            return _answer(answer, ("set-cookie", set_cookie(key.value, self.keys.ttl())), _NO_FORMER_COOKIE)
        return _answer({**answer, "accessKey": key.value})

    async def _new_login(self, call: Call, credentials: Credentials) -> tuple[Object, NewKey]:
        user = await self.passwords.user_called(credentials.username)
        # Counted by the name that was typed, known or not, or the waiting would tell which ones are.
        with self.throttle.attempt(credentials.username, call.client) as attempt:
            verified = await self.passwords.verified(user, credentials.password)
            if verified is not None:
                attempt.succeed()
        if user is None or verified is None:
            log.info("a login failed", user=name_of(user) if user else "", client=call.client, audit_id=call.audit_id)
            raise Unauthorized(WRONG)
        name = name_of(user)
        key = await self.keys.create(name, call.headers.get("user-agent", ""))
        # The password may have been changed since it was checked, and whoever did so has ended the logins he saw.
        if not await self.passwords.still_fits(name, credentials.password, verified):
            await self.keys.end(key.name)
            raise Unauthorized(WRONG)
        await self.keys.end_all(name, but=key.name, newest=MOST_LOGINS - 1)
        await self.passwords.renew(user, credentials.password, verified)
        return user, key

    async def sign_out(self, call: Call) -> Reply:
        """Ends the login that the request came with, and takes the cookie away. Other keys are not ended by this."""
        ended = await self.keys.end(call.user.key) if call.user is not None else False
        told = "signed out" if ended else "this access key was not made by signing in and goes on working"
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": told}
        return _answer(status, ("set-cookie", clear_cookie()), _NO_FORMER_COOKIE)


async def _credentials(call: Call) -> Credentials:
    """What was sent. The length must be announced: strangers shall not make the server hold more than this."""
    if media_type_of(call) != JSON:  # which a page elsewhere cannot make a browser send without asking us
        raise UnsupportedMediaType(f"the body must be {JSON}; set Content-Type")
    announced = call.headers.get("content-length", "")
    if not announced.isdecimal():
        raise BadRequest("the length of the body must be announced; send Content-Length")
    if len(announced) > 10 or int(announced) > BODY_LIMIT:
        raise TooLarge(f"Request entity too large: limit is {BODY_LIMIT}")
    return _parsed(await read_raw(call))


def _parsed(body: bytes) -> Credentials:
    if len(body) > BODY_LIMIT:
        raise TooLarge(f"Request entity too large: limit is {BODY_LIMIT}")
    try:
        value = json.decode(body)
    except Malformed:  # whose message could quote a part of the password
        raise BadRequest(_SHAPE) from None
    username, password = (value.get(name) if isinstance(value, dict) else None for name in ("username", "password"))
    if not isinstance(username, str) or not isinstance(password, str) or not username or not password:
        raise BadRequest(_SHAPE)
    return Credentials(username, password)


def _answer(value: Object, *headers: tuple[str, str]) -> Reply:
    """An answer that nobody may keep a copy of on the way."""
    return Reply(200, orjson.dumps(value), headers=[("cache-control", "no-store"), *headers], cacheable=True)
