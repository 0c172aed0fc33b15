"""A store that checks every revision of an object when it is stored, and a slow connection to the cluster."""

import asyncio
from collections.abc import Callable, Sequence

import orjson

from fairlead.core.objects import Object
from fairlead.storage import contract
from fairlead.storage.contract import Precondition, Store
from fairlead.storage.wrapper import StoreWrapper
from tests.fake_cluster.kube import InMemoryClusterApi
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess

Check = Callable[[Object], None]


class RevisionRecorder(StoreWrapper):
    """A store that calls `check` with each new revision of the objects of a plural, right after it is stored."""

    def __init__(self, inner: Store, plural: str, check: Check) -> None:
        super().__init__(inner)
        self._plural = plural
        self._check = check
        self.revisions: list[Object] = []
        self.errors: list[Exception] = []

    async def commit(self, writes: Sequence[contract.Write], preconditions: Sequence[Precondition] = ()) -> int:
        revision = await self.inner.commit(writes, preconditions)
        for change in writes:
            if change.key[1] == self._plural and change.value is not None:
                self._check_revision(orjson.loads(change.value))
        return revision

    def _check_revision(self, obj: Object) -> None:
        self.revisions.append(obj)
        try:
            self._check(obj)
        except (AssertionError, LookupError) as error:
            self.errors.append(error)


def record_revisions(api: RegistryFixture, plural: str, check: Check) -> RevisionRecorder:
    recorder = RevisionRecorder(api.store.inner, plural, check)
    api.store.inner = recorder
    return recorder


class SlowAccess(FakeAccess):
    """Access to a cluster whose responses are delayed, so that other things happen in between."""

    def cluster_api(self, name: str, acting_as: str = "") -> InMemoryClusterApi:
        return SlowApi(self, acting_as)


class SlowApi(InMemoryClusterApi):
    def __init__(self, access: FakeAccess, acting_as: str) -> None:
        super().__init__(access.kube, impersonated_user=acting_as)
        self._access = access

    async def get(self, path: str) -> Object:
        return await self._send_slowly("GET", path)

    async def create(self, path: str, body: Object) -> Object:
        return await self._send_slowly("POST", path, body)

    async def apply(self, path: str, body: Object) -> Object:
        return await self._send_slowly("PATCH", path, body)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        return await self._send_slowly("DELETE", path, body)

    async def _send_slowly(self, method: str, path: str, body: Object | None = None) -> Object:
        """Delays the request and the response."""
        await asyncio.sleep(0.015)
        if self._access.down is not None:
            raise self._access.down
        try:
            return self._send(method, path, body)
        finally:
            await asyncio.sleep(0.015)
