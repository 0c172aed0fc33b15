"""Leader election: controllers run in one replica, and soon in another one after a kill, a stop or a pause."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from fairlead.storage.contract import Event, Store, Write
from fairlead.storage.open import open_store
from tests.harness.eventually import wait_until
from tests.harness.replicas import BECAME_LEADER, LEASE, NAMESPACES, STORES, Replicas, read_log, running_replicas
from tests.harness.server_process import MANAGEMENT, Server
from tests.live.load_balancer import LoadBalancer

OBSERVATION_SECONDS = 3.0
"""A former leader that still worked would write something within this time."""


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    store: str = request.param
    return store


@pytest.fixture
def group(kind: str, tmp_path: Path) -> Iterator[Replicas]:
    with running_replicas(kind, tmp_path, 2) as group:
        yield group


def wait_for_controllers(server: Server, name: str) -> float:
    """Deletes a namespace, which needs controllers; returns the seconds until it is deleted."""
    with server.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        client.post(NAMESPACES, json=body).raise_for_status()
        client.delete(f"{NAMESPACES}/{name}").raise_for_status()
        started = time.monotonic()
        wait_until(lambda: client.get(f"{NAMESPACES}/{name}").status_code == 404)
        return time.monotonic() - started


def get_lease_holder(server: Server) -> str:
    with server.client() as client:
        identity: str = client.get(LEASE).json()["spec"]["holderIdentity"]
        return identity


def test_another_replica_leads_after_a_kill_and_after_a_clean_stop(group: Replicas) -> None:
    leader = group.leader()
    (other,) = group.others(leader)
    assert len([line for server in group.servers for line in read_log(server) if line["event"] == BECAME_LEADER]) == 1
    wait_for_controllers(other, "before")
    leader.kill()
    print(f"controllers work again after kill -9: {wait_for_controllers(other, 'killed'):.1f} s")
    assert group.leader() is other
    third_server = group.start()
    wait_for_controllers(third_server, "still")
    assert group.leader() is other
    started = time.monotonic()
    assert other.stop() == 0
    wait_until(lambda: any(line["event"] == BECAME_LEADER for line in read_log(third_server)))
    print(f"another replica leads after a clean stop, which took as long: {time.monotonic() - started:.1f} s")
    assert group.leader() is third_server
    wait_for_controllers(third_server, "after")


def test_a_paused_leader_loses_the_lease_and_does_not_take_it_back(group: Replicas) -> None:
    leader = group.leader()
    (other,) = group.others(leader)
    os.kill(leader.process.pid, signal.SIGSTOP)
    started = time.monotonic()
    wait_for_controllers(other, "stopped")
    print(f"controllers work again after SIGSTOP: {time.monotonic() - started:.1f} s")
    new_holder = get_lease_holder(other)
    os.kill(leader.process.pid, signal.SIGCONT)
    wait_until(lambda: any(line["event"].startswith("lost leadership") for line in read_log(leader)))
    wait_for_controllers(leader, "awake")
    assert get_lease_holder(leader) == get_lease_holder(other) == new_holder


def test_a_resumed_leader_without_the_lease_writes_nothing(kind: str, tmp_path: Path) -> None:
    """It is paused in the middle of its work, and meanwhile the lease gets another holder."""
    with running_replicas(kind, tmp_path, 1) as group:
        server = group.leader()
        wait_for_controllers(server, "before")
        with server.client() as client:
            client.post(NAMESPACES, json=NAMESPACE).raise_for_status()
            create_configmap(client, f"{NAMESPACES}/doomed/configmaps", "c")
        assert asyncio.run(collect_events_after_resume(group.store, server)) == []
        assert get_lease_holder(server).startswith("not-")


async def collect_events_after_resume(address: str, server: Server) -> list[Event]:
    store = await open_store(address)
    try:
        await create_configmaps(store)
        with server.client() as client:
            client.delete(f"{NAMESPACES}/doomed").raise_for_status()
        while len((await store.scan(CONFIGMAPS)).records) > OBJECT_COUNT - 20:
            continue
        server.process.send_signal(signal.SIGSTOP)
        await replace_in_record(store, LEASE_KEY, b'"leaseDurationSeconds":10', b'"leaseDurationSeconds":600')
        revision = await replace_in_record(store, LEASE_KEY, b'"holderIdentity":"', b'"holderIdentity":"not-')
        assert len((await store.scan(CONFIGMAPS)).records) > 0
        server.process.send_signal(signal.SIGCONT)
        return await read_events_after(store, revision)
    finally:
        await store.close()


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}}
CONFIGMAPS = ("", "configmaps", "doomed")
LEASE_KEY = ("coordination.k8s.io", "leases", "service-system", "fairlead-controllers")
OBJECT_COUNT = 6_000
"""So many that not all are deleted before the leader is paused, also if the test does not run for a while."""


async def create_configmaps(store: Store) -> None:
    """Copies a config map in the store, faster than through the API."""
    record = await store.read((*CONFIGMAPS, "c"))
    assert record is not None
    for start in range(0, OBJECT_COUNT, 100):
        names = [f"c{number}" for number in range(start, start + 100)]
        values = [record.value.replace(b'"name":"c"', b'"name":"%b"' % name.encode()) for name in names]
        writes = [Write((*CONFIGMAPS, name), value, 0) for name, value in zip(names, values, strict=True)]
        await store.commit(writes)


async def replace_in_record(store: Store, key: tuple[str, ...], old: bytes, new: bytes) -> int:
    record = await store.read(key)
    assert record is not None and old in record.value
    value = record.value.replace(old, new, 1)
    assert orjson.loads(value)
    return await store.commit([Write(key, value, record.revision)])


async def read_events_after(store: Store, revision: int) -> list[Event]:
    """Returns all events for a while, without the last use of keys, which controllers do not write."""
    written: list[Event] = []

    async def collect_events() -> None:
        async for batch in store.watch((), revision):
            written.extend(event for event in batch if event.key[1] != "ownedaccesskeys")

    task = asyncio.create_task(collect_events())
    await asyncio.sleep(OBSERVATION_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return written


def test_a_kubectl_watch_sees_changes_after_its_replica_was_killed(
    group: Replicas, tmp_path: Path, component: Callable[[str], Path]
) -> None:
    """Behind a load balancer. A watch of kubectl ends with its connection, so a loop starts it again."""
    kubectl = component("kubectl")
    leader = group.leader()
    (other,) = group.others(leader)
    path = f"{NAMESPACES}/default/configmaps"
    with LoadBalancer([leader.url, other.url]) as balancer, other.client() as client:
        config = tmp_path / "kubeconfig"
        config.write_text(build_kubeconfig(balancer.url, leader))
        watch = [str(kubectl), f"--kubeconfig={config}", "get", "configmaps", "--watch", "--output=name"]
        output = tmp_path / "seen"
        with output.open("w") as out:
            loop = ["sh", "-c", 'while :; do "$@"; done', "sh", *watch]
            process = subprocess.Popen(loop, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            create_configmap(client, path, "first")
            wait_until(lambda: "configmap/first" in output.read_text())
            leader.kill()
            started = time.monotonic()
            create_configmap(client, path, "second")
            wait_until(lambda: "configmap/second" in output.read_text())
            print(f"kubectl sees changes again after kill -9: {time.monotonic() - started:.2f} s")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def create_configmap(client: httpx.Client, path: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    client.post(path, json=body).raise_for_status()


def build_kubeconfig(url: str, server: Server) -> str:
    cluster = {"server": f"{url}{MANAGEMENT}", "certificate-authority": server.ca_file}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": server.key}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return orjson.dumps(config).decode()
