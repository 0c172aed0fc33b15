"""The endpoints for logins of the command line without HTTP, with the stages of authentication and authorization."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import orjson

from fairlead.authn.access_keys import Pepper
from fairlead.authz.authorizer import AuthorizerChain
from fairlead.authz.self_access import SelfAuthorizer
from fairlead.core.call import Call, Handler, Reply, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.server.auth.stages import AuthorizeStage, build_authentication_stage, build_identify
from fairlead.server.pipeline import Pipeline
from fairlead.signin.cli_logins import CliLogins, Lifetimes
from fairlead.signin.cli_tokens import challenge_of
from fairlead.signin.device_requests import DeviceRequests
from fairlead.signin.oauth import FORM, TOKEN_ENDPOINT, TokenEndpoint
from fairlead.signin.oauth_cli import CliLoginHandlers
from fairlead.signin.oauth_device import DEVICE_GRANT, DeviceLoginHandlers
from fairlead.storage.contract import Store
from tests.harness.calls import call
from tests.harness.login import CLIENT, TTL, LoginFixture, header, open_login, parse_body

HOST = "fairlead.example.com"
SAME_ORIGIN = {"host": HOST, "origin": f"https://{HOST}"}
VERIFIER = "verifier-" * 6
REDIRECT = "http://127.0.0.1:40000/done"
REQUEST = {
    "response_type": "code",
    "client_id": "fairlead-cli",
    "redirect_uri": REDIRECT,
    "code_challenge": challenge_of(VERIFIER),
    "code_challenge_method": "S256",
    "state": "0123456789abcdef",
    "machine": "laptop",
}


def _impersonate(call: Call, requester: User) -> User:
    return User(call.headers.get("impersonate-user"), impersonator=requester)


class CliLoginFixture:
    """Requests as the command line and the console send them."""

    def __init__(self, login: LoginFixture, store: Store, pepper: Pepper) -> None:
        self.login = login
        self.clock = login.clock
        registry, keys = login.registry, login.keys
        self.logins = CliLogins(registry, login.logins, pepper, Lifetimes(lambda: TTL), keys.user_of_key, GROUP)
        self.requests = DeviceRequests(store, registry.view, GROUP, self.logins.values, self.clock)
        cli = CliLoginHandlers(self.logins, keys)
        device = DeviceLoginHandlers(self.logins, self.requests, login.throttle, self.clock, f"https://{HOST}")
        token = TokenEndpoint({**cli.grants(), **device.grants()})
        public: Mapping[tuple[str, str], Handler] = {
            TOKEN_ENDPOINT: token,
            **cli.public_endpoints(),
            **device.public_endpoints(),
        }
        self._endpoints = {**public, **cli.endpoints(), **device.endpoints()}
        authorizer = AuthorizerChain((), (SelfAuthorizer(GROUP, registry.view),))
        identify = build_identify((keys, login.cookies), _impersonate, ClusterIdentityMapper(""))  # type: ignore[arg-type]
        self._stages = (
            build_authentication_stage(identify, lambda user: None, public.keys()),
            AuthorizeStage(authorizer, identify, public=public.keys()),
        )
        self.calls: list[Call] = []
        self.forwarded_for = ""

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: bytes = b"",
        client: str = CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {"content-length": str(len(body)), **(headers or {})}
        request = call(path, query, method=method, headers=sent, body=body)
        request.client, request.target = client, RequestInfo(method.lower(), path)
        request.forwarded_for = self.forwarded_for
        self.calls.append(request)
        return await Pipeline(self._stages, self._endpoints[method.lower(), path])(request)

    async def post_form(self, path: str, client: str = CLIENT, **fields: str) -> tuple[int, Object]:
        body = urlencode(fields).encode()
        reply = await self.send("POST", path, body=body, client=client, headers={"content-type": FORM})
        return reply.status, parse_body(reply)

    async def post_json(self, path: str, value: object, headers: Mapping[str, str]) -> tuple[int, Object]:
        sent = {"content-type": "application/json", **headers}
        reply = await self.send("POST", path, body=orjson.dumps(value), headers=sent)
        return reply.status, parse_body(reply)

    async def browser(self, user: str = "alice") -> dict[str, str]:
        """Signs a browser in, and returns the headers of its requests from the console."""
        reply = await self.login.sign_in(user, query="cookie=true", **SAME_ORIGIN)
        return {"cookie": header(reply, "set-cookie").partition(";")[0], **SAME_ORIGIN}

    async def approve(self, headers: Mapping[str, str], **changes: str) -> str:
        """Approves the request in the console, and returns the code."""
        body = {"approve": True, "request": {**REQUEST, **changes}}
        status, reply = await self.post_json("/auth/authorize", body, headers)
        assert status == 200, reply
        return parse_qs(urlsplit(reply["redirect"]).query)["code"][0]

    async def redeem(self, code: str, verifier: str = VERIFIER, uri: str = REDIRECT) -> tuple[int, Object]:
        fields = {"code": code, "code_verifier": verifier, "redirect_uri": uri, "client_id": "fairlead-cli"}
        return await self.post_form("/auth/token", grant_type="authorization_code", **fields)

    async def refresh(self, token: str) -> tuple[int, Object]:
        return await self.post_form("/auth/token", grant_type="refresh_token", refresh_token=token)

    async def poll(self, device_code: str) -> tuple[int, Object]:
        fields = {"device_code": device_code, "client_id": "fairlead-cli"}
        return await self.post_form("/auth/token", grant_type=DEVICE_GRANT, **fields)


@asynccontextmanager
async def open_cli_login() -> AsyncIterator[CliLoginFixture]:
    async with open_login() as login:
        await login.add_user("alice")
        yield CliLoginFixture(login, login.store, login.pepper)
