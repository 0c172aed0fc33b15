"""The server as the authorization server of its own command line: codes, refresh tokens, consent and revocation.

The console shows the user what a login would allow, and sends the decision. No key is issued without one: a link or a
code that an attacker sends is of no use unless the user agrees. Only users with a login of their own, or with a key
without a scope, can agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fairlead.authn.access_keys import AccessKeyAuthenticator
from fairlead.authz.name_index import is_user
from fairlead.authz.self_access import AUTHORIZE_READ, AUTHORIZE_WRITE
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.errors import SCOPE, BadRequest, Forbidden, TooLarge, Unauthorized, UnsupportedMediaType
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.server.api.content import JSON, media_type_of, read_raw
from fairlead.signin.cli_logins import CLIENT_ID, Approval, CliLogins, GrantRejected, IssuedTokens
from fairlead.signin.cli_tokens import (
    MAX_TOKEN_LENGTH,
    NamedSecret,
    challenge_of,
    is_challenge,
    is_state,
    is_verifier,
    new_secret,
    parse_code,
    parse_loopback_uri,
    parse_refresh_token,
)
from fairlead.signin.oauth import Form, GrantHandler, OAuthError, answer_oauth, json_reply, require_field

REVOKE_ENDPOINT = ("post", "/auth/revoke")
CLIENT = {"id": CLIENT_ID, "name": "Fairlead CLI"}
MAX_BODY_BYTES = 16 * 1024
MAX_MACHINE_LENGTH = 64
LOGIN_ANNOTATION = "service.sh/cli-login"
"""The annotation of audit events with the name of the login that a request started or ended."""
_PARAMETERS = frozenset(
    {"response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method", "state", "machine"}
)
LOG_IN_AGAIN = "log in again with `fairlead login`"
_MESSAGES = {
    "code_expired": "the code has expired",
    "code_unknown": "the code is not valid, or not for this verifier and redirect URI",
    "code_misused": "the code is not for this verifier and redirect URI, so the login was ended",
    "code_reused": "the code was used before, so the login was ended",
    "token_unknown": "the refresh token is not valid",
    "token_reused": "the refresh token was used before, so the login was ended",
    "login_ended": "the login has ended",
}


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A checked request for a login, as the command line opens it in the browser."""

    redirect_uri: str
    redirect_host: str
    code_challenge: str
    state: str
    machine: str


def parse_authorization_request(values: Mapping[str, Any]) -> AuthorizationRequest:
    """Checks the parameters. An error is shown by the console; it is never sent to the redirect URI."""
    unknown = sorted(set(values) - _PARAMETERS)
    if unknown:
        raise BadRequest(f"the request has an unknown parameter; the known ones are {', '.join(sorted(_PARAMETERS))}")
    texts = {name: value if isinstance(value, str) else "" for name, value in values.items()}
    fixed = {"response_type": "code", "client_id": CLIENT_ID, "code_challenge_method": "S256"}
    for name, expected in fixed.items():
        if texts.get(name) != expected:
            raise BadRequest(f"{name} must be {expected}")
    host = parse_loopback_uri(texts.get("redirect_uri", ""))
    if host is None:
        raise BadRequest("redirect_uri must be http://127.0.0.1:PORT/PATH or http://[::1]:PORT/PATH")
    if not is_challenge(texts.get("code_challenge", "")):
        raise BadRequest("code_challenge must be the SHA-256 of the verifier in base64url: 43 characters")
    if not is_state(texts.get("state", "")):
        raise BadRequest("state must have 16 to 128 characters of A-Z, a-z, 0-9, _ and -")
    machine = clean_machine(texts.get("machine", ""))
    return AuthorizationRequest(texts["redirect_uri"], host, texts["code_challenge"], texts["state"], machine)


def clean_machine(text: str) -> str:
    """The name of a machine, as it claims. Other characters than those of host names could imitate other text."""
    allowed = (each for each in text[:MAX_MACHINE_LENGTH] if each.isascii() and (each.isalnum() or each in "._-"))
    return "".join(allowed)


