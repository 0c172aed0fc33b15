"""A virtual cluster that is created, changed, put to sleep, woken up and deleted in any order, while its cluster does
not answer, others uninstall its release, and the server starts anew: in the end it is what was requested last."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fairlead.core.objects import Object, get_path
from tests.controllers.apps.app_fixture import SETTINGS
from tests.controllers.apps.outage_fixture import (
    OUTAGE_SECONDS,
    VanishingAccess,
    VanishingHelm,
    access,
    annotate,
    create_virtual_cluster,
    helm,
    phase_of,
    prepare,
    run_server,
    wake,
)
from tests.controllers.instances.helm_fixture import VC
from tests.fake_cluster.workloads import pods_in
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["access", "helm"]

NAMESPACE = "demo-v-one"
STEPS = 14
FORCE = "sleepmode.service.sh/force"
SETTLE_SECONDS = 1500.0
"""Longer than the deadline of a run of Helm of a server that has ended, and the longest backoff."""


class Lifecycle:
    """Its actions, and what they have asked for."""

    def __init__(self, api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm, seed: int) -> None:
        self.api = api
        self.access = access
        self.helm = helm
        self.choice = random.Random(seed)
        self.size = 0
        self.server = AsyncExitStack()

    async def start_server(self) -> None:
        await self.server.aclose()
        await self.server.enter_async_context(run_server(self.api, self.access, self.helm))

    def find(self) -> Object | None:
        return self.api.get(VC, "one")

    @property
    def is_there(self) -> bool:
        found = self.find()
        return found is not None and "deletionTimestamp" not in found["metadata"]

    async def create_or_change(self) -> None:
        if self.find() is None:
            if self.api.get("Secret", "vc-one-kubeconfig") is not None:  # what the garbage collector would do
                await self.api.delete("Secret", "vc-one-kubeconfig")
            self.size = 0
            await create_virtual_cluster(self.api)
        elif self.is_there:
            self.size += 1
            await self.api.patch(VC, "one", lambda each: each["spec"].update(parameters=f"size: '{self.size}'\n"))

    async def delete(self) -> None:
        if self.is_there:
            await self.api.delete(VC, "one")

    async def sleep(self) -> None:
        if self.is_there:
            await annotate(self.api, {FORCE: "true"})

    async def wake(self) -> None:
        if self.is_there:
            await annotate(self.api, {FORCE: None})
            await wake(self.api)

    async def vanish(self) -> None:
        self.access.vanish_after = self.choice.randrange(12)

    async def uninstall(self) -> None:
        self.helm.uninstall_outside("one", NAMESPACE)

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        often = [self.create_or_change, self.sleep, self.wake, self.vanish]
        return [*often, *often, self.delete, self.uninstall, self.start_server]


@pytest.mark.parametrize("seed", range(4))
async def test_it_is_what_was_requested_last(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm, seed: int
) -> None:
    life = Lifecycle(api, access, helm, seed)
    async with life.server:
        await life.start_server()
        await prepare(api)
        for _ in range(STEPS):
            await life.choice.choice(life.actions())()
            await asyncio.sleep(life.choice.choice((0, 0.1, 1, 10, OUTAGE_SECONDS)))
        access.vanish_after = None
        await eventually(lambda: is_settled(api), SETTLE_SECONDS)
        await asyncio.sleep(3 * OUTAGE_SECONDS)
        await eventually(lambda: is_settled(api), SETTLE_SECONDS)
    left = [path for path in access.kube.objects if NAMESPACE in path]
    if phase_of(api, VC) == "Ready":
        assert pods_in(access.kube, NAMESPACE) == ["one-0"]
        assert access.kube.objects[SETTINGS.format(NAMESPACE, "one")]["data"]["values"] == f"size: {life.size}\n"
        assert not any("resourcequotas" in each for each in left)
    elif phase_of(api, VC) == "Sleeping":
        assert pods_in(access.kube, NAMESPACE) == []
    else:
        assert (api.get(VC, "one"), left) == (None, [])


def is_settled(api: RegistryFixture) -> bool:
    found = api.get(VC, "one")
    if found is None:
        return True
    is_forced = (get_path(found, "metadata.annotations") or {}).get(FORCE) == "true"
    is_deleting = "deletionTimestamp" in found["metadata"]
    return not is_deleting and phase_of(api, VC) == ("Sleeping" if is_forced else "Ready")
