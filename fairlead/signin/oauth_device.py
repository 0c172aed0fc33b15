"""Device authorization (RFC 8628): the command line shows a code, which the user types into the console.

The code is short, so wrong ones are throttled by user and by network like wrong passwords, and a code is valid for ten
minutes. It is typed by hand and in no link, so that users are not lured into a login of an attacker's machine with one
click. The console shows from which address the login was started.

Clients without a credential make requests for such a login, so these are few, small and short-lived: the count is
bounded in total and for each network, and exact under concurrency, as in `registry/quota/write_locks.py`. They are
records in the store, so that any replica can serve the next request. No kind serves these records, so they occur in no
list or watch. Neither code is stored, only digests of both.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from fairlead.authz.self_access import DEVICE_DECISION, DEVICE_REQUEST
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.clock import Clock, timestamp
from fairlead.core.errors import BadRequest, Details, NotFound, TooManyRequests
from fairlead.core.user import User
from fairlead.registry.quota.write_locks import acquire_lock, lock_key
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.server.flow.attempts import Throttle, client_network
from fairlead.signin.cli_grants import (
    MAX_TOKEN_LENGTH,
    CliLogins,
    GrantRejected,
    NamedSecret,
    TokenValues,
    format_user_code,
    new_secret,
    new_user_code,
    parse_code,
    parse_user_code,
)
from fairlead.signin.oauth import Form, Grant, OAuthError, answer_oauth, json_reply, require_field
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
from fairlead.storage.contract import Key, RevisionConflict, Store, Write
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.view import View

PLURAL = "cliloginrequests"
REQUEST_SECONDS = 600
POLL_SECONDS = 5
MAX_POLL_SECONDS = 60
MAX_REQUESTS = 256
MAX_REQUESTS_PER_NETWORK = 16
MAX_REQUESTS_PER_SITE = 64
SITE_PREFIX_BITS = 48
"""The IPv6 networks of one site: it has many /64 networks, and must not use up the requests of all others."""
MAX_POLLERS = 1_024
MAX_ATTEMPTS = 20
PENDING, APPROVED, DENIED = "pending", "approved", "denied"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A stored request. `address` is that of the client, `login` the name of the login that a user has allowed."""

    name: str
    secret_digest: str
    machine: str
    address: str
    requested_at: datetime
    expires_at: datetime
    state: str = PENDING
    login: str = ""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    request: DeviceRequest
    revision: int


class _Record(msgspec.Struct):
    request: DeviceRequest


_decode = msgspec.json.Decoder(_Record).decode


class DeviceRequests:
    def __init__(self, store: Store, view: View, api_group: str, values: TokenValues, clock: Clock) -> None:
        self._store = store
        self._view = view
        self._group = api_group
        self._values = values
        self._clock = clock
        self._pollers: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By device code: when it was last presented, and the interval in seconds that its client has to keep."""

    async def open(self, machine: str, client: str) -> tuple[NamedSecret, str]:
        """Stores a new request, and returns its device code and its user code. Raises TooManyRequests."""
        now = self._clock.now()
        secret = new_secret()
        code = new_user_code()
        request = DeviceRequest(
            name=self._values.device_name(code),
            secret_digest=self._values.device_secret_digest(secret),
            machine=machine,
            address=client_network(client),
            requested_at=now,
            expires_at=now + timedelta(seconds=REQUEST_SECONDS),
        )
        for _ in range(MAX_ATTEMPTS):
            with translate_storage_errors():
                await self._view.wait_current()
                writes = [acquire_lock(self._view, lock_key(self._group, "devices:")), *self._make_room(request, now)]
                writes.append(Write(self._key(request.name), _encode(self._group, request), 0))
                try:
                    await self._view.wait_for(await self._store.commit(writes))
                except RevisionConflict:  # another request was faster
                    continue
                return NamedSecret(request.name, secret), code
        raise TooManyRequests("too many logins are being started; try again", Details(retry_after=1))

    def _make_room(self, request: DeviceRequest, now: datetime) -> list[Write]:
        """The writes that remove expired requests. Raises TooManyRequests if there are too many others."""
        entries = self._view.entries(self._group, PLURAL)
        stored = [(entry, _decode(entry.body).request) for entry in entries]
        live = [each for _, each in stored if each.expires_at > now]
        same_network = [each for each in live if each.address == request.address]
        site = _site_of(request.address)
        same_site = [each for each in live if site and _site_of(each.address) == site]
        limits = (MAX_REQUESTS, MAX_REQUESTS_PER_SITE, MAX_REQUESTS_PER_NETWORK)
        for found, limit in zip((live, same_site, same_network), limits, strict=True):
            if len(found) >= limit:
                seconds = math.ceil((min(each.expires_at for each in found) - now).total_seconds())
                message = f"{limit} logins with a code are waiting for their users; try again in {seconds} s"
                raise TooManyRequests(message, Details(retry_after=max(1, seconds)))
        return [Write(entry.key, None, entry.revision) for entry, each in stored if each.expires_at <= now]

    async def find(self, name: str) -> StoredRequest | None:
        """The request with that name, unless it has expired."""
        with translate_storage_errors():
            await self._view.wait_current()
        entry: Entry | None = self._view.get(self._key(name))
        if entry is None:
            return None
        request = _decode(entry.body).request
        return StoredRequest(request, entry.revision) if request.expires_at > self._clock.now() else None

    async def find_by_user_code(self, code: str) -> StoredRequest | None:
        return await self.find(self._values.device_name(code))

    async def decide(self, stored: StoredRequest, state: str, login: str = "") -> bool:
        """Records the decision of a user; returns False if another one was faster."""
        request = replace(stored.request, state=state, login=login)
        write = Write(self._key(request.name), _encode(self._group, request), stored.revision)
        return await self._commit(write)

    async def remove(self, stored: StoredRequest) -> bool:
        """Removes a request that was redeemed; returns False if another client was faster."""
        return await self._commit(Write(self._key(stored.request.name), None, stored.revision))

    async def _commit(self, write: Write) -> bool:
        with translate_storage_errors():
            try:
                await self._view.wait_for(await self._store.commit([write]))
            except RevisionConflict:
                return False
        return True

    def is_too_early(self, name: str) -> bool:
        """Records that a client asks for its tokens; whether it asks more often than it may. If so, its interval
        grows, as the RFC requires. Each worker process counts by itself."""
        now = self._clock.monotonic()
        latest, interval = self._pollers.get(name, (-math.inf, float(POLL_SECONDS)))
        early = now - latest < interval - 1
        self._pollers[name] = now, min(interval + POLL_SECONDS, MAX_POLL_SECONDS) if early else interval
        self._pollers.move_to_end(name)
        if len(self._pollers) > MAX_POLLERS:
            self._pollers.popitem(last=False)
        return early

    def _key(self, name: str) -> Key:
        return (self._group, PLURAL, "", name)


def _site_of(network: str) -> str:
    """The /48 of an IPv6 network; empty for other addresses."""
    try:
        found = ipaddress.ip_network(network)
    except ValueError:
        return ""
    return str(found.supernet(new_prefix=SITE_PREFIX_BITS)) if isinstance(found, ipaddress.IPv6Network) else ""


def _encode(api_group: str, request: DeviceRequest) -> bytes:
    kind = {"apiVersion": f"{api_group}/v1", "kind": "CliLoginRequest", "metadata": {"name": request.name}}
    return msgspec.json.encode({**kind, "request": request})


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

    def grants(self) -> Mapping[str, Grant]:
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
