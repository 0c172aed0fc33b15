"""Users, access keys and a Config with connectors, behind the admission rules of the server, on virtual time."""

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import yaml

from fairlead.admission.access_keys import KeyIssuer, issue_access_key
from fairlead.admission.users import check_users_and_teams
from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeyAuthenticator, Pepper, generate_key
from fairlead.authn.principals import TEAMS, USERS, AdminUserCheck, PrincipalDirectory
from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.authz.scope import is_superset
from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.clusters.config import CONFIG_NAME
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.routing import endpoint_pattern
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.sso.consumed import ConsumedValues
from fairlead.signin.sso.encryption import SignOnEncryption
from fairlead.signin.sso.endpoints import SignOnHandlers, SignOnThrottle
from fairlead.signin.sso.identity import Identity
from fairlead.signin.sso.pending import COOKIE as PENDING_COOKIE
from fairlead.signin.sso.pending import PendingSignOns
from fairlead.signin.sso.provider_access import ProviderAccess
from fairlead.signin.sso.service import SignOnService, SignOnServices
from fairlead.signin.sso.sessions import SessionStore
from fairlead.signin.sso.users import SignOnUsers
from tests.harness.auth import Permissions
from tests.harness.calls import call
from tests.harness.openid_provider import CLIENT_SECRET, FakeProvider, parse_query, provider_client
from tests.harness.registry import RegistryFixture, open_registry

ISSUER, OTHER_ISSUER = "https://login.example.com", "https://other.example.com"
BASE_URL = "https://fairlead.example.com"
SYSTEM = "service-system"
TTL = 86_400
_SERVER = WriteOptions(CONTROLLER_USER, "tests")


def connector_settings(id: str = "okta", issuer: str = ISSUER, **oidc: Any) -> Object:
    return {"id": id, "oidc": {"issuerURL": issuer, "clientId": "fairlead", **oidc}}


def identity(subject: str = "1", issuer: str = ISSUER, **fields: Any) -> Identity:
    return Identity(issuer, subject, **{"username": "alice", **fields})


class SignOnFixture:
    def __init__(self, api: RegistryFixture, permissions: Permissions) -> None:
        self.api = api
        self.permissions = permissions
        self.registry = api.registry
        self.clock = api.clock
        self.policy = SignOnPolicy(api.view, GROUP)
        self.is_admin_user = AdminUserCheck(GROUP, api.view, self.policy)
        self.users = SignOnUsers(api.registry, GROUP)
        self.logins = LoginSessions(api.registry, GROUP, lambda: TTL)
        accounts = Informer(api.view, "", "serviceaccounts")
        users, teams = Informer(api.view, GROUP, USERS), Informer(api.view, GROUP, TEAMS)
        self.principals = PrincipalDirectory(users, teams, accounts, self.policy)
        keys = Informer(api.view, GROUP, ACCESS_KEYS)
        self.authenticator = AccessKeyAuthenticator(keys, self.principals, PEPPER, api.clock, lambda key: None)

    async def configure(self, *connectors: Object, rules: Sequence[Mapping[str, Any]] = ()) -> None:
        """Replaces the settings of single sign-on."""
        text = yaml.safe_dump(
            {"auth": {"connectors": list(connectors), "groupMappings": [dict(each) for each in rules]}}
        )
        if self.api.get("Config", CONFIG_NAME) is None:
            await self.api.submit("Config", self.api.build_object("Config", CONFIG_NAME, spec={"raw": text}), _SERVER)
        else:
            await self.api.patch("Config", CONFIG_NAME, lambda obj: obj["spec"].update(raw=text), _SERVER)

    async def sign_on(self, who: Identity, connector: str = "okta") -> Object:
        """The user of an identity that has signed on."""
        return await self.users.sign_on(self.policy.settings.get().connectors[connector], who)

    async def create(self, kind: str, name: str, **spec: Any) -> Object:
        return await self.api.submit(kind, self.api.build_object(kind, name, spec=spec), _SERVER)

    async def update_spec(self, kind: str, name: str, by: User = CONTROLLER_USER, **spec: Any) -> Object:
        """Patches fields of the spec; None removes a field."""

        def patch(obj: Object) -> None:
            changed = {**obj.get("spec", {}), **spec}
            obj["spec"] = {field: value for field, value in changed.items() if value is not None}

        return await self.api.patch(kind, name, patch, WriteOptions(by, "tests"))

    def get(self, kind: str, name: str) -> Object:
        found = self.api.get(kind, name)
        assert found is not None, f"there is no {kind} {name}"
        return found

    def groups_of(self, name: str) -> tuple[str, ...]:
        user = self.principals.find_user(name)
        assert user is not None, f"{name} is not active"
        return user.groups

    def accepts(self, key: str) -> bool:
        try:
            return bool(self.authenticator.authenticate_token(key).key)
        except Unauthorized:
            return False


PEPPER = Pepper(bytes(range(32)))


