"""Users, teams and keys in a store, and the authenticator that follows them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest

from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeyAuthenticator, Pepper
from fairlead.authn.last_used import LastUsedTracker
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.core.clock import timestamp
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.codec import entry_builder
from fairlead.registry.informer import Informer
from fairlead.registry.kind import Catalog
from fairlead.storage.contract import Key, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from tests.harness.calls import call
from tests.harness.clock import ManualClock

GROUP = "management.service.sh"
PEPPER = Pepper(bytes(range(32)))


class KeyDirectory:
    def __init__(self, store: MemoryStore, view: View, pepper: Pepper = PEPPER) -> None:
        self._store = store
        self._view = view
        self._revisions: dict[Key, int] = {}
        self.clock = ManualClock()
        self.last_used = LastUsedTracker(self.clock)
        self.users, self.teams = Informer(view, GROUP, USERS), Informer(view, GROUP, TEAMS)
        self.principals = PrincipalDirectory(self.users, self.teams)
        self.keys = Informer(view, GROUP, ACCESS_KEYS)
        self.authenticator = AccessKeyAuthenticator(
            self.keys, self.principals, pepper, self.clock, self.last_used.last_use
        )

    async def add_user(self, name: str, uid: str = "", meta: Object | None = None, **spec: Any) -> None:
        await self.put(USERS, name, {"username": name, **spec}, {"uid": uid or f"uid-of-{name}", **(meta or {})})

    async def add_team(self, name: str, uid: str = "", meta: Object | None = None, **spec: Any) -> None:
        await self.put(TEAMS, name, {"username": name, **spec}, {"uid": uid or f"uid-of-{name}", **(meta or {})})

    async def add_key(
        self, name: str, key: str, user: str = "", meta: Object | None = None, status: Object | None = None, **spec: Any
    ) -> None:
        owner = {"user": user} if user else {}
        await self.put(ACCESS_KEYS, name, {**owner, "key": PEPPER.digest(key), **spec}, meta or {}, status)

    async def put(self, plural: str, name: str, spec: Object, meta: Object, status: Object | None = None) -> None:
        created = timestamp(self.clock.now())
        obj = {
            "apiVersion": f"{GROUP}/v1",
            "kind": {USERS: "User", TEAMS: "Team", ACCESS_KEYS: "OwnedAccessKey"}[plural],
            "metadata": {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": created, **meta},
            "spec": spec,
        }
        if status is not None:
            obj["status"] = status
        await self._commit((GROUP, plural, "", name), orjson.dumps(obj))

    async def remove(self, plural: str, name: str) -> None:
        await self._commit((GROUP, plural, "", name), None)

    async def _commit(self, key: Key, value: bytes | None) -> None:
        revision = await self._store.commit([Write(key, value, self._revisions.get(key, 0))])
        self._revisions[key] = 0 if value is None else revision
        await self._view.wait_for(revision)

    def authenticate(self, *authorization: str) -> User | None:
        return self.authenticator(call(headers={"authorization": authorization} if authorization else {}))

    def accepts(self, key: str) -> bool:
        return self.use_key(key).key != ""

    def use_key(self, key: str) -> User:
        """Authenticates with the key and records its use, as the server does."""
        user = self.authenticate(f"Bearer {key}")
        assert user is not None
        self.last_used.record_use(user)
        return user

    def rejects(self, *authorization: str) -> bool:
        with pytest.raises(Unauthorized, match="invalid bearer token"):
            self.authenticate(*authorization)
        return True

    def timestamp_after(self, seconds: float) -> str:
        return timestamp(self.clock.now() + timedelta(seconds=seconds))


@asynccontextmanager
async def open_key_directory() -> AsyncIterator[KeyDirectory]:
    store = MemoryStore()
    view = View(store, entry_builder(Catalog(())))
    await view.start()
    yield KeyDirectory(store, view)
    await view.stop()
    await store.close()
