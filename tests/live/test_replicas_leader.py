"""Controllers work in one of the replicas, and soon in another one when that is gone, however it has gone."""

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
from tests.harness.replicas import LEADING, LEASE, NAMESPACES, STORES, Replicas, eventually, logged, replicas
from tests.harness.server_process import MANAGEMENT, Server
from tests.live.load_balancer import Balancer

QUIET = 3.0
"""Seconds in which a replica that has lost the lead would have done something by now."""


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    store: str = request.param
    return store


@pytest.fixture
def group(kind: str, tmp_path: Path) -> Iterator[Replicas]:
    with replicas(kind, tmp_path, 2) as made:
        yield made


def work_is_done(server: Server, name: str) -> float:
    """Seconds until a namespace that is deleted goes, which it does only where controllers work."""
    with server.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        client.post(NAMESPACES, json=body).raise_for_status()
        client.delete(f"{NAMESPACES}/{name}").raise_for_status()
        begun = time.monotonic()
        eventually(lambda: client.get(f"{NAMESPACES}/{name}").status_code == 404)
        return time.monotonic() - begun


def holder(server: Server) -> str:
    with server.client() as client:
        found: str = client.get(LEASE).json()["spec"]["holderIdentity"]
        return found


def test_the_lead_passes_on_when_its_replica_is_killed_and_when_it_stops_in_order(group: Replicas) -> None:
    leader = group.leader()
    (other,) = group.others(leader)
    assert len([line for server in group.servers for line in logged(server) if line["event"] == LEADING]) == 1
    work_is_done(other, "before")
    leader.kill()
    print(f"controllers work again after kill -9: {work_is_done(other, 'killed'):.1f} s")
    assert group.leader() is other
    third = group.start()
    work_is_done(third, "still")
    assert group.leader() is other
    begun = time.monotonic()
    assert other.stop() == 0
    eventually(lambda: any(line["event"] == LEADING for line in logged(third)))
    print(f"another replica leads after a clean stop, which took as long: {time.monotonic() - begun:.1f} s")
    assert group.leader() is third
    work_is_done(third, "after")


def test_a_leader_that_stood_still_and_wakes_up_finds_another_one_at_work(group: Replicas) -> None:
    leader = group.leader()
    (other,) = group.others(leader)
    os.kill(leader.process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    work_is_done(other, "stopped")
    print(f"controllers work again after SIGSTOP: {time.monotonic() - begun:.1f} s")
    taken = holder(other)
    os.kill(leader.process.pid, signal.SIGCONT)
    eventually(lambda: any(line["event"].startswith("lost leadership") for line in logged(leader)))
    work_is_done(leader, "awake")
    assert holder(leader) == holder(other) == taken


def test_a_leader_that_wakes_up_writes_nothing_once_its_lease_has_gone(kind: str, tmp_path: Path) -> None:
    """It is stopped in the middle of its work, and then the lease goes to somebody who will not do it."""
    with replicas(kind, tmp_path, 1) as group:
        server = group.leader()
        work_is_done(server, "before")
        with server.client() as client:
            client.post(NAMESPACES, json=DOOMED).raise_for_status()
            _post(client, f"{NAMESPACES}/doomed/configmaps", "c")
        assert asyncio.run(_written_after_waking(group.store, server)) == []
        assert holder(server).startswith("not-")


async def _written_after_waking(address: str, server: Server) -> list[Event]:
    store = await open_store(address)
    try:
        await _fill(store)
        with server.client() as client:
            client.delete(f"{NAMESPACES}/doomed").raise_for_status()
        while len((await store.scan(CONFIGMAPS)).records) > MANY - 20:
            continue
        server.process.send_signal(signal.SIGSTOP)
        await _rewrite(store, LEASE_KEY, b'"leaseDurationSeconds":10', b'"leaseDurationSeconds":600')
        revision = await _rewrite(store, LEASE_KEY, b'"holderIdentity":"', b'"holderIdentity":"not-')
        assert len((await store.scan(CONFIGMAPS)).records) > 0
        server.process.send_signal(signal.SIGCONT)
        return await _events_after(store, revision)
    finally:
        await store.close()


DOOMED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}}
CONFIGMAPS = ("", "configmaps", "doomed")
LEASE_KEY = ("coordination.k8s.io", "leases", "service-system", "fairlead-controllers")
MANY = 2_000


async def _fill(store: Store) -> None:
    """More of the same, faster than through the API."""
    record = await store.read((*CONFIGMAPS, "c"))
    assert record is not None
    for start in range(0, MANY, 100):
        names = [f"c{number}" for number in range(start, start + 100)]
        values = [record.value.replace(b'"name":"c"', b'"name":"%b"' % name.encode()) for name in names]
        made = [Write((*CONFIGMAPS, name), value, 0) for name, value in zip(names, values, strict=True)]
        await store.commit(made)


async def _rewrite(store: Store, key: tuple[str, ...], old: bytes, new: bytes) -> int:
    record = await store.read(key)
    assert record is not None and old in record.value
    value = record.value.replace(old, new, 1)
    assert orjson.loads(value)
    return await store.commit([Write(key, value, record.revision)])


async def _events_after(store: Store, revision: int) -> list[Event]:
    """Whatever is written in a while. When keys were last used is no controller's matter."""
    written: list[Event] = []

    async def listen() -> None:
        async for batch in store.watch((), revision):
            written.extend(event for event in batch if event.key[1] != "ownedaccesskeys")

    listening = asyncio.create_task(listen())
    await asyncio.sleep(QUIET)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    return written


def test_kubectl_sees_the_next_change_soon_after_its_replica_was_killed(
    group: Replicas, tmp_path: Path, component: Callable[[str], Path]
) -> None:
    """Behind a balancer, as replicas are. kubectl's own watch ends with its connection, so it is begun again."""
    kubectl = component("kubectl")
    leader = group.leader()
    (other,) = group.others(leader)
    place = f"{NAMESPACES}/default/configmaps"
    with Balancer([leader.url, other.url]) as balancer, other.client() as client:
        config = tmp_path / "kubeconfig"
        config.write_text(_kubeconfig(balancer.url, leader))
        watch = [str(kubectl), f"--kubeconfig={config}", "get", "configmaps", "--watch", "--output=name"]
        seen = tmp_path / "seen"
        with seen.open("w") as out:
            again = ["sh", "-c", 'while :; do "$@"; done', "sh", *watch]
            process = subprocess.Popen(again, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            _post(client, place, "first")
            eventually(lambda: "configmap/first" in seen.read_text())
            leader.kill()
            begun = time.monotonic()
            _post(client, place, "second")
            eventually(lambda: "configmap/second" in seen.read_text())
            print(f"kubectl sees changes again after kill -9: {time.monotonic() - begun:.2f} s")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _post(client: httpx.Client, place: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    client.post(place, json=body).raise_for_status()


def _kubeconfig(url: str, server: Server) -> str:
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
