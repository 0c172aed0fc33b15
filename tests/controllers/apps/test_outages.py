"""A cluster that does not answer for a minute, beginning with any of the requests of the server or of Helm: what was
requested is there afterwards, and soon."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.controllers.apps.app_fixture import APP, SETTINGS, install_app, wait_for_reason
from tests.controllers.apps.outage_fixture import (
    OUTAGE_SECONDS,
    PREFIX,
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
from tests.fake_cluster.workloads import APPS, pods_in
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["access", "helm"]

RECOVERY_SECONDS = 300.0
"""After the outage: the longest backoff and a retry of Helm."""
MAX_REQUESTS = 200


async def try_each_request(
    access: VanishingAccess, act: Callable[[int], Awaitable[object]], is_done: Callable[[], bool]
) -> int:
    """Repeats an action with an outage that begins with its first request, with its second, and so on. Returns how many
    requests it has."""
    for number in range(MAX_REQUESTS):
        access.vanish_after = number
        await act(number)
        await eventually(is_done, OUTAGE_SECONDS + RECOVERY_SECONDS)
        if not access.has_vanished:
            access.vanish_after = None
            return number
        await asyncio.sleep(OUTAGE_SECONDS)
    raise AssertionError(f"it is not done after {MAX_REQUESTS} requests")


async def test_an_app_is_upgraded_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    path = SETTINGS.format("demo-dev", "one")

    async def upgrade(number: int) -> None:
        await api.patch(APP, "one", lambda each: each["spec"].update(parameters=f"size: {number}\n"))

    def is_upgraded() -> bool:
        status = (api.get(APP, "one") or {})["status"]
        is_recorded = status["phase"] == "Ready" and status["lastAttempt"]["hash"] == status["deployHash"]
        is_observed = status["observedGeneration"] == (api.get(APP, "one") or {})["metadata"]["generation"]
        return bool(is_recorded and is_observed and status["lastAttempt"]["outcome"] == "Succeeded")

    async with run_server(api, access, helm):
        await prepare(api)
        await install_app(api, parameters="size: 100\n")
        await wait_for_reason(api, "Deployed")
        count = await try_each_request(access, upgrade, is_upgraded)
        assert f"size: {count}\n" in access.kube.objects[path]["data"]["values"]
    assert count > 5
    assert helm.left_pending > 1


async def delete_virtual_cluster(api: RegistryFixture) -> None:
    """And the Secret of it, as the garbage collector does."""
    await api.delete(VC, "one")
    await eventually(lambda: api.get(VC, "one") is None, OUTAGE_SECONDS + RECOVERY_SECONDS)
    await api.delete("Secret", "vc-one-kubeconfig")


async def test_a_virtual_cluster_is_created_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def create_anew(number: int) -> None:
        access.vanish_after = None
        if number:
            await delete_virtual_cluster(api)
        access.vanish_after = number
        await create_virtual_cluster(api)

    async with run_server(api, access, helm):
        await prepare(api)
        assert await try_each_request(access, create_anew, lambda: phase_of(api, VC) == "Ready") > 10
    assert helm.left_pending > 1


async def test_a_virtual_cluster_is_deleted_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def delete_one(number: int) -> None:
        access.vanish_after = None
        await create_virtual_cluster(api)
        await eventually(lambda: phase_of(api, VC) == "Ready")
        access.vanish_after = number
        await delete_virtual_cluster(api)

    async with run_server(api, access, helm):
        await prepare(api)
        assert await try_each_request(access, delete_one, lambda: api.get(VC, "one") is None) > 3
    assert not [path for path in access.kube.objects if "demo-v-one" in path]


async def test_a_virtual_cluster_sleeps_and_wakes_up_nevertheless(
    api: RegistryFixture, access: VanishingAccess, helm: VanishingHelm
) -> None:
    async def put_to_sleep(number: int) -> None:
        await annotate(api, {f"{PREFIX}force": "true"})
        await eventually(lambda: phase_of(api, VC) == "Sleeping", OUTAGE_SECONDS + RECOVERY_SECONDS)
        assert pods_in(access.kube, "demo-v-one") == []

    async def do_both(number: int) -> None:
        await put_to_sleep(number)
        await wake(api)

    def is_awake() -> bool:
        return phase_of(api, VC) == "Ready" and pods_in(access.kube, "demo-v-one") == ["one-0"]

    async with run_server(api, access, helm):
        await prepare(api)
        await create_virtual_cluster(api)
        await eventually(lambda: phase_of(api, VC) == "Ready")
        path = f"{APPS}/namespaces/demo-v-one/statefulsets/one"
        count = await try_each_request(access, do_both, is_awake)
        assert count > 20
        assert not [each for each in access.kube.objects[path]["metadata"]["annotations"] if each.startswith(PREFIX)]
