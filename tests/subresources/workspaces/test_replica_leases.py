"""ReplicaLeases: which replicas count, by the clock of the one that looks."""

from datetime import timedelta
from typing import Any

import pytest

from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.write_options import WriteOptions
from fairlead.subresources.workspaces.replica_leases import (
    ADDRESS_ANNOTATION,
    FORGET_SECONDS,
    LEASE_SECONDS,
    PREFIX,
    Replica,
    ReplicaLeases,
)
from tests.authn.test_replica_authority import ManualClock
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import RegistryFixture, open_registry

LEASES = ("coordination.k8s.io", "leases")


def new_leases(api: RegistryFixture, identity: str, address: str, clock: ManualClock) -> ReplicaLeases:
    leases = ReplicaLeases(api.registry, SYSTEM, identity, address)
    leases._clock = clock
    return leases


async def write_lease(api: RegistryFixture, name: str, address: str, renewed: str) -> None:
    meta: dict[str, Any] = {"name": name, "annotations": {ADDRESS_ANNOTATION: address}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {"renewTime": renewed}}
    await api.registry.resource(*LEASES).create(body, SYSTEM, WriteOptions(user=CONTROLLER_USER))


async def test_replicas_see_each_other_until_a_lease_expires_or_is_released() -> None:
    async with open_registry() as api:
        clock = ManualClock()
        one = new_leases(api, "one", "10.0.0.1:8444", clock)
        other = new_leases(api, "other", "[fd00::2]:8444", clock)
        await one._renew()
        await other._renew()
        assert one.others() == [Replica("other", "fd00::2", 8444)]
        assert other.others() == [Replica("one", "10.0.0.1", 8444)]
        clock.time += timedelta(seconds=LEASE_SECONDS - 1)
        assert one.others() != []
        clock.time += timedelta(seconds=1)
        assert one.others() == []
        await other._renew()
        assert one.others() == [Replica("other", "fd00::2", 8444)]
        await other.release()
        assert one.others() == []


async def test_former_processes_and_workers_of_this_replica_are_not_others() -> None:
    async with open_registry() as api:
        clock = ManualClock()
        former = new_leases(api, "former", "10.0.0.1:8444", clock)
        await former._renew()
        assert new_leases(api, "new", "10.0.0.1:8444", clock).others() == []


async def test_a_replica_whose_clock_is_wrong_is_seen_with_its_next_renewal() -> None:
    async with open_registry() as api:
        clock, behind = ManualClock(), ManualClock()
        behind.time -= timedelta(hours=1)
        one, other = new_leases(api, "one", "a:1", clock), new_leases(api, "other", "b:1", behind)
        await other._renew()
        assert one.others() == []
        behind.time += timedelta(seconds=5)
        await other._renew()
        assert one.others() == [Replica("other", "b", 1)]


@pytest.mark.parametrize("address", ["", "b", "b:0", "b:x", "b:99999", "u@b:1", "b:1/path", "http://b:1"])
async def test_a_lease_with_an_unusable_address_is_ignored(address: str) -> None:
    async with open_registry() as api:
        clock = ManualClock()
        await write_lease(api, PREFIX + "other", address, clock.time.isoformat())
        assert new_leases(api, "one", "a:1", clock).others() == []


async def test_the_lease_of_a_killed_replica_is_deleted_after_a_while_and_no_other() -> None:
    async with open_registry() as api:
        clock = ManualClock()
        one, killed = new_leases(api, "one", "a:1", clock), new_leases(api, "killed", "b:1", clock)
        await killed._renew()
        await write_lease(api, "runner-local", "", clock.time.isoformat())
        await one._delete_abandoned()
        clock.time += timedelta(seconds=FORGET_SECONDS + 1)
        await one._renew()
        await one._delete_abandoned()
        names = [entry.key[3] for entry in api.registry.view.entries(*LEASES, SYSTEM)]
        assert sorted(names) == ["fairlead-replica-one", "runner-local"]
