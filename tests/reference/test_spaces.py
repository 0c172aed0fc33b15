"""Spaces in a real cluster: their status while the cluster answers, while it does not, and when it is back."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.controllers.generic_tools import kstatus
from tests.live.entrances import make, until
from tests.reference.world import CLUSTER, World, condition, seconds_since

PROJECT = "status"
NAMESPACE = f"service-p-{PROJECT}"


@pytest.fixture(scope="module")
def settled(world: World) -> World:
    """A world with a project."""
    with world.server.client() as admin:
        make(admin, "projects", "Project", PROJECT, allowedClusters=[{"name": "*"}])
    return world


@contextmanager
def paused(world: World) -> Iterator[None]:
    world.plane.pause_api_server()
    try:
        yield
    finally:
        world.plane.resume_api_server()


def create(world: World, name: str, timeout: str) -> tuple[int, str]:
    wanted = ("space", "create", name, "--project", PROJECT, "--cluster", CLUSTER)
    done = world.fairlead(*wanted, "--wait", "--timeout", timeout)
    return done.returncode, done.stderr


def see(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.management().read("spaceinstance", name, "-n", NAMESPACE)
    return found


def verdict(world: World, name: str) -> tuple[Any, Any]:
    ready = condition(see(world, name), "Ready")
    return ready.get("status"), ready.get("reason")


def test_ready_comes_and_goes_with_the_api_server(settled: World, measured: Callable[[str], None]) -> None:
    assert create(settled, "before", "60s")[0] == 0
    namespace = see(settled, "before")["spec"]["clusterRef"]["namespace"]
    direct = settled.direct()
    assert "service.sh:admin" in direct.names("rolebindings", "-n", namespace)
    with paused(settled):
        began = time.monotonic()
        code, said = create(settled, "meanwhile", "3s")
        assert code == 1 and "the space meanwhile is still Pending" in said, said
        until(lambda: verdict(settled, "before")[0] != "True", 60)
        lost = seconds_since(began)
        until(lambda: verdict(settled, "before")[1] == "ClusterOffline", 60)
        assert kstatus(see(settled, "before")) == "InProgress"
    began = time.monotonic()
    settled.management()("wait", "--for=condition=Ready", "spaceinstance", "--all", "-n", NAMESPACE, "--timeout=90s")
    measured(f"not ready {lost:.0f} s after SIGSTOP, ready {seconds_since(began):.0f} s after SIGCONT")
    assert namespace in direct.names("namespaces")
    assert see(settled, "meanwhile")["spec"]["clusterRef"]["namespace"] in direct.names("namespaces")