@asynccontextmanager
async def open_sign_on() -> AsyncIterator[SignOnFixture]:
    """Starts with the connector `okta` and no users."""
    permissions = Permissions()

    def is_admin_user(name: str) -> bool:
        return fixture.is_admin_user(name)

    rules = (
        issue_access_key(KeyIssuer(PEPPER, generate_key, is_superset), GROUP),
        check_users_and_teams(permissions, is_admin_user, GROUP),
    )
    async with open_registry(rules=rules) as api:
        await api.create("Namespace", SYSTEM)
        fixture = SignOnFixture(api, permissions)
        await fixture.configure(connector_settings())
        yield fixture


class SignOnServer:
    """The endpoints of single sign-on with a provider in memory, and a browser that keeps cookies."""

    def __init__(self, sso: SignOnFixture, *, has_console: bool = True) -> None:
        self.sso = sso
        clock = sso.clock
        self.provider = FakeProvider(ISSUER, clock)
        self.other = FakeProvider(OTHER_ISSUER, clock)
        self.client = provider_client(clock, self.provider, self.other)
        self.access = ProviderAccess(self.client, sso.registry)
        self.encryption = SignOnEncryption(sso.registry, SYSTEM)
        services = SignOnServices(
            settings=sso.policy.settings,
            provider=self.access,
            pending=PendingSignOns(self.encryption),
            sessions=SessionStore(self.encryption),
            users=sso.users,
            logins=sso.logins,
            consumed=ConsumedValues(sso.registry, SYSTEM),
            clock=clock,
            base_url=BASE_URL,
        )
        self.service = SignOnService(services)
        self.throttle = SignOnThrottle(clock)
        self.handlers = SignOnHandlers(self.service, sso.logins, self.throttle, has_console)
        self.last_call: Call | None = None
        self.forwarded_for = ""

    async def send(
        self, method: str, path: str, query: Mapping[str, str] | str = "", cookies: str = "", body: bytes = b""
    ) -> Reply:
        text = query if isinstance(query, str) else urlencode(query)
        headers = {"cookie": cookies, "user-agent": "Firefox"} if cookies else {"user-agent": "Firefox"}
        if body:
            headers |= {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body))}
        request = call(path, text, method=method, headers=headers, body=body)
        request.client, request.forwarded_for = "192.0.2.1:50000", self.forwarded_for
        request.target = RequestInfo(method.lower(), path)
        self.last_call = request
        return await self.handlers.public_endpoints()[method.lower(), endpoint_pattern(path)](request)

    async def begin(self, connector: str = "okta", cookies: str = "", **query: str) -> tuple[str, str]:
        """Begins a sign-on. Returns the address at the provider, and the cookies of the browser."""
        reply = await self.send("GET", f"/auth/{connector}/login", query, cookies)
        assert reply.status == 303, reply.status
        return location(reply), set_cookies(reply).get(PENDING_COOKIE, "")

    async def sign_in(self, subject: str = "1", **query: str) -> Reply:
        """A whole sign-on with the connector okta."""
        url, pending = await self.begin(**query)
        return await self.finish(self.provider.authorize(url, subject), pending)

    async def finish(self, response: Mapping[str, str], pending: str, connector: str = "okta") -> Reply:
        cookies = f"{PENDING_COOKIE}={pending}" if pending else ""
        return await self.send("GET", f"/auth/{connector}/callback", response, cookies)

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the audit event of the last request."""
        assert self.last_call is not None
        return self.last_call.annotations


def location(reply: Reply) -> str:
    return next((value for name, value in reply.headers if name == "location"), "")


def set_cookies(reply: Reply) -> dict[str, str]:
    """The cookies that a response sets, by name. Those that it clears are empty."""
    values = [value for name, value in reply.headers if name == "set-cookie"]
    return {each.partition("=")[0]: each.partition("=")[2].partition(";")[0] for each in values}


def sign_in_error(reply: Reply) -> str:
    """The reason in the redirect of a failed sign-on."""
    assert reply.status == 303
    return parse_query(location(reply)).get("signInError", "")


async def open_server(sso: SignOnFixture, *, has_console: bool = True, **oidc: Any) -> SignOnServer:
    """A server with the connectors okta, with a client secret, and other."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "okta", "namespace": SYSTEM}}
    data = {"clientSecret": b64encode(CLIENT_SECRET.encode()).decode()}
    await sso.api.submit("Secret", {**secret, "data": data}, _SERVER)
    await configure_server(sso, **oidc)
    return SignOnServer(sso, has_console=has_console)


async def configure_server(sso: SignOnFixture, rules: Sequence[Mapping[str, Any]] = (), **oidc: Any) -> None:
    reference = {"clientSecretRef": {"name": "okta"}}
    okta = connector_settings(**{**reference, **oidc})
    await sso.configure(okta, connector_settings("other", OTHER_ISSUER, **reference), rules=rules)
