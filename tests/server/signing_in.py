"""A server to sign in to, without its web: users, their access keys and passwords, and the stages before the handlers.

Hashes cost next to nothing here and are counted. The clock stands still until a test turns it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from fairlead.admission import Chain
from fairlead.admission.access_keys import Mint, minting
from fairlead.admission.namespaces import living_namespace
from fairlead.authn.access_keys import ACCESS_KEYS, TEAMS, USERS, AccessKeys, Pepper, new_key
from fairlead.authn.credentials import CookieKeys
from fairlead.authn.login_sessions import LoginKeys
from fairlead.authn.login_throttle import Throttle
from fairlead.authn.password_hash import Cost, Passwords
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.principals import People
from fairlead.authz import Decision, administrators, authorize
from fairlead.authz.scope.subset import covers
from fairlead.core.call import Call, Reply, Target
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER, User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import TEAM, USER
from fairlead.kinds.core.config_data import SECRET
from fairlead.kinds.core.namespace import NAMESPACE
from fairlead.registry.catalog import Catalog
from fairlead.registry.codec import decode, finisher
from fairlead.registry.informer import Following
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Writing
from fairlead.server.api.errors import failures
from fairlead.server.auth.login import Login
from fairlead.server.http.pipeline import Proceed, pipeline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.profile import Profiles
from tests.authn.calls import call

CHEAP = Cost(memory=8, passes=1)
PASSWORD = "correct horse battery staple"
TTL = 3600
CLIENT = "192.0.2.1:50000"


class Hands:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Counted(Passwords):
    """Keeps count of how many hashes were reckoned."""

    reckoned = 0

    async def _reckon(self, work: Any) -> Any:
        self.reckoned += 1
        return await super()._reckon(work)


class Door:
    """What stands behind `/auth` and `users/<name>/profile`, and those who come to it."""

    def __init__(self, registry: Registry, clock: Hands, pepper: Pepper) -> None:
        self.registry = registry
        self.clock = clock
        self.hashing = Counted(CHEAP)
        self.logins = LoginKeys(registry, GROUP, lambda: TTL)
        self.passwords = PasswordStore(registry, GROUP, self.hashing, self.logins)
        self.throttle = Throttle(clock)
        self.login = Login(self.passwords, self.logins, self.throttle)
        self.grants: set[tuple[str, str]] = set()
        self.profiles = Profiles(registry, GROUP, self.passwords, self.throttle, self.decide)
        people = People(Following(registry.view, GROUP, USERS), Following(registry.view, GROUP, TEAMS))
        following = Following(registry.view, GROUP, ACCESS_KEYS)
        self.keys = AccessKeys(following, people, pepper, clock, lambda key: None)
        self.cookies = CookieKeys(self.keys)

    def decide(self, user: User, target: Target) -> Decision:
        """Administrators may all, others impersonate whom they were granted."""
        granted = target.verb == "impersonate" and target.group == "" and (user.name, target.name) in self.grants
        return Decision(True) if granted else authorize((administrators,), user, target)

    async def add_user(self, name: str, password: str | None = PASSWORD, **spec: Any) -> Object:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "User", "metadata": {"name": name}, "spec": spec}
        users = self.registry.resource(GROUP, USERS)
        await users.create(body, "", Writing(CONTROLLER, "tests"))
        if password is not None:
            await self.passwords.set(name, password, CONTROLLER)
        self.hashing.reckoned = 0
        return decode(await users.get("", name))

    async def add_key(self, user: str, **spec: Any) -> str:
        """A key that somebody has made for a user; returns its value."""
        body = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "key-"}}
        made = {**body, "spec": {"user": user, **spec}}
        created = await self.registry.resource(GROUP, ACCESS_KEYS).create(made, "", Writing(CONTROLLER, "tests"))
        value: str = orjson.loads(created)["spec"]["key"]
        return value

    def key_names(self) -> list[str]:
        return [entry.key[3] for entry in self.registry.view.entries(GROUP, ACCESS_KEYS)]

    def stored(self) -> bytes:
        """Everything that the store holds, one after the other."""
        resources = ((GROUP, USERS), (GROUP, ACCESS_KEYS), ("", "secrets"))
        entries = (entry for resource in resources for entry in self.registry.view.entries(*resource))
        return b"".join(entry.whole or entry.body for entry in entries)

    async def sign_in(
        self, username: Any = "alice", password: Any = PASSWORD, query: str = "", client: str = CLIENT, **headers: str
    ) -> Reply:
        body = orjson.dumps({"username": username, "password": password})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.post("/auth/password/login", body, query, client, named)

    async def post(
        self,
        path: str,
        body: bytes = b"",
        query: str = "",
        client: str = CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        made = call(path, query, method="POST", headers=sent, body=body)
        made.client = client
        return await self.handle(made, Target("post", path))

    async def handle(self, made: Call, target: Target) -> Reply:
        made.target = target

        async def identified(call: Call, proceed: Proceed) -> Reply:
            if target.path == "/auth/logout":
                call.user = self.keys(call) or self.cookies(call)
            return await proceed(call)

        handler = self.login.endpoints()[target.verb, target.path]
        return await pipeline((failures, identified), handler)(made)


@asynccontextmanager
async def new_door() -> AsyncIterator[Door]:
    clock, store, pepper = Hands(), MemoryStore(), Pepper(bytes(range(32)))
    catalog = Catalog((USER, TEAM, OWNED_ACCESS_KEY, SECRET, NAMESPACE))
    view = View(store, finisher(catalog))
    await view.start()
    chain = Chain((living_namespace, minting(Mint(pepper, new_key, covers), GROUP)))
    registry = Registry(catalog, store, view, chain, clock)
    chain.look_around_in(registry)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "service-system"}}
    await registry.resource("", "namespaces").create(namespace, "", Writing(CONTROLLER, "tests"))
    try:
        yield Door(registry, clock, pepper)
    finally:
        await view.stop()
        await store.close()


def told(reply: Reply) -> Object:
    value: Object = orjson.loads(reply.body)
    return value


def header(reply: Reply, name: str) -> str:
    return next((value for key, value in reply.headers if key == name), "")
