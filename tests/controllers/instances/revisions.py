"""Every revision of the instances in a world, with a judge who sees each at the moment when it is stored."""

import asyncio
from collections.abc import Callable, Sequence

import orjson

from fairlead.core.objects import Object
from fairlead.storage import contract
from fairlead.storage.contract import Precondition, Store
from fairlead.storage.wrapper import StoreWrapper
from tests.fake_cluster.kube import KubeApi
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess

Judge = Callable[[Object], None]


class Revisions(StoreWrapper):
    """A store that shows each new state of the objects of a plural to a judge, right after it is stored."""

    def __init__(self, inner: Store, plural: str, judge: Judge) -> None:
        super().__init__(inner)
        self._plural = plural
        self._judge = judge
        self.seen: list[Object] = []
        self.faults: list[Exception] = []

    async def commit(self, writes: Sequence[contract.Write], preconditions: Sequence[Precondition] = ()) -> int:
        revision = await self.inner.commit(writes, preconditions)
        for change in writes:
            if change.key[1] == self._plural and change.value is not None:
                self._look(orjson.loads(change.value))
        return revision

    def _look(self, obj: Object) -> None:
        self.seen.append(obj)
        try:
            self._judge(obj)
        except (AssertionError, LookupError) as fault:
            self.faults.append(fault)


def record_revisions(api: RegistryFixture, plural: str, judge: Judge) -> Revisions:
    made = Revisions(api.store.inner, plural, judge)
    api.store.inner = made
    return made


class SlowReach(FakeAccess):
    """Ways on which each answer takes a moment, so that other things happen in between."""

    def cluster_api(self, name: str, acting_as: str = "") -> KubeApi:
        return SlowApi(self, acting_as)


class SlowApi(KubeApi):
    def __init__(self, reach: FakeAccess, acting_as: str) -> None:
        super().__init__(reach.kube, acting_as=acting_as)
        self._reach = reach

    async def get(self, path: str) -> Object:
        return await self._wait("GET", path)

    async def create(self, path: str, body: Object) -> Object:
        return await self._wait("POST", path, body)

    async def apply(self, path: str, body: Object) -> Object:
        return await self._wait("PATCH", path, body)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        return await self._wait("DELETE", path, body)

    async def _wait(self, method: str, path: str, body: Object | None = None) -> Object:
        """It takes time to get there, and to get back."""
        await asyncio.sleep(0.015)
        if self._reach.down is not None:
            raise self._reach.down
        try:
            return self._ask(method, path, body)
        finally:
            await asyncio.sleep(0.015)
