"""Two consecutive releases on one store, and what an older release does with data that it must not use."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead import __version__
from fairlead.app.data_migrations import MIGRATIONS
from tests.harness.eventually import wait_until
from tests.harness.replicas import Replicas, running_replicas
from tests.harness.server_process import (
    CONFIGMAPS,
    MANAGEMENT,
    TIMEOUT_SECONDS,
    configmap,
    expect_startup_error,
    running_server,
)
from tests.upgrade.next_release import MINIMUM_VARIABLE, NEW_ANNOTATION, NEW_FIELD, NEW_PLURAL, RELEASE

NEXT = "tests.upgrade.next_release"
GROUP = f"{MANAGEMENT}/apis/management.service.sh/v1"
EDIT_ROLE = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"
APP: dict[str, Any] = {
    "apiVersion": "management.service.sh/v1",
    "kind": "App",
    "metadata": {"name": "shop"},
    "spec": {"displayName": "Shop", NEW_FIELD: "value", "config": {"chart": {"name": "shop"}}},
}


def test_data_that_needs_a_newer_release_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the release. The next release starts again, and the backup is usable by this one."""
    data = tmp_path / "data"
    with running_server(data) as server, server.client() as client:
        client.post(CONFIGMAPS, json=configmap("a")).raise_for_status()
        assert server.stop() == 0
    monkeypatch.setenv(MINIMUM_VARIABLE, str(len(MIGRATIONS) + 1))
    with running_server(data, NEXT) as server:
        assert server.stop() == 0
    message = expect_startup_error(data)
    assert f"needs Fairlead {RELEASE} or newer, and this is {__version__}" in message
    assert f"install Fairlead {RELEASE} or newer, or restore a backup from before the upgrade" in message
    [backup] = (data / "backups").iterdir()
    assert f"before-{RELEASE}" in backup.name


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """A replica of this release, and one of the next release that has been added to it."""
    with running_replicas("postgres", tmp_path_factory.mktemp("pair"), 1) as group:
        with group.servers[0].client() as client:
            client.post(CONFIGMAPS, json=configmap("before")).raise_for_status()
        group.start(NEXT)
        yield group


@pytest.fixture
def older(pair: Replicas) -> Iterator[httpx.Client]:
    with pair.servers[0].client() as client:
        yield client


@pytest.fixture
def newer(pair: Replicas) -> Iterator[httpx.Client]:
    with pair.servers[1].client() as client:
        yield client


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_older_replica_preserves_fields_that_it_does_not_know(older: httpx.Client, newer: httpx.Client) -> None:
    newer.post(f"{GROUP}/apps", json=APP, params={"fieldValidation": "Strict"}).raise_for_status()
    path = f"{GROUP}/apps/shop"
    assert older.get(path).json()["spec"][NEW_FIELD] == "value"
    patches = {
        "application/merge-patch+json": {"spec": {"displayName": "merge"}},
        "application/json-patch+json": [{"op": "replace", "path": "/spec/displayName", "value": "json"}],
        "application/apply-patch+yaml": {**APP, "spec": {"displayName": "apply"}},
    }
    for kind, patch in patches.items():
        options = {"fieldValidation": "Strict", "fieldManager": "tests", "force": "true"}
        if "apply" not in kind:
            del options["force"]
        answer = older.patch(path, content=json.dumps(patch), headers={"Content-Type": kind}, params=options)
        assert answer.status_code == 200, answer.text
        found = newer.get(path).json()["spec"]
        assert found["displayName"] in kind and found[NEW_FIELD] == "value"
    body = older.get(path).json()
    body["spec"]["displayName"] = "put"
    assert older.put(path, json=body, params={"fieldValidation": "Strict"}).status_code == 200
    assert newer.get(path).json()["spec"][NEW_FIELD] == "value"
    changed = older.patch(
        path,
        content=json.dumps({"spec": {NEW_FIELD: "other"}}),
        headers={"Content-Type": "application/merge-patch+json"},
        params={"fieldValidation": "Warn"},
    )
    assert "unknown field" in changed.headers["Warning"] and f"spec.{NEW_FIELD}" in changed.headers["Warning"]
    assert newer.get(path).json()["spec"][NEW_FIELD] == "value"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_data_is_migrated_while_the_older_replica_serves(older: httpx.Client, newer: httpx.Client) -> None:
    for client in (older, newer):
        found = client.get(f"{CONFIGMAPS}/before").json()
        assert found["metadata"]["annotations"][NEW_ANNOTATION] == "yes"
    older.post(CONFIGMAPS, json=configmap("after")).raise_for_status()
    assert newer.get(f"{CONFIGMAPS}/after").status_code == 200


@pytest.mark.long
@pytest.mark.timeout(300)
def test_new_kinds_reach_the_roles_and_an_older_replica_leaves_them(pair: Replicas, newer: httpx.Client) -> None:
    """An older replica that restarts during the upgrade works, and does not take the new rules away."""
    rules = newer.get(EDIT_ROLE).json()["rules"]
    assert any(NEW_PLURAL in rule["resources"] for rule in rules)
    restarted = pair.start()
    with restarted.client() as client:
        assert client.get(EDIT_ROLE).json()["rules"] == rules
    assert restarted.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_older_replica_stops_before_data_is_migrated_that_it_cannot_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A release is skipped: the replica that runs knows nothing of the version that the new data requires."""
    with running_replicas("postgres", tmp_path, 1) as group:
        older = group.servers[0]
        monkeypatch.setenv(MINIMUM_VARIABLE, str(len(MIGRATIONS) + 1))
        message = expect_startup_error(tmp_path / "next", module=NEXT, store=group.store, **group.secrets)
        assert f"servers of Fairlead {__version__} use this store" in message
        assert f"upgrade them to {RELEASE} first, or stop all of them" in message
        assert older.stop() == 0
        newer = group.start(NEXT)
        message = expect_startup_error(tmp_path / "again", store=group.store, **group.secrets)
        assert f"needs Fairlead {RELEASE} or newer" in message
        assert newer.process.poll() is None
        with newer.client() as client:
            wait_until(lambda: client.get("/readyz").status_code == 200, TIMEOUT_SECONDS)
