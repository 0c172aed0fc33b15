"""The login endpoints without HTTP: users, access keys, passwords, and the stages before the handlers.

Password hashes are cheap and counted. Only tests advance the clock.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from fairlead.admission import AdmissionChain
from fairlead.admission.access_keys import KeyIssuer, issue_access_key
from fairlead.admission.namespaces import require_active_namespace
from fairlead.authn.access_keys import ACCESS_KEYS, TEAMS, USERS, AccessKeyAuthenticator, Pepper, generate_key
from fairlead.authn.credentials import CookieAuthenticator
from fairlead.authn.principals import AdminUserCheck, PrincipalDirectory
from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.authz.authorizer import administrators, first_decision
from fairlead.authz.scope.subset import is_superset
from fairlead.core.call import Call, Decision, Reply, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import TEAM, USER
from fairlead.kinds.clusters.config import CONFIG, CONFIG_NAME
from fairlead.kinds.core.config_data import SECRET
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.namespace import NAMESPACE
from fairlead.registry.codec import decode, entry_builder
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.kind import Catalog
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from fairlead.server.flow.attempts import AttemptThrottle
from fairlead.server.pipeline import Pipeline
from fairlead.signin.key_login import KeyLoginHandlers
from fairlead.signin.login import LoginHandlers
from fairlead.signin.login_sessions import LoginSessions
from fairlead.signin.passwords import Cost, PasswordHasher, PasswordStore
from fairlead.signin.profile import ProfileHandler
from fairlead.storage.contract import Store
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from tests.harness.calls import call
from tests.harness.clock import ManualClock

CHEAP_COST = Cost(memory=8, passes=1)
PASSWORD = "correct horse battery staple"
TTL = 3600
CLIENT = "192.0.2.1:50000"


class CountingHasher(PasswordHasher):
    """Counts the hashes that were computed."""

    hashes = 0

    async def _run_hash(self, work: Any) -> Any:
        self.hashes += 1
        return await super()._run_hash(work)


class LoginFixture:
    """The handlers of `/auth` and `users/<name>/profile`, and requests to them."""

    def __init__(self, registry: Registry, clock: ManualClock, pepper: Pepper, store: Store) -> None:
        self.registry = registry
        self.store = store
        self.pepper = pepper
        self.clock = clock
        self.hasher = CountingHasher(CHEAP_COST)
        self.logins = LoginSessions(registry, GROUP, lambda: TTL)
        self.passwords = PasswordStore(registry, GROUP, self.hasher, self.logins)
        self.throttle = AttemptThrottle(clock)
        self.handlers = LoginHandlers(self.passwords, self.logins, self.throttle)
        self.grants: set[tuple[str, str]] = set()
        sign_on = SignOnPolicy(registry.view, GROUP)
        is_admin_user = AdminUserCheck(GROUP, registry.view, sign_on)
        self.profiles = ProfileHandler(registry, GROUP, self.passwords, self.throttle, self.decide, is_admin_user)
        users, teams = Informer(registry.view, GROUP, USERS), Informer(registry.view, GROUP, TEAMS)
        principals = PrincipalDirectory(users, teams, sign_on=sign_on)
        keys = Informer(registry.view, GROUP, ACCESS_KEYS)
        self.keys = AccessKeyAuthenticator(keys, principals, pepper, clock, lambda key: None)
        self.cookies = CookieAuthenticator(self.keys)
        self.key_login = KeyLoginHandlers(self.keys, self.logins, self.passwords, self.throttle)

    def decide(self, user: User, target: RequestInfo) -> Decision:
        """Allows everything to administrators, and impersonation to users with a grant."""
        granted = target.verb == "impersonate" and target.group == "" and (user.name, target.name) in self.grants
        return Decision(True) if granted else first_decision((administrators,), user, target)

    async def add_user(self, name: str, password: str | None = PASSWORD, **spec: Any) -> Object:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "User", "metadata": {"name": name}, "spec": spec}
        users = self.registry.resource(GROUP, USERS)
        await users.create(body, "", WriteOptions(CONTROLLER_USER, "tests"))
        if password is not None:
            await self.passwords.set_password(name, password, CONTROLLER_USER)
        self.hasher.hashes = 0
        return decode(await users.get("", name))

    async def add_key(self, user: str, **spec: Any) -> str:
        """Creates a key for a user and returns its value."""
        body = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "key-"}}
        key = {**body, "spec": {"user": user, **spec}}
        created = await self.registry.resource(GROUP, ACCESS_KEYS).create(
            key, "", WriteOptions(CONTROLLER_USER, "tests")
        )
        value: str = orjson.loads(created)["spec"]["key"]
        return value

    async def add_connector(self, id: str, rules: Sequence[Object] = ()) -> None:
        """Configures a provider for single sign-on, with group mappings."""
        oidc = {"issuerURL": f"https://{id}.example.com", "clientId": "fairlead"}
        raw = orjson.dumps({"auth": {"connectors": [{"id": id, "oidc": oidc}], "groupMappings": list(rules)}}).decode()
        body = {"apiVersion": f"{GROUP}/v1", "kind": CONFIG.name, "metadata": {"name": CONFIG_NAME}}
        await self.registry.resource(GROUP, CONFIG.plural).create(
            {**body, "spec": {"raw": raw}}, "", WriteOptions(CONTROLLER_USER, "tests")
        )

    def key_names(self) -> list[str]:
        return [entry.key[3] for entry in self.registry.view.entries(GROUP, ACCESS_KEYS)]

    def stored_bytes(self) -> bytes:
        """Returns the bodies of all stored objects."""
        resources = ((GROUP, USERS), (GROUP, ACCESS_KEYS), ("", "secrets"))
        entries = (entry for resource in resources for entry in self.registry.view.entries(*resource))
        return b"".join(entry.full_body or entry.body for entry in entries)

    async def sign_in(
        self, username: Any = "alice", password: Any = PASSWORD, query: str = "", client: str = CLIENT, **headers: str
    ) -> Reply:
        body = orjson.dumps({"username": username, "password": password})
        all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.post("/auth/password/login", body, query, client, all_headers)

    async def post(
        self,
        path: str,
        body: bytes = b"",
        query: str = "",
        client: str = CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        request = call(path, query, method="POST", headers=sent, body=body)
        request.client = client
        return await self.handle(request, RequestInfo("post", path))

    async def handle(self, request: Call, target: RequestInfo) -> Reply:
        request.target = target

        def authenticate(call: Call) -> None:
            if target.path == "/auth/logout":
                call.user = self.keys(call) or self.cookies(call)

        public = {**self.handlers.public_endpoints(), **self.key_login.public_endpoints()}
        endpoints = {**self.handlers.endpoints(), **public}
        handler = endpoints[target.verb, target.path]
        return await Pipeline((authenticate,), handler)(request)


@asynccontextmanager
async def open_login() -> AsyncIterator[LoginFixture]:
    clock, store, pepper = ManualClock(), MemoryStore(), Pepper(bytes(range(32)))
    catalog = Catalog((USER, TEAM, OWNED_ACCESS_KEY, SECRET, NAMESPACE, EVENT, CONFIG))
    view = View(store, entry_builder(catalog))
    await view.start()
    chain = AdmissionChain()
    registry = Registry(catalog, store, view, chain, clock)
    chain.bind(
        registry, (require_active_namespace, issue_access_key(KeyIssuer(pepper, generate_key, is_superset), GROUP))
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "service-system"}}
    await registry.resource("", "namespaces").create(namespace, "", WriteOptions(CONTROLLER_USER, "tests"))
    try:
        yield LoginFixture(registry, clock, pepper, store)
    finally:
        await view.stop()
        await store.close()


def parse_body(reply: Reply) -> Object:
    value: Object = orjson.loads(reply.body)
    return value


def header(reply: Reply, name: str) -> str:
    return next((value for key, value in reply.headers if key == name), "")