class CliLoginHandlers:
    """Authorization codes, refresh tokens and revocation. `tokens` authenticates access keys."""

    def __init__(self, logins: CliLogins, tokens: AccessKeyAuthenticator) -> None:
        self.logins = logins
        self._tokens = tokens

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {AUTHORIZE_READ: self.describe, AUTHORIZE_WRITE: self.decide}

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {REVOKE_ENDPOINT: self.revoke}

    def grants(self) -> Mapping[str, GrantHandler]:
        return {"authorization_code": self._redeem_code, "refresh_token": self._refresh}

    async def describe(self, call: Call) -> Reply:
        """What a request for a login would allow."""
        user = require_approver(call, self.logins)
        if any(len(each) != 1 for each in call.query.values()):
            raise BadRequest("a parameter occurs twice; send each parameter once")
        request = parse_authorization_request({name: each[0] for name, each in call.query.items()})
        return json_reply({**describe_login(user, self.logins, request.machine), "redirectHost": request.redirect_host})

    async def decide(self, call: Call) -> Reply:
        """Allows or denies a login. The response has the address with the code, for the browser to go to."""
        user = require_approver(call, self.logins)
        body = await read_decision(call)
        values = body.get("request")
        request = parse_authorization_request(values if isinstance(values, dict) else {})
        if not body["approve"]:
            return _redirect(request, {"error": "access_denied"})
        approval, values = approve(user, self.logins, request.machine), self.logins.values
        secret = new_secret()
        digest = values.code_digest(secret, request.code_challenge, request.redirect_uri, approval.binding)
        name = await self.logins.start(approval, digest, self.logins.lifetimes.code, secret)
        call.annotations[LOGIN_ANNOTATION] = name
        return _redirect(request, {"code": NamedSecret(name, secret).text})

    async def revoke(self, call: Call) -> Reply:
        """Ends the login of a refresh token or an access key of the command line. Any other token changes nothing."""
        return await answer_oauth(call, self._revoke)

    async def _revoke(self, call: Call, form: Form) -> Reply:
        text = require_field(form, "token", MAX_TOKEN_LENGTH)
        token = parse_refresh_token(text)
        if token is not None:
            await self.logins.revoke(token)
            return json_reply({})
        try:
            user = self._tokens.authenticate_token(text)
        except Unauthorized:
            return json_reply({})
        if self.logins.is_cli_login(user.key):
            call.user, call.annotations[LOGIN_ANNOTATION] = user, user.key
            await self.logins.end(user.key)
        return json_reply({})

    async def _redeem_code(self, call: Call, form: Form) -> Reply:
        code = parse_code(form.get("code", "")[:MAX_TOKEN_LENGTH])
        try:
            verifier, uri = _read_redemption(form)
        except OAuthError:
            if code is not None:
                await self.logins.reject(code)
            raise
        if code is None:
            raise rejected(GrantRejected("code_unknown"))
        values, challenge = self.logins.values, challenge_of(verifier)
        try:
            tokens = await self.logins.redeem(
                code, lambda binding: values.code_digest(code.secret, challenge, uri, binding)
            )
        except GrantRejected as error:
            raise rejected(error) from None
        return token_reply(call, tokens)

    async def _refresh(self, call: Call, form: Form) -> Reply:
        token = parse_refresh_token(require_field(form, "refresh_token", MAX_TOKEN_LENGTH))
        if token is None:
            raise rejected(GrantRejected("token_unknown"))
        try:
            tokens = await self.logins.refresh(token)
        except GrantRejected as error:
            raise rejected(error) from None
        return token_reply(call, tokens)


def _read_redemption(form: Form) -> tuple[str, str]:
    """The verifier and the redirect URI that come with a code."""
    require_client(form)
    require_field(form, "code", MAX_TOKEN_LENGTH)
    verifier = require_field(form, "code_verifier", 128)
    uri = require_field(form, "redirect_uri", 512)
    if not is_verifier(verifier):
        raise rejected(GrantRejected("code_unknown"))
    return verifier, uri


def require_approver(call: Call, logins: CliLogins) -> User:
    """The user who may allow a login. Raises Forbidden for a credential that a login would exceed."""
    user = call.user
    if user is None:
        raise Unauthorized
    if user.impersonator is not None:
        raise Forbidden("impersonation cannot log the command line in; sign in as the user")
    if user.scope is not None:
        reason = "a key with a scope cannot log the command line in, as a login has no scope; sign in instead"
        raise Forbidden(reason, refused_by=SCOPE)
    if not user.key or not is_user(user, (user.name,)):
        raise Forbidden("only a user with a login or an access key can log the command line in; sign in instead")
    if logins.is_cli_login(user.key):
        raise Forbidden("a login of the command line cannot start another one; sign in to the console instead")
    if logins.lacks_sign_on(user):
        raise Forbidden("users of an identity provider log the command line in after a single sign-on; sign in instead")
    return user


def describe_login(user: User, logins: CliLogins, machine: str) -> Object:
    """What the console shows before the user decides."""
    seconds = {"ttlSeconds": logins.allowed_ttl(user), "keyTTLSeconds": logins.lifetimes.key}
    return {"client": CLIENT, "machine": machine, "user": user.name, **seconds}


def approve(user: User, logins: CliLogins, machine: str) -> Approval:
    return Approval(user.name, machine, logins.binding_for(user, logins.allowed_ttl(user)))


async def read_decision(call: Call) -> Object:
    """The body with the decision of a user: a JSON object with the boolean `approve`."""
    body = await read_json(call)
    if not isinstance(body.get("approve"), bool):
        raise BadRequest("approve must be true or false")
    return body


async def read_json(call: Call) -> Object:
    if media_type_of(call) != JSON:  # a page of another origin cannot send this type without a CORS preflight
        raise UnsupportedMediaType(f"the body must be {JSON}; set Content-Type")
    content = await read_raw(call)
    if len(content) > MAX_BODY_BYTES:
        raise TooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
    try:
        value = json.decode(content)
    except Malformed:
        value = None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def require_client(form: Form) -> None:
    if form.get("client_id") != CLIENT_ID:
        raise OAuthError("invalid_client", f"client_id must be {CLIENT_ID}")


def rejected(error: GrantRejected) -> OAuthError:
    return OAuthError("invalid_grant", f"{_MESSAGES[error.reason]}; {LOG_IN_AGAIN}", error.reason)


def token_reply(call: Call, tokens: IssuedTokens) -> Reply:
    call.user = tokens.user
    return json_reply(
        {
            "access_token": tokens.access_key,
            "token_type": "Bearer",
            "expires_in": tokens.expires_in,
            "refresh_token": tokens.refresh_token,
        }
    )


def _redirect(request: AuthorizationRequest, values: Mapping[str, str]) -> Reply:
    return json_reply({"redirect": f"{request.redirect_uri}?{urlencode({**values, 'state': request.state})}"})
