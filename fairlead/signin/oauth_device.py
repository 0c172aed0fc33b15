"""Device authorization (RFC 8628): the command line shows a code, which the user types into the console.

The code is short, so wrong ones are throttled by user and by network like wrong passwords, and a code is valid for ten
minutes. It is typed by hand and in no link, so that users are not lured into a login of an attacker's machine with one
click. The console shows from which address the login was started.

`device_requests.py` stores what waits for a user.
"""

from collections.abc import Mapping

from fairlead.authz.self_access import DEVICE_DECISION, DEVICE_REQUEST
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.clock import Clock, timestamp
from fairlead.core.errors import BadRequest, NotFound
from fairlead.core.user import User
from fairlead.server.flow.attempts import Throttle
from fairlead.signin.cli_logins import CliLogins, GrantRejected
from fairlead.signin.cli_tokens import MAX_TOKEN_LENGTH, NamedSecret, format_user_code, parse_code, parse_user_code
from fairlead.signin.device_requests import (
    APPROVED,
    DENIED,
    PENDING,
    POLL_SECONDS,
    REQUEST_SECONDS,
    DeviceRequests,
    StoredRequest,
)
from fairlead.signin.oauth import Form, GrantHandler, OAuthError, answer_oauth, json_reply, require_field
from fairlead.signin.oauth_cli import (
    LOG_IN_AGAIN,
    LOGIN_ANNOTATION,
    approve,
    clean_machine,
    describe_login,
    read_decision,
    read_json,
    rejected,
    require_approver,
    require_client,
    token_reply,
)

DEVICE_ENDPOINT = ("post", "/auth/device")
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_PAGE = "/console/device"
UNKNOWN_CODE = "there is no login with this code, or it has expired; check the code, or start the login again"


class DeviceLoginHandlers:
    """`base_url` is the address of the console."""

    def __init__(
        self, logins: CliLogins, requests: DeviceRequests, throttle: Throttle, clock: Clock, base_url: str
    ) -> None:
        self._logins = logins
        self._requests = requests
        self._throttle = throttle
        self._clock = clock
        self._base_url = base_url

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {DEVICE_REQUEST: self.describe, DEVICE_DECISION: self.decide}

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {DEVICE_ENDPOINT: self.start}

    def grants(self) -> Mapping[str, GrantHandler]:
        return {DEVICE_GRANT: self._redeem}

    async def start(self, call: Call) -> Reply:
        return await answer_oauth(call, self._start)

    async def _start(self, call: Call, form: Form) -> Reply:
        require_client(form)
        code, user_code = await self._requests.open(clean_machine(form.get("machine", "")), call.source)
        return json_reply(
            {
                "device_code": code.text,
                "user_code": format_user_code(user_code),
                "verification_uri": self._base_url + DEVICE_PAGE,
                "expires_in": REQUEST_SECONDS,
                "interval": POLL_SECONDS,
            }
        )

    async def describe(self, call: Call) -> Reply:
        """The login that a code stands for."""
        user = require_approver(call, self._logins)
        body = await read_json(call)
        request = (await self._find(call, user, body.get("userCode"))).request
        left = int((request.expires_at - self._clock.now()).total_seconds())
        details = {"address": request.address, "requestedAt": timestamp(request.requested_at)}
        login = describe_login(user, self._logins, request.machine)
        return json_reply({**login, **details, "expiresInSeconds": max(0, left)})

    async def decide(self, call: Call) -> Reply:
        """Allows or denies it."""
        user = require_approver(call, self._logins)
        body = await read_decision(call)
        stored = await self._find(call, user, body.get("userCode"))
        if not body["approve"]:
            if not await self._requests.decide(stored, DENIED):
                raise NotFound(UNKNOWN_CODE)  # another decision was faster, and it may have been an approval
            return json_reply({"approved": False})
        approval = approve(user, self._logins, stored.request.machine)
        digest = self._logins.values.device_digest(stored.request.secret_digest, approval.binding)
        name = await self._logins.start(approval, digest, REQUEST_SECONDS)
        if not await self._requests.decide(stored, APPROVED, name):
            await self._logins.end(name)
            raise NotFound(UNKNOWN_CODE)
        call.annotations[LOGIN_ANNOTATION] = name
        return json_reply({"approved": True})

    async def _find(self, call: Call, user: User, typed: object) -> StoredRequest:
        """The pending request with a code. Wrong codes are counted, so that codes cannot be guessed."""
        code = parse_user_code(typed) if isinstance(typed, str) else None
        if code is None:
            raise BadRequest("userCode must have eight consonants, as the command line shows them")
        async with self._throttle.attempt(f"device code {user.name}", call.source) as attempt:
            stored = await self._requests.find_by_user_code(code)
            if stored is not None and stored.request.state == PENDING:
                attempt.succeed()
                return stored
        raise NotFound(UNKNOWN_CODE)

    async def _redeem(self, call: Call, form: Form) -> Reply:
        code = parse_code(form.get("device_code", "")[:MAX_TOKEN_LENGTH])
        try:
            require_client(form)
        except OAuthError:
            if code is not None:
                await self._reject(code)
            raise
        require_field(form, "device_code", MAX_TOKEN_LENGTH)
        if code is None:
            raise rejected(GrantRejected("code_unknown"))
        if self._requests.is_too_early(code.name):
            raise OAuthError("slow_down", "wait five seconds longer before each further request")
        stored = await self._requests.find(code.name)
        values = self._logins.values
        if stored is None or values.device_secret_digest(code.secret) != stored.request.secret_digest:
            raise OAuthError("expired_token", f"the code has expired; {LOG_IN_AGAIN}")
        request = stored.request
        if request.state == PENDING:
            raise OAuthError("authorization_pending", "the user has not decided yet; ask again")
        if request.state == DENIED:
            raise OAuthError("access_denied", "the user has denied the login")
        if not await self._requests.remove(stored):  # another request has redeemed it
            raise OAuthError("expired_token", f"the code was used before; {LOG_IN_AGAIN}")
        login = NamedSecret(request.login, code.secret)
        try:
            tokens = await self._logins.redeem(
                login, lambda binding: values.device_digest(request.secret_digest, binding)
            )
        except GrantRejected as error:
            raise rejected(error) from None
        return token_reply(call, tokens)

    async def _reject(self, code: NamedSecret) -> None:
        """Ends the login of a device code that another client has presented. An invented code ends none."""
        stored, values = await self._requests.find(code.name), self._logins.values
        if stored is None or values.device_secret_digest(code.secret) != stored.request.secret_digest:
            return
        await self._requests.remove(stored)
        if stored.request.login:
            await self._logins.end(stored.request.login)
