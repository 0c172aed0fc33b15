"""A rolling upgrade of two replicas under load: nothing fails that a client would not retry, and no event is lost."""

from pathlib import Path

import pytest

from tests.harness.eventually import wait_until
from tests.harness.replicas import STORES, running_replicas
from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.upgrade.clients import Figures, RandomBalancer, running_load
from tests.upgrade.next_release import NEW_ANNOTATION

NEXT = "tests.upgrade.next_release"
OBJECTS = 2_000
"""Objects that the migration changes while clients use the other replica."""
REQUESTS_BETWEEN = 300
"""Requests before, between and after the replacements."""


def fill(server: Server) -> None:
    with server.client() as client:
        for number in range(OBJECTS):
            client.post(CONFIGMAPS, json=configmap(f"old-{number:04}")).raise_for_status()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", STORES)
def test_replicas_are_replaced_by_the_next_release_under_load(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = Figures()

    def wait_for_requests() -> None:
        target = figures.total() + REQUESTS_BETWEEN
        wait_until(lambda: figures.total() >= target or figures.failures)

    with running_replicas(store, tmp_path, 2) as group:
        first, second = group.servers
        fill(first)
        with RandomBalancer([first.url, second.url]) as balancer, running_load(first, balancer.url, figures):
            wait_for_requests()
            for old in (first, second):
                assert old.stop() == 0
                new = group.start(NEXT)
                balancer.replace(old, new)
                wait_for_requests()
        with group.servers[-1].client() as client:
            items = client.get(CONFIGMAPS).json()["items"]
    with capsys.disabled():
        print(f"\n{store}: {figures.describe()}")
    assert figures.failures == []
    old_objects = [item for item in items if item["metadata"]["name"].startswith("old-")]
    assert len(old_objects) == OBJECTS
    assert all(NEW_ANNOTATION in item["metadata"]["annotations"] for item in old_objects)
