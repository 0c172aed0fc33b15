"""Tests of `fairlead.controllers.instances.full_reconciles`, and of idle virtual clusters: a probe is enough."""

import asyncio

from fairlead.controllers.instances.full_reconciles import FULL_RECONCILE_SECONDS, FullReconciles
from fairlead.upstream.errors import TunnelError
from tests.controllers.instances.helm_fixture import (
    VC,
    FakeHelm,
    access,
    create_from_template,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.clock import ManualClock
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_status, create_cluster

__all__ = ["access", "helm", "server"]
KEY = ("demo", "one")


def test_a_pass_is_due_until_one_has_succeeded_and_then_after_a_while() -> None:
    clock = ManualClock()
    passes = FullReconciles(clock)
    assert passes.is_due(KEY)
    passes.begin(KEY)
    assert passes.is_due(KEY)
    passes.finish(KEY)
    assert not passes.is_due(KEY)
    clock.tick(2 * FULL_RECONCILE_SECONDS)
    assert passes.is_due(KEY)


def test_a_change_during_a_pass_makes_another_one_due() -> None:
    passes = FullReconciles(ManualClock())
    passes.mark_changed(KEY)
    passes.begin(KEY)
    passes.finish(KEY)
    assert not passes.is_due(KEY)
    passes.begin(KEY)
    passes.mark_changed(KEY)
    passes.finish(KEY)
    assert passes.is_due(KEY)


async def test_an_idle_virtual_cluster_is_only_probed(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "Ready")[0] == "True")
    await asyncio.sleep(40)
    access.kube.request_log.clear()
    access.virtual.request_log.clear()
    await asyncio.sleep(120)
    assert access.kube.request_log == []
    probes = access.virtual.request_log
    assert 5 < len(probes) < 12
    assert set(probes) == {("GET", "/version")}


async def test_a_changed_instance_and_a_failed_probe_cause_a_whole_pass(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_from_template(server)
    await wait_until_ready(server, access)
    await asyncio.sleep(40)
    access.kube.request_log.clear()
    await server.patch(VC, "one", lambda obj: obj["spec"].update(displayName="One"))
    await eventually(lambda: bool(access.kube.request_log), 5)
    await asyncio.sleep(40)
    access.kube.request_log.clear()
    access.virtual_down = TunnelError("WaitingForPod", "no pod")
    await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline") == ("False", "WaitingForPod"))
    assert access.kube.request_log
